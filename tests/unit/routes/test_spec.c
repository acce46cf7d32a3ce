/* What may be asked to run (C6, P65): checked whole before anything is sent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/signal_name.h"
#include "routes/spec.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static json_t *json(const char *text)
{
    json_error_t je;
    json_t *v = json_loads(text, JSON_DECODE_ANY, &je);
    if (!v)
        fail_msg("bad test JSON: %s: %s", je.text, text);
    return v;
}

static const struct refused {
    enum spec_form form;
    const char *body;
    enum sg_code code;
    const char *pointer;
} refused[] = {
    {SPEC_RUN, "{}", SG_E_INVALID_FIELD, "/argv"},
    {SPEC_RUN, "{\"argv\":[]}", SG_E_INVALID_FIELD, "/argv"},
    {SPEC_RUN, "{\"argv\":\"ls\"}", SG_E_INVALID_FIELD, "/argv"},
    {SPEC_RUN, "{\"argv\":[\"\"]}", SG_E_INVALID_FIELD, "/argv/0"},
    {SPEC_RUN, "{\"argv\":[\"a\",1]}", SG_E_INVALID_FIELD, "/argv/1"},
    {SPEC_RUN, "{\"argv\":[\"a\"],\"shell\":\"b\"}", SG_E_INVALID_FIELD, "/shell"},
    {SPEC_RUN, "{\"shell\":\"\"}", SG_E_INVALID_FIELD, "/shell"},
    {SPEC_RUN, "{\"shell\":[]}", SG_E_INVALID_FIELD, "/shell"},
    {SPEC_RUN, "{\"shell\":\"x\",\"id\":\"\"}", SG_E_INVALID_FIELD, "/id"},
    {SPEC_RUN, "{\"shell\":\"x\",\"id\":\"../x\"}", SG_E_INVALID_FIELD, "/id"},
    {SPEC_RUN, "{\"shell\":\"x\",\"id\":\".x\"}", SG_E_INVALID_FIELD, "/id"},
    {SPEC_RUN,
     "{\"shell\":\"x\",\"id\":\"a123456789b123456789c123456789d123456789e123456789f123456789g1234\"}",
     SG_E_INVALID_FIELD, "/id"},
    {SPEC_RUN, "{\"shell\":\"x\",\"cwd\":\"\"}", SG_E_INVALID_PATH, "/cwd"},
    {SPEC_RUN, "{\"shell\":\"x\",\"cwd\":1}", SG_E_INVALID_FIELD, "/cwd"},
    {SPEC_RUN, "{\"shell\":\"x\",\"env\":{\"A B\":\"\"}}", SG_E_INVALID_FIELD, "/env/A B"},
    {SPEC_RUN, "{\"shell\":\"x\",\"env\":{\"A\":null}}", SG_E_INVALID_FIELD, "/env/A"},
    {SPEC_RUN, "{\"shell\":\"x\",\"env_mode\":\"merge\"}", SG_E_INVALID_FIELD, "/env_mode"},
    {SPEC_RUN, "{\"shell\":\"x\",\"sudo\":1}", SG_E_INVALID_FIELD, "/sudo"},
    {SPEC_RUN, "{\"shell\":\"x\",\"timeout_ms\":0}", SG_E_INVALID_FIELD, "/timeout_ms"},
    {SPEC_RUN, "{\"shell\":\"x\",\"wait_ms\":25001}", SG_E_INVALID_FIELD, "/wait_ms"},
    {SPEC_RUN, "{\"shell\":\"x\",\"wait_ms\":-1}", SG_E_INVALID_FIELD, "/wait_ms"},
    {SPEC_RUN, "{\"shell\":\"x\",\"max_output\":67108865}", SG_E_INVALID_FIELD, "/max_output"},
    /* P65 */
    {SPEC_RUN, "{\"shell\":\"x\",\"timeoutMs\":1}", SG_E_UNKNOWN_FIELD, "/timeoutMs"},
    {SPEC_RUN, "{\"shell\":\"x\",\"retention\":{}}", SG_E_UNKNOWN_FIELD, "/retention"},
    {SPEC_RUN, "{\"shell\":\"x\",\"pty\":{\"cols\":80,\"rows\":24}}", SG_E_UNKNOWN_FIELD, "/pty"},
    {SPEC_RUN, "{\"shell\":\"x\",\"lease\":{\"ttl_ms\":5000}}", SG_E_UNKNOWN_FIELD, "/lease"},
    {SPEC_RUN, "{\"shell\":\"x\",\"on_disconnect\":\"keep\"}", SG_E_UNKNOWN_FIELD, "/on_disconnect"},
    {SPEC_PROCESS, "{\"shell\":\"x\",\"wait_ms\":1}", SG_E_UNKNOWN_FIELD, "/wait_ms"},
    /* who it runs as */
    {SPEC_RUN, "{\"shell\":\"x\",\"user\":\"\"}", SG_E_INVALID_FIELD, "/user"},
    {SPEC_RUN, "{\"shell\":\"x\",\"user\":\"a b\"}", SG_E_INVALID_FIELD, "/user"},
    {SPEC_RUN, "{\"shell\":\"x\",\"user\":\"ubuntu\",\"sudo\":true}", SG_E_INVALID_FIELD, "/user"},
    {SPEC_RUN, "{\"shell\":\"x\",\"user\":0}", SG_E_INVALID_FIELD, "/user"},
    {SPEC_RUN, "{\"shell\":\"x\",\"user\":\"root\",\"sudo\":false}", SG_E_INVALID_FIELD, "/user"},
    {SPEC_RUN, "{\"shell\":\"x\",\"resume\":1}", SG_E_INVALID_FIELD, "/resume"},
    /* input */
    {SPEC_RUN, "{\"shell\":\"x\",\"stdin\":1}", SG_E_INVALID_FIELD, "/stdin"},
    {SPEC_RUN, "{\"shell\":\"x\",\"stdin\":{}}", SG_E_INVALID_FIELD, "/stdin"},
    {SPEC_RUN, "{\"shell\":\"x\",\"stdin\":{\"base64\":1}}", SG_E_INVALID_FIELD, "/stdin/base64"},
    {SPEC_RUN, "{\"shell\":\"x\",\"stdin\":{\"base64\":\"a\"}}", SG_E_INVALID_FIELD, "/stdin/base64"},
    {SPEC_RUN, "{\"shell\":\"x\",\"stdin\":{\"base64\":\"YR==\"}}", SG_E_INVALID_FIELD, "/stdin/base64"},
    {SPEC_RUN, "{\"shell\":\"x\",\"stdin\":{\"text\":\"a\"}}", SG_E_UNKNOWN_FIELD, "/stdin/text"},
    {SPEC_PROCESS, "{\"shell\":\"x\",\"stdin\":\"data\"}", SG_E_INVALID_FIELD, "/stdin"},
    {SPEC_PROCESS, "{\"shell\":\"x\",\"stdin\":{\"base64\":\"YQ==\"}}", SG_E_INVALID_FIELD, "/stdin"},
    /* terminals */
    {SPEC_PROCESS, "{\"shell\":\"x\",\"pty\":true}", SG_E_INVALID_FIELD, "/pty"},
    {SPEC_PROCESS, "{\"shell\":\"x\",\"pty\":{}}", SG_E_INVALID_FIELD, "/pty/cols"},
    {SPEC_PROCESS, "{\"shell\":\"x\",\"pty\":{\"cols\":80}}", SG_E_INVALID_FIELD, "/pty/rows"},
    {SPEC_PROCESS, "{\"shell\":\"x\",\"pty\":{\"cols\":0,\"rows\":24}}", SG_E_INVALID_FIELD, "/pty/cols"},
    {SPEC_PROCESS, "{\"shell\":\"x\",\"pty\":{\"cols\":80,\"rows\":1001}}", SG_E_INVALID_FIELD, "/pty/rows"},
    {SPEC_PROCESS, "{\"shell\":\"x\",\"pty\":{\"cols\":80,\"rows\":24,\"term\":\"vt\"}}", SG_E_UNKNOWN_FIELD,
     "/pty/term"},
    {SPEC_PROCESS, "{\"shell\":\"x\",\"pty\":{\"cols\":80,\"rows\":24},\"stdin\":\"closed\"}",
     SG_E_INVALID_FIELD, "/stdin"},
    /* scopes */
    {SPEC_PROCESS, "{\"shell\":\"x\",\"lease\":\"l\"}", SG_E_INVALID_FIELD, "/lease"},
    {SPEC_PROCESS, "{\"shell\":\"x\",\"lease\":null}", SG_E_INVALID_FIELD, "/lease"},
    {SPEC_PROCESS, "{\"shell\":\"x\",\"lease\":{}}", SG_E_INVALID_FIELD, "/lease/ttl_ms"},
    {SPEC_PROCESS, "{\"shell\":\"x\",\"lease\":{\"ttl_ms\":999}}", SG_E_INVALID_FIELD, "/lease/ttl_ms"},
    {SPEC_PROCESS, "{\"shell\":\"x\",\"lease\":{\"ttl_ms\":86400001}}", SG_E_INVALID_FIELD, "/lease/ttl_ms"},
    {SPEC_PROCESS, "{\"shell\":\"x\",\"lease\":{\"ttl\":1}}", SG_E_UNKNOWN_FIELD, "/lease/ttl"},
    {SPEC_PROCESS, "{\"shell\":\"x\",\"on_disconnect\":\"kill\"}", SG_E_INVALID_FIELD, "/on_disconnect"},
    {SPEC_PROCESS, "{\"shell\":\"x\",\"on_disconnect\":{}}", SG_E_INVALID_FIELD,
     "/on_disconnect/kill_after_ms"},
    {SPEC_PROCESS, "{\"shell\":\"x\",\"on_disconnect\":{\"kill_after_ms\":-1}}", SG_E_INVALID_FIELD,
     "/on_disconnect/kill_after_ms"},
    /* retention */
    {SPEC_PROCESS, "{\"shell\":\"x\",\"retention\":{\"bytes\":1}}", SG_E_INVALID_FIELD, "/retention/bytes"},
    {SPEC_PROCESS, "{\"shell\":\"x\",\"retention\":{\"mode\":\"all\"}}", SG_E_INVALID_FIELD,
     "/retention/mode"},
    {SPEC_PROCESS, "{\"shell\":\"x\",\"retention\":{\"size\":1}}", SG_E_UNKNOWN_FIELD, "/retention/size"},
};

