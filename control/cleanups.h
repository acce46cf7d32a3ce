/* What has to be taken away and could not be, remembered in the store until it is confirmed: sandboxes by their name and
 * allocation tag, snapshots by their id.  Tried again by whichever gateway claims it, with growing pauses.
 */
#ifndef SG_CONTROL_CLEANUPS_H
#define SG_CONTROL_CLEANUPS_H

#include "control/destroy.h"
#include "store/cleanups.h"

/* Any thread but the loop's.  `why` is logged and kept for whoever lists them.  Kicks the job.  The allocation's answer may
 * still be on its way: where no such sandbox is found it is looked for again for LOST_MS, and only then taken off.
 * name NULL: not known, it is found by its tag.  DURABLE. */
enum { CLEANUP_LOST_MS = 15 * 60 * 1000 };
SG_MUST_CHECK enum sg_code cleanup_sandbox(struct control *c, const char *name, const char *alloc,
                                           const char *why, struct sg_error *e);
/* One that is in use is looked at again for CLEANUP_LOST_MS, and then left alone. */
SG_MUST_CHECK enum sg_code cleanup_snapshot(struct control *c, const char *snapshot_id, const char *why,
                                            struct sg_error *e);

/* Before something is allocated: unless cleanup_keep or cleanup_forget is called within after_ms, it counts as left behind, as if
 * cleanup_sandbox had been called then; so a gateway that is killed in between leaves nothing.  DURABLE. */
SG_MUST_CHECK enum sg_code cleanup_intend(struct control *c, const char *name, const char *alloc,
                                          int64_t after_ms, const char *why, struct sg_error *e);
/* Of the same name and alloc: it is wanted.  When this fails nobody may be told that he has the sandbox: it will be taken
 * away.  SANDBOX_TRANSITION: somebody has begun to.  DURABLE. */
SG_MUST_CHECK enum sg_code cleanup_keep(struct control *c, const char *name, const char *alloc,
                                        struct sg_error *e);
/* Likewise: it is known not to be there.  DURABLE. */
SG_MUST_CHECK enum sg_code cleanup_forget(struct control *c, const char *name, const char *alloc,
                                          struct sg_error *e);

/* Tries a remembered one now, on this thread, unless another does just now.  *gone false: it is still to be done, and is
 * done later; e says why where this try failed. */
void cleanup_try(struct control *c, const struct store_cleanup *which, bool *gone, struct sg_error *e);

/* ---- the job ---- */

/* A sandbox was destroyed by the gateway itself: what belongs to it in other rooms may go.  Any thread, may block. */
typedef void control_destroyed_fn(void *arg, const char *name, const char *session_id);
/* Loop thread; false when out of memory.  Ends with control_stop_jobs, is freed by cleanups_free after it. */
bool cleanups_start(struct control *c, control_destroyed_fn *destroyed, void *arg);
void cleanups_free(struct control *c);
/* Any thread: there may be something to do. */
void cleanups_kick(struct control *c);

#endif
