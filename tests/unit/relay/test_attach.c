/* sandgate.v1 over a transport made of memory: the frames are decoded here.  U2, U5, U6, C7; P01, P06, P08, P11,
 * P12, P18, P38, P47. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/core/b64.h"
#include "base/problem.h"
#include "relay/attach.h"
#include "tests/unit/relay/fixture.h"

#include <stdlib.h>
#include <string.h>

enum { LOW = 128 * 1024 };

/* The client at the other end of the socket. */
struct client {
    struct attach *a;
    struct fake_proc *p;
    bool json;
    uint64_t pos[2];
    size_t queued, queued_max;
    bool never_reads, cut_when_closed;
    struct sg_timer *net; /* empties the queue now and then */
    bool hello, exit, error, closed, wrong, gone;
    int code, frames, keepalives, gaps;
    char error_code[48];
    json_t *hello_frame, *exit_frame;
};

static void net_later(struct client *c)
{
    if (!c->never_reads && !sg_timer_active(c->net))
        sg_timer_start(c->net, fake_random(&fake, 3));
}

static void on_net(void *arg)
{
    struct client *c = arg;
    size_t before = c->queued;
    c->queued = fake_chance(&fake, 500) ? 0 : before / 2;
    if (before >= LOW && c->queued < LOW && !c->gone)
        attach_drained(c->a);
    if (c->queued)
        net_later(c);
}

static void take_bytes(struct client *c, int stream, uint64_t offset, const unsigned char *data, size_t len)
{
    if (!c->hello || c->exit || len == 0 || len > ATTACH_FRAME_MAX || offset != c->pos[stream] ||
        offset + len > c->p->total[stream] || memcmp(data, c->p->content[stream] + offset, len) != 0)
        c->wrong = true;
    c->pos[stream] += len;
}

static void take_data_text(struct client *c, const json_t *o)
{
    static unsigned char raw[(size_t)ATTACH_FRAME_MAX + 3];
    const char *b64 = json_string_value(json_object_get(o, "data"));
    const char *stream = json_string_value(json_object_get(o, "stream"));
    size_t n = b64 ? strlen(b64) : 0;
    if (!c->json || !stream || n > SG_B64_LEN((size_t)ATTACH_FRAME_MAX)) {
        c->wrong = true;
        return;
    }
    ssize_t len = sg_b64_decode(raw, b64, n);
    take_bytes(c, !strcmp(stream, "stderr"), (uint64_t)json_integer_value(json_object_get(o, "offset")), raw,
               len > 0 ? (size_t)len : 0);
}

static void take_text(struct client *c, const char *text, size_t len)
{
    json_t *o = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    const char *type = json_string_value(json_object_get(o, "type"));
    if (!type)
        type = "?";
    if (!strcmp(type, "hello")) {
        c->wrong = c->wrong || c->hello;
        c->hello = true;
        c->hello_frame = json_incref(o);
    } else if (!strcmp(type, "data")) {
        take_data_text(c, o);
    } else if (!strcmp(type, "gap")) {
        int s = !strcmp(json_string_value(json_object_get(o, "stream")), "stderr");
        c->wrong = c->wrong || (uint64_t)json_integer_value(json_object_get(o, "from")) != c->pos[s];
        c->pos[s] = (uint64_t)json_integer_value(json_object_get(o, "to"));
        c->gaps++;
    } else if (!strcmp(type, "exit")) {
        c->wrong = c->wrong || c->exit || !c->hello;
        c->exit = true;
        c->exit_frame = json_incref(o);
    } else if (!strcmp(type, "error")) {
        c->error = true;
        strncpy(c->error_code, json_string_value(json_object_get(o, "code")), sizeof c->error_code - 1);
        assert_true(json_is_string(json_object_get(o, "title")));
    } else if (!strcmp(type, "keepalive")) {
        c->keepalives++;
    } else {
        c->wrong = true;
    }
    json_decref(o);
}

static bool io_send(void *io, bool text, const void *head, size_t head_len, const void *body, size_t body_len)
{
    struct client *c = io;
    static unsigned char all[256 * 1024];
    if (c->gone || c->closed)
        return false;
    assert_true(head_len + body_len <= sizeof all);
    memcpy(all, head, head_len);
    if (body_len)
        memcpy(all + head_len, body, body_len);
    size_t len = head_len + body_len;
    c->frames++;
    c->queued += len + 10;
    if (c->queued > c->queued_max)
        c->queued_max = c->queued;
    if (text) {
        take_text(c, (const char *)all, len);
    } else {
        uint64_t offset = 0;
        for (int i = 0; i < 8; i++)
            offset = offset << 8 | all[1 + i];
        if (c->json || len <= 9 || all[0] < 1 || all[0] > 2)
            c->wrong = true;
        else
            take_bytes(c, all[0] - 1, offset, all + 9, len - 9);
    }
    net_later(c);
    return true;
}

