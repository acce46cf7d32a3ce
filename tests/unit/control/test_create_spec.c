/* What may be asked for when creating a sandbox (C1, A5, A6, A8, B4, P65), and what is sent then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json.h"
#include "control/create_spec.h"
#include "control/sandboxes.h"

#include <string.h>

static json_t *json(const char *text)
{
    json_error_t je;
    json_t *v = json_loads(text, 0, &je);
    if (!v)
        fail_msg("bad test JSON: %s: %s", je.text, text);
    return v;
}

static const struct refused {
    const char *body;
    enum sg_code code;
    const char *pointer;
} refused[] = {
    /* C1: names */
    {"{\"name\":\"\"}", SG_E_INVALID_FIELD, "/name"},
    {"{\"name\":\"-a\"}", SG_E_INVALID_FIELD, "/name"},
    {"{\"name\":\"_a\"}", SG_E_INVALID_FIELD, "/name"},
    {"{\"name\":\"a.b\"}", SG_E_INVALID_FIELD, "/name"},
    {"{\"name\":\"a/b\"}", SG_E_INVALID_FIELD, "/name"},
    {"{\"name\":\"\\u00e9\"}", SG_E_INVALID_FIELD, "/name"},
    {"{\"name\":7}", SG_E_INVALID_FIELD, "/name"},
    {"{\"name\":null}", SG_E_INVALID_FIELD, "/name"},
    {"{\"name\":\"sessions\"}", SG_E_INVALID_FIELD, "/name"},
    {"{\"name\":\"snapshots\"}", SG_E_INVALID_FIELD, "/name"},
    {"{\"name\":\"drives\"}", SG_E_INVALID_FIELD, "/name"},
    {"{\"name\":\"a123456789b123456789c123456789d123456789e123456789f123456789g123\"}", SG_E_INVALID_FIELD,
     "/name"},
    /* B4: sizes */
    {"{\"vcpus\":0}", SG_E_INVALID_FIELD, "/vcpus"},
    {"{\"vcpus\":3}", SG_E_INVALID_FIELD, "/vcpus"},
    {"{\"vcpus\":34}", SG_E_INVALID_FIELD, "/vcpus"},
    {"{\"vcpus\":2.0}", SG_E_INVALID_FIELD, "/vcpus"},
    {"{\"timeout_ms\":999}", SG_E_INVALID_FIELD, "/timeout_ms"},
    {"{\"timeout_ms\":86400001}", SG_E_INVALID_FIELD, "/timeout_ms"},
    {"{\"persistent\":\"yes\"}", SG_E_INVALID_FIELD, "/persistent"},
    /* B4: ports */
    {"{\"ports\":[1023]}", SG_E_INVALID_FIELD, "/ports/0"},
    {"{\"ports\":[3000,65536]}", SG_E_INVALID_FIELD, "/ports/1"},
    {"{\"ports\":[23456]}", SG_E_INVALID_FIELD, "/ports/0"},
    {"{\"ports\":[3000,4000,3000]}", SG_E_INVALID_FIELD, "/ports/2"},
    {"{\"ports\":[\"3000\"]}", SG_E_INVALID_FIELD, "/ports/0"},
    {"{\"ports\":{}}", SG_E_INVALID_FIELD, "/ports"},
    {"{\"ports\":[2001,2002,2003,2004,2005,2006,2007,2008,2009,2010,2011,2012,2013,2014,2015,2016]}",
     SG_E_INVALID_FIELD, "/ports"},
    /* environment and tags */
    {"{\"env\":{\"1A\":\"x\"}}", SG_E_INVALID_FIELD, "/env/1A"},
    {"{\"env\":{\"\":\"x\"}}", SG_E_INVALID_FIELD, "/env/"},
    {"{\"env\":{\"A=B\":\"x\"}}", SG_E_INVALID_FIELD, "/env/A=B"},
    {"{\"env\":{\"a/b\":\"x\"}}", SG_E_INVALID_FIELD, "/env/a~1b"},
    {"{\"env\":{\"A\":1}}", SG_E_INVALID_FIELD, "/env/A"},
    {"{\"env\":[]}", SG_E_INVALID_FIELD, "/env"},
    {"{\"tags\":{\"a\":\"1\",\"b\":\"2\",\"c\":\"3\",\"d\":\"4\"}}", SG_E_INVALID_FIELD, "/tags"},
    {"{\"tags\":{\"a\":1}}", SG_E_INVALID_FIELD, "/tags/a"},
    {"{\"tags\":{\"sg.owner\":\"me\"}}", SG_E_INVALID_FIELD, "/tags/sg.owner"},
    {"{\"tags\":{\"\":\"me\"}}", SG_E_INVALID_FIELD, "/tags/"},
    /* what is inside */
    {"{\"image\":\"a\",\"runtime\":\"node24\"}", SG_E_INVALID_FIELD, "/runtime"},
    {"{\"image\":\"a\",\"source\":{\"type\":\"snapshot\",\"snapshot_id\":\"snap_1\"}}", SG_E_INVALID_FIELD,
     "/source"},
    {"{\"runtime\":\"node24\",\"source\":{\"type\":\"snapshot\",\"snapshot_id\":\"snap_1\"}}",
     SG_E_INVALID_FIELD, "/source"},
    {"{\"image\":\"\"}", SG_E_INVALID_FIELD, "/image"},
    {"{\"image\":\"a b\"}", SG_E_INVALID_FIELD, "/image"},
    {"{\"runtime\":\"perl5\"}", SG_E_INVALID_FIELD, "/runtime"},
    {"{\"source\":{}}", SG_E_INVALID_FIELD, "/source/type"},
    {"{\"source\":{\"type\":\"git\"}}", SG_E_INVALID_FIELD, "/source/url"},
    {"{\"source\":{\"type\":\"git\",\"url\":\"ssh://x/y\"}}", SG_E_INVALID_FIELD, "/source/url"},
    {"{\"source\":{\"type\":\"git\",\"url\":\"https://u:p@x/y\"}}", SG_E_INVALID_FIELD, "/source/url"},
    {"{\"source\":{\"type\":\"git\",\"url\":\"https://x/y\",\"username\":\"u\"}}", SG_E_INVALID_FIELD,
     "/source/password"},
    {"{\"source\":{\"type\":\"git\",\"url\":\"https://x/y\",\"depth\":0}}", SG_E_INVALID_FIELD,
     "/source/depth"},
    {"{\"source\":{\"type\":\"git\",\"url\":\"https://x/y\",\"revision\":\"-x\"}}", SG_E_INVALID_FIELD,
     "/source/revision"},
    {"{\"source\":{\"type\":\"tarball\",\"url\":\"x.tgz\"}}", SG_E_INVALID_FIELD, "/source/url"},
    {"{\"source\":{\"type\":\"tarball\",\"url\":\"https://x/y\",\"depth\":1}}", SG_E_UNKNOWN_FIELD,
     "/source/depth"},
    {"{\"source\":{\"type\":\"floppy\"}}", SG_E_INVALID_FIELD, "/source/type"},
    {"{\"source\":{\"type\":\"snapshot\"}}", SG_E_INVALID_FIELD, "/source/snapshot_id"},
    {"{\"source\":{\"type\":\"snapshot\",\"snapshot_id\":\"../x\"}}", SG_E_INVALID_FIELD,
     "/source/snapshot_id"},
    {"{\"source\":{\"type\":\"snapshot\",\"snapshot_id\":\"s\",\"depth\":1}}", SG_E_UNKNOWN_FIELD,
     "/source/depth"},
    /* A6: a shared snapshot must neither expire nor be evicted */
    {"{\"source\":{\"type\":\"snapshot\",\"snapshot_id\":\"s\"},\"snapshots\":{\"delete_evicted\":true}}",
     SG_E_INVALID_FIELD, "/snapshots/delete_evicted"},
    {"{\"source\":{\"type\":\"snapshot\",\"snapshot_id\":\"s\"},\"snapshots\":{\"expire_ms\":86400000}}",
     SG_E_INVALID_FIELD, "/snapshots/expire_ms"},
    {"{\"snapshots\":{\"keep\":0}}", SG_E_INVALID_FIELD, "/snapshots/keep"},
    {"{\"snapshots\":{\"keep\":11}}", SG_E_INVALID_FIELD, "/snapshots/keep"},
    {"{\"snapshots\":{\"expire_ms\":1000}}", SG_E_INVALID_FIELD, "/snapshots/expire_ms"},
    {"{\"snapshots\":{\"count\":1}}", SG_E_UNKNOWN_FIELD, "/snapshots/count"},
    /* the rest */
    {"{\"region\":\"mars1\"}", SG_E_INVALID_FIELD, "/region"},
    {"{\"if_exists\":\"replace\"}", SG_E_INVALID_FIELD, "/if_exists"},
    {"{\"network_policy\":\"deny\"}", SG_E_INVALID_FIELD, "/network_policy"},
    {"{\"failover_regions\":[\"iad1\",\"x\"]}", SG_E_INVALID_FIELD, "/failover_regions/1"},
    {"{\"failover_regions\":[\"iad1\",\"iad1\"]}", SG_E_INVALID_FIELD, "/failover_regions/1"},
    {"{\"region\":\"iad1\",\"failover_regions\":[\"iad1\"]}", SG_E_INVALID_FIELD, "/failover_regions/0"},
    {"{\"failover_regions\":[\"iad1\"],\"mounts\":{\"/d\":\"d\"}}", SG_E_INVALID_FIELD, "/failover_regions"},
    {"{\"network_id\":\"\"}", SG_E_INVALID_FIELD, "/network_id"},
    {"{\"network_id\":7}", SG_E_INVALID_FIELD, "/network_id"},
    {"{\"architecture\":\"mips\"}", SG_E_INVALID_FIELD, "/architecture"},
    {"{\"architecture\":\"arm64\",\"runtime\":\"node24\"}", SG_E_INVALID_FIELD, "/architecture"},
    {"{\"web_port\":3000}", SG_E_INVALID_FIELD, "/web_port"},
    {"{\"web_port\":3000,\"ports\":[3001]}", SG_E_INVALID_FIELD, "/web_port"},
    {"{\"lease\":{\"ttl_ms\":1}}", SG_E_INVALID_FIELD, "/lease/ttl_ms"},
    {"{\"lease\":{}}", SG_E_INVALID_FIELD, "/lease/ttl_ms"},
    {"{\"keep_alive\":7}", SG_E_INVALID_FIELD, "/keep_alive"},
    {"{\"resume\":true}", SG_E_INVALID_FIELD, "/resume"},
    {"{\"if_exists\":\"get\",\"resume\":1}", SG_E_INVALID_FIELD, "/resume"},
    {"{\"working_directory\":\"w\"}", SG_E_INVALID_FIELD, "/working_directory"},
    {"{\"working_directory\":\"/a/./b\"}", SG_E_INVALID_FIELD, "/working_directory"},
    {"{\"working_directory\":\"/a//b\"}", SG_E_INVALID_FIELD, "/working_directory"},
    {"{\"working_directory\":\"/a/\"}", SG_E_INVALID_FIELD, "/working_directory"},
    {"{\"init\":{}}", SG_E_INVALID_FIELD, "/init"},
    {"{\"init\":[{\"argv\":[]}]}", SG_E_INVALID_FIELD, "/init/0/argv"},
    {"{\"on_start\":[{\"shell\":\"true\"},7]}", SG_E_INVALID_FIELD, "/on_start/1"},
    /* B4: mounts */
    {"{\"mounts\":[]}", SG_E_INVALID_FIELD, "/mounts"},
    {"{\"mounts\":{\"a\":\"d\"}}", SG_E_INVALID_FIELD, "/mounts/a"},
    {"{\"mounts\":{\"/\":\"d\"}}", SG_E_INVALID_FIELD, "/mounts/~1"},
    {"{\"mounts\":{\"/a/../b\":\"d\"}}", SG_E_INVALID_FIELD, "/mounts/~1a~1..~1b"},
    {"{\"mounts\":{\"/a/\":\"d\"}}", SG_E_INVALID_FIELD, "/mounts/~1a~1"},
    {"{\"mounts\":{\"/a\":\"d\",\"/a/b\":\"e\"}}", SG_E_INVALID_FIELD, "/mounts/~1a"},
    {"{\"mounts\":{\"/a\":7}}", SG_E_INVALID_FIELD, "/mounts/~1a"},
    {"{\"mounts\":{\"/a\":{}}}", SG_E_INVALID_FIELD, "/mounts/~1a/drive"},
    {"{\"mounts\":{\"/a\":\"d.d\"}}", SG_E_INVALID_FIELD, "/mounts/~1a"},
    {"{\"mounts\":{\"/a\":{\"drive\":\"d\",\"mode\":\"rw\"}}}", SG_E_INVALID_FIELD, "/mounts/~1a/mode"},
    {"{\"mounts\":{\"/a\":{\"drive\":\"d\",\"size\":1}}}", SG_E_UNKNOWN_FIELD, "/mounts/~1a/size"},
    {"{\"mounts\":{\"/1\":\"d\",\"/2\":\"d\",\"/3\":\"d\",\"/4\":\"d\",\"/5\":\"d\"}}", SG_E_INVALID_FIELD,
     "/mounts"},
    /* A8: the foreign option group means the same as the fields */
    {"{\"provider_options\":7}", SG_E_INVALID_FIELD, "/provider_options"},
    {"{\"provider_options\":{\"vercel\":[]}}", SG_E_INVALID_FIELD, "/provider_options/vercel"},
    {"{\"provider_options\":{\"vercel\":{\"name\":\"x\"}}}", SG_E_UNKNOWN_FIELD,
     "/provider_options/vercel/name"},
    {"{\"provider_options\":{\"vercel\":{\"vcpus\":3}}}", SG_E_INVALID_FIELD,
     "/provider_options/vercel/vcpus"},
    {"{\"provider_options\":{\"vercel\":{\"env\":{\"1\":\"\"}}}}", SG_E_INVALID_FIELD,
     "/provider_options/vercel/env/1"},
    {"{\"vcpus\":2,\"provider_options\":{\"vercel\":{\"vcpus\":2}}}", SG_E_INVALID_FIELD,
     "/provider_options/vercel/vcpus"},
    {"{\"network_policy\":{\"mode\":\"allow-all\"}}", SG_E_UNSUPPORTED, "/network_policy"},
    /* P65: nothing is silently ignored */
    {"{\"nmae\":\"x\"}", SG_E_UNKNOWN_FIELD, "/nmae"},
    {"{\"timeoutMs\":5000}", SG_E_UNKNOWN_FIELD, "/timeoutMs"},
    {"{\"template\":\"t.t\"}", SG_E_INVALID_FIELD, "/template"},
    {"{\"checkpoint\":{\"name\":\"\"}}", SG_E_INVALID_FIELD, "/checkpoint/name"},
    {"{\"checkpoint\":{},\"image\":\"x\"}", SG_E_INVALID_FIELD, "/checkpoint"},
    {"{\"checkpoint\":{\"on_missing\":\"x\"}}", SG_E_INVALID_FIELD, "/checkpoint/on_missing"},
    {"{\"request_rules\":[]}", SG_E_UNSUPPORTED, "/request_rules"},
};

