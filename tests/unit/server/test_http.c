/* The HTTP front as a client sees it: routing, auth, bodies, problem documents. */
#include "harness.h"

#include "base/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- routes ---- */

static void answer_echo(struct exchange *ex)
{
    size_t len = 0;
    const char *q = ex_query(ex, "q", &len);
    const char *h = ex_header(ex, "x-test");
    json_t *doc =
        json_pack("{s:s?, s:s?, s:s?, s:s, s:O?}", "param", ex->params[0], "who",
                  ex->who ? ex->who->id : NULL, "header", h, "method", ex->method, "body", ex->body);
    if (q)
        json_object_set_new(doc, "q", json_stringn(q, len));
    ex_answer_json(ex, 200, doc);
}

static void echo(struct exchange *ex)
{
    answer_echo(ex);
}

static void strict_query(struct exchange *ex)
{
    static const char *const allowed[] = {"n", "path", NULL};
    struct sg_error e;
    int64_t n = -1;
    if (ex_query_only(ex, allowed, &e) || ex_query_int(ex, "n", 0, 100, &n, &e))
        ex_fail(ex, &e);
    else
        ex_answer_json(ex, 200, json_pack("{s:I}", "n", (json_int_t)n));
}

static void rate_limited(struct exchange *ex)
{
    struct sg_error e;
    (void)sg_fail(&e, SG_E_UPSTREAM_RATE_LIMITED, SG_NOT_STARTED, "the upstream said wait");
    e.retry_after_ms = 1500;
    e.upstream_status = 429;
    ex_fail(ex, &e);
}

static void empty(struct exchange *ex)
{
    ex_set_header(ex, "X-Bad", "a\r\nInjected: 1");
    ex_set_header(ex, "ETag", "\"1\"");
    ex_answer_empty(ex, 204);
}

static void silent_worker(struct exchange *ex)
{
    (void)ex;
}

static void twice(struct exchange *ex)
{
    ex_answer_json(ex, 200, json_pack("{s:i}", "first", 1));
    ex_answer_json(ex, 500, json_pack("{s:i}", "second", 2));
}

/* Holds workers until told. */
static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_open = PTHREAD_COND_INITIALIZER;
static bool gate_is_open;

static void blocked(struct exchange *ex)
{
    pthread_mutex_lock(&gate_lock);
    while (!gate_is_open)
        pthread_cond_wait(&gate_open, &gate_lock);
    pthread_mutex_unlock(&gate_lock);
    ex_answer_json(ex, 200, json_object());
}

/* Answers later, on the loop. */
static struct exchange *parked;
static int gone_calls;

static void on_parked_gone(void *arg)
{
    struct exchange *ex = arg;
    gone_calls++;
    parked = NULL;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_INTERNAL, SG_NOT_SENT, "gone");
    ex_fail(ex, &e);
}

static void park(struct exchange *ex)
{
    parked = ex;
    ex_on_gone(ex, on_parked_gone, ex);
}

static const struct route table[] = {
    {"GET", "/v1/echo/{x}", ROUTE_LOOP, AUTH_TOKEN, BODY_NONE, echo},
    {"POST", "/v1/echo/{x}", ROUTE_WORKER, AUTH_TOKEN, BODY_JSON, echo},
    {"PUT", "/v1/echo/{x}", ROUTE_LOOP, AUTH_TOKEN, BODY_JSON, echo},
    {"GET", "/v1/echo/{x}/{y}/sub", ROUTE_WORKER, AUTH_NONE, BODY_NONE, echo},
    {"GET", "/open", ROUTE_LOOP, AUTH_NONE, BODY_NONE, echo},
    {"GET", "/query", ROUTE_LOOP, AUTH_NONE, BODY_NONE, strict_query},
    {"GET", "/limited", ROUTE_WORKER, AUTH_NONE, BODY_NONE, rate_limited},
    {"DELETE", "/empty", ROUTE_WORKER, AUTH_NONE, BODY_NONE, empty},
    {"GET", "/silent", ROUTE_WORKER, AUTH_NONE, BODY_NONE, silent_worker},
    {"GET", "/twice", ROUTE_LOOP, AUTH_NONE, BODY_NONE, twice},
    {"GET", "/blocked", ROUTE_WORKER, AUTH_NONE, BODY_NONE, blocked},
    {"GET", "/park", ROUTE_LOOP, AUTH_NONE, BODY_NONE, park},
};

