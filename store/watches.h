/* Sessions in which processes were started, so that their output is saved before the session's time is over, also
 * by a gateway that was not there when it began.  Functions for store_fn; any thread.
 */
#ifndef SG_STORE_WATCHES_H
#define SG_STORE_WATCHES_H

#include "store/store.h"

struct store_watch { /* borrowed */
    const char *upstream, *session_id, *sandbox, *cwd;
    const char *arch;    /* may be NULL */
    int64_t deadline_ms; /* wall clock; 0: not known */
};
SG_MUST_CHECK enum sg_code store_watch_put(struct store_db *db, const struct store_watch *w, int64_t now_ms,
                                           struct sg_error *e);
SG_MUST_CHECK enum sg_code store_watch_drop(struct store_db *db, const char *session_id, struct sg_error *e);
SG_MUST_CHECK enum sg_code store_watch_has(struct store_db *db, const char *session_id, bool *has,
                                           struct sg_error *e);
/* Every one of this upstream. */
typedef void store_watch_fn(void *arg, const struct store_watch *w);
SG_MUST_CHECK enum sg_code store_watch_list(struct store_db *db, const char *upstream, store_watch_fn *fn,
                                            void *arg, struct sg_error *e);
/* Removes those whose time was over before `before_ms`, or that are older than `made_before_ms` where it is not
 * known. */
SG_MUST_CHECK enum sg_code store_watch_prune(struct store_db *db, int64_t before_ms, int64_t made_before_ms,
                                             struct sg_error *e);

#endif
