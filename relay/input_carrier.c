#include "relay/input_internal.h"

#include "base/clock.h"

#include <string.h>

enum {
    MOMENT_MS = 50, /* between two sizes of a redraw, and between receipts */
    SURE_MS = 5000, /* what was sent so long before the guest ended a carrier in order was read */
    OUT_MAX = SG_CARRIER_DATA_MAX + SG_CARRIER_HEAD_MAX,
};

static void forget_carrier(struct input *in)
{
    in->carrier = NULL;
    in->up = in->finishing = in->on_socket = in->waiting = false;
    sg_buf_free(&in->out);
    sg_timer_stop(in->timer);
    sg_timer_stop(in->moment);
    input_queue_lost(&in->q);
}

void input_stop(struct input *in)
{
    if (in->carrier)
        carrier_cancel(in->carrier);
    forget_carrier(in);
}

/* ---- failures ---- */

static bool wanted(const struct input *in)
{
    return in->claim || input_queue_wants(&in->q);
}

static void open_later(struct input *in, const struct sg_error *e)
{
    in->waiting = true;
    sg_timer_start(in->timer, relay_backoff(in->obj.relay, &in->backoff_ms, e));
}

/* The carrier, if any, is forgotten.  Tries again when there is a reason to. */
static void failed(struct input *in, const struct sg_error *e)
{
    int64_t now = sg_mono_ms(), give_up = relay_limits(in->obj.relay)->give_up_ms;
    if (!in->fail_since)
        in->fail_since = now;
    in->last = *e;
    bool hopeless = now - in->fail_since >= give_up;
    bool orphan =
        !in->writer && now - in->progress_ms >= give_up; /* what nobody waits for is not sent for ever */
    if (!relay_may_retry(e) || (wanted(in) && (hopeless || orphan)))
        input_die(in, e);
    else if (wanted(in))
        open_later(in, e);
    else
        input_settle(in);
}

/* What the guest says cannot be true: a few times it is asked again. */
static void contradicted(struct input *in, const struct sg_error *e)
{
    input_stop(in);
    if (++in->stuck >= RELAY_STUCK_MAX)
        input_die(in, e);
    else if (wanted(in))
        open_later(in, e);
    else
        input_settle(in);
}

static void cut(struct input *in, const char *why)
{
    struct sg_error e;
    if (!in->up)
        in->unclear++;
    input_stop(in);
    sg_fail(&e, SG_E_UPSTREAM_TIMEOUT, SG_OUTCOME_UNKNOWN, "%s", why);
    failed(in, &e);
}

/* ---- what the guest says ---- */

static void mistaken(struct input *in, enum sg_code rc, const struct sg_error *e)
{
    if (rc == SG_E_WRITER_REPLACED)
        input_die(in, e);
    else
        contradicted(in, e);
}

static void take_open(struct input *in, const struct sg_wire_line *line, bool interactive)
{
    struct sg_error e;
    if (in->up) {
        sg_fail(&e, SG_E_UPSTREAM_BAD_RESPONSE, SG_STARTED, "a carrier of input was opened twice");
        contradicted(in, &e);
        return;
    }
    enum sg_code rc = input_queue_opened(&in->q, line->accepted, line->room, &e);
    if (rc && rc != SG_E_STDIN_OFFSET) {
        mistaken(in, rc, &e);
        return;
    }
    in->up = true;
    in->on_socket = interactive;
    in->q.batch = !interactive;
    in->claim = false;
    in->fail_since = 0;
    sg_timer_start(in->timer, (uint64_t)relay_limits(in->obj.relay)->input_idle_ms);
    input_pump(in);
    if (rc)
        input_refused(in, &e);
    if (!in->buried)
        input_tell(in);
}

