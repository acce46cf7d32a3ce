/* The gateway's record of a sandbox, byte for byte.  B5 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "control/record.h"

#include <stdlib.h>
#include <string.h>

static void check(const char *answer, const char *want)
{
    struct vercel_sandbox s;
    struct sg_error e;
    assert_int_equal(vercel_sandbox_parse(strdup(answer), strlen(answer), &s, &e), SG_OK);
    struct sg_buf b;
    sg_buf_init(&b, CONTROL_RECORD_MAX);
    control_record_write(&s, 1796039000123, &b);
    assert_false(b.failed);
    assert_string_equal(b.data, want);
    json_t *o = control_record(&s, 1796039000123);
    char *dumped = json_dumps(o, JSON_COMPACT);
    assert_string_equal(dumped, want);
    free(dumped);
    json_decref(o);
    sg_buf_free(&b);
    vercel_sandbox_clear(&s);
}

static void everything_is_told(void **state)
{
    (void)state;
    check("{\"sandbox\":{\"name\":\"t1\",\"persistent\":false,\"status\":\"pending\",\"region\":\"iad1\","
          "\"image\":\"a/b@sha256:0\",\"runtime\":\"node24\",\"cwd\":\"/x\",\"currentSnapshotId\":\"snap_1\","
          "\"currentSessionId\":\"sbx_0\",\"vcpus\":2,\"memory\":4096,\"timeout\":300000,"
          "\"createdAt\":1796039000000,\"updatedAt\":1796039000001,\"expiresAt\":1796039300000,"
          "\"snapshotExpiration\":0,\"keepLastSnapshots\":{\"count\":3,\"deleteEvicted\":true},"
          "\"tags\":{\"b\":\"x \\\"q\\\" "
          "\\u0001\\u00fc\",\"a\":\"1\",\"odd\":7,\"twice\":\"1\",\"twice\":\"2\"}},"
          "\"session\":{\"id\":\"sbx_1\",\"status\":\"running\",\"cwd\":\"/vercel\"},"
          "\"routes\":[{\"url\":\"https://a.example\",\"subdomain\":\"a\",\"port\":3000},{\"port\":80}]}",
          "{\"name\":\"t1\",\"status\":\"running\",\"session_id\":\"sbx_1\",\"persistent\":false,"
          "\"image\":\"a/"
          "b@sha256:0\",\"runtime\":\"node24\",\"region\":\"iad1\",\"vcpus\":2,\"memory_mb\":4096,"
          "\"timeout_ms\":300000,\"working_directory\":\"/vercel\","
          "\"created_at\":\"2026-11-30T11:43:20.000Z\",\"updated_at\":\"2026-11-30T11:43:20.001Z\","
          "\"expires_at\":\"2026-11-30T11:48:20.000Z\",\"observed_at\":\"2026-11-30T11:43:20.123Z\","
          "\"tags\":{\"b\":\"x \\\"q\\\" \\u0001\u00fc\",\"a\":\"1\",\"twice\":\"2\"},"
          "\"snapshots\":{\"keep\":3,\"expire_ms\":0,\"delete_evicted\":true},\"current_snapshot_id\":\"snap_"
          "1\","
          "\"routes\":[{\"port\":3000,\"url\":\"https://a.example\"},{\"port\":80,\"url\":null}],"
          "\"upstream\":\"default\"}");
}

static void what_is_not_known_is_null(void **state)
{
    (void)state;
    check("{\"sandbox\":{\"name\":\"t1\",\"status\":\"stopped\",\"createdAt\":0}}",
          "{\"name\":\"t1\",\"status\":\"stopped\",\"session_id\":null,\"persistent\":true,\"image\":null,"
          "\"runtime\":null,\"region\":null,\"vcpus\":null,\"memory_mb\":null,\"timeout_ms\":null,"
          "\"working_directory\":null,\"created_at\":null,\"updated_at\":null,\"expires_at\":null,"
          "\"observed_at\":\"2026-11-30T11:43:20.123Z\",\"tags\":{},"
          "\"snapshots\":{\"keep\":null,\"expire_ms\":null,\"delete_evicted\":null},"
          "\"current_snapshot_id\":null,\"routes\":[],\"upstream\":\"default\"}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_told),
        cmocka_unit_test(what_is_not_known_is_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
