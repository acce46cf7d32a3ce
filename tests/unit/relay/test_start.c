/* Starting exactly once, also when answers are lost, and the single acts.  U3; P02, P11, P27, P28. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "relay/relay.h"
#include "tests/unit/relay/fixture.h"

#include <stdlib.h>
#include <string.h>

static int setup(void **state)
{
    (void)state;
    struct relay_limits l = {.settle_ms = 400, .retry_ms = 400, .backoff_max_ms = 10};
    return fixture_open(&l);
}

static const char *const argv[] = {"/bin/echo", "a b", NULL};

static struct process_spec spec_of(const char *id)
{
    return (struct process_spec){
        .session = {.session_id = "sess-1", .cwd = "/vercel/sandbox"}, .id = id, .argv = argv};
}

struct result {
    bool done, ok;
    int times;
    struct sg_wire_process p;
    struct sg_error e;
    size_t n;
};

static void on_start(void *arg, const struct sg_wire_process *p, const struct sg_error *e)
{
    struct result *r = arg;
    r->done = true;
    r->times++;
    r->ok = p != NULL;
    if (p)
        r->p = *p;
    if (e)
        r->e = *e;
}

static void start(struct result *r, const struct process_spec *s)
{
    assert_int_equal(process_start(relay, s, on_start, r, &r->e), SG_OK);
    assert_true(fake_until(&fake, &r->done));
    assert_int_equal(r->times, 1);
}

/* P27: a start returns when the program runs, whatever that does with its output; one upstream call. */
static void test_start(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 100, 0, false);
    p->hold = true;
    struct process_spec s = spec_of("p1");
    struct result r = {0}, again = {0};
    start(&r, &s);
    assert_true(r.ok);
    assert_int_equal(r.p.state, SG_PS_RUNNING);
    assert_string_equal(r.p.id, "p1");
    assert_int_equal(fake_total(&fake), 1);
    start(&again, &s); /* the same id and spec: the same process */
    assert_true(again.ok);
    assert_int_equal(p->starts, 1);
    static const char *const other[] = {"/bin/echo", "a", "b", NULL};
    struct result conflict = {0};
    s.argv = other;
    start(&conflict, &s);
    assert_false(conflict.ok);
    assert_int_equal(conflict.e.code, SG_E_PROCESS_ID_CONFLICT);
    assert_int_equal(p->starts, 1);
}

/* U3: every fate of the start's answer, with settle answers lost on top: at most one start, and the verdict is
 * the truth. */
static void test_lost_answers(void **state)
{
    (void)state;
    static const enum fake_lost fates[] = {LOST_NEVER_ARRIVED, LOST_ARRIVED, LOST_ARRIVES_LATE};
    for (int fate = 0; fate < 3; fate++) {
        for (int lost = 0; lost < 4; lost++) {
            for (int arrives = 0; arrives < 2; arrives++) {
                struct fake_proc *p = fake_proc(&fake, "p1", 10, 0, false);
                p->hold = true;
                fake.lose_start = fates[fate];
                fake.lose_settles = lost;
                fake.settle_arrives = arrives;
                fake.late = false;
                int settles = fake.calls[V_SETTLE], starts = fake.calls[V_START];
                struct process_spec s = spec_of("p1");
                struct result r = {0};
                start(&r, &s);
                assert_int_equal(fake.calls[V_START] - starts, 1); /* the command is never sent twice */
                assert_int_equal(fake.calls[V_SETTLE] - settles, lost + 1);
                bool runs = fates[fate] == LOST_ARRIVED;
                assert_int_equal(r.ok, runs);
                assert_int_equal(p->starts, runs);
                if (!runs) {
                    assert_int_equal(r.e.outcome, SG_NOT_STARTED);
                    assert_int_equal(r.e.code, SG_E_UPSTREAM_UNREACHABLE);
                    assert_true(p->tombstone); /* nor can it start later */
                    struct result again = {0};
                    start(&again, &s);
                    assert_int_equal(again.e.code, SG_E_PROCESS_ID_CONFLICT);
                    assert_int_equal(p->starts, 0);
                }
                free(p->content[0]);
                free(p->content[1]);
                memset(p, 0, sizeof *p);
            }
        }
    }
}

/* Cut after the hello: it runs, there is nothing to ask. */
static void test_cut_after_hello(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 10, 0, false);
    p->hold = true;
    fake.lose_after_hello = true;
    struct process_spec s = spec_of("p1");
    struct result r = {0};
    start(&r, &s);
    assert_true(r.ok);
    assert_int_equal(p->starts, 1);
    assert_int_equal(fake_total(&fake), 1);
}

