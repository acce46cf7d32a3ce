/* Captures of a sandbox's files.  Worker threads, blocking. */
#ifndef SG_CONTROL_CAPTURE_H
#define SG_CONTROL_CAPTURE_H

#include "control/retention.h"
#include "vercel/snapshots.h"

enum { CAPTURE_NAMED_MS = 20 * 60 * 1000 };

struct control_capture {
    const char *sandbox;
    int64_t expire_ms; /* 0: never */
    /* Nobody is told of the snapshot before it has a name: unless that is stored (store_capture_drop) within CAPTURE_NAMED_MS, it
     * is released.  Needs the store. */
    bool intend;
    bool resume; /* a session that the capture ended is followed by another one */
    /* out */
    bool made; /* false: the sandbox was stopped, and the snapshot it would resume from is the capture */
    char session_id[CONTROL_SESSION_TEXT]; /* that was ended; "": none */
    bool resumed;
    struct sg_error resume_error; /* why it was not; the capture is there nevertheless */
    char *image, *runtime;        /* of the sandbox; owned */
    int64_t created_at_ms;        /* of the sandbox */
};
void control_capture_clear(struct control_capture *k);

/* Guards the sandbox first, and waits out a stop that is under way.  A running session ends with the capture (what has to be
 * done before a stop is done before).  A lost answer is reconciled by the session.  SANDBOX_NOT_FOUND, NOT_RESUMABLE (nothing
 * to capture), SNAPSHOT_GONE (what it would resume from is no more). */
SG_MUST_CHECK enum sg_code control_capture(struct control *c, struct control_capture *k,
                                           struct vercel_snapshot *out, struct sg_error *e);

/* Looks until no stop is under way, at most for a while: SANDBOX_TRANSITION. */
SG_MUST_CHECK enum sg_code control_settled(struct control *c, const char *name, struct vercel_sandbox *out,
                                           struct sg_error *e);

#endif
