/* An upstream that answers as it is told, for control/ on a loop of its own. */
#ifndef SG_TEST_SCRIPTED_H
#define SG_TEST_SCRIPTED_H

#include "control/sandboxes.h"

/* Answers in order, each at the loop's next turn. */
struct answer {
    enum sg_code code; /* SG_OK: a sandbox of this session and status */
    const char *session;
    enum vercel_status status;
    bool never;   /* no answer at all */
    bool unknown; /* nobody knows whether what failed arrived */
    const char *snapshot;
};

struct upstream {
    struct sg_loop *loop;
    struct answer gets[16], stops[4];
    int ngets, nstops, resumes; /* asked so far */
    int cancelled;
    bool arrived; /* ends turn() */
};
extern struct upstream up;

/* Turns the loop until the answers that are wanted have arrived. */
void turn(void);
/* A control without a store; everything of `up` is new. */
struct control *begin(void);
void end(struct control *c);

#endif
