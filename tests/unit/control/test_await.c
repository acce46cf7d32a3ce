/* Waiting for what becomes of a sandbox, and reads that are given up, against a scripted upstream.  B5 P63 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "scripted.h"

#include <stdio.h>
#include <string.h>

struct seen {
    int calls, want;
    enum sg_code code;
    char record[2048], etag[32], had[32];
    struct control_op *cancels; /* in its callback, another one */
};

static void on_record(void *arg, struct sg_buf *record, const char *etag, const struct sg_error *e)
{
    struct seen *s = arg;
    assert_int_equal(e == NULL, record != NULL && etag != NULL);
    s->code = e ? e->code : SG_OK;
    (void)snprintf(s->record, sizeof s->record, "%s", e ? "" : record->data);
    (void)snprintf(s->etag, sizeof s->etag, "%s", e ? "" : etag);
    if (s->cancels)
        control_cancel(s->cancels);
    if (++s->calls == s->want)
        up.arrived = true;
}

static void on_moved(void *arg, json_t *record, bool pending, const struct sg_error *e)
{
    (void)arg;
    (void)pending;
    (void)e;
    json_decref(record);
}
static bool has(void *arg, const char *etag)
{
    return strcmp(((struct seen *)arg)->had, etag) == 0;
}

#define RUNS(id)                                                                                             \
    (struct answer)                                                                                          \
    {                                                                                                        \
        .session = id, .status = VERCEL_RUNNING                                                              \
    }
#define RESTS(id)                                                                                            \
    (struct answer)                                                                                          \
    {                                                                                                        \
        .session = id, .status = VERCEL_STOPPED                                                              \
    }

static void ends_when_the_status_is_reached(void **state)
{
    (void)state;
    struct control *c = begin();
    struct seen s = {.want = 1};
    up.gets[0] = up.gets[1] = RUNS("sbx_1");
    up.gets[2] = RESTS("sbx_1");
    const struct control_wait w = {.wait_ms = 20000, .for_status = true, .status = VERCEL_STOPPED};
    assert_non_null(control_await(c, "box", &w, on_record, &s));
    turn();
    assert_int_equal(up.ngets, 3);
    assert_non_null(strstr(s.record, "\"status\":\"stopped\""));
    end(c);
    assert_int_equal(s.calls, 1);
}

static void ends_at_once_for_one_at_rest_P63(void **state)
{
    (void)state;
    static const enum vercel_status rest[] = {VERCEL_STOPPED, VERCEL_FAILED, VERCEL_ABORTED};
    for (size_t i = 0; i < 6; i++) {
        struct control *c = begin();
        struct seen s = {.want = 1};
        up.gets[0] = (struct answer){.session = "sbx_1", .status = rest[i % 3]};
        const struct control_wait w = {.wait_ms = 20000, .for_status = i < 3, .status = VERCEL_RUNNING};
        control_await(c, "box", &w, on_record, &s);
        turn();
        assert_int_equal(up.ngets, 1);
        end(c);
    }
}

static void one_that_is_being_resumed_is_not_at_rest(void **state)
{
    (void)state;
    struct control *c = begin();
    struct seen s = {.want = 1};
    up.gets[0].never = true; /* the resume */
    up.gets[1] = up.gets[2] = RESTS("sbx_1");
    up.gets[3] = RUNS("sbx_2");
    const struct control_wait w = {.wait_ms = 20000, .for_status = true, .status = VERCEL_RUNNING};
    control_await(c, "box", &w, on_record, &s); /* looks at the loop's next turn, after the resume */
    control_resume(c, "box", &(struct control_move){.wait_ms = 20000}, on_moved, NULL);
    turn();
    assert_int_equal(up.ngets, 4);
    end(c);
}

static void ends_on_any_change(void **state)
{
    (void)state;
    for (int knows = 0; knows < 2; knows++) {
        struct control *c = begin();
        struct seen s = {.want = 1};
        up.gets[0] = up.gets[1] = up.gets[2] = RUNS("sbx_1");
        up.gets[3] = RUNS("sbx_2");
        struct control_wait w = {.wait_ms = 20000, .has = knows ? has : NULL};
        if (knows) {
            control_get(c, "box", on_record, &s);
            turn();
            memcpy(s.had, s.etag, sizeof s.had);
            s.want = 2;
        }
        control_await(c, "box", &w, on_record, &s);
        turn();
        assert_int_equal(up.ngets, 4);
        assert_string_not_equal(s.etag, s.had);
        assert_non_null(strstr(s.record, "sbx_2"));
        if (knows) { /* another state than it knows: at once */
            s.want = 3;
            up.gets[4] = RUNS("sbx_2");
            control_await(c, "box", &w, on_record, &s);
            turn();
            assert_int_equal(up.ngets, 5);
        }
        end(c);
    }
}

