/* GET …/files/content: the bytes of one file, as the upstream sends them.  The head goes out only when the
 * first byte, or the complete end of an empty file, is here: an error never hides behind a 200.
 *
 * The upstream knows no ranges: what comes before one is read and dropped, and the call ends with its last
 * byte.  Where the upstream does not tell the size, the answer's head cannot be written before the range is
 * read; so a small one is collected first, and a large or open one is answered with the whole file, which the
 * RFC allows. */
#include "routes/handlers.h"

#include "base/buf.h"
#include "routes/act.h"
#include "routes/range.h"
#include "routes/spec.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { COLLECT_MAX = 1024 * 1024 };

struct file_read {
    struct act act;
    struct vercel_call *call;
    struct ex_stream *out;
    int64_t size; /* of the file; -1: not told */
    struct byte_range range;
    bool ranged;           /* part of the file is wanted: */
    uint64_t from, len;    /* this one, once the size is known */
    uint64_t seen;         /* bytes of the file that came */
    bool collecting;       /* the size is not known: */
    struct sg_buf collect; /* the range is read before it is answered */
};

static void read_free(struct file_read *r)
{
    if (r->call)
        vercel_call_cancel(r->call);
    sg_buf_free(&r->collect);
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

static void out_of_range(struct file_read *r, uint64_t size)
{
    char text[48];
    struct sg_error e;
    (void)snprintf(text, sizeof text, "bytes */%" PRIu64, size);
    ex_set_header(r->act.ex, "Content-Range", text);
    (void)sg_fail(&e, SG_E_RANGE_NOT_SATISFIABLE, SG_FINISHED, "the file has %" PRIu64 " bytes", size);
    read_fail(&r->act, &e);
}

/* False: answered with an error, r is freed. */
static bool resolve(struct file_read *r, uint64_t size)
{
    switch (range_resolve(&r->range, size, &r->from, &r->len)) {
    case RANGE_PART:
        return true;
    case RANGE_WHOLE:
        r->ranged = false;
        return true;
    case RANGE_OUTSIDE:
        break;
    }
    out_of_range(r, size);
    return false;
}

static void on_head(void *arg, int status, const char *content_type, int64_t content_length)
{
    struct file_read *r = arg;
    (void)status;
    (void)content_type;
    r->size = content_length;
    if (!r->ranged)
        return;
    if (r->size >= 0)
        (void)resolve(r, (uint64_t)r->size);
    else if (r->range.suffix || r->range.last == UINT64_MAX || r->range.last - r->range.first >= COLLECT_MAX)
        r->ranged = false;
    else
        r->collecting = true;
}

static void set_content_range(struct file_read *r)
{
    char text[80];
    uint64_t last = r->from + r->len - 1;
    if (r->size >= 0)
        (void)snprintf(text, sizeof text, "bytes %" PRIu64 "-%" PRIu64 "/%" PRId64, r->from, last, r->size);
    else
        (void)snprintf(text, sizeof text, "bytes %" PRIu64 "-%" PRIu64 "/*", r->from, last);
    ex_set_header(r->act.ex, "Content-Range", text);
}

/* False: answered with an error, r is freed. */
static bool send_head(struct file_read *r)
{
    struct exchange *ex = r->act.ex;
    act_settled(&r->act);
    ex_set_header(ex, "Cache-Control", "no-store, no-transform");
    ex_set_header(ex, "Accept-Ranges", "bytes");
    if (r->ranged)
        set_content_range(r);
    r->out = ex_stream_begin(ex, r->ranged ? 206 : 200, "application/octet-stream",
                             r->ranged ? (int64_t)r->len : r->size, on_stream_drain, on_stream_gone, r);
    if (!r->out)
        read_free(r);
    return r->out != NULL;
}

static void finish(struct file_read *r)
{
    ex_stream_end(r->out);
    read_free(r);
}

/* False: r is freed. */
static bool write_out(struct file_read *r, const char *data, size_t len)
{
    if (ex_stream_write(r->out, data, len))
        return true;
    ex_stream_abort(r->out);
    read_free(r);
    return false;
}

/* The part of what came that belongs to [first, end), as *data and *len. */
static void clip(uint64_t at, uint64_t first, uint64_t end, const char **data, size_t *len)
{
    uint64_t stop = at + *len < end ? at + *len : end;
    uint64_t start = at > first ? at : first;
    *data += start < stop ? start - at : 0;
    *len = start < stop ? (size_t)(stop - start) : 0;
}

/* The range is complete, or the file ended inside it. */
static void answer_collected(struct file_read *r)
{
    r->collecting = false;
    r->from = r->range.first;
    r->len = r->collect.len;
    if (!send_head(r))
        return;
    if (write_out(r, r->collect.data, r->collect.len))
        finish(r);
}

static bool collect(struct file_read *r, const char *data, size_t len)
{
    uint64_t want = r->range.last - r->range.first + 1, at = r->seen;
    r->seen += len;
    clip(at, r->range.first, r->range.last + 1, &data, &len);
    if (len && !sg_buf_add(&r->collect, data, len)) {
        struct sg_error e;
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
        read_fail(&r->act, &e);
    } else if (r->collect.len == want) {
        answer_collected(r);
    }
    return true;
}

static bool on_data(void *arg, const char *data, size_t len)
{
    struct file_read *r = arg;
    if (r->collecting)
        return collect(r, data, len);
    if (r->out && ex_stream_queued(r->out) >= EX_STREAM_HIGH)
        return false; /* not taken; it comes again after on_stream_drain */
    uint64_t at = r->seen;
    r->seen += len;
    if (r->ranged)
        clip(at, r->from, r->from + r->len, &data, &len);
    if (!len)
        return true;
    if (!r->out && !send_head(r))
        return false;
    if (!write_out(r, data, len))
        return false;
    if (r->ranged && r->seen >= r->from + r->len)
        finish(r); /* nobody wants the rest */
    return true;
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
    if (r->collecting) { /* the file's end is its size */
        r->size = (int64_t)r->seen;
        if (r->collect.len)
            answer_collected(r);
        else
            out_of_range(r, r->seen);
        return;
    }
    if (!r->out && !send_head(r))
        return;
    finish(r);
}

static void read_go(struct act *a)
{
    static const struct vercel_events events = {on_head, on_data, on_done};
    struct file_read *r = (struct file_read *)a;
    struct sg_error e;
    r->size = -1;
    r->seen = 0;
    r->collecting = false;
    sg_buf_reset(&r->collect);
    r->ranged = strcmp(a->ex->method, "GET") == 0 && !ex_header(a->ex, "If-Range") &&
                range_parse(ex_header(a->ex, "Range"), &r->range);
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
    if (!r)
        return;
    sg_buf_init(&r->collect, COLLECT_MAX);
    act_begin(&r->act);
}
