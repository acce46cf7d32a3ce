#include "relay/input.h"

#include "base/clock.h"
#include "relay/input_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what became of it all ---- */

static bool settled(const struct input_queue *q)
{
    return !input_queue_held(q) && (!q->close_wanted || q->closed);
}

/* The outcome of what was written, for a writer that ends. */
static void judge(const struct input_queue *q, struct sg_error *e)
{
    if (settled(q))
        e->outcome = SG_FINISHED;
    else if (q->sent_max > q->base || (q->close_sent && !q->closed))
        e->outcome = SG_OUTCOME_UNKNOWN;
    else
        e->outcome = SG_NOT_STARTED;
    if (q->known)
        e->accepted = (int64_t)q->base;
}

/* The writer is of no more use; it is told now or later. */
static void end_writer(struct writer *w, const struct sg_error *e)
{
    struct input *in = w->in;
    w->ended = true;
    w->end = *e;
    judge(&in->q, &w->end);
    w->in = NULL;
    in->writer = NULL;
}

static void tell_end(struct writer *w)
{
    if (!w->ended || w->told_end || w->released)
        return;
    w->told_end = true;
    w->ev.on_end(w->arg, &w->end);
}

/* ---- inputs ---- */

static void input_destroy(struct relay_obj *o)
{
    struct input *in = (struct input *)o;
    session_free(&in->session);
    sg_timer_free(in->timer);
    sg_timer_free(in->moment);
    input_queue_free(&in->q);
    sg_buf_free(&in->out);
    free(in);
}

static void bury(struct input *in)
{
    if (in->buried)
        return;
    in->buried = true;
    if (in->timer && in->moment)
        input_stop(in);
    named_remove(&in->named);
    obj_bury(&in->obj);
}

void input_die(struct input *in, const struct sg_error *e)
{
    struct writer *w = in->writer;
    struct sg_error copy = *e; /* may be in's own */
    if (in->buried)
        return;
    if (w)
        end_writer(w, &copy);
    bury(in);
    if (w)
        tell_end(w);
}

void input_settle(struct input *in)
{
    if (in->buried || in->writer || in->carrier || input_queue_wants(&in->q))
        return;
    if (in->unclear) /* the next writer should know what may still come up */
        sg_timer_start(in->timer, (uint64_t)relay_limits(in->obj.relay)->give_up_ms);
    else
        bury(in);
}

static void input_abandon(struct relay_obj *o, const struct sg_error *e)
{
    input_die((struct input *)o, e);
}

static struct input *find(struct relay *r, const char *session_id, const char *id)
{
    struct named *n = named_find(relay_named(r, RELAY_INPUTS), session_id, id);
    return n ? (struct input *)((char *)n - offsetof(struct input, named)) : NULL;
}

static struct input *input_new(struct relay *r, const struct writer_spec *s)
{
    struct input *in = calloc(1, sizeof *in);
    if (!in)
        return NULL;
    obj_init(&in->obj, r, input_abandon, input_destroy);
    (void)snprintf(in->id, sizeof in->id, "%s", s->id);
    input_queue_init(&in->q, INPUT_BUFFER);
    in->timer = sg_timer_new(relay_loop(r), input_timer, in);
    in->moment = sg_timer_new(relay_loop(r), input_moment, in);
    in->progress_ms = sg_mono_ms();
    if (!in->timer || !in->moment || !session_copy(&in->session, &s->session)) {
        bury(in);
        return NULL;
    }
    in->named.session_id = in->session.session_id;
    in->named.id = in->id;
    named_add(relay_named(r, RELAY_INPUTS), &in->named);
    return in;
}

void input_tell(struct input *in)
{
    struct writer *w = in->writer;
    const struct input_queue *q = &in->q;
    if (!w || !q->known || (q->base < w->others && !q->closed && !q->unwanted))
        return;
    w->ev.on_accepted(w->arg, q->base, input_queue_room(q), q->closed, q->unwanted);
}

void input_refused(struct input *in, const struct sg_error *e)
{
    struct writer *w = in->writer;
    if (!w)
        return;
    if (w->ev.on_refused) {
        w->ev.on_refused(w->arg, e);
        return;
    }
    end_writer(w, e);
    tell_end(w);
}

/* ---- writers ---- */

static void writer_destroy(struct relay_obj *o)
{
    struct writer *w = (struct writer *)o;
    sg_timer_free(w->later);
    free(w);
}

void writer_release(struct writer *w)
{
    struct input *in = w->in;
    if (w->released)
        return;
    w->released = true;
    sg_timer_stop(w->later);
    obj_bury(&w->obj);
    if (!in)
        return;
    w->in = NULL;
    in->writer = NULL;
    in->progress_ms = sg_mono_ms();
    in->claim = false;
    input_settle(in);
}

static void writer_abandon(struct relay_obj *o, const struct sg_error *e)
{
    struct writer *w = (struct writer *)o;
    if (!w->ended && w->in)
        end_writer(w, e);
    tell_end(w);
    if (!w->released)
        writer_release(w);
}

static void on_later(void *arg)
{
    struct writer *w = arg;
    if (w->ended)
        tell_end(w);
    else
        input_tell(w->in);
}

