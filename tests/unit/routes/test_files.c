/* Times, cursors and names of files as the API shows them.  C8, E10; P35. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "routes/files.h"

#include <stdio.h>
#include <string.h>

/* ---- a request made of memory ---- */

static const char *query[8][2];
static char link_header[256];

const char *ex_query(struct exchange *ex, const char *key, size_t *len)
{
    (void)ex;
    for (size_t i = 0; i < 8 && query[i][0]; i++)
        if (strcmp(query[i][0], key) == 0) {
            if (len)
                *len = strlen(query[i][1]);
            return query[i][1];
        }
    return NULL;
}

const char *ex_query_nth(struct exchange *ex, const char *key, size_t i, size_t *len)
{
    (void)ex;
    for (size_t k = 0; k < 8 && query[k][0]; k++)
        if (strcmp(query[k][0], key) == 0 && i-- == 0) {
            *len = strlen(query[k][1]);
            return query[k][1];
        }
    return NULL;
}

enum sg_code ex_query_only(struct exchange *ex, const char *const allowed[], struct sg_error *e)
{
    (void)ex;
    for (size_t i = 0; i < 8 && query[i][0]; i++) {
        size_t k = 0;
        while (allowed[k] && strcmp(allowed[k] + (*allowed[k] == '*'), query[i][0]) != 0)
            k++;
        if (!allowed[k])
            return sg_fail_field(e, SG_E_UNKNOWN_FIELD, query[i][0], "unknown");
    }
    return SG_OK;
}

enum sg_code ex_query_int(struct exchange *ex, const char *key, int64_t min, int64_t max, int64_t *out,
                          struct sg_error *e)
{
    (void)ex;
    (void)key;
    (void)min;
    (void)max;
    (void)out;
    (void)e;
    return SG_OK;
}

void ex_set_header(struct exchange *ex, const char *name, const char *value)
{
    (void)ex;
    assert_string_equal(name, "Link");
    (void)snprintf(link_header, sizeof link_header, "%s", value);
}

static void test_times_round_trip(void **state)
{
    (void)state;
    static const int64_t times[] = {0,         1,         -1, 999999999, -1000000000, 1700000000123456789,
                                    INT64_MAX, -INT64_MAX};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        char text[FILES_TIME_TEXT];
        int64_t back = 7;
        files_time_format(times[i], text);
        if (times[i] != -INT64_MAX) { /* whose second does not fit */
            assert_true(files_time_parse(text, strlen(text), &back));
            assert_int_equal(back, times[i]);
        }
    }
}

static void test_times(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "2026-11-30T12:00:00",
                                      "2026-11-30T12:00:00z",
                                      "2026-11-30 12:00:00Z",
                                      "2026-11-30T12:00:00.Z",
                                      "2026-11-30T12:00:00.1234567890Z",
                                      "2026-11-30T12:00:00+00:00",
                                      "2026-02-29T12:00:00Z",
                                      "2026-13-01T12:00:00Z",
                                      "2026-11-30T24:00:00Z",
                                      "2026-11-30T12:00:60Z",
                                      "2026-11-30T12:00:00ZZ",
                                      "9999-11-30T12:00:00Z",
                                      "1600-11-30T12:00:00Z",
                                      "202-11-30T12:00:00Z"};
    int64_t ns;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (files_time_parse(bad[i], strlen(bad[i]), &ns))
            fail_msg("%s", bad[i]);
    assert_false(files_time_parse("2026-11-30T12:00:00Z\0x", 22, &ns));
    assert_true(files_time_parse("2024-02-29T00:00:00.5Z", 22, &ns));
    assert_int_equal(ns, 1709164800500000000);
    assert_true(files_time_parse("1969-12-31T23:59:59.999999999Z", 30, &ns));
    assert_int_equal(ns, -1);
}

static void test_names(void **state)
{
    (void)state;
    struct sg_buf out;
    sg_buf_init(&out, 4096);
    (void)sg_buf_adds(&out, "{");
    files_put_bytes(&out, "name", "a\"\n\xc3\xbc", 5);
    files_put_bytes(&out, "text", "a\0b", 3);
    files_put_bytes(&out, "path", "\xff\xfe", 2);
    files_put_bytes(&out, "none", "", 0);
    (void)sg_buf_adds(&out, "}");
    assert_false(out.failed);
    assert_string_equal(
        out.data,
        "{\"name\":\"a\\\"\\n\xc3\xbc\",\"text_b64\":\"YQBi\",\"path_b64\":\"//4=\",\"none\":\"\"}");
    sg_buf_free(&out);
}

static void test_cursors(void **state)
{
    (void)state;
    struct files_call f = {0};
    for (size_t n = 1; n <= 4096; n = n * 2 + 1) {
        char data[4097], got[FILES_CURSOR_MAX];
        size_t len = 0;
        struct sg_buf out;
        for (size_t i = 0; i < n; i++)
            data[i] = (char)(1 + (i * 37 + n) % 255);
        sg_buf_init(&out, 65536); /* the text is reckoned with six bytes for each */
        files_put_cursor(&f, &out, data, n);
        assert_false(out.failed);
        char *text = strchr(out.data, ':') + 2;
        size_t text_len = strlen(text) - 1;
        assert_int_equal(text[text_len], '"');
        assert_int_equal(strcspn(text, "+/="), text_len + 1);
        assert_true(files_cursor_parse(text, text_len, got, &len));
        assert_int_equal(len, n);
        assert_memory_equal(got, data, n);
        sg_buf_free(&out);
    }
}

