/* The gate alone, and over raw sockets with what the HTTP library lets through. */
#include "harness.h"

#include "server/gate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int handled;

static void hello(struct exchange *ex)
{
    handled++;
    const char *x = ex_header(ex, "X-Long");
    ex_answer_json(ex, 200, json_pack("{s:I}", "long", (json_int_t)(x ? strlen(x) : 0)));
}

static const struct route table[] = {
    {"GET", "/", ROUTE_LOOP, AUTH_NONE, BODY_NONE, hello},
    {"POST", "/", ROUTE_LOOP, AUTH_NONE, BODY_JSON, hello},
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
    return 0;
}

/* ---- pure ---- */

static enum sg_code check(const char *version, const struct gate_header *headers, size_t n,
                          struct gate_verdict *v)
{
    struct gate_head head = {version, headers, n};
    struct sg_error e;
    return gate_check(&head, v, &e);
}

#define H(name, value)                                                                                       \
    {                                                                                                        \
        name, sizeof(name) - 1, value, sizeof(value) - 1                                                     \
    }

static void verdicts(void **state)
{
    (void)state;
    struct gate_verdict v;
    const struct gate_header plain[] = {H("Host", "a"), H("Content-Length", "12"), H("content-length", "12")};
    assert_int_equal(check("HTTP/1.1", plain, 3, &v), SG_OK);
    assert_int_equal(v.content_length, 12);
    assert_false(v.chunked);
    const struct gate_header chunked[] = {H("Host", "a"), H("transfer-encoding", "Chunked"),
                                          H("Expect", "100-Continue")};
    assert_int_equal(check("HTTP/1.1", chunked, 3, &v), SG_OK);
    assert_int_equal(v.content_length, -1);
    assert_true(v.chunked);
    assert_true(v.expect_continue);
    assert_int_equal(check("HTTP/1.0", NULL, 0, &v), SG_OK);
    assert_int_equal(check("HTTP/1.1", NULL, 0, &v), SG_E_BAD_REQUEST);
    assert_int_equal(check("HTTP/2.0", plain, 1, &v), SG_E_BAD_REQUEST);
    assert_int_equal(check("", plain, 1, &v), SG_E_BAD_REQUEST);
}

static void each_fault_alone(void **state)
{
    (void)state;
    static const struct gate_header faults[] = {
        H("Host", "b"),
        H("Bad Name", "x"),
        H("", "x"),
        H("Na\x01me", "x"),
        H("N:ame", "x"),
        H("X", "a\x01"),
        H("X", "a\x7f"),
        H("X", "a\0b"),
        H("X", "a\rb"),
        H("Content-Length", "-1"),
        H("Content-Length", ""),
        H("Content-Length", "+5"),
        H("Content-Length", "5, 5"),
        H("Content-Length", "0x5"),
        H("Content-Length", "99999999999999999999"),
        H("Transfer-Encoding", "xchunked"),
        H("Transfer-Encoding", "gzip, chunked"),
        H("Transfer-Encoding", ""),
        H("Transfer-Encoding", "identity"),
        H("Expect", "200-ok"),
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct gate_header headers[] = {H("Host", "a"), H("X", "y\xff\tz"), faults[i]};
        struct gate_verdict v;
        assert_int_equal(check("HTTP/1.1", headers, 2, &v), SG_OK);
        assert_int_equal(check("HTTP/1.1", headers, 3, &v), SG_E_BAD_REQUEST);
    }
}

static void pairs_that_contradict(void **state)
{
    (void)state;
    struct gate_verdict v;
    const struct gate_header both[] = {H("Host", "a"), H("Content-Length", "1"),
                                       H("Transfer-Encoding", "chunked")};
    assert_int_equal(check("HTTP/1.1", both, 3, &v), SG_E_BAD_REQUEST);
    const struct gate_header differ[] = {H("Host", "a"), H("Content-Length", "1"), H("Content-Length", "2")};
    assert_int_equal(check("HTTP/1.1", differ, 3, &v), SG_E_BAD_REQUEST);
    const struct gate_header twice[] = {H("Host", "a"), H("Transfer-Encoding", "chunked"),
                                        H("Transfer-Encoding", "chunked")};
    assert_int_equal(check("HTTP/1.1", twice, 3, &v), SG_E_BAD_REQUEST);
    const struct gate_header old[] = {H("Host", "a"), H("Transfer-Encoding", "chunked")};
    assert_int_equal(check("HTTP/1.0", old, 2, &v), SG_E_BAD_REQUEST);
}

/* ---- over the wire ---- */

static void refused_bytes(const void *bytes, size_t len, const char *what)
{
    int fd = client_connect(h);
    int before = handled;
    client_send(fd, bytes, len);
    /* A second request that must never be served on this connection. */
    client_puts(fd, "GET / HTTP/1.1\r\nHost: smuggled\r\n\r\n");
    struct reply r;
    client_reply(fd, &r, false);
    if (r.status != 400 && !r.cut)
        print_error("%s: status %d\n", what, r.status);
    assert_true(r.status == 400 || (r.cut && r.status == 0));
    reply_free(&r);
    assert_true(client_sees_end(fd));
    assert_int_equal(handled, before);
    close(fd);
}

