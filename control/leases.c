#include "control/leases.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "control/control.h"
#include "control/keepalive.h"
#include "control/names.h"
#include "control/tags.h"
#include "store/locks.h"
#include "store/sandboxes.h"
#include "store/store.h"
#include "vercel/snapshots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    EVERY_MS = 1000,
    BATCH = 50,
    SEEN_MS = 60 * 1000, /* so long it is believed that the name is still this allocation */
    TIMEOUT_MIN_MS = 5 * 60 * 1000,
    TIMEOUT_MAX_MS = 45 * 60 * 1000, /* what every plan allows */
    ADOPT_PATIENCE_MS = 10 * 1000,
    UPSTREAM_TAGS_MAX = 5,
};

struct leases {
    struct control *c;
    struct job *job;
    int64_t grace_ms;
    int64_t usable_since_ms; /* monotonic: since then clients can renew; 0: they cannot */
};

enum sg_code lease_check(const json_t *lease, const char *base, int64_t *ttl_ms, struct sg_error *e)
{
    static const char *const fields[] = {"ttl_ms", NULL};
    char pointer[128];
    *ttl_ms = 0;
    enum sg_code rc = sg_json_only(lease, base, fields, e);
    if (!rc)
        rc = sg_json_int(lease, base, "ttl_ms", LEASE_TTL_MIN_MS, LEASE_TTL_MAX_MS, ttl_ms, e);
    if (!rc && !*ttl_ms) {
        sg_json_pointer(pointer, sizeof pointer, base, "ttl_ms");
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, pointer, "is needed");
    }
    return rc;
}

int64_t lease_timeout_ms(int64_t ttl_ms)
{
    return ttl_ms < TIMEOUT_MIN_MS ? TIMEOUT_MIN_MS : ttl_ms > TIMEOUT_MAX_MS ? TIMEOUT_MAX_MS : ttl_ms;
}

/* ---- the store's side ---- */

struct call {
    struct control *c;
    const char *name, *alloc;
    int64_t ms, now_ms, n;
    bool yes;
    struct store_lease lease;
    struct store_cleanup cleanup;
};

static enum sg_code in_store(struct control *c, enum store_kind kind, store_fn *fn, struct call *k,
                             struct sg_error *e)
{
    k->c = c;
    if (!c->store)
        return sg_fail(e, SG_E_STORE_UNAVAILABLE, SG_NOT_SENT, "there is no store");
    return store_call(c->store, kind, fn, k, e);
}

static enum sg_code begin_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct call *k = arg;
    return store_lease_begin(db, k->c->upstream, k->name, k->alloc, k->ms, LEASE_CREATE_MS, e);
}

static enum sg_code seen_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    enum sg_code rc = store_now(db, &k->now_ms, e);
    return rc ? rc : store_lease_seen(db, k->c->upstream, k->name, k->alloc, k->ms, &k->lease, &k->yes, e);
}

/* Of a sandbox that is given its tag just now: from now on it is one of ours. */
static enum sg_code adopted_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct call *k = arg;
    struct store_sandbox s = {0};
    (void)snprintf(s.name, sizeof s.name, "%s", k->name);
    (void)snprintf(s.alloc, sizeof s.alloc, "%s", k->alloc);
    enum sg_code rc = store_sandbox_put(db, k->c->upstream, &s, e);
    return rc ? rc : store_sandbox_made(db, k->c->upstream, s.name, s.alloc, e);
}

static enum sg_code hold_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    return store_lease_hold(db, k->c->upstream, k->alloc, k->ms, &k->yes, e);
}

static enum sg_code drop_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct call *k = arg;
    return store_lease_drop(db, k->c->upstream, k->alloc, e);
}

static enum sg_code find_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    return store_lease_find(db, k->c->upstream, k->name, &k->lease, &k->yes, &k->now_ms, e);
}

/* Renews the one of this name where it was looked at lately. */
static enum sg_code renew_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    enum sg_code rc = find_fn(db, arg, e);
    if (rc || !k->yes)
        return rc;
    k->yes = k->lease.seen_at_ms > k->now_ms - SEEN_MS;
    if (!k->yes)
        return SG_OK;
    k->lease.ttl_ms = k->ms;
    k->lease.expires_at_ms = k->now_ms + k->ms;
    return store_lease_renew(db, k->c->upstream, k->lease.alloc, k->ms, &k->yes, e);
}

static enum sg_code release_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    enum sg_code rc = find_fn(db, arg, e);
    if (rc || !k->yes)
        return rc;
    return store_lease_release(db, k->c->upstream, k->lease.alloc, "its lease was released", &k->cleanup,
                               &k->yes, e);
}

