/* What attached clients say: input, sizes, signals, receipts; one writer and many watchers.  A14, U7, C7; P22, P25,
 * P26, P43, P47. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/core/b64.h"
#include "relay/attach.h"
#include "tests/support/fake_carrier.h"
#include "tests/unit/relay/fixture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A client whose socket takes everything at once: what it was told. */
struct client {
    struct attach *a;
    bool json, gone;
    int code; /* of the close; 0: open */
    bool held;
    int holds;
    json_t *hello, *presence, *input; /* the newest of each */
    int ninput, npresence, nerrors;
    char error[48];
    json_int_t error_accepted;
    bool exit;
    size_t nbytes; /* of output */
};

static bool io_send(void *io, bool text, const void *head, size_t head_len, const void *body, size_t body_len)
{
    struct client *c = io;
    if (c->gone || c->code)
        return false;
    if (!text) {
        assert_true(head_len == 9 && body_len);
        c->nbytes += body_len;
        return true;
    }
    char *all = malloc(head_len + body_len);
    memcpy(all, head, head_len);
    if (body_len)
        memcpy(all + head_len, body, body_len);
    json_t *o = json_loadb(all, head_len + body_len, JSON_REJECT_DUPLICATES, NULL);
    free(all);
    const char *type = json_string_value(json_object_get(o, "type"));
    assert_non_null(type);
    json_t **keep = NULL;
    if (!strcmp(type, "hello")) {
        assert_null(c->hello);
        keep = &c->hello;
    } else if (!strcmp(type, "stdin")) {
        assert_non_null(c->hello);
        keep = &c->input;
        c->ninput++;
    } else if (!strcmp(type, "presence")) {
        assert_non_null(c->hello);
        keep = &c->presence;
        c->npresence++;
    } else if (!strcmp(type, "error")) {
        (void)snprintf(c->error, sizeof c->error, "%s", json_string_value(json_object_get(o, "code")));
        json_t *n = json_object_get(o, "accepted");
        c->error_accepted = n ? json_integer_value(n) : -1;
        c->nerrors++;
    } else if (!strcmp(type, "exit")) {
        c->exit = true;
    }
    if (keep) {
        json_decref(*keep);
        *keep = json_incref(o);
    }
    json_decref(o);
    return true;
}

static size_t io_queued(void *io)
{
    (void)io;
    return 0;
}

static void io_close(void *io, int code, const char *reason)
{
    struct client *c = io;
    assert_int_equal(c->code, 0);
    assert_non_null(reason);
    assert_true(strlen(reason) <= 123);
    c->code = code;
}

static void io_hold(void *io, bool on)
{
    struct client *c = io;
    assert_true(c->held != on);
    c->held = on;
    c->holds += on;
}

static const struct attach_io io = {io_send, io_queued, io_close, io_hold};

static struct fake_input *in;
static struct fake_proc *p;
static struct sg_timer *tick;

static void on_tick(void *arg)
{
    (void)arg;
}

static void turn(void)
{
    sg_timer_start(tick, 5); /* the loop never sleeps past a condition */
    (void)uv_run(sg_loop_uv(loop), UV_RUN_ONCE);
}

#define UNTIL(cond)                                                                                          \
    for (int64_t until_end = sg_mono_ms() + 20000; !(cond);) {                                               \
        assert_true(sg_mono_ms() < until_end);                                                               \
        turn();                                                                                              \
    }

static int setup(void **state)
{
    (void)state;
    struct relay_limits l = {.give_up_ms = 500, .backoff_max_ms = 4};
    if (fixture_open(&l))
        return 1;
    in = fake_input(&fake, "p1");
    p = fake_proc(&fake, "p1", 10, 0, true);
    p->hold = true;
    p->takes_input = true;
    tick = sg_timer_new(loop, on_tick, NULL);
    return !tick || !p;
}

static int teardown(void **state)
{
    sg_timer_free(tick);
    int bad = fixture_close(state);
    int left = in->live;
    if (in->wrong)
        print_error("%s\n", in->why);
    bad |= in->wrong;
    fake_inputs_free();
    return bad || left;
}

static void begin_as(struct client *c, struct attach_spec s)
{
    s.session.session_id = "sess-1";
    s.sandbox = "box";
    s.id = "p1";
    s.format = c->json ? ATTACH_JSON : ATTACH_BINARY;
    c->a = attach_start(relay, &s, &io, c);
    assert_non_null(c->a);
}

