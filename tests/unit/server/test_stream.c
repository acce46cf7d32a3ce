/* Streamed answers and uploads: bounded queues, slow peers, peers that leave. */
#include "harness.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BIG = 64 * 1024 * 1024, PIECE = 32 * 1024 };

/* ---- producer: writes BIG patterned bytes, honouring EX_STREAM_HIGH ---- */

struct producer {
    struct producer *older;
    struct ex_stream *s;
    size_t written, total, peak;
    bool stall; /* never ends by itself */
    int gone, drains;
};

static struct producer *last; /* survives for the test to look at */

static unsigned char pattern(size_t at)
{
    return (unsigned char)(at * 7 + at / 251);
}

static void fill(char *buf, size_t at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        buf[i] = (char)pattern(at + i);
}

static void produce(struct producer *p)
{
    static char buf[PIECE];
    while (p->written < p->total && ex_stream_queued(p->s) <= EX_STREAM_HIGH) {
        size_t n = p->total - p->written < PIECE ? p->total - p->written : PIECE;
        fill(buf, p->written, n);
        if (!ex_stream_write(p->s, buf, n)) {
            ex_stream_abort(p->s);
            return;
        }
        p->written += n;
        if (ex_stream_queued(p->s) > p->peak)
            p->peak = ex_stream_queued(p->s);
    }
    if (p->written == p->total && !p->stall)
        ex_stream_end(p->s);
}

static void on_drain(void *arg)
{
    struct producer *p = arg;
    p->drains++;
    produce(p);
}

static void on_gone(void *arg)
{
    struct producer *p = arg;
    p->gone++;
    p->s = NULL;
}

static struct producer *begin(struct exchange *ex, size_t total, int64_t length, bool stall)
{
    struct producer *p = calloc(1, sizeof *p);
    p->older = last;
    last = p;
    p->total = total;
    p->stall = stall;
    p->s = ex_stream_begin(ex, 200, "application/octet-stream", length, on_drain, on_gone, p);
    return p;
}

static void big_chunked(struct exchange *ex)
{
    produce(begin(ex, BIG, -1, false));
}

static void big_sized(struct exchange *ex)
{
    produce(begin(ex, BIG, BIG, false));
}

static void endless(struct exchange *ex)
{
    produce(begin(ex, 10, -1, true));
}

static void cut_short(struct exchange *ex)
{
    struct producer *p = begin(ex, 1000, -1, true);
    produce(p);
    ex_stream_abort(p->s);
}

static void short_of_length(struct exchange *ex)
{
    struct producer *p = begin(ex, 1000, 2000, false);
    produce(p);
}

/* Ends only after everything was taken. */
static void sized_late_end(struct exchange *ex)
{
    produce(begin(ex, 1000, 1000, true));
}

/* ---- sink ---- */

struct sink {
    struct exchange *ex;
    size_t got, per_call, pauses;
    size_t refuse_at; /* 0: never */
    bool wrong, ended, paused, busy, resume_inside;
    int gone;
};

static struct sink sink;

static size_t on_data(void *arg, const char *data, size_t len)
{
    struct sink *s = arg;
    size_t n = len < s->per_call ? len : s->per_call;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)data[i] != pattern(s->got + i))
            s->wrong = true;
    s->got += n;
    if (s->refuse_at && s->got >= s->refuse_at) {
        struct sg_error e;
        (void)sg_fail(&e, SG_E_NO_SPACE, SG_NOT_STARTED, "full");
        s->busy = false;
        ex_fail(s->ex, &e);
        return n;
    }
    if (s->resume_inside && n < len) {
        ex_receive_resume(s->ex);
        return n;
    }
    if (n < len) {
        s->pauses++;
        s->paused = true;
    }
    return n;
}

static void on_end(void *arg)
{
    struct sink *s = arg;
    s->ended = true;
    s->busy = false;
    ex_answer_json(s->ex, 201, json_pack("{s:I}", "size", (json_int_t)s->got));
}

