#include "control/cleanups.h"

#include "base/log.h"
#include "control/control.h"
#include "control/settings.h"
#include "control/tags.h"
#include "store/locks.h"
#include "store/store.h"
#include "vercel/snapshots.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    EVERY_MS = 5000,
    CLAIM_MS = 60 * 1000,
    AT_ONCE = 4, /* leaves threads for the other jobs */
    PAUSE_FIRST_MS = 2000,
    PAUSE_MAX_MS = 10 * 60 * 1000,
    PAUSE_LOST_MAX_MS = 60 * 1000, /* while an answer may be on its way */
    DOUBLINGS_MAX = 9,
};

struct task { /* one that is being done in this gateway */
    struct task *next;
    struct cleanups *all;
    struct store_cleanup row;
    int64_t now_ms; /* the database's, when it was claimed */
};

struct cleanups {
    struct control *c;
    control_destroyed_fn *destroyed;
    void *arg;
    char owner[STORE_OWNER_TEXT];
    struct job *job;
    pthread_mutex_t lock; /* guards what follows; not held over calls */
    struct task *tasks;
    unsigned running;
};

/* ---- the store's side ---- */

struct call {
    struct control *c;
    const char *owner;
    struct store_cleanup *row;
    int64_t after_ms, lost_ms, now_ms;
    bool yes;
};

static enum sg_code put_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct call *k = arg;
    return store_cleanup_put(db, k->c->upstream, k->row, k->after_ms, k->lost_ms, e);
}

static enum sg_code due_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    return store_cleanup_due(db, k->c->upstream, &k->yes, e);
}

static enum sg_code claim_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    return store_cleanup_claim(db, k->c->upstream, k->owner, CLAIM_MS, k->row, &k->yes, &k->now_ms, e);
}

static enum sg_code claim_this_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    enum sg_code rc = store_now(db, &k->now_ms, e);
    return rc ? rc : store_cleanup_claim_this(db, k->c->upstream, k->owner, CLAIM_MS, k->row, &k->yes, e);
}

static enum sg_code renew_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    return store_cleanup_renew(db, k->c->upstream, k->owner, CLAIM_MS, k->row, &k->yes, e);
}

static enum sg_code drop_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct call *k = arg;
    return store_cleanup_drop(db, k->c->upstream, k->owner, k->row, e);
}

static enum sg_code keep_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    return store_cleanup_keep(db, k->c->upstream, k->row, &k->yes, e);
}

static enum sg_code later_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct call *k = arg;
    return store_cleanup_later(db, k->c->upstream, k->owner, k->row, k->after_ms, e);
}

static enum sg_code in_store(struct control *c, enum store_kind kind, store_fn *fn, struct call *k,
                             struct sg_error *e)
{
    k->c = c;
    if (!c->store)
        return sg_fail(e, SG_E_STORE_UNAVAILABLE, SG_NOT_SENT, "there is no store");
    return store_call(c->store, kind, fn, k, e);
}

/* ---- remembering ---- */

static bool fill(struct store_cleanup *row, enum store_cleanup_kind kind, const char *target,
                 const char *alloc, const char *why)
{
    *row = (struct store_cleanup){.kind = kind};
    target = target ? target : "";
    alloc = alloc ? alloc : "";
    (void)snprintf(row->why, sizeof row->why, "%s", why);
    sg_text_mend(row->why);
    return snprintf(row->target, sizeof row->target, "%s", target) < (int)sizeof row->target &&
           snprintf(row->alloc, sizeof row->alloc, "%s", alloc) < (int)sizeof row->alloc;
}

static enum sg_code put(struct control *c, enum store_cleanup_kind kind, const char *target,
                        const char *alloc, int64_t after_ms, int64_t lost_ms, const char *why,
                        struct sg_error *e)
{
    struct store_cleanup row;
    if (!fill(&row, kind, target, alloc, why) || (kind == CLEANUP_SANDBOX ? !*row.alloc : !*row.target))
        return sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "not to be told from others: what is to be cleaned up");
    struct call k = {.row = &row, .after_ms = after_ms, .lost_ms = lost_ms};
    return in_store(c, STORE_DURABLE, put_fn, &k, e);
}

enum sg_code cleanup_sandbox(struct control *c, const char *name, const char *alloc, const char *why,
                             struct sg_error *e)
{
    enum sg_code rc = put(c, CLEANUP_SANDBOX, name, alloc, 0, CLEANUP_LOST_MS, why, e);
    sg_log(rc ? SG_LOG_ERROR : SG_LOG_WARN, rc ? "clean-up not remembered" : "clean-up remembered", "sandbox",
           "s", name ? name : "", "why", "s", why, NULL);
    if (!rc)
        cleanups_kick(c);
    return rc;
}

enum sg_code cleanup_snapshot(struct control *c, const char *snapshot_id, const char *why, struct sg_error *e)
{
    enum sg_code rc = put(c, CLEANUP_SNAPSHOT, snapshot_id, NULL, 0, 0, why, e);
    sg_log(rc ? SG_LOG_ERROR : SG_LOG_INFO, rc ? "clean-up not remembered" : "clean-up remembered",
           "snapshot", "s", snapshot_id, "why", "s", why, NULL);
    if (!rc)
        cleanups_kick(c);
    return rc;
}