static void begin(struct client *c, enum attach_mode mode)
{
    begin_as(c, (struct attach_spec){.mode = mode});
    UNTIL(c->hello || c->code);
}

static void end(struct client *c)
{
    c->gone = true;
    attach_gone(c->a);
    fake_turns(&fake, 3);
    json_decref(c->hello);
    json_decref(c->presence);
    json_decref(c->input);
    memset(c, 0, sizeof *c);
}

static void say(struct client *c, const char *text)
{
    attach_message(c->a, true, text, strlen(text));
}

static void send_input(struct client *c, uint64_t offset, const void *data, size_t len)
{
    char *m = malloc(len * 2 + 200);
    if (c->json) {
        int n = snprintf(m, 100, "{\"type\":\"stdin\",\"data\":\"");
        size_t at = (size_t)n + sg_b64_encode(m + n, data, len);
        at += (size_t)(offset == UINT64_MAX
                           ? snprintf(m + at, 60, "\"}")
                           : snprintf(m + at, 60, "\",\"offset\":%llu}", (unsigned long long)offset));
        attach_message(c->a, true, m, at);
    } else {
        m[0] = 0;
        for (int i = 0; i < 8; i++)
            m[1 + i] = (char)(offset >> (56 - 8 * i) & 0xff);
        memcpy(m + 9, data, len);
        attach_message(c->a, false, m, 9 + len);
    }
    free(m);
}

static const char *mode_of(const struct client *c)
{
    return json_string_value(json_object_get(c->hello, "mode"));
}

