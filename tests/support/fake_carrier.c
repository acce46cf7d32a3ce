#include "tests/support/fake_carrier.h"

#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_carrier {
    struct fake *f;
    struct fake_input *in;
    struct fake_carrier *next;
    struct sg_task task;
    bool posted, running, up, ended, cancelled, finish, crowded, hung;
    uint64_t epoch;
    struct carrier_events ev;
    void *arg;
    struct sg_buf queue; /* taken, on its way */
    struct sg_buf came;  /* at the guest, not a whole frame yet */
    uint64_t told_accepted, told_room, told_end;
    bool told_closed, told_unwanted;
};

static struct fake_input inputs[FAKE_INPUTS];

struct fake_input *fake_input(struct fake *f, const char *id)
{
    (void)f;
    for (int i = 0; i < FAKE_INPUTS; i++) {
        if (!inputs[i].id[0]) {
            (void)snprintf(inputs[i].id, sizeof inputs[i].id, "%s", id);
            inputs[i].spool = SG_CARRIER_SPOOL;
            inputs[i].reads = 1 << 20;
        }
        if (!strcmp(inputs[i].id, id))
            return &inputs[i];
    }
    fprintf(stderr, "fake_carrier: too many processes\n");
    _Exit(3);
}

void fake_inputs_free(void)
{
    for (int i = 0; i < FAKE_INPUTS; i++)
        free(inputs[i].content);
    memset(inputs, 0, sizeof inputs);
}

static void wrong(struct fake_input *in, const char *why)
{
    if (!in->wrong)
        (void)snprintf(in->why, sizeof in->why, "%s", why);
    in->wrong = true;
}

static void post(struct fake_carrier *c)
{
    if (c->posted)
        return;
    c->posted = true;
    sg_loop_post(c->f->loop, &c->task);
}

void fake_input_wake(struct fake_input *in)
{
    for (struct fake_carrier *c = in->all; c; c = c->next)
        post(c);
}

/* ---- the guest ---- */

void fake_input_write(struct fake_input *in, const void *data, size_t len)
{
    if (in->len + len > in->cap) {
        size_t cap = (in->len + len) * 2;
        unsigned char *p = realloc(in->content, cap);
        if (!p)
            _Exit(3);
        in->content = p;
        in->cap = cap;
    }
    memcpy(in->content + in->len, data, len);
    in->len += len;
}

void fake_input_fence(struct fake_input *in)
{
    in->epoch++;
    in->current = NULL;
    fake_input_wake(in);
}

static uint64_t room_of(const struct fake_input *in)
{
    return in->spool - (in->len - in->read);
}

static void take_data(struct fake_carrier *c, uint64_t offset, const void *data, size_t len)
{
    struct fake_input *in = c->in;
    if (offset + len > c->told_end)
        wrong(in, "data beyond the room");
    if (offset > in->len) {
        wrong(in, "data beyond what was accepted");
        return;
    }
    if (offset + len <= in->len || in->stops_reading)
        return;
    if (in->closed) {
        wrong(in, "data after the end");
        return;
    }
    size_t old = in->len - (size_t)offset;
    fake_input_write(in, (const char *)data + old, len - old);
}

static void take_frame(struct fake_carrier *c, const struct sg_carrier_frame *f, const void *data)
{
    struct fake_input *in = c->in;
    switch (f->kind) {
    case SG_CARRIER_DATA:
        take_data(c, f->offset, data, f->len);
        break;
    case SG_CARRIER_CLOSE:
        if (f->offset > in->len)
            wrong(in, "the end lies beyond what was accepted");
        in->closed = in->closed || f->offset == in->len;
        break;
    case SG_CARRIER_RESIZE:
        in->cols = f->cols;
        in->rows = f->rows;
        if (in->nsizes < FAKE_SIGNALS) {
            in->sizes[in->nsizes][0] = f->cols;
            in->sizes[in->nsizes++][1] = f->rows;
        }
        break;
    case SG_CARRIER_SIGNAL:
        if (in->nsignals < FAKE_SIGNALS)
            in->signals[in->nsignals++] = f->whole ? f->signal : -f->signal;
        break;
    case SG_CARRIER_ACK:
        in->nacks++;
        for (int s = 0; s < 2; s++)
            in->acked[s] = f->received[s] > in->acked[s] ? f->received[s] : in->acked[s];
        break;
    }
}

static void take_frames(struct fake_carrier *c)
{
    struct sg_carrier_frame f;
    for (;;) {
        int n = sg_carrier_decode((const unsigned char *)c->came.data, c->came.len, &f);
        if (n < 0)
            wrong(c->in, "not a frame");
        if (n <= 0 || c->came.len < (size_t)n + f.len)
            return;
        take_frame(c, &f, c->came.data + n);
        sg_buf_consume(&c->came, (size_t)n + f.len);
    }
}

