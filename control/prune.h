/* Comparing the upstream with the store (B7): sandboxes that carry the gateway's tag and that the store does not know, and
 * rows of the store whose sandbox is gone.  Told, and on request taken away.  Worker threads; blocking.
 */
#ifndef SG_CONTROL_PRUNE_H
#define SG_CONTROL_PRUNE_H

#include "control/sandboxes.h"

enum {
    PRUNE_LOOK_MAX = 20000,        /* sandboxes and rows that are looked at */
    PRUNE_LIST_MAX = 500,          /* things that one answer tells, and that one call takes away */
    PRUNE_AGE_MS = 10 * 60 * 1000, /* what is younger may be under way, and is left alone, unless asked */
};
struct prune_ask {
    bool apply;
    int64_t older_than_ms;
};
/* *report, a new reference: {dry_run, complete, looked_at, sandboxes[{name, status, created_at}], rows[{kind, sandbox}],
 * counts{sandboxes, rows, removed, failed}}.  Each is looked at once more before it is taken away; what cannot be taken
 * away is remembered as a clean-up.  An error only where nothing could be compared. */
SG_MUST_CHECK enum sg_code control_prune(struct control *c, const struct prune_ask *ask, json_t **report,
                                         struct sg_error *e);

#endif
