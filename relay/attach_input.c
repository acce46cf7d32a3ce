#include "relay/attach_internal.h"

#include <stdlib.h>
#include <string.h>

/* One act for a process that takes no input, and so has no carrier. */
struct attach_act {
    struct attach *a; /* NULL: the client has left */
    struct attach_act *prev, *next;
    int signal; /* 0: a receipt */
    bool whole, sudo;
};

static void answer(struct attach *a, enum sg_code code, const char *detail)
{
    struct sg_error e;
    sg_fail(&e, code, SG_NOT_SENT, "%s", detail);
    attach_answer(a, &e);
}

/* ---- what the writer tells ---- */

static void drop_held(struct attach *a)
{
    sg_buf_free(&a->held);
    if (a->holding && a->io.hold && !a->closing && !a->gone)
        a->io.hold(a->io_arg, false);
    a->holding = false;
}

static void tell_news(struct attach *a)
{
    if (!a->input.news || !a->greeted || a->closing || a->io.queued(a->io_arg) > ATTACH_QUEUE_HIGH)
        return; /* input_drained comes back here */
    a->input.news = false;
    (void)attach_send(a, frame_stdin(a->input.accepted, a->input.room, a->input.closed, a->input.unwanted));
}

/* Gives the writer what it had no room for. */
static void go_on(struct attach *a)
{
    struct sg_error e;
    size_t taken;
    if (!a->holding || !a->writer)
        return;
    if (writer_data(a->writer, a->held_offset, a->held.data, a->held.len, &taken, &e)) {
        drop_held(a);
        attach_answer(a, &e);
        return;
    }
    if (a->held_offset != INPUT_APPEND)
        a->held_offset += taken;
    sg_buf_consume(&a->held, taken);
    if (!a->held.len)
        drop_held(a);
}

static void on_accepted(void *arg, uint64_t accepted, size_t room, bool closed, bool unwanted)
{
    struct attach *a = arg;
    a->input.accepted = accepted;
    a->input.room = room;
    a->input.closed = closed;
    a->input.unwanted = unwanted;
    a->input.news = true;
    go_on(a);
    tell_news(a);
}

static void on_refused(void *arg, const struct sg_error *e)
{
    struct attach *a = arg;
    drop_held(a);
    attach_answer(a, e);
}

static void let_go(struct attach *a, enum sg_code why)
{
    if (a->writer)
        writer_release(a->writer);
    a->writer = NULL;
    a->no_writer = why;
    if (why != SG_E_PROCESS_FINISHED) /* whose exit is on its way: no news then */
        crowd_write(&a->seat, false);
    drop_held(a);
}

static const struct writer_events writer_events;

static bool take_place(struct attach *a, bool takeover, bool sudo, struct sg_error *e)
{
    struct writer_spec w = {
        .session = {.session_id = a->session.session_id, .arch = a->session.arch, .cwd = a->session.cwd},
        .id = a->id,
        .takeover = takeover,
        .terminal = true,
        .sudo = sudo};
    a->writer = writer_open(a->relay, &w, &writer_events, a, e);
    a->no_writer = a->writer ? SG_E_UNSUPPORTED : e->code;
    return a->writer != NULL;
}

/* Input that a process without one was sent has ended the writer, who is still the one to acknowledge output. */
static void keep_place(struct attach *a)
{
    struct sg_error e;
    if (a->writer || a->no_writer != SG_E_STDIN_CLOSED || !a->p.lossless || a->p.takes_input)
        return;
    if (take_place(a, false, false, &e))
        crowd_write(&a->seat, true);
}

static void on_writer_end(void *arg, const struct sg_error *e)
{
    struct attach *a = arg;
    struct sg_error copy = *e;
    let_go(a, copy.code);
    a->early_input = false;
    if (copy.code == SG_E_WRITER_REPLACED) {
        if (attach_flush(a) && attach_send(a, frame_error(&copy)))
            attach_close(a, CLOSE_TAKEN_OVER, "another client writes now");
    } else if (copy.code == SG_E_PROCESS_FINISHED) {
        if (copy.outcome != SG_FINISHED) /* else its exit says all */
            attach_answer(a, &copy);
    } else if (copy.code == SG_E_STDIN_CLOSED) {
        if (a->greeted)
            keep_place(a);
        attach_answer(a, &copy);
    } else if (attach_flush(a)) {
        attach_fail(a, &copy); /* input is lost: the client should know where to go on */
    }
}

