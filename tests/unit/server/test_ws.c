/* WebSockets over real sockets: handshake, echo, control frames, faults, pings, drain. */
#include "harness.h"
#include "server/ws.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- an echo route ---- */

struct echo {
    struct ws *ws;
    size_t flood; /* bytes still to send on drain */
};

static int opened, closed, shut;
static struct ws *held;             /* paused by "hold" until go_on */
static _Atomic int messages, wrong; /* of sockets while one was held; messages that came while it was */
static bool holding;

static void go_on(void *arg)
{
    (void)arg;
    holding = false;
    ws_resume(held);
}

static void on_open(void *arg, struct ws *ws)
{
    struct echo *e = arg;
    e->ws = ws;
    opened++;
}

/* The byte of a flood's block `left` bytes before its end. */
static char flood_byte(size_t left, size_t i)
{
    return (char)(left / (32 * 1024) * 31 + i * 7 + i / 251);
}

static void flood(struct echo *e)
{
    static char block[32 * 1024];
    while (e->flood && ws_queued(e->ws) < WS_QUEUE_HIGH) {
        for (size_t i = 0; i + 1 < sizeof block; i++)
            block[i] = flood_byte(e->flood, i);
        assert_true(ws_send(e->ws, false, "h", 1, block, sizeof block - 1));
        e->flood -= sizeof block;
    }
    if (!e->flood)
        ws_close(e->ws, 1000, "flooded");
}

static void on_message(void *arg, bool text, const void *data, size_t len)
{
    struct echo *e = arg;
    if (len == 5 && memcmp(data, "close", 5) == 0) {
        ws_close(e->ws, 4001, "taken over");
        assert_false(ws_send(e->ws, true, "x", 1, NULL, 0));
    } else if (len == 5 && memcmp(data, "flood", 5) == 0) {
        e->flood = (size_t)64 * 1024 * 1024;
        flood(e);
    } else if (len == 4 && memcmp(data, "hold", 4) == 0) {
        held = e->ws;
        assert_true(ws_pause(e->ws));
        holding = true;
    } else {
        messages++;
        wrong += holding && e->ws == held;
        assert_true(ws_send(e->ws, text, data, len / 2, (const char *)data + len / 2, len - len / 2));
    }
}

static void on_drain(void *arg)
{
    struct echo *e = arg;
    if (e->flood)
        flood(e);
}

static void on_closed(void *arg)
{
    closed++;
    free(arg);
}

static void on_shutdown(void *arg)
{
    struct echo *e = arg;
    shut++;
    ws_close(e->ws, 1001, "draining");
}

static const struct ws_events events = {on_open, on_message, on_drain, on_closed, on_shutdown};
static const struct ws_events deaf_events = {on_open, on_message, on_drain, on_closed, NULL};

static void attach(struct exchange *ex)
{
    if (!ex_ws_offers(ex, "sandgate.v1")) {
        struct sg_error e;
        (void)sg_fail(&e, SG_E_UPGRADE_REQUIRED, SG_NOT_SENT, "offer sandgate.v1");
        ex_fail(ex, &e);
        return;
    }
    ex_upgrade(ex, "sandgate.v1", ex_query(ex, "deaf", NULL) ? &deaf_events : &events,
               calloc(1, sizeof(struct echo)));
}

/* Decides later. */
static struct exchange *thinking;

static void think(struct exchange *ex)
{
    thinking = ex;
}

static const struct route table[] = {
    {"GET", "/later", ROUTE_UPGRADE, AUTH_TOKEN, BODY_NONE, think},
    {"GET", "/ws", ROUTE_UPGRADE, AUTH_TOKEN, BODY_NONE, attach},
};

static struct harness *h;

static int setup(void **state)
{
    (void)state;
    static const struct http_server_config cfg = {.ws_ping_ms = 300, .max_websockets = 50};
    h = harness_start(&cfg, table, sizeof table / sizeof *table);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    harness_stop(h);
    return 0;
}

/* ---- a client ---- */