/* Nobody can be asked: unknown, and the id to ask for is named. */
static void test_settle_impossible(void **state)
{
    (void)state;
    fake.lose_start = LOST_ARRIVED;
    fake.lose_settles = 1 << 30;
    struct process_spec s = spec_of("nobody-knows");
    struct result r = {0};
    start(&r, &s);
    assert_false(r.ok);
    assert_int_equal(r.e.outcome, SG_OUTCOME_UNKNOWN);
    assert_non_null(strstr(r.e.detail, "nobody-knows"));
    assert_in_range(fake.calls[V_SETTLE], 3, 1000);
}

/* A refusal is passed on, with its outcome and without a settle. */
static void test_refused(void **state)
{
    (void)state;
    fake.refuse_all = SG_E_UPSTREAM_RATE_LIMITED;
    struct process_spec s = spec_of("p1");
    struct result r = {0};
    start(&r, &s);
    assert_int_equal(r.e.code, SG_E_UPSTREAM_RATE_LIMITED);
    assert_int_equal(r.e.outcome, SG_NOT_SENT);
    assert_int_equal(fake_total(&fake), 1);
}

static void test_drained_while_starting(void **state)
{
    (void)state;
    fake.hang = 1;
    struct process_spec s = spec_of("p1");
    struct result r = {0};
    assert_int_equal(process_start(relay, &s, on_start, &r, &r.e), SG_OK);
    relay_free(relay);
    relay = NULL;
    assert_int_equal(r.times, 1);
    assert_int_equal(r.e.code, SG_E_DRAINING);
    assert_int_equal(r.e.outcome, SG_OUTCOME_UNKNOWN);
}

/* ---- what is sent, and what is refused before ---- */

static void test_arguments(void **state)
{
    (void)state;
    json_t *env = json_pack("{s:s,s:s}", "B", "2", "A", "1");
    struct process_spec s = spec_of("p1");
    s.cwd = "sub/dir";
    s.env = env;
    s.env_replace = true;
    s.timeout_ms = 1500;
    s.retain_bytes = 65536;
    char hash[65];
    process_spec_hash(&s, hash);
    struct result r = {0};
    start(&r, &s);
    assert_non_null(strstr(fake.last_args, "start --session sess-1 --id p1 --spec "));
    assert_non_null(strstr(fake.last_args, hash));
    assert_non_null(strstr(fake.last_args, " --cwd /vercel/sandbox/sub/dir "));
    assert_non_null(strstr(fake.last_args, " --timeout-ms 1500 "));
    assert_non_null(strstr(fake.last_args, " --retain 65536 "));
    assert_non_null(strstr(fake.last_args, " --clear-env "));
    assert_non_null(strstr(fake.last_args, " --replace-env A "));
    assert_non_null(strstr(fake.last_args, " --replace-env B "));
    assert_non_null(strstr(fake.last_args, " -- /bin/echo a b "));
    assert_null(strstr(fake.last_args, "1 2")); /* values never travel as arguments */
    json_decref(env);
}

static void test_checked_before(void **state)
{
    (void)state;
    struct sg_error e;
    struct process_spec s = spec_of("bad id");
    assert_int_equal(process_start(relay, &s, on_start, NULL, &e), SG_E_INVALID_FIELD);
    assert_string_equal(e.pointer, "/id");
    s = spec_of("p1");
    static const char *const none[] = {NULL};
    s.argv = none;
    assert_int_equal(process_start(relay, &s, on_start, NULL, &e), SG_E_INVALID_FIELD);
    s = spec_of("p1");
    s.env = json_object();
    json_object_set_new(s.env, "K", json_stringn("a\0b", 3));
    assert_int_equal(process_start(relay, &s, on_start, NULL, &e), SG_E_INVALID_FIELD);
    assert_string_equal(e.pointer, "/env/K");
    json_object_clear(s.env);
    json_object_set_new(s.env, "A=B", json_string("x"));
    assert_int_equal(process_start(relay, &s, on_start, NULL, &e), SG_E_INVALID_FIELD);
    json_decref(s.env);
    assert_int_equal(fake_total(&fake), 0);
}

static void differs(const struct process_spec *a, const struct process_spec *b)
{
    char x[65], y[65];
    process_spec_hash(a, x);
    process_spec_hash(b, y);
    assert_string_not_equal(x, y);
}

/* No two specs that differ share a hash by accident of encoding; the order of variables means nothing. */
static void test_hash(void **state)
{
    (void)state;
    static const char *const one[] = {"ab", "c", NULL}, *const two[] = {"a", "bc", NULL},
                             *const three[] = {"ab", "c", "", NULL};
    struct process_spec a = spec_of("p"), b = spec_of("q"), c;
    char x[65], y[65];
    process_spec_hash(&a, x);
    process_spec_hash(&b, y);
    assert_string_equal(x, y); /* the id is no part of it */
    assert_int_equal(strlen(x), 64);
    a.argv = one;
    b.argv = two;
    differs(&a, &b);
    b.argv = three;
    differs(&a, &b);
    b = a;
    b.cwd = "d";
    differs(&a, &b);
    c = a;
    c.sudo = true;
    differs(&a, &c);
    c = a;
    c.env_replace = true;
    differs(&a, &c);
    c = a;
    c.timeout_ms = 5;
    differs(&a, &c);
    b = a;
    b.retain_bytes = 5;
    differs(&b, &c);
    b = a;
    c = a;
    b.env = json_pack("{s:s,s:s}", "A", "1", "B", "2");
    c.env = json_pack("{s:s,s:s}", "B", "2", "A", "1");
    process_spec_hash(&b, x);
    process_spec_hash(&c, y);
    assert_string_equal(x, y);
    differs(&a, &b);
    json_object_set_new(c.env, "A", json_string("2"));
    differs(&b, &c);
    json_decref(b.env);
    json_decref(c.env);
}

