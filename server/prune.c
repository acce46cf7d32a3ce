/* sandgate prune: what the upstream and the store do not both know (B7). */
#include "server/cli.h"

#include "base/loop.h"
#include "control/prune.h"
#include "server/serve.h"
#include "store/store.h"

#include <curl/curl.h>
#include <getopt.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings {
    struct cli_settings config;
    bool apply, json;
    int64_t older_than_ms;
};

struct pruning {
    struct sg_loop *loop;
    struct store *store;
    struct vercel_client *client;
    struct control *control;
    struct prune_ask ask;
    json_t *report;
    enum sg_code code;
    struct sg_error e;
};

static bool minutes(const char *text, int64_t *ms)
{
    char *end;
    long n = strtol(text, &end, 10);
    bool ok = end != text && !*end && n >= 0 && n <= 525600;
    *ms = ok ? n * INT64_C(60000) : 0;
    return ok;
}

static int parse(int argc, char **argv, struct settings *s)
{
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},
        {"set", required_argument, NULL, 's'},
        {"apply", no_argument, NULL, 'a'},
        {"json", no_argument, NULL, 'j'},
        {"older-than", required_argument, NULL, 'o'},
        {0},
    };
    int o;
    optind = 1;
    opterr = 0;
    while ((o = getopt_long(argc, argv, ":", options, NULL)) != CLI_NOT_AN_OPTION) {
        bool ok = true;
        if (o == 'c')
            s->config.path = optarg;
        else if (o == 's')
            ok = cli_add_set(&s->config, optarg);
        else if (o == 'a')
            s->apply = true;
        else if (o == 'j')
            s->json = true;
        else if (o == 'o')
            ok = minutes(optarg, &s->older_than_ms);
        else
            ok = false;
        if (!ok)
            return cli_usage("prune: %.60s is not an option, or lacks a proper value; see --help",
                             argv[optind - 1]);
    }
    if (optind < argc)
        return cli_usage("prune: unexpected argument \"%.60s\"", argv[optind]);
    return EX_OK;
}

/* ---- the comparison ---- */

/* Blocking calls want a thread that is not the loop's. */
static void *compare(void *arg)
{
    struct pruning *p = arg;
    p->code = control_prune(p->control, &p->ask, &p->report, &p->e);
    sg_loop_stop(p->loop);
    return NULL;
}

static bool open_all(struct pruning *p, struct config *c, int *code)
{
    struct vercel_config v;
    char upstream[INSTANCE_UPSTREAM_TEXT];
    const struct store_options o = {.path = c->state_file,
                                    .url = c->database_url ? sg_secret_bytes(c->database_url) : NULL,
                                    .loop = p->loop,
                                    .busy_ms = c->busy_ms,
                                    .connections = c->connections};
    *code = EX_CONFIG;
    instance_upstream(c, &v);
    instance_upstream_key(&v, upstream);
    if (store_open(&o, &p->store, &p->e)) {
        p->store = NULL;
        sg_secret_free(v.token);
        cli_say("[store] %s: %s", o.url ? "database_url" : "state_file", p->e.detail);
        return false;
    }
    if (vercel_client_new(p->loop, &v, &p->client, &p->e)) {
        p->client = NULL;
        cli_say("[upstream]: %s", p->e.detail);
        return false;
    }
    const struct control_config control = {p->loop, p->client, p->store, upstream};
    p->control = control_new(&control);
    *code = EX_SOFTWARE;
    if (!p->control)
        cli_say("out of memory");
    return p->control != NULL;
}

static int run(struct pruning *p, struct config *c)
{
    pthread_t thread;
    int code;
    if (!open_all(p, c, &code))
        return code;
    if (pthread_create(&thread, NULL, compare, p)) {
        cli_say("no thread can be made");
        return EX_SOFTWARE;
    }
    sg_loop_run(p->loop);
    (void)pthread_join(thread, NULL);
    if (!p->code)
        return EX_OK;
    cli_say("%s", p->e.detail);
    return EX_UNAVAILABLE;
}

static int prune(struct pruning *p, struct config *c)
{
    p->loop = sg_loop_new();
    if (!p->loop) {
        cli_say("the event loop cannot be made: out of memory or descriptors");
        return EX_SOFTWARE;
    }
    int code = run(p, c);
    if (p->control) {
        control_stop_jobs(p->control);
        control_free(p->control);
    }
    store_close(p->store);
    if (p->client)
        vercel_client_free(p->client);
    sg_loop_free(p->loop);
    return code;
}

/* ---- telling ---- */

static const char *text(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static int print(const json_t *report, bool as_json)
{
    size_t i;
    json_t *item;
    const json_t *counts = json_object_get(report, "counts");
    if (as_json) {
        char *line = json_dumps(report, JSON_COMPACT);
        bool ok = line && printf("%s\n", line) >= 0;
        free(line);
        return ok && !fflush(stdout) ? EX_OK : EX_IOERR;
    }
    json_array_foreach(json_object_get(report, "sandboxes"), i, item)
    {
        (void)printf("sandbox %s: not in the store (%s, created %s)\n", text(item, "name"),
                     text(item, "status"), text(item, "created_at"));
    }
    json_array_foreach(json_object_get(report, "rows"), i, item)
    {
        (void)printf("%s of %s: there is no such sandbox\n", text(item, "kind"), text(item, "sandbox"));
    }
    if (!json_is_true(json_object_get(report, "complete")))
        (void)printf("and perhaps more: run it again after --apply\n");
    if (json_is_true(json_object_get(report, "dry_run")))
        (void)printf("%lld sandboxes, %lld rows; nothing was changed: --apply takes them away\n",
                     (long long)json_integer_value(json_object_get(counts, "sandboxes")),
                     (long long)json_integer_value(json_object_get(counts, "rows")));
    else
        (void)printf("%lld taken away, %lld not\n",
                     (long long)json_integer_value(json_object_get(counts, "removed")),
                     (long long)json_integer_value(json_object_get(counts, "failed")));
    return fflush(stdout) ? EX_IOERR : EX_OK;
}

int cli_prune(int argc, char **argv)
{
    struct settings s = {.older_than_ms = PRUNE_AGE_MS};
    struct config *c = NULL;
    struct pruning p = {0};
    int code = parse(argc, argv, &s);
    if (!code)
        code = cli_load(&s.config, &c);
    if (code)
        return code;
    p.ask = (struct prune_ask){s.apply, s.older_than_ms};
    if (config_resolve_credentials(c, &p.e)) {
        cli_say("%s", p.e.detail);
        code = p.e.code == SG_E_UNAUTHENTICATED ? EX_NOPERM : cli_exit_code(&p.e);
    }
    if (!code && (code = cli_prepare_process()) == EX_OK) {
        code = prune(&p, c);
        curl_global_cleanup();
    }
    if (!code)
        code = print(p.report, s.json);
    if (!code && s.apply &&
        json_integer_value(json_object_get(json_object_get(p.report, "counts"), "failed")))
        code = EX_TEMPFAIL;
    json_decref(p.report);
    config_free(c);
    return code;
}
