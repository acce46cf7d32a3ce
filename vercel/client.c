#include "vercel/auth.h"
#include "vercel/call.h"
#include "vercel/impl.h"
#include "vercel/wsock.h"

#include "base/buf.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    DEFAULT_CONNECT_MS = 5000,
    DEFAULT_TIMEOUT_MS = 30000,
    DEFAULT_RETRIES = 2,
    DEFAULT_BUDGET_MS = 10000
};

static enum sg_code bad(struct sg_error *e, const char *pointer, const char *why)
{
    return sg_fail_field(e, SG_E_INVALID_FIELD, pointer, "%s", why);
}

static bool url_part(CURLU *u, CURLUPart what)
{
    char *s = NULL;
    bool there = curl_url_get(u, what, &s, 0) == CURLUE_OK && s && *s;
    curl_free(s);
    return there;
}

static bool scheme_fits(CURLU *u)
{
    char *s = NULL;
    bool ok =
        curl_url_get(u, CURLUPART_SCHEME, &s, 0) == CURLUE_OK && (!strcmp(s, "http") || !strcmp(s, "https"));
    curl_free(s);
    return ok;
}

/* The base URL names a place, nothing else. */
static enum sg_code check_url(const char *url, const char *pointer, bool plain, struct sg_error *e)
{
    CURLU *u = curl_url();
    if (!u)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "No memory for the upstream client.");
    enum sg_code code = SG_OK;
    if (strlen(url) > VERCEL_URL_MAX / 4 || curl_url_set(u, CURLUPART_URL, url, 0) != CURLUE_OK ||
        !scheme_fits(u) || !url_part(u, CURLUPART_HOST))
        code = bad(e, pointer, "Not an http:// or https:// URL.");
    else if (plain && (url_part(u, CURLUPART_QUERY) || url_part(u, CURLUPART_FRAGMENT) ||
                       url_part(u, CURLUPART_USER) || url_part(u, CURLUPART_PASSWORD)))
        code = bad(e, pointer, "The URL must have no query, fragment, user or password.");
    curl_url_cleanup(u);
    return code;
}

static enum sg_code check_config(const struct vercel_config *config, struct sg_error *e)
{
    if (!config->base_url || !*config->base_url)
        return bad(e, "/base_url", "The upstream needs a base URL.");
    enum sg_code code = check_url(config->base_url, "/base_url", true, e);
    if (code == SG_OK && config->proxy && *config->proxy)
        code = check_url(config->proxy, "/proxy", false, e);
    if (code != SG_OK)
        return code;
    if (config->ca_bundle && *config->ca_bundle && access(config->ca_bundle, R_OK) != 0)
        return bad(e, "/ca_bundle", "The CA file cannot be read.");
    if (!config->token || sg_secret_len(config->token) == 0)
        return bad(e, "/token", "The upstream needs a token.");
    const char *t = sg_secret_bytes(config->token);
    for (size_t i = 0; i < sg_secret_len(config->token); i++)
        if (t[i] <= ' ' || t[i] > '~')
            return bad(e, "/token", "The token holds characters that no token has (a line end?).");
    return SG_OK;
}

static bool set_strings(struct vercel_client *c, const struct vercel_config *config)
{
    c->base_url = strdup(config->base_url);
    if (!c->base_url)
        return false;
    for (size_t n = strlen(c->base_url); n && c->base_url[n - 1] == '/'; n--)
        c->base_url[n - 1] = '\0';
    if (config->project_id && *config->project_id && !(c->project_id = strdup(config->project_id)))
        return false;
    if (config->proxy && *config->proxy && !(c->proxy = strdup(config->proxy)))
        return false;
    if (config->ca_bundle && *config->ca_bundle && !(c->ca_bundle = strdup(config->ca_bundle)))
        return false;
    if (!config->team_id || !*config->team_id)
        return true;
    struct sg_buf q;
    sg_buf_init(&q, 1024);
    if (sg_buf_adds(&q, "teamId=") && sg_buf_add_urlenc(&q, config->team_id))
        c->team_query = sg_buf_take(&q, NULL);
    sg_buf_free(&q);
    return c->team_query != NULL;
}

