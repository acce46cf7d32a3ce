/* Process records and run answers as JSON: bytes that are not text stay exact (A14), ends are told apart (C7). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "routes/process_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sg_wire_process ended(enum sg_wire_how how, uint32_t value)
{
    struct sg_wire_process p = {.state = SG_PS_FINISHED,
                                .how = how,
                                .value = value,
                                .oldest = {5, 0},
                                .end = {UINT64_C(1) << 40, 7},
                                .started_ms = UINT64_C(1796039000123),
                                .duration_ms = 12,
                                .pid = 42};
    (void)snprintf(p.id, sizeof p.id, "job");
    return p;
}

static void expect(json_t *got, const char *want)
{
    json_t *w = json_loads(want, 0, NULL);
    assert_non_null(w);
    assert_non_null(got);
    if (!json_equal(got, w))
        fail_msg("got %s", json_dumps(got, JSON_SORT_KEYS));
    json_decref(got);
    json_decref(w);
}

static void tells_ends_apart_C7(void **state)
{
    (void)state;
    struct sg_wire_process p = ended(SG_HOW_EXIT, 7);
    expect(
        process_json(&p, "sbx_1"),
        "{\"process_id\":\"job\",\"session_id\":\"sbx_1\",\"state\":\"finished\",\"exit_code\":7,"
        "\"signal\":null,\"ended_by\":\"exit\",\"timed_out\":false,\"started_at\":\"2026-11-30T11:43:20."
        "123Z\","
        "\"duration_ms\":12,\"descendants_hold_output\":false,\"output_complete\":true,\"terminal\":false,"
        "\"stdin\":{\"open\":false,\"accepted\":0},\"retention\":{\"mode\":\"ring\"},\"paused\":false,"
        "\"streams\":{\"stdout\":{\"oldest\":5,\"end\":1099511627776},\"stderr\":{\"oldest\":0,\"end\":7}}}");
    p = ended(SG_HOW_SIGNAL, 15);
    p.descendants_hold_output = p.output_incomplete = true;
    expect(
        process_json(&p, "sbx_1"),
        "{\"process_id\":\"job\",\"session_id\":\"sbx_1\",\"state\":\"finished\",\"exit_code\":null,"
        "\"signal\":\"SIGTERM\",\"ended_by\":\"signal\",\"timed_out\":false,\"started_at\":\"2026-11-30T11:"
        "43:20.123Z\","
        "\"duration_ms\":12,\"descendants_hold_output\":true,\"output_complete\":false,\"terminal\":false,"
        "\"stdin\":{\"open\":false,\"accepted\":0},\"retention\":{\"mode\":\"ring\"},\"paused\":false,"
        "\"streams\":{\"stdout\":{\"oldest\":5,\"end\":1099511627776},\"stderr\":{\"oldest\":0,\"end\":7}}}");
    p = ended(SG_HOW_TIMEOUT, 9);
    json_t *o = process_json(&p, "sbx_1");
    assert_true(json_is_true(json_object_get(o, "timed_out")));
    assert_true(json_is_null(json_object_get(o, "exit_code")));
    json_decref(o);
    p = ended(SG_HOW_NONE, 0);
    p.state = SG_PS_RUNNING;
    p.started_ms = 0;
    o = process_json(&p, "sbx_1");
    assert_true(json_is_null(json_object_get(o, "exit_code")));
    assert_true(json_is_null(json_object_get(o, "duration_ms")));
    assert_true(json_is_null(json_object_get(o, "started_at")));
    assert_true(json_is_false(json_object_get(o, "output_complete")));
    json_decref(o);
    p = ended(SG_HOW_UNKNOWN, 0); /* P04: an exit code nobody knows is not 0 */
    p.state = SG_PS_UNKNOWN;
    o = process_json(&p, "sbx_1");
    assert_true(json_is_null(json_object_get(o, "exit_code")));
    assert_string_equal(json_string_value(json_object_get(o, "state")), "unknown");
    json_decref(o);
}

