#include "relay/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- settling a lost start ---- */

struct ask *settle_start(struct relay *r, const struct relay_session *s, const char *id, ask_done_fn *done,
                         void *arg, struct sg_error *e)
{
    struct relay_args args = {0};
    args_begin(&args, "settle", s->session_id, id);
    struct ask_spec spec = {.session = s,
                            .args = &args,
                            .wait_ms = -1,
                            .retry_ms = relay_limits(r)->settle_ms,
                            .retry_all = true};
    return ask_start(r, &spec, done, arg, e);
}

static const char given_up[] = "the id is used up: its start was given up, and nothing ran; take another";

void start_refused(const struct sg_wire_line *line, struct sg_error *e)
{
    guest_error(line, e);
    if (line->fail == SG_WF_NOT_STARTED && strcmp(line->text, "removed") != 0)
        sg_fail(e, SG_E_PROCESS_ID_CONFLICT, SG_NOT_STARTED, "%s", given_up);
    else if (line->fail == SG_WF_NOT_STARTED || line->fail == SG_WF_NO_RECORD)
        sg_fail(e, SG_E_PROCESS_ID_CONFLICT, SG_NOT_STARTED,
                "the id is used up: its process was removed; take another");
}

bool process_start_given_up(const struct sg_error *e)
{
    return e->code == SG_E_PROCESS_ID_CONFLICT && strcmp(e->detail, given_up) == 0;
}

bool settle_verdict(const struct ask_answer *a, const char *id, const struct sg_error *why,
                    struct sg_wire_process *p, struct sg_error *e)
{
    bool answered = a->hello && !a->e && a->line && !strcmp(a->h.id, id);
    if (answered && a->h.state != SG_PS_NOT_STARTED) {
        *p = a->h;
        return true;
    }
    *e = *why;
    if (answered) {
        e->outcome = SG_NOT_STARTED;
        (void)snprintf(e->detail, sizeof e->detail,
                       "%.100s; process %s was not started and will not be: try again under another id",
                       why->detail, id);
        return false;
    }
    if (a->e && (a->e->code == SG_E_STALE_SESSION || a->e->code == SG_E_SANDBOX_NOT_RUNNING ||
                 a->e->code == SG_E_DRAINING))
        *e = *a->e; /* says more than why the first answer was lost */
    e->outcome = SG_OUTCOME_UNKNOWN;
    (void)snprintf(e->detail, sizeof e->detail,
                   "whether process %s was started could not be found out; ask for it by this id", id);
    return false;
}

/* ---- start ---- */

struct start {
    struct relay *relay;
    struct session_copy session;
    char id[SG_WIRE_ID_MAX + 1];
    struct relay_args args; /* kept while the input is on its way */
    json_t *env;
    bool sudo;
    struct sg_error why; /* the first answer was lost because of */
    process_start_fn *done;
    void *arg;
};

static void start_free(struct start *s)
{
    session_free(&s->session);
    args_free(&s->args);
    json_decref(s->env);
    free(s);
}

static void finish(struct start *s, const struct sg_wire_process *p, const struct sg_error *e)
{
    process_start_fn *done = s->done;
    void *arg = s->arg;
    struct sg_wire_process pp = {0};
    struct sg_error ee;
    if (p) {
        pp = *p;
        relay_tell_seen(s->relay, s->session.session_id, &pp);
    } else {
        ee = *e;
    }
    start_free(s);
    done(arg, p ? &pp : NULL, p ? NULL : &ee);
}

static void on_settled(void *arg, const struct ask_answer *a)
{
    struct start *s = arg;
    struct sg_wire_process p;
    struct sg_error e;
    if (settle_verdict(a, s->id, &s->why, &p, &e))
        finish(s, &p, NULL);
    else
        finish(s, NULL, &e);
}

/* The state after hello is final enough to be told: exec has succeeded. */
static bool has_begun(const struct ask_answer *a, const char *id)
{
    return a->hello && !strcmp(a->h.id, id) && a->h.state != SG_PS_STARTING &&
           a->h.state != SG_PS_NOT_STARTED;
}

static void on_started(void *arg, const struct ask_answer *a)
{
    struct start *s = arg;
    if (a->line && a->e) { /* the guest's own refusal */
        struct sg_error refused;
        start_refused(a->line, &refused);
        finish(s, NULL, &refused);
        return;
    }
    if (a->hello && !strcmp(a->h.id, s->id) && (a->line || has_begun(a, s->id))) {
        finish(s, &a->h, NULL);
        return;
    }
    if (a->e) {
        s->why = *a->e;
    } else {
        sg_fail(&s->why, SG_E_UPSTREAM_BAD_RESPONSE, SG_OUTCOME_UNKNOWN,
                "the helper in the sandbox ended without an answer");
    }
    bool known = s->why.outcome == SG_NOT_SENT || s->why.outcome == SG_NOT_STARTED;
    if ((known && !a->hello) || s->why.code == SG_E_DRAINING) {
        finish(s, NULL, &s->why);
        return;
    }
    struct relay_session session = {s->session.session_id, s->session.arch, s->session.cwd};
    struct sg_error e;
    if (!settle_start(s->relay, &session, s->id, on_settled, s, &e)) {
        struct ask_answer none = {.e = &e};
        on_settled(s, &none);
    }
}

static bool launch(struct start *s, struct sg_error *e)
{
    struct relay_session session = {s->session.session_id, s->session.arch, s->session.cwd};
    struct ask_spec ask = {
        .session = &session, .args = &s->args, .env = s->env, .sudo = s->sudo, .wait_ms = -1};
    return ask_start(s->relay, &ask, on_started, s, e) != NULL;
}

static void on_staged(void *arg, const struct sg_error *e)
{
    struct start *s = arg;
    struct sg_error mine;
    if (e)
        finish(s, NULL, e);
    else if (!launch(s, &mine))
        finish(s, NULL, &mine);
}

enum sg_code process_start(struct relay *r, const struct process_spec *spec, process_start_fn *done,
                           void *arg, struct sg_error *e)
{
    struct sg_error mine;
    char file[STAGE_NAME];
    bool staged = stage_needed(spec);
    if (staged && !stage_name(file))
        return sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "no randomness for a name");
    struct start *s = calloc(1, sizeof *s);
    if (!s || !session_copy(&s->session, &spec->session)) {
        sg_fail(&mine, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory to start a process");
        goto fail;
    }
    if (start_args(spec, "start", -1, staged ? file : NULL, &s->args, &mine))
        goto fail;
    s->relay = r;
    s->env = json_incref(spec->env);
    s->sudo = spec->sudo;
    (void)snprintf(s->id, sizeof s->id, "%s", spec->id);
    s->done = done;
    s->arg = arg;
    relay_tell_begins(r, s->session.session_id);
    if (staged ? stage_start(r, spec, file, on_staged, s, &mine) != NULL : launch(s, &mine))
        return SG_OK;

fail:
    if (s)
        start_free(s);
    if (e)
        *e = mine;
    return mine.code;
}
