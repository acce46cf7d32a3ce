/* JSON written straight into a buffer, byte for byte as jansson's compact dump.  Failures stick to the buffer
 * (`failed`), so a whole document is checked once at its end.  Pure; any thread. */
#ifndef SG_BASE_JSON_WRITE_H
#define SG_BASE_JSON_WRITE_H

#include "base/buf.h"

#include <stdint.h>

/* Text as a string; s must be UTF-8.  NULL is null. */
void sg_jw_text(struct sg_buf *b, const char *s);
void sg_jw_int(struct sg_buf *b, int64_t n);
void sg_jw_bool(struct sg_buf *b, bool v);
/* "key": and a comma before it unless it opens its object, whose brace is the caller's. */
void sg_jw_key(struct sg_buf *b, const char *key);
/* The comma before an array's value, unless it is the first. */
void sg_jw_next(struct sg_buf *b);

#endif