static void on_upload_gone(void *arg)
{
    struct sink *s = arg;
    s->gone++;
    s->busy = false;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_INTERNAL, SG_OUTCOME_UNKNOWN, "gone");
    ex_fail(s->ex, &e);
}

static const struct ex_sink events = {on_data, on_end};

static void begin_sink(struct exchange *ex, size_t per_call, size_t refuse_at)
{
    sink = (struct sink){.ex = ex, .per_call = per_call, .refuse_at = refuse_at, .busy = true};
    ex_on_gone(ex, on_upload_gone, &sink);
}

static void upload(struct exchange *ex)
{
    begin_sink(ex, SIZE_MAX, 0);
    ex_receive(ex, &events, &sink);
}

static void upload_slow(struct exchange *ex)
{
    begin_sink(ex, 5000, 0);
    ex_receive(ex, &events, &sink);
}

static void upload_resumed_inside(struct exchange *ex)
{
    begin_sink(ex, 100, 0);
    sink.resume_inside = true;
    ex_receive(ex, &events, &sink);
}

/* The sink is only offered when the test says so. */
static void upload_later(struct exchange *ex)
{
    begin_sink(ex, SIZE_MAX, 0);
}

static void upload_refused_midway(struct exchange *ex)
{
    begin_sink(ex, SIZE_MAX, 1000000);
    ex_receive(ex, &events, &sink);
}

static const struct route table[] = {
    {"GET", "/big", ROUTE_LOOP, AUTH_NONE, BODY_NONE, big_chunked},
    {"GET", "/big-sized", ROUTE_LOOP, AUTH_NONE, BODY_NONE, big_sized},
    {"GET", "/endless", ROUTE_LOOP, AUTH_NONE, BODY_NONE, endless},
    {"GET", "/cut", ROUTE_LOOP, AUTH_NONE, BODY_NONE, cut_short},
    {"GET", "/short", ROUTE_LOOP, AUTH_NONE, BODY_NONE, short_of_length},
    {"GET", "/late-end", ROUTE_LOOP, AUTH_NONE, BODY_NONE, sized_late_end},
    {"PUT", "/upload", ROUTE_UPLOAD, AUTH_TOKEN, BODY_RAW, upload},
    {"PUT", "/slow", ROUTE_UPLOAD, AUTH_TOKEN, BODY_RAW, upload_slow},
    {"PUT", "/inside", ROUTE_UPLOAD, AUTH_TOKEN, BODY_RAW, upload_resumed_inside},
    {"PUT", "/later", ROUTE_UPLOAD, AUTH_TOKEN, BODY_RAW, upload_later},
    {"PUT", "/refused", ROUTE_UPLOAD, AUTH_TOKEN, BODY_RAW, upload_refused_midway},
};

static struct harness *h;

static int setup(void **state)
{
    (void)state;
    h = harness_start(NULL, table, sizeof table / sizeof *table);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    harness_stop(h);
    while (last) {
        struct producer *p = last;
        last = p->older;
        free(p);
    }
    return 0;
}

/* ---- conditions ---- */

static bool no_requests(void *arg)
{
    (void)arg;
    struct http_stats s;
    http_server_stats(harness_server(h), &s);
    return s.requests == 0;
}

static bool producer_told(void *arg)
{
    (void)arg;
    return last && last->gone == 1;
}

static bool producer_waits(void *arg)
{
    size_t *before = arg;
    size_t now = last && last->total == BIG ? last->written : 0;
    bool same = now == *before && now > 0;
    *before = now;
    return same;
}

static bool sink_paused(void *arg)
{
    (void)arg;
    return sink.paused;
}

static bool sink_told(void *arg)
{
    (void)arg;
    return sink.gone == 1;
}

static bool sink_begun(void *arg)
{
    (void)arg;
    return sink.busy;
}

/* ---- streamed answers ---- */

