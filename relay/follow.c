#include "relay/cursor.h"
#include "relay/internal.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct follower {
    struct relay_obj obj;
    struct session_copy session;
    char id[SG_WIRE_ID_MAX + 1];
    struct follower_events ev;
    void *arg;
    struct cursor at;

    struct relay_args start; /* the call that starts it, while it is not known; else nothing */
    json_t *start_env;
    bool start_sudo, start_own, starts;

    bool bounded, gaps, attend;
    uint64_t limit_left; /* bounded: bytes that may still be delivered */
    uint64_t target[2];  /* bounded: the ends at hello */
    int64_t wait_until;  /* bounded */

    struct sg_wire_process p; /* what is known, from the newest H and X */
    bool told_hello, exit_known, ended, closed;

    struct guest_call *call;
    bool call_hello, call_progress;
    int64_t call_began;
    struct sg_timer *timer; /* without a call: until the next one; with one: how long it may be paused */
    bool waiting;           /* the timer runs for the next call */

    bool paused;        /* the owner wants nothing now */
    bool held;          /* and a line was refused upstream because of that */
    bool in_data;       /* inside on_data */
    bool unpaused;      /* follower_resume was called in there */
    int stuck;          /* answers without progress that contradicted themselves */
    int64_t fail_since; /* 0: the last attempt was answered */
    int64_t backoff_ms;
    struct sg_error last;
};

static void open_call(struct follower *f);

/* ---- the end ---- */

static void stop(struct follower *f)
{
    if (f->call && f->attend && f->p.ends_unattended)
        guest_abandon(f->call); /* as long as it runs the process takes us for attached */
    else if (f->call)
        guest_cancel(f->call);
    f->call = NULL;
    f->waiting = false;
    sg_timer_stop(f->timer);
}

/* Of a process that was started here nobody else may know yet that it ended. */
static void tell_ended(const struct follower *f)
{
    static const struct relay_last nothing;
    if (f->starts && !f->start_own && f->exit_known)
        relay_tell_ended(f->obj.relay, f->session.session_id, &f->p, &nothing);
}

static void end_with(struct follower *f, const struct sg_error *e)
{
    if (f->ended || f->closed)
        return;
    f->ended = true;
    stop(f);
    if (f->exit_known) { /* the exit is known; only bytes are missing */
        f->p.output_incomplete = true;
        e = NULL;
    }
    struct sg_error copy;
    if (e)
        copy = *e;
    else
        tell_ended(f);
    f->ev.on_end(f->arg, e ? NULL : &f->p, e ? &copy : NULL);
}

static void end_well(struct follower *f)
{
    if (f->ended || f->closed)
        return;
    f->ended = true;
    stop(f);
    tell_ended(f);
    f->ev.on_end(f->arg, &f->p, NULL);
}

/* ---- asking again ---- */

static int64_t give_up_ms(const struct follower *f)
{
    const struct relay_limits *l = relay_limits(f->obj.relay);
    return f->bounded ? l->give_up_bounded_ms : l->give_up_ms;
}

static void ask_later(struct follower *f, const struct sg_error *e)
{
    uint64_t wait = relay_backoff(f->obj.relay, &f->backoff_ms, e);
    if (f->fail_since) {
        int64_t left = f->fail_since + give_up_ms(f) - sg_mono_ms();
        if (left < 1)
            left = 1;
        if (wait > (uint64_t)left)
            wait = (uint64_t)left;
    }
    f->waiting = true;
    sg_timer_start(f->timer, wait);
}

static void failed(struct follower *f, const struct sg_error *e)
{
    f->last = *e;
    if (!relay_may_retry(e)) {
        end_with(f, e);
        return;
    }
    if (!f->call_hello && !f->fail_since)
        f->fail_since = sg_mono_ms();
    ask_later(f, e);
}

/* What came cannot be trusted: forget the call and ask again from where we are, a few times. */
static void contradicted(struct follower *f, const char *what)
{
    struct sg_error e;
    sg_fail(&e, SG_E_UPSTREAM_BAD_RESPONSE, SG_STARTED, "%s", what);
    if (f->call)
        guest_cancel(f->call);
    f->call = NULL;
    if (++f->stuck >= RELAY_STUCK_MAX) {
        end_with(f, &e);
        return;
    }
    f->last = e;
    ask_later(f, &e);
}

