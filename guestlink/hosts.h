/* Which sessions have the helper: a bounded memory, the least recently used forgotten first.  Private to
 * guestlink/.  Loop thread, except hosts_fresh.
 */
#ifndef SG_GUESTLINK_HOSTS_H
#define SG_GUESTLINK_HOSTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

enum { HOSTS_MAX = 4096, HOST_BUCKETS = 1024, FRESH_MAX = 256, SESSION_ID_MAX = 127, HOST_WAITERS_MAX = 256 };

struct guest_call;
TAILQ_HEAD(guest_call_list, guest_call);

enum host_state {
    HOST_UNKNOWN, /* nobody has asked: it may come from a snapshot that has the helper */
    HOST_ABSENT,
    HOST_BUSY, /* one call uploads it, the others wait */
    HOST_READY
};

struct host {
    TAILQ_ENTRY(host) age;
    LIST_ENTRY(host) bucket;
    char id[SESSION_ID_MAX + 1];
    enum host_state state;
    uint32_t generation;      /* counts how often it became ready */
    struct guest_call *owner; /* while busy */
    struct guest_call_list waiters;
    int nwaiters;
    int users;                 /* calls and carriers that point here: not to be forgotten */
    int socket_failures;       /* of the interactive socket, in a row */
    int64_t socket_not_before; /* monotonic ms: not tried again until then */
};

TAILQ_HEAD(host_list, host);
LIST_HEAD(host_bucket, host);

struct hosts {
    struct host_list by_age; /* oldest first */
    struct host_bucket buckets[HOST_BUCKETS];
    int count;
    pthread_mutex_t lock; /* guards the fresh ones */
    char fresh[FRESH_MAX][SESSION_ID_MAX + 1];
    int next_fresh;
};

void hosts_init(struct hosts *h);
/* No host may be in use. */
void hosts_free(struct hosts *h);
/* Finds or makes it, and counts a user.  NULL when the id is too long, memory ran out, or all are in use. */
struct host *hosts_get(struct hosts *h, const char *id);
void hosts_put(struct host *host);
/* Any thread. */
void hosts_fresh(struct hosts *h, const char *id);

#endif
