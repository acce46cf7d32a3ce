/* Where a new sandbox can start from besides images: templates and checkpoints are snapshots in the end.  Worker threads,
 * blocking.  control/templates.c and control/checkpoints.c have them; control/create.c calls them before it allocates.
 */
#ifndef SG_CONTROL_ORIGINS_H
#define SG_CONTROL_ORIGINS_H

#include "control/sandboxes.h"

enum { ORIGIN_ID_TEXT = 129, ORIGIN_REGION_TEXT = 17, ORIGIN_ARCH_TEXT = 17 };

struct control_origin {
    char snapshot_id[ORIGIN_ID_TEXT];    /* "": none is needed, `base` says what to start from */
    char region[ORIGIN_REGION_TEXT];     /* where the snapshot is; "": anywhere */
    char architecture[ORIGIN_ARCH_TEXT]; /* "": not known */
    json_t *base; /* image, runtime or source as in a create's body, when there is no snapshot; NULL; owned */
};
/* Of a zeroed one too. */
void control_origin_clear(struct control_origin *o);

/* The snapshot of a template, which is prepared first where it is not (TEMPLATE_FAILED), once for all who ask.  `gone`: the
 * snapshot that was answered before and that the upstream no longer has: it is prepared anew, once.  NULL: none.
 * TEMPLATE_NOT_FOUND. */
SG_MUST_CHECK enum sg_code control_template_use(struct control *c, const char *template_name,
                                                const char *gone, struct control_origin *out,
                                                struct sg_error *e);

/* The snapshot of a checkpoint; name NULL: of the default one.  `gone` as above: the checkpoint is healed (a dangling default
 * is taken back) and CHECKPOINT_GONE answered, or with `or_base` success without a snapshot and a base (which may be
 * NULL: the upstream's default image).  CHECKPOINT_NOT_FOUND. */
SG_MUST_CHECK enum sg_code control_checkpoint_use(struct control *c, const char *name, const char *gone,
                                                  bool or_base, struct control_origin *out,
                                                  struct sg_error *e);

#endif
