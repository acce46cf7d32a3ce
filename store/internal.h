/* What store.c and queue.c share.  Private to store/. */
#ifndef SG_STORE_INTERNAL_H
#define SG_STORE_INTERNAL_H

#include "base/crypto.h"
#include "store/db.h"

#include <pthread.h>

enum {
    STORE_CONNECTIONS = 8,
    STORE_BUSY_MS = 5000,
    STORE_REOPEN_MS = 1000, /* a database that could not be opened is not tried again sooner */
};

struct queue;

struct turn {
    struct turn *next;
    pthread_cond_t mine;
    bool given;
};

struct store {
    const struct db_backend *backend;
    char *path;            /* NULL: in memory, or not SQLite */
    struct sg_secret *url; /* NULL: SQLite */
    struct store_options options;
    pthread_mutex_t lock; /* guards what follows; never held while the database works */
    pthread_cond_t given_back;
    struct turn *first_turn, **last_turn; /* who waits to write, in order */
    struct store_db **idle;
    int nidle, nopen, max_open;
    bool opened;   /* once at least */
    bool migrated; /* what is opened next has its tables */
    bool writing, opening;
    int64_t closed_until_ms; /* monotonic; 0: it may be opened */
    struct sg_error why;     /* it could not */
    struct queue *queue;
};

/* ---- pool.c: connections, and whose turn it is ---- */

SG_MUST_CHECK bool pool_init(struct store *s);
void pool_free(struct store *s);
/* A connection, waited for until deadline_ms (monotonic).  Blocks. */
SG_MUST_CHECK enum sg_code pool_take(struct store *s, int64_t deadline_ms, struct store_db **out,
                                     struct sg_error *e);
void pool_give(struct store *s, struct store_db *db);
/* To write, where one does at a time. */
SG_MUST_CHECK enum sg_code pool_turn_take(struct store *s, int64_t deadline_ms, struct sg_error *e);
void pool_turn_give(struct store *s);

/* ---- store.c ---- */

/* All inside one transaction, or none of it.  *begun (may be NULL): whether there was a transaction at all. */
struct store_part {
    store_fn *fn;
    void *arg;
};
SG_MUST_CHECK enum sg_code store_together(struct store *s, enum store_kind kind,
                                          const struct store_part *parts, size_t n, bool *begun,
                                          struct sg_error *e);

struct queue *store_queue_new(struct store *s, struct sg_loop *loop);
/* Runs what waits, ends the threads, tells the owners. */
void store_queue_free(struct queue *q);
bool store_queue_submit(struct queue *q, struct store_work *w);

#endif