static void refuses_with_a_pointer_P65_B4_C1(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        json_t *body = json(refused[i].body);
        struct create_spec s;
        struct sg_error e;
        enum sg_code rc = create_spec_parse(body, NULL, &s, &e);
        if (rc != refused[i].code || strcmp(e.pointer, refused[i].pointer) != 0 || e.outcome != SG_NOT_SENT)
            fail_msg("%s: code %d at \"%s\": %s", refused[i].body, (int)rc, e.pointer, e.detail);
        assert_null(s.upstream);
        json_decref(body);
    }
}

/* What goes upstream for `asked`, without the name when none was asked for. */
static void sends(const char *asked, const char *expected)
{
    json_t *body = json(asked), *want = json(expected);
    struct create_spec s;
    struct sg_error e;
    if (create_spec_parse(body, NULL, &s, &e))
        fail_msg("%s: %s at %s", asked, e.detail, e.pointer);
    assert_ptr_equal(s.name, json_string_value(json_object_get(s.upstream, "name")));
    assert_int_equal(control_name_for_create(s.name, &e), SG_OK);
    if (!json_object_get(body, "name"))
        json_object_del(s.upstream, "name");
    if (!json_equal(s.upstream, want)) {
        char *got = json_dumps(s.upstream, JSON_SORT_KEYS);
        fail_msg("%s sends %s", asked, got);
    }
    create_spec_clear(&s);
    json_decref(body);
    json_decref(want);
}

