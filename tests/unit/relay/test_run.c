/* run: start, collect, answer.  U3, U5, C7; P02, P03, P04, P07, P10, P13, P15. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "relay/relay.h"
#include "tests/unit/relay/fixture.h"

#include <stdlib.h>
#include <string.h>

static int setup(void **state)
{
    (void)state;
    struct relay_limits l = {.give_up_ms = 500, .settle_ms = 400, .backoff_max_ms = 4};
    return fixture_open(&l);
}

struct result {
    bool done;
    int times;
    bool ok;
    struct run_result res;
    unsigned char *out[2];
    struct sg_error e;
};

static void on_done(void *arg, const struct run_result *res, const struct sg_error *e)
{
    struct result *r = arg;
    r->done = true;
    r->times++;
    r->ok = res != NULL;
    if (e)
        r->e = *e;
    if (!res)
        return;
    r->res = *res;
    for (int s = 0; s < 2; s++) { /* borrowed: the call's own memory goes away */
        r->out[s] = malloc(res->len[s] + 1);
        assert_non_null(r->out[s]);
        memcpy(r->out[s], res->out[s], res->len[s]);
    }
}

static void clear(struct result *r)
{
    free(r->out[0]);
    free(r->out[1]);
    memset(r, 0, sizeof *r);
}

static struct run *begin(struct result *r, const char *id, size_t max, int64_t wait_ms)
{
    static const char *const argv[] = {"sh", "-c", "x", NULL};
    struct process_spec s = {.session = {.session_id = "sess-1"}, .id = id, .argv = argv};
    struct run *run = run_start(relay, &s, max, wait_ms, on_done, r, &r->e);
    assert_non_null(run);
    assert_false(r->done);
    return run;
}

static void finish(struct result *r)
{
    assert_true(fake_until(&fake, &r->done));
    fake_turns(&fake, 3);
    assert_int_equal(r->times, 1);
}

/* A short command is one upstream call; its tail without a newline is there (P07). */
static void test_short(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 3, 0, false);
    memcpy(p->content[0], "abc", 3);
    struct result r = {0};
    begin(&r, "p1", 1000, 10000);
    finish(&r);
    assert_true(r.ok);
    assert_int_equal(r.res.len[0], 3);
    assert_memory_equal(r.out[0], "abc", 3);
    assert_int_equal(r.res.len[1], 0);
    assert_int_equal(r.res.p.how, SG_HOW_EXIT);
    assert_int_equal(r.res.p.value, 7);
    assert_string_equal(r.res.p.id, "p1");
    assert_false(r.res.truncated);
    assert_true(r.res.output_complete);
    assert_int_equal(fake_total(&fake), 1);
    clear(&r);
}

/* Across every kind of cut, with lost starts: one start, and the bytes that were printed. */
static void test_exact_across_everything(void **state)
{
    (void)state;
    for (int round = 0; round < 150; round++) {
        struct fake_proc *p =
            fake_proc(&fake, "p1", fake_random(&fake, 60000), fake_random(&fake, 60000), false);
        size_t max = round % 3 ? 100000 : (size_t)fake_random(&fake, 30000);
        fake.faults = (struct fake_faults){.cut = (int)fake_random(&fake, 120),
                                           .repeat = (int)fake_random(&fake, 200),
                                           .overlap = (int)fake_random(&fake, 300),
                                           .hole = (int)fake_random(&fake, 60),
                                           .more = (int)fake_random(&fake, 60),
                                           .early_exit = (int)fake_random(&fake, 60)};
        fake.lose_start = round % 4 == 1 ? LOST_ARRIVED : LOST_NOT;
        fake.lose_after_hello = round % 4 == 2;
        struct result r = {0};
        begin(&r, "p1", max, 0);
        finish(&r);
        assert_true(r.ok);
        assert_int_equal(p->starts, 1);
        assert_int_equal(fake.calls[V_RUN], round + 1); /* P02: never sent twice */
        bool cut = false;
        for (int s = 0; s < 2; s++) {
            size_t want = p->total[s] < max ? (size_t)p->total[s] : max;
            cut = cut || p->total[s] > max;
            assert_int_equal(r.res.len[s], want);
            assert_memory_equal(r.out[s], p->content[s], want);
        }
        assert_int_equal(r.res.truncated, cut);
        assert_true(r.res.output_complete);
        assert_int_equal(r.res.p.how, SG_HOW_EXIT);
        clear(&r);
        fixture_forget(p);
    }
}

