#include "control/keepalive.h"

#include "base/clock.h"
#include "base/log.h"
#include "control/control.h"
#include "control/extend_ahead.h"
#include "store/sandboxes.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUCKETS = 1024,
    KEPT_MAX = 20000, /* sessions that are remembered; of more, only attached ones count */
    AT_ONCE = 3,      /* leaves threads for the other jobs */
    TICK_MIN_MS = 100,
    TICK_MAX_MS = 2000,
    UNKNOWN_MS = 30 * 1000, /* a deadline that is not known is asked for so often */
};

struct kept { /* a session in use */
    struct kept *next;
    char *name;
    char session_id[CONTROL_SESSION_TEXT];
    unsigned attended;
    int64_t active_ms;   /* wall clock, of the last activity */
    int64_t deadline_ms; /* 0: not known */
    int64_t lead_ms;     /* so long before it something has to be done */
    int64_t next_ms;     /* nothing before this */
    int64_t warned_ms;   /* the deadline that was told */
    bool busy;           /* a task is at it */
    const char *final;   /* why it is not extended beyond the deadline; NULL: it may be */
};

struct keepalive {
    struct control *c;
    struct keepalive_config config;
    struct job *job;
    int64_t tick_ms;
    pthread_mutex_t lock; /* guards what follows; not held over calls */
    struct kept *buckets[BUCKETS];
    unsigned count, tasks;
};

/* ---- the wish ---- */

struct wanted {
    struct control *c;
    const char *name;
    struct keepalive_wish wish;
};

static enum sg_code wish_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct wanted *w = arg;
    struct store_sandbox s;
    bool found = false;
    enum sg_code rc = store_sandbox_named(db, w->c->upstream, w->name, &s, &found, e);
    if (rc || !found)
        return rc;
    bool known = s.keep_alive == KEEPALIVE_NEVER || s.keep_alive == KEEPALIVE_IN_USE;
    w->wish.mode = known ? (enum keepalive_mode)s.keep_alive : KEEPALIVE_UNSAID;
    w->wish.max_ms = s.keep_alive_max_ms;
    store_sandbox_clear(&s);
    return SG_OK;
}

/* What the sandbox was given; without a store the gateway's options. */
static struct keepalive_wish wish_of(struct control *c, const char *name)
{
    struct sg_error e;
    struct wanted w = {.c = c, .name = name};
    if (!c->store || store_call(c->store, STORE_READ, wish_fn, &w, &e))
        return (struct keepalive_wish){0};
    return w.wish;
}

/* ---- the sessions that are remembered; under the lock ---- */

