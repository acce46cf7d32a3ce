/* JSON read in place and written straight, each against jansson. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/json.h"
#include "base/json_doc.h"
#include "base/json_write.h"

#include <stdlib.h>
#include <string.h>

static bool parse(const char *s, struct sg_jdoc *d)
{
    char *text = strdup(s);
    assert_non_null(text);
    bool ok = sg_jdoc_parse(text, strlen(s), d);
    if (!ok) {
        free(text);
        assert_null(d->text);
        assert_null(d->nodes);
    }
    return ok;
}

static void values_are_read(void **state)
{
    (void)state;
    struct sg_jdoc d;
    assert_true(
        parse(" { \"s\" : \"a\\u00fc\\ud83d\\ude00\\n\\/\\\"ü\", \"n\":-9223372036854775808,\"r\":1.5e2,"
              "\"t\":true,\"f\":false,\"z\":null,\"a\":[1,[2,{}],\"x\"],\"o\":{\"k\":\"v\"},"
              "\"s2\":\"\",\"twice\":1,\"twice\":2}\r\n\t",
              &d));
    const struct sg_jnode *o = sg_jdoc_root(&d);
    assert_int_equal(o->span, d.count);
    assert_string_equal(sg_jn_str(o, "s", ""), "aü😀\n/\"ü");
    assert_string_equal(sg_jn_str(o, "s2", "x"), "");
    assert_int_equal(sg_jn_int(o, "n", 0), INT64_MIN);
    assert_int_equal(sg_jn_int(o, "r", 0), 150);
    assert_int_equal(sg_jn_int(o, "twice", 0), 2);
    assert_int_equal(sg_jn_int(o, "s", 7), 7); /* another type, or absent: the default */
    assert_int_equal(sg_jn_int(o, "none", 8), 8);
    assert_true(sg_jn_bool(o, "t", false));
    assert_false(sg_jn_bool(o, "f", true));
    assert_true(sg_jn_bool(o, "z", true));
    assert_string_equal(sg_jn_str(sg_jn_get(o, "o"), "k", ""), "v");
    assert_null(sg_jn_get(sg_jn_get(o, "z"), "k"));
    assert_null(sg_jn_get(NULL, "k"));
    const struct sg_jnode *a = sg_jn_get(o, "a");
    assert_int_equal(a->len, 3);
    a += 1;
    assert_int_equal(a->u.integer, 1);
    a += a->span;
    assert_int_equal(a->len, 2);
    a += a->span;
    assert_string_equal(a->u.text, "x");
    sg_jdoc_free(&d);
    sg_jdoc_free(&d);
}

static void what_jansson_refuses_is_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",
        " ",
        "1",
        "\"a\"",
        "{",
        "}",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "[,]",
        "[1 2]",
        "{,}",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "{\"a\":1,}",
        "{1:1}",
        "[01]",
        "[-]",
        "[1.]",
        "[.5]",
        "[1e]",
        "[+1]",
        "[1e+]",
        "[-01]",
        "[tru]",
        "[truex]",
        "[nul",
        "[\"a]",
        "[\"\\x\"]",
        "[\"\\u12\"]",
        "[\"\n\"]",
        "[\"\\\"]",
        "[] []",
        "[1]x",
        "{}{",
        "[\"\xff\"]",
        "[\"\xc0\x80\"]",
        "[\"\xed\xa0\x80\"]",
        "[\"\xe2\x82\"]",
        "[\"\xf4\x90\x80\x80\"]",
        "[\"\\u0000\"]",
        "[\"\\ud800\"]",
        "[\"\\udc00\"]",
        "[\"\\ud800\\u0041\"]",
        "[9223372036854775808]",
        "[-9223372036854775809]",
        "[1e999]",
        "\xef\xbb\xbf[]",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sg_jdoc d;
        json_t *v = json_loads(cases[i], 0, NULL);
        assert_null(v);
        assert_false(parse(cases[i], &d));
    }
    struct sg_jdoc d;
    char *nul = malloc(4);
    assert_non_null(nul);
    memcpy(nul, "[]\0", 4);
    assert_false(sg_jdoc_parse(nul, 3, &d));
    free(nul);
}

static void depth_and_size_are_bounded(void **state)
{
    (void)state;
    char text[2 * SG_JDOC_DEPTH_MAX + 8];
    for (size_t depth = SG_JDOC_DEPTH_MAX; depth <= SG_JDOC_DEPTH_MAX + 1; depth++) {
        struct sg_jdoc d;
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        text[2 * depth] = '\0';
        assert_int_equal(parse(text, &d), depth == SG_JDOC_DEPTH_MAX);
        sg_jdoc_free(&d);
    }
    size_t n = 2 * (size_t)SG_JDOC_NODES_MAX + 4;
    char *many = malloc(n + 2);
    assert_non_null(many);
    for (size_t i = 0; i < n; i += 2)
        memcpy(many + i, "1,", 2);
    many[0] = '[';
    many[1] = '1';
    memcpy(many + n - 1, "]", 2);
    struct sg_jdoc d;
    assert_false(sg_jdoc_parse(many, n, &d));
    free(many);
}

static void texts_are_written_as_jansson_does(void **state)
{
    (void)state;
    char all[256];
    for (int i = 1; i < 0x80; i++)
        all[i - 1] = (char)i;
    memcpy(all + 0x7f, "ü€😀", sizeof "ü€😀");
    const char *const cases[] = {"", "a", "\"\\/\b\f\n\r\t", all};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *v = json_pack("{s:s,s:[I,b,n]}", "k", cases[i], "l", (json_int_t)INT64_MIN, 1);
        char *want = json_dumps(v, JSON_COMPACT);
        struct sg_buf b;
        sg_buf_init(&b, 4096);
        sg_buf_adds(&b, "{");
        sg_jw_key(&b, "k");
        sg_jw_text(&b, cases[i]);
        sg_jw_key(&b, "l");
        sg_buf_adds(&b, "[");
        sg_jw_next(&b);
        sg_jw_int(&b, INT64_MIN);
        sg_jw_next(&b);
        sg_jw_bool(&b, true);
        sg_jw_next(&b);
        sg_jw_text(&b, NULL);
        sg_buf_adds(&b, "]}");
        assert_false(b.failed);
        assert_string_equal(b.data, want);
        sg_buf_free(&b);
        free(want);
        json_decref(v);
    }
    struct sg_buf small;
    sg_buf_init(&small, 8);
    sg_jw_text(&small, "longer than that");
    assert_true(small.failed);
    sg_buf_free(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_read),
        cmocka_unit_test(what_jansson_refuses_is_refused),
        cmocka_unit_test(depth_and_size_are_bounded),
        cmocka_unit_test(texts_are_written_as_jansson_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