/* The start's answer is lost and it provably never ran: an error that says so. */
static void test_never_started(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 3, 0, false);
    fake.lose_start = LOST_ARRIVES_LATE;
    struct result r = {0};
    begin(&r, "p1", 1000, 0);
    finish(&r);
    assert_false(r.ok);
    assert_int_equal(r.e.outcome, SG_NOT_STARTED);
    assert_int_equal(p->starts, 0);
    clear(&r);
}

/* P15: the answer at wait_ms, with what was printed so far; the process goes on. */
static void test_wait_is_over(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 5000, 0, false);
    p->hold = true;
    p->written[0] = 1234;
    struct result r = {0};
    begin(&r, "p1", 10000, 30);
    finish(&r);
    assert_true(r.ok);
    assert_int_equal(r.res.p.how, SG_HOW_NONE);
    assert_int_equal(r.res.p.state, SG_PS_RUNNING);
    assert_int_equal(r.res.len[0], 1234);
    assert_false(r.res.output_complete);
    assert_true(p->exists && !p->exited);
    assert_int_equal(fake.live, 0);
    clear(&r);
}

/* wait_ms is over before the start is known: the answer waits for that and no longer. */
static void test_slow_start(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 5000, 0, false);
    p->hold = true;
    fake.hang = 1;
    struct result r = {0};
    begin(&r, "p1", 10000, 5);
    int64_t over = sg_mono_ms() + 30; /* six times wait_ms */
    while (sg_mono_ms() < over)
        (void)uv_run(sg_loop_uv(loop), UV_RUN_NOWAIT);
    assert_false(r.done);
    fake_wake(&fake);
    finish(&r);
    assert_true(r.ok);
    assert_int_equal(r.res.p.state, SG_PS_RUNNING);
    assert_int_equal(p->starts, 1);
    clear(&r);
}

/* P10: the exit is known and the last byte cannot be had. */
static void test_lost_tail(void **state)
{
    (void)state;
    (void)fake_proc(&fake, "p1", 3000, 0, false);
    fake.never_exit_tail = true;
    struct result r = {0};
    begin(&r, "p1", 10000, 0);
    finish(&r);
    assert_true(r.ok);
    assert_int_equal(r.res.p.how, SG_HOW_EXIT);
    assert_int_equal(r.res.len[0], 2999);
    assert_true(r.res.truncated);
    assert_false(r.res.output_complete);
    clear(&r);
}

/* P03: the upstream is gone for good after the start: an error that says it was started, never an exit. */
static void test_upstream_gone(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 3000, 0, false);
    p->hold = true;
    fake.lose_after_hello = true;
    struct result r = {0};
    begin(&r, "p1", 10000, 0);
    fake.refuse_all = SG_E_UPSTREAM_UNREACHABLE;
    finish(&r);
    assert_false(r.ok);
    assert_int_equal(r.e.code, SG_E_UPSTREAM_UNREACHABLE);
    assert_int_equal(r.e.outcome, SG_STARTED);
    clear(&r);
}

/* The caller leaves before the start is known: the start that was sent is not taken back. */
static void test_cancel_before_hello(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 10, 0, false);
    p->hold = true;
    struct result r = {0};
    run_cancel(begin(&r, "p1", 10000, 1000));
    bool started = false;
    while (!started) {
        fake_turn(&fake);
        started = p->starts == 1 && fake.live == 0;
    }
    assert_int_equal(r.times, 0);
}

static void test_cancel_later(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 10, 0, false);
    p->hold = true;
    struct result r = {0};
    struct run *run = begin(&r, "p1", 10000, 1000);
    while (!p->starts)
        fake_turn(&fake);
    run_cancel(run);
    fake_turns(&fake, 4);
    assert_int_equal(fake.live, 0);
    assert_int_equal(r.times, 0);
}

