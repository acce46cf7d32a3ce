/* Steps: what may be asked for, in which order and under which ids they run, how a failure is told; the base check.  E13, A9. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "control/control.h"

#include <stdio.h>
#include <string.h>

/* ---- a runner that plays ---- */

static struct {
    int calls, background;
    char ids[8][80];
    const char *out[8], *err[8]; /* of each call */
    struct step_result res[8];
    enum sg_code code[8];
} play;

static enum sg_code run(void *arg, const struct step_session *s, const json_t *step, const char *id,
                        bool background, step_output_fn *output, void *output_arg, struct step_result *res,
                        struct sg_error *e)
{
    (void)arg;
    int n = play.calls++;
    assert_true(n < 8);
    assert_string_equal(s->session_id, "sess-1");
    assert_true(json_is_object(step));
    (void)snprintf(play.ids[n], sizeof play.ids[n], "%s", id);
    play.background += background;
    if (play.code[n])
        return sg_fail(e, play.code[n], SG_NOT_STARTED, "played");
    output(output_arg, 0, "", 0);
    if (play.out[n])
        output(output_arg, 0, play.out[n], strlen(play.out[n]));
    if (play.err[n])
        for (const char *p = play.err[n]; *p; p++) /* as it may come: a byte at a time */
            output(output_arg, 1, p, 1);
    *res = play.res[n];
    return SG_OK;
}

static struct control *make(void)
{
    static struct control c;
    memset(&play, 0, sizeof play);
    session_cache_free(c.checked);
    c = (struct control){.steps = {run, NULL}, .checked = session_cache_new(16)};
    assert_non_null(c.checked);
    return &c;
}

static void done(struct control *c)
{
    session_cache_free(c->checked);
    c->checked = NULL;
}

static const struct step_session session = {"box", "sess-1", "/vercel/sandbox", NULL};

static json_t *parse(const char *text)
{
    json_t *v = json_loads(text, 0, NULL);
    assert_non_null(v);
    return v;
}

/* ---- what may be asked for ---- */

static void refused(const char *text, enum sg_code code, const char *pointer)
{
    struct sg_error e;
    json_t *steps = parse(text);
    assert_int_equal(steps_check(steps, "/init", &e), code);
    assert_string_equal(e.pointer, pointer);
    json_decref(steps);
}

static void test_check(void **state)
{
    (void)state;
    struct sg_error e;
    json_t *good = parse("[{\"argv\":[\"true\"]},{\"shell\":\"a | b\",\"cwd\":\"x\",\"env\":{\"A\":\"1\"},"
                         "\"sudo\":true,\"timeout_ms\":5,\"name\":\"two\",\"background\":true},"
                         "{\"argv\":[\"x\"],\"user\":\"root\",\"env_mode\":\"replace\"}]");
    assert_int_equal(steps_check(good, "/init", &e), SG_OK);
    json_decref(good);
    refused("[{\"argv\":[\"true\"]},{}]", SG_E_INVALID_FIELD, "/init/1/argv");
    refused("[7]", SG_E_INVALID_FIELD, "/init/0");
    refused("[{\"argv\":[\"a\",3]}]", SG_E_INVALID_FIELD, "/init/0/argv/1");
    refused("[{\"argv\":[\"\"]}]", SG_E_INVALID_FIELD, "/init/0/argv/0");
    refused("[{\"shell\":\"x\",\"stdin\":\"y\"}]", SG_E_UNKNOWN_FIELD, "/init/0/stdin");
    refused("[{\"shell\":\"x\",\"timeout_ms\":3600001}]", SG_E_INVALID_FIELD, "/init/0/timeout_ms");
    refused("[{\"shell\":\"x\",\"env\":{\"1\":\"\"}}]", SG_E_INVALID_FIELD, "/init/0/env/1");
    refused("[{\"shell\":\"x\",\"user\":\"-x\"}]", SG_E_INVALID_FIELD, "/init/0/user");
    refused("{}", SG_E_INVALID_FIELD, "/init");
    json_t *many = json_array();
    for (int i = 0; i <= STEPS_MAX; i++)
        assert_int_equal(json_array_append_new(many, json_pack("{ss}", "shell", "x")), 0);
    assert_int_equal(steps_check(many, "/init", &e), SG_E_INVALID_FIELD);
    json_decref(many);
}

