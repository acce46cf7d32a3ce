/* Lines of the command stream: cut anywhere, decoded by hand as jansson would. */
#include "vercel/ndjson.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every way to cut the input in two gives the same lines. */
static void test_cut_anywhere(void **state)
{
    (void)state;
    static const char input[] = "\n{\"a\":1}\r\n\r\n\n{\"b\":2}\n{\"c\":3}";
    static const char *const want[] = {"{\"a\":1}", "{\"b\":2}"};
    for (size_t cut = 0; cut < sizeof input; cut++) {
        struct ndjson n;
        ndjson_init(&n);
        const char *part[] = {input, input + cut};
        size_t len[] = {cut, sizeof input - 1 - (cut < sizeof input ? cut : sizeof input - 1)};
        size_t got = 0;
        char *line = NULL;
        size_t line_len = 0;
        for (int i = 0; i < 2; i++)
            while (ndjson_next(&n, &part[i], &len[i], &line, &line_len) == NDJSON_LINE) {
                const char *expected = got < 2 ? want[got] : "";
                got++;
                assert_string_equal(line, expected);
                assert_int_equal(line_len, strlen(expected));
            }
        assert_int_equal(got, 2);
        assert_true(ndjson_rest(&n, &line, &line_len));
        assert_string_equal(line, "{\"c\":3}");
        assert_false(ndjson_rest(&n, &line, &line_len));
        ndjson_free(&n);
    }
}

static void test_line_limit(void **state)
{
    (void)state;
    char *big = malloc(NDJSON_LINE_MAX + 2);
    memset(big, 'x', NDJSON_LINE_MAX + 2);
    big[NDJSON_LINE_MAX + 1] = '\n';
    struct ndjson n;
    ndjson_init(&n);
    const char *p = big + 1; /* exactly the limit */
    size_t len = NDJSON_LINE_MAX + 1;
    char *line;
    size_t line_len;
    assert_int_equal(ndjson_next(&n, &p, &len, &line, &line_len), NDJSON_LINE);
    assert_int_equal(line_len, NDJSON_LINE_MAX);
    p = big;
    len = NDJSON_LINE_MAX + 2;
    assert_int_equal(ndjson_next(&n, &p, &len, &line, &line_len), NDJSON_TOO_LONG);
    ndjson_free(&n);
    free(big);
}

static void check(const char *line, enum ndjson_kind kind, const char *text)
{
    char *copy = strdup(line);
    struct ndjson_value v;
    ndjson_decode(copy, strlen(copy), &v);
    assert_int_equal(v.kind, kind);
    if (text) {
        assert_int_equal(v.len, strlen(text));
        assert_memory_equal(v.text, text, v.len);
    }
    ndjson_value_clear(&v);
    free(copy);
}

static void test_kinds(void **state)
{
    (void)state;
    check("{\"stream\":\"stdout\",\"data\":\"hi\\n\"}", NDJSON_STDOUT, "hi\n");
    check("{\"stream\":\"stderr\",\"data\":\"\"}", NDJSON_STDERR, "");
    check("{ \"data\" : \"hi\" , \"stream\" : \"stdout\" }", NDJSON_STDOUT, "hi");
    check("{\"stream\":\"stdout\",\"data\":\"a\",\"more\":1}", NDJSON_STDOUT, "a");
    check("{\"stream\":\"error\",\"data\":{\"code\":\"x\"}}", NDJSON_ERROR, NULL);
    check("{\"command\":{\"id\":\"cmd_1\"}}", NDJSON_COMMAND, NULL);
    check("{\"stream\":\"metrics\",\"data\":1}", NDJSON_OTHER, NULL);
    check("{\"stream\":\"stdout\",\"data\":1}", NDJSON_BAD, NULL);
    check("{\"stream\":\"stdout\"}", NDJSON_BAD, NULL);
    check("{\"command\":1}", NDJSON_BAD, NULL);
    check("{}", NDJSON_BAD, NULL);
    check("[]", NDJSON_BAD, NULL);
    check("   ", NDJSON_BAD, NULL);
    check("{\"stream\":\"stdout\",\"data\":\"cut", NDJSON_BAD, NULL);
    check("{\"stream\":\"stdout\",\"data\":\"a\tb\"}", NDJSON_BAD, NULL); /* a raw control character */
    check("{\"stream\":\"stdout\",\"data\":\"a\\x\"}", NDJSON_BAD, NULL);
}

static void test_escapes(void **state)
{
    (void)state;
    check("{\"stream\":\"stdout\",\"data\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", NDJSON_STDOUT,
          "\"\\/\b\f\n\r\t");
    check("{\"stream\":\"stdout\",\"data\":\"\\u0041\\u00e9\\u20ac\\ud83d\\ude00!\"}", NDJSON_STDOUT,
          "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80!");
    check("{\"stream\":\"stdout\",\"data\":\"\\ud83dx\"}", NDJSON_STDOUT, "\xef\xbf\xbdx");
    check("{\"stream\":\"stdout\",\"data\":\"\xff\"}", NDJSON_STDOUT, "\xff"); /* passed on as it is */
    char nul[] = "{\"stream\":\"stdout\",\"data\":\"a\\u0000b\"}";
    struct ndjson_value v;
    ndjson_decode(nul, sizeof nul - 1, &v);
    assert_int_equal(v.len, 3);
    assert_memory_equal(v.text, "a\0b", 3);
    ndjson_value_clear(&v);
}

/* The way of a large output: must not be what limits a stream (the real margin is far larger). */
static void test_throughput(void **state)
{
    (void)state;
    enum { LINES = 512, TEXT = 64 * 1024 };
    const char head[] = "{\"stream\":\"stdout\",\"data\":\"";
    size_t line_len = sizeof head - 1 + TEXT + 5;
    size_t total = LINES * line_len;
    char *all = malloc(total);
    memset(all, 'A', total);
    for (size_t i = 0; i < LINES; i++) {
        char *p = all + i * line_len;
        for (size_t k = 0; k < sizeof head - 1; k++)
            p[k] = head[k];
        for (size_t k = 0; k < 5; k++)
            p[sizeof head - 1 + TEXT + k] = "\\n\"}\n"[k];
    }
    struct ndjson n;
    ndjson_init(&n);
    int64_t before = sg_mono_ns();
    size_t text = 0;
    for (size_t at = 0; at < total; at += 16384) {
        const char *p = all + at;
        size_t left = total - at < 16384 ? total - at : 16384;
        char *line;
        size_t len;
        while (ndjson_next(&n, &p, &left, &line, &len) == NDJSON_LINE) {
            struct ndjson_value v;
            assert_true(ndjson_decode_fast(line, len, &v));
            text += v.len;
        }
    }
    double s = (double)(sg_mono_ns() - before) / 1e9;
    assert_int_equal(text, (size_t)LINES * (TEXT + 1));
    printf("# %.0f MB/s\n", (double)total / 1e6 / s);
    ndjson_free(&n);
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_anywhere), cmocka_unit_test(test_line_limit), cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_escapes),      cmocka_unit_test(test_throughput),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
