/* Configuration: defaults, file, environment, command line, and an error with a position for everything that
 * is wrong (A1, A2, E2 as far as files are read at start). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];

/* Nothing but what tells cmocka how to print. */
static void clear_environment(void)
{
    (void)clearenv();
    (void)setenv("CMOCKA_MESSAGE_OUTPUT", "TAP", 1);
}

static void path_in(char out[128], const char *name)
{
    (void)snprintf(out, 128, "%s/%s", dir, name);
}

static void write_bytes(const char *name, const void *data, size_t len, mode_t mode)
{
    char path[128];
    path_in(path, name);
    (void)unlink(path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void write_text(const char *name, const char *text)
{
    write_bytes(name, text, strlen(text), 0600);
}

static int set_up(void **state)
{
    (void)state;
    clear_environment();
    (void)snprintf(dir, sizeof dir, "/tmp/sg-config-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    clear_environment();
    static const char *const names[] = {"c.ini", "token", "team"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128];
        path_in(path, names[i]);
        (void)unlink(path);
    }
    return rmdir(dir);
}

static enum sg_code load_text(const char *text, struct config **c, struct sg_error *e)
{
    char path[128];
    path_in(path, "c.ini");
    write_text("c.ini", text);
    sg_error_clear(e);
    return config_load(path, NULL, 0, c, e);
}

static void defaults_hold(void **state)
{
    (void)state;
    struct config *c;
    struct sg_error e;
    assert_int_equal(config_load(NULL, NULL, 0, &c, &e), SG_OK);
    assert_string_equal(c->listen, "127.0.0.1:8080");
    assert_string_equal(c->url, "https://vercel.com/api");
    assert_string_equal(c->credentials, "explicit");
    assert_int_equal(c->max_json_body, 1048576);
    assert_null(c->token);
    assert_null(c->proxy);
    config_free(c);
}

static void file_then_environment_then_command_line(void **state)
{
    (void)state;
    struct config *c;
    struct sg_error e;
    char path[128];
    path_in(path, "c.ini");
    write_text("c.ini", "\xef\xbb\xbf[server]\r\nlisten = [::1]:99 ; where\r\nworkers=3\r\n\r\n# note\n"
                        "[upstream]\nurl: http://h/api\nproxy = http://p:3128\nca_bundle = /ca.pem\n[relay]\n"
                        "retain_bytes = 65536");
    (void)setenv("SANDGATE_SERVER_WORKERS", "4", 1);
    (void)setenv("SANDGATE_SERVER_LOG_LEVEL", "debug", 1);
    (void)setenv("SANDGATE_UPSTREAM_URL", "", 1); /* blank counts as unset */
    const struct config_override o[] = {{"server.log_level", "error"}, {"auth.tokens_file", "/t"}};
    assert_int_equal(config_load(path, o, 2, &c, &e), SG_OK);
    assert_string_equal(c->listen, "[::1]:99");
    assert_int_equal(c->workers, 4);
    assert_string_equal(c->log_level, "error");
    assert_string_equal(c->tokens_file, "/t");
    assert_string_equal(c->url, "http://h/api");
    assert_string_equal(c->proxy, "http://p:3128");
    assert_string_equal(c->ca_bundle, "/ca.pem");
    assert_int_equal(c->retain_bytes, 65536);
    config_free(c);
}

static const struct {
    const char *text, *expect; /* part of the message after the file's name */
} wrong[] = {
    {"[server]\nlisten = 1.2.3.4:80\nlisen = x\n",
     ":3: unknown key \"lisen\" in [server]; did you mean \"listen\"?"},
    {"[server]\nurl = http://x\n", ":2: key \"url\" belongs to [upstream], not [server]"},
    {"[server]\nbanana = 1\n", ":2: unknown key \"banana\" in [server]"},
    {"[sever]\n", ":1: unknown section [sever]; did you mean [server]?"},
    {"\n\n[zoo]\na=1\n", ":3: unknown section [zoo]"},
    {"listen = a:1\n", ":1: a key before the first [section]"},
    {"[server]\nlisten\n", ":2: neither [section] nor key = value"},
    {"[server\nworkers=1\n", ":1: the section's \"]\" is missing"},
    {"[server]\nworkers = 0\n", ":2: workers must be a whole number from 1 to 512, not \"0\""},
    {"[server]\nworkers = 513\n", "from 1 to 512"},
    {"[server]\nworkers = -1\n", "from 1 to 512"},
    {"[server]\nworkers = 1x\n", "from 1 to 512"},
    {"[server]\nworkers =\n", "from 1 to 512"},
    {"[server]\nworkers = 99999999999999999999999\n", "from 1 to 512"},
    {"[server]\nlisten = 8080\n", ":2: listen must be HOST:PORT or [IPV6]:PORT, not \"8080\""},
    {"[server]\nlisten = ::1:80\n", "listen must be"},
    {"[server]\nlisten = h:65536\n", "listen must be"},
    {"[server]\nlisten = :80\n", "listen must be"},
    {"[server]\nlisten =\n", "listen must not be empty"},
    {"[server]\nlog_level = loud\n", ":2: log_level must be one of: debug info warn error; not \"loud\""},
    {"[server]\nlog_level = deb\n", "must be one of"},
    {"[server]\nworkers=1\n\nworkers=2\n", ":4: \"workers\" is given twice, first on line 2"},
    {"[server]\nworkers=1\n  2\n", ":3: the line begins with a blank"},
    {"[upstream]\nurl = ftp://x\n", ":2: url must be an http:// or https:// URL"},
    {"[upstream]\nurl = https://\n", "must be an http"},
    {"[upstream]\ncredentials = ambient\n", "must be one of: explicit env"},
    {"[upstream]\nteam_id = a\x01"
     "b\n",
     "holds a control character"},
    {"[upstream]\ntoken = a b\n", ":2: token holds a blank"},
    {"[upstream]\ntoken = a\ntoken_file = /x\n", ":3: token_file: set either token or token_file, not both"},
    {"[upstream]\ntoken_file = /does/not/exist\n",
     ":2: token_file: cannot read /does/not/exist: No such file"},
    {"[upstream]\ntoken_file = /tmp\n", "cannot read /tmp: Is a directory"},
};

static void every_mistake_has_its_position(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct config *c;
        struct sg_error e;
        assert_int_not_equal(load_text(wrong[i].text, &c, &e), SG_OK);
        assert_null(c);
        if (!strstr(e.detail, wrong[i].expect) || !strstr(e.detail, "/c.ini:"))
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, e.detail, wrong[i].expect);
    }
}