static const struct writer_events writer_events = {on_accepted, on_refused, on_writer_end};

/* ---- beginning ---- */

bool input_begin(struct attach *a, const struct attach_spec *s, struct sg_error *e)
{
    sg_buf_init(&a->held, FRAME_INPUT_MAX);
    a->cols = s->cols;
    a->rows = s->rows;
    a->no_writer = SG_E_UNSUPPORTED;
    if (s->mode == ATTACH_WATCH)
        return true;
    return take_place(a, s->takeover, s->sudo, e) ||
           (s->mode == ATTACH_AUTO && e->code == SG_E_WRITER_EXISTS);
}

static void on_crowd(struct crowd_seat *seat, unsigned writers, unsigned watchers)
{
    struct attach *a = (struct attach *)((char *)seat - offsetof(struct attach, seat));
    if (!a->greeted || a->io.queued(a->io_arg) > ATTACH_QUEUE_HIGH)
        return; /* input_drained looks again */
    if (writers == a->told_writers && watchers == a->told_watchers)
        return;
    a->told_writers = writers;
    a->told_watchers = watchers;
    (void)attach_send(a, frame_presence(writers, watchers));
}

static bool alive(const struct attach *a)
{
    return a->p.state == SG_PS_STARTING || a->p.state == SG_PS_RUNNING;
}

/* What was said before it was known that the process has no use for it.  One that has ended may have taken it. */
static void answer_early(struct attach *a)
{
    if (a->early_input && !a->p.takes_input && a->writer && !writer_settled(a->writer)) {
        if (alive(a))
            answer(a, SG_E_STDIN_CLOSED, "the process takes no input");
        else
            answer(a, SG_E_PROCESS_FINISHED, "the process has ended");
    }
    if (a->early_size && !a->p.terminal)
        answer(a, SG_E_UNSUPPORTED, "the process has no terminal");
    a->early_input = a->early_size = false;
}

bool input_greet(struct attach *a, struct sg_error *e)
{
    bool use = a->p.takes_input || a->p.lossless; /* receipts of lossless output are a writer's, too */
    answer_early(a);
    keep_place(a);
    if (!use) {
        let_go(a, a->mode == ATTACH_WATCH ? SG_E_UNSUPPORTED : SG_E_STDIN_CLOSED);
        if (a->mode == ATTACH_WRITE) {
            sg_fail(e, SG_E_STDIN_CLOSED, SG_NOT_SENT, "the process was started without input");
            return false;
        }
    }
    a->seat.writes = a->writer != NULL;
    a->seat.changed = on_crowd;
    if (crowd_enter(a->relay, a->session.session_id, a->id, &a->seat))
        return true;
    sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the connection");
    return false;
}

void input_greeted(struct attach *a)
{
    struct sg_error e;
    tell_news(a);
    if (!a->writer || !alive(a) || !a->p.takes_input)
        return;
    /* What is sent again from its first byte paints the screen by itself. */
    bool redraw = !a->fresh && (a->asked[0] || a->p.oldest[0]);
    if (a->cols && a->p.terminal) {
        if (writer_resize(a->writer, a->cols, a->rows, redraw, &e))
            attach_answer(a, &e);
    } else if (a->mode == ATTACH_WRITE && !a->fresh) {
        writer_claim(a->writer); /* says where the input stands, and who writes */
    }
}

void input_drained(struct attach *a)
{
    unsigned writers, watchers;
    tell_news(a);
    crowd_count(&a->seat, &writers, &watchers);
    if (a->seat.crowd)
        on_crowd(&a->seat, writers, watchers);
}

void input_leave(struct attach *a)
{
    crowd_leave(&a->seat);
    drop_held(a);
    if (a->writer)
        writer_release(a->writer);
    a->writer = NULL;
    for (struct attach_act *act = a->acts; act; act = act->next)
        act->a = NULL;
    a->acts = NULL;
    a->nacts = 0;
}

/* ---- acts without a carrier ---- */

static void send_act(struct attach_act *act);

static void act_free(struct attach_act *act)
{
    if (act->a) {
        if (act->next)
            act->next->prev = act->prev;
        if (act->prev)
            act->prev->next = act->next;
        else
            act->a->acts = act->next;
        act->a->nacts--;
    }
    free(act);
}

