/* Carriers of input: bytes go in order and once whatever is lost, in few calls, and the end is told once.
 * C6 P63 P64 */
#include "carrier_play.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

/* Ten mebibytes in about twenty calls, none of them for asking. */
static void test_upload_in_few_calls(void **state)
{
    (void)state;
    struct setup s = {.o.finish = true};
    open_setup(&s, 10 * 1024 * 1024);
    begin(&s);
    bring(&s.o);
    fixture_run(&s.f, &s.o.done);
    check_all_there(&s);
    assert_in_range(s.u.calls, 20, 24);
    assert_int_equal(s.u.asks, 0);
    assert_int_equal(s.u.closes, 1);
    assert_int_equal(s.u.runs, 1);
    assert_false(s.o.interactive);
    assert_non_null(strstr(s.u.body, "\"args\":[\"input\",\"--session\",\"sbx_1\",\"--id\",\"p1\"]"));
    assert_non_null(strstr(s.u.body, "\"attachStdin\":true"));
    close_setup(&s);
}

/* Keys typed faster than calls return share calls. */
static void test_typing_shares_calls(void **state)
{
    (void)state;
    struct setup s = {.o.piece = 1};
    open_setup(&s, 2000);
    begin(&s);
    run_until_kinds(&s, "C");
    while (s.o.sent < s.o.len) {
        s.o.sent += carrier_send(s.o.carrier, s.data + s.o.sent, 1);
        fixture_turn(&s.f);
    }
    carrier_finish(s.o.carrier);
    fixture_run(&s.f, &s.o.done);
    check_all_there(&s);
    assert_in_range(s.u.calls, 2, 500);
    close_setup(&s);
}

/* Nothing is sent before the guest has said that it listens. */
static void test_nothing_before_the_guest_spoke(void **state)
{
    (void)state;
    struct setup s = {.u.mute = true};
    open_setup(&s, 100);
    begin(&s);
    bring(&s.o);
    while (raw_requests(s.f.server) < 1)
        fixture_turn(&s.f);
    int64_t until = sg_mono_ms() + 200;
    while (sg_mono_ms() < until)
        fixture_turn(&s.f);
    assert_int_equal(raw_requests(s.f.server), 1);
    carrier_cancel(s.o.carrier);
    close_setup(&s);
}

static void lossy(const enum fault *faults, size_t n, enum fault always, bool whole)
{
    struct setup s = {.o.finish = true, .u.always = always};
    memcpy(s.u.faults, faults, n * sizeof *faults);
    open_setup(&s, 3 * 1024 * 1024);
    begin(&s);
    bring(&s.o);
    fixture_run(&s.f, &s.o.done);
    if (whole) {
        check_all_there(&s);
    } else {
        assert_false(s.o.has_line);
        assert_memory_equal(s.u.received, s.data, s.u.len); /* what is in is a beginning, once */
    }
    close_setup(&s);
}

