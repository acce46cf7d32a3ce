#include "control/capture.h"
#include "control/control.h"
#include "control/session_start.h"
#include "control/settings.h"

#include <stdlib.h>
#include <string.h>

struct control *control_new(const struct control_config *config)
{
    struct control *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->loop = config->loop;
    c->vercel = config->vercel;
    c->store = config->store;
    c->capture_named_ms = CAPTURE_NAMED_MS;
    c->upstream = strdup(config->upstream ? config->upstream : "");
    c->sessions = session_cache_new(CONTROL_SESSIONS_MAX);
    c->checked = session_cache_new(CONTROL_SESSIONS_MAX);
    c->dirs = session_cache_new(CONTROL_SESSIONS_MAX);
    c->jobs = jobs_new(config->loop);
    c->names = names_new();
    if (c->sessions && c->checked && c->dirs && c->upstream && c->jobs && c->names && names_start(c))
        return c;
    control_free(c);
    return NULL;
}

void control_stop_jobs(struct control *c)
{
    jobs_stop(c->jobs);
}

void control_free(struct control *c)
{
    if (!c)
        return;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_DRAINING, SG_OUTCOME_UNKNOWN, "the gateway is shutting down");
    while (c->ops)
        c->ops->end(c->ops, &e);
    control_lookups_end(c, &e);
    if (c->jobs)
        jobs_stop(c->jobs);
    jobs_free(c->jobs);
    free(c->sweep);
    names_free(c->names);
    session_cache_free(c->sessions);
    session_cache_free(c->checked);
    session_cache_free(c->dirs);
    free(c->upstream);
    free(c);
}

struct jobs *control_jobs(struct control *c)
{
    return c->jobs;
}

void control_set_step_runner(struct control *c, const struct step_runner *r)
{
    c->steps = *r;
}

void control_op_add(struct control *c, struct control_op *op)
{
    op->prev = NULL;
    op->next = c->ops;
    if (c->ops)
        c->ops->prev = op;
    c->ops = op;
}

void control_op_remove(struct control *c, struct control_op *op)
{
    *(op->prev ? &op->prev->next : &c->ops) = op->next;
    if (op->next)
        op->next->prev = op->prev;
}

void control_set_before_stop(struct control *c, const struct control_before_stop *b)
{
    c->before_stop = *b;
}

void control_observe(struct control *c, const struct vercel_sandbox *s)
{
    const char *cwd = s->session_cwd ? s->session_cwd : s->cwd;
    char *dir;
    struct cached_session hit = {0};
    bool known = settings_dir(c, s, &dir);
    if (!s->session_id || !cwd || s->session_status != VERCEL_RUNNING) {
        session_cache_forget(c->sessions, s->name);
        free(dir);
        return;
    }
    if (known)
        session_cache_put(c->sessions, s->name, s->session_id, dir ? dir : cwd, s->architecture,
                          control_deadline(s));
    else if (session_cache_get(c->sessions, s->name, &hit) && !strcmp(hit.session_id, s->session_id))
        session_cache_put(c->sessions, s->name, s->session_id, hit.cwd, s->architecture, control_deadline(s));
    else /* whoever looks it up asks the store where programs begin */
        session_cache_forget(c->sessions, s->name);
    cached_session_clear(&hit);
    free(dir);
    if (s->resumed)
        session_began(c, s);
}