static void refuses_with_a_pointer_P65_C6(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        json_t *body = json(refused[i].body);
        struct spec s;
        struct sg_error e;
        enum sg_code rc = spec_parse(body, refused[i].form, &s, &e);
        if (rc != refused[i].code || strcmp(e.pointer, refused[i].pointer) != 0 || e.outcome != SG_NOT_SENT)
            fail_msg("%s: code %d at \"%s\": %s", refused[i].body, (int)rc, e.pointer, e.detail);
        assert_null(s.argv);
        assert_null(s.decoded);
        assert_null(s.own_env);
        json_decref(body);
    }
}

static void reads_every_field_C6(void **state)
{
    (void)state;
    json_t *body =
        json("{\"id\":\"job-1\",\"argv\":[\"printf\",\"%s\",\"\"],\"cwd\":\"sub\",\"env\":{\"A\":\"\"},"
             "\"env_mode\":\"replace\",\"sudo\":true,\"timeout_ms\":86400000,\"wait_ms\":0,"
             "\"max_output\":0}");
    struct spec s;
    struct sg_error e;
    assert_int_equal(spec_parse(body, SPEC_RUN, &s, &e), SG_OK);
    assert_string_equal(s.id, "job-1");
    assert_string_equal(s.argv[0], "printf");
    assert_string_equal(s.argv[1], "%s");
    assert_string_equal(s.argv[2], "");
    assert_null(s.argv[3]);
    assert_string_equal(s.cwd, "sub");
    assert_int_equal(json_object_size(s.env), 1);
    assert_true(s.env_replace);
    assert_true(s.sudo);
    assert_int_equal(s.timeout_ms, 86400000);
    assert_int_equal(s.wait_ms, 0);
    assert_int_equal(s.max_output, 0);
    spec_clear(&s);
    json_decref(body);
}

