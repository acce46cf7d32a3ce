#include "store/sandboxes.h"

#include "store/db.h"
#include "store/locks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void store_sandbox_clear(struct store_sandbox *s)
{
    free(s->working_directory);
    free(s->init);
    free(s->on_start);
    free(s->template_name);
    free(s->checkpoint);
    free(s->started);
    *s = (struct store_sandbox){0};
}

enum sg_code store_sandbox_put(struct store_db *db, const char *upstream, const struct store_sandbox *s,
                               struct sg_error *e)
{
    static const char sql[] =
        "INSERT INTO sandboxes (upstream, alloc, sandbox, working_directory, web_port, init, init_done,"
        " init_fails, on_start, started, keep_alive, keep_alive_max_ms, template, checkpoint, made_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, 0, 0, $7, NULL, $8, $9, $10, $11, $12)"
        " ON CONFLICT (upstream, alloc) DO NOTHING";
    int64_t now = 0;
    enum sg_code rc = store_now(db, &now, e);
    const struct db_value v[] = {db_text(upstream),
                                 db_text(s->alloc),
                                 db_text(s->name),
                                 db_text(s->working_directory),
                                 db_int(s->web_port),
                                 db_text(s->init),
                                 db_text(s->on_start),
                                 db_int(s->keep_alive),
                                 db_int(s->keep_alive_max_ms),
                                 db_text(s->template_name),
                                 db_text(s->checkpoint),
                                 db_int(now)};
    return rc ? rc : db_run(db, sql, v, sizeof v / sizeof *v, NULL, NULL, NULL, e);
}

enum sg_code store_sandbox_made(struct store_db *db, const char *upstream, const char *name,
                                const char *alloc, struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_text(alloc), db_text(name)};
    return db_run(db, "DELETE FROM sandboxes WHERE upstream = $1 AND sandbox = $3 AND alloc <> $2", v, 3,
                  NULL, NULL, NULL, e);
}

struct found {
    struct store_sandbox *out;
    bool *found, no_memory;
};

static char *copy(struct found *f, const struct db_value *v)
{
    if (v->type != DB_TEXT)
        return NULL;
    char *s = strdup(db_get_text(v));
    f->no_memory |= !s;
    return s;
}

static enum sg_code on_row(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    struct found *f = arg;
    (void)n;
    store_sandbox_clear(f->out);
    (void)snprintf(f->out->name, sizeof f->out->name, "%s", db_get_text(&c[0]));
    (void)snprintf(f->out->alloc, sizeof f->out->alloc, "%s", db_get_text(&c[1]));
    f->out->working_directory = copy(f, &c[2]);
    f->out->web_port = db_get_int(&c[3]);
    f->out->init = copy(f, &c[4]);
    f->out->init_done = db_get_int(&c[5]) != 0;
    f->out->init_fails = db_get_int(&c[6]);
    f->out->on_start = copy(f, &c[7]);
    f->out->started = copy(f, &c[8]);
    f->out->keep_alive = db_get_int(&c[9]);
    f->out->keep_alive_max_ms = db_get_int(&c[10]);
    f->out->template_name = copy(f, &c[11]);
    f->out->checkpoint = copy(f, &c[12]);
    f->out->made_at_ms = db_get_int(&c[13]);
    *f->found = true;
    return f->no_memory ? sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for what is known of it")
                        : SG_OK;
}

#define COLUMNS                                                                                              \
    "sandbox, alloc, working_directory, web_port, init, init_done, init_fails, on_start, started, "          \
    "keep_alive,"                                                                                            \
    " keep_alive_max_ms, template, checkpoint, made_at"

static enum sg_code get(struct store_db *db, const char *sql, const char *upstream, const char *key,
                        struct store_sandbox *out, bool *found, struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_text(key)};
    struct found f = {.out = out, .found = found};
    *found = false;
    *out = (struct store_sandbox){0};
    enum sg_code rc = db_run(db, sql, v, 2, on_row, &f, NULL, e);
    if (rc) {
        store_sandbox_clear(out);
        *found = false;
    }
    return rc;
}

enum sg_code store_sandbox_get(struct store_db *db, const char *upstream, const char *alloc,
                               struct store_sandbox *out, bool *found, struct sg_error *e)
{
    return get(db, "SELECT " COLUMNS " FROM sandboxes WHERE upstream = $1 AND alloc = $2", upstream, alloc,
               out, found, e);
}

enum sg_code store_sandbox_named(struct store_db *db, const char *upstream, const char *name,
                                 struct store_sandbox *out, bool *found, struct sg_error *e)
{
    return get(db,
               "SELECT " COLUMNS " FROM sandboxes WHERE upstream = $1 AND sandbox = $2"
               " ORDER BY made_at DESC LIMIT 1",
               upstream, name, out, found, e);
}