/* ---- inside of create ---- */

enum sg_code lease_begin(struct control *c, const char *name, const char *alloc, int64_t ttl_ms,
                         struct sg_error *e)
{
    struct call k = {.name = name ? name : "", .alloc = alloc, .ms = ttl_ms};
    return in_store(c, STORE_DURABLE, begin_fn, &k, e);
}

static enum sg_code ran_out(struct sg_error *e)
{
    return sg_fail(e, SG_E_LEASE_NOT_FOUND, SG_NOT_STARTED,
                   "the lease ran out or was released: the sandbox is being destroyed");
}

enum sg_code lease_seen(struct control *c, const char *name, const char *alloc, int64_t ttl_ms,
                        struct sg_error *e)
{
    struct call k = {.name = name, .alloc = alloc, .ms = ttl_ms};
    enum sg_code rc = in_store(c, STORE_DURABLE, seen_fn, &k, e);
    return rc || k.yes ? rc : ran_out(e);
}

enum sg_code lease_hold(struct control *c, const char *alloc, int64_t for_ms, struct sg_error *e)
{
    struct call k = {.alloc = alloc, .ms = for_ms};
    enum sg_code rc = in_store(c, STORE_WRITE, hold_fn, &k, e);
    return rc || k.yes ? rc : ran_out(e);
}

enum sg_code lease_drop(struct control *c, const char *alloc, struct sg_error *e)
{
    struct call k = {.alloc = alloc};
    return in_store(c, STORE_WRITE, drop_fn, &k, e);
}

/* ---- which allocation a name is ---- */

/* Its tags and the allocation's. */
static json_t *tags_with(const struct vercel_sandbox *s, const char *alloc, struct sg_error *e)
{
    json_t *tags = json_object();
    uint32_t n = s->tags ? s->tags->len : 0;
    const struct sg_jnode *key = s->tags ? s->tags + 1 : NULL;
    bool bad = !tags;
    for (uint32_t i = 0; i < n && !bad; i++) {
        const struct sg_jnode *value = key + 1;
        if (value->type == SG_JSTRING)
            bad = json_object_set_new(tags, key->u.text, json_string(value->u.text)) != 0;
        key = value + value->span;
    }
    if (bad || control_tags_add(tags, NULL, alloc, NULL)) {
        json_decref(tags);
        (void)sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
        return NULL;
    }
    if (json_object_size(tags) <= UPSTREAM_TAGS_MAX)
        return tags;
    json_decref(tags);
    (void)sg_fail(e, SG_E_UNSUPPORTED, SG_NOT_SENT,
                  "a lease needs one of the %d tags of a sandbox; all of them are taken", UPSTREAM_TAGS_MAX);
    return NULL;
}

static enum sg_code adopt_locked(struct control *c, const char *name, char alloc[CONTROL_ALLOC_TEXT],
                                 struct sg_error *e)
{
    struct vercel_sandbox s, after;
    enum sg_code rc = vercel_get(c->vercel, name, false, &s, e);
    if (rc)
        return rc;
    const char *has = control_tag_of(&s, CONTROL_TAG_ALLOC);
    if (has) { /* another request was faster */
        (void)snprintf(alloc, CONTROL_ALLOC_TEXT, "%s", has);
        vercel_sandbox_clear(&s);
        return SG_OK;
    }
    struct call k = {.name = name, .alloc = alloc};
    rc = control_alloc(c, NULL, alloc, e);
    if (!rc) /* first: what has our tag and is not known would be pruned */
        rc = in_store(c, STORE_DURABLE, adopted_fn, &k, e);
    json_t *tags = rc ? NULL : tags_with(&s, alloc, e);
    json_t *body = tags ? json_pack("{so}", "tags", tags) : NULL;
    vercel_sandbox_clear(&s);
    if (!tags)
        return e->code;
    if (!body)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
    rc = vercel_update(c->vercel, name, body, &after, e);
    json_decref(body);
    if (!rc)
        vercel_sandbox_clear(&after); /* which tells no session */
    return rc;
}

/* Gives a sandbox that was created elsewhere an allocation tag. */
static enum sg_code adopt(struct control *c, const char *name, char alloc[CONTROL_ALLOC_TEXT],
                          struct sg_error *e)
{
    struct name_lock lock = {0};
    enum sg_code rc = control_name_lock(c, name, ADOPT_PATIENCE_MS, &lock, e);
    if (rc)
        return rc;
    rc = adopt_locked(c, name, alloc, e);
    control_name_unlock(&lock);
    return rc;
}

