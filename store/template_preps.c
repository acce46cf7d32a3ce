/* What was prepared for templates: rows that one gateway at a time works on. */
#include "store/templates.h"

#include "store/db.h"
#include "store/locks.h"

#include <stdio.h>
#include <string.h>

#define COLUMNS                                                                                              \
    "fingerprint, state, attempt, held_until, builder, alloc, snapshot_id, identity, region, architecture,"  \
    " image, error, detail, started_at, ended_at, log_end"
#define ONE       "WHERE upstream = $1 AND fingerprint = $2"
#define OF_HOLDER ONE " AND attempt = $3 AND state = 1"

static void take_text(char *out, size_t cap, const struct db_value *v)
{
    (void)snprintf(out, cap, "%s", db_get_text(v));
}

static void take_row(struct store_prep *p, const struct db_value *c)
{
    int64_t state = db_get_int(&c[1]);
    *p = (struct store_prep){
        .state = state == PREP_RUNNING ? PREP_RUNNING
                 : state == PREP_READY ? PREP_READY
                                       : PREP_FAILED,
        .held_until_ms = db_get_int(&c[3]),
        .started_at_ms = db_get_int(&c[13]),
        .ended_at_ms = db_get_int(&c[14]),
        .log_end = db_get_int(&c[15]),
    };
    take_text(p->fingerprint, sizeof p->fingerprint, &c[0]);
    take_text(p->attempt, sizeof p->attempt, &c[2]);
    take_text(p->builder, sizeof p->builder, &c[4]);
    take_text(p->alloc, sizeof p->alloc, &c[5]);
    take_text(p->snapshot_id, sizeof p->snapshot_id, &c[6]);
    take_text(p->identity, sizeof p->identity, &c[7]);
    take_text(p->region, sizeof p->region, &c[8]);
    take_text(p->architecture, sizeof p->architecture, &c[9]);
    take_text(p->image, sizeof p->image, &c[10]);
    take_text(p->error, sizeof p->error, &c[11]);
    take_text(p->detail, sizeof p->detail, &c[12]);
}

struct one {
    struct store_prep *out;
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

enum sg_code store_prep_get(struct store_db *db, const char *upstream, const char *fingerprint,
                            struct store_prep *out, bool *found, struct sg_error *e)
{
    struct one o = {out, found};
    const struct db_value v[] = {db_text(upstream), db_text(fingerprint)};
    *found = false;
    *out = (struct store_prep){0};
    return db_run(db, "SELECT " COLUMNS " FROM template_preps " ONE, v, 2, on_one, &o, NULL, e);
}

/* ---- who works on it ---- */

enum sg_code store_prep_claim(struct store_db *db, const char *upstream, struct store_prep_claim *c,
                              struct sg_error *e)
{
    static const char sql[] =
        "INSERT INTO template_preps (upstream, " COLUMNS ")"
        " VALUES ($1, $2, 1, $3, $4, '', '', '', '', '', '', '', '', '', $5, 0, 0)"
        " ON CONFLICT (upstream, fingerprint) DO UPDATE SET state = 1, attempt = excluded.attempt,"
        " held_until = excluded.held_until, builder = '', alloc = '', error = '', detail = '',"
        " started_at = excluded.started_at, ended_at = 0, log_end = 0";
    bool found = false;
    int64_t now, changed = 0;
    enum sg_code rc = store_now(db, &now, e);
    if (!rc)
        rc = store_prep_get(db, upstream, c->fingerprint, &c->was, &found, e);
    if (rc)
        return rc;
    if (found && c->was.state == PREP_RUNNING && c->was.held_until_ms >= now) {
        c->verdict = PREP_BUSY;
        return SG_OK;
    }
    bool gone = c->gone && !strcmp(c->gone, c->was.snapshot_id);
    if (found && c->was.state == PREP_READY && !gone && !c->anew) {
        c->verdict = PREP_USABLE;
        return SG_OK;
    }
    c->verdict = PREP_YOURS;
    if (found) {
        const struct db_value old[] = {db_text(upstream), db_text(c->was.attempt)};
        rc = db_run(db, "DELETE FROM template_logs WHERE upstream = $1 AND attempt = $2", old, 2, NULL, NULL,
                    NULL, e);
        if (rc)
            return rc;
    }
    const struct db_value v[] = {db_text(upstream), db_text(c->fingerprint), db_text(c->attempt),
                                 db_int(now + c->hold_ms), db_int(now)};
    return db_run(db, sql, v, 5, NULL, NULL, &changed, e);
}

/* Runs a statement that changes the row of its holder alone. */
static enum sg_code by_holder(struct store_db *db, const char *sql, const struct db_value *v, size_t n,
                              bool *held, struct sg_error *e)
{
    int64_t changed = 0;
    enum sg_code rc = db_run(db, sql, v, n, NULL, NULL, &changed, e);
    *held = !rc && changed > 0;
    return rc;
}

enum sg_code store_prep_hold(struct store_db *db, const char *upstream, const char *fingerprint,
                             const char *attempt, int64_t hold_ms, bool *held, struct sg_error *e)
{
    int64_t now;
    *held = false;
    enum sg_code rc = store_now(db, &now, e);
    const struct db_value v[] = {db_text(upstream), db_text(fingerprint), db_text(attempt),
                                 db_int(rc ? 0 : now + hold_ms)};
    return rc ? rc : by_holder(db, "UPDATE template_preps SET held_until = $4 " OF_HOLDER, v, 4, held, e);
}

enum sg_code store_prep_builder(struct store_db *db, const char *upstream, const struct store_prep *p,
                                bool *held, struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_text(p->fingerprint), db_text(p->attempt),
                                 db_text(p->builder), db_text(p->alloc)};
    return by_holder(db, "UPDATE template_preps SET builder = $4, alloc = $5 " OF_HOLDER, v, 5, held, e);
}