/* ---- single acts ---- */

static void on_list(void *arg, const struct sg_wire_process *list, size_t n, const struct sg_error *e)
{
    struct result *r = arg;
    r->done = true;
    r->times++;
    r->n = n;
    r->ok = !e;
    if (n)
        r->p = list[0];
    if (e)
        r->e = *e;
}

static void on_act(void *arg, const struct sg_error *e)
{
    struct result *r = arg;
    r->done = true;
    r->times++;
    r->ok = !e;
    if (e)
        r->e = *e;
}

static void test_status_and_list(void **state)
{
    (void)state;
    const struct relay_session s = {.session_id = "sess-1"};
    struct fake_proc *p = fake_proc(&fake, "p1", 5, 0, true);
    (void)fake_proc(&fake, "p2", 5, 0, true);
    p->written[0] = 5;
    p->exited = true;
    struct result one = {0}, all = {0}, none = {0};
    assert_int_equal(process_status(relay, &s, "p1", 2500, on_list, &one, &one.e), SG_OK);
    assert_true(fake_until(&fake, &one.done));
    assert_non_null(strstr(fake.last_args, "--wait-ms 2"));
    assert_int_equal(one.n, 1);
    assert_int_equal(one.p.how, SG_HOW_EXIT);
    assert_int_equal(one.p.value, 7);
    assert_int_equal(process_list(relay, &s, on_list, &all, &all.e), SG_OK);
    assert_true(fake_until(&fake, &all.done));
    assert_int_equal(all.n, 2);
    assert_int_equal(process_status(relay, &s, "p3", 0, on_list, &none, &none.e), SG_OK);
    assert_true(fake_until(&fake, &none.done));
    assert_false(none.ok);
    assert_int_equal(none.e.code, SG_E_PROCESS_NOT_FOUND);
}

/* A read may be asked again, a signal may not: it counts every time. */
static void test_retries(void **state)
{
    (void)state;
    const struct relay_session s = {.session_id = "sess-1"};
    (void)fake_proc(&fake, "p1", 5, 0, true);
    fake.faults.refuse = 500;
    for (int i = 0; i < 20; i++) {
        struct result r = {0};
        assert_int_equal(process_status(relay, &s, "p1", 0, on_list, &r, &r.e), SG_OK);
        assert_true(fake_until(&fake, &r.done));
        assert_true(r.ok);
        assert_int_equal(r.n, 1);
    }
    assert_true(fake.calls[V_STATUS] > 20);
    fake.faults.refuse = 0;
    fake.lose_start = LOST_ARRIVED;
    struct result sig = {0};
    assert_int_equal(process_signal(relay, &s, "p1", 15, true, false, on_act, &sig, &sig.e), SG_OK);
    assert_non_null(strstr(fake.last_args, "--signal 15 --only-program"));
    assert_true(fake_until(&fake, &sig.done));
    assert_false(sig.ok);
    assert_int_equal(sig.e.outcome, SG_OUTCOME_UNKNOWN);
    assert_int_equal(fake.calls[V_SIGNAL], 1);
}

/* What the first remove, whose answer was lost, has removed is removed; what never was is not found. */
static void test_remove(void **state)
{
    (void)state;
    const struct relay_session s = {.session_id = "sess-1"};
    struct fake_proc *p = fake_proc(&fake, "p1", 5, 0, true);
    fake.lose_start = LOST_ARRIVED;
    struct result r = {0}, again = {0};
    assert_int_equal(process_remove(relay, &s, "p1", on_act, &r, &r.e), SG_OK);
    assert_true(fake_until(&fake, &r.done));
    assert_true(r.ok);
    assert_false(p->exists);
    assert_int_equal(fake.calls[V_REMOVE], 2);
    assert_int_equal(process_remove(relay, &s, "p1", on_act, &again, &again.e), SG_OK);
    assert_true(fake_until(&fake, &again.done));
    assert_false(again.ok);
    assert_int_equal(again.e.code, SG_E_PROCESS_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_start, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_lost_answers, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_cut_after_hello, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_settle_impossible, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_refused, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_drained_while_starting, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_arguments, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_checked_before, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_hash, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_status_and_list, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_retries, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_remove, setup, fixture_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
