#include "control/control.h"
#include "control/create_spec.h"
#include "control/record.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAKEN_BUT_UNSEEN_MS = 5000 };

struct control *control_new(const struct control_config *config)
{
    struct control *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->loop = config->loop;
    c->vercel = config->vercel;
    c->store = config->store;
    c->upstream = strdup(config->upstream ? config->upstream : "");
    c->sessions = session_cache_new(CONTROL_SESSIONS_MAX);
    c->checked = session_cache_new(CONTROL_SESSIONS_MAX);
    c->jobs = jobs_new(config->loop);
    c->names = names_new();
    if (c->sessions && c->checked && c->upstream && c->jobs && c->names && names_start(c))
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
    if (s->session_id && cwd && s->session_status == VERCEL_RUNNING)
        session_cache_put(c->sessions, s->name, s->session_id, cwd, s->architecture, control_deadline(s));
    else
        session_cache_forget(c->sessions, s->name);
}

static enum sg_code no_memory(struct sg_error *e, enum sg_outcome outcome)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, outcome, "no memory for the answer");
}

/* ---- create ---- */

/* The record of a sandbox that existed already, saying which wishes had no effect. */
static enum sg_code existing(struct control *c, const struct create_spec *spec, json_t **record,
                             struct sg_error *e)
{
    struct vercel_sandbox s;
    enum sg_code rc = vercel_get(c->vercel, spec->name, false, &s, e);
    if (rc) {
        e->outcome = SG_NOT_STARTED; /* nothing was created, whatever became of this look */
        return rc;
    }
    control_observe(c, &s);
    json_t *r = control_record_now(c, &s);
    vercel_sandbox_clear(&s);
    int bad = json_object_set_new(r, "created", json_false());
    bad |= json_object_set_new(r, "ignored", create_spec_ignored(spec));
    if (bad) {
        json_decref(r);
        return no_memory(e, SG_NOT_STARTED);
    }
    *record = r;
    return SG_OK;
}

static enum sg_code made(struct control *c, struct vercel_sandbox *s, json_t **record, struct sg_error *e)
{
    control_observe(c, s);
    *record = control_record_now(c, s);
    vercel_sandbox_clear(s);
    if (!json_object_set_new(*record, "created", json_true()))
        return SG_OK;
    json_decref(*record);
    *record = NULL;
    return no_memory(e, SG_FINISHED);
}

/* Get or create.  A name may be taken and yet not to be seen: somebody is creating or destroying it at this moment.
 * Both end soon, and then it can be got or created. */
static enum sg_code get_or_create(struct control *c, const struct create_spec *spec, json_t **record,
                                  bool *created, struct sg_error *e)
{
    int64_t until = sg_mono_ms() + TAKEN_BUT_UNSEEN_MS;
    for (int pause_ms = 10;; pause_ms *= 2) {
        struct vercel_sandbox s;
        enum sg_code rc = vercel_create(c->vercel, spec->upstream, &s, e);
        if (!rc) {
            *created = true;
            return made(c, &s, record, e);
        }
        if (rc != SG_E_SANDBOX_EXISTS)
            return rc;
        rc = existing(c, spec, record, e);
        if (rc != SG_E_SANDBOX_NOT_FOUND || sg_mono_ms() + pause_ms > until)
            return rc;
        (void)poll(NULL, 0, pause_ms);
    }
}

enum sg_code control_create(struct control *c, const json_t *body, json_t **record, bool *created,
                            struct sg_error *e)
{
    struct create_spec spec;
    enum sg_code rc = create_spec_parse(body, NULL, &spec, e);
    if (rc)
        return rc;
    *created = false;
    struct vercel_sandbox s;
    if (spec.get_if_exists) {
        rc = get_or_create(c, &spec, record, created, e);
    } else {
        rc = vercel_create(c->vercel, spec.upstream, &s, e);
        if (!rc) {
            *created = true;
            rc = made(c, &s, record, e);
        }
    }
    create_spec_clear(&spec);
    return rc;
}
