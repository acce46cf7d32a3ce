/* Sessions that are in use do not end under their users: extended ahead of their deadline, by a step beyond the last
 * activity and never beyond a maximum, by one gateway at a time.  Who is attached is told in time when a session will end
 * all the same.
 *
 * In use is a session with a stream attached to it; with a lease that is renewed; and, where the sandbox was given
 * `keep_alive`, one in which anything was done lately.
 */
#ifndef SG_CONTROL_KEEPALIVE_H
#define SG_CONTROL_KEEPALIVE_H

#include "control/sandboxes.h"

enum keepalive_mode {
    KEEPALIVE_UNSAID, /* as the gateway's options say: while a stream is attached */
    KEEPALIVE_NEVER,  /* not even then */
    KEEPALIVE_IN_USE, /* also by calls */
};
/* The field `keep_alive` of a sandbox. */
struct keepalive_wish {
    enum keepalive_mode mode;
    int64_t max_ms; /* of a session, from its start; 0: the gateway's */
};
enum { KEEPALIVE_MAX_MIN_MS = 1000 };
#define KEEPALIVE_MAX_MAX_MS INT64_C(86400000)

/* false, true, null or absent (NULL: unsaid) or {max_ms}; `base` is its pointer ("/keep_alive").  Pure. */
SG_MUST_CHECK enum sg_code keepalive_check(const json_t *value, const char *base, struct keepalive_wish *out,
                                           struct sg_error *e);
/* The same as JSON, a new reference; NULL when out of memory.  Pure. */
json_t *keepalive_json(const struct keepalive_wish *w);

struct keepalive_config {
    bool attached;   /* attached streams alone keep a session, unless its sandbox says otherwise */
    int64_t lead_ms; /* so long before the deadline; a quarter of what is left where that is less */
    int64_t step_ms; /* so long from the last activity on it lasts then */
    int64_t max_ms;  /* of a session, from its start, unless its sandbox says otherwise */
    /* Loop thread.  The session ends at deadline_ms (wall clock), because of `reason`: "timeout" (nothing keeps it),
     * "max_ms", "plan_limit", "not_extended" (it could not be; it is still tried). */
    void (*ending)(void *arg, const char *session_id, int64_t deadline_ms, const char *reason);
    /* Loop thread.  It ends later than was known. */
    void (*extended)(void *arg, const char *name, const struct control_session *s);
    void *arg;
};
/* Loop thread; false when out of memory.  Freed with keepalive_free after control_stop_jobs. */
bool keepalive_start(struct control *c, const struct keepalive_config *config);
void keepalive_free(struct control *c);

/* Any thread; never block, and do nothing when it was not started.
 * A stream is attached to the session, or has ended: as often as it was attached. */
void keepalive_attend(struct control *c, const char *name, const char *session_id);
void keepalive_leave(struct control *c, const char *session_id);
/* Something is done in it.  deadline_ms: as far as is known; 0: it is not. */
void keepalive_touch(struct control *c, const char *name, const char *session_id, int64_t deadline_ms);
/* Its session, should it run, lasts at least until wall_ms: a lease was renewed. */
void keepalive_until(struct control *c, const char *name, int64_t wall_ms);

#endif
