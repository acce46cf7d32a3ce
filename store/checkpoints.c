#include "store/checkpoints.h"

#include "store/db.h"
#include "store/locks.h"

#include <stdio.h>

#define COLUMNS                                                                                              \
    "name, snapshot_id, sandbox, sandbox_created_at, owner, region, architecture, image, runtime, size,"     \
    " created_at, made, gone, is_default"

static void take_text(char *to, size_t cap, const struct db_value *v)
{
    (void)snprintf(to, cap, "%s", db_get_text(v));
}

static void take_row(struct store_checkpoint *out, const struct db_value *c)
{
    *out = (struct store_checkpoint){
        .sandbox_created_ms = db_get_int(&c[3]),
        .size_bytes = db_get_int(&c[9]),
        .created_at_ms = db_get_int(&c[10]),
        .made = db_get_int(&c[11]) != 0,
        .gone = db_get_int(&c[12]) != 0,
        .is_default = db_get_int(&c[13]) != 0,
    };
    take_text(out->name, sizeof out->name, &c[0]);
    take_text(out->snapshot_id, sizeof out->snapshot_id, &c[1]);
    take_text(out->sandbox, sizeof out->sandbox, &c[2]);
    take_text(out->owner, sizeof out->owner, &c[4]);
    take_text(out->region, sizeof out->region, &c[5]);
    take_text(out->architecture, sizeof out->architecture, &c[6]);
    take_text(out->image, sizeof out->image, &c[7]);
    take_text(out->runtime, sizeof out->runtime, &c[8]);
}

struct found {
    struct store_checkpoint *out;
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

enum sg_code store_checkpoint_get(struct store_db *db, const char *upstream, const char *name,
                                  struct store_checkpoint *out, bool *found, struct sg_error *e)
{
    struct found f = {out, found};
    const struct db_value v[] = {db_text(upstream), db_text(name ? name : "")};
    *found = false;
    *out = (struct store_checkpoint){0};
    return name ? db_run(db, "SELECT " COLUMNS " FROM checkpoints WHERE upstream = $1 AND name = $2", v, 2,
                         on_row, &f, NULL, e)
                : db_run(db, "SELECT " COLUMNS " FROM checkpoints WHERE upstream = $1 AND is_default = 1", v,
                         1, on_row, &f, NULL, e);
}

static enum sg_code no_default(struct store_db *db, const char *upstream, struct sg_error *e)
{
    const struct db_value v = db_text(upstream);
    return db_run(db, "UPDATE checkpoints SET is_default = 0 WHERE upstream = $1 AND is_default = 1", &v, 1,
                  NULL, NULL, NULL, e);
}

enum sg_code store_checkpoint_drop(struct store_db *db, const char *upstream, const char *name,
                                   struct store_checkpoint *dropped, bool *found, struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_text(name)};
    enum sg_code rc = store_checkpoint_get(db, upstream, name, dropped, found, e);
    if (rc || !*found)
        return rc;
    rc = db_run(db, "DELETE FROM checkpoints WHERE upstream = $1 AND name = $2", v, 2, NULL, NULL, NULL, e);
    return rc ? rc
              : store_snapshot_name_drop(db, upstream, dropped->snapshot_id, SNAPSHOT_BY_CHECKPOINT, name, e);
}

enum sg_code store_checkpoint_put(struct store_db *db, const char *upstream, const struct store_checkpoint *c,
                                  struct store_checkpoint *replaced, struct sg_error *e)
{
    static const char sql[] = "INSERT INTO checkpoints (upstream, " COLUMNS ") VALUES"
                              " ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 0, $14)";
    bool found = false;
    int64_t now = 0;
    enum sg_code rc = store_checkpoint_drop(db, upstream, c->name, replaced, &found, e);
    if (!rc)
        rc = store_snapshot_name_put(db, upstream, c->snapshot_id, SNAPSHOT_BY_CHECKPOINT, c->name, e);
    if (!rc && c->is_default)
        rc = no_default(db, upstream, e);
    if (!rc)
        rc = store_now(db, &now, e);
    if (rc)
        return rc;
    const struct db_value v[] = {db_text(upstream),
                                 db_text(c->name),
                                 db_text(c->snapshot_id),
                                 db_text(c->sandbox),
                                 db_int(c->sandbox_created_ms),
                                 db_text(c->owner),
                                 db_text(c->region),
                                 db_text(c->architecture),
                                 db_text(c->image),
                                 db_text(c->runtime),
                                 db_int(c->size_bytes),
                                 db_int(now),
                                 db_int(c->made),
                                 db_int(c->is_default || (found && replaced->is_default))};
    return db_run(db, sql, v, 14, NULL, NULL, NULL, e);
}

enum sg_code store_checkpoint_default(struct store_db *db, const char *upstream, const char *name,
                                      bool *found, struct sg_error *e)
{
    struct store_checkpoint row;
    enum sg_code rc = SG_OK;
    *found = true;
    if (name)
        rc = store_checkpoint_get(db, upstream, name, &row, found, e);
    if (!rc && *found)
        rc = no_default(db, upstream, e);
    const struct db_value v[] = {db_text(upstream), db_text(name)};
    if (!rc && *found && name)
        rc = db_run(db, "UPDATE checkpoints SET is_default = 1 WHERE upstream = $1 AND name = $2", v, 2, NULL,
                    NULL, NULL, e);
    return rc;
}

enum sg_code store_checkpoint_gone(struct store_db *db, const char *upstream, const char *name,
                                   const char *snapshot_id, struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_text(name), db_text(snapshot_id)};
    return db_run(db,
                  "UPDATE checkpoints SET gone = 1, is_default = 0"
                  " WHERE upstream = $1 AND name = $2 AND snapshot_id = $3",
                  v, 3, NULL, NULL, NULL, e);
}

struct listing {
    store_checkpoint_fn *fn;
    void *arg;
};

static enum sg_code on_listed(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    const struct listing *l = arg;
    struct store_checkpoint row;
    (void)n;
    (void)e;
    take_row(&row, c);
    l->fn(l->arg, &row);
    return SG_OK;
}

enum sg_code store_checkpoint_list(struct store_db *db, const char *upstream, const char *after,
                                   int64_t limit, store_checkpoint_fn *fn, void *arg, struct sg_error *e)
{
    struct listing l = {fn, arg};
    const struct db_value v[] = {db_text(upstream), db_text(after), db_int(limit)};
    return db_run(db,
                  "SELECT " COLUMNS " FROM checkpoints WHERE upstream = $1 AND name > $2"
                  " ORDER BY name LIMIT $3",
                  v, 3, on_listed, &l, NULL, e);
}
