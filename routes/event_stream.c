#include "routes/event_stream.h"

#include "base/clock.h"
#include "relay/relay.h"

#include <stddef.h>

/* Out of memory, or a client that reads nothing: it sees that the answer is not whole. */
static void cut(struct event_stream *s)
{
    ex_stream_abort(s->out);
    s->out = NULL;
    s->owner->gone(s->arg);
}

static void on_slow(void *arg)
{
    cut(arg);
}

/* Twice in the time within which something has to be said. */
static void on_tick(void *arg)
{
    struct event_stream *s = arg;
    if (!s->out) {
        s->owner->late(s->arg);
        return;
    }
    int64_t half = s->limits->keepalive_ms / 2;
    sg_timer_start(s->tick, (uint64_t)half);
    if (!s->paused && sg_mono_ms() - s->wrote_ms >= half / 2)
        (void)event_stream_write(s, events_keepalive(&s->record, s->format));
}

static void on_drain(void *arg)
{
    struct event_stream *s = arg;
    s->paused = false;
    sg_timer_stop(s->slow);
    s->owner->drain(s->arg);
}

static void on_gone(void *arg)
{
    struct event_stream *s = arg;
    s->out = NULL;
    s->owner->gone(s->arg);
}

static void on_shutdown(void *arg)
{
    struct event_stream *s = arg;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_DRAINING, SG_STARTED, "the gateway is shutting down");
    s->owner->shutdown(s->arg, &e);
}

/* ---- a stream's life ---- */

bool event_stream_init(struct event_stream *s, struct sg_loop *loop, const struct relay_limits *limits,
                       size_t record_max, const struct event_stream_owner *owner, void *arg)
{
    s->owner = owner;
    s->arg = arg;
    s->limits = limits;
    s->keep = record_max / 8;
    sg_buf_init(&s->record, record_max);
    s->tick = sg_timer_new(loop, on_tick, s);
    s->slow = sg_timer_new(loop, on_slow, s);
    return s->tick && s->slow;
}

void event_stream_free(struct event_stream *s)
{
    audience_leave(&s->audience);
    sg_timer_free(s->tick);
    sg_timer_free(s->slow);
    sg_buf_free(&s->record);
}

void event_stream_patience(struct event_stream *s, int64_t ms)
{
    if (ms)
        sg_timer_start(s->tick, (uint64_t)ms);
    else
        sg_timer_stop(s->tick);
}

/* ---- the end of the session ---- */

/* The first record comes before it. */
static void on_ending(struct audience_seat *seat, int64_t deadline_ms, const char *reason)
{
    struct event_stream *s = (struct event_stream *)((char *)seat - offsetof(struct event_stream, audience));
    s->ending_ms = deadline_ms;
    s->ending = reason;
    if (s->greeted)
        (void)s->owner->ending(s->arg, deadline_ms, reason);
}

void event_stream_attend(struct event_stream *s, struct relay *relay, const char *sandbox,
                         const char *session_id)
{
    s->audience.ending = on_ending;
    audience_leave(&s->audience); /* of another session, before */
    audience_enter(relay, sandbox, session_id, &s->audience);
}

bool event_stream_greeted(struct event_stream *s)
{
    s->greeted = true;
    return !s->ending_ms || s->owner->ending(s->arg, s->ending_ms, s->ending);
}

/* ---- writing ---- */

bool event_stream_begin(struct event_stream *s, struct exchange *ex, const char *session_id)
{
    if (s->out)
        return true;
    ex_set_header(ex, "X-Session-Id", session_id);
    ex_set_header(ex, "Cache-Control", "no-store, no-transform");
    s->out = ex_stream_begin(ex, 200, events_type(s->format), -1, on_drain, on_gone, s);
    if (!s->out) {
        s->owner->gone(s->arg);
        return false;
    }
    ex_stream_on_shutdown(s->out, on_shutdown);
    s->wrote_ms = sg_mono_ms();
    sg_timer_start(s->tick, (uint64_t)s->limits->keepalive_ms / 2);
    return true;
}

bool event_stream_write(struct event_stream *s, bool made)
{
    bool ok = made && ex_stream_write(s->out, s->record.data, s->record.len);
    s->wrote_ms = sg_mono_ms();
    if (s->record.cap > s->keep)
        sg_buf_free(&s->record); /* a quiet client holds no buffer */
    else
        sg_buf_reset(&s->record);
    if (!ok)
        cut(s);
    return ok;
}

void event_stream_end(struct event_stream *s)
{
    ex_stream_end(s->out);
    s->out = NULL;
    s->owner->gone(s->arg);
}

bool event_stream_full(struct event_stream *s)
{
    if (ex_stream_queued(s->out) < EX_STREAM_HIGH)
        return false;
    s->paused = true;
    sg_timer_start(s->slow, (uint64_t)s->limits->slow_reader_ms);
    return true;
}
