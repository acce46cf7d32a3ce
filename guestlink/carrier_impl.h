/* Private to guestlink/carrier*.c and its test.  Loop thread.
 *
 * carrier.c         a carrier's life, its queue, what the guest says on it
 * carrier_stdin.c   over the command endpoint and the stdin endpoint
 * carrier_socket.c  over the interactive socket
 */
#ifndef SG_GUESTLINK_CARRIER_IMPL_H
#define SG_GUESTLINK_CARRIER_IMPL_H

#include "guestlink/carrier.h"
#include "guestlink/internal.h"

#include "base/buf.h"

#include <sys/queue.h>

enum carrier_post { POST_NONE, POST_WRITE, POST_ASK, POST_CLOSE };

struct carrier_stdin {
    struct guest_call *call; /* the guest's `input` */
    char command_id[129];
    struct vercel_call *post; /* one at a time */
    enum carrier_post doing;
    struct sg_buf flight; /* bytes on their way, from `base` on */
    uint64_t base;        /* the sandbox's count at flight's first byte */
    bool counts;          /* the sandbox has said its count */
    bool unsure;          /* whether what is on its way has arrived */
    bool closed;
    bool deaf;            /* it takes nothing any more: the guest's last word is awaited */
    int stalls, refusals; /* in a row */
    size_t held;          /* how much was queued when it was last held for more */
    int holds;            /* in a row */
    struct sg_error why;  /* what made us ask for the count */
};

struct carrier_socket;

struct carrier {
    LIST_ENTRY(carrier) link;
    struct guestlink *g;
    struct host *host;
    const struct guest_blob *blob;
    char id[SG_WIRE_ID_MAX + 1];
    bool sudo;
    struct carrier_events ev;
    void *arg;

    bool dead;
    bool open; /* the C line was read */
    bool finishing;
    bool crowded;              /* carrier_send took less than it was given */
    struct sg_buf queue;       /* taken, not yet on its way */
    struct sg_timer *kick;     /* pushes at the end of the turn, or after a pause */
    struct sg_timer *patience; /* ends it with `late` */
    struct sg_error late;

    struct carrier_stdin in;
    struct carrier_socket *sock;  /* NULL: by stdin */
    struct carrier_socket *spent; /* one that is over, to be freed with the carrier */
    struct sg_grave grave;
};

/* ---- carrier.c ---- */
/* A line of the guest's; the carrier may be dead afterwards. */
void carrier_line(struct carrier *c, const struct sg_wire_line *line);
/* The one way to an end that is told. */
void carrier_end(struct carrier *c, const struct sg_wire_line *line, const struct sg_error *e);
/* Bytes have left: tells the owner when it waits for that. */
void carrier_left(struct carrier *c);
/* Ends with this error unless it is called again within that time. */
void carrier_wait(struct carrier *c, uint64_t ms, enum sg_code code, const char *why);

/* ---- carrier_stdin.c ---- */
SG_MUST_CHECK enum sg_code carrier_stdin_begin(struct carrier *c, struct sg_error *e);
/* Sends what is queued, as far as may be now. */
void carrier_stdin_push(struct carrier *c);
void carrier_stdin_drop(struct carrier *c);

/* ---- carrier_socket.c ---- */
/* Whether it is worth trying in this session now. */
bool carrier_socket_may(const struct carrier *c);
SG_MUST_CHECK enum sg_code carrier_socket_begin(struct carrier *c, struct sg_error *e);
void carrier_socket_push(struct carrier *c);
void carrier_socket_drop(struct carrier *c);
size_t carrier_socket_queued(const struct carrier *c);
void carrier_socket_free(struct carrier_socket *s); /* NULL is fine */
/* Nothing came in time: true when the other transport has been taken instead. */
bool carrier_socket_late(struct carrier *c);

#endif
