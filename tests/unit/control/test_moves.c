/* Lookups, stop and resume against a scripted upstream: shared lookups, waiting out transitions, patience. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "scripted.h"

#include <stdio.h>
#include <string.h>

/* ---- what came back ---- */

struct seen {
    int calls, want;
    char session[32], status[32], detail[256];
    int asked;
    bool cached, pending;
    enum sg_code code;
};

static void arrived(struct seen *s, const struct sg_error *e)
{
    s->code = e ? e->code : SG_OK;
    (void)snprintf(s->detail, sizeof s->detail, "%s", e ? e->detail : "");
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

/* The first error stays the one that is told; what a look shows counts more. */
static void a_stop_that_nobody_answered_is_looked_after_C2(void **state)
{
    (void)state;
    static const struct {
        struct answer then;
        enum sg_code code;
        const char *status;
    } cases[] = {
        {{.session = "sbx_1", .status = VERCEL_STOPPED}, SG_OK, "stopped"},
        {{.session = "sbx_1", .status = VERCEL_RUNNING}, SG_E_UPSTREAM_UNAVAILABLE, ""},
        {{.code = SG_E_UPSTREAM_UNREACHABLE}, SG_E_UPSTREAM_UNAVAILABLE, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct control *c = begin();
        struct seen s = {.want = 1};
        up.gets[0] = (struct answer){.session = "sbx_1", .status = VERCEL_RUNNING};
        up.stops[0] = (struct answer){.code = SG_E_UPSTREAM_UNAVAILABLE, .unknown = true};
        up.gets[1] = cases[i].then;
        control_stop(c, "box", &(struct control_move){.wait_ms = 25000}, on_moved, &s);
        turn();
        assert_int_equal(s.code, cases[i].code);
        assert_string_equal(s.status, cases[i].status);
        assert_int_equal(up.nstops, 1);
        assert_int_equal(up.ngets, 2);
        end(c);
    }
}

static void a_resume_that_nobody_answered_is_looked_after_C2(void **state)
{
    (void)state;
    static const struct {
        struct answer then;
        enum sg_code code;
    } cases[] = {
        {{.session = "sbx_2", .status = VERCEL_RUNNING}, SG_OK},
        {{.session = "sbx_1", .status = VERCEL_STOPPED}, SG_E_UPSTREAM_UNAVAILABLE},
        {{.code = SG_E_SANDBOX_NOT_FOUND}, SG_E_UPSTREAM_UNAVAILABLE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct control *c = begin();
        struct seen s = {.want = 1};
        up.gets[0] = (struct answer){.code = SG_E_UPSTREAM_UNAVAILABLE, .unknown = true};
        up.gets[1] = cases[i].then;
        control_resume(c, "box", &(struct control_move){.wait_ms = 25000}, on_moved, &s);
        turn();
        assert_int_equal(s.code, cases[i].code);
        assert_int_equal(up.resumes, 1); /* the look after it is a plain one */
        assert_int_equal(up.ngets, 2);
        end(c);
    }
}

static void a_resume_names_the_snapshot_that_is_gone_P58(void **state)
{
    (void)state;
    struct control *c = begin();
    struct seen s = {.want = 1};
    up.gets[0].code = SG_E_SNAPSHOT_GONE;
    up.gets[1] = (struct answer){.session = "sbx_1", .status = VERCEL_STOPPED, .snapshot = "snap_7"};
    control_resume(c, "box", &(struct control_move){.wait_ms = 25000}, on_moved, &s);
    turn();
    assert_int_equal(s.code, SG_E_SNAPSHOT_GONE);
    assert_non_null(strstr(s.detail, "snap_7"));
    assert_int_equal(up.resumes, 1);
    end(c);
}

static void a_session_that_does_not_come_up_is_told_at_once_P63(void **state)
{
    (void)state;
    struct control *c = begin();
    struct seen s = {.want = 1};
    up.gets[0] = (struct answer){.session = "sbx_2", .status = VERCEL_PENDING};
    up.gets[1] = (struct answer){.session = "sbx_2", .status = VERCEL_FAILED};
    control_resume(c, "box", &(struct control_move){.wait_ms = 25000}, on_moved, &s);
    turn();
    assert_int_equal(s.code, SG_E_SANDBOX_NOT_RUNNING);
    assert_int_equal(up.resumes, 1); /* one that is coming up is only looked at */
    end(c);
}

static bool never_fits(void *arg, const char *etag)
{
    struct seen *s = arg;
    assert_int_equal(strlen(etag), 22);
    s->asked++;
    return false;
}

static void another_state_is_left_alone(void **state)
{
    (void)state;
    for (int stop = 0; stop < 2; stop++) {
        struct control *c = begin();
        struct seen s = {.want = 1};
        const struct control_move how = {.wait_ms = 25000, .fits = never_fits};
        up.gets[0] = (struct answer){.session = "sbx_1", .status = stop ? VERCEL_RUNNING : VERCEL_STOPPED};
        if (stop)
            control_stop(c, "box", &how, on_moved, &s);
        else
            control_resume(c, "box", &how, on_moved, &s);
        turn();
        assert_int_equal(s.code, SG_E_PRECONDITION_FAILED);
        assert_int_equal(s.asked, 1);
        assert_int_equal(up.ngets, 1);
        assert_int_equal(up.resumes + up.nstops, 0);
        end(c);
    }
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
        cmocka_unit_test(a_stop_that_nobody_answered_is_looked_after_C2),
        cmocka_unit_test(a_resume_that_nobody_answered_is_looked_after_C2),
        cmocka_unit_test(a_resume_names_the_snapshot_that_is_gone_P58),
        cmocka_unit_test(a_session_that_does_not_come_up_is_told_at_once_P63),
        cmocka_unit_test(another_state_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
