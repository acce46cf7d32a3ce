/* A terminal over the interactive socket: what is sent, what comes, and every way that it ends.  C6 P63 */
#include "fixture.h"

#include "vercel/interactive.h"

#include "base/buf.h"
#include "base/clock.h"
#include "tests/support/rawws.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN "s3cr3t/+=" /* not unreserved: it must be encoded */

/* What the other side does after the start frame. */
enum play {
    PLAY_ECHO,   /* sends back what comes, until "bye" */
    PLAY_EXIT,   /* output, exit 7, close */
    PLAY_FORMS,  /* fragments, pings, text that is output */
    PLAY_FLOOD,  /* a lot, as fast as it goes */
    PLAY_SILENT, /* never answers the handshake */
    PLAY_STATUS, /* answers the handshake with 401 */
    PLAY_REDIRECT,
    PLAY_CUT, /* ends in the middle of the handshake */
    PLAY_DROP /* ends without a close frame */
};

struct upstream {
    struct raw_server *ws; /* where the socket is */
    enum play play;
    const char *url; /* instead of the right one */
    int status;      /* of the POST; 0: 200 */
    size_t flood;
    /* seen */
    pthread_mutex_t lock;
    int asked, handshakes;
    char target[512], host[128], extra[256];
    char start[1024];
    size_t received;
    bool closed_politely;
};

static void play_forms(struct raw_conn *c)
{
    unsigned char frag[] = {0x02, 3, 'a', 'b', 'c', 0x00, 2, 'd', 'e', 0x80, 1, 'f'}; /* abc de f */
    unsigned char text_frag[] = {0x01, 4, 'p', 'l', 'a', 'i', 0x80, 1, 'n'};
    char big[8192];
    memset(big, 'x', sizeof big);
    raw_send(c, frag, sizeof frag);
    rawws_text(c, WS_OP_PING, "are you there");
    rawws_text(c, WS_OP_TEXT, "{\"type\":\"news\"}"); /* JSON of another type is nothing */
    raw_send(c, text_frag, sizeof text_frag);
    rawws_send(c, WS_OP_TEXT, big, sizeof big);
    rawws_send(c, WS_OP_BINARY, "", 0);
    rawws_send(c, WS_OP_BINARY, "\0\xff", 2);
}

static void play_socket(struct raw_conn *c, struct upstream *u)
{
    struct rawws p;
    struct ws_event ev;
    bool more = true;
    rawws_init(&p);
    for (size_t n = 0; more && rawws_next(c, &p, &ev);) {
        if (ev.kind == WS_EV_CLOSE) {
            unsigned char code[2] = {0x03, 0xe8};
            pthread_mutex_lock(&u->lock);
            u->closed_politely = true;
            pthread_mutex_unlock(&u->lock);
            rawws_send(c, WS_OP_CLOSE, code, 2);
            return;
        }
        if (ev.kind == WS_EV_PONG)
            rawws_text(c, WS_OP_BINARY, "pong");
        if (ev.kind != WS_EV_DATA)
            continue;
        if (ev.text) { /* the start */
            assert_true(n + ev.len < sizeof u->start);
            memcpy(u->start + n, ev.data, ev.len);
            n += ev.len;
            if (!ev.end)
                continue;
            if (u->play == PLAY_DROP)
                return;
            if (u->play == PLAY_FORMS)
                play_forms(c);
            if (u->play == PLAY_EXIT) {
                rawws_text(c, WS_OP_BINARY, "bye\r\n");
                rawws_text(c, WS_OP_TEXT, "{\"type\":\"exit\",\"code\":7}");
                rawws_send(c, WS_OP_CLOSE, "\x03\xe8", 2);
                raw_peer_closed(c);
                return;
            }
            for (size_t sent = 0; u->play == PLAY_FLOOD && more && sent < u->flood; sent += 16384) {
                static const char zeros[16384];
                more = rawws_send(c, WS_OP_BINARY, zeros, sizeof zeros);
            }
            continue;
        }
        u->received += ev.len;
        if (u->play == PLAY_ECHO)
            more = rawws_send(c, WS_OP_BINARY, ev.data, ev.len);
    }
}

static void answer_api(struct raw_conn *c, struct upstream *u, const struct raw_request *r)
{
    char body[512];
    assert_non_null(strstr(r->target, "/api/v2/sandboxes/sessions/sbx_1/interactive"));
    assert_string_equal(r->body, "{}");
    pthread_mutex_lock(&u->lock);
    u->asked++;
    pthread_mutex_unlock(&u->lock);
    if (u->url)
        snprintf(body, sizeof body, "{\"url\":\"%s\",\"token\":\"" TOKEN "\"}", u->url);
    else
        snprintf(body, sizeof body, "{\"url\":\"ws%s/ws/interactive\",\"token\":\"" TOKEN "\"}",
                 raw_url(u->ws) + 4);
    if (u->status)
        raw_answer(c, u->status, "application/json", "",
                   "{\"error\":{\"code\":\"sandbox_stopped\",\"message\":\"no\"}}");
    else
        raw_answer(c, 200, "application/json", "", body);
}

