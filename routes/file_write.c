/* PUT …/files/content: the body flows through a small buffer into transfer/, which replaces the file whole.
 *
 * A body that fits the buffer is kept until the end, so that it can be sent again when the cached session
 * turned out to be over.
 */
#include "routes/handlers.h"

#include "routes/act.h"
#include "routes/spec.h"
#include "transfer/transfer.h"

#include <stdlib.h>
#include <string.h>

enum { BODY_BUFFER = 64 * 1024 };

struct file_write {
    struct act act;
    struct upload *upload;
    int mode;
    bool parents, exclusive;
    bool receiving;    /* ex_receive was called */
    bool in_data;      /* inside on_data: the body must not be resumed from there */
    bool body_waits;   /* the client's side is paused */
    bool upload_waits; /* transfer asked and got nothing */
    bool ended;        /* the whole body is here */
    bool kept;         /* the buffer holds the body from its start */
    size_t start, end; /* unread part of buf */
    char buf[BODY_BUFFER];
};

static void write_free(struct file_write *w)
{
    if (w->upload)
        upload_cancel(w->upload);
    act_free(&w->act);
}

static void write_fail(struct act *a, const struct sg_error *e)
{
    if (act_settled(a))
        ex_fail(a->ex, e);
    write_free((struct file_write *)a);
}

static void on_client_gone(void *arg)
{
    struct file_write *w = arg;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_BAD_REQUEST, SG_NOT_STARTED, "the client left");
    write_fail(&w->act, &e);
}

/* ---- client → buffer ---- */

static size_t fill(struct file_write *w, const char *data, size_t len)
{
    if (!w->kept && w->start) {
        memmove(w->buf, w->buf + w->start, w->end - w->start);
        w->end -= w->start;
        w->start = 0;
    }
    size_t room = sizeof w->buf - w->end;
    size_t n = len < room ? len : room;
    memcpy(w->buf + w->end, data, n);
    w->end += n;
    return n;
}

static void wake_upload(struct file_write *w)
{
    if (!w->upload || !w->upload_waits)
        return;
    w->upload_waits = false;
    upload_resume(w->upload);
}

static size_t on_body(void *arg, const char *data, size_t len)
{
    struct file_write *w = arg;
    size_t taken = 0, n;
    w->in_data = true;
    do { /* waking may read at once and so make room */
        n = fill(w, data + taken, len - taken);
        taken += n;
        wake_upload(w);
    } while (n && taken < len);
    w->in_data = false;
    w->body_waits = taken < len;
    return taken;
}

static void on_body_end(void *arg)
{
    struct file_write *w = arg;
    w->ended = true;
    wake_upload(w);
}

/* ---- buffer → upload ---- */

static size_t body_read(void *arg, char *out, size_t cap)
{
    struct file_write *w = arg;
    size_t n = w->end - w->start;
    if (!n) {
        w->upload_waits = !w->ended;
        return w->ended ? 0 : VERCEL_READ_PAUSE;
    }
    n = n < cap ? n : cap;
    memcpy(out, w->buf + w->start, n);
    w->start += n;
    if (w->body_waits && !w->in_data) {
        w->body_waits = false;
        ex_receive_resume(w->act.ex);
    }
    return n;
}

static void on_uploaded(void *arg, bool created, const struct sg_error *e)
{
    struct file_write *w = arg;
    w->upload = NULL;
    w->upload_waits = false;
    if (e) {
        bool again = w->kept || !w->receiving;
        if (again)
            w->start = 0;
        else
            w->act.cached = false; /* the body is gone: no second attempt */
        if (!act_retry(&w->act, e))
            write_fail(&w->act, e);
        return;
    }
    if (act_settled(&w->act))
        ex_answer_empty(w->act.ex, created ? 201 : 204);
    write_free(w);
}

static void write_go(struct act *a)
{
    static const struct ex_sink sink = {on_body, on_body_end};
    struct file_write *w = (struct file_write *)a;
    struct sg_error e;
    struct upload_spec spec = {
        .session_id = a->session_id,
        .arch = a->arch,
        .cwd = a->cwd,
        .path = ex_query(a->ex, "path", NULL),
        .mode = w->mode,
        .parents = w->parents,
        .exclusive = w->exclusive,
        .size = (uint64_t)a->ex->content_length,
        .read = body_read,
    };
    w->upload = upload_start(a->gw->guestlink, &spec, on_uploaded, w, &e);
    if (!w->upload) {
        write_fail(a, &e);
        return;
    }
    ex_on_gone(a->ex, on_client_gone, w);
    if (!w->receiving) {
        w->receiving = true;
        ex_receive(a->ex, &sink, w);
    }
}

/* ---- the request ---- */

struct write_query {
    int mode;
    bool parents, exclusive;
};

static enum sg_code parse(struct exchange *ex, struct write_query *q, struct sg_error *e)
{
    static const char *const allowed[] = {"path", "mode", "parents", "session", NULL};
    size_t len = 0;
    const char *path = ex_query(ex, "path", &len), *mode = ex_query(ex, "mode", NULL);
    const char *parents = ex_query(ex, "parents", NULL), *none_match = ex_header(ex, "If-None-Match");
    q->mode = -1;
    enum sg_code rc = ex_query_only(ex, allowed, e);
    if (!rc)
        rc = spec_path(path, len, e);
    if (!rc && mode)
        rc = spec_mode(mode, &q->mode, e);
    if (rc)
        return rc;
    if (parents && strcmp(parents, "true") != 0 && strcmp(parents, "false") != 0)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "?parents", "must be true or false");
    q->parents = parents && !strcmp(parents, "true");
    if ((none_match && strcmp(none_match, "*") != 0) || ex_header(ex, "If-Match"))
        return sg_fail(e, SG_E_UNSUPPORTED, SG_NOT_SENT,
                       "of the conditions only If-None-Match: * is supported");
    q->exclusive = none_match != NULL;
    if (ex_header(ex, "Content-Range"))
        return sg_fail(e, SG_E_UNSUPPORTED, SG_NOT_SENT,
                       "a file is written whole; Content-Range is not supported");
    if (ex->content_length < 0)
        return sg_fail(e, SG_E_LENGTH_REQUIRED, SG_NOT_SENT, "send the size of the file as Content-Length");
    return SG_OK;
}

void route_file_write(struct exchange *ex)
{
    struct sg_error e;
    struct write_query q = {0};
    if (parse(ex, &q, &e)) {
        ex_fail(ex, &e);
        return;
    }
    struct file_write *w = act_new(ex, sizeof *w, write_go, write_fail);
    if (!w)
        return;
    w->mode = q.mode;
    w->parents = q.parents;
    w->exclusive = q.exclusive;
    w->kept = ex->content_length <= (int64_t)sizeof w->buf;
    act_begin(&w->act);
}
