/* The field keep_alive (B6). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "control/keepalive.h"

#include <stdlib.h>

static enum sg_code check(const char *text, struct keepalive_wish *w, struct sg_error *e)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    enum sg_code rc = keepalive_check(value, "/keep_alive", w, e);
    json_decref(value);
    return rc;
}

/* Read and told again it is the same. */
static void test_what_is_taken(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        struct keepalive_wish wish;
    } cases[] = {
        {"null", {KEEPALIVE_UNSAID, 0}},
        {"false", {KEEPALIVE_NEVER, 0}},
        {"true", {KEEPALIVE_IN_USE, 0}},
        {"{\"max_ms\":1000}", {KEEPALIVE_IN_USE, 1000}},
        {"{\"max_ms\":86400000}", {KEEPALIVE_IN_USE, 86400000}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct keepalive_wish w;
        struct sg_error e;
        assert_int_equal(check(cases[i].text, &w, &e), SG_OK);
        assert_int_equal(w.mode, cases[i].wish.mode);
        assert_int_equal(w.max_ms, cases[i].wish.max_ms);
        json_t *told = keepalive_json(&w);
        char *text = json_dumps(told, JSON_ENCODE_ANY | JSON_COMPACT);
        assert_string_equal(text, cases[i].text);
        free(text);
        json_decref(told);
    }
    struct keepalive_wish absent = {KEEPALIVE_NEVER, 5};
    assert_int_equal(keepalive_check(NULL, "/keep_alive", &absent, NULL), SG_OK);
    assert_int_equal(absent.mode, KEEPALIVE_UNSAID);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"\"yes\"", "/keep_alive"},
        {"1", "/keep_alive"},
        {"[]", "/keep_alive"},
        {"{\"max_ms\":999}", "/keep_alive/max_ms"},
        {"{\"max_ms\":86400001}", "/keep_alive/max_ms"},
        {"{\"max_ms\":null}", "/keep_alive/max_ms"},
        {"{\"for\":1}", "/keep_alive/for"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct keepalive_wish w;
        struct sg_error e;
        assert_int_not_equal(check(cases[i][0], &w, &e), SG_OK);
        assert_string_equal(e.pointer, cases[i][1]);
        assert_int_equal(e.outcome, SG_NOT_SENT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_taken),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