/* Evicted before it was read: the prefix stays exact, and the answer says that something is missing. */
static void test_evicted(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 9000, 0, false);
    p->written[0] = p->oldest[0] = 5000;
    struct result r = {0};
    begin(&r, "p1", 100000, 0);
    finish(&r);
    assert_true(r.ok);
    assert_true(r.res.truncated);
    assert_false(r.res.output_complete);
    assert_int_equal(r.res.len[0], 0);
    clear(&r);
}

static void test_drained(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 9000, 0, false);
    p->hold = true;
    struct result r = {0};
    begin(&r, "p1", 100000, 0);
    while (!p->starts)
        fake_turn(&fake);
    relay_free(relay);
    relay = NULL;
    assert_int_equal(r.times, 1);
    assert_int_equal(r.e.code, SG_E_DRAINING);
    assert_int_equal(r.e.outcome, SG_STARTED);
}

/* ---- input that goes before ---- */

static struct run *begin_fed(struct result *r, const char *id, int64_t wait_ms)
{
    static const char *const argv[] = {"cat", NULL};
    static unsigned char input[PROCESS_WRITE_MAX + 1];
    memset(input, 'i', sizeof input);
    struct process_spec s = {.session = {.session_id = "sess-1"},
                             .id = id,
                             .argv = argv,
                             .input = input,
                             .input_len = sizeof input};
    struct run *run = run_start(relay, &s, 1000, wait_ms, on_done, r, &r->e);
    assert_non_null(run);
    return run;
}

/* A12: two upstream calls; U3: started once, also when the run's own answer is lost. */
static void test_long_input(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 3, 0, false);
    struct result r = {0};
    begin_fed(&r, "p1", 10000);
    finish(&r);
    assert_true(r.ok);
    assert_int_equal(r.res.p.how, SG_HOW_EXIT);
    assert_int_equal(fake_files.writes, 1);
    assert_int_equal(fake_files.size, PROCESS_WRITE_MAX + 1);
    assert_int_equal(fake_total(&fake), 1);
    assert_non_null(strstr(fake.last_args, "--input-file .up-"));
    clear(&r);
    (void)fake_proc(&fake, "p2", 3, 0, false);
    fake.lose_start = LOST_ARRIVED;
    begin_fed(&r, "p2", 10000);
    finish(&r);
    assert_true(r.ok);
    assert_int_equal(fake_find(&fake, "p2")->starts, 1);
    assert_int_equal(p->starts, 1);
    clear(&r);
}

static void test_long_input_fails(void **state)
{
    (void)state;
    struct result r = {0};
    fake_files.fail = SG_E_NO_SPACE;
    begin_fed(&r, "p1", 10000);
    finish(&r);
    assert_false(r.ok);
    assert_int_equal(r.e.code, SG_E_NO_SPACE);
    assert_int_equal(r.e.outcome, SG_NOT_STARTED);
    assert_int_equal(fake_total(&fake), 0);
}

/* Whoever leaves while the input is on its way does not keep the program from starting. */
static void test_long_input_cancelled(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 3, 0, false);
    struct result r = {0};
    run_cancel(begin_fed(&r, "p1", 10000));
    for (int i = 0; i < 100 && !p->starts; i++)
        fake_turns(&fake, 1);
    assert_int_equal(p->starts, 1);
    assert_int_equal(r.times, 0);
    fake_files.hang = true;
    begin_fed(&r, "p2", 10000);
    relay_free(relay);
    relay = NULL;
    assert_int_equal(r.times, 1);
    assert_int_equal(r.e.code, SG_E_DRAINING);
    assert_int_equal(r.e.outcome, SG_NOT_STARTED);
    assert_int_equal(fake_files.cancelled, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_short, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_exact_across_everything, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_never_started, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_wait_is_over, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_slow_start, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_lost_tail, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_upstream_gone, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_cancel_before_hello, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_cancel_later, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_evicted, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_drained, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_long_input, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_long_input_fails, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_long_input_cancelled, setup, fixture_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
