#include "relay/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum act_kind { ACT_STATUS, ACT_LIST, ACT_SIGNAL, ACT_REMOVE };

struct act {
    enum act_kind kind;
    char id[SG_WIRE_ID_MAX + 1];
    process_status_fn *status_done;
    process_act_fn *act_done;
    void *arg;
};

static void finish(struct act *act, const struct ask_answer *a, const struct sg_error *e)
{
    struct act copy = *act;
    free(act);
    if (copy.act_done)
        copy.act_done(copy.arg, e);
    else
        copy.status_done(copy.arg, e ? NULL : a->list, e ? 0 : a->n, e);
}

static void on_answer(void *arg, const struct ask_answer *a)
{
    struct act *act = arg;
    struct sg_error e;
    /* What an earlier attempt, whose answer was lost, has removed is removed. */
    bool removed = act->kind == ACT_REMOVE && a->retried && a->line && a->line->kind == SG_WIRE_ERROR &&
                   a->line->fail == SG_WF_NO_RECORD;
    if (a->e && !removed) {
        finish(act, a, a->e);
        return;
    }
    bool odd = !removed && (!a->line || a->line->kind != SG_WIRE_OK);
    if (act->kind == ACT_STATUS && (a->n != 1 || strcmp(a->list[0].id, act->id) != 0))
        odd = true;
    if (odd) {
        sg_fail(&e, SG_E_UPSTREAM_BAD_RESPONSE, SG_OUTCOME_UNKNOWN,
                "the helper in the sandbox answered something else than it was asked");
        finish(act, a, &e);
        return;
    }
    finish(act, a, NULL);
}

/* Takes args over. */
static enum sg_code launch(struct relay *r, const struct act *what, struct ask_spec *spec, const char *id,
                           struct sg_error *e)
{
    struct sg_error mine;
    struct act *act = malloc(sizeof *act);
    if (!act) {
        args_free(spec->args);
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the call");
    }
    *act = *what;
    if (id)
        (void)snprintf(act->id, sizeof act->id, "%s", id);
    if (ask_start(r, spec, on_answer, act, &mine))
        return SG_OK;
    free(act);
    if (e)
        *e = mine;
    return mine.code;
}

static enum sg_code check_id(const char *id, struct sg_error *e)
{
    if (id && sg_wire_id_valid(id, strlen(id)))
        return SG_OK;
    return sg_fail(e, SG_E_PROCESS_NOT_FOUND, SG_NOT_SENT, "no process can have this id");
}

enum sg_code process_status(struct relay *r, const struct relay_session *s, const char *id, int64_t wait_ms,
                            process_status_fn *done, void *arg, struct sg_error *e)
{
    enum sg_code code = check_id(id, e);
    if (code)
        return code;
    struct relay_args args = {0};
    args_begin(&args, "status", s->session_id, id);
    struct ask_spec spec = {.session = s,
                            .args = &args,
                            .wait_ms = wait_ms > 0 ? wait_ms : -1,
                            .retry_ms = relay_limits(r)->retry_ms};
    struct act act = {.kind = ACT_STATUS, .status_done = done, .arg = arg};
    return launch(r, &act, &spec, id, e);
}

enum sg_code process_list(struct relay *r, const struct relay_session *s, process_status_fn *done, void *arg,
                          struct sg_error *e)
{
    struct relay_args args = {0};
    args_begin(&args, "list", s->session_id, NULL);
    struct ask_spec spec = {
        .session = s, .args = &args, .wait_ms = -1, .retry_ms = relay_limits(r)->retry_ms};
    struct act act = {.kind = ACT_LIST, .status_done = done, .arg = arg};
    return launch(r, &act, &spec, NULL, e);
}

enum sg_code process_signal(struct relay *r, const struct relay_session *s, const char *id, int signal_number,
                            bool only_program, bool sudo, process_act_fn *done, void *arg, struct sg_error *e)
{
    enum sg_code code = check_id(id, e);
    if (code)
        return code;
    if (signal_number < 1 || signal_number > 64)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/signal", "must be from 1 to 64");
    struct relay_args args = {0};
    args_begin(&args, "signal", s->session_id, id);
    args_add(&args, "--signal");
    args_addu(&args, (uint64_t)signal_number);
    if (only_program)
        args_add(&args, "--only-program");
    /* Asked once: a signal counts every time it arrives. */
    struct ask_spec spec = {.session = s, .args = &args, .sudo = sudo, .wait_ms = -1};
    struct act act = {.kind = ACT_SIGNAL, .act_done = done, .arg = arg};
    return launch(r, &act, &spec, id, e);
}

enum sg_code process_remove(struct relay *r, const struct relay_session *s, const char *id,
                            process_act_fn *done, void *arg, struct sg_error *e)
{
    enum sg_code code = check_id(id, e);
    if (code)
        return code;
    struct relay_args args = {0};
    args_begin(&args, "remove", s->session_id, id);
    struct ask_spec spec = {
        .session = s, .args = &args, .wait_ms = -1, .retry_ms = relay_limits(r)->retry_ms};
    struct act act = {.kind = ACT_REMOVE, .act_done = done, .arg = arg};
    return launch(r, &act, &spec, id, e);
}
