/* The gateway's record of a sandbox, byte for byte, and its entity tag.  B5 P59 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "control/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTHING_KNOWN                                                                                        \
    "\"web_port\":null,\"keep_alive\":null,\"init\":null,\"on_start\":null,\"template\":null,"               \
    "\"checkpoint\":null,"

static void check(const char *answer, const char *want)
{
    struct vercel_sandbox s;
    struct sg_error e;
    char etag[CONTROL_ETAG_LEN + 1], same[CONTROL_ETAG_LEN + 1];
    assert_int_equal(vercel_sandbox_parse(strdup(answer), strlen(answer), &s, &e), SG_OK);
    struct sg_buf b;
    sg_buf_init(&b, CONTROL_RECORD_MAX);
    control_record_write(&s, NULL, 1796039000123, &b, etag);
    assert_false(b.failed);
    assert_string_equal(b.data, want);
    json_t *o = control_record(&s, NULL, 1796039000123);
    char *dumped = json_dumps(o, JSON_COMPACT);
    assert_string_equal(dumped, want);
    assert_true(control_record_etag(o, same));
    assert_string_equal(same, etag);
    free(dumped);
    json_decref(o);
    sg_buf_free(&b);
    vercel_sandbox_clear(&s);
}

static const char whole[] =
    "{\"sandbox\":{\"name\":\"t1\",\"persistent\":false,\"status\":\"pending\",\"region\":\"iad1\","
    "\"failoverRegions\":[\"sfo1\",7,\"cle1\"],\"networkId\":\"net_1\",\"architecture\":\"amd64\","
    "\"mounts\":{\"/a\":{\"drive\":\"d\"},\"/b\":{\"drive\":\"e\",\"mode\":\"read-only\"},\"/c\":1},"
    "\"image\":\"a/b@sha256:0\",\"runtime\":\"node24\",\"cwd\":\"/x\",\"currentSnapshotId\":\"snap_1\","
    "\"currentSessionId\":\"sbx_0\",\"vcpus\":2,\"memory\":4096,\"timeout\":300000,"
    "\"createdAt\":1796039000000,\"updatedAt\":1796039000001,\"expiresAt\":1796039300000,"
    "\"snapshotExpiration\":0,\"keepLastSnapshots\":{\"count\":3,\"deleteEvicted\":true},"
    "\"tags\":{\"sg.owner\":\"ci\",\"sg.alloc\":\"00\",\"b\":\"x \\\"q\\\" "
    "\\u0001\\u00fc\",\"a\":\"1\",\"odd\":7,\"twice\":\"1\",\"twice\":\"2\"}},"
    "\"session\":{\"id\":\"sbx_1\",\"status\":\"running\",\"cwd\":\"/vercel\"},"
    "\"routes\":[{\"url\":\"https://a.example\",\"subdomain\":\"a\",\"port\":3000},{\"port\":80}]}";

static void everything_is_told(void **state)
{
    (void)state;
    check(
        whole,
        "{\"name\":\"t1\",\"status\":\"running\",\"session_id\":\"sbx_1\",\"owner\":\"ci\",\"persistent\":"
        "false,"
        "\"image\":\"a/b@sha256:0\",\"runtime\":\"node24\",\"architecture\":\"amd64\",\"region\":\"iad1\","
        "\"failover_regions\":[\"sfo1\",\"cle1\"],\"network_id\":\"net_1\",\"vcpus\":2,\"memory_mb\":4096,"
        "\"timeout_ms\":300000,\"working_directory\":\"/vercel\","
        "\"mounts\":{\"/a\":{\"drive\":\"d\",\"mode\":\"read-write\"},\"/"
        "b\":{\"drive\":\"e\",\"mode\":\"snapshot\"}},"
        "\"created_at\":\"2026-11-30T11:43:20.000Z\",\"updated_at\":\"2026-11-30T11:43:20.001Z\","
        "\"status_changed_at\":null,\"expires_at\":\"2026-11-30T11:48:20.000Z\","
        "\"tags\":{\"b\":\"x \\\"q\\\" \\u0001\u00fc\",\"a\":\"1\",\"twice\":\"2\"},"
        "\"snapshots\":{\"keep\":3,\"expire_ms\":0,\"delete_evicted\":true},\"current_snapshot_id\":\"snap_"
        "1\","
        "\"routes\":[{\"port\":3000,\"url\":\"https://a.example\"},{\"port\":80,\"url\":null}]," NOTHING_KNOWN
        "\"upstream\":\"default\",\"observed_at\":\"2026-11-30T11:43:20.123Z\"}");
}

static void what_is_not_known_is_null(void **state)
{
    (void)state;
    check(
        "{\"sandbox\":{\"name\":\"t1\",\"status\":\"stopped\",\"createdAt\":0}}",
        "{\"name\":\"t1\",\"status\":\"stopped\",\"session_id\":null,\"owner\":null,\"persistent\":true,"
        "\"image\":null,"
        "\"runtime\":null,\"architecture\":null,\"region\":null,\"failover_regions\":[],\"network_id\":null,"
        "\"vcpus\":null,\"memory_mb\":null,\"timeout_ms\":null,"
        "\"working_directory\":null,\"mounts\":{},\"created_at\":null,\"updated_at\":null,"
        "\"status_changed_at\":null,\"expires_at\":null,\"tags\":{},"
        "\"snapshots\":{\"keep\":null,\"expire_ms\":null,\"delete_evicted\":null},"
        "\"current_snapshot_id\":null,\"routes\":[]," NOTHING_KNOWN "\"upstream\":\"default\","
        "\"observed_at\":\"2026-11-30T11:43:20.123Z\"}");
}

/* What counts, whatever of it is stated.  P59 */
static void retention_is_the_effective_one_P59(void **state)
{
    (void)state;
    static const struct {
        const char *stated, *told;
    } cases[] = {
        {"\"snapshotExpiration\":5,\"keepLastSnapshots\":{\"count\":2}",
         "{\"keep\": 2, \"expire_ms\": 5, \"delete_evicted\": true}"},
        {"\"snapshotExpiration\":5,\"keepLastSnapshots\":{\"count\":2,\"expiration\":0,\"deleteEvicted\":"
         "false}",
         "{\"keep\": 2, \"expire_ms\": 0, \"delete_evicted\": false}"},
        {"\"snapshotExpiration\":0", "{\"keep\": null, \"expire_ms\": 0, \"delete_evicted\": null}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        struct vercel_sandbox s;
        int n = snprintf(text, sizeof text,
                         "{\"sandbox\":{\"name\":\"t\",\"status\":\"stopped\",\"createdAt\":1,%s}}",
                         cases[i].stated);
        assert_int_equal(vercel_sandbox_parse(strdup(text), (size_t)n, &s, NULL), SG_OK);
        json_t *o = control_record(&s, NULL, 1);
        char *told = json_dumps(json_object_get(o, "snapshots"), 0);
        assert_string_equal(told, cases[i].told);
        free(told);
        json_decref(o);
        vercel_sandbox_clear(&s);
    }
}

/* The tag is of the state: not of when it was seen, nor of what one answer adds, but of every field. */
static void the_tag_is_of_the_state(void **state)
{
    (void)state;
    struct vercel_sandbox s;
    char first[CONTROL_ETAG_LEN + 1], tag[CONTROL_ETAG_LEN + 1];
    assert_int_equal(vercel_sandbox_parse(strdup(whole), strlen(whole), &s, NULL), SG_OK);
    json_t *o = control_record(&s, NULL, 1), *later = control_record(&s, NULL, 2);
    assert_true(control_record_etag(o, first));
    static const char *const added[] = {"created", "ignored", "resumed", "next_session"};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(json_object_set_new(later, added[i], json_true()), 0);
    assert_true(control_record_etag(later, tag));
    assert_string_equal(tag, first);
    const char *key;
    json_t *value;
    json_object_foreach(o, key, value)
    {
        json_t *other = json_copy(o);
        assert_int_equal(json_object_set_new(other, key, json_string("another")), 0);
        assert_true(control_record_etag(other, tag));
        assert_int_equal(strcmp(tag, first) == 0, strcmp(key, "observed_at") == 0);
        json_decref(other);
    }
    json_decref(o);
    json_decref(later);
    vercel_sandbox_clear(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_told),
        cmocka_unit_test(what_is_not_known_is_null),
        cmocka_unit_test(retention_is_the_effective_one_P59),
        cmocka_unit_test(the_tag_is_of_the_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
