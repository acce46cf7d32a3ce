/* Who is attached to anything in a session through this gateway: counted, so that the session is kept while somebody is,
 * and told when it is about to end all the same.  Loop thread.
 */
#ifndef SG_RELAY_AUDIENCE_H
#define SG_RELAY_AUDIENCE_H

#include "relay/relay.h"

#include <jansson.h>

struct audience;

/* A place, embedded in what is attached. */
struct audience_seat {
    struct audience *audience; /* NULL: in none */
    struct audience_seat *prev, *next;
    /* The session ends at deadline_ms (wall clock); reason is a static word.  May come inside audience_enter; leaving in it
     * is fine. */
    void (*ending)(struct audience_seat *seat, int64_t deadline_ms, const char *reason);
};

/* `ending` is set.  Out of memory it is in none, and told nothing. */
void audience_enter(struct relay *r, const char *sandbox, const char *session_id, struct audience_seat *seat);
/* Of one in none too. */
void audience_leave(struct audience_seat *seat);
/* Tells all who are there, and who comes before the deadline. */
void audience_warn(struct relay *r, const char *session_id, int64_t deadline_ms, const char *reason);

/* Told of each seat that is taken and left. */
struct audience_watch {
    void (*entered)(void *arg, const char *sandbox, const char *session_id);
    void (*left)(void *arg, const char *session_id);
    void *arg;
};
void relay_set_audience_watch(struct relay *r, const struct audience_watch *w);
const struct audience_watch *relay_audience_watch(const struct relay *r);

/* {"type":"session_ending","deadline":…,"reason":…}; NULL when out of memory.  Pure. */
json_t *frame_session_ending(int64_t deadline_ms, const char *reason);

#endif
