/* Shutting down: what runs may finish, what idles is closed, what hangs is cut in time. */
#include "harness.h"

#include "base/clock.h"

#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static sem_t entered, release;
static struct exchange *parked;
static int gone_calls;

static void busy(struct exchange *ex)
{
    sem_post(&entered);
    sem_wait(&release);
    ex_answer_json(ex, 200, json_pack("{s:b}", "finished", 1));
}

static void on_gone(void *arg)
{
    gone_calls++;
    parked = NULL;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_DRAINING, SG_NOT_SENT, "gone");
    ex_fail(arg, &e);
}

static void park(struct exchange *ex)
{
    parked = ex;
    ex_on_gone(ex, on_gone, ex);
    sem_post(&entered);
}

/* Holds on to the exchange beyond the server's life. */
static void forget(struct exchange *ex)
{
    parked = ex;
    sem_post(&entered);
}

static void hello(struct exchange *ex)
{
    ex_answer_json(ex, 200, json_object());
}

static int stream_gone_calls;

static void on_stream_gone(void *arg)
{
    (void)arg;
    stream_gone_calls++;
}

static void stream(struct exchange *ex)
{
    struct ex_stream *s = ex_stream_begin(ex, 200, "text/plain", -1, NULL, on_stream_gone, NULL);
    assert_true(ex_stream_write(s, "x", 1));
}

static const struct route table[] = {
    {"GET", "/busy", ROUTE_WORKER, AUTH_NONE, BODY_NONE, busy},
    {"GET", "/park", ROUTE_LOOP, AUTH_NONE, BODY_NONE, park},
    {"GET", "/forget", ROUTE_LOOP, AUTH_NONE, BODY_NONE, forget},
    {"GET", "/stream", ROUTE_LOOP, AUTH_NONE, BODY_NONE, stream},
    {"GET", "/hello", ROUTE_LOOP, AUTH_NONE, BODY_NONE, hello},
};

static struct harness *start(uint64_t idle_ms)
{
    sem_init(&entered, 0, 0);
    sem_init(&release, 0, 0);
    parked = NULL;
    gone_calls = stream_gone_calls = 0;
    struct http_server_config cfg = {.idle_timeout_ms = idle_ms};
    return harness_start(&cfg, table, sizeof table / sizeof *table);
}

static int drained;

static void on_drained(void *arg)
{
    (void)arg;
    drained++;
}

struct drain {
    struct harness *h;
    uint64_t ms;
};

static void begin_drain(void *arg)
{
    struct drain *d = arg;
    http_server_drain(harness_server(d->h), d->ms, on_drained, NULL);
}

static void drain(struct harness *h, uint64_t ms)
{
    drained = 0;
    struct drain d = {h, ms};
    harness_on_loop(h, begin_drain, &d);
}

static bool is_drained(void *arg)
{
    (void)arg;
    return drained == 1;
}

static bool can_connect(struct harness *h)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons((uint16_t)harness_port(h))};
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bool ok = connect(fd, (struct sockaddr *)&sa, sizeof sa) == 0;
    close(fd);
    return ok;
}

static void running_requests_finish(void **state)
{
    (void)state;
    struct harness *h = start(0);
    int fd = client_connect(h), idle = client_connect(h), late = client_connect(h);
    client_puts(fd, "GET /busy HTTP/1.1\r\n" HOST "\r\n");
    client_puts(late, "GET /hello HTTP/1.1\r\nHos"); /* has begun: is served */
    sem_wait(&entered);
    struct reply r;
    client_puts(idle, "GET /hello HTTP/1.1\r\n" HOST "\r\n");
    client_reply(idle, &r, false);
    reply_free(&r);
    drain(h, 10000);
    assert_true(client_sees_end(idle));
    assert_false(can_connect(h));
    client_puts(late, "t: x\r\n\r\n");
    client_reply(late, &r, false);
    assert_int_equal(r.status, 200);
    assert_string_equal(reply_header(&r, "Connection"), "close");
    reply_free(&r);
    assert_int_equal(drained, 0);
    sem_post(&release);
    client_reply(fd, &r, false);
    assert_int_equal(r.status, 200);
    assert_string_equal(reply_header(&r, "Connection"), "close");
    assert_true(client_sees_end(fd));
    reply_free(&r);
    harness_wait(h, is_drained, NULL);
    close(fd);
    close(idle);
    close(late);
    harness_stop(h);
}

static void what_hangs_is_cut_in_time(void **state)
{
    (void)state;
    struct harness *h = start(0);
    int a = client_connect(h), b = client_connect(h);
    client_puts(a, "GET /park HTTP/1.1\r\n" HOST "\r\n");
    client_puts(b, "GET /stream HTTP/1.1\r\n" HOST "\r\n");
    sem_wait(&entered);
    char c;
    assert_int_equal(recv(b, &c, 1, 0), 1);
    int64_t before = sg_mono_ms();
    drain(h, 300);
    harness_wait(h, is_drained, NULL);
    assert_in_range(sg_mono_ms() - before, 290, 5000);
    assert_int_equal(gone_calls, 0);
    harness_stop(h); /* asserts, with the sanitizers, that nothing is left */
    assert_int_equal(gone_calls, 1);
    assert_int_equal(stream_gone_calls, 1);
    assert_true(client_sees_end(a));
    assert_true(client_sees_end(b));
    close(a);
    close(b);
}

static void an_answer_after_the_end_is_harmless(void **state)
{
    (void)state;
    struct harness *h = start(0);
    int fd = client_connect(h);
    client_puts(fd, "GET /forget HTTP/1.1\r\n" HOST "\r\n");
    sem_wait(&entered);
    harness_stop(h);
    assert_true(client_sees_end(fd));
    ex_answer_json(parked, 200, json_object());
    close(fd);
}

static void *free_worker_soon(void *arg)
{
    (void)arg;
    usleep(50000);
    sem_post(&release);
    return NULL;
}

static void stopping_waits_for_workers(void **state)
{
    (void)state;
    struct harness *h = start(0);
    int fd = client_connect(h);
    client_puts(fd, "GET /busy HTTP/1.1\r\n" HOST "\r\n");
    sem_wait(&entered);
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, free_worker_soon, NULL), 0);
    harness_stop(h);
    pthread_join(t, NULL);
    close(fd);
}

static void idle_connections_are_closed(void **state)
{
    (void)state;
    struct harness *h = start(500);
    int quiet = client_connect(h), used = client_connect(h), drip = client_connect(h);
    struct reply r;
    client_puts(used, "GET /hello HTTP/1.1\r\n" HOST "\r\n");
    client_reply(used, &r, false);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    int64_t before = sg_mono_ms();
    while (send(drip, "G", 1, MSG_NOSIGNAL) == 1 &&
           sg_mono_ms() - before < 10000) /* a line that never ends */
        usleep(100000);
    assert_in_range(sg_mono_ms() - before, 400, 9000);
    assert_true(client_sees_end(quiet));
    assert_true(client_sees_end(used));
    close(quiet);
    close(used);
    close(drip);
    harness_stop(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(running_requests_finish),
        cmocka_unit_test(what_hangs_is_cut_in_time),
        cmocka_unit_test(an_answer_after_the_end_is_harmless),
        cmocka_unit_test(stopping_waits_for_workers),
        cmocka_unit_test(idle_connections_are_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