static void ambiguous_requests_are_refused_and_the_connection_closed(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        const char *bytes;
        size_t len;
    } cases[] = {
#define CASE(what, bytes) {what, bytes, sizeof(bytes) - 1}
        CASE("length and coding",
             "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"),
        CASE("two lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n"),
        CASE("space before colon", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n"),
        CASE("unknown coding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n"),
        CASE("identity, chunked",
             "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity, chunked\r\n\r\n"),
        CASE("chunked in 1.0", "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"),
        CASE("two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
        CASE("no host", "GET / HTTP/1.1\r\nX: y\r\n\r\n"),
        CASE("no headers", "GET / HTTP/1.1\r\n\r\n"),
        CASE("NUL in a value", "GET / HTTP/1.1\r\nX: a\0b\r\nHost: a\r\n\r\n"),
        CASE("NUL in the last value", "GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n"),
        CASE("NUL at the end of a value", "GET / HTTP/1.1\r\nHost: a\0\r\nX: y\r\n\r\n"),
        CASE("NUL in a name", "GET / HTTP/1.1\r\nHost: a\r\nX\0Y: b\r\n\r\n"),
        CASE("NUL in the target", "GET /\0x HTTP/1.1\r\nHost: a\r\n\r\n"),
        CASE("folded", "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n"),
        CASE("folded, more follows", "GET / HTTP/1.1\r\nX: b\r\n\tc\r\nHost: a\r\n\r\n"),
        CASE("folded coding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n"),
        CASE("folded first line", "GET / HTTP/1.1\r\n X: b\r\nHost: a\r\n\r\n"),
        CASE("fold of nothing", "GET / HTTP/1.1\r\nHost: a\r\n \r\nX: y\r\n\r\n"),
        CASE("space in a name", "GET / HTTP/1.1\r\nHost: a\r\nX Y: b\r\n\r\n"),
        CASE("bare LF", "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n"),
        CASE("bare LF at the end", "GET / HTTP/1.1\r\nHost: a\n\n"),
        CASE("bare LF after the request line", "GET / HTTP/1.1\nHost: a\r\n\r\n"),
        CASE("bare CR in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: a\rContent-Length: 5\r\n\r\n"),
        CASE("no colon", "GET / HTTP/1.1\r\nHost: a\r\nXY\r\n\r\n"),
        CASE("empty name", "GET / HTTP/1.1\r\nHost: a\r\n: y\r\n\r\n"),
        CASE("two spaces", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n"),
        CASE("space in the target", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"),
        CASE("signed length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n"),
        CASE("length list", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n"),
        CASE("negative length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"),
        CASE("hexadecimal chunk", "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                                  "Transfer-Encoding: chunked\r\n\r\n0x5\r\n"),
#undef CASE
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused_bytes(cases[i].bytes, cases[i].len, cases[i].what);
}

static void refusals_of_the_gate_are_problem_documents(void **state)
{
    (void)state;
    struct reply r;
    exchange_once(h, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nX-Request-Id: mine\r\n\r\n", &r);
    assert_problem(&r, 400, "bad_request");
    assert_string_equal(reply_header(&r, "X-Request-Id"), "mine");
    assert_string_equal(reply_header(&r, "Connection"), "close");
    reply_free(&r);
}

static void too_much_is_refused(void **state)
{
    (void)state;
    struct reply r;
    char *big = malloc(70000);
    assert_non_null(big);
    size_t n = (size_t)snprintf(big, 70000, "GET / HTTP/1.1\r\n" HOST "X-Long: ");
    memset(big + n, 'x', 40000);
    memcpy(big + n + 40000, "\r\n\r\n", 5);
    exchange_once(h, big, &r);
    assert_int_equal(r.status, 431);
    reply_free(&r);
    n = (size_t)snprintf(big, 70000, "GET / HTTP/1.1\r\n" HOST);
    for (int i = 0; i < 100; i++)
        n += (size_t)snprintf(big + n, 70000 - n, "X-%d: y\r\n", i);
    memcpy(big + n, "\r\n", 3);
    exchange_once(h, big, &r);
    assert_problem(&r, 431, "headers_too_large");
    reply_free(&r);
    free(big);
}

/* The layout check must not trip over how the bytes arrive or how large a fair head is. */
static void fair_heads_pass_however_they_arrive(void **state)
{
    (void)state;
    for (size_t len = 1; len < 9000; len = len * 2 + 37) {
        char *text = malloc(len + 512);
        assert_non_null(text);
        size_t n = (size_t)snprintf(
            text, 512,
            "GET /?a=b&&c=%%20&d HTTP/1.1\r\nHost:a\r\nX-Empty:\r\nCookie: a=b; c=d\r\nX-Long: \t ");
        memset(text + n, 'x', len);
        n += len;
        static const char tail[] = "\r\nX-Last: \xc3\xa9 y\r\n\r\n";
        memcpy(text + n, tail, sizeof tail);
        n += sizeof tail - 1;
        int fd = client_connect(h);
        size_t step = len > 2000 ? 701 : 3;
        for (int again = 0; again < 2; again++) { /* in pieces, then as one, on the same connection */
            for (size_t at = 0; at < n; at += again ? n : step)
                client_send(fd, text + at, again ? n : n - at < step ? n - at : step);
            struct reply r;
            client_reply(fd, &r, false);
            assert_int_equal(r.status, 200);
            json_t *doc = reply_json(&r);
            assert_int_equal(json_integer_value(json_object_get(doc, "long")), len);
            json_decref(doc);
            reply_free(&r);
        }
        close(fd);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdicts),
        cmocka_unit_test(each_fault_alone),
        cmocka_unit_test(pairs_that_contradict),
        cmocka_unit_test(ambiguous_requests_are_refused_and_the_connection_closed),
        cmocka_unit_test(refusals_of_the_gate_are_problem_documents),
        cmocka_unit_test(too_much_is_refused),
        cmocka_unit_test(fair_heads_pass_however_they_arrive),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