static void shows_terminals_input_and_scopes_A15_B10(void **state)
{
    (void)state;
    struct sg_wire_process p = ended(SG_HOW_NONE, 0);
    p.state = SG_PS_RUNNING;
    p.terminal = p.takes_input = p.lossless = p.paused = true;
    p.input = 4711;
    json_t *o = process_json(&p, "sbx_1");
    json_t *part = json_pack("{sOsOsOsOsOsO}", "terminal", json_object_get(o, "terminal"), "stdin",
                             json_object_get(o, "stdin"), "retention", json_object_get(o, "retention"),
                             "paused", json_object_get(o, "paused"), "streams", json_object_get(o, "streams"),
                             "ended_by", json_object_get(o, "ended_by"));
    json_decref(o);
    expect(part, "{\"terminal\":true,\"stdin\":{\"open\":true,\"accepted\":4711},\"ended_by\":null,"
                 "\"retention\":{\"mode\":\"lossless\"},\"paused\":true,"
                 "\"streams\":{\"pty\":{\"oldest\":5,\"end\":1099511627776}}}");
    p = ended(SG_HOW_SCOPE, 9);
    o = process_json(&p, "sbx_1");
    assert_string_equal(json_string_value(json_object_get(o, "ended_by")), "scope");
    assert_string_equal(json_string_value(json_object_get(o, "signal")), "SIGKILL");
    assert_true(json_is_false(json_object_get(o, "timed_out")));
    assert_true(json_is_null(json_object_get(o, "exit_code")));
    json_decref(o);
}

static void run_answer(const char *out, size_t out_len, const char *err, size_t err_len, const char *encoding,
                       const char *out_text, const char *err_text)
{
    struct run_result r = {
        .p = ended(SG_HOW_EXIT, 0), .out = {out, err}, .len = {out_len, err_len}, .output_complete = true};
    json_t *o = run_json(&r, "sbx_1");
    assert_non_null(o);
    assert_string_equal(json_string_value(json_object_get(o, "encoding")), encoding);
    const json_t *v = json_object_get(o, "stdout");
    assert_int_equal(json_string_length(v), strlen(out_text) ? strlen(out_text) : out_len);
    if (*out_text)
        assert_memory_equal(json_string_value(v), out_text, strlen(out_text));
    assert_string_equal(json_string_value(json_object_get(o, "stderr")), err_text);
    json_decref(o);
}

static void keeps_bytes_exact_A14(void **state)
{
    (void)state;
    run_answer("abc", 3, "", 0, "utf-8", "abc", ""); /* P07 */
    run_answer(NULL, 0, NULL, 0, "utf-8", "", "");
    run_answer("h\xc3\xa9", 3, "x", 1, "utf-8", "h\xc3\xa9", "x");
    run_answer("\xff\x00", 2, "x", 1, "base64", "/wA=", "eA==");
    run_answer("\xc3", 1, "", 0, "base64", "ww==", "");
    struct run_result r = {.p = ended(SG_HOW_EXIT, 0), .out = {"a\0b", ""}, .len = {3, 0}};
    json_t *o = run_json(&r, "s"); /* NUL is a character like another */
    char *text = json_dumps(json_object_get(o, "stdout"), JSON_ENCODE_ANY);
    assert_string_equal(text, "\"a\\u0000b\"");
    free(text);
    json_decref(o);
}

/* P03: that it has ended is known before how; "finished" is said with both only. */
static void an_end_without_its_how_is_not_told(void **state)
{
    (void)state;
    struct sg_wire_process p = ended(SG_HOW_NONE, 0);
    json_t *o = process_json(&p, "sbx_1");
    assert_string_equal(json_string_value(json_object_get(o, "state")), "running");
    assert_true(json_is_null(json_object_get(o, "exit_code")));
    assert_true(json_is_false(json_object_get(o, "output_complete")));
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_end_without_its_how_is_not_told),
        cmocka_unit_test(tells_ends_apart_C7),
        cmocka_unit_test(shows_terminals_input_and_scopes_A15_B10),
        cmocka_unit_test(keeps_bytes_exact_A14),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