static void put_head(int fd, const char *path, size_t len, const char *more)
{
    char head[512];
    snprintf(head, sizeof head, "PUT %s HTTP/1.1\r\n" HOST AUTH "Content-Length: %zu\r\n%s\r\n", path, len,
             more);
    client_puts(fd, head);
}

static void read_big(const char *path, bool slow)
{
    char request[128];
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\n" HOST "\r\n", path);
    int fd = client_connect(h);
    if (slow) {
        int small = 64 * 1024;
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        client_puts(fd, request);
        size_t before = 0;
        harness_wait(h, producer_waits, &before); /* nobody reads: it must come to rest … */
        assert_true(before < BIG / 2);            /* … long before the end */
    } else {
        client_puts(fd, request);
    }
    struct reply r;
    client_reply(fd, &r, false);
    assert_int_equal(r.status, 200);
    assert_string_equal(reply_header(&r, "Cache-Control"), "no-store, no-transform");
    assert_string_equal(reply_header(&r, "X-Accel-Buffering"), "no");
    assert_false(r.cut);
    assert_int_equal(r.body.len, BIG);
    for (size_t i = 0; i < BIG; i += 4093)
        assert_int_equal((unsigned char)r.body.data[i], pattern(i));
    harness_wait(h, no_requests, NULL);
    assert_true(last->peak <= EX_STREAM_HIGH + PIECE);
    assert_true(last->drains > 10);
    assert_int_equal(last->gone, 0);
    reply_free(&r);
    close(fd);
}

static void a_slow_reader_of_64_mib_has_a_bounded_queue(void **state)
{
    (void)state;
    read_big("/big", true);
}

static void a_sized_answer_is_exact(void **state)
{
    (void)state;
    read_big("/big-sized", false);
}

static void a_client_gone_mid_stream_is_told_to_the_producer(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        int fd = client_connect(h);
        client_puts(fd, i ? "GET /big HTTP/1.1\r\n" HOST "\r\n" : "GET /endless HTTP/1.1\r\n" HOST "\r\n");
        char c[100];
        assert_true(recv(fd, c, sizeof c, 0) > 0);
        close(fd); /* i = 0: the connection is suspended; 1: blocked in writing */
        harness_wait(h, producer_told, NULL);
        harness_wait(h, no_requests, NULL);
    }
}

static void an_aborted_stream_is_seen_as_cut(void **state)
{
    (void)state;
    struct reply r;
    exchange_once(h, "GET /cut HTTP/1.1\r\n" HOST "\r\n", &r);
    assert_true(r.cut);
    reply_free(&r);
    exchange_once(h, "GET /short HTTP/1.1\r\n" HOST "\r\n", &r);
    assert_int_equal(r.status, 200);
    assert_true(r.cut);
    reply_free(&r);
}

static void end_last(void *arg)
{
    (void)arg;
    ex_stream_end(last->s);
}

static void a_sized_stream_may_end_after_its_last_byte_was_sent(void **state)
{
    (void)state;
    int fd = client_connect(h);
    client_puts(fd, "GET /late-end HTTP/1.1\r\n" HOST "\r\n");
    struct reply r;
    client_reply(fd, &r, false);
    assert_int_equal(r.body.len, 1000);
    reply_free(&r);
    assert_int_equal(last->gone, 0);
    harness_on_loop(h, end_last, NULL);
    harness_wait(h, no_requests, NULL);
    assert_int_equal(last->gone, 0);
    close(fd);
}

static void head_of_a_stream_ends_the_producer(void **state)
{
    (void)state;
    struct reply r;
    exchange_once(h, "HEAD /endless HTTP/1.1\r\n" HOST "\r\n", &r);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    harness_wait(h, producer_told, NULL);
    harness_wait(h, no_requests, NULL);
}

static int64_t cpu_ms(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000 + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1000;
}

