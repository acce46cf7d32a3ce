/* sandgate check and check-config: which part is wrong, and what to do about it (B2). */
#include "server/cli.h"

#include "base/buf.h"
#include "base/loop.h"
#include "server/serve.h"
#include "server/serve_credentials.h"
#include "vercel/sandboxes.h"

#include <curl/curl.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static int parse(int argc, char **argv, struct cli_settings *s, bool *example)
{
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},
        {"set", required_argument, NULL, 's'},
        {"example", no_argument, NULL, 'x'},
        {0},
    };
    int o;
    optind = 1;
    opterr = 0;
    while ((o = getopt_long(argc, argv, ":", options, NULL)) != CLI_NOT_AN_OPTION) {
        if (o == 'c')
            s->path = optarg;
        else if (o == 'x' && example)
            *example = true;
        else if (o == 's' && cli_add_set(s, optarg))
            continue;
        else
            return cli_usage("%s: %.60s is not an option, or lacks its value; see --help", argv[0],
                             argv[optind - 1]);
    }
    if (optind < argc)
        return cli_usage("%s: unexpected argument \"%.60s\"", argv[0], argv[optind]);
    return EX_OK;
}

/* ---- can the URL be reached at all ---- */

static int explain_connect(CURLcode rc, const struct config *c, const char *text)
{
    switch ((int)rc) {
    case CURLE_OK:
        return EX_OK;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        cli_say("%s is not a usable URL; set [upstream] url, for example https://vercel.com/api", c->url);
        return EX_CONFIG;
    case CURLE_COULDNT_RESOLVE_PROXY:
        cli_say("the name of the proxy cannot be resolved; check [upstream] proxy and this machine's DNS");
        return EX_UNAVAILABLE;
    case CURLE_COULDNT_RESOLVE_HOST:
        cli_say("the host of %s cannot be resolved; check [upstream] url and this machine's DNS", c->url);
        return EX_UNAVAILABLE;
    case CURLE_COULDNT_CONNECT:
        cli_say("nothing answers at %s (%s); check [upstream] url%s and the firewall", c->url, text,
                c->proxy ? ", proxy" : "");
        return EX_UNAVAILABLE;
    case CURLE_OPERATION_TIMEDOUT:
        cli_say("no connection to %s within %lld ms; check the firewall, [upstream] proxy and "
                "connect_timeout_ms",
                c->url, (long long)c->connect_timeout_ms);
        return EX_UNAVAILABLE;
    case CURLE_SSL_CACERT_BADFILE:
        cli_say("the file in [upstream] ca_bundle cannot be used (%s)", text);
        return EX_CONFIG;
    case CURLE_PEER_FAILED_VERIFICATION:
        cli_say("the certificate of %s is not trusted (%s); where a proxy re-signs traffic, give its "
                "authority in [upstream] ca_bundle",
                c->url, text);
        return EX_UNAVAILABLE;
    case CURLE_SSL_CONNECT_ERROR:
        cli_say("no TLS with %s (%s); does the port speak https?", c->url, text);
        return EX_UNAVAILABLE;
    default:
        cli_say("no connection to %s (%s)", c->url, text);
        return EX_UNAVAILABLE;
    }
}

/* Connects, with TLS and through the proxy as the gateway would, and sends nothing. */
static int check_reachable(const struct config *c)
{
    CURL *h = curl_easy_init();
    char text[CURL_ERROR_SIZE] = "";
    if (!h) {
        cli_say("out of memory");
        return EX_SOFTWARE;
    }
    curl_easy_setopt(h, CURLOPT_URL, c->url);
    curl_easy_setopt(h, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_ERRORBUFFER, text);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, (long)c->connect_timeout_ms);
    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(h, CURLOPT_PROXY, c->proxy ? c->proxy : "");
    if (c->ca_bundle)
        curl_easy_setopt(h, CURLOPT_CAINFO, c->ca_bundle);
    CURLcode rc = curl_easy_perform(h);
    curl_easy_cleanup(h);
    return explain_connect(rc, c, text[0] ? text : curl_easy_strerror(rc));
}

/* ---- do the credentials work ---- */

struct asking {
    struct sg_loop *loop;
    struct vercel_client *client;
    enum sg_code code;
    struct sg_error e;
};

/* The client's blocking calls want a thread that is not the loop's. */
static void *ask(void *arg)
{
    struct asking *a = arg;
    const struct vercel_list_query q = {.limit = 1};
    struct vercel_page page;
    a->code = vercel_list(a->client, &q, &page, &a->e);
    vercel_page_clear(&page);
    sg_loop_stop(a->loop);
    return NULL;
}

