#include "server/serve.h"

#include "base/log.h"
#include "control/jobs.h"
#include "control/sandboxes.h"
#include "guestlink/guestlink.h"
#include "relay/relay.h"
#include "relay/tails.h"
#include "routes/gateway.h"
#include "routes/idempotency.h"
#include "routes/late.h"
#include "routes/step_runner.h"
#include "server/cli.h"
#include "server/http.h"
#include "server/serve_credentials.h"
#include "server/serve_lifecycle.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS_SWEEP_MS = 60000 };

struct instance {
    const struct config *config;
    char upstream[INSTANCE_UPSTREAM_TEXT]; /* under which everything is stored */
    struct gateway gw;
    struct token_table *tokens;
    struct http_server *server;
    struct credentials *credentials; /* NULL: the token is fixed */
};

void instance_upstream(struct config *c, struct vercel_config *v)
{
    *v = (struct vercel_config){
        .base_url = c->url,
        .team_id = c->team_id,
        .project_id = c->project_id,
        .proxy = c->proxy,
        .ca_bundle = c->ca_bundle,
        .token = c->token,
        .token_expires_ms = c->token_expires_ms,
        .connect_timeout_ms = c->connect_timeout_ms,
        .timeout_ms = c->timeout_ms,
        .create_timeout_ms = c->create_timeout_ms,
        .retries = (int)c->retries,
        .retry_budget_ms = c->retry_budget_ms,
        .plan = c->plan,
        .plan_percent = c->plan_percent,
        .breaker_failures = c->breaker_failures,
    };
    c->token = NULL;
}

void instance_upstream_key(const struct vercel_config *v, char out[INSTANCE_UPSTREAM_TEXT])
{
    (void)snprintf(out, INSTANCE_UPSTREAM_TEXT, "%.128s/%.128s", v->team_id ? v->team_id : "",
                   v->project_id ? v->project_id : "");
}

/* ---- before a sandbox is stopped, what its processes said is saved ---- */

static void *save_before_stop(void *arg, const char *name, const struct control_session *s,
                              void (*done)(void *done_arg), void *done_arg)
{
    const struct relay_session session = {.session_id = s->session_id, .arch = s->arch, .cwd = s->cwd};
    return tails_before_end(arg, name, &session, done, done_arg);
}

static void stop_waiting(void *ticket)
{
    tails_cancel(ticket);
}

static struct tails *build_tails(struct instance *in)
{
    const struct config *c = in->config;
    const struct tails_config t = {
        .store = in->gw.store,
        .upstream = in->upstream,
        .keep_ms = c->output_keep_ms,
        .max_bytes = c->output_max_bytes,
        .before_ms = c->save_before_ms,
    };
    return tails_new(in->gw.relay, &t);
}

static bool build_rooms(struct instance *in, const struct vercel_config *v)
{
    struct gateway *gw = &in->gw;
    instance_upstream_key(v, in->upstream);
    gw->upstream = in->upstream;
    gw->guestlink = guestlink_new(gw->loop, gw->vercel);
    gw->relay = gw->guestlink ? relay_new(gw->loop, gw->guestlink) : NULL;
    const struct upload_limits uploads = {.part_bytes = (uint64_t)in->config->upload_part_bytes,
                                          .pool_bytes = (uint64_t)in->config->buffer_bytes};
    gw->uploads = gw->guestlink ? uploads_new(gw->loop, gw->guestlink, &uploads) : NULL;
    const struct relay_limits limits = {.keepalive_ms = in->config->keepalive_ms,
                                        .slow_reader_ms = in->config->slow_reader_ms,
                                        .quiet_ms = in->config->quiet_ms,
                                        .ring_total = in->config->ring_bytes};
    if (gw->relay)
        relay_set_limits(gw->relay, &limits);
    gw->tails = gw->relay ? build_tails(in) : NULL;
    const struct control_config control = {gw->loop, gw->vercel, gw->store, in->upstream};
    gw->control = control_new(&control);
    gw->lates = lates_new(gw->loop, in->config->keepalive_ms);
    const struct keys_config keys = {.loop = gw->loop,
                                     .store = gw->store,
                                     .upstream = in->upstream,
                                     .keep_ms = in->config->key_keep_ms,
                                     .silence_ms = in->config->key_silence_ms,
                                     .max_bytes = in->config->key_max_bytes};
    gw->keys = keys_new(&keys);
    if (!gw->tails || !gw->control || !gw->lates || !gw->uploads || !gw->keys)
        return false;
    if (!job_add(control_jobs(gw->control), "keys", KEYS_SWEEP_MS, keys_sweep, gw->keys))
        return false;
    const struct control_before_stop before = {save_before_stop, stop_waiting, gw->tails};
    control_set_before_stop(gw->control, &before);
    const struct step_runner steps = step_runner_of(gw);
    control_set_step_runner(gw->control, &steps);
    return lifecycle_start(gw, in->config);
}