static void on_api(struct raw_conn *c, int n, void *arg)
{
    struct raw_request r;
    (void)n;
    while (raw_read(c, &r))
        answer_api(c, arg, &r);
}

/* The socket's server. */
static void on_socket(struct raw_conn *c, int n, void *arg)
{
    struct upstream *u = arg;
    struct raw_request r;
    (void)n;
    if (!raw_read(c, &r))
        return;
    if (!strcmp(r.method, "POST")) { /* the API, as its proxy */
        answer_api(c, u, &r);
        return;
    }
    if (!strcmp(r.method, "CONNECT")) { /* the socket's proxy */
        snprintf(u->extra, sizeof u->extra, "%.200s", r.target);
        if (strcasestr(r.head, "proxy-authorization: basic dTpwQHNz"))
            strncat(u->extra, " known", 10);
        raw_sends(c, "HTTP/1.1 200 Connection established\r\n\r\n");
        if (!raw_read(c, &r))
            return;
    }
    pthread_mutex_lock(&u->lock);
    u->handshakes++;
    snprintf(u->target, sizeof u->target, "%.500s", r.target);
    const char *host = strcasestr(r.head, "\r\nHost: ");
    snprintf(u->host, sizeof u->host, "%.*s", host ? (int)strcspn(host + 8, "\r") : 0, host ? host + 8 : "");
    pthread_mutex_unlock(&u->lock);
    assert_null(strcasestr(r.head, "authorization"));
    assert_null(strcasestr(r.head, "sec-websocket-protocol"));
    switch (u->play) {
    case PLAY_SILENT:
        (void)raw_at_gate(c);
        return;
    case PLAY_STATUS:
        raw_answer(c, 401, "text/plain", "", "no");
        return;
    case PLAY_REDIRECT:
        raw_answer(c, 302, "text/plain", "Location: /elsewhere?token=stolen\r\n", "");
        return;
    case PLAY_CUT:
        raw_sends(c, "HTTP/1.1 101 Switch");
        return;
    case PLAY_ECHO:
    case PLAY_EXIT:
    case PLAY_FORMS:
    case PLAY_FLOOD:
    case PLAY_DROP:
    default:
        if (rawws_accept(c, r.head))
            play_socket(c, u);
    }
}

/* ---- an owner ---- */

struct seen {
    struct vercel_interactive *t;
    struct sg_buf data;
    bool open, done, failed, cancelled, room;
    int exits, code;
    size_t count; /* when data is not kept */
    bool count_only;
    int cancel_at; /* 1: on_open, 2: on_data, 3: on_exit */
    struct sg_error error;
};

static void maybe_cancel(struct seen *x, int where)
{
    if (x->cancel_at != where)
        return;
    vercel_interactive_cancel(x->t);
    x->cancelled = true;
}

static void on_open(void *arg)
{
    struct seen *x = arg;
    assert_false(x->open || x->done || x->cancelled);
    x->open = true;
    maybe_cancel(x, 1);
}

static void on_data(void *arg, const void *data, size_t len)
{
    struct seen *x = arg;
    assert_false(x->done || x->cancelled);
    x->count += len;
    if (!x->count_only)
        assert_true(sg_buf_add(&x->data, data, len));
    maybe_cancel(x, 2);
}

static void on_room(void *arg)
{
    struct seen *x = arg;
    assert_false(x->done || x->cancelled);
    x->room = true;
}

static void on_exit_code(void *arg, int code)
{
    struct seen *x = arg;
    assert_false(x->done || x->cancelled);
    x->exits++;
    x->code = code;
    maybe_cancel(x, 3);
}

static void on_end(void *arg, const struct sg_error *e)
{
    struct seen *x = arg;
    assert_false(x->done || x->cancelled);
    x->done = true;
    x->failed = e != NULL;
    if (e)
        x->error = *e;
}

struct setup {
    struct fixture f;
    struct upstream u;
    struct seen x;
    bool proxied;
};

