/* Starting with a terminal, input or a scope, and the single acts on those.  A12, A15, B10, S1, U3. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "relay/relay.h"
#include "tests/unit/relay/fixture.h"

#include <stdio.h>
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
    *r = (struct result){0};
    assert_int_equal(process_start(relay, s, on_start, r, &r->e), SG_OK);
    assert_true(fake_until(&fake, &r->done));
    assert_int_equal(r->times, 1);
}

/* B10, A12, A15: what a terminal, input and a scope are told to the helper as. */
static void test_arguments_of_terminals_input_and_scopes(void **state)
{
    (void)state;
    struct process_spec s = spec_of("p1");
    s.cols = 80;
    s.rows = 24;
    s.input_open = s.lossless = true;
    s.lease_ms = 5000;
    s.unattended_ms = 1;
    struct result r = {0};
    start(&r, &s);
    assert_true(r.ok);
    assert_non_null(
        strstr(fake.last_args, " --lossless --lease-ms 5000 --unattended-ms 1 --pty 80x24 --input-open -- "));
    s = spec_of("p4");
    s.user = "ubuntu";
    start(&r, &s);
    assert_non_null(strstr(fake.last_args, " --user ubuntu "));
    s = spec_of("p2");
    s.input = "a\0\xff";
    s.input_len = 3;
    start(&r, &s);
    assert_non_null(strstr(fake.last_args, " --input-data YQD/ -- "));
    s = spec_of("p3"); /* nothing to read: as without input */
    s.input = "";
    start(&r, &s);
    assert_null(strstr(fake.last_args, "--input"));
    assert_int_equal(fake_files.writes, 0);
}

static struct process_spec with_long_input(const char *id, unsigned char *input, size_t len)
{
    struct process_spec s = spec_of(id);
    for (size_t i = 0; i < len; i++)
        input[i] = (unsigned char)fake_random(&fake, 256);
    s.input = input;
    s.input_len = len;
    return s;
}

static unsigned char input[PROCESS_INPUT_MAX], same[PROCESS_INPUT_MAX];

/* A12: input that is too long for an argument goes before it, exactly, under a name of its own each time. */
static void test_long_input_goes_first(void **state)
{
    (void)state;
    struct process_spec s = with_long_input("p1", input, sizeof input);
    char name[64];
    struct result r = {0};
    memcpy(same, input, sizeof input);
    assert_int_equal(process_start(relay, &s, on_start, &r, &r.e), SG_OK);
    memset(input, 0, sizeof input); /* copied */
    assert_true(fake_until(&fake, &r.done));
    assert_true(r.ok);
    assert_int_equal(fake_files.writes, 1);
    assert_string_equal(fake_files.session_id, "sess-1");
    assert_int_equal(fake_files.size, sizeof input);
    assert_memory_equal(fake_files.data, same, sizeof same);
    assert_int_equal(fake_files.mode, 0600);
    assert_true(strncmp(fake_files.path, GUEST_ROOT "/.up-", strlen(GUEST_ROOT "/.up-")) == 0);
    (void)snprintf(name, sizeof name, " --input-file %s -- ", strrchr(fake_files.path, '/') + 1);
    assert_non_null(strstr(fake.last_args, name));
    assert_int_equal(fake.calls[V_START], 1);
    memcpy(input, same, sizeof input); /* the same again: another file, the same process */
    start(&r, &s);
    assert_true(r.ok);
    assert_int_equal(fake_files.writes, 2);
    assert_null(strstr(fake.last_args, name));
    assert_int_equal(fake_find(&fake, "p1")->starts, 1);
    s = spec_of("p2"); /* the longest that travels along */
    s.input = input;
    s.input_len = PROCESS_WRITE_MAX;
    start(&r, &s);
    assert_int_equal(fake_files.writes, 2);
    assert_non_null(strstr(fake.last_args, "--input-data "));
    s.input_len = PROCESS_INPUT_MAX + 1;
    assert_int_equal(process_start(relay, &s, on_start, NULL, &r.e), SG_E_INVALID_FIELD);
    assert_string_equal(r.e.pointer, "/stdin");
}

