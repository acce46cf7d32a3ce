/* Whom a request is for and where a message ends: what the edge must not get wrong (P48, A19: the bytes
 * themselves are never touched, tests/integration/test_emulator_edge.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "emulator/edge_head.h"

#include <stdlib.h>
#include <string.h>

static struct edge_request rq;
static struct edge_response rp;

static ptrdiff_t request(const char *text)
{
    return edge_request_parse(text, strlen(text), &rq);
}

static ptrdiff_t response(const char *text)
{
    return edge_response_parse(text, strlen(text), false, &rp);
}

static void test_requests(void **state)
{
    (void)state;
    const char *text =
        "GET /a%2Fb?x=%20&y HTTP/1.1\r\nAccept: */*\r\nHOST:  Sb-1.Vercel.Run.:8788 \r\n\r\nrest";
    assert_int_equal(request(text), (ptrdiff_t)strlen(text) - 4);
    assert_string_equal(rq.host, "sb-1.vercel.run");
    assert_memory_equal(rq.target, "/a%2Fb?x=%20&y ", rq.target_len + 1);
    assert_int_equal(rq.kind, EDGE_BODY_NONE);
    assert_false(rq.head);

    assert_true(request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n") > 0);
    assert_int_equal(rq.kind, EDGE_BODY_LENGTH);
    assert_int_equal(rq.length, 12);
    assert_true(request("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n") > 0);
    assert_int_equal(rq.kind, EDGE_BODY_CHUNKED);
    assert_true(request("\r\n\r\nHEAD * HTTP/1.0\r\n\r\n") > 0);
    assert_true(rq.head);
    assert_string_equal(rq.host, "");
    assert_true(request("GET http://sb-2.vercel.run/x HTTP/1.1\r\nHost: sb-2.vercel.run:80\r\n\r\n") > 0);
    assert_string_equal(rq.host, "sb-2.vercel.run");
    assert_true(request("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n") > 0);
    assert_string_equal(rq.host, "[::1]");
}

