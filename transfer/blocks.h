/* Memory for uploads: blocks of one size, of one pool with a ceiling, and chains of them that hold bytes in order.
 *
 * When the pool is used up, who holds blocks gets no more of them, and who has none waits in line for one that is given
 * back: so nobody waits for ever, as long as those who hold some can go on with what they have.  Blocks are mapped and not
 * allocated, so what is given back is given back to the system; a few are kept for the next.
 * Loop thread.
 */
#ifndef SG_TRANSFER_BLOCKS_H
#define SG_TRANSFER_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

enum {
    BLOCK_BYTES = 256 * 1024,
    BLOCK_ROOM = BLOCK_BYTES - 16, /* of it for data */
    BLOCKS_SPARE = 96,             /* kept while they are wanted */
    BLOCKS_IDLE = 8,               /* and afterwards */
};

struct block {
    struct block *next;
    size_t len;
    char data[BLOCK_ROOM];
};

/* ---- the pool ---- */

struct blocks;
/* ceiling in bytes; one block at least.  NULL: out of memory. */
struct blocks *blocks_new(uint64_t ceiling);
/* All must have been given back, and nobody wait.  NULL is fine. */
void blocks_free(struct blocks *p);

/* NULL: the ceiling is reached, somebody waits in line, or the system has no memory. */
struct block *blocks_take(struct blocks *p);
/* To the first in line, if there is one. */
void blocks_give(struct blocks *p, struct block *b);
/* How much somebody who has memory should plan with, so that something is left for those to come; BLOCK_ROOM at least. */
uint64_t blocks_share(const struct blocks *p);
/* There is enough to take it for what is not yet needed. */
bool blocks_plenty(const struct blocks *p);
size_t blocks_in_use(const struct blocks *p);
/* Nobody wants any for now: BLOCKS_IDLE are kept. */
void blocks_rest(struct blocks *p);

struct blocks_wait {
    TAILQ_ENTRY(blocks_wait) link;
    bool waiting;
    void (*fn)(void *arg, struct block *b); /* the block is the waiter's; must not come back to the pool */
    void *arg;
};
/* False when there is nothing to wait for: no block is in use and yet there is none, for want of memory. */
bool blocks_wait(struct blocks *p, struct blocks_wait *w);
void blocks_wait_off(struct blocks *p, struct blocks_wait *w);

/* ---- a chain: bytes in at its end, and out at its beginning ---- */

struct chain {
    struct block *first, *last;
    size_t skip; /* bytes of the first that are gone already */
    uint64_t bytes;
};

/* A place in it.  Zeroed: its beginning.  It counts until bytes are dropped. */
struct chain_mark {
    const struct block *block;
    size_t off;
};

/* Where to write at its end; *n is 0 when it needs another block. */
char *chain_room(struct chain *c, size_t *n);
void chain_wrote(struct chain *c, size_t n);
void chain_push(struct chain *c, struct block *b);
/* Copies at most cap bytes from the mark, which moves behind them. */
size_t chain_read(const struct chain *c, struct chain_mark *m, char *buf, size_t cap);
/* The first n bytes (at most what it holds) are needed no more. */
void chain_drop(struct chain *c, struct blocks *p, uint64_t n);

#endif
