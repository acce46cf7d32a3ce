#include "base/error.h"

#include "base/ws_codec.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define REASON_AUTHENTICATION    "AuthenticationError"
#define REASON_PERMISSION_DENIED "PermissionDenied"
#define REASON_NOT_FOUND         "NotFoundError"
#define REASON_ALREADY_EXISTS    "AlreadyExistsError"
#define REASON_INVALID_OPTIONS   "InvalidOptionsError"
#define REASON_UNSUPPORTED       "UnsupportedError"
#define REASON_STALE_SESSION     "StaleSession"
#define REASON_RATE_LIMITED      "RateLimited"
#define REASON_UNAVAILABLE       "UnavailableError"
#define REASON_UNKNOWN           "UnknownError"

static const struct sg_error_row rows[SG_CODE_COUNT] = {
#define X(name, code, status, retryable, reason, title, doc)                                                 \
    [SG_E_##name] = {code, status, retryable, REASON_##reason, title, doc},
#include "base/errors.def"
#undef X
};

const struct sg_error_row *sg_error_row(enum sg_code code)
{
    if (code <= SG_OK || code >= SG_CODE_COUNT)
        return NULL;
    return &rows[code];
}

const char *sg_outcome_name(enum sg_outcome outcome)
{
    static const char *const names[] = {"not_sent", "not_started", "started", "finished", "unknown"};
    size_t i = (size_t)outcome;
    return names[i < sizeof names / sizeof *names ? i : SG_OUTCOME_UNKNOWN];
}

void sg_error_clear(struct sg_error *e)
{
    memset(e, 0, sizeof *e);
    e->retry_after_ms = -1;
    e->oldest = -1;
    e->accepted = -1;
}

/* How many bytes the character has that begins here; 0: none does. */
static size_t character(const char *s, size_t left)
{
    for (size_t n = 1; n <= 4 && n <= left; n++)
        if (ws_codec_utf8(s, n))
            return n;
    return 0;
}

void sg_text_mend(char *s)
{
    size_t left = strlen(s);
    for (char *p = s; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = ' ';
    if (ws_codec_utf8(s, left))
        return;
    while (left) {
        size_t n = character(s, left);
        if (!n)
            *s = '?';
        s += n ? n : 1;
        left -= n ? n : 1;
    }
}

enum sg_code sg_fail(struct sg_error *e, enum sg_code code, enum sg_outcome outcome, const char *fmt, ...)
{
    if (!e)
        return code;
    sg_error_clear(e);
    e->code = code;
    e->outcome = outcome;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(e->detail, sizeof e->detail, fmt, ap);
    va_end(ap);
    sg_text_mend(e->detail);
    return code;
}

enum sg_code sg_fail_field(struct sg_error *e, enum sg_code code, const char *pointer, const char *fmt, ...)
{
    if (!e)
        return code;
    sg_error_clear(e);
    e->code = code;
    e->outcome = SG_NOT_SENT;
    (void)snprintf(e->pointer, sizeof e->pointer, "%s", pointer);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(e->detail, sizeof e->detail, fmt, ap);
    va_end(ap);
    sg_text_mend(e->detail);
    return code;
}

const char *sg_errno_name(int err)
{
    const char *name = strerrorname_np(err);
    return name && err ? name : "EUNKNOWN";
}
