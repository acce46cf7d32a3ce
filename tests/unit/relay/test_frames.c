/* The frames of sandgate.v1, alone.  C7, P47. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/core/b64.h"
#include "base/signal_name.h"
#include "relay/frames.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses what a client said; the caller clears it. */
static struct frame_in parsed(const char *text, bool json, struct sg_error *e)
{
    struct frame_in in;
    sg_error_clear(e);
    frame_parse(text, strlen(text), json, &in, e);
    return in;
}

static void test_commands(void **state)
{
    (void)state;
    struct sg_error e;
    struct frame_in in = parsed("{\"type\":\"resize\",\"cols\":1,\"rows\":1000}", false, &e);
    assert_int_equal(in.kind, FRAME_RESIZE);
    assert_int_equal(in.cols, 1);
    assert_int_equal(in.rows, 1000);
    in = parsed("{\"type\":\"signal\",\"signal\":\"sigint\"}", false, &e);
    assert_int_equal(in.kind, FRAME_SIGNAL);
    assert_int_equal(in.signal, SIGINT);
    assert_true(in.whole);
    in = parsed("{\"type\":\"signal\",\"signal\":10,\"whole\":false}", false, &e);
    assert_int_equal(in.signal, 10);
    assert_false(in.whole);
    in = parsed("{\"type\":\"stdin_close\"}", false, &e);
    assert_int_equal(in.kind, FRAME_STDIN_CLOSE);
    assert_true(in.offset == UINT64_MAX);
    in = parsed("{\"type\":\"stdin_close\",\"offset\":5}", false, &e);
    assert_int_equal(in.offset, 5);
    in = parsed("{\"type\":\"ack\",\"stdout\":7,\"pty\":9}", false, &e);
    assert_int_equal(in.kind, FRAME_ACK);
    assert_true(in.acked[FRAME_STDOUT] && in.acked[FRAME_PTY] && !in.acked[FRAME_STDERR]);
    assert_int_equal(in.received[FRAME_STDOUT], 7);
    assert_int_equal(in.received[FRAME_STDERR], 0);
    assert_int_equal(in.received[FRAME_PTY], 9);
    in = parsed("{\"type\":\"detach\",\"more\":[1,2]}", false, &e);
    assert_int_equal(in.kind, FRAME_DETACH);
}

static void test_input(void **state)
{
    (void)state;
    struct sg_error e;
    struct frame_in in = parsed("{\"type\":\"stdin\",\"offset\":3,\"data\":\"AP8K\"}", true, &e);
    assert_int_equal(in.kind, FRAME_STDIN);
    assert_int_equal(in.offset, 3);
    assert_int_equal(in.len, 3);
    assert_memory_equal(in.data, "\0\xff\n", 3);
    frame_clear(&in);
    in = parsed("{\"type\":\"stdin\",\"data\":\"\"}", true, &e);
    assert_int_equal(in.kind, FRAME_STDIN);
    assert_true(in.offset == UINT64_MAX);
    assert_int_equal(in.len, 0);
    frame_clear(&in);

    /* The largest message, and one byte more. */
    for (size_t len = FRAME_INPUT_MAX; len <= FRAME_INPUT_MAX + 1; len++) {
        char *data = calloc(1, len), *text = malloc(len * 2);
        int n = snprintf(text, 100, "{\"type\":\"stdin\",\"data\":\"");
        size_t end = (size_t)n + sg_b64_encode(text + n, data, len);
        end += (size_t)snprintf(text + end, 3, "\"}");
        frame_parse(text, end, true, &in, &e);
        assert_int_equal(in.kind, len > FRAME_INPUT_MAX ? FRAME_TOO_LARGE : FRAME_STDIN);
        frame_clear(&in);
        free(data);
        free(text);
    }

    uint64_t offset;
    assert_true(frame_parse_head((const unsigned char *)"\0\0\0\0\0\0\0\1\2", 9, &offset));
    assert_int_equal(offset, 258);
    assert_true(
        frame_parse_head((const unsigned char *)"\0\xff\xff\xff\xff\xff\xff\xff\xff...", 12, &offset));
    assert_true(offset == UINT64_MAX);
    assert_false(frame_parse_head((const unsigned char *)"\0\0\0\0\0\0\0\1", 8, &offset));
    assert_false(frame_parse_head((const unsigned char *)"\1\0\0\0\0\0\0\1\2", 9, &offset));
}

