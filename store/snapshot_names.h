/* Who needs a snapshot: checkpoints and templates by name, whoever was given its id to start from, sandboxes that were just
 * forked from it.  What is named is not deleted; what is being deleted (doomed) is not given to anybody any more, by no
 * gateway of the same store.  Functions for store_fn.
 */
#ifndef SG_STORE_SNAPSHOT_NAMES_H
#define SG_STORE_SNAPSHOT_NAMES_H

#include "store/store.h"

enum { SNAPSHOT_ID_TEXT = 129, SNAPSHOT_NAME_TEXT = 256 };

enum snapshot_name_kind {
    SNAPSHOT_BY_CHECKPOINT = 1,
    SNAPSHOT_BY_TEMPLATE = 2,
    SNAPSHOT_BY_ID = 4,      /* somebody started from its id, and may do so again */
    SNAPSHOT_BY_SANDBOX = 8, /* `name` was started from it, and has perhaps nothing else yet */
    SNAPSHOT_BY_ANY = 15
};
struct snapshot_name {
    enum snapshot_name_kind kind;
    char name[SNAPSHOT_NAME_TEXT]; /* of the checkpoint, template or sandbox; "" for SNAPSHOT_BY_ID */
    int64_t made_at_ms;
};
const char *snapshot_name_kind(enum snapshot_name_kind kind);

/* SNAPSHOT_GONE: it is just being deleted.  Again is the same, with the time of now. */
SG_MUST_CHECK enum sg_code store_snapshot_name_put(struct store_db *db, const char *upstream,
                                                   const char *snapshot_id, enum snapshot_name_kind kind,
                                                   const char *name, struct sg_error *e);
SG_MUST_CHECK enum sg_code store_snapshot_name_drop(struct store_db *db, const char *upstream,
                                                    const char *snapshot_id, enum snapshot_name_kind kind,
                                                    const char *name, struct sg_error *e);
/* Of all snapshots: a sandbox that is no more names none. */
SG_MUST_CHECK enum sg_code store_snapshot_name_drop_all(struct store_db *db, const char *upstream,
                                                        enum snapshot_name_kind kind, const char *name,
                                                        struct sg_error *e);
/* The first name of one of these kinds (bits), those of sandboxes last.  *found false: there is none. */
SG_MUST_CHECK enum sg_code store_snapshot_name_any(struct store_db *db, const char *upstream,
                                                   const char *snapshot_id, unsigned kinds,
                                                   struct snapshot_name *out, bool *found,
                                                   struct sg_error *e);
typedef void store_snapshot_name_fn(void *arg, const struct snapshot_name *n);
SG_MUST_CHECK enum sg_code store_snapshot_name_list(struct store_db *db, const char *upstream,
                                                    const char *snapshot_id, store_snapshot_name_fn *fn,
                                                    void *arg, struct sg_error *e);

/* From now on, for ttl_ms, nobody is given it.  *in_use: it has a name of these kinds (*by), and nothing was changed. */
SG_MUST_CHECK enum sg_code store_snapshot_doom(struct store_db *db, const char *upstream,
                                               const char *snapshot_id, unsigned kinds, int64_t ttl_ms,
                                               bool *in_use, struct snapshot_name *by, struct sg_error *e);
SG_MUST_CHECK enum sg_code store_snapshot_spare(struct store_db *db, const char *upstream,
                                                const char *snapshot_id, struct sg_error *e);
/* It is gone: so are its names (but those of checkpoints and templates, which tell that it is gone). */
SG_MUST_CHECK enum sg_code store_snapshot_forget(struct store_db *db, const char *upstream,
                                                 const char *snapshot_id, struct sg_error *e);

#endif
