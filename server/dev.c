/* sandgate dev: the gateway in this process, the emulator as its child.
 *
 *   importing → starting → ready → draining → stopping
 *
 * A signal before `ready` goes straight to stopping.  The emulator ends last, because what drains still needs
 * it. */
#include "server/cli.h"

#include "base/clock.h"
#include "base/log.h"
#include "server/dev_child.h"
#include "server/dev_state.h"
#include "server/dev_user.h"
#include "server/serve.h"

#include <curl/curl.h>
#include <getopt.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_ARGS = 48, MAX_PATH = 4096, PATIENCE_MS = 2000, START_MS = 60000, STOP_MS = 60000 };

enum phase { IMPORTING, STARTING, READY, DRAINING, STOPPING };

struct dev {
    /* from the command line */
    struct cli_settings settings;
    const char *base;
    bool json;
    const char *extra[MAX_ARGS];
    size_t nextra;
    char state[MAX_PATH], emulator[MAX_PATH], base_default[MAX_PATH], store[MAX_PATH];
    /* running */
    struct config *config;
    struct sg_loop *loop;
    struct dev_child *child;
    struct instance *instance;
    struct sg_timer *timer;
    uv_signal_t term, interrupt;
    enum phase phase;
    int64_t phase_began;
    bool imported, said_wait;
    int code; /* what we end with */
};

static void start_emulator(struct dev *d);

/* ---- what a human and a script read ---- */

/* The lines of the README, to paste after URL and TOKEN. */
static const char paste_lines[] =
    "curl -sS -H \"Authorization: Bearer $TOKEN\" -H 'Content-Type: application/json' \\\n"
    "  -d '{\"name\":\"demo\"}' \"$URL/v1/sandboxes\"\n"
    "curl -sS -H \"Authorization: Bearer $TOKEN\" -H 'Content-Type: application/json' \\\n"
    "  -d '{\"argv\":[\"uname\",\"-a\"]}' \"$URL/v1/sandboxes/demo/run\"\n"
    "curl -sS -H \"Authorization: Bearer $TOKEN\" -X PUT --data-binary 'kept across stop and resume' \\\n"
    "  -H 'Content-Type: application/octet-stream' \"$URL/v1/sandboxes/demo/files/content?path=note.txt\"\n"
    "curl -sS -H \"Authorization: Bearer $TOKEN\" \"$URL/v1/sandboxes/demo/files/content?path=note.txt\"\n";

static bool print_human(const char *url, const char *token, const char *tier)
{
    return printf("sandgate %s is ready; sandboxes run on this machine (isolation: %s).\n\n"
                  "export URL=%s TOKEN=%s\n\n"
                  "Paste that, and then: create a sandbox, run a program, write a file, read it back:\n\n"
                  "%s\n"
                  "Ctrl-C stops everything.\n",
                  cli_version(), tier, url, token, paste_lines) > 0 &&
           fflush(stdout) == 0;
}

static bool print_json(const char *url, const char *token, const char *emulator_url, const char *tier)
{
    json_t *o = json_pack("{s:s, s:s, s:s, s:s}", "url", url, "token", token, "emulator_url", emulator_url,
                          "tier", tier);
    bool ok = o && json_dumpf(o, stdout, JSON_COMPACT) == 0 && putchar('\n') == '\n' && fflush(stdout) == 0;
    json_decref(o);
    return ok;
}

/* ---- phases ---- */

static void enter(struct dev *d, enum phase phase)
{
    d->phase = phase;
    d->phase_began = sg_mono_ms();
    d->said_wait = false;
    sg_timer_start(d->timer, PATIENCE_MS);
}

/* The end, with the emulator's if it still runs. */
static void stop(struct dev *d)
{
    enter(d, STOPPING);
    if (d->child)
        dev_child_signal(d->child, SIGTERM);
    else
        sg_loop_stop(d->loop);
}

static void fail(struct dev *d, int code)
{
    d->code = code;
    stop(d);
}

