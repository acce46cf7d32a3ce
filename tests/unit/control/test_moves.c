/* Lookups, stop and resume against a scripted upstream: shared lookups, waiting out transitions, patience. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "control/sandboxes.h"

#include <stdlib.h>
#include <string.h>

/* ---- the scripted upstream: answers in order, each at the loop's next turn ---- */

struct answer {
    enum sg_code code; /* SG_OK: a sandbox of this session and status */
    const char *session;
    enum vercel_status status;
    bool never; /* no answer at all */
};

struct vercel_call {
    vercel_get_fn *on_get;
    vercel_json_fn *on_json;
    void *arg;
    const struct answer *answer;
    struct sg_timer *timer;
};

static struct {
    struct sg_loop *loop;
    struct answer gets[16], stops[4];
    int ngets, nstops, resumes; /* asked so far */
    int cancelled;
    bool arrived;
} up;

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
        (void)sg_fail(&e, c.answer->code, SG_NOT_STARTED, "scripted");
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

/* ---- what came back ---- */

struct seen {
    int calls, want;
    char session[32], status[32];
    bool cached, pending;
    enum sg_code code;
};

static void arrived(struct seen *s, const struct sg_error *e)
{
    s->code = e ? e->code : SG_OK;
    if (++s->calls == s->want)
        up.arrived = true;
}

static void on_session(void *arg, const struct control_session *found, const struct sg_error *e)
{
    struct seen *s = arg;
    if (found) {
        (void)snprintf(s->session, sizeof s->session, "%s", found->session_id);
        s->cached = found->cached;
    }
    arrived(s, e);
}

static void on_moved(void *arg, json_t *record, bool pending, const struct sg_error *e)
{
    struct seen *s = arg;
    s->pending = pending;
    const char *status = json_string_value(json_object_get(record, "status"));
    (void)snprintf(s->status, sizeof s->status, "%s", status ? status : "");
    json_decref(record);
    arrived(s, e);
}

/* Turns the loop until the answers that are wanted have arrived. */
static void turn(void)
{
    up.arrived = false;
    while (!up.arrived)
        uv_run(sg_loop_uv(up.loop), UV_RUN_ONCE);
}

static struct control *begin(void)
{
    memset(&up, 0, sizeof up);
    up.loop = sg_loop_new();
    assert_non_null(up.loop);
    struct control *c = control_new(&(struct control_config){.loop = up.loop});
    assert_non_null(c);
    return c;
}

static void end(struct control *c)
{
    control_free(c);
    sg_loop_free(up.loop);
}

static void concurrent_lookups_share_one_call(void **state)
{
    (void)state;
    struct control *c = begin();
    struct seen s = {.want = 3};
    up.gets[0] = (struct answer){.session = "sbx_1", .status = VERCEL_RUNNING};
    for (int i = 0; i < 3; i++)
        control_session(c, "box", on_session, &s);
    assert_int_equal(s.calls, 0);
    turn();
    assert_int_equal(up.ngets, 1);
    assert_int_equal(up.resumes, 0); /* reads never resume */
    assert_string_equal(s.session, "sbx_1");
    assert_false(s.cached);
    control_session(c, "box", on_session, &s); /* from the cache, at once */
    assert_int_equal(s.calls, 4);
    assert_true(s.cached);
    assert_int_equal(up.ngets, 1);
    up.gets[1] = (struct answer){.session = "sbx_2", .status = VERCEL_RUNNING};
    control_session_forget(c, "box");
    s.want = 5;
    control_session(c, "box", on_session, &s);
    turn();
    assert_string_equal(s.session, "sbx_2");
    end(c);
}

