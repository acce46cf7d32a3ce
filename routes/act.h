/* A request that acts inside a sandbox's running session: finds the session, makes the call, and once — when
 * the session came from the cache, was over, and nothing can have begun — looks the session up again.
 * Embedded first in a handler's own struct.  Loop thread.
 */
#ifndef SG_ROUTES_ACT_H
#define SG_ROUTES_ACT_H

#include "routes/exchange.h"
#include "routes/gateway.h"

struct act;
struct ended_wish {
    void (*fail)(struct act *a, const struct sg_error *e); /* the handler's own; NULL: nothing is wished */
    int kind;
    int stream; /* of output */
    uint64_t offset[2], limit;
    int format; /* of events */
};

struct act {
    struct exchange *ex; /* NULL once the client left: answered then, nothing of it may be used */
    struct gateway *gw;
    const char *sandbox; /* the name, params[0]; lives with ex */
    char *session_id, *cwd, *arch;
    bool cached, retried;
    bool resume; /* a sandbox that does not run is resumed first; set before act_begin */
    /* The session is known (act_session): make the call. */
    void (*go)(struct act *a);
    /* Answers with e and frees the whole. */
    void (*fail)(struct act *a, const struct sg_error *e);
    struct ended_wish ended; /* what to do when the process is not in the session (routes/ended.h) */
};

/* Allocates `size` bytes beginning with a struct act; answers by itself when memory is out (NULL then). */
void *act_new(struct exchange *ex, size_t size, void (*go)(struct act *a),
              void (*fail)(struct act *a, const struct sg_error *e));
/* Looks the session up; go or fail follows, possibly before this returns.  A ?session= that names another
 * session than the current one is STALE_SESSION.  A resume that takes long is SANDBOX_TRANSITION: it goes on by
 * itself, and the caller may ask again. */
void act_begin(struct act *a);
struct relay_session act_session(const struct act *a);
/* e ended a call.  True: go will be called again, or fail; do not touch a any more.  False: e stands. */
bool act_retry(struct act *a, const struct sg_error *e);
/* The client's leaving is noticed by act itself, no longer by the handler's own watch. */
void act_watch(struct act *a);
/* Stops watching the client; call before answering, which is only needed when it returns true. */
bool act_settled(struct act *a);
/* Frees what act holds and the whole struct. */
void act_free(struct act *a);

/* act_settled, ex_fail, act_free: a `fail` for handlers that hold nothing else. */
void act_fail(struct act *a, const struct sg_error *e);
/* act_settled, answer (NULL: out of memory), act_free. */
void act_answer(struct act *a, int status, json_t *json);

#endif
