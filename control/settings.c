#include "control/settings.h"

#include "control/session_start.h"
#include "control/tags.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- in memory ---- */

void settings_learn(struct control *c, const char *alloc, const char *dir)
{
    session_cache_put(c->dirs, alloc, "", dir ? dir : "", NULL, sg_wall_ms() + SETTINGS_KNOWN_MS);
}

bool settings_dir(struct control *c, const struct vercel_sandbox *s, char **dir)
{
    const char *alloc = control_tag_of(s, CONTROL_TAG_ALLOC);
    struct cached_session hit;
    *dir = NULL;
    if (!alloc || !c->store)
        return true; /* not one of ours: nothing is kept of it */
    if (!session_cache_get(c->dirs, alloc, &hit))
        return false;
    bool fresh = hit.deadline_ms > sg_wall_ms();
    if (fresh && *hit.cwd) {
        *dir = hit.cwd;
        hit.cwd = NULL;
    }
    cached_session_clear(&hit);
    return fresh;
}

/* ---- in the store, blocking ---- */

struct call {
    struct control *c;
    const char *name, *alloc;
    const struct store_sandbox *put;
    const struct store_sandbox_change *change;
    struct store_sandbox *out;
    bool found;
};

static enum sg_code in_store(struct control *c, enum store_kind kind, store_fn *fn, struct call *k,
                             struct sg_error *e)
{
    k->c = c;
    if (!c->store)
        return sg_fail(e, SG_E_STORE_UNAVAILABLE, SG_NOT_SENT, "there is no store");
    return store_call(c->store, kind, fn, k, e);
}

static enum sg_code read_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    store_sandbox_clear(k->out); /* this may run again */
    return store_sandbox_get(db, k->c->upstream, k->alloc, k->out, &k->found, e);
}

static enum sg_code put_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct call *k = arg;
    return store_sandbox_put(db, k->c->upstream, k->put, e);
}

static enum sg_code made_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct call *k = arg;
    return store_sandbox_made(db, k->c->upstream, k->name, k->alloc, e);
}

static enum sg_code forget_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct call *k = arg;
    return store_sandbox_forget(db, k->c->upstream, k->alloc, e);
}

static enum sg_code change_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct call *k = arg;
    return store_sandbox_change(db, k->c->upstream, k->name, k->alloc, k->change, e);
}

enum sg_code settings_read(struct control *c, const char *alloc, struct store_sandbox *out, bool *found,
                           struct sg_error *e)
{
    struct call k = {.alloc = alloc, .out = out};
    *out = (struct store_sandbox){0};
    enum sg_code rc = in_store(c, STORE_READ, read_fn, &k, e);
    *found = !rc && k.found;
    if (rc)
        store_sandbox_clear(out);
    else
        settings_learn(c, alloc, out->working_directory);
    return rc;
}

enum sg_code settings_put(struct control *c, const struct store_sandbox *row, struct sg_error *e)
{
    struct call k = {.put = row};
    enum sg_code rc = in_store(c, STORE_WRITE, put_fn, &k, e);
    if (!rc)
        settings_learn(c, row->alloc, row->working_directory);
    return rc;
}

void settings_made(struct control *c, const char *name, const char *alloc)
{
    struct call k = {.name = name, .alloc = alloc};
    struct sg_error e;
    if (c->store && in_store(c, STORE_WRITE, made_fn, &k, &e)) /* prune finds them */
        sg_log(SG_LOG_WARN, "rows of namesakes not forgotten", "sandbox", "s", name, "error", "e", &e, NULL);
}

void settings_forget(struct control *c, const char *alloc)
{
    struct call k = {.alloc = alloc};
    struct sg_error e;
    session_cache_forget(c->dirs, alloc);
    if (c->store && in_store(c, STORE_WRITE, forget_fn, &k, &e)) /* prune finds it */
        sg_log(SG_LOG_WARN, "row of a sandbox not forgotten", "error", "e", &e, NULL);
}

