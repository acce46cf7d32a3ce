#include "transfer/gzip.h"

#include <limits.h>
#include <string.h>

enum { WINDOW = 15, AS_GZIP = 16, MEMORY = 8 };

/* The library counts in unsigned int, and does not write through its input pointer. */
static void aim(z_stream *z, const char *in, size_t in_len, char *out, size_t cap)
{
    z->next_in = (z_const Bytef *)(uintptr_t)in;
    z->avail_in = in_len < UINT_MAX ? (uInt)in_len : UINT_MAX;
    z->next_out = (Bytef *)out;
    z->avail_out = cap < UINT_MAX ? (uInt)cap : UINT_MAX;
}

/* ---- reading ---- */

bool gunzip_open(struct gunzip *g, uint64_t free_bytes)
{
    memset(g, 0, sizeof *g);
    g->free_bytes = free_bytes;
    g->open = inflateInit2(&g->z, WINDOW + AS_GZIP) == Z_OK;
    return g->open;
}

void gunzip_close(struct gunzip *g)
{
    if (g->open)
        (void)inflateEnd(&g->z);
    g->open = false;
}

bool gunzip_whole(const struct gunzip *g)
{
    return g->members > 0 && !g->inside;
}

static bool too_much(const struct gunzip *g)
{
    return g->out > g->free_bytes && g->out / GUNZIP_RATIO_MAX > g->in;
}

static enum gunzip_state meaning(int rc)
{
    switch (rc) {
    case Z_OK:
    case Z_STREAM_END:
    case Z_BUF_ERROR: /* no progress was possible: no input or no room */
        return GUNZIP_FINE;
    case Z_MEM_ERROR:
        return GUNZIP_NO_MEMORY;
    default:
        return GUNZIP_DAMAGED;
    }
}

enum gunzip_state gunzip_step(struct gunzip *g, const char **in, size_t *in_len, char *out, size_t cap,
                              size_t *made)
{
    *made = 0;
    while (*made < cap && (*in_len || g->inside)) {
        if (!g->inside && g->members && inflateReset(&g->z) != Z_OK)
            return GUNZIP_DAMAGED;
        g->inside = true;
        aim(&g->z, *in, *in_len, out + *made, cap - *made);
        uInt before_in = g->z.avail_in, before_out = g->z.avail_out;
        int rc = inflate(&g->z, Z_NO_FLUSH);
        size_t took = before_in - g->z.avail_in, gave = before_out - g->z.avail_out;
        *in += took;
        *in_len -= took;
        *made += gave;
        g->in += took;
        g->out += gave;
        enum gunzip_state state = meaning(rc);
        if (state)
            return state;
        if (too_much(g))
            return GUNZIP_TOO_MUCH;
        if (rc == Z_STREAM_END) {
            g->members++;
            g->inside = false;
        } else if (!took && !gave) {
            break; /* more input is needed */
        }
    }
    return GUNZIP_FINE;
}

/* ---- writing ---- */

bool gzip_open(struct gzip *g, int level)
{
    memset(g, 0, sizeof *g);
    g->open = deflateInit2(&g->z, level, Z_DEFLATED, WINDOW + AS_GZIP, MEMORY, Z_DEFAULT_STRATEGY) == Z_OK;
    return g->open;
}

void gzip_close(struct gzip *g)
{
    if (g->open)
        (void)deflateEnd(&g->z);
    g->open = false;
}

bool gzip_step(struct gzip *g, const char **in, size_t *in_len, bool last, char *out, size_t cap,
               size_t *made)
{
    *made = 0;
    while (*made < cap && !g->done && (*in_len || last)) {
        aim(&g->z, *in, *in_len, out + *made, cap - *made);
        uInt before_in = g->z.avail_in, before_out = g->z.avail_out;
        bool all = before_in == *in_len;
        int rc = deflate(&g->z, last && all ? Z_FINISH : Z_NO_FLUSH);
        size_t took = before_in - g->z.avail_in;
        *in += took;
        *in_len -= took;
        *made += before_out - g->z.avail_out;
        g->done = rc == Z_STREAM_END;
    }
    return last ? g->done : !*in_len;
}
