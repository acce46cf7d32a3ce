/* What a template may declare, and what its fingerprint depends on.  C5, E6, P65. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "control/template_spec.h"

#include <stdlib.h>
#include <string.h>

static enum sg_code parse(const char *text, struct template_spec *out, struct sg_error *e)
{
    json_t *body = json_loads(text, 0, NULL);
    assert_non_null(body);
    enum sg_code rc = template_spec_parse(body, out, e);
    json_decref(body);
    return rc;
}

static void print_of(const char *text, char out[65])
{
    struct sg_error e;
    struct template_spec s;
    assert_int_equal(parse(text, &s, &e), SG_OK);
    memcpy(out, s.fingerprint, 65);
    template_spec_clear(&s);
}

static void same(const char *a, const char *b, bool expected)
{
    char x[65], y[65];
    print_of(a, x);
    print_of(b, y);
    assert_int_equal(!strcmp(x, y), expected);
}

static void test_fingerprint(void **state)
{
    (void)state;
    const char *base = "{\"steps\":[{\"argv\":[\"a\"]}],\"env\":{\"A\":\"1\",\"B\":\"2\"}}";
    same(base, "{\"env\":{\"B\":\"2\",\"A\":\"1\"},\"steps\":[{\"argv\":[\"a\"]}]}", true);
    same(base, "{\"steps\":[{\"argv\":[\"a\"]}],\"env\":{\"A\":\"1\",\"B\":\"2\"},\"timeout_ms\":60000}",
         true);
    same(base, "{\"steps\":[{\"argv\":[\"b\"]}],\"env\":{\"A\":\"1\",\"B\":\"2\"}}", false);
    same(base, "{\"steps\":[{\"argv\":[\"a\"]}],\"env\":{\"A\":\"1\"}}", false);
    same("{\"inputs\":{\"x\":\"1\"}}", "{\"inputs\":{\"x\":\"2\"}}", false);
    same("{\"from\":{\"image\":\"a:1\"}}", "{\"from\":{\"image\":\"a:2\"}}", false);
    same("{\"region\":\"iad1\"}", "{\"region\":\"fra1\"}", false);
    same("{\"architecture\":\"amd64\"}", "{}", false);
    same("{\"files\":[{\"path\":\"a\",\"content\":\"x\"}]}",
         "{\"files\":[{\"path\":\"a\",\"content\":\"y\"}]}", false);
}

static void test_builds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool builds;
    } cases[] = {
        {"{}", false},
        {"{\"from\":{\"image\":\"a\"},\"env\":{}}", false},
        {"{\"from\":{\"source\":{\"type\":\"snapshot\",\"snapshot_id\":\"snap_1\"}}}", false},
        {"{\"from\":{\"source\":{\"type\":\"git\",\"url\":\"https://h/r.git\"}}}", true},
        {"{\"from\":{\"source\":{\"type\":\"tarball\",\"url\":\"https://h/r.tgz\"}}}", true},
        {"{\"steps\":[{\"shell\":\"x\"}]}", true},
        {"{\"files\":[{\"path\":\"a\",\"content\":\"\"}]}", true},
        {"{\"files\":[],\"steps\":[]}", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sg_error e;
        struct template_spec s;
        assert_int_equal(parse(cases[i].text, &s, &e), SG_OK);
        assert_int_equal(s.builds, cases[i].builds);
        template_spec_clear(&s);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"files\":[{\"content\":\"\"}]}", "/files/0/path"},
        {"{\"files\":[{\"path\":\"a\",\"content\":\"\",\"content_base64\":\"\"}]}", "/files/0/content"},
        {"{\"files\":[{\"path\":\"a\",\"content_base64\":\"x\"}]}", "/files/0/content_base64"},
        {"{\"files\":[{\"path\":\"a\",\"content\":\"\",\"mode\":\"0899\"}]}", "/files/0/mode"},
        {"{\"files\":[7]}", "/files/0"},
        {"{\"inputs\":{\"a/b\":1}}", "/inputs/a~1b"},
        {"{\"timeout_ms\":59999}", "/timeout_ms"},
        {"{\"from\":{\"runtime\":\"node20\"}}", "/from/runtime"},
        {"{\"name\":\"x\"}", "/name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sg_error e;
        struct template_spec s;
        assert_int_not_equal(parse(cases[i][0], &s, &e), SG_OK);
        assert_string_equal(e.pointer, cases[i][1]);
        assert_int_equal(e.outcome, SG_NOT_SENT);
    }
}

static void test_files(void **state)
{
    (void)state;
    struct sg_error e;
    struct template_spec s;
    char *data;
    size_t len;
    assert_int_equal(parse("{\"files\":[{\"path\":\"a\",\"content_base64\":\"AAEC\"}]}", &s, &e), SG_OK);
    assert_int_equal(template_file(json_array_get(s.files, 0), "", &data, &len, &e), SG_OK);
    assert_int_equal(len, 3);
    assert_memory_equal(data, "\0\1\2", 3);
    free(data);
    json_t *told = template_files_told(s.files);
    assert_null(json_object_get(json_array_get(told, 0), "content_base64"));
    assert_string_equal(json_string_value(json_object_get(json_array_get(told, 0), "sha256")),
                        "ae4b3280e56e2faf83f414a6e3dabe9d5fbe18976544c05fed121accb85b53fc");
    json_decref(told);
    template_spec_clear(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_builds),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
