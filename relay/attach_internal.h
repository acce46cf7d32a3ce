/* What relay/attach.c (output, life) and relay/attach_input.c (what the client says) share.  Private to them. */
#ifndef SG_RELAY_ATTACH_INTERNAL_H
#define SG_RELAY_ATTACH_INTERNAL_H

#include "base/buf.h"
#include "relay/attach.h"
#include "relay/audience.h"
#include "relay/crowd.h"
#include "relay/feed.h"
#include "relay/frames.h"
#include "relay/input.h"
#include "relay/internal.h"

enum {
    CLOSE_DONE = 1000,
    CLOSE_DRAIN = 1001,
    CLOSE_PROTOCOL = 1002,
    CLOSE_FRAME_TYPE = 1003,
    CLOSE_BAD_JSON = 1007,
    CLOSE_TOO_LARGE = 1009,
    CLOSE_FAILED = 1011,
    CLOSE_TAKEN_OVER = 4001,
    CLOSE_SLOW = 4008,
    CLOSE_SESSION_OVER = 4010
};

enum { ATTACH_EARLY_MAX = 4, ATTACH_ACTS_MAX = 8 };

struct attach {
    struct relay *relay;
    struct sg_loop *loop;
    struct attach_io io;
    void *io_arg;
    enum attach_format format;
    enum attach_mode mode; /* as asked for */
    struct session_copy session;
    char *sandbox, *id;
    uint64_t asked[2], at[2]; /* at: the next byte to be told of each stream */
    bool pty_asked, fresh;
    struct reader *reader; /* NULL once there is nothing more to read */

    /* Small pieces of one stream wait here until the frame is full or the loop comes round. */
    struct sg_buf frame;
    int frame_stream;
    uint64_t frame_offset;
    struct sg_task flush; /* posted: it must outlive the loop's queue */
    bool posted;

    bool closing, gone, dead;
    bool paused;
    bool greeted;           /* hello was sent; it comes first: */
    struct sg_error *early; /* up to ATTACH_EARLY_MAX answers to what the client said before */
    size_t nearly;
    struct sg_wire_process p; /* of the hello */
    struct audience_seat audience;
    int64_t ending_ms; /* of the session, told before the hello was; 0: not */
    const char *ending;
    int64_t slow_ms, keepalive_ms;
    struct sg_timer *slow, *keepalive;
    struct sg_grave grave;

    /* ---- input ---- */
    struct writer *writer;  /* NULL: it watches */
    enum sg_code no_writer; /* why */
    unsigned cols, rows;    /* stated with the handshake */
    struct sg_buf held;     /* input that the writer had no room for; the client is not read meanwhile */
    uint64_t held_offset;
    bool holding;
    bool early_input,
        early_size; /* given to the writer before it was known whether the process has a use for it */
    struct {
        uint64_t accepted;
        size_t room;
        bool closed, unwanted, news;
    } input; /* what the writer told last; news: the client does not know yet */
    struct crowd_seat seat;
    unsigned told_writers, told_watchers;

    /* Acts without a carrier, for processes that take no input. */
    struct attach_act *acts;
    unsigned nacts;
    bool acking, ack_again;
    uint64_t acked[2];
};

/* attach.c */
bool attach_send(struct attach *a, json_t *frame); /* takes it over; false: the connection is over */
bool attach_flush(struct attach *a);               /* what waits in `frame` */
void attach_close(struct attach *a, int code, const char *reason);
/* An answer to something the client said: after the hello. */
void attach_answer(struct attach *a, const struct sg_error *e);
void attach_fail(struct attach *a, const struct sg_error *e); /* error frame, close */

/* attach_input.c */
/* Takes the writer's place if it is to be had.  False: the mode asked for is not (e). */
bool input_begin(struct attach *a, const struct attach_spec *s, struct sg_error *e);
/* The process is known: keeps the place or gives it up, and enters the crowd.  Before the hello is sent. */
bool input_greet(struct attach *a, struct sg_error *e);
void input_greeted(struct attach *a); /* after it */
void input_drained(struct attach *a);
/* No more from or for the client. */
void input_leave(struct attach *a);

#endif