/* Says what takes longer than two seconds, and gives up on what takes far too long. */
static void on_timer(void *arg)
{
    struct dev *d = arg;
    int64_t ms = sg_mono_ms() - d->phase_began;
    long long seconds = (long long)(ms / 1000);
    if (d->phase == READY || d->phase == IMPORTING) /* the import shows its own progress */
        return;
    sg_timer_start(d->timer, PATIENCE_MS);
    if (d->phase == STARTING && ms > START_MS) {
        cli_say("the emulator is not ready after %lld s; giving up", seconds);
        fail(d, EX_UNAVAILABLE);
    } else if (d->phase == STOPPING && ms > STOP_MS) {
        cli_say("the emulator does not end after %lld s; killing it", seconds);
        d->code = d->code ? d->code : EX_UNAVAILABLE;
        dev_child_signal(d->child, SIGKILL);
    } else {
        static const char *const what[] = {
            [STARTING] = "starting the emulator",
            [DRAINING] = "waiting for requests in flight",
            [STOPPING] = "stopping the emulator, which keeps the sandboxes' files",
        };
        cli_say("%s… %lld s", what[d->phase], seconds);
    }
}

/* ---- ready ---- */

static struct token_table *make_token(char token[TOKEN_TEXT])
{
    struct token_table *t = NULL;
    struct sg_error e;
    if (token_generate(token, &e) || token_table_open(NULL, &t, &e) ||
        token_table_add_memory(t, token, "dev", &e)) {
        cli_say("%s", e.detail);
        token_table_free(t);
        return NULL;
    }
    return t;
}

static void serve_emulator(struct dev *d, const char *emulator_url, const char *emulator_token,
                           const char *tier)
{
    char token[TOKEN_TEXT], url[300];
    const struct vercel_config v = {
        .base_url = emulator_url,
        .team_id = "team_local",
        .project_id = "prj_local",
        .token = sg_secret_new(emulator_token, strlen(emulator_token)),
        .retries = -1,
    };
    struct token_table *tokens = make_token(token);
    int code = EX_SOFTWARE;
    if (!tokens || !v.token) {
        sg_secret_free(v.token);
        token_table_free(tokens);
        fail(d, code);
        return;
    }
    d->instance = instance_new(d->loop, d->config, &v, tokens, &code);
    if (!d->instance) {
        fail(d, code);
        return;
    }
    /* the port is bound, and nothing has come in yet: requests wait for the loop's next turn */
    char err[DEV_USER_ERR];
    if (!dev_user_drop(err)) {
        cli_say("%s", err);
        fail(d, EX_NOPERM);
        return;
    }
    enter(d, READY);
    instance_url(d->instance, url);
    bool ok = d->json ? print_json(url, token, emulator_url, tier) : print_human(url, token, tier);
    explicit_bzero(token, sizeof token);
    if (!ok) {
        cli_say("standard output cannot be written");
        fail(d, EX_IOERR);
    }
}

static void on_ready_line(void *arg, const char *line)
{
    struct dev *d = arg;
    if (d->phase != STARTING)
        return;
    json_t *o = json_loads(line, 0, NULL);
    const char *url = json_string_value(json_object_get(o, "url"));
    const char *token = json_string_value(json_object_get(o, "token"));
    const char *tier = json_string_value(json_object_get(o, "tier"));
    if (url && token) {
        serve_emulator(d, url, token, tier ? tier : "unknown");
    } else {
        cli_say("the emulator said something that is not its ready line; is %.200s of another version?",
                d->emulator);
        fail(d, EX_SOFTWARE);
    }
    json_decref(o);
}

/* ---- the emulator ends ---- */

static void import_base(struct dev *d);

/* Codes that the emulator explains itself. */
static bool documented(int status)
{
    return status == EX_USAGE || status == EX_NOINPUT || status == EX_UNAVAILABLE || status == EX_SOFTWARE ||
           status == EX_CANTCREAT || status == EX_TEMPFAIL || status == EX_NOPERM || status == EX_CONFIG;
}

static void say_death(const struct dev *d, int status, int number)
{
    const char *what = d->phase == IMPORTING ? "the import of the base file system" : "the emulator";
    if (number)
        cli_say("%s was ended by signal %d (%s)", what, number, strsignal(number));
    else
        cli_say("%s ended by itself with exit status %d", what, status);
}

