/* What the routes that act on one process have in common: the id, and calls that answer nothing but that they were
 * done, tried again as root where the process is root's.  Loop thread.
 */
#ifndef SG_ROUTES_PROCESS_ACT_H
#define SG_ROUTES_PROCESS_ACT_H

#include "routes/act.h"

/* The id in the path, or PROCESS_NOT_FOUND: no process can have another form. */
SG_MUST_CHECK enum sg_code process_id(const struct exchange *ex, struct sg_error *e);
/* `resume` of the body, checked and taken out: all POSTs take it.  Here it changes nothing, for a process ends with its session:
 * where none runs the answer is STALE_SESSION or SANDBOX_NOT_RUNNING, and starting the sandbox would help nobody. */
SG_MUST_CHECK enum sg_code process_take_resume(struct exchange *ex, struct sg_error *e);
/* e ended a call.  True: it was answered, or is tried again in another session; do not touch a any more. */
bool process_ended_or_retried(struct act *a, const struct sg_error *e);
/* A process that was started with sudo takes acts from root only. */
bool process_needs_root(const struct sg_error *e);

struct process_act {
    struct act act;
    bool sudo;
    int step;
    /* Makes the call of this step. */
    enum sg_code (*send)(struct process_act *p, const struct process_target *t, process_act_fn *done,
                         struct sg_error *e);
    int steps;  /* how many there are */
    int status; /* of the empty answer when all are done */

    int signal;
    bool only_program;
    int64_t grace_ms;
    unsigned cols, rows;
    uint64_t received[2];
    int64_t lease_ms, unattended_ms; /* -1: left as it is */
};

/* The body and the query were checked: `what` with send, steps, status and what send needs.  Answers. */
void process_act_begin(struct exchange *ex, const struct process_act *what);

#endif
