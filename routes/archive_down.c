/* GET …/files/archive: a directory as a tar, plain or packed on its way.  The head goes out with the first bytes: an error
 * before them is told, one behind them cuts the connection. */
#include "routes/handlers.h"

#include "routes/disposition.h"
#include "routes/files.h"
#include "transfer/download.h"
#include "transfer/packer.h"

#include <string.h>

enum { HEADER_MAX = 65536 };

struct archive {
    struct act act;
    struct fs_request request;
    struct download *download;
    struct packer *packer; /* NULL: it is sent as it is */
    bool gzip, waits;      /* the download was paused */
    size_t part;           /* of what the download gives next the packer has so much */
    struct ex_stream *out;
};

static void archive_free(struct archive *a)
{
    if (a->download)
        download_cancel(a->download);
    packer_free(a->packer);
    fs_request_free(&a->request);
    act_free(&a->act);
}

static void archive_fail(struct act *act, const struct sg_error *e)
{
    struct archive *a = (struct archive *)act;
    if (act_settled(act))
        ex_fail(act->ex, e);
    archive_free(a);
}

static void on_client_gone(void *arg)
{
    struct archive *a = arg;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_BAD_REQUEST, SG_FINISHED, "the client left");
    archive_fail(&a->act, &e);
}

static void abort_stream(struct archive *a)
{
    ex_stream_abort(a->out);
    archive_free(a);
}

/* ---- to the client ---- */

static void go_on(struct archive *a)
{
    if (!a->waits || !a->download)
        return;
    a->waits = false;
    download_resume(a->download);
}

static void on_stream_drain(void *arg)
{
    struct archive *a = arg;
    if (a->packer)
        packer_hold(a->packer, false);
    else
        go_on(a);
}

static void on_stream_gone(void *arg)
{
    struct archive *a = arg;
    archive_free(a);
}

static void set_headers(struct archive *a)
{
    struct exchange *ex = a->act.ex;
    struct sg_buf b;
    size_t len = 0;
    const char *path = ex_query(ex, "path", &len);
    sg_buf_init(&b, HEADER_MAX);
    /* of path_b64 only the sandbox knows what it is called */
    disposition_format(path ? path : "", path ? len : 0, a->gzip ? ".tar.gz" : ".tar", "archive", &b);
    if (!b.failed)
        ex_set_header(ex, "Content-Disposition", b.data);
    sg_buf_free(&b);
    ex_set_header(ex, "Vary", "Accept");
}

static const char *type_of(const struct archive *a)
{
    return a->gzip ? "application/gzip" : "application/x-tar";
}

/* False: answered with an error, a is freed. */
static bool send_head(struct archive *a)
{
    act_settled(&a->act);
    set_headers(a);
    a->out = ex_stream_begin(a->act.ex, 200, type_of(a), -1, on_stream_drain, on_stream_gone, a);
    if (!a->out)
        archive_free(a);
    return a->out != NULL;
}

/* ---- packing ---- */

static void on_packed(void *arg, const char *data, size_t len)
{
    struct archive *a = arg;
    if (!ex_stream_write(a->out, data, len))
        abort_stream(a);
    else if (ex_stream_queued(a->out) >= EX_STREAM_HIGH)
        packer_hold(a->packer, true);
}

static void on_room(void *arg)
{
    go_on(arg);
}

static void on_packed_all(void *arg)
{
    struct archive *a = arg;
    ex_stream_end(a->out);
    archive_free(a);
}

static bool begin_packing(struct archive *a)
{
    static const struct packer_events ev = {on_packed, on_room, on_packed_all};
    if (!a->gzip || a->packer)
        return true;
    a->packer = packer_new(a->act.gw->loop, &ev, a);
    return a->packer != NULL;
}

/* ---- from the sandbox ---- */

