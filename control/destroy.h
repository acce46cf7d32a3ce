/* Ending sandboxes and snapshots without taking away what others stand on.  Worker threads, blocking. */
#ifndef SG_CONTROL_DESTROY_H
#define SG_CONTROL_DESTROY_H

#include "control/sandboxes.h"
#include "control/tags.h"

struct control_destroy {
    const char *name;
    /* Only the sandbox that carries this allocation tag: another one of the name is left alone, which is a success.
     * NULL: whichever has the name. */
    const char *alloc;
    char session_id[CONTROL_SESSION_TEXT]; /* out: its last session, "" where that is not known */
    bool found;                            /* out: there was one */
};
/* Success also when there is none.  Under the name's lock (store_lock_take), so that it and a create, resume or fork of
 * the same name through any gateway do not meet: with an alloc, first stops the session it saw, then looks again, compares
 * the tag, then deletes.  Asks for orphaned snapshots only where no checkpoint, template or other sandbox names one of
 * them.  Forgets what the store knows of the sandbox.  Where the end cannot be confirmed the error says so, and the
 * caller decides whether it is remembered (control/cleanups.h). */
SG_MUST_CHECK enum sg_code control_destroy_if(struct control *c, struct control_destroy *d,
                                              struct sg_error *e);

/* Deletes one snapshot where nobody needs it: SNAPSHOT_IN_USE when a checkpoint, a template or a sandbox (its current one)
 * names it; success when it is gone already. */
SG_MUST_CHECK enum sg_code control_snapshot_delete(struct control *c, const char *snapshot_id,
                                                   struct sg_error *e);

/* From now on no stop of this sandbox evicts a snapshot (deleteEvicted false, never expires): before one of its snapshots is
 * given to others.  One upstream call, none where it is so already (seen: its record, may be NULL). */
SG_MUST_CHECK enum sg_code control_guard(struct control *c, const char *name,
                                         const struct vercel_sandbox *seen, struct sg_error *e);

#endif