static struct kept **slot_of(struct keepalive *k, const char *session_id)
{
    uint32_t h = 2166136261u;
    for (const char *s = session_id; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    struct kept **p = &k->buckets[h % BUCKETS];
    while (*p && strcmp((*p)->session_id, session_id) != 0)
        p = &(*p)->next;
    return p;
}

static void drop(struct keepalive *k, struct kept **slot)
{
    struct kept *t = *slot;
    *slot = t->next;
    k->count--;
    free(t->name);
    free(t);
}

static struct kept *find_or_add(struct keepalive *k, const char *name, const char *session_id)
{
    struct kept **slot = slot_of(k, session_id);
    if (*slot || k->count >= KEPT_MAX || strlen(session_id) >= CONTROL_SESSION_TEXT)
        return *slot;
    struct kept *t = calloc(1, sizeof *t);
    if (!t || !(t->name = strdup(name))) {
        free(t);
        return NULL;
    }
    (void)snprintf(t->session_id, sizeof t->session_id, "%s", session_id);
    t->lead_ms = k->config.lead_ms;
    *slot = t;
    k->count++;
    return t;
}

static void set_deadline(const struct keepalive *k, struct kept *t, int64_t deadline_ms, int64_t now)
{
    if (!deadline_ms || deadline_ms == t->deadline_ms)
        return;
    int64_t quarter = (deadline_ms - now) / 4;
    t->deadline_ms = deadline_ms;
    t->lead_ms = quarter < k->config.lead_ms ? quarter : k->config.lead_ms;
    if (t->lead_ms < TICK_MIN_MS)
        t->lead_ms = TICK_MIN_MS;
    t->final = NULL; /* somebody extended it nevertheless */
    t->next_ms = 0;
}

void keepalive_attend(struct control *c, const char *name, const char *session_id)
{
    struct keepalive *k = c->keepalive;
    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    struct kept *t = find_or_add(k, name, session_id);
    if (t) {
        t->attended++;
        t->next_ms = 0;
    }
    pthread_mutex_unlock(&k->lock);
}

void keepalive_leave(struct control *c, const char *session_id)
{
    struct keepalive *k = c->keepalive;
    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    struct kept *t = *slot_of(k, session_id);
    if (t && t->attended) {
        t->attended--;
        t->active_ms = sg_wall_ms();
    }
    pthread_mutex_unlock(&k->lock);
}

void keepalive_touch(struct control *c, const char *name, const char *session_id, int64_t deadline_ms)
{
    struct keepalive *k = c->keepalive;
    if (!k)
        return;
    int64_t now = sg_wall_ms();
    pthread_mutex_lock(&k->lock);
    struct kept *t = find_or_add(k, name, session_id);
    if (t) {
        t->active_ms = now;
        if (!t->attended && !t->final)
            t->next_ms = 0;
        set_deadline(k, t, deadline_ms > t->deadline_ms ? deadline_ms : 0, now);
    }
    pthread_mutex_unlock(&k->lock);
}

/* ---- telling the loop ---- */

struct told {
    struct sg_task task;
    struct keepalive *k;
    char session_id[CONTROL_SESSION_TEXT];
    int64_t deadline_ms;
    const char *reason; /* NULL: it was extended; then: */
    char name[129], cwd[1024], arch[32];
};

static void on_told(struct sg_task *task)
{
    struct told *t = (struct told *)task;
    const struct keepalive_config *f = &t->k->config;
    const struct control_session s = {.session_id = t->session_id,
                                      .cwd = t->cwd,
                                      .arch = *t->arch ? t->arch : NULL,
                                      .deadline_ms = t->deadline_ms};
    if (t->reason && f->ending)
        f->ending(f->arg, t->session_id, t->deadline_ms, t->reason);
    else if (!t->reason && f->extended && *t->cwd)
        f->extended(f->arg, t->name, &s);
    free(t);
}

static struct told *told_new(struct keepalive *k, const char *session_id, int64_t deadline_ms)
{
    struct told *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->task.fn = on_told;
    t->k = k;
    t->deadline_ms = deadline_ms;
    (void)snprintf(t->session_id, sizeof t->session_id, "%s", session_id);
    return t;
}

static void tell_ending(struct keepalive *k, const char *session_id, int64_t deadline_ms, const char *reason)
{
    struct told *t = told_new(k, session_id, deadline_ms);
    if (!t)
        return; /* they will notice */
    t->reason = reason;
    sg_loop_post(k->c->loop, &t->task);
}

static void tell_extended(struct keepalive *k, const struct vercel_sandbox *s, int64_t deadline_ms)
{
    const char *cwd = s->session_cwd ? s->session_cwd : s->cwd;
    struct told *t = told_new(k, s->session_id, deadline_ms);
    sg_log(SG_LOG_INFO, "session extended", "sandbox", "s", s->name, "session", "s", s->session_id,
           "deadline_ms", "i", deadline_ms, NULL);
    if (!t)
        return;
    (void)snprintf(t->name, sizeof t->name, "%s", s->name);
    (void)snprintf(t->arch, sizeof t->arch, "%s", s->architecture ? s->architecture : "");
    if (cwd && strlen(cwd) < sizeof t->cwd)
        (void)snprintf(t->cwd, sizeof t->cwd, "%s", cwd);
    sg_loop_post(k->c->loop, &t->task);
}

/* ---- one session ---- */

struct task {
    struct keepalive *k;
    struct kept seen; /* as it was; its name is the task's own */
};

struct verdict {
    enum extend_result result;
    const char *reason; /* it ends at its deadline because of this; NULL: it does not */
    int64_t deadline_ms;
};

static const char *reason_of(enum extend_result r)
{
    return r == EXTEND_MAX ? "max_ms" : r == EXTEND_PLAN ? "plan_limit" : NULL;
}

/* Asks, and extends where the session is in use. */
static struct verdict decide(struct keepalive *k, const struct kept *t)
{
    const struct keepalive_wish wish = wish_of(k->c, t->name);
    int64_t now = sg_wall_ms(), until = 0;
    if (t->attended &&
        (wish.mode == KEEPALIVE_IN_USE || (wish.mode == KEEPALIVE_UNSAID && k->config.attached)))
        until = now + k->config.step_ms;
    else if (wish.mode == KEEPALIVE_IN_USE)
        until = t->active_ms + k->config.step_ms;
    else if (!t->attended)
        return (struct verdict){.result = EXTEND_OVER}; /* nobody to tell */
    if (!t->attended && t->deadline_ms && (until <= t->deadline_ms || t->final))
        return (struct verdict){.result = EXTEND_FINE};
    struct extend x = {.name = t->name,
                       .session_id = t->session_id,
                       .until_ms = t->final ? 0 : until,
                       .near_ms = t->lead_ms + t->lead_ms / 8,
                       .max_ms = wish.max_ms ? wish.max_ms : k->config.max_ms,
                       .claim_ms = t->lead_ms / 4};
    struct vercel_sandbox s;
    struct verdict v = {.result = extend_ahead(k->c, &x, &s)};
    v.deadline_ms = x.deadline_ms;
    if (x.moved)
        tell_extended(k, &s, x.deadline_ms);
    v.reason = reason_of(v.result);
    bool near = x.deadline_ms && x.deadline_ms - sg_wall_ms() <= x.near_ms;
    if (v.result == EXTEND_FINE && near && !x.moved)
        v.reason = t->final ? t->final : until > x.deadline_ms ? NULL : "timeout";
    vercel_sandbox_clear(&s);
    return v;
}

/* Under the lock. */
static void settle(struct keepalive *k, const struct kept *seen, const struct verdict *v)
{
    struct kept **slot = slot_of(k, seen->session_id), *t = *slot;
    int64_t now = sg_wall_ms();
    if (!t)
        return;
    t->busy = false;
    if (v->result == EXTEND_OVER && !t->attended) {
        drop(k, slot);
        return;
    }
    if (v->result == EXTEND_OVER && !seen->attended)
        return; /* somebody came meanwhile */
    t->next_ms = now + (t->deadline_ms && v->result != EXTEND_OVER ? t->lead_ms / 4 : UNKNOWN_MS);
    set_deadline(k, t, v->deadline_ms, now);
    if (v->result == EXTEND_MAX || v->result == EXTEND_PLAN)
        t->final = v->reason;
    const char *reason = v->reason;
    if (v->result == EXTEND_NOT_NOW && t->deadline_ms && t->deadline_ms - now < t->lead_ms / 2)
        reason = "not_extended";
    if (!reason || t->deadline_ms - now > t->lead_ms + t->lead_ms / 8 || t->warned_ms == t->deadline_ms)
        return;
    t->warned_ms = t->deadline_ms;
    if (v->reason)
        t->next_ms = t->deadline_ms + TICK_MAX_MS; /* there is nothing more to do about it */
    if (t->attended)
        tell_ending(k, t->session_id, t->deadline_ms, reason);
}

static void run_task(void *arg)
{
    struct task *t = arg;
    struct keepalive *k = t->k;
    const struct verdict v = decide(k, &t->seen);
    pthread_mutex_lock(&k->lock);
    settle(k, &t->seen, &v);
    k->tasks--;
    pthread_mutex_unlock(&k->lock);
    free(t->seen.name);
    free(t);
    job_kick(k->job); /* more may wait for its place */
}

/* ---- the job ---- */

static bool is_due(const struct kept *t, int64_t now)
{
    return !t->busy && now >= t->next_ms && (!t->deadline_ms || now >= t->deadline_ms - t->lead_ms);
}

/* Of those that nobody uses any more nothing is remembered. */
static bool is_idle(const struct keepalive *k, const struct kept *t, int64_t now)
{
    return !t->busy && !t->attended && now - t->active_ms > k->config.step_ms + k->config.lead_ms;
}

static struct task *task_new(struct keepalive *k, struct kept *t)
{
    struct task *task = calloc(1, sizeof *task);
    if (!task)
        return NULL;
    task->k = k;
    task->seen = *t;
    task->seen.name = strdup(t->name);
    if (task->seen.name)
        return task;
    free(task);
    return NULL;
}

/* The next that something has to be done for; NULL: none, or no room. */
static struct task *take_due(struct keepalive *k, int *from)
{
    int64_t now = sg_wall_ms();
    struct task *found = NULL;
    pthread_mutex_lock(&k->lock);
    for (; *from < BUCKETS && !found && k->tasks < AT_ONCE; ++*from)
        for (struct kept **slot = &k->buckets[*from]; *slot && !found;) {
            struct kept *t = *slot;
            if (is_idle(k, t, now)) {
                drop(k, slot);
                continue;
            }
            if (is_due(t, now) && (found = task_new(k, t))) {
                t->busy = true;
                k->tasks++;
            }
            slot = &t->next;
        }
    if (found)
        --*from; /* there may be more in this bucket */
    pthread_mutex_unlock(&k->lock);
    return found;
}

static void run_job(void *arg)
{
    struct keepalive *k = arg;
    struct task *t;
    int from = 0;
    while (!jobs_stopping(k->c->jobs) && (t = take_due(k, &from))) {
        if (jobs_once(k->c->jobs, run_task, t))
            continue;
        const struct verdict later = {.result = EXTEND_NOT_NOW};
        pthread_mutex_lock(&k->lock);
        settle(k, &t->seen, &later);
        k->tasks--;
        pthread_mutex_unlock(&k->lock);
        free(t->seen.name);
        free(t);
        return;
    }
}

/* ---- leases ---- */

struct until {
    struct keepalive *k;
    int64_t until_ms;
    char name[129];
};

static void run_until(void *arg)
{
    struct until *u = arg;
    struct keepalive *k = u->k;
    const struct keepalive_wish wish = wish_of(k->c, u->name);
    int64_t step = sg_wall_ms() + k->config.step_ms;
    struct extend x = {.name = u->name,
                       .until_ms = u->until_ms > step ? u->until_ms : step,
                       .near_ms = u->until_ms - sg_wall_ms(),
                       .max_ms = wish.max_ms ? wish.max_ms : k->config.max_ms,
                       .claim_ms = k->config.lead_ms / 4};
    struct vercel_sandbox s;
    if (wish.mode != KEEPALIVE_NEVER) {
        (void)extend_ahead(k->c, &x, &s);
        if (x.moved) {
            tell_extended(k, &s, x.deadline_ms);
            keepalive_touch(k->c, u->name, s.session_id, x.deadline_ms);
        }
        vercel_sandbox_clear(&s);
    }
    free(u);
}

void keepalive_until(struct control *c, const char *name, int64_t wall_ms)
{
    struct cached_session s;
    struct keepalive *k = c->keepalive;
    if (!k || !session_cache_get(c->sessions, name, &s))
        return; /* it does not run, as far as is known here: nothing is asked for that alone */
    bool enough = s.deadline_ms && s.deadline_ms >= wall_ms;
    cached_session_clear(&s);
    struct until *u = enough ? NULL : calloc(1, sizeof *u);
    if (!u)
        return;
    u->k = k;
    u->until_ms = wall_ms;
    (void)snprintf(u->name, sizeof u->name, "%s", name);
    if (!jobs_once(c->jobs, run_until, u))
        free(u); /* the next renewal tries again */
}

/* ---- life ---- */

bool keepalive_start(struct control *c, const struct keepalive_config *config)
{
    struct keepalive *k = calloc(1, sizeof *k);
    if (!k)
        return false;
    k->c = c;
    k->config = *config;
    int64_t tick = config->lead_ms / 20;
    k->tick_ms = tick < TICK_MIN_MS ? TICK_MIN_MS : tick > TICK_MAX_MS ? TICK_MAX_MS : tick;
    pthread_mutex_init(&k->lock, NULL);
    c->keepalive = k;
    k->job = job_add(c->jobs, "keep-alive", k->tick_ms, run_job, k);
    return k->job != NULL;
}

void keepalive_free(struct control *c)
{
    struct keepalive *k = c->keepalive;
    if (!k)
        return;
    for (int i = 0; i < BUCKETS; i++)
        while (k->buckets[i])
            drop(k, &k->buckets[i]);
    pthread_mutex_destroy(&k->lock);
    free(k);
    c->keepalive = NULL;
}
