/* Cursors of watches and their records: what was not given out for this request goes nowhere.  C8. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "routes/exchange.h"
#include "routes/watch_text.h"

#include <stdio.h>
#include <string.h>

/* What files_json.c needs for other things than these. */
const char *ex_query(struct exchange *ex, const char *key, size_t *len)
{
    (void)ex;
    (void)key;
    (void)len;
    return NULL;
}

void ex_set_header(struct exchange *ex, const char *name, const char *value)
{
    (void)ex;
    (void)name;
    (void)value;
}

static struct fs_request request(const char *path, bool recursive, bool sudo)
{
    struct fs_request r = {.sudo = sudo};
    fs_request_begin(&r, "watch");
    fs_request_bytes(&r, "--path", path, strlen(path));
    if (recursive)
        fs_request_flag(&r, "--recursive");
    assert_false(r.failed);
    return r;
}

static void ids_say_what_they_are_for(void **state)
{
    (void)state;
    struct fs_request all[] = {request("/a", false, false), request("/a", true, false),
                               request("/a", false, true), request("/b", false, false)};
    enum { N = sizeof all / sizeof *all };
    char id[N][SG_WIRE_ID_MAX + 1], other[SG_WIRE_ID_MAX + 1];
    for (size_t i = 0; i < N; i++) {
        assert_true(watch_id_make(id[i], &all[i]));
        assert_true(sg_wire_id_valid(id[i], strlen(id[i])) && sg_wire_id_own(id[i]));
        assert_true(watch_id_make(other, &all[i]));
        assert_string_not_equal(other, id[i]);
        assert_true(watch_id_fits(other, &all[i]));
    }
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < N; k++)
            assert_int_equal(watch_id_fits(id[i], &all[k]), i == k);
    id[0][strlen(id[0]) - 1] = '\0';
    assert_false(watch_id_fits(id[0], &all[0]) || watch_id_fits("", &all[0]) ||
                 watch_id_fits("sgw-", &all[0]));
    for (size_t i = 0; i < N; i++)
        fs_request_free(&all[i]);
}

static void cursors(void **state)
{
    (void)state;
    struct watch_cursor c;
    char text[WATCH_CURSOR_MAX];
    static const char *const good[] = {"sgw-1.0", "sgw-a-b.12345", "sgw-1.2305843009213693951;end"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(watch_cursor_parse(good[i], strlen(good[i]), &c));
        assert_int_equal(c.over, i == 2);
        watch_cursor_format(&c, text);
        assert_string_equal(text, good[i]);
    }
    static const char *const bad[] = {
        "",          "x",         "sgw-1",    "sgw-1.",          "sgw-1.x",
        "sgw-1.-1",  "sgw-1.1.2", "other.1",  "sgw-/.1",         "sgw-1.1;en",
        "sgw-1;end", ".1",        "sgw-1. 1", "sgw-1.1;end;end", "sgw-1.99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (watch_cursor_parse(bad[i], strlen(bad[i]), &c))
            fail_msg("accepted: %s", bad[i]);
    char longest[4096];
    memset(longest, 'a', sizeof longest);
    memcpy(longest, "sgw-", 4);
    longest[4000] = '.';
    assert_false(watch_cursor_parse(longest, sizeof longest, &c));
    longest[60] = '.';
    assert_false(watch_cursor_parse(longest, sizeof longest, &c));
    assert_false(watch_cursor_parse("sgw-1.1\0", 8, &c));
}

static void put(const char *wanted, enum events_format format, const struct sg_wire_line *l)
{
    struct watch_cursor c = {.id = "sgw-1", .offset = 7};
    struct sg_buf b;
    sg_buf_init(&b, 64 * 1024);
    assert_true(watch_put_change(&b, format, &c, l));
    assert_int_equal(b.len, strlen(wanted));
    assert_memory_equal(b.data, wanted, b.len);
    sg_buf_free(&b);
}

static void records(void **state)
{
    (void)state;
    struct sg_wire_line l = {.kind = SG_WIRE_CHANGE,
                             .change = SG_CH_CREATE,
                             .entry = 'd',
                             .name = (const unsigned char *)"a\n\"",
                             .name_len = 3};
    put("event: create\nid: sgw-1.7\ndata: {\"type\":\"create\",\"cursor\":\"sgw-1.7\",\"path\":\"a\\n\\\"\","
        "\"file_type\":\"directory\"}\n\n",
        EVENTS_SSE, &l);
    l = (struct sg_wire_line){.kind = SG_WIRE_CHANGE,
                              .change = SG_CH_MOVE,
                              .entry = 'f',
                              .name = (const unsigned char *)"\xff",
                              .name_len = 1,
                              .data = (const unsigned char *)"b",
                              .len = 1};
    put("{\"type\":\"move\",\"cursor\":\"sgw-1.7\",\"path\":\"b\",\"from_b64\":\"/w==\",\"to\":\"b\","
        "\"file_type\":\"file\"}\n",
        EVENTS_NDJSON, &l);
    l = (struct sg_wire_line){.kind = SG_WIRE_CHANGE, .change = SG_CH_OVERFLOW};
    put("{\"type\":\"overflow\",\"cursor\":\"sgw-1.7\"}\n", EVENTS_NDJSON, &l);
}

/* Names that make the longest record there can be find room. */
static void the_longest_record(void **state)
{
    (void)state;
    static unsigned char name[SG_WIRE_DATA_MAX];
    memset(name, 1, sizeof name); /* six characters each */
    struct watch_cursor c = {.id = "sgw-1", .offset = 7};
    struct sg_wire_line l = {.kind = SG_WIRE_CHANGE,
                             .change = SG_CH_MOVE,
                             .name = name,
                             .name_len = 1,
                             .data = name + 1,
                             .len = SG_WIRE_DATA_MAX - 1};
    struct sg_buf b;
    sg_buf_init(&b, 128 * 1024);
    assert_true(watch_put_change(&b, EVENTS_SSE, &c, &l));
    assert_in_range(b.len, 12 * (size_t)(SG_WIRE_DATA_MAX - 1), 128 * 1024);
    sg_buf_free(&b);
}

static void reasons(void **state)
{
    (void)state;
    assert_string_equal(watch_end_reason("moved"), "moved");
    assert_null(watch_end_reason("session_ended"));
    assert_null(watch_end_reason(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_say_what_they_are_for), cmocka_unit_test(cursors), cmocka_unit_test(records),
        cmocka_unit_test(the_longest_record),        cmocka_unit_test(reasons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
