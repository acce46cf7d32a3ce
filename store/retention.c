#include "store/retention.h"

#include "store/db.h"
#include "store/locks.h"

#include <stdio.h>

enum sg_code store_retention_put(struct store_db *db, const char *upstream, const char *sandbox,
                                 int64_t created_at_ms, struct sg_error *e)
{
    static const char sql[] =
        "INSERT INTO retention (upstream, sandbox, created_at, swept) VALUES ($1, $2, $3, '')"
        " ON CONFLICT (upstream, sandbox) DO UPDATE SET created_at = excluded.created_at, swept = ''"
        " WHERE retention.created_at <> excluded.created_at";
    const struct db_value v[] = {db_text(upstream), db_text(sandbox), db_int(created_at_ms)};
    return db_run(db, sql, v, 3, NULL, NULL, NULL, e);
}

enum sg_code store_retention_swept(struct store_db *db, const char *upstream, const struct store_retention *r,
                                   struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_text(r->sandbox), db_int(r->created_at_ms),
                                 db_text(r->swept)};
    return db_run(db,
                  "UPDATE retention SET swept = $4 WHERE upstream = $1 AND sandbox = $2 AND created_at = $3",
                  v, 4, NULL, NULL, NULL, e);
}

enum sg_code store_retention_again(struct store_db *db, const char *upstream, const char *sandbox,
                                   struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_text(sandbox)};
    return db_run(db, "UPDATE retention SET swept = '' WHERE upstream = $1 AND sandbox = $2", v, 2, NULL,
                  NULL, NULL, e);
}

enum sg_code store_retention_drop(struct store_db *db, const char *upstream, const char *sandbox,
                                  int64_t created_at_ms, struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_text(sandbox), db_int(created_at_ms)};
    return db_run(db,
                  "DELETE FROM retention WHERE upstream = $1 AND sandbox = $2"
                  " AND (created_at = $3 OR $3 = -1)",
                  v, 3, NULL, NULL, NULL, e);
}

struct retentions {
    store_retention_fn *fn;
    void *arg;
};

static enum sg_code on_retention(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    const struct retentions *l = arg;
    struct store_retention r = {.created_at_ms = db_get_int(&c[1])};
    (void)n;
    (void)e;
    (void)snprintf(r.sandbox, sizeof r.sandbox, "%s", db_get_text(&c[0]));
    (void)snprintf(r.swept, sizeof r.swept, "%s", db_get_text(&c[2]));
    l->fn(l->arg, &r);
    return SG_OK;
}

enum sg_code store_retention_list(struct store_db *db, const char *upstream, const char *after, int64_t limit,
                                  store_retention_fn *fn, void *arg, struct sg_error *e)
{
    struct retentions l = {fn, arg};
    const struct db_value v[] = {db_text(upstream), db_text(after), db_int(limit)};
    return db_run(db,
                  "SELECT sandbox, created_at, swept FROM retention WHERE upstream = $1 AND sandbox > $2"
                  " ORDER BY sandbox LIMIT $3",
                  v, 3, on_retention, &l, NULL, e);
}

/* ---- releases ---- */

enum sg_code store_release_put(struct store_db *db, const char *upstream, const struct store_release *r,
                               struct sg_error *e)
{
    static const char sql[] =
        "INSERT INTO snapshot_releases (upstream, snapshot_id, sandbox, created_at, next_at, tries)"
        " VALUES ($1, $2, $3, $4, $5, 0)"
        " ON CONFLICT (upstream, snapshot_id) DO UPDATE SET next_at = excluded.next_at, tries = 0,"
        " sandbox = CASE WHEN snapshot_releases.sandbox = '' THEN '' ELSE excluded.sandbox END,"
        " created_at = excluded.created_at";
    int64_t now = 0;
    enum sg_code rc = store_now(db, &now, e);
    const struct db_value v[] = {db_text(upstream), db_text(r->snapshot_id), db_text(r->sandbox),
                                 db_int(r->created_at_ms), db_int(now)};
    return rc ? rc : db_run(db, sql, v, 5, NULL, NULL, NULL, e);
}

