/* The lock of a sandbox's name, between all gateways of one store: held by whoever creates, forks or destroys under it while
 * the upstream is told, so that a delete that is sent again does not hit a namesake that was made meanwhile.
 *
 * Renewed by a job while it is held; lost NAME_LOCK_MS after its gateway died.  Without a usable store there is no lock and
 * everything goes on as if it were held: the store is never needed to create or to destroy.
 */
#ifndef SG_CONTROL_NAMES_H
#define SG_CONTROL_NAMES_H

#include "base/error.h"
#include "store/locks.h"

#include <stdbool.h>
#include <stdint.h>

enum { NAME_LOCK_MS = 12 * 1000, NAME_LOCK_RENEW_MS = 3 * 1000 };

struct control;

struct name_lock { /* on the caller's stack; zeroed or by control_name_lock */
    struct name_lock *next, *prev;
    struct control *c;
    char name[STORE_LOCK_NAME + 1], owner[STORE_OWNER_TEXT];
    bool held;
};

/* Waits up to patience_ms; SANDBOX_TRANSITION (not sent) when somebody else holds it all the time.  Worker threads. */
SG_MUST_CHECK enum sg_code control_name_lock(struct control *c, const char *name, int64_t patience_ms,
                                             struct name_lock *l, struct sg_error *e);
/* The same of anything else that is to be done by one at a time: `kind` says what. */
SG_MUST_CHECK enum sg_code control_lock(struct control *c, const char *kind, const char *name,
                                        int64_t patience_ms, struct name_lock *l, struct sg_error *e);
/* Of one that is not held too. */
void control_name_unlock(struct name_lock *l);

#endif