static void client_free(struct vercel_client *c)
{
    wsock_pool_free(c->wsocks);
    vt_free(c->transport);
    vercel_auth_unref(c->auth);
    sg_timer_free(c->line_timer);
    free(c->base_url);
    free(c->team_query);
    free(c->project_id);
    free(c->proxy);
    free(c->ca_bundle);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

enum sg_code vercel_client_new(struct sg_loop *loop, const struct vercel_config *config,
                               struct vercel_client **out, struct sg_error *e)
{
    struct sg_secret *token = config->token;
    struct vercel_client *c = NULL;
    enum sg_code code = check_config(config, e);
    if (code != SG_OK)
        goto out;
    code = SG_E_OUT_OF_MEMORY;
    c = calloc(1, sizeof *c);
    if (!c)
        goto out;
    c->loop = loop;
    c->timeout_ms = config->timeout_ms > 0 ? config->timeout_ms : DEFAULT_TIMEOUT_MS;
    c->create_timeout_ms = config->create_timeout_ms > 0 ? config->create_timeout_ms : VERCEL_LONG_WAIT_MS;
    c->retries = config->retries >= 0 ? config->retries : DEFAULT_RETRIES;
    c->retry_budget_ms = config->retry_budget_ms > 0 ? config->retry_budget_ms : DEFAULT_BUDGET_MS;
    TAILQ_INIT(&c->calls);
    TAILQ_INIT(&c->waits);
    TAILQ_INIT(&c->terminals);
    TAILQ_INIT(&c->parked);
    for (int i = 0; i < QUOTA_KINDS; i++)
        TAILQ_INIT(&c->lines[i]);
    const struct quota_limits limits =
        quota_plan(config->plan ? config->plan : "", config->plan_percent ? config->plan_percent : 100);
    quota_init(&c->quota, &limits, sg_mono_ms());
    breaker_init(&c->breaker, config->breaker_failures);
    c->retry_seen_ms = sg_mono_ms();
    c->retry_tokens = INT64_MAX / 2; /* all there can be */
    call_retry_earn(c);
    pthread_mutex_init(&c->lock, NULL);
    if (!set_strings(c, config))
        goto out;
    const struct vt_config vc = {
        .proxy = c->proxy,
        .ca_bundle = c->ca_bundle,
        .connect_timeout_ms =
            config->connect_timeout_ms > 0 ? (long)config->connect_timeout_ms : DEFAULT_CONNECT_MS,
    };
    c->auth = vercel_auth_new(token, config->token_expires_ms);
    c->line_timer = sg_timer_new(loop, call_on_line_timer, c);
    if (!c->auth || !c->line_timer || !(c->transport = vt_new(loop, &vc)))
        goto out;
    code = SG_OK;
out:
    if (code == SG_E_OUT_OF_MEMORY) {
        (void)sg_fail(e, code, SG_NOT_SENT, "No memory for the upstream client.");
        if (c)
            client_free(c);
        c = NULL;
    }
    sg_secret_free(token);
    *out = c;
    return code;
}

int64_t vercel_create_timeout_ms(const struct vercel_client *c)
{
    return c->create_timeout_ms;
}

const char *vercel_project_id(const struct vercel_client *c)
{
    return c->project_id;
}

uint64_t vercel_attempts(const struct vercel_client *c)
{
    return atomic_load(&c->attempts);
}

void vercel_client_free(struct vercel_client *c)
{
    if (!c)
        return;
    vercel_client_hurry(c);
    client_free(c);
}

void vercel_client_hurry(struct vercel_client *c)
{
    c->closing = true;
    vercel_terminals_end(c);
    vercel_call_end_all(c);
    vercel_waits_end(c);
}
