/* Leases of sandboxes: destroyed when released, or when not renewed for their TTL by the database's clock, by whichever
 * gateway runs then.  A lease belongs to one allocation (the tag sg.alloc): another sandbox of the name is left alone.
 *
 * Worker threads and jobs; blocking.
 */
#ifndef SG_CONTROL_LEASES_H
#define SG_CONTROL_LEASES_H

#include "control/cleanups.h"
#include "store/leases.h"

enum {
    LEASE_TTL_MIN_MS = 1000,
    LEASE_CREATE_MS = 10 * 60 * 1000, /* a creation with a lease may take so long without a word */
};
#define LEASE_TTL_MAX_MS INT64_C(604800000) /* a week */

/* The object {ttl_ms}; `base` is its pointer ("/lease"; "": the body itself).  Pure. */
SG_MUST_CHECK enum sg_code lease_check(const json_t *lease, const char *base, int64_t *ttl_ms,
                                       struct sg_error *e);
/* What a session's time may be when the caller of create gave none: no shorter than five minutes, so that it is not extended
 * all the time, and no longer than the lease: it ends a sandbox whose gateways are gone.  Keep-alive extends it as the lease
 * is renewed.  Pure. */
int64_t lease_timeout_ms(int64_t ttl_ms);

/* ---- inside of create: begin … POST … seen … answer ---- */

/* Stored, DURABLE, before the allocation: should this gateway die, another one (or the next) takes the allocation away after
 * LEASE_CREATE_MS.  name NULL: the upstream will choose one.  The same alloc again is harmless. */
SG_MUST_CHECK enum sg_code lease_begin(struct control *c, const char *name, const char *alloc, int64_t ttl_ms,
                                       struct sg_error *e);
/* It is there: the lease's time begins.  Again right before the answer when that took long.  LEASE_NOT_FOUND: it ran out
 * meanwhile, the sandbox is being taken away. */
SG_MUST_CHECK enum sg_code lease_seen(struct control *c, const char *name, const char *alloc, int64_t ttl_ms,
                                      struct sg_error *e);
/* It does not run out within for_ms from now: before init, whose steps nobody can renew it during. */
SG_MUST_CHECK enum sg_code lease_hold(struct control *c, const char *alloc, int64_t for_ms,
                                      struct sg_error *e);
/* Nothing was allocated, or it was destroyed already. */
SG_MUST_CHECK enum sg_code lease_drop(struct control *c, const char *alloc, struct sg_error *e);

/* ---- of a sandbox that is there ---- */

struct lease_state {
    int64_t ttl_ms;
    int64_t left_ms;       /* by the database's clock; 0: it ran out and the grace is what keeps it */
    int64_t expires_at_ms; /* the same as a wall time */
};
/* Makes one or goes on with it.  Asks the upstream at times whether it is still this sandbox (one call, another where it has
 * no allocation tag yet); extends its session where it would end before the lease.  SANDBOX_NOT_FOUND; LEASE_NOT_FOUND: it
 * ran out, or was released, and the sandbox is being destroyed. */
SG_MUST_CHECK enum sg_code lease_renew(struct control *c, const char *name, int64_t ttl_ms,
                                       struct lease_state *out, struct sg_error *e);
/* LEASE_NOT_FOUND. */
SG_MUST_CHECK enum sg_code lease_get(struct control *c, const char *name, struct lease_state *out,
                                     struct sg_error *e);
/* Destroys the sandbox.  *gone false: it is released and remembered, the sandbox goes a little later.  LEASE_NOT_FOUND. */
SG_MUST_CHECK enum sg_code lease_release(struct control *c, const char *name, bool *gone, struct sg_error *e);

/* ---- the job ---- */

/* Loop thread; false when out of memory.  No lease runs out for grace_ms after this, and after the store was away: clients
 * could not renew.  Freed with leases_free after control_stop_jobs. */
bool leases_start(struct control *c, int64_t grace_ms);
void leases_free(struct control *c);

#endif