/* Readiness that nobody wants must not keep the loop turning. */
static void a_server_with_nothing_to_do_sleeps(void **state)
{
    (void)state;
    int fds[4];
    for (size_t i = 0; i < 4; i++)
        fds[i] = client_connect(h);
    client_puts(fds[1], "GET /endless HTTP/1.1\r\n" HOST "\r\nGET /pipelined HTTP/1.1\r\n"); /* suspended */
    char c[10];
    assert_true(recv(fds[1], c, sizeof c, 0) > 0);
    client_puts(fds[2],
                "GET /big HTTP/1.1\r\n" HOST "\r\nGET /pipelined HTTP/1.1\r\n"); /* blocked in writing */
    size_t before = 0;
    harness_wait(h, producer_waits, &before);
    sink = (struct sink){0};
    put_head(fds[3], "/slow", 100000, ""); /* paused */
    char data[6000] = "";
    client_send(fds[3], data, sizeof data);
    harness_wait(h, sink_paused, NULL);
    int64_t used = cpu_ms();
    usleep(500000); /* the thing measured, not a wait for something */
    assert_true(cpu_ms() - used < 100);
    for (size_t i = 0; i < 4; i++)
        close(fds[i]);
    harness_wait(h, no_requests, NULL);
}

/* ---- uploads ---- */

static char *patterned(size_t len)
{
    char *p = malloc(len);
    assert_non_null(p);
    fill(p, 0, len);
    return p;
}

static void resume_sink(void *arg)
{
    (void)arg;
    if (sink.paused) {
        sink.paused = false;
        ex_receive_resume(sink.ex);
    }
}

static void offer_sink(void *arg)
{
    (void)arg;
    ex_receive(sink.ex, &events, &sink);
}

static void an_upload_of_64_mib_arrives_whole(void **state)
{
    (void)state;
    char *body = patterned(BIG);
    int fd = client_connect(h);
    put_head(fd, "/upload", BIG, "");
    client_send(fd, body, BIG);
    struct reply r;
    client_reply(fd, &r, false);
    assert_int_equal(r.status, 201);
    assert_int_equal(sink.got, BIG);
    assert_false(sink.wrong);
    reply_free(&r);
    put_head(fd, "/upload", 0, ""); /* the connection lives on; an empty body ends at once */
    client_reply(fd, &r, false);
    assert_int_equal(r.status, 201);
    assert_int_equal(sink.got, 0);
    reply_free(&r);
    close(fd);
    free(body);
}

static bool sink_resumed_to_the_end(void *arg)
{
    resume_sink(arg);
    return sink.ended;
}

