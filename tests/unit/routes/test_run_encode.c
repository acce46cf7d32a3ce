/* A14: output encoded piece by piece is what encoding it at once gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/core/b64.h"
#include "base/ws_codec.h"
#include "routes/run_encode.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static char *all_pieces(bool base64, const char *s, size_t len, size_t *out_len)
{
    static char piece[RUN_PIECE_MAX];
    char *out = malloc(6 * len + 4);
    assert_non_null(out);
    size_t n = 0;
    for (size_t at = 0; at < len;) {
        size_t used;
        size_t m = run_encode(base64, s + at, len - at, piece, &used);
        assert_true(used > 0 && m <= sizeof piece);
        memcpy(out + n, piece, m);
        n += m;
        at += used;
    }
    *out_len = n;
    return out;
}

static void text_is_escaped_as_json_does(const char *s, size_t len)
{
    json_t *v = json_stringn(s, len);
    assert_non_null(v);
    char *want = json_dumps(v, JSON_ENCODE_ANY);
    size_t n;
    char *got = all_pieces(false, s, len, &n);
    assert_int_equal(n + 2, strlen(want));
    assert_memory_equal(got, want + 1, n);
    assert_int_equal(run_text_length(s, len), n);
    free(got);
    free(want);
    json_decref(v);
}

static void escapes(void **state)
{
    (void)state;
    char all[128];
    for (int i = 0; i < 128; i++)
        all[i] = (char)i;
    text_is_escaped_as_json_does(all, sizeof all);
    text_is_escaped_as_json_does("", 0);
    /* characters of three bytes and escapes of six across every boundary */
    size_t len = 5 * (size_t)RUN_PIECE;
    char *s = malloc(len);
    assert_non_null(s);
    for (size_t i = 0; i + 5 <= len; i += 5)
        memcpy(s + i, "\xe2\x82\xac\x01\"", 5);
    text_is_escaped_as_json_does(s, len - len % 5);
    free(s);
}

static void base64_joins(void **state)
{
    (void)state;
    for (size_t len = 3 * (size_t)RUN_PIECE - 2; len <= 3 * (size_t)RUN_PIECE + 2; len++) {
        char *s = malloc(len), *want = malloc(SG_B64_LEN(len));
        assert_true(s && want);
        for (size_t i = 0; i < len; i++)
            s[i] = (char)(i * 7 + i / 251);
        size_t n;
        char *got = all_pieces(true, s, len, &n);
        assert_int_equal(n, sg_b64_encode(want, s, len));
        assert_memory_equal(got, want, n);
        free(got);
        free(want);
        free(s);
    }
}

static void tells_text_from_bytes(void **state)
{
    (void)state;
    assert_true(ws_codec_utf8("", 0));
    assert_true(ws_codec_utf8("a\0\xe2\x82\xac", 5));
    assert_false(ws_codec_utf8("\xe2\x82", 2));
    assert_false(ws_codec_utf8("a\xff", 2));
    assert_false(ws_codec_utf8("\xed\xa0\x80", 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(escapes),
        cmocka_unit_test(base64_joins),
        cmocka_unit_test(tells_text_from_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