enum sg_code cleanup_intend(struct control *c, const char *name, const char *alloc, int64_t after_ms,
                            const char *why, struct sg_error *e)
{
    return put(c, CLEANUP_SANDBOX, name, alloc, after_ms, after_ms + CLEANUP_LOST_MS, why, e);
}

enum sg_code cleanup_forget(struct control *c, const char *name, const char *alloc, struct sg_error *e)
{
    struct store_cleanup row;
    if (!fill(&row, CLEANUP_SANDBOX, name, alloc, ""))
        return SG_OK; /* nothing of that kind was remembered */
    struct call k = {.row = &row};
    return in_store(c, STORE_DURABLE, drop_fn, &k, e);
}

enum sg_code cleanup_keep(struct control *c, const char *name, const char *alloc, struct sg_error *e)
{
    struct store_cleanup row;
    if (!fill(&row, CLEANUP_SANDBOX, name, alloc, ""))
        return SG_OK; /* nothing of that kind was remembered */
    struct call k = {.row = &row};
    enum sg_code rc = in_store(c, STORE_DURABLE, keep_fn, &k, e);
    if (rc || !k.yes)
        return rc;
    return sg_fail(e, SG_E_SANDBOX_TRANSITION, SG_STARTED,
                   "its creation took so long that it counts as left behind, and is taken away");
}

/* ---- one try ---- */

/* The name of the sandbox with this tag; "" where there is none. */
static enum sg_code find_name(struct control *c, const char *alloc, char name[CLEANUP_TARGET_TEXT],
                              struct sg_error *e)
{
    struct vercel_sandbox s;
    name[0] = '\0';
    enum sg_code rc = control_find_alloc(c, alloc, &s, e);
    if (rc)
        return rc == SG_E_SANDBOX_NOT_FOUND ? SG_OK : rc;
    (void)snprintf(name, CLEANUP_TARGET_TEXT, "%s", s.name);
    vercel_sandbox_clear(&s);
    return SG_OK;
}

static enum sg_code destroy(struct control *c, const struct store_cleanup *row, bool *found,
                            struct sg_error *e)
{
    char name[CLEANUP_TARGET_TEXT];
    struct control_destroy d = {.name = row->target, .alloc = row->alloc};
    if (!*row->target) {
        enum sg_code rc = find_name(c, row->alloc, name, e);
        if (rc || !*name)
            return rc;
        d.name = name;
    }
    enum sg_code rc = control_destroy_if(c, &d, e);
    *found = d.found;
    if (!rc && !d.found) /* of one that never came to be nobody else forgets it */
        settings_forget(c, row->alloc);
    if (!rc && d.found && c->cleanups && c->cleanups->destroyed)
        c->cleanups->destroyed(c->cleanups->arg, d.name, d.session_id);
    return rc;
}

static int64_t pause_of(const struct store_cleanup *row, int64_t max, int64_t asked_ms)
{
    int64_t n = row->tries < DOUBLINGS_MAX ? row->tries : DOUBLINGS_MAX;
    int64_t ms = (int64_t)PAUSE_FIRST_MS << n;
    ms = ms < max ? ms : max;
    return asked_ms > ms ? asked_ms : ms;
}

static void settle(struct control *c, store_fn *fn, struct call *k)
{
    struct sg_error e;
    if (in_store(c, STORE_WRITE, fn, k, &e)) /* the claim runs out, then it is tried again */
        sg_log(SG_LOG_WARN, "clean-up not noted", "target", "s", k->row->target, "error", "e", &e, NULL);
}

/* Of a claimed row, at the database's time now_ms.  True: it is gone for certain. */
static bool try_it(struct control *c, const char *owner, struct store_cleanup *row, int64_t now_ms,
                   struct sg_error *e)
{
    struct call k = {.row = row, .owner = owner};
    const char *what = row->kind == CLEANUP_SNAPSHOT ? "snapshot" : "sandbox";
    bool found = true;
    enum sg_code rc = row->kind == CLEANUP_SNAPSHOT ? control_snapshot_delete(c, row->target, e)
                                                    : destroy(c, row, &found, e);
    bool in_use = rc == SG_E_SNAPSHOT_IN_USE && row->kind == CLEANUP_SNAPSHOT;
    if (in_use && now_ms < row->made_at_ms + CLEANUP_LOST_MS) { /* by a builder that goes, too, perhaps */
        k.after_ms = pause_of(row, PAUSE_LOST_MAX_MS, 0);
        settle(c, later_fn, &k);
        return false;
    }
    if (in_use) {
        sg_log(SG_LOG_INFO, "clean-up not needed", what, "s", row->target, "why", "s", e->detail, NULL);
        settle(c, drop_fn, &k);
        return true;
    }
    if (rc) {
        k.after_ms = pause_of(row, PAUSE_MAX_MS, e->retry_after_ms);
        sg_log(SG_LOG_WARN, "clean-up failed", what, "s", row->target, "why", "s", row->why, "error", "e", e,
               "again_ms", "i", k.after_ms, NULL);
        settle(c, later_fn, &k);
        return false;
    }
    if (!found && now_ms < row->lost_until_ms) {
        k.after_ms = pause_of(row, PAUSE_LOST_MAX_MS, 0);
        settle(c, later_fn, &k);
        return false;
    }
    sg_log(SG_LOG_INFO, found ? "cleaned up" : "nothing left to clean up", what, "s", row->target, "why", "s",
           row->why, NULL);
    settle(c, drop_fn, &k);
    return true;
}