static void states_retention_and_defaults_A5_A6(void **state)
{
    (void)state;
    sends("{}", "{\"persistent\":true,\"timeout\":3600000,\"ports\":[],\"snapshotExpiration\":0,"
                "\"keepLastSnapshots\":{\"count\":1,\"deleteEvicted\":true}}");
    sends("{\"name\":\"a-B_9\",\"source\":{\"type\":\"snapshot\",\"snapshot_id\":\"snap_1\"}}",
          "{\"name\":\"a-B_9\",\"persistent\":true,\"timeout\":3600000,\"ports\":[],"
          "\"source\":{\"type\":\"snapshot\",\"snapshotId\":\"snap_1\"},\"snapshotExpiration\":0,"
          "\"keepLastSnapshots\":{\"count\":1,\"deleteEvicted\":false}}");
    sends(
        "{\"runtime\":\"node24\",\"persistent\":false,\"vcpus\":1,\"timeout_ms\":1000,\"ports\":[3000,1024],"
        "\"env\":{\"_A1\":\"\\u00fc\"},\"tags\":{\"k\":\"a:b\"},\"region\":\"fra1\","
        "\"network_policy\":\"allow-all\","
        "\"snapshots\":{\"keep\":10,\"expire_ms\":86400000,\"delete_evicted\":false}}",
        "{\"runtime\":\"node24\",\"persistent\":false,\"resources\":{\"vcpus\":1},\"timeout\":1000,"
        "\"ports\":[3000,1024],\"env\":{\"_A1\":\"\\u00fc\"},\"tags\":{\"k\":\"a:b\"},\"region\":\"fra1\","
        "\"networkPolicy\":{\"mode\":\"allow-all\"},\"snapshotExpiration\":86400000,\"keepLastSnapshots\":{"
        "\"count\":10,\"deleteEvicted\":false}}");
    sends("{\"image\":\"team/app/repo@sha256:00\",\"vcpus\":32,\"timeout_ms\":86400000}",
          "{\"image\":\"team/app/repo@sha256:00\",\"resources\":{\"vcpus\":32},\"persistent\":true,"
          "\"timeout\":86400000,\"ports\":[],\"snapshotExpiration\":0,"
          "\"keepLastSnapshots\":{\"count\":1,\"deleteEvicted\":true}}");
}

