#include "control/destroy.h"

#include "control/control.h"
#include "control/names.h"
#include "control/retention.h"
#include "control/sweep.h"
#include "store/leases.h"
#include "store/sandboxes.h"

#include "base/clock.h"
#include "base/log.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOCK_PATIENCE_MS = 60 * 1000,
    MOVE_PATIENCE_MS = 5 * 60 * 1000, /* a stop that somebody else began, with its snapshot */
    LOOK_FIRST_MS = 200,
    LOOK_MAX_MS = 2000,
    STOPS_MAX = 3, /* somebody resumes it all the time: the delete ends the session as well */
    DELETES_MAX = 3,
};

static bool on_its_way(const struct vercel_sandbox *s)
{
    enum vercel_status st = s->session_status != VERCEL_STATUS_OTHER ? s->session_status : s->status;
    return st == VERCEL_STOPPING || st == VERCEL_SNAPSHOTTING;
}

static bool is_running(const struct vercel_sandbox *s)
{
    return s->session_id && (s->session_status == VERCEL_RUNNING || s->session_status == VERCEL_PENDING);
}

/* Looks until no stop is under way.  SANDBOX_NOT_FOUND: it is gone, or another one has the name. */
static enum sg_code look(struct control *c, const struct control_destroy *d, struct vercel_sandbox *s,
                         struct sg_error *e)
{
    int64_t until = sg_mono_ms() + MOVE_PATIENCE_MS;
    for (int pause_ms = LOOK_FIRST_MS;;
         pause_ms = pause_ms * 3 / 2 < LOOK_MAX_MS ? pause_ms * 3 / 2 : LOOK_MAX_MS) {
        enum sg_code rc = vercel_get(c->vercel, d->name, false, s, e);
        if (rc)
            return rc;
        if (d->alloc && !control_is_alloc(s, d->alloc)) {
            vercel_sandbox_clear(s);
            return sg_fail(e, SG_E_SANDBOX_NOT_FOUND, SG_FINISHED, "another sandbox has the name");
        }
        if (!on_its_way(s))
            return SG_OK;
        vercel_sandbox_clear(s);
        if (sg_mono_ms() > until || jobs_stopping(c->jobs))
            return sg_fail(e, SG_E_SANDBOX_TRANSITION, SG_NOT_STARTED,
                           "the sandbox is being stopped, which takes long");
        (void)poll(NULL, 0, pause_ms);
    }
}

/* ---- its snapshots ---- */

struct plan {
    struct control *c;
    const struct vercel_sandbox *s;
    struct own_snapshots own;
    bool orphans; /* the upstream deletes all of them with it */
    bool release; /* the gateway does, one by one, those that nobody needs */
};

static enum sg_code named_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct plan *p = arg;
    enum sg_code rc = SG_OK;
    p->orphans = p->own.whole;
    for (size_t i = 0; i < p->own.n && !rc; i++) {
        struct snapshot_name by;
        bool found = false;
        rc = store_snapshot_name_any(db, p->c->upstream, p->own.items[i].id, SNAPSHOT_BY_ANY, &by, &found, e);
        if (found || !p->own.items[i].automatic)
            p->orphans = false;
    }
    return rc;
}

static enum sg_code release_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct plan *p = arg;
    enum sg_code rc = SG_OK;
    for (size_t i = 0; i < p->own.n && !rc; i++) {
        bool had = false; /* a capture that nobody was told of */
        if (!p->own.items[i].automatic)
            rc = store_capture_drop(db, p->c->upstream, p->own.items[i].session_id, &had, e);
        if (rc || (!p->own.items[i].automatic && !had))
            continue;
        struct store_release r = {.created_at_ms = p->s->created_at};
        (void)snprintf(r.snapshot_id, sizeof r.snapshot_id, "%s", p->own.items[i].id);
        (void)snprintf(r.sandbox, sizeof r.sandbox, "%s", p->s->name);
        rc = store_release_put(db, p->c->upstream, &r, e);
    }
    return rc;
}

/* One that evicts was never guarded, so nobody was given one of its snapshots by a gateway; the store is asked
 * nevertheless.  Where anything speaks against it, or cannot be found out, they are not deleted with it. */
static void plan_snapshots(struct plan *p)
{
    struct sg_error e;
    bool evicts = p->s->keep_delete_evicted == 1;
    if (evicts && !p->s->current_snapshot_id) { /* it has none, but for what the upstream makes now */
        p->orphans = true;
        return;
    }
    enum sg_code rc = control_own_snapshots(p->c, p->s->name, &p->own, &e);
    if (!rc && evicts)
        rc = control_in_store(p->c, STORE_READ, named_fn, p, &e);
    if (!rc && !p->orphans && p->own.n) {
        rc = control_in_store(p->c, STORE_DURABLE, release_fn, p, &e);
        p->release = !rc;
    }
    if (rc) {
        p->orphans = false;
        sg_log(SG_LOG_WARN, "snapshots of a sandbox are left", "sandbox", "s", p->s->name, "error", "e", &e,
               NULL);
    }
}

