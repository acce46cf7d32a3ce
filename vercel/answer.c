#include "vercel/answer.h"

#include "base/json.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { DETAIL_TEXT_MAX = 230 };

/* What the upstream's own error codes mean, whatever the status. */
static const struct {
    const char *code;
    enum sg_code means;
} known[] = {
    {"sandbox_stopped", SG_E_STALE_SESSION},           {"sandbox_stopping", SG_E_SANDBOX_TRANSITION},
    {"sandbox_snapshotting", SG_E_SANDBOX_TRANSITION}, {"sandbox_stream_closed", SG_E_STALE_SESSION},
    {"snapshot_not_found", SG_E_SNAPSHOT_GONE},        {"snapshot_expired", SG_E_SNAPSHOT_GONE},
    {"drive_not_initialized", SG_E_DRIVE_UNWRITTEN},   {"executable_not_found", SG_E_EXECUTABLE_NOT_FOUND},
};

void vercel_keep_request_id(char out[64], const char *value, size_t len)
{
    out[0] = '\0';
    if (!value || len == 0 || len >= 64)
        return;
    for (size_t i = 0; i < len; i++)
        if (value[i] <= ' ' || value[i] > '~')
            return;
    memcpy(out, value, len);
    out[len] = '\0';
}

/* An error code is kept only when it looks like one. */
static void keep_code(struct sg_error *e, const char *code)
{
    size_t n = code ? strlen(code) : 0;
    if (n == 0 || n >= sizeof e->upstream_code)
        return;
    for (size_t i = 0; i < n; i++) {
        char c = code[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                  c == '-' || c == '.';
        if (!ok)
            return;
    }
    memcpy(e->upstream_code, code, n + 1);
}

/* Length of s, cut to max bytes without splitting a UTF-8 character. */
static int cut(const char *s, size_t max)
{
    size_t n = strnlen(s, max + 1);
    if (n > max) {
        n = max;
        while (n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80)
            n--;
    }
    return (int)n;
}

/* A page in place of a sentence is not passed on. */
static bool looks_like_markup(const char *s)
{
    const char *lt = strchr(s, '<');
    return lt && (lt[1] == '!' || lt[1] == '/' || lt[1] == '?' || (lt[1] >= 'A' && lt[1] <= 'Z') ||
                  (lt[1] >= 'a' && lt[1] <= 'z'));
}

static bool has(const char *text, const char *part)
{
    return text && strcasestr(text, part) != NULL;
}

static enum sg_code by_code(const char *code)
{
    if (code)
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (!strcmp(known[i].code, code))
                return known[i].means;
    return SG_OK;
}

static enum sg_code or_else(enum sg_code preferred, enum sg_code otherwise)
{
    return preferred != SG_OK ? preferred : otherwise;
}

/* Of what writes a file, whatever the status. */
static bool tells_of_full_disk(const struct vercel_answer *a, const char *message)
{
    return a->means.on_400 == SG_E_FILE_ERROR &&
           (has(message, "no space left") || has(message, "ENOSPC") || has(message, "disk quota exceeded") ||
            has(message, "EDQUOT"));
}

static enum sg_code by_400(const struct vercel_answer *a, const char *message)
{
    if (has(message, "sandbox with the name") && has(message, "already exists"))
        return SG_E_SANDBOX_EXISTS;
    if (has(message, "cannot resume sandbox"))
        return SG_E_NOT_RESUMABLE;
    if (a->means.on_400 == SG_E_FILE_ERROR && (has(message, "is a directory") || has(message, "EISDIR")))
        return SG_E_IS_DIRECTORY;
    return or_else(a->means.on_400, SG_E_UPSTREAM_REJECTED);
}

static enum sg_code by_status(const struct vercel_answer *a, const char *code, const char *message)
{
    if (tells_of_full_disk(a, message))
        return SG_E_NO_SPACE;
    switch (a->status) {
    case 400:
        return by_400(a, message);
    case 401:
        return SG_E_UPSTREAM_AUTH;
    case 402:
        return SG_E_PLAN_LIMIT;
    case 403:
        return code && (!strcmp(code, "forbidden") || !strcmp(code, "unauthorized"))
                   ? SG_E_UPSTREAM_AUTH
                   : SG_E_UPSTREAM_FORBIDDEN;
    case 404:
        return or_else(a->means.on_404, SG_E_UPSTREAM_NOT_FOUND);
    case 409:
        /* of what is created with mounts: not the name is taken */
        if (a->means.on_409 == SG_E_SANDBOX_EXISTS && has(message, "drive") && has(message, "mounted"))
            return SG_E_DRIVE_IN_USE;
        return or_else(a->means.on_409, SG_E_UPSTREAM_CONFLICT);
    case 410:
        return SG_E_STALE_SESSION;
    case 429:
        return SG_E_UPSTREAM_RATE_LIMITED;
    default:
        return a->status >= 500 ? SG_E_UPSTREAM_UNAVAILABLE : SG_E_UPSTREAM_REJECTED;
    }
}

static void remember(struct sg_error *e, int status, const char *request_id)
{
    e->upstream_status = status;
    if (request_id)
        vercel_keep_request_id(e->upstream_request_id, request_id, strlen(request_id));
}

static bool is_html(const char *content_type)
{
    return content_type && strcasestr(content_type, "html") != NULL;
}

/* Anything but JSON or nothing: a page of something that stands before the API. */
static enum sg_code foreign_answer(const struct vercel_answer *a, struct sg_error *e)
{
    enum sg_code code = SG_E_UPSTREAM_BAD_RESPONSE;
    if (a->status == 429)
        code = SG_E_UPSTREAM_RATE_LIMITED;
    else if (a->status == 401)
        code = SG_E_UPSTREAM_AUTH;
    else if (a->status >= 500 && !(a->status == 502 && is_html(a->content_type)))
        code = SG_E_UPSTREAM_UNAVAILABLE;
    enum sg_outcome outcome = a->status < 500 ? SG_NOT_STARTED : SG_OUTCOME_UNKNOWN;
    if (a->status < 400)
        return sg_fail(e, code, outcome, "The upstream answered a redirect (status %d): check its base URL.",
                       a->status);
    return sg_fail(e, code, outcome, "The upstream answered status %d with something that is not its JSON.",
                   a->status);
}

enum sg_code vercel_answer_error(const struct vercel_answer *a, struct sg_error *e)
{
    struct sg_error local;
    if (!e)
        e = &local;
    json_t *doc = a->complete && a->len ? json_loadb(a->body, a->len, 0, NULL) : NULL;
    enum sg_code code;
    if (a->status < 400 || (!json_is_object(doc) && a->len)) {
        code = foreign_answer(a, e);
    } else {
        const json_t *error = json_object_get(doc, "error");
        const char *name = sg_jget_str(error, "code", NULL);
        const char *message = sg_jget_str(error, "message", NULL);
        code = or_else(by_code(name), by_status(a, name, message));
        enum sg_outcome outcome = a->status < 500 ? SG_NOT_STARTED : SG_OUTCOME_UNKNOWN;
        if (message && *message && !looks_like_markup(message))
            (void)sg_fail(e, code, outcome, "%.*s", cut(message, DETAIL_TEXT_MAX), message);
        else
            (void)sg_fail(e, code, outcome, "The upstream answered status %d.", a->status);
        keep_code(e, name);
    }
    json_decref(doc);
    remember(e, a->status, a->request_id);
    if (a->status == 429 || a->status == 503)
        e->retry_after_ms = a->retry_after_ms;
    return code;
}

enum sg_code vercel_stream_error(json_t *data, struct sg_error *e)
{
    struct sg_error local;
    if (!e)
        e = &local;
    const char *name = sg_jget_str(data, "code", NULL);
    const char *message = sg_jget_str(data, "message", NULL);
    enum sg_code code = or_else(by_code(name), SG_E_UPSTREAM_UNAVAILABLE);
    if (message && *message && !looks_like_markup(message))
        (void)sg_fail(e, code, SG_STARTED, "%.*s", cut(message, DETAIL_TEXT_MAX), message);
    else
        (void)sg_fail(e, code, SG_STARTED, "The upstream ended the stream with an error.");
    keep_code(e, name);
    return code;
}

enum sg_code vercel_bad_answer(int status, const char *request_id, const char *what, struct sg_error *e)
{
    struct sg_error local;
    if (!e)
        e = &local;
    enum sg_code code =
        sg_fail(e, SG_E_UPSTREAM_BAD_RESPONSE, SG_OUTCOME_UNKNOWN, "The upstream's answer %s.", what);
    remember(e, status, request_id);
    return code;
}