/* Input that did not arrive starts nothing, and that is known. */
static void test_long_input_lost(void **state)
{
    (void)state;
    struct process_spec s = with_long_input("p1", input, PROCESS_WRITE_MAX + 1);
    struct result r = {0};
    fake_files.fail = SG_E_UPSTREAM_TIMEOUT;
    start(&r, &s);
    assert_false(r.ok);
    assert_int_equal(r.e.code, SG_E_UPSTREAM_TIMEOUT);
    assert_int_equal(r.e.outcome, SG_NOT_STARTED);
    assert_int_equal(fake_total(&fake), 0);
    fake_files.fail = SG_OK;
    fake_files.refuse = true;
    assert_int_equal(process_start(relay, &s, on_start, NULL, &r.e), SG_E_OUT_OF_MEMORY);
    assert_int_equal(r.e.outcome, SG_NOT_SENT);
    fake_files.refuse = false;
    fake_files.hang = true;
    r = (struct result){0};
    assert_int_equal(process_start(relay, &s, on_start, &r, &r.e), SG_OK);
    relay_free(relay);
    relay = NULL;
    assert_int_equal(r.times, 1);
    assert_int_equal(r.e.code, SG_E_DRAINING);
    assert_int_equal(r.e.outcome, SG_NOT_STARTED);
    assert_int_equal(fake_files.cancelled, 1);
    assert_int_equal(fake_total(&fake), 0);
}

static void differs(const struct process_spec *a, const struct process_spec *b)
{
    char x[65], y[65];
    process_spec_hash(a, x);
    process_spec_hash(b, y);
    assert_string_not_equal(x, y);
}

/* Everything that makes the process what it is counts; the input as bytes. */
static void test_hash_of_terminals_input_and_scopes(void **state)
{
    (void)state;
    struct process_spec a = spec_of("p");
    struct process_spec v[10];
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        v[i] = a;
    v[0].lossless = true;
    v[1].cols = 80;
    v[1].rows = 24;
    v[2].cols = 24;
    v[2].rows = 80;
    v[3].input_open = true;
    v[4].input = "x";
    v[4].input_len = 1;
    v[5].input = "y";
    v[5].input_len = 1;
    v[6].lease_ms = 1000;
    v[7].unattended_ms = 1000;
    v[8].timeout_ms = 1000;
    v[9].user = "x";
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        differs(&a, &v[i]);
        for (size_t k = 0; k < i; k++)
            differs(&v[i], &v[k]);
    }
    char x[65], y[65];
    process_spec_hash(&a, x);
    a.input = "";
    process_spec_hash(&a, y);
    assert_string_equal(x, y);
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

struct input_result {
    bool done, ok;
    struct process_input in;
    struct sg_error e;
};

static void on_input(void *arg, const struct process_input *in, const struct sg_error *e)
{
    struct input_result *r = arg;
    r->done = true;
    r->ok = !e;
    if (in)
        r->in = *in;
    if (e)
        r->e = *e;
}

static const struct process_target target = {.session = {.session_id = "sess-1"}, .id = "p1"};

/* A12: input at an offset, and its end: each one call, also when its answer was lost. */
static void test_write_and_close(void **state)
{
    (void)state;
    struct input_result r = {0};
    fake.act_line = (struct sg_wire_line){.kind = SG_WIRE_ACCEPTED, .accepted = 12, .room = 99};
    assert_int_equal(process_write(relay, &target, 7, "a\0\xff\n!", 5, on_input, &r, &r.e), SG_OK);
    assert_true(fake_until(&fake, &r.done));
    assert_true(r.ok);
    assert_string_equal(fake.last_args, "write --session sess-1 --id p1 --offset 7 --data YQD/CiE= ");
    assert_int_equal(r.in.accepted, 12);
    assert_int_equal(r.in.room, 99);
    assert_false(r.in.closed || r.in.unwanted);
    assert_int_equal(fake_total(&fake), 1);
    fake.act_line.closed = true;
    fake.lose_acts = 1;
    r = (struct input_result){0};
    assert_int_equal(process_close_input(relay, &target, 12, on_input, &r, &r.e), SG_OK);
    assert_true(fake_until(&fake, &r.done));
    assert_true(r.ok && r.in.closed);
    assert_string_equal(fake.last_args, "close --session sess-1 --id p1 --offset 12 ");
    assert_int_equal(fake_total(&fake), 3);
    fake.act_line = (struct sg_wire_line){.kind = 0}; /* K alone says nothing about input */
    r = (struct input_result){0};
    assert_int_equal(process_close_input(relay, &target, 12, on_input, &r, &r.e), SG_OK);
    assert_true(fake_until(&fake, &r.done));
    assert_int_equal(r.e.code, SG_E_UPSTREAM_BAD_RESPONSE);
}