static void on_acted(void *arg, const struct sg_error *e)
{
    struct attach_act *act = arg;
    struct attach *a = act->a;
    bool root = e && (e->code == SG_E_PERMISSION_DENIED || !strcmp(e->errno_name, "EPERM") ||
                      !strcmp(e->errno_name, "EACCES"));
    if (a && root && !act->sudo) {
        act->sudo = true;
        send_act(act);
        return;
    }
    if (a && !act->signal && a->ack_again) {
        a->ack_again = false;
        send_act(act);
        return;
    }
    if (a && !act->signal)
        a->acking = false;
    bool late =
        e && !act->signal && e->code == SG_E_PROCESS_FINISHED; /* a receipt after the end frees nothing */
    act_free(act);
    if (a && e && !late && e->code != SG_E_DRAINING)
        attach_answer(a, e);
}

static void send_act(struct attach_act *act)
{
    struct attach *a = act->a;
    struct sg_error e;
    struct process_target t = {
        .session = {.session_id = a->session.session_id, .arch = a->session.arch, .cwd = a->session.cwd},
        .id = a->id,
        .sudo = act->sudo};
    enum sg_code rc = act->signal ? process_signal(a->relay, &t.session, a->id, act->signal, !act->whole,
                                                   act->sudo, on_acted, act, &e)
                                  : process_ack(a->relay, &t, a->acked, on_acted, act, &e);
    if (!rc)
        return;
    if (!act->signal)
        a->acking = false;
    act_free(act);
    attach_answer(a, &e);
}

static void begin_act(struct attach *a, int number, bool whole)
{
    struct attach_act *act = a->nacts < ATTACH_ACTS_MAX ? calloc(1, sizeof *act) : NULL;
    if (!act) {
        answer(a, SG_E_OVERLOADED, "too much is asked of this process at a time");
        return;
    }
    act->a = a;
    act->signal = number;
    act->whole = whole;
    act->next = a->acts;
    if (a->acts)
        a->acts->prev = act;
    a->acts = act;
    a->nacts++;
    if (!number)
        a->acking = true;
    send_act(act);
}

/* ---- what the client says ---- */

/* May it give input?  Of a writer that only gives receipts not. */
static bool may_write(const struct attach *a)
{
    return a->writer && (!a->greeted || a->p.takes_input);
}

static void refuse(struct attach *a)
{
    if (a->writer)
        answer(a, SG_E_STDIN_CLOSED, "the process takes no input");
    else if (a->no_writer == SG_E_WRITER_EXISTS)
        answer(a, SG_E_WRITER_EXISTS, "another client writes to the process; attach with takeover=1");
    else if (a->no_writer == SG_E_STDIN_CLOSED || a->no_writer == SG_E_PROCESS_FINISHED)
        answer(a, a->no_writer, "the process takes no input");
    else
        answer(a, SG_E_UNSUPPORTED, "this connection only watches");
}

static void too_large(struct attach *a)
{
    struct sg_error e;
    sg_fail(&e, SG_E_BODY_TOO_LARGE, SG_NOT_SENT, "a message carries at most %d bytes of input",
            FRAME_INPUT_MAX);
    if (attach_flush(a) && attach_send(a, frame_error(&e)))
        attach_close(a, CLOSE_TOO_LARGE, "a message carries at most 1048576 bytes of input");
}

static void take_stdin(struct attach *a, uint64_t offset, const void *data, size_t len)
{
    struct sg_error e;
    size_t taken;
    if (len > FRAME_INPUT_MAX) {
        too_large(a);
        return;
    }
    if (!may_write(a)) {
        refuse(a);
        return;
    }
    if (a->holding) { /* the transport could not stop */
        attach_close(a, CLOSE_FAILED, "out of memory");
        return;
    }
    if (writer_data(a->writer, offset, data, len, &taken, &e)) {
        attach_answer(a, &e);
        return;
    }
    a->early_input = a->early_input || !a->greeted;
    if (taken < len) {
        a->held_offset = offset == INPUT_APPEND ? INPUT_APPEND : offset + taken;
        a->holding = true;
        if (!sg_buf_add(&a->held, (const char *)data + taken, len - taken))
            attach_close(a, CLOSE_FAILED, "out of memory");
        else if (a->io.hold)
            a->io.hold(a->io_arg, true);
    }
}

