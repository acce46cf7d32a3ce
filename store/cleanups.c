#include "store/cleanups.h"

#include "store/db.h"
#include "store/locks.h"

#include <stdio.h>

#define COLUMNS "kind, target, alloc, why, made_at, next_at, lost_until, tries"

static void take_row(struct store_cleanup *out, const struct db_value *c)
{
    *out = (struct store_cleanup){
        .kind = db_get_int(&c[0]) == CLEANUP_SNAPSHOT ? CLEANUP_SNAPSHOT : CLEANUP_SANDBOX,
        .made_at_ms = db_get_int(&c[4]),
        .next_at_ms = db_get_int(&c[5]),
        .lost_until_ms = db_get_int(&c[6]),
        .tries = db_get_int(&c[7]),
    };
    (void)snprintf(out->target, sizeof out->target, "%s", db_get_text(&c[1]));
    (void)snprintf(out->alloc, sizeof out->alloc, "%s", db_get_text(&c[2]));
    (void)snprintf(out->why, sizeof out->why, "%s", db_get_text(&c[3]));
}

enum sg_code store_cleanup_put(struct store_db *db, const char *upstream, const struct store_cleanup *c,
                               int64_t after_ms, int64_t lost_ms, struct sg_error *e)
{
    static const char sql[] =
        "INSERT INTO cleanups (upstream, " COLUMNS ", claimed_by, claimed_until)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, '', 0)"
        " ON CONFLICT (upstream, kind, target, alloc) DO UPDATE SET"
        " next_at = CASE WHEN excluded.next_at < cleanups.next_at THEN excluded.next_at"
        " ELSE cleanups.next_at END,"
        " lost_until = CASE WHEN excluded.lost_until > cleanups.lost_until THEN excluded.lost_until"
        " ELSE cleanups.lost_until END";
    int64_t now;
    enum sg_code rc = store_now(db, &now, e);
    if (rc)
        return rc;
    const struct db_value v[] = {db_text(upstream),      db_int((int64_t)c->kind),
                                 db_text(c->target),     db_text(c->alloc),
                                 db_text(c->why),        db_int(now),
                                 db_int(now + after_ms), db_int(lost_ms ? now + lost_ms : 0)};
    return db_run(db, sql, v, 8, NULL, NULL, NULL, e);
}

static enum sg_code on_any(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    (void)c;
    (void)n;
    (void)e;
    *(bool *)arg = true;
    return SG_OK;
}

enum sg_code store_cleanup_due(struct store_db *db, const char *upstream, bool *due, struct sg_error *e)
{
    int64_t now;
    enum sg_code rc = store_now(db, &now, e);
    *due = false;
    if (rc)
        return rc;
    const struct db_value v[] = {db_text(upstream), db_int(now)};
    return db_run(db,
                  "SELECT 1 FROM cleanups WHERE upstream = $1 AND next_at <= $2 AND claimed_until < $2"
                  " LIMIT 1",
                  v, 2, on_any, due, NULL, e);
}

struct found {
    struct store_cleanup *out;
    bool *found;
};

static enum sg_code on_row(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    const struct found *f = arg;
    (void)n;
    (void)e;
    take_row(f->out, c);
    *f->found = true;
    return SG_OK;
}

/* `free_before`: claims that end before it are free. */
static enum sg_code claim(struct store_db *db, const char *upstream, const char *owner, int64_t now,
                          int64_t claim_ms, const struct store_cleanup *c, bool *claimed, struct sg_error *e)
{
    static const char sql[] =
        "UPDATE cleanups SET claimed_by = $5, claimed_until = $6 WHERE upstream = $1 AND kind = $2"
        " AND target = $3 AND alloc = $4 AND (claimed_until < $7 OR claimed_by = $5)";
    const struct db_value v[] = {db_text(upstream), db_int((int64_t)c->kind), db_text(c->target),
                                 db_text(c->alloc), db_text(owner),           db_int(now + claim_ms),
                                 db_int(now)};
    int64_t changed = 0;
    enum sg_code rc = db_run(db, sql, v, 7, NULL, NULL, &changed, e);
    *claimed = !rc && changed > 0;
    return rc;
}

enum sg_code store_cleanup_claim(struct store_db *db, const char *upstream, const char *owner,
                                 int64_t claim_ms, struct store_cleanup *out, bool *found, int64_t *now_ms,
                                 struct sg_error *e)
{
    struct found f = {out, found};
    *found = false;
    enum sg_code rc = store_now(db, now_ms, e);
    const struct db_value v[] = {db_text(upstream), db_int(*now_ms)};
    if (!rc)
        rc = db_run(db,
                    "SELECT " COLUMNS " FROM cleanups WHERE upstream = $1 AND next_at <= $2"
                    " AND claimed_until < $2 ORDER BY next_at LIMIT 1",
                    v, 2, on_row, &f, NULL, e);
    if (rc || !*found)
        return rc;
    return claim(db, upstream, owner, *now_ms, claim_ms, out, found, e);
}

enum sg_code store_cleanup_claim_this(struct store_db *db, const char *upstream, const char *owner,
                                      int64_t claim_ms, const struct store_cleanup *which, bool *claimed,
                                      struct sg_error *e)
{
    int64_t now;
    enum sg_code rc = store_now(db, &now, e);
    *claimed = false;
    return rc ? rc : claim(db, upstream, owner, now, claim_ms, which, claimed, e);
}

