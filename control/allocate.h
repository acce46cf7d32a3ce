/* One allocation at the upstream, from the intent to its end: made, found again by its tag when the answer was lost, kept, or taken
 * back.  Shared by whatever allocates: create and fork.  Worker threads, blocking; under the name's lock (control/names.h), but for
 * names that nobody else can have.
 */
#ifndef SG_CONTROL_ALLOCATE_H
#define SG_CONTROL_ALLOCATE_H

#include "control/sandboxes.h"
#include "control/tags.h"

struct allocation {
    const char *name; /* which it is asked for under; borrowed */
    char alloc[CONTROL_ALLOC_TEXT];
    bool keyed;    /* asked again where its outcome is not known: found then, and no orphan meanwhile */
    bool leased;   /* it has a lease (control/leases.h), which goes with it */
    bool noted;    /* it has a row (control/settings.h), which goes with it */
    bool intended; /* the store takes it away unless allocation_keep succeeds */
    bool again;    /* an earlier run may have made it, or remembered it to be taken away */
    bool sent;     /* the upstream may have it, or may get it still */
    bool made;     /* it is there: s */
    struct vercel_sandbox s; /* vercel_sandbox_clear */
};

/* Remembers, DURABLE, that something is about to be allocated, so that nothing is left behind when the gateway is killed;
 * nothing is remembered of a keyed one.  A store that is away is an error only where `wanted`. */
SG_MUST_CHECK enum sg_code allocation_intend(struct control *c, struct allocation *a, bool wanted,
                                             struct sg_error *e);

/* Looks whether it is there already: success with a->made, or without.  SANDBOX_EXISTS: another one has the name.  Else
 * nothing is known. */
SG_MUST_CHECK enum sg_code allocation_find(struct control *c, struct allocation *a, struct sg_error *e);

/* Sends what makes it, once; call(arg) is vercel_create or vercel_fork with the tags in the body.  When the answer is lost, or
 * says that the upstream failed, its name is looked at: found, it is a success.  SANDBOX_EXISTS: another one has the name.
 * Otherwise the first error, with an outcome that says what is known by then. */
typedef enum sg_code allocation_call(struct control *c, void *arg, struct vercel_sandbox *out,
                                     struct sg_error *e);
SG_MUST_CHECK enum sg_code allocation_send(struct control *c, struct allocation *a, allocation_call *call,
                                           void *arg, struct sg_error *e);
/* The same with vercel_create of this body. */
SG_MUST_CHECK enum sg_code allocation_make(struct control *c, struct allocation *a, json_t *body,
                                           struct sg_error *e);

/* It is wanted: nothing takes it away from now on.  Must succeed before anybody is told of it: it fails with SANDBOX_TRANSITION
 * where somebody has begun to take it away. */
SG_MUST_CHECK enum sg_code allocation_keep(struct control *c, struct allocation *a, struct sg_error *e);

/* Takes it back: destroyed where it is there or may be, or remembered until it is; nothing of a keyed one whose outcome is
 * not known.  *e is what went wrong: its code stays, its outcome and detail say what became of the allocation. */
void allocation_undo(struct control *c, struct allocation *a, struct sg_error *e);

/* Whether the refusal says that the session's time is too long for the plan. */
bool allocation_timeout_refused(const struct sg_error *e, enum sg_code rc);

#endif
