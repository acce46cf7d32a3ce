/* Records (relay/events.h) as a streamed answer: its head when there is something to say, or in time; something at least every
 * keepalive_ms; a client that takes nothing for slow_reader_ms is cut off; the session's end is told ahead.  Embedded in
 * what has the records.  Loop thread.
 */
#ifndef SG_ROUTES_EVENT_STREAM_H
#define SG_ROUTES_EVENT_STREAM_H

#include "relay/audience.h"
#include "relay/events.h"
#include "routes/exchange.h"

struct event_stream_owner {
    /* Nothing is written any more: it was ended or cut, or its client left.  Frees the whole. */
    void (*gone)(void *arg);
    /* The client takes records again (after event_stream_full). */
    void (*drain)(void *arg);
    /* The gateway drains: the last record has to be written. */
    void (*shutdown)(void *arg, const struct sg_error *e);
    /* event_stream_patience is over and no head was sent. */
    void (*late)(void *arg);
    /* The session ends at deadline_ms: to be written.  False: gone. */
    bool (*ending)(void *arg, int64_t deadline_ms, const char *reason);
};

struct event_stream {
    enum events_format format;
    struct sg_buf record;  /* the next one is made here */
    struct ex_stream *out; /* once the head is sent; to be looked at alone */

    /* its own */
    const struct event_stream_owner *owner;
    void *arg;
    const struct relay_limits *limits;
    struct sg_timer *tick; /* before the head: until it has to be; then: looks for silence */
    struct sg_timer *slow; /* runs while the client takes nothing */
    size_t keep;           /* of the record's memory, where the client is quiet */
    int64_t wrote_ms;
    bool paused, greeted;
    struct audience_seat audience;
    int64_t ending_ms; /* of the session; 0: not told */
    const char *ending;
};

/* record_max: of one record.  False: no memory; event_stream_free in any case. */
SG_MUST_CHECK bool event_stream_init(struct event_stream *s, struct sg_loop *loop,
                                     const struct relay_limits *limits, size_t record_max,
                                     const struct event_stream_owner *owner, void *arg);
/* Of a zeroed one too.  The answer is not touched: it is over, or there is none. */
void event_stream_free(struct event_stream *s);

/* owner->late after ms without a head; 0: never. */
void event_stream_patience(struct event_stream *s, int64_t ms);
/* Whoever is told of the session's end: again for another session. */
void event_stream_attend(struct event_stream *s, struct relay *relay, const char *sandbox,
                         const char *session_id);

/* What returns false has called owner->gone. */

/* Sends the head; the exchange is no more.  Once; further calls do nothing. */
SG_MUST_CHECK bool event_stream_begin(struct event_stream *s, struct exchange *ex, const char *session_id);
/* Sends s->record if `made`, which is what the maker of the record returned. */
bool event_stream_write(struct event_stream *s, bool made);
/* The first record, after which the session's end may be told, was written. */
bool event_stream_greeted(struct event_stream *s);
/* The last record was written. */
void event_stream_end(struct event_stream *s);
/* The client has enough for now: owner->drain follows, or it is cut off. */
SG_MUST_CHECK bool event_stream_full(struct event_stream *s);

#endif
