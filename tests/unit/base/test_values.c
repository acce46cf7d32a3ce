/* Buffers, JSON access, the error table, clocks, crypto wrappers: the values every room works with. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/error.h"
#include "base/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void buf_has_a_ceiling(void **state)
{
    (void)state;
    struct sg_buf b;
    sg_buf_init(&b, 10);
    assert_true(sg_buf_adds(&b, "0123456789"));
    assert_false(b.failed);
    assert_false(sg_buf_add(&b, "x", 1));
    assert_true(b.failed);
    assert_string_equal(b.data, "0123456789");
    assert_false(sg_buf_add(&b, "x", SIZE_MAX)); /* no overflow on the way to the ceiling */
    sg_buf_reset(&b);
    assert_false(b.failed);
    assert_true(sg_buf_addf(&b, "%d-%s", 7, "ab"));
    assert_string_equal(b.data, "7-ab");
    sg_buf_consume(&b, 2);
    assert_string_equal(b.data, "ab");
    assert_int_equal(b.len, 2);
    size_t n;
    char *taken = sg_buf_take(&b, &n);
    assert_non_null(taken);
    assert_int_equal(n, 2);
    assert_null(b.data);
    free(taken);
    char *empty = sg_buf_take(&b, &n); /* an empty buffer still gives a string */
    assert_non_null(empty);
    assert_string_equal(empty, "");
    free(empty);
    sg_buf_free(&b);
}

static void buf_encodes_urls(void **state)
{
    (void)state;
    struct sg_buf b;
    sg_buf_init(&b, 100);
    assert_true(sg_buf_add_urlenc(&b, "a b/ü~.%"));
    assert_string_equal(b.data, "a%20b%2F%C3%BC~.%25");
    sg_buf_free(&b);
}

/* C10: each code has a complete row, an HTTP error status, one of the documented reasons, and is listed once. */
static void error_table_is_complete(void **state)
{
    (void)state;
    static const char *const reasons[] = {"AuthenticationError", "PermissionDenied",    "NotFoundError",
                                          "AlreadyExistsError",  "InvalidOptionsError", "UnsupportedError",
                                          "StaleSession",        "RateLimited",         "UnavailableError",
                                          "UnknownError"};
    for (int i = 1; i < SG_CODE_COUNT; i++) {
        const struct sg_error_row *row = sg_error_row((enum sg_code)i);
        assert_non_null(row);
        assert_true(row->status >= 400 && row->status < 600);
        assert_true(row->title[0] && row->doc[0] && row->code[0]);
        int known = 0;
        for (size_t r = 0; r < sizeof reasons / sizeof *reasons; r++)
            known += !strcmp(reasons[r], row->reason);
        assert_int_equal(known, 1);
        for (int j = 1; j < i; j++)
            assert_string_not_equal(sg_error_row((enum sg_code)j)->code, row->code);
        for (const char *p = row->code; *p; p++)
            assert_true((*p >= 'a' && *p <= 'z') || *p == '_');
    }
    assert_null(sg_error_row(SG_OK));
    assert_null(sg_error_row(SG_CODE_COUNT));
}

static void errors_carry_what_is_known(void **state)
{
    (void)state;
    struct sg_error e;
    assert_int_equal(sg_fail(&e, SG_E_RATE_LIMITED, SG_NOT_STARTED, "line\r\nbreak %d", 7),
                     SG_E_RATE_LIMITED);
    assert_string_equal(e.detail,
                        "line  break 7"); /* foreign control characters cannot break a header or log */
    assert_int_equal(e.retry_after_ms, -1);
    assert_string_equal(sg_outcome_name(e.outcome), "not_started");
    assert_int_equal(sg_fail(NULL, SG_E_INTERNAL, SG_NOT_SENT, "x"), SG_E_INTERNAL);
    assert_string_equal(sg_errno_name(ENOENT), "ENOENT");
    assert_string_equal(sg_errno_name(0), "EUNKNOWN");
    assert_string_equal(sg_errno_name(99999), "EUNKNOWN");
}

static void json_errors_have_positions_and_pointers(void **state)
{
    (void)state;
    struct sg_error e;
    json_t *v;
    static const char broken[] = "{\n \"a\": tru }";
    assert_int_equal(sg_json_parse_object(broken, strlen(broken), &v, &e), SG_E_INVALID_JSON);
    assert_non_null(strstr(e.detail, "line 2"));
    assert_int_equal(sg_json_parse_object("[1]", 3, &v, &e), SG_E_INVALID_JSON);
    assert_int_equal(sg_json_parse_object("{\"a\":1,\"a\":2}", 13, &v, &e), SG_E_INVALID_JSON);
    assert_int_equal(sg_json_parse_object("{\"a\":\"\xff\"}", 9, &v, &e), SG_E_INVALID_JSON);
    assert_int_equal(sg_json_parse_object("", 0, &v, &e), SG_OK);
    json_decref(v);

    static const char body[] = "{\"n\":5,\"s\":\"abc\",\"b\":true,\"z\":null,\"x/y~\":1}";
    assert_int_equal(sg_json_parse_object(body, strlen(body), &v, &e), SG_OK);
    static const char *const some[] = {"n", "s", "b", "z", NULL};
    assert_int_equal(sg_json_only(v, "/in", some, &e), SG_E_UNKNOWN_FIELD);
    assert_string_equal(e.pointer, "/in/x~1y~0");
    int64_t n = -1;
    assert_int_equal(sg_json_int(v, "", "n", 0, 4, &n, &e), SG_E_INVALID_FIELD);
    assert_string_equal(e.pointer, "/n");
    assert_int_equal(n, -1);
    assert_int_equal(sg_json_int(v, "", "n", 0, 5, &n, &e), SG_OK);
    assert_int_equal(n, 5);
    const char *s = "default";
    assert_int_equal(sg_json_str(v, "", "z", 10, &s, &e), SG_E_INVALID_FIELD);
    assert_int_equal(sg_json_str(v, "", "none", 10, &s, &e), SG_OK);
    assert_string_equal(s, "default");
    assert_int_equal(sg_json_str(v, "", "s", 2, &s, &e), SG_E_INVALID_FIELD);
    bool b = false;
    assert_int_equal(sg_json_bool(v, "", "n", &b, &e), SG_E_INVALID_FIELD);
    assert_int_equal(sg_json_bool(v, "", "b", &b, &e), SG_OK);
    assert_true(b);
    json_decref(v);
}