static void open_setup(struct setup *s)
{
    struct tuning t = {.retries = 0};
    char proxy[128];
    pthread_mutex_init(&s->u.lock, NULL);
    s->u.ws = raw_start(on_socket, &s->u);
    assert_non_null(s->u.ws);
    sg_buf_init(&s->x.data, 1 << 24);
    if (s->proxied) {
        snprintf(proxy, sizeof proxy, "http://u:p%%40ss@%s", raw_url(s->u.ws) + 7);
        t.proxy = proxy;
        t.base_url = "http://upstream.invalid/api";
        s->u.url = "ws://terminal.invalid/ws/interactive";
    }
    fixture_open(&s->f, s->proxied ? NULL : on_api, &s->u, &t);
}

static void begin(struct setup *s)
{
    static const char *const args[] = {"input", "--id", "p 1", NULL};
    static const struct vercel_terminal_events ev = {on_open, on_data, on_room, on_exit_code, on_end};
    const struct vercel_terminal t = {.session_id = "sbx_1", .command = "/bin/x", .args = args, .cwd = "/"};
    struct sg_error e;
    s->x.t = vercel_interactive_start(s->f.client, &t, &ev, &s->x, &e);
    assert_non_null(s->x.t);
    assert_false(s->x.open || s->x.done);
}

static void close_setup(struct setup *s)
{
    fixture_close(&s->f);
    raw_stop(s->u.ws);
    sg_buf_free(&s->x.data);
    pthread_mutex_destroy(&s->u.lock);
}

static void type(struct setup *s, const void *data, size_t len)
{
    assert_int_equal(vercel_interactive_send(s->x.t, data, len), len);
}

static void run_until_count(struct setup *s, size_t n)
{
    while (s->x.count < n && !s->x.done)
        uv_run(sg_loop_uv(s->f.loop), UV_RUN_ONCE);
    assert_false(s->x.done);
    assert_int_equal(s->x.count, n);
}

static bool was_polite(struct setup *s)
{
    bool polite = false;
    for (int64_t until = sg_mono_ms() + 5000; !polite && sg_mono_ms() < until;) {
        fixture_turn(&s->f);
        pthread_mutex_lock(&s->u.lock);
        polite = s->u.closed_politely;
        pthread_mutex_unlock(&s->u.lock);
    }
    return polite;
}

/* Everything of one terminal: its start, typing, echo, a polite end. */
static void test_echo(void **state)
{
    (void)state;
    struct setup s = {.u.play = PLAY_ECHO};
    open_setup(&s);
    begin(&s);
    assert_int_equal(vercel_interactive_send(s.x.t, "early", 5), 0); /* not before it is open */
    s.x.room = false;
    fixture_run(&s.f, &s.x.open);
    type(&s, "ls\r", 3);
    run_until_count(&s, 3);
    type(&s, "\0\x03\xff", 3);
    run_until_count(&s, 6);
    assert_memory_equal(s.x.data.data, "ls\r\0\x03\xff", 6);
    vercel_interactive_finish(s.x.t);
    fixture_run(&s.f, &s.x.done);
    assert_false(s.x.failed);
    assert_true(was_polite(&s));
    assert_string_equal(s.u.target, "/ws/interactive?token=s3cr3t%2F%2B%3D");
    assert_string_equal(s.u.host, raw_url(s.u.ws) + 7);
    assert_string_equal(s.u.start,
                        "{\"type\":\"start\",\"command\":\"/bin/x\",\"args\":[\"input\",\"--id\",\"p 1\"],"
                        "\"env\":[],\"cwd\":\"/\"}");
    close_setup(&s);
}

static void test_exit(void **state)
{
    (void)state;
    struct setup s = {.u.play = PLAY_EXIT};
    open_setup(&s);
    begin(&s);
    fixture_run(&s.f, &s.x.done);
    assert_false(s.x.failed);
    assert_int_equal(s.x.exits, 1);
    assert_int_equal(s.x.code, 7);
    assert_string_equal(s.x.data.data, "bye\r\n");
    close_setup(&s);
}

static void test_forms_of_messages(void **state)
{
    (void)state;
    struct setup s = {.u.play = PLAY_FORMS};
    open_setup(&s);
    begin(&s);
    run_until_count(&s, 6 + 5 + 8192 + 2 + 4);
    assert_memory_equal(s.x.data.data, "abcdefplainx", 12);
    assert_memory_equal(s.x.data.data + 11 + 8192, "\0\xffpong", 6);
    assert_int_equal(s.x.exits, 0);
    vercel_interactive_cancel(s.x.t);
    close_setup(&s);
}

