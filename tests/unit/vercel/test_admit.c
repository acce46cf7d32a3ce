/* Which attempts may be made: tokens that expire or are refused (E2), an upstream that is down (U10), limits of the plan and
 * of answers 429 (U9, P61), the retries of all together (P60). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "fixture.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- an upstream that knows which token is good ---- */

struct upstream {
    const char *good;
    _Atomic int status; /* of everything with a good token */
    _Atomic int asked, refused;
    const char *headers;
};

static void play(struct raw_conn *c, int n, void *arg)
{
    (void)n;
    struct upstream *u = arg;
    struct raw_request r;
    while (raw_read(c, &r)) {
        char line[64];
        (void)snprintf(line, sizeof line, "Authorization: Bearer %s\r\n", u->good ? u->good : "t0k3n");
        atomic_fetch_add(&u->asked, 1);
        bool ok = strstr(r.head, line) != NULL;
        if (!ok)
            atomic_fetch_add(&u->refused, 1);
        int status = ok ? atomic_load(&u->status) : 401;
        if (!raw_answer(c, status, "application/json", u->headers ? u->headers : "",
                        status == 200 ? "{\"a\":1}" : "{\"error\":{\"code\":\"x\",\"message\":\"y\"}}"))
            return;
    }
}

struct source {
    struct fixture *f;
    int asked;
    bool later; /* the test answers */
};

static void give(struct fixture *f, const char *token, int64_t expires_ms)
{
    struct sg_error e;
    struct sg_secret *s = sg_secret_new(token, strlen(token));
    assert_int_equal(vercel_client_set_token(f->client, s, expires_ms, &e), SG_OK);
    sg_secret_free(s);
}

static void wanted(void *arg)
{
    struct source *s = arg;
    s->asked++;
    if (!s->later)
        give(s->f, "fresh", 0);
}

static void test_e2_a_refused_token_is_replaced_once_for_all(void **state)
{
    (void)state;
    struct upstream u = {.good = "fresh", .status = 200};
    struct fixture f;
    fixture_open(&f, play, &u, NULL);
    struct source s = {.f = &f, .later = true};
    vercel_client_set_auth_source(f.client, &(struct vercel_auth_source){wanted, &s});
    struct answer a[8] = {0};
    for (int i = 0; i < 8; i++) /* also what must not be sent twice: a refusal had begun nothing */
        (void)ask(&f, &a[i], i % 2 ? &post_request : &get_request);
    while (atomic_load(&u.refused) < 8)
        fixture_turn(&f);
    for (int i = 0; i < 100; i++)
        fixture_turn(&f);
    assert_int_equal(s.asked, 1);
    for (int i = 0; i < 8; i++)
        assert_false(a[i].done);
    give(&f, "fresh", 0);
    for (int i = 0; i < 8; i++) {
        fixture_run(&f, &a[i].done);
        assert_false(a[i].failed);
        answer_clear(&a[i]);
    }
    assert_int_equal(atomic_load(&u.asked), 16);
    struct answer next = {0};
    ask_and_wait(&f, &next, &post_request);
    assert_false(next.failed);
    answer_clear(&next);
    assert_int_equal(s.asked, 1);
    fixture_close(&f);
}

static void test_a_token_that_stays_refused_is_told(void **state)
{
    (void)state;
    struct upstream u = {.good = "another", .status = 200};
    struct fixture f;
    fixture_open(&f, play, &u, NULL);
    struct answer a = {0};
    ask_and_wait(&f, &a, &get_request); /* nobody has another one */
    assert_true(a.failed);
    assert_int_equal(a.error.code, SG_E_UPSTREAM_AUTH);
    assert_int_equal(atomic_load(&u.asked), 1);
    struct source s = {.f = &f};
    vercel_client_set_auth_source(f.client, &(struct vercel_auth_source){wanted, &s});
    struct answer b = {0};
    ask_and_wait(&f, &b, &post_request);
    assert_true(b.failed);
    assert_int_equal(b.error.code, SG_E_UPSTREAM_AUTH);
    assert_int_equal(b.error.outcome, SG_NOT_STARTED);
    assert_int_equal(s.asked, 1);
    assert_int_equal(atomic_load(&u.asked), 3);
    s.later = true;
    struct answer c = {0};
    (void)ask(&f, &c, &post_request);
    while (s.asked < 2)
        fixture_turn(&f);
    struct sg_error why;
    (void)sg_fail(&why, SG_E_UPSTREAM_AUTH, SG_NOT_SENT, "the command failed");
    vercel_client_no_token(f.client, &why);
    fixture_run(&f, &c.done);
    assert_string_equal(c.error.detail, "the command failed");
    assert_int_equal(c.error.outcome, SG_NOT_STARTED);
    fixture_close(&f);
}

