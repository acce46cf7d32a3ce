/* GET …/files/content: the bytes of one file, as the upstream sends them.  The head goes out only when the
 * first byte, or the complete end of an empty file, is here: an error never hides behind a 200. */
#include "routes/handlers.h"

#include "routes/act.h"
#include "routes/spec.h"

#include <jansson.h>
#include <stdio.h>

struct file_read {
    struct act act;
    struct vercel_call *call;
    struct ex_stream *out;
    int64_t length; /* -1: not told */
};

static void read_free(struct file_read *r)
{
    if (r->call)
        vercel_call_cancel(r->call);
    act_free(&r->act);
}

static void read_fail(struct act *a, const struct sg_error *e)
{
    if (act_settled(a))
        ex_fail(a->ex, e);
    read_free((struct file_read *)a);
}

static void on_client_gone(void *arg)
{
    struct file_read *r = arg;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_BAD_REQUEST, SG_FINISHED, "the client left");
    read_fail(&r->act, &e);
}

static void on_stream_drain(void *arg)
{
    struct file_read *r = arg;
    if (r->call)
        vercel_call_resume(r->call);
}

static void on_stream_gone(void *arg)
{
    struct file_read *r = arg;
    read_free(r);
}

static void on_head(void *arg, int status, const char *content_type, int64_t content_length)
{
    struct file_read *r = arg;
    (void)status;
    (void)content_type;
    r->length = content_length;
}

/* False: answered with an error, r is freed. */
static bool send_head(struct file_read *r)
{
    struct exchange *ex = r->act.ex;
    act_settled(&r->act);
    ex_set_header(ex, "Cache-Control", "no-store, no-transform");
    r->out =
        ex_stream_begin(ex, 200, "application/octet-stream", r->length, on_stream_drain, on_stream_gone, r);
    if (!r->out)
        read_free(r);
    return r->out != NULL;
}

static bool on_data(void *arg, const char *data, size_t len)
{
    struct file_read *r = arg;
    if (!r->out && !send_head(r))
        return false;
    if (ex_stream_queued(r->out) >= EX_STREAM_HIGH)
        return false; /* not taken; it comes again after on_stream_drain */
    if (ex_stream_write(r->out, data, len))
        return true;
    ex_stream_abort(r->out);
    read_free(r);
    return false;
}

/* "No such file" is also what the upstream says of a session that it no longer knows: believe it only from a
 * session that was looked up just now. */
static bool doubt(struct file_read *r, const struct sg_error *e)
{
    if (e->code != SG_E_FILE_NOT_FOUND || !r->act.cached || r->act.retried)
        return false;
    struct sg_error over = *e;
    over.code = SG_E_STALE_SESSION;
    over.outcome = SG_NOT_STARTED;
    return act_retry(&r->act, &over);
}

static void on_done(void *arg, const struct sg_error *e)
{
    struct file_read *r = arg;
    r->call = NULL;
    if (e && r->out) {
        ex_stream_abort(r->out); /* the client must see that it is cut */
        read_free(r);
        return;
    }
    if (e) {
        struct sg_error own = *e;
        if (e->code == SG_E_FILE_NOT_FOUND && !*own.errno_name)
            (void)snprintf(own.errno_name, sizeof own.errno_name, "ENOENT");
        if (!doubt(r, e) && !act_retry(&r->act, e))
            read_fail(&r->act, &own);
        return;
    }
    if (!r->out && !send_head(r))
        return;
    ex_stream_end(r->out);
    read_free(r);
}

static void read_go(struct act *a)
{
    static const struct vercel_events events = {on_head, on_data, on_done};
    struct file_read *r = (struct file_read *)a;
    struct sg_error e;
    r->length = -1;
    r->call =
        vercel_file_read(a->gw->vercel, a->session_id, ex_query(a->ex, "path", NULL), a->cwd, &events, r, &e);
    if (r->call)
        ex_on_gone(a->ex, on_client_gone, r);
    else
        read_fail(a, &e);
}

/* The upstream takes this path as JSON text. */
static enum sg_code check_utf8(const char *path, size_t len, struct sg_error *e)
{
    json_t *text = json_stringn(path, len);
    if (!text)
        return sg_fail_field(e, SG_E_UNSUPPORTED, "?path", "names that are not UTF-8 cannot be read");
    json_decref(text);
    return SG_OK;
}

void route_file_read(struct exchange *ex)
{
    static const char *const allowed[] = {"path", "session", NULL};
    struct sg_error e;
    size_t len = 0;
    const char *path = ex_query(ex, "path", &len);
    if (ex_query_only(ex, allowed, &e) || spec_path(path, len, &e) || check_utf8(path, len, &e)) {
        ex_fail(ex, &e);
        return;
    }
    struct file_read *r = act_new(ex, sizeof *r, read_go, read_fail);
    if (r)
        act_begin(&r->act);
}
