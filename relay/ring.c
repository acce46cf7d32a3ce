#include "relay/ring.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST = 1024 };

void ring_init(struct ring *r, size_t *used)
{
    *r = (struct ring){.used = used};
}

static unsigned char **nth(struct ring *r, unsigned i)
{
    return &r->block[(r->first + i) % RING_BLOCKS];
}

static size_t cap_of(const struct ring *r, unsigned i)
{
    return i + 1 == r->n ? r->cap : RING_BLOCK;
}

size_t ring_size(const struct ring *r)
{
    return r->n ? (size_t)(r->n - 1) * RING_BLOCK + r->cap : 0;
}

bool ring_drop(struct ring *r)
{
    if (!r->n)
        return false;
    size_t cap = cap_of(r, 0);
    uint64_t held = r->end - r->base;
    free(*nth(r, 0));
    *nth(r, 0) = NULL;
    *r->used -= cap;
    r->first = (r->first + 1) % RING_BLOCKS;
    r->n--;
    r->base += held < cap ? held : cap;
    r->gone = r->base;
    if (!r->n)
        r->cap = 0;
    return true;
}

void ring_start(struct ring *r, uint64_t offset)
{
    while (ring_drop(r))
        ;
    r->base = r->end = r->gone = offset;
}

void ring_gap(struct ring *r, uint64_t to)
{
    uint64_t from = r->end == r->base ? r->gone : r->end; /* two gaps in a row are one */
    ring_start(r, to);
    r->gone = from;
}

/* Bytes that the last block has in it. */
static size_t filled(const struct ring *r)
{
    return r->n ? (size_t)(r->end - r->base) - (size_t)(r->n - 1) * RING_BLOCK : 0;
}

/* The capacity for a block that is to hold `len` bytes. */
static size_t fit(size_t len)
{
    size_t cap = FIRST;
    while (cap < len && cap < RING_BLOCK)
        cap *= 2;
    return cap;
}

size_t ring_need(const struct ring *r, size_t len)
{
    size_t in_last = filled(r);
    size_t total = in_last + len;
    if (total <= r->cap)
        return 0;
    if (r->n <= 1 && total <= RING_BLOCK)
        return fit(total) - r->cap;
    return (total + RING_BLOCK - 1) / RING_BLOCK * RING_BLOCK - r->cap;
}

/* Makes the last block (a small one, the only one) larger. */
static bool grow(struct ring *r, size_t want)
{
    size_t cap = fit(want);
    unsigned char *p = realloc(*nth(r, r->n - 1), cap);
    if (!p)
        return false;
    *nth(r, r->n - 1) = p;
    *r->used += cap - r->cap;
    r->cap = cap;
    return true;
}

static bool append_block(struct ring *r, size_t want)
{
    size_t cap = r->n ? RING_BLOCK : fit(want);
    unsigned char *p = malloc(cap);
    if (!p)
        return false;
    if (r->n == RING_BLOCKS)
        (void)ring_drop(r);
    r->n++;
    *nth(r, r->n - 1) = p;
    r->cap = cap;
    *r->used += cap;
    return true;
}

/* Room for at least one more byte, of `len` that are coming. */
static bool make_room(struct ring *r, size_t len)
{
    size_t in_last = filled(r);
    if (r->n && in_last < r->cap && (r->cap == RING_BLOCK || len <= r->cap - in_last))
        return true;
    if (r->n && r->cap < RING_BLOCK)
        return grow(r, in_last + len);
    return append_block(r, len);
}

/* What was added of something that does not fit as a whole. */
static void take_back(struct ring *r, uint64_t end)
{
    if (end <= r->base) { /* the old bytes are gone meanwhile, all of them */
        ring_start(r, end);
        return;
    }
    while (r->n > 1 && end - r->base <= (uint64_t)(r->n - 1) * RING_BLOCK) {
        free(*nth(r, r->n - 1));
        *nth(r, r->n - 1) = NULL;
        *r->used -= r->cap;
        r->cap = RING_BLOCK;
        r->n--;
    }
    r->end = end;
}

bool ring_add(struct ring *r, const void *data, size_t len)
{
    const unsigned char *p = data;
    uint64_t before = r->end;
    while (len) {
        if (!make_room(r, len)) {
            take_back(r, before);
            return false;
        }
        size_t in_last = filled(r), room = r->cap - in_last;
        size_t n = len < room ? len : room;
        memcpy(*nth(r, r->n - 1) + in_last, p, n);
        r->end += n;
        p += n;
        len -= n;
    }
    return true;
}

size_t ring_at(const struct ring *r, uint64_t at, const unsigned char **data)
{
    if (at < r->base || at >= r->end)
        return 0;
    uint64_t from = at - r->base;
    size_t in = (size_t)(from % RING_BLOCK);
    *data = r->block[(r->first + from / RING_BLOCK) % RING_BLOCKS] + in;
    size_t left = RING_BLOCK - in;
    return r->end - at < left ? (size_t)(r->end - at) : left;
}