static void test_foreign_cursors(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "a", "YQ==", "a+bc", "a/bc", "?", "YR", "AA", "YWFhY"};
    static char much[FILES_CURSOR_MAX + 8], got[FILES_CURSOR_MAX];
    size_t len;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (files_cursor_parse(bad[i], strlen(bad[i]), got, &len))
            fail_msg("%s", bad[i]);
    memset(much, 'Y', sizeof much);
    assert_true(files_cursor_parse(much, FILES_CURSOR_MAX, got, &len));
    assert_false(files_cursor_parse(much, FILES_CURSOR_MAX + 1, got, &len));
}

static const struct files_op op = {
    .op = "glob",
    .fields = {{"path", "--path", FILES_PATH, true, 0, 0, -1},
               {"pattern", "--pattern", FILES_PATTERN, false, 0, 0, -1},
               {"follow", "--no-follow", FILES_UNLESS, false, 0, 0, -1}},
    .reads = true,
    .pages = true,
};

/* The next page is asked for with all that was asked now, whatever bytes the names have. */
static void test_link(void **state)
{
    (void)state;
    struct exchange ex = {.params = {"box"}};
    struct files_call f = {.act.ex = &ex, .op = &op};
    struct sg_buf out;
    sg_buf_init(&out, 4096);
    memset(query, 0, sizeof query);
    query[0][0] = "path";
    query[0][1] = "a\xff>&\n";
    query[1][0] = "sudo";
    query[1][1] = "true";
    files_put_cursor(&f, &out, "b", 1);
    assert_string_equal(
        link_header, "</v1/sandboxes/box/files/glob?path=a%FF%3E%26%0A&sudo=true&cursor=Yg>; rel=\"next\"");
    files_put_cursor(&f, &out, NULL, 0);
    assert_non_null(strstr(out.data, "\"next_cursor\":null"));
    sg_buf_free(&out);
}

static enum sg_code parse(struct fs_request *r, struct sg_error *e)
{
    struct exchange ex = {0};
    bool resume = false;
    *r = (struct fs_request){0};
    *e = (struct sg_error){0};
    return files_parse(&ex, &op, r, &resume, e);
}

static void test_parse(void **state)
{
    (void)state;
    struct fs_request r;
    struct sg_error e;
    memset(query, 0, sizeof query);
    assert_int_equal(parse(&r, &e), SG_E_INVALID_PATH);
    assert_string_equal(e.pointer, "?path");
    fs_request_free(&r);
    query[0][0] = "path_b64";
    query[0][1] = "/w==";
    query[1][0] = "follow";
    query[1][1] = "false";
    assert_int_equal(parse(&r, &e), SG_OK);
    assert_int_equal(r.n, 6);
    assert_string_equal(r.args[4], "/w==");
    assert_string_equal(r.args[5], "--no-follow");
    assert_true(r.reads && r.again && !r.failed);
    fs_request_free(&r);
    query[2][0] = "path";
    query[2][1] = "x";
    assert_int_equal(parse(&r, &e), SG_E_INVALID_FIELD); /* both */
    fs_request_free(&r);
    query[2][0] = "pattern";
    query[2][1] = "";
    assert_int_equal(parse(&r, &e), SG_E_INVALID_FIELD);
    assert_string_equal(e.pointer, "?pattern");
    fs_request_free(&r);
    query[2][0] = "other";
    assert_int_equal(parse(&r, &e), SG_E_UNKNOWN_FIELD);
    fs_request_free(&r);
}

static void test_lists(void **state)
{
    (void)state;
    static const struct files_op tar = {.op = "tar",
                                        .fields = {{"path", "--path", FILES_PATH, true, 0, 0, -1},
                                                   {"include", "--include", FILES_LIST, false, 0, 0, -1}}};
    static char half[FILES_LIST_MAX / 4];
    struct exchange ex = {0};
    struct fs_request r = {0};
    struct sg_error e;
    bool resume;
    memset(query, 0, sizeof query);
    memset(half, 'x', sizeof half - 1);
    query[0][0] = "path";
    query[1][0] = query[2][0] = query[3][0] = "include";
    query[0][1] = "d";
    query[1][1] = "*.c";
    query[2][1] = "\xff,";
    query[3][1] = "h";
    assert_int_equal(files_parse(&ex, &tar, &r, &resume, &e), SG_OK);
    assert_string_equal(r.args[5], "--include");
    assert_string_equal(r.args[6], "Ki5jAP8sAGg="); /* with NUL between them */
    fs_request_free(&r);
    query[3][1] = "";
    assert_int_equal(files_parse(&ex, &tar, &r, &resume, &e), SG_E_INVALID_FIELD);
    assert_string_equal(e.pointer, "?include");
    fs_request_free(&r);
    for (int i = 1; i < 6; i++) { /* more than fit */
        query[i][0] = "include";
        query[i][1] = half;
    }
    assert_int_equal(files_parse(&ex, &tar, &r, &resume, &e), SG_E_INVALID_FIELD);
    fs_request_free(&r);
    query[1][0] = "include_b64"; /* there is none */
    assert_int_equal(files_parse(&ex, &tar, &r, &resume, &e), SG_E_UNKNOWN_FIELD);
    fs_request_free(&r);
    memset(query, 0, sizeof query);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times_round_trip),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_link),
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_cursors),
        cmocka_unit_test(test_foreign_cursors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
