/* Values that are made once and are the same for all gateways that share the database.  Functions for store_fn. */
#ifndef SG_STORE_META_H
#define SG_STORE_META_H

#include "store/store.h"

enum { STORE_META_NAME = 64, STORE_META_SECRET_MAX = 64 };

/* The `len` random bytes of this name, made now if nobody did before.  Needs STORE_DURABLE: what was signed with
 * them must be known again after a crash.  The caller wipes them. */
SG_MUST_CHECK enum sg_code store_meta_secret(struct store_db *db, const char *name, void *out, size_t len,
                                             struct sg_error *e);

#endif
