/* What an interactive client says: the messages of the official CLI, and what only looks like them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "emulator/terminal_message.h"

#include <stdio.h>
#include <string.h>

static struct terminal_message parse(const char *text)
{
    struct terminal_message m;
    terminal_message_parse(text, strlen(text), &m);
    return m;
}

static const char *arg(const struct terminal_message *m, size_t i)
{
    return json_string_value(json_array_get(m->args, i));
}

static const char *env(const struct terminal_message *m, const char *key)
{
    return json_string_value(json_object_get(m->env, key));
}

/* As captured from `exec -i --sudo -w /srv/app -e FOO=bar NAME -- bash -l`. */
static void test_start_of_the_cli(void **state)
{
    (void)state;
    struct terminal_message m = parse("{\"type\":\"start\",\"command\":\"sudo\",\"args\":[\"bash\",\"-l\"],"
                                      "\"env\":[\"TERM=xterm-256color\",\"PS1=\\u25b2 "
                                      "\\u0001\\u001b[2m\\u0002$PWD/\\u0001\\u001b[0m\\u0002 \","
                                      "\"FOO=bar\"],\"cwd\":\"/srv/app\",\"cols\":100,\"rows\":30}");
    assert_int_equal(m.kind, TERMINAL_START);
    assert_true(m.sudo);
    assert_string_equal(m.program, "bash");
    assert_int_equal(json_array_size(m.args), 1);
    assert_string_equal(arg(&m, 0), "-l");
    assert_string_equal(env(&m, "TERM"), "xterm-256color");
    assert_string_equal(env(&m, "PS1"), "\u25b2 \x01\x1b[2m\x02$PWD/\x01\x1b[0m\x02 ");
    assert_string_equal(env(&m, "FOO"), "bar");
    assert_string_equal(m.cwd, "/srv/app");
    assert_int_equal(m.cols, 100);
    assert_int_equal(m.rows, 30);
    terminal_message_free(&m);
}

static void test_least_start(void **state)
{
    (void)state;
    struct terminal_message m = parse("{\"type\":\"start\",\"command\":\"sh\"}");
    assert_int_equal(m.kind, TERMINAL_START);
    assert_false(m.sudo);
    assert_string_equal(m.program, "sh");
    assert_int_equal(json_array_size(m.args), 0);
    assert_null(m.cwd);
    assert_int_equal(m.cols, 80);
    assert_int_equal(m.rows, 24);
    terminal_message_free(&m);
}

/* sudo with options or variables of its own is the program of that name. */
static void test_sudo(void **state)
{
    (void)state;
    static const char *const plain[] = {"[]", "[\"-l\"]", "[\"A=b\",\"env\"]", "[\"\"]"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"type\":\"start\",\"command\":\"sudo\",\"args\":%s}", plain[i]);
        struct terminal_message m = parse(text);
        assert_int_equal(m.kind, TERMINAL_START);
        assert_false(m.sudo);
        assert_string_equal(m.program, "sudo");
        terminal_message_free(&m);
    }
}

static void test_later_variable_wins(void **state)
{
    (void)state;
    struct terminal_message m =
        parse("{\"type\":\"start\",\"command\":\"sh\",\"env\":[\"A=1\",\"B=x=y\",\"A=2\",\"C=\"]}");
    assert_int_equal(m.kind, TERMINAL_START);
    assert_string_equal(env(&m, "A"), "2");
    assert_string_equal(env(&m, "B"), "x=y");
    assert_string_equal(env(&m, "C"), "");
    terminal_message_free(&m);
}

static void test_bad_starts(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{\"type\":\"start\"}",
        "{\"type\":\"start\",\"command\":\"\"}",
        "{\"type\":\"start\",\"command\":7}",
        "{\"type\":\"start\",\"command\":\"sh\",\"args\":\"x\"}",
        "{\"type\":\"start\",\"command\":\"sh\",\"args\":[1]}",
        "{\"type\":\"start\",\"command\":\"sh\",\"env\":{}}",
        "{\"type\":\"start\",\"command\":\"sh\",\"env\":[\"novalue\"]}",
        "{\"type\":\"start\",\"command\":\"sh\",\"env\":[\"=x\"]}",
        "{\"type\":\"start\",\"command\":\"sh\",\"cwd\":1}",
        "{\"type\":\"start\",\"command\":\"sh\",\"cols\":0}",
        "{\"type\":\"start\",\"command\":\"sh\",\"rows\":1.5}",
        "{\"type\":\"start\",\"command\":\"sh\",\"rows\":70000}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct terminal_message m = parse(bad[i]);
        assert_int_equal(m.kind, TERMINAL_BAD_START);
        assert_non_null(m.error);
        terminal_message_free(&m);
    }
}

static void test_resize_and_others(void **state)
{
    (void)state;
    struct terminal_message m = parse("{\"type\":\"resize\",\"cols\":120,\"rows\":40}");
    assert_int_equal(m.kind, TERMINAL_RESIZE);
    assert_int_equal(m.cols, 120);
    assert_int_equal(m.rows, 40);
    terminal_message_free(&m);
    static const char *const others[] = {
        "",
        "no json",
        "7",
        "[]",
        "{}",
        "{\"type\":7}",
        "{\"type\":\"ready\"}",
        "{\"type\":\"resize\"}",
        "{\"type\":\"resize\",\"cols\":120}",
        "{\"type\":\"resize\",\"cols\":120,\"rows\":0}",
        "{\"type\":\"start\",\"command\":\"a\\u0000b\"}" /* no C string: refused by the parser */,
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        m = parse(others[i]);
        assert_int_equal(m.kind, TERMINAL_OTHER);
        terminal_message_free(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start_of_the_cli),
        cmocka_unit_test(test_least_start),
        cmocka_unit_test(test_sudo),
        cmocka_unit_test(test_later_variable_wins),
        cmocka_unit_test(test_bad_starts),
        cmocka_unit_test(test_resize_and_others),
    };
    return cmocka_run_group_tests_name("emulator/terminal_message", tests, NULL, NULL);
}
