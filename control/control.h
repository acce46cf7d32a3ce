/* Private to control/: the object behind its functions. */
#ifndef SG_CONTROL_CONTROL_H
#define SG_CONTROL_CONTROL_H

#include "control/sandboxes.h"
#include "control/jobs.h"
#include "control/session_cache.h"
#include "control/steps.h"

enum { CONTROL_SESSIONS_MAX = 10000 };

/* Something in flight on the loop; embedded first in each kind.  `end` answers with e (NULL: not at all, by control_cancel) and
 * frees. */
struct control_op {
    struct control_op *next, *prev;
    void (*end)(struct control_op *op, const struct sg_error *e);
};

struct lookup;
struct watch;
struct cleanups;
struct leases;
struct names;
struct keepalive;
struct templates;
struct sweep;

struct control {
    struct sg_loop *loop;
    struct vercel_client *vercel;
    struct store *store; /* NULL: in tests only; what needs it answers STORE_UNAVAILABLE */
    char *upstream;      /* under which everything of it is stored */
    struct jobs *jobs;
    struct cleanups *cleanups; /* NULL: only remembered, not done (control/cleanups.h) */
    struct leases *leases;
    struct names *names; /* the locks that are held (control/names.h) */
    struct keepalive *keepalive;
    struct templates *templates; /* NULL: none are prepared (control/templates.h) */
    int64_t capture_named_ms;    /* control/capture.h */
    struct sweep *sweep;         /* NULL: not begun (control/sweep.h) */
    struct step_runner steps;    /* run NULL: none */
    struct session_cache *sessions;
    struct session_cache *dirs;    /* by allocation: where programs begin (control/settings.h) */
    struct session_cache *checked; /* sessions whose image has what is needed (steps.c) */
    struct control_op *ops;
    struct lookup *lookups;
    struct watch *watches;
    struct control_before_stop before_stop; /* begin NULL: nothing */
};

void control_op_add(struct control *c, struct control_op *op);
void control_op_remove(struct control *c, struct control_op *op);

/* The wall time at which its session ends, 0: not known. */
int64_t control_deadline(const struct vercel_sandbox *s);

/* Remembers or forgets the session that an answer describes.  Any thread. */
void control_observe(struct control *c, const struct vercel_sandbox *s);

/* NULL when out of memory. */
struct names *names_new(void);
void names_free(struct names *n);
/* Loop thread; false when out of memory. */
bool names_start(struct control *c);

/* Whoever waits for this sandbox looks now.  Loop thread. */
void control_await_look(struct control *c, const char *name);
/* A resume of it is under way here.  Loop thread. */
bool control_resuming(const struct control *c, const char *name);

/* Ends the lookups with e. */
void control_lookups_end(struct control *c, const struct sg_error *e);

#endif
