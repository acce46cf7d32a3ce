/* GET and HEAD …/files/content: the bytes of one file, or one range of them.  The conditions of the request are judged by
 * what the guest saw when it opened the file, and the bytes are of that state of it.  The head goes out only when the
 * first byte, or the complete end of an empty file, is here: an error never hides behind a 200. */
#include "routes/handlers.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/core/b64.h"
#include "routes/conditions.h"
#include "routes/disposition.h"
#include "routes/files.h"
#include "routes/range.h"
#include "routes/spec.h"
#include "transfer/download.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NUMBER_MAX = 80, DISPOSITION_MAX = 64 * 1024, NS = 1000000000 };
static const int64_t offset_max = INT64_MAX / 4; /* of the guest; no file is so long */

struct file_read {
    struct act act;
    struct fs_request request;
    struct download *download;
    struct ex_stream *out;
    bool head, waits;
    struct conditions conditions;
    struct byte_range range;
    bool ranged; /* part of the file is wanted: */
    uint64_t from, len;
    struct sg_wire_file file;
    uint64_t left; /* bytes of the answer that did not come yet */
};

static void read_free(struct file_read *r)
{
    if (r->download)
        download_cancel(r->download);
    fs_request_free(&r->request);
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
    if (!r->waits || !r->download)
        return;
    r->waits = false;
    download_resume(r->download);
}

static void on_stream_gone(void *arg)
{
    struct file_read *r = arg;
    read_free(r);
}

/* ---- the answer's head ---- */

static void set_disposition(struct file_read *r)
{
    struct exchange *ex = r->act.ex;
    const char *kind = ex_query(ex, "disposition", NULL), *path, *base64;
    char decoded[SG_B64_LEN(SPEC_PATH_MAX)];
    size_t len = 0, n = 0;
    struct sg_buf b;
    if (!kind)
        return;
    path = ex_query(ex, "path", &len);
    base64 = ex_query(ex, "path_b64", &n);
    if (base64) {
        ssize_t got = sg_b64_decode(decoded, base64, n);
        path = decoded;
        len = got > 0 ? (size_t)got : 0;
    }
    sg_buf_init(&b, DISPOSITION_MAX);
    disposition_add(kind, path, len, "", "file", &b);
    if (!b.failed)
        ex_set_header(ex, "Content-Disposition", b.data);
    sg_buf_free(&b);
}

static int64_t modified_s(const struct sg_wire_file *f)
{
    return f->mtime_ns / NS - (f->mtime_ns % NS < 0);
}

/* What an answer with the content has in common with one that says that it is the same. */
static void set_validators(struct file_read *r)
{
    struct exchange *ex = r->act.ex;
    char tag[SG_FILE_TAG_LEN + 1], quoted[SG_FILE_TAG_LEN + 3], date[CONDITION_DATE_TEXT];
    sg_file_tag(&r->file, tag);
    (void)snprintf(quoted, sizeof quoted, "\"%s\"", tag);
    condition_date_format(modified_s(&r->file), date);
    ex_set_header(ex, "ETag", quoted);
    ex_set_header(ex, "Last-Modified", date);
    ex_set_header(ex, "Cache-Control", "private, no-cache, no-transform");
}

static void set_content_range(struct file_read *r)
{
    char text[NUMBER_MAX];
    (void)snprintf(text, sizeof text, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, r->from, r->from + r->len - 1,
                   r->file.size);
    ex_set_header(r->act.ex, "Content-Range", text);
}

/* False: answered with an error, r is freed. */
static bool send_head(struct file_read *r)
{
    struct exchange *ex = r->act.ex;
    act_settled(&r->act);
    set_validators(r);
    ex_set_header(ex, "Accept-Ranges", "bytes");
    ex_set_header(ex, "X-Content-Type-Options", "nosniff");
    set_disposition(r);
    if (r->ranged)
        set_content_range(r);
    r->out = ex_stream_begin(ex, r->ranged ? 206 : 200, "application/octet-stream", (int64_t)r->len,
                             on_stream_drain, on_stream_gone, r);
    if (!r->out)
        read_free(r);
    return r->out != NULL;
}