static void on_open(void *arg, const struct sg_wire_file *file)
{
    struct archive *a = arg;
    (void)file;
    if (strcmp(a->act.ex->method, "HEAD") != 0)
        return;
    act_settled(&a->act);
    set_headers(a);
    ex_set_header(a->act.ex, "Content-Type", type_of(a));
    ex_answer_empty(a->act.ex, 200);
    archive_free(a);
}

static void on_head(void *arg, const struct sg_wire_file *file, bool same)
{
    (void)arg;
    (void)file;
    (void)same;
}

static bool on_data(void *arg, const char *data, size_t len)
{
    struct archive *a = arg;
    if (!a->out && !send_head(a))
        return false;
    if (a->packer) {
        a->part += packer_write(a->packer, data + a->part, len - a->part);
        a->waits = a->part < len;
        a->part = a->waits ? a->part : 0;
        return !a->waits;
    }
    a->waits = ex_stream_queued(a->out) >= EX_STREAM_HIGH;
    if (a->waits)
        return false;
    if (!ex_stream_write(a->out, data, len)) {
        abort_stream(a);
        return false;
    }
    return true;
}

static void on_done(void *arg, const struct sg_error *e)
{
    struct archive *a = arg;
    a->download = NULL;
    if (e && a->out) {
        abort_stream(a);
    } else if (e) {
        if (!act_retry(&a->act, e))
            archive_fail(&a->act, e);
    } else if (a->out || send_head(a)) {
        if (a->packer)
            packer_finish(a->packer);
        else
            on_packed_all(a);
    }
}

static void archive_go(struct act *act)
{
    static const struct download_events ev = {
        .on_open = on_open, .on_head = on_head, .on_data = on_data, .on_done = on_done};
    struct archive *a = (struct archive *)act;
    struct sg_error e;
    const struct download_spec spec = {
        .target = {.session_id = act->session_id, .arch = act->arch, .cwd = act->cwd},
        .request = &a->request,
        .part_bytes = act->gw->download_part_bytes};
    if (!begin_packing(a)) {
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory to pack the archive");
        archive_fail(act, &e);
        return;
    }
    a->download = download_start(act->gw->guestlink, &spec, &ev, a, &e);
    if (a->download)
        ex_on_gone(act->ex, on_client_gone, a);
    else
        archive_fail(act, &e);
}

/* ---- the request ---- */

/* Where Accept names both, or neither, it is a plain tar unless gzip comes first. */
static bool accepts_gzip(const char *accept)
{
    const char *gzip = accept ? strcasestr(accept, "application/gzip") : NULL;
    const char *tar = accept ? strcasestr(accept, "application/x-tar") : NULL;
    return gzip && (!tar || gzip < tar);
}

static enum sg_code format_of(struct exchange *ex, bool *gzip, struct sg_error *e)
{
    const char *format = ex_query(ex, "format", NULL);
    *gzip = format ? strcmp(format, "tar.gz") == 0 : accepts_gzip(ex_header(ex, "Accept"));
    if (format && !*gzip && strcmp(format, "tar") != 0)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "?format", "must be tar or tar.gz");
    return SG_OK;
}

static const struct files_op tar_op = {
    .op = "tar",
    .fields = {{"path", "--path", FILES_PATH, true, 0, 0, -1},
               {"format", NULL, FILES_WORD, false, 0, 0, -1},
               {"include", "--include", FILES_LIST, false, 0, 0, -1},
               {"exclude", "--exclude", FILES_LIST, false, 0, 0, -1}},
    .reads = true,
};

void route_archive_read(struct exchange *ex)
{
    struct sg_error e;
    bool resume;
    struct archive *a = act_new(ex, sizeof *a, archive_go, archive_fail);
    if (!a)
        return;
    if (files_parse(ex, &tar_op, &a->request, &resume, &e) || format_of(ex, &a->gzip, &e)) {
        archive_fail(&a->act, &e);
        return;
    }
    files_confine(ex, &a->request);
    act_begin(&a->act);
}