static void tells_the_last_state_when_patience_ends(void **state)
{
    (void)state;
    struct control *c = begin();
    struct seen s = {.want = 1};
    up.gets[0] = RUNS("sbx_1");
    up.gets[1].never = true;
    int64_t start = sg_mono_ms();
    const struct control_wait w = {.wait_ms = 400, .for_status = true, .status = VERCEL_STOPPED};
    control_await(c, "box", &w, on_record, &s);
    turn();
    assert_int_equal(s.code, SG_OK);
    assert_non_null(strstr(s.record, "sbx_1"));
    assert_true(sg_mono_ms() - start >= 390);
    assert_int_equal(up.cancelled, 1); /* nobody waits for the second look any more */
    end(c);
}

static void one_that_saw_nothing_yet_waits_for_its_first_look(void **state)
{
    (void)state;
    struct control *c = begin();
    struct seen first = {.want = -1}, late = {.want = 1};
    up.gets[0] = up.gets[1] = RUNS("sbx_1");
    const struct control_wait w = {.wait_ms = 20000, .for_status = true, .status = VERCEL_STOPPED};
    const struct control_wait impatient = {.wait_ms = 1, .for_status = true, .status = VERCEL_STOPPED};
    struct control_op *op = control_await(c, "box", &w, on_record, &first);
    for (int i = 0; i < 200 && up.ngets == 0; i++)
        uv_run(sg_loop_uv(up.loop), UV_RUN_ONCE);
    control_await(c, "box", &impatient, on_record,
                  &late); /* the look that is under way does not count for it */
    turn();
    assert_int_equal(up.ngets, 2);
    assert_int_equal(late.code, SG_OK);
    control_cancel(op);
    assert_int_equal(first.calls, 0);
    end(c);
}

static void all_who_wait_share_the_looks_and_errors(void **state)
{
    (void)state;
    struct control *c = begin();
    struct seen s[8];
    memset(s, 0, sizeof s);
    s[7].want = 1;
    up.gets[0] = RUNS("sbx_1");
    up.gets[1].code = SG_E_SANDBOX_NOT_FOUND;
    const struct control_wait w = {.wait_ms = 20000};
    for (int i = 0; i < 8; i++)
        control_await(c, "box", &w, on_record, &s[i]);
    turn();
    assert_int_equal(up.ngets, 2);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(s[i].calls, 1);
        assert_int_equal(s[i].code, SG_E_SANDBOX_NOT_FOUND);
    }
    end(c);
}

static void one_may_end_another_in_its_answer(void **state)
{
    (void)state;
    struct control *c = begin();
    struct seen a = {.want = 1}, b = {.want = -1};
    up.gets[0] = RESTS("sbx_1");
    const struct control_wait w = {.wait_ms = 20000};
    control_await(c, "box", &w, on_record, &a);
    a.cancels = control_await(c, "box", &w, on_record, &b);
    turn();
    assert_int_equal(a.calls, 1);
    assert_int_equal(b.calls, 0);
    end(c);
}

/* Nobody waits for the answer: the upstream is not read on. */
static void what_nobody_waits_for_is_given_up(void **state)
{
    (void)state;
    struct control *c = begin();
    struct seen s = {.want = -1};
    up.gets[0].never = up.gets[1].never = true;
    control_cancel(control_get(c, "box", on_record, &s));
    assert_int_equal(up.cancelled, 1);
    const struct control_wait w = {.wait_ms = 20000};
    struct control_op *one = control_await(c, "box", &w, on_record, &s),
                      *other = control_await(c, "box", &w, on_record, &s);
    for (int i = 0; i < 200 && up.ngets < 2; i++)
        uv_run(sg_loop_uv(up.loop), UV_RUN_ONCE);
    control_cancel(one);
    assert_int_equal(up.cancelled, 1);
    control_cancel(other);
    assert_int_equal(up.cancelled, 2);
    end(c);
    assert_int_equal(s.calls, 0);
}

static void freeing_answers_whoever_waits(void **state)
{
    (void)state;
    struct control *c = begin();
    struct seen s = {.want = -1};
    up.gets[0].never = up.gets[1].never = true;
    const struct control_wait w = {.wait_ms = 20000};
    control_get(c, "box", on_record, &s);
    control_await(c, "box", &w, on_record, &s);
    control_await(c, "box", &w, on_record, &s);
    end(c);
    assert_int_equal(s.calls, 3);
    assert_int_equal(s.code, SG_E_DRAINING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_when_the_status_is_reached),
        cmocka_unit_test(ends_at_once_for_one_at_rest_P63),
        cmocka_unit_test(one_that_is_being_resumed_is_not_at_rest),
        cmocka_unit_test(ends_on_any_change),
        cmocka_unit_test(tells_the_last_state_when_patience_ends),
        cmocka_unit_test(one_that_saw_nothing_yet_waits_for_its_first_look),
        cmocka_unit_test(all_who_wait_share_the_looks_and_errors),
        cmocka_unit_test(one_may_end_another_in_its_answer),
        cmocka_unit_test(what_nobody_waits_for_is_given_up),
        cmocka_unit_test(freeing_answers_whoever_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