static void take_accepted(struct input *in, const struct sg_wire_line *line)
{
    struct sg_error e;
    uint64_t before = in->q.base;
    if (!in->up) {
        sg_fail(&e, SG_E_UPSTREAM_BAD_RESPONSE, SG_STARTED, "input was acknowledged before it was sent");
        contradicted(in, &e);
        return;
    }
    enum sg_code rc =
        input_queue_accepted(&in->q, line->accepted, line->room, line->closed, line->unwanted, &e);
    if (rc) {
        mistaken(in, rc, &e);
        return;
    }
    if (in->q.base > before || line->closed) {
        in->progress_ms = sg_mono_ms();
        in->backoff_ms = 0;
        in->stuck = 0;
    }
    input_pump(in);
    input_tell(in);
}

static void on_line(void *arg, const struct sg_wire_line *line, bool interactive)
{
    struct input *in = arg;
    in->heard_ms = sg_mono_ms();
    if (line->kind == SG_WIRE_CARRIER)
        take_open(in, line, interactive);
    else if (line->kind == SG_WIRE_ACCEPTED)
        take_accepted(in, line);
}

static void on_room(void *arg)
{
    input_pump(arg);
}

/* The process has ended, and `accepted` bytes were its: all that was written, and its end, may have been among what
 * it had before. */
static void take_finished(struct input *in, struct sg_error *e)
{
    struct sg_error other;
    struct input_queue *q = &in->q;
    bool mine = q->known && e->accepted >= 0 &&
                !input_queue_accepted(q, (uint64_t)e->accepted, 0, false, false, &other);
    if (mine && q->close_wanted && !input_queue_held(q)) {
        q->closed = true;
        input_tell(in);
    }
    if (!in->buried)
        input_die(in, e);
}

static void take_error(struct input *in, const struct sg_wire_line *line)
{
    struct sg_error e;
    guest_error(line, &e);
    if (!in->sudo && (!strcmp(line->errno_name, "EPERM") || !strcmp(line->errno_name, "EACCES"))) {
        in->sudo = true; /* root's process */
        input_pump(in);
    } else if (line->fail == SG_WF_FENCED && in->unclear) {
        in->unclear--; /* by a late one of our own */
        if (wanted(in))
            open_later(in, NULL);
        else
            input_settle(in);
    } else if (line->fail == SG_WF_NO_INPUT && in->q.close_wanted && !input_queue_held(&in->q)) {
        in->q.closed = true; /* the answer to our close was lost */
        input_tell(in);
        input_settle(in);
    } else if (line->fail == SG_WF_FINISHED) {
        take_finished(in, &e);
    } else if (line->fail == SG_WF_OFFSET || line->fail == SG_WF_USAGE || line->fail == SG_WF_INTERNAL) {
        contradicted(in, &e);
    } else {
        input_die(in, &e);
    }
}

/* Its time is over, or it was told to end. */
static void take_end(struct input *in, int64_t lived_ms)
{
    if (!wanted(in))
        input_settle(in);
    else if (lived_ms > relay_limits(in->obj.relay)->backoff_max_ms)
        input_pump(in);
    else
        open_later(in, NULL);
}

static void on_end(void *arg, const struct sg_wire_line *line, const struct sg_error *e)
{
    struct input *in = arg;
    struct sg_error mine;
    int64_t now = sg_mono_ms(), lived = now - in->opened_ms;
    bool up = in->up;
    if (line && (line->kind == SG_WIRE_OK || (line->kind == SG_WIRE_MORE && now - in->sent_ms > SURE_MS)))
        input_queue_sure(&in->q);
    forget_carrier(in);
    if (!line) {
        mine = *e;
        if (!up && e->outcome != SG_NOT_SENT && e->outcome != SG_NOT_STARTED)
            in->unclear++;
        failed(in, &mine);
    } else if (line->kind == SG_WIRE_ERROR) {
        take_error(in, line);
    } else if (line->kind == SG_WIRE_OK || line->kind == SG_WIRE_MORE) {
        take_end(in, lived);
    } else {
        sg_fail(&mine, SG_E_UPSTREAM_BAD_RESPONSE, SG_STARTED,
                "the helper in the sandbox answered something else than it was asked");
        contradicted(in, &mine);
    }
}

