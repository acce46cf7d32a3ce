/* POST …/processes/{id}/stdin: bytes of a process's input.
 *
 * A body that fits one call is sent as one, at its offset.  A longer one, one of unknown length that turns out longer,
 * one that takes the input over, and what the program had no room for flow through the relay's writer, which takes
 * what it has room for: the client is paused meanwhile, and nothing is kept here.
 *
 * Callbacks may come from inside the calls that are made here; so they only note what they were told, and `settle`,
 * when the outermost of them is done, decides and frees.
 */
#include "routes/handlers.h"

#include "base/buf.h"
#include "base/core/num.h"
#include "relay/input.h"
#include "routes/ended.h"
#include "routes/process_act.h"
#include "routes/spec.h"

#include <stdlib.h>
#include <string.h>

enum {
    STALL_MS =
        20000, /* without progress for so long the client is told how far it is: no answer takes longer */
    HOLD_MAX =
        512 * 1024, /* what arrives is passed on in pieces of this size, each of which costs a call, … */
    HOLD_MS = 10,   /* … unless nothing more comes for so long */
    FIRST_MS = 200, /* a body of unknown length that has not ended by then is a long one */
};

struct post {
    struct act act;
    char id[SG_WIRE_ID_MAX + 1];
    bool offset_given, close, takeover;
    bool placed;     /* offset is known: given, or asked for */
    uint64_t offset; /* of the body's first byte */
    bool receiving;  /* ex_receive was called */
    bool body_waits; /* the client's side is paused */
    bool body_ended; /* the whole body is here, or was passed on */
    bool sudo;       /* the process is root's */
    bool calling;    /* a single call is under way */
    struct writer *writer;
    bool flowed;       /* a writer was opened: the body is not here any more */
    bool close_asked;  /* of the writer */
    uint64_t given;    /* bytes of the body that the writer dealt with */
    bool known;        /* the following were told */
    uint64_t accepted; /* bytes of input that the process has */
    bool closed, unwanted;
    struct sg_timer *stall, *hold;
    bool flush;         /* what is held goes on, however little it is */
    struct sg_buf body; /* what is not passed on yet */
    int busy;
    bool done, failed;
    struct sg_error e;
};

static void settle(struct post *p);

static void post_free(struct post *p)
{
    if (p->writer)
        writer_release(p->writer);
    sg_timer_free(p->stall);
    sg_timer_free(p->hold);
    sg_buf_free(&p->body);
    act_free(&p->act);
}

static void post_fail(struct act *a, const struct sg_error *e)
{
    if (act_settled(a))
        ended_refuse_upload(a->ex, a->session_id, e);
    post_free((struct post *)a);
}

static void fail(struct post *p, const struct sg_error *e)
{
    if (p->failed || p->done)
        return;
    p->failed = true;
    p->e = *e;
}

/* The client is not there any more: what was sent is sent, the rest is not wanted. */
static void on_client_gone(void *arg)
{
    struct post *p = arg;
    struct exchange *ex = p->act.ex;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_BAD_REQUEST, SG_OUTCOME_UNKNOWN, "the client left");
    p->act.ex = NULL;
    p->act.sandbox = NULL;
    ex_fail(ex, &e);
    if (!p->calling)
        post_free(p);
}

static struct process_target target_of(const struct post *p)
{
    return (struct process_target){.session = act_session(&p->act), .id = p->id, .sudo = p->sudo};
}

static void takes_none(struct post *p)
{
    struct sg_error e;
    bool some = p->accepted > p->offset;
    (void)sg_fail(&e, SG_E_STDIN_CLOSED, some ? SG_STARTED : SG_NOT_STARTED,
                  "the program takes no more input");
    e.accepted = (int64_t)p->accepted;
    fail(p, &e);
}

/* ---- through the writer ---- */

/* What was given and what was asked for is not all done yet. */
static bool outstanding(const struct post *p)
{
    if (!p->writer)
        return false;
    if (!p->known)
        return p->given || p->close_asked;
    return p->accepted < p->offset + p->given || (p->close_asked && !p->closed);
}

