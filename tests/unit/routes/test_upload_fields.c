/* What requests to resumable uploads say. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "routes/upload_fields.h"

static void test_flags(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "?", "?2", "1", "true", "?1 ?0", "?1, ?1", "??1", "?1x", "\"?1\""};
    bool on = false;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (upload_flag_parse(bad[i], &on))
            fail_msg("%s", bad[i]);
    assert_true(upload_flag_parse("?1", &on) && on);
    assert_true(upload_flag_parse("?0", &on) && !on);
    assert_true(upload_flag_parse("  ?1  ", &on) && on);
    assert_true(upload_flag_parse("?0;a=b", &on) && !on);
}

static void test_numbers(void **state)
{
    (void)state;
    static const char *const bad[] = {"",      "-1",
                                      "+1",    "1.0",
                                      "1,2",   "1 2",
                                      "0x10",  "1000000000000000",
                                      "1e3",   ";a=1",
                                      "x",     "?1",
                                      "\"1\"", "99999999999999999999"};
    int64_t n = -1;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (upload_number_parse(bad[i], &n))
            fail_msg("%s", bad[i]);
    assert_true(upload_number_parse("0", &n) && n == 0);
    assert_true(upload_number_parse("999999999999999", &n) && n == UPLOAD_NUMBER_MAX);
    assert_true(upload_number_parse(" 17;q=1 ", &n) && n == 17);
}

static void test_states(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",        "1",         "1:2",      "1:2:",      "1:2:closed", ":2:open",
        "1::open", "-1:2:open", "1:x:open", "1:2:open:", "1:2:3:open", "1:--:open"};
    struct upload_state s;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (upload_state_parse(bad[i], &s))
            fail_msg("%s", bad[i]);
    assert_true(upload_state_parse("0:-:open", &s));
    assert_true(s.offset == 0 && s.length == -1 && !s.done);
    assert_true(upload_state_parse("9223372036854775807:9223372036854775807:done", &s));
    assert_true(s.offset == INT64_MAX && s.length == INT64_MAX && s.done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_flags), cmocka_unit_test(test_numbers),
                                       cmocka_unit_test(test_states)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
