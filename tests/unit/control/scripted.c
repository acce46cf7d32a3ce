#include "scripted.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

struct vercel_call {
    vercel_get_fn *on_get;
    vercel_json_fn *on_json;
    void *arg;
    const struct answer *answer;
    struct sg_timer *timer;
};

struct upstream up;

const char *vercel_status_name(enum vercel_status s)
{
    return s == VERCEL_RUNNING ? "running" : s == VERCEL_STOPPED ? "stopped" : "other";
}

static void call_free(struct vercel_call *call)
{
    sg_timer_free(call->timer);
    free(call);
}

static void on_answer(void *arg)
{
    struct vercel_call *call = arg;
    struct vercel_call c = *call;
    call_free(call);
    struct sg_error e, *failed = NULL;
    if (c.answer->code) {
        (void)sg_fail(&e, c.answer->code, c.answer->unknown ? SG_OUTCOME_UNKNOWN : SG_NOT_STARTED,
                      "scripted");
        failed = &e;
    }
    if (c.on_json) {
        c.on_json(c.arg, NULL, failed);
        return;
    }
    struct vercel_sandbox s = {.name = "box",
                               .status = c.answer->status,
                               .session_status = c.answer->status,
                               .session_id = c.answer->session,
                               .current_snapshot_id = c.answer->snapshot,
                               .session_cwd = "/vercel/sandbox",
                               .vcpus = 2,
                               .memory_mb = 4096,
                               .timeout_ms = 3600000,
                               .expires_at = -1};
    c.on_get(c.arg, failed ? NULL : &s, failed);
}

static struct vercel_call *call_new(const struct answer *a, void *arg)
{
    struct vercel_call *call = calloc(1, sizeof *call);
    assert_non_null(call);
    call->answer = a;
    call->arg = arg;
    call->timer = sg_timer_new(up.loop, on_answer, call);
    if (!a->never)
        sg_timer_start(call->timer, 1);
    return call;
}

struct vercel_call *vercel_get_start(struct vercel_client *c, const char *name, bool resume,
                                     vercel_get_fn *done, void *arg, struct sg_error *e)
{
    (void)c;
    (void)e;
    assert_string_equal(name, "box");
    up.resumes += resume;
    assert_true(up.ngets < 16);
    struct vercel_call *call = call_new(&up.gets[up.ngets++], arg);
    call->on_get = done;
    return call;
}

struct vercel_call *vercel_json_start(struct vercel_client *c, const struct vercel_request *r,
                                      vercel_json_fn *done, void *arg, struct sg_error *e)
{
    (void)c;
    (void)e;
    assert_string_equal(r->method, "POST");
    assert_string_equal(r->path, "/v2/sandboxes/sessions/sbx_1/stop");
    assert_true(up.nstops < 4);
    struct vercel_call *call = call_new(&up.stops[up.nstops++], arg);
    call->on_json = done;
    return call;
}

void vercel_call_cancel(struct vercel_call *call)
{
    up.cancelled++;
    call_free(call);
}

/* not reached from here */
enum sg_code vercel_create(struct vercel_client *c, json_t *body, struct vercel_sandbox *out,
                           struct sg_error *e)
{
    (void)c;
    (void)body;
    (void)out;
    return sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "not scripted");
}
enum sg_code vercel_get(struct vercel_client *c, const char *name, bool resume, struct vercel_sandbox *out,
                        struct sg_error *e)
{
    (void)c;
    (void)name;
    (void)resume;
    (void)out;
    return sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "not scripted");
}
enum sg_code vercel_list(struct vercel_client *c, const struct vercel_list_query *q, struct vercel_page *out,
                         struct sg_error *e)
{
    (void)c;
    (void)q;
    (void)out;
    return sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "not scripted");
}
enum sg_code vercel_delete(struct vercel_client *c, const char *name, bool orphans, struct sg_error *e)
{
    (void)c;
    (void)name;
    (void)orphans;
    return sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "not scripted");
}
void vercel_page_clear(struct vercel_page *p)
{
    (void)p;
}
void vercel_sandbox_clear(struct vercel_sandbox *s)
{
    (void)s;
}

void turn(void)
{
    up.arrived = false;
    while (!up.arrived)
        uv_run(sg_loop_uv(up.loop), UV_RUN_ONCE);
}

struct control *begin(void)
{
    memset(&up, 0, sizeof up);
    up.loop = sg_loop_new();
    assert_non_null(up.loop);
    struct control *c = control_new(&(struct control_config){.loop = up.loop});
    assert_non_null(c);
    return c;
}

void end(struct control *c)
{
    control_free(c);
    sg_loop_free(up.loop);
}