static struct harness *h;

static int setup(void **state)
{
    (void)state;
    static const struct http_server_config cfg = {
        .max_json_body = 100000, .workers = 4, .worker_queue = 2, .request_timeout_ms = 1500};
    h = harness_start(&cfg, table, sizeof table / sizeof *table);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    harness_stop(h);
    return 0;
}

/* ---- tests ---- */

static void loop_route_answers_json(void **state)
{
    (void)state;
    struct reply r;
    exchange_once(h, "GET /v1/echo/a%20b?q=x%00y+z HTTP/1.1\r\n" HOST AUTH "X-Test: v\r\n\r\n", &r);
    assert_int_equal(r.status, 200);
    assert_string_equal(reply_header(&r, "Content-Type"), "application/json");
    assert_string_equal(reply_header(&r, "Cache-Control"), "no-store");
    json_t *doc = reply_json(&r);
    assert_string_equal(json_string_value(json_object_get(doc, "param")), "a b");
    assert_string_equal(json_string_value(json_object_get(doc, "who")), "abcdefghijkl");
    assert_string_equal(json_string_value(json_object_get(doc, "header")), "v");
    const json_t *q = json_object_get(doc, "q");
    assert_int_equal(json_string_length(q), 5);
    assert_memory_equal(json_string_value(q), "x\0y z", 5);
    json_decref(doc);
    reply_free(&r);
}

static void worker_route_gets_the_parsed_body(void **state)
{
    (void)state;
    struct reply r;
    exchange_once(h,
                  "POST /v1/echo/p HTTP/1.1\r\n" HOST AUTH "Content-Type: application/json; charset=utf-8\r\n"
                  "Content-Length: 9\r\n\r\n{\"k\":[1]}",
                  &r);
    assert_int_equal(r.status, 200);
    json_t *doc = reply_json(&r);
    json_t *body = json_object_get(doc, "body");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(body, "k"), 0)), 1);
    json_decref(doc);
    reply_free(&r);
}

static void an_empty_body_is_an_empty_object(void **state)
{
    (void)state;
    struct reply r;
    exchange_once(h, "POST /v1/echo/p HTTP/1.1\r\n" HOST AUTH "Content-Length: 0\r\n\r\n", &r);
    assert_int_equal(r.status, 200);
    json_t *doc = reply_json(&r);
    assert_true(json_is_object(json_object_get(doc, "body")));
    json_decref(doc);
    reply_free(&r);
}

static void chunked_json_is_collected(void **state)
{
    (void)state;
    struct reply r;
    int fd = client_connect(h);
    client_puts(fd, "PUT /v1/echo/p HTTP/1.1\r\n" HOST AUTH "Content-Type: application/json\r\n"
                    "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n");
    client_puts(fd, "2\r\n1}\r\n0\r\n\r\n");
    client_reply(fd, &r, false);
    assert_int_equal(r.status, 200);
    json_t *doc = reply_json(&r);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(doc, "body"), "a")), 1);
    json_decref(doc);
    reply_free(&r);
    close(fd);
}

