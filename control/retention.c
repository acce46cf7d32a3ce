#include "control/retention.h"

#include "control/control.h"
#include "control/sweep.h"

#include "store/locks.h"

#include "base/log.h"
#include "vercel/snapshots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 50, PAGES_MAX = 2000 };

enum sg_code control_in_store(struct control *c, enum store_kind kind, store_fn *fn, void *arg,
                              struct sg_error *e)
{
    if (!c->store)
        return sg_fail(e, SG_E_STORE_UNAVAILABLE, SG_NOT_SENT, "there is no store");
    return store_call(c->store, kind, fn, arg, e);
}

/* One call of a row function about a snapshot or a sandbox. */
struct row {
    struct control *c;
    const char *id;
    enum snapshot_name_kind kind;
    unsigned kinds;
    int64_t created_at_ms;
    bool found;
    struct snapshot_name by;
};

enum sg_code control_each_sandbox(struct control *c, control_each_fn *fn, void *arg, struct sg_error *e)
{
    char *cursor = NULL;
    enum sg_code rc = SG_OK;
    bool more = true;
    for (int i = 0; more && !rc; i++) {
        const struct vercel_list_query q = {.limit = PAGE, .cursor = cursor};
        struct vercel_page page;
        if (i == PAGES_MAX)
            rc = sg_fail(e, SG_E_OVERLOADED, SG_NOT_STARTED, "there are too many sandboxes to look at all");
        if (!rc)
            rc = vercel_list(c->vercel, &q, &page, e);
        free(cursor);
        cursor = NULL;
        if (rc)
            break;
        for (size_t k = 0; k < page.n && more; k++)
            more = fn(arg, &page.items[k]);
        if (more && page.next && !(cursor = strdup(page.next)))
            rc = sg_fail(e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for a list of sandboxes");
        more = more && page.next;
        vercel_page_clear(&page);
    }
    free(cursor);
    return rc;
}

/* ---- the guard ---- */

static enum sg_code watch_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct row *r = arg;
    return store_retention_put(db, r->c->upstream, r->id, r->created_at_ms, e);
}

void control_retention_watch(struct control *c, const char *name, int64_t created_at_ms)
{
    struct sg_error e;
    struct row r = {.c = c, .id = name, .created_at_ms = created_at_ms};
    if (control_in_store(c, STORE_WRITE, watch_fn, &r, &e))
        sg_log(SG_LOG_WARN, "superseded snapshots will stay", "sandbox", "s", name, "error", "e", &e, NULL);
}

static bool is_guarded(const struct vercel_sandbox *s)
{
    return s->snapshot_expiration_ms == 0 && s->keep_expiration_ms <= 0 &&
           (s->keep_count < 0 || s->keep_delete_evicted == 0);
}

static json_t *guard_body(const struct vercel_sandbox *s)
{
    json_t *body = json_pack("{sI}", "snapshotExpiration", (json_int_t)0);
    if (body && s->keep_count >= 0 &&
        json_object_set_new(body, "keepLastSnapshots",
                            json_pack("{sIsb}", "count", (json_int_t)s->keep_count, "deleteEvicted", 0))) {
        json_decref(body);
        body = NULL;
    }
    return body;
}

static enum sg_code guard(struct control *c, const struct vercel_sandbox *s, struct sg_error *e)
{
    struct vercel_sandbox after;
    json_t *body = guard_body(s);
    if (!body)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
    enum sg_code rc = vercel_update(c->vercel, s->name, body, &after, e);
    json_decref(body);
    if (rc)
        return rc;
    if (!is_guarded(&after))
        rc = sg_fail(e, SG_E_UPSTREAM_BAD_RESPONSE, SG_FINISHED,
                     "The upstream goes on evicting snapshots of the sandbox although it took the change.");
    vercel_sandbox_clear(&after);
    if (!rc && s->keep_count >= 0 && s->keep_delete_evicted != 0)
        control_retention_watch(c, s->name, s->created_at);
    return rc;
}

enum sg_code control_guard(struct control *c, const char *name, const struct vercel_sandbox *seen,
                           struct sg_error *e)
{
    struct vercel_sandbox own = {0};
    enum sg_code rc = SG_OK;
    if (!seen) {
        rc = vercel_get(c->vercel, name, false, &own, e);
        seen = &own;
    }
    if (!rc && !is_guarded(seen))
        rc = guard(c, seen, e);
    vercel_sandbox_clear(&own);
    return rc;
}