enum sg_code settings_change(struct control *c, const struct vercel_sandbox *s,
                             const struct store_sandbox_change *change, struct sg_error *e)
{
    const char *alloc = control_tag_of(s, CONTROL_TAG_ALLOC);
    if (!alloc)
        return sg_fail(e, SG_E_UNSUPPORTED, SG_NOT_SENT,
                       "this sandbox was not created through a gateway: nothing can be kept of it");
    struct call k = {.name = s->name, .alloc = alloc, .change = change};
    enum sg_code rc = in_store(c, STORE_DURABLE, change_fn, &k, e);
    session_cache_forget(c->dirs, alloc);
    session_cache_forget(c->sessions, s->name);
    return rc;
}

/* ---- asked from the loop ---- */

struct settings_ask {
    struct store_work work; /* first; lives until it was answered, whoever still waits */
    struct control *c;      /* NULL: nobody waits any more */
    settings_fn *done;
    void *arg;
    struct store_sandbox row;
    bool found;
    char upstream[512], alloc[CONTROL_ALLOC_TEXT], name[STORE_SANDBOX_TEXT];
    char *session_id, *cwd, *arch; /* of a session that runs; NULL: none does */
};

static enum sg_code ask_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct settings_ask *a = arg;
    store_sandbox_clear(&a->row);
    return store_sandbox_get(db, a->upstream, a->alloc, &a->row, &a->found, e);
}

static void ask_free(struct settings_ask *a)
{
    store_sandbox_clear(&a->row);
    free(a->session_id);
    free(a->cwd);
    free(a->arch);
    free(a);
}

static void on_asked(struct store_work *w)
{
    struct settings_ask *a = (struct settings_ask *)w;
    struct control *c = a->c;
    if (c && w->code) {
        sg_log(SG_LOG_WARN, "what is kept of a sandbox cannot be read", "sandbox", "s", a->name, "error", "e",
               &w->error, NULL);
    } else if (c) {
        settings_learn(c, a->alloc, a->row.working_directory);
        if (a->session_id && a->cwd)
            session_start_later(c, &a->row, a->session_id, a->cwd, a->arch);
    }
    if (c)
        a->done(a->arg, !w->code, w->code ? NULL : a->row.working_directory);
    ask_free(a);
}

static char *copy(const char *s, bool *lost)
{
    char *t = s ? strdup(s) : NULL;
    *lost |= s && !t;
    return t;
}

struct settings_ask *settings_ask(struct control *c, const struct vercel_sandbox *s, settings_fn *done,
                                  void *arg)
{
    const char *alloc = control_tag_of(s, CONTROL_TAG_ALLOC);
    struct settings_ask *a = alloc && c->store ? calloc(1, sizeof *a) : NULL;
    bool lost = !a || strlen(alloc) >= sizeof a->alloc || strlen(c->upstream) >= sizeof a->upstream;
    if (!lost) {
        (void)snprintf(a->alloc, sizeof a->alloc, "%s", alloc);
        (void)snprintf(a->upstream, sizeof a->upstream, "%s", c->upstream);
        (void)snprintf(a->name, sizeof a->name, "%s", s->name);
        a->c = c;
        a->done = done;
        a->arg = arg;
        if (s->session_status == VERCEL_RUNNING) {
            a->session_id = copy(s->session_id, &lost);
            a->cwd = copy(s->session_cwd ? s->session_cwd : s->cwd, &lost);
            a->arch = copy(s->architecture, &lost);
        }
        a->work = (struct store_work){
            .kind = STORE_READ, .fn = ask_fn, .arg = a, .done = on_asked, .bytes = sizeof *a};
    }
    if (!lost && store_submit(c->store, &a->work))
        return a;
    if (a)
        ask_free(a);
    return NULL;
}

void settings_ask_cancel(struct settings_ask *a)
{
    a->c = NULL;
}
