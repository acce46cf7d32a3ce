/* Calls against a server that plays exact bytes: what an answer becomes, what is retried, what never is.
 * A2 C10 U3 P60 P61 P62 */
#include "fixture.h"

#include "base/clock.h"
#include "base/json.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct tuning no_retries = {.retries = 0};

/* Plays one fixed answer to every request on every connection. */
struct fixed {
    int status;
    const char *type, *headers, *body;
};

static void play_fixed(struct raw_conn *c, int n, void *arg)
{
    const struct fixed *p = arg;
    struct raw_request r;
    (void)n;
    while (raw_read(c, &r) && raw_answer(c, p->status, p->type, p->headers, p->body))
        continue;
}

/* ---- what is sent ---- */

static void check_request(struct raw_conn *c, int n, void *arg)
{
    struct raw_request r;
    (void)n;
    char *seen = arg;
    if (!raw_read(c, &r))
        return;
    snprintf(seen, 8192, "%s %s\n%s\n%s", r.method, r.target, r.head, r.body);
    raw_answer(c, 200, "application/json", "", "{}");
}

static void test_request_bytes(void **state)
{
    (void)state;
    char seen[8192] = "";
    struct fixture f;
    struct answer a;
    const struct tuning t = {.retries = -1, .team_id = "team 1"};
    fixture_open(&f, check_request, seen, &t);
    struct vercel_request r = post_request;
    r.query = "resume=true";
    r.extra_header = "x-cwd: /";
    ask_and_wait(&f, &a, &r);
    assert_false(a.failed);
    assert_memory_equal(seen, "POST /api/v2/x?teamId=team%201&resume=true\n", 43);
    assert_non_null(strstr(seen, "\r\nAuthorization: Bearer t0k3n\r\n"));
    assert_non_null(strstr(seen, "\r\nContent-Type: application/json\r\n"));
    assert_non_null(strstr(seen, "\r\nx-cwd: /\r\n"));
    assert_non_null(strstr(seen, "\r\nContent-Length: 7\r\n"));
    assert_null(strstr(seen, "Expect:"));
    assert_non_null(strstr(seen, "\n{\"a\":1}"));
    answer_clear(&a);
    fixture_close(&f);
}

static void test_empty_post_has_length(void **state)
{
    (void)state;
    char seen[8192] = "";
    struct fixture f;
    struct answer a;
    fixture_open(&f, check_request, seen, NULL);
    const struct vercel_request r = {.method = "POST", .path = "/stop"};
    ask_and_wait(&f, &a, &r);
    assert_false(a.failed);
    assert_memory_equal(seen, "POST /api/stop\n", 15);
    assert_non_null(strstr(seen, "\r\nContent-Length: 0\r\n"));
    assert_non_null(strstr(seen, "\r\nContent-Type: application/json\r\n"));
    answer_clear(&a);
    fixture_close(&f);
}

/* A2: no proxy from the environment unless configured; a configured one is used. */
static void test_proxy_only_when_configured_A2(void **state)
{
    (void)state;
    char seen[8192] = "";
    struct fixture f;
    struct answer a;
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
    fixture_open(&f, check_request, seen, &no_retries);
    ask_and_wait(&f, &a, &get_request);
    assert_false(a.failed);
    answer_clear(&a);
    setenv("no_proxy", "*", 1);
    const struct tuning t = {
        .retries = 0, .base_url = "http://upstream.invalid/api", .proxy = raw_url(f.server)};
    struct fixture g;
    fixture_open(&g, NULL, NULL, &t);
    ask_and_wait(&g, &a, &get_request);
    assert_false(a.failed);
    assert_memory_equal(seen, "GET http://upstream.invalid/api/v2/x\n", 37);
    answer_clear(&a);
    fixture_close(&g);
    fixture_close(&f);
    unsetenv("http_proxy");
    unsetenv("ALL_PROXY");
    unsetenv("no_proxy");
}

/* ---- what comes back ---- */

