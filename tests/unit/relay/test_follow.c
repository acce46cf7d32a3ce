/* The follower against an upstream that cuts, repeats, overlaps and loses: what is delivered equals what was
 * printed.  U2, U6, C7; P01, P02, P03, P07, P08, P10, P18, P19. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "relay/relay.h"
#include "tests/unit/relay/fixture.h"

#include <stdlib.h>
#include <string.h>

/* A reader that believes nothing. */
struct reader {
    struct follower *f;
    struct fake_proc *p;
    uint64_t pos[2];
    uint64_t start[2];
    int hellos, gaps, pauses;
    uint64_t gap_bytes;
    int pause_permille;
    bool never_resume, resume_inside, close_in_hello, close_in_data, close_in_end;
    bool wrong, ended;
    struct sg_timer *later;
    struct sg_wire_process end, hello;
    struct sg_error e;
    bool failed;
};

static void on_hello(void *arg, const struct sg_wire_process *p)
{
    struct reader *r = arg;
    if (r->hellos++ || r->ended)
        r->wrong = true;
    r->hello = *p;
    if (r->close_in_hello)
        follower_close(r->f);
}

static bool on_data(void *arg, int stream, uint64_t offset, const void *data, size_t len)
{
    struct reader *r = arg;
    if (!r->hellos || r->ended || offset != r->pos[stream] || len == 0 ||
        offset + len > r->p->total[stream] || memcmp(data, r->p->content[stream] + offset, len) != 0)
        r->wrong = true;
    r->pos[stream] += len;
    if (r->close_in_data) {
        follower_close(r->f);
        return true;
    }
    if (fake_chance(&fake, r->pause_permille)) {
        r->pauses++;
        if (r->resume_inside)
            follower_resume(r->f);
        else if (!r->never_resume)
            sg_timer_start(r->later, fake_random(&fake, 3));
        return false;
    }
    return true;
}

static void on_gap(void *arg, int stream, uint64_t from, uint64_t to)
{
    struct reader *r = arg;
    if (from != r->pos[stream] || to <= from || r->ended)
        r->wrong = true;
    r->pos[stream] = to;
    r->gaps++;
    r->gap_bytes += to - from;
}

static void on_end(void *arg, const struct sg_wire_process *p, const struct sg_error *e)
{
    struct reader *r = arg;
    if (r->ended || !p == !e)
        r->wrong = true;
    r->ended = true;
    if (p)
        r->end = *p;
    if (e) {
        r->failed = true;
        r->e = *e;
    }
    if (r->close_in_end)
        follower_close(r->f);
}

static void on_later(void *arg)
{
    struct reader *r = arg;
    follower_resume(r->f);
}

static const struct follower_events events = {on_hello, on_data, on_gap, on_end};

static void begin(struct reader *r, struct fake_proc *p, const struct follow_spec *more)
{
    struct sg_error e;
    struct follow_spec s = more ? *more : (struct follow_spec){.only = -1};
    s.session = (struct relay_session){.session_id = "sess-1"};
    s.id = p->id;
    r->p = p;
    r->pos[0] = r->start[0] = s.offset[0];
    r->pos[1] = r->start[1] = s.offset[1];
    r->later = sg_timer_new(loop, on_later, r);
    r->f = follower_open(relay, &s, &events, r, &e);
    assert_non_null(r->f);
    assert_false(r->ended);
}

static void end(struct reader *r)
{
    sg_timer_free(r->later);
    if (!r->close_in_hello && !r->close_in_data && !r->close_in_end)
        follower_close(r->f);
}

static int setup(void **state)
{
    (void)state;
    struct relay_limits l = {.give_up_ms = 3000, .give_up_bounded_ms = 3000, .backoff_max_ms = 4};
    return fixture_open(&l);
}

/* U2, P01, P08, C7: across random faults and pauses, exactly the bytes, once, then the exit. */
static void test_exact_across_everything(void **state)
{
    (void)state;
    for (int round = 0; round < 150; round++) {
        struct fake_proc *p =
            fake_proc(&fake, "p1", fake_random(&fake, 120000), fake_random(&fake, 60000), true);
        fake.faults = (struct fake_faults){.cut = (int)fake_random(&fake, 120),
                                           .cut_at_hello = (int)fake_random(&fake, 200),
                                           .repeat = (int)fake_random(&fake, 200),
                                           .overlap = (int)fake_random(&fake, 300),
                                           .hole = (int)fake_random(&fake, 60),
                                           .more = (int)fake_random(&fake, 60),
                                           .early_exit = (int)fake_random(&fake, 60),
                                           .refuse = (int)fake_random(&fake, 100)};
        struct reader r = {.pause_permille = (int)fake_random(&fake, 100), .resume_inside = round % 5 == 0};
        struct follow_spec s = {.only = -1};
        s.offset[0] = p->total[0] ? fake_random(&fake, p->total[0]) / 3 : 0;
        begin(&r, p, &s);
        assert_true(fake_until(&fake, &r.ended));
        assert_false(r.wrong);
        assert_false(r.failed);
        assert_int_equal(r.hellos, 1);
        assert_int_equal(r.gaps, 0);
        assert_int_equal(r.pos[0], p->total[0]);
        assert_int_equal(r.pos[1], p->total[1]);
        assert_int_equal(r.end.how, SG_HOW_EXIT);
        assert_int_equal(r.end.value, 7);
        assert_false(r.end.output_incomplete);
        end(&r);
        fake_turns(&fake, 3);
        fixture_forget(p);
    }
}

