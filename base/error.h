/* Errors: one table, one value type, must-check results through all layers.
 *
 * A function that can fail returns `enum sg_code` (SG_OK is 0) and, where it takes a `struct sg_error *`,
 * fills it with what a caller outside may be told.  `outcome` is decided where the call was made, never
 * guessed higher up. All functions here are pure and may be called on any thread.
 */
#ifndef SG_BASE_ERROR_H
#define SG_BASE_ERROR_H

#include <stddef.h>
#include <stdint.h>

#define SG_MUST_CHECK __attribute__((warn_unused_result))

enum sg_code {
    SG_OK = 0,
#define X(name, code, status, retryable, reason, title, doc) SG_E_##name,
#include "base/errors.def"
#undef X
    SG_CODE_COUNT
};

/* How sure we are that the action happened. */
enum sg_outcome {
    SG_NOT_SENT,    /* nothing left the gateway */
    SG_NOT_STARTED, /* sent, and known not to have begun */
    SG_STARTED,     /* begun, end not known */
    SG_FINISHED,    /* done */
    SG_OUTCOME_UNKNOWN
};

struct sg_error {
    enum sg_code code;
    enum sg_outcome outcome;
    int64_t retry_after_ms; /* -1: not known */
    int64_t oldest;         /* OUTPUT_EVICTED: first readable offset; -1 otherwise */
    int64_t accepted;       /* of input: bytes of it that the process has; -1: not known */
    int upstream_status;    /* 0: no upstream answer */
    char upstream_code[48];
    char upstream_request_id[64];
    char errno_name[16]; /* "ENOENT"; empty: not a file error */
    char pointer[128];   /* RFC 6901 pointer into the request body; empty: none */
    char detail[256];    /* one sentence for the caller; never a raw upstream body, never a secret */
};

/* One row of the table.  NULL for SG_OK and out-of-range values. */
struct sg_error_row {
    const char *code;
    int status;
    int retryable;
    const char *reason; /* the class, e.g. "NotFoundError" */
    const char *title;
    const char *doc;
};
const struct sg_error_row *sg_error_row(enum sg_code code);

const char *sg_outcome_name(enum sg_outcome outcome);

/* Fills *e (may be NULL) and returns `code`, so that a failing function can `return sg_fail(...)`. */
enum sg_code sg_fail(struct sg_error *e, enum sg_code code, enum sg_outcome outcome, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The same for a request field: `pointer` is an RFC 6901 pointer such as "/env/PATH"; outcome is not_sent. */
enum sg_code sg_fail_field(struct sg_error *e, enum sg_code code, const char *pointer, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Keeps a sentence printable, in place: it may quote foreign text, and may have been cut inside a character.  Afterwards it is
 * what JSON and databases take: UTF-8 without control characters. */
void sg_text_mend(char *s);
void sg_error_clear(struct sg_error *e);

/* "ENOENT" for ENOENT; "EUNKNOWN" for numbers without a name here. */
const char *sg_errno_name(int err);

#endif
