/* Which credentials are used (A1, E1), and when they are refused before anything is sent (E2). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/core/b64.h"
#include "config/config.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Nothing but what tells cmocka how to print. */
static void clear_environment(void)
{
    (void)clearenv();
    (void)setenv("CMOCKA_MESSAGE_OUTPUT", "TAP", 1);
}

/* A JWT with the given payload, as base64url without padding; the signature is nobody's. */
static void make_jwt(char out[512], const char *payload)
{
    char b[400];
    size_t n = sg_b64_encode(b, payload, strlen(payload));
    while (n && b[n - 1] == '=')
        n--;
    for (size_t i = 0; i < n; i++) {
        if (b[i] == '+')
            b[i] = '-';
        else if (b[i] == '/')
            b[i] = '_';
    }
    (void)snprintf(out, 512, "eyJhbGciOiJub25lIn0.%.*s.c2ln", (int)n, b);
}

enum { ENV_MAX = 6 };

struct row {
    const char *name;
    const char *env[ENV_MAX][2];
    const char *token, *team, *project; /* expected; token NULL: refused, team holds part of the message */
};

static char jwt[512], jwt_no_project[512];

static const struct row rows[] = {
    {"explicit takes nothing ambient",
     {{"VERCEL_TOKEN", "v"}, {"VERCEL_TEAM_ID", "t"}, {"VERCEL_PROJECT_ID", "p"}},
     NULL,
     "credentials = env to use",
     NULL},
    {"explicit values",
     {{"SANDGATE_UPSTREAM_TOKEN", "x"},
      {"SANDGATE_UPSTREAM_TEAM_ID", "t"},
      {"SANDGATE_UPSTREAM_PROJECT_ID", "p"},
      {"VERCEL_TOKEN", "v"},
      {"VERCEL_TEAM_ID", "vt"}},
     "x",
     "t",
     "p"},
    {"explicit without a team does not borrow one",
     {{"SANDGATE_UPSTREAM_TOKEN", "x"}, {"SANDGATE_UPSTREAM_PROJECT_ID", "p"}, {"VERCEL_TEAM_ID", "vt"}},
     NULL,
     "no upstream team_id",
     NULL},
    {"explicit without a project",
     {{"SANDGATE_UPSTREAM_TOKEN", "x"}, {"SANDGATE_UPSTREAM_TEAM_ID", "t"}},
     NULL,
     "SANDGATE_UPSTREAM_PROJECT_ID",
     NULL},
    {"env: the token option goes first",
     {{"SANDGATE_UPSTREAM_CREDENTIALS", "env"},
      {"SANDGATE_UPSTREAM_TOKEN", "x"},
      {"VERCEL_OIDC_TOKEN", "o"},
      {"VERCEL_TOKEN", "v"},
      {"VERCEL_TEAM_ID", "t"},
      {"VERCEL_PROJECT_ID", "p"}},
     "x",
     "t",
     "p"},
    {"env: then the OIDC token",
     {{"SANDGATE_UPSTREAM_CREDENTIALS", "env"},
      {"VERCEL_OIDC_TOKEN", "o"},
      {"VERCEL_TOKEN", "v"},
      {"VERCEL_TEAM_ID", "t"},
      {"VERCEL_PROJECT_ID", "p"}},
     "o",
     "t",
     "p"},
    {"env: blank counts as unset",
     {{"SANDGATE_UPSTREAM_CREDENTIALS", "env"},
      {"VERCEL_OIDC_TOKEN", "  \n"},
      {"VERCEL_TOKEN", " v "},
      {"VERCEL_TEAM_ID", ""},
      {"VERCEL_ORG_ID", "org"},
      {"VERCEL_PROJECT_ID", "p"}},
     "v",
     "org",
     "p"},
    {"env: VERCEL_TEAM_ID before VERCEL_ORG_ID",
     {{"SANDGATE_UPSTREAM_CREDENTIALS", "env"},
      {"VERCEL_TOKEN", "v"},
      {"VERCEL_TEAM_ID", "t"},
      {"VERCEL_ORG_ID", "org"},
      {"VERCEL_PROJECT_ID", "p"}},
     "v",
     "t",
     "p"},
    {"env: the options of team and project go first",
     {{"SANDGATE_UPSTREAM_CREDENTIALS", "env"},
      {"SANDGATE_UPSTREAM_TEAM_ID", "ot"},
      {"SANDGATE_UPSTREAM_PROJECT_ID", "op"},
      {"VERCEL_TOKEN", "v"},
      {"VERCEL_TEAM_ID", "t"},
      {"VERCEL_PROJECT_ID", "p"}},
     "v",
     "ot",
     "op"},
    {"env: an OIDC token alone",
     {{"SANDGATE_UPSTREAM_CREDENTIALS", "env"}, {"VERCEL_OIDC_TOKEN", jwt}},
     jwt,
     "team_claim",
     "prj_claim"},
    {"env: claims do not override what is set",
     {{"SANDGATE_UPSTREAM_CREDENTIALS", "env"}, {"VERCEL_OIDC_TOKEN", jwt}, {"VERCEL_TEAM_ID", "t"}},
     jwt,
     "t",
     "prj_claim"},
    {"explicit: an OIDC token names its own",
     {{"SANDGATE_UPSTREAM_TOKEN", jwt}},
     jwt,
     "team_claim",
     "prj_claim"},
    {"a JWT without a project",
     {{"SANDGATE_UPSTREAM_TOKEN", jwt_no_project}},
     NULL,
     "no upstream project_id",
     NULL},
    {"env: nothing there",
     {{"SANDGATE_UPSTREAM_CREDENTIALS", "env"}},
     NULL,
     "VERCEL_OIDC_TOKEN or VERCEL_TOKEN",
     NULL},
    {"explicit: nothing there", {{NULL, NULL}}, NULL, "no upstream token", NULL},
    {"three parts that are no JWT are an opaque token",
     {{"SANDGATE_UPSTREAM_TOKEN", "a.b.c"},
      {"SANDGATE_UPSTREAM_TEAM_ID", "t"},
      {"SANDGATE_UPSTREAM_PROJECT_ID", "p"}},
     "a.b.c",
     "t",
     "p"},
    {"env: a token with a line break inside",
     {{"SANDGATE_UPSTREAM_CREDENTIALS", "env"}, {"VERCEL_TOKEN", "a\r\nx-evil: 1"}},
     NULL,
     "VERCEL_TOKEN holds a blank",
     NULL},
};

