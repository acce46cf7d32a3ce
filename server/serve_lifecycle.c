#include "server/serve_lifecycle.h"

#include "control/sweep.h"
#include "control/jobs.h"
#include "control/keepalive.h"
#include "control/leases.h"
#include "control/templates.h"
#include "relay/audience.h"
#include "routes/ended.h"

#include <string.h>

enum { HURRY_MS = 5000 }; /* recurring work under way may take so long when the gateway stops */

/* ---- control → the other rooms ---- */

static void on_destroyed(void *arg, const char *name, const char *session_id)
{
    ended_destroyed(arg, name, session_id);
}

static void on_ending(void *arg, const char *session_id, int64_t deadline_ms, const char *reason)
{
    const struct gateway *gw = arg;
    audience_warn(gw->relay, session_id, deadline_ms, reason);
}

/* What its processes said is saved before the new deadline, not before the old one. */
static void on_extended(void *arg, const char *name, const struct control_session *s)
{
    const struct gateway *gw = arg;
    const struct relay_session session = {.session_id = s->session_id, .arch = s->arch, .cwd = s->cwd};
    tails_session(gw->tails, name, &session, s->deadline_ms);
}

/* ---- the other rooms → control ---- */

static void on_entered(void *arg, const char *sandbox, const char *session_id)
{
    const struct gateway *gw = arg;
    keepalive_attend(gw->control, sandbox, session_id);
}

static void on_left(void *arg, const char *session_id)
{
    const struct gateway *gw = arg;
    keepalive_leave(gw->control, session_id);
}

bool lifecycle_start(struct gateway *gw, const struct config *c)
{
    const struct audience_watch watch = {on_entered, on_left, gw};
    const struct keepalive_config keep = {
        .attached = strcmp(c->keep_alive, "attached") == 0,
        .lead_ms = c->keep_alive_lead_ms,
        .step_ms = c->keep_alive_step_ms,
        .max_ms = c->keep_alive_max_ms,
        .ending = on_ending,
        .extended = on_extended,
        .arg = gw,
    };
    relay_set_audience_watch(gw->relay, &watch);
    return control_sweep_start(gw->control, c->sweep_ms) && cleanups_start(gw->control, on_destroyed, gw) &&
           leases_start(gw->control, c->lease_grace_ms) && keepalive_start(gw->control, &keep) &&
           templates_start(gw->control, c->prepare_silence_ms);
}

/* What is under way is remembered in the store: the next gateway goes on with it. */
static void hurry(void *arg)
{
    const struct gateway *gw = arg;
    vercel_client_hurry(gw->vercel);
}

void lifecycle_stop(struct gateway *gw)
{
    if (!gw->control)
        return;
    jobs_stop_within(control_jobs(gw->control), HURRY_MS, hurry, gw);
    templates_stop(gw->control);
}

void lifecycle_free(struct gateway *gw)
{
    if (!gw->control)
        return;
    templates_free(gw->control);
    keepalive_free(gw->control);
    leases_free(gw->control);
    cleanups_free(gw->control);
}
