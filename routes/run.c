/* POST …/run: start, wait a while, answer with what was printed.  POST …/processes: start only. */
#include "routes/handlers.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "routes/act.h"
#include "routes/ended.h"
#include "routes/idempotency.h"
#include "routes/process_json.h"
#include "routes/run_answer.h"
#include "routes/run_recall.h"
#include "routes/spec.h"

#include <stdio.h>
#include <string.h>

enum { TURNS_MAX = 8 };

struct start {
    struct act act;
    struct spec spec;
    enum spec_form form;
    void (*go)(struct act *a);
    bool noted;    /* the session was noted by this run, not by an earlier one */
    unsigned turn; /* of the id, where that is made of the nonce */
    struct run *run;
    int64_t began_ms; /* monotonic */
};

static const char *const start_query[] = {"session", NULL};

static void start_end(struct start *s, const struct sg_error *e)
{
    spec_clear(&s->spec);
    act_fail(&s->act, e);
}

static bool recalled(struct start *s, const struct sg_error *e);

static void start_fail(struct act *a, const struct sg_error *e)
{
    struct start *s = (struct start *)a;
    if (!recalled(s, e))
        start_end(s, e);
}

static void start_answer(struct start *s, int status, json_t *json)
{
    spec_clear(&s->spec);
    act_answer(&s->act, status, json);
}

static void set_process_location(struct act *a, const char *id)
{
    if (!a->ex)
        return;
    struct sg_buf b;
    sg_buf_init(&b, 1024);
    (void)sg_buf_adds(&b, "/v1/sandboxes/");
    (void)sg_buf_add_urlenc(&b, a->sandbox);
    (void)sg_buf_adds(&b, "/processes/");
    (void)sg_buf_add_urlenc(&b, id);
    if (!b.failed)
        ex_set_header(a->ex, "Location", b.data);
    sg_buf_free(&b);
}

/* ---- under an Idempotency-Key ----
 *
 * The process has the request's own id, so a start that is sent again in its session finds it.  Which session that is has
 * to be known before: in another one the id would be free.  So it is noted first; and who finds a note starts nothing
 * anywhere else. */

/* An earlier run may have started the process, in the session of the note. */
static bool tied(const struct start *s)
{
    const struct exchange *ex = s->act.ex;
    return ex && ex->nonce && ex->again && ex->note[0] && !s->noted;
}

static void lost(struct start *s, const char *why)
{
    struct sg_error e;
    (void)sg_fail(&e, SG_E_OUTCOME_LOST, SG_OUTCOME_UNKNOWN, "%s", why);
    start_end(s, &e);
}

static void on_recalled(void *arg, const struct stored_process *p, const struct sg_error *e)
{
    struct start *s = arg;
    if (e && e->code == SG_E_PROCESS_NOT_FOUND) {
        lost(s, "the session that this was started in is over, and nothing of it was saved");
    } else if (e) {
        struct sg_error own = *e;
        own.outcome = SG_OUTCOME_UNKNOWN;
        start_end(s, &own);
    } else if (s->act.ex) {
        set_process_location(&s->act, s->spec.id);
        if (s->form == SPEC_RUN)
            start_answer(s, 200, run_recalled_json(p, (size_t)s->spec.max_output));
        else
            start_answer(s, 201, ended_record(p));
    } else {
        start_end(s, NULL);
    }
}

static void recall(struct start *s)
{
    run_recall(s->act.gw, s->act.sandbox, s->act.ex->note, s->spec.id, on_recalled, s);
}

static bool session_is_over(const struct sg_error *e)
{
    return e->code == SG_E_STALE_SESSION || e->code == SG_E_SANDBOX_NOT_RUNNING ||
           e->code == SG_E_SANDBOX_NOT_FOUND || e->code == SG_E_UPSTREAM_NOT_FOUND;
}

/* True: it failed because of what an earlier run did, which is dealt with. */
static bool recalled(struct start *s, const struct sg_error *e)
{
    if (!tied(s))
        return false;
    if (process_start_given_up(e) && s->turn < TURNS_MAX && !json_object_get(s->act.ex->body, "id")) {
        key_process_of(s->act.ex->nonce, ++s->turn, s->spec.id);
        s->go(&s->act);
    } else if (e->code == SG_E_PROCESS_ID_CONFLICT)
        lost(s, "the process of this request was removed, or its start given up");
    else if (session_is_over(e))
        recall(s);
    else
        return false;
    return true;
}