enum sg_code store_sandbox_init(struct store_db *db, const char *upstream, const char *alloc, bool done,
                                struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_text(alloc), db_int(done), db_int(!done)};
    return db_run(db,
                  "UPDATE sandboxes SET init_done = $3, init_fails = init_fails + $4"
                  " WHERE upstream = $1 AND alloc = $2",
                  v, 4, NULL, NULL, NULL, e);
}

enum sg_code store_sandbox_started(struct store_db *db, const char *upstream, const char *alloc,
                                   const char *session_id, struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_text(alloc), db_text(session_id)};
    return db_run(db, "UPDATE sandboxes SET started = $3 WHERE upstream = $1 AND alloc = $2", v, 3, NULL,
                  NULL, NULL, e);
}

static enum sg_code set_number(struct store_db *db, const char *sql, const char *upstream, const char *alloc,
                               const int64_t *value, struct sg_error *e)
{
    if (!value)
        return SG_OK;
    const struct db_value v[] = {db_text(upstream), db_text(alloc), db_int(*value)};
    return db_run(db, sql, v, 3, NULL, NULL, NULL, e);
}

enum sg_code store_sandbox_change(struct store_db *db, const char *upstream, const char *name,
                                  const char *alloc, const struct store_sandbox_change *change,
                                  struct sg_error *e)
{
    struct store_sandbox s = {0};
    (void)snprintf(s.name, sizeof s.name, "%s", name);
    (void)snprintf(s.alloc, sizeof s.alloc, "%s", alloc);
    const char *dir = change->working_directory;
    const struct db_value v[] = {db_text(upstream), db_text(alloc), db_text(dir && !*dir ? NULL : dir)};
    enum sg_code rc = store_sandbox_put(db, upstream, &s, e);
    if (!rc && dir)
        rc = db_run(db, "UPDATE sandboxes SET working_directory = $3 WHERE upstream = $1 AND alloc = $2", v,
                    3, NULL, NULL, NULL, e);
    if (!rc)
        rc = set_number(db, "UPDATE sandboxes SET keep_alive = $3 WHERE upstream = $1 AND alloc = $2",
                        upstream, alloc, change->keep_alive, e);
    if (!rc)
        rc = set_number(db, "UPDATE sandboxes SET keep_alive_max_ms = $3 WHERE upstream = $1 AND alloc = $2",
                        upstream, alloc, change->keep_alive_max_ms, e);
    if (!rc)
        rc = set_number(db, "UPDATE sandboxes SET web_port = $3 WHERE upstream = $1 AND alloc = $2", upstream,
                        alloc, change->web_port, e);
    return rc;
}

enum sg_code store_sandbox_forget(struct store_db *db, const char *upstream, const char *alloc,
                                  struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_text(alloc)};
    return db_run(db, "DELETE FROM sandboxes WHERE upstream = $1 AND alloc = $2", v, 2, NULL, NULL, NULL, e);
}

static enum sg_code on_any(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    (void)c;
    (void)n;
    (void)e;
    *(bool *)arg = true;
    return SG_OK;
}

enum sg_code store_sandbox_has(struct store_db *db, const char *upstream, const char *alloc, bool *has,
                               struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_text(alloc)};
    *has = false;
    return db_run(db, "SELECT 1 FROM sandboxes WHERE upstream = $1 AND alloc = $2", v, 2, on_any, has, NULL,
                  e);
}

struct listing {
    store_sandbox_fn *fn;
    void *arg;
};

static enum sg_code on_listed(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    const struct listing *l = arg;
    struct store_sandbox s = {.keep_alive = db_get_int(&c[2]), .made_at_ms = db_get_int(&c[3])};
    (void)n;
    (void)e;
    (void)snprintf(s.name, sizeof s.name, "%s", db_get_text(&c[0]));
    (void)snprintf(s.alloc, sizeof s.alloc, "%s", db_get_text(&c[1]));
    l->fn(l->arg, &s);
    return SG_OK;
}

enum sg_code store_sandbox_list(struct store_db *db, const char *upstream, const char *after, int64_t limit,
                                store_sandbox_fn *fn, void *arg, struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_text(after), db_int(limit)};
    struct listing l = {fn, arg};
    return db_run(
        db,
        "SELECT sandbox, alloc, keep_alive, made_at FROM sandboxes WHERE upstream = $1 AND alloc > $2"
        " ORDER BY alloc LIMIT $3",
        v, 3, on_listed, &l, NULL, e);
}