static size_t io_queued(void *io)
{
    return ((struct client *)io)->queued;
}

static void io_close(void *io, int code, const char *reason)
{
    struct client *c = io;
    assert_non_null(reason);
    c->wrong = c->wrong || c->closed;
    c->closed = true;
    c->code = code;
}

static const struct attach_io io = {io_send, io_queued, io_close};

static void begin(struct client *c, struct fake_proc *p, bool keepalive)
{
    struct attach_spec s = {.session = {.session_id = "sess-1"},
                            .sandbox = "box",
                            .id = p->id,
                            .offset = {c->pos[0], c->pos[1]},
                            .format = c->json ? ATTACH_JSON : ATTACH_BINARY,
                            .keepalive_data = keepalive};
    c->p = p;
    c->net = sg_timer_new(loop, on_net, c);
    c->a = attach_start(relay, &s, &io, c);
    assert_non_null(c->a);
}

static void end(struct client *c)
{
    c->gone = true;
    attach_gone(c->a);
    sg_timer_free(c->net);
    fake_turns(&fake, 3);
    json_decref(c->hello_frame);
    json_decref(c->exit_frame);
}

static void say(struct client *c, const char *text)
{
    attach_message(c->a, true, text, strlen(text));
}

static int setup(void **state)
{
    (void)state;
    struct relay_limits l = {.give_up_ms = 500, .backoff_max_ms = 4};
    return fixture_open(&l);
}

/* P01, P08, U2, U5: both formats, random cuts above and below, re-attaching where it was cut: exactly the bytes,
 * and the exit after the last one. */
static void test_exact(void **state)
{
    (void)state;
    for (int round = 0; round < 100; round++) {
        struct fake_proc *p =
            fake_proc(&fake, "p1", fake_random(&fake, 400000), fake_random(&fake, 90000), true);
        fake.write_max = 20000;
        fake.lines_per_turn = round % 3 ? 0 : 200;
        fake.faults = (struct fake_faults){.cut = (int)fake_random(&fake, 60),
                                           .cut_at_hello = (int)fake_random(&fake, 100),
                                           .repeat = 30,
                                           .overlap = 100,
                                           .more = 20,
                                           .early_exit = 20};
        uint64_t at[2] = {0, 0};
        for (int attached = 0;; attached++) {
            assert_true(attached < 500);
            struct client c = {.json = round % 2, .pos = {at[0], at[1]}};
            begin(&c, p, false);
            uint64_t stop = attached < 5 ? c.pos[0] + fake_random(&fake, 60000) : UINT64_MAX;
            while (!c.closed && c.pos[0] < stop)
                fake_turn(&fake);
            assert_false(c.wrong);
            assert_false(c.error);
            assert_true(c.queued_max <= ATTACH_QUEUE_HIGH + 2 * (size_t)SG_B64_LEN(ATTACH_FRAME_MAX));
            bool over = c.closed;
            if (over) {
                assert_true(c.exit);
                assert_int_equal(c.code, 1000);
                assert_int_equal(json_integer_value(json_object_get(c.exit_frame, "exit_code")), 7);
                assert_true(json_is_null(json_object_get(c.exit_frame, "signal")));
                assert_true(json_is_true(json_object_get(c.exit_frame, "output_complete")));
                assert_int_equal(json_integer_value(json_object_get(c.exit_frame, "stdout_end")),
                                 p->total[0]);
            }
            at[0] = c.pos[0];
            at[1] = c.pos[1];
            end(&c);
            if (over)
                break;
        }
        assert_int_equal(at[0], p->total[0]);
        assert_int_equal(at[1], p->total[1]);
        fixture_forget(p);
    }
}