enum sg_code store_cleanup_renew(struct store_db *db, const char *upstream, const char *owner,
                                 int64_t claim_ms, const struct store_cleanup *which, bool *held,
                                 struct sg_error *e)
{
    static const char sql[] = "UPDATE cleanups SET claimed_until = $6 WHERE upstream = $1 AND kind = $2"
                              " AND target = $3 AND alloc = $4 AND claimed_by = $5";
    int64_t now, changed = 0;
    enum sg_code rc = store_now(db, &now, e);
    *held = false;
    if (rc)
        return rc;
    const struct db_value v[] = {db_text(upstream),      db_int((int64_t)which->kind),
                                 db_text(which->target), db_text(which->alloc),
                                 db_text(owner),         db_int(now + claim_ms)};
    rc = db_run(db, sql, v, 6, NULL, NULL, &changed, e);
    *held = !rc && changed > 0;
    return rc;
}

enum sg_code store_cleanup_drop(struct store_db *db, const char *upstream, const char *owner,
                                const struct store_cleanup *which, struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_int((int64_t)which->kind), db_text(which->target),
                                 db_text(which->alloc), db_text(owner)};
    return owner ? db_run(db,
                          "DELETE FROM cleanups WHERE upstream = $1 AND kind = $2 AND target = $3"
                          " AND alloc = $4 AND claimed_by = $5",
                          v, 5, NULL, NULL, NULL, e)
                 : db_run(db,
                          "DELETE FROM cleanups WHERE upstream = $1 AND kind = $2 AND target = $3"
                          " AND alloc = $4",
                          v, 4, NULL, NULL, NULL, e);
}

enum sg_code store_cleanup_keep(struct store_db *db, const char *upstream, const struct store_cleanup *which,
                                bool *goes, struct sg_error *e)
{
    static const char sql[] = "DELETE FROM cleanups WHERE upstream = $1 AND kind = $2 AND target = $3"
                              " AND alloc = $4 AND tries = 0 AND claimed_until < $5";
    int64_t now;
    *goes = false;
    enum sg_code rc = store_now(db, &now, e);
    if (rc)
        return rc;
    const struct db_value v[] = {db_text(upstream), db_int((int64_t)which->kind), db_text(which->target),
                                 db_text(which->alloc), db_int(now)};
    rc = db_run(db, sql, v, 5, NULL, NULL, NULL, e);
    return rc ? rc : store_cleanup_has(db, upstream, which->alloc, goes, e);
}

enum sg_code store_cleanup_later(struct store_db *db, const char *upstream, const char *owner,
                                 const struct store_cleanup *which, int64_t pause_ms, struct sg_error *e)
{
    static const char sql[] =
        "UPDATE cleanups SET next_at = $6, tries = tries + 1, claimed_by = '', claimed_until = 0"
        " WHERE upstream = $1 AND kind = $2 AND target = $3 AND alloc = $4 AND claimed_by = $5";
    int64_t now;
    enum sg_code rc = store_now(db, &now, e);
    if (rc)
        return rc;
    const struct db_value v[] = {db_text(upstream),      db_int((int64_t)which->kind),
                                 db_text(which->target), db_text(which->alloc),
                                 db_text(owner),         db_int(now + pause_ms)};
    return db_run(db, sql, v, 6, NULL, NULL, NULL, e);
}

enum sg_code store_cleanup_has(struct store_db *db, const char *upstream, const char *alloc, bool *has,
                               struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_text(alloc)};
    *has = false;
    return db_run(db, "SELECT 1 FROM cleanups WHERE upstream = $1 AND alloc = $2 LIMIT 1", v, 2, on_any, has,
                  NULL, e);
}

enum sg_code store_cleanup_goes(struct store_db *db, const char *upstream, const char *alloc, bool *goes,
                                struct sg_error *e)
{
    int64_t now;
    *goes = false;
    enum sg_code rc = store_now(db, &now, e);
    if (rc)
        return rc;
    const struct db_value v[] = {db_text(upstream), db_text(alloc), db_int(now)};
    return db_run(db,
                  "SELECT 1 FROM cleanups WHERE upstream = $1 AND alloc = $2"
                  " AND (tries > 0 OR next_at <= $3 OR claimed_until >= $3) LIMIT 1",
                  v, 3, on_any, goes, NULL, e);
}

struct listing {
    store_cleanup_fn *fn;
    void *arg;
};

static enum sg_code on_listed(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    const struct listing *l = arg;
    struct store_cleanup row;
    (void)n;
    (void)e;
    take_row(&row, c);
    l->fn(l->arg, &row);
    return SG_OK;
}

enum sg_code store_cleanup_list(struct store_db *db, const char *upstream, int64_t limit,
                                store_cleanup_fn *fn, void *arg, struct sg_error *e)
{
    struct listing l = {fn, arg};
    const struct db_value v[] = {db_text(upstream), db_int(limit)};
    return db_run(db,
                  "SELECT " COLUMNS " FROM cleanups WHERE upstream = $1 ORDER BY made_at, target LIMIT $2", v,
                  2, on_listed, &l, NULL, e);
}