static void fills_in_what_is_missing(void **state)
{
    (void)state;
    json_t *body = json("{\"shell\":\"echo $HOME\"}");
    struct spec a, b;
    assert_int_equal(spec_parse(body, SPEC_RUN, &a, NULL), SG_OK);
    assert_int_equal(spec_parse(body, SPEC_PROCESS, &b, NULL), SG_OK);
    assert_string_equal(a.argv[0], "/bin/sh");
    assert_string_equal(a.argv[1], "-c");
    assert_string_equal(a.argv[2], "echo $HOME");
    assert_null(a.argv[3]);
    assert_string_not_equal(a.id, b.id);
    assert_int_equal(strlen(a.id), 22);
    assert_true(sg_wire_id_valid(a.id, strlen(a.id)));
    assert_null(a.cwd);
    assert_false(a.env_replace);
    assert_int_equal(a.timeout_ms, 0);
    assert_int_equal(a.wait_ms, 25000);
    assert_int_equal(a.max_output, -1);
    assert_null(a.input);
    assert_false(a.resume);
    assert_false(b.input_open);
    assert_int_equal(b.cols, 0);
    assert_int_equal(b.lease_ms, 0);
    assert_int_equal(b.unattended_ms, 0);
    spec_clear(&a);
    spec_clear(&b);
    json_decref(body);
}

