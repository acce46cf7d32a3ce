#include "control/sweep.h"

#include "control/control.h"
#include "control/retention.h"
#include "store/locks.h"

#include "base/log.h"
#include "vercel/snapshots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    EVERY_MS = 2 * 60 * 1000,
    LOCK_MAX_MS = 2 * 60 * 1000, /* one step: a few calls, or many short ones */
    LOCK_MIN_MS = 20 * 1000,
    ROWS_MAX = 100000, /* sandboxes that are swept */
    CAPTURES_MAX = 20, /* in one run */
    BATCH_MAX = 200,   /* snapshots of one run */
    DOUBLINGS_MAX = 5, /* what somebody needs is looked at again after 1, 2, 4 … 32 turns */
};

struct sweep {
    struct control *c;
    int64_t every_ms;
    struct job *job;
};

struct watched { /* a sandbox that is swept, and how it was seen */
    struct store_retention row;
    bool seen;  /* it is there, and it is that one */
    bool other; /* another one has the name */
    bool still; /* no stop is under way */
    bool evicts;
    int64_t keep;
    char current[SNAPSHOT_ID_TEXT];
    char state[RETENTION_SWEPT_TEXT]; /* of which a change is a reason to sweep it */
};

struct candidate {
    struct store_release row;
    int64_t last_used_at;
    bool exists; /* usable, as seen before the sandboxes were looked at */
    bool used, parent_lives;
};

/* One run. */
struct run {
    struct control *c;
    char lock[STORE_LOCK_NAME + 1], owner[STORE_OWNER_TEXT];
    int64_t lock_ms; /* so long a gateway that dies keeps the others from it */
    struct watched *watched;
    size_t nwatched, cap;
    struct candidate *candidates;
    size_t ncandidates;
    bool failed; /* out of memory */
    bool held;
    struct sg_error e;
};

static bool give_up(struct run *r)
{
    return jobs_stopping(r->c->jobs);
}

/* What is not noted is found out again by the next run. */
static void note(struct run *r, store_fn *fn, void *arg)
{
    struct sg_error e;
    if (control_in_store(r->c, STORE_WRITE, fn, arg, &e))
        sg_log(SG_LOG_WARN, "sweep not noted", "error", "e", &e, NULL);
}

/* ---- one gateway at a time ---- */

/* A few turns, so that one who dies does not keep the others from it for longer than it matters. */
static int64_t lock_ms(int64_t every_ms)
{
    int64_t ms = 4 * every_ms;
    return ms < LOCK_MIN_MS ? LOCK_MIN_MS : ms > LOCK_MAX_MS ? LOCK_MAX_MS : ms;
}

static enum sg_code take_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct run *r = arg;
    return store_lock_take(db, r->lock, r->owner, r->lock_ms, &r->held, e);
}

static enum sg_code drop_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct run *r = arg;
    return store_lock_drop(db, r->lock, r->owner, e);
}

/* Again before each step that takes long; false: lost. */
static bool hold(struct run *r)
{
    r->held = false;
    return !control_in_store(r->c, STORE_WRITE, take_fn, r, &r->e) && r->held;
}

/* ---- which sandboxes ---- */

static void on_retention(void *arg, const struct store_retention *row)
{
    struct run *r = arg;
    if (r->nwatched == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 64;
        struct watched *w = realloc(r->watched, cap * sizeof *w);
        if (!w) {
            r->failed = true;
            return;
        }
        r->watched = w;
        r->cap = cap;
    }
    r->watched[r->nwatched++] = (struct watched){.row = *row};
}

static enum sg_code retention_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct run *r = arg;
    r->nwatched = 0;
    r->failed = false;
    return store_retention_list(db, r->c->upstream, "", ROWS_MAX, on_retention, r, e);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct watched *)a)->row.sandbox, ((const struct watched *)b)->row.sandbox);
}

static struct watched *watched_of(struct run *r, const char *name)
{
    struct watched key;
    if (!r->nwatched ||
        snprintf(key.row.sandbox, sizeof key.row.sandbox, "%s", name) >= RETENTION_SANDBOX_TEXT)
        return NULL;
    return bsearch(&key, r->watched, r->nwatched, sizeof *r->watched, by_name);
}