/* ---- given by id ---- */

static enum sg_code name_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct row *r = arg;
    return store_snapshot_name_put(db, r->c->upstream, r->id, r->kind, "", e);
}

static enum sg_code any_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct row *r = arg;
    return store_snapshot_name_any(db, r->c->upstream, r->id, r->kinds, &r->by, &r->found, e);
}

/* The sandbox from whose session it came, where there still is one. */
static enum sg_code guard_source(struct control *c, const char *session_id, struct sg_error *e)
{
    char name[VERCEL_NAME_TEXT];
    enum sg_code rc = vercel_session_owner(c->vercel, session_id, name, e);
    if (!rc && control_name_for_lookup(name, NULL))
        return SG_OK;
    if (!rc)
        rc = control_guard(c, name, NULL, e);
    if (rc == SG_E_SANDBOX_NOT_FOUND) { /* nobody will evict it */
        sg_error_clear(e);
        rc = SG_OK;
    }
    return rc;
}

enum sg_code control_snapshot_give(struct control *c, const char *snapshot_id, struct sg_error *e)
{
    struct sg_error own;
    struct row r = {.c = c, .id = snapshot_id, .kind = SNAPSHOT_BY_ID, .kinds = SNAPSHOT_BY_ID};
    if (!e)
        e = &own;
    enum sg_code rc = control_in_store(c, STORE_READ, any_fn, &r, e);
    if (!rc && r.found)
        return SG_OK;
    if (rc && rc != SG_E_STORE_UNAVAILABLE) /* without the store nothing is swept either */
        return rc;
    struct vercel_snapshot s;
    rc = vercel_snapshot_get(c->vercel, snapshot_id, &s, e);
    if (rc)
        return rc;
    if (s.status == VERCEL_SNAPSHOT_DELETED || s.status == VERCEL_SNAPSHOT_FAILED)
        rc = sg_fail(e, SG_E_SNAPSHOT_GONE, SG_NOT_SENT, "the snapshot %s was deleted or expired",
                     snapshot_id);
    if (!rc && s.source_session_id)
        rc = guard_source(c, s.source_session_id, e);
    vercel_snapshot_clear(&s);
    if (!rc) /* last: who finds the name may rely on the guard */
        rc = control_in_store(c, STORE_WRITE, name_fn, &r, e);
    if (rc == SG_E_STORE_UNAVAILABLE) {
        sg_error_clear(e);
        rc = SG_OK;
    }
    return rc;
}

enum sg_code control_may_evict(struct control *c, const struct vercel_sandbox *s, struct sg_error *e)
{
    struct own_snapshots own;
    enum sg_code rc = control_own_snapshots(c, s->name, &own, e);
    if (rc)
        return rc;
    bool stands_on_own = !s->current_snapshot_id;
    for (size_t i = 0; i < own.n && !rc; i++) {
        struct row r = {.c = c, .id = own.items[i].id, .kinds = SNAPSHOT_BY_ANY};
        stands_on_own = stands_on_own || !strcmp(own.items[i].id, s->current_snapshot_id);
        if (!own.items[i].automatic)
            rc = sg_fail(e, SG_E_SNAPSHOT_IN_USE, SG_NOT_SENT,
                         "the snapshot %s of this sandbox was captured on purpose", r.id);
        if (!rc)
            rc = control_in_store(c, STORE_READ, any_fn, &r, e);
        if (!rc && r.found)
            rc = sg_fail(e, SG_E_SNAPSHOT_IN_USE, SG_NOT_SENT, "the snapshot %s is needed: %s %s", r.id,
                         snapshot_name_kind(r.by.kind), r.by.name);
    }
    if (!rc && (!stands_on_own || !own.whole))
        rc = sg_fail(e, SG_E_SNAPSHOT_IN_USE, SG_NOT_SENT,
                     "others may start from the snapshot that the sandbox stands on");
    own_snapshots_clear(&own);
    return rc;
}

/* ---- released, deleted ---- */

static enum sg_code release_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct row *r = arg;
    struct store_release row = {0};
    (void)snprintf(row.snapshot_id, sizeof row.snapshot_id, "%s", r->id);
    return store_release_put(db, r->c->upstream, &row, e);
}

enum sg_code control_snapshot_release(struct control *c, const char *snapshot_id, struct sg_error *e)
{
    struct row r = {.c = c, .id = snapshot_id};
    enum sg_code rc = control_in_store(c, STORE_DURABLE, release_fn, &r, e);
    if (!rc)
        control_sweep_kick(c);
    return rc;
}

