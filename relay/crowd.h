/* Who is attached to a process through this gateway, and telling all of them when that changes.  Loop thread. */
#ifndef SG_RELAY_CROWD_H
#define SG_RELAY_CROWD_H

#include "relay/relay.h"

struct crowd;

/* A place in a crowd, embedded in what is attached. */
struct crowd_seat {
    struct crowd *crowd; /* NULL: in none */
    struct crowd_seat *prev, *next;
    bool writes;
    /* The counts changed.  Not called inside crowd_enter, crowd_leave or crowd_write; several changes may be told
     * as one, in a large crowd a while later. */
    void (*changed)(struct crowd_seat *seat, unsigned writers, unsigned watchers);
};

/* `changed` and `writes` are set.  False when out of memory. */
bool crowd_enter(struct relay *r, const char *session_id, const char *id, struct crowd_seat *seat);
void crowd_leave(struct crowd_seat *seat);
void crowd_write(struct crowd_seat *seat, bool writes);
/* The counts now; zero when in no crowd. */
void crowd_count(const struct crowd_seat *seat, unsigned *writers, unsigned *watchers);

#endif