static json_int_t number(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static bool accepted(const struct client *c, size_t n)
{
    return c->input && number(c->input, "accepted") >= (json_int_t)n;
}

static bool present(const struct client *c, int writers, int watchers)
{
    return c->presence && number(c->presence, "writers") == writers &&
           number(c->presence, "watchers") == watchers;
}

/* ---- who writes ---- */

static void test_modes(void **state)
{
    (void)state;
    static struct client a, b, w, x;
    begin(&a, ATTACH_AUTO);
    assert_string_equal(mode_of(&a), "write");
    assert_int_equal(number(json_object_get(a.hello, "presence"), "writers"), 1);
    assert_int_equal(number(json_object_get(a.hello, "presence"), "watchers"), 0);
    assert_true(json_is_true(json_object_get(json_object_get(a.hello, "stdin"), "open")));
    begin(&b, ATTACH_AUTO);
    assert_string_equal(mode_of(&b), "watch");
    begin(&w, ATTACH_WATCH);
    assert_string_equal(mode_of(&w), "watch");
    UNTIL(present(&a, 1, 2) && present(&b, 1, 2));
    begin(&x, ATTACH_WRITE); /* insists */
    assert_int_equal(x.code, 1011);
    assert_string_equal(x.error, "writer_exists");
    assert_null(x.hello);
    end(&x);
    send_input(&b, 0, "b", 1);
    assert_string_equal(b.error, "writer_exists");
    send_input(&w, 0, "w", 1);
    assert_string_equal(w.error, "unsupported");
    say(&w, "{\"type\":\"resize\",\"cols\":80,\"rows\":24}");
    say(&w, "{\"type\":\"signal\",\"signal\":2}");
    say(&w, "{\"type\":\"stdin_close\"}");
    assert_int_equal(w.nerrors, 4);
    say(&b, "{\"type\":\"signal\",\"signal\":2}");
    assert_string_equal(b.error, "writer_exists");
    end(&a); /* the place is free, and all hear it */
    UNTIL(present(&w, 0, 2) && present(&b, 0, 2));
    begin(&x, ATTACH_WRITE);
    assert_string_equal(mode_of(&x), "write");
    UNTIL(present(&w, 1, 2));
    assert_int_equal(in->nsignals, 0);
    assert_int_equal(in->len, 0);
    end(&b);
    end(&w);
    end(&x);
}

static void test_no_input(void **state)
{
    (void)state;
    static struct client a, b;
    p->takes_input = false;
    begin(&a, ATTACH_AUTO);
    assert_string_equal(mode_of(&a), "watch");
    assert_true(json_is_false(json_object_get(json_object_get(a.hello, "stdin"), "open")));
    send_input(&a, 0, "a", 1);
    assert_string_equal(a.error, "stdin_closed");
    begin(&b, ATTACH_WRITE);
    assert_string_equal(b.error, "stdin_closed");
    assert_int_equal(b.code, 1011);
    end(&b);
    assert_int_equal(in->opened, 0);
    /* But it may be signalled, by a call. */
    say(&a, "{\"type\":\"signal\",\"signal\":\"SIGTERM\",\"whole\":false}");
    UNTIL(fake.calls[V_SIGNAL] == 1);
    assert_non_null(strstr(fake.last_args, "--signal 15"));
    assert_non_null(strstr(fake.last_args, "--only-program"));
    for (int i = 0; i < 20; i++)
        say(&a, "{\"type\":\"signal\",\"signal\":15}");
    assert_string_equal(a.error, "overloaded"); /* so many at a time */
    UNTIL(fake.calls[V_SIGNAL] >= 8);
    assert_true(fake.calls[V_SIGNAL] <= 9);
    fake_turns(&fake, 20);
    begin(&b, ATTACH_WATCH);
    say(&b, "{\"type\":\"signal\",\"signal\":15}");
    assert_string_equal(b.error, "unsupported");
    end(&b);
    say(&a, "{\"type\":\"signal\",\"signal\":15}"); /* under way when its client leaves */
    int before = fake.calls[V_SIGNAL];
    end(&a);
    fake_turns(&fake, 20);
    assert_int_equal(fake.calls[V_SIGNAL], before);
}

static void test_takeover(void **state)
{
    (void)state;
    static struct client a, b;
    begin(&a, ATTACH_AUTO);
    send_input(&a, 0, "aa", 2);
    UNTIL(accepted(&a, 2));
    begin_as(&b, (struct attach_spec){.mode = ATTACH_WRITE, .takeover = true});
    UNTIL(b.hello && a.code);
    assert_int_equal(a.code, 4001);
    assert_string_equal(a.error, "writer_replaced");
    assert_int_equal(a.error_accepted, 2);
    assert_string_equal(mode_of(&b), "write");
    json_t *stdin_at_hello = json_object_get(b.hello, "stdin");
    assert_int_equal(number(stdin_at_hello, "accepted"), 2); /* which the hello of the guest did not say */
    assert_true(json_is_true(json_object_get(stdin_at_hello, "certain")));
    assert_string_equal(json_string_value(json_object_get(stdin_at_hello, "carrier")), "interactive");
    UNTIL(b.input);
    assert_int_equal(number(b.input, "accepted"), 2);
    send_input(&b, 2, "b", 1);
    UNTIL(accepted(&b, 3));
    send_input(&a, 2, "x", 1); /* closed: nothing happens */
    end(&a);
    end(&b);
    assert_memory_equal(in->content, "aab", 3);
    assert_int_equal(in->opened, 1);
}

/* Another gateway's client writes: the one here is told so. */
static void test_fenced(void **state)
{
    (void)state;
    static struct client a;
    begin(&a, ATTACH_AUTO);
    send_input(&a, 0, "a", 1);
    UNTIL(accepted(&a, 1));
    fake_input_fence(in);
    UNTIL(a.code);
    assert_int_equal(a.code, 4001);
    assert_string_equal(a.error, "writer_replaced");
    end(&a);
}

/* ---- input ---- */

static void test_offsets(void **state)
{
    (void)state;
    for (int json = 0; json < 2; json++) {
        static struct client a;
        a.json = json;
        p->input = in->len; /* as the guest's hello says */
        size_t at = in->len;
        begin(&a, ATTACH_WRITE);
        assert_int_equal(number(json_object_get(a.hello, "stdin"), "accepted"), at);
        UNTIL(a.input); /* who insists on writing is told where it stands */
        assert_int_equal(number(a.input, "accepted"), at);
        send_input(&a, at, "one ", 4);
        send_input(&a, at + 2, "e two", 5); /* from below: the rest is taken */
        UNTIL(accepted(&a, at + 7));
        assert_int_equal(a.nerrors, 0);
        send_input(&a, at + 8, "x", 1); /* above: refused, and nothing else happens */
        assert_string_equal(a.error, "stdin_offset");
        assert_int_equal(a.error_accepted, at + 7);
        assert_int_equal(a.code, 0);
        send_input(&a, at, "one two", 7); /* all known */
        send_input(&a, UINT64_MAX, " three\n", 7);
        send_input(&a, UINT64_MAX, "", 0);
        UNTIL(accepted(&a, at + 14));
        assert_int_equal(a.nerrors, 1);
        end(&a);
        assert_memory_equal(in->content + at, "one two three\n", 14);
    }
}

/* A client that does not wait for its hello loses nothing. */
static void test_early(void **state)
{
    (void)state;
    static struct client a;
    begin_as(&a, (struct attach_spec){.mode = ATTACH_AUTO});
    send_input(&a, 0, "early", 5);
    say(&a, "{\"type\":\"stdin_close\"}");
    assert_null(a.hello);
    UNTIL(a.hello && accepted(&a, 5) && json_is_true(json_object_get(a.input, "closed")));
    assert_int_equal(a.nerrors, 0);
    assert_true(in->closed);
    send_input(&a, UINT64_MAX, "x", 1);
    assert_string_equal(a.error, "stdin_closed");
    end(&a);
    assert_memory_equal(in->content, "early", 5);
}

/* Nor is what it says lost on a process without input: its signals arrive, and the rest is refused; and it is still
 * the one to acknowledge lossless output. */
static void test_early_without_input(void **state)
{
    (void)state;
    static struct client a;
    p->takes_input = false;
    p->lossless = true;
    p->written[0] = 10;
    in->no_input = true;
    begin_as(&a, (struct attach_spec){.mode = ATTACH_AUTO});
    say(&a, "{\"type\":\"signal\",\"signal\":\"TERM\"}");
    send_input(&a, 0, "early", 5);
    say(&a, "{\"type\":\"resize\",\"cols\":80,\"rows\":24}");
    assert_null(a.hello);
    UNTIL(a.hello && fake.calls[V_SIGNAL] == 1 && a.nerrors >= 2);
    assert_non_null(strstr(fake.last_args, "--signal 15"));
    UNTIL(in->opened && !in->live && a.nbytes == 10);
    fake_turns(&fake, 20);
    say(&a, "{\"type\":\"ack\",\"stdout\":10}");
    UNTIL(strstr(fake.last_args, "ack --session sess-1 --id p1 --stdout 10 --stderr 0"));
    assert_int_equal(in->nsignals, 0);
    assert_int_equal(a.code, 0);
    end(&a);
}

/* P25: more than the program reads: the client is not read any more, until it does; every byte arrives, and watchers
 * stay. */
static void test_more_than_is_read(void **state)
{
    (void)state;
    enum { MESSAGE = 1024 * 1024, MESSAGES = 5 };
    static struct client a, b;
    static unsigned char data[MESSAGE];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)fake_random(&fake, 256);
    in->reads = 0;
    begin(&a, ATTACH_AUTO);
    begin(&b, ATTACH_WATCH);
    int sent = 0;
    for (int quiet = 0; quiet < 50; quiet++) {
        if (!a.held && sent < MESSAGES) {
            send_input(&a, (uint64_t)sent++ * MESSAGE, data, MESSAGE);
            quiet = 0;
        }
        turn();
    }
    assert_true(a.held);
    assert_int_equal(sent, 3); /* in the sandbox, here, and the one that is held */
    assert_int_equal(in->len, MESSAGE);
    in->reads = 1 << 20;
    fake_input_wake(in);
    while (!accepted(&a, (size_t)MESSAGES * MESSAGE)) {
        if (!a.held && sent < MESSAGES)
            send_input(&a, (uint64_t)sent++ * MESSAGE, data, MESSAGE);
        turn();
    }
    assert_false(a.held);
    assert_true(a.holds >= 1);
    assert_int_equal(a.nerrors + b.nerrors + a.code + b.code, 0);
    assert_int_equal(in->len, MESSAGES * MESSAGE);
    for (int i = 0; i < MESSAGES; i++)
        assert_memory_equal(in->content + (size_t)i * MESSAGE, data, MESSAGE);
    end(&a);
    end(&b);
}

