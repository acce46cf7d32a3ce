/* A set of 64-bit hashes with open addressing: two names that share one would cost an event of somebody who looked for
 * that, and nobody else. */
#include "guest/fs_watch.h"

#include <stdlib.h>
#include <string.h>

enum { FREE, TAKEN }; /* no hash is one of these */

static uint64_t hash(int wd, const char *name)
{
    uint64_t h = (UINT64_C(14695981039346656037) ^ (uint64_t)(unsigned)wd) * UINT64_C(1099511628211);
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * UINT64_C(1099511628211);
    h ^= h >> 32;
    return h > TAKEN ? h : TAKEN + 1;
}

/* Where it is, or the first free place; NULL: neither. */
static uint64_t *find(const struct watch_seen *s, uint64_t h)
{
    for (size_t i = 0; i < WATCH_SEEN; i++) {
        uint64_t *at = &s->v[(h + i) % WATCH_SEEN];
        if (*at == h || *at == FREE)
            return at;
    }
    return NULL;
}

void watch_seen_add(struct watch_seen *s, int wd, const char *name)
{
    if (!s->v)
        s->v = calloc(WATCH_SEEN, sizeof *s->v);
    if (!s->v || s->n == WATCH_SEEN / 2) /* then some may be told twice */
        return;
    uint64_t h = hash(wd, name), *at = find(s, h);
    if (!at || *at == h)
        return;
    *at = h;
    s->n++; /* also counts what was taken: those places are not free again */
}

bool watch_seen_take(struct watch_seen *s, int wd, const char *name)
{
    if (!s->n)
        return false;
    uint64_t *at = find(s, hash(wd, name));
    if (!at || *at == FREE)
        return false;
    *at = TAKEN;
    return true;
}

void watch_seen_clear(struct watch_seen *s)
{
    if (s->n)
        memset(s->v, 0, WATCH_SEEN * sizeof *s->v);
    s->n = 0;
}

void watch_seen_free(struct watch_seen *s)
{
    free(s->v);
    *s = (struct watch_seen){0};
}