static void test_losses(void **state)
{
    (void)state;
    static const enum fault cases[][8] = {
        {FAULT_LOST},
        {FAULT_CUT},
        {FAULT_503},
        {FAULT_429},
        {FAULT_HALF_504},
        {FAULT_MUTE_504},
        {FAULT_STUCK_504},
        {FAULT_NONE, FAULT_LOST, FAULT_HALF_504, FAULT_NONE, FAULT_MUTE_504, FAULT_429, FAULT_CUT,
         FAULT_LOST},
        {FAULT_MUTE_504, FAULT_429, FAULT_NONE, FAULT_HALF_504, FAULT_HALF_504, FAULT_HALF_504},
        {FAULT_LOST, FAULT_NONE, FAULT_LOST, FAULT_NONE, FAULT_CUT, FAULT_NONE, FAULT_503, FAULT_503},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        lossy(cases[i], 8, FAULT_NONE, true);
}

/* The close is lost as often as the upstream likes: it is said again, and "closed already" is its success. */
static void test_lost_close(void **state)
{
    (void)state;
    struct setup s = {.o.finish = true, .u.faults = {FAULT_NONE, FAULT_LOST}};
    open_setup(&s, 10);
    begin(&s);
    bring(&s.o);
    fixture_run(&s.f, &s.o.done);
    check_all_there(&s);
    close_setup(&s);
}

/* Where nothing gets through the carrier ends, and has brought nothing twice. */
static void test_hopeless(void **state)
{
    (void)state;
    static const enum fault always[] = {FAULT_LOST, FAULT_CUT, FAULT_503, FAULT_STUCK_504, FAULT_MUTE_504};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        lossy(&always[i], 1, always[i], false);
}

/* A sandbox that does not count: all is well while nothing is lost, and nothing is sent twice when it is. */
static void test_without_counts(void **state)
{
    (void)state;
    for (int lost = 0; lost < 3; lost++) {
        static const enum fault second[] = {FAULT_NONE, FAULT_LOST, FAULT_MUTE_504};
        struct setup s = {.o.finish = true, .u.no_counts = true, .u.faults = {FAULT_NONE, second[lost]}};
        open_setup(&s, 2 * 1024 * 1024);
        begin(&s);
        bring(&s.o);
        fixture_run(&s.f, &s.o.done);
        if (!lost) {
            check_all_there(&s);
        } else {
            assert_false(s.o.has_line);
            assert_int_equal(s.o.error.outcome, SG_OUTCOME_UNKNOWN);
            assert_int_equal(s.u.asks, 1);
            assert_in_range(s.u.len, 1, s.o.len - 1);
            assert_memory_equal(s.u.received, s.data, s.u.len);
        }
        close_setup(&s);
    }
}

/* The guest's last word is the end: also when the stdin endpoint is the first to know. */
static void test_last_words(void **state)
{
    (void)state;
    static const char *const words[] = {"M", "E fenced - another carrier", "E finished - it has ended",
                                        "E no_input - it reads nothing"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (int first_by_stdin = 0; first_by_stdin < 2; first_by_stdin++) {
            struct setup s = {.u.last = words[i]};
            if (first_by_stdin)
                s.u.always = FAULT_GONE;
            open_setup(&s, 100);
            begin(&s);
            bring(&s.o);
            while (first_by_stdin && calls_seen(&s.u) < 1)
                fixture_turn(&s.f);
            run_until_kinds(&s, first_by_stdin ? "C" : "CA");
            pthread_mutex_lock(&s.u.lock);
            s.u.end = true;
            pthread_mutex_unlock(&s.u.lock);
            wake(&s.u);
            fixture_run(&s.f, &s.o.done);
            assert_true(s.o.has_line);
            assert_int_equal(s.o.line.kind, words[i][0]);
            close_setup(&s);
        }
}

static void test_refused_by_the_guest(void **state)
{
    (void)state;
    struct setup s = {.u.first = "E no_record - nothing of this name", .u.end = true, .u.last = "K"};
    open_setup(&s, 100);
    begin(&s);
    bring(&s.o);
    fixture_run(&s.f, &s.o.done);
    assert_string_equal(s.o.kinds, "");
    assert_int_equal(s.o.line.kind, SG_WIRE_ERROR);
    assert_int_equal(s.o.line.fail, SG_WF_NO_RECORD);
    assert_int_equal(s.u.calls, 0);
    close_setup(&s);
}

static void test_nonsense_from_the_guest(void **state)
{
    (void)state;
    static const char *const firsts[] = {"A 0 10 -", "hello", "K x y z", "D 1 0 AAAA"};
    for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++) {
        struct setup s = {.u.first = firsts[i]};
        open_setup(&s, 100);
        begin(&s);
        fixture_run(&s.f, &s.o.done);
        assert_false(s.o.has_line);
        assert_int_equal(s.o.error.code, SG_E_UPSTREAM_BAD_RESPONSE);
        close_setup(&s);
    }
}

static void test_stream_cut(void **state)
{
    (void)state;
    struct setup s = {0};
    open_setup(&s, 100);
    begin(&s);
    bring(&s.o);
    run_until_kinds(&s, "CA");
    pthread_mutex_lock(&s.u.lock);
    s.u.cut_stream = true;
    pthread_mutex_unlock(&s.u.lock);
    wake(&s.u);
    fixture_run(&s.f, &s.o.done);
    assert_false(s.o.has_line);
    assert_int_equal(s.o.error.code, SG_E_UPSTREAM_UNREACHABLE);
    close_setup(&s);
}

static void test_helper_is_missing(void **state)
{
    (void)state;
    struct setup s = {.o.finish = true, .u.missing = true};
    open_setup(&s, 1000);
    begin(&s);
    bring(&s.o);
    fixture_run(&s.f, &s.o.done);
    check_all_there(&s);
    assert_int_equal(s.u.uploads, 1);
    assert_int_equal(s.u.runs, 2);
    close_setup(&s);
}

static void test_cancel(void **state)
{
    (void)state;
    for (int when = 0; when < 40; when++) { /* so many turns after it began */
        struct setup s = {.o.finish = true, .u.missing = when % 2 == 0};
        open_setup(&s, 1024 * 1024);
        begin(&s);
        bring(&s.o);
        for (int i = 0; i < when && !s.o.done; i++)
            short_turn(&s);
        carrier_cancel(s.o.carrier);
        s.o.cancelled = true;
        for (int i = 0; i < 5; i++)
            fixture_turn(&s.f);
        close_setup(&s);
    }
    struct setup s = {.o.cancel_on_line = true};
    open_setup(&s, 100);
    begin(&s);
    bring(&s.o);
    while (!s.o.cancelled)
        uv_run(sg_loop_uv(s.f.loop), UV_RUN_ONCE);
    close_setup(&s);
}

/* The gateway stops with carriers open. */
static void test_shutdown(void **state)
{
    (void)state;
    struct setup s = {0};
    open_setup(&s, 100);
    begin(&s);
    bring(&s.o);
    run_until_kinds(&s, "CA");
    guestlink_free(s.g);
    s.g = NULL;
    assert_true(s.o.done);
    assert_int_equal(s.o.error.code, SG_E_DRAINING);
    close_setup(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_upload_in_few_calls),
        cmocka_unit_test(test_typing_shares_calls),
        cmocka_unit_test(test_nothing_before_the_guest_spoke),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_lost_close),
        cmocka_unit_test(test_hopeless),
        cmocka_unit_test(test_without_counts),
        cmocka_unit_test(test_last_words),
        cmocka_unit_test(test_refused_by_the_guest),
        cmocka_unit_test(test_nonsense_from_the_guest),
        cmocka_unit_test(test_stream_cut),
        cmocka_unit_test(test_helper_is_missing),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_shutdown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