static void a_slow_sink_holds_the_client_back(void **state)
{
    (void)state;
    enum { LEN = 8 * 1024 * 1024 };
    char *body = patterned(LEN);
    int fd = client_connect(h);
    put_head(fd, "/slow", LEN, "");
    size_t sent = 0;
    for (;;) { /* until the socket takes no more: the pause reaches us */
        ssize_t n = send(fd, body + sent, LEN - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0) {
            harness_wait(h, sink_paused, NULL);
            n = send(fd, body + sent, LEN - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (n < 0)
                break;
        }
        sent += (size_t)n;
        assert_true(sent < LEN);
    }
    assert_int_equal(sink.got, 5000);
    while (sent < LEN) {
        harness_on_loop(h, resume_sink, NULL);
        ssize_t n = send(fd, body + sent, LEN - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0)
            sent += (size_t)n;
    }
    harness_wait(h, sink_resumed_to_the_end, NULL);
    struct reply r;
    client_reply(fd, &r, false);
    assert_int_equal(r.status, 201);
    assert_int_equal(sink.got, LEN);
    assert_false(sink.wrong);
    assert_true(sink.pauses > 100);
    reply_free(&r);
    close(fd);
    free(body);
}

static void a_resume_from_inside_the_sink_is_not_lost(void **state)
{
    (void)state;
    char *body = patterned(100000);
    int fd = client_connect(h);
    put_head(fd, "/inside", 100000, "");
    client_send(fd, body, 100000);
    struct reply r;
    client_reply(fd, &r, false);
    assert_int_equal(r.status, 201);
    assert_int_equal(sink.got, 100000);
    assert_false(sink.wrong);
    reply_free(&r);
    close(fd);
    free(body);
}

static void a_chunked_upload_and_a_late_sink(void **state)
{
    (void)state;
    sink.busy = false;
    int fd = client_connect(h);
    client_puts(fd, "PUT /later HTTP/1.1\r\n" HOST AUTH "Transfer-Encoding: chunked\r\n\r\n");
    char data[300];
    fill(data, 0, sizeof data);
    for (size_t at = 0; at < 300; at += 100) {
        client_puts(fd, "64\r\n");
        client_send(fd, data + at, 100);
        client_puts(fd, "\r\n");
    }
    client_puts(fd, "0\r\n\r\n");
    harness_wait(h, sink_begun, NULL);
    harness_on_loop(h, offer_sink, NULL);
    struct reply r;
    client_reply(fd, &r, false);
    assert_int_equal(r.status, 201);
    assert_int_equal(sink.got, 300);
    assert_false(sink.wrong);
    reply_free(&r);
    close(fd);
}

static void a_refusal_in_the_middle_reaches_a_sending_client(void **state)
{
    (void)state;
    enum { LEN = 3 * 1024 * 1024 };
    char *body = patterned(LEN);
    for (int i = 0; i < 5; i++) {
        int fd = client_connect(h);
        put_head(fd, "/refused", (size_t)1 << 30, "");
        client_send(fd, body, LEN);
        struct reply r;
        client_reply(fd, &r, false);
        assert_problem(&r, 507, "no_space");
        reply_free(&r);
        close(fd);
    }
    harness_wait(h, no_requests, NULL);
    free(body);
}

static void an_uploader_that_leaves_is_told_to_the_sink(void **state)
{
    (void)state;
    for (int paused = 0; paused < 2; paused++) {
        sink = (struct sink){0};
        int fd = client_connect(h);
        put_head(fd, paused ? "/slow" : "/upload", 1000000, "");
        char *body = patterned(20000);
        client_send(fd, body, 20000);
        free(body);
        harness_wait(h, paused ? sink_paused : sink_begun, NULL);
        close(fd);
        harness_wait(h, sink_told, NULL);
        harness_wait(h, no_requests, NULL);
    }
}

static void an_upload_without_a_token_gets_no_continue(void **state)
{
    (void)state;
    int fd = client_connect(h);
    client_puts(fd,
                "PUT /upload HTTP/1.1\r\n" HOST "Content-Length: 1000000\r\nExpect: 100-continue\r\n\r\n");
    struct reply r;
    client_reply(fd, &r, false);
    assert_problem(&r, 401, "unauthenticated");
    assert_true(client_sees_end(fd));
    reply_free(&r);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_reader_of_64_mib_has_a_bounded_queue),
        cmocka_unit_test(a_sized_answer_is_exact),
        cmocka_unit_test(a_client_gone_mid_stream_is_told_to_the_producer),
        cmocka_unit_test(an_aborted_stream_is_seen_as_cut),
        cmocka_unit_test(a_sized_stream_may_end_after_its_last_byte_was_sent),
        cmocka_unit_test(head_of_a_stream_ends_the_producer),
        cmocka_unit_test(a_server_with_nothing_to_do_sleeps),
        cmocka_unit_test(an_upload_of_64_mib_arrives_whole),
        cmocka_unit_test(a_slow_sink_holds_the_client_back),
        cmocka_unit_test(a_resume_from_inside_the_sink_is_not_lost),
        cmocka_unit_test(a_chunked_upload_and_a_late_sink),
        cmocka_unit_test(a_refusal_in_the_middle_reaches_a_sending_client),
        cmocka_unit_test(an_uploader_that_leaves_is_told_to_the_sink),
        cmocka_unit_test(an_upload_without_a_token_gets_no_continue),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