static void look_at(struct watched *w, const struct vercel_sandbox *s)
{
    w->other = s->created_at != w->row.created_at_ms;
    w->seen = !w->other;
    w->evicts = s->keep_delete_evicted == 1 || s->keep_count < 1;
    w->keep = s->keep_count;
    w->still = s->status != VERCEL_STOPPING && s->status != VERCEL_SNAPSHOTTING;
    const char *id = s->current_snapshot_id ? s->current_snapshot_id : "";
    if (snprintf(w->current, sizeof w->current, "%s", id) >= SNAPSHOT_ID_TEXT)
        w->seen = false;
    (void)snprintf(w->state, sizeof w->state, "%s %lld %lld", w->current, (long long)w->keep,
                   (long long)s->updated_at);
}

static bool on_sandbox(void *arg, const struct vercel_sandbox *s)
{
    struct run *r = arg;
    struct watched *w = watched_of(r, s->name);
    if (w)
        look_at(w, s);
    return !give_up(r);
}

struct row_call {
    struct run *r;
    struct store_retention *row;
    const struct own_snapshots *own;
    const struct watched *w;
};

static enum sg_code forget_row_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct row_call *k = arg;
    return store_retention_drop(db, k->r->c->upstream, k->row->sandbox, k->row->created_at_ms, e);
}

/* The newest that the sandbox keeps, and its current one, stay; so does what was captured on purpose. */
static enum sg_code superseded_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct row_call *k = arg;
    enum sg_code rc = SG_OK;
    for (size_t i = (size_t)k->w->keep; i < k->own->n && !rc; i++) {
        const struct own_snapshot *s = &k->own->items[i];
        struct store_release row = {0};
        if (!s->automatic || !strcmp(s->id, k->w->current))
            continue;
        (void)snprintf(row.snapshot_id, sizeof row.snapshot_id, "%s", s->id);
        rc = store_release_put(db, k->r->c->upstream, &row, e);
    }
    (void)snprintf(k->row->swept, sizeof k->row->swept, "%s", k->w->state);
    return rc ? rc : store_retention_swept(db, k->r->c->upstream, k->row, e);
}

static void sweep_one(struct run *r, struct watched *w)
{
    struct own_snapshots own = {0};
    struct row_call k = {.r = r, .row = &w->row, .own = &own, .w = w};
    store_fn *fn = superseded_fn;
    enum sg_code rc = SG_OK;
    if (w->other || (w->seen && w->evicts)) /* the upstream does it again, by somebody's will */
        fn = forget_row_fn;
    else if (!w->seen || !w->still || !*w->current || !strcmp(w->state, w->row.swept))
        return;
    else
        rc = control_own_snapshots(r->c, w->row.sandbox, &own, &r->e);
    if (!rc)
        rc = control_in_store(r->c, STORE_WRITE, fn, &k, &r->e);
    own_snapshots_clear(&own);
    if (rc && rc != SG_E_SANDBOX_NOT_FOUND)
        sg_log(SG_LOG_WARN, "sandbox not swept", "sandbox", "s", w->row.sandbox, "error", "e", &r->e, NULL);
}

/* A sandbox that was not listed is looked for by its name before it is forgotten: pages of a list that changes may have
 * holes. */
static void look_again(struct run *r, struct watched *w)
{
    struct vercel_sandbox s;
    struct row_call k = {.r = r, .row = &w->row};
    enum sg_code rc = vercel_get(r->c->vercel, w->row.sandbox, false, &s, &r->e);
    if (rc == SG_E_SANDBOX_NOT_FOUND)
        note(r, forget_row_fn, &k);
    if (rc)
        return;
    look_at(w, &s);
    vercel_sandbox_clear(&s);
}

static enum sg_code sweep_sandboxes(struct run *r)
{
    enum sg_code rc = control_in_store(r->c, STORE_READ, retention_fn, r, &r->e);
    if (rc || r->failed || !r->nwatched)
        return rc;
    qsort(r->watched, r->nwatched, sizeof *r->watched, by_name); /* a database's order may be another */
    rc = control_each_sandbox(r->c, on_sandbox, r, &r->e);
    for (size_t i = 0; i < r->nwatched && !rc && !give_up(r); i++) {
        struct watched *w = &r->watched[i];
        if (!w->seen && !w->other)
            look_again(r, w);
        sweep_one(r, w);
        if (i % 16 == 15 && !hold(r))
            return SG_E_STORE_UNAVAILABLE;
    }
    return rc;
}

