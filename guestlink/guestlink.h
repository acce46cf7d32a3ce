/* Calls to the guest helper inside a session, over the upstream's command endpoint: uploads the helper when
 * it is missing, runs it, and turns what it prints into checked lines (base/core/wire.h).
 *
 * One struct guestlink per upstream and loop; everything runs on the loop's thread.
 *
 * Budget: a call to a session that has the helper is one upstream call.  Where the helper is missing — the
 * upstream says so, or the command finished without a hello — it is uploaded once and the call is made again
 * with the same arguments; that is safe because every acting call carries an exactly-once id.  Where the stream of
 * a command is cut before the hello or the answer, the rest is read from the upstream's log of that command, so
 * that an act is not repeated only because its answer was lost.
 */
#ifndef SG_GUESTLINK_H
#define SG_GUESTLINK_H

#include "base/core/wire.h"
#include "vercel/commands.h"

struct guestlink;
/* NULL when out of memory.  The client must outlive it. */
struct guestlink *guestlink_new(struct sg_loop *loop, struct vercel_client *client);
/* Calls in flight end without a callback: their owners must have gone before. */
/* Every call in flight ends with DRAINING first. */
void guestlink_free(struct guestlink *g);
struct vercel_client *guestlink_client(struct guestlink *g);
struct sg_loop *guestlink_loop(struct guestlink *g);

/* Says that a session has just been created from an image, so it cannot have the helper: the first call uploads
 * it at once instead of asking in vain.  Only a hint.  Any thread. */
void guestlink_fresh(struct guestlink *g, const char *session_id);

/* Directory of the helper and its records inside a sandbox; uploads go below it. */
#define GUEST_ROOT "/var/tmp/.sandgate"

struct guest_args {
    const char *session_id;
    const char *arch;        /* "amd64", "arm64"; NULL: amd64 */
    const char *const *args; /* the helper's own: "run", "--session", …; NULL-terminated; copied */
    const char *cwd;         /* NULL: the session's */
    json_t *env;             /* for the program; borrowed, a reference is taken; NULL: none */
    bool sudo;
    bool attach_stdin; /* its input stays open: on_command says where it is */
};

struct guest_events {
    /* Each line but M, K, X, E.  False pauses (the line was not taken and comes again after guest_resume). */
    bool (*on_line)(void *arg, const struct sg_wire_line *line);
    /* The end, exactly once unless cancelled.
     * line set:  the last line (M, K, X or E) was read: the guest's own answer.
     * line NULL: e says why there is none: refused (outcome not_sent/not_started), or the stream was cut
     *            (`hello` tells whether an H or C line had been seen: then the process exists). */
    void (*on_end)(void *arg, const struct sg_wire_line *line, bool hello, const struct sg_error *e);
    /* The helper runs, or runs again because it had been missing, as this command of the upstream; NULL: not
     * needed. */
    void (*on_command)(void *arg, const char *command_id);
};

struct guest_call;
/* No callback before it returns; NULL with *e when it could not begin. */
struct guest_call *guest_call_start(struct guestlink *g, const struct guest_args *a,
                                    const struct guest_events *ev, void *arg, struct sg_error *e);
void guest_resume(struct guest_call *call);
void guest_cancel(struct guest_call *call);
/* The same, and a little later the helper is ended upstream, where otherwise it would run on for minutes. */
void guest_abandon(struct guest_call *call);

/* Maps an E line to the error an API caller should see. */
enum sg_code guest_error(const struct sg_wire_line *line, struct sg_error *e);

#endif
