/* Named locks between gateways that share the database: a row with a deadline by the database's clock.  Whoever holds one
 * renews it; who died loses it at its deadline.  Functions for store_fn.
 */
#ifndef SG_STORE_LOCKS_H
#define SG_STORE_LOCKS_H

#include "store/store.h"

enum { STORE_LOCK_NAME = 255, STORE_OWNER_TEXT = 33 };

/* The database's wall clock, milliseconds: the one clock that all gateways share.  The same during one transaction. */
SG_MUST_CHECK enum sg_code store_now(struct store_db *db, int64_t *ms, struct sg_error *e);

/* A random name for a holder. */
bool store_owner(char out[STORE_OWNER_TEXT]);

/* Takes it where it is free, held by `owner` already, or past its deadline.  *taken: whether. */
SG_MUST_CHECK enum sg_code store_lock_take(struct store_db *db, const char *name, const char *owner,
                                           int64_t ttl_ms, bool *taken, struct sg_error *e);
/* *held false: it was lost meanwhile. */
SG_MUST_CHECK enum sg_code store_lock_renew(struct store_db *db, const char *name, const char *owner,
                                            int64_t ttl_ms, bool *held, struct sg_error *e);
SG_MUST_CHECK enum sg_code store_lock_drop(struct store_db *db, const char *name, const char *owner,
                                           struct sg_error *e);

/* Removes those that nobody renewed for a day: whoever held them died, and nobody wants them any more. */
SG_MUST_CHECK enum sg_code store_locks_prune(struct store_db *db, struct sg_error *e);

#endif