static void test_too_large(void **state)
{
    (void)state;
    static unsigned char data[1024 * 1024 + 1];
    for (int json = 0; json < 2; json++) {
        static struct client a, b;
        a.json = json;
        begin(&a, ATTACH_AUTO);
        begin(&b, ATTACH_WATCH);
        send_input(&a, 0, data, sizeof data);
        assert_int_equal(a.code, 1009);
        assert_string_equal(a.error, "body_too_large");
        fake_turns(&fake, 5);
        assert_int_equal(b.code, 0);
        end(&a);
        end(&b);
    }
    assert_int_equal(in->len, 0);
}

/* P26: a client that goes away is neither the end of the input nor of anything else; what it said is still said. */
static void test_leaves(void **state)
{
    (void)state;
    static struct client a;
    begin(&a, ATTACH_AUTO);
    send_input(&a, 0, "last words", 10);
    end(&a);
    UNTIL(in->len == 10);
    fake_turns(&fake, 10);
    assert_false(in->closed);
    assert_int_equal(in->nsignals, 0);
    begin(&a, ATTACH_AUTO);
    assert_string_equal(mode_of(&a), "write");
    say(&a, "{\"type\":\"detach\"}");
    assert_int_equal(a.code, 1000);
    end(&a);
    assert_false(in->closed);
}