/* Much typed at once is taken in part, and told when there is room again; all arrives. */
static void test_typing_has_bounds(void **state)
{
    (void)state;
    struct setup s = {.u.play = PLAY_ECHO, .x.count_only = true};
    static char data[1024 * 1024];
    size_t sent = 0;
    open_setup(&s);
    begin(&s);
    fixture_run(&s.f, &s.x.open);
    while (sent < sizeof data) {
        s.x.room = false;
        size_t n = vercel_interactive_send(s.x.t, data + sent, sizeof data - sent);
        assert_in_range(n, 0, VERCEL_TERMINAL_QUEUE);
        assert_in_range(vercel_interactive_queued(s.x.t), 0, VERCEL_TERMINAL_QUEUE);
        sent += n;
        if (sent < sizeof data)
            fixture_run(&s.f, &s.x.room);
    }
    run_until_count(&s, sizeof data);
    vercel_interactive_cancel(s.x.t);
    close_setup(&s);
}

/* While reading is paused the peer's bytes stay with the peer. */
static void test_reading_can_pause(void **state)
{
    (void)state;
    struct setup s = {.u.play = PLAY_FLOOD, .u.flood = 32 * 1024 * 1024, .x.count_only = true};
    open_setup(&s);
    begin(&s);
    while (!s.x.count)
        uv_run(sg_loop_uv(s.f.loop), UV_RUN_ONCE);
    vercel_interactive_pause(s.x.t, true);
    fixture_turn(&s.f);
    size_t before = s.x.count;
    int64_t until = sg_mono_ms() + 150;
    while (sg_mono_ms() < until)
        fixture_turn(&s.f);
    assert_in_range(s.x.count, before, before + 65536);
    assert_true(s.x.count < s.u.flood / 4);
    vercel_interactive_pause(s.x.t, false);
    run_until_count(&s, s.u.flood);
    vercel_interactive_cancel(s.x.t);
    close_setup(&s);
}