static void nul_and_overlong_lines_are_refused(void **state)
{
    (void)state;
    struct config *c;
    struct sg_error e;
    char path[128];
    path_in(path, "c.ini");
    write_bytes("c.ini", "[server]\nlis\0ten = a:1\n", 23, 0600);
    assert_int_not_equal(config_load(path, NULL, 0, &c, &e), SG_OK);
    assert_non_null(strstr(e.detail, ":2: the line holds a NUL"));

    char text[6000] = "[server]\nlisten = ";
    size_t at = strlen(text);
    memset(text + at, 'a', sizeof text - at - 1);
    assert_int_not_equal(load_text(text, &c, &e), SG_OK);
    assert_non_null(strstr(e.detail, ":2: the line is too long"));
    /* what follows an overlong line must not be read as a line of its own */
    assert_null(c);
}

static void missing_file_is_named(void **state)
{
    (void)state;
    struct config *c;
    struct sg_error e;
    assert_int_equal(config_load("/does/not/exist.ini", NULL, 0, &c, &e), SG_E_FILE_ERROR);
    assert_non_null(strstr(e.detail, "/does/not/exist.ini: No such file"));
    assert_string_equal(e.errno_name, "ENOENT");
}

static void environment_mistakes(void **state)
{
    (void)state;
    struct config *c;
    struct sg_error e;
    (void)setenv("SANDGATE_SERVER_LISEN", "x", 1);
    assert_int_not_equal(config_load(NULL, NULL, 0, &c, &e), SG_OK);
    assert_string_equal(e.detail, "unknown environment variable SANDGATE_SERVER_LISEN; did you mean "
                                  "SANDGATE_SERVER_LISTEN?");
    clear_environment();
    (void)setenv("SANDGATE_SERVER_WORKERS", "many", 1);
    assert_int_not_equal(config_load(NULL, NULL, 0, &c, &e), SG_OK);
    assert_non_null(strstr(e.detail, "SANDGATE_SERVER_WORKERS must be a whole number"));
    clear_environment();
    /* set by container platforms for a service of that name, and nobody's mistake */
    (void)setenv("SANDGATE_SERVICE_HOST", "10.0.0.1", 1);
    (void)setenv("SANDGATE_SERVER_SERVICE_PORT_HTTP", "80", 1);
    (void)setenv("SANDGATE_SERVER_PORT", "tcp://10.0.0.1:80", 1);
    (void)setenv("SANDGATE_SERVER_PORT_80_TCP_ADDR", "10.0.0.1", 1);
    assert_int_equal(config_load(NULL, NULL, 0, &c, &e), SG_OK);
    config_free(c);
}

