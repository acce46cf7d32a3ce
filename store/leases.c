#include "store/leases.h"

#include "store/db.h"
#include "store/locks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS "sandbox, alloc, ttl_ms, expires_at, seen_at, pending"

static void take_row(struct store_lease *out, const struct db_value *c)
{
    *out = (struct store_lease){
        .ttl_ms = db_get_int(&c[2]),
        .expires_at_ms = db_get_int(&c[3]),
        .seen_at_ms = db_get_int(&c[4]),
        .pending = db_get_int(&c[5]) != 0,
    };
    (void)snprintf(out->sandbox, sizeof out->sandbox, "%s", db_get_text(&c[0]));
    (void)snprintf(out->alloc, sizeof out->alloc, "%s", db_get_text(&c[1]));
}

struct one {
    struct store_lease *out;
    bool *found;
};

static enum sg_code on_one(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    const struct one *o = arg;
    (void)n;
    (void)e;
    take_row(o->out, c);
    *o->found = true;
    return SG_OK;
}

static enum sg_code get(struct store_db *db, const char *upstream, const char *alloc, struct store_lease *out,
                        bool *found, struct sg_error *e)
{
    struct one o = {out, found};
    const struct db_value v[] = {db_text(upstream), db_text(alloc)};
    *found = false;
    return db_run(db, "SELECT " COLUMNS " FROM leases WHERE upstream = $1 AND alloc = $2", v, 2, on_one, &o,
                  NULL, e);
}

/* ---- making and renewing ---- */

enum sg_code store_lease_begin(struct store_db *db, const char *upstream, const char *sandbox,
                               const char *alloc, int64_t ttl_ms, int64_t for_ms, struct sg_error *e)
{
    /* Once more of the same request: what is known by now stays. */
    static const char sql[] = "INSERT INTO leases (upstream, " COLUMNS ") VALUES ($1, $2, $3, $4, $5, 0, 1)"
                              " ON CONFLICT (upstream, alloc) DO UPDATE SET expires_at = CASE"
                              " WHEN excluded.expires_at > leases.expires_at THEN excluded.expires_at"
                              " ELSE leases.expires_at END";
    int64_t now;
    enum sg_code rc = store_now(db, &now, e);
    if (rc)
        return rc;
    const struct db_value v[] = {db_text(upstream), db_text(sandbox), db_text(alloc), db_int(ttl_ms),
                                 db_int(now + for_ms)};
    return db_run(db, sql, v, 5, NULL, NULL, NULL, e);
}

enum sg_code store_lease_seen(struct store_db *db, const char *upstream, const char *sandbox,
                              const char *alloc, int64_t ttl_ms, struct store_lease *out, bool *made,
                              struct sg_error *e)
{
    static const char sql[] = "INSERT INTO leases (upstream, " COLUMNS ") VALUES ($1, $2, $3, $4, $5, $6, 0)"
                              " ON CONFLICT (upstream, alloc) DO UPDATE SET sandbox = excluded.sandbox,"
                              " ttl_ms = excluded.ttl_ms, expires_at = excluded.expires_at,"
                              " seen_at = excluded.seen_at, pending = 0";
    int64_t now;
    bool goes = false;
    *made = false;
    enum sg_code rc = store_now(db, &now, e);
    if (!rc)
        rc = store_cleanup_goes(db, upstream, alloc, &goes, e);
    if (rc || goes)
        return rc;
    const struct db_value v[] = {db_text(upstream), db_text(sandbox),     db_text(alloc),
                                 db_int(ttl_ms),    db_int(now + ttl_ms), db_int(now)};
    *made = true;
    rc = db_run(db, sql, v, 6, NULL, NULL, NULL, e);
    return rc ? rc : get(db, upstream, alloc, out, made, e);
}

enum sg_code store_lease_renew(struct store_db *db, const char *upstream, const char *alloc, int64_t ttl_ms,
                               bool *found, struct sg_error *e)
{
    int64_t now, changed = 0;
    *found = false;
    enum sg_code rc = store_now(db, &now, e);
    if (rc)
        return rc;
    const struct db_value v[] = {db_text(upstream), db_text(alloc), db_int(ttl_ms), db_int(now + ttl_ms)};
    rc = db_run(db, "UPDATE leases SET ttl_ms = $3, expires_at = $4 WHERE upstream = $1 AND alloc = $2", v, 4,
                NULL, NULL, &changed, e);
    *found = !rc && changed > 0;
    return rc;
}

enum sg_code store_lease_hold(struct store_db *db, const char *upstream, const char *alloc, int64_t for_ms,
                              bool *found, struct sg_error *e)
{
    int64_t now, changed = 0;
    *found = false;
    enum sg_code rc = store_now(db, &now, e);
    if (rc)
        return rc;
    const struct db_value v[] = {db_text(upstream), db_text(alloc), db_int(now + for_ms)};
    rc = db_run(db,
                "UPDATE leases SET expires_at = CASE WHEN expires_at < $3 THEN $3 ELSE expires_at END"
                " WHERE upstream = $1 AND alloc = $2",
                v, 3, NULL, NULL, &changed, e);
    *found = !rc && changed > 0;
    return rc;
}

/* ---- looking ---- */

