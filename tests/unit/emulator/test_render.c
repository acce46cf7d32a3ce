/* Response objects: every member that clients require is there, none that is optional is null.  (A24) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "emulator/render.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *parsed(struct sg_buf *b)
{
    json_error_t je;
    assert_false(b->failed);
    json_t *o = json_loadb(b->data, b->len, 0, &je);
    assert_non_null(o);
    sg_buf_reset(b);
    const char *k;
    json_t *v;
    json_object_foreach(o, k, v)
    {
        if (json_is_null(v))
            fail_msg("%s is null", k);
    }
    return o;
}

static void has(const json_t *o, const char *const *keys)
{
    for (; *keys; keys++)
        if (!json_object_get(o, *keys))
            fail_msg("%s is missing", *keys);
}

static struct sandbox *sample(struct session **session)
{
    struct sandbox *sb = sandbox_new();
    struct session *s = session_new(sb);
    snprintf(sb->name, sizeof sb->name, "na\"me");
    snprintf(sb->project, sizeof sb->project, "prj");
    sb->set.vcpus = 4;
    sb->set.timeout_ms = 60000;
    sb->set.persistent = true;
    sb->set.policy_text = strdup("{\"mode\":\"allow-all\"}");
    sb->set.env = json_pack("{s:s}", "SECRET", "value");
    sb->set.tags = json_object();
    sb->set.nroutes = 1;
    sb->set.routes[0] = (struct route){.port = 3000, .subdomain = "sb-abcdefghijkl"};
    snprintf(s->id, sizeof s->id, "sbx_1");
    s->policy_text = strdup(sb->set.policy_text);
    s->vcpus = 4;
    s->timeout_ms = 90000;
    s->status = ST_RUNNING;
    s->created_ms = s->requested_ms = s->updated_ms = 1000;
    s->started_ms = 2000;
    sb->current = s;
    *session = s;
    return sb;
}

static void drop(struct sandbox *sb)
{
    struct session *s = sb->current;
    sb->current = NULL;
    session_unref(s);
    sandbox_unref(sb);
}

static void test_sandbox(void **state)
{
    (void)state;
    static const char *const required[] = {
        "name",   "persistent",      "createdAt", "updatedAt", "currentSessionId",
        "status", "statusUpdatedAt", "expiresAt", "cwd",       NULL};
    struct session *s;
    struct sandbox *sb = sample(&s);
    struct sg_buf b;
    sg_buf_init(&b, 65536);
    render_sandbox(&b, sb);
    assert_null(strstr(b.data, "SECRET")); /* env is write-only */
    json_t *o = parsed(&b);
    has(o, required);
    assert_string_equal(json_string_value(json_object_get(o, "name")), "na\"me");
    assert_int_equal(json_integer_value(json_object_get(o, "expiresAt")), 92000);
    assert_int_equal(json_integer_value(json_object_get(o, "memory")), 8192);
    assert_null(json_object_get(o, "tags"));
    assert_null(json_object_get(o, "keepLastSnapshots"));
    assert_null(json_object_get(o, "currentSnapshotId"));
    json_decref(o);

    s->status = ST_STOPPED;
    json_object_set_new(sb->set.tags, "k", json_string("v"));
    sb->set.keep = (struct keep_last){.set = true, .count = 2, .expiration_ms = -1, .delete_evicted = true};
    render_sandbox(&b, sb);
    o = parsed(&b);
    assert_null(json_object_get(o, "expiresAt")); /* only while a session runs */
    json_t *keep = json_object_get(o, "keepLastSnapshots");
    assert_int_equal(json_integer_value(json_object_get(keep, "count")), 2);
    assert_true(json_is_true(json_object_get(keep, "deleteEvicted")));
    assert_null(json_object_get(keep, "expiration"));
    assert_string_equal(json_string_value(json_object_get(json_object_get(o, "tags"), "k")), "v");
    json_decref(o);
    sg_buf_free(&b);
    drop(sb);
}

static void test_session(void **state)
{
    (void)state;
    static const char *const required[] = {"id",
                                           "memory",
                                           "vcpus",
                                           "region",
                                           "timeout",
                                           "status",
                                           "requestedAt",
                                           "createdAt",
                                           "updatedAt",
                                           "cwd",
                                           "sourceSandboxName",
                                           "projectId",
                                           "interactivePort",
                                           "networkPolicy",
                                           NULL};
    struct session *s;
    struct sandbox *sb = sample(&s);
    struct sg_buf b;
    sg_buf_init(&b, 65536);
    render_session(&b, s);
    json_t *o = parsed(&b);
    has(o, required);
    assert_null(json_object_get(o, "stoppedAt"));
    assert_null(json_object_get(o, "duration"));
    assert_int_equal(json_integer_value(json_object_get(o, "interactivePort")), 23456);
    json_decref(o);
    s->status = ST_STOPPED;
    s->stopped_ms = 5000;
    render_session(&b, s);
    o = parsed(&b);
    static const char *const stopped[] = {"stoppedAt", "duration", "activeCpuDurationMs", "networkTransfer",
                                          NULL};
    has(o, stopped);
    json_decref(o);
    render_routes(&b, sb, "https://{subdomain}.vercel.run");
    assert_string_equal(b.data,
                        "[{\"url\":\"https://sb-abcdefghijkl.vercel.run\",\"subdomain\":\"sb-abcdefghijkl\","
                        "\"port\":3000}]");
    sg_buf_free(&b);
    drop(sb);
}

static void test_snapshot_and_pages(void **state)
{
    (void)state;
    static const char *const required[] = {"id",        "sourceSessionId", "region",
                                           "status",    "sizeBytes",       "createdAt",
                                           "updatedAt", "lastUsedAt",      NULL};
    struct snapshot *sn = snapshot_new();
    struct sg_buf b;
    sg_buf_init(&b, 65536);
    sn->last_used_ms = sg_wall_ms();
    render_snapshot(&b, sn);
    json_t *o = parsed(&b);
    has(o, required);
    assert_string_equal(json_string_value(json_object_get(o, "status")), "created");
    assert_null(json_object_get(o, "expiresAt")); /* 0 is never */
    assert_null(json_object_get(o, "parentId"));
    json_decref(o);
    sn->expiration_ms = 1000;
    sn->last_used_ms -= 2000; /* expired */
    render_snapshot(&b, sn);
    o = parsed(&b);
    assert_string_equal(json_string_value(json_object_get(o, "status")), "deleted");
    json_decref(o);
    render_pagination(&b, 2, NULL);
    assert_string_equal(b.data, "\"pagination\":{\"count\":2,\"next\":null}");
    sg_buf_reset(&b);
    render_pagination(&b, 1, "x");
    assert_string_equal(b.data, "\"pagination\":{\"count\":1,\"next\":\"x\"}");
    sg_buf_free(&b);
    snapshot_unref(sn);
}

static void test_errors(void **state)
{
    (void)state;
    struct api_error e;
    struct sg_buf b;
    sg_buf_init(&b, 4096);
    api_fail(&e, 404, "not_found", "no \"%s\"", "x");
    api_error_render(&b, &e);
    assert_string_equal(b.data, "{\"error\":{\"code\":\"not_found\",\"message\":\"no \\\"x\\\"\"}}");
    sg_buf_reset(&b);
    e.bytes_written = 7;
    api_error_render(&b, &e);
    assert_non_null(strstr(b.data, "\"bytesWritten\":7"));
    sg_buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sandbox),
        cmocka_unit_test(test_session),
        cmocka_unit_test(test_snapshot_and_pages),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