/* P18: twenty attaches to a silent process, each answered by its hello. */
static void test_silent(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 10, 0, true);
    p->hold = true;
    p->written[0] = 4;
    p->oldest[0] = 2;
    for (int i = 0; i < 20; i++) {
        struct client c = {.pos = {2, 0}};
        begin(&c, p, false);
        while (!c.hello || c.pos[0] < 4)
            fake_turn(&fake);
        const char *state_name = NULL, *session = NULL, *sandbox = NULL, *id = NULL;
        json_int_t oldest, next, end_at, accepted;
        int open;
        assert_int_equal(json_unpack(c.hello_frame, "{s:s,s:s,s:s,s:s,s:{s:{s:I,s:I,s:I}},s:{s:I,s:b},s:{}}",
                                     "state", &state_name, "session_id", &session, "sandbox", &sandbox,
                                     "process_id", &id, "streams", "stdout", "oldest", &oldest, "next", &next,
                                     "end", &end_at, "stdin", "accepted", &accepted, "open", &open, "limits"),
                         0);
        assert_string_equal(state_name, "running");
        assert_string_equal(session, "sess-1");
        assert_string_equal(sandbox, "box");
        assert_string_equal(id, "p1");
        assert_int_equal(oldest, 2);
        assert_int_equal(next, 2);
        assert_int_equal(end_at, 4);
        assert_false(c.wrong || c.closed);
        end(&c);
        assert_int_equal(fake.calls[V_FOLLOW], 1); /* who comes back soon costs the upstream nothing */
    }
}

/* U6, P12: a client that reads nothing: little is queued for it, its upstream stream is let go, and it is closed as
 * slow, while another client gets everything. */
static void test_slow_reader(void **state)
{
    (void)state;
    struct relay_limits l = {.backoff_max_ms = 4, .pause_max_ms = 20, .slow_reader_ms = 3000};
    relay_set_limits(relay, &l);
    struct fake_proc *p = fake_proc(&fake, "p1", 3000000, 1000000, true);
    fake.write_max = 1000000;
    fake.lines_per_turn = 500;
    struct client dead = {.never_reads = true}, good = {0};
    begin(&dead, p, false);
    begin(&good, p, false);
    assert_true(fake_until(&fake, &good.closed));
    assert_false(dead.closed); /* nobody waited for the dead one */
    assert_true(good.exit && !good.wrong);
    assert_int_equal(good.pos[0], 3000000);
    assert_true(fake_until(&fake, &dead.closed));
    assert_int_equal(dead.code, 4008);
    assert_false(dead.exit || dead.wrong);
    assert_true(dead.queued_max <= ATTACH_QUEUE_HIGH + 2 * ATTACH_FRAME_MAX);
    assert_true(dead.pos[0] + dead.pos[1] <= ATTACH_QUEUE_HIGH + 2 * ATTACH_FRAME_MAX);
    fake_turns(&fake, 3);
    assert_int_equal(fake.live, 0);
    end(&dead);
    end(&good);
}

/* Many small lines of one turn travel in few frames, and none waits for a next line. */
static void test_coalesced(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 500000, 0, true);
    p->written[0] = p->total[0];
    p->hold = true;
    fake.lines_per_turn = 1000;
    struct client c = {0};
    begin(&c, p, false);
    while (c.pos[0] < p->total[0])
        fake_turn(&fake);
    assert_in_range(c.frames, 9, 20); /* hello, 500000 / 65536, and the pieces around pauses */
    end(&c);
}

static void test_gap(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 9000, 0, true);
    p->written[0] = p->oldest[0] = 5000;
    struct client c = {.pos = {7, 0}};
    begin(&c, p, false);
    assert_true(fake_until(&fake, &c.closed));
    assert_int_equal(c.gaps, 1);
    assert_true(c.exit && !c.wrong);
    assert_int_equal(c.pos[0], 9000);
    end(&c);
}

/* How a process ended: signal, timeout; and P11: no word how is an error, not an exit. */
static void test_endings(void **state)
{
    (void)state;
    static const struct {
        enum sg_wire_how how;
        uint32_t value;
        const char *signal;
    } ends[] = {{SG_HOW_SIGNAL, 9, "SIGKILL"}, {SG_HOW_TIMEOUT, 0, NULL}, {SG_HOW_UNKNOWN, 0, NULL}};
    for (size_t i = 0; i < 3; i++) {
        struct fake_proc *p = fake_proc(&fake, "p1", 3, 0, true);
        p->how = ends[i].how;
        p->value = ends[i].value;
        p->descendants = true;
        struct client c = {0};
        begin(&c, p, false);
        assert_true(fake_until(&fake, &c.closed));
        assert_int_equal(c.pos[0], 3);
        if (ends[i].how == SG_HOW_UNKNOWN) {
            assert_false(c.exit);
            assert_string_equal(c.error_code, "process_lost");
            assert_int_equal(c.code, 1011);
        } else {
            assert_true(json_is_null(json_object_get(c.exit_frame, "exit_code")));
            assert_true(json_is_true(json_object_get(c.exit_frame, "descendants_hold_output")));
            const char *name = json_string_value(json_object_get(c.exit_frame, "signal"));
            if (ends[i].signal)
                assert_string_equal(name, ends[i].signal);
            assert_int_equal(json_is_true(json_object_get(c.exit_frame, "timed_out")),
                             ends[i].how == SG_HOW_TIMEOUT);
        }
        end(&c);
        fixture_forget(p);
    }
}

