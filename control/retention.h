/* Which snapshots stay: the upstream evicts a sandbox's superseded snapshots only as long as nobody else was given one of
 * them; from then on the gateway deletes what nobody needs (control/sweep.c).
 *
 * A snapshot is needed when a checkpoint or template names it, when somebody was given its id to start from, or when a sandbox
 * would resume from it.  A sandbox that was started from it has it as its own current one until its first own snapshot.
 * Captures that somebody asked for are only deleted when somebody asks for that.
 *
 * Worker threads and jobs, blocking.
 */
#ifndef SG_CONTROL_RETENTION_H
#define SG_CONTROL_RETENTION_H

#include "control/destroy.h"
#include "store/retention.h"

/* Before anybody starts from this snapshot by its id, or a sandbox is set back to it: it is named as given, and the sandbox
 * it came from guarded (control_guard).  Once for each snapshot; later calls ask only the store.  SNAPSHOT_GONE,
 * SNAPSHOT_NOT_FOUND. */
SG_MUST_CHECK enum sg_code control_snapshot_give(struct control *c, const char *snapshot_id,
                                                 struct sg_error *e);
/* Whoever named it needs it no more: it goes when nobody does, now or later.  The caller has dropped its own name. */
SG_MUST_CHECK enum sg_code control_snapshot_release(struct control *c, const char *snapshot_id,
                                                    struct sg_error *e);
/* A sandbox that does not evict because it started from a snapshot (its caller did not ask for that): the gateway sweeps its
 * superseded own ones.  created_at_ms: as the upstream tells it.  What fails is logged, then they stay. */
void control_retention_watch(struct control *c, const char *name, int64_t created_at_ms);
/* Whether the upstream may be told to evict this sandbox's snapshots, or to let them expire: SNAPSHOT_IN_USE when it stands on
 * another one's snapshot or somebody needs one of its own. */
SG_MUST_CHECK enum sg_code control_may_evict(struct control *c, const struct vercel_sandbox *s,
                                             struct sg_error *e);

/* ---- for control/sweep.c and destroy.c ---- */

struct own_snapshot {
    char id[SNAPSHOT_ID_TEXT];
    char session_id[SNAPSHOT_ID_TEXT];
    bool automatic; /* the upstream made it by itself when a session ended */
    int64_t created_at_ms;
};
struct own_snapshots {
    struct own_snapshot *items; /* newest first */
    size_t n;
    bool whole; /* there are no more */
};
void own_snapshots_clear(struct own_snapshots *o);
/* The usable snapshots that this sandbox's sessions left. */
SG_MUST_CHECK enum sg_code control_own_snapshots(struct control *c, const char *name,
                                                 struct own_snapshots *out, struct sg_error *e);

/* Every sandbox of the upstream, until fn returns false.  Entries of pages: without session. */
typedef bool control_each_fn(void *arg, const struct vercel_sandbox *s);
SG_MUST_CHECK enum sg_code control_each_sandbox(struct control *c, control_each_fn *fn, void *arg,
                                                struct sg_error *e);

enum {
    SNAPSHOT_DOOM_MS = 5 * 60 * 1000,   /* nobody is given it for so long while it is being deleted */
    SNAPSHOT_YOUNG_MS = 15 * 60 * 1000, /* a sandbox that was begun from it may not be seen yet */
};
/* c->store, or STORE_UNAVAILABLE. */
SG_MUST_CHECK enum sg_code control_in_store(struct control *c, enum store_kind kind, store_fn *fn, void *arg,
                                            struct sg_error *e);

#endif