/* ---- what the file is ---- */

/* Without a body, and yet with the length that it would have. */
static void not_modified(struct file_read *r)
{
    act_settled(&r->act);
    set_validators(r);
    struct ex_stream *out =
        ex_stream_begin(r->act.ex, 304, NULL, (int64_t)r->file.size, NULL, on_stream_gone, r);
    if (out)
        ex_stream_end(out);
    read_free(r);
}

static void not_expected(struct file_read *r)
{
    struct sg_error e;
    (void)sg_fail(&e, SG_E_PRECONDITION_FAILED, SG_FINISHED,
                  "the file is not in the state that is asked for");
    set_validators(r);
    read_fail(&r->act, &e);
}

static void out_of_range(struct file_read *r)
{
    char text[NUMBER_MAX];
    struct sg_error e;
    (void)snprintf(text, sizeof text, "bytes */%" PRIu64, r->file.size);
    ex_set_header(r->act.ex, "Content-Range", text);
    (void)sg_fail(&e, SG_E_RANGE_NOT_SATISFIABLE, SG_FINISHED, "the file has %" PRIu64 " bytes",
                  r->file.size);
    read_fail(&r->act, &e);
}

/* If-Range: the client has part of this very state of it. */
static bool range_counts(const struct file_read *r)
{
    const char *header = ex_header(r->act.ex, "If-Range");
    char tag[SG_FILE_TAG_LEN + 1];
    int64_t s;
    if (!header)
        return true;
    sg_file_tag(&r->file, tag);
    return condition_tag_is(header, tag) ||
           (condition_date_parse(header, sg_wall_ms() / 1000, &s) && s == modified_s(&r->file));
}

static void read_go(struct act *a);

static void read_whole(struct file_read *r)
{
    download_cancel(r->download);
    r->download = NULL;
    r->ranged = false;
    read_go(&r->act);
}

static void on_open(void *arg, const struct sg_wire_file *file)
{
    struct file_read *r = arg;
    r->file = *file;
    r->from = 0;
    r->len = file->size;
    switch (conditions_judge(&r->conditions, file, true)) {
    case CONDITION_NOT_MODIFIED:
        not_modified(r);
        return;
    case CONDITION_FAILED:
        not_expected(r);
        return;
    case CONDITION_GO:
        break;
    }
    if (r->ranged && !range_counts(r)) {
        read_whole(r);
        return;
    }
    enum range_fit fit = r->ranged ? range_resolve(&r->range, file->size, &r->from, &r->len) : RANGE_WHOLE;
    if (fit == RANGE_OUTSIDE) {
        out_of_range(r);
        return;
    }
    r->ranged = fit == RANGE_PART;
    r->left = r->head ? 0 : r->len;
}

static void on_head(void *arg, const struct sg_wire_file *file, bool same)
{
    (void)arg;
    (void)file; /* as on_open had it */
    (void)same; /* answered there */
}

/* ---- its bytes ---- */

static void read_abort(struct file_read *r)
{
    ex_stream_abort(r->out); /* the client must see that it is cut */
    read_free(r);
}

static void not_as_long(struct file_read *r)
{
    struct sg_error e;
    if (r->out) {
        read_abort(r);
        return;
    }
    (void)sg_fail(&e, SG_E_UPSTREAM_BAD_RESPONSE, SG_FINISHED,
                  "the helper in the sandbox gave another number of bytes than it said");
    read_fail(&r->act, &e);
}

static bool on_data(void *arg, const char *data, size_t len)
{
    struct file_read *r = arg;
    if (len > r->left) {
        not_as_long(r);
        return false;
    }
    r->waits = r->out && ex_stream_queued(r->out) >= EX_STREAM_HIGH;
    if (r->waits || (!r->out && !send_head(r)))
        return false;
    if (!ex_stream_write(r->out, data, len)) {
        read_abort(r);
        return false;
    }
    r->left -= len;
    return true;
}