static void test_failures(void **state)
{
    (void)state;
    static const struct {
        enum sg_code refuse;
        const char *code;
        int close;
    } cases[] = {{SG_E_STALE_SESSION, "stale_session", 4010},
                 {SG_E_UPSTREAM_UNREACHABLE, "upstream_unreachable", 1011},
                 {SG_E_UPSTREAM_AUTH, "upstream_auth", 1011}};
    struct relay_limits l = {.give_up_ms = 30, .backoff_max_ms = 4};
    relay_set_limits(relay, &l);
    struct fake_proc *p = fake_proc(&fake, "p1", 3, 0, true);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fake.refuse_all = cases[i].refuse;
        struct client c = {0};
        begin(&c, p, false);
        assert_true(fake_until(&fake, &c.closed));
        assert_string_equal(c.error_code, cases[i].code);
        assert_int_equal(c.code, cases[i].close);
        assert_false(c.exit || c.wrong);
        end(&c);
    }
}

static void test_client_messages(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 3, 0, true);
    p->hold = true;
    static const struct {
        const char *text; /* NULL: binary */
        bool json, error;
        int close;
        const char *code;
    } cases[] = {
        {"{\"type\":\"ack\",\"stdout\":5}", false, false, 0, ""},
        {"{\"type\":\"resize\",\"cols\":80,\"rows\":24}", false, true, 0, "stdin_closed"},
        {"{\"type\":\"resize\",\"cols\":0,\"rows\":24}", false, true, 0, "invalid_field"},
        {"{\"type\":\"resize\",\"cols\":80,\"rows\":1001}", false, true, 0, "invalid_field"},
        {"{\"type\":\"signal\",\"signal\":\"TERM\"}", false, false, 0, ""},
        {"{\"type\":\"signal\",\"signal\":\"NONE\"}", false, true, 0, "invalid_field"},
        {"{\"type\":\"signal\",\"signal\":9,\"whole\":1}", false, true, 0, "invalid_field"},
        {"{\"type\":\"stdin_close\"}", true, true, 0, "stdin_closed"},
        {"{\"type\":\"stdin_close\",\"offset\":-1}", true, true, 0, "invalid_field"},
        {"{\"type\":\"stdin\",\"data\":\"YQ==\"}", true, true, 0, "stdin_closed"},
        {"{\"type\":\"stdin\",\"data\":\"YQ=\"}", true, true, 0, "invalid_field"},
        {"{\"type\":\"stdin\",\"data\":\"YQ==\",\"offset\":1.5}", true, true, 0, "invalid_field"},
        {"{\"type\":\"stdin\",\"data\":\"YQ==\"}", false, true, 0, "invalid_field"},
        {"{\"type\":\"ack\",\"stdout\":\"x\"}", false, true, 0, "invalid_field"},
        {"{\"type\":\"dance\"}", false, true, 0, "invalid_field"},
        {"{\"kind\":\"detach\"}", false, true, 0, "invalid_field"},
        {"{\"type\":\"detach\"}", false, false, 1000, ""},
        {"{\"type\":\"detach\"", false, false, 1007, ""},
        {"[]", false, false, 1007, ""},
        {"{\"type\":\"\xff\"}", false, false, 1007, ""},
        {"", false, false, 1007, ""},
        {NULL, false, true, 0, "stdin_closed"},
        {NULL, true, false, 1003, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct client c = {.json = cases[i].json};
        begin(&c, p, false);
        while (!c.hello)
            fake_turn(&fake);
        if (cases[i].text)
            say(&c, cases[i].text);
        else
            attach_message(c.a, false, "\0\0\0\0\0\0\0\0\0x", 10);
        assert_int_equal(c.error, cases[i].error);
        assert_string_equal(c.error_code, cases[i].code);
        assert_int_equal(c.code, cases[i].close);
        assert_int_equal(c.closed, cases[i].close != 0);
        end(&c);
    }
    struct client c = {0}; /* a binary frame without its head */
    begin(&c, p, false);
    attach_message(c.a, false, "abc", 3);
    assert_int_equal(c.code, 1002);
    end(&c);
    struct client d = {0}; /* one of another channel than input's */
    begin(&d, p, false);
    attach_message(d.a, false, "\1\0\0\0\0\0\0\0\0x", 10);
    assert_int_equal(d.code, 1002);
    end(&d);
}