enum sg_code store_prep_end(struct store_db *db, const char *upstream, const struct store_prep *p, bool *held,
                            struct sg_error *e)
{
    static const char sql[] =
        "UPDATE template_preps SET state = $4, builder = '', alloc = '', held_until = 0,"
        " snapshot_id = $5, identity = $6, region = $7, architecture = $8, image = $9,"
        " error = $10, detail = $11, ended_at = $12 " OF_HOLDER;
    int64_t now;
    *held = false;
    enum sg_code rc = store_now(db, &now, e);
    const struct db_value v[] = {db_text(upstream),         db_text(p->fingerprint),  db_text(p->attempt),
                                 db_int((int64_t)p->state), db_text(p->snapshot_id),  db_text(p->identity),
                                 db_text(p->region),        db_text(p->architecture), db_text(p->image),
                                 db_text(p->error),         db_text(p->detail),       db_int(rc ? 0 : now)};
    return rc ? rc : by_holder(db, sql, v, 12, held, e);
}

enum sg_code store_prep_leave(struct store_db *db, const char *upstream, const char *fingerprint,
                              const char *attempt, struct sg_error *e)
{
    bool held;
    const struct db_value v[] = {db_text(upstream), db_text(fingerprint), db_text(attempt)};
    return by_holder(db, "UPDATE template_preps SET held_until = 0 " OF_HOLDER, v, 3, &held, e);
}

/* ---- what is left over ---- */

enum sg_code store_prep_left(struct store_db *db, const char *upstream, char fingerprint[TEMPLATE_PRINT_TEXT],
                             bool *found, struct sg_error *e)
{
    struct store_prep p;
    struct one o = {&p, found};
    int64_t now;
    *found = false;
    enum sg_code rc = store_now(db, &now, e);
    const struct db_value v[] = {db_text(upstream), db_int(rc ? 0 : now)};
    if (!rc)
        rc = db_run(db,
                    "SELECT " COLUMNS " FROM template_preps WHERE upstream = $1 AND state = 1"
                    " AND held_until < $2 LIMIT 1",
                    v, 2, on_one, &o, NULL, e);
    if (!rc && *found)
        memcpy(fingerprint, p.fingerprint, sizeof p.fingerprint);
    return rc;
}

