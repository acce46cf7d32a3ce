/* What the store knows of an allocation, whichever room keeps it.  Functions for store_fn. */
#ifndef SG_STORE_KNOWN_H
#define SG_STORE_KNOWN_H

#include "store/store.h"

/* Whether anything here stands for it: a sandbox's row, a lease, a clean-up, a preparation under way. */
SG_MUST_CHECK enum sg_code store_known(struct store_db *db, const char *upstream, const char *alloc,
                                       bool *known, struct sg_error *e);

#endif
