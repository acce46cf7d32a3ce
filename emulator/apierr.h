/* What a caller of the API is told when a call fails: status, code and message of the documented error body.
 * Pure; any thread.
 */
#ifndef SG_EMULATOR_APIERR_H
#define SG_EMULATOR_APIERR_H

#include "base/buf.h"

struct api_error {
    int status; /* 0: no error */
    char code[40];
    char message[320];
    int64_t bytes_written; /* stdin writes that timed out; -1 otherwise */
    bool name_taken;       /* a new sandbox's name is another's */
};

/* Fills *e and returns -1, so that a failing function can `return api_fail(...)`. */
int api_fail(struct api_error *e, int status, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* 400 bad_request in the style of the real service's schema checker: "Invalid request: …". */
int api_invalid(struct api_error *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* {"error":{"code":…,"message":…}} */
void api_error_render(struct sg_buf *out, const struct api_error *e);

#endif
