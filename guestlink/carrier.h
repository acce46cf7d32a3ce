/* A carrier: a byte stream into a session, on which the guest's `input` brings frames of base/core/carrier.h to
 * one process, and the lines that it says back.
 *
 * Two transports, the choice of which only `interactive` in the first line tells: the upstream's interactive
 * socket (one connection, a keystroke is one message), and the command endpoint with its stdin endpoint (batched:
 * one request at a time, as much as fits in each), which is always there.  The first is tried where asked for; when
 * it cannot be had before the guest spoke, the second is taken without a word.
 *
 * A carrier is never mended: when anything on it fails, it ends, and its owner opens the next one (a new epoch) and
 * sends again what was not accepted.  Loop thread.
 */
#ifndef SG_GUESTLINK_CARRIER_H
#define SG_GUESTLINK_CARRIER_H

#include "base/core/carrier.h"
#include "guestlink/guestlink.h"

enum { CARRIER_QUEUE_MAX = 1024 * 1024 }; /* bytes taken and not yet sent */

struct carrier_spec {
    const char *session_id;
    const char *arch; /* NULL: amd64 */
    const char *id;   /* the process */
    bool interactive; /* try the interactive socket */
    bool sudo;        /* a process of root's */
};

struct carrier_events {
    /* C first, then A lines. */
    void (*on_line)(void *arg, const struct sg_wire_line *line, bool interactive);
    /* carrier_send took less than it was given, and now there is room again. */
    void (*on_room)(void *arg);
    /* The end, once, unless cancelled.  line: the guest's last word (K: closed as asked; M: its time is over; E:
     * FENCED, FINISHED, NO_INPUT, NO_RECORD, …); NULL: e says why there is none. */
    void (*on_end)(void *arg, const struct sg_wire_line *line, const struct sg_error *e);
};

struct carrier;
/* No callback before it returns; NULL with *e when it could not begin. */
struct carrier *carrier_open(struct guestlink *g, const struct carrier_spec *s,
                             const struct carrier_events *ev, void *arg, struct sg_error *e);
/* Queues bytes; returns how many were taken, all or the first part.  They are sent after the C line at the
 * earliest. */
size_t carrier_send(struct carrier *c, const void *data, size_t len);
size_t carrier_queued(const struct carrier *c);
/* After what is queued the carrier ends (not the program's input).  An interactive socket has no end of file: what was
 * not acknowledged before may not have arrived. */
void carrier_finish(struct carrier *c);
/* Drops it without a further callback.  The guest notices by itself. */
void carrier_cancel(struct carrier *c);

#endif