static void take_resize(struct attach *a, const struct frame_in *in)
{
    struct sg_error e;
    if (!may_write(a))
        refuse(a);
    else if (a->greeted && !a->p.terminal)
        answer(a, SG_E_UNSUPPORTED, "the process has no terminal");
    else if (writer_resize(a->writer, in->cols, in->rows, false, &e))
        attach_answer(a, &e);
    else if (!a->greeted)
        a->early_size = true;
}

static void take_signal(struct attach *a, const struct frame_in *in)
{
    struct sg_error e;
    if (may_write(a) && a->greeted) {
        if (writer_signal(a->writer, in->signal, in->whole, &e))
            attach_answer(a, &e);
    } else if (a->mode != ATTACH_WATCH && !a->p.takes_input && a->no_writer != SG_E_WRITER_EXISTS) {
        /* Before the hello, too: who knows whether it has input, and so a carrier. */
        begin_act(a, in->signal, in->whole);
    } else {
        refuse(a);
    }
}

static void take_close(struct attach *a, const struct frame_in *in)
{
    struct sg_error e;
    if (!may_write(a))
        refuse(a);
    else if (writer_close_input(a->writer, in->offset, &e))
        attach_answer(a, &e);
    else if (!a->greeted)
        a->early_input = true;
}

/* A receipt counts for what was sent to this client. */
static bool receipt(struct attach *a, const struct frame_in *in)
{
    uint64_t received[2] = {in->received[FRAME_STDOUT], in->received[FRAME_STDERR]};
    if (a->p.terminal && in->acked[FRAME_PTY])
        received[0] = in->received[FRAME_PTY];
    for (int s = 0; s < 2; s++) {
        if (received[s] > a->at[s])
            return false;
        if (received[s] > a->acked[s])
            a->acked[s] = received[s];
    }
    return true;
}

static void take_ack(struct attach *a, const struct frame_in *in)
{
    struct sg_error e;
    if (!a->greeted || !a->p.lossless || !a->writer)
        return; /* it would free nothing */
    if (!receipt(a, in)) {
        sg_fail_field(&e, SG_E_INVALID_FIELD, "/ack", "more than was sent");
        attach_answer(a, &e);
    } else if (a->p.takes_input) {
        if (writer_ack(a->writer, a->acked, &e))
            attach_answer(a, &e);
    } else if (a->acking) {
        a->ack_again = true;
    } else {
        begin_act(a, 0, false);
    }
}

static void take_text(struct attach *a, const char *text, size_t len)
{
    struct sg_error e;
    struct frame_in in;
    frame_parse(text, len, a->format == ATTACH_JSON, &in, &e);
    switch (in.kind) {
    case FRAME_DETACH:
        if (attach_flush(a))
            attach_close(a, CLOSE_DONE, "detached");
        break;
    case FRAME_ACK:
        take_ack(a, &in);
        break;
    case FRAME_STDIN:
        take_stdin(a, in.offset, in.data, in.len);
        break;
    case FRAME_STDIN_CLOSE:
        take_close(a, &in);
        break;
    case FRAME_RESIZE:
        take_resize(a, &in);
        break;
    case FRAME_SIGNAL:
        take_signal(a, &in);
        break;
    case FRAME_UNKNOWN:
        attach_answer(a, &e);
        break;
    case FRAME_TOO_LARGE:
        too_large(a);
        break;
    case FRAME_BAD_JSON:
        attach_close(a, CLOSE_BAD_JSON, "not a JSON object");
        break;
    case FRAME_NO_MEMORY:
        attach_close(a, CLOSE_FAILED, "out of memory");
        break;
    }
    frame_clear(&in);
}

void attach_message(struct attach *a, bool text, const void *data, size_t len)
{
    uint64_t offset;
    if (a->closing || a->gone)
        return;
    if (text)
        take_text(a, data, len);
    else if (a->format == ATTACH_JSON)
        attach_close(a, CLOSE_FRAME_TYPE, "this protocol has text frames only");
    else if (!frame_parse_head(data, len, &offset))
        attach_close(a, CLOSE_PROTOCOL, "a binary frame begins with channel 0 and the offset of the input");
    else
        take_stdin(a, offset, (const char *)data + FRAME_HEAD, len - FRAME_HEAD);
}
