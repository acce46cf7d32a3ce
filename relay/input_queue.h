/* What waits to be sent to a process: bytes of its input at their offsets, its end, sizes, signals, receipts; and
 * where all this stands with the guest.  Makes the frames of base/core/carrier.h, in the order in which they should
 * go: nothing waits behind input that has no room.  Pure; private to relay/.
 *
 * Offsets.  Until the guest has said how much it has (`known`), what was written lies at the offset that its writer
 * named (`based`), or at no offset yet.
 */
#ifndef SG_RELAY_INPUT_QUEUE_H
#define SG_RELAY_INPUT_QUEUE_H

#include "base/buf.h"
#include "base/core/carrier.h"
#include "relay/input.h"

enum { INPUT_SIGNALS_MAX = 16 };

enum queue_told { QUEUE_UNSENT, QUEUE_SENT, QUEUE_SURE }; /* SURE: it needs no carrier of its own any more */

struct input_queue {
    bool known, based;
    uint64_t base;     /* offset of the first byte held: what the guest has accepted, once known */
    uint64_t sent;     /* offset after the last byte given to this carrier */
    uint64_t sent_max; /* to any carrier: what lies below may be accepted without our knowing */
    uint64_t limit;    /* this carrier's credit: no byte at or above this offset */
    uint64_t most;     /* the most room that the guest has told of */
    bool begun;        /* a batch is being sent */
    bool batch;        /* this carrier costs a call for every piece: few and large ones */
    struct sg_buf buf;
    size_t gone, max; /* bytes at buf's beginning that are accepted; bytes held at most */

    bool close_wanted, close_sent; /* the end lies after what is held */
    bool closed, unwanted;

    unsigned cols, rows; /* 0: nothing to tell */
    bool redraw;         /* first another size, then this one */
    bool redraw_begun;   /* that was sent: the true one waits for input_queue_settle */
    enum queue_told size_told;
    uint64_t received[2];
    bool receipts, receipts_held; /* there are some to tell; but only after input_queue_settle */
    enum queue_told receipts_told;
    uint64_t
        told_at; /* the input sent before the newest size or receipt: when more is accepted, they were read */
    struct {
        uint8_t number;
        bool whole;
    } signals[INPUT_SIGNALS_MAX];
    unsigned nsignals;
};

void input_queue_init(struct input_queue *q, size_t max);
void input_queue_free(struct input_queue *q);

/* ---- the writer's side: as writer_… in relay/input.h ---- */
SG_MUST_CHECK enum sg_code input_queue_write(struct input_queue *q, uint64_t offset, const void *data,
                                             size_t len, size_t *taken, struct sg_error *e);
SG_MUST_CHECK enum sg_code input_queue_close(struct input_queue *q, uint64_t offset, struct sg_error *e);
SG_MUST_CHECK enum sg_code input_queue_resize(struct input_queue *q, unsigned cols, unsigned rows,
                                              bool redraw, struct sg_error *e);
SG_MUST_CHECK enum sg_code input_queue_signal(struct input_queue *q, int number, bool whole,
                                              struct sg_error *e);
SG_MUST_CHECK enum sg_code input_queue_ack(struct input_queue *q, const uint64_t received[2],
                                           struct sg_error *e);
size_t input_queue_room(const struct input_queue *q);
/* Bytes written and not accepted. */
static inline size_t input_queue_held(const struct input_queue *q)
{
    return q->buf.len - q->gone;
}
/* Forgets what was never given to a carrier: another writer's. */
void input_queue_drop_unsent(struct input_queue *q);

/* ---- the carrier's side ---- */
/* A carrier is open (C line).  STDIN_OFFSET when all that was written began beyond `accepted`: it was dropped, and
 * the queue goes on.  UPSTREAM_BAD_RESPONSE when the guest has less than it had; WRITER_REPLACED when it has more
 * than was ever sent. */
SG_MUST_CHECK enum sg_code input_queue_opened(struct input_queue *q, uint64_t accepted, uint64_t room,
                                              struct sg_error *e);
/* An A line; the same. */
SG_MUST_CHECK enum sg_code input_queue_accepted(struct input_queue *q, uint64_t accepted, uint64_t room,
                                                bool closed, bool unwanted, struct sg_error *e);
/* Appends the next frame to out; false when there is none that may be sent now. */
bool input_queue_next(struct input_queue *q, struct sg_buf *out);
/* The moment between two sizes, or between receipts, is over. */
void input_queue_settle(struct input_queue *q);
/* What was sent so far arrived, as far as can be told: the carrier has lived on. */
void input_queue_sure(struct input_queue *q);
/* The carrier is gone. */
void input_queue_lost(struct input_queue *q);
/* Nothing is held, and others may have written meanwhile: the guest is asked before any offset counts. */
void input_queue_forget(struct input_queue *q);
/* Is there something for which a carrier is needed, or which a carrier has not brought yet? */
bool input_queue_wants(const struct input_queue *q);

#endif