static enum sg_code doom_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct row *r = arg;
    return store_snapshot_doom(db, r->c->upstream, r->id, r->kinds, SNAPSHOT_DOOM_MS, &r->found, &r->by, e);
}

static enum sg_code spare_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct row *r = arg;
    return store_snapshot_spare(db, r->c->upstream, r->id, e);
}

static enum sg_code forget_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct row *r = arg;
    enum sg_code rc = store_snapshot_forget(db, r->c->upstream, r->id, e);
    return rc ? rc : store_release_drop(db, r->c->upstream, r->id, e);
}

struct search {
    const char *id;
    char by[VERCEL_NAME_TEXT];
};

static bool uses(void *arg, const struct vercel_sandbox *s)
{
    struct search *f = arg;
    if (!s->current_snapshot_id || strcmp(s->current_snapshot_id, f->id) != 0)
        return true;
    (void)snprintf(f->by, sizeof f->by, "%s", s->name);
    return false;
}

/* A sandbox that was begun from it just now and is perhaps not listed yet. */
struct young {
    int64_t since_ms;
    struct row *r;
};

static void on_young(void *arg, const struct snapshot_name *n)
{
    struct young *y = arg;
    if (n->kind != SNAPSHOT_BY_SANDBOX || n->made_at_ms < y->since_ms)
        return;
    y->r->found = true;
    y->r->by = *n;
}

static enum sg_code young_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct young y = {.r = arg};
    int64_t now = 0;
    y.r->found = false;
    enum sg_code rc = store_now(db, &now, e);
    y.since_ms = now - SNAPSHOT_YOUNG_MS;
    return rc ? rc : store_snapshot_name_list(db, y.r->c->upstream, y.r->id, on_young, &y, e);
}

static enum sg_code in_use(const char *id, const char *what, const char *name, struct sg_error *e)
{
    return sg_fail(e, SG_E_SNAPSHOT_IN_USE, SG_NOT_STARTED, "the %s %s starts from the snapshot %s", what,
                   name, id);
}

/* Of one that no name keeps: whether a sandbox stands on it. */
static enum sg_code check_sandboxes(struct row *r, struct sg_error *e)
{
    struct search f = {.id = r->id};
    enum sg_code rc = control_each_sandbox(r->c, uses, &f, e);
    if (!rc && *f.by)
        rc = in_use(r->id, "sandbox", f.by, e);
    if (!rc)
        rc = control_in_store(r->c, STORE_READ, young_fn, r, e);
    if (!rc && r->found)
        rc = in_use(r->id, "sandbox", r->by.name, e);
    return rc;
}

static void note(struct row *r, store_fn *fn)
{
    struct sg_error e;
    if (control_in_store(r->c, STORE_WRITE, fn, r, &e))
        sg_log(SG_LOG_WARN, "fate of a snapshot not noted", "snapshot", "s", r->id, "error", "e", &e, NULL);
}

enum sg_code control_snapshot_delete(struct control *c, const char *snapshot_id, struct sg_error *e)
{
    struct sg_error own;
    struct row r = {.c = c, .id = snapshot_id, .kinds = SNAPSHOT_BY_CHECKPOINT | SNAPSHOT_BY_TEMPLATE};
    if (!e)
        e = &own;
    enum sg_code rc = control_in_store(c, STORE_WRITE, doom_fn, &r, e);
    if (!rc && r.found)
        return in_use(snapshot_id, snapshot_name_kind(r.by.kind), r.by.name, e);
    if (rc)
        return rc;
    rc = check_sandboxes(&r, e);
    if (rc) { /* whatever is not known of a look, nothing was deleted */
        e->outcome = e->outcome == SG_NOT_SENT ? SG_NOT_SENT : SG_NOT_STARTED;
        note(&r, spare_fn);
        return rc;
    }
    rc = vercel_snapshot_delete(c->vercel, snapshot_id, e);
    if (!rc || rc == SG_E_SNAPSHOT_NOT_FOUND) {
        sg_error_clear(e);
        note(&r, forget_fn);
        return SG_OK;
    }
    if (e->outcome == SG_NOT_SENT || e->outcome == SG_NOT_STARTED)
        note(&r, spare_fn); /* else it may be gone: nobody is given it until that is over */
    return rc;
}
