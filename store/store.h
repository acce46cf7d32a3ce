/* What neither the upstream nor the sandboxes can remember, in one database that several gateways may share.
 *
 * SQLite in one file (WAL), or PostgreSQL; every statement is written so that both take it, and transactions are
 * serializable in both.  No secrets of others: keys that tell our own marks from forged ones are made here.
 *
 * All work is a function that runs inside one transaction on a connection, by store_call (blocking; any thread but
 * the loop's) or by store_submit (queued; a thread of the store's own runs it and the loop is told).  Reads have a
 * thread of their own, and need not see what was submitted for writing just before.  When the database is full,
 * locked, damaged, read-only or not there, work fails with STORE_UNAVAILABLE and is tried again by nobody but its
 * owner; the database itself is opened again when it was lost.  What other transactions were in the way of is done
 * again here, until busy_ms are over.
 */
#ifndef SG_STORE_STORE_H
#define SG_STORE_STORE_H

#include "base/error.h"
#include "base/loop.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    STORE_QUEUE_MAX = 4096,               /* submitted and not yet run; what comes on top is refused */
    STORE_QUEUE_BYTES = 64 * 1024 * 1024, /* of what they carry */
};

struct store_options {
    const char *path; /* of the database's file; NULL or "": in memory */
    const char *
        url; /* postgresql://…: PostgreSQL instead of a file; copied, and shown to nobody; NULL or "": none */
    struct sg_loop *loop; /* where submitted work is answered; NULL: only store_call is used */
    int64_t busy_ms;      /* the longest that a call waits for others and for the database; 0: 5 s */
    int64_t connections;  /* at most; 0: 8; in memory there is one */
    int64_t max_pages;    /* of 4 KiB, for tests; 0: as many as the disk holds */
    bool
        rehearse; /* for tests: everything is done once in vain before, as if something had been in the way */
};

struct store;
/* Makes the file (mode 0600), its directory (0700) and its tables where they are missing.  INVALID_FIELD when the
 * path or URL cannot be right (its directory is missing, it is no file, no URL, a newer version made the tables).
 * Anything else that keeps the database from being used now is logged and leaves a store that answers
 * STORE_UNAVAILABLE until it has gone away. */
SG_MUST_CHECK enum sg_code store_open(const struct store_options *o, struct store **out, struct sg_error *e);
/* Runs what was submitted, tells its owners, closes.  Loop thread; nobody may be inside store_call.  NULL is fine. */
void store_close(struct store *s);

/* A connection inside a transaction; owned by the store. */
struct store_db;
/* May be run several times: after it or a neighbour in the same transaction failed, or another transaction was in
 * the way.  So it begins by forgetting what an earlier run collected in `arg`.  Any failure takes back all that it
 * did to the database.  It does not wait for anything else. */
typedef enum sg_code store_fn(struct store_db *db, void *arg, struct sg_error *e);

enum store_kind {
    STORE_READ,
    STORE_WRITE,   /* may be lost when the machine (not only the gateway) dies within the next moment */
    STORE_DURABLE, /* is on the disk when it is answered */
};

/* On failure nothing was done, unless the outcome is UNKNOWN. */
SG_MUST_CHECK enum sg_code store_call(struct store *s, enum store_kind kind, store_fn *fn, void *arg,
                                      struct sg_error *e);

/* Submitted work.  Embed it; it must live until done was called.  The owner fills kind, fn, arg, done, bytes. */
struct store_work {
    struct store_work *next;
    enum store_kind kind;
    store_fn *fn; /* on a thread of the store's */
    void *arg;
    void (*done)(struct store_work *w); /* on the loop, once; code and error say how it went */
    size_t bytes;                       /* memory that waits with it */
    enum sg_code code;
    struct sg_error error;
};
/* Loop thread.  False: the queue is full, done is not called. */
SG_MUST_CHECK bool store_submit(struct store *s, struct store_work *w);

#endif