/* Beyond the accepted position: refused, and the position is told.  After a lost answer a refusal proves nothing. */
static void test_write_refused(void **state)
{
    (void)state;
    struct input_result r = {0};
    fake.act_error =
        (struct sg_wire_line){.kind = SG_WIRE_ERROR, .fail = SG_WF_OFFSET, .text = "accepted 4711"};
    assert_int_equal(process_write(relay, &target, 9999, "x", 1, on_input, &r, &r.e), SG_OK);
    assert_true(fake_until(&fake, &r.done));
    assert_int_equal(r.e.code, SG_E_STDIN_OFFSET);
    assert_int_equal(r.e.accepted, 4711);
    assert_int_equal(r.e.outcome, SG_NOT_STARTED);
    fake.act_error = (struct sg_wire_line){.kind = SG_WIRE_ERROR, .fail = SG_WF_FINISHED};
    fake.lose_acts = 1;
    r = (struct input_result){0};
    assert_int_equal(process_write(relay, &target, 9, "x", 1, on_input, &r, &r.e), SG_OK);
    assert_true(fake_until(&fake, &r.done));
    assert_int_equal(r.e.code, SG_E_PROCESS_FINISHED);
    assert_int_equal(r.e.outcome, SG_OUTCOME_UNKNOWN);
    assert_int_equal(process_write(relay, &target, 0, input, PROCESS_WRITE_MAX + 1, on_input, &r, &r.e),
                     SG_E_INTERNAL);
    struct process_target bad = target;
    bad.id = "../p";
    assert_int_equal(process_write(relay, &bad, 0, "x", 1, on_input, &r, &r.e), SG_E_PROCESS_NOT_FOUND);
}

static void act(enum sg_code begun, struct result *r, const char *args)
{
    assert_int_equal(begun, SG_OK);
    assert_true(fake_until(&fake, &r->done));
    assert_true(r->ok);
    assert_string_equal(fake.last_args, args);
    *r = (struct result){0};
}

static void test_acts_of_terminals_and_scopes(void **state)
{
    (void)state;
    struct result r = {0};
    act(process_resize(relay, &target, 80, 24, on_act, &r, &r.e), &r,
        "resize --session sess-1 --id p1 --cols 80 --rows 24 ");
    act(process_cancel(relay, &target, 2, 1500, on_act, &r, &r.e), &r,
        "cancel --session sess-1 --id p1 --signal 2 --grace-ms 1500 ");
    act(process_ack(relay, &target, (const uint64_t[2]){5, UINT64_C(1) << 40}, on_act, &r, &r.e), &r,
        "ack --session sess-1 --id p1 --stdout 5 --stderr 1099511627776 ");
    act(process_lease(relay, &target, 60000, on_act, &r, &r.e), &r,
        "lease --session sess-1 --id p1 --ttl-ms 60000 ");
    act(process_lease(relay, &target, 0, on_act, &r, &r.e), &r, "lease --session sess-1 --id p1 --ttl-ms 0 ");
    act(process_unattended(relay, &target, 1, on_act, &r, &r.e), &r,
        "unattended --session sess-1 --id p1 --ms 1 ");
    assert_int_equal(process_resize(relay, &target, 0, 24, on_act, &r, &r.e), SG_E_INVALID_FIELD);
    assert_int_equal(process_resize(relay, &target, 80, 1001, on_act, &r, &r.e), SG_E_INVALID_FIELD);
    assert_int_equal(process_cancel(relay, &target, 65, 0, on_act, &r, &r.e), SG_E_INVALID_FIELD);
    /* what has no terminal */
    fake.act_error = (struct sg_wire_line){.kind = SG_WIRE_ERROR, .fail = SG_WF_NO_INPUT};
    assert_int_equal(process_resize(relay, &target, 80, 24, on_act, &r, &r.e), SG_OK);
    assert_true(fake_until(&fake, &r.done));
    assert_int_equal(r.e.code, SG_E_UNSUPPORTED);
}

/* S1: a cancel that may have arrived is not sent again: its signal counts every time; one that was not sent is. */
static void test_cancel_is_asked_once(void **state)
{
    (void)state;
    struct result r = {0};
    fake.lose_acts = 1;
    assert_int_equal(process_cancel(relay, &target, 15, 0, on_act, &r, &r.e), SG_OK);
    assert_true(fake_until(&fake, &r.done));
    assert_false(r.ok);
    assert_int_equal(r.e.outcome, SG_OUTCOME_UNKNOWN);
    assert_int_equal(fake.calls[V_ACT], 1);
    fake.refuse_acts = 3;
    r = (struct result){0};
    assert_int_equal(process_cancel(relay, &target, 15, 0, on_act, &r, &r.e), SG_OK);
    assert_true(fake_until(&fake, &r.done));
    assert_true(r.ok);
    assert_int_equal(fake.calls[V_ACT], 5);
    fake.lose_acts = 2; /* a lease is asked for until it is certain */
    r = (struct result){0};
    assert_int_equal(process_lease(relay, &target, 1000, on_act, &r, &r.e), SG_OK);
    assert_true(fake_until(&fake, &r.done));
    assert_true(r.ok);
    assert_int_equal(fake.calls[V_ACT], 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_arguments_of_terminals_input_and_scopes, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_long_input_goes_first, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_long_input_lost, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_hash_of_terminals_input_and_scopes, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_write_and_close, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_write_refused, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_acts_of_terminals_and_scopes, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_cancel_is_asked_once, setup, fixture_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
