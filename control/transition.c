/* Stop and resume: from wherever the sandbox is to where the caller wants it, within the caller's patience. */
#include "control/control.h"
#include "control/look.h"
#include "control/record.h"

#include "base/buf.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

enum { POLL_FIRST_MS = 200, POLL_MAX_MS = 2000, MOVE_LIMIT_MS = 10 * 60 * 1000, DOUBTS_MAX = 4 };

struct move {
    struct control_op op;
    struct control *c;
    char *name;
    bool to_running; /* resume; else stop */
    bool asks;       /* the look that is under way, or comes next, resumes */
    bool checked;    /* its state is the one that the caller expects, or none is expected */
    bool failed;     /* nobody knows whether the act arrived; why says how it failed */
    bool gone;       /* the snapshot is: the look is for its name */
    control_fits_fn *fits;
    bool acted;            /* the upstream was told: what the caller asked for is under way */
    bool overdue;          /* wait_ms is over */
    bool preparing;        /* inside of what begins it */
    bool stopped;          /* the upstream said so; a session seen afterwards is somebody else's */
    void *ticket;          /* what comes before telling is under way */
    char *prepared;        /* the session in which it was done */
    char *told;            /* the session that the upstream was asked to stop … */
    bool refused;          /* … and said that it is over, or not known */
    struct sg_error why;   /* its words */
    int doubts;            /* how often a look showed something else nevertheless */
    control_move_fn *done; /* NULL: answered, the rest happens unseen */
    void *arg;
    json_t *record; /* the last one seen */
    struct look *look;
    struct vercel_call *call; /* of the stop */
    struct sg_timer *wait, *poll;
    uint64_t poll_ms;
    int64_t deadline; /* monotonic */
};

static void move_look(struct move *m);

static void move_free(struct move *m)
{
    control_op_remove(m->c, &m->op);
    if (m->look)
        look_cancel(m->look);
    if (m->call)
        vercel_call_cancel(m->call);
    if (m->ticket)
        m->c->before_stop.cancel(m->ticket);
    sg_timer_free(m->wait);
    sg_timer_free(m->poll);
    json_decref(m->record);
    free(m->told);
    free(m->prepared);
    free(m->name);
    free(m);
}

static void answer(struct move *m, bool pending, const struct sg_error *e)
{
    control_move_fn *done = m->done;
    m->done = NULL;
    control_await_look(m->c, m->name);
    if (!done)
        return;
    json_t *record = e ? NULL : json_incref(m->record);
    done(m->arg, record, pending, e);
}

static void move_end(struct control_op *op, const struct sg_error *e)
{
    struct move *m = (struct move *)op;
    struct sg_error own = *e;
    if (m->stopped && own.outcome != SG_FINISHED)
        own.outcome = SG_STARTED; /* the stop was accepted; what failed is looking how far it is */
    answer(m, false, &own);
    move_free(m);
}

/* The caller's patience is over: it is answered once the upstream has been told. */
static void check_overdue(struct move *m)
{
    if (m->overdue && m->acted)
        answer(m, true, NULL);
}

static void on_wait_over(void *arg)
{
    struct move *m = arg;
    m->overdue = true;
    check_overdue(m);
}

static void on_poll(void *arg)
{
    move_look(arg);
}

static void look_later(struct move *m)
{
    if (sg_mono_ms() >= m->deadline) {
        struct sg_error e;
        (void)sg_fail(&e, SG_E_SANDBOX_TRANSITION, SG_OUTCOME_UNKNOWN,
                      "the sandbox did not get there in time");
        move_end(&m->op, &e);
        return;
    }
    sg_timer_start(m->poll, m->poll_ms);
    m->poll_ms = m->poll_ms * 3 / 2 < POLL_MAX_MS ? m->poll_ms * 3 / 2 : POLL_MAX_MS;
}

static void on_stopped(void *arg, json_t *json, const struct sg_error *e)
{
    (void)json;
    struct move *m = arg;
    m->call = NULL;
    session_cache_forget(m->c->sessions, m->name);
    /* over already, somebody else is stopping it, or nobody knows: a look tells */
    m->failed = e && e->outcome == SG_OUTCOME_UNKNOWN;
    if (e && !m->failed && e->code != SG_E_STALE_SESSION && e->code != SG_E_SANDBOX_TRANSITION &&
        e->code != SG_E_UPSTREAM_NOT_FOUND) {
        move_end(&m->op, e);
        return;
    }
    m->stopped = !e;
    m->refused = e && !m->failed && e->code != SG_E_SANDBOX_TRANSITION;
    if (e)
        m->why = *e;
    move_look(m);
}