static bool open_state(struct instance *in, int *exit_code)
{
    struct sg_error e;
    const struct config *c = in->config;
    const struct store_options o = {
        .path = c->state_file,
        .url = c->database_url ? sg_secret_bytes(c->database_url) : NULL,
        .loop = in->gw.loop,
        .busy_ms = c->busy_ms,
        .connections = c->connections,
    };
    if (store_open(&o, &in->gw.store, &e) == SG_OK)
        return true;
    in->gw.store = NULL;
    cli_say("[store] %s: %s", o.url ? "database_url" : "state_file", e.detail);
    *exit_code = e.code == SG_E_OUT_OF_MEMORY ? EX_SOFTWARE : EX_CONFIG;
    return false;
}

static bool listen_now(struct instance *in, int *exit_code)
{
    const struct config *c = in->config;
    const struct http_server_config cfg = {
        .listen = c->listen,
        .max_connections = (unsigned)c->max_connections,
        .max_websockets = (unsigned)c->max_websockets,
        .max_json_body = (size_t)c->max_json_body,
        .workers = (unsigned)c->workers,
        .idle_timeout_ms = (uint64_t)c->idle_timeout_ms,
        .ws_ping_ms = (uint64_t)c->ping_ms,
        .routes = routes,
        .routes_count = routes_count,
    };
    char err[HTTP_ERR] = "";
    in->server = http_server_new(in->gw.loop, &cfg, &in->gw, in->tokens, err);
    if (in->server)
        return true;
    cli_say("%s", err);
    *exit_code = EX_UNAVAILABLE;
    return false;
}

struct instance *instance_new(struct sg_loop *loop, const struct config *c, const struct vercel_config *v,
                              struct token_table *tokens, int *exit_code)
{
    struct sg_error e;
    struct instance *in = calloc(1, sizeof *in);
    if (!in) {
        sg_secret_free(v->token);
        token_table_free(tokens);
        cli_say("out of memory");
        *exit_code = EX_SOFTWARE;
        return NULL;
    }
    in->config = c;
    in->tokens = tokens;
    in->gw.loop = loop;
    in->gw.version = cli_version();
    in->gw.max_json_body = (size_t)c->max_json_body;
    in->gw.run_max_output = c->run_max_output;
    in->gw.retain_bytes = c->retain_bytes;
    in->gw.watch_grace_ms = c->watch_grace_ms;
    in->gw.watch_retain_bytes = c->watch_retain_bytes;
    in->gw.download_part_bytes = (uint64_t)c->download_part_bytes;
    in->gw.unpack_free_bytes = c->unpack_free_bytes;
    if (!open_state(in, exit_code)) {
        sg_secret_free(v->token);
        goto failed;
    }
    /* The server goes first: its hook of the loop's turn then runs before the client's, so that a call which a
     * handler makes is sent in the same turn.  No request is served before the loop runs. */
    if (!listen_now(in, exit_code)) {
        sg_secret_free(v->token);
        goto failed;
    }
    if (vercel_client_new(loop, v, &in->gw.vercel, &e)) {
        in->gw.vercel = NULL;
        cli_say("[upstream]: %s", e.detail);
        *exit_code = cli_exit_code(&e);
        goto failed;
    }
    if (!credentials_new(loop, c, in->gw.vercel, &in->credentials)) {
        cli_say("out of memory");
        *exit_code = EX_SOFTWARE;
        goto failed;
    }
    if (!build_rooms(in, v)) {
        cli_say("out of memory");
        *exit_code = EX_SOFTWARE;
        goto failed;
    }
    return in;
failed:
    instance_free(in);
    return NULL;
}

int instance_port(const struct instance *in)
{
    return http_server_port(in->server);
}

void instance_url(const struct instance *in, char out[300])
{
    const char *listen = in->config->listen;
    const char *colon = strrchr(listen, ':');
    int len = (int)(colon - listen);
    if (strncmp(listen, "0.0.0.0:", 8) == 0) {
        listen = "127.0.0.1";
        len = 9;
    } else if (strncmp(listen, "[::]:", 5) == 0) {
        listen = "[::1]";
        len = 5;
    }
    (void)snprintf(out, 300, "http://%.*s:%d", len, listen, instance_port(in));
}

void instance_drain(struct instance *in, void (*done)(void *arg), void *arg)
{
    sg_log(SG_LOG_INFO, "draining", "timeout_ms", "i", in->config->drain_timeout_ms, NULL);
    http_server_drain(in->server, (uint64_t)in->config->drain_timeout_ms, done, arg);
}

void instance_free(struct instance *in)
{
    if (!in)
        return;
    lifecycle_stop(&in->gw);
    if (in->server)
        http_server_free(in->server); /* first: its workers still use the rooms */
    tails_stop(in->gw.tails);
    if (in->gw.relay)
        relay_free(in->gw.relay);
    lifecycle_free(&in->gw);
    if (in->gw.control)
        control_free(in->gw.control);
    store_close(in->gw.store); /* tells the tails of what was still being saved */
    tails_free(in->gw.tails);
    uploads_free(in->gw.uploads); /* what they do unheard ends here */
    if (in->gw.guestlink)
        guestlink_free(in->gw.guestlink);
    lates_free(in->gw.lates); /* acts under way told their end */
    keys_free(in->gw.keys);
    credentials_free(in->credentials);
    if (in->gw.vercel)
        vercel_client_free(in->gw.vercel);
    token_table_free(in->tokens);
    free(in);
}