static void reads_every_field_of_a_process_C6_A15_B10(void **state)
{
    (void)state;
    json_t *body =
        json("{\"shell\":\"top\",\"user\":\"root\",\"resume\":true,\"pty\":{\"cols\":80,\"rows\":1000},"
             "\"retention\":{\"bytes\":65536,\"mode\":\"lossless\"},\"lease\":{\"ttl_ms\":1000},"
             "\"on_disconnect\":{\"kill_after_ms\":5000}}");
    struct spec s;
    struct sg_error e;
    assert_int_equal(spec_parse(body, SPEC_PROCESS, &s, &e), SG_OK);
    assert_true(s.sudo && s.resume && s.input_open && s.lossless);
    assert_int_equal(s.cols, 80);
    assert_int_equal(s.rows, 1000);
    assert_int_equal(s.retain_bytes, 65536);
    assert_int_equal(s.lease_ms, 1000);
    assert_int_equal(s.unattended_ms, 5000);
    assert_string_equal(json_string_value(json_object_get(s.env, "TERM")), "xterm-256color");
    spec_set_defaults(&s, SPEC_PROCESS, 1 << 30, 0);
    struct process_spec p = spec_for_relay(&s, (struct relay_session){.session_id = "s"});
    assert_string_equal(p.id, s.id);
    assert_string_equal(p.argv[2], "top");
    assert_true(p.sudo && p.input_open && p.lossless);
    assert_int_equal(p.cols, 80);
    assert_int_equal(p.rows, 1000);
    assert_int_equal(p.retain_bytes, 65536);
    assert_int_equal(p.lease_ms, 1000);
    assert_int_equal(p.unattended_ms, 5000);
    assert_null(p.input);
    spec_clear(&s);
    json_decref(body);
    /* what the caller says about TERM stands, and the body is not changed */
    body = json("{\"shell\":\"x\",\"pty\":{\"cols\":1,\"rows\":1},\"env\":{\"TERM\":\"vt100\"},"
                "\"on_disconnect\":{\"kill_after_ms\":0}}");
    assert_int_equal(spec_parse(body, SPEC_PROCESS, &s, &e), SG_OK);
    assert_string_equal(json_string_value(json_object_get(s.env, "TERM")), "vt100");
    assert_int_equal(s.unattended_ms, SPEC_LEFT_MIN_MS); /* at once is not never */
    assert_false(s.sudo);
    spec_clear(&s);
    json_decref(body);
    body = json("{\"shell\":\"x\",\"stdin\":\"open\",\"on_disconnect\":\"keep\",\"env\":{\"A\":\"b\"}}");
    assert_int_equal(spec_parse(body, SPEC_PROCESS, &s, &e), SG_OK);
    assert_true(s.input_open);
    assert_int_equal(s.unattended_ms, 0);
    assert_int_equal(json_object_size(s.env), 1);
    spec_clear(&s);
    json_decref(body);
}

