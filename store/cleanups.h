/* What is to be taken away and is not confirmed to be gone: sandboxes by their allocation tag, snapshots by their id.
 * One of the gateways claims a row, tries, and drops it or puts it off.  Functions for store_fn; times are the database's.
 */
#ifndef SG_STORE_CLEANUPS_H
#define SG_STORE_CLEANUPS_H

#include "store/store.h"

enum {
    CLEANUP_TARGET_TEXT = 160, /* a name or an id, and NUL */
    CLEANUP_ALLOC_TEXT = 65,
    CLEANUP_WHY_TEXT = 200,
    CLEANUP_OWNER_TEXT = 33,
};
enum store_cleanup_kind { CLEANUP_SANDBOX = 1, CLEANUP_SNAPSHOT = 2 };

struct store_cleanup {
    enum store_cleanup_kind kind;
    char target[CLEANUP_TARGET_TEXT]; /* "": a sandbox whose name is not known, found by its tag */
    char alloc[CLEANUP_ALLOC_TEXT];   /* of a sandbox */
    char why[CLEANUP_WHY_TEXT];
    int64_t made_at_ms, next_at_ms;
    int64_t lost_until_ms; /* not to be found before this: looked for again */
    int64_t tries;
};

/* First tried after after_ms; there already: tried again at the earlier of both times.  lost_ms: see lost_until_ms.  Reads
 * kind, target, alloc, why. */
SG_MUST_CHECK enum sg_code store_cleanup_put(struct store_db *db, const char *upstream,
                                             const struct store_cleanup *c, int64_t after_ms, int64_t lost_ms,
                                             struct sg_error *e);
/* Whether one can be claimed now. */
SG_MUST_CHECK enum sg_code store_cleanup_due(struct store_db *db, const char *upstream, bool *due,
                                             struct sg_error *e);
/* Claims the one that waits longest, for claim_ms.  *now_ms: the database's time. */
SG_MUST_CHECK enum sg_code store_cleanup_claim(struct store_db *db, const char *upstream, const char *owner,
                                               int64_t claim_ms, struct store_cleanup *out, bool *found,
                                               int64_t *now_ms, struct sg_error *e);
/* Claims this one, wherever it is not claimed by another. */
SG_MUST_CHECK enum sg_code store_cleanup_claim_this(struct store_db *db, const char *upstream,
                                                    const char *owner, int64_t claim_ms,
                                                    const struct store_cleanup *which, bool *claimed,
                                                    struct sg_error *e);
/* Holds a claim for claim_ms more.  *held false: it was lost, or the row is gone. */
SG_MUST_CHECK enum sg_code store_cleanup_renew(struct store_db *db, const char *upstream, const char *owner,
                                               int64_t claim_ms, const struct store_cleanup *which,
                                               bool *held, struct sg_error *e);
/* It is gone.  owner NULL: whoever claims it. */
SG_MUST_CHECK enum sg_code store_cleanup_drop(struct store_db *db, const char *upstream, const char *owner,
                                              const struct store_cleanup *which, struct sg_error *e);
/* It is wanted after all.  *goes: too late, somebody has begun to take it away (or another row is of this alloc). */
SG_MUST_CHECK enum sg_code store_cleanup_keep(struct store_db *db, const char *upstream,
                                              const struct store_cleanup *which, bool *goes,
                                              struct sg_error *e);
/* Gives the claim back; tried again after pause_ms. */
SG_MUST_CHECK enum sg_code store_cleanup_later(struct store_db *db, const char *upstream, const char *owner,
                                               const struct store_cleanup *which, int64_t pause_ms,
                                               struct sg_error *e);

/* Whether there is one for this tag, also one that is only intended. */
SG_MUST_CHECK enum sg_code store_cleanup_has(struct store_db *db, const char *upstream, const char *alloc,
                                             bool *has, struct sg_error *e);
/* Whether the sandbox with this tag is being taken away: it was tried, or its time has come. */
SG_MUST_CHECK enum sg_code store_cleanup_goes(struct store_db *db, const char *upstream, const char *alloc,
                                              bool *goes, struct sg_error *e);
/* In the order of their making, at most `limit`; each is valid during the call. */
typedef void store_cleanup_fn(void *arg, const struct store_cleanup *c);
SG_MUST_CHECK enum sg_code store_cleanup_list(struct store_db *db, const char *upstream, int64_t limit,
                                              store_cleanup_fn *fn, void *arg, struct sg_error *e);

#endif