/* ---- the end ---- */

static enum sg_code forget_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct plan *p = arg;
    const char *upstream = p->c->upstream, *alloc = control_tag_of(p->s, CONTROL_TAG_ALLOC);
    enum sg_code rc = store_retention_drop(db, upstream, p->s->name, -1, e);
    if (!rc)
        rc = store_snapshot_name_drop_all(db, upstream, SNAPSHOT_BY_SANDBOX, p->s->name, e);
    if (!rc && alloc)
        rc = store_lease_drop(db, upstream, alloc, e);
    if (!rc && alloc)
        rc = store_sandbox_forget(db, upstream, alloc, e);
    return rc;
}

static void forget(struct plan *p)
{
    struct sg_error e;
    session_cache_forget(p->c->sessions, p->s->name);
    if (p->c->store && control_in_store(p->c, STORE_WRITE, forget_fn, p, &e))
        sg_log(SG_LOG_WARN, "a destroyed sandbox is still in the store", "sandbox", "s", p->s->name, "error",
               "e", &e, NULL);
    if (p->release)
        control_sweep_kick(p->c);
}

/* *again: what became of it has to be looked at. */
static enum sg_code delete_it(struct control *c, struct control_destroy *d, const struct vercel_sandbox *s,
                              bool *again, struct sg_error *e)
{
    struct plan p = {.c = c, .s = s};
    plan_snapshots(&p);
    enum sg_code rc = vercel_delete_once(c->vercel, d->name, p.orphans, e);
    if (rc == SG_E_SANDBOX_NOT_FOUND) /* somebody else did, since we looked */
        rc = SG_OK;
    if (!rc)
        forget(&p);
    else
        session_cache_forget(c->sessions, d->name);
    *again = rc == SG_E_SANDBOX_TRANSITION || (rc && e->outcome == SG_OUTCOME_UNKNOWN);
    own_snapshots_clear(&p.own);
    return rc;
}

static void see(struct control_destroy *d, const struct vercel_sandbox *s)
{
    d->found = true;
    (void)snprintf(d->session_id, sizeof d->session_id, "%s", s->session_id ? s->session_id : "");
}

/* An allocation ends by its session first: a namesake that takes the name meanwhile has another one. */
static enum sg_code stop_seen(struct control *c, struct control_destroy *d, struct vercel_sandbox *s,
                              struct sg_error *e)
{
    enum sg_code rc = SG_OK;
    for (int i = 0; !rc && i < STOPS_MAX && is_running(s); i++) {
        rc = vercel_stop(c->vercel, s->session_id, e);
        if (rc == SG_E_SANDBOX_TRANSITION || rc == SG_E_SANDBOX_NOT_FOUND)
            rc = SG_OK; /* a look tells */
        vercel_sandbox_clear(s);
        if (!rc)
            rc = look(c, d, s, e);
        if (!rc)
            see(d, s);
    }
    return rc;
}

static enum sg_code destroy(struct control *c, struct control_destroy *d, struct sg_error *e)
{
    bool again = true;
    enum sg_code rc = SG_OK;
    for (int i = 0; again && i < DELETES_MAX; i++) {
        struct vercel_sandbox s = {0};
        struct sg_error first = *e;
        if (i > 0)
            (void)poll(NULL, 0, LOOK_FIRST_MS << i);
        enum sg_code looked = look(c, d, &s, e);
        if (looked == SG_E_SANDBOX_NOT_FOUND)
            return SG_OK;
        if (looked) { /* the first error tells more */
            if (i > 0)
                *e = first;
            return i > 0 ? rc : looked;
        }
        see(d, &s);
        rc = d->alloc ? stop_seen(c, d, &s, e) : SG_OK;
        if (rc == SG_E_SANDBOX_NOT_FOUND)
            rc = SG_OK, again = false;
        else if (!rc)
            rc = delete_it(c, d, &s, &again, e);
        else
            again = false;
        vercel_sandbox_clear(&s);
    }
    return rc;
}

enum sg_code control_destroy_if(struct control *c, struct control_destroy *d, struct sg_error *e)
{
    struct sg_error own;
    struct name_lock lock;
    if (!e)
        e = &own;
    sg_error_clear(e);
    d->found = false;
    d->session_id[0] = '\0';
    if (control_name_for_lookup(d->name, NULL))
        return SG_OK; /* cannot exist */
    enum sg_code rc = control_name_lock(c, d->name, LOCK_PATIENCE_MS, &lock, e);
    if (rc)
        return rc;
    rc = destroy(c, d, e);
    control_name_unlock(&lock);
    session_cache_forget(c->sessions, d->name);
    if (!rc)
        sg_error_clear(e);
    return rc;
}

enum sg_code control_destroy(struct control *c, const char *name, char session_id[CONTROL_SESSION_TEXT],
                             struct sg_error *e)
{
    struct control_destroy d = {.name = name};
    enum sg_code rc = control_destroy_if(c, &d, e);
    (void)snprintf(session_id, CONTROL_SESSION_TEXT, "%s", d.session_id);
    return rc;
}