/* ---- lines to the gateway, through the real wire format ---- */

static void deliver(struct fake_carrier *c, const struct sg_wire_line *line, bool last)
{
    static char text[SG_WIRE_LINE_MAX];
    static unsigned char scratch[SG_WIRE_DATA_MAX];
    struct sg_wire_line parsed;
    size_t n = sg_wire_format(text, line);
    if (!sg_wire_parse(text, n - 1, scratch, &parsed))
        _Exit(3);
    if (last) {
        c->ended = true;
        c->ev.on_end(c->arg, &parsed, NULL);
    } else {
        c->ev.on_line(c->arg, &parsed, c->in->interactive && !c->in->no_socket);
    }
}

static void end_with(struct fake_carrier *c, enum sg_code code, enum sg_outcome outcome)
{
    struct sg_error e;
    sg_fail(&e, code, outcome, "fake");
    c->ended = true;
    c->ev.on_end(c->arg, NULL, &e);
}

static void end_fail(struct fake_carrier *c, enum sg_wire_fail fail, const char *name)
{
    struct sg_wire_line line = {.kind = SG_WIRE_ERROR, .fail = fail, .text = "fake"};
    (void)snprintf(line.errno_name, sizeof line.errno_name, "%s", name);
    if (fail == SG_WF_FINISHED)
        (void)snprintf(line.text, sizeof line.text, "accepted %zu", c->in->len);
    deliver(c, &line, true);
}

static void open_line(struct fake_carrier *c)
{
    struct fake_input *in = c->in;
    c->epoch = ++in->epoch;
    in->current = c;
    c->up = true;
    c->told_accepted = in->len;
    c->told_room = room_of(in);
    c->told_end = c->told_accepted + c->told_room;
    struct sg_wire_line line = {
        .kind = SG_WIRE_CARRIER, .epoch = c->epoch, .accepted = in->len, .room = c->told_room};
    deliver(c, &line, false);
}

static void accepted_line(struct fake_carrier *c)
{
    struct fake_input *in = c->in;
    bool same = c->told_accepted == in->len && c->told_room == room_of(in) && c->told_closed == in->closed &&
                c->told_unwanted == in->stops_reading;
    if (same || in->mute)
        return;
    c->told_accepted = in->len;
    c->told_room = room_of(in);
    c->told_end = c->told_accepted + c->told_room;
    c->told_closed = in->closed;
    c->told_unwanted = in->stops_reading;
    struct sg_wire_line line = {.kind = SG_WIRE_ACCEPTED,
                                .accepted = in->len,
                                .room = c->told_room,
                                .closed = in->closed,
                                .unwanted = in->stops_reading};
    deliver(c, &line, false);
}

/* ---- steps ---- */

static void step_opening(struct fake_carrier *c)
{
    struct fake_input *in = c->in;
    if (in->refuse_code || fake_chance(c->f, in->refuse)) {
        end_with(c, in->refuse_code ? in->refuse_code : SG_E_UPSTREAM_UNREACHABLE, SG_NOT_SENT);
    } else if (fake_chance(c->f, in->cut_opening)) {
        if (fake_chance(c->f, in->late))
            in->pending_late++; /* it arrives all the same, later */
        end_with(c, SG_E_UPSTREAM_UNREACHABLE, SG_OUTCOME_UNKNOWN);
    } else if (in->no_input) {
        end_fail(c, SG_WF_NO_INPUT, "");
    } else if (in->finished) {
        end_fail(c, SG_WF_FINISHED, "");
    } else if (in->root && !in->sudo) {
        end_fail(c, SG_WF_INTERNAL, "EACCES");
    } else {
        open_line(c);
    }
}

static void arrive(struct fake_carrier *c)
{
    size_t n = (size_t)fake_random(c->f, c->queue.len + 1);
    if (fake_chance(c->f, 300))
        n = c->queue.len;
    c->came.max = SIZE_MAX / 2;
    if (!sg_buf_add(&c->came, c->queue.data ? c->queue.data : "", n))
        _Exit(3);
    sg_buf_consume(&c->queue, n);
    take_frames(c);
}

static void program_reads(struct fake_carrier *c)
{
    struct fake_input *in = c->in;
    if (in->reads)
        in->read += (size_t)fake_random(c->f, (uint64_t)in->reads + 1);
    in->read = in->read < in->len ? in->read : in->len;
}

