/* Records of events over HTTP, and what clients ask with.  P05, P06, P07. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/core/b64.h"
#include "relay/events.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void accepts(const char *header, int want)
{
    enum events_format f;
    bool ok = events_accept(header, &f);
    if (ok != (want >= 0) || (ok && (int)f != want))
        fail_msg("Accept: %s", header ? header : "none");
}

static void test_accept(void **state)
{
    (void)state;
    enum { NEITHER = -1 };
    accepts(NULL, EVENTS_SSE);
    accepts("", EVENTS_SSE);
    accepts("*/*", EVENTS_SSE);
    accepts("text/event-stream", EVENTS_SSE);
    accepts("TEXT/Event-Stream; charset=utf-8", EVENTS_SSE);
    accepts("application/x-ndjson", EVENTS_NDJSON);
    accepts("application/ndjson", EVENTS_NDJSON);
    accepts("application/*, text/*;q=0.9", EVENTS_NDJSON);
    accepts("text/*", EVENTS_SSE);
    accepts("application/x-ndjson, */*", EVENTS_NDJSON); /* named is liked better than any */
    accepts("text/event-stream;q=0.1, application/x-ndjson;q=0.2", EVENTS_NDJSON);
    accepts("text/event-stream;q=0.999,application/x-ndjson;q=0.998", EVENTS_SSE);
    accepts("*/*;q=0.5, text/event-stream;q=0", EVENTS_NDJSON);
    accepts("text/html, application/json", NEITHER);
    accepts("text/event-stream;q=0", NEITHER);
    accepts("text/event-stream;q=2", NEITHER);
    accepts("text/event-stream;q=0.1234", NEITHER);
    accepts("text/event-streams", NEITHER);
    accepts(",,;q=1,", NEITHER);
    accepts("text/event-stream;q=", NEITHER);
    accepts("text/event-stream;q=1.001", NEITHER);
    accepts("text/event-stream;q=1.000", EVENTS_SSE);
}

static void test_ids(void **state)
{
    (void)state;
    struct events_at at;
    assert_true(events_parse_id("stdout:0;stderr:12", &at));
    assert_int_equal(at.offset[1], 12);
    assert_false(at.terminal || at.over);
    assert_true(events_parse_id("stdout:5;stderr:1;end", &at));
    assert_true(at.over && at.offset[0] == 5);
    assert_true(events_parse_id("pty:77", &at));
    assert_true(at.terminal && !at.over && at.offset[0] == 77);
    assert_true(events_parse_id("pty:77;end", &at));
    assert_true(at.terminal && at.over);
    static const char *const bad[] = {
        "",
        "p",
        "pty",
        "pty:",
        "pty:x",
        "pty:1;",
        "pty:1;en",
        "pty:1;end;",
        "pty:1;stderr:1",
        "stdout:1",
        "stdout:1;",
        "stdout:1;stderr",
        "stdout:1;stderr:",
        "stderr:1;stdout:1",
        "stdout:1;stderr:2;x",
        "stdout:1;stderr:2;end;x",
        "stdout:-1;stderr:0",
        "stdout:1:2;stderr:3",
        "stdout:99999999999999999999;stderr:0",
        "stdout:9223372036854775807;stderr:0",
        "stdout:000000000000000000000000000000000000000000000000000000000000000000001;stderr:0"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (events_parse_id(bad[i], &at))
            fail_msg("%s", bad[i]);
}

static void is(struct sg_buf *b, const char *want)
{
    assert_string_equal(b->data, want);
    sg_buf_reset(b);
}

static void test_records(void **state)
{
    (void)state;
    struct sg_buf b;
    struct events_at at = {.offset = {7, 3}};
    sg_buf_init(&b, 1 << 20);
    assert_true(events_record(&b, EVENTS_SSE, &at, "gap", "{\"type\":\"gap\"}"));
    is(&b, "event: gap\nid: stdout:7;stderr:3\ndata: {\"type\":\"gap\"}\n\n");
    assert_true(events_record(&b, EVENTS_NDJSON, &at, "gap", "{\"type\":\"gap\"}"));
    is(&b, "{\"type\":\"gap\"}\n");
    assert_true(events_data(&b, EVENTS_SSE, &at, 1, 0, "abc", 3));
    is(&b, "event: data\nid: stdout:7;stderr:3\n"
           "data: {\"type\":\"data\",\"stream\":\"stderr\",\"offset\":0,\"data\":\"YWJj\"}\n\n");
    at.terminal = true;
    at.over = true;
    assert_true(events_data(&b, EVENTS_SSE, &at, 0, 5, "ab", 2));
    is(&b, "event: data\nid: pty:7;end\n"
           "data: {\"type\":\"data\",\"stream\":\"pty\",\"offset\":5,\"data\":\"YWI=\"}\n\n");
    assert_true(events_keepalive(&b, EVENTS_SSE));
    is(&b, ": keepalive\n\n");
    assert_true(events_keepalive(&b, EVENTS_NDJSON));
    is(&b, "{\"type\":\"keepalive\"}\n");
    sg_buf_free(&b);
    sg_buf_init(&b, 20); /* too little room is said, not cut */
    assert_false(events_data(&b, EVENTS_NDJSON, &at, 0, 5, "ab", 2));
    sg_buf_free(&b);
}

/* The largest record fits where the route puts it, and carries every byte there is. */
static void test_every_byte(void **state)
{
    (void)state;
    static unsigned char data[64 * 1024], back[66 * 1024];
    struct sg_buf b;
    struct events_at at = {.offset = {INT64_MAX / 4, INT64_MAX / 4}, .over = true};
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)i;
    sg_buf_init(&b, 96 * 1024);
    assert_true(events_data(&b, EVENTS_SSE, &at, 0, INT64_MAX / 4, data, sizeof data));
    assert_true(strlen(b.data) == b.len && !strchr(b.data, '\r'));
    char *line = strstr(b.data, "data: {") + 6;
    char *end = strchr(line, '\n');
    assert_string_equal(end, "\n\n");
    json_t *o = json_loadb(line, (size_t)(end - line), 0, NULL);
    const char *text = json_string_value(json_object_get(o, "data"));
    assert_int_equal(sg_b64_decode(back, text, strlen(text)), sizeof data);
    assert_memory_equal(back, data, sizeof data);
    json_decref(o);
    sg_buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accept),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_every_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
