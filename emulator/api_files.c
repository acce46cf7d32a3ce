#include "emulator/api.h"
#include "emulator/box.h"
#include "emulator/lifecycle.h"
#include "emulator/render.h"
#include "emulator/validate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Absolute, in a buffer of the caller. */
static int resolve_cwd(struct request *rq, const char *cwd, char *out, size_t cap)
{
    int n = !cwd || !*cwd ? snprintf(out, cap, "%s", EMULATOR_CWD)
            : *cwd == '/' ? snprintf(out, cap, "%s", cwd)
                          : snprintf(out, cap, "%s/%s", EMULATOR_CWD, cwd);
    return n >= 0 && (size_t)n < cap ? 0 : api_invalid(&rq->err, "the working directory is too long.");
}

static int file_error(struct request *rq, int err, const char *what, const char *path)
{
    switch (err) {
    case ESRCH:
    case EPIPE:
        return api_fail(&rq->err, 410, "sandbox_stopped",
                        "Sandbox has stopped execution and is no longer available");
    case ENOSPC:
    case EDQUOT:
    case EIO:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
        return api_fail(&rq->err, 500, "internal_server_error", "%s '%.200s': %s", what, path, strerror(err));
    default:
        return api_fail(&rq->err, 400, "bad_request", "%s '%.200s': %s", what, path, strerror(err));
    }
}

int api_file_mkdir(struct request *rq, struct reply *rp)
{
    struct path_body in;
    char cwd[4200];
    const json_t *body = request_json(rq);
    if (!body || validate_path(body, true, &in, &rq->err) || resolve_cwd(rq, in.cwd, cwd, sizeof cwd))
        return -1;
    struct session *s = api_session(rq);
    if (!s)
        return -1;
    int rc = session_enter(s, &rq->err);
    if (!rc) {
        int err = box_mkdir(s->box, cwd, in.path, in.recursive);
        session_leave(s);
        if (err)
            rc = file_error(rq, err, "cannot make the directory", in.path);
        else
            sg_buf_adds(&rp->body, "{}");
    }
    session_unref(s);
    return rc;
}

int api_file_read(struct request *rq, struct reply *rp)
{
    struct path_body in;
    char cwd[4200];
    const json_t *body = request_json(rq);
    if (!body || validate_path(body, false, &in, &rq->err) || resolve_cwd(rq, in.cwd, cwd, sizeof cwd))
        return -1;
    struct session *s = api_session(rq);
    if (!s)
        return -1;
    int rc = session_enter(s, &rq->err);
    if (!rc) {
        int fd = -1;
        struct stat sb;
        int err = box_open_read(s->box, cwd, in.path, &fd);
        session_leave(s);
        if (!err && fstat(fd, &sb)) {
            err = errno;
            close(fd);
        }
        if (!err) {
            rp->file_fd = fd;
            rp->file_size = (uint64_t)sb.st_size;
            rp->type = "application/octet-stream";
        } else if (err == ENOENT || err == ENOTDIR) {
            rc = api_fail(&rq->err, 404, "not_found", "File not found: %.250s", in.path);
        } else {
            rc = file_error(rq, err, "cannot read", in.path);
        }
    }
    session_unref(s);
    return rc;
}

/* ---- write: the archive is unpacked while it arrives ---- */

struct write_state {
    struct session *session; /* entered until the unpacker is done */
    struct upload upload;    /* our end of the socket pair */
    int far_fd;
    pthread_t thread;
    char cwd[4200];
    int error;
    char text[BOX_TEXT];
    bool broken; /* the unpacker does not read any more */
};

static void *unpack(void *arg)
{
    struct write_state *w = arg;
    w->error = box_untar(w->session->box, w->cwd, w->far_fd, w->text);
    session_leave(w->session); /* here, not with the request: a stop must not wait for a stalled client */
    return NULL;
}

static int start_unpacking(struct request *rq, struct write_state *w)
{
    int p[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p))
        return api_fail(&rq->err, 500, "internal_server_error", "no descriptors: %s", strerror(errno));
    int size = 1 << 20;
    setsockopt(p[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    w->upload.fd = p[0];
    w->far_fd = p[1];
    session_add_upload(w->session, &w->upload);
    if (!pthread_create(&w->thread, NULL, unpack, w))
        return 0;
    session_remove_upload(w->session, &w->upload);
    close(p[0]);
    close(p[1]);
    return api_fail(&rq->err, 500, "internal_server_error", "no thread for the upload");
}

static int write_begin(struct request *rq)
{
    struct session *s = api_session(rq);
    if (!s)
        return -1;
    struct write_state *w = calloc(1, sizeof *w);
    const char *cwd = MHD_lookup_connection_value(rq->conn, MHD_HEADER_KIND, "x-cwd");
    int rc = -1;
    if (!w)
        api_fail(&rq->err, 500, "internal_server_error", "no memory");
    else if (!resolve_cwd(rq, cwd, w->cwd, sizeof w->cwd) && !session_enter(s, &rq->err)) {
        w->session = s;
        rc = start_unpacking(rq, w);
        if (rc)
            session_leave(s);
    }
    if (rc) {
        free(w);
        session_unref(s);
        return -1;
    }
    rq->sink_state = w;
    return 0;
}

static void write_data(struct request *rq, const char *p, size_t n)
{
    struct write_state *w = rq->sink_state;
    while (n && !w->broken) {
        ssize_t k = send(w->upload.fd, p, n, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            w->broken = true;
            return;
        }
        p += k;
        n -= (size_t)k;
    }
}

/* Waits for the unpacker and gives everything back; its result is in *w until it is freed. */
static void write_join(struct request *rq, struct write_state *w, int how)
{
    rq->sink_state = NULL;
    shutdown(w->upload.fd, how);
    pthread_join(w->thread, NULL);
    session_remove_upload(w->session, &w->upload);
    close(w->upload.fd);
}

static void write_abandon(struct request *rq)
{
    struct write_state *w = rq->sink_state;
    write_join(rq, w, SHUT_RDWR);
    session_unref(w->session);
    free(w);
}

const struct upload_sink api_file_write_sink = {
    .begin = write_begin, .data = write_data, .abandon = write_abandon};

int api_file_write(struct request *rq, struct reply *rp)
{
    struct write_state *w = rq->sink_state;
    write_join(rq, w, SHUT_WR);
    int rc = 0;
    if (!w->error) {
        sg_buf_adds(&rp->body, "{}");
    } else if (session_check(w->session, &rq->err)) {
        rc = -1; /* it was stopped meanwhile: that is what the caller has to know */
    } else {
        rc = file_error(rq, w->error, *w->text ? w->text : "cannot unpack into", w->cwd);
    }
    session_unref(w->session);
    free(w);
    return rc;
}