static void progressed(struct follower *f)
{
    f->call_progress = true;
    f->backoff_ms = 0;
    f->stuck = 0;
}

static void on_timer(void *arg)
{
    struct follower *f = arg;
    if (f->call) { /* paused for too long: a held stream costs upstream and buffers on the way */
        if (f->paused) {
            guest_cancel(f->call);
            f->call = NULL;
            f->held = false;
        }
        return;
    }
    f->waiting = false;
    if (f->fail_since && sg_mono_ms() - f->fail_since >= give_up_ms(f)) {
        end_with(f, &f->last);
        return;
    }
    if (!f->paused)
        open_call(f);
}

/* ---- lines ---- */

static void take_hello(struct follower *f, const struct sg_wire_process *h)
{
    if (strcmp(h->id, f->id) != 0) {
        contradicted(f, "the helper in the sandbox answered for another process");
        return;
    }
    f->call_hello = true;
    f->fail_since = 0;
    if (!f->exit_known)
        f->p = *h;
    if (f->told_hello)
        return;
    struct sg_error e;
    if (h->state == SG_PS_NOT_STARTED) {
        sg_fail(&e, SG_E_PROCESS_NOT_FOUND, SG_NOT_STARTED, "process %s was never started", f->id);
        end_with(f, &e);
        return;
    }
    for (int s = 0; f->bounded && s < 2; s++) {
        f->target[s] = h->end[s];
        if (f->gaps || (f->at.only >= 0 && f->at.only != s) || f->at.pos[s] >= h->oldest[s])
            continue;
        sg_fail(&e, SG_E_OUTPUT_EVICTED, SG_FINISHED, "the output before offset %llu is no longer kept",
                (unsigned long long)h->oldest[s]);
        e.oldest = (int64_t)h->oldest[s];
        end_with(f, &e);
        return;
    }
    f->told_hello = true;
    args_free(&f->start);
    f->ev.on_hello(f->arg, &f->p);
}

static void give_data(struct follower *f, const struct cursor_step *step)
{
    f->in_data = true;
    f->unpaused = false;
    bool more = f->ev.on_data(f->arg, step->stream, step->offset, step->data, step->len);
    f->in_data = false;
    f->paused = !more && !f->unpaused;
}

static void take_data(struct follower *f, const struct cursor_step *step)
{
    progressed(f);
    struct cursor_step s = *step;
    if (f->bounded) {
        if (s.len > f->limit_left) {
            s.len = (size_t)f->limit_left;
            f->at.pos[s.stream] = s.offset + s.len;
        }
        f->limit_left -= s.len;
    }
    if (s.len)
        give_data(f, &s);
    if (f->bounded && f->limit_left == 0)
        end_well(f); /* does nothing when the owner has closed meanwhile */
}

static void take_gap(struct follower *f, const struct cursor_step *step)
{
    progressed(f);
    if (!f->bounded || f->gaps) {
        f->ev.on_gap(f->arg, step->stream, step->offset, step->to);
        return;
    }
    struct sg_error e;
    sg_fail(&e, SG_E_OUTPUT_EVICTED, SG_FINISHED, "the output before offset %llu is no longer kept",
            (unsigned long long)step->to);
    e.oldest = (int64_t)step->to;
    end_with(f, &e);
}

static bool on_line(void *arg, const struct sg_wire_line *line)
{
    struct follower *f = arg;
    if (f->paused) {
        f->held = true;
        sg_timer_start(f->timer, (uint64_t)relay_limits(f->obj.relay)->pause_max_ms);
        return false;
    }
    if (line->kind == SG_WIRE_HELLO) {
        take_hello(f, &line->process);
        return true;
    }
    if (line->kind != SG_WIRE_DATA && line->kind != SG_WIRE_GAP)
        return true;
    if (!f->call_hello) {
        contradicted(f, "output came before the hello");
        return true;
    }
    struct cursor_step step;
    switch (cursor_take(&f->at, line, &step)) {
    case CURSOR_OLD:
        break;
    case CURSOR_DATA:
        take_data(f, &step);
        break;
    case CURSOR_GAP:
        take_gap(f, &step);
        break;
    case CURSOR_HOLE:
        contradicted(f, "output is missing in the upstream's log stream");
        break;
    }
    return true;
}