static int explain_status(const struct sg_error *e, const struct config *c)
{
    bool foreign = (e->upstream_status == 403 || e->upstream_status == 404) && !e->upstream_code[0];
    if (foreign) { /* the API's refusals carry a code: this came from something else */
        cli_say("%s answers %d, but not as the Sandbox API; check [upstream] url, for example "
                "https://vercel.com/api, and any proxy",
                c->url, e->upstream_status);
        return EX_CONFIG;
    }
    switch (e->upstream_status) {
    case 401:
        cli_say(
            "the upstream refuses the token (401); it is wrong, revoked or expired: create a new one and set "
            "[upstream] token_file");
        return EX_NOPERM;
    case 402:
        cli_say("the plan of team %s does not include sandboxes, or a payment is due (402)", c->team_id);
        return EX_NOPERM;
    case 403:
        cli_say(
            "the upstream knows the token but refuses it for team %s (403); check [upstream] team_id and the "
            "token's scope",
            c->team_id);
        return EX_NOPERM;
    case 404:
        cli_say(
            "the upstream does not know project %s in team %s (404); check [upstream] project_id and team_id",
            c->project_id, c->team_id);
        return EX_CONFIG;
    case 429:
        cli_say("the upstream limits the rate of this token (429); try again later");
        return EX_TEMPFAIL;
    default:
        return EX_OK;
    }
}

static int explain(const struct sg_error *e, const struct config *c)
{
    int code = explain_status(e, c);
    if (code)
        return code;
    if (e->code == SG_E_UPSTREAM_BAD_RESPONSE) {
        cli_say("%s answers, but not as the Sandbox API (%s); check [upstream] url, for example "
                "https://vercel.com/api",
                c->url, e->detail);
        return EX_CONFIG;
    }
    if (e->upstream_status >= 500)
        cli_say("the upstream at %s has a fault of its own (%d); try again later", c->url,
                e->upstream_status);
    else
        cli_say("%s: %s", c->url, e->detail);
    return e->upstream_status >= 400 && e->upstream_status < 500 ? EX_CONFIG : EX_UNAVAILABLE;
}

static int check_credentials(struct config *c)
{
    struct asking a = {.loop = sg_loop_new()};
    struct vercel_config v;
    int code = EX_SOFTWARE;
    pthread_t thread;
    sg_error_clear(&a.e);
    instance_upstream(c, &v);
    if (!a.loop) {
        sg_secret_free(v.token);
        cli_say("the event loop cannot be made: out of memory or descriptors");
        return code;
    }
    if (vercel_client_new(a.loop, &v, &a.client, &a.e)) {
        a.client = NULL;
        cli_say("[upstream]: %s", a.e.detail);
        code = cli_exit_code(&a.e);
    } else if (pthread_create(&thread, NULL, ask, &a)) {
        cli_say("no thread can be made");
    } else {
        sg_loop_run(a.loop);
        (void)pthread_join(thread, NULL);
        code = a.code ? explain(&a.e, c) : EX_OK;
    }
    if (a.client)
        vercel_client_free(a.client);
    sg_loop_free(a.loop);
    return code;
}

int cli_check(int argc, char **argv)
{
    struct cli_settings settings = {0};
    struct config *c = NULL;
    struct sg_error e;
    int code = parse(argc, argv, &settings, NULL);
    if (!code)
        code = cli_load(&settings, &c);
    if (code)
        return code;
    credentials_prepare(c);
    if (config_resolve_credentials(c, &e)) {
        cli_say("%s", e.detail);
        code = e.code == SG_E_UNAUTHENTICATED ? EX_NOPERM : cli_exit_code(&e);
    }
    if (!code && (code = cli_prepare_process()) == EX_OK) {
        code = check_reachable(c);
        if (!code)
            code = check_credentials(c);
        curl_global_cleanup();
    }
    if (!code)
        (void)printf("ok: %s answers and accepts the credentials for project %s of team %s\n", c->url,
                     c->project_id, c->team_id);
    config_free(c);
    return code;
}

/* ---- check-config ---- */

static int print_example(void)
{
    struct sg_buf b;
    sg_buf_init(&b, CONFIG_TEXT_MAX);
    int code = EX_SOFTWARE;
    if (config_describe_example(&b))
        code = fputs(b.data, stdout) < 0 || fflush(stdout) ? EX_IOERR : EX_OK;
    sg_buf_free(&b);
    return code;
}

int cli_check_config(int argc, char **argv)
{
    struct cli_settings settings = {0};
    struct config *c = NULL;
    bool example = false;
    int code = parse(argc, argv, &settings, &example);
    if (!code && example)
        return print_example();
    if (!code)
        code = cli_load(&settings, &c);
    if (!code)
        (void)printf("configuration ok\n");
    config_free(c);
    return code;
}