static void watch(struct post *p)
{
    if (outstanding(p))
        sg_timer_start(p->stall, STALL_MS);
    else
        sg_timer_stop(p->stall);
}

static size_t give(struct post *p, const char *data, size_t len)
{
    struct sg_error e;
    size_t taken = 0;
    bool idle = !outstanding(p);
    if (!p->writer || p->failed || !len)
        return 0;
    if (writer_data(p->writer, p->placed ? p->offset + p->given : UINT64_MAX, data, len, &taken, &e))
        fail(p, &e);
    p->given += taken;
    if (idle)
        watch(p);
    return taken;
}

static bool whole_given(const struct post *p)
{
    return p->body_ended && !p->body.len;
}

/* What is held goes on, then the body, then its end. */
static void flow(struct post *p)
{
    struct sg_error e;
    if (p->body.len && (p->body_ended || p->flush || p->body.len == HOLD_MAX)) {
        sg_buf_consume(&p->body, give(p, p->body.data, p->body.len));
        p->flush = p->body.len > 0; /* the rest was to go, too */
    }
    if (!p->writer || p->failed)
        return;
    if (p->body_waits && p->body.len < HOLD_MAX) {
        p->body_waits = false;
        ex_receive_resume(p->act.ex);
    }
    if (!whole_given(p) || !p->close || p->close_asked)
        return;
    p->close_asked = true;
    if (writer_close_input(p->writer, UINT64_MAX, &e))
        fail(p, &e);
    watch(p);
}

static void on_accepted(void *arg, uint64_t accepted, size_t room, bool closed, bool unwanted)
{
    struct post *p = arg;
    (void)room;
    p->busy++;
    bool progress = !p->known || accepted != p->accepted || closed != p->closed;
    p->known = true;
    p->accepted = accepted;
    p->closed = closed;
    p->unwanted = unwanted;
    if (!p->placed) {
        p->placed = true;
        p->offset = accepted;
    }
    if (unwanted && !closed)
        takes_none(p);
    if (progress)
        watch(p);
    if (p->busy == 1)
        flow(p);
    p->busy--;
    settle(p);
}

static void on_writer_end(void *arg, const struct sg_error *e)
{
    struct post *p = arg;
    p->busy++;
    bool all = e->outcome == SG_FINISHED && whole_given(p);
    if (all && p->placed && e->accepted >= 0 && (uint64_t)e->accepted >= p->offset + p->given) {
        /* it ended after it had got everything */
        p->accepted = (uint64_t)e->accepted;
        p->closed = p->close;
        p->done = !p->failed;
    } else {
        struct sg_error own = *e; /* its outcome is about what was written, ours about the whole body */
        if (own.outcome == SG_FINISHED)
            own.outcome = own.accepted > (int64_t)p->offset ? SG_STARTED : SG_NOT_STARTED;
        fail(p, &own);
    }
    p->busy--;
    settle(p);
}

static void on_stall(void *arg)
{
    struct post *p = arg;
    struct sg_error e;
    if (!outstanding(p))
        return;
    p->busy++;
    if (p->known) {
        (void)sg_fail(&e, SG_E_STDIN_FULL, SG_STARTED,
                      "no more of the input was taken for %d s; go on from `accepted`, with Upload-Offset",
                      STALL_MS / 1000);
        e.accepted = (int64_t)p->accepted;
    } else {
        (void)sg_fail(&e, SG_E_UPSTREAM_TIMEOUT, SG_OUTCOME_UNKNOWN,
                      "no way to the program's input was found");
    }
    fail(p, &e);
    p->busy--;
    settle(p);
}

static void open_writer(struct post *p)
{
    static const struct writer_events ev = {.on_accepted = on_accepted, .on_end = on_writer_end};
    struct sg_error e;
    struct writer_spec spec = {
        .session = act_session(&p->act), .id = p->id, .takeover = p->takeover, .sudo = p->sudo};
    p->flowed = true;
    p->given = 0;
    p->known = false;
    sg_timer_stop(p->hold);
    p->writer = writer_open(p->act.gw->relay, &spec, &ev, p, &e);
    if (!p->writer) {
        fail(p, &e);
        return;
    }
    writer_claim(p->writer); /* while the body comes */
    flow(p);
}