static void test_e2_an_expired_token_is_never_sent(void **state)
{
    (void)state;
    struct upstream u = {.good = "fresh", .status = 200};
    struct fixture f;
    const struct tuning t = {.retries = -1, .token_expires_ms = 1000};
    fixture_open(&f, play, &u, &t);
    struct answer a = {0};
    ask_and_wait(&f, &a, &get_request);
    assert_true(a.failed);
    assert_int_equal(a.error.code, SG_E_UPSTREAM_AUTH);
    assert_int_equal(a.error.outcome, SG_NOT_SENT);
    assert_non_null(strstr(a.error.detail, "1970-01-01T00:00:01"));
    assert_int_equal(atomic_load(&u.asked), 0);
    struct source s = {.f = &f, .later = true};
    vercel_client_set_auth_source(f.client, &(struct vercel_auth_source){wanted, &s});
    struct answer b = {0}, left = {0};
    (void)ask(&f, &b, &post_request);
    vercel_call_cancel(ask(&f, &left, &get_request)); /* who leaves while waiting */
    assert_int_equal(s.asked, 1);
    give(&f, "fresh", sg_wall_ms() + 60000);
    fixture_run(&f, &b.done);
    assert_false(b.failed);
    assert_int_equal(atomic_load(&u.asked), 1);
    answer_clear(&b);
    const struct tuning quick = {.retries = -1, .token_expires_ms = 1000, .timeout_ms = 50};
    fixture_close(&f);
    fixture_open(&f, play, &u, &quick);
    s = (struct source){.f = &f, .later = true};
    vercel_client_set_auth_source(f.client, &(struct vercel_auth_source){wanted, &s});
    struct answer c = {0};
    ask_and_wait(&f, &c, &get_request); /* none comes in its time */
    assert_int_equal(c.error.code, SG_E_UPSTREAM_AUTH);
    assert_int_equal(c.error.outcome, SG_NOT_SENT);
    fixture_close(&f);
}

static void test_u10_down_is_told_at_once_and_up_is_noticed(void **state)
{
    (void)state;
    struct upstream u = {.status = 503};
    struct fixture f;
    const struct tuning t = {.retries = 0, .breaker_failures = 5};
    fixture_open(&f, play, &u, &t);
    int64_t until = sg_mono_ms() + 10000;
    struct answer a = {0};
    int asked = 0;
    do { /* it fails for a while */
        a = (struct answer){0};
        ask_and_wait(&f, &a, &get_request);
        assert_true(a.failed);
        asked = atomic_load(&u.asked);
    } while (a.error.upstream_status == 503 && sg_mono_ms() < until);
    assert_int_equal(a.error.code, SG_E_UPSTREAM_UNREACHABLE);
    assert_int_equal(a.error.outcome, SG_NOT_SENT);
    assert_in_range(a.error.retry_after_ms, 1, 500);
    for (int i = 0; i < 50; i++) {
        struct answer b = {0};
        ask_and_wait(&f, &b, &post_request);
        assert_true(b.failed);
    }
    assert_true(atomic_load(&u.asked) <= asked + 2); /* a probe, perhaps */
    atomic_store(&u.status, 200);
    bool down = true;
    while (down && sg_mono_ms() < until + 10000) {
        a = (struct answer){0};
        ask_and_wait(&f, &a, &get_request);
        down = a.failed;
        answer_clear(&a);
    }
    assert_false(down);
    for (int i = 0; i < 20; i++) {
        struct answer b = {0};
        ask_and_wait(&f, &b, &post_request);
        assert_false(b.failed);
        answer_clear(&b);
    }
    fixture_close(&f);
}

static void test_a_streams_fault_says_nothing_of_the_whole(void **state)
{
    (void)state;
    struct upstream u = {.status = 502};
    struct fixture f;
    const struct tuning t = {.retries = 0, .breaker_failures = 1};
    fixture_open(&f, play, &u, &t);
    struct vercel_request logs = get_request;
    logs.class = VERCEL_LOGS;
    int64_t until = sg_mono_ms() + 2200;
    while (sg_mono_ms() < until) {
        struct answer a = {0};
        ask_and_wait(&f, &a, &logs);
        assert_int_equal(a.error.upstream_status, 502);
    }
    fixture_close(&f);
}

static void test_the_plan_s_limits_make_a_line(void **state)
{
    (void)state;
    struct upstream u = {.status = 200};
    struct fixture f;
    const struct tuning t = {.retries = -1, .plan = "hobby", .retry_budget_ms = 5000};
    fixture_open(&f, play, &u, &t);
    struct vercel_request d = post_request;
    d.spends = QUOTA_DELETES;
    enum { N = 50 }; /* 20 in a second */
    struct answer a[N] = {0};
    int64_t begun = sg_mono_ms();
    for (int i = 0; i < N; i++)
        (void)ask(&f, &a[i], &d);
    vercel_call_cancel(ask(&f, &(struct answer){0}, &d)); /* leaves the line */
    struct answer other = {0};
    ask_and_wait(&f, &other, &get_request); /* is in no line */
    assert_false(other.failed);
    answer_clear(&other);
    assert_true(atomic_load(&u.asked) <= 21 || sg_mono_ms() - begun >= 1000);
    int failed = 0;
    for (int i = 0; i < N; i++) {
        fixture_run(&f, &a[i].done);
        failed += a[i].failed;
        answer_clear(&a[i]);
    }
    assert_int_equal(failed, 0);
    assert_true(sg_mono_ms() - begun >= 2000);
    struct vercel_request v = post_request;
    v.spends = QUOTA_VCPUS;
    v.units = 8;
    struct answer b[4] = {0};
    for (int i = 0; i < 4; i++)
        ask_and_wait(&f, &b[i], &v);
    assert_false(b[0].failed || b[1].failed);
    assert_true(b[2].failed && b[3].failed); /* nobody waits a minute */
    assert_int_equal(b[2].error.code, SG_E_UPSTREAM_RATE_LIMITED);
    assert_int_equal(b[2].error.outcome, SG_NOT_SENT);
    assert_in_range(b[2].error.retry_after_ms, 50000, 61200);
    for (int i = 0; i < 4; i++)
        answer_clear(&b[i]);
    fixture_close(&f);
}

