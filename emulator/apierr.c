#include "emulator/apierr.h"
#include "emulator/jsontext.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void fill(struct api_error *e, int status, const char *code, const char *prefix, const char *fmt,
                 va_list ap) __attribute__((format(printf, 5, 0)));

static void fill(struct api_error *e, int status, const char *code, const char *prefix, const char *fmt,
                 va_list ap)
{
    e->status = status;
    e->bytes_written = -1;
    e->name_taken = false;
    snprintf(e->code, sizeof e->code, "%s", code);
    size_t n = strlen(prefix);
    memcpy(e->message, prefix, n);
    vsnprintf(e->message + n, sizeof e->message - n, fmt, ap);
}

int api_fail(struct api_error *e, int status, const char *code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fill(e, status, code, "", fmt, ap);
    va_end(ap);
    return -1;
}

int api_invalid(struct api_error *e, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fill(e, 400, "bad_request", "Invalid request: ", fmt, ap);
    va_end(ap);
    return -1;
}

void api_error_render(struct sg_buf *out, const struct api_error *e)
{
    sg_buf_adds(out, "{\"error\":{\"code\":");
    jsontext_add(out, e->code, strlen(e->code));
    sg_buf_adds(out, ",\"message\":");
    jsontext_add(out, e->message, strlen(e->message));
    if (e->bytes_written >= 0)
        sg_buf_addf(out, ",\"bytesWritten\":%" PRId64, e->bytes_written);
    sg_buf_adds(out, "}}");
}