/* ---- as single calls ---- */

static void write_input(struct post *p);
static void close_input(struct post *p);

/* The call ended.  False: nobody is there any more, p is freed. */
static bool returned(struct post *p)
{
    p->calling = false;
    if (p->act.ex)
        return true;
    post_free(p);
    return false;
}

static bool again_as_root(struct post *p, const struct sg_error *e)
{
    if (!process_needs_root(e) || p->sudo)
        return false;
    p->sudo = true;
    return true;
}

/* A process that has ended had got all of it before: sent again, or the answer was lost. */
static bool had_it_all(const struct post *p)
{
    return p->e.code == SG_E_PROCESS_FINISHED && p->placed && p->accepted >= p->offset + p->body.len &&
           (p->body.len || p->e.outcome == SG_OUTCOME_UNKNOWN);
}

/* How far the input is belongs to the news that it is over; where it cannot be had, it is left out. */
static void on_last_look(void *arg, const struct sg_wire_process *list, size_t n, const struct sg_error *e)
{
    struct post *p = arg;
    if (!returned(p))
        return;
    p->failed = true;
    if (!e && n) {
        p->accepted = list[0].input;
        p->e.accepted = (int64_t)(list[0].input < INT64_MAX ? list[0].input : INT64_MAX);
        if (had_it_all(p)) {
            p->failed = false;
            p->done = true;
            p->closed = p->close;
        }
    }
    settle(p);
}

static void fail_call(struct post *p, const struct sg_error *e)
{
    struct sg_error own;
    struct relay_session s = act_session(&p->act);
    bool over = e->code == SG_E_PROCESS_FINISHED || e->code == SG_E_STDIN_CLOSED;
    if (over && e->accepted < 0) {
        p->e = *e;
        p->calling = !process_status(p->act.gw->relay, &s, p->id, 0, on_last_look, p, &own);
        if (p->calling)
            return;
    }
    fail(p, e);
}

static void on_closed(void *arg, const struct process_input *in, const struct sg_error *e)
{
    struct post *p = arg;
    if (!returned(p))
        return;
    p->busy++;
    if (again_as_root(p, e)) {
        close_input(p);
    } else if (e) {
        fail_call(p, e);
    } else {
        p->accepted = in->accepted;
        p->closed = in->closed;
        writer_passed_by(p->act.gw->relay, p->act.session_id, p->id);
        if (in->unwanted && !in->closed)
            takes_none(p);
        else
            p->done = true;
    }
    p->busy--;
    settle(p);
}

static void close_input(struct post *p)
{
    struct sg_error e;
    struct process_target t = target_of(p);
    if (process_close_input(p->act.gw->relay, &t, p->offset + p->body.len, on_closed, p, &e))
        fail(p, &e);
    else
        p->calling = true;
}

static void on_written(void *arg, const struct process_input *in, const struct sg_error *e)
{
    struct post *p = arg;
    if (!returned(p))
        return;
    p->busy++;
    if (again_as_root(p, e)) {
        write_input(p);
    } else if (e) {
        fail_call(p, e);
    } else {
        p->accepted = in->accepted;
        p->closed = in->closed;
        if (in->unwanted && !in->closed)
            takes_none(p);
        else if (in->accepted < p->offset + p->body.len)
            open_writer(p); /* no room now: it waits for some */
        else if (p->close && !in->closed)
            close_input(p);
        else
            p->done = true;
    }
    p->busy--;
    settle(p);
}

static void write_input(struct post *p)
{
    struct sg_error e;
    struct process_target t = target_of(p);
    if (process_write(p->act.gw->relay, &t, p->offset, p->body.data, p->body.len, on_written, p, &e))
        fail(p, &e);
    else
        p->calling = true;
}