/* Upstream cannot be reached: what was not accepted is said. */
static void test_upstream_fails(void **state)
{
    (void)state;
    static struct client a;
    struct relay_limits l = {.give_up_ms = 40, .backoff_max_ms = 4};
    relay_set_limits(relay, &l);
    begin(&a, ATTACH_AUTO);
    send_input(&a, 0, "ab", 2);
    UNTIL(accepted(&a, 2));
    in->cut = 1000;
    in->refuse_code = SG_E_UPSTREAM_UNAVAILABLE;
    send_input(&a, 2, "cd", 2);
    UNTIL(a.code);
    assert_int_equal(a.code, 1011);
    assert_string_equal(a.error, "upstream_unavailable");
    assert_true(a.error_accepted >= 2);
    end(&a);
}

static void test_program_ends(void **state)
{
    (void)state;
    static struct client a;
    begin(&a, ATTACH_AUTO);
    in->finished = true;
    send_input(&a, 0, "late", 4);
    UNTIL(a.nerrors);
    assert_string_equal(a.error, "process_finished");
    assert_int_equal(a.code, 0); /* its exit comes in its own time */
    send_input(&a, 0, "later", 5);
    assert_int_equal(a.nerrors, 2);
    p->hold = false;
    fake_wake(&fake);
    UNTIL(a.exit);
    assert_int_equal(a.code, 1000);
    end(&a);
}

/* ---- terminals ---- */

static void test_sizes(void **state)
{
    (void)state;
    static struct client a;
    p->terminal = true;
    p->written[0] = 4;
    begin_as(&a, (struct attach_spec){.mode = ATTACH_AUTO, .cols = 100, .rows = 30, .pty = true});
    UNTIL(in->nsizes == 1); /* all that was printed comes again: nothing need be painted */
    assert_int_equal(in->cols, 100);
    say(&a, "{\"type\":\"resize\",\"cols\":90,\"rows\":25}");
    UNTIL(in->cols == 90 && in->rows == 25);
    UNTIL(a.nbytes == 4);
    end(&a);
    in->nsizes = 0;
    begin_as(
        &a, (struct attach_spec){.mode = ATTACH_AUTO, .cols = 90, .rows = 25, .pty = true, .offset = {4, 0}});
    UNTIL(in->nsizes == 2); /* back with an empty screen: it is painted again */
    assert_int_equal(in->sizes[0][1], 24);
    assert_int_equal(in->sizes[1][1], 25);
    end(&a);
    in->nsizes = 0;
    begin_as(&a, (struct attach_spec){
                     .mode = ATTACH_WATCH, .cols = 90, .rows = 25, .pty = true, .offset = {4, 0}});
    UNTIL(a.hello);
    fake_turns(&fake, 20);
    assert_int_equal(in->nsizes, 0); /* a watcher's size is its own */
    end(&a);
    p->terminal = false;
    fake.lines_per_turn = 0;
}

static void test_no_terminal(void **state)
{
    (void)state;
    static struct client a;
    begin_as(&a, (struct attach_spec){.mode = ATTACH_AUTO, .pty = true});
    UNTIL(a.code);
    assert_string_equal(a.error, "invalid_field");
    end(&a);
    begin_as(&a, (struct attach_spec){.mode = ATTACH_AUTO, .cols = 90, .rows = 25});
    UNTIL(a.hello);
    say(&a, "{\"type\":\"resize\",\"cols\":90,\"rows\":25}");
    assert_string_equal(a.error, "unsupported");
    say(&a, "{\"type\":\"signal\",\"signal\":\"INT\"}");
    UNTIL(in->nsignals == 1);
    assert_int_equal(in->signals[0], SIGINT);
    assert_int_equal(in->nsizes, 0);
    end(&a);
}

/* ---- receipts ---- */