static void check_row(const struct row *r)
{
    clear_environment();
    for (size_t i = 0; i < ENV_MAX && r->env[i][0]; i++)
        (void)setenv(r->env[i][0], r->env[i][1], 1);
    struct config *c;
    struct sg_error e;
    sg_error_clear(&e);
    assert_int_equal(config_load(NULL, NULL, 0, &c, &e), SG_OK);
    enum sg_code code = config_resolve_credentials(c, &e);
    if (r->token) {
        if (code)
            fail_msg("%s: %s", r->name, e.detail);
        if (strcmp(sg_secret_bytes(c->token), r->token) != 0 || strcmp(c->team_id, r->team) != 0 ||
            strcmp(c->project_id, r->project) != 0)
            fail_msg("%s: got %s %s", r->name, c->team_id, c->project_id);
    } else {
        if (!code || !strstr(e.detail, r->team))
            fail_msg("%s: \"%s\" lacks \"%s\"", r->name, code ? e.detail : "(accepted)", r->team);
        assert_true(strlen(e.detail) < sizeof e.detail - 1); /* not cut */
    }
    config_free(c);
    clear_environment();
}

static void a1_e1_resolution_order(void **state)
{
    (void)state;
    make_jwt(
        jwt,
        "{\"owner_id\":\"team_claim\",\"project_id\":\"prj_claim\",\"exp\":32503680000,\"x\":\"?>?~~~\"}");
    make_jwt(jwt_no_project, "{\"owner_id\":\"team_claim\"}");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_row(&rows[i]);
}

/* E2: an expired token is never sent; the message names the expiry and not the token. */
static void e2_expired_jwt_is_refused(void **state)
{
    (void)state;
    char expired[512];
    make_jwt(expired, "{\"owner_id\":\"t\",\"project_id\":\"p\",\"exp\":1700000000}");
    clear_environment();
    (void)setenv("SANDGATE_UPSTREAM_CREDENTIALS", "env", 1);
    (void)setenv("VERCEL_OIDC_TOKEN", expired, 1);
    (void)setenv("VERCEL_TOKEN", "valid", 1); /* not a way round it */
    struct config *c;
    struct sg_error e;
    assert_int_equal(config_load(NULL, NULL, 0, &c, &e), SG_OK);
    assert_int_equal(config_resolve_credentials(c, &e), SG_E_UNAUTHENTICATED);
    assert_string_equal(e.detail, "VERCEL_OIDC_TOKEN expired at 2023-11-14T22:13:20.000Z; get a new one");
    config_free(c);
    clear_environment();
}

