#include "routes/handlers.h"

#include "base/json.h"
#include "routes/ended.h"
#include "routes/process_act.h"
#include "routes/process_json.h"
#include "routes/spec.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { NAME_TEXT = 129 };

struct look {
    struct act act;
    int64_t wait_ms;
    bool killed;                                     /* as root, before removing */
    char sandbox[NAME_TEXT], id[SG_WIRE_ID_MAX + 1]; /* of what is removed, whoever still listens */
};

/* ---- list ---- */

static void on_list(void *arg, const struct sg_wire_process *list, size_t n, const struct sg_error *e)
{
    struct act *a = arg;
    if (process_ended_or_retried(a, e))
        return;
    json_t *items = json_array();
    for (size_t i = 0; i < n && items; i++) {
        if (json_array_append_new(items, process_json(&list[i], a->session_id))) {
            json_decref(items);
            items = NULL;
        }
    }
    act_answer(a, 200, items ? json_pack("{soso}", "items", items, "next_cursor", json_null()) : NULL);
}

static void list_go(struct act *a)
{
    struct sg_error e;
    struct relay_session s = act_session(a);
    if (process_list(a->gw->relay, &s, on_list, a, &e))
        a->fail(a, &e);
}

void route_process_list(struct exchange *ex)
{
    static const char *const query[] = {"session", NULL};
    struct sg_error e;
    if (ex_query_only(ex, query, &e)) {
        ex_fail(ex, &e);
        return;
    }
    struct act *a = act_new(ex, sizeof *a, list_go, act_fail);
    if (!a)
        return;
    ended_list(a);
    act_begin(a);
}

/* ---- get ---- */

static void on_status(void *arg, const struct sg_wire_process *list, size_t n, const struct sg_error *e)
{
    struct look *l = arg;
    struct sg_error own;
    if (!e && !n) {
        (void)sg_fail(&own, SG_E_PROCESS_NOT_FOUND, SG_FINISHED, "no such process in this session");
        e = &own;
    }
    if (!process_ended_or_retried(&l->act, e))
        act_answer(&l->act, 200, process_json(&list[0], l->act.session_id));
}

static void get_go(struct act *a)
{
    struct look *l = (struct look *)a;
    struct sg_error e;
    struct relay_session s = act_session(a);
    if (process_status(a->gw->relay, &s, a->ex->params[1], l->wait_ms, on_status, l, &e))
        a->fail(a, &e);
}

void route_process_get(struct exchange *ex)
{
    static const char *const query[] = {"wait_ms", "session", NULL};
    struct sg_error e;
    int64_t wait_ms = 0;
    if (ex_query_only(ex, query, &e) || ex_query_int(ex, "wait_ms", 0, SPEC_WAIT_MAX_MS, &wait_ms, &e) ||
        process_id(ex, &e)) {
        ex_fail(ex, &e);
        return;
    }
    struct look *l = act_new(ex, sizeof *l, get_go, act_fail);
    if (!l)
        return;
    l->wait_ms = wait_ms;
    ended_get(&l->act);
    act_begin(&l->act);
}

/* ---- signal ---- */

static enum sg_code send_signal(struct process_act *p, const struct process_target *t, process_act_fn *done,
                                struct sg_error *e)
{
    return process_signal(p->act.gw->relay, &t->session, t->id, p->signal, p->only_program, t->sudo, done, p,
                          e);
}

static enum sg_code parse_signal(struct exchange *ex, int *number, bool *only_program, struct sg_error *e)
{
    static const char *const query[] = {"session", NULL};
    static const char *const fields[] = {"signal", "target", NULL};
    const char *target = "tree";
    enum sg_code rc = ex_query_only(ex, query, e);
    if (!rc)
        rc = process_id(ex, e);
    if (!rc)
        rc = process_take_resume(ex, e);
    if (!rc)
        rc = sg_json_only(ex->body, "", fields, e);
    if (!rc)
        rc = sg_json_str(ex->body, "", "target", 16, &target, e);
    if (rc)
        return rc;
    if (strcmp(target, "tree") != 0 && strcmp(target, "program") != 0)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/target", "must be \"tree\" or \"program\"");
    *only_program = !strcmp(target, "program");
    return spec_signal(json_object_get(ex->body, "signal"), "/signal", number, e);
}

void route_process_signal(struct exchange *ex)
{
    struct process_act p = {.send = send_signal, .steps = 1, .status = 202};
    struct sg_error e;
    if (parse_signal(ex, &p.signal, &p.only_program, &e))
        ex_fail(ex, &e);
    else
        process_act_begin(ex, &p);
}

/* ---- remove ---- */

static void remove_go(struct act *a);

static void on_killed(void *arg, const struct sg_error *e)
{
    struct look *l = arg;
    if (e && e->code != SG_E_PROCESS_FINISHED)
        l->act.fail(&l->act, e);
    else
        remove_go(&l->act);
}

static void on_forgotten(void *arg)
{
    struct look *l = arg;
    if (act_settled(&l->act))
        ex_answer_empty(l->act.ex, 204);
    act_free(&l->act);
}

static void on_removed(void *arg, const struct sg_error *e)
{
    struct look *l = arg;
    if (process_needs_root(e) && !l->killed &&
        l->act.ex) { /* what cannot be killed while removing is killed before */
        struct sg_error own;
        struct relay_session s = act_session(&l->act);
        l->killed = true;
        if (process_signal(l->act.gw->relay, &s, l->act.ex->params[1], SIGKILL, false, true, on_killed, l,
                           &own))
            l->act.fail(&l->act, &own);
        return;
    }
    if (process_ended_or_retried(&l->act, e))
        return;
    /* What was saved of it goes before the answer does. */
    tails_forget(l->act.gw->tails, l->sandbox, l->act.session_id, l->id, on_forgotten, l);
}

static void remove_go(struct act *a)
{
    struct sg_error e;
    struct relay_session s = act_session(a);
    if (!a->ex) { /* the client left between killing and removing */
        (void)sg_fail(&e, SG_E_BAD_REQUEST, SG_OUTCOME_UNKNOWN, "the client left");
        a->fail(a, &e);
    } else if (process_remove(a->gw->relay, &s, a->ex->params[1], on_removed, a, &e)) {
        a->fail(a, &e);
    }
}

void route_process_remove(struct exchange *ex)
{
    static const char *const query[] = {"session", NULL};
    struct sg_error e;
    if (ex_query_only(ex, query, &e) || process_id(ex, &e)) {
        ex_fail(ex, &e);
        return;
    }
    struct look *l = act_new(ex, sizeof *l, remove_go, act_fail);
    if (!l)
        return;
    (void)snprintf(l->sandbox, sizeof l->sandbox, "%s", ex->params[0]);
    (void)snprintf(l->id, sizeof l->id, "%s", ex->params[1]);
    ended_remove(&l->act);
    act_begin(&l->act);
}