enum sg_code store_release_later(struct store_db *db, const char *upstream, const char *snapshot_id,
                                 int64_t pause_ms, struct sg_error *e)
{
    int64_t now = 0;
    enum sg_code rc = store_now(db, &now, e);
    const struct db_value v[] = {db_text(upstream), db_text(snapshot_id), db_int(now + pause_ms)};
    return rc ? rc
              : db_run(db,
                       "UPDATE snapshot_releases SET next_at = $3, tries = tries + 1"
                       " WHERE upstream = $1 AND snapshot_id = $2",
                       v, 3, NULL, NULL, NULL, e);
}

enum sg_code store_release_drop(struct store_db *db, const char *upstream, const char *snapshot_id,
                                struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_text(snapshot_id)};
    return db_run(db, "DELETE FROM snapshot_releases WHERE upstream = $1 AND snapshot_id = $2", v, 2, NULL,
                  NULL, NULL, e);
}

struct releases {
    store_release_fn *fn;
    void *arg;
};

static enum sg_code on_release(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    const struct releases *l = arg;
    struct store_release r = {.created_at_ms = db_get_int(&c[2]), .tries = db_get_int(&c[3])};
    (void)n;
    (void)e;
    (void)snprintf(r.snapshot_id, sizeof r.snapshot_id, "%s", db_get_text(&c[0]));
    (void)snprintf(r.sandbox, sizeof r.sandbox, "%s", db_get_text(&c[1]));
    l->fn(l->arg, &r);
    return SG_OK;
}

enum sg_code store_release_due(struct store_db *db, const char *upstream, int64_t limit, store_release_fn *fn,
                               void *arg, struct sg_error *e)
{
    struct releases l = {fn, arg};
    int64_t now = 0;
    enum sg_code rc = store_now(db, &now, e);
    const struct db_value v[] = {db_text(upstream), db_int(now), db_int(limit)};
    return rc ? rc
              : db_run(db,
                       "SELECT snapshot_id, sandbox, created_at, tries FROM snapshot_releases"
                       " WHERE upstream = $1 AND next_at <= $2 ORDER BY next_at LIMIT $3",
                       v, 3, on_release, &l, NULL, e);
}

/* ---- captures ---- */

enum sg_code store_capture_put(struct store_db *db, const char *upstream, const struct store_capture *k,
                               int64_t ttl_ms, struct sg_error *e)
{
    static const char sql[] = "INSERT INTO captures (upstream, session_id, sandbox, due_at)"
                              " VALUES ($1, $2, $3, $4)"
                              " ON CONFLICT (upstream, session_id) DO UPDATE SET due_at = excluded.due_at";
    int64_t now = 0;
    enum sg_code rc = store_now(db, &now, e);
    const struct db_value v[] = {db_text(upstream), db_text(k->session_id), db_text(k->sandbox),
                                 db_int(now + ttl_ms)};
    return rc ? rc : db_run(db, sql, v, 4, NULL, NULL, NULL, e);
}

enum sg_code store_capture_drop(struct store_db *db, const char *upstream, const char *session_id, bool *had,
                                struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_text(session_id)};
    int64_t changed = 0;
    enum sg_code rc = db_run(db, "DELETE FROM captures WHERE upstream = $1 AND session_id = $2", v, 2, NULL,
                             NULL, &changed, e);
    *had = !rc && changed > 0;
    return rc;
}

struct captures {
    store_capture_fn *fn;
    void *arg;
};

static enum sg_code on_capture(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    const struct captures *l = arg;
    struct store_capture k = {0};
    (void)n;
    (void)e;
    (void)snprintf(k.session_id, sizeof k.session_id, "%s", db_get_text(&c[0]));
    (void)snprintf(k.sandbox, sizeof k.sandbox, "%s", db_get_text(&c[1]));
    l->fn(l->arg, &k);
    return SG_OK;
}

enum sg_code store_capture_due(struct store_db *db, const char *upstream, int64_t limit, store_capture_fn *fn,
                               void *arg, struct sg_error *e)
{
    struct captures l = {fn, arg};
    int64_t now = 0;
    enum sg_code rc = store_now(db, &now, e);
    const struct db_value v[] = {db_text(upstream), db_int(now), db_int(limit)};
    return rc ? rc
              : db_run(db,
                       "SELECT session_id, sandbox FROM captures WHERE upstream = $1 AND due_at <= $2"
                       " ORDER BY due_at LIMIT $3",
                       v, 3, on_capture, &l, NULL, e);
}