static void lookup_tells_why_there_is_no_session(void **state)
{
    (void)state;
    static const struct {
        struct answer a;
        enum sg_code code;
    } cases[] = {
        {{.session = "sbx_1", .status = VERCEL_STOPPED}, SG_E_SANDBOX_NOT_RUNNING},
        {{.session = "sbx_1", .status = VERCEL_FAILED}, SG_E_SANDBOX_NOT_RUNNING},
        {{.session = "sbx_1", .status = VERCEL_STOPPING}, SG_E_SANDBOX_TRANSITION},
        {{.session = "sbx_1", .status = VERCEL_SNAPSHOTTING}, SG_E_SANDBOX_TRANSITION},
        {{.code = SG_E_SANDBOX_NOT_FOUND}, SG_E_SANDBOX_NOT_FOUND},
        {{.code = SG_E_UPSTREAM_UNREACHABLE}, SG_E_UPSTREAM_UNREACHABLE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct control *c = begin();
        struct seen s = {.want = 1};
        up.gets[0] = cases[i].a;
        control_session(c, "box", on_session, &s);
        turn();
        assert_int_equal(s.code, cases[i].code);
        end(c);
    }
}

static void freeing_answers_whoever_waits(void **state)
{
    (void)state;
    struct control *c = begin();
    struct seen looked = {.want = -1}, moved = {.want = -1};
    up.gets[0].never = up.gets[1].never = true;
    control_session(c, "box", on_session, &looked);
    control_stop(c, "box", &(struct control_move){.wait_ms = 25000}, on_moved, &moved);
    end(c);
    assert_int_equal(looked.calls, 1);
    assert_int_equal(looked.code, SG_E_DRAINING);
    assert_int_equal(moved.calls, 1);
    assert_int_equal(moved.code, SG_E_DRAINING);
    assert_int_equal(up.cancelled, 2);
}

static void stop_stops_and_reports_C2(void **state)
{
    (void)state;
    struct control *c = begin();
    struct seen s = {.want = 1};
    up.gets[0] = (struct answer){.session = "sbx_1", .status = VERCEL_RUNNING};
    up.gets[1] = (struct answer){.session = "sbx_1", .status = VERCEL_STOPPED};
    control_stop(c, "box", &(struct control_move){.wait_ms = 25000}, on_moved, &s);
    turn();
    assert_int_equal(s.code, SG_OK);
    assert_false(s.pending);
    assert_string_equal(s.status, "stopped");
    assert_int_equal(up.nstops, 1);
    end(c);
}

/* ---- what has to come before a stop ---- */

static struct {
    int begun, cancelled;
    bool at_once;
    char session[32];
    void (*done)(void *arg);
    void *arg;
} before;

static void *before_begin(void *arg, const char *name, const struct control_session *s,
                          void (*done)(void *arg), void *done_arg)
{
    assert_ptr_equal(arg, &before);
    assert_string_equal(name, "box");
    (void)snprintf(before.session, sizeof before.session, "%s", s->session_id);
    before.begun++;
    before.done = done;
    before.arg = done_arg;
    assert_int_equal(up.nstops, 0);
    if (!before.at_once)
        return &before;
    done(done_arg);
    return NULL;
}

static void before_cancel(void *ticket)
{
    assert_ptr_equal(ticket, &before);
    before.cancelled++;
}

static struct control *begin_with_before(bool at_once)
{
    static const struct control_before_stop b = {before_begin, before_cancel, &before};
    struct control *c = begin();
    memset(&before, 0, sizeof before);
    before.at_once = at_once;
    control_set_before_stop(c, &b);
    up.gets[0] = (struct answer){.session = "sbx_1", .status = VERCEL_RUNNING};
    up.gets[1] = (struct answer){.session = "sbx_1", .status = VERCEL_STOPPED};
    return c;
}

static void stop_comes_after_what_is_before_it_P09(void **state)
{
    (void)state;
    for (int at_once = 0; at_once < 2; at_once++) {
        struct control *c = begin_with_before(at_once);
        struct seen s = {.want = 1};
        control_stop(c, "box", &(struct control_move){.wait_ms = 25000}, on_moved, &s);
        for (int i = 0; i < 200 && !before.begun; i++)
            uv_run(sg_loop_uv(up.loop), UV_RUN_ONCE);
        assert_int_equal(before.begun, 1);
        assert_string_equal(before.session, "sbx_1");
        if (!at_once) {
            uv_run(sg_loop_uv(up.loop), UV_RUN_NOWAIT);
            assert_int_equal(up.nstops, 0);
            before.done(before.arg);
        }
        turn();
        assert_int_equal(s.code, SG_OK);
        assert_int_equal(up.nstops, 1);
        assert_int_equal(before.begun, 1);
        end(c);
        assert_int_equal(before.cancelled, 0);
    }
}

static void a_stop_that_ends_before_takes_its_ticket_back(void **state)
{
    (void)state;
    struct control *c = begin_with_before(false);
    struct seen s = {.want = -1};
    control_stop(c, "box", &(struct control_move){.wait_ms = 25000}, on_moved, &s);
    for (int i = 0; i < 200 && !before.begun; i++)
        uv_run(sg_loop_uv(up.loop), UV_RUN_ONCE);
    end(c);
    assert_int_equal(before.cancelled, 1);
    assert_int_equal(s.code, SG_E_DRAINING);
    assert_int_equal(up.nstops, 0);
}

static void stop_of_a_stopped_one_succeeds_C2(void **state)
{
    (void)state;
    struct control *c = begin();
    struct seen s = {.want = 1};
    up.gets[0] = (struct answer){.session = "sbx_1", .status = VERCEL_STOPPED};
    control_stop(c, "box", &(struct control_move){.wait_ms = 25000}, on_moved, &s);
    turn();
    assert_int_equal(s.code, SG_OK);
    assert_int_equal(up.nstops, 0);
    end(c);
}

static void stop_survives_somebody_elses_stop_C2(void **state)
{
    (void)state;
    struct control *c = begin();
    struct seen s = {.want = 1};
    up.gets[0] = (struct answer){.session = "sbx_1", .status = VERCEL_RUNNING};
    up.stops[0].code = SG_E_STALE_SESSION;
    up.gets[1] = (struct answer){.session = "sbx_1", .status = VERCEL_STOPPING};
    up.gets[2] = (struct answer){.session = "sbx_1", .status = VERCEL_STOPPED};
    control_stop(c, "box", &(struct control_move){.wait_ms = 25000}, on_moved, &s);
    turn();
    assert_int_equal(s.code, SG_OK);
    assert_int_equal(up.nstops, 1);
    assert_int_equal(up.ngets, 3);
    end(c);
}

static void stop_answers_pending_only_after_telling(void **state)
{
    (void)state;
    struct control *c = begin();
    struct seen s = {.want = 1};
    up.gets[0] = (struct answer){.session = "sbx_1", .status = VERCEL_RUNNING};
    up.stops[0].never = true;
    control_stop(c, "box", &(struct control_move){.wait_ms = 0}, on_moved, &s);
    turn();
    assert_int_equal(s.code, SG_OK);
    assert_true(s.pending);
    assert_int_equal(up.nstops, 1);
    assert_int_equal(up.cancelled, 0); /* it goes on */
    end(c);
    assert_int_equal(s.calls, 1); /* answered once */
}

static void resume_waits_out_a_stop_C2(void **state)
{
    (void)state;
    struct control *c = begin();
    struct seen s = {.want = 1};
    up.gets[0].code = up.gets[1].code = SG_E_SANDBOX_TRANSITION;
    up.gets[2] = (struct answer){.session = "sbx_2", .status = VERCEL_RUNNING};
    int64_t start = sg_mono_ms();
    control_resume(c, "box", &(struct control_move){.wait_ms = 25000}, on_moved, &s);
    turn();
    assert_true(sg_mono_ms() - start >= 400); /* it paused between looks */
    assert_int_equal(s.code, SG_OK);
    assert_string_equal(s.status, "running");
    assert_int_equal(up.resumes, 3);
    s.want = 2;
    control_session(c, "box", on_session, &s);
    assert_string_equal(s.session, "sbx_2"); /* known without asking */
    assert_int_equal(up.ngets, 3);
    end(c);
}

static void resume_never_creates_A4(void **state)
{
    (void)state;
    struct control *c = begin();
    struct seen s = {.want = 1};
    up.gets[0].code = SG_E_SANDBOX_NOT_FOUND;
    control_resume(c, "box", &(struct control_move){.wait_ms = 25000}, on_moved, &s);
    turn();
    assert_int_equal(s.code, SG_E_SANDBOX_NOT_FOUND);
    assert_int_equal(up.ngets, 1);
    end(c);
}

static void resume_says_202_when_patience_ends(void **state)
{
    (void)state;
    struct control *c = begin();
    struct seen s = {.want = 1};
    up.gets[0].never = true;
    control_resume(c, "box", &(struct control_move){.wait_ms = 10}, on_moved, &s);
    turn();
    assert_int_equal(s.code, SG_OK);
    assert_true(s.pending);
    end(c);
    assert_int_equal(s.calls, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(concurrent_lookups_share_one_call),
        cmocka_unit_test(lookup_tells_why_there_is_no_session),
        cmocka_unit_test(freeing_answers_whoever_waits),
        cmocka_unit_test(stop_stops_and_reports_C2),
        cmocka_unit_test(stop_comes_after_what_is_before_it_P09),
        cmocka_unit_test(a_stop_that_ends_before_takes_its_ticket_back),
        cmocka_unit_test(stop_of_a_stopped_one_succeeds_C2),
        cmocka_unit_test(stop_survives_somebody_elses_stop_C2),
        cmocka_unit_test(stop_answers_pending_only_after_telling),
        cmocka_unit_test(resume_waits_out_a_stop_C2),
        cmocka_unit_test(resume_never_creates_A4),
        cmocka_unit_test(resume_says_202_when_patience_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