static void foreign_numbers_are_read_with_care(void **state)
{
    (void)state;
    json_t *v = json_pack("{s:f, s:f, s:s, s:i}", "real", 12.0, "huge", 1e300, "text", "5", "int", 7);
    assert_int_equal(sg_jget_int(v, "real", -1), 12);
    assert_int_equal(sg_jget_int(v, "huge", -1), -1);
    assert_int_equal(sg_jget_int(v, "text", -1), -1);
    assert_int_equal(sg_jget_int(v, "int", -1), 7);
    json_decref(v);
}

static void times_are_rfc3339(void **state)
{
    (void)state;
    char t[SG_TIME_TEXT];
    sg_time_format(0, t);
    assert_string_equal(t, "1970-01-01T00:00:00.000Z");
    sg_time_format(1796039000123, t);
    assert_string_equal(t, "2026-11-30T11:43:20.123Z");
    sg_time_format(-1, t);
    assert_string_equal(t, "1969-12-31T23:59:59.999Z");
    sg_time_format(253402300799999, t);
    assert_string_equal(t, "9999-12-31T23:59:59.999Z");
    sg_time_format(253402300800000, t); /* what the format cannot say */
    assert_string_equal(t, "1970-01-01T00:00:00.000Z");
    sg_time_format(INT64_MIN, t);
    assert_string_equal(t, "1970-01-01T00:00:00.000Z");
}

static void ids_are_random_and_plain(void **state)
{
    (void)state;
    char a[32], b[32];
    assert_true(sg_random_id(a, "p_", 20));
    assert_true(sg_random_id(b, "p_", 20));
    assert_int_equal(strlen(a), 22);
    assert_string_not_equal(a, b);
    assert_int_equal(strspn(a + 2, "0123456789abcdefghijklmnopqrstuvwxyz"), 20);
}

static void secrets_keep_their_bytes(void **state)
{
    (void)state;
    struct sg_secret *s = sg_secret_new("top\0secret", 10);
    assert_non_null(s);
    assert_int_equal(sg_secret_len(s), 10);
    assert_memory_equal(sg_secret_bytes(s), "top\0secret", 11);
    sg_secret_free(s);
    sg_secret_free(NULL);
}

/* P52: equality looks at every byte; what it answers is still right. */
/* Whatever they quote, and wherever they are cut: JSON and databases take nothing else. */
static void details_are_utf8(void **state)
{
    (void)state;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_INTERNAL, SG_NOT_SENT, "%s",
                  "caf\xc3\xa9 \xff\xe2\x82 \xed\xa0\x80 \xf0\x9f\x98\x80");
    assert_string_equal(e.detail, "caf\xc3\xa9 \?\?\? \?\?\? \xf0\x9f\x98\x80");
    char text[600] = "x";
    for (size_t i = 1; i + 2 < sizeof text; i += 2)
        memcpy(text + i, "\xc3\xa9", 2);
    for (int shift = 0; shift < 2; shift++) {
        (void)sg_fail_field(&e, SG_E_INVALID_FIELD, "/a", "%s", text + shift);
        json_t *v = json_string(e.detail);
        assert_non_null(v);
        assert_int_equal(strlen(e.detail), sizeof e.detail - 1);
        json_decref(v);
    }
}

static void constant_time_equality(void **state)
{
    (void)state;
    unsigned char a[32] = {0}, b[32] = {0};
    assert_true(sg_equal_ct(a, b, sizeof a));
    b[31] = 1;
    assert_false(sg_equal_ct(a, b, sizeof a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buf_has_a_ceiling),
        cmocka_unit_test(buf_encodes_urls),
        cmocka_unit_test(error_table_is_complete),
        cmocka_unit_test(errors_carry_what_is_known),
        cmocka_unit_test(json_errors_have_positions_and_pointers),
        cmocka_unit_test(foreign_numbers_are_read_with_care),
        cmocka_unit_test(times_are_rfc3339),
        cmocka_unit_test(ids_are_random_and_plain),
        cmocka_unit_test(secrets_keep_their_bytes),
        cmocka_unit_test(details_are_utf8),
        cmocka_unit_test(constant_time_equality),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