static void command_line_mistakes(void **state)
{
    (void)state;
    static const struct {
        struct config_override o;
        const char *expect;
    } cases[] = {
        {{"server.lisen", "x"}, "--set server.lisen: unknown option; did you mean server.listen?"},
        {{"listen", "x"}, "--set listen: unknown option"},
        {{"server.workers", "no"}, "--set server.workers must be a whole number"},
        {{"upstream.token", "hush"}, "use upstream.token_file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config *c;
        struct sg_error e;
        assert_int_not_equal(config_load(NULL, &cases[i].o, 1, &c, &e), SG_OK);
        if (!strstr(e.detail, cases[i].expect) || strstr(e.detail, "hush"))
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, e.detail, cases[i].expect);
    }
}

/* E2: values from files, trimmed; a later layer's value goes before an earlier layer's file and the other way
 * round. */
static void e2_values_from_files(void **state)
{
    (void)state;
    struct config *c;
    struct sg_error e;
    char path[128];
    path_in(path, "token");
    write_text("token", "from-file\n");
    (void)setenv("SANDGATE_UPSTREAM_TOKEN_FILE", path, 1);
    path_in(path, "team");
    write_text("team", "  team_1 \r\n");
    (void)setenv("SANDGATE_UPSTREAM_TEAM_ID_FILE", path, 1);
    assert_int_equal(load_text("[upstream]\ntoken = from-ini\n", &c, &e), SG_OK);
    assert_string_equal(sg_secret_bytes(c->token), "from-file");
    assert_string_equal(c->team_id, "team_1");
    config_free(c);

    clear_environment();
    (void)setenv("SANDGATE_UPSTREAM_TOKEN", "from-env", 1);
    path_in(path, "token");
    char text[256];
    (void)snprintf(text, sizeof text, "[upstream]\ntoken_file = %s\n", path);
    assert_int_equal(load_text(text, &c, &e), SG_OK);
    assert_string_equal(sg_secret_bytes(c->token), "from-env");
    config_free(c);

    clear_environment();
    static const struct {
        const char *content;
        size_t len;
        const char *expect;
    } bad[] = {
        {"", 0, "is empty"}, {" \n", 2, "is empty"}, {"a\0b", 3, "holds a NUL"}, {"a b", 3, "holds a blank"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_bytes("token", bad[i].content, bad[i].len, 0600);
        assert_int_not_equal(load_text(text, &c, &e), SG_OK);
        assert_non_null(strstr(e.detail, bad[i].expect));
    }
}

/* A secret never appears in an error, wherever it was written by mistake. */
static void secrets_stay_out_of_errors(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "[upstream]\ntoken = Hush4711 x\n",
        "[upstream]\ntokn = Hush4711\n",
        "[upstream]\nHush4711\n",
        "[upstream]\nHush4711== = 3\n",
        "[Hush4711]\n",
        "[upstream]\nproxy = user:Hush4711@host\n",
        "[upstream]\nurl = user:Hush4711@host\n",
        "[upstream]\ntoken = Hush4711\ntoken = Hush4711\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct config *c;
        struct sg_error e;
        assert_int_not_equal(load_text(texts[i], &c, &e), SG_OK);
        if (strstr(e.detail, "Hush4711"))
            fail_msg("case %zu says the secret: %s", i, e.detail);
    }
    struct config *c;
    struct sg_error e;
    (void)setenv("SANDGATE_UPSTREAM_TOKEN", "Hush4711\x01", 1);
    assert_int_not_equal(config_load(NULL, NULL, 0, &c, &e), SG_OK);
    assert_null(strstr(e.detail, "Hush4711"));
}