void cleanup_try(struct control *c, const struct store_cleanup *which, bool *gone, struct sg_error *e)
{
    char owner[STORE_OWNER_TEXT]; /* not the job's: one holder for one try */
    struct store_cleanup row = *which;
    struct call k = {.row = &row, .owner = owner};
    *gone = false;
    if (!store_owner(owner)) {
        (void)sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "no randomness");
        return;
    }
    if (in_store(c, STORE_WRITE, claim_this_fn, &k, e))
        return;
    if (!k.yes) {
        (void)sg_fail(e, SG_E_SANDBOX_TRANSITION, SG_STARTED, "the sandbox is being destroyed");
        return;
    }
    sg_error_clear(e);
    *gone = try_it(c, owner, &row, k.now_ms, e);
}

/* ---- the job ---- */

static void run_task(void *arg)
{
    struct task *t = arg;
    struct cleanups *all = t->all;
    struct sg_error e;
    (void)try_it(all->c, all->owner, &t->row, t->now_ms, &e);
    pthread_mutex_lock(&all->lock);
    struct task **p = &all->tasks;
    while (*p != t)
        p = &(*p)->next;
    *p = t->next;
    all->running--;
    pthread_mutex_unlock(&all->lock);
    free(t);
    job_kick(all->job); /* there may be room for another */
}

/* What is being done stays ours.  A claim that was lost meanwhile does no harm: the tag is compared under the name's
 * lock. */
static void hold_claims(struct cleanups *all)
{
    struct store_cleanup rows[AT_ONCE];
    unsigned n = 0;
    pthread_mutex_lock(&all->lock);
    for (const struct task *t = all->tasks; t && n < AT_ONCE; t = t->next)
        rows[n++] = t->row;
    pthread_mutex_unlock(&all->lock);
    for (unsigned i = 0; i < n; i++) {
        struct sg_error e;
        struct call k = {.row = &rows[i], .owner = all->owner};
        (void)in_store(all->c, STORE_WRITE, renew_fn, &k, &e);
    }
}

/* False: nothing is due, or it cannot be begun. */
static bool begin_one(struct cleanups *all)
{
    struct sg_error e;
    struct call k = {.owner = all->owner};
    if (in_store(all->c, STORE_READ, due_fn, &k, &e) || !k.yes)
        return false; /* a store that is away says so elsewhere */
    struct task *t = calloc(1, sizeof *t);
    if (!t)
        return false;
    t->all = all;
    k.row = &t->row;
    if (in_store(all->c, STORE_WRITE, claim_fn, &k, &e) || !k.yes) {
        free(t);
        return false;
    }
    t->now_ms = k.now_ms;
    pthread_mutex_lock(&all->lock);
    t->next = all->tasks;
    all->tasks = t;
    all->running++;
    pthread_mutex_unlock(&all->lock);
    if (jobs_once(all->c->jobs, run_task, t))
        return true;
    k.after_ms = PAUSE_FIRST_MS;
    settle(all->c, later_fn, &k);
    pthread_mutex_lock(&all->lock);
    all->tasks = t->next; /* only this thread puts something in front of it */
    all->running--;
    pthread_mutex_unlock(&all->lock);
    free(t);
    return false;
}

static void run_job(void *arg)
{
    struct cleanups *all = arg;
    hold_claims(all);
    for (;;) {
        pthread_mutex_lock(&all->lock);
        bool room = all->running < AT_ONCE;
        pthread_mutex_unlock(&all->lock);
        if (!room || jobs_stopping(all->c->jobs) || !begin_one(all))
            return;
    }
}

bool cleanups_start(struct control *c, control_destroyed_fn *destroyed, void *arg)
{
    struct cleanups *all = calloc(1, sizeof *all);
    if (!all)
        return false;
    *all = (struct cleanups){.c = c, .destroyed = destroyed, .arg = arg};
    pthread_mutex_init(&all->lock, NULL);
    c->cleanups = all;
    if (store_owner(all->owner))
        all->job = job_add(c->jobs, "clean-ups", EVERY_MS, run_job, all);
    return all->job != NULL;
}

void cleanups_free(struct control *c)
{
    if (!c->cleanups)
        return;
    pthread_mutex_destroy(&c->cleanups->lock);
    free(c->cleanups);
    c->cleanups = NULL;
}

void cleanups_kick(struct control *c)
{
    if (c->cleanups && c->cleanups->job && !jobs_stopping(c->jobs))
        job_kick(c->cleanups->job);
}
