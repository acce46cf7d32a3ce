/* What requests to resumable uploads say in their head: Upload-Complete, Upload-Offset and Upload-Length, which are
 * structured fields (RFC 9651), and the conditions of what an upload may replace. */
#ifndef SG_ROUTES_UPLOAD_FIELDS_H
#define SG_ROUTES_UPLOAD_FIELDS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define UPLOAD_NUMBER_MAX INT64_C(999999999999999) /* of a structured field */

struct upload_fields {
    bool has_complete, complete;
    int64_t offset, length; /* -1: not given */
};

/* ---- upload_fields.c: pure; any thread ---- */

/* "?1" and "?0"; "12345".  Parameters behind them are passed over. */
bool upload_flag_parse(const char *header, bool *out);
bool upload_number_parse(const char *header, int64_t *out);

/* "OFFSET:LENGTH:STATE", as the guest tells of an upload. */
struct upload_state {
    uint64_t offset;
    int64_t length; /* -1: not known */
    bool done;
};
bool upload_state_parse(const char *word, struct upload_state *s);

/* ---- upload_request.c: loop thread ---- */

struct exchange;
struct fs_request;
/* BAD_REQUEST for what is no such value: nothing is guessed where bytes would be mixed up. */
SG_MUST_CHECK enum sg_code upload_fields_of(struct exchange *ex, struct upload_fields *f, struct sg_error *e);
/* If-Match and If-None-Match as options of the guest's `put`; PRECONDITION_FAILED for what can hold of no file. */
SG_MUST_CHECK enum sg_code upload_conditions(struct exchange *ex, struct fs_request *r, struct sg_error *e);

#endif
