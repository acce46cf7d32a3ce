#include "transfer/transfer.h"

#include "base/buf.h"
#include "base/crypto.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PATH_MAX_BYTES = 4095,
    COMMIT_TRIES = 3, /* a commit whose answer was lost may be asked again: it consumes the upload */
    ARGS_MAX = 16,
};

/* The body goes to a file of our own below the guest's root; then `commit` puts it in its place, or
 * `unlink-upload` takes it away. */
struct upload {
    struct guestlink *guestlink;
    char *session_id, *arch, *target;
    char temporary[sizeof GUEST_ROOT + 40];
    int mode;
    bool parents, exclusive;
    uint64_t size;
    vercel_read_fn *read;
    upload_done_fn *done; /* NULL: nobody listens any more */
    void *arg;
    struct vercel_call *put;
    struct guest_call *call; /* commit or unlink-upload */
    int tries;
    bool lost; /* a commit's answer was: it may have taken effect */
};

static void upload_free(struct upload *u)
{
    free(u->session_id);
    free(u->arch);
    free(u->target);
    free(u);
}

static void tell(struct upload *u, bool created, const struct sg_error *e)
{
    upload_done_fn *done = u->done;
    u->done = NULL;
    if (done)
        done(u->arg, created, e);
}

static struct guest_call *call_guest(struct upload *u, const char *const *args, const struct guest_events *ev,
                                     struct sg_error *e)
{
    struct guest_args g = {.session_id = u->session_id, .arch = u->arch, .args = args};
    return guest_call_start(u->guestlink, &g, ev, u, e);
}

static bool ignore_line(void *arg, const struct sg_wire_line *line)
{
    (void)arg;
    (void)line;
    return true;
}

/* ---- taking a failed upload away: tried once, nobody waits for it ---- */

static void on_unlinked(void *arg, const struct sg_wire_line *line, bool hello, const struct sg_error *e)
{
    struct upload *u = arg;
    (void)hello;
    if (!line)
        sg_log(SG_LOG_WARN, "upload_left_behind", "session", "s", u->session_id, "file", "s", u->temporary,
               "error", "e", e, NULL);
    upload_free(u);
}

static void take_away(struct upload *u)
{
    static const struct guest_events ev = {.on_line = ignore_line, .on_end = on_unlinked};
    const char *args[] = {"unlink-upload", "--from", u->temporary, NULL};
    struct sg_error e;
    u->call = call_guest(u, args, &ev, &e);
    if (!u->call)
        upload_free(u);
}

static bool session_is_over(const struct sg_error *e)
{
    return e->code == SG_E_STALE_SESSION || e->code == SG_E_SANDBOX_NOT_RUNNING ||
           e->code == SG_E_SANDBOX_NOT_FOUND || e->code == SG_E_DRAINING;
}

/* Tells the failure and clears up. */
static void give_up(struct upload *u, const struct sg_error *e, bool nothing_there)
{
    struct sg_error copy = *e;
    tell(u, false, &copy);
    if (nothing_there || session_is_over(&copy))
        upload_free(u);
    else
        take_away(u);
}

/* ---- commit ---- */

static void commit(struct upload *u);

static void on_committed(void *arg, const struct sg_wire_line *line, bool hello, const struct sg_error *e)
{
    struct upload *u = arg;
    struct sg_error mine;
    (void)hello;
    u->call = NULL;
    if (line && line->kind == SG_WIRE_OK) {
        tell(u, !strcmp(line->text, "created"), NULL);
        upload_free(u);
        return;
    }
    if (!line) {
        mine = *e;
        bool known = mine.outcome == SG_NOT_SENT || mine.outcome == SG_NOT_STARTED;
        if (!known && !session_is_over(&mine)) {
            u->lost = true;
            if (u->tries < COMMIT_TRIES) {
                commit(u);
                return;
            }
        }
        if (u->lost)
            mine.outcome = SG_OUTCOME_UNKNOWN;
        give_up(u, &mine, false);
        return;
    }
    if (line->kind == SG_WIRE_ERROR)
        guest_error(line, &mine);
    else
        sg_fail(&mine, SG_E_UPSTREAM_BAD_RESPONSE, SG_OUTCOME_UNKNOWN,
                "the helper in the sandbox answered something else than it was asked");
    if (u->lost && (!strcmp(mine.errno_name, "ENOENT") || !strcmp(mine.errno_name, "EEXIST"))) {
        /* the commit before, whose answer was lost, may have been the one that took the upload */
        sg_fail(&mine, SG_E_UPSTREAM_UNAVAILABLE, SG_OUTCOME_UNKNOWN,
                "the answer to the last step was lost; the file is either whole or as it was before");
    }
    give_up(u, &mine, line->kind == SG_WIRE_ERROR); /* a refused commit has removed the upload itself */
}

