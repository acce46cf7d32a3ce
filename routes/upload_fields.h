/* What requests to resumable uploads say in their head, Upload-Complete, Upload-Offset and Upload-Length, which are
 * structured fields (RFC 9651), and what the guest says of an upload.  Pure; any thread. */
#ifndef SG_ROUTES_UPLOAD_FIELDS_H
#define SG_ROUTES_UPLOAD_FIELDS_H

#include <stdbool.h>
#include <stdint.h>

#define UPLOAD_NUMBER_MAX INT64_C(999999999999999) /* of a structured field */

struct upload_fields {
    bool has_complete, complete;
    int64_t offset, length; /* -1: not given */
};

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

#endif
