/* What relay/tails.c (sessions and their deadlines), tails_save.c (one process) and tails_sweep.c (all processes of
 * a session) share.  Loop thread.
 */
#ifndef SG_RELAY_TAILS_INTERNAL_H
#define SG_RELAY_TAILS_INTERNAL_H

#include "relay/internal.h"
#include "relay/named.h"
#include "relay/ring.h"
#include "relay/tails.h"
#include "store/processes.h"

#include <pthread.h>
#include <sys/queue.h>

enum {
    TAILS_SESSIONS_MAX = 10000, /* remembered; the least recently used that is not watched goes first */
    TAILS_READS = 4,            /* at a time, because processes ended */
    TAILS_SWEEP_READS = 8,      /* at a time, of one sweep */
    TAILS_READS_WAITING = 1024, /* beyond that, processes are saved without their bytes */
    TAILS_GONE = 256,           /* destroyed sessions whose saves may still be on their way */
    TAILS_LOOKS = 16,           /* at a time: sandboxes asked for their deadline */
    TAILS_SLACK = 128 * 1024,   /* a tail may be shorter than STORE_TAIL_MAX by what a ring drops at once */
};

struct tails_place { /* owned strings */
    char *sandbox;
    struct session_copy session;
};

/* A session that was seen.  Watched: processes were started in it. */
struct tails_session {
    struct named name;
    TAILQ_ENTRY(tails_session) age;
    struct tails *tails;
    struct tails_place place;
    bool watched;
    bool saved;          /* the deadline's sweep has begun; the next look tells whether it moved */
    int64_t deadline_ms; /* wall clock; 0: not known */
    int64_t due_ms;      /* wall clock; when it is looked after; 0: never */
    struct vercel_call *look;
};

struct tails_read;
TAILQ_HEAD(tails_reads, tails_read);

/* Reads, of which so many run at a time. */
struct tails_lane {
    struct tails_reads waiting, running;
    size_t nwaiting, nrunning, max;
    struct tails_sweep *sweep; /* whose; NULL: of processes that ended */
};

/* All processes of a session are being saved. */
struct tails_sweep {
    LIST_ENTRY(tails_sweep) link; /* of the tails, while others may join */
    struct tails *tails;
    struct tails_place place;
    struct tails_lane lane;
    struct store_work work;
    struct sg_error error;
    bool watched;                  /* processes were started there; else the store may know of some */
    bool reading, listing, listed; /* the store is asked; the sandbox is asked, or was */
    bool cut;                      /* the time is over */
    bool kept;                     /* all is saved, and will be kept long enough */
    size_t puts;                   /* saves on their way */
    struct stored_process *stored; /* what the store has already, by id */
    size_t nstored;
    struct sg_timer *timer;
    LIST_HEAD(, tails_ticket) tickets; /* who waits */
};

struct tails_ticket {
    LIST_ENTRY(tails_ticket) link;
    void (*done)(void *arg);
    void *arg;
};

struct tails {
    struct relay *relay;
    struct store *store;
    char *upstream;
    int64_t keep_ms, max_bytes, before_ms, stop_ms, prune_ms;
    struct named_table sessions; /* by session id alone */
    TAILQ_HEAD(, tails_session) by_age;
    size_t nsessions, nlooks;
    struct sg_timer *timer, *prune;
    int64_t armed_ms; /* wall clock of the timer; 0: it does not run */
    bool pruning, loading, stopped;
    struct tails_lane ended;
    size_t ring_used;
    LIST_HEAD(, tails_sweep) sweeps;
    size_t sweeping; /* sweeps that are not freed yet */
    size_t failures; /* saves that failed, and that no log line tells of yet */
    pthread_mutex_t gone_lock;
    char gone[TAILS_GONE]
             [RELAY_SESSION_TEXT + SG_WIRE_ID_MAX + 1]; /* the last that were: SESSION/ID, or SESSION/ */
    unsigned next_gone;
};

/* ---- tails.c ---- */

struct tails_session *tails_find(struct tails *t, const char *session_id);
bool tails_place_copy(struct tails_place *out, const char *sandbox, const struct relay_session *s);
void tails_place_free(struct tails_place *p);
/* Any thread. */
bool tails_is_gone(struct tails *t, const char *session_id, const char *id);
struct relay_session tails_place_session(const struct tails_place *p);

/* ---- tails_save.c ---- */

void tails_lane_init(struct tails_lane *l, size_t max, struct tails_sweep *sweep);
/* Saves a process with what is at hand of its output (NULL: nothing). */
void tails_put(struct tails *t, const struct tails_place *place, const struct sg_wire_process *p,
               const struct relay_last *last, struct tails_sweep *sweep);
/* Is what lies at hand all that would be kept? */
bool tails_at_hand(const struct sg_wire_process *p, const struct relay_last *last);
/* Reads the last bytes of a process's output, then saves it with what could be read. */
void tails_read(struct tails *t, const struct tails_place *place, const struct sg_wire_process *p,
                struct tails_lane *lane);
/* Ends them; saving what came so far, or not. */
void tails_lane_end(struct tails_lane *lane, bool save);

/* ---- tails_sweep.c ---- */

/* Something that belongs to it has ended. */
void tails_sweep_step(struct tails_sweep *s);
/* After budget_ms, what came so far is saved.  False: there is no need, or no memory: the ticket was not taken. */
bool tails_sweep(struct tails *t, const struct tails_place *place, bool watched, int64_t budget_ms,
                 struct tails_ticket *ticket);
void tails_sweeps_stop(struct tails *t);

#endif