/* Each way not to get one: told once, soon, and with no word of the token. */
static void test_no_terminal(void **state)
{
    (void)state;
    const struct {
        enum play play;
        int status;
        const char *url;
        enum sg_code code;
        int handshakes;
    } cases[] = {
        {PLAY_STATUS, 0, NULL, SG_E_UPSTREAM_UNREACHABLE, 1},
        {PLAY_REDIRECT, 0, NULL, SG_E_UPSTREAM_UNREACHABLE, 1},
        {PLAY_CUT, 0, NULL, SG_E_UPSTREAM_UNREACHABLE, 1},
        {PLAY_ECHO, 410, NULL, SG_E_STALE_SESSION, 0},
        {PLAY_ECHO, 404, NULL, SG_E_STALE_SESSION, 0},
        {PLAY_ECHO, 0, "ws://127.0.0.1:9/ws", SG_E_UPSTREAM_UNREACHABLE, 0},
        {PLAY_ECHO, 0, "ws://[::1]:9/ws", SG_E_UPSTREAM_UNREACHABLE, 0},
        {PLAY_ECHO, 0, "wss://127.0.0.1:9/ws", SG_E_UPSTREAM_UNREACHABLE, 0},
        {PLAY_ECHO, 0, "ws://localhost:9/ws", SG_E_UPSTREAM_UNREACHABLE, 0},
        {PLAY_ECHO, 0, "ws://no-such-host.invalid/ws", SG_E_UPSTREAM_UNREACHABLE, 0},
        {PLAY_ECHO, 0, "ws://255.255.255.255:80/ws", SG_E_UPSTREAM_UNREACHABLE, 0}, /* fails at once */
        {PLAY_ECHO, 0, "http://127.0.0.1:9/ws", SG_E_UPSTREAM_BAD_RESPONSE, 0},
        {PLAY_ECHO, 0, "ws://u:p@127.0.0.1:9/ws", SG_E_UPSTREAM_BAD_RESPONSE, 0},
        {PLAY_ECHO, 0, "ws://127.0.0.1:9/ws?a=b", SG_E_UPSTREAM_BAD_RESPONSE, 0},
        {PLAY_ECHO, 0, "nonsense", SG_E_UPSTREAM_BAD_RESPONSE, 0},
        {PLAY_ECHO, 0, "", SG_E_UPSTREAM_BAD_RESPONSE, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setup s = {.u = {.play = cases[i].play, .status = cases[i].status, .url = cases[i].url}};
        open_setup(&s);
        begin(&s);
        fixture_run(&s.f, &s.x.done);
        assert_true(s.x.failed);
        assert_int_equal(s.x.error.code, cases[i].code);
        assert_int_equal(s.x.error.outcome, SG_NOT_STARTED);
        assert_null(strstr(s.x.error.detail, "s3cr3t"));
        assert_int_equal(s.u.handshakes, cases[i].handshakes);
        assert_int_equal(s.u.asked, 1);
        close_setup(&s);
    }
}

static void test_silent_peer(void **state)
{
    (void)state;
    struct setup s = {.u.play = PLAY_SILENT};
    open_setup(&s);
    begin(&s);
    int64_t began = sg_mono_ms();
    fixture_run(&s.f, &s.x.done);
    assert_int_equal(s.x.error.code, SG_E_UPSTREAM_TIMEOUT);
    assert_in_range(sg_mono_ms() - began, 4000, 9000);
    close_setup(&s);
}

static void test_dropped_by_the_peer(void **state)
{
    (void)state;
    struct setup s = {.u.play = PLAY_DROP};
    open_setup(&s);
    begin(&s);
    fixture_run(&s.f, &s.x.done);
    assert_true(s.x.open);
    assert_int_equal(s.x.error.code, SG_E_UPSTREAM_UNREACHABLE);
    assert_int_equal(s.x.error.outcome, SG_OUTCOME_UNKNOWN);
    close_setup(&s);
}

/* Through a proxy that wants a password; the environment's proxies are not used. */
static void test_proxy(void **state)
{
    (void)state;
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    for (int by_proxy = 0; by_proxy < 2; by_proxy++) {
        struct setup s = {.u.play = PLAY_EXIT, .proxied = by_proxy};
        open_setup(&s);
        begin(&s);
        fixture_run(&s.f, &s.x.done);
        assert_false(s.x.failed);
        assert_int_equal(s.x.code, 7);
        assert_string_equal(s.u.extra, by_proxy ? "terminal.invalid:80 known" : "");
        close_setup(&s);
    }
    unsetenv("http_proxy");
}

static void on_tick(void *arg)
{
    (void)arg;
}

/* A turn that waits for little, for trying things at every moment. */
static void short_turn(struct setup *s)
{
    struct sg_timer *t = sg_timer_new(s->f.loop, on_tick, NULL);
    sg_timer_start(t, 3);
    uv_run(sg_loop_uv(s->f.loop), UV_RUN_ONCE);
    sg_timer_free(t);
}

static void test_cancel(void **state)
{
    (void)state;
    for (int when = 0; when < 24; when++) { /* so many turns after it began */
        struct setup s = {
            .u.play = when % 2 ? PLAY_EXIT : PLAY_FLOOD, .u.flood = 1 << 20, .x.count_only = true};
        open_setup(&s);
        begin(&s);
        for (int i = 0; i < when && !s.x.done; i++)
            short_turn(&s);
        vercel_interactive_cancel(s.x.t);
        s.x.cancelled = !s.x.done;
        for (int i = 0; i < 5; i++)
            fixture_turn(&s.f);
        close_setup(&s);
    }
    for (int where = 1; where <= 3; where++) {
        struct setup s = {.u.play = PLAY_EXIT, .x.cancel_at = where};
        open_setup(&s);
        begin(&s);
        fixture_run(&s.f, &s.x.cancelled);
        for (int i = 0; i < 5; i++)
            fixture_turn(&s.f);
        close_setup(&s);
    }
}

/* The gateway stops with terminals in every state. */
static void test_shutdown(void **state)
{
    (void)state;
    for (int when = 0; when < 24; when++) {
        struct setup s = {.u.play = PLAY_ECHO};
        open_setup(&s);
        begin(&s);
        for (int i = 0; i < when && !s.x.done && !s.x.open; i++)
            short_turn(&s);
        close_setup(&s);
        assert_true(s.x.done);
        assert_true(s.x.failed);
    }
}

/* The library takes no signal for itself. */
static void test_signals_are_ours(void **state)
{
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGSEGV, SIGFPE};
    struct sigaction before[5], after;
    for (size_t i = 0; i < 5; i++)
        sigaction(signals[i], NULL, &before[i]);
    struct setup s = {.u.play = PLAY_ECHO};
    open_setup(&s);
    begin(&s);
    fixture_run(&s.f, &s.x.open);
    for (size_t i = 0; i < 5; i++) {
        sigaction(signals[i], NULL, &after);
        assert_ptr_equal(after.sa_handler, before[i].sa_handler);
    }
    close_setup(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_echo),
        cmocka_unit_test(test_exit),
        cmocka_unit_test(test_forms_of_messages),
        cmocka_unit_test(test_typing_has_bounds),
        cmocka_unit_test(test_reading_can_pause),
        cmocka_unit_test(test_no_terminal),
        cmocka_unit_test(test_silent_peer),
        cmocka_unit_test(test_dropped_by_the_peer),
        cmocka_unit_test(test_proxy),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_shutdown),
        cmocka_unit_test(test_signals_are_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