/* ---- sending ---- */

static void open_carrier(struct input *in)
{
    static const struct carrier_events ev = {.on_line = on_line, .on_room = on_room, .on_end = on_end};
    struct carrier_spec s = {.session_id = in->session.session_id,
                             .arch = in->session.arch,
                             .id = in->id,
                             .interactive = in->interactive,
                             .sudo = in->sudo};
    struct sg_error e;
    sg_timer_stop(in->timer);
    in->opened_ms = in->heard_ms = sg_mono_ms();
    in->carrier = carrier_open(relay_guestlink(in->obj.relay), &s, &ev, in, &e);
    if (in->carrier) {
        sg_timer_start(in->timer, (uint64_t)relay_limits(in->obj.relay)->carrier_open_ms);
        return;
    }
    if (!in->fail_since)
        in->fail_since = in->opened_ms;
    in->last = e;
    open_later(in, &e); /* gives up there: not inside the writer's own call */
}

/* Gives the carrier the rest of a frame.  False: it has no room. */
static bool flush(struct input *in)
{
    if (!in->out.len)
        return true;
    size_t n = carrier_send(in->carrier, in->out.data, in->out.len);
    sg_buf_consume(&in->out, n < in->out.len ? n : in->out.len);
    return in->out.len == 0;
}

static void send_frames(struct input *in)
{
    bool sent = false, held = in->q.receipts_held, redrawing = in->q.redraw_begun;
    in->out.max = OUT_MAX;
    while (flush(in) && input_queue_next(&in->q, &in->out))
        sent = true;
    if (in->out.failed) /* no memory: tried again with the next line or the timer */
        in->out.failed = false;
    if (!in->out.len)
        sg_buf_free(&in->out);
    if (!sent)
        return;
    in->sent_ms = sg_mono_ms();
    if (in->q.receipts_held != held || in->q.redraw_begun != redrawing)
        sg_timer_start(in->moment, MOMENT_MS);
    sg_timer_start(in->timer, (uint64_t)relay_limits(in->obj.relay)->input_idle_ms);
}

void input_pump(struct input *in)
{
    if (in->buried || in->finishing)
        return;
    if (in->carrier) {
        if (in->up)
            send_frames(in);
    } else if (wanted(in) && !in->waiting) {
        open_carrier(in);
    }
}

void input_moment(void *arg)
{
    struct input *in = arg;
    input_queue_settle(&in->q);
    input_pump(in);
}

/* Nothing was sent for long. */
static void on_idle(struct input *in)
{
    int64_t idle = relay_limits(in->obj.relay)->input_idle_ms;
    bool under_way = in->q.sent > in->q.base || in->out.len || (in->q.close_sent && !in->q.closed);
    if (under_way && sg_mono_ms() - in->heard_ms >= idle) {
        cut(in,
            "input was sent and nothing was heard of it"); /* the guest takes at once what it has room for */
    } else if (wanted(in)) {
        send_frames(in);
        sg_timer_start(in->timer, (uint64_t)idle);
    } else {
        in->finishing = true;
        sg_timer_start(in->timer, (uint64_t)relay_limits(in->obj.relay)->carrier_open_ms);
        carrier_finish(in->carrier);
    }
}

void input_timer(void *arg)
{
    struct input *in = arg;
    int64_t give_up = relay_limits(in->obj.relay)->give_up_ms;
    if (!in->carrier && !in->waiting) {
        in->unclear = 0; /* nothing comes so late */
        input_settle(in);
    } else if (!in->carrier) {
        in->waiting = false;
        if (in->fail_since && (!relay_may_retry(&in->last) || sg_mono_ms() - in->fail_since >= give_up))
            input_die(in, &in->last);
        else
            input_pump(in);
    } else if (in->up && !in->finishing) {
        on_idle(in);
    } else {
        cut(in, in->up ? "a carrier of input did not end" : "a carrier of input did not open");
    }
}