/* P18: a silent process uses up no patience; twenty cuts, one hello, then its only byte. */
static void test_silent_process(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "quiet", 1, 0, true);
    p->hold = true;
    fake.faults.cut = 1000;
    struct relay_limits l = {.give_up_ms = 30, .backoff_max_ms = 4};
    relay_set_limits(relay, &l);
    struct reader r = {0};
    begin(&r, p, NULL);
    while (fake.calls[V_FOLLOW] < 20)
        fake_turn(&fake);
    assert_false(r.ended);
    p->hold = false;
    fake.faults.cut = 0;
    fake_wake(&fake);
    assert_true(fake_until(&fake, &r.ended));
    assert_false(r.wrong || r.failed);
    assert_int_equal(r.hellos, 1);
    assert_int_equal(r.pos[0], 1);
    end(&r);
}

/* Bytes that are no longer kept are named, and the rest is exact. */
static void test_gap(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "ring", 50000, 10, true);
    p->written[0] = p->oldest[0] = 20000;
    struct reader r = {0};
    begin(&r, p, &(struct follow_spec){.only = -1, .offset = {5, 0}});
    assert_true(fake_until(&fake, &r.ended));
    assert_false(r.wrong || r.failed);
    assert_int_equal(r.gaps, 1);
    assert_int_equal(r.gap_bytes, 20000 - 5);
    assert_int_equal(r.pos[0], 50000);
    end(&r);
}

/* P10: the exit is known, the last byte never comes: the exit is told, and that output is missing. */
static void test_lost_tail(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "tail", 3000, 0, true);
    fake.never_exit_tail = true;
    struct reader r = {0};
    begin(&r, p, NULL);
    assert_true(fake_until(&fake, &r.ended));
    assert_false(r.wrong || r.failed);
    assert_int_equal(r.pos[0], 2999);
    assert_int_equal(r.end.how, SG_HOW_EXIT);
    assert_true(r.end.output_incomplete);
    end(&r);
}

/* A hole that never closes is an error, not a silent loss. */
static void test_hole_for_ever(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "hole", 5000000, 0, true);
    p->written[0] = p->total[0];
    p->hold = true; /* never ends */
    fake.faults.hole = 950;
    struct reader r = {0};
    begin(&r, p, NULL);
    assert_true(fake_until(&fake, &r.ended));
    assert_false(r.wrong);
    assert_true(r.failed);
    assert_int_equal(r.e.code, SG_E_UPSTREAM_BAD_RESPONSE);
    end(&r);
}

/* Refused again and again: given up after the stated time, with the upstream's error. */
static void test_gives_up(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "away", 10, 0, true);
    struct relay_limits l = {.give_up_ms = 100, .backoff_max_ms = 10};
    relay_set_limits(relay, &l);
    fake.refuse_all = SG_E_UPSTREAM_UNREACHABLE;
    struct reader r = {0};
    begin(&r, p, NULL);
    assert_true(fake_until(&fake, &r.ended));
    assert_true(r.failed);
    assert_int_equal(r.e.code, SG_E_UPSTREAM_UNREACHABLE);
    assert_in_range(fake.calls[V_FOLLOW], 5, 60);
    end(&r);
}

/* The session is over, or nobody knows the process: at once, no second call. */
static void test_final_errors(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "gone", 10, 0, false);
    struct reader r = {0};
    begin(&r, p, NULL);
    assert_true(fake_until(&fake, &r.ended));
    assert_int_equal(r.e.code, SG_E_PROCESS_NOT_FOUND);
    end(&r);
    fake.refuse_all = SG_E_STALE_SESSION;
    struct reader r2 = {0};
    begin(&r2, p, NULL);
    assert_true(fake_until(&fake, &r2.ended));
    assert_int_equal(r2.e.code, SG_E_STALE_SESSION);
    end(&r2);
    assert_int_equal(fake.calls[V_FOLLOW], 2);
}