static void take_exit(struct follower *f, const struct sg_wire_process *x)
{
    f->exit_known = true;
    relay_take_exit(&f->p, x);
    if (cursor_at(&f->at, f->p.end) || (f->bounded && f->limit_left == 0))
        end_well(f);
    else if (f->call_progress)
        open_call(f);
    else
        contradicted(f, "the process ended and its last output did not come");
}

/* How long the call that just ended took. */
static int64_t lived_ms(const struct follower *f)
{
    return sg_mono_ms() - f->call_began;
}

static void take_more(struct follower *f)
{
    if (f->bounded) {
        for (int s = 0; s < 2; s++)
            f->target[s] = f->target[s] < f->p.end[s] ? f->target[s] : f->p.end[s];
        if (cursor_at(&f->at, f->target) || f->limit_left == 0) {
            end_well(f);
            return;
        }
    }
    if (f->call_progress) {
        open_call(f);
        return;
    }
    if (f->bounded) {
        contradicted(f, "a read ended before what it had announced");
        return;
    }
    /* A quiet process: an answer that took its time is followed by the next question at once. */
    if (lived_ms(f) > relay_limits(f->obj.relay)->backoff_max_ms)
        open_call(f);
    else
        ask_later(f, NULL);
}

static void on_end(void *arg, const struct sg_wire_line *line, bool hello, const struct sg_error *e)
{
    struct follower *f = arg;
    struct sg_error mine;
    (void)hello; /* seen by on_line */
    f->call = NULL;
    f->held = false;
    sg_timer_stop(f->timer);
    if (!line) {
        mine = *e;
        if (f->told_hello)
            mine.outcome = SG_STARTED;
        if (f->call_progress || lived_ms(f) > 5 * relay_limits(f->obj.relay)->backoff_max_ms)
            f->backoff_ms = 0;
        failed(f, &mine);
        return;
    }
    if (line->kind == SG_WIRE_ERROR) {
        if (f->start.n)
            start_refused(line, &mine);
        else
            guest_error(line, &mine);
        end_with(f, &mine);
    } else if (!f->call_hello || line->kind == SG_WIRE_OK) {
        contradicted(f, "the helper in the sandbox answered something else than it was asked");
    } else if (line->kind == SG_WIRE_EXIT) {
        take_exit(f, &line->process);
    } else {
        take_more(f);
    }
}

/* ---- the call ---- */

static void build_args(struct follower *f, struct relay_args *a)
{
    args_begin(a, "follow", f->session.session_id, f->id);
    args_add(a, "--stdout");
    args_addu(a, f->at.pos[0]);
    args_add(a, "--stderr");
    args_addu(a, f->at.pos[1]);
    if (f->attend)
        args_add(a, "--attend");
    if (!f->bounded)
        return;
    if (f->at.only >= 0) {
        args_add(a, "--only");
        args_addu(a, (uint64_t)f->at.only + 1);
    }
    if (f->limit_left < UINT64_MAX) {
        args_add(a, "--limit");
        args_addu(a, f->limit_left);
    }
    int64_t left = f->wait_until - sg_mono_ms();
    args_add(a, "--wait-ms");
    args_addu(a, left > 0 ? (uint64_t)left : 0);
}

static bool try_call(struct follower *f, struct sg_error *e)
{
    struct relay_args args = {0};
    bool starts = f->start.n > 0;
    if (!starts)
        build_args(f, &args);
    if (args.failed) {
        args_free(&args);
        sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory to follow a process");
        return false;
    }
    struct guest_args g = {.session_id = f->session.session_id,
                           .arch = f->session.arch,
                           .args = (const char *const *)(starts ? f->start.v : args.v),
                           .env = starts ? f->start_env : NULL,
                           .sudo = starts && f->start_sudo};
    struct guest_events ev = {.on_line = on_line, .on_end = on_end};
    f->call_hello = f->call_progress = false;
    f->call_began = sg_mono_ms();
    f->call = guest_call_start(relay_guestlink(f->obj.relay), &g, &ev, f, e);
    args_free(&args);
    return f->call != NULL;
}