static void example_file_matches_the_table(void **state)
{
    (void)state;
    struct sg_buf b;
    sg_buf_init(&b, CONFIG_TEXT_MAX);
    assert_true(config_describe_example(&b));
    FILE *f = fopen(SG_EXAMPLE_FILE, "r");
    assert_non_null(f);
    static char text[64 * 1024];
    size_t n = fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    text[n] = '\0';
    if (strcmp(text, b.data) != 0)
        fail_msg("config/sandgate.ini.example is out of date: sandgate check-config --example writes it");
    sg_buf_free(&b);
}

/* The example is a valid file as it stands, and still when every option in it is switched on. */
static void example_file_loads(void **state)
{
    (void)state;
    struct sg_buf b;
    struct config *c;
    struct sg_error e;
    sg_buf_init(&b, CONFIG_TEXT_MAX);
    assert_true(config_describe_example(&b));
    assert_int_equal(load_text(b.data, &c, &e), SG_OK);
    config_free(c);
    for (size_t i = 1; i < b.len; i++)
        if (b.data[i - 1] == '\n' && b.data[i] == ';' && b.data[i + 1] != ' ')
            b.data[i] = '\n';
    if (load_text(b.data, &c, &e))
        fail_msg("%s", e.detail);
    config_free(c);
    sg_buf_free(&b);
}

/* P39 */
static void pings_come_more_than_twice_per_idle_limit(void **state)
{
    (void)state;
    struct config *c;
    struct sg_error e;
    assert_int_equal(load_text("[server]\nping_ms = 29999\n", &c, &e), SG_OK);
    config_free(c);
    assert_int_not_equal(load_text("[server]\nworkers = 3\nping_ms = 30000\n", &c, &e), SG_OK);
    assert_non_null(
        strstr(e.detail, "c.ini:3: ping_ms: 30000 is not less than half of server.proxy_idle_ms, 60000"));
    assert_int_not_equal(load_text("[server]\nproxy_idle_ms = 40000\n", &c, &e), SG_OK);
    assert_string_equal(
        e.detail, "default of server.ping_ms: 20000 is not less than half of server.proxy_idle_ms, 40000");
    assert_int_not_equal(
        load_text("[server]\nproxy_idle_ms = 9001\nping_ms = 4500\n[relay]\nkeepalive_ms = 4501\n", &c, &e),
        SG_OK);
    assert_non_null(strstr(e.detail, "c.ini:5: keepalive_ms: 4501 is not less than half"));
    assert_int_equal(load_text("[server]\nproxy_idle_ms = 0\nping_ms = 600000\n", &c, &e), SG_OK);
    config_free(c);
}

static void help_names_every_option(void **state)
{
    (void)state;
    struct sg_buf b;
    size_t n;
    sg_buf_init(&b, CONFIG_TEXT_MAX);
    assert_true(config_describe_help(&b));
    const struct config_option *o = config_options(&n);
    assert_true(n > 20);
    for (size_t i = 0; i < n; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "  %s.%s", o[i].section, o[i].key);
        assert_non_null(strstr(b.data, name));
        assert_non_null(strstr(b.data, o[i].help));
    }
    sg_buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
        T(defaults_hold),
        T(file_then_environment_then_command_line),
        T(every_mistake_has_its_position),
        T(nul_and_overlong_lines_are_refused),
        T(missing_file_is_named),
        T(environment_mistakes),
        T(command_line_mistakes),
        T(e2_values_from_files),
        T(secrets_stay_out_of_errors),
        T(example_file_matches_the_table),
        T(example_file_loads),
        T(pings_come_more_than_twice_per_idle_limit),
        T(help_names_every_option),
#undef T
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