/* ---- captures that nobody was told of ---- */

struct lost { /* of one session */
    struct run *r;
    struct store_capture row;
    const struct own_snapshots *own;
};
struct lost_list {
    struct store_capture rows[CAPTURES_MAX];
    size_t n;
};

static void on_lost(void *arg, const struct store_capture *row)
{
    struct lost_list *l = arg;
    if (l->n < CAPTURES_MAX)
        l->rows[l->n++] = *row;
}

struct lost_call {
    struct run *r;
    struct lost_list *list;
};

static enum sg_code lost_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct lost_call *k = arg;
    k->list->n = 0;
    return store_capture_due(db, k->r->c->upstream, CAPTURES_MAX, on_lost, k->list, e);
}

static enum sg_code release_lost_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct lost *l = arg;
    bool had = false;
    enum sg_code rc = store_capture_drop(db, l->r->c->upstream, l->row.session_id, &had, e);
    for (size_t i = 0; had && i < l->own->n && !rc; i++) {
        struct store_release row = {0};
        if (strcmp(l->own->items[i].session_id, l->row.session_id) != 0)
            continue;
        (void)snprintf(row.snapshot_id, sizeof row.snapshot_id, "%s", l->own->items[i].id);
        rc = store_release_put(db, l->r->c->upstream, &row, e);
    }
    return rc;
}

static enum sg_code sweep_captures(struct run *r)
{
    struct lost_list list = {.n = 0};
    struct lost_call k = {r, &list};
    enum sg_code rc = control_in_store(r->c, STORE_READ, lost_fn, &k, &r->e);
    for (size_t i = 0; i < list.n && !rc && !give_up(r); i++) {
        struct own_snapshots own = {0};
        struct lost l = {r, list.rows[i], &own};
        enum sg_code seen = control_own_snapshots(r->c, l.row.sandbox, &own, &r->e);
        if (!seen || seen == SG_E_SANDBOX_NOT_FOUND)
            note(r, release_lost_fn, &l);
        own_snapshots_clear(&own);
    }
    return rc;
}

/* ---- which snapshots ---- */

static void on_due(void *arg, const struct store_release *row)
{
    struct run *r = arg;
    if (r->ncandidates < BATCH_MAX)
        r->candidates[r->ncandidates++] = (struct candidate){.row = *row};
}

static enum sg_code due_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct run *r = arg;
    r->ncandidates = 0;
    return store_release_due(db, r->c->upstream, BATCH_MAX, on_due, r, e);
}

struct candidate_call {
    struct run *r;
    struct candidate *x;
    int64_t pause_ms;
    bool gone, in_use;
    struct snapshot_name by;
    struct snapshot_name *pins; /* sandboxes that were begun from it */
    size_t npins, cap;
    bool failed;
};

static enum sg_code settle_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct candidate_call *k = arg;
    const char *upstream = k->r->c->upstream, *id = k->x->row.snapshot_id;
    enum sg_code rc = SG_OK;
    if (k->gone)
        rc = store_snapshot_forget(db, upstream, id, e);
    if (!rc && k->pause_ms)
        rc = store_release_later(db, upstream, id, k->pause_ms, e);
    else if (!rc)
        rc = store_release_drop(db, upstream, id, e);
    return rc;
}

static void settle(struct candidate_call *k)
{
    if (control_in_store(k->r->c, STORE_WRITE, settle_fn, k, &k->r->e))
        sg_log(SG_LOG_WARN, "fate of a snapshot not noted", "snapshot", "s", k->x->row.snapshot_id, "error",
               "e", &k->r->e, NULL);
}

static void later(struct run *r, struct candidate *x)
{
    int64_t n = x->row.tries < DOUBLINGS_MAX ? x->row.tries : DOUBLINGS_MAX;
    struct candidate_call k = {.r = r, .x = x, .pause_ms = r->c->sweep->every_ms << n};
    settle(&k);
}