/* ---- running ---- */

static void test_order(void **state)
{
    (void)state;
    struct control *c = make();
    struct sg_error e;
    json_t *steps = parse("[{\"argv\":[\"a\"]},{\"argv\":[\"b\"],\"background\":true},{\"argv\":[\"c\"]}]");
    play.res[1].exit_code = -1; /* of one in the background nothing is known */
    assert_int_equal(steps_run(c, &session, steps, "init-x", NULL, NULL, &e), SG_OK);
    assert_int_equal(play.calls, 3);
    assert_int_equal(play.background, 1);
    assert_string_equal(play.ids[0], "init-x-1");
    assert_string_equal(play.ids[2], "init-x-3");
    assert_int_equal(steps_run(c, &session, NULL, "none", NULL, NULL, &e), SG_OK);
    assert_int_equal(play.calls, 3);
    json_decref(steps);
    done(c);
}

static void test_failure(void **state)
{
    (void)state;
    struct control *c = make();
    struct sg_error e;
    json_t *steps = parse("[{\"argv\":[\"a\"]},{\"argv\":[\"b\"],\"name\":\"install\"},{\"argv\":[\"c\"]}]");
    play.err[1] = "first\nE: no \x1b[1msuch\xffpackage\n\n";
    play.res[1].exit_code = 100;
    assert_int_equal(steps_run(c, &session, steps, "i", NULL, NULL, &e), SG_E_STEP_FAILED);
    assert_string_equal(e.detail, "step 2 (install) ended with exit code 100: E: no ?[1msuch?package");
    assert_int_equal(play.calls, 2);

    c = make();
    play.res[0] = (struct step_result){.exit_code = -1, .signal = 9};
    assert_int_equal(steps_run(c, &session, steps, "i", NULL, NULL, &e), SG_E_STEP_FAILED);
    assert_string_equal(e.detail, "step 1 was ended by signal 9");

    c = make();
    play.res[0] = (struct step_result){.exit_code = -1, .timed_out = true};
    assert_int_equal(steps_run(c, &session, steps, "i", NULL, NULL, &e), SG_E_STEP_FAILED);
    assert_string_equal(e.detail, "step 1 ran out of time");

    c = make();
    play.code[0] = SG_E_EXECUTABLE_NOT_FOUND;
    assert_int_equal(steps_run(c, &session, steps, "i", NULL, NULL, &e), SG_E_STEP_FAILED);

    c = make(); /* what is not the step's fault stays what it is */
    play.code[0] = SG_E_STALE_SESSION;
    assert_int_equal(steps_run(c, &session, steps, "i", NULL, NULL, &e), SG_E_STALE_SESSION);
    json_decref(steps);
    done(c);
}

/* ---- the base check ---- */

static void test_base_check(void **state)
{
    (void)state;
    struct control *c = make();
    struct sg_error e;
    play.out[0] = " setsid";
    play.out[1] = NULL;
    assert_int_equal(steps_base_check(c, &session, &e), SG_E_IMAGE_UNSUITABLE);
    assert_non_null(strstr(e.detail, "setsid"));
    assert_int_equal(steps_base_check(c, &session, &e), SG_OK); /* a failure is not kept */
    assert_string_equal(play.ids[0], play.ids[1]);
    assert_int_equal(steps_base_check(c, &session, &e), SG_OK); /* a success is */
    assert_int_equal(play.calls, 2);

    c = make();
    play.code[0] = SG_E_EXECUTABLE_NOT_FOUND;
    assert_int_equal(steps_base_check(c, &session, &e), SG_E_IMAGE_UNSUITABLE);
    assert_non_null(strstr(e.detail, "/bin/sh"));

    c = make(); /* the id was used up: under another one */
    play.code[0] = SG_E_PROCESS_ID_CONFLICT;
    assert_int_equal(steps_base_check(c, &session, &e), SG_OK);
    assert_string_not_equal(play.ids[0], play.ids[1]);
    done(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_failure),
        cmocka_unit_test(test_base_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