static void commit(struct upload *u)
{
    static const struct guest_events ev = {.on_line = ignore_line, .on_end = on_committed};
    const char *args[ARGS_MAX] = {"commit", "--from", u->temporary, "--to", u->target, "--size"};
    char size[24], mode[8];
    size_t n = 6;
    (void)snprintf(size, sizeof size, "%" PRIu64, u->size);
    args[n++] = size;
    if (u->mode >= 0) {
        (void)snprintf(mode, sizeof mode, "%o", (unsigned)u->mode & 07777U);
        args[n++] = "--mode";
        args[n++] = mode;
    }
    if (u->parents)
        args[n++] = "--parents";
    if (u->exclusive)
        args[n++] = "--exclusive";
    args[n] = NULL;
    u->tries++;
    struct sg_error e;
    u->call = call_guest(u, args, &ev, &e);
    if (!u->call) {
        if (u->lost)
            e.outcome = SG_OUTCOME_UNKNOWN;
        give_up(u, &e, false);
    }
}

/* ---- the body ---- */

static size_t read_body(void *arg, char *buf, size_t cap)
{
    struct upload *u = arg;
    return u->read(u->arg, buf, cap); /* may have cancelled: u is not touched again */
}

static void on_put(void *arg, const struct sg_error *e)
{
    struct upload *u = arg;
    u->put = NULL;
    if (!e) {
        commit(u);
        return;
    }
    struct sg_error mine = *e;
    bool nothing_there = mine.outcome == SG_NOT_SENT;
    if (mine.outcome != SG_NOT_SENT)
        mine.outcome = SG_NOT_STARTED; /* the target has not been touched yet */
    give_up(u, &mine, nothing_there);
}

/* ---- the owner's side ---- */

static enum sg_code check(const struct upload_spec *s, struct sg_error *e)
{
    size_t n = s->path ? strlen(s->path) : 0;
    if (n == 0 || n > PATH_MAX_BYTES)
        return sg_fail_field(e, SG_E_INVALID_PATH, "?path", "from 1 to %d bytes", PATH_MAX_BYTES);
    json_t *text = json_string(s->path); /* the only road for a path into the sandbox is JSON */
    if (!text)
        return sg_fail_field(e, SG_E_UNSUPPORTED, "?path", "names that are not UTF-8 cannot be written yet");
    json_decref(text);
    return SG_OK;
}

static bool copy(struct upload *u, const struct upload_spec *s)
{
    struct sg_buf path;
    sg_buf_init(&path, (size_t)2 * PATH_MAX_BYTES);
    bool ok = true;
    if (s->path[0] != '/' && s->cwd)
        ok = sg_buf_adds(&path, s->cwd) && sg_buf_adds(&path, "/");
    if (ok && sg_buf_adds(&path, s->path))
        u->target = sg_buf_take(&path, NULL);
    sg_buf_free(&path);
    u->session_id = strdup(s->session_id);
    u->arch = s->arch ? strdup(s->arch) : NULL;
    char nonce[24];
    if (!sg_random_id(nonce, "", sizeof nonce - 1))
        return false;
    (void)snprintf(u->temporary, sizeof u->temporary, "%s/.up-put-%s", GUEST_ROOT, nonce);
    return u->target && u->session_id && (u->arch || !s->arch);
}

struct upload *upload_start(struct guestlink *g, const struct upload_spec *s, upload_done_fn *done, void *arg,
                            struct sg_error *e)
{
    if (check(s, e))
        return NULL;
    struct upload *u = calloc(1, sizeof *u);
    if (!u || !copy(u, s)) {
        sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for an upload");
        goto fail;
    }
    u->guestlink = g;
    u->mode = s->mode;
    u->parents = s->parents;
    u->exclusive = s->exclusive;
    u->size = s->size;
    u->read = s->read;
    u->done = done;
    u->arg = arg;
    struct vercel_file_write w = {
        .session_id = u->session_id, .path = u->temporary, .mode = 0600, .size = s->size, .read = read_body};
    u->put = vercel_file_write_start(guestlink_client(g), &w, on_put, u, e);
    if (u->put)
        return u;

fail:
    if (u)
        upload_free(u);
    return NULL;
}

void upload_resume(struct upload *u)
{
    if (u->put)
        vercel_call_resume(u->put);
}

void upload_cancel(struct upload *u)
{
    u->done = NULL;
    if (!u->put)
        return; /* the commit was sent: it is seen through, unheard */
    vercel_call_cancel(u->put);
    u->put = NULL;
    take_away(u);
}
