/* Changing a sandbox, and making its session last longer.  Worker threads, blocking. */
#ifndef SG_CONTROL_PATCH_H
#define SG_CONTROL_PATCH_H

#include "control/sandboxes.h"

struct control_patch {
    const char *name;
    const json_t *body;    /* what the caller asks for */
    control_fits_fn *fits; /* whether it is in the state that the caller expects; NULL: any is */
    void *fits_arg;
    json_t *
        record; /* out: as it is afterwards, owned by the caller; `next_session` lists what counts from then on */
};
/* Checked whole before anything is sent.  One PATCH of what differs, none where nothing does; what only the gateway knows is
 * kept after the upstream has taken its part.  Under the sandbox's name lock (control/names.h): changes of one sandbox come
 * one after another, whichever gateway they are asked of.  Where the answer was lost a look tells whether it is done.
 * SANDBOX_NOT_FOUND, PRECONDITION_FAILED, SNAPSHOT_IN_USE, SNAPSHOT_GONE. */
SG_MUST_CHECK enum sg_code control_patch(struct control *c, struct control_patch *p, struct sg_error *e);

enum { CONTROL_EXTEND_MIN_MS = 1000, CONTROL_EXTEND_MAX_MS = 86400000 };
struct control_extend {
    const char *name;
    int64_t by_ms;    /* so much longer than now; 0: */
    int64_t until_ms; /* at least until then, wall clock */
    control_fits_fn *fits;
    void *fits_arg;
    json_t *record; /* out: as it is afterwards, owned by the caller */
};
/* SANDBOX_NOT_RUNNING, SESSION_LIMIT (nothing was extended).  Never sent twice; where the answer was lost a look tells what
 * became of it. */
SG_MUST_CHECK enum sg_code control_extend(struct control *c, struct control_extend *x, struct sg_error *e);

#endif
