/* What has to be taken away and could not be, remembered in the store until it is confirmed: sandboxes by their name and
 * allocation tag, snapshots by their id.  Tried again by whichever gateway claims it, with growing pauses. */
#ifndef SG_CONTROL_CLEANUPS_H
#define SG_CONTROL_CLEANUPS_H

#include "control/destroy.h"

/* Any thread but the loop's.  `why` is logged and kept for whoever lists them.  Kicks the job.  The allocation's answer may
 * still be on its way: where no such sandbox is found it is looked for again for LOST_MS, and only then taken off. */
enum { CLEANUP_LOST_MS = 15 * 60 * 1000 };
SG_MUST_CHECK enum sg_code cleanup_sandbox(struct control *c, const char *name, const char *alloc,
                                           const char *why, struct sg_error *e);
SG_MUST_CHECK enum sg_code cleanup_snapshot(struct control *c, const char *snapshot_id, const char *why,
                                            struct sg_error *e);

#endif
