#include "transfer/blocks.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

_Static_assert(sizeof(struct block) == BLOCK_BYTES, "a block is what it says");

TAILQ_HEAD(wait_list, blocks_wait);

struct blocks {
    size_t ceiling, in_use, nspare; /* blocks */
    struct block *spare;
    struct wait_list line;
};

struct blocks *blocks_new(uint64_t ceiling)
{
    struct blocks *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->ceiling = (size_t)(ceiling / BLOCK_BYTES);
    p->ceiling = p->ceiling ? p->ceiling : 1;
    TAILQ_INIT(&p->line);
    return p;
}

static void unmap(struct block *b)
{
    (void)munmap(b, sizeof *b);
}

static void keep_at_most(struct blocks *p, size_t n)
{
    while (p->nspare > n) {
        struct block *b = p->spare;
        p->spare = b->next;
        p->nspare--;
        unmap(b);
    }
}

void blocks_free(struct blocks *p)
{
    if (!p)
        return;
    keep_at_most(p, 0);
    free(p);
}

static struct block *spare_or_new(struct blocks *p)
{
    struct block *b = p->spare;
    if (b) {
        p->spare = b->next;
        p->nspare--;
        return b;
    }
    void *m = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return m == MAP_FAILED ? NULL : m;
}

static void make_empty(struct block *b)
{
    b->next = NULL;
    b->len = 0;
}

struct block *blocks_take(struct blocks *p)
{
    if (p->in_use >= p->ceiling || !TAILQ_EMPTY(&p->line))
        return NULL;
    struct block *b = spare_or_new(p);
    if (!b)
        return NULL;
    p->in_use++;
    make_empty(b);
    return b;
}

void blocks_give(struct blocks *p, struct block *b)
{
    struct blocks_wait *w = TAILQ_FIRST(&p->line);
    if (w) {
        blocks_wait_off(p, w);
        make_empty(b);
        w->fn(w->arg, b);
        return;
    }
    p->in_use--;
    if (p->nspare >= BLOCKS_SPARE) {
        unmap(b);
        return;
    }
    b->next = p->spare;
    p->spare = b;
    p->nspare++;
}

uint64_t blocks_share(const struct blocks *p)
{
    uint64_t share = TAILQ_EMPTY(&p->line) ? (p->ceiling - p->in_use) / 4 : 0;
    return (share ? share : 1) * BLOCK_ROOM;
}

bool blocks_plenty(const struct blocks *p)
{
    return TAILQ_EMPTY(&p->line) && p->in_use <= p->ceiling / 4 * 3;
}

size_t blocks_in_use(const struct blocks *p)
{
    return p->in_use;
}

void blocks_rest(struct blocks *p)
{
    keep_at_most(p, BLOCKS_IDLE);
}

bool blocks_wait(struct blocks *p, struct blocks_wait *w)
{
    if (p->in_use == 0)
        return false;
    w->waiting = true;
    TAILQ_INSERT_TAIL(&p->line, w, link);
    return true;
}

void blocks_wait_off(struct blocks *p, struct blocks_wait *w)
{
    if (!w->waiting)
        return;
    w->waiting = false;
    TAILQ_REMOVE(&p->line, w, link);
}

/* ---- chains ---- */

char *chain_room(struct chain *c, size_t *n)
{
    *n = c->last ? BLOCK_ROOM - c->last->len : 0;
    return *n ? c->last->data + c->last->len : NULL;
}

void chain_wrote(struct chain *c, size_t n)
{
    c->last->len += n;
    c->bytes += n;
}

void chain_push(struct chain *c, struct block *b)
{
    if (c->last)
        c->last->next = b;
    else
        c->first = b;
    c->last = b;
}

size_t chain_read(const struct chain *c, struct chain_mark *m, char *buf, size_t cap)
{
    size_t done = 0;
    if (!m->block && c->first)
        *m = (struct chain_mark){c->first, c->skip};
    while (m->block && done < cap) {
        size_t n = m->block->len - m->off;
        if (!n) {
            if (!m->block->next)
                break;
            *m = (struct chain_mark){m->block->next, 0};
            continue;
        }
        n = n < cap - done ? n : cap - done;
        memcpy(buf + done, m->block->data + m->off, n);
        m->off += n;
        done += n;
    }
    return done;
}

void chain_drop(struct chain *c, struct blocks *p, uint64_t n)
{
    c->bytes -= n;
    while (c->first && (c->bytes == 0 || n >= c->first->len - c->skip)) {
        struct block *b = c->first;
        size_t here = b->len - c->skip;
        if (n == 0 && c->bytes)
            break;
        n -= n < here ? n : here;
        c->first = b->next;
        c->skip = 0;
        blocks_give(p, b);
    }
    c->skip = c->first ? c->skip + (size_t)n : 0;
    if (!c->first)
        c->last = NULL;
}