/* How it is before anybody is asked who uses it: who begins to use it afterwards is seen by its time of use. */
static void look_before(struct run *r, struct candidate *x)
{
    struct vercel_snapshot s;
    struct candidate_call k = {.r = r, .x = x, .gone = true};
    enum sg_code rc = vercel_snapshot_get(r->c->vercel, x->row.snapshot_id, &s, &r->e);
    if (rc == SG_E_SNAPSHOT_NOT_FOUND || (!rc && s.status == VERCEL_SNAPSHOT_DELETED)) {
        settle(&k);
    } else if (rc) {
        later(r, x);
    } else {
        x->exists = true;
        x->last_used_at = s.last_used_at;
    }
    if (!rc)
        vercel_snapshot_clear(&s);
}

static bool on_user(void *arg, const struct vercel_sandbox *s)
{
    struct run *r = arg;
    for (size_t i = 0; i < r->ncandidates; i++) {
        struct candidate *x = &r->candidates[i];
        if (s->current_snapshot_id && !strcmp(s->current_snapshot_id, x->row.snapshot_id))
            x->used = true;
        if (*x->row.sandbox && !strcmp(x->row.sandbox, s->name) && x->row.created_at_ms == s->created_at)
            x->parent_lives = true;
    }
    return !give_up(r);
}

static void on_pin(void *arg, const struct snapshot_name *n)
{
    struct candidate_call *k = arg;
    if (n->kind != SNAPSHOT_BY_SANDBOX) {
        k->in_use = true;
        k->by = *n;
        return;
    }
    if (k->npins == k->cap) {
        size_t cap = k->cap ? 2 * k->cap : 8;
        struct snapshot_name *pins = realloc(k->pins, cap * sizeof *pins);
        if (!pins) {
            k->failed = true;
            return;
        }
        k->pins = pins;
        k->cap = cap;
    }
    k->pins[k->npins++] = *n;
}

static enum sg_code pins_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct candidate_call *k = arg;
    int64_t now = 0;
    k->npins = 0;
    k->in_use = k->failed = false;
    enum sg_code rc = store_now(db, &now, e);
    if (!rc)
        rc = store_snapshot_name_list(db, k->r->c->upstream, k->x->row.snapshot_id, on_pin, k, e);
    for (size_t i = 0; i < k->npins; i++)
        if (k->pins[i].made_at_ms > now - SNAPSHOT_YOUNG_MS)
            k->in_use = true; /* not begun long ago: perhaps it is not there yet */
    return rc;
}

struct unpin {
    struct candidate_call *k;
    const char *name;
};

static enum sg_code unpin_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct unpin *u = arg;
    return store_snapshot_name_drop(db, u->k->r->c->upstream, u->k->x->row.snapshot_id, SNAPSHOT_BY_SANDBOX,
                                    u->name, e);
}

/* Whether a sandbox that was begun from it still stands on it.  One that does not is taken off. */
static bool pin_holds(struct candidate_call *k, const char *name)
{
    struct vercel_sandbox s;
    struct run *r = k->r;
    enum sg_code rc = vercel_get(r->c->vercel, name, false, &s, &r->e);
    bool holds = rc && rc != SG_E_SANDBOX_NOT_FOUND;
    if (!rc) {
        holds = s.current_snapshot_id && !strcmp(s.current_snapshot_id, k->x->row.snapshot_id);
        vercel_sandbox_clear(&s);
    }
    struct unpin u = {k, name};
    return holds || control_in_store(r->c, STORE_WRITE, unpin_fn, &u, &r->e);
}

static enum sg_code doom_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct candidate_call *k = arg;
    return store_snapshot_doom(db, k->r->c->upstream, k->x->row.snapshot_id, SNAPSHOT_BY_ANY,
                               SNAPSHOT_DOOM_MS, &k->in_use, &k->by, e);
}

static enum sg_code spare_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct candidate_call *k = arg;
    return store_snapshot_spare(db, k->r->c->upstream, k->x->row.snapshot_id, e);
}

/* True: nobody has begun to use it since the sandboxes were looked at. */
static bool unused_since(struct candidate_call *k)
{
    struct vercel_snapshot s;
    struct run *r = k->r;
    if (vercel_snapshot_get(r->c->vercel, k->x->row.snapshot_id, &s, &r->e))
        return false;
    bool unused = s.status == VERCEL_SNAPSHOT_CREATED && s.last_used_at == k->x->last_used_at;
    vercel_snapshot_clear(&s);
    return unused;
}

