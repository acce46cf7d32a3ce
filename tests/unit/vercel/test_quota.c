/* The breaker and the quota windows, with time as an argument (U9, U10). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "vercel/breaker.h"
#include "vercel/quota.h"

#include <stdlib.h>

/* ---- breaker ---- */

static void fail_until_open(struct breaker *b, int64_t now)
{
    for (int i = 0; i < BREAKER_FAILURES; i++)
        breaker_told(b, now + i * BREAKER_OVER_MS / (BREAKER_FAILURES - 1), false, false);
    assert_true(b->open);
}

static void test_u10_it_opens_after_a_row_of_failures(void **state)
{
    (void)state;
    struct breaker b;
    bool probe;
    breaker_init(&b, BREAKER_FAILURES);
    for (int i = 0; i < BREAKER_FAILURES - 1; i++)
        breaker_told(&b, 1000 + i * 1000, false, false);
    assert_int_equal(breaker_ask(&b, 20000, &probe), 0);
    assert_false(probe);
    breaker_told(&b, 20000, true, false); /* one answer, and the row begins anew */
    for (int i = 0; i < BREAKER_FAILURES - 1; i++)
        breaker_told(&b, 21000 + i * 1000, false, false);
    assert_false(b.open);
    breaker_told(&b, 40000, false, false);
    assert_true(b.open);
    assert_int_equal(breaker_ask(&b, 40000, &probe), BREAKER_PAUSE_MS);
}

static void test_a_burst_of_failures_does_not_open_it(void **state)
{
    (void)state;
    struct breaker b;
    breaker_init(&b, BREAKER_FAILURES);
    for (int i = 0; i < 10 * BREAKER_FAILURES;
         i++) /* many calls that were under way when one connection broke */
        breaker_told(&b, 1000 + i, false, false);
    assert_false(b.open);
    breaker_init(&b, 0); /* off */
    for (int i = 0; i < 10 * BREAKER_FAILURES; i++)
        breaker_told(&b, i * 1000, false, false);
    assert_false(b.open);
}

static void test_one_call_decides(void **state)
{
    (void)state;
    struct breaker b;
    bool probe, other;
    breaker_init(&b, BREAKER_FAILURES);
    fail_until_open(&b, 0);
    int64_t now = BREAKER_OVER_MS, pause = BREAKER_PAUSE_MS;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(breaker_ask(&b, now, &probe), pause);
        assert_int_equal(breaker_ask(&b, now + pause - 1, &probe), 1);
        now += pause;
        assert_int_equal(breaker_ask(&b, now, &probe), 0);
        assert_true(probe);
        assert_true(breaker_ask(&b, now, &other) > 0);
        assert_false(other);
        breaker_told(&b, now, false, false); /* an old call's end decides nothing */
        assert_true(breaker_ask(&b, now, &other) > 0);
        breaker_told(&b, now, false, true);
        pause = pause * 2 < BREAKER_PAUSE_MAX_MS ? pause * 2 : BREAKER_PAUSE_MAX_MS;
    }
    now += pause;
    assert_int_equal(breaker_ask(&b, now, &probe), 0);
    breaker_dropped(&b, probe); /* its caller left: the next one decides */
    assert_int_equal(breaker_ask(&b, now, &probe), 0);
    assert_true(probe);
    assert_int_equal(breaker_ask(&b, now + BREAKER_PROBE_MS, &other), 0); /* it hangs: another one may */
    assert_true(other);
    breaker_told(&b, now, true, true);
    assert_false(b.open);
    assert_int_equal(breaker_ask(&b, now, &probe), 0);
    assert_false(probe);
}

/* ---- quota ---- */