static void on_emulator_exit(void *arg, int status, int number)
{
    struct dev *d = arg;
    dev_child_free(d->child);
    d->child = NULL;
    if (d->phase == STOPPING) {
        if ((status || number) && !d->code) { /* it ended, but not as it should */
            say_death(d, status, number);
            d->code = EX_UNAVAILABLE;
        }
        sg_loop_stop(d->loop);
    } else if (d->phase == STARTING && !number && status == EX_NOINPUT && !d->imported) {
        import_base(d);
    } else {
        bool explained = d->phase == STARTING && !number && documented(status);
        if (!explained)
            say_death(d, status, number);
        fail(d, explained ? status : EX_UNAVAILABLE);
    }
}

static void on_import_exit(void *arg, int status, int number)
{
    struct dev *d = arg;
    dev_child_free(d->child);
    d->child = NULL;
    if (d->phase == STOPPING) {
        sg_loop_stop(d->loop);
    } else if (status || number) {
        bool explained = !number && documented(status);
        if (!explained)
            say_death(d, status, number);
        fail(d, explained ? status : EX_UNAVAILABLE);
    } else {
        d->imported = true;
        start_emulator(d);
    }
}

static void spawn(struct dev *d, char *const *argv, const struct dev_child_events *ev)
{
    int err;
    d->child = dev_child_start(d->loop, argv, ev, d, &err);
    if (d->child)
        return;
    cli_say("cannot run %.300s: %s", argv[0], uv_strerror(err));
    fail(d, EX_UNAVAILABLE);
}

static void import_base(struct dev *d)
{
    static const struct dev_child_events events = {.on_exit = on_import_exit};
    const char *base = d->base;
    if (!base && dev_default_base(d->base_default, sizeof d->base_default))
        base = d->base_default;
    if (!base) {
        cli_say(
            "there is no base file system yet; `make run` or emulator/base/make-base builds one, --base FILE "
            "names it");
        fail(d, EX_NOINPUT);
        return;
    }
    if (access(base, R_OK)) {
        cli_say("the base file system %.300s cannot be read", base);
        fail(d, EX_NOINPUT);
        return;
    }
    enter(d, IMPORTING);
    cli_say("importing the base file system %.300s (once)", base);
    char import[] = "import-base", state[] = "--state";
    char *const argv[] = {d->emulator, import, state, d->state, (char *)(uintptr_t)base, NULL};
    spawn(d, argv, &events);
}

static void start_emulator(struct dev *d)
{
    /* it may be another user's by the time it shall end, so that is said on its standard input */
    static const struct dev_child_events events = {
        .on_line = on_ready_line, .on_exit = on_emulator_exit, .control = true};
    char listen[] = "--listen", any[] = "127.0.0.1:0", state[] = "--state", json[] = "--json",
         die[] = "--die-with-parent", eof[] = "--stop-on-eof";
    char *argv[MAX_ARGS + 9] = {d->emulator, listen, any, state, d->state, json, die, eof};
    for (size_t i = 0; i < d->nextra; i++)
        argv[8 + i] = (char *)(uintptr_t)d->extra[i]; /* nobody writes to it */
    enter(d, STARTING);
    spawn(d, argv, &events);
}

/* ---- signals ---- */

static void on_drained(void *arg)
{
    struct dev *d = arg;
    if (d->phase == DRAINING)
        stop(d);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct dev *d = handle->data;
    if (d->phase == READY) {
        enter(d, DRAINING);
        instance_drain(d->instance, on_drained, d);
    } else if (d->phase == IMPORTING || d->phase == STARTING) {
        fail(d, 128 + number);
    } else {
        if (d->child)
            dev_child_signal(d->child, SIGKILL);
        _exit(128 + number); /* whoever asks twice does not want to wait */
    }
}

static bool watch_signals(struct dev *d)
{
    uv_loop_t *uv = sg_loop_uv(d->loop);
    d->term.data = d;
    d->interrupt.data = d;
    return uv_signal_init(uv, &d->term) == 0 && uv_signal_init(uv, &d->interrupt) == 0 &&
           uv_signal_start(&d->term, on_signal, SIGTERM) == 0 &&
           uv_signal_start(&d->interrupt, on_signal, SIGINT) == 0;
}

/* ---- the command ---- */

