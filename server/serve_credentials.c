#include "server/serve_credentials.h"

#include "base/clock.h"
#include "base/log.h"
#include "server/serve_login.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LOOK_MS = 1000,            /* at files, and at the clock */
    AHEAD_MS = LOGIN_AHEAD_MS, /* a token that expires sooner is replaced */
    AGAIN_MS = 2000,           /* after a failure, not sooner; doubled each time */
    AGAIN_MAX_MS = 60 * 1000,
    SOON_AGAIN_MS = 15 * 1000, /* where even the newest expires soon: the command gives what it has */
};

struct credentials {
    struct sg_loop *loop;
    const struct config *config;
    struct vercel_client *client;
    struct sg_timer *timer;
    uv_work_t work;
    bool working;
    bool wanted; /* calls wait for it */
    int64_t expires_ms;
    struct sg_secret *current;       /* the last one that was fetched; NULL: that of the start */
    int64_t not_before_ms, pause_ms; /* monotonic: after failures */
    int64_t ahead_from_ms;           /* monotonic: nobody is asked ahead of need before */
    int stop[2];                     /* a pipe: its writing end is closed when the gateway stops */

    /* for the thread that works */
    bool must;    /* fetch it, whether it moved or not */
    bool refused; /* the upstream does not take `current` */
    uint64_t stamp;
    bool fetched;
    struct config_token token;
    enum sg_code code;
    struct sg_error error;
};

/* ---- on a thread ---- */

static void on_work(uv_work_t *w)
{
    struct credentials *cr = w->data;
    enum config_token_kind kind = config_token_source(cr->config);
    cr->code = SG_OK;
    if (kind == CONFIG_TOKEN_CLI && cr->must)
        cr->code = login_keep(cr->config, cr->refused ? cr->current : NULL, cr->stop[0], &cr->error);
    bool moved = kind != CONFIG_TOKEN_COMMAND && config_token_moved(cr->config, &cr->stamp);
    cr->fetched = moved || cr->must;
    if (cr->fetched && !cr->code)
        cr->code = config_fetch_token(cr->config, cr->stop[0], &cr->token, &cr->error);
}

/* ---- on the loop ---- */

static bool same(const char *fixed, const char *claimed)
{
    return !*claimed || !fixed || strcmp(fixed, claimed) == 0;
}

static bool known(const struct sg_secret *a, const struct sg_secret *b)
{
    return a && sg_secret_len(a) == sg_secret_len(b) &&
           memcmp(sg_secret_bytes(a), sg_secret_bytes(b), sg_secret_len(a)) == 0;
}

static enum sg_code take(struct credentials *cr, bool refused)
{
    const struct config *c = cr->config;
    if (cr->code)
        return cr->code;
    if (!same(c->team_id, cr->token.owner_id) || !same(c->project_id, cr->token.project_id))
        return sg_fail(&cr->error, SG_E_UNAUTHENTICATED, SG_NOT_SENT,
                       "the new upstream token belongs to another team or project; restart for that");
    if (refused && known(cr->current, cr->token.token))
        return sg_fail(&cr->error, SG_E_UNAUTHENTICATED, SG_NOT_SENT,
                       "the upstream refuses the gateway's token, and there is no other one yet");
    enum sg_code code =
        vercel_client_set_token(cr->client, cr->token.token, cr->token.expires_ms, &cr->error);
    if (code)
        return code;
    cr->expires_ms = cr->token.expires_ms;
    sg_secret_free(cr->current);
    cr->current = cr->token.token;
    cr->token.token = NULL;
    return SG_OK;
}

/* Who waits is told why there is none. */
static void give_up(struct credentials *cr)
{
    struct sg_error e = cr->error;
    e.code = SG_E_UPSTREAM_AUTH; /* a matter of ours, not of the caller's token */
    cr->wanted = false;
    vercel_client_no_token(cr->client, &e);
}

