#include "server/internal.h"

#include "base/clock.h"
#include "server/problem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

enum { STREAM_BLOCK = 64 * 1024, EARLY_MAX = 64 * 1024 };

void answer_problem(struct request *r, const struct sg_error *e)
{
    int status = problem_status(e);
    if (r->keep_error && !r->error && (r->error = malloc(sizeof *r->error)))
        *r->error = *e;
    char number[24];
    int64_t retry = problem_retry_after(e);
    if (retry >= 0) {
        snprintf(number, sizeof number, "%" PRId64, retry);
        (void)response_header_set(r, "Retry-After", number);
    }
    if (status == 401)
        (void)response_header_set(r, "WWW-Authenticate", "Bearer realm=\"sandgate\"");
    struct uri_part path = {"", 0};
    char instance[512];
    (void)uri_path(r->raw, &path);
    snprintf(instance, sizeof instance, "%.*s", (int)(path.len < 500 ? path.len : 500), path.at);
    struct sg_buf b;
    sg_buf_init(&b, EARLY_MAX);
    size_t len = 0;
    char *text = NULL;
    if (problem_write(e, instance, r->request_id, &b))
        text = sg_buf_take(&b, &len);
    sg_buf_free(&b);
    r->answer = (struct answer){ANSWER_BODY, status, text ? PROBLEM_TYPE : NULL, text, len, e->code};
}

static const char *extra_header(const struct request *r, const char *name)
{
    for (size_t i = 0; i < r->nextra; i++)
        if (strcasecmp(r->extra[i].name, name) == 0)
            return r->extra[i].value;
    return NULL;
}

typedef bool header_fn(void *arg, const char *name, const char *value);

/* All response headers but Content-Length, in one place for both ways of answering. */
static bool each_header(const struct request *r, header_fn *fn, void *arg)
{
    bool stream = r->answer.kind == ANSWER_STREAM;
    bool ok = true;
    const char *type = stream ? r->stream->content_type : r->answer.content_type;
    if (type && !extra_header(r, "Content-Type"))
        ok = ok && fn(arg, "Content-Type", type);
    if (!extra_header(r, "Cache-Control"))
        ok = ok && fn(arg, "Cache-Control", stream ? "no-store, no-transform" : "no-store");
    if (stream)
        ok = ok && fn(arg, "X-Accel-Buffering", "no");
    if (r->request_id[0])
        ok = ok && fn(arg, "X-Request-Id", r->request_id);
    for (size_t i = 0; i < r->nextra; i++)
        ok = ok && fn(arg, r->extra[i].name, r->extra[i].value);
    return ok;
}

static bool add_to_response(void *arg, const char *name, const char *value)
{
    return MHD_add_response_header(arg, name, value) == MHD_YES;
}

static struct MHD_Response *body_response(struct request *r)
{
    static char nothing[1];
    if (!r->answer.body)
        return MHD_create_response_from_buffer(0, nothing, MHD_RESPMEM_PERSISTENT);
    struct MHD_Response *resp =
        MHD_create_response_from_buffer_with_free_callback(r->answer.len, r->answer.body, free);
    if (resp) {
        r->bytes_sent = r->answer.len;
        r->answer.body = NULL; /* the response owns it */
    }
    return resp;
}

static struct MHD_Response *stream_response(struct request *r)
{
    /* With chunked coding the library reads into its own write buffer and leaves the block unused. */
    bool chunked = r->stream->length < 0;
    uint64_t size = chunked ? MHD_SIZE_UNKNOWN : (uint64_t)r->stream->length;
    return MHD_create_response_from_callback(size, chunked ? 1024 : STREAM_BLOCK, stream_read, r->stream,
                                             NULL);
}

enum MHD_Result respond_queue(struct request *r)
{
    if (r->early_sent || r->conn->peer_gone)
        return MHD_NO;
    struct MHD_Response *resp = r->answer.kind == ANSWER_UPGRADE  ? upgrade_response(r)
                                : r->answer.kind == ANSWER_STREAM ? stream_response(r)
                                                                  : body_response(r);
    if (!resp)
        return MHD_NO;
    bool ok = each_header(r, add_to_response, resp);
    if (ok && (r->must_close || r->srv->draining) && r->answer.kind != ANSWER_UPGRADE)
        ok = add_to_response(resp, "Connection", "close");
    enum MHD_Result rc = MHD_NO;
    if (ok)
        rc = library_answer(r->conn->mhd, (unsigned)r->answer.status, resp);
    MHD_destroy_response(resp);
    return rc;
}

static bool add_to_text(void *arg, const char *name, const char *value)
{
    return sg_buf_addf(arg, "%s: %s\r\n", name, value);
}

void respond_early(struct request *r)
{
    r->early_sent = true;
    r->must_close = true;
    r->deadline_ms = sg_mono_ms() + LINGER_MS;
    if (r->conn->peer_gone)
        return;
    struct sg_buf b;
    sg_buf_init(&b, EARLY_MAX + r->answer.len);
    sg_buf_addf(&b, "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: %zu\r\n", r->answer.status,
                MHD_get_reason_phrase_for((unsigned)r->answer.status), r->answer.len);
    each_header(r, add_to_text, &b);
    sg_buf_adds(&b, "\r\n");
    if (r->answer.len && strcmp(r->ex.method, "HEAD") != 0)
        sg_buf_add(&b, r->answer.body, r->answer.len);
    /* Nothing was sent on this connection for this request, so a small answer fits the socket's buffer; a
     * client that left it full of an earlier answer gets a cut instead. */
    if (b.failed || send(r->conn->fd, b.data, b.len, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)b.len)
        shutdown(r->conn->fd, SHUT_RDWR);
    else
        shutdown(r->conn->fd, SHUT_WR); /* the client sees the end of the answer and stops sending */
    r->bytes_sent = r->answer.len;
    sg_buf_free(&b);
}

void respond_log(const struct request *r)
{
    if (!sg_log_enabled(SG_LOG_INFO))
        return;
    struct uri_part path = {"", 0};
    char text[512];
    (void)uri_path(r->raw, &path); /* never the query */
    snprintf(text, sizeof text, "%.*s", (int)(path.len < 500 ? path.len : 500), path.at);
    const struct sg_error_row *row = sg_error_row(r->answer.code);
    int64_t ms = (sg_mono_ns() - r->start_ns) / 1000000;
    int status = r->answer.status ? r->answer.status : 499; /* the client left before it was answered */
    if (row)
        sg_log(SG_LOG_INFO, "request", "request_id", "s", r->request_id, "method", "s", r->ex.method, "path",
               "s", text, "status", "i", (int64_t)status, "duration_ms", "i", ms, "bytes", "i",
               (int64_t)r->bytes_sent, "principal", "s", r->ex.who ? r->who.id : NULL, "code", "s", row->code,
               NULL);
    else
        sg_log(SG_LOG_INFO, "request", "request_id", "s", r->request_id, "method", "s", r->ex.method, "path",
               "s", text, "status", "i", (int64_t)status, "duration_ms", "i", ms, "bytes", "i",
               (int64_t)r->bytes_sent, "principal", "s", r->ex.who ? r->who.id : NULL, NULL);
}
