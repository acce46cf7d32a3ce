/* Forks: another sandbox that begins with a sandbox's last snapshot.  A transaction like create's (control/create.h).  Worker
 * threads, blocking.
 */
#ifndef SG_CONTROL_FORK_H
#define SG_CONTROL_FORK_H

#include "control/capture.h"

struct control_fork {
    const char *source;
    const json_t *body;
    const char *owner, *nonce; /* as in struct control_create */
    bool again;
    bool (*gone)(void *arg);
    void *gone_arg;
    /* out */
    json_t *record; /* the gateway's JSON for the fork with what it began from; a new reference */
    char name[129]; /* of the fork that is there, or of what is in the way */
};
/* The source is guarded first; with `capture` in the body it is captured first, which ends its session.  The fork never evicts:
 * the gateway sweeps it.  SANDBOX_NOT_FOUND: the source.  SNAPSHOT_GONE names what it would have begun from. */
SG_MUST_CHECK enum sg_code control_fork(struct control *c, struct control_fork *k, struct sg_error *e);

#endif