static void takes_input_as_text_or_base64_A12(void **state)
{
    (void)state;
    struct spec s;
    json_t *body = json("{\"shell\":\"x\",\"stdin\":\"h\\u00e9\\n\"}");
    assert_int_equal(spec_parse(body, SPEC_RUN, &s, NULL), SG_OK);
    assert_int_equal(s.input_len, 4);
    assert_memory_equal(s.input, "h\xc3\xa9\n", 4);
    spec_clear(&s);
    json_decref(body);
    body = json("{\"shell\":\"x\",\"stdin\":{\"base64\":\"AP8K\"}}");
    assert_int_equal(spec_parse(body, SPEC_RUN, &s, NULL), SG_OK);
    assert_int_equal(s.input_len, 3);
    assert_memory_equal(s.input, "\0\xff\n", 3);
    struct process_spec p = spec_for_relay(&s, (struct relay_session){.session_id = "s"});
    assert_ptr_equal(p.input, s.input);
    assert_int_equal(p.input_len, 3);
    assert_false(p.input_open);
    spec_clear(&s);
    json_decref(body);
    for (size_t n = PROCESS_INPUT_MAX; n <= PROCESS_INPUT_MAX + 1; n++) {
        char *text = malloc(n);
        memset(text, 'x', n);
        body = json_pack("{ssso}", "shell", "x", "stdin", json_stringn(text, n));
        assert_int_equal(spec_parse(body, SPEC_RUN, &s, NULL),
                         n <= PROCESS_INPUT_MAX ? SG_OK : SG_E_INVALID_FIELD);
        spec_clear(&s);
        json_decref(body);
        free(text);
    }
}

static void fills_in_what_the_operator_configured(void **state)
{
    (void)state;
    struct spec s = {.max_output = -1};
    spec_set_defaults(&s, SPEC_RUN, 0, 0);
    assert_int_equal(s.max_output, 1024 * 1024);
    assert_int_equal(s.retain_bytes, 0);
    s = (struct spec){.max_output = -1};
    spec_set_defaults(&s, SPEC_RUN, 1 << 20, 32 << 20);
    assert_int_equal(s.max_output, 32 << 20);
    assert_int_equal(s.retain_bytes, 40 << 20); /* enough to answer with */
    s = (struct spec){.max_output = 0, .retain_bytes = 77};
    spec_set_defaults(&s, SPEC_RUN, 1 << 20, 32 << 20);
    assert_int_equal(s.max_output, 0);
    assert_int_equal(s.retain_bytes, 77);
}

static void bounds_arguments(void **state)
{
    (void)state;
    struct spec s;
    for (size_t n = SPEC_ARG_MAX; n <= SPEC_ARG_MAX + 1; n++) {
        char *arg = malloc(n);
        memset(arg, 'x', n);
        json_t *body = json_pack("{s[so]}", "argv", "echo", json_stringn(arg, n));
        assert_int_equal(spec_parse(body, SPEC_RUN, &s, NULL),
                         n <= SPEC_ARG_MAX ? SG_OK : SG_E_INVALID_FIELD);
        spec_clear(&s);
        json_decref(body);
        free(arg);
    }
    json_t *argv = json_array(), *body = json_pack("{sO}", "argv", argv);
    for (int i = 0; i < SPEC_ARGS_MAX; i++)
        json_array_append_new(argv, json_string("a"));
    assert_int_equal(spec_parse(body, SPEC_RUN, &s, NULL), SG_OK);
    spec_clear(&s);
    json_array_append_new(argv, json_string("a"));
    assert_int_equal(spec_parse(body, SPEC_RUN, &s, NULL), SG_E_INVALID_FIELD);
    json_decref(argv);
    json_decref(body);
}