static void keep_alive_and_pipelining(void **state)
{
    (void)state;
    int fd = client_connect(h);
    client_puts(fd, "GET /v1/echo/1 HTTP/1.1\r\n" HOST AUTH "\r\n"
                    "POST /v1/echo/2 HTTP/1.1\r\n" HOST AUTH "Content-Type: application/json\r\n"
                    "Content-Length: 2\r\n\r\n{}"
                    "GET /nowhere HTTP/1.1\r\n" HOST "\r\n"
                    "GET /v1/echo/4 HTTP/1.1\r\n" HOST "\r\n"
                    "GET /v1/echo/5 HTTP/1.1\r\n" HOST AUTH "\r\n");
    static const int expected[] = {200, 200, 404, 401, 200};
    for (size_t i = 0; i < 5; i++) {
        struct reply r;
        client_reply(fd, &r, false);
        assert_int_equal(r.status, expected[i]);
        reply_free(&r);
    }
    client_puts(fd, "GET /v1/echo/6 HTTP/1.1\r\n" HOST AUTH "Connection: close\r\n\r\n");
    struct reply r;
    client_reply(fd, &r, false);
    assert_int_equal(r.status, 200);
    assert_true(client_sees_end(fd));
    reply_free(&r);
    close(fd);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *request;
        int status;
        const char *code;
    } cases[] = {
        {"GET /nope HTTP/1.1\r\n" HOST "\r\n", 404, "route_not_found"},
        {"GET /v1/echo/ HTTP/1.1\r\n" HOST AUTH "\r\n", 404, "route_not_found"},
        {"GET /v1/echo/a%2Fb HTTP/1.1\r\n" HOST AUTH "\r\n", 404, "route_not_found"},
        {"GET /v1/echo/a%00b HTTP/1.1\r\n" HOST AUTH "\r\n", 404, "route_not_found"},
        {"GET /v1/echo/a%zz HTTP/1.1\r\n" HOST AUTH "\r\n", 400, "bad_request"},
        {"GET /v1/echo/a?q=%f HTTP/1.1\r\n" HOST AUTH "\r\n", 400, "bad_request"},
        {"GET * HTTP/1.1\r\n" HOST AUTH "\r\n", 400, "bad_request"},
        {"GET /v1/echo/a HTTP/1.1\r\n" HOST "\r\n", 401, "unauthenticated"},
        {"GET /v1/echo/a HTTP/1.1\r\n" HOST "Authorization: Bearer nope\r\n\r\n", 401, "unauthenticated"},
        {"GET /v1/echo/a HTTP/1.1\r\n" HOST "Authorization: Bearer expired-token\r\n\r\n", 401,
         "token_expired"},
        {"POST /open HTTP/1.1\r\n" HOST "\r\n", 405, "method_not_allowed"},
        {"POST /v1/echo/p HTTP/1.1\r\n" HOST AUTH "Content-Length: 2\r\n\r\n{}", 415,
         "unsupported_media_type"},
        {"POST /v1/echo/p HTTP/1.1\r\n" HOST AUTH "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
         415, "unsupported_media_type"},
        {"POST /v1/echo/p HTTP/1.1\r\n" HOST AUTH
         "Content-Type: application/json\r\nContent-Length: 3\r\n\r\n{a}",
         400, "invalid_json"},
        {"POST /v1/echo/p HTTP/1.1\r\n" HOST AUTH
         "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n[]",
         400, "invalid_json"},
        {"PUT /v1/echo/p HTTP/1.1\r\n" HOST AUTH
         "Content-Type: application/json\r\nContent-Length: 1\r\n\r\n{",
         400, "invalid_json"},
        {"GET /query?n=101 HTTP/1.1\r\n" HOST "\r\n", 422, "invalid_field"},
        {"GET /query?n=1x HTTP/1.1\r\n" HOST "\r\n", 422, "invalid_field"},
        {"GET /query?m=1 HTTP/1.1\r\n" HOST "\r\n", 422, "unknown_field"},
        {"GET /query?n=1&n=2 HTTP/1.1\r\n" HOST "\r\n", 422, "invalid_field"},
        {"GET /silent HTTP/1.1\r\n" HOST "\r\n", 500, "internal"},
        {"GET /limited HTTP/1.1\r\n" HOST "\r\n", 429, "upstream_rate_limited"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct reply r;
        exchange_once(h, cases[i].request, &r);
        if (r.status != cases[i].status)
            print_error("case %zu: %s\n", i, cases[i].request);
        assert_problem(&r, cases[i].status, cases[i].code);
        reply_free(&r);
    }
}

/* P49 */
static void p49_credentials_in_the_url_are_refused(void **state)
{
    (void)state;
    static const char *const keys[] = {"token",  "access_token", "authorization",
                                       "bearer", "API_KEY",      "%74oken"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char request[256];
        snprintf(request, sizeof request, "GET /v1/echo/a?q=1&%s=secret HTTP/1.1\r\n" HOST AUTH "\r\n",
                 keys[i]);
        struct reply r;
        exchange_once(h, request, &r);
        assert_problem(&r, 400, "credential_in_url");
        assert_null(memmem(r.body.data, r.body.len, "secret", 6));
        reply_free(&r);
    }
}