#define KEY     "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
#define UPGRADE "Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n"
#define OFFER   "Sec-WebSocket-Protocol: sandgate.v1\r\n"

static int ws_connect_path(const char *path)
{
    int fd = client_connect(h);
    char request[512];
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\n" HOST AUTH KEY UPGRADE OFFER "\r\n", path);
    client_puts(fd, request);
    struct reply r;
    client_reply(fd, &r, false);
    assert_int_equal(r.status, 101);
    assert_string_equal(reply_header(&r, "Sec-WebSocket-Accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_string_equal(reply_header(&r, "Sec-WebSocket-Protocol"), "sandgate.v1");
    reply_free(&r);
    return fd;
}

static int ws_connect(void)
{
    return ws_connect_path("/ws");
}

static size_t make_frame(unsigned char *out, unsigned b0, const void *data, size_t len)
{
    static const unsigned char mask[4] = {0x12, 0xa4, 0x00, 0xff};
    size_t n = 0;
    out[n++] = (unsigned char)b0;
    if (len < 126) {
        out[n++] = (unsigned char)(0x80 | len);
    } else if (len < 65536) {
        out[n++] = 0x80 | 126;
        out[n++] = (unsigned char)(len >> 8);
        out[n++] = (unsigned char)len;
    } else {
        out[n++] = 0x80 | 127;
        for (int i = 7; i >= 0; i--)
            out[n++] = (unsigned char)((uint64_t)len >> (8 * i));
    }
    memcpy(out + n, mask, 4);
    n += 4;
    for (size_t i = 0; i < len; i++)
        out[n + i] = (unsigned char)(((const unsigned char *)data)[i] ^ mask[i & 3]);
    return n + len;
}

static void send_frame(int fd, unsigned b0, const void *data, size_t len)
{
    unsigned char *f = malloc(len + 16);
    assert_non_null(f);
    client_send(fd, f, make_frame(f, b0, data, len));
    free(f);
}

struct frame {
    int b0; /* -1: the connection ended */
    size_t len;
    unsigned char *data;
};

static bool read_exact(int fd, void *out, size_t len)
{
    char *p = out;
    while (len) {
        ssize_t n = recv(fd, p, len, 0);
        if (n < 0 && errno == EAGAIN)
            fail_msg("no frame in time");
        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

static struct frame read_any(int fd)
{
    struct frame f = {-1, 0, NULL};
    unsigned char head[2], ext[8];
    if (!read_exact(fd, head, 2))
        return f;
    assert_int_equal(head[1] & 0x80, 0); /* servers never mask */
    uint64_t len = head[1];
    size_t more = len == 126 ? 2 : len == 127 ? 8 : 0;
    if (more) {
        assert_true(read_exact(fd, ext, more));
        len = 0;
        for (size_t i = 0; i < more; i++)
            len = len << 8 | ext[i];
    }
    f.data = malloc(len + 1);
    assert_non_null(f.data);
    assert_true(read_exact(fd, f.data, len));
    f.len = len;
    f.b0 = head[0];
    return f;
}

/* The next frame that is not a ping. */
static struct frame read_frame(int fd)
{
    for (;;) {
        struct frame f = read_any(fd);
        if (f.b0 != 0x89)
            return f;
        free(f.data);
    }
}

static void expect_data(int fd, unsigned b0, const void *data, size_t len)
{
    struct frame f = read_frame(fd);
    assert_int_equal(f.b0, b0);
    assert_int_equal(f.len, len);
    assert_memory_equal(f.data, data, len);
    free(f.data);
}

/* why: part of the reason, NULL: any */
static void expect_close_why(int fd, int code, const char *why)
{
    struct frame f = read_frame(fd);
    assert_int_equal(f.b0, 0x88);
    assert_true(f.len >= 2);
    assert_int_equal(f.data[0] << 8 | f.data[1], code);
    assert_true(!why || memmem(f.data, f.len, why, strlen(why)));
    free(f.data);
}

static void expect_close(int fd, int code)
{
    expect_close_why(fd, code, NULL);
}

static bool none_open(void *arg)
{
    (void)arg;
    struct http_stats s;
    http_server_stats(harness_server(h), &s);
    return s.websockets == 0 && s.connections == 0 && opened == closed;
}

static bool nothing_left(void *arg)
{
    (void)arg;
    struct http_stats s;
    http_server_stats(harness_server(h), &s);
    return s.websockets == 0 && s.connections == 0 && s.requests == 0;
}

/* ---- handshake ---- */

static void refused_handshakes_are_problem_documents(void **state)
{
    (void)state;
    static const struct {
        const char *headers;
        int status;
        const char *code;
    } cases[] = {
        {AUTH, 426, "upgrade_required"},
        {AUTH KEY OFFER "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n", 426, "upgrade_required"},
        {AUTH KEY OFFER "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 8\r\n", 426,
         "upgrade_required"},
        {AUTH OFFER UPGRADE, 400, "bad_request"},
        {AUTH OFFER UPGRADE "Sec-WebSocket-Key: c2hvcnQ=\r\n", 400, "bad_request"},
        {AUTH KEY UPGRADE, 426, "upgrade_required"},
        {AUTH KEY UPGRADE "Sec-WebSocket-Protocol: sandgate.v12, x\r\n", 426, "upgrade_required"},
        {KEY UPGRADE OFFER, 401, "unauthenticated"},
        {KEY UPGRADE "Sec-WebSocket-Protocol: sandgate.v1, sandgate.bearer.bm9wZQ\r\n", 401,
         "unauthenticated"},
        {KEY UPGRADE "Sec-WebSocket-Protocol: sandgate.v1, sandgate.bearer.*\r\n", 401, "unauthenticated"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char request[1024];
        snprintf(request, sizeof request, "GET /ws HTTP/1.1\r\n" HOST "%s\r\n", cases[i].headers);
        struct reply r;
        exchange_once(h, request, &r);
        if (r.status != cases[i].status)
            print_error("case %zu\n", i);
        assert_problem(&r, cases[i].status, cases[i].code);
        if (r.status == 426 && i < 3)
            assert_string_equal(reply_header(&r, "Sec-WebSocket-Version"), "13");
        reply_free(&r);
    }
    struct reply r;
    exchange_once(h, "GET /ws?access_token=x HTTP/1.1\r\n" HOST KEY UPGRADE OFFER "\r\n", &r);
    assert_problem(&r, 400, "credential_in_url"); /* P49 */
    reply_free(&r);
    harness_wait(h, none_open, NULL);
}

/* P49: browsers cannot set headers. */
static void p49_a_token_may_come_as_subprotocol(void **state)
{
    (void)state;
    int fd = client_connect(h);
    client_puts(fd, "GET /ws HTTP/1.1\r\n" HOST KEY UPGRADE
                    "Sec-WebSocket-Protocol: sandgate.v1, sandgate.bearer.Z29vZC10b2tlbg\r\n\r\n");
    struct reply r;
    client_reply(fd, &r, false);
    assert_int_equal(r.status, 101);
    assert_string_equal(reply_header(&r, "Sec-WebSocket-Protocol"), "sandgate.v1");
    reply_free(&r);
    close(fd);
    harness_wait(h, none_open, NULL);
}

static void the_number_of_sockets_is_limited(void **state)
{
    (void)state;
    int fds[50];
    for (size_t i = 0; i < 50; i++)
        fds[i] = ws_connect();
    struct reply r;
    exchange_once(h, "GET /ws HTTP/1.1\r\n" HOST AUTH KEY UPGRADE OFFER "\r\n", &r);
    assert_problem(&r, 503, "overloaded");
    reply_free(&r);
    for (size_t i = 0; i < 50; i++)
        close(fds[i]);
    harness_wait(h, none_open, NULL);
}

static bool is_thinking(void *arg)
{
    (void)arg;
    return thinking != NULL;
}

static void upgrade_now(void *arg)
{
    (void)arg;
    attach(thinking);
    thinking = NULL;
}

static void a_handler_may_upgrade_later_or_too_late(void **state)
{
    (void)state;
    static const char request[] = "GET /later HTTP/1.1\r\n" HOST AUTH KEY UPGRADE OFFER "\r\n";
    int fd = client_connect(h);
    client_puts(fd, request);
    harness_wait(h, is_thinking, NULL);
    harness_on_loop(h, upgrade_now, NULL);
    struct reply r;
    client_reply(fd, &r, false);
    assert_int_equal(r.status, 101);
    reply_free(&r);
    send_frame(fd, 0x82, "x", 1);
    expect_data(fd, 0x82, "x", 1);
    close(fd);
    harness_wait(h, none_open, NULL);
    for (int i = 0; i < 2; i++) {
        int closed_before = closed, opened_before = opened;
        fd = client_connect(h);
        client_puts(fd, request);
        harness_wait(h, is_thinking, NULL);
        struct linger now = {1, 0};
        if (i)
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        close(fd);
        harness_on_loop(h, upgrade_now, NULL); /* to nobody */
        harness_wait(h, nothing_left, NULL);
        assert_int_equal(closed, closed_before + 1);
        opened = opened_before + 1; /* it may or may not have opened; it has closed */
    }
}

/* ---- messages ---- */

static void echo_of_all_sizes(void **state)
{
    (void)state;
    enum { BIGGEST = WS_MAX_MESSAGE };
    static const size_t sizes[] = {0, 1, 125, 126, 65535, 65536, 200000, BIGGEST};
    unsigned char *data = malloc(BIGGEST);
    assert_non_null(data);
    for (size_t i = 0; i < BIGGEST; i++)
        data[i] = (unsigned char)(i * 31 + i / 256);
    int fd = ws_connect();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        send_frame(fd, 0x82, data, sizes[i]);
        expect_data(fd, 0x82, data, sizes[i]);
    }
    send_frame(fd, 0x81, "h\xc3\xa9", 3);
    expect_data(fd, 0x81, "h\xc3\xa9", 3);
    send_frame(fd, 0x88, "\x03\xe8", 2);
    expect_close(fd, 1000);
    assert_true(client_sees_end(fd));
    close(fd);
    free(data);
    harness_wait(h, none_open, NULL);
}

static void fragments_with_a_ping_between(void **state)
{
    (void)state;
    int fd = ws_connect();
    send_frame(fd, 0x01, "he\xc3", 3); /* a character split between fragments */
    send_frame(fd, 0x89, "p", 1);
    send_frame(fd, 0x00, "\xa9", 1);
    send_frame(fd, 0x80, "llo", 3);
    expect_data(fd, 0x8a, "p", 1);
    expect_data(fd, 0x81, "he\xc3\xa9llo", 7);
    close(fd);
    harness_wait(h, none_open, NULL);
}

static void a_frame_sent_with_the_handshake_is_kept(void **state)
{
    (void)state;
    int fd = client_connect(h);
    unsigned char buf[1024];
    static const char request[] = "GET /ws HTTP/1.1\r\n" HOST AUTH KEY UPGRADE OFFER "\r\n";
    size_t n = sizeof request - 1;
    memcpy(buf, request, n);
    n += make_frame(buf + n, 0x82, "early", 5);
    n += make_frame(buf + n, 0x82, "birds", 5);
    client_send(fd, buf, n);
    struct reply r;
    client_reply(fd, &r, false);
    assert_int_equal(r.status, 101);
    reply_free(&r);
    expect_data(fd, 0x82, "early", 5);
    expect_data(fd, 0x82, "birds", 5);
    close(fd);
    harness_wait(h, none_open, NULL);
}

static void an_upgrade_after_keep_alive_requests(void **state)
{
    (void)state;
    int fd = client_connect(h);
    struct reply r;
    for (int i = 0; i < 3; i++) {
        client_puts(fd, "GET /ws HTTP/1.1\r\n" HOST AUTH "\r\n");
        client_reply(fd, &r, false);
        assert_problem(&r, 426, "upgrade_required");
        reply_free(&r);
    }
    client_puts(fd, "GET /ws HTTP/1.1\r\n" HOST AUTH KEY UPGRADE OFFER "\r\n");
    client_reply(fd, &r, false);
    assert_int_equal(r.status, 101);
    reply_free(&r);
    send_frame(fd, 0x82, "x", 1);
    expect_data(fd, 0x82, "x", 1);
    close(fd);
    harness_wait(h, none_open, NULL);
}

static void faults_get_their_close_code(void **state)
{
    (void)state;
    static const struct {
        unsigned b0;
        const char *data;
        size_t len;
        int code;
    } cases[] = {
        {0x81, "\xff", 1, 1007},     {0x81, "\xed\xa0\x80", 3, 1007},
        {0x81, "\xc3", 1, 1007},     {0xc2, "x", 1, 1002},
        {0x83, "x", 1, 1002},        {0x80, "x", 1, 1002},
        {0x09, "x", 1, 1002},        {0x88, "\x03", 1, 1002},
        {0x88, "\x03\xed", 2, 1002}, {0x88, "\x03\xe8\xff", 3, 1007},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int fd = ws_connect();
        send_frame(fd, cases[i].b0, cases[i].data, cases[i].len);
        expect_close(fd, cases[i].code);
        assert_true(client_sees_end(fd));
        close(fd);
    }
    int fd = ws_connect();
    client_send(fd, "\x82\x01x", 3); /* not masked */
    expect_close(fd, 1002);
    close(fd);
    harness_wait(h, none_open, NULL);
}

/* The client is still sending when it is refused: the close frame must get through. */
static void an_oversized_message_is_1009(void **state)
{
    (void)state;
    enum { LEN = WS_MAX_MESSAGE + 1 };
    unsigned char *data = calloc(1, LEN);
    assert_non_null(data);
    for (int fragmented = 0; fragmented < 2; fragmented++) {
        int fd = ws_connect();
        if (fragmented) {
            send_frame(fd, 0x02, data, LEN / 2);
            send_frame(fd, 0x80, data, LEN - LEN / 2);
        } else {
            send_frame(fd, 0x82, data, LEN);
        }
        expect_close_why(fd, 1009, "1048576 bytes");
        assert_true(client_sees_end(fd));
        close(fd);
    }
    free(data);
    harness_wait(h, none_open, NULL);
}

/* ---- ends ---- */

static void our_close_waits_for_the_peer(void **state)
{
    (void)state;
    int fd = ws_connect();
    send_frame(fd, 0x82, "close", 5);
    expect_close(fd, 4001);
    send_frame(fd, 0x88, "\x0f\xa1", 2);
    assert_true(client_sees_end(fd));
    close(fd);
    harness_wait(h, none_open, NULL);
}

static void a_peer_that_never_answers_our_close_is_cut(void **state)
{
    (void)state;
    int fd = ws_connect();
    send_frame(fd, 0x82, "close", 5);
    expect_close(fd, 4001);
    assert_true(client_sees_end(fd)); /* after five seconds */
    close(fd);
    harness_wait(h, none_open, NULL);
}

/* U7 */
static void u7_pings_come_and_two_misses_end_it(void **state)
{
    (void)state;
    int fd = ws_connect();
    for (int i = 0; i < 4; i++) { /* answered: stays open longer than two misses would last */
        struct frame f = read_any(fd);
        assert_int_equal(f.b0, 0x89);
        free(f.data);
        send_frame(fd, 0x8a, NULL, 0);
    }
    send_frame(fd, 0x82, "alive", 5);
    expect_data(fd, 0x82, "alive", 5);
    int pings = 0;
    for (;;) {
        struct frame f = read_any(fd);
        if (f.b0 < 0)
            break;
        assert_int_equal(f.b0, 0x89);
        free(f.data);
        pings++;
    }
    assert_in_range(pings, 2, 3);
    close(fd);
    harness_wait(h, none_open, NULL);
}

/* A paused socket delivers nothing, whatever is sent, lives on without its pongs being read, and then goes on in
 * order. */
static void a_paused_socket_waits_and_goes_on(void **state)
{
    (void)state;
    enum { MANY = 4000, LEN = 1000 };
    int fd = ws_connect();
    messages = wrong = 0;
    send_frame(fd, 0x82, "hold", 4);
    pid_t sender = fork(); /* the sockets' buffers fill up */
    if (sender == 0) {
        char block[LEN] = {0};
        for (int i = 0; i < MANY; i++) {
            snprintf(block, sizeof block, "%d", i);
            send_frame(fd, 0x82, block, sizeof block);
        }
        _exit(0);
    }
    for (int i = 0; i < 4; i++) { /* longer than two misses */
        struct frame f = read_any(fd);
        assert_int_equal(f.b0, 0x89);
        free(f.data);
    }
    int other = ws_connect();
    send_frame(other, 0x82, "other", 5); /* nobody else waits */
    expect_data(other, 0x82, "other", 5);
    assert_int_equal(messages, 1);
    harness_on_loop(h, go_on, NULL);
    for (int i = 0; i < MANY; i++) {
        struct frame f = read_frame(fd);
        assert_int_equal(f.b0, 0x82);
        assert_int_equal(f.len, LEN);
        assert_int_equal(strtol((char *)f.data, NULL, 10), i);
        free(f.data);
    }
    assert_int_equal(waitpid(sender, NULL, 0), sender);
    assert_int_equal(wrong, 0);
    close(fd);
    close(other);
    harness_wait(h, none_open, NULL);
}

static void a_paused_peer_that_leaves_is_noticed(void **state)
{
    (void)state;
    int fd = ws_connect();
    send_frame(fd, 0x82, "hold", 4);
    send_frame(fd, 0x82, "lost", 4);
    close(fd);
    harness_wait(h, none_open, NULL);
    holding = false;
}

/* Control frames behind what was held are heard when it goes on; and our own close does not wait for that. */
static void a_paused_socket_can_be_closed(void **state)
{
    (void)state;
    int fd = ws_connect();
    unsigned char frames[64];
    size_t n = make_frame(frames, 0x82, "hold", 4);
    n += make_frame(frames + n, 0x82, "behind", 6);
    n += make_frame(frames + n, 0x88, "\x03\xe8", 2);
    messages = 0;
    assert_int_equal(send(fd, frames, n, MSG_NOSIGNAL), n); /* read by one call: the rest is kept */
    struct frame f = read_any(fd);
    assert_int_equal(f.b0, 0x89);
    free(f.data);
    assert_int_equal(messages, 0);
    harness_on_loop(h, go_on, NULL);
    expect_data(fd, 0x82, "behind", 6);
    expect_close(fd, 1000);
    close(fd);
    harness_wait(h, none_open, NULL);
}

static void a_slow_reader_drains_through_a_bounded_queue(void **state)
{
    (void)state;
    int fd = ws_connect();
    send_frame(fd, 0x82, "flood", 5);
    size_t got = 0;
    for (;;) {
        struct frame f = read_frame(fd);
        if (f.b0 != 0x82) {
            assert_int_equal(f.b0, 0x88);
            free(f.data);
            break;
        }
        size_t left = (size_t)64 * 1024 * 1024 - got; /* whether it was written at once, in part, or queued */
        assert_int_equal(f.len, 32 * 1024);
        for (size_t i = 0; i + 1 < f.len; i++)
            if ((char)f.data[1 + i] != flood_byte(left, i))
                fail_msg("byte %zu of the block %zu before the end", i, left);
        got += f.len;
        free(f.data);
        send_frame(fd, 0x8a, NULL, 0);
    }
    assert_int_equal(got, 64 * 1024 * 1024);
    close(fd);
    harness_wait(h, none_open, NULL);
}

static void sockets_that_vanish_leave_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        int fd = ws_connect();
        if (i % 3 == 0)
            send_frame(fd, 0x82, "x", 1);
        if (i % 3 == 1) {
            struct linger now = {1, 0};
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        }
        close(fd);
    }
    harness_wait(h, none_open, NULL);
}

/* ---- drain ---- */

static int drained;

static void on_drained(void *arg)
{
    (void)arg;
    drained++;
}

static void drain(void *arg)
{
    (void)arg;
    http_server_drain(harness_server(h), 10000, on_drained, NULL);
}

static bool is_drained(void *arg)
{
    (void)arg;
    return drained == 1;
}

static void drain_tells_sockets_and_ends_idle_connections(void **state)
{
    (void)state;
    int idle = client_connect(h);
    struct reply r;
    client_puts(idle, "GET /nope HTTP/1.1\r\n" HOST "\r\n");
    client_reply(idle, &r, false);
    reply_free(&r);
    int told = ws_connect(), deaf = ws_connect_path("/ws?deaf=1");
    harness_on_loop(h, drain, NULL);
    assert_true(harness_gateway(h)->draining);
    assert_true(client_sees_end(idle));
    expect_close(told, 1001);
    send_frame(told, 0x88, "\x03\xe9", 2);
    expect_close(deaf, 1001);
    send_frame(deaf, 0x88, "\x03\xe9", 2);
    assert_true(client_sees_end(told));
    assert_true(client_sees_end(deaf));
    harness_wait(h, is_drained, NULL);
    assert_int_equal(shut, 1);
    close(idle);
    close(told);
    close(deaf);
    harness_wait(h, none_open, NULL);
}

/* The server ends while a handler still thinks: what it hands over then must not leak. */
static void an_upgrade_after_the_end_is_told_closed(void **state)
{
    (void)state;
    struct harness *outer = h;
    h = harness_start(NULL, table, sizeof table / sizeof *table);
    int fd = client_connect(h);
    client_puts(fd, "GET /later HTTP/1.1\r\n" HOST AUTH KEY UPGRADE OFFER "\r\n");
    harness_wait(h, is_thinking, NULL);
    harness_stop(h);
    h = outer;
    assert_true(client_sees_end(fd));
    int before = closed;
    struct exchange *ex = thinking;
    thinking = NULL;
    ex_upgrade(ex, "sandgate.v1", &events, calloc(1, sizeof(struct echo)));
    assert_int_equal(closed, before + 1);
    opened++; /* never was: none_open compares the two */
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_handshakes_are_problem_documents),
        cmocka_unit_test(p49_a_token_may_come_as_subprotocol),
        cmocka_unit_test(the_number_of_sockets_is_limited),
        cmocka_unit_test(a_handler_may_upgrade_later_or_too_late),
        cmocka_unit_test(an_upgrade_after_the_end_is_told_closed),
        cmocka_unit_test(echo_of_all_sizes),
        cmocka_unit_test(fragments_with_a_ping_between),
        cmocka_unit_test(a_frame_sent_with_the_handshake_is_kept),
        cmocka_unit_test(an_upgrade_after_keep_alive_requests),
        cmocka_unit_test(faults_get_their_close_code),
        cmocka_unit_test(an_oversized_message_is_1009),
        cmocka_unit_test(our_close_waits_for_the_peer),
        cmocka_unit_test(a_peer_that_never_answers_our_close_is_cut),
        cmocka_unit_test(u7_pings_come_and_two_misses_end_it),
        cmocka_unit_test(a_paused_socket_waits_and_goes_on),
        cmocka_unit_test(a_paused_peer_that_leaves_is_noticed),
        cmocka_unit_test(a_paused_socket_can_be_closed),
        cmocka_unit_test(a_slow_reader_drains_through_a_bounded_queue),
        cmocka_unit_test(sockets_that_vanish_leave_nothing),
        cmocka_unit_test(drain_tells_sockets_and_ends_idle_connections),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
