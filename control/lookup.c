/* Name → running session: from the cache, else one upstream call that all concurrent askers share. */
#include "control/control.h"
#include "control/record.h"
#include "control/settings.h"

#include <stdlib.h>
#include <string.h>

struct waiter {
    struct waiter *next;
    control_session_fn *done;
    void *arg;
};

struct lookup {
    struct lookup *next;
    struct control *c;
    char *name;
    struct vercel_call *call;
    struct settings_ask *ask; /* where its programs begin */
    struct cached_session found;
    struct waiter *waiters, **tail;
};

static void lookup_unlink(struct lookup *l)
{
    struct lookup **p = &l->c->lookups;
    while (*p != l)
        p = &(*p)->next;
    *p = l->next;
}

/* Answers everybody and frees; l is out of the list, so askers may start new lookups meanwhile. */
static void lookup_answer(struct lookup *l, const struct control_session *s, const struct sg_error *e)
{
    struct waiter *w = l->waiters;
    while (w) {
        struct waiter *next = w->next;
        w->done(w->arg, s, e);
        free(w);
        w = next;
    }
    cached_session_clear(&l->found);
    free(l->name);
    free(l);
}

static void lookup_finish(struct lookup *l, const struct control_session *s, const struct sg_error *e)
{
    lookup_unlink(l);
    lookup_answer(l, s, e);
}

/* Its session runs; `dir` is where its programs begin, NULL: where the upstream says. */
static void lookup_found(struct lookup *l, const char *dir)
{
    const struct control_session s = {.session_id = l->found.session_id,
                                      .cwd = dir ? dir : l->found.cwd,
                                      .arch = l->found.arch,
                                      .deadline_ms = l->found.deadline_ms};
    lookup_finish(l, &s, NULL);
}

static void on_settings(void *arg, bool known, const char *dir)
{
    struct lookup *l = arg;
    l->ask = NULL;
    if (known)
        session_cache_put(l->c->sessions, l->name, l->found.session_id, dir ? dir : l->found.cwd,
                          l->found.arch, l->found.deadline_ms);
    lookup_found(l, dir);
}

/* Of a running session; asks the store where it is not known by now where its programs begin. */
static void lookup_settle(struct lookup *l, const struct vercel_sandbox *s)
{
    char *dir;
    l->found = (struct cached_session){.session_id = strdup(s->session_id),
                                       .cwd = strdup(s->session_cwd ? s->session_cwd : s->cwd),
                                       .arch = s->architecture ? strdup(s->architecture) : NULL,
                                       .deadline_ms = control_deadline(s)};
    if (!l->found.session_id || !l->found.cwd || (s->architecture && !l->found.arch)) {
        struct sg_error e;
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory to look the sandbox up");
        lookup_finish(l, NULL, &e);
        return;
    }
    if (!settings_dir(l->c, s, &dir)) {
        l->ask = settings_ask(l->c, s, on_settings, l);
        if (l->ask)
            return;
    }
    lookup_found(l, dir);
    free(dir);
}

static void on_lookup(void *arg, struct vercel_sandbox *s, const struct sg_error *e)
{
    struct lookup *l = arg;
    l->call = NULL;
    if (e) {
        if (e->code == SG_E_SANDBOX_NOT_FOUND)
            session_cache_forget(l->c->sessions, l->name);
        lookup_finish(l, NULL, e);
        return;
    }
    control_observe(l->c, s);
    struct sg_error own;
    enum vercel_status status = control_status(s);
    if (status == VERCEL_RUNNING && s->session_id && (s->session_cwd || s->cwd)) {
        lookup_settle(l, s);
        return;
    }
    if (status == VERCEL_STOPPING || status == VERCEL_SNAPSHOTTING || status == VERCEL_PENDING)
        (void)sg_fail(&own, SG_E_SANDBOX_TRANSITION, SG_NOT_SENT, "the sandbox is %s",
                      vercel_status_name(status));
    else
        (void)sg_fail(&own, SG_E_SANDBOX_NOT_RUNNING, SG_NOT_SENT, "the sandbox is %s",
                      vercel_status_name(status));
    lookup_finish(l, NULL, &own);
}

static struct lookup *lookup_of(struct control *c, const char *name)
{
    struct lookup *l = c->lookups;
    while (l && strcmp(l->name, name) != 0)
        l = l->next;
    return l;
}

static struct lookup *lookup_new(struct control *c, const char *name)
{
    struct lookup *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->name = strdup(name);
    if (!l->name) {
        free(l);
        return NULL;
    }
    l->c = c;
    l->tail = &l->waiters;
    l->next = c->lookups;
    c->lookups = l;
    return l;
}

/* Joins the lookup of this name, or begins one. */
static void ask(struct control *c, const char *name, control_session_fn *done, void *arg)
{
    struct sg_error e;
    struct lookup *l = lookup_of(c, name);
    struct waiter *w = calloc(1, sizeof *w);
    bool begun = l != NULL;
    if (w && !l)
        l = lookup_new(c, name);
    if (!w || !l) {
        free(w);
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory to look the sandbox up");
        done(arg, NULL, &e);
        return;
    }
    w->done = done;
    w->arg = arg;
    *l->tail = w;
    l->tail = &w->next;
    if (begun)
        return;
    l->call = vercel_get_start(c->vercel, name, false, on_lookup, l, &e);
    if (!l->call)
        lookup_finish(l, NULL, &e);
}

void control_session(struct control *c, const char *name, control_session_fn *done, void *arg)
{
    struct sg_error e;
    if (control_name_for_lookup(name, &e)) {
        done(arg, NULL, &e);
        return;
    }
    struct cached_session hit;
    if (!session_cache_get(c->sessions, name, &hit)) {
        ask(c, name, done, arg);
        return;
    }
    struct control_session s = {hit.session_id, hit.cwd, hit.arch, hit.deadline_ms, .cached = true};
    done(arg, &s, NULL);
    cached_session_clear(&hit);
}

void control_session_forget(struct control *c, const char *name)
{
    session_cache_forget(c->sessions, name);
}

void control_lookups_end(struct control *c, const struct sg_error *e)
{
    while (c->lookups) {
        struct lookup *l = c->lookups;
        c->lookups = l->next;
        if (l->call)
            vercel_call_cancel(l->call);
        if (l->ask)
            settings_ask_cancel(l->ask);
        lookup_answer(l, NULL, e);
    }
}
