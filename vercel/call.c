#include "vercel/call.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

static void call_free(struct vercel_call *call)
{
    call_request_free(call);
    vercel_auth_unref(call->auth);
    free(call->refused);
    sg_buf_free(&call->in);
    free(call);
}

static void on_bury(struct sg_grave *grave)
{
    struct vercel_call *call = (struct vercel_call *)((char *)grave - offsetof(struct vercel_call, grave));
    if (call->gone)
        call->gone(call->gone_arg);
    call_free(call);
}

/* The one place where a call ends. */
static void call_die(struct vercel_call *call)
{
    struct vercel_client *c = call->client;
    call->state = CALL_DEAD;
    vt_stop(c->transport, &call->job);
    sg_timer_free(call->timer);
    sg_timer_free(call->parked_timer);
    call->timer = call->parked_timer = NULL;
    call_admit_leave(call);
    TAILQ_REMOVE(&c->calls, call, link);
    sg_loop_bury(c->loop, &call->grave);
}

void call_finish(struct vercel_call *call, const struct sg_error *e)
{
    call_die(call);
    if (call->collect_done) {
        size_t len = e ? 0 : call->in.len;
        char *body = e ? NULL : sg_buf_take(&call->in, &len);
        struct sg_error oom;
        if (!e && !body) {
            (void)sg_fail(&oom, SG_E_OUT_OF_MEMORY, SG_OUTCOME_UNKNOWN,
                          "No memory for the upstream's answer.");
            e = &oom;
        }
        call->collect_done(call->arg, &body, len, e);
        free(body);
    } else if (call->ev.on_done) {
        call->ev.on_done(call->arg, e);
    }
}

/* ---- making a call ---- */

static enum vt_class class_of(enum vercel_class class)
{
    switch (class) {
    case VERCEL_LOGS:
        return VT_LOGS;
    case VERCEL_BULK:
        return VT_BULK;
    case VERCEL_CONTROL:
    default:
        return VT_CONTROL;
    }
}

static struct vercel_call *call_new(struct vercel_client *c, const struct vercel_request *r)
{
    struct vercel_call *call = calloc(1, sizeof *call);
    if (!call)
        return NULL;
    call->client = c;
    call->job.class = class_of(r->class);
    call->job.done = call_attempt_done;
    call->grave.fn = on_bury;
    call->read = r->read;
    call->rewind = r->rewind;
    call->read_size = r->read_size;
    call->means = r->means;
    call->idempotent = r->idempotent;
    call->kind = r->spends;
    call->units = r->units > 1 ? r->units : 1;
    sg_buf_init(&call->in, VERCEL_JSON_MAX);
    (void)snprintf(call->method, sizeof call->method, "%s", r->method);
    (void)snprintf(call->expect_type, sizeof call->expect_type, "%s", r->expect_type ? r->expect_type : "");
    int64_t now = sg_mono_ms();
    int64_t timeout = r->timeout_ms ? r->timeout_ms : c->timeout_ms;
    call->deadline = timeout > 0 ? now + timeout : 0;
    call->retry_until = now + c->retry_budget_ms;
    if (!call_request_copy(call, r)) {
        call_free(call);
        return NULL;
    }
    return call;
}

/* No callback runs before its maker has the call.  False: out of memory. */
static bool refuse_later(struct vercel_call *call, const struct sg_error *why)
{
    call->refused = malloc(sizeof *why);
    if (!call->timer)
        call->timer = sg_timer_new(call->client->loop, call_on_timer, call);
    if (!call->refused || !call->timer)
        return false;
    *call->refused = *why;
    call->state = CALL_WAITING;
    sg_timer_start(call->timer, 0);
    return true;
}

static struct vercel_call *start(struct vercel_client *c, const struct vercel_request *r,
                                 const struct vercel_events *ev, vercel_collect_fn *collect, void *arg,
                                 struct sg_error *e)
{
    if (c->closing) {
        (void)sg_fail(e, SG_E_UPSTREAM_UNREACHABLE, SG_NOT_SENT, "The gateway is shutting down.");
        return NULL;
    }
    if (strlen(c->base_url) + strlen(r->path) + (r->query ? strlen(r->query) : 0) > VERCEL_URL_MAX / 2) {
        (void)sg_fail(e, SG_E_URI_TOO_LONG, SG_NOT_SENT, "The request to the upstream would be too long.");
        return NULL;
    }
    struct vercel_call *call = call_new(c, r);
    if (!call) {
        (void)sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "No memory for the call to the upstream.");
        return NULL;
    }
    if (ev)
        call->ev = *ev;
    call->collect_done = collect;
    call->arg = arg;
    TAILQ_INSERT_TAIL(&c->calls, call, link);
    call_retry_earn(c);
    struct sg_error why;
    if (call_go(call, &why) == SG_OK || refuse_later(call, &why))
        return call;
    *e = why;
    call_die(call);
    return NULL;
}

struct vercel_call *vercel_call_start(struct vercel_client *c, const struct vercel_request *r,
                                      const struct vercel_events *ev, void *arg, struct sg_error *e)
{
    return start(c, r, ev, NULL, arg, e);
}

struct vercel_call *vercel_collect_start(struct vercel_client *c, const struct vercel_request *r,
                                         vercel_collect_fn *done, void *arg, struct sg_error *e)
{
    return start(c, r, NULL, done, arg, e);
}

void vercel_call_resume(struct vercel_call *call)
{
    if (call->state == CALL_RUNNING)
        vt_resume(call->client->transport, &call->job);
}

void vercel_call_cancel(struct vercel_call *call)
{
    if (call->state == CALL_DEAD)
        return;
    call_die(call);
}

void vercel_call_on_gone(struct vercel_call *call, void (*gone)(void *arg), void *arg)
{
    call->gone = gone;
    call->gone_arg = arg;
}

struct vercel_client *vercel_call_client(struct vercel_call *call)
{
    return call->client;
}

bool vercel_call_sent_again(const struct vercel_call *call)
{
    return call->attempts > 1;
}

const char *vercel_call_request_id(const struct vercel_call *call)
{
    return call->request_id;
}

/* The client goes: every call ends. */
void vercel_call_end_all(struct vercel_client *c)
{
    struct vercel_call *call;
    while ((call = TAILQ_FIRST(&c->calls))) {
        struct sg_error e;
        (void)sg_fail(&e, SG_E_UPSTREAM_UNREACHABLE, call_was_sent(call) ? SG_OUTCOME_UNKNOWN : SG_NOT_SENT,
                      "The gateway is shutting down.");
        call_finish(call, &e);
    }
}
