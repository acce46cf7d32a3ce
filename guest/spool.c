#include "guest/spool.h"

#include <string.h>

size_t spool_room(const struct spool *s)
{
    return sizeof s->data - s->used;
}

void spool_put(struct spool *s, const unsigned char *data, size_t n)
{
    if (n > spool_room(s))
        n = spool_room(s);
    if (n == 0) /* of which there may be no address */
        return;
    size_t at = (s->head + s->used) % sizeof s->data;
    size_t first = n < sizeof s->data - at ? n : sizeof s->data - at;
    memcpy(s->data + at, data, first);
    memcpy(s->data, data + first, n - first);
    s->used += n;
}

const unsigned char *spool_peek(const struct spool *s, size_t *n)
{
    size_t piece = sizeof s->data - s->head;
    *n = s->used < piece ? s->used : piece;
    return s->data + s->head;
}

void spool_take(struct spool *s, size_t n)
{
    if (n > s->used)
        n = s->used;
    s->used -= n;
    /* Back to the beginning when it ran empty: then only the pages that are needed are ever touched. */
    s->head = s->used ? (s->head + n) % sizeof s->data : 0;
}

void spool_clear(struct spool *s)
{
    s->head = s->used = 0;
}
