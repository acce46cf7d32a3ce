#include "store/templates.h"

#include "store/db.h"
#include "store/locks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS "name, owner, fingerprint, made_at, changed_at"

void store_template_clear(struct store_template *t)
{
    free(t->spec);
    *t = (struct store_template){0};
}

static void take_row(struct store_template *out, const struct db_value *c)
{
    *out = (struct store_template){.made_at_ms = db_get_int(&c[3]), .changed_at_ms = db_get_int(&c[4])};
    (void)snprintf(out->name, sizeof out->name, "%s", db_get_text(&c[0]));
    (void)snprintf(out->owner, sizeof out->owner, "%s", db_get_text(&c[1]));
    (void)snprintf(out->fingerprint, sizeof out->fingerprint, "%s", db_get_text(&c[2]));
}

struct one {
    struct store_template *out;
    bool *found;
};

static enum sg_code on_one(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    const struct one *o = arg;
    (void)n;
    take_row(o->out, c);
    *o->found = true;
    o->out->spec = strdup(db_get_text(&c[5]));
    return o->out->spec ? SG_OK : sg_fail(e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for a template");
}

enum sg_code store_template_get(struct store_db *db, const char *upstream, const char *name,
                                struct store_template *out, bool *found, struct sg_error *e)
{
    struct one o = {out, found};
    const struct db_value v[] = {db_text(upstream), db_text(name)};
    *found = false;
    *out = (struct store_template){0};
    return db_run(db, "SELECT " COLUMNS ", spec FROM templates WHERE upstream = $1 AND name = $2", v, 2,
                  on_one, &o, NULL, e);
}

enum sg_code store_template_put(struct store_db *db, const char *upstream, const struct store_template *t,
                                bool *made, struct sg_error *e)
{
    struct store_template was;
    bool found = false;
    int64_t now;
    enum sg_code rc = store_now(db, &now, e);
    if (!rc)
        rc = store_template_get(db, upstream, t->name, &was, &found, e);
    if (rc)
        return rc;
    bool same = found && !strcmp(was.spec, t->spec);
    store_template_clear(&was);
    *made = !found;
    if (same)
        return SG_OK;
    const struct db_value v[] = {db_text(upstream),       db_text(t->name), db_text(t->owner),
                                 db_text(t->fingerprint), db_int(now),      db_text(t->spec)};
    return db_run(db,
                  "INSERT INTO templates (upstream, " COLUMNS ", spec) VALUES ($1, $2, $3, $4, $5, $5, $6)"
                  " ON CONFLICT (upstream, name) DO UPDATE SET fingerprint = excluded.fingerprint,"
                  " changed_at = excluded.changed_at, spec = excluded.spec",
                  v, 6, NULL, NULL, NULL, e);
}

enum sg_code store_template_drop(struct store_db *db, const char *upstream, const char *name, bool *found,
                                 struct sg_error *e)
{
    int64_t changed = 0;
    const struct db_value v[] = {db_text(upstream), db_text(name)};
    enum sg_code rc =
        db_run(db, "DELETE FROM templates WHERE upstream = $1 AND name = $2", v, 2, NULL, NULL, &changed, e);
    *found = changed > 0;
    return rc;
}

struct many {
    struct store_template *items;
    size_t n, cap;
};

static enum sg_code on_many(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    struct many *m = arg;
    (void)n;
    if (m->n == m->cap)
        return sg_fail(e, SG_E_INTERNAL, SG_FINISHED, "more rows than were asked for");
    take_row(&m->items[m->n++], c);
    return SG_OK;
}

enum sg_code store_template_list(struct store_db *db, const char *upstream, const char *after, int64_t limit,
                                 struct store_template **out, size_t *n, struct sg_error *e)
{
    struct many m = {.items = calloc((size_t)limit, sizeof *m.items), .cap = (size_t)limit};
    *out = NULL;
    *n = 0;
    if (!m.items)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the list");
    const struct db_value v[] = {db_text(upstream), db_text(after ? after : ""), db_int(limit)};
    enum sg_code rc = db_run(db,
                             "SELECT " COLUMNS " FROM templates WHERE upstream = $1 AND name > $2"
                             " ORDER BY name LIMIT $3",
                             v, 3, on_many, &m, NULL, e);
    if (rc) {
        free(m.items);
        return rc;
    }
    *out = m.items;
    *n = m.n;
    return SG_OK;
}
