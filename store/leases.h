/* Leases of sandboxes, by allocation: who does not renew one in time loses the sandbox.  Functions for store_fn; all times
 * are the database's.
 */
#ifndef SG_STORE_LEASES_H
#define SG_STORE_LEASES_H

#include "store/cleanups.h"

enum { LEASE_NAME_TEXT = CLEANUP_TARGET_TEXT };

struct store_lease {
    char sandbox[LEASE_NAME_TEXT]; /* "": not known yet */
    char alloc[CLEANUP_ALLOC_TEXT];
    int64_t ttl_ms, expires_at_ms;
    int64_t seen_at_ms; /* when the upstream last said that the sandbox is this allocation */
    bool pending;       /* its creation is under way */
};

/* Before the allocation: it lasts for_ms. */
SG_MUST_CHECK enum sg_code store_lease_begin(struct store_db *db, const char *upstream, const char *sandbox,
                                             const char *alloc, int64_t ttl_ms, int64_t for_ms,
                                             struct sg_error *e);
/* The upstream said that `sandbox` is this allocation: makes the lease, or goes on with it.  *made false: the allocation is
 * being taken away.  *out: the lease afterwards. */
SG_MUST_CHECK enum sg_code store_lease_seen(struct store_db *db, const char *upstream, const char *sandbox,
                                            const char *alloc, int64_t ttl_ms, struct store_lease *out,
                                            bool *made, struct sg_error *e);
/* From now on ttl_ms.  *found false: there is none. */
SG_MUST_CHECK enum sg_code store_lease_renew(struct store_db *db, const char *upstream, const char *alloc,
                                             int64_t ttl_ms, bool *found, struct sg_error *e);
/* Lasts at least for_ms from now. */
SG_MUST_CHECK enum sg_code store_lease_hold(struct store_db *db, const char *upstream, const char *alloc,
                                            int64_t for_ms, bool *found, struct sg_error *e);
/* The one that was seen last of this name; not pending ones. */
SG_MUST_CHECK enum sg_code store_lease_find(struct store_db *db, const char *upstream, const char *sandbox,
                                            struct store_lease *out, bool *found, int64_t *now_ms,
                                            struct sg_error *e);
SG_MUST_CHECK enum sg_code store_lease_has(struct store_db *db, const char *upstream, const char *alloc,
                                           bool *has, struct sg_error *e);
/* Without taking the sandbox away. */
SG_MUST_CHECK enum sg_code store_lease_drop(struct store_db *db, const char *upstream, const char *alloc,
                                            struct sg_error *e);
/* Makes it something to be cleaned up (*out).  *found false: there is none, nothing was done. */
SG_MUST_CHECK enum sg_code store_lease_release(struct store_db *db, const char *upstream, const char *alloc,
                                               const char *why, struct store_cleanup *out, bool *found,
                                               struct sg_error *e);

/* Whether one ran out. */
SG_MUST_CHECK enum sg_code store_lease_due(struct store_db *db, const char *upstream, bool *due,
                                           struct sg_error *e);
/* Makes those that ran out something to be cleaned up, at most `limit`; those of pending allocations are looked for for
 * lost_ms.  *n: how many.  Told of each. */
typedef void store_lease_fn(void *arg, const struct store_lease *l);
SG_MUST_CHECK enum sg_code store_lease_expire(struct store_db *db, const char *upstream, int64_t limit,
                                              int64_t lost_ms, int64_t *n, struct sg_error *e);
/* In the order of their tags after `after` ("": all), at most `limit`; each is valid during the call. */
SG_MUST_CHECK enum sg_code store_lease_list(struct store_db *db, const char *upstream, const char *after,
                                            int64_t limit, store_lease_fn *fn, void *arg, struct sg_error *e);

#endif