enum sg_code store_prep_sweep(struct store_db *db, const char *upstream, struct store_prep *out, bool *found,
                              struct sg_error *e)
{
    struct one o = {out, found};
    int64_t now;
    *found = false;
    enum sg_code rc = store_now(db, &now, e);
    const struct db_value v[] = {db_text(upstream), db_int(rc ? 0 : now)};
    if (!rc)
        rc = db_run(db,
                    "SELECT " COLUMNS " FROM template_preps p WHERE p.upstream = $1"
                    " AND (p.state <> 1 OR p.held_until < $2)"
                    " AND NOT EXISTS (SELECT 1 FROM templates t WHERE t.upstream = p.upstream"
                    " AND t.fingerprint = p.fingerprint) LIMIT 1",
                    v, 2, on_one, &o, NULL, e);
    if (rc || !*found)
        return rc;
    const struct db_value one[] = {db_text(upstream), db_text(out->fingerprint)};
    const struct db_value log[] = {db_text(upstream), db_text(out->attempt)};
    rc = db_run(db, "DELETE FROM template_preps " ONE, one, 2, NULL, NULL, NULL, e);
    return rc ? rc
              : db_run(db, "DELETE FROM template_logs WHERE upstream = $1 AND attempt = $2", log, 2, NULL,
                       NULL, NULL, e);
}

/* ---- the log ---- */

enum sg_code store_prep_log(struct store_db *db, const char *upstream, const char *fingerprint,
                            const char *attempt, int64_t *end, const void *data, size_t len,
                            struct sg_error *e)
{
    int64_t to = *end + (int64_t)len;
    const struct db_value add[] = {db_text(upstream), db_text(attempt), db_int(*end), db_int(to),
                                   db_bytes(data, len)};
    const struct db_value old[] = {db_text(upstream), db_text(attempt), db_int(to - TEMPLATE_LOG_MAX)};
    const struct db_value row[] = {db_text(upstream), db_text(fingerprint), db_text(attempt), db_int(to)};
    enum sg_code rc = db_run(db,
                             "INSERT INTO template_logs (upstream, attempt, first_at, end_at, bytes)"
                             " VALUES ($1, $2, $3, $4, $5) ON CONFLICT (upstream, attempt, first_at)"
                             " DO NOTHING",
                             add, 5, NULL, NULL, NULL, e);
    if (!rc && to > TEMPLATE_LOG_MAX)
        rc = db_run(db, "DELETE FROM template_logs WHERE upstream = $1 AND attempt = $2 AND end_at <= $3",
                    old, 3, NULL, NULL, NULL, e);
    if (!rc)
        rc = db_run(db, "UPDATE template_preps SET log_end = $4 " ONE " AND attempt = $3", row, 4, NULL, NULL,
                    NULL, e);
    if (!rc)
        *end = to;
    return rc;
}

static enum sg_code on_bytes(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    struct store_prep_read *r = arg;
    (void)n;
    int64_t first = db_get_int(&c[0]);
    const char *data = c[1].data;
    int64_t len = (int64_t)c[1].len, at = r->from + (int64_t)r->bytes->len;
    if (!r->bytes->len && first > at)
        r->from = at = first; /* what was before is gone */
    int64_t skip = at - first;
    if (skip < 0 || skip >= len || (int64_t)r->bytes->len >= r->limit)
        return SG_OK;
    int64_t take = len - skip, room = r->limit - (int64_t)r->bytes->len;
    if (sg_buf_add(r->bytes, data + skip, (size_t)(take < room ? take : room)))
        return SG_OK;
    return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the log");
}

enum sg_code store_prep_read(struct store_db *db, const char *upstream, struct store_prep_read *r,
                             struct sg_error *e)
{
    sg_buf_reset(r->bytes);
    r->from = r->offset;
    enum sg_code rc = store_prep_get(db, upstream, r->fingerprint, &r->prep, &r->found, e);
    if (rc || !r->found || r->offset >= r->prep.log_end)
        return rc;
    const struct db_value v[] = {db_text(upstream), db_text(r->prep.attempt), db_int(r->offset),
                                 db_int(r->limit / TEMPLATE_LOG_PIECE + 64)};
    return db_run(db,
                  "SELECT first_at, bytes FROM template_logs WHERE upstream = $1 AND attempt = $2"
                  " AND end_at > $3 ORDER BY first_at LIMIT $4",
                  v, 4, on_bytes, r, NULL, e);
}