static void test_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum frame_client kind;
        const char *pointer;
    } cases[] = {
        {"", FRAME_BAD_JSON, NULL},
        {"[]", FRAME_BAD_JSON, NULL},
        {"{} {}", FRAME_BAD_JSON, NULL},
        {"{\"type\":\"ack\",\"type\":\"ack\"}", FRAME_BAD_JSON, NULL},
        {"{\"type\":\"\xff\"}", FRAME_BAD_JSON, NULL},
        {"{}", FRAME_UNKNOWN, "/type"},
        {"{\"type\":7}", FRAME_UNKNOWN, "/type"},
        {"{\"type\":\"hello\"}", FRAME_UNKNOWN, "/type"},
        {"{\"type\":\"stdin\",\"data\":\"=\"}", FRAME_UNKNOWN, "/data"},
        {"{\"type\":\"stdin\",\"data\":7}", FRAME_UNKNOWN, "/data"},
        {"{\"type\":\"stdin\",\"offset\":-1,\"data\":\"\"}", FRAME_UNKNOWN, "/offset"},
        {"{\"type\":\"stdin\",\"offset\":9223372036854775807,\"data\":\"\"}", FRAME_UNKNOWN, "/offset"},
        {"{\"type\":\"stdin\",\"offset\":\"1\",\"data\":\"\"}", FRAME_UNKNOWN, "/offset"},
        {"{\"type\":\"stdin_close\",\"offset\":1.0}", FRAME_UNKNOWN, "/offset"},
        {"{\"type\":\"resize\",\"cols\":80}", FRAME_UNKNOWN, "/rows"},
        {"{\"type\":\"resize\",\"cols\":1001,\"rows\":1}", FRAME_UNKNOWN, "/cols"},
        {"{\"type\":\"signal\"}", FRAME_UNKNOWN, "/signal"},
        {"{\"type\":\"signal\",\"signal\":0}", FRAME_UNKNOWN, "/signal"},
        {"{\"type\":\"signal\",\"signal\":65}", FRAME_UNKNOWN, "/signal"},
        {"{\"type\":\"signal\",\"signal\":\"SIG33\"}", FRAME_UNKNOWN, "/signal"},
        {"{\"type\":\"signal\",\"signal\":2,\"whole\":\"no\"}", FRAME_UNKNOWN, "/whole"},
        {"{\"type\":\"ack\",\"stderr\":null}", FRAME_UNKNOWN, "/ack"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sg_error e;
        struct frame_in in = parsed(cases[i].text, true, &e);
        if (in.kind != cases[i].kind)
            fail_msg("%s: %d", cases[i].text, (int)in.kind);
        if (cases[i].pointer)
            assert_string_equal(e.pointer, cases[i].pointer);
        frame_clear(&in);
    }
}

static void check(json_t *frame, const char *want)
{
    assert_non_null(frame);
    json_t *o = json_loads(want, 0, NULL);
    assert_non_null(o);
    if (!json_equal(frame, o))
        fail_msg("%s", json_dumps(frame, JSON_COMPACT));
    json_decref(o);
    json_decref(frame);
}

static void test_ours(void **state)
{
    (void)state;
    struct sg_wire_process p = {
        .state = SG_PS_RUNNING, .terminal = true, .takes_input = true, .input = 3, .end = {9, 0}};
    (void)snprintf(p.id, sizeof p.id, "p1");
    struct frame_hello h = {.sandbox = "box", .session_id = "s", .p = &p, .next = {4, 0}};
    const char *tail = "\"limits\":{\"frame_payload_bytes\":65536,\"queue_bytes\":262144,"
                       "\"stdin_message_bytes\":1048576,\"stdin_window_bytes\":1048576}}";
    char want[1024];
    (void)snprintf(want, sizeof want,
                   "{\"type\":\"hello\",\"process_id\":\"p1\",\"sandbox\":\"box\",\"session_id\":\"s\","
                   "\"state\":\"running\",\"terminal\":true,\"retention\":{\"mode\":\"ring\"},"
                   "\"streams\":{\"pty\":{\"oldest\":0,\"next\":4,\"end\":9}},"
                   "\"stdin\":{\"accepted\":3,\"open\":true},%s",
                   tail);
    check(frame_hello(&h), want);
    p.terminal = false;
    p.lossless = true;
    p.state = SG_PS_FINISHED;
    h.mode = "watch";
    h.accepted = 5;
    h.writers = 1;
    h.watchers = 2;
    (void)snprintf(want, sizeof want,
                   "{\"type\":\"hello\",\"process_id\":\"p1\",\"sandbox\":\"box\",\"session_id\":\"s\","
                   "\"state\":\"finished\",\"terminal\":false,\"retention\":{\"mode\":\"lossless\"},"
                   "\"streams\":{\"stdout\":{\"oldest\":0,\"next\":4,\"end\":9},"
                   "\"stderr\":{\"oldest\":0,\"next\":0,\"end\":0}},\"mode\":\"watch\","
                   "\"stdin\":{\"accepted\":5,\"open\":false,\"certain\":false,\"carrier\":null},"
                   "\"presence\":{\"writers\":1,\"watchers\":2},%s",
                   tail);
    check(frame_hello(&h), want);
    check(frame_gap(FRAME_PTY, 1, 5), "{\"type\":\"gap\",\"stream\":\"pty\",\"from\":1,\"to\":5}");
    check(frame_stdin(7, 9, true, false),
          "{\"type\":\"stdin\",\"accepted\":7,\"room\":9,\"closed\":true,\"unwanted\":false}");
    check(frame_presence(1, 0), "{\"type\":\"presence\",\"writers\":1,\"watchers\":0}");
    check(frame_keepalive(), "{\"type\":\"keepalive\"}");
}