static void test_no_plan_no_windows(void **state)
{
    (void)state;
    struct quota q;
    const struct quota_limits none = quota_plan("unknown", 100);
    quota_init(&q, &none, 0);
    for (int i = 0; i < 100000; i++)
        assert_true(quota_take(&q, QUOTA_VCPUS, 32, 5));
    quota_hold(&q, QUOTA_VCPUS, 7005); /* P61 */
    quota_hold(&q, QUOTA_VCPUS, 3000);
    assert_false(quota_take(&q, QUOTA_VCPUS, 2, 7004));
    assert_int_equal(quota_wait(&q, QUOTA_VCPUS, 2, 5), 7000);
    assert_true(quota_take(&q, QUOTA_REQUESTS, 1, 5));
    assert_true(quota_take(&q, QUOTA_VCPUS, 2, 7005));
}

/* Whatever the pattern: in no minute more than the limit, and the wait that was told is right. */
static void test_never_more_than_the_window(void **state)
{
    (void)state;
    static int64_t taken[400000];
    for (unsigned seed = 1; seed <= 20; seed++) {
        struct quota q;
        const struct quota_limits l = {.requests_per_min = 50};
        int64_t now = 123456, n = 0;
        srand(seed);
        quota_init(&q, &l, now);
        while (now < 123456 + 5 * 60000) {
            if (quota_take(&q, QUOTA_REQUESTS, 1, now)) {
                taken[n++] = now;
                if (n > 50)
                    assert_true(now - taken[n - 51] >= 60000);
                now += rand() % 3 ? 0 : rand() % 2000;
                continue;
            }
            int64_t wait = quota_wait(&q, QUOTA_REQUESTS, 1, now);
            assert_in_range(wait, 1, 61200);
            assert_false(quota_take(&q, QUOTA_REQUESTS, 1, now + wait - 1));
            now += wait;
            assert_true(quota_take(&q, QUOTA_REQUESTS, 1, now));
            taken[n++] = now;
        }
        assert_true(n >= 4 * 50); /* and it is not wasted */
    }
}

static void test_the_wait_behind_others(void **state)
{
    (void)state;
    struct quota q;
    const struct quota_limits l = {.deletes_per_s = 20};
    quota_init(&q, &l, 0);
    for (int i = 0; i < 20; i++)
        assert_true(quota_take(&q, QUOTA_DELETES, 1, 0));
    assert_false(quota_take(&q, QUOTA_DELETES, 1, 0));
    int64_t first = quota_wait(&q, QUOTA_DELETES, 1, 0), later = quota_wait(&q, QUOTA_DELETES, 45, 0);
    assert_in_range(first, 1000, 1200);
    assert_in_range(later, 3000, 3600); /* 40 ahead: two more windows */
}

static void test_the_ramp(void **state)
{
    (void)state;
    struct quota q;
    const struct quota_limits hobby = quota_plan("hobby", 100);
    quota_init(&q, &hobby, 0);
    for (int i = 0; i < 10; i++)
        assert_true(quota_take(&q, QUOTA_VCPUS, 2, 1000));
    assert_false(quota_take(&q, QUOTA_VCPUS, 2, 30000));
    int n = 0;
    while (quota_take(&q, QUOTA_VCPUS, 2, 63000))
        n++;
    assert_int_equal(n, 20); /* 40 after a minute of use */
    n = 0;
    while (quota_take(&q, QUOTA_VCPUS, 2, 300000))
        n++;
    assert_int_equal(n, 10); /* 20 again after a rest */
    const struct quota_limits shared = quota_plan("hobby", 1);
    assert_int_equal(shared.vcpus_start, 1); /* a share is never nothing */
    quota_init(&q, &shared, 0);
    assert_true(quota_take(&q, QUOTA_VCPUS, 2, 0)); /* and what is larger than a window goes alone */
    assert_false(quota_take(&q, QUOTA_VCPUS, 2, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_u10_it_opens_after_a_row_of_failures),
        cmocka_unit_test(test_a_burst_of_failures_does_not_open_it),
        cmocka_unit_test(test_one_call_decides),
        cmocka_unit_test(test_no_plan_no_windows),
        cmocka_unit_test(test_never_more_than_the_window),
        cmocka_unit_test(test_the_wait_behind_others),
        cmocka_unit_test(test_the_ramp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
