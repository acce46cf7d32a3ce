/* What the gateway itself has to delete of snapshots, since the upstream was told not to: sandboxes whose superseded own
 * snapshots are swept, and snapshots that go as soon as nobody needs them.  Functions for store_fn.
 */
#ifndef SG_STORE_RETENTION_H
#define SG_STORE_RETENTION_H

#include "store/snapshot_names.h"

enum { RETENTION_SANDBOX_TEXT = 129, RETENTION_SWEPT_TEXT = 192 };

/* A sandbox that evicted its own snapshots until the gateway told it not to, or would have.  Which one of the name: by its
 * time of creation. */
struct store_retention {
    char sandbox[RETENTION_SANDBOX_TEXT];
    int64_t created_at_ms;
    char swept[RETENTION_SWEPT_TEXT]; /* how it was when it was last swept, as the sweep tells it */
};
/* The same again changes nothing; another one of the name takes its place. */
SG_MUST_CHECK enum sg_code store_retention_put(struct store_db *db, const char *upstream, const char *sandbox,
                                               int64_t created_at_ms, struct sg_error *e);
SG_MUST_CHECK enum sg_code store_retention_swept(struct store_db *db, const char *upstream,
                                                 const struct store_retention *r, struct sg_error *e);
/* It is looked at anew. */
SG_MUST_CHECK enum sg_code store_retention_again(struct store_db *db, const char *upstream,
                                                 const char *sandbox, struct sg_error *e);
/* created_at_ms -1: whichever has the name. */
SG_MUST_CHECK enum sg_code store_retention_drop(struct store_db *db, const char *upstream,
                                                const char *sandbox, int64_t created_at_ms,
                                                struct sg_error *e);
/* In the order of names, behind `after` ("": from the first). */
typedef void store_retention_fn(void *arg, const struct store_retention *r);
SG_MUST_CHECK enum sg_code store_retention_list(struct store_db *db, const char *upstream, const char *after,
                                                int64_t limit, store_retention_fn *fn, void *arg,
                                                struct sg_error *e);

/* A snapshot that goes when nobody needs it. */
struct store_release {
    char snapshot_id[SNAPSHOT_ID_TEXT];
    /* Not "": only if this sandbox is no more; it was about to be deleted when the row was written. */
    char sandbox[RETENTION_SANDBOX_TEXT];
    int64_t created_at_ms;
    int64_t tries;
};
/* Due at once.  The same again is the same, and no longer depends on a sandbox when either did not. */
SG_MUST_CHECK enum sg_code store_release_put(struct store_db *db, const char *upstream,
                                             const struct store_release *r, struct sg_error *e);
SG_MUST_CHECK enum sg_code store_release_later(struct store_db *db, const char *upstream,
                                               const char *snapshot_id, int64_t pause_ms, struct sg_error *e);
SG_MUST_CHECK enum sg_code store_release_drop(struct store_db *db, const char *upstream,
                                              const char *snapshot_id, struct sg_error *e);
/* Those whose time has come, the longest waiting first. */
typedef void store_release_fn(void *arg, const struct store_release *r);
SG_MUST_CHECK enum sg_code store_release_due(struct store_db *db, const char *upstream, int64_t limit,
                                             store_release_fn *fn, void *arg, struct sg_error *e);

/* A capture that nobody may be told of: it is about to be taken, and whoever wanted it says so (drop) once he has it.  Else what
 * it left is released after ttl_ms. */
struct store_capture {
    char session_id[SNAPSHOT_ID_TEXT]; /* of which it is taken: one session, one capture */
    char sandbox[RETENTION_SANDBOX_TEXT];
};
SG_MUST_CHECK enum sg_code store_capture_put(struct store_db *db, const char *upstream,
                                             const struct store_capture *k, int64_t ttl_ms,
                                             struct sg_error *e);
/* *had: there was one. */
SG_MUST_CHECK enum sg_code store_capture_drop(struct store_db *db, const char *upstream,
                                              const char *session_id, bool *had, struct sg_error *e);
typedef void store_capture_fn(void *arg, const struct store_capture *k);
SG_MUST_CHECK enum sg_code store_capture_due(struct store_db *db, const char *upstream, int64_t limit,
                                             store_capture_fn *fn, void *arg, struct sg_error *e);

#endif