/* Every prefix of a request is just not complete yet. */
static void test_pieces(void **state)
{
    (void)state;
    const char *text =
        "POST /p HTTP/1.1\r\nHost: sb-1.localhost\r\nX-A: \xc3\xa9\tb\r\nContent-Length: 3\r\n\r\n";
    for (size_t n = 0; n < strlen(text); n++) {
        char *exact = malloc(n ? n : 1); /* so that a read past the end is seen */
        assert_non_null(exact);
        memcpy(exact, text, n);
        assert_int_equal(edge_request_parse(exact, n, &rq), 0);
        free(exact);
    }
    assert_int_equal(request(text), strlen(text));
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *text;
    } cases[] = {
        {400, "GET / HTTP/1.1\r\n\r\n"},                       /* no host */
        {400, "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"}, /* two */
        {400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a:x\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost:\r\n\r\n"},
        {400, "GET / HTTP/1.1\nHost: a\n\n"},                     /* bare line feeds */
        {400, "GET / HTTP/1.1\r\nHost: a\r\nX: 1\rY: 2\r\n\r\n"}, /* a bare carriage return */
        {400, "GET / HTTP/1.1\r\nHost: a\r\n folded: 1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost : a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n"},
        {400, "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {501, "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"},
        {400, "GET  / HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, "GET / HTTP/1.1 \r\nHost: a\r\n\r\n"},
        {400, "GET /\r\n\r\n"},
        {400, "GET x HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n"}, /* two hosts again */
        {405, "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n"},
        {505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
        {400, "\x16\x03\x01\x02\x00\x01"}, /* TLS */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (request(cases[i].text) != -cases[i].status)
            fail_msg("case %zu: %td instead of %d", i, -request(cases[i].text), cases[i].status);
    char nul[] = "GET / HTTP/1.1\r\nHost: a\r\nX: 1\0002\r\n\r\n";
    assert_int_equal(edge_request_parse(nul, sizeof nul - 1, &rq), -400);
}

static void test_large_head(void **state)
{
    (void)state;
    static char big[EDGE_HEAD_MAX + 100];
    static const char start[] = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
    memset(big, 'x', sizeof big);
    memcpy(big, start, sizeof start - 1);
    assert_int_equal(edge_request_parse(big, EDGE_HEAD_MAX - 1, &rq), 0);
    assert_int_equal(edge_request_parse(big, EDGE_HEAD_MAX, &rq), -431);
    memcpy(big + EDGE_HEAD_MAX - 4, "\r\n\r\n", 4); /* exactly as much as there may be */
    assert_int_equal(edge_request_parse(big, sizeof big, &rq), EDGE_HEAD_MAX);
    memset(big + EDGE_HEAD_MAX - 4, 'x', 4);
    memcpy(big + EDGE_HEAD_MAX - 3, "\r\n\r\n", 4);
    assert_int_equal(edge_request_parse(big, sizeof big, &rq), -431);
}

static void test_responses(void **state)
{
    (void)state;
    assert_int_equal(response("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), 38);
    assert_int_equal(rp.kind, EDGE_BODY_LENGTH);
    assert_int_equal(rp.length, 5);
    assert_true(response("HTTP/1.1 200\nTransfer-Encoding: chunked\n\n") > 0); /* lenient, as clients are */
    assert_int_equal(rp.kind, EDGE_BODY_CHUNKED);
    assert_true(response("HTTP/1.0 200 OK\r\n\r\n") > 0);
    assert_int_equal(rp.kind, EDGE_BODY_REST);
    assert_true(response("HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n") > 0);
    assert_int_equal(rp.kind, EDGE_BODY_NONE);
    assert_true(response("HTTP/1.1 100 Continue\r\n\r\n") > 0);
    assert_int_equal(rp.status, 100);
    assert_true(response("HTTP/1.1 101 Go\r\n\r\n") > 0);
    assert_int_equal(rp.kind, EDGE_BODY_REST);
    static const char *const unclear[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nnonsense\r\nContent-Length: 5\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof unclear / sizeof *unclear; i++) {
        assert_true(response(unclear[i]) > 0);
        assert_int_equal(rp.kind, EDGE_BODY_REST);
    }
    const char *to_head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    assert_true(edge_response_parse(to_head, strlen(to_head), true, &rp) > 0);
    assert_int_equal(rp.kind, EDGE_BODY_NONE);
    assert_int_equal(response("HTTP/1."), 0);
    assert_int_equal(response("HTTP/1.1 200 OK\r\nA: b\r\n"), 0);
    assert_int_equal(response("SSH-2.0-x\r\n"), -1);
    assert_int_equal(response("HTTP/1.1 2x0 OK\r\n\r\n"), -1);
}

/* The same bytes end at the same place however they are cut. */
static void test_chunked(void **state)
{
    (void)state;
    static const char text[] =
        "5;name=\"v\"\r\nhello\r\n00A\r\n0123456789\r\n0\r\nX-End: 1\r\n\r\nGET / next";
    size_t whole = strlen(text) - strlen("GET / next");
    for (size_t cut = 1; cut <= sizeof text - 1; cut++) {
        struct edge_body b;
        size_t at = 0;
        edge_body_init(&b, EDGE_BODY_CHUNKED, 0);
        while (!b.done) {
            size_t n = sizeof text - 1 - at < cut ? sizeof text - 1 - at : cut;
            ptrdiff_t k = edge_body_feed(&b, text + at, n);
            assert_true(k > 0);
            at += (size_t)k;
        }
        assert_int_equal(at, whole);
    }
    static const char *const bad[] = {
        "\r\n", "g\r\n", "-1\r\n", "5\nhello", "1\r\nabc", "0\r\n\n", "1234567890123456\r\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct edge_body b;
        edge_body_init(&b, EDGE_BODY_CHUNKED, 0);
        if (edge_body_feed(&b, bad[i], strlen(bad[i])) != -1)
            fail_msg("'%s' was taken for a chunked body", bad[i]);
    }
}

static void test_endless_trailers(void **state)
{
    (void)state;
    struct edge_body b;
    ptrdiff_t k = 0;
    edge_body_init(&b, EDGE_BODY_CHUNKED, 0);
    assert_int_equal(edge_body_feed(&b, "0\r\n", 3), 3);
    for (int i = 0; i < EDGE_TRAILER_MAX && k >= 0; i++)
        k = edge_body_feed(&b, "a:b\r\n", 5);
    assert_int_equal(k, -1);
}

static void test_length(void **state)
{
    (void)state;
    struct edge_body b;
    edge_body_init(&b, EDGE_BODY_LENGTH, 10);
    assert_int_equal(edge_body_feed(&b, "0123456", 7), 7);
    assert_false(b.done);
    assert_int_equal(edge_body_feed(&b, "789next", 7), 3);
    assert_true(b.done);
    edge_body_init(&b, EDGE_BODY_LENGTH, 0);
    assert_true(b.done);
    edge_body_init(&b, EDGE_BODY_REST, 0);
    assert_int_equal(edge_body_feed(&b, "abc", 3), 3);
    assert_false(b.done);
}

static void test_labels(void **state)
{
    (void)state;
    char label[EDGE_LABEL_TEXT];
    assert_true(edge_host_label("sb-1.vercel.run", "vercel.run", label));
    assert_string_equal(label, "sb-1");
    assert_true(edge_host_label("sb-1.localhost", "vercel.run", label));
    assert_false(edge_host_label("vercel.run", "vercel.run", label));
    assert_false(edge_host_label(".vercel.run", "vercel.run", label));
    assert_false(edge_host_label("a.sb-1.vercel.run", "vercel.run", label));
    assert_false(edge_host_label("sb-1.vercel.run.evil", "vercel.run", label));
    assert_false(edge_host_label("sb-1", "vercel.run", label));
    assert_false(edge_host_label("", "vercel.run", label));
    assert_false(edge_host_label(
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.localhost", "x", label));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),         cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_refusals),         cmocka_unit_test(test_large_head),
        cmocka_unit_test(test_responses),        cmocka_unit_test(test_chunked),
        cmocka_unit_test(test_endless_trailers), cmocka_unit_test(test_length),
        cmocka_unit_test(test_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