enum sg_code store_lease_find(struct store_db *db, const char *upstream, const char *sandbox,
                              struct store_lease *out, bool *found, int64_t *now_ms, struct sg_error *e)
{
    struct one o = {out, found};
    const struct db_value v[] = {db_text(upstream), db_text(sandbox)};
    *found = false;
    enum sg_code rc = store_now(db, now_ms, e);
    return rc ? rc
              : db_run(db,
                       "SELECT " COLUMNS " FROM leases WHERE upstream = $1 AND sandbox = $2 AND pending = 0"
                       " ORDER BY seen_at DESC LIMIT 1",
                       v, 2, on_one, &o, NULL, e);
}

enum sg_code store_lease_has(struct store_db *db, const char *upstream, const char *alloc, bool *has,
                             struct sg_error *e)
{
    struct store_lease l;
    return get(db, upstream, alloc, &l, has, e);
}

struct listing {
    store_lease_fn *fn;
    void *arg;
};

static enum sg_code on_listed(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    const struct listing *l = arg;
    struct store_lease row;
    (void)n;
    (void)e;
    take_row(&row, c);
    l->fn(l->arg, &row);
    return SG_OK;
}

enum sg_code store_lease_list(struct store_db *db, const char *upstream, const char *after, int64_t limit,
                              store_lease_fn *fn, void *arg, struct sg_error *e)
{
    struct listing l = {fn, arg};
    const struct db_value v[] = {db_text(upstream), db_text(after), db_int(limit)};
    return db_run(db,
                  "SELECT " COLUMNS " FROM leases WHERE upstream = $1 AND alloc > $2"
                  " ORDER BY alloc LIMIT $3",
                  v, 3, on_listed, &l, NULL, e);
}

/* ---- their end ---- */

enum sg_code store_lease_drop(struct store_db *db, const char *upstream, const char *alloc,
                              struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_text(alloc)};
    return db_run(db, "DELETE FROM leases WHERE upstream = $1 AND alloc = $2", v, 2, NULL, NULL, NULL, e);
}

static enum sg_code hand_over(struct store_db *db, const char *upstream, const struct store_lease *l,
                              const char *why, int64_t lost_ms, struct store_cleanup *out, struct sg_error *e)
{
    *out = (struct store_cleanup){.kind = CLEANUP_SANDBOX};
    (void)snprintf(out->target, sizeof out->target, "%s", l->sandbox);
    (void)snprintf(out->alloc, sizeof out->alloc, "%s", l->alloc);
    (void)snprintf(out->why, sizeof out->why, "%s", why);
    enum sg_code rc = store_cleanup_put(db, upstream, out, 0, lost_ms, e);
    return rc ? rc : store_lease_drop(db, upstream, l->alloc, e);
}

enum sg_code store_lease_release(struct store_db *db, const char *upstream, const char *alloc,
                                 const char *why, struct store_cleanup *out, bool *found, struct sg_error *e)
{
    struct store_lease l;
    enum sg_code rc = get(db, upstream, alloc, &l, found, e);
    return rc || !*found ? rc : hand_over(db, upstream, &l, why, 0, out, e);
}

static enum sg_code on_any(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    (void)c;
    (void)n;
    (void)e;
    *(bool *)arg = true;
    return SG_OK;
}

enum sg_code store_lease_due(struct store_db *db, const char *upstream, bool *due, struct sg_error *e)
{
    int64_t now;
    *due = false;
    enum sg_code rc = store_now(db, &now, e);
    if (rc)
        return rc;
    const struct db_value v[] = {db_text(upstream), db_int(now)};
    return db_run(db, "SELECT 1 FROM leases WHERE upstream = $1 AND expires_at <= $2 LIMIT 1", v, 2, on_any,
                  due, NULL, e);
}

struct batch {
    struct store_lease *rows;
    int64_t n, max;
};

static enum sg_code on_batch(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    struct batch *b = arg;
    (void)n;
    (void)e;
    if (b->n < b->max)
        take_row(&b->rows[b->n++], c);
    return SG_OK;
}

enum sg_code store_lease_expire(struct store_db *db, const char *upstream, int64_t limit, int64_t lost_ms,
                                int64_t *n, struct sg_error *e)
{
    struct batch b = {.rows = calloc((size_t)limit, sizeof *b.rows), .max = limit};
    int64_t now = 0;
    *n = 0;
    if (!b.rows)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for leases");
    enum sg_code rc = store_now(db, &now, e);
    const struct db_value v[] = {db_text(upstream), db_int(now), db_int(limit)};
    if (!rc)
        rc = db_run(db,
                    "SELECT " COLUMNS " FROM leases WHERE upstream = $1 AND expires_at <= $2"
                    " ORDER BY expires_at LIMIT $3",
                    v, 3, on_batch, &b, NULL, e);
    for (int64_t i = 0; i < b.n && !rc; i++) {
        struct store_cleanup made;
        const struct store_lease *l = &b.rows[i];
        rc = hand_over(db, upstream, l, l->pending ? "its creation was not completed" : "its lease ran out",
                       l->pending ? lost_ms : 0, &made, e);
    }
    *n = rc ? 0 : b.n;
    free(b.rows);
    return rc;
}