static void on_done(void *arg, const struct sg_error *e)
{
    struct file_read *r = arg;
    r->download = NULL;
    if (e && r->out) {
        read_abort(r);
    } else if (e) {
        if (!act_retry(&r->act, e))
            read_fail(&r->act, e);
    } else if (r->left) {
        not_as_long(r);
    } else if (r->out || send_head(r)) {
        ex_stream_end(r->out);
        read_free(r);
    }
}

/* ---- the request ---- */

static enum sg_code check_disposition(struct exchange *ex, struct sg_error *e)
{
    const char *kind = ex_query(ex, "disposition", NULL);
    if (kind && strcmp(kind, "inline") != 0 && strcmp(kind, "attachment") != 0)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "?disposition", "must be inline or attachment");
    return SG_OK;
}

static const struct files_op fetch_op = {
    .op = "fetch",
    .fields = {{"path", "--path", FILES_PATH, true, 0, 0, -1},
               {"disposition", NULL, FILES_WORD, false, 0, 0, -1}},
    .reads = true,
    .check = check_disposition,
};

static void add_range(struct fs_request *q, const struct byte_range *range)
{
    uint64_t n = range->last - range->first; /* one less than there are */
    if (range->suffix) {
        fs_request_number(q, "--tail", range->first < INT64_MAX ? (int64_t)range->first : INT64_MAX);
        return;
    }
    fs_request_number(q, "--offset",
                      range->first < (uint64_t)offset_max ? (int64_t)range->first : offset_max);
    fs_request_number(q, "--limit", n < INT64_MAX ? (int64_t)n + 1 : INT64_MAX);
}

/* What the guest is asked, which is checked already. */
static enum sg_code ask(struct file_read *r, struct sg_error *e)
{
    struct fs_request *q = &r->request;
    const struct conditions *c = &r->conditions;
    bool resume = false;
    fs_request_free(q);
    enum sg_code rc = files_parse(r->act.ex, &fetch_op, q, &resume, e);
    if (rc)
        return rc;
    files_confine(r->act.ex, q);
    if (*c->none_match.list)
        fs_request_text(q, "--unless", c->none_match.list);
    if (r->head || c->none_match.any || conditions_impossible(c))
        fs_request_number(q, "--limit", 0); /* what the file is says all */
    else if (r->ranged)
        add_range(q, &r->range);
    return SG_OK;
}

static void read_go(struct act *a)
{
    static const struct download_events ev = {
        .on_open = on_open, .on_head = on_head, .on_data = on_data, .on_done = on_done};
    struct file_read *r = (struct file_read *)a;
    struct sg_error e;
    const struct download_spec spec = {
        .target = {.session_id = a->session_id, .arch = a->arch, .cwd = a->cwd},
        .request = &r->request,
        .part_bytes = a->gw->download_part_bytes,
    };
    if (ask(r, &e) == SG_OK)
        r->download = download_start(a->gw->guestlink, &spec, &ev, r, &e);
    if (r->download)
        ex_on_gone(a->ex, on_client_gone, r);
    else
        read_fail(a, &e);
}

void route_file_read(struct exchange *ex)
{
    struct fs_request q = {0};
    struct conditions c;
    struct sg_error e;
    bool resume = false;
    enum sg_code rc = files_parse(ex, &fetch_op, &q, &resume, &e);
    fs_request_free(&q);
    if (!rc)
        rc = conditions_of(ex, &c, &e);
    if (rc) {
        ex_fail(ex, &e);
        return;
    }
    struct file_read *r = act_new(ex, sizeof *r, read_go, read_fail);
    if (!r)
        return;
    r->conditions = c;
    r->head = strcmp(ex->method, "HEAD") == 0;
    r->ranged = !r->head && range_parse(ex_header(ex, "Range"), &r->range);
    act_begin(&r->act);
}