static int parse(int argc, char **argv, struct dev *d)
{
    static const struct option options[] = {
        {"listen", required_argument, NULL, 'l'}, {"state", required_argument, NULL, 's'},
        {"base", required_argument, NULL, 'b'},   {"emulator-arg", required_argument, NULL, 'e'},
        {"json", no_argument, NULL, 'j'},         {0},
    };
    int o;
    bool ok = true;
    const char *state = NULL;
    optind = 1;
    opterr = 0;
    while (ok && (o = getopt_long(argc, argv, ":", options, NULL)) != CLI_NOT_AN_OPTION) {
        if (o == 'l')
            ok = cli_add_override(&d->settings, "server.listen", optarg);
        else if (o == 's')
            state = optarg;
        else if (o == 'b')
            d->base = optarg;
        else if (o == 'j')
            d->json = true;
        else if (o == 'e' && d->nextra < MAX_ARGS)
            d->extra[d->nextra++] = optarg;
        else
            return cli_usage("dev: %.60s is not an option, or lacks its value; see --help", argv[optind - 1]);
    }
    if (!ok)
        return cli_usage("dev: --listen is given too often");
    if (optind < argc)
        return cli_usage("dev: unexpected argument \"%.60s\"", argv[optind]);
    if (state ? snprintf(d->state, sizeof d->state, "%s", state) >= MAX_PATH
              : !dev_default_state(d->state, sizeof d->state)) {
        cli_say("dev: give a state directory by --state DIR");
        return EX_USAGE;
    }
    return EX_OK;
}

/* At a terminal the lines to paste should stay in sight: only warnings are logged, unless asked for. */
static int load(struct dev *d)
{
    if (!d->json && !getenv("SANDGATE_SERVER_LOG_FORMAT"))
        (void)cli_add_override(&d->settings, "server.log_format", "text");
    if (!d->json && !getenv("SANDGATE_SERVER_LOG_LEVEL"))
        (void)cli_add_override(&d->settings, "server.log_level", "warn");
    if (!getenv("SANDGATE_STORE_STATE_FILE") &&
        snprintf(d->store, sizeof d->store, "%s/gateway.db", d->state) < MAX_PATH)
        (void)cli_add_override(&d->settings, "store.state_file", d->store);
    return cli_load(&d->settings, &d->config);
}

static int prepare(struct dev *d)
{
    int code = load(d);
    if (code)
        return code;
    int err = dev_make_state(d->state);
    if (err) {
        cli_say("the state directory %.300s cannot be used: %s", d->state, strerror(err));
        return EX_CANTCREAT;
    }
    if (!dev_find_emulator(d->emulator, sizeof d->emulator)) {
        cli_say("sandgate-emulator is neither beside this program nor in PATH; build or install it");
        return EX_UNAVAILABLE;
    }
    code = cli_probe_listen(d->config->listen);
    return code ? code : cli_prepare_process();
}

static void run(struct dev *d)
{
    d->code = EX_SOFTWARE;
    d->loop = sg_loop_new();
    d->timer = d->loop ? sg_timer_new(d->loop, on_timer, d) : NULL;
    if (!d->timer) {
        cli_say("the event loop cannot be made: out of memory or descriptors");
    } else if (!watch_signals(d)) {
        cli_say("signals cannot be watched");
    } else {
        d->code = EX_OK;
        if (dev_has_base(d->state))
            start_emulator(d);
        else
            import_base(d);
        sg_loop_run(d->loop);
    }
    instance_free(d->instance);
    dev_child_free(d->child);
    sg_timer_free(d->timer);
    if (d->term.data) {
        uv_close((uv_handle_t *)&d->term, NULL);
        uv_close((uv_handle_t *)&d->interrupt, NULL);
    }
    sg_loop_free(d->loop);
}

int cli_dev(int argc, char **argv)
{
    struct dev *d = calloc(1, sizeof *d);
    if (!d) {
        cli_say("out of memory");
        return EX_SOFTWARE;
    }
    int code = parse(argc, argv, d);
    if (!code)
        code = prepare(d);
    if (!code) {
        run(d);
        code = d->code;
        curl_global_cleanup();
    }
    config_free(d->config);
    free(d);
    return code;
}