static void step_up(struct fake_carrier *c)
{
    struct fake_input *in = c->in;
    if (in->pending_late && fake_chance(c->f, 300)) {
        in->pending_late--;
        fake_input_fence(in);
    }
    if (in->current != c) {
        end_fail(c, SG_WF_FENCED, "");
        return;
    }
    if (in->finished) {
        end_fail(c, SG_WF_FINISHED, "");
        return;
    }
    arrive(c);
    if (fake_chance(c->f, in->cut)) { /* with what is under way, and perhaps with the answer */
        in->current = NULL;
        end_with(c, SG_E_UPSTREAM_UNREACHABLE, SG_STARTED);
        return;
    }
    program_reads(c);
    accepted_line(c);
    if (c->cancelled || c->ended)
        return;
    if (c->crowded && c->queue.len == 0) {
        c->crowded = false;
        c->ev.on_room(c->arg);
    }
    struct sg_wire_line k = {.kind = SG_WIRE_OK}, m = {.kind = SG_WIRE_MORE};
    if (c->cancelled || c->ended)
        return;
    if (c->finish && c->queue.len == 0)
        deliver(c, &k, true);
    else if (fake_chance(c->f, in->more))
        deliver(c, &m, true);
}

static void release(struct fake_carrier *c)
{
    struct fake_carrier **at = &c->in->all;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    c->in->live--;
    if (c->in->current == c)
        c->in->current = NULL;
    sg_buf_free(&c->queue);
    sg_buf_free(&c->came);
    free(c);
}

static bool busy(const struct fake_carrier *c)
{
    const struct fake_input *in = c->in;
    return !c->up || c->queue.len || c->finish || in->pending_late || in->more || in->cut ||
           (in->reads && in->read < in->len) || (in->closed != c->told_closed && !in->mute) || c->crowded;
}

static void on_task(struct sg_task *task)
{
    struct fake_carrier *c = (struct fake_carrier *)((char *)task - offsetof(struct fake_carrier, task));
    c->posted = false;
    if (!c->cancelled && !c->ended && !c->hung) {
        c->running = true;
        if (c->up)
            step_up(c);
        else
            step_opening(c);
        c->running = false;
    }
    if (c->posted)
        return; /* while it ran: again, and then perhaps the end */
    if (c->cancelled || c->ended)
        release(c);
    else if (!c->hung && busy(c))
        post(c);
}

/* ---- the interface ---- */

struct carrier *carrier_open(struct guestlink *g, const struct carrier_spec *s,
                             const struct carrier_events *ev, void *arg, struct sg_error *e)
{
    struct fake *f = (struct fake *)(void *)g;
    struct fake_carrier *c = calloc(1, sizeof *c);
    if (!c) {
        sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory");
        return NULL;
    }
    c->f = f;
    c->in = fake_input(f, s->id);
    c->in->interactive = s->interactive;
    c->in->sudo = s->sudo;
    c->in->opened++;
    c->in->live++;
    c->ev = *ev;
    c->arg = arg;
    c->task.fn = on_task;
    sg_buf_init(&c->queue, CARRIER_QUEUE_MAX);
    c->next = c->in->all;
    c->in->all = c;
    if (c->in->hang > 0) {
        c->in->hang--;
        c->hung = true;
    }
    post(c);
    return (struct carrier *)(void *)c;
}

size_t carrier_send(struct carrier *carrier, const void *data, size_t len)
{
    struct fake_carrier *c = (struct fake_carrier *)(void *)carrier;
    if (c->ended || c->cancelled || c->finish)
        wrong(c->in, "a carrier that is over was used");
    if (!c->up)
        wrong(c->in, "frames before the carrier was open");
    size_t max = c->in->takes ? c->in->takes : CARRIER_QUEUE_MAX;
    size_t room = c->queue.len < max ? max - c->queue.len : 0;
    size_t n = len < room ? len : room;
    if (n && !sg_buf_add(&c->queue, data, n))
        n = 0;
    c->crowded = c->crowded || n < len;
    post(c);
    return n;
}

size_t carrier_queued(const struct carrier *carrier)
{
    return ((const struct fake_carrier *)(const void *)carrier)->queue.len;
}

void carrier_finish(struct carrier *carrier)
{
    struct fake_carrier *c = (struct fake_carrier *)(void *)carrier;
    c->finish = true;
    c->in->finished_carriers++;
    post(c);
}

void carrier_cancel(struct carrier *carrier)
{
    struct fake_carrier *c = (struct fake_carrier *)(void *)carrier;
    if (c->ended || c->cancelled) {
        fprintf(stderr, "fake_carrier: cancelled after its end\n");
        _Exit(3);
    }
    c->cancelled = true;
    c->in->cancelled++;
    if (!c->running)
        post(c); /* freed there */
}
