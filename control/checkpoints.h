/* Checkpoints: named captures of sandboxes to start from.  Worker threads, blocking; they need the store.
 * control_checkpoint_use is in control/origins.h.
 */
#ifndef SG_CONTROL_CHECKPOINTS_H
#define SG_CONTROL_CHECKPOINTS_H

#include "control/capture.h"
#include "store/checkpoints.h"

struct control_checkpoint {
    const char *name, *owner;       /* owner NULL: nobody */
    struct control_capture capture; /* sandbox and resume: in */
    bool replace, make_default;
    /* out */
    struct store_checkpoint row;
};
/* 1 to 63 letters, digits, '_' or '-', beginning with a letter or digit, not "default".  Pure. */
SG_MUST_CHECK enum sg_code checkpoint_name(const char *name, const char *pointer, struct sg_error *e);
/* CHECKPOINT_EXISTS before anything was captured, unless it is to be replaced: then the old one stays until the new one is
 * stored. */
SG_MUST_CHECK enum sg_code checkpoint_make(struct control *c, struct control_checkpoint *k,
                                           struct sg_error *e);
/* Asks the upstream whether its snapshot is still there, and heals a checkpoint whose snapshot is gone (row.gone).
 * CHECKPOINT_NOT_FOUND. */
SG_MUST_CHECK enum sg_code checkpoint_get(struct control *c, const char *name, struct store_checkpoint *out,
                                          struct sg_error *e);
/* A snapshot that was made for it goes when nobody needs it.  Success also when there is none. */
SG_MUST_CHECK enum sg_code checkpoint_delete(struct control *c, const char *name, struct sg_error *e);
/* name NULL: none is.  CHECKPOINT_NOT_FOUND, CHECKPOINT_GONE. */
SG_MUST_CHECK enum sg_code checkpoint_default(struct control *c, const char *name, struct sg_error *e);
SG_MUST_CHECK enum sg_code checkpoint_list(struct control *c, const char *after, int64_t limit,
                                           store_checkpoint_fn *fn, void *arg, struct sg_error *e);
/* The gateway's JSON.  NULL: out of memory. */
json_t *checkpoint_record(const struct store_checkpoint *row);

#endif