static void test_p61_what_a_429_says_holds_for_all(void **state)
{
    (void)state;
    struct upstream u = {.status = 429, .headers = "Retry-After: 7\r\n"};
    struct fixture f;
    const struct tuning t = {.retries = -1, .retry_budget_ms = 3000};
    fixture_open(&f, play, &u, &t);
    struct vercel_request v = post_request;
    v.spends = QUOTA_VCPUS;
    struct answer a = {0}, b = {0}, c = {0};
    ask_and_wait(&f, &a, &v);
    assert_int_equal(a.error.code, SG_E_UPSTREAM_RATE_LIMITED);
    atomic_store(&u.status, 200);
    ask_and_wait(&f, &b, &v); /* another one of the kind does not even ask */
    assert_true(b.failed);
    assert_int_equal(b.error.outcome, SG_NOT_SENT);
    assert_in_range(b.error.retry_after_ms, 5000, 7000);
    assert_int_equal(atomic_load(&u.asked), 1);
    ask_and_wait(&f, &c, &get_request);
    assert_false(c.failed);
    answer_clear(&c);
    fixture_close(&f);
}

/* Who stands in line when the upstream closes it is told so in time, not when it opens again; and a year is not believed. */
static void test_p61_a_line_that_is_closed_is_told(void **state)
{
    (void)state;
    struct upstream u = {.status = 200, .headers = "Retry-After: 31000000\r\n"};
    struct fixture f;
    const struct tuning t = {.retries = 0, .plan = "hobby", .retry_budget_ms = 4000};
    fixture_open(&f, play, &u, &t);
    struct vercel_request d = post_request;
    d.spends = QUOTA_DELETES;
    enum { N = 45 };
    struct answer a[N] = {0};
    for (int i = 0; i < N; i++)
        (void)ask(&f, &a[i], &d);
    fixture_run(&f, &a[0].done);
    atomic_store(&u.status, 429);
    int64_t begun = sg_mono_ms();
    for (int i = 0; i < N; i++)
        fixture_run(&f, &a[i].done);
    assert_true(sg_mono_ms() - begun < 5000);
    assert_true(a[N - 1].failed);
    assert_int_equal(a[N - 1].error.code, SG_E_UPSTREAM_RATE_LIMITED);
    assert_int_equal(a[N - 1].error.outcome, SG_NOT_SENT);
    assert_in_range(a[N - 1].error.retry_after_ms, 30000, 62000);
    for (int i = 0; i < N; i++)
        answer_clear(&a[i]);
    fixture_close(&f);
}

static void test_p60_retries_of_all_together_are_few(void **state)
{
    (void)state;
    struct upstream u = {.status = 503};
    struct fixture f;
    const struct tuning t = {.retries = 1, .retry_budget_ms = 20000};
    fixture_open(&f, play, &u, &t);
    enum { N = 400 };
    static struct answer a[N];
    memset(a, 0, sizeof a);
    int64_t begun = sg_mono_ms();
    for (int i = 0; i < N; i++)
        (void)ask(&f, &a[i], &get_request);
    for (int i = 0; i < N; i++)
        fixture_run(&f, &a[i].done);
    int retries = atomic_load(&u.asked) - N;
    assert_true(retries >= 50);
    assert_true(retries <= 100 + N / 5 + (int)(sg_mono_ms() - begun) / 100);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_e2_a_refused_token_is_replaced_once_for_all),
        cmocka_unit_test(test_a_token_that_stays_refused_is_told),
        cmocka_unit_test(test_e2_an_expired_token_is_never_sent),
        cmocka_unit_test(test_u10_down_is_told_at_once_and_up_is_noticed),
        cmocka_unit_test(test_a_streams_fault_says_nothing_of_the_whole),
        cmocka_unit_test(test_the_plan_s_limits_make_a_line),
        cmocka_unit_test(test_p61_what_a_429_says_holds_for_all),
        cmocka_unit_test(test_p61_a_line_that_is_closed_is_told),
        cmocka_unit_test(test_p60_retries_of_all_together_are_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