static void displace(struct input *in)
{
    struct sg_error e;
    struct writer *old = in->writer;
    sg_fail(&e, SG_E_WRITER_REPLACED, SG_NOT_STARTED, "another client of this process took its input over");
    end_writer(old, &e);
    sg_timer_start(old->later, 0);
    input_queue_drop_unsent(&in->q);
}

static struct writer *writer_new(struct relay *r, const struct writer_events *ev, void *arg)
{
    struct writer *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    obj_init(&w->obj, r, writer_abandon, writer_destroy);
    w->ev = *ev;
    w->arg = arg;
    w->later = sg_timer_new(relay_loop(r), on_later, w);
    if (w->later)
        return w;
    w->released = true;
    obj_bury(&w->obj);
    return NULL;
}

struct writer *writer_open(struct relay *r, const struct writer_spec *s, const struct writer_events *ev,
                           void *arg, struct sg_error *e)
{
    if (!s->id || !sg_wire_id_valid(s->id, strlen(s->id))) {
        sg_fail(e, SG_E_PROCESS_NOT_FOUND, SG_NOT_SENT, "no process can have this id");
        return NULL;
    }
    struct input *in = find(r, s->session.session_id, s->id);
    if (in && in->writer && !s->takeover) {
        sg_fail(e, SG_E_WRITER_EXISTS, SG_NOT_SENT, "another client of this gateway writes to the process");
        return NULL;
    }
    struct writer *w = writer_new(r, ev, arg);
    if (w && !in)
        in = input_new(r, s);
    if (!w || !in) {
        if (w) {
            w->released = true;
            obj_bury(&w->obj);
        }
        sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory to write to a process");
        return NULL;
    }
    if (in->writer)
        displace(in);
    if (!in->up)
        input_queue_forget(&in->q);
    in->writer = w;
    w->in = in;
    w->others = in->q.based ? in->q.base + input_queue_held(&in->q) : 0;
    in->interactive = in->interactive || s->terminal;
    in->sudo = in->sudo || s->sudo;
    if (in->q.known)
        sg_timer_start(w->later, 0);
    return w;
}

bool writer_present(struct relay *r, const char *session_id, const char *id)
{
    const struct input *in = find(r, session_id, id);
    return in && in->writer;
}

void writer_passed_by(struct relay *r, const char *session_id, const char *id)
{
    struct input *in = find(r, session_id, id);
    if (in && !in->writer && !input_queue_wants(&in->q))
        bury(in); /* its carrier would tell in a moment; who comes before that begins anew */
}

/* ---- what the writer wants ---- */

static enum sg_code refuse_ended(const struct writer *w, struct sg_error *e)
{
    if (e) {
        *e = w->end;
        e->outcome = SG_NOT_SENT;
    }
    return w->end.code;
}

enum sg_code writer_data(struct writer *w, uint64_t offset, const void *data, size_t len, size_t *taken,
                         struct sg_error *e)
{
    *taken = 0;
    if (w->ended)
        return refuse_ended(w, e);
    enum sg_code rc = input_queue_write(&w->in->q, offset, data, len, taken, e);
    if (!rc)
        input_pump(w->in);
    return rc;
}

enum sg_code writer_close_input(struct writer *w, uint64_t offset, struct sg_error *e)
{
    if (w->ended)
        return refuse_ended(w, e);
    enum sg_code rc = input_queue_close(&w->in->q, offset, e);
    if (!rc)
        input_pump(w->in);
    return rc;
}

enum sg_code writer_resize(struct writer *w, unsigned cols, unsigned rows, bool redraw, struct sg_error *e)
{
    if (w->ended)
        return refuse_ended(w, e);
    enum sg_code rc = input_queue_resize(&w->in->q, cols, rows, redraw, e);
    if (!rc)
        input_pump(w->in);
    return rc;
}

enum sg_code writer_signal(struct writer *w, int signal_number, bool whole, struct sg_error *e)
{
    if (w->ended)
        return refuse_ended(w, e);
    enum sg_code rc = input_queue_signal(&w->in->q, signal_number, whole, e);
    if (!rc)
        input_pump(w->in);
    return rc;
}

enum sg_code writer_ack(struct writer *w, const uint64_t received[2], struct sg_error *e)
{
    if (w->ended)
        return refuse_ended(w, e);
    enum sg_code rc = input_queue_ack(&w->in->q, received, e);
    if (!rc)
        input_pump(w->in);
    return rc;
}

void writer_claim(struct writer *w)
{
    if (w->ended || w->in->up)
        return;
    w->in->claim = true;
    input_pump(w->in);
}

bool writer_position(const struct writer *w, uint64_t *accepted)
{
    if (!w->in || !w->in->q.known)
        return false;
    *accepted = w->in->q.base;
    return true;
}

bool writer_settled(const struct writer *w)
{
    return w->ended ? w->end.outcome == SG_FINISHED : settled(&w->in->q);
}

enum writer_carrier writer_carrier(const struct writer *w)
{
    if (!w->in || !w->in->up)
        return WRITER_NO_CARRIER;
    return w->in->on_socket ? WRITER_INTERACTIVE : WRITER_COMMAND;
}