static void test_receipts(void **state)
{
    (void)state;
    static struct client a, b;
    p->lossless = true;
    p->written[0] = 10;
    begin(&a, ATTACH_AUTO);
    UNTIL(a.nbytes == 10);
    begin(&b, ATTACH_AUTO);
    UNTIL(b.nbytes == 10);
    say(&b, "{\"type\":\"ack\",\"stdout\":10}"); /* only the writer's count */
    say(&a, "{\"type\":\"ack\",\"stdout\":11}");
    assert_string_equal(a.error, "invalid_field"); /* more than it was sent */
    say(&a, "{\"type\":\"ack\",\"stdout\":6,\"stderr\":0}");
    UNTIL(in->acked[0] == 6);
    assert_int_equal(b.nerrors, 0);
    end(&a);
    end(&b);
}

/* Lossless output of a program without input: receipts are calls, the newest after the one under way. */
static void test_receipts_without_input(void **state)
{
    (void)state;
    static struct client a, b;
    p->lossless = true;
    p->takes_input = false;
    p->written[0] = 10;
    begin(&a, ATTACH_AUTO);
    assert_string_equal(mode_of(&a), "write");
    begin(&b, ATTACH_AUTO);
    assert_string_equal(mode_of(&b), "watch");
    UNTIL(a.nbytes == 10 && b.nbytes == 10);
    int before = fake_total(&fake);
    say(&b, "{\"type\":\"ack\",\"stdout\":10}");
    for (int i = 1; i <= 10; i++) {
        char text[64];
        (void)snprintf(text, sizeof text, "{\"type\":\"ack\",\"stdout\":%d}", i);
        say(&a, text);
    }
    UNTIL(strstr(fake.last_args, "ack --session sess-1 --id p1 --stdout 10 --stderr 0"));
    assert_int_equal(fake_total(&fake) - before, 2);
    send_input(&a, 0, "x", 1);
    assert_string_equal(a.error, "stdin_closed");
    assert_int_equal(in->opened, 0);
    end(&a);
    end(&b);
}

/* A ring has nothing to free. */
static void test_receipts_of_a_ring(void **state)
{
    (void)state;
    static struct client a;
    begin(&a, ATTACH_AUTO);
    say(&a, "{\"type\":\"ack\",\"stdout\":999}");
    fake_turns(&fake, 10);
    assert_int_equal(a.nerrors, 0);
    assert_int_equal(in->opened, 0);
    end(&a);
}

/* ---- presence ---- */

/* However many come and go, nobody is told more than a few times, and at the end everybody knows. */
static void test_crowd(void **state)
{
    (void)state;
    enum { MANY = 60 };
    static struct client c[MANY];
    for (int i = 0; i < MANY; i++)
        begin_as(&c[i], (struct attach_spec){.mode = i ? ATTACH_WATCH : ATTACH_AUTO});
    for (int i = 0; i < MANY; i++)
        UNTIL(c[i].hello);
    for (int i = 0; i < MANY; i++) {
        UNTIL(present(&c[i], 1, MANY - 1) ||
              number(json_object_get(c[i].hello, "presence"), "watchers") == MANY - 1);
        assert_true(c[i].npresence <= 10);
    }
    for (int i = MANY - 1; i > 0; i--) {
        say(&c[i], "{\"type\":\"detach\"}");
        end(&c[i]);
    }
    UNTIL(present(&c[0], 1, 0));
    end(&c[0]);
}

/* The gateway shuts down with writers and input under way. */
static void test_drain(void **state)
{
    (void)state;
    static struct client a, b;
    begin(&a, ATTACH_AUTO);
    begin(&b, ATTACH_WATCH);
    send_input(&a, 0, "a", 1);
    relay_free(relay);
    relay = NULL;
    assert_int_equal(a.code, 1001);
    assert_int_equal(b.code, 1001);
    end(&a);
    end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_modes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_input, setup, teardown),
        cmocka_unit_test_setup_teardown(test_takeover, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fenced, setup, teardown),
        cmocka_unit_test_setup_teardown(test_offsets, setup, teardown),
        cmocka_unit_test_setup_teardown(test_early, setup, teardown),
        cmocka_unit_test_setup_teardown(test_early_without_input, setup, teardown),
        cmocka_unit_test_setup_teardown(test_more_than_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_large, setup, teardown),
        cmocka_unit_test_setup_teardown(test_leaves, setup, teardown),
        cmocka_unit_test_setup_teardown(test_upstream_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(test_program_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sizes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_terminal, setup, teardown),
        cmocka_unit_test_setup_teardown(test_receipts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_receipts_without_input, setup, teardown),
        cmocka_unit_test_setup_teardown(test_receipts_of_a_ring, setup, teardown),
        cmocka_unit_test_setup_teardown(test_crowd, setup, teardown),
        cmocka_unit_test_setup_teardown(test_drain, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