#define USUAL                                                                                                \
    "\"persistent\":true,\"timeout\":3600000,\"ports\":[],\"snapshotExpiration\":0,"                         \
    "\"keepLastSnapshots\":{\"count\":1,\"deleteEvicted\":true}"

static void sends_all_provider_options_A8(void **state)
{
    (void)state;
    sends("{\"image\":\"node:22\",\"source\":{\"type\":\"git\",\"url\":\"https://x/"
          "y\",\"depth\":1,\"revision\":"
          "\"v1\",\"username\":\"u\",\"password\":\"p\"}}",
          "{\"image\":\"node:22\",\"source\":{\"type\":\"git\",\"url\":\"https://x/"
          "y\",\"depth\":1,\"revision\":"
          "\"v1\",\"username\":\"u\",\"password\":\"p\"}," USUAL "}");
    sends("{\"runtime\":\"node22\",\"source\":{\"type\":\"tarball\",\"url\":\"https://x/y.tgz\"}}",
          "{\"runtime\":\"node22\",\"source\":{\"type\":\"tarball\",\"url\":\"https://x/y.tgz\"}," USUAL "}");
    sends("{\"region\":\"fra1\",\"failover_regions\":[\"cdg1\"],\"network_id\":\"net_1\",\"architecture\":"
          "\"arm64\","
          "\"network_policy\":\"deny-all\"}",
          "{\"region\":\"fra1\",\"failoverRegions\":[\"cdg1\"],\"networkId\":\"net_1\",\"architecture\":"
          "\"arm64\","
          "\"networkPolicy\":{\"mode\":\"deny-all\"}," USUAL "}");
    sends("{\"mounts\":{\"/data\":\"d1\",\"/ro\":{\"drive\":\"d2\",\"mode\":\"snapshot\"}}}",
          "{\"mounts\":{\"/data\":{\"drive\":\"d1\",\"mode\":\"read-write\"},\"/"
          "ro\":{\"drive\":\"d2\",\"mode\":"
          "\"snapshot\"}}," USUAL "}");
    sends("{\"provider_options\":{\"vercel\":{\"vcpus\":4,\"env\":{\"A\":\"b\"}},\"other\":{\"x\":7}}}",
          "{\"resources\":{\"vcpus\":4},\"env\":{\"A\":\"b\"}," USUAL "}");
}