static void act_at_offset(struct post *p)
{
    if (p->body.len) {
        write_input(p);
    } else if (p->close) {
        close_input(p);
    } else if (p->offset > p->accepted) {
        struct sg_error e;
        (void)sg_fail(&e, SG_E_STDIN_OFFSET, SG_NOT_STARTED, "%llu bytes of input have been accepted",
                      (unsigned long long)p->accepted);
        e.accepted = (int64_t)p->accepted;
        fail(p, &e);
    } else {
        p->done = true;
    }
}

static void take_status(struct post *p, const struct sg_wire_process *s)
{
    struct sg_error e;
    p->accepted = s->input;
    if (s->how != SG_HOW_NONE || s->state == SG_PS_FINISHED)
        (void)sg_fail(&e, SG_E_PROCESS_FINISHED, SG_NOT_STARTED, "the process has ended");
    else if (!s->takes_input)
        (void)sg_fail(&e, SG_E_STDIN_CLOSED, SG_NOT_STARTED, "the program takes no input");
    if (s->how != SG_HOW_NONE || s->state == SG_PS_FINISHED || !s->takes_input) {
        e.accepted = (int64_t)(s->input < INT64_MAX ? s->input : INT64_MAX);
        fail(p, &e);
        return;
    }
    if (!p->placed) {
        p->placed = true;
        p->offset = s->input;
    }
    act_at_offset(p);
}

static void on_status(void *arg, const struct sg_wire_process *list, size_t n, const struct sg_error *e)
{
    struct post *p = arg;
    struct sg_error own;
    if (!returned(p))
        return;
    p->busy++;
    if (!e && !n) {
        (void)sg_fail(&own, SG_E_PROCESS_NOT_FOUND, SG_FINISHED, "no such process in this session");
        e = &own;
    }
    if (e)
        fail(p, e);
    else
        take_status(p, &list[0]);
    p->busy--;
    settle(p);
}

/* The whole body is in the buffer. */
static void send_body(struct post *p)
{
    struct sg_error e;
    struct relay_session s = act_session(&p->act);
    if (p->takeover) {
        open_writer(p);
    } else if (writer_present(p->act.gw->relay, p->act.session_id, p->id)) {
        (void)sg_fail(&e, SG_E_WRITER_EXISTS, SG_NOT_SENT,
                      "another client of this gateway writes to the process");
        fail(p, &e);
    } else if (p->offset_given && (p->body.len || p->close)) {
        act_at_offset(p);
    } else if (process_status(p->act.gw->relay, &s, p->id, 0, on_status, p, &e)) {
        fail(p, &e);
    } else {
        p->calling = true;
    }
}

/* ---- the body ---- */

static void on_hold(void *arg)
{
    struct post *p = arg;
    p->busy++;
    p->flush = true;
    if (p->flowed)
        flow(p);
    else if (!p->body_ended)
        open_writer(p);
    p->busy--;
    settle(p);
}

/* Takes what there is room for. */
static size_t hold(struct post *p, const char *data, size_t len)
{
    struct sg_error e;
    size_t room = (p->flowed ? HOLD_MAX : PROCESS_WRITE_MAX) - p->body.len;
    size_t n = len < room ? len : room;
    if (n && !sg_buf_add(&p->body, data, n)) {
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_OUTCOME_UNKNOWN, "no memory for the input");
        fail(p, &e);
        return 0;
    }
    if (p->flowed)
        flow(p);
    else if (n < len)
        open_writer(p);
    return n;
}

static size_t on_body(void *arg, const char *data, size_t len)
{
    struct post *p = arg;
    size_t taken = 0, n;
    bool first = !p->body.len, flowed;
    p->busy++;
    p->body_waits = false;
    do {
        flowed = p->flowed;
        n = hold(p, data + taken, len - taken);
        taken += n;
    } while ((n || flowed != p->flowed) && taken < len && !p->failed);
    p->body_waits = taken < len;
    if (p->body.len && p->flowed && !p->flush)
        sg_timer_start(p->hold, HOLD_MS);
    else if (first && !p->flowed && p->act.ex->content_length < 0)
        sg_timer_start(p->hold, FIRST_MS);
    p->busy--;
    settle(p);
    return taken;
}

