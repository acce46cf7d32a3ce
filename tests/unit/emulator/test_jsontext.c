/* The text of process output in NDJSON lines: UTF-8 is never divided, what is no UTF-8 becomes U+FFFD, and how
 * the bytes arrive makes no difference.  (U5, A24) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "emulator/jsontext.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* What the lines in b say when their data is put together; also checks that each line is one JSON object. */
static void joined(const struct sg_buf *b, struct sg_buf *out)
{
    for (const char *p = b->data; p && *p;) {
        const char *nl = strchr(p, '\n');
        assert_non_null(nl);
        json_error_t je;
        json_t *o = json_loadb(p, (size_t)(nl - p), JSON_ALLOW_NUL, &je);
        assert_non_null(o);
        assert_string_equal(json_string_value(json_object_get(o, "stream")), "stdout");
        json_t *d = json_object_get(o, "data");
        assert_true(json_string_length(d) > 0);
        sg_buf_add(out, json_string_value(d), json_string_length(d));
        json_decref(o);
        p = nl + 1;
    }
}

static void feed(const void *data, size_t n, size_t piece, struct sg_buf *text)
{
    struct jsontext_stream st = {0};
    struct sg_buf lines;
    sg_buf_init(&lines, 1 << 24);
    for (size_t i = 0; i < n; i += piece)
        jsontext_line(&st, "stdout", (const char *)data + i, n - i < piece ? n - i : piece, false, &lines);
    jsontext_line(&st, "stdout", "", 0, true, &lines);
    assert_false(lines.failed);
    joined(&lines, text);
    sg_buf_free(&lines);
}

static void check(const void *data, size_t n, const char *want, size_t want_len)
{
    for (size_t piece = 1; piece <= n; piece++) {
        struct sg_buf text;
        sg_buf_init(&text, 1 << 20);
        feed(data, n, piece, &text);
        assert_int_equal(text.len, want_len);
        assert_memory_equal(text.data, want, want_len);
        sg_buf_free(&text);
    }
}
#define CHECK(in, want) check(in, sizeof(in) - 1, want, sizeof(want) - 1)
#define BAD             "\xef\xbf\xbd"

static void test_plain_and_escapes(void **state)
{
    (void)state;
    CHECK("hello\n", "hello\n");
    CHECK("a\"b\\c\td\re\x01\x1f\x7f", "a\"b\\c\td\re\x01\x1f\x7f");
    CHECK("nul\0inside", "nul\0inside");
    CHECK("0123456\"89012345\\789\n", "0123456\"89012345\\789\n");
    CHECK("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
          "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
}

static void test_not_utf8(void **state)
{
    (void)state;
    CHECK("\xff", BAD);
    CHECK("a\x80z", "a" BAD "z");
    CHECK("\xc0\xaf", BAD BAD);                 /* overlong */
    CHECK("\xed\xa0\x80", BAD BAD BAD);         /* surrogate */
    CHECK("\xf4\x90\x80\x80", BAD BAD BAD BAD); /* beyond U+10FFFF */
    CHECK("\xe2\x82", BAD);                     /* cut at the end: one maximal part */
    CHECK("\xe2\x82z", BAD "z");
    CHECK("\xf0\x9f\x98\xc3\xbc", BAD "\xc3\xbc");
    CHECK("\xc3\xc3\xbc", BAD "\xc3\xbc");
    CHECK("\xf0\x9f\"", BAD "\"");
}

/* A character whose rest has not come yet is held back, and nothing else is. */
static void test_tail_is_held_back(void **state)
{
    (void)state;
    struct jsontext_stream st = {0};
    struct sg_buf out;
    sg_buf_init(&out, 4096);
    jsontext_line(&st, "stderr", "ab\xe2\x82", 4, false, &out);
    assert_string_equal(out.data, "{\"stream\":\"stderr\",\"data\":\"ab\"}\n");
    sg_buf_reset(&out);
    jsontext_line(&st, "stderr", "", 0, false, &out);
    assert_int_equal(out.len, 0);
    jsontext_line(&st, "stderr", "\xac", 1, false, &out);
    assert_string_equal(out.data, "{\"stream\":\"stderr\",\"data\":\"\xe2\x82\xac\"}\n");
    sg_buf_reset(&out);
    jsontext_line(&st, "stderr", "", 0, true, &out);
    assert_int_equal(out.len, 0);
    sg_buf_free(&out);
}

/* Property: random bytes in random pieces say the same as in one piece. */
static void test_pieces_make_no_difference(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "\xf0\x9f\x98\x80", "\xe2\x82\xac",     "\xc3\xbc", "a",    "\"",       "\n",  "\xff", "\xe2", "\x82",
        "\xf0\x9f",         "0123456789abcdef", "\\",       "\x01", "\xed\xa0", "\xc0"};
    srandom(20261130);
    for (int round = 0; round < 400; round++) {
        struct sg_buf in, whole, lines, text;
        sg_buf_init(&in, 1 << 16);
        sg_buf_init(&whole, 1 << 20);
        sg_buf_init(&lines, 1 << 20);
        sg_buf_init(&text, 1 << 20);
        for (int i = 0; i < 60; i++)
            sg_buf_adds(&in, parts[(size_t)random() % (sizeof parts / sizeof *parts)]);
        feed(in.data, in.len, in.len, &whole);
        struct jsontext_stream st = {0};
        for (size_t at = 0; at < in.len;) {
            size_t n = (size_t)random() % 9;
            if (n > in.len - at)
                n = in.len - at;
            jsontext_line(&st, "stdout", in.data + at, n, false, &lines);
            at += n;
        }
        jsontext_line(&st, "stdout", "", 0, true, &lines);
        joined(&lines, &text);
        assert_int_equal(text.len, whole.len);
        assert_memory_equal(text.data, whole.data, whole.len);
        sg_buf_free(&in);
        sg_buf_free(&whole);
        sg_buf_free(&lines);
        sg_buf_free(&text);
    }
}

static void test_strings(void **state)
{
    (void)state;
    struct sg_buf b;
    sg_buf_init(&b, 4096);
    jsontext_adds(&b, "a\"\xc3\xbc\n");
    jsontext_add(&b, "\xe2\x82", 2);
    assert_string_equal(b.data, "\"a\\\"\xc3\xbc\\n\"\"" BAD "\"");
    sg_buf_free(&b);
}

static void test_ceiling_is_kept(void **state)
{
    (void)state;
    struct jsontext_stream st = {0};
    struct sg_buf b;
    sg_buf_init(&b, 64);
    jsontext_line(&st, "stdout", "0123456789", 10, false, &b);
    assert_true(b.failed);
    assert_int_equal(b.len, 0);
    sg_buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_and_escapes), cmocka_unit_test(test_not_utf8),
        cmocka_unit_test(test_tail_is_held_back), cmocka_unit_test(test_pieces_make_no_difference),
        cmocka_unit_test(test_strings),           cmocka_unit_test(test_ceiling_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