static void special_headers_of_refusals(void **state)
{
    (void)state;
    struct reply r;
    exchange_once(h, "DELETE /v1/echo/a HTTP/1.1\r\n" HOST AUTH "\r\n", &r);
    assert_problem(&r, 405, "method_not_allowed");
    assert_string_equal(reply_header(&r, "Allow"), "GET, HEAD, POST, PUT");
    reply_free(&r);
    exchange_once(h, "GET /v1/echo/a HTTP/1.1\r\n" HOST "\r\n", &r);
    assert_non_null(strstr(reply_header(&r, "WWW-Authenticate"), "Bearer"));
    reply_free(&r);
    exchange_once(h, "GET /limited HTTP/1.1\r\n" HOST "\r\n", &r);
    assert_string_equal(reply_header(&r, "Retry-After"), "2");
    json_t *doc = reply_json(&r);
    assert_int_equal(json_integer_value(json_object_get(doc, "retry_after_ms")), 1500);
    assert_string_equal(json_string_value(json_object_get(doc, "outcome")), "not_started");
    assert_string_equal(json_string_value(json_object_get(doc, "instance")), "/limited");
    json_decref(doc);
    reply_free(&r);
}

static void request_ids(void **state)
{
    (void)state;
    struct reply r;
    exchange_once(h, "GET /open HTTP/1.1\r\n" HOST "X-Request-Id: my.id_1-2\r\n\r\n", &r);
    assert_string_equal(reply_header(&r, "X-Request-Id"), "my.id_1-2");
    reply_free(&r);
    exchange_once(h, "GET /open HTTP/1.1\r\n" HOST "X-Request-Id: no spaces\r\n\r\n", &r);
    assert_int_equal(strncmp(reply_header(&r, "X-Request-Id"), "req_", 4), 0);
    reply_free(&r);
}

static void head_has_no_body(void **state)
{
    (void)state;
    int fd = client_connect(h);
    struct reply r;
    client_puts(fd, "HEAD /open HTTP/1.1\r\n" HOST "\r\n");
    client_reply(fd, &r, true);
    assert_int_equal(r.status, 200);
    assert_true(strtoul(reply_header(&r, "Content-Length"), NULL, 10) > 10);
    reply_free(&r);
    client_puts(fd, "GET /open HTTP/1.1\r\n" HOST "\r\n"); /* nothing but the next answer follows */
    client_reply(fd, &r, false);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    close(fd);
}

static void response_headers_cannot_be_split(void **state)
{
    (void)state;
    struct reply r;
    exchange_once(h, "DELETE /empty HTTP/1.1\r\n" HOST "\r\n", &r);
    assert_int_equal(r.status, 204);
    assert_null(reply_header(&r, "X-Bad"));
    assert_null(reply_header(&r, "Injected"));
    assert_string_equal(reply_header(&r, "ETag"), "\"1\"");
    reply_free(&r);
}

static void the_first_answer_counts(void **state)
{
    (void)state;
    struct reply r;
    exchange_once(h, "GET /twice HTTP/1.1\r\n" HOST "\r\n", &r);
    assert_int_equal(r.status, 200);
    assert_non_null(memmem(r.body.data, r.body.len, "first", 5));
    reply_free(&r);
}

static void a_body_too_large_is_refused_before_it_is_read(void **state)
{
    (void)state;
    struct reply r;
    int fd = client_connect(h);
    client_puts(fd, "POST /v1/echo/p HTTP/1.1\r\n" HOST AUTH "Content-Type: application/json\r\n"
                    "Content-Length: 100001\r\n\r\n"); /* and not a byte of it */
    client_reply(fd, &r, false);
    assert_problem(&r, 413, "body_too_large");
    assert_true(client_sees_end(fd));
    reply_free(&r);
    close(fd);
}

static void a_chunked_body_too_large_is_refused_on_the_way(void **state)
{
    (void)state;
    struct reply r;
    int fd = client_connect(h);
    client_puts(fd, "POST /v1/echo/p HTTP/1.1\r\n" HOST AUTH "Content-Type: application/json\r\n"
                    "Transfer-Encoding: chunked\r\n\r\n");
    static char chunk[20000];
    memset(chunk, ' ', sizeof chunk);
    for (int i = 0; i < 6; i++) {
        client_puts(fd, "4e20\r\n");
        client_send(fd, chunk, sizeof chunk);
        client_puts(fd, "\r\n");
    }
    client_reply(fd, &r, false);
    assert_problem(&r, 413, "body_too_large");
    assert_true(client_sees_end(fd));
    reply_free(&r);
    close(fd);
}