static void on_body_end(void *arg)
{
    struct post *p = arg;
    p->busy++;
    p->body_ended = true;
    sg_timer_stop(p->hold);
    if (p->flowed)
        flow(p);
    else
        send_body(p);
    p->busy--;
    settle(p);
}

/* ---- the answer ---- */

static bool complete(const struct post *p)
{
    return p->writer && p->known && whole_given(p) && p->accepted >= p->offset + p->given &&
           (p->close ? p->closed : true);
}

static void settle(struct post *p)
{
    if (p->busy || p->calling)
        return;
    if (p->failed) {
        if (p->flowed)
            p->act.cached = false; /* the body is gone: no second attempt */
        p->failed = false;
        if (act_retry(&p->act, &p->e))
            return;
        if (p->writer)
            writer_release(p->writer);
        p->writer = NULL;
        sg_timer_stop(p->stall);
        sg_timer_stop(p->hold);
        p->calling = true; /* nothing more is decided, however long it takes to find the right words */
        p->act.fail(&p->act, &p->e);
    } else if (p->done || complete(p)) {
        json_t *o =
            json_pack("{sIsb}", "accepted", (json_int_t)(p->accepted < INT64_MAX ? p->accepted : INT64_MAX),
                      "closed", p->closed);
        struct sg_error e;
        if (!o) {
            (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
            post_fail(&p->act, &e);
            return;
        }
        if (act_settled(&p->act))
            ex_answer_json(p->act.ex, 200, o);
        else
            json_decref(o);
        post_free(p);
    }
}

static void post_go(struct act *a)
{
    static const struct ex_sink sink = {on_body, on_body_end};
    struct post *p = (struct post *)a;
    ex_on_gone(a->ex, on_client_gone, p);
    p->placed = p->offset_given;
    p->busy++;
    if (!p->receiving) {
        p->receiving = true;
        if (p->takeover || a->ex->content_length > PROCESS_WRITE_MAX)
            open_writer(p); /* it refuses before a long body is on its way */
        if (!p->failed)
            ex_receive(a->ex, &sink, p);
    } else {
        send_body(p);
    }
    p->busy--;
    settle(p);
}

/* ---- the request ---- */

static enum sg_code query_flag(struct exchange *ex, const char *key, bool *out, struct sg_error *e)
{
    int64_t n = 0;
    enum sg_code rc = ex_query_int(ex, key, 0, 1, &n, e);
    *out = n == 1;
    return rc;
}

static enum sg_code parse(struct exchange *ex, struct post *q, struct sg_error *e)
{
    static const char *const allowed[] = {"close", "takeover", "session", NULL};
    const char *offset = ex_header(ex, "Upload-Offset");
    enum sg_code rc = ex_query_only(ex, allowed, e);
    if (!rc)
        rc = query_flag(ex, "close", &q->close, e);
    if (!rc)
        rc = query_flag(ex, "takeover", &q->takeover, e);
    if (!rc)
        rc = process_id(ex, e);
    if (!rc && offset && !sg_parse_u64(offset, strlen(offset), SPEC_OFFSET_MAX, &q->offset))
        rc = sg_fail(e, SG_E_BAD_REQUEST, SG_NOT_SENT, "Upload-Offset must be a number of bytes");
    q->offset_given = offset != NULL;
    return rc;
}

void route_process_stdin(struct exchange *ex)
{
    struct sg_error e;
    struct post *p = act_new(ex, sizeof *p, post_go, post_fail);
    if (!p)
        return;
    if (parse(ex, p, &e)) {
        act_fail(&p->act, &e);
        return;
    }
    sg_buf_init(&p->body, HOLD_MAX);
    p->stall = sg_timer_new(p->act.gw->loop, on_stall, p);
    p->hold = sg_timer_new(p->act.gw->loop, on_hold, p);
    if (!p->stall || !p->hold) {
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
        post_fail(&p->act, &e);
        return;
    }
    ended_refuse(&p->act);
    memcpy(p->id, ex->params[1], strlen(ex->params[1]) + 1);
    act_begin(&p->act);
}
