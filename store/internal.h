/* What store.c and queue.c share.  Private to store/. */
#ifndef SG_STORE_INTERNAL_H
#define SG_STORE_INTERNAL_H

#include "store/db.h"

#include <pthread.h>

enum {
    STORE_CONNECTIONS = 3,  /* one for each thread of the queue, one for callers; 1 in memory */
    STORE_REOPEN_MS = 1000, /* a database that could not be opened is not tried again sooner */
};

struct queue;

struct store {
    char *path; /* NULL: in memory */
    struct store_options options;
    pthread_mutex_t lock; /* guards what follows; never held while the database works */
    pthread_cond_t given_back;
    struct store_db *idle[STORE_CONNECTIONS];
    int nidle, nopen, max_open;
    bool migrated;
    int64_t closed_until_ms; /* monotonic; 0: it may be opened */
    struct sg_error why;     /* it could not */
    struct queue *queue;
};

/* A connection, waited for.  Blocks. */
SG_MUST_CHECK enum sg_code store_take(struct store *s, struct store_db **out, struct sg_error *e);
void store_give(struct store *s, struct store_db *db);

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
