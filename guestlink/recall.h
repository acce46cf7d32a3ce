/* Hears the rest of what a command says when its stream was cut: from the log that the upstream keeps of it.
 * Private to guestlink/.  Loop thread.
 *
 * The log is read from its beginning, and what was heard already is left out.  Where that, too, ends without what
 * is wanted, the command's end is awaited and the log read once more: then it is complete.  Three calls at most,
 * one as a rule, and none of them acts.
 */
#ifndef SG_GUESTLINK_RECALL_H
#define SG_GUESTLINK_RECALL_H

#include "vercel/commands.h"

struct recall_events {
    /* Text of the command's stdout that was not heard yet.  False pauses until recall_resume. */
    bool (*on_text)(void *arg, const char *data, size_t len);
    /* The log ended: is what came enough? */
    bool (*enough)(void *arg);
    /* The end, exactly once unless recall_stop came before.  finished: the command has ended, everything it said
     * was given, and exit_code is upstream's. */
    void (*on_end)(void *arg, bool finished, int exit_code);
};

struct recall {
    struct vercel_client *client;
    const char *session_id, *command_id; /* the owner's */
    const struct recall_events *ev;
    void *arg;
    uint64_t heard; /* bytes of stdout given so far, those of the cut stream included */
    uint64_t at;    /* place in the log */
    bool finished;
    int exit_code;
    struct vercel_command_call *log;
    struct vercel_call *end;
};

/* The caller sets client, session_id, command_id, ev, arg and heard.  No callback before it returns; false when it
 * could not begin. */
bool recall_start(struct recall *r);
void recall_resume(struct recall *r);
/* May be called at any time, also when it never began. */
void recall_stop(struct recall *r);

#endif
