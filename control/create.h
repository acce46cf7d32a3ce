/* Creating a sandbox as a transaction: checked whole, one POST, and then either it is there and the caller is told so, or nothing
 * of it is left, or what is left is remembered until it is gone.  Worker threads, blocking.
 *
 * Each allocation has a tag of its own (control/tags.h).  When the answer is lost, the name is looked at: what carries the tag is
 * what was asked for, what does not is somebody else's and is left alone.  A request with a nonce has always the same name and
 * tag: run again, by whichever gateway, it finds what an earlier run allocated.
 */
#ifndef SG_CONTROL_CREATE_H
#define SG_CONTROL_CREATE_H

#include "control/sandboxes.h"

struct control_create {
    const json_t *body;
    const char *owner; /* id of who asks; NULL: nobody */
    const char *nonce; /* as in struct exchange; NULL: without a key */
    bool again;        /* likewise */
    bool (*gone)(
        void *arg); /* whether nobody waits for the answer any more; NULL: somebody always does.  Of a request
                                  without a nonce what was allocated is taken away then */
    void *gone_arg;
    /* out */
    json_t *record; /* the gateway's JSON for it, a new reference; NULL when it failed */
    bool created;   /* else it was there */
    bool blank;     /* created from what brings no helper of the gateway along */
    char name[129]; /* of the sandbox that is there, also when it failed after that; "": none */
};
SG_MUST_CHECK enum sg_code control_create(struct control *c, struct control_create *k, struct sg_error *e);

#endif