/* The client is still sending when the refusal comes: it must not lose it to a reset. */
static void a_refusal_survives_a_body_under_way(void **state)
{
    (void)state;
    enum { SIZE = 90000 };
    char *body = malloc(SIZE);
    assert_non_null(body);
    memset(body, ' ', SIZE);
    for (int i = 0; i < 10; i++) {
        int fd = client_connect(h);
        struct reply r;
        client_puts(fd, "POST /v1/echo/p HTTP/1.1\r\n" HOST "Content-Type: application/json\r\n"
                        "Content-Length: 90000\r\n\r\n");
        client_send(fd, body, SIZE);
        client_reply(fd, &r, false);
        assert_problem(&r, 401, "unauthenticated");
        reply_free(&r);
        close(fd);
    }
    free(body);
}

static void expectations_are_answered_before_the_body(void **state)
{
    (void)state;
    struct reply r;
    int fd = client_connect(h);
    client_puts(fd, "POST /v1/echo/p HTTP/1.1\r\n" HOST "Content-Type: application/json\r\n"
                    "Content-Length: 10\r\nExpect: 100-continue\r\n\r\n");
    client_reply(fd, &r, false);
    assert_problem(&r, 401, "unauthenticated");
    assert_true(client_sees_end(fd));
    reply_free(&r);
    close(fd);
    fd = client_connect(h);
    client_puts(fd, "POST /v1/echo/p HTTP/1.1\r\n" HOST AUTH "Content-Type: application/json\r\n"
                    "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    client_reply(fd, &r, false);
    assert_int_equal(r.status, 100);
    reply_free(&r);
    client_puts(fd, "{}");
    client_reply(fd, &r, false);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    close(fd);
}

static void deep_json_is_refused(void **state)
{
    (void)state;
    enum { DEPTH = 40000 };
    char *request = malloc(DEPTH + 512);
    assert_non_null(request);
    int n = snprintf(request, 512,
                     "POST /v1/echo/p HTTP/1.1\r\n" HOST AUTH
                     "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n{\"a\":",
                     DEPTH + 5);
    memset(request + n, '[', DEPTH);
    request[n + DEPTH] = '\0';
    struct reply r;
    exchange_once(h, request, &r);
    assert_problem(&r, 400, "invalid_json");
    reply_free(&r);
    free(request);
}

static void slow_requests_time_out(void **state)
{
    (void)state;
    struct reply r;
    int fd = client_connect(h);
    client_puts(fd, "POST /v1/echo/p HTTP/1.1\r\n" HOST AUTH "Content-Type: application/json\r\n"
                    "Content-Length: 50\r\n\r\n{");
    client_reply(fd, &r, false);
    assert_problem(&r, 408, "request_timeout");
    assert_true(client_sees_end(fd));
    reply_free(&r);
    close(fd);
    fd = client_connect(h);
    client_puts(fd, "GET /open HTTP/1.1\r\nHost: te"); /* the head never ends */
    client_reply(fd, &r, false);
    assert_problem(&r, 408, "request_timeout");
    assert_true(client_sees_end(fd));
    reply_free(&r);
    close(fd);
}

enum { BUSY = 6 }; /* 4 threads and a queue of 2 */

static bool all_workers_taken(void *arg)
{
    (void)arg;
    struct http_stats s;
    http_server_stats(harness_server(h), &s);
    return s.worker_load == BUSY;
}

static void workers_overload_is_told(void **state)
{
    (void)state;
    int fds[BUSY];
    gate_is_open = false;
    for (int i = 0; i < BUSY; i++) {
        fds[i] = client_connect(h);
        client_puts(fds[i], "GET /blocked HTTP/1.1\r\n" HOST "\r\n");
    }
    harness_wait(h, all_workers_taken, NULL);
    struct reply r;
    exchange_once(h, "GET /blocked HTTP/1.1\r\n" HOST "\r\n", &r);
    assert_problem(&r, 503, "overloaded");
    assert_string_equal(reply_header(&r, "Retry-After"), "1");
    reply_free(&r);
    exchange_once(h, "GET /open HTTP/1.1\r\n" HOST "\r\n", &r); /* the loop is free all the while */
    assert_int_equal(r.status, 200);
    reply_free(&r);
    pthread_mutex_lock(&gate_lock);
    gate_is_open = true;
    pthread_cond_broadcast(&gate_open);
    pthread_mutex_unlock(&gate_lock);
    for (int i = 0; i < BUSY; i++) {
        client_reply(fds[i], &r, false);
        assert_int_equal(r.status, 200);
        reply_free(&r);
        close(fds[i]);
    }
}

static bool is_parked(void *arg)
{
    (void)arg;
    return parked != NULL;
}

static bool was_told(void *arg)
{
    (void)arg;
    return gone_calls == 1;
}

static bool no_requests(void *arg)
{
    (void)arg;
    struct http_stats s;
    http_server_stats(harness_server(h), &s);
    return s.requests == 0;
}

static void a_waiting_handler_hears_that_the_client_left(void **state)
{
    (void)state;
    gone_calls = 0;
    int fd = client_connect(h);
    client_puts(fd, "GET /park HTTP/1.1\r\n" HOST "\r\n");
    harness_wait(h, is_parked, NULL);
    close(fd);
    harness_wait(h, was_told, NULL);
    harness_wait(h, no_requests, NULL);
}

static void answer_parked(void *arg)
{
    (void)arg;
    struct exchange *ex = parked;
    parked = NULL;
    ex_answer_json(ex, 202, json_pack("{s:b}", "late", 1));
}

static void a_handler_may_answer_later(void **state)
{
    (void)state;
    int fd = client_connect(h);
    for (int i = 0; i < 3; i++) {
        client_puts(fd, "GET /park HTTP/1.1\r\n" HOST "\r\n");
        harness_wait(h, is_parked, NULL);
        harness_on_loop(h, answer_parked, NULL);
        struct reply r;
        client_reply(fd, &r, false);
        assert_int_equal(r.status, 202);
        reply_free(&r);
    }
    close(fd);
}

/* P49: one line per request, and no credential in it wherever the client put it. */
static void p49_access_log_lines(void **state)
{
    (void)state;
    harness_wait(h, no_requests, NULL); /* of the tests before */
    char path[] = "/tmp/sg-log-XXXXXX";
    int file = mkstemp(path), saved = dup(STDERR_FILENO);
    assert_true(file >= 0 && saved >= 0);
    unlink(path);
    dup2(file, STDERR_FILENO);
    sg_log_set_level(SG_LOG_INFO);
    struct reply r;
    exchange_once(h, "GET /v1/echo/logged?q=private HTTP/1.1\r\n" HOST AUTH "X-Request-Id: id-1\r\n\r\n", &r);
    reply_free(&r);
    exchange_once(h, "GET /open?token=hunter2 HTTP/1.1\r\n" HOST "X-Request-Id: id-2\r\n\r\n", &r);
    reply_free(&r);
    harness_wait(h, no_requests, NULL);
    sg_log_set_level(SG_LOG_ERROR);
    dup2(saved, STDERR_FILENO);
    close(saved);
    char text[8192];
    ssize_t n = pread(file, text, sizeof text - 1, 0);
    close(file);
    assert_true(n > 0);
    text[n] = '\0';
    assert_null(strstr(text, "private"));
    assert_null(strstr(text, "hunter2"));
    assert_null(strstr(text, TOKEN));
    static const struct {
        const char *id, *path, *code;
        int status;
    } expected[] = {{"id-1", "/v1/echo/logged", NULL, 200}, {"id-2", "/open", "credential_in_url", 400}};
    char *at = text;
    for (size_t i = 0; i < 2; i++) {
        char *end = strchr(at, '\n');
        assert_non_null(end);
        json_t *line = json_loadb(at, (size_t)(end - at), 0, NULL);
        assert_non_null(line);
        assert_string_equal(json_string_value(json_object_get(line, "event")), "request");
        assert_string_equal(json_string_value(json_object_get(line, "request_id")), expected[i].id);
        assert_string_equal(json_string_value(json_object_get(line, "method")), "GET");
        assert_string_equal(json_string_value(json_object_get(line, "path")), expected[i].path);
        assert_int_equal(json_integer_value(json_object_get(line, "status")), expected[i].status);
        assert_true(json_is_integer(json_object_get(line, "duration_ms")));
        assert_true(json_integer_value(json_object_get(line, "bytes")) > 10);
        if (expected[i].code)
            assert_string_equal(json_string_value(json_object_get(line, "code")), expected[i].code);
        else
            assert_string_equal(json_string_value(json_object_get(line, "principal")), "abcdefghijkl");
        json_decref(line);
        at = end + 1;
    }
    assert_string_equal(at, "");
}

static void absolute_form_targets_work(void **state)
{
    (void)state;
    struct reply r;
    exchange_once(h, "GET http://test/v1/echo/abs?q=1 HTTP/1.1\r\n" HOST AUTH "\r\n", &r);
    assert_int_equal(r.status, 200);
    reply_free(&r);
}

static void port_in_use_is_a_sentence(void **state)
{
    (void)state;
    char address[64], err[HTTP_ERR] = "";
    snprintf(address, sizeof address, "127.0.0.1:%d", harness_port(h));
    struct http_server_config cfg = {.listen = address, .routes = table, .routes_count = 1};
    struct sg_loop *loop = sg_loop_new();
    assert_null(http_server_new(loop, &cfg, harness_gateway(h), NULL, err));
    assert_non_null(strstr(err, address));
    assert_non_null(strstr(err, "another program"));
    cfg.listen = "nonsense";
    assert_null(http_server_new(loop, &cfg, harness_gateway(h), NULL, err));
    assert_non_null(strstr(err, "nonsense"));
    sg_loop_free(loop);
}

/* A burst of exactly the library's event batch must not put it to sleep on collected events. */
static void a_burst_of_128_ready_sockets_is_served(void **state)
{
    (void)state;
    enum { N = 200 };
    int fds[N];
    for (int i = 0; i < N; i++) {
        fds[i] = client_connect(h);
        client_puts(fds[i], "GET /open HTTP/1.1\r\n" HOST "\r\n");
        struct reply r;
        client_reply(fds[i], &r, false);
        assert_int_equal(r.status, 200);
        reply_free(&r);
    }
    static const int bursts[] = {128, 127, 129, 200, 128};
    for (size_t b = 0; b < sizeof bursts / sizeof *bursts; b++) {
        gate_is_open = true;
        for (int i = 0; i < bursts[b]; i++)
            client_puts(fds[i], i % 2 ? "GET /blocked HTTP/1.1\r\n" HOST "\r\n"
                                      : "GET /open HTTP/1.1\r\n" HOST "\r\n");
        for (int i = 0; i < bursts[b]; i++) {
            struct reply r;
            client_reply(fds[i], &r, false);
            assert_true(r.status == 200 || r.status == 503); /* more than workers and their queue */
            reply_free(&r);
        }
    }
    for (int i = 0; i < N; i++)
        close(fds[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loop_route_answers_json),
        cmocka_unit_test(worker_route_gets_the_parsed_body),
        cmocka_unit_test(an_empty_body_is_an_empty_object),
        cmocka_unit_test(chunked_json_is_collected),
        cmocka_unit_test(keep_alive_and_pipelining),
        cmocka_unit_test(refusals),
        cmocka_unit_test(p49_credentials_in_the_url_are_refused),
        cmocka_unit_test(special_headers_of_refusals),
        cmocka_unit_test(request_ids),
        cmocka_unit_test(head_has_no_body),
        cmocka_unit_test(response_headers_cannot_be_split),
        cmocka_unit_test(the_first_answer_counts),
        cmocka_unit_test(a_body_too_large_is_refused_before_it_is_read),
        cmocka_unit_test(a_chunked_body_too_large_is_refused_on_the_way),
        cmocka_unit_test(a_refusal_survives_a_body_under_way),
        cmocka_unit_test(expectations_are_answered_before_the_body),
        cmocka_unit_test(deep_json_is_refused),
        cmocka_unit_test(slow_requests_time_out),
        cmocka_unit_test(workers_overload_is_told),
        cmocka_unit_test(a_waiting_handler_hears_that_the_client_left),
        cmocka_unit_test(a_handler_may_answer_later),
        cmocka_unit_test(p49_access_log_lines),
        cmocka_unit_test(absolute_form_targets_work),
        cmocka_unit_test(port_in_use_is_a_sentence),
        cmocka_unit_test(a_burst_of_128_ready_sockets_is_served),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
