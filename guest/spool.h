/* A ring of bytes of fixed size.  Pure. */
#ifndef SG_GUEST_SPOOL_H
#define SG_GUEST_SPOOL_H

#include "base/core/carrier.h"

struct spool {
    size_t head, used;
    unsigned char data[SG_CARRIER_SPOOL];
};

size_t spool_room(const struct spool *s);
/* Appends n bytes, at most the room. */
void spool_put(struct spool *s, const unsigned char *data, size_t n);
/* The oldest bytes that lie in one piece; *n is 0 when there are none. */
const unsigned char *spool_peek(const struct spool *s, size_t *n);
/* Forgets the oldest n bytes. */
void spool_take(struct spool *s, size_t n);
void spool_clear(struct spool *s);

#endif