static void on_noted(void *arg, const struct sg_error *e)
{
    struct start *s = arg;
    if (e || !s->act.ex)
        start_end(s, e);
    else
        s->go(&s->act);
}

static void session_go(struct act *a)
{
    struct start *s = (struct start *)a;
    const struct exchange *ex = a->ex;
    if (!ex->nonce || strcmp(ex->note, a->session_id) == 0) {
        s->go(a);
    } else if (tied(s)) {
        recall(s);
    } else {
        s->noted = true;
        ex_note(a->ex, a->session_id, on_noted, s);
    }
}

/* Checks the request and begins; both routes. */
static void begin(struct exchange *ex, enum spec_form form, void (*go)(struct act *a))
{
    struct sg_error e;
    struct spec spec;
    if (ex_query_only(ex, start_query, &e) || spec_parse(ex->body, form, &spec, &e)) {
        ex_fail(ex, &e);
        return;
    }
    if (ex->nonce && !json_object_get(ex->body, "id"))
        key_process_of(ex->nonce, 0, spec.id);
    struct start *s = act_new(ex, sizeof *s, session_go, start_fail);
    if (!s) {
        spec_clear(&spec);
        return;
    }
    s->spec = spec;
    s->form = form;
    s->go = go;
    s->began_ms = sg_mono_ms();
    if (form == SPEC_RUN && ex_prefers_async(ex)) {
        s->spec.wait_ms = 0;
        ex_set_header(ex, "Preference-Applied", "respond-async");
    }
    spec_set_defaults(&s->spec, form, s->act.gw->retain_bytes, s->act.gw->run_max_output);
    s->act.resume = spec.resume && !tied(s); /* what was started is not resumed for its answer */
    act_begin(&s->act);
}

/* ---- run ---- */

/* The client left: nobody wants the answer; the process goes on. */
static void on_run_gone(void *arg)
{
    struct start *s = arg;
    struct sg_error e;
    run_cancel(s->run);
    (void)sg_fail(&e, SG_E_BAD_REQUEST, SG_OUTCOME_UNKNOWN, "the client left");
    start_fail(&s->act, &e);
}

static void on_run(void *arg, const struct run_result *res, const struct sg_error *e)
{
    struct start *s = arg;
    s->run = NULL;
    if (e) {
        if (!act_retry(&s->act, e))
            start_fail(&s->act, e);
        return;
    }
    bool running = res->p.how == SG_HOW_NONE;
    int status = running ? 202 : 200;
    set_process_location(&s->act, s->spec.id);
    if (run_answer_large(res) && s->act.ex) {
        (void)act_settled(&s->act);
        run_answer(s->act.ex, status, res, s->act.session_id);
        spec_clear(&s->spec);
        act_free(&s->act);
        return;
    }
    start_answer(s, status, run_json(res, s->act.session_id));
}

static void run_go(struct act *a)
{
    struct start *s = (struct start *)a;
    struct sg_error e;
    struct process_spec p = spec_for_relay(&s->spec, act_session(a));
    int64_t wait_ms = s->spec.wait_ms - (sg_mono_ms() - s->began_ms); /* resuming took its part */
    if (wait_ms < 1)
        wait_ms = 1; /* for the relay 0 means no limit */
    s->run = run_start(a->gw->relay, &p, (size_t)s->spec.max_output, wait_ms, on_run, s, &e);
    if (s->run)
        ex_on_gone(a->ex, on_run_gone, s);
    else
        start_fail(a, &e);
}

void route_run(struct exchange *ex)
{
    begin(ex, SPEC_RUN, run_go);
}

/* ---- start ---- */

static void on_start(void *arg, const struct sg_wire_process *p, const struct sg_error *e)
{
    struct start *s = arg;
    if (e) {
        if (!act_retry(&s->act, e))
            start_fail(&s->act, e);
        return;
    }
    set_process_location(&s->act, s->spec.id);
    start_answer(s, 201, process_json(p, s->act.session_id));
}

static void process_go(struct act *a)
{
    struct start *s = (struct start *)a;
    struct sg_error e;
    struct process_spec p = spec_for_relay(&s->spec, act_session(a));
    if (process_start(a->gw->relay, &p, on_start, s, &e))
        start_fail(a, &e);
}

void route_process_start(struct exchange *ex)
{
    begin(ex, SPEC_PROCESS, process_go);
}
