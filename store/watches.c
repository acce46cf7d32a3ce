#include "store/watches.h"

#include "store/db.h"

enum sg_code store_watch_put(struct store_db *db, const struct store_watch *w, int64_t now_ms,
                             struct sg_error *e)
{
    static const char sql[] =
        "INSERT INTO session_watch (session_id, upstream, sandbox, cwd, arch, deadline, made_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7)"
        " ON CONFLICT (session_id) DO UPDATE SET deadline = excluded.deadline WHERE excluded.deadline > 0";
    const struct db_value v[] = {db_text(w->session_id), db_text(w->upstream), db_text(w->sandbox),
                                 db_text(w->cwd),        db_text(w->arch),     db_int(w->deadline_ms),
                                 db_int(now_ms)};
    return db_run(db, sql, v, 7, NULL, NULL, NULL, e);
}

enum sg_code store_watch_drop(struct store_db *db, const char *session_id, struct sg_error *e)
{
    const struct db_value v = db_text(session_id);
    return db_run(db, "DELETE FROM session_watch WHERE session_id = $1", &v, 1, NULL, NULL, NULL, e);
}

static enum sg_code on_has(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    (void)c;
    (void)n;
    (void)e;
    *(bool *)arg = true;
    return SG_OK;
}

enum sg_code store_watch_has(struct store_db *db, const char *session_id, bool *has, struct sg_error *e)
{
    const struct db_value v = db_text(session_id);
    *has = false;
    return db_run(db, "SELECT 1 FROM session_watch WHERE session_id = $1", &v, 1, on_has, has, NULL, e);
}

struct listing {
    const char *upstream;
    store_watch_fn *fn;
    void *arg;
};

static enum sg_code on_watch(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    const struct listing *l = arg;
    (void)n;
    (void)e;
    struct store_watch w = {
        .upstream = l->upstream,
        .session_id = db_get_text(&c[0]),
        .sandbox = db_get_text(&c[1]),
        .cwd = db_get_text(&c[2]),
        .arch = c[3].type == DB_TEXT ? db_get_text(&c[3]) : NULL,
        .deadline_ms = db_get_int(&c[4]),
    };
    l->fn(l->arg, &w);
    return SG_OK;
}

enum sg_code store_watch_list(struct store_db *db, const char *upstream, store_watch_fn *fn, void *arg,
                              struct sg_error *e)
{
    struct listing l = {upstream, fn, arg};
    const struct db_value v = db_text(upstream);
    return db_run(db,
                  "SELECT session_id, sandbox, cwd, arch, deadline FROM session_watch WHERE upstream = $1"
                  " ORDER BY deadline",
                  &v, 1, on_watch, &l, NULL, e);
}

enum sg_code store_watch_prune(struct store_db *db, int64_t before_ms, int64_t made_before_ms,
                               struct sg_error *e)
{
    const struct db_value v[] = {db_int(before_ms), db_int(made_before_ms)};
    return db_run(db,
                  "DELETE FROM session_watch WHERE (deadline > 0 AND deadline < $1)"
                  " OR (deadline = 0 AND made_at < $2)",
                  v, 2, NULL, NULL, NULL, e);
}
