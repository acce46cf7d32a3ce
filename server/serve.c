/* sandgate serve */
#include "server/serve.h"

#include "base/log.h"
#include "server/cli.h"
#include "server/serve_credentials.h"

#include <curl/curl.h>
#include <getopt.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

struct serving {
    struct sg_loop *loop;
    struct instance *instance;
    uv_signal_t term, interrupt;
    bool draining;
};

static int parse(int argc, char **argv, struct cli_settings *s)
{
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},
        {"set", required_argument, NULL, 's'},
        {"listen", required_argument, NULL, 'l'},
        {0},
    };
    int o;
    optind = 1;
    opterr = 0;
    while ((o = getopt_long(argc, argv, ":", options, NULL)) != CLI_NOT_AN_OPTION) {
        bool ok = true;
        if (o == 'c')
            s->path = optarg;
        else if (o == 's')
            ok = cli_add_set(s, optarg);
        else if (o == 'l')
            ok = cli_add_override(s, "server.listen", optarg);
        else
            return cli_usage("serve: %.60s is not an option, or lacks its value; see --help",
                             argv[optind - 1]);
        if (!ok)
            return cli_usage("serve: --set wants SECTION.KEY=VALUE, at most %d times", CLI_MAX_OVERRIDES);
    }
    if (optind < argc)
        return cli_usage("serve: unexpected argument \"%.60s\"", argv[optind]);
    return EX_OK;
}

static void on_drained(void *arg)
{
    const struct serving *s = arg;
    sg_loop_stop(s->loop);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct serving *s = handle->data;
    if (s->draining)
        _exit(128 + number); /* whoever asks twice does not want to wait */
    s->draining = true;
    instance_drain(s->instance, on_drained, s);
}

static bool watch_signals(struct serving *s)
{
    uv_loop_t *uv = sg_loop_uv(s->loop);
    s->term.data = s;
    s->interrupt.data = s;
    return uv_signal_init(uv, &s->term) == 0 && uv_signal_init(uv, &s->interrupt) == 0 &&
           uv_signal_start(&s->term, on_signal, SIGTERM) == 0 &&
           uv_signal_start(&s->interrupt, on_signal, SIGINT) == 0;
}

static int run(struct config *c)
{
    struct sg_error e;
    struct token_table *tokens;
    if (token_table_open(c->tokens_file, &tokens, &e)) {
        cli_say("%s", e.detail);
        return EX_CONFIG;
    }
    struct serving s = {.loop = sg_loop_new()};
    int code = EX_SOFTWARE;
    if (!s.loop) {
        token_table_free(tokens);
        cli_say("the event loop cannot be made: out of memory or descriptors");
        return code;
    }
    struct vercel_config v;
    instance_upstream(c, &v);
    s.instance = instance_new(s.loop, c, &v, tokens, &code);
    if (s.instance && watch_signals(&s)) {
        char url[300];
        instance_url(s.instance, url);
        sg_log(SG_LOG_INFO, "listening", "address", "s", c->listen, "port", "i",
               (int64_t)instance_port(s.instance), "url", "s", url, "upstream", "s", c->url, "version", "s",
               cli_version(), NULL);
        sg_loop_run(s.loop);
        sg_log(SG_LOG_INFO, "stopped", NULL);
        code = EX_OK;
    } else if (s.instance) {
        cli_say("signals cannot be watched");
    }
    instance_free(s.instance);
    if (s.term.data) {
        uv_close((uv_handle_t *)&s.term, NULL);
        uv_close((uv_handle_t *)&s.interrupt, NULL);
    }
    sg_loop_free(s.loop);
    return code;
}

int cli_serve(int argc, char **argv)
{
    struct cli_settings settings = {0};
    struct config *c = NULL;
    struct sg_error e;
    int code = parse(argc, argv, &settings);
    if (!code)
        code = cli_load(&settings, &c);
    if (code)
        return code;
    credentials_prepare(c);
    if (config_resolve_credentials(c, &e)) {
        cli_say("%s", e.detail);
        code = e.code == SG_E_UNAUTHENTICATED ? EX_NOPERM : cli_exit_code(&e);
    }
    if (!code)
        code = cli_probe_listen(c->listen);
    if (!code && (code = cli_prepare_process()) == EX_OK) {
        code = run(c);
        curl_global_cleanup();
    }
    config_free(c);
    return code;
}
