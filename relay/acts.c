#include "relay/feed.h"
#include "relay/internal.h"

#include "base/core/b64.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum act_kind {
    ACT_STATUS,
    ACT_LIST,
    ACT_SIGNAL,
    ACT_REMOVE,
    ACT_INPUT,  /* answers an A line */
    ACT_RESIZE, /* NO_INPUT means no terminal */
    ACT_SCOPE,
};

struct act {
    enum act_kind kind;
    char id[SG_WIRE_ID_MAX + 1];
    struct relay *relay; /* ACT_STATUS */
    char session_id[RELAY_SESSION_TEXT];
    process_status_fn *status_done;
    process_act_fn *act_done;
    process_input_fn *input_done;
    void *arg;
};

static void finish(struct act *act, const struct ask_answer *a, const struct sg_error *e)
{
    struct act copy = *act;
    free(act);
    if (copy.act_done)
        copy.act_done(copy.arg, e);
    else if (copy.input_done)
        copy.input_done(copy.arg, e ? NULL : &a->input, e);
    else
        copy.status_done(copy.arg, e ? NULL : a->list, e ? 0 : a->n, e);
}

/* The guest's refusal, in the words of what was asked. */
static void refused(const struct act *act, const struct ask_answer *a, struct sg_error *e)
{
    *e = *a->e;
    if (!a->line || a->line->kind != SG_WIRE_ERROR)
        return;
    if (act->kind == ACT_RESIZE && a->line->fail == SG_WF_NO_INPUT)
        sg_fail(e, SG_E_UNSUPPORTED, SG_NOT_STARTED, "the process has no terminal");
    if (a->retried && act->kind >= ACT_INPUT && e->outcome == SG_NOT_STARTED)
        e->outcome = SG_OUTCOME_UNKNOWN; /* the attempt whose answer was lost may have been in time */
}

static bool odd_answer(const struct act *act, const struct ask_answer *a)
{
    if (!a->line || a->line->kind != SG_WIRE_OK)
        return true;
    if (act->kind == ACT_STATUS)
        return a->n != 1 || strcmp(a->list[0].id, act->id) != 0;
    return act->kind == ACT_INPUT && !a->has_input;
}

static void on_answer(void *arg, const struct ask_answer *a)
{
    struct act *act = arg;
    struct sg_error e;
    /* What an earlier attempt, whose answer was lost, has removed is removed. */
    bool removed = act->kind == ACT_REMOVE && a->retried && a->line && a->line->kind == SG_WIRE_ERROR &&
                   a->line->fail == SG_WF_NO_RECORD;
    if (removed) {
        finish(act, a, NULL);
    } else if (a->e) {
        refused(act, a, &e);
        finish(act, a, &e);
    } else if (odd_answer(act, a)) {
        sg_fail(&e, SG_E_UPSTREAM_BAD_RESPONSE, SG_OUTCOME_UNKNOWN,
                "the helper in the sandbox answered something else than it was asked");
        finish(act, a, &e);
    } else {
        if (act->kind == ACT_STATUS && a->list[0].how != SG_HOW_NONE) /* how it ended is at hand now */
            relay_tell_seen(act->relay, act->session_id, &a->list[0]);
        finish(act, a, NULL);
    }
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
    struct act act = {.kind = ACT_STATUS, .relay = r, .status_done = done, .arg = arg};
    (void)snprintf(act.session_id, sizeof act.session_id, "%s", s->session_id);
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
    feed_forget(r, s->session_id, id); /* what is in memory goes with the record */
    args_begin(&args, "remove", s->session_id, id);
    struct ask_spec spec = {
        .session = s, .args = &args, .wait_ms = -1, .retry_ms = relay_limits(r)->retry_ms};
    struct act act = {.kind = ACT_REMOVE, .act_done = done, .arg = arg};
    return launch(r, &act, &spec, id, e);
}

/* ---- input, terminal, scope ---- */

/* verb … --a N [--b N] */
static void numbers(struct relay_args *args, const struct process_target *t, const char *verb,
                    const char *first, uint64_t a, const char *second, uint64_t b)
{
    args_begin(args, verb, t->session.session_id, t->id);
    args_add(args, first);
    args_addu(args, a);
    if (!second)
        return;
    args_add(args, second);
    args_addu(args, b);
}