static void expiry_is_exact_and_odd_values_do_not_matter(void **state)
{
    (void)state;
    int64_t now = sg_wall_ms() / 1000;
    char past[128], future[128];
    (void)snprintf(past, sizeof past, "{\"owner_id\":\"t\",\"project_id\":\"p\",\"exp\":%lld.5}",
                   (long long)(now - 2));
    (void)snprintf(future, sizeof future, "{\"owner_id\":\"t\",\"project_id\":\"p\",\"exp\":%lld}",
                   (long long)(now + 60));
    const struct {
        const char *payload;
        bool ok;
    } cases[] = {
        {past, false},
        {future, true},
        {"{\"owner_id\":\"t\",\"project_id\":\"p\",\"exp\":\"soon\"}", true},
        {"{\"owner_id\":\"t\",\"project_id\":\"p\",\"exp\":1e300}", true},
        {"{\"owner_id\":\"t\",\"project_id\":\"p\",\"exp\":-5}", true},
        {"{\"owner_id\":7,\"project_id\":\"p\"}", false},
        {"[1,2]", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char token[512];
        make_jwt(token, cases[i].payload);
        clear_environment();
        (void)setenv("SANDGATE_UPSTREAM_TOKEN", token, 1);
        struct config *c;
        struct sg_error e;
        assert_int_equal(config_load(NULL, NULL, 0, &c, &e), SG_OK);
        bool ok = config_resolve_credentials(c, &e) == SG_OK;
        if (ok != cases[i].ok)
            fail_msg("%s", cases[i].payload);
        config_free(c);
    }
    clear_environment();
}

/* A zombie that nobody has waited for yet runs no more. */
static bool running(pid_t pid)
{
    char path[64], text[256] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    size_t n = fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    const char *state = n ? strrchr(text, ')') : NULL;
    return state && state[1] == ' ' && state[2] != 'Z' && state[2] != 'X';
}

/* A command that hangs, and what it left behind with its output open, end when the gateway does. */
static void e2_a_token_command_ends_when_it_is_given_up(void **state)
{
    static const char *const commands[] = {
        "sleep 60 & echo $! >\"$T_PID\"; wait",
        "sleep 60 & echo $! >\"$T_PID\"; echo token",
    };
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        char path[] = "/tmp/sandgate-pid-XXXXXX", text[32] = "";
        int fd = mkstemp(path), stop[2];
        assert_true(fd >= 0);
        assert_int_equal(pipe(stop), 0);
        clear_environment();
        (void)setenv("T_PID", path, 1);
        const struct config_override o = {"upstream.token_command", commands[i]};
        struct config *c;
        struct sg_error e;
        assert_int_equal(config_load(NULL, &o, 1, &c, &e), SG_OK);
        pid_t helper = fork();
        assert_true(helper >= 0);
        if (helper == 0) { /* the end of the gateway, once the command runs */
            struct stat st;
            while (!stat(path, &st) && st.st_size < 2)
                (void)poll(NULL, 0, 5);
            _exit(write(stop[1], "x", 1) != 1);
        }
        struct config_token t;
        int64_t begun = sg_mono_ms();
        assert_int_equal(config_fetch_token(c, stop[0], &t, &e), SG_E_UNAUTHENTICATED);
        assert_true(sg_mono_ms() - begun < 10000);
        assert_null(t.token);
        assert_int_equal(waitpid(helper, NULL, 0), helper);
        assert_true(pread(fd, text, sizeof text - 1, 0) > 0);
        pid_t left = (pid_t)strtol(text, NULL, 10);
        assert_true(left > 1);
        while (running(left) && sg_mono_ms() - begun < 10000)
            (void)poll(NULL, 0, 5);
        assert_false(running(left));
        config_free(c);
        (void)unlink(path);
        (void)close(fd);
        (void)close(stop[0]);
        (void)close(stop[1]);
        (void)unsetenv("T_PID");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a1_e1_resolution_order),
        cmocka_unit_test(e2_expired_jwt_is_refused),
        cmocka_unit_test(expiry_is_exact_and_odd_values_do_not_matter),
        cmocka_unit_test(e2_a_token_command_ends_when_it_is_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