static void tell_stop(struct move *m, const char *session_id)
{
    struct sg_error e;
    struct sg_buf path;
    sg_buf_init(&path, 1024);
    (void)sg_buf_adds(&path, "/v2/sandboxes/sessions/");
    (void)sg_buf_add_urlenc(&path, session_id);
    (void)sg_buf_adds(&path, "/stop");
    free(m->told);
    m->told = strdup(session_id);
    m->refused = m->failed = false;
    if (path.failed || !m->told) {
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
    } else {
        /* stopping twice is stopping once */
        struct vercel_request r = {.method = "POST",
                                   .path = path.data,
                                   .body = "{}",
                                   .body_len = 2,
                                   .class = VERCEL_CONTROL,
                                   .idempotent = true,
                                   .timeout_ms = MOVE_LIMIT_MS};
        m->call = vercel_json_start(m->c->vercel, &r, on_stopped, m, &e);
    }
    sg_buf_free(&path);
    if (!m->call) {
        move_end(&m->op, &e);
        return;
    }
    m->acted = true;
    check_overdue(m);
}

/* ---- before it is told ---- */

static void on_prepared(void *arg)
{
    struct move *m = arg;
    m->ticket = NULL;
    if (m->preparing) {
        m->preparing = false; /* still inside prepare_stop */
        return;
    }
    tell_stop(m, m->prepared);
}

/* Tells the session to stop, once what has to come before has been done in it. */
static void prepare_stop(struct move *m, const struct vercel_sandbox *s)
{
    const struct control_before_stop *b = &m->c->before_stop;
    const struct control_session session = {.session_id = s->session_id,
                                            .cwd = s->session_cwd ? s->session_cwd : s->cwd,
                                            .arch = s->architecture,
                                            .deadline_ms = control_deadline(s)};
    bool again = m->prepared && strcmp(m->prepared, s->session_id) == 0;
    if (!again) {
        free(m->prepared);
        m->prepared = strdup(s->session_id);
    }
    if (!b->begin || !m->prepared || again || !session.cwd) {
        tell_stop(m, s->session_id);
        return;
    }
    m->preparing = true;
    m->ticket = b->begin(b->arg, m->name, &session, on_prepared, m);
    if (m->ticket)
        m->preparing = false;
    else
        tell_stop(m, m->prepared);
}

static bool on_its_way(enum vercel_status s)
{
    return s == VERCEL_STOPPING || s == VERCEL_SNAPSHOTTING;
}

/* A session runs although the stop was refused because it were over: another one began meanwhile, or the look
 * is older than the refusal, or the refusal was wrong. */
static void doubt(struct move *m, const struct vercel_sandbox *s)
{
    if (++m->doubts > DOUBTS_MAX) {
        struct sg_error why = m->why;
        move_end(&m->op, &why);
    } else if (strcmp(m->told, s->session_id) != 0) {
        prepare_stop(m, s);
    } else {
        look_later(m);
    }
}

static void go_on(struct move *m)
{
    m->acted = true; /* what was asked for is under way, by whomever */
    check_overdue(m);
    look_later(m);
}

static void decide_stop(struct move *m, const struct vercel_sandbox *s)
{
    enum vercel_status status = control_status(s);
    bool running = status == VERCEL_RUNNING;
    bool over = status == VERCEL_STOPPED || status == VERCEL_FAILED || status == VERCEL_ABORTED;
    if (over || m->stopped || !s->session_id) {
        answer(m, false, NULL);
        move_free(m);
    } else if (m->failed && running && strcmp(m->told, s->session_id) == 0) {
        struct sg_error why = m->why;
        move_end(&m->op, &why);
    } else if ((m->refused || m->failed) && running) {
        doubt(m, s);
    } else if (on_its_way(status) || m->acted) {
        go_on(m);
    } else {
        prepare_stop(m, s);
    }
}

/* It runs, comes up, still goes down, or did not come up. */
static void decide_resume(struct move *m, const struct vercel_sandbox *s, bool asked)
{
    enum vercel_status status = control_status(s);
    if (status == VERCEL_RUNNING) {
        bool unknown = m->failed || (asked && s->asked_again && !s->resumed);
        json_t *resumed = unknown ? json_null() : json_boolean(asked ? s->resumed : m->acted);
        (void)json_object_set_new(m->record, "resumed", resumed);
        answer(m, false, NULL);
        move_free(m);
    } else if (status == VERCEL_PENDING) {
        go_on(m);
    } else if (m->failed) { /* no trace of it */
        struct sg_error why = m->why;
        move_end(&m->op, &why);
    } else if (!asked && !m->acted && !on_its_way(status)) {
        m->asks = true;
        move_look(m);
    } else if (!on_its_way(status) &&
               (status == VERCEL_FAILED || status == VERCEL_ABORTED || ++m->doubts > DOUBTS_MAX)) {
        struct sg_error e;
        (void)sg_fail(&e, SG_E_SANDBOX_NOT_RUNNING, SG_FINISHED, "its new session did not come up: it is %s",
                      vercel_status_name(status));
        move_end(&m->op, &e);
    } else { /* the session before goes down, or somebody else stopped it meanwhile */
        m->asks = true;
        go_on(m);
    }
}