/* A reader that pauses for long: the upstream stream is let go, and continued exactly afterwards. */
static void test_long_pause(void **state)
{
    (void)state;
    struct relay_limits l = {.pause_max_ms = 15, .backoff_max_ms = 4};
    relay_set_limits(relay, &l);
    struct fake_proc *p = fake_proc(&fake, "slow", 100000, 100000, true);
    p->written[0] = p->written[1] = 100000;
    struct reader r = {.pause_permille = 1000, .never_resume = true};
    begin(&r, p, NULL);
    while (!fake.cancelled)
        fake_turn(&fake);
    fake_turns(&fake, 3);
    assert_int_equal(fake.live, 0);
    uint64_t at = r.pos[0] + r.pos[1];
    assert_in_range(at, 1, 4096);
    r.pause_permille = 0;
    follower_resume(r.f);
    assert_true(fake_until(&fake, &r.ended));
    assert_false(r.wrong || r.failed);
    assert_int_equal(r.pos[0] + r.pos[1], 200000);
    end(&r);
}

static void test_close_anywhere(void **state)
{
    (void)state;
    for (int where = 0; where < 3; where++) {
        struct fake_proc *p = fake_proc(&fake, "c", 5000, 5000, true);
        struct reader r = {
            .close_in_hello = where == 0, .close_in_data = where == 1, .close_in_end = where == 2};
        begin(&r, p, NULL);
        if (where == 2) {
            assert_true(fake_until(&fake, &r.ended));
        } else {
            while (where == 0 ? !r.hellos : !r.pos[0] && !r.pos[1])
                fake_turn(&fake);
            uint64_t at = r.pos[0] + r.pos[1];
            fake_turns(&fake, 20);
            assert_int_equal(r.pos[0] + r.pos[1], at);
            assert_false(r.ended);
        }
        assert_int_equal(fake.live, 0);
        end(&r);
        fixture_forget(p);
    }
}

/* ---- bounded reads ---- */

static void test_bounded_reads(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "b", 70000, 30000, true);
    p->written[0] = 40000;
    p->written[1] = 30000;
    p->hold = true;
    for (int round = 0; round < 60; round++) {
        fake.faults = (struct fake_faults){.cut = (int)fake_random(&fake, 200), .overlap = 100, .repeat = 50};
        struct follow_spec s = {.only = 0, .bounded = true};
        s.offset[0] = fake_random(&fake, 45000);
        s.limit = round % 2 ? 1 + fake_random(&fake, 50000) : 0;
        uint64_t there = s.offset[0] < 40000 ? 40000 - s.offset[0] : 0;
        uint64_t want = s.limit && s.limit < there ? s.limit : there;
        struct reader r = {.pause_permille = 50};
        begin(&r, p, &s);
        assert_true(fake_until(&fake, &r.ended));
        assert_false(r.wrong || r.failed);
        assert_int_equal(r.pos[0] - r.start[0], want);
        assert_int_equal(r.pos[1], 0);
        assert_int_equal(r.end.how, SG_HOW_NONE);
        assert_int_equal(r.end.end[0], 40000);
        end(&r);
        fake_turns(&fake, 3);
    }
}

/* P19: below what is kept is an error that names the oldest offset. */
static void test_bounded_evicted(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "b", 70000, 0, true);
    p->written[0] = 40000;
    p->oldest[0] = 1000;
    p->hold = true;
    struct reader r = {0};
    begin(&r, p, &(struct follow_spec){.only = 0, .bounded = true, .offset = {999, 0}});
    assert_true(fake_until(&fake, &r.ended));
    assert_true(r.failed);
    assert_int_equal(r.hellos, 0);
    assert_int_equal(r.e.code, SG_E_OUTPUT_EVICTED);
    assert_int_equal(r.e.oldest, 1000);
    end(&r);
}

/* The first byte, or the end, is waited for. */
static void test_bounded_wait(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "w", 10, 0, true);
    p->hold = true;
    struct reader r = {0};
    begin(&r, p, &(struct follow_spec){.only = 0, .bounded = true, .wait_ms = 15000});
    fake_turns(&fake, 50);
    assert_false(r.ended);
    p->hold = false;
    assert_true(fake_until(&fake, &r.ended));
    assert_false(r.wrong || r.failed);
    assert_true(r.pos[0] > 0 || r.end.how == SG_HOW_EXIT);
    end(&r);
}

/* The relay goes: everything ends with DRAINING. */
static void test_draining(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "d", 10, 0, true);
    p->hold = true;
    struct reader r = {.close_in_end = true};
    begin(&r, p, NULL);
    fake_turns(&fake, 5);
    relay_free(relay);
    relay = NULL;
    assert_true(r.ended);
    assert_int_equal(r.e.code, SG_E_DRAINING);
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_exact_across_everything, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_silent_process, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_gap, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_lost_tail, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_hole_for_ever, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_gives_up, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_final_errors, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_long_pause, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_close_anywhere, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_bounded_reads, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_bounded_evicted, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_bounded_wait, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_draining, setup, fixture_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
