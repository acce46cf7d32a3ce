/* A growing byte buffer with a ceiling.  Every buffer in the project has one, so no input can grow it for
 * ever. Not thread-safe; owned by one thread at a time.
 */
#ifndef SG_BASE_BUF_H
#define SG_BASE_BUF_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct sg_buf {
    char *data; /* NUL-terminated whenever not NULL; the NUL is not counted in len */
    size_t len;
    size_t cap;
    size_t max;  /* ceiling of len, bytes */
    bool failed; /* an append did not fit or memory ran out; sticky until reset */
};

/* Starts empty; allocates nothing. */
void sg_buf_init(struct sg_buf *b, size_t max);
/* Frees the memory; the buffer is empty and usable again. */
void sg_buf_free(struct sg_buf *b);
/* As free, but the bytes are wiped first. */
void sg_buf_wipe(struct sg_buf *b);
/* Empties it and keeps the memory. */
void sg_buf_reset(struct sg_buf *b);

/* Appends; false when the ceiling or memory is reached (nothing is appended then, `failed` is set). */
bool sg_buf_add(struct sg_buf *b, const void *data, size_t len);
bool sg_buf_adds(struct sg_buf *b, const char *s);
bool sg_buf_addf(struct sg_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Appends s percent-encoded for a URL path segment or query value (RFC 3986 unreserved stay). */
bool sg_buf_add_urlenc(struct sg_buf *b, const char *s);

/* Makes room for n more bytes and returns where to write them, or NULL.  Add what was written to len. */
char *sg_buf_reserve(struct sg_buf *b, size_t n);
/* Drops the first n bytes (n <= len). */
void sg_buf_consume(struct sg_buf *b, size_t n);
/* Gives the memory away (caller frees); the buffer is empty.  Never NULL unless memory ran out. */
char *sg_buf_take(struct sg_buf *b, size_t *len) SG_MUST_CHECK;

#endif