/* A resume found no snapshot, and this is what the sandbox says that it needs. */
static void tell_gone(struct move *m, const struct vercel_sandbox *s)
{
    struct sg_error why = m->why;
    if (s->current_snapshot_id)
        (void)sg_fail(&why, SG_E_SNAPSHOT_GONE, SG_NOT_STARTED,
                      "the snapshot %.100s, which it would be resumed from, no longer exists",
                      s->current_snapshot_id);
    why.upstream_status = m->why.upstream_status;
    memcpy(why.upstream_code, m->why.upstream_code, sizeof why.upstream_code);
    memcpy(why.upstream_request_id, m->why.upstream_request_id, sizeof why.upstream_request_id);
    move_end(&m->op, &why);
}

/* True: it goes on nevertheless. */
static bool bear(struct move *m, bool asked, const struct sg_error *e)
{
    if (m->failed || m->gone)
        return false;
    if (e->code == SG_E_SANDBOX_TRANSITION) {
        m->asks = asked;
        look_later(m);
        return true;
    }
    m->gone = asked && (e->code == SG_E_SNAPSHOT_GONE || e->code == SG_E_STALE_SESSION);
    m->failed = asked && e->outcome == SG_OUTCOME_UNKNOWN;
    if (!m->gone && !m->failed)
        return false;
    m->why = *e;
    if (m->gone)
        m->why.code = SG_E_SNAPSHOT_GONE;
    move_look(m); /* a plain one */
    return true;
}

static bool fits(struct move *m)
{
    char etag[CONTROL_ETAG_LEN + 1];
    if (m->checked)
        return true;
    m->checked = true;
    return control_record_etag(m->record, etag) && m->fits(m->arg, etag);
}

static void on_look(void *arg, struct vercel_sandbox *s, const struct store_sandbox *known,
                    const struct sg_error *e)
{
    struct move *m = arg;
    bool asked = m->asks;
    m->look = NULL;
    m->asks = false;
    if (e && bear(m, asked, e))
        return;
    if (e) { /* the first error is the one that says what happened */
        struct sg_error first = m->failed || m->gone ? m->why : *e;
        move_end(&m->op, &first);
        return;
    }
    control_observe(m->c, s);
    json_t *record = control_record(s, known, sg_wall_ms());
    json_decref(m->record);
    m->record = record;
    struct sg_error own;
    if (!record) {
        (void)sg_fail(&own, SG_E_OUT_OF_MEMORY, SG_OUTCOME_UNKNOWN, "no memory for the answer");
        move_end(&m->op, &own);
    } else if (!fits(m)) {
        (void)sg_fail(&own, SG_E_PRECONDITION_FAILED, SG_NOT_STARTED,
                      "the sandbox is in another state than If-Match says");
        move_end(&m->op, &own);
    } else if (m->gone)
        tell_gone(m, s);
    else if (m->to_running)
        decide_resume(m, s, asked);
    else
        decide_stop(m, s);
}

static void move_look(struct move *m)
{
    struct sg_error e;
    m->look = look_start(m->c, m->name, m->asks, on_look, m, &e);
    if (!m->look) {
        move_end(&m->op, &e);
        return;
    }
    m->acted |= m->asks;
    check_overdue(m);
}

static void move_start(struct control *c, const char *name, bool to_running, const struct control_move *how,
                       control_move_fn *done, void *arg)
{
    struct sg_error e;
    if (control_name_for_lookup(name, &e)) {
        done(arg, NULL, false, &e);
        return;
    }
    struct move *m = calloc(1, sizeof *m);
    if (!m) {
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
        done(arg, NULL, false, &e);
        return;
    }
    *m = (struct move){
        .op.end = move_end,
        .c = c,
        .name = strdup(name),
        .to_running = to_running,
        .asks = to_running && !how->fits, /* its first look is the act */
        .checked = !how->fits,
        .fits = how->fits,
        .done = done,
        .arg = arg,
        .wait = sg_timer_new(c->loop, on_wait_over, m),
        .poll = sg_timer_new(c->loop, on_poll, m),
        .poll_ms = POLL_FIRST_MS,
        .deadline = sg_mono_ms() + MOVE_LIMIT_MS,
    };
    control_op_add(c, &m->op);
    if (!m->name || !m->wait || !m->poll) {
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
        move_end(&m->op, &e);
        return;
    }
    sg_timer_start(m->wait, (uint64_t)how->wait_ms);
    move_look(m);
}

void control_resume(struct control *c, const char *name, const struct control_move *how,
                    control_move_fn *done, void *arg)
{
    move_start(c, name, true, how, done, arg);
}

void control_stop(struct control *c, const char *name, const struct control_move *how, control_move_fn *done,
                  void *arg)
{
    move_start(c, name, false, how, done, arg);
}

bool control_resuming(const struct control *c, const char *name)
{
    for (const struct control_op *op = c->ops; op; op = op->next) {
        const struct move *m = (const struct move *)op;
        if (op->end == move_end && m->to_running && strcmp(m->name, name) == 0)
            return true;
    }
    return false;
}
