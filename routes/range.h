/* The Range header of a read (RFC 9110 section 14): one range of bytes.  Several ranges, other units and
 * malformed headers are ignored, as the RFC allows and asks.  Pure; any thread.
 */
#ifndef SG_ROUTES_RANGE_H
#define SG_ROUTES_RANGE_H

#include <stdbool.h>
#include <stdint.h>

struct byte_range {
    bool suffix;    /* the last `first` bytes */
    uint64_t first; /* saturates at UINT64_MAX */
    uint64_t last;  /* inclusive; UINT64_MAX: to the end */
};

/* False: answer as if the header were not there.  NULL is no header. */
bool range_parse(const char *header, struct byte_range *out);

enum range_fit {
    RANGE_PART,    /* *from and *len say which; len > 0 */
    RANGE_WHOLE,   /* nothing to cut from an empty file's end */
    RANGE_OUTSIDE, /* 416 */
};
enum range_fit range_resolve(const struct byte_range *r, uint64_t size, uint64_t *from, uint64_t *len);

#endif
