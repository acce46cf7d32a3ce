#include "relay/cursor.h"
#include "relay/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* First the `run` call itself, which is all there is for a short command; then, if it was cut or said "more",
 * a follower from where we are; in between a settle when it is not known whether it started at all. */
struct run {
    struct relay_obj obj;
    struct session_copy session;
    char id[SG_WIRE_ID_MAX + 1];
    size_t max_output;
    struct sg_buf out[2];
    bool stopped[2]; /* nothing more is stored: full, or a gap */
    bool gap, over;  /* bytes were evicted before they were read; more than max_output came */
    struct cursor at;
    struct sg_wire_process p;
    bool exists, exit_known;
    int64_t grace_ms;
    bool overdue;  /* wait_ms is over: answer as soon as it is known to run */
    bool detached; /* nobody listens any more: only see the start through */
    struct guest_call *call;
    struct follower *follower;
    struct ask *settle;
    struct stage *stage;    /* the input is on its way; the call waits for it */
    struct relay_args args; /* meanwhile */
    json_t *env;
    bool sudo;
    struct sg_timer *timer;
    struct sg_error why; /* the call was lost because of */
    run_done_fn *done;
    void *arg;
};

static void destroy(struct relay_obj *o)
{
    struct run *r = (struct run *)o;
    session_free(&r->session);
    sg_buf_free(&r->out[0]);
    sg_buf_free(&r->out[1]);
    sg_timer_free(r->timer);
    args_free(&r->args);
    json_decref(r->env);
    free(r);
}

/* Stops everything; destroyed at the end of the turn. */
static void drop(struct run *r)
{
    if (r->call)
        guest_cancel(r->call);
    if (r->follower)
        follower_close(r->follower);
    if (r->settle)
        ask_cancel(r->settle);
    if (r->stage)
        stage_cancel(r->stage);
    r->stage = NULL;
    r->call = NULL;
    r->follower = NULL;
    r->settle = NULL;
    if (r->timer)
        sg_timer_stop(r->timer);
    obj_bury(&r->obj);
}

static void fail(struct run *r, const struct sg_error *e)
{
    struct sg_error copy = *e;
    if (r->exists && copy.outcome != SG_FINISHED)
        copy.outcome = SG_STARTED;
    drop(r);
    if (!r->detached)
        r->done(r->arg, NULL, &copy);
}

static bool all_read(const struct run *r)
{
    for (int s = 0; s < 2; s++)
        if (r->at.pos[s] < r->p.end[s] && r->out[s].len < r->max_output)
            return false;
    return true;
}

static void answer(struct run *r)
{
    bool truncated = r->gap || r->over;
    for (int s = 0; r->exit_known && s < 2; s++)
        truncated = truncated || r->p.end[s] > r->out[s].len;
    struct run_result res = {
        .p = r->p,
        .out = {r->out[0].data ? r->out[0].data : "", r->out[1].data ? r->out[1].data : ""},
        .len = {r->out[0].len, r->out[1].len},
        .own = {&r->out[0], &r->out[1]},
        .truncated = truncated,
        .output_complete = r->exit_known && !r->p.output_incomplete && !r->gap && all_read(r),
    };
    if (r->exit_known) {
        const struct relay_last last = {.head = {res.out[0], res.out[1]}, .len = {res.len[0], res.len[1]}};
        relay_tell_ended(r->obj.relay, r->session.session_id, &r->p, &last);
    } else {
        relay_tell_seen(r->obj.relay, r->session.session_id, &r->p);
    }
    drop(r);
    if (!r->detached)
        r->done(r->arg, &res, NULL);
}

static void store(struct run *r, int s, const void *data, size_t len)
{
    if (r->stopped[s]) {
        r->over = true;
        return;
    }
    size_t room = r->max_output - r->out[s].len;
    if (len > room) {
        r->over = true;
        len = room;
    }
    if (!sg_buf_add(&r->out[s], data, len)) { /* no memory: what is there is a true prefix */
        r->over = true;
        r->stopped[s] = true;
    }
    if (r->out[s].len == r->max_output)
        r->stopped[s] = true;
}

/* ---- the follower ---- */

static void f_hello(void *arg, const struct sg_wire_process *p)
{
    struct run *r = arg;
    r->p = *p;
}

static bool f_data(void *arg, int stream, uint64_t offset, const void *data, size_t len)
{
    struct run *r = arg;
    r->at.pos[stream] = offset + len;
    store(r, stream, data, len);
    return true;
}

