/* What can still be told of processes when their session is over: how they ended, and the last bytes of their
 * output, kept in the store until a stated time.
 *
 * They are saved when a process's end is read (from what is at hand, else by one bounded read), before an ordered
 * stop, and a while before the deadline of a session in which processes were started.  All of it is best effort: it
 * never makes a call fail, and what may be missing is marked by what the store holds.  Loop thread.
 */
#ifndef SG_RELAY_TAILS_H
#define SG_RELAY_TAILS_H

#include "relay/relay.h"
#include "store/store.h"

struct tails_config { /* times in milliseconds; 0: the default */
    struct store *store;
    const char *upstream; /* whose the sandbox names are; copied */
    int64_t keep_ms;      /* 24 h: from saving on */
    int64_t max_bytes;    /* 1 GiB: of all that is kept; the oldest go first */
    int64_t before_ms; /* 20 s: so long before a session's deadline its processes are saved; a quarter of what
                             is left where that is less */
    int64_t stop_ms;   /* 5 s: an ordered stop waits so long at most */
    int64_t prune_ms;  /* 60 s: between clean-ups */
};

struct tails;
/* The relay tells it of processes from now on.  NULL when out of memory. */
struct tails *tails_new(struct relay *r, const struct tails_config *c);
/* Before relay_free: nothing is read any more. */
void tails_stop(struct tails *t);
/* After relay_free and store_close. */
void tails_free(struct tails *t);

struct store *tails_store(const struct tails *t);
const char *tails_upstream(const struct tails *t);
int64_t tails_keep_ms(const struct tails *t);

/* This name runs in this session.  deadline_ms: wall clock; 0: not known. */
void tails_session(struct tails *t, const char *sandbox, const struct relay_session *s, int64_t deadline_ms);

/* The session is about to be ended: saves what can be within stop_ms, then calls done, once, possibly before this
 * returns.  NULL: done was called; else a ticket for tails_cancel. */
struct tails_ticket;
struct tails_ticket *tails_before_end(struct tails *t, const char *sandbox, const struct relay_session *s,
                                      void (*done)(void *arg), void *arg);
/* done is not called any more; the saving goes on. */
void tails_cancel(struct tails_ticket *ticket);

/* The session's sandbox was destroyed, or (id not NULL) this process was removed: nothing of it is saved any more,
 * also not what waits to be.  Any thread. */
void tails_gone(struct tails *t, const char *session_id, const char *id);

/* The process was removed: nothing of it is to be told.  done, once, possibly before this returns: when that is so,
 * or cannot be made so (logged). */
void tails_forget(struct tails *t, const char *sandbox, const char *session_id, const char *id,
                  void (*done)(void *arg), void *arg);

#endif
