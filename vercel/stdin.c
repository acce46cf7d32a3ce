#include "vercel/stdin.h"

#include "vercel/answer.h"
#include "vercel/call.h"
#include "vercel/impl.h"

#include "base/core/b64.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TIMEOUT_MS = 45 * 1000, /* the upstream gives up after 30 s by itself */
    FRAME_MAX = 96          /* what stands before and after the base64 */
};

/* The body is made while it is sent, so half a megabyte is not held thrice: what stands before the data, the data as
 * base64, and what stands after it. */
struct stdin_write {
    vercel_stdin_fn *done;
    void *arg;
    struct vercel_call *call;
    const unsigned char *data;
    size_t len;
    char before[FRAME_MAX], after[FRAME_MAX];
    size_t nbefore, nafter;
    size_t at; /* bytes of the body given so far */
};

static size_t body_size(const struct stdin_write *w)
{
    return w->nbefore + SG_B64_LEN(w->len) + w->nafter;
}

static size_t take(char *out, size_t cap, const char *part, size_t n, size_t from)
{
    size_t left = from < n ? n - from : 0;
    size_t take = left < cap ? left : cap;
    if (take)
        memcpy(out, part + from, take);
    return take;
}

/* base64 from its character `from` on; whole groups but for the first and the last one. */
static size_t take_base64(const struct stdin_write *w, char *out, size_t cap, size_t from)
{
    size_t total = SG_B64_LEN(w->len);
    size_t n = 0;
    while (n < cap && from + n < total) {
        size_t group = (from + n) / 4;
        size_t skip = (from + n) % 4;
        size_t whole = skip ? 0 : (cap - n) / 4;
        size_t left = w->len - group * 3;
        if (whole) {
            size_t bytes = whole * 3 < left ? whole * 3 : left;
            n += sg_b64_encode(out + n, w->data + group * 3, bytes);
        } else {
            char four[4];
            (void)sg_b64_encode(four, w->data + group * 3, left < 3 ? left : 3);
            n += take(out + n, cap - n, four, sizeof four, skip);
        }
    }
    return n;
}

static size_t on_read(void *arg, char *buf, size_t cap)
{
    struct stdin_write *w = arg;
    size_t n = take(buf, cap, w->before, w->nbefore, w->at);
    w->at += n;
    size_t middle = w->nbefore + SG_B64_LEN(w->len);
    if (w->at >= w->nbefore && w->at < middle) {
        size_t k = take_base64(w, buf + n, cap - n, w->at - w->nbefore);
        w->at += k;
        n += k;
    }
    if (w->at >= middle) {
        size_t k = take(buf + n, cap - n, w->after, w->nafter, w->at - middle);
        w->at += k;
        n += k;
    }
    return n;
}

static void on_rewind(void *arg)
{
    ((struct stdin_write *)arg)->at = 0;
}

static bool make_body(struct stdin_write *w, const struct vercel_stdin *s)
{
    char offset[40] = "";
    const char *comma = s->len ? "," : "";
    w->data = s->data;
    w->len = s->len;
    if (s->offset >= 0) {
        (void)snprintf(offset, sizeof offset, "%s\"offset\":%lld", comma, (long long)s->offset);
        comma = ",";
    }
    int n = snprintf(w->before, sizeof w->before, "{%s", s->len ? "\"data\":\"" : "");
    int k = snprintf(w->after, sizeof w->after, "%s%s%s%s}", s->len ? "\"" : "", offset,
                     s->close ? comma : "", s->close ? "\"close\":true" : "");
    if (n < 0 || k < 0 || (size_t)n >= sizeof w->before || (size_t)k >= sizeof w->after)
        return false;
    w->nbefore = (size_t)n;
    w->nafter = (size_t)k;
    return true;
}

/* ---- the answer ---- */

static int64_t count_of(const json_t *o)
{
    const json_t *n = json_object_get(o, "bytesWritten");
    return json_is_integer(n) && json_integer_value(n) >= 0 ? json_integer_value(n) : -1;
}

/* The count that a refusal tells, inside its error or beside it. */
static int64_t refusal_count(const struct vercel_call *call)
{
    json_t *doc = call->in.len ? json_loadb(call->in.data, call->in.len, 0, NULL) : NULL;
    int64_t n = count_of(json_object_get(doc, "error"));
    if (n < 0)
        n = count_of(doc);
    json_decref(doc);
    return n;
}

static enum vercel_stdin_result result_of(const struct sg_error *e)
{
    switch (e->upstream_status) {
    case 400:
        return !strcmp(e->upstream_code, "command_stdin_unavailable") ? VERCEL_STDIN_CLOSED
                                                                      : VERCEL_STDIN_FAILED;
    case 404:
        return VERCEL_STDIN_GONE;
    case 409:
        return e->code == SG_E_STDIN_OFFSET ? VERCEL_STDIN_GAP : VERCEL_STDIN_FAILED;
    case 504:
        return VERCEL_STDIN_SLOW;
    default:
        return VERCEL_STDIN_FAILED;
    }
}

static void on_body(void *arg, char **body, size_t len, const struct sg_error *e)
{
    struct stdin_write *w = arg;
    if (e) {
        w->done(w->arg, result_of(e), e->upstream_status ? refusal_count(w->call) : -1, e);
        return;
    }
    struct sg_error own;
    json_t *doc = vercel_body_json(*body, len, &own);
    int64_t taken = count_of(doc);
    bool ok = json_is_object(doc);
    json_decref(doc);
    w->done(w->arg, ok ? VERCEL_STDIN_TAKEN : VERCEL_STDIN_FAILED, taken, ok ? NULL : &own);
}

struct vercel_call *vercel_stdin_write(struct vercel_client *c, const struct vercel_stdin *s,
                                       vercel_stdin_fn *done, void *arg, struct sg_error *e)
{
    struct sg_buf path = {0};
    struct vercel_call *call = NULL;
    struct stdin_write *w = calloc(1, sizeof *w);
    if (s->len > VERCEL_STDIN_MAX) {
        (void)sg_fail(e, SG_E_BODY_TOO_LARGE, SG_NOT_SENT, "More input than one call to the upstream takes.");
        goto out;
    }
    if (!w || !make_body(w, s) || !vercel_command_path(&path, s->session_id, s->command_id, "/stdin")) {
        (void)sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "No memory for the call to the upstream.");
        goto out;
    }
    w->done = done;
    w->arg = arg;
    const struct vercel_request r = {
        .method = "POST",
        .path = path.data,
        .read = on_read,
        .rewind = on_rewind,
        .read_size = (int64_t)body_size(w),
        .class = VERCEL_CONTROL,
        .timeout_ms = TIMEOUT_MS,
        .idempotent = (!s->len && !s->close) || (s->counts && s->offset >= 0),
        .means = {.on_404 = SG_E_PROCESS_FINISHED, .on_409 = SG_E_STDIN_OFFSET},
    };
    call = vercel_collect_start(c, &r, on_body, w, e);
out:
    sg_buf_free(&path);
    if (call) {
        w->call = call;
        vercel_call_on_gone(call, free, w);
    } else {
        free(w);
    }
    return call;
}
