#include "store/snapshot_names.h"

#include "store/db.h"
#include "store/locks.h"

#include <stdio.h>

enum { DOOMED = 0 }; /* as a kind: made_at is the end of it */

const char *snapshot_name_kind(enum snapshot_name_kind kind)
{
    switch (kind) {
    case SNAPSHOT_BY_CHECKPOINT:
        return "checkpoint";
    case SNAPSHOT_BY_TEMPLATE:
        return "template";
    case SNAPSHOT_BY_SANDBOX:
        return "sandbox";
    case SNAPSHOT_BY_ID:
    case SNAPSHOT_BY_ANY:
    default:
        return "creation";
    }
}

static enum sg_code on_any(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    (void)c;
    (void)n;
    (void)e;
    *(bool *)arg = true;
    return SG_OK;
}

static enum sg_code put(struct store_db *db, const char *upstream, const char *snapshot_id, int64_t kind,
                        const char *name, int64_t at, struct sg_error *e)
{
    static const char sql[] = "INSERT INTO snapshot_names (upstream, snapshot_id, kind, name, made_at)"
                              " VALUES ($1, $2, $3, $4, $5)"
                              " ON CONFLICT (upstream, snapshot_id, kind, name) DO UPDATE SET made_at = $5";
    const struct db_value v[] = {db_text(upstream), db_text(snapshot_id), db_int(kind), db_text(name),
                                 db_int(at)};
    return db_run(db, sql, v, 5, NULL, NULL, NULL, e);
}

enum sg_code store_snapshot_name_put(struct store_db *db, const char *upstream, const char *snapshot_id,
                                     enum snapshot_name_kind kind, const char *name, struct sg_error *e)
{
    bool doomed = false;
    int64_t now = 0;
    enum sg_code rc = store_now(db, &now, e);
    const struct db_value v[] = {db_text(upstream), db_text(snapshot_id), db_int(DOOMED), db_int(now)};
    if (!rc)
        rc = db_run(db,
                    "SELECT 1 FROM snapshot_names WHERE upstream = $1 AND snapshot_id = $2 AND kind = $3"
                    " AND made_at > $4",
                    v, 4, on_any, &doomed, NULL, e);
    if (!rc && doomed)
        rc =
            sg_fail(e, SG_E_SNAPSHOT_GONE, SG_NOT_SENT, "the snapshot %s is just being deleted", snapshot_id);
    return rc ? rc : put(db, upstream, snapshot_id, kind, name ? name : "", now, e);
}

enum sg_code store_snapshot_name_drop(struct store_db *db, const char *upstream, const char *snapshot_id,
                                      enum snapshot_name_kind kind, const char *name, struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_text(snapshot_id), db_int(kind),
                                 db_text(name ? name : "")};
    return db_run(db,
                  "DELETE FROM snapshot_names WHERE upstream = $1 AND snapshot_id = $2 AND kind = $3"
                  " AND name = $4",
                  v, 4, NULL, NULL, NULL, e);
}

enum sg_code store_snapshot_name_drop_all(struct store_db *db, const char *upstream,
                                          enum snapshot_name_kind kind, const char *name, struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_int(kind), db_text(name)};
    return db_run(db, "DELETE FROM snapshot_names WHERE upstream = $1 AND kind = $2 AND name = $3", v, 3,
                  NULL, NULL, NULL, e);
}

/* ---- reading ---- */

static void take_row(struct snapshot_name *out, const struct db_value *c)
{
    out->kind = (enum snapshot_name_kind)db_get_int(&c[0]);
    out->made_at_ms = db_get_int(&c[2]);
    (void)snprintf(out->name, sizeof out->name, "%s", db_get_text(&c[1]));
}

struct listing {
    store_snapshot_name_fn *fn;
    void *arg;
};

static enum sg_code on_listed(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    const struct listing *l = arg;
    struct snapshot_name row;
    (void)n;
    (void)e;
    take_row(&row, c);
    l->fn(l->arg, &row);
    return SG_OK;
}

enum sg_code store_snapshot_name_list(struct store_db *db, const char *upstream, const char *snapshot_id,
                                      store_snapshot_name_fn *fn, void *arg, struct sg_error *e)
{
    struct listing l = {fn, arg};
    const struct db_value v[] = {db_text(upstream), db_text(snapshot_id), db_int(DOOMED)};
    return db_run(db,
                  "SELECT kind, name, made_at FROM snapshot_names WHERE upstream = $1 AND snapshot_id = $2"
                  " AND kind <> $3 ORDER BY kind, name",
                  v, 3, on_listed, &l, NULL, e);
}

struct search {
    unsigned kinds;
    struct snapshot_name *out;
    bool *found;
};

static void on_name(void *arg, const struct snapshot_name *n)
{
    const struct search *s = arg;
    if (*s->found || !((unsigned)n->kind & s->kinds))
        return;
    *s->found = true;
    *s->out = *n;
}

enum sg_code store_snapshot_name_any(struct store_db *db, const char *upstream, const char *snapshot_id,
                                     unsigned kinds, struct snapshot_name *out, bool *found,
                                     struct sg_error *e)
{
    struct search s = {kinds, out, found};
    *found = false;
    return store_snapshot_name_list(db, upstream, snapshot_id, on_name, &s, e);
}

/* ---- deleting ---- */

enum sg_code store_snapshot_doom(struct store_db *db, const char *upstream, const char *snapshot_id,
                                 unsigned kinds, int64_t ttl_ms, bool *in_use, struct snapshot_name *by,
                                 struct sg_error *e)
{
    int64_t now = 0;
    enum sg_code rc = store_snapshot_name_any(db, upstream, snapshot_id, kinds, by, in_use, e);
    if (rc || *in_use)
        return rc;
    rc = store_now(db, &now, e);
    return rc ? rc : put(db, upstream, snapshot_id, DOOMED, "", now + ttl_ms, e);
}

enum sg_code store_snapshot_spare(struct store_db *db, const char *upstream, const char *snapshot_id,
                                  struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_text(snapshot_id), db_int(DOOMED)};
    return db_run(db, "DELETE FROM snapshot_names WHERE upstream = $1 AND snapshot_id = $2 AND kind = $3", v,
                  3, NULL, NULL, NULL, e);
}

enum sg_code store_snapshot_forget(struct store_db *db, const char *upstream, const char *snapshot_id,
                                   struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_text(snapshot_id), db_int(DOOMED),
                                 db_int(SNAPSHOT_BY_ID), db_int(SNAPSHOT_BY_SANDBOX)};
    return db_run(db,
                  "DELETE FROM snapshot_names WHERE upstream = $1 AND snapshot_id = $2"
                  " AND (kind = $3 OR kind = $4 OR kind = $5)",
                  v, 5, NULL, NULL, NULL, e);
}
