/* Faults on demand and the journal: what tests of the gateway lean on must itself be right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "emulator/faults.h"
#include "emulator/journal.h"

#include <stdlib.h>
#include <string.h>

static int add(struct faults *f, const char *text)
{
    struct api_error e = {0};
    json_error_t je;
    json_t *v = json_loads(text, 0, &je);
    assert_non_null(v);
    int rc = faults_add(f, v, &e);
    json_decref(v);
    return rc;
}

static int fires(struct faults *f, const char *method, const char *path)
{
    struct fault_action a = {0};
    bool hit = faults_match(f, method, path, &a);
    int status = hit ? a.status : 0;
    fault_action_free(&a);
    return status;
}

static void test_matching(void **state)
{
    (void)state;
    struct faults *f = faults_new();
    assert_int_equal(add(f,
                         "[{\"match\":{\"method\":\"POST\",\"path\":\"/cmd$\"},\"action\":{\"status\":500}},"
                         "{\"match\":{\"prefix\":\"/v2/sandboxes/a\"},\"action\":{\"status\":404}}]"),
                     0);
    assert_int_equal(fires(f, "POST", "/v2/sandboxes/sessions/x/cmd"), 500);
    assert_int_equal(fires(f, "GET", "/v2/sandboxes/sessions/x/cmd"), 0);
    assert_int_equal(fires(f, "POST", "/v2/sandboxes/sessions/x/cmd/y"), 0);
    assert_int_equal(fires(f, "GET", "/v2/sandboxes/abc"), 404);
    faults_clear(f);
    assert_int_equal(fires(f, "GET", "/v2/sandboxes/abc"), 0);
    faults_free(f);
}

static void test_counting(void **state)
{
    (void)state;
    struct faults *f = faults_new();
    assert_int_equal(add(f, "{\"nth\":2,\"action\":{\"status\":500}}"), 0);
    assert_int_equal(fires(f, "GET", "/a"), 0);
    assert_int_equal(fires(f, "GET", "/a"), 500);
    assert_int_equal(fires(f, "GET", "/a"), 0); /* the second one means that one */
    faults_clear(f);
    assert_int_equal(add(f, "{\"times\":2,\"action\":{\"status\":500}}"), 0);
    assert_int_equal(fires(f, "GET", "/a"), 500);
    assert_int_equal(fires(f, "GET", "/a"), 500);
    assert_int_equal(fires(f, "GET", "/a"), 0);
    faults_clear(f);
    assert_int_equal(add(f, "[{\"times\":1,\"action\":{\"status\":500}},{\"action\":{\"status\":502}}]"), 0);
    assert_int_equal(fires(f, "GET", "/a"), 500); /* the first rule that fires wins */
    assert_int_equal(fires(f, "GET", "/a"), 502);
    json_t *list = faults_list(f);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 0), "fired")), 1);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 0), "matched")), 2);
    json_decref(list);
    faults_free(f);
}

static void test_bad_rules(void **state)
{
    (void)state;
    struct faults *f = faults_new();
    static const char *const bad[] = {
        "{}",
        "[1]",
        "{\"action\":{\"nonsense\":1}}",
        "{\"action\":{},\"extra\":1}",
        "{\"action\":{\"status\":99}}",
        "{\"action\":{\"delay_ms\":-1}}",
        "{\"action\":{\"headers\":{\"a\":1}}}",
        "{\"match\":{\"path\":\"(\"},\"action\":{\"status\":500}}",
        "[{\"action\":{\"status\":500}},{\"action\":{\"x\":1}}]", /* all or none */
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(add(f, bad[i]), -1);
    json_t *list = faults_list(f);
    assert_int_equal(json_array_size(list), 0);
    json_decref(list);
    faults_free(f);
}

static void test_actions(void **state)
{
    (void)state;
    struct faults *f = faults_new();
    struct fault_action a = {0};
    assert_int_equal(
        add(f, "{\"action\":{\"lose_answer\":true,\"delay_ms\":5,\"drip_ms\":3,\"cut_after_bytes\":0}}"), 0);
    assert_true(faults_match(f, "GET", "/", &a));
    assert_true(a.lose_answer && !a.close_before);
    assert_int_equal(a.delay_ms, 5);
    assert_int_equal(a.drip_bytes, 1);
    assert_int_equal(a.cut_after_bytes, 0);
    assert_int_equal(a.cut_after_ms, -1);
    faults_clear(f); /* what was matched stays valid */
    assert_non_null(json_object_get(a.own, "lose_answer"));
    fault_action_free(&a);
    assert_int_equal(add(f, "{\"action\":{\"html\":502}}"), 0);
    assert_true(faults_match(f, "GET", "/", &a));
    assert_int_equal(a.status, 502);
    assert_string_equal(a.type, "text/html; charset=utf-8");
    assert_false(a.do_it);
    fault_action_free(&a);
    faults_clear(f);
    assert_int_equal(add(f, "{\"action\":{\"status\":503,\"do_it\":true}}"), 0);
    assert_true(faults_match(f, "GET", "/", &a));
    assert_true(a.do_it && a.status == 503);
    fault_action_free(&a);
    faults_free(f);
}

static json_t *journal_json(struct journal *j, uint64_t after)
{
    struct sg_buf b;
    json_error_t je;
    sg_buf_init(&b, 16 << 20);
    journal_render(j, after, &b);
    json_t *o = json_loadb(b.data, b.len, 0, &je);
    assert_non_null(o);
    sg_buf_free(&b);
    return o;
}

static void test_journal(void **state)
{
    (void)state;
    struct journal *j = journal_new();
    for (int i = 0; i < 10005; i++)
        journal_status(j, journal_begin(j, "GET", "/x", "a=b"), 200);
    json_t *o = journal_json(j, 0);
    json_t *entries = json_object_get(o, "entries");
    assert_int_equal(json_array_size(entries), 10000); /* bounded: the oldest go */
    assert_int_equal(json_integer_value(json_object_get(o, "dropped")), 5);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(entries, 0), "seq")), 6);
    json_decref(o);
    o = journal_json(j, 10004);
    assert_int_equal(json_array_size(json_object_get(o, "entries")), 1);
    json_decref(o);
    journal_clear(j);
    uint64_t seq = journal_begin(j, "POST", "/y", "");
    journal_status(j, seq - 1, 500); /* an answer to what was cleared */
    o = journal_json(j, 0);
    entries = json_object_get(o, "entries");
    assert_int_equal(json_array_size(entries), 1);
    assert_true(json_is_null(json_object_get(json_array_get(entries, 0), "status")));
    json_decref(o);
    journal_free(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matching), cmocka_unit_test(test_counting), cmocka_unit_test(test_bad_rules),
        cmocka_unit_test(test_actions),  cmocka_unit_test(test_journal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
