#include "routes/act.h"

#include "control/keepalive.h"

#include <stdlib.h>
#include <string.h>

enum { RESUME_MS = 20000 }; /* no answer is silent for longer than 25 s */

/* What is under way goes on and ends unheard. */
static void on_gone(void *arg)
{
    struct act *a = arg;
    struct sg_error e;
    struct exchange *ex = a->ex;
    a->ex = NULL;
    a->sandbox = NULL;
    (void)sg_fail(&e, SG_E_BAD_REQUEST, SG_OUTCOME_UNKNOWN, "the client left");
    ex_fail(ex, &e);
}

void *act_new(struct exchange *ex, size_t size, void (*go)(struct act *a),
              void (*fail)(struct act *a, const struct sg_error *e))
{
    struct act *a = calloc(1, size);
    if (!a) {
        struct sg_error e;
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
        ex_fail(ex, &e);
        return NULL;
    }
    a->ex = ex;
    a->gw = ex->gw;
    a->sandbox = ex->params[0];
    a->go = go;
    a->fail = fail;
    ex_on_gone(ex, on_gone, a);
    return a;
}

static void forget_session(struct act *a)
{
    free(a->session_id);
    free(a->cwd);
    free(a->arch);
    a->session_id = a->cwd = a->arch = NULL;
}

static void look_up(struct act *a);

static void look_again(struct act *a)
{
    a->retried = true;
    control_session_forget(a->gw->control, a->sandbox);
    forget_session(a);
    look_up(a);
}

/* ---- resuming ---- */

static void on_resumed(void *arg, json_t *record, bool pending, const struct sg_error *e)
{
    struct act *a = arg;
    struct sg_error own;
    json_decref(record);
    if (!a->ex)
        (void)sg_fail(&own, SG_E_BAD_REQUEST, SG_NOT_STARTED, "the client left");
    else if (e)
        own = *e;
    else if (pending)
        (void)sg_fail(&own, SG_E_SANDBOX_TRANSITION, SG_NOT_STARTED,
                      "the sandbox is still being resumed; nothing was started in it");
    if (a->ex && !e && !pending) {
        look_up(a);
        return;
    }
    own.outcome = SG_NOT_STARTED;
    a->fail(a, &own);
}

/* True: on_resumed follows. */
static bool resume(struct act *a, const struct sg_error *e)
{
    if (!a->resume || (e->code != SG_E_SANDBOX_NOT_RUNNING && e->code != SG_E_SANDBOX_TRANSITION))
        return false;
    a->resume = false; /* once */
    static const struct control_move how = {.wait_ms = RESUME_MS};
    control_resume(a->gw->control, a->sandbox, &how, on_resumed, a);
    return true;
}

static void on_session(void *arg, const struct control_session *s, const struct sg_error *e)
{
    struct act *a = arg;
    struct sg_error own;
    if (!e && !a->ex) {
        (void)sg_fail(&own, SG_E_BAD_REQUEST, SG_NOT_SENT, "the client left");
        e = &own;
    }
    if (e && a->ex && resume(a, e))
        return;
    if (e) {
        own = *e; /* of the lookup; what was asked for has not been sent, or was refused before */
        own.outcome = a->retried ? SG_NOT_STARTED : SG_NOT_SENT;
        a->fail(a, &own);
        return;
    }
    const char *want = ex_query(a->ex, "session", NULL);
    if (want && strcmp(want, s->session_id) != 0) {
        if (s->cached && !a->retried) { /* the caller may know better than the cache */
            look_again(a);
            return;
        }
        (void)sg_fail(&own, SG_E_STALE_SESSION, SG_NOT_SENT, "the sandbox runs in another session now");
        a->fail(a, &own);
        return;
    }
    const struct relay_session session = {.session_id = s->session_id, .arch = s->arch, .cwd = s->cwd};
    if (a->gw->tails)
        tails_session(a->gw->tails, a->sandbox, &session, s->deadline_ms);
    keepalive_touch(a->gw->control, a->sandbox, s->session_id, s->deadline_ms);
    a->cached = s->cached;
    a->session_id = strdup(s->session_id);
    a->cwd = strdup(s->cwd);
    a->arch = s->arch ? strdup(s->arch) : NULL;
    if (!a->session_id || !a->cwd || (s->arch && !a->arch)) {
        (void)sg_fail(&own, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
        a->fail(a, &own);
        return;
    }
    a->go(a);
}

void act_watch(struct act *a)
{
    ex_on_gone(a->ex, on_gone, a);
}

static void look_up(struct act *a)
{
    act_watch(a); /* the handler's own watch would free what the lookup will call */
    control_session(a->gw->control, a->sandbox, on_session, a);
}

void act_begin(struct act *a)
{
    look_up(a);
}

struct relay_session act_session(const struct act *a)
{
    return (struct relay_session){.session_id = a->session_id, .arch = a->arch, .cwd = a->cwd};
}

static bool session_is_over(const struct sg_error *e)
{
    return e->code == SG_E_STALE_SESSION || e->code == SG_E_SANDBOX_NOT_FOUND ||
           e->code == SG_E_UPSTREAM_NOT_FOUND;
}

bool act_retry(struct act *a, const struct sg_error *e)
{
    if (!a->ex || !session_is_over(e))
        return false;
    control_session_forget(a->gw->control, a->sandbox);
    if (!a->cached || a->retried || (e->outcome != SG_NOT_SENT && e->outcome != SG_NOT_STARTED))
        return false;
    look_again(a);
    return true;
}

bool act_settled(struct act *a)
{
    if (!a->ex)
        return false;
    ex_on_gone(a->ex, NULL, NULL);
    return true;
}

void act_free(struct act *a)
{
    forget_session(a);
    free(a);
}

void act_fail(struct act *a, const struct sg_error *e)
{
    if (act_settled(a))
        ex_fail(a->ex, e);
    act_free(a);
}

void act_answer(struct act *a, int status, json_t *json)
{
    if (!json) {
        struct sg_error e;
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
        act_fail(a, &e);
        return;
    }
    if (act_settled(a))
        ex_answer_json(a->ex, status, json);
    else
        json_decref(json);
    act_free(a);
}