static void f_gap(void *arg, int stream, uint64_t from, uint64_t to)
{
    struct run *r = arg;
    (void)from;
    r->at.pos[stream] = to;
    r->gap = true;
    r->stopped[stream] = true;
}

static void f_end(void *arg, const struct sg_wire_process *p, const struct sg_error *e)
{
    struct run *r = arg;
    if (!p) {
        fail(r, e);
        return;
    }
    r->p = *p;
    r->exit_known = true;
    answer(r);
}

static void follow(struct run *r)
{
    if (r->detached) { /* it exists: all that was left to see */
        drop(r);
        return;
    }
    if (r->overdue) {
        answer(r);
        return;
    }
    struct follow_spec spec = {
        .session = {r->session.session_id, r->session.arch, r->session.cwd},
        .id = r->id,
        .offset = {r->at.pos[0], r->at.pos[1]},
        .only = -1,
    };
    struct follower_events ev = {.on_hello = f_hello, .on_data = f_data, .on_gap = f_gap, .on_end = f_end};
    struct sg_error e;
    r->follower = follower_open(r->obj.relay, &spec, &ev, r, &e);
    if (!r->follower)
        fail(r, &e);
}

/* ---- settling ---- */

static void on_settled(void *arg, const struct ask_answer *a)
{
    struct run *r = arg;
    struct sg_error e;
    r->settle = NULL;
    if (!settle_verdict(a, r->id, &r->why, &r->p, &e)) {
        fail(r, &e);
        return;
    }
    r->exists = true;
    follow(r);
}

static void settle(struct run *r)
{
    struct relay_session session = {r->session.session_id, r->session.arch, r->session.cwd};
    struct sg_error e;
    r->settle = settle_start(r->obj.relay, &session, r->id, on_settled, r, &e);
    if (!r->settle) {
        struct ask_answer none = {.e = &e};
        on_settled(r, &none);
    }
}

/* ---- the run call ---- */

/* The call's own stream is of no more use: go on with what is known. */
static void go_on(struct run *r, const struct sg_error *why)
{
    r->why = *why;
    if (r->detached) /* a settle could undo what was promised */
        drop(r);
    else if (r->exists)
        follow(r);
    else if (why->outcome == SG_NOT_SENT || why->outcome == SG_NOT_STARTED)
        fail(r, why);
    else
        settle(r);
}

static void distrust(struct run *r)
{
    struct sg_error e;
    sg_fail(&e, SG_E_UPSTREAM_BAD_RESPONSE, SG_OUTCOME_UNKNOWN,
            "output is missing in the upstream's log stream");
    if (r->call)
        guest_cancel(r->call);
    r->call = NULL;
    go_on(r, &e);
}

static void take_hello(struct run *r, const struct sg_wire_process *h)
{
    if (strcmp(h->id, r->id) != 0) {
        distrust(r);
        return;
    }
    r->p = *h;
    r->exists = h->state != SG_PS_NOT_STARTED;
    if (r->detached && r->exists)
        drop(r);
    else if (r->overdue && r->exists)
        answer(r);
}

static bool on_line(void *arg, const struct sg_wire_line *line)
{
    struct run *r = arg;
    if (line->kind == SG_WIRE_HELLO) {
        take_hello(r, &line->process);
        return true;
    }
    if (line->kind != SG_WIRE_DATA && line->kind != SG_WIRE_GAP)
        return true;
    struct cursor_step step;
    switch (r->exists ? cursor_take(&r->at, line, &step) : CURSOR_HOLE) {
    case CURSOR_OLD:
        break;
    case CURSOR_DATA:
        store(r, step.stream, step.data, step.len);
        break;
    case CURSOR_GAP:
        f_gap(r, step.stream, step.offset, step.to);
        break;
    case CURSOR_HOLE:
        distrust(r);
        break;
    }
    return true;
}

static void take_exit(struct run *r, const struct sg_wire_process *x)
{
    relay_take_exit(&r->p, x);
    r->exit_known = true;
    if (all_read(r))
        answer(r);
    else
        follow(r); /* the last bytes did not come this way */
}