/* Takes args over, also when the id is none. */
static enum sg_code act_on(struct relay *r, const struct process_target *t, const struct act *act,
                           struct relay_args *args, bool once, struct sg_error *e)
{
    enum sg_code code = check_id(t->id, e);
    if (code) {
        args_free(args);
        return code;
    }
    struct ask_spec spec = {.session = &t->session,
                            .args = args,
                            .sudo = t->sudo,
                            .wait_ms = -1,
                            .retry_ms = relay_limits(r)->retry_ms,
                            .unsent_only = once};
    return launch(r, act, &spec, t->id, e);
}

enum sg_code process_write(struct relay *r, const struct process_target *t, uint64_t offset, const void *data,
                           size_t len, process_input_fn *done, void *arg, struct sg_error *e)
{
    char *text = NULL;
    if (len < 1 || len > PROCESS_WRITE_MAX)
        return sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "a write of %zu bytes", len);
    if (!(text = malloc(SG_B64_LEN(len) + 1)))
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the input");
    text[sg_b64_encode(text, data, len)] = '\0';
    struct relay_args args = {0};
    numbers(&args, t, "write", "--offset", offset, NULL, 0);
    args_add(&args, "--data");
    args_add(&args, text);
    free(text);
    struct act act = {.kind = ACT_INPUT, .input_done = done, .arg = arg};
    return act_on(r, t, &act, &args, false, e);
}

enum sg_code process_close_input(struct relay *r, const struct process_target *t, uint64_t offset,
                                 process_input_fn *done, void *arg, struct sg_error *e)
{
    struct relay_args args = {0};
    numbers(&args, t, "close", "--offset", offset, NULL, 0);
    struct act act = {.kind = ACT_INPUT, .input_done = done, .arg = arg};
    return act_on(r, t, &act, &args, false, e);
}

enum sg_code process_resize(struct relay *r, const struct process_target *t, unsigned cols, unsigned rows,
                            process_act_fn *done, void *arg, struct sg_error *e)
{
    if (cols < 1 || cols > PROCESS_SIDE_MAX || rows < 1 || rows > PROCESS_SIDE_MAX)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "", "1 to %d columns and rows", PROCESS_SIDE_MAX);
    struct relay_args args = {0};
    numbers(&args, t, "resize", "--cols", cols, "--rows", rows);
    struct act act = {.kind = ACT_RESIZE, .act_done = done, .arg = arg};
    return act_on(r, t, &act, &args, false, e);
}

enum sg_code process_cancel(struct relay *r, const struct process_target *t, int signal_number,
                            int64_t grace_ms, process_act_fn *done, void *arg, struct sg_error *e)
{
    if (signal_number < 1 || signal_number > 64)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/signal", "must be from 1 to 64");
    struct relay_args args = {0};
    numbers(&args, t, "cancel", "--signal", (uint64_t)signal_number, "--grace-ms",
            grace_ms > 0 ? (uint64_t)grace_ms : 0);
    struct act act = {.kind = ACT_SCOPE, .act_done = done, .arg = arg};
    return act_on(r, t, &act, &args, true, e);
}

enum sg_code process_ack(struct relay *r, const struct process_target *t, const uint64_t received[2],
                         process_act_fn *done, void *arg, struct sg_error *e)
{
    struct relay_args args = {0};
    numbers(&args, t, "ack", "--stdout", received[0], "--stderr", received[1]);
    struct act act = {.kind = ACT_SCOPE, .act_done = done, .arg = arg};
    return act_on(r, t, &act, &args, false, e);
}

enum sg_code process_lease(struct relay *r, const struct process_target *t, int64_t ttl_ms,
                           process_act_fn *done, void *arg, struct sg_error *e)
{
    struct relay_args args = {0};
    numbers(&args, t, "lease", "--ttl-ms", ttl_ms > 0 ? (uint64_t)ttl_ms : 0, NULL, 0);
    struct act act = {.kind = ACT_SCOPE, .act_done = done, .arg = arg};
    return act_on(r, t, &act, &args, false, e);
}

enum sg_code process_unattended(struct relay *r, const struct process_target *t, int64_t ms,
                                process_act_fn *done, void *arg, struct sg_error *e)
{
    struct relay_args args = {0};
    numbers(&args, t, "unattended", "--ms", ms > 0 ? (uint64_t)ms : 0, NULL, 0);
    struct act act = {.kind = ACT_SCOPE, .act_done = done, .arg = arg};
    return act_on(r, t, &act, &args, false, e);
}
