#include "relay/internal.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

struct ask {
    struct relay_obj obj;
    struct session_copy session;
    struct relay_args args;
    size_t fixed_args; /* without --wait-ms */
    json_t *env;
    bool sudo, retry_all, unsent_only;
    int64_t wait_ms, started_ms, retry_ms, backoff_ms;
    struct guest_call *call;
    struct sg_timer *timer;
    bool hello, retried;
    struct sg_wire_process h;
    struct sg_wire_process *list;
    size_t n, cap;
    bool list_failed;
    bool has_input;
    struct process_input input;
    ask_done_fn *done;
    void *arg;
};

static void destroy(struct relay_obj *o)
{
    struct ask *a = (struct ask *)o;
    session_free(&a->session);
    args_free(&a->args);
    json_decref(a->env);
    free(a->list);
    free(a);
}

void ask_cancel(struct ask *a)
{
    if (a->call)
        guest_cancel(a->call);
    a->call = NULL;
    sg_timer_free(a->timer);
    a->timer = NULL;
    obj_bury(&a->obj);
}

static void finish(struct ask *a, const struct sg_wire_line *line, const struct sg_error *e)
{
    struct ask_answer ans = {.line = line,
                             .hello = a->hello,
                             .h = a->h,
                             .list = a->list,
                             .n = a->n,
                             .has_input = a->has_input,
                             .input = a->input,
                             .e = e,
                             .retried = a->retried};
    ask_cancel(a);
    a->done(a->arg, &ans);
}

static void abandon(struct relay_obj *o, const struct sg_error *e)
{
    finish((struct ask *)o, NULL, e);
}

static bool add_process(struct ask *a, const struct sg_wire_process *p)
{
    if (a->n == a->cap) {
        size_t cap = a->cap ? a->cap * 2 : 4;
        struct sg_wire_process *list =
            cap <= RELAY_LIST_MAX ? reallocarray(a->list, cap, sizeof *list) : NULL;
        if (!list)
            return false;
        a->list = list;
        a->cap = cap;
    }
    a->list[a->n++] = *p;
    return true;
}

static bool on_line(void *arg, const struct sg_wire_line *line)
{
    struct ask *a = arg;
    if (line->kind == SG_WIRE_HELLO) {
        a->hello = true;
        a->h = line->process;
    } else if (line->kind == SG_WIRE_ACCEPTED) {
        a->has_input = true;
        a->input = (struct process_input){line->accepted, line->room, line->closed, line->unwanted};
    } else if (line->kind == SG_WIRE_PROCESS && !add_process(a, &line->process)) {
        a->list_failed = true;
    }
    return true;
}

static void on_end(void *arg, const struct sg_wire_line *line, bool hello, const struct sg_error *e);

static bool launch(struct ask *a, struct sg_error *e)
{
    while (a->args.n > a->fixed_args) {
        free(a->args.v[--a->args.n]);
        a->args.v[a->args.n] = NULL;
    }
    if (a->wait_ms >= 0) {
        int64_t left = a->wait_ms - (sg_mono_ms() - a->started_ms);
        args_add(&a->args, "--wait-ms");
        args_addu(&a->args, left > 0 ? (uint64_t)left : 0);
    }
    if (a->args.failed) {
        sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the call");
        return false;
    }
    a->hello = false;
    a->has_input = false;
    a->n = 0;
    a->list_failed = false;
    struct guest_args g = {.session_id = a->session.session_id,
                           .arch = a->session.arch,
                           .args = (const char *const *)a->args.v,
                           .env = a->env,
                           .sudo = a->sudo};
    struct guest_events ev = {.on_line = on_line, .on_end = on_end};
    a->call = guest_call_start(relay_guestlink(a->obj.relay), &g, &ev, a, e);
    return a->call != NULL;
}

/* Tries again later if that is allowed and there is time. */
static bool again(struct ask *a, const struct sg_error *e)
{
    uint64_t wait = relay_backoff(a->obj.relay, &a->backoff_ms, e);
    int64_t spent = sg_mono_ms() - a->started_ms - (a->wait_ms > 0 ? a->wait_ms : 0);
    if (a->retry_ms == 0 || spent + (int64_t)wait > a->retry_ms)
        return false;
    if (e->outcome != SG_NOT_SENT && e->outcome != SG_NOT_STARTED)
        a->retried = true;
    sg_timer_start(a->timer, wait);
    return true;
}

static bool is_over(enum sg_code code)
{
    return code == SG_E_STALE_SESSION || code == SG_E_SANDBOX_NOT_RUNNING || code == SG_E_SANDBOX_NOT_FOUND ||
           code == SG_E_DRAINING;
}

static void on_timer(void *arg)
{
    struct ask *a = arg;
    struct sg_error e;
    if (!launch(a, &e) && !again(a, &e)) {
        struct sg_error copy = e;
        finish(a, NULL, &copy);
    }
}

static void on_end(void *arg, const struct sg_wire_line *line, bool hello, const struct sg_error *e)
{
    struct ask *a = arg;
    (void)hello; /* seen by on_line */
    a->call = NULL;
    struct sg_error mine;
    if (line && line->kind == SG_WIRE_ERROR) {
        guest_error(line, &mine);
        if (!(a->retry_all && again(a, &mine)))
            finish(a, line, &mine);
        return;
    }
    if (line) {
        if (a->list_failed) {
            sg_fail(&mine, SG_E_OVERLOADED, SG_FINISHED, "more than %d processes", RELAY_LIST_MAX);
            finish(a, NULL, &mine);
            return;
        }
        finish(a, line, NULL);
        return;
    }
    mine = *e;
    bool retry = a->retry_all ? !is_over(mine.code) : relay_may_retry(&mine);
    if (a->unsent_only && mine.outcome != SG_NOT_SENT && mine.outcome != SG_NOT_STARTED)
        retry = false;
    if (!(retry && again(a, &mine)))
        finish(a, NULL, &mine);
}

struct ask *ask_start(struct relay *r, const struct ask_spec *s, ask_done_fn *done, void *arg,
                      struct sg_error *e)
{
    struct ask *a = calloc(1, sizeof *a);
    if (!a) {
        args_free(s->args);
        goto no_memory;
    }
    obj_init(&a->obj, r, abandon, destroy);
    a->args = *s->args;
    *s->args = (struct relay_args){0};
    a->fixed_args = a->args.n;
    a->env = json_incref(s->env);
    a->sudo = s->sudo;
    a->retry_all = s->retry_all;
    a->unsent_only = s->unsent_only;
    a->wait_ms = s->wait_ms;
    a->retry_ms = s->retry_ms;
    a->started_ms = sg_mono_ms();
    a->done = done;
    a->arg = arg;
    a->timer = sg_timer_new(relay_loop(r), on_timer, a);
    if (!a->timer || !session_copy(&a->session, s->session)) {
        ask_cancel(a);
        goto no_memory;
    }
    if (!launch(a, e) && !(s->retry_all && again(a, e))) {
        ask_cancel(a);
        return NULL;
    }
    return a;

no_memory:
    sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the call");
    return NULL;
}
