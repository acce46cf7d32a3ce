/* What relay/input.c (writers) and relay/input_carrier.c (carriers) share.  Private to them.  Loop thread. */
#ifndef SG_RELAY_INPUT_INTERNAL_H
#define SG_RELAY_INPUT_INTERNAL_H

#include "guestlink/carrier.h"
#include "relay/input.h"
#include "relay/input_queue.h"
#include "relay/internal.h"
#include "relay/named.h"

/* The input of a process, with or without a writer: stays until what it holds was accepted or has failed. */
struct input {
    struct relay_obj obj;
    struct named named;
    struct session_copy session;
    char id[SG_WIRE_ID_MAX + 1];
    struct writer *writer; /* NULL: nobody writes */
    struct input_queue q;
    struct sg_buf out; /* the rest of a frame that the carrier did not take whole */

    bool interactive, sudo;
    struct carrier *carrier;
    bool up, finishing;                   /* it said C; it was told to end */
    bool on_socket;                       /* it is the interactive one */
    bool claim;                           /* a carrier is wanted although there is nothing to send */
    int64_t opened_ms, heard_ms, sent_ms; /* carrier opened, last line, last frame */
    bool waiting;                         /* for the time to open the next carrier */
    struct sg_timer *timer;               /* without a carrier: until the next one; else idle or hung */
    struct sg_timer *moment;              /* input_queue_settle */

    int64_t fail_since; /* 0: the last carrier came up */
    struct sg_error last;
    int64_t progress_ms;
    int64_t backoff_ms;
    int stuck;        /* answers that contradicted themselves, in a row */
    unsigned unclear; /* carriers that ended without a word and may still come up late, fencing the next */
    bool buried;
};

struct writer {
    struct relay_obj obj;
    struct input *in; /* NULL once it ended */
    struct writer_events ev;
    void *arg;
    uint64_t others; /* what others wrote before it ends here: until then the position is not its own */
    struct sg_timer *later; /* what must not be told inside the caller's own call */
    bool ended, told_end, released;
    struct sg_error end;
};

/* Hands over what may be sent, opening a carrier if one is needed.  No callbacks. */
void input_pump(struct input *in);
/* Frees an input of which nothing is left to do. */
void input_settle(struct input *in);
void input_stop(struct input *in); /* drops its carrier and timers */

/* input_carrier.c → input.c */
void input_tell(struct input *in);                              /* the position or the room changed */
void input_refused(struct input *in, const struct sg_error *e); /* on_refused */
void input_die(struct input *in, const struct sg_error *e);     /* tells the writer; in is buried */
void input_timer(void *in);
void input_moment(void *in);

#endif