/* Every end, of a terminal and of streams. */
static void test_exits(void **state)
{
    (void)state;
    static const struct {
        enum sg_wire_how how;
        uint32_t value;
        const char *want;
    } cases[] = {
        {SG_HOW_EXIT, 3, "\"exit_code\":3,\"signal\":null,\"ended_by\":\"exit\",\"timed_out\":false"},
        {SG_HOW_SIGNAL, 9,
         "\"exit_code\":null,\"signal\":\"SIGKILL\",\"ended_by\":\"signal\",\"timed_out\":false"},
        {SG_HOW_SIGNAL, 35,
         "\"exit_code\":null,\"signal\":\"SIGRTMIN+1\",\"ended_by\":\"signal\",\"timed_out\":false"},
        {SG_HOW_TIMEOUT, 15,
         "\"exit_code\":null,\"signal\":\"SIGTERM\",\"ended_by\":\"timeout\",\"timed_out\":true"},
        {SG_HOW_TIMEOUT, 0, "\"exit_code\":null,\"signal\":null,\"ended_by\":\"timeout\",\"timed_out\":true"},
        {SG_HOW_SCOPE, 9,
         "\"exit_code\":null,\"signal\":\"SIGKILL\",\"ended_by\":\"scope\",\"timed_out\":false"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int terminal = 0; terminal < 2; terminal++) {
            struct sg_wire_process p = {.how = cases[i].how,
                                        .value = cases[i].value,
                                        .terminal = terminal,
                                        .output_incomplete = terminal,
                                        .descendants_hold_output = !terminal,
                                        .duration_ms = 12,
                                        .end = {5, 6}};
            char want[512];
            (void)snprintf(want, sizeof want,
                           "{\"type\":\"exit\",%s,\"output_complete\":%s,\"descendants_hold_output\":%s,"
                           "\"duration_ms\":12,%s}",
                           cases[i].want, terminal ? "false" : "true", terminal ? "false" : "true",
                           terminal ? "\"pty_end\":5" : "\"stdout_end\":5,\"stderr_end\":6");
            check(frame_exit(&p), want);
        }
    }
}

/* Every signal's name is read back as its number, with and without SIG, in any case. */
static void test_signal_names(void **state)
{
    (void)state;
    char buf[SG_SIGNAL_TEXT], small[SG_SIGNAL_TEXT];
    for (uint32_t n = 1; n <= SG_SIGNAL_MAX; n++) {
        const char *name = sg_signal_name(n, buf);
        bool named = n != 32 && n != 33;
        json_t *whole = json_string(name), *part = json_string(name + 3),
               *digits = json_integer((json_int_t)n);
        for (size_t i = 0; i <= strlen(name); i++)
            small[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] + 32 : name[i]);
        json_t *lower = json_string(small);
        assert_int_equal(sg_signal_number(whole), named ? n : 0);
        assert_int_equal(sg_signal_number(part), named ? n : 0);
        assert_int_equal(sg_signal_number(lower), named ? n : 0);
        assert_int_equal(sg_signal_number(digits), n);
        json_decref(whole);
        json_decref(part);
        json_decref(lower);
        json_decref(digits);
    }
    assert_int_equal(sg_signal_number(NULL), 0);
    assert_int_equal(sg_signal_number(json_true()), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commands), cmocka_unit_test(test_input), cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_ours),     cmocka_unit_test(test_exits), cmocka_unit_test(test_signal_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