static void counts_characters_of_a_tag(void **state)
{
    (void)state;
    char text[1024];
    for (size_t n = 256; n <= 257; n++) { /* two bytes each */
        size_t len = 0;
        len += (size_t)snprintf(text, sizeof text, "{\"tags\":{\"k\":\"");
        for (size_t i = 0; i < n; i++) {
            memcpy(text + len, "\xc3\xa9", 2);
            len += 2;
        }
        memcpy(text + len, "\"}}", 4);
        json_t *body = json(text);
        struct create_spec s;
        assert_int_equal(create_spec_parse(body, NULL, &s, NULL), n == 256 ? SG_OK : SG_E_INVALID_FIELD);
        create_spec_clear(&s);
        json_decref(body);
    }
}

static void makes_a_new_name_each_time_C1(void **state)
{
    (void)state;
    json_t *body = json("{}");
    struct create_spec a, b;
    assert_int_equal(create_spec_parse(body, NULL, &a, NULL), SG_OK);
    assert_int_equal(create_spec_parse(body, NULL, &b, NULL), SG_OK);
    assert_string_not_equal(a.name, b.name);
    create_spec_clear(&a);
    create_spec_clear(&b);
    assert_int_equal(create_spec_parse(body, "0123456789abcdef0123456789abcdef", &a, NULL), SG_OK);
    assert_int_equal(create_spec_parse(body, "0123456789abcdef0123456789abcdef", &b, NULL), SG_OK);
    assert_true(a.made_name && b.made_name);
    assert_string_equal(a.name, b.name); /* P57: of one nonce */
    assert_int_equal(control_name_for_create(a.name, NULL), SG_OK);
    create_spec_clear(&a);
    create_spec_clear(&b);
    json_decref(body);
}