/* The hello comes first, also to a client that does not wait for it. */
static void test_talks_before_the_hello(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 3, 0, true);
    p->hold = true;
    for (int n = 1; n <= 5; n++) {
        struct client c = {0};
        begin(&c, p, false);
        for (int i = 0; i < n; i++)
            say(&c, "{\"type\":\"dance\"}");
        assert_int_equal(c.frames, 0);
        assert_int_equal(c.closed ? c.code : 0, n < 5 ? 0 : 1002);
        while (n < 5 && !c.hello)
            fake_turn(&fake);
        assert_int_equal(c.frames, n < 5 ? 1 + n : 0);
        assert_int_equal(c.error, n < 5);
        end(&c);
    }
    p->hold = false;
}

/* P47: foreign text in an error becomes valid UTF-8; what is not known is left out. */
static void test_error_text(void **state)
{
    (void)state;
    struct sg_error e;
    sg_fail(&e, SG_E_OUTPUT_EVICTED, SG_FINISHED,
            "caf\xc3\xa9 \xff\xc3 \xed\xa0\x80 \xf0\x9f\x98\x80 \xc0\xaf");
    e.oldest = 12;
    json_t *o = sg_problem_json(&e, "req-1", NULL);
    assert_string_equal(json_string_value(json_object_get(o, "detail")),
                        "caf\xc3\xa9 ?? ??? \xf0\x9f\x98\x80 ??");
    assert_string_equal(json_string_value(json_object_get(o, "code")), "output_evicted");
    assert_string_equal(json_string_value(json_object_get(o, "outcome")), "finished");
    assert_string_equal(json_string_value(json_object_get(o, "request_id")), "req-1");
    assert_int_equal(json_integer_value(json_object_get(o, "status")), 410);
    assert_int_equal(json_integer_value(json_object_get(o, "oldest")), 12);
    assert_null(json_object_get(o, "instance"));
    assert_null(json_object_get(o, "upstream"));
    assert_null(json_object_get(o, "retry_after_ms"));
    json_decref(o);
}

/* One that talks without reading cannot make the queue grow. */
static void test_talks_without_reading(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 3, 0, true);
    p->hold = true;
    struct client c = {.never_reads = true};
    begin(&c, p, false);
    while (!c.hello)
        fake_turn(&fake);
    for (int i = 0; i < 100000 && !c.closed; i++)
        say(&c, "{\"type\":\"resize\"}");
    assert_int_equal(c.code, 4008);
    assert_true(c.queued_max <= ATTACH_QUEUE_MAX + 1024);
    end(&c);
}

/* P38: records that count as activity, and change no offset. */
static void test_keepalive(void **state)
{
    (void)state;
    struct relay_limits l = {.keepalive_ms = 5};
    relay_set_limits(relay, &l);
    struct fake_proc *p = fake_proc(&fake, "p1", 3, 0, true);
    p->hold = true;
    struct client c = {0};
    begin(&c, p, true);
    while (c.keepalives < 3)
        fake_turn(&fake);
    assert_int_equal(c.pos[0], 0);
    end(&c);
}

static void test_draining(void **state)
{
    (void)state;
    struct fake_proc *p = fake_proc(&fake, "p1", 3, 0, true);
    p->hold = true;
    struct client one = {0}, two = {0};
    begin(&one, p, false);
    begin(&two, p, false);
    fake_turns(&fake, 5);
    attach_drain(one.a);
    assert_int_equal(one.code, 1001);
    relay_free(relay);
    relay = NULL;
    assert_int_equal(two.code, 1001);
    end(&one);
    end(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_exact, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_silent, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_slow_reader, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_coalesced, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_gap, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_endings, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_failures, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_client_messages, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_talks_before_the_hello, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_error_text, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_talks_without_reading, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_keepalive, setup, fixture_close),
        cmocka_unit_test_setup_teardown(test_draining, setup, fixture_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