/* Of a doomed one.  False: it stays for now. */
static bool delete_doomed(struct candidate_call *k)
{
    struct run *r = k->r;
    enum sg_code rc = SG_E_SNAPSHOT_IN_USE;
    if (unused_since(k)) {
        rc = vercel_snapshot_delete(r->c->vercel, k->x->row.snapshot_id, &r->e);
        if (rc == SG_E_SNAPSHOT_NOT_FOUND)
            rc = SG_OK;
    }
    if (!rc) {
        sg_log(SG_LOG_INFO, "snapshot deleted", "snapshot", "s", k->x->row.snapshot_id, NULL);
        k->gone = true;
        settle(k);
        return true;
    }
    if (rc == SG_E_SNAPSHOT_IN_USE || r->e.outcome != SG_OUTCOME_UNKNOWN)
        note(r, spare_fn, k);
    return false;
}

static bool try_delete(struct candidate_call *k)
{
    struct run *r = k->r;
    if (control_in_store(r->c, STORE_READ, pins_fn, k, &r->e) || k->in_use || k->failed)
        return false;
    for (size_t i = 0; i < k->npins; i++)
        if (pin_holds(k, k->pins[i].name))
            return false;
    if (control_in_store(r->c, STORE_WRITE, doom_fn, k, &r->e) || k->in_use)
        return false;
    return delete_doomed(k);
}

static enum sg_code sweep_snapshots(struct run *r)
{
    r->candidates = calloc(BATCH_MAX, sizeof *r->candidates);
    if (!r->candidates)
        return sg_fail(&r->e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the snapshots to delete");
    enum sg_code rc = control_in_store(r->c, STORE_READ, due_fn, r, &r->e);
    if (rc || !r->ncandidates)
        return rc;
    for (size_t i = 0; i < r->ncandidates && !give_up(r); i++)
        look_before(r, &r->candidates[i]);
    if (!hold(r))
        return SG_E_STORE_UNAVAILABLE;
    rc = control_each_sandbox(r->c, on_user, r, &r->e);
    for (size_t i = 0; i < r->ncandidates && !rc && !give_up(r); i++) {
        struct candidate *x = &r->candidates[i];
        struct candidate_call k = {.r = r, .x = x};
        if (!x->exists)
            continue;
        if (x->parent_lives) /* its sandbox was not deleted after all */
            settle(&k);
        else if (x->used || !try_delete(&k))
            later(r, x);
        free(k.pins);
        if (i % 16 == 15 && !hold(r))
            return SG_E_STORE_UNAVAILABLE;
    }
    return rc;
}

/* ---- the job ---- */

static void on_time(void *arg)
{
    struct sweep *s = arg;
    struct run r = {.c = s->c, .lock_ms = lock_ms(s->every_ms)};
    if (!s->c->store || !store_owner(r.owner) ||
        snprintf(r.lock, sizeof r.lock, "sweep:%s", s->c->upstream) >= (int)sizeof r.lock)
        return;
    if (hold(&r)) {
        enum sg_code rc = sweep_sandboxes(&r);
        if (!rc && !give_up(&r))
            rc = sweep_captures(&r);
        if (!rc && !give_up(&r))
            rc = sweep_snapshots(&r);
        if (rc)
            sg_log(SG_LOG_WARN, "snapshots not swept", "error", "e", &r.e, NULL);
        note(&r, drop_fn, &r);
    }
    free(r.watched);
    free(r.candidates);
}

bool control_sweep_start(struct control *c, int64_t every_ms)
{
    struct sweep *s = calloc(1, sizeof *s);
    if (!s)
        return false;
    s->c = c;
    s->every_ms = every_ms > 0 ? every_ms : EVERY_MS;
    c->sweep = s;
    s->job = job_add(c->jobs, "sweep", s->every_ms, on_time, s);
    return s->job != NULL;
}

void control_sweep_kick(struct control *c)
{
    if (c->sweep && c->sweep->job)
        job_kick(c->sweep->job);
}