/* Never ends the follower at once, so that it may be called from follower_resume. */
static void open_call(struct follower *f)
{
    struct sg_error e;
    if (f->paused || f->closed || f->ended)
        return; /* follower_resume opens it */
    if (try_call(f, &e))
        return;
    f->last = e;
    if (!f->fail_since)
        f->fail_since = sg_mono_ms();
    ask_later(f, &e);
}

/* ---- the owner's side ---- */

void follower_resume(struct follower *f)
{
    if (f->ended || f->closed)
        return;
    if (f->in_data)
        f->unpaused = true;
    if (!f->paused)
        return;
    f->paused = false;
    if (f->held) {
        f->held = false;
        sg_timer_stop(f->timer);
        guest_resume(f->call);
    } else if (!f->call && !f->waiting) {
        open_call(f);
    }
}

const struct sg_wire_process *follower_known(const struct follower *f)
{
    return &f->p;
}

void follower_close(struct follower *f)
{
    if (f->closed)
        return;
    f->closed = true;
    stop(f);
    obj_bury(&f->obj);
}

static void destroy(struct relay_obj *o)
{
    struct follower *f = (struct follower *)o;
    session_free(&f->session);
    args_free(&f->start);
    json_decref(f->start_env);
    sg_timer_free(f->timer);
    free(f);
}

static void abandon(struct relay_obj *o, const struct sg_error *e)
{
    struct follower *f = (struct follower *)o;
    struct sg_error copy = *e;
    end_with(f, &copy);
    if (!f->closed)
        follower_close(f); /* an owner that did not: nothing may be left behind */
}

enum sg_code follow_spec_check(const struct follow_spec *s, struct sg_error *e)
{
    if (!s->id || !sg_wire_id_valid(s->id, strlen(s->id)))
        return sg_fail(e, SG_E_PROCESS_NOT_FOUND, SG_NOT_SENT, "no process can have this id");
    if (s->offset[0] > INT64_MAX / 4 || s->offset[1] > INT64_MAX / 4)
        return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT, "the offset is larger than any output");
    return SG_OK;
}

struct follower *follower_open(struct relay *r, const struct follow_spec *s, const struct follower_events *ev,
                               void *arg, struct sg_error *e)
{
    if (follow_spec_check(s, e))
        return NULL;
    struct follower *f = calloc(1, sizeof *f);
    if (!f)
        goto no_memory;
    obj_init(&f->obj, r, abandon, destroy);
    (void)snprintf(f->id, sizeof f->id, "%s", s->id);
    f->ev = *ev;
    f->arg = arg;
    f->at = (struct cursor){.pos = {s->offset[0], s->offset[1]}, .only = s->only};
    f->bounded = s->bounded;
    f->gaps = s->gaps;
    f->attend = s->attend;
    f->limit_left = s->bounded && s->limit ? s->limit : UINT64_MAX;
    f->wait_until = sg_mono_ms() + (s->wait_ms > 0 ? s->wait_ms : 0);
    f->timer = sg_timer_new(relay_loop(r), on_timer, f);
    if (!f->timer || !session_copy(&f->session, &s->session)) {
        f->closed = true;
        obj_bury(&f->obj);
        goto no_memory;
    }
    if (s->start) {
        f->start_sudo = s->start->sudo;
        f->start_own = s->start->own;
        f->start_env = json_incref(s->start->env);
        f->starts = true;
        if (!f->start_own)
            relay_tell_begins(r, f->session.session_id);
    }
    if ((s->start && start_args(s->start, "run", -1, NULL, &f->start, e)) || !try_call(f, e)) {
        follower_close(f);
        return NULL;
    }
    return f;

no_memory:
    sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory to follow a process");
    return NULL;
}
