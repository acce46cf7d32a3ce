/* Processes that have been quiet for a while are watched together: one `watch` call of the guest for up to
 * QUIET_MAX of a session, which tells of each as soon as it has output beyond its offsets or has ended.  Private to
 * relay/.  Loop thread.
 */
#ifndef SG_RELAY_QUIET_H
#define SG_RELAY_QUIET_H

#include "relay/internal.h"

#include <sys/queue.h>

enum { QUIET_MAX = 256 };

struct quiet_call;
struct quiet_entry { /* embedded in what is quiet; zero when new */
    TAILQ_ENTRY(quiet_entry) link;
    struct quiet_session *session; /* NULL: not in any */
    struct quiet_call *call;       /* NULL: waits for one */
    bool watched;                  /* on_watched was called */
    const char *id;                /* the owner's */
    uint64_t offset[2];
    bool attend;
    /* A call stands that will tell of it: it may give up its own stream. */
    void (*on_watched)(struct quiet_entry *q);
    /* It is not quiet any more, or nobody can tell: it has left and must look itself.  e: the session is over, or
     * cannot be asked. */
    void (*on_told)(struct quiet_entry *q, const struct sg_error *e);
};

/* id, offsets, attend and the callbacks are set.  False when out of memory.  No callback before it returns. */
bool quiet_enter(struct relay *r, const struct relay_session *s, struct quiet_entry *q);
/* Nothing when it is in none. */
void quiet_leave(struct quiet_entry *q);

#endif