static enum sg_code look(struct control *c, const char *name, char alloc[CONTROL_ALLOC_TEXT],
                         struct sg_error *e)
{
    struct vercel_sandbox s;
    enum sg_code rc = vercel_get(c->vercel, name, false, &s, e);
    if (rc)
        return rc;
    control_observe(c, &s);
    const char *has = control_tag_of(&s, CONTROL_TAG_ALLOC);
    (void)snprintf(alloc, CONTROL_ALLOC_TEXT, "%s", has ? has : "");
    vercel_sandbox_clear(&s);
    return *alloc ? SG_OK : adopt(c, name, alloc, e);
}

/* ---- of a sandbox that is there ---- */

static void tell(struct lease_state *out, const struct store_lease *l, int64_t now_ms)
{
    int64_t left = l->expires_at_ms - now_ms;
    *out = (struct lease_state){
        .ttl_ms = l->ttl_ms, .left_ms = left > 0 ? left : 0, .expires_at_ms = l->expires_at_ms};
}

enum sg_code lease_renew(struct control *c, const char *name, int64_t ttl_ms, struct lease_state *out,
                         struct sg_error *e)
{
    char alloc[CONTROL_ALLOC_TEXT];
    struct call k = {.name = name, .ms = ttl_ms};
    enum sg_code rc = control_name_for_lookup(name, e);
    if (!rc)
        rc = in_store(c, STORE_DURABLE, renew_fn, &k, e);
    if (!rc && !k.yes) {
        rc = look(c, name, alloc, e);
        k.alloc = alloc;
        if (!rc)
            rc = in_store(c, STORE_DURABLE, seen_fn, &k, e);
        if (!rc && !k.yes)
            rc = ran_out(e);
    }
    if (rc)
        return rc;
    tell(out, &k.lease, k.now_ms);
    keepalive_until(c, name, sg_wall_ms() + out->left_ms);
    return SG_OK;
}

enum sg_code lease_get(struct control *c, const char *name, struct lease_state *out, struct sg_error *e)
{
    struct call k = {.name = name};
    enum sg_code rc = in_store(c, STORE_READ, find_fn, &k, e);
    if (!rc && !k.yes)
        rc = sg_fail(e, SG_E_LEASE_NOT_FOUND, SG_NOT_SENT, "the sandbox has no lease");
    if (!rc)
        tell(out, &k.lease, k.now_ms);
    return rc;
}

enum sg_code lease_release(struct control *c, const char *name, bool *gone, struct sg_error *e)
{
    struct call k = {.name = name};
    struct sg_error own;
    *gone = false;
    enum sg_code rc = in_store(c, STORE_DURABLE, release_fn, &k, e);
    if (rc || !k.yes)
        return rc ? rc : sg_fail(e, SG_E_LEASE_NOT_FOUND, SG_NOT_SENT, "the sandbox has no lease");
    cleanup_try(c, &k.cleanup, gone, &own);
    if (!*gone)
        cleanups_kick(c);
    return SG_OK;
}

/* ---- the job ---- */

static enum sg_code due_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    return store_lease_due(db, k->c->upstream, &k->yes, e);
}

static enum sg_code expire_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    return store_lease_expire(db, k->c->upstream, BATCH, CLEANUP_LOST_MS, &k->n, e);
}

/* False: none ran out, or it cannot be said. */
static bool due(struct leases *l)
{
    struct sg_error e;
    struct call k = {0};
    int64_t now = sg_mono_ms();
    if (in_store(l->c, STORE_READ, due_fn, &k, &e)) {
        l->usable_since_ms = 0;
        return false;
    }
    if (!l->usable_since_ms)
        l->usable_since_ms = now;
    return k.yes && now - l->usable_since_ms >= l->grace_ms;
}

static void run_job(void *arg)
{
    struct leases *l = arg;
    struct sg_error e;
    struct call k = {.n = BATCH};
    if (!due(l))
        return;
    while (k.n == BATCH && !jobs_stopping(l->c->jobs)) {
        if (in_store(l->c, STORE_DURABLE, expire_fn, &k, &e)) {
            sg_log(SG_LOG_WARN, "leases that ran out not taken", "error", "e", &e, NULL);
            return;
        }
        if (k.n)
            sg_log(SG_LOG_INFO, "leases ran out", "count", "i", k.n, NULL);
    }
    cleanups_kick(l->c);
}

bool leases_start(struct control *c, int64_t grace_ms)
{
    struct leases *l = calloc(1, sizeof *l);
    if (!l)
        return false;
    *l = (struct leases){.c = c, .grace_ms = grace_ms};
    c->leases = l;
    l->job = job_add(c->jobs, "leases", EVERY_MS, run_job, l);
    return l->job != NULL;
}

void leases_free(struct control *c)
{
    free(c->leases);
    c->leases = NULL;
}