static void settle(struct credentials *cr)
{
    int64_t now = sg_mono_ms();
    bool wanted = cr->wanted;
    cr->wanted = false;
    if ((cr->code = take(cr, wanted)) == SG_OK) {
        sg_log(SG_LOG_INFO, "upstream_token_renewed", "expires_at_ms", "i", cr->expires_ms, NULL);
        cr->pause_ms = 0;
        cr->ahead_from_ms = now + SOON_AGAIN_MS;
        return;
    }
    cr->pause_ms = cr->pause_ms ? cr->pause_ms * 2 : AGAIN_MS;
    if (cr->pause_ms > AGAIN_MAX_MS)
        cr->pause_ms = AGAIN_MAX_MS;
    cr->not_before_ms = now + cr->pause_ms;
    sg_log(SG_LOG_WARN, "upstream_token_not_renewed", "why", "s", cr->error.detail, NULL);
    if (wanted)
        give_up(cr);
}

static void on_worked(uv_work_t *w, int status)
{
    struct credentials *cr = w->data;
    (void)status; /* never cancelled */
    cr->working = false;
    if (cr->fetched)
        settle(cr);
    sg_secret_free(cr->token.token);
    cr->token.token = NULL;
    sg_timer_start(cr->timer, cr->wanted ? 0 : LOOK_MS);
}

static void look(struct credentials *cr)
{
    if (cr->working)
        return;
    int64_t now = sg_mono_ms();
    bool soon = cr->expires_ms && cr->expires_ms - AHEAD_MS <= sg_wall_ms();
    bool command = config_token_source(cr->config) == CONFIG_TOKEN_COMMAND;
    bool asked = command || config_token_source(cr->config) == CONFIG_TOKEN_CLI;
    bool may = now >= cr->not_before_ms;
    cr->must = may && (cr->wanted || (soon && asked && now >= cr->ahead_from_ms));
    cr->refused = cr->wanted;
    if (cr->wanted && !may) /* it failed a moment ago */
        give_up(cr);
    bool idle = command && !cr->must;
    cr->working = !idle && !uv_queue_work(sg_loop_uv(cr->loop), &cr->work, on_work, on_worked);
    if (!cr->working)
        sg_timer_start(cr->timer, LOOK_MS);
}

static void on_timer(void *arg)
{
    look(arg);
}

static void on_wanted(void *arg)
{
    struct credentials *cr = arg;
    cr->wanted = true;
    if (!cr->working)
        sg_timer_start(cr->timer, 0); /* not inside the call that asks */
}

void credentials_prepare(const struct config *c)
{
    struct sg_error e;
    if (config_token_source(c) == CONFIG_TOKEN_CLI && !c->token && login_keep(c, NULL, -1, &e))
        sg_log(SG_LOG_WARN, "cli_login_not_renewed", "why", "s", e.detail,
               NULL); /* whoever reads it says what that means */
}

bool credentials_new(struct sg_loop *loop, const struct config *c, struct vercel_client *client,
                     struct credentials **out)
{
    *out = NULL;
    if (config_token_source(c) == CONFIG_TOKEN_FIXED)
        return true;
    struct credentials *cr = calloc(1, sizeof *cr);
    if (!cr)
        return false;
    *cr =
        (struct credentials){.loop = loop, .config = c, .client = client, .expires_ms = c->token_expires_ms};
    cr->work.data = cr;
    cr->timer = sg_timer_new(loop, on_timer, cr);
    (void)config_token_moved(c, &cr->stamp); /* the configuration has just read it */
    if (!cr->timer || pipe2(cr->stop, O_CLOEXEC)) {
        sg_timer_free(cr->timer);
        free(cr);
        return false;
    }
    struct config_login login = {0};
    if (config_token_source(c) == CONFIG_TOKEN_CLI && config_login_read(c, &login, NULL) == SG_OK) {
        cr->current = login.access; /* the client's, unless it was changed a moment ago */
        login.access = NULL;
    }
    config_login_clear(&login);
    const struct vercel_auth_source source = {on_wanted, cr};
    vercel_client_set_auth_source(client, &source);
    sg_timer_start(cr->timer, LOOK_MS);
    *out = cr;
    return true;
}

void credentials_free(struct credentials *cr)
{
    if (!cr)
        return;
    const struct vercel_auth_source none = {0};
    vercel_client_set_auth_source(cr->client, &none);
    sg_timer_stop(cr->timer);
    (void)close(cr->stop[1]); /* a command that is under way ends */
    while (cr->working)
        uv_run(sg_loop_uv(cr->loop), UV_RUN_ONCE);
    (void)close(cr->stop[0]);
    sg_timer_free(cr->timer);
    sg_secret_free(cr->current);
    free(cr);
}
