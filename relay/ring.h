/* The newest bytes of one output stream, at their offsets: appended at the end, dropped at the beginning, read
 * anywhere between.  Pure but for memory; one thread.
 *
 * Memory comes in blocks of RING_BLOCK bytes (the first one grows up to that), RING_BLOCKS at most; what it takes
 * is counted into a number that its owner shares among rings.
 */
#ifndef SG_RELAY_RING_H
#define SG_RELAY_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RING_BLOCK = 64 * 1024, RING_BLOCKS = 16 };

struct ring {
    uint64_t base, end; /* the offsets kept: base..end */
    uint64_t gone;      /* gone..base are known to be kept nowhere any more; gone == base: nothing is known */
    size_t *used;       /* bytes of memory, of all rings that share it */
    unsigned char
        *block[RING_BLOCKS]; /* from `first` on, wrapping round; block i begins at base + i * RING_BLOCK */
    unsigned first, n;
    size_t cap; /* of the last block; the others have RING_BLOCK */
};

/* Empty at offset 0. */
void ring_init(struct ring *r, size_t *used);
/* Empty at `offset`; its memory is given back. */
void ring_start(struct ring *r, uint64_t offset);
/* end..to will never come: empty at `to`, and what lies between is known to be gone. */
void ring_gap(struct ring *r, uint64_t to);
/* More memory that adding `len` bytes takes, at most. */
size_t ring_need(const struct ring *r, size_t len);
/* Appends at the end; a full ring drops its oldest blocks.  False when out of memory: then nothing was added. */
bool ring_add(struct ring *r, const void *data, size_t len);
/* Drops the oldest block.  False when there is none. */
bool ring_drop(struct ring *r);
/* The bytes at `at` that lie in one piece: their number, *data; 0 outside base..end. */
size_t ring_at(const struct ring *r, uint64_t at, const unsigned char **data);
/* Bytes of memory. */
size_t ring_size(const struct ring *r);

#endif