static void test_keepalive_is_reused(void **state)
{
    (void)state;
    struct fixed p = {200, "application/json", "", "{\"ok\":true}"};
    struct fixture f;
    struct answer a;
    fixture_open(&f, play_fixed, &p, NULL);
    for (int i = 0; i < 50; i++) {
        ask_and_wait(&f, &a, i % 2 ? &get_request : &post_request);
        assert_false(a.failed);
        assert_true(sg_jget_bool(a.json, "ok", false));
        answer_clear(&a);
    }
    assert_int_equal(raw_connections(f.server), 1);
    assert_int_equal(raw_requests(f.server), 50);
    assert_int_equal(vercel_attempts(f.client), 50);
    fixture_close(&f);
}

static void play_drip(struct raw_conn *c, int n, void *arg)
{
    struct raw_request r;
    (void)n;
    (void)arg;
    while (raw_read(c, &r))
        raw_drip(c, "HTTP/1.1 200 OK\r\nX-Vercel-Id: iad1::abc\r\nTransfer-Encoding: chunked\r\n\r\n"
                    "3\r\n{\"a\r\n7\r\n\":\"\xc3\xa9\"}\r\n0\r\n\r\n");
}

static void test_byte_by_byte(void **state)
{
    (void)state;
    struct fixture f;
    struct answer a;
    fixture_open(&f, play_drip, NULL, NULL);
    ask_and_wait(&f, &a, &get_request);
    assert_false(a.failed);
    assert_string_equal(sg_jget_str(a.json, "a", ""), "\xc3\xa9");
    answer_clear(&a);
    fixture_close(&f);
}

struct expected {
    struct fixed answer;
    enum sg_code code;
    enum sg_outcome outcome;
    const char *upstream_code;
    const char *detail;
};

#define ERR(code, message) "{\"error\":{\"code\":\"" code "\",\"message\":\"" message "\"}}"
#define JSON_TYPE          "application/json", "x-vercel-id: iad1::req-7\r\n"