static void says_what_an_existing_sandbox_ignores_E4(void **state)
{
    (void)state;
    json_t *body = json("{\"name\":\"x\",\"if_exists\":\"get\",\"env\":{},\"vcpus\":2}");
    struct create_spec s;
    assert_int_equal(create_spec_parse(body, NULL, &s, NULL), SG_OK);
    assert_true(s.get_if_exists);
    json_t *ignored = create_spec_ignored(&s), *want = json("[\"env\",\"vcpus\"]");
    assert_true(json_equal(ignored, want));
    json_decref(ignored);
    json_decref(want);
    create_spec_clear(&s);
    json_decref(body);
}

static void lookups_take_what_the_upstream_takes_C1(void **state)
{
    (void)state;
    char longest[130];
    memset(longest, 'a', sizeof longest);
    longest[128] = '\0';
    assert_int_equal(control_name_for_lookup(longest, NULL), SG_OK);
    longest[128] = 'a';
    longest[129] = '\0';
    assert_int_equal(control_name_for_lookup(longest, NULL), SG_E_SANDBOX_NOT_FOUND);
    assert_int_equal(control_name_for_lookup("-x_", NULL), SG_OK);
    static const char *const wrong[] = {"",         "a b",       "..",     "a%2f",
                                        "sessions", "snapshots", "drives", "\xc3\xa9"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(control_name_for_lookup(wrong[i], NULL), SG_E_SANDBOX_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_with_a_pointer_P65_B4_C1),
        cmocka_unit_test(states_retention_and_defaults_A5_A6),
        cmocka_unit_test(sends_all_provider_options_A8),
        cmocka_unit_test(counts_characters_of_a_tag),
        cmocka_unit_test(makes_a_new_name_each_time_C1),
        cmocka_unit_test(says_what_an_existing_sandbox_ignores_E4),
        cmocka_unit_test(lookups_take_what_the_upstream_takes_C1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
