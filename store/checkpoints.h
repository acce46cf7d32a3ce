/* Named captures of sandboxes.  A row and the snapshot's name (store/snapshot_names.h) come and go together.  Functions for
 * store_fn.
 */
#ifndef SG_STORE_CHECKPOINTS_H
#define SG_STORE_CHECKPOINTS_H

#include "store/snapshot_names.h"

enum { CHECKPOINT_NAME_TEXT = 64, CHECKPOINT_SANDBOX_TEXT = 129, CHECKPOINT_IMAGE_TEXT = 512 };

struct store_checkpoint {
    char name[CHECKPOINT_NAME_TEXT], snapshot_id[SNAPSHOT_ID_TEXT];
    char sandbox[CHECKPOINT_SANDBOX_TEXT]; /* what it was taken of */
    int64_t sandbox_created_ms;
    char owner[64], region[17], architecture[17];
    char image[CHECKPOINT_IMAGE_TEXT], runtime[32]; /* of the sandbox; "": none */
    int64_t size_bytes, created_at_ms;              /* size -1: not known */
    bool made;                                      /* the snapshot was taken for it, and goes with it */
    bool gone;                                      /* its snapshot was found to be no more */
    bool is_default;                                /* at most one of an upstream */
};

/* Takes the place of one of the name; *replaced: its snapshot and whether that was made for it ("": there was none).  made_default:
 * and becomes the default one.  SNAPSHOT_GONE: the snapshot is just being deleted. */
SG_MUST_CHECK enum sg_code store_checkpoint_put(struct store_db *db, const char *upstream,
                                                const struct store_checkpoint *c,
                                                struct store_checkpoint *replaced, struct sg_error *e);
/* name NULL: the default one. */
SG_MUST_CHECK enum sg_code store_checkpoint_get(struct store_db *db, const char *upstream, const char *name,
                                                struct store_checkpoint *out, bool *found,
                                                struct sg_error *e);
SG_MUST_CHECK enum sg_code store_checkpoint_drop(struct store_db *db, const char *upstream, const char *name,
                                                 struct store_checkpoint *dropped, bool *found,
                                                 struct sg_error *e);
/* name NULL: none is the default one any more.  *found false: there is none of the name, nothing was changed. */
SG_MUST_CHECK enum sg_code store_checkpoint_default(struct store_db *db, const char *upstream,
                                                    const char *name, bool *found, struct sg_error *e);
/* Its snapshot is no more: it is not the default one any longer.  Only while it still has that snapshot. */
SG_MUST_CHECK enum sg_code store_checkpoint_gone(struct store_db *db, const char *upstream, const char *name,
                                                 const char *snapshot_id, struct sg_error *e);
/* In the order of names, behind `after` ("": from the first). */
typedef void store_checkpoint_fn(void *arg, const struct store_checkpoint *c);
SG_MUST_CHECK enum sg_code store_checkpoint_list(struct store_db *db, const char *upstream, const char *after,
                                                 int64_t limit, store_checkpoint_fn *fn, void *arg,
                                                 struct sg_error *e);

#endif