static void reads_signals_A13(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        int number; /* 0: refused */
    } cases[] = {
        {"\"TERM\"", SIGTERM},
        {"\"SIGTERM\"", SIGTERM},
        {"\"sigkill\"", SIGKILL},
        {"\"Hup\"", SIGHUP},
        {"\"SIGUSR1\"", SIGUSR1},
        {"\"SYS\"", SIGSYS},
        {"\"SIGRTMIN+0\"", 34},
        {"\"RTMIN+30\"", 64},
        {"1", 1},
        {"64", 64},
        {"0", 0},
        {"65", 0},
        {"-9", 0},
        {"9.0", 0},
        {"\"\"", 0},
        {"\"SIG\"", 0},
        {"\"SIGFOO\"", 0},
        {"\"9\"", 0},
        {"\"SIGRTMIN+31\"", 0},
        {"true", 0},
        {"null", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *v = json(cases[i].json);
        int n = 0;
        struct sg_error e;
        enum sg_code rc = spec_signal(v, "/signal", &n, &e);
        if (rc != (cases[i].number ? SG_OK : SG_E_INVALID_FIELD) || n != cases[i].number)
            fail_msg("%s gave %d", cases[i].json, n);
        json_decref(v);
    }
    int n;
    assert_int_equal(spec_signal(NULL, "/signal", &n, NULL), SG_E_INVALID_FIELD);
    char buf[SG_SIGNAL_TEXT];
    for (uint32_t k = 1; k <= 64; k++) { /* every name is read back as its number */
        if (k == 32 || k == 33)
            continue;
        json_t *v = json_string(sg_signal_name(k, buf));
        assert_int_equal(spec_signal(v, "/signal", &n, NULL), SG_OK);
        assert_int_equal(n, k);
        json_decref(v);
    }
}

static void checks_paths_and_modes(void **state)
{
    (void)state;
    static char path[SPEC_PATH_MAX + 1];
    memset(path, 'p', sizeof path);
    assert_int_equal(spec_path(path, SPEC_PATH_MAX, NULL), SG_OK);
    assert_int_equal(spec_path(path, SPEC_PATH_MAX + 1, NULL), SG_E_INVALID_PATH);
    assert_int_equal(spec_path("", 0, NULL), SG_E_INVALID_PATH);
    assert_int_equal(spec_path("a\0b", 3, NULL), SG_E_INVALID_PATH);
    assert_int_equal(spec_path(NULL, 0, NULL), SG_E_INVALID_PATH);
    assert_int_equal(spec_path("\xff\n$(x)", 6, NULL), SG_OK);
    int mode;
    assert_int_equal(spec_mode("0644", &mode, NULL), SG_OK);
    assert_int_equal(mode, 0644);
    assert_int_equal(spec_mode("7777", &mode, NULL), SG_OK);
    assert_int_equal(mode, 07777);
    static const char *const wrong[] = {"", "8", "-1", "10000", "0o644", "64 4", "000644"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(spec_mode(wrong[i], &mode, NULL), SG_E_INVALID_FIELD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_with_a_pointer_P65_C6),
        cmocka_unit_test(reads_every_field_C6),
        cmocka_unit_test(fills_in_what_is_missing),
        cmocka_unit_test(reads_every_field_of_a_process_C6_A15_B10),
        cmocka_unit_test(takes_input_as_text_or_base64_A12),
        cmocka_unit_test(fills_in_what_the_operator_configured),
        cmocka_unit_test(bounds_arguments),
        cmocka_unit_test(reads_signals_A13),
        cmocka_unit_test(checks_paths_and_modes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