static void on_end(void *arg, const struct sg_wire_line *line, bool hello, const struct sg_error *e)
{
    struct run *r = arg;
    struct sg_error mine;
    (void)hello; /* seen by on_line */
    r->call = NULL;
    if (!line) {
        mine = *e;
        go_on(r, &mine);
    } else if (line->kind == SG_WIRE_ERROR) {
        if (r->exists)
            guest_error(line, &mine);
        else
            start_refused(line, &mine);
        fail(r, &mine);
    } else if (line->kind == SG_WIRE_EXIT && r->exists) {
        take_exit(r, &line->process);
    } else {
        sg_fail(&mine, SG_E_UPSTREAM_BAD_RESPONSE, SG_OUTCOME_UNKNOWN,
                "the helper in the sandbox ended without an answer");
        go_on(r, &mine); /* M: simply the next part */
    }
}

/* ---- the owner's side ---- */

static void on_timer(void *arg)
{
    struct run *r = arg;
    struct sg_error e;
    if (r->exists) {
        if (r->exit_known)
            r->p.output_incomplete = true; /* known to have ended, its last bytes not yet read */
        answer(r);
    } else if (!r->overdue && r->grace_ms > 0) {
        r->overdue = true;
        sg_timer_start(r->timer, (uint64_t)r->grace_ms);
    } else if (r->settle) {
        struct ask_answer none = {.e = &r->why};
        (void)settle_verdict(&none, r->id, &r->why, &r->p, &e);
        fail(r, &e);
    } else { /* the start goes on unheard; the answer says what is known */
        r->p.state = SG_PS_STARTING;
        struct run_result res = {.p = r->p, .out = {"", ""}};
        r->detached = true;
        r->done(r->arg, &res, NULL);
    }
}

void run_cancel(struct run *r)
{
    if (r->exists) {
        drop(r);
        return;
    }
    r->detached = true;
    sg_timer_stop(r->timer);
}

static void abandon(struct relay_obj *o, const struct sg_error *e)
{
    fail((struct run *)o, e);
}

static bool first_call(struct run *r, struct sg_error *e)
{
    struct guest_args g = {.session_id = r->session.session_id,
                           .arch = r->session.arch,
                           .args = (const char *const *)r->args.v,
                           .env = r->env,
                           .sudo = r->sudo};
    struct guest_events ev = {.on_line = on_line, .on_end = on_end};
    r->call = guest_call_start(relay_guestlink(r->obj.relay), &g, &ev, r, e);
    args_free(&r->args);
    return r->call != NULL;
}

static void on_staged(void *arg, const struct sg_error *e)
{
    struct run *r = arg;
    struct sg_error mine;
    r->stage = NULL;
    if (e)
        fail(r, e);
    else if (!first_call(r, &mine))
        fail(r, &mine);
}

static bool begin(struct run *r, const struct process_spec *s, struct sg_error *e)
{
    char file[STAGE_NAME];
    bool staged = stage_needed(s);
    if (staged && !stage_name(file)) {
        sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "no randomness for a name");
        return false;
    }
    if (start_args(s, "run", (int64_t)r->max_output, staged ? file : NULL, &r->args, e))
        return false;
    r->env = json_incref(s->env);
    r->sudo = s->sudo;
    relay_tell_begins(r->obj.relay, r->session.session_id);
    if (!staged)
        return first_call(r, e);
    r->stage = stage_start(r->obj.relay, s, file, on_staged, r, e);
    return r->stage != NULL;
}

struct run *run_start(struct relay *relay, const struct process_spec *s, size_t max_output, int64_t wait_ms,
                      run_done_fn *done, void *arg, struct sg_error *e)
{
    struct run *r = calloc(1, sizeof *r);
    if (!r) {
        sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory to run a process");
        return NULL;
    }
    obj_init(&r->obj, relay, abandon, destroy);
    r->max_output = max_output;
    r->at.only = -1;
    r->done = done;
    r->arg = arg;
    for (int i = 0; i < 2; i++)
        sg_buf_init(&r->out[i], max_output);
    r->timer = sg_timer_new(relay_loop(relay), on_timer, r);
    if (!r->timer || !session_copy(&r->session, &s->session)) {
        sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory to run a process");
        drop(r);
        return NULL;
    }
    if (!begin(r, s, e)) {
        drop(r);
        return NULL;
    }
    (void)snprintf(r->id, sizeof r->id, "%s", s->id);
    (void)snprintf(r->p.id, sizeof r->p.id, "%s", s->id);
    int64_t grace = RELAY_ANSWER_MS - wait_ms;
    r->grace_ms = grace < RELAY_RUN_GRACE_MS ? grace : RELAY_RUN_GRACE_MS;
    if (wait_ms > 0)
        sg_timer_start(r->timer, (uint64_t)wait_ms);
    return r;
}