/* C10 and P62: one class and one outcome for each refusal; the upstream's text only when it is its own. */
static void test_refusals_C10_P62(void **state)
{
    (void)state;
    static const struct expected cases[] = {
        {{400, JSON_TYPE, ERR("bad_request", "no such field")},
         SG_E_UPSTREAM_REJECTED,
         SG_NOT_STARTED,
         "bad_request",
         "no such field"},
        {{401, JSON_TYPE, ERR("unauthorized", "bad token")},
         SG_E_UPSTREAM_AUTH,
         SG_NOT_STARTED,
         "unauthorized",
         "bad token"},
        {{403, JSON_TYPE, ERR("forbidden", "x")}, SG_E_UPSTREAM_AUTH, SG_NOT_STARTED, "forbidden", "x"},
        {{403, JSON_TYPE, ERR("arm_denied", "x")},
         SG_E_UPSTREAM_FORBIDDEN,
         SG_NOT_STARTED,
         "arm_denied",
         "x"},
        {{402, JSON_TYPE, ERR("payment_required", "x")},
         SG_E_PLAN_LIMIT,
         SG_NOT_STARTED,
         "payment_required",
         "x"},
        {{404, JSON_TYPE, ERR("not_found", "x")}, SG_E_UPSTREAM_NOT_FOUND, SG_NOT_STARTED, "not_found", "x"},
        {{409, JSON_TYPE, ERR("conflict", "x")}, SG_E_UPSTREAM_CONFLICT, SG_NOT_STARTED, "conflict", "x"},
        {{410, JSON_TYPE, ERR("sandbox_stopped", "x")},
         SG_E_STALE_SESSION,
         SG_NOT_STARTED,
         "sandbox_stopped",
         "x"},
        {{410, JSON_TYPE, ERR("snapshot_not_found", "x")},
         SG_E_SNAPSHOT_GONE,
         SG_NOT_STARTED,
         "snapshot_not_found",
         "x"},
        {{422, JSON_TYPE, ERR("sandbox_stopping", "x")},
         SG_E_SANDBOX_TRANSITION,
         SG_NOT_STARTED,
         "sandbox_stopping",
         "x"},
        {{422, JSON_TYPE, ERR("sandbox_snapshotting", "x")},
         SG_E_SANDBOX_TRANSITION,
         SG_NOT_STARTED,
         "sandbox_snapshotting",
         "x"},
        {{400, JSON_TYPE, ERR("bad_request", "Cannot resume sandbox: no snapshot available.")},
         SG_E_NOT_RESUMABLE,
         SG_NOT_STARTED,
         "bad_request",
         "Cannot resume sandbox: no snapshot available."},
        {{400, JSON_TYPE, ERR("executable_not_found", "x")},
         SG_E_EXECUTABLE_NOT_FOUND,
         SG_NOT_STARTED,
         "executable_not_found",
         "x"},
        {{500, JSON_TYPE, ERR("internal", "x")},
         SG_E_UPSTREAM_UNAVAILABLE,
         SG_OUTCOME_UNKNOWN,
         "internal",
         "x"},
        {{503, JSON_TYPE, ""},
         SG_E_UPSTREAM_UNAVAILABLE,
         SG_OUTCOME_UNKNOWN,
         "",
         "The upstream answered status 503."},
        {{502, "text/html", "x-vercel-id: iad1::req-7\r\n", "<html><b>Bad gateway</b></html>"},
         SG_E_UPSTREAM_BAD_RESPONSE,
         SG_OUTCOME_UNKNOWN,
         "",
         NULL},
        {{503, "text/html", "x-vercel-id: iad1::req-7\r\n", "<html>busy</html>"},
         SG_E_UPSTREAM_UNAVAILABLE,
         SG_OUTCOME_UNKNOWN,
         "",
         NULL},
        {{404, "text/html", "x-vercel-id: iad1::req-7\r\n", "<html>no</html>"},
         SG_E_UPSTREAM_BAD_RESPONSE,
         SG_NOT_STARTED,
         "",
         NULL},
        {{302, "text/html", "Location: http://127.0.0.1:1/\r\nx-vercel-id: iad1::req-7\r\n", ""},
         SG_E_UPSTREAM_BAD_RESPONSE,
         SG_NOT_STARTED,
         "",
         NULL},
        {{500, JSON_TYPE, ERR("internal", "<html>x</html>")},
         SG_E_UPSTREAM_UNAVAILABLE,
         SG_OUTCOME_UNKNOWN,
         "internal",
         "The upstream answered status 500."},
        {{400, JSON_TYPE, ERR("not a code\\n", "x")}, SG_E_UPSTREAM_REJECTED, SG_NOT_STARTED, "", "x"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixed p = cases[i].answer;
        struct fixture f;
        struct answer a;
        fixture_open(&f, play_fixed, &p, &no_retries);
        ask_and_wait(&f, &a, &post_request);
        assert_true(a.failed);
        assert_int_equal(a.error.code, cases[i].code);
        assert_int_equal(a.error.outcome, cases[i].outcome);
        assert_int_equal(a.error.upstream_status, p.status);
        assert_string_equal(a.error.upstream_code, cases[i].upstream_code);
        assert_string_equal(a.error.upstream_request_id, "iad1::req-7");
        if (cases[i].detail)
            assert_string_equal(a.error.detail, cases[i].detail);
        assert_null(strchr(a.error.detail, '<'));
        assert_int_equal(raw_requests(f.server), 1);
        answer_clear(&a);
        fixture_close(&f);
    }
}

/* P62: a 200 that is not a JSON object is the upstream's fault, and nothing of it is repeated. */
static void test_bad_bodies_P62(void **state)
{
    (void)state;
    static const struct fixed cases[] = {
        {200, "text/html", "", "<html>Welcome</html>"}, {200, "application/json", "", "{\"a\":"},
        {200, "application/json", "", "[1]"},           {200, "application/json", "", ""},
        {200, "application/json", "", "{}{}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixed p = cases[i];
        struct fixture f;
        struct answer a;
        fixture_open(&f, play_fixed, &p, NULL);
        ask_and_wait(&f, &a, &get_request);
        assert_true(a.failed);
        assert_int_equal(a.error.code, SG_E_UPSTREAM_BAD_RESPONSE);
        assert_int_equal(a.error.outcome, SG_OUTCOME_UNKNOWN);
        assert_null(strchr(a.error.detail, '<'));
        assert_int_equal(raw_requests(f.server), 1);
        answer_clear(&a);
        fixture_close(&f);
    }
}

static void play_cut_body(struct raw_conn *c, int n, void *arg)
{
    struct raw_request r;
    (void)arg;
    if (!raw_read(c, &r))
        return;
    if (n == 1)
        raw_sends(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"half\":");
    else
        raw_answer(c, 200, "application/json", "", "{\"whole\":true}");
}

static void test_cut_answer(void **state)
{
    (void)state;
    struct fixture f;
    struct answer a;
    fixture_open(&f, play_cut_body, NULL, NULL);
    ask_and_wait(&f, &a, &get_request); /* a GET is made again and nothing of the first half stays */
    assert_false(a.failed);
    assert_true(sg_jget_bool(a.json, "whole", false));
    assert_int_equal(raw_requests(f.server), 2);
    answer_clear(&a);
    fixture_close(&f);

    fixture_open(&f, play_cut_body, NULL, NULL);
    ask_and_wait(&f, &a, &post_request);
    assert_true(a.failed);
    assert_int_equal(a.error.code, SG_E_UPSTREAM_BAD_RESPONSE);
    assert_int_equal(a.error.outcome, SG_OUTCOME_UNKNOWN);
    assert_int_equal(raw_requests(f.server), 1);
    answer_clear(&a);
    fixture_close(&f);
}

static void play_huge(struct raw_conn *c, int n, void *arg)
{
    struct raw_request r;
    static const char chunk[65536] = {0};
    (void)n;
    (void)arg;
    if (!raw_read(c, &r) || !raw_sends(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"))
        return;
    while (raw_send(c, chunk, sizeof chunk))
        continue;
}

static void test_oversized_body(void **state)
{
    (void)state;
    struct fixture f;
    struct answer a;
    fixture_open(&f, play_huge, NULL, NULL);
    ask_and_wait(&f, &a, &get_request);
    assert_true(a.failed);
    assert_int_equal(a.error.code, SG_E_UPSTREAM_BAD_RESPONSE);
    assert_non_null(strstr(a.error.detail, "too large"));
    assert_int_equal(raw_requests(f.server), 1);
    answer_clear(&a);
    fixture_close(&f);
}

static void play_twice(struct raw_conn *c, int n, void *arg)
{
    struct raw_request r;
    (void)arg;
    while (raw_read(c, &r)) {
        if (n == 1)
            raw_sends(c, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"n\":1}"
                         "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"n\":9}");
        else
            raw_answer(c, 200, "application/json", "", "{\"n\":2}");
    }
}

/* Bytes behind an answer are never taken for the answer of the next request. */
static void test_duplicate_answer_bytes(void **state)
{
    (void)state;
    struct fixture f;
    struct answer a;
    fixture_open(&f, play_twice, NULL, &no_retries);
    for (int i = 1; i <= 2; i++) {
        ask_and_wait(&f, &a, &post_request);
        assert_false(a.failed);
        assert_int_equal(sg_jget_int(a.json, "n", 0), i);
        answer_clear(&a);
    }
    assert_int_equal(raw_connections(f.server), 2);
    fixture_close(&f);
}

/* ---- failing to get there ---- */

static void test_connection_refused(void **state)
{
    (void)state;
    struct fixture f;
    struct answer a;
    const struct tuning t = {.retries = 1, .base_url = "http://127.0.0.1:1", .retry_budget_ms = 2000};
    fixture_open(&f, NULL, NULL, &t);
    ask_and_wait(&f, &a, &post_request);
    assert_true(a.failed);
    assert_int_equal(a.error.code, SG_E_UPSTREAM_UNREACHABLE);
    assert_int_equal(a.error.outcome, SG_NOT_SENT);
    assert_int_equal(vercel_attempts(f.client), 0);
    answer_clear(&a);
    fixture_close(&f);
}

static void test_unknown_host(void **state)
{
    (void)state;
    struct fixture f;
    struct answer a;
    const struct tuning t = {.retries = 0, .base_url = "http://no-such-host.invalid"};
    fixture_open(&f, NULL, NULL, &t);
    ask_and_wait(&f, &a, &get_request);
    assert_true(a.failed);
    assert_int_equal(a.error.code, SG_E_UPSTREAM_UNREACHABLE);
    assert_int_equal(a.error.outcome, SG_NOT_SENT);
    answer_clear(&a);
    fixture_close(&f);
}

static void play_silence(struct raw_conn *c, int n, void *arg)
{
    struct raw_request r;
    (void)n;
    (void)arg;
    if (raw_read(c, &r))
        raw_peer_closed(c);
}

static void test_never_answers(void **state)
{
    (void)state;
    struct fixture f;
    struct answer a;
    const struct tuning t = {.retries = -1, .timeout_ms = 200};
    fixture_open(&f, play_silence, NULL, &t);
    ask_and_wait(&f, &a, &post_request);
    assert_true(a.failed);
    assert_int_equal(a.error.code, SG_E_UPSTREAM_TIMEOUT);
    assert_int_equal(a.error.outcome, SG_OUTCOME_UNKNOWN);
    assert_int_equal(raw_requests(f.server), 1);
    answer_clear(&a);
    fixture_close(&f);
}

/* ---- retries ---- */

/* U3 P60: libcurl by itself sends a request again when a kept-alive connection dies without an answer; a POST
 * that had left must not be.  One answered request, then the second is read whole and the connection closed. */
static void play_die_on_second(struct raw_conn *c, int n, void *arg)
{
    struct raw_request r;
    (void)n;
    bool reset = *(bool *)arg;
    if (!raw_read(c, &r) || !raw_answer(c, 200, "application/json", "", "{}"))
        return;
    if (raw_read(c, &r) && reset)
        raw_reset(c);
}

static void check_post_once(const struct vercel_request *r, bool reset)
{
    struct fixture f;
    struct answer a;
    fixture_open(&f, play_die_on_second, &reset, NULL);
    ask_and_wait(&f, &a, r);
    assert_false(a.failed);
    answer_clear(&a);
    ask_and_wait(&f, &a, r);
    assert_true(a.failed);
    assert_int_equal(a.error.code, SG_E_UPSTREAM_UNREACHABLE);
    assert_int_equal(a.error.outcome, SG_OUTCOME_UNKNOWN);
    assert_int_equal(raw_requests(f.server), 2);
    assert_int_equal(vercel_attempts(f.client), 2);
    answer_clear(&a);
    fixture_close(&f);
}

static void test_post_never_twice_U3_P60(void **state)
{
    (void)state;
    const struct vercel_request empty = {.method = "POST", .path = "/stop"};
    char big[300000];
    memset(big, 'x', sizeof big);
    struct vercel_request large = post_request;
    large.body = big;
    large.body_len = sizeof big;
    for (int reset = 0; reset < 2; reset++) {
        check_post_once(&post_request, reset);
        check_post_once(&empty, reset);
        check_post_once(&large, reset);
    }
}

/* The same for a GET: made again at once, by us, and it counts as an attempt. */
static void test_get_again_on_dead_connection(void **state)
{
    (void)state;
    struct fixture f;
    struct answer a;
    bool reset = false;
    fixture_open(&f, play_die_on_second, &reset, NULL);
    for (int i = 0; i < 2; i++) {
        ask_and_wait(&f, &a, &get_request);
        assert_false(a.failed);
        answer_clear(&a);
    }
    assert_int_equal(raw_requests(f.server), 3);
    assert_int_equal(vercel_attempts(f.client), 3);
    fixture_close(&f);
}

static void play_close_unanswered(struct raw_conn *c, int n, void *arg)
{
    struct raw_request r;
    (void)n;
    (void)arg;
    (void)raw_read(c, &r);
}

static void test_closed_before_answer(void **state)
{
    (void)state;
    struct fixture f;
    struct answer a;
    fixture_open(&f, play_close_unanswered, NULL, NULL);
    ask_and_wait(&f, &a, &post_request);
    assert_true(a.failed);
    assert_int_equal(a.error.code, SG_E_UPSTREAM_UNREACHABLE);
    assert_int_equal(a.error.outcome, SG_OUTCOME_UNKNOWN);
    assert_int_equal(raw_requests(f.server), 1);
    answer_clear(&a);
    fixture_close(&f);
}

/* P60: always 503: as many attempts as configured for a GET, one for a POST. */
static void test_attempts_are_limited_P60(void **state)
{
    (void)state;
    struct fixed p = {503, "application/json", "", ERR("busy", "x")};
    struct fixture f;
    struct answer a;
    const struct tuning t = {.retries = 2};
    fixture_open(&f, play_fixed, &p, &t);
    ask_and_wait(&f, &a, &post_request);
    assert_int_equal(a.error.code, SG_E_UPSTREAM_UNAVAILABLE);
    assert_int_equal(raw_requests(f.server), 1);
    answer_clear(&a);
    int64_t before = sg_mono_ms();
    ask_and_wait(&f, &a, &get_request);
    assert_int_equal(a.error.code, SG_E_UPSTREAM_UNAVAILABLE);
    assert_int_equal(raw_requests(f.server), 1 + 3);
    assert_true(sg_mono_ms() - before >= 250 + 500); /* it backs off */
    answer_clear(&a);
    fixture_close(&f);
}

struct limited {
    const char *retry_after;
    int64_t first, second; /* when the requests came */
};

static void play_limited(struct raw_conn *c, int n, void *arg)
{
    struct limited *l = arg;
    struct raw_request r;
    (void)n;
    while (raw_read(c, &r)) {
        if (!l->first) {
            l->first = sg_mono_ms();
            raw_answer(c, 429, "application/json", l->retry_after, ERR("rate_limited", "slow down"));
        } else {
            l->second = sg_mono_ms();
            raw_answer(c, 200, "application/json", "", "{}");
        }
    }
}

/* P61: no attempt earlier than Retry-After says. */
static void test_retry_after_is_waited_P61(void **state)
{
    (void)state;
    struct limited l = {.retry_after = "Retry-After: 1\r\n"};
    struct fixture f;
    struct answer a;
    fixture_open(&f, play_limited, &l, NULL);
    ask_and_wait(&f, &a, &get_request);
    assert_false(a.failed);
    answer_clear(&a);
    fixture_close(&f);
    assert_true(l.second - l.first >= 1000);
}

/* P61: beyond the budget the caller is told, with a value not below the rest; nor is a POST made again. */
static void test_retry_after_is_told_P61(void **state)
{
    (void)state;
    for (int post = 0; post < 2; post++) {
        struct limited l = {.retry_after = post ? "Retry-After: 1\r\n" : "Retry-After: 7\r\n"};
        struct fixture f;
        struct answer a;
        const struct tuning t = {.retries = 2, .retry_budget_ms = 3000};
        fixture_open(&f, play_limited, &l, &t);
        int64_t before = sg_mono_ms();
        ask_and_wait(&f, &a, post ? &post_request : &get_request);
        assert_true(a.failed);
        assert_true(sg_mono_ms() - before < 1000);
        assert_int_equal(a.error.code, SG_E_UPSTREAM_RATE_LIMITED);
        assert_int_equal(a.error.outcome, SG_NOT_STARTED);
        assert_int_equal(a.error.retry_after_ms, post ? 1000 : 7000);
        assert_int_equal(raw_requests(f.server), 1);
        answer_clear(&a);
        fixture_close(&f);
    }
}

/* ---- ends ---- */

static void test_free_in_flight(void **state)
{
    (void)state;
    struct fixture f;
    struct answer sent, fresh;
    fixture_open(&f, play_silence, NULL, NULL);
    ask(&f, &sent, &post_request);
    while (raw_requests(f.server) < 1)
        uv_run(sg_loop_uv(f.loop), UV_RUN_NOWAIT);
    ask(&f, &fresh, &post_request);
    vercel_client_free(f.client);
    f.client = NULL;
    assert_true(sent.done && sent.failed);
    assert_int_equal(sent.error.code, SG_E_UPSTREAM_UNREACHABLE);
    assert_int_equal(sent.error.outcome, SG_OUTCOME_UNKNOWN);
    assert_true(fresh.done && fresh.failed);
    assert_int_equal(fresh.error.outcome, SG_NOT_SENT);
    fixture_close(&f);
}

static void test_cancel(void **state)
{
    (void)state;
    struct fixture f;
    struct answer a;
    fixture_open(&f, play_silence, NULL, NULL);
    struct vercel_call *call = ask(&f, &a, &post_request);
    while (raw_requests(f.server) < 1)
        uv_run(sg_loop_uv(f.loop), UV_RUN_NOWAIT);
    vercel_call_cancel(call);
    vercel_call_cancel(call); /* twice in one turn is harmless */
    for (int i = 0; i < 5; i++)
        fixture_turn(&f);
    assert_false(a.done);
    call = ask(&f, &a, &post_request); /* before anything was sent */
    vercel_call_cancel(call);
    fixture_turn(&f);
    assert_false(a.done);
    fixture_close(&f);
}

struct waited {
    json_t *json;
    enum sg_code code;
    struct sg_error error;
};

static void wait_json(struct fixture *f, void *arg)
{
    struct waited *w = arg;
    w->code = vercel_wait_json(f->client, &get_request, &w->json, &w->error);
}

static void test_waiting_thread(void **state)
{
    (void)state;
    struct fixed p = {200, "application/json", "", "{\"ok\":true}"};
    struct fixture f;
    struct waited w = {0};
    fixture_open(&f, play_fixed, &p, NULL);
    fixture_blocking(&f, wait_json, &w);
    assert_int_equal(w.code, SG_OK);
    assert_true(sg_jget_bool(w.json, "ok", false));
    json_decref(w.json);
    p.body = "no";
    fixture_blocking(&f, wait_json, &w);
    assert_int_equal(w.code, SG_E_UPSTREAM_BAD_RESPONSE);
    assert_null(w.json);
    fixture_close(&f);
}

static void test_unusable_configuration_A2(void **state)
{
    (void)state;
    static const struct {
        const char *url, *token, *ca, *pointer;
    } cases[] = {
        {"ftp://x", "t", NULL, "/base_url"},
        {"nonsense://", "t", NULL, "/base_url"},
        {"http://u:p@x/api", "t", NULL, "/base_url"},
        {"http://x/api?a=b", "t", NULL, "/base_url"},
        {"", "t", NULL, "/base_url"},
        {"http://x", "a\nb", NULL, "/token"},
        {"http://x", "", NULL, "/token"},
        {"http://x", "t", "/no/such/file", "/ca_bundle"},
    };
    struct sg_loop *loop = sg_loop_new();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct vercel_config config = {
            .base_url = cases[i].url,
            .ca_bundle = cases[i].ca,
            .token = sg_secret_new(cases[i].token, strlen(cases[i].token)),
        };
        struct vercel_client *c;
        struct sg_error e;
        assert_int_equal(vercel_client_new(loop, &config, &c, &e), SG_E_INVALID_FIELD);
        assert_null(c);
        assert_string_equal(e.pointer, cases[i].pointer);
    }
    sg_loop_free(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request_bytes),
        cmocka_unit_test(test_empty_post_has_length),
        cmocka_unit_test(test_proxy_only_when_configured_A2),
        cmocka_unit_test(test_keepalive_is_reused),
        cmocka_unit_test(test_byte_by_byte),
        cmocka_unit_test(test_refusals_C10_P62),
        cmocka_unit_test(test_bad_bodies_P62),
        cmocka_unit_test(test_cut_answer),
        cmocka_unit_test(test_oversized_body),
        cmocka_unit_test(test_duplicate_answer_bytes),
        cmocka_unit_test(test_connection_refused),
        cmocka_unit_test(test_unknown_host),
        cmocka_unit_test(test_never_answers),
        cmocka_unit_test(test_post_never_twice_U3_P60),
        cmocka_unit_test(test_get_again_on_dead_connection),
        cmocka_unit_test(test_closed_before_answer),
        cmocka_unit_test(test_attempts_are_limited_P60),
        cmocka_unit_test(test_retry_after_is_waited_P61),
        cmocka_unit_test(test_retry_after_is_told_P61),
        cmocka_unit_test(test_free_in_flight),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_waiting_thread),
        cmocka_unit_test(test_unusable_configuration_A2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
