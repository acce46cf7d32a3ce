#include "store/processes.h"

#include "base/clock.h"
#include "store/db.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXPIRED_BATCH = 200, OLDEST_BATCH = 64, TAIL_COST = 256 };

/* ---- flags ---- */

enum {
    F_DESCENDANTS = 1,
    F_INCOMPLETE = 2,
    F_TERMINAL = 4,
    F_TAKES_INPUT = 8,
    F_LOSSLESS = 16,
};

static int64_t flags_of(const struct sg_wire_process *p)
{
    return (p->descendants_hold_output ? F_DESCENDANTS : 0) | (p->output_incomplete ? F_INCOMPLETE : 0) |
           (p->terminal ? F_TERMINAL : 0) | (p->takes_input ? F_TAKES_INPUT : 0) |
           (p->lossless ? F_LOSSLESS : 0);
}

static void take_flags(struct sg_wire_process *p, int64_t flags)
{
    p->descendants_hold_output = (flags & F_DESCENDANTS) != 0;
    p->output_incomplete = (flags & F_INCOMPLETE) != 0;
    p->terminal = (flags & F_TERMINAL) != 0;
    p->takes_input = (flags & F_TAKES_INPUT) != 0;
    p->lossless = (flags & F_LOSSLESS) != 0;
}

/* ---- putting ---- */

static enum sg_code put_tail(struct store_db *db, const struct store_process *p, int stream, int64_t now,
                             struct sg_error *e)
{
    static const char sql[] =
        "INSERT INTO process_tails (session_id, process_id, stream, first_at, end_at, saved_at, size, bytes)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
        " ON CONFLICT (session_id, process_id, stream) DO UPDATE SET first_at = excluded.first_at,"
        " end_at = excluded.end_at, saved_at = excluded.saved_at, size = excluded.size, bytes = "
        "excluded.bytes"
        " WHERE excluded.end_at > process_tails.end_at"
        " OR (excluded.end_at = process_tails.end_at AND excluded.first_at < process_tails.first_at)";
    const struct store_tail *t = &p->tail[stream];
    size_t len = t->len < STORE_TAIL_MAX ? t->len : STORE_TAIL_MAX;
    uint64_t first = t->first + (t->len - len);
    const struct db_value v[] = {
        db_text(p->session_id),
        db_text(p->p->id),
        db_int(stream),
        db_u64(first),
        db_u64(first + len),
        db_int(now),
        db_int((int64_t)len + TAIL_COST),
        db_bytes((const char *)t->data + (t->len - len), len),
    };
    return len ? db_run(db, sql, v, 8, NULL, NULL, NULL, e) : SG_OK;
}

enum sg_code store_process_put(struct store_db *db, const struct store_process *s, struct sg_error *e)
{
    static const char sql[] =
        "INSERT INTO processes (upstream, sandbox, session_id, process_id, state, how, value, flags, "
        "started_ms,"
        " duration_ms, pid, input, out_end, err_end, made_at, saved_at, expires_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $15, $16)"
        " ON CONFLICT (session_id, process_id) DO UPDATE SET state = excluded.state, how = excluded.how,"
        " value = excluded.value, flags = excluded.flags, started_ms = excluded.started_ms,"
        " duration_ms = excluded.duration_ms, pid = excluded.pid, input = excluded.input,"
        " out_end = excluded.out_end, err_end = excluded.err_end, saved_at = excluded.saved_at,"
        " expires_at = excluded.expires_at"
        " WHERE (excluded.how <> 0 OR processes.how = 0)"
        " AND excluded.out_end >= processes.out_end AND excluded.err_end >= processes.err_end";
    const struct sg_wire_process *p = s->p;
    int64_t now = sg_wall_ms();
    const struct db_value v[] = {
        db_text(s->upstream),
        db_text(s->sandbox),
        db_text(s->session_id),
        db_text(p->id),
        db_int((int64_t)p->state),
        db_int((int64_t)p->how),
        db_int(p->value),
        db_int(flags_of(p)),
        db_u64(p->started_ms),
        db_u64(p->duration_ms),
        db_u64(p->pid),
        db_u64(p->input),
        db_u64(p->end[0]),
        db_u64(p->end[1]),
        db_int(now),
        db_int(s->expires_ms),
    };
    enum sg_code rc = db_run(db, sql, v, 16, NULL, NULL, NULL, e);
    for (int i = 0; i < 2 && !rc; i++)
        rc = put_tail(db, s, i, now, e);
    return rc;
}

/* ---- reading ---- */

void stored_process_clear(struct stored_process *p)
{
    sg_buf_free(&p->tail[0]);
    sg_buf_free(&p->tail[1]);
}

static bool state_known(int64_t n)
{
    return n >= SG_PS_STARTING && n <= SG_PS_UNKNOWN;
}

#define PROCESS_COLUMNS                                                                                      \
    "session_id, process_id, state, how, value, flags, started_ms, duration_ms, pid, input, out_end, "       \
    "err_end, expires_at"
enum { PROCESS_COLUMN_COUNT = 13 };

/* Rows may come from another version, or from whoever can write the file: numbers out of range are made harmless. */
static void take_process(struct stored_process *out, const struct db_value *c)
{
    struct sg_wire_process *p = &out->p;
    int64_t state = db_get_int(&c[2]), how = db_get_int(&c[3]), value = db_get_int(&c[4]);
    memset(out, 0, sizeof *out);
    (void)snprintf(out->session_id, sizeof out->session_id, "%s", db_get_text(&c[0]));
    (void)snprintf(p->id, sizeof p->id, "%s", db_get_text(&c[1]));
    p->state = state_known(state) ? (enum sg_wire_state)state : SG_PS_UNKNOWN;
    p->how = how >= SG_HOW_NONE && how <= SG_HOW_SCOPE ? (enum sg_wire_how)how : SG_HOW_UNKNOWN;
    p->value = value >= 0 && value <= UINT32_MAX ? (uint32_t)value : 0;
    take_flags(p, db_get_int(&c[5]));
    p->started_ms = db_get_u64(&c[6]);
    p->duration_ms = db_get_u64(&c[7]);
    p->pid = db_get_u64(&c[8]);
    p->input = db_get_u64(&c[9]);
    for (int i = 0; i < 2; i++) {
        out->seen[i] = db_get_u64(&c[10 + i]);
        p->oldest[i] = p->end[i] = out->seen[i]; /* no bytes of it, until a tail is found */
        sg_buf_init(&out->tail[i], STORE_TAIL_MAX);
    }
    out->expires_ms = db_get_int(&c[12]);
}

struct tails_wanted {
    struct stored_process *out;
    unsigned bytes;
};

static enum sg_code on_tail(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    const struct tails_wanted *w = arg;
    (void)n;
    int64_t stream = db_get_int(&c[0]);
    if (stream < 0 || stream > 1 || db_get_u64(&c[2]) < db_get_u64(&c[1]))
        return SG_OK;
    struct stored_process *s = w->out;
    s->p.oldest[stream] = db_get_u64(&c[1]);
    s->p.end[stream] = db_get_u64(&c[2]);
    if (!(w->bytes & 1u << stream))
        return SG_OK;
    uint64_t len = s->p.end[stream] - s->p.oldest[stream];
    if (c[3].type != DB_BYTES || c[3].len != len)
        return sg_fail(e, SG_E_STORE_UNAVAILABLE, SG_FINISHED, "the saved output is damaged");
    if (!sg_buf_add(&s->tail[stream], c[3].data, c[3].len))
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the saved output");
    return SG_OK;
}

static void judge(struct stored_process *s)
{
    s->complete = s->p.how != SG_HOW_NONE && s->p.how != SG_HOW_UNKNOWN && !s->p.output_incomplete;
    for (int i = 0; i < 2; i++) {
        if (s->p.end[i] < s->seen[i])
            s->complete = false; /* more was printed than was saved */
        if (s->seen[i] && s->p.oldest[i] == s->p.end[i])
            s->complete = false; /* and of this nothing */
    }
}

static enum sg_code add_tails(struct store_db *db, struct stored_process *s, unsigned bytes,
                              struct sg_error *e)
{
    struct tails_wanted w = {s, bytes};
    const struct db_value v[] = {db_text(s->session_id), db_text(s->p.id)};
    enum sg_code rc = bytes ? db_run(db,
                                     "SELECT stream, first_at, end_at, bytes FROM process_tails"
                                     " WHERE session_id = $1 AND process_id = $2",
                                     v, 2, on_tail, &w, NULL, e)
                            : db_run(db,
                                     "SELECT stream, first_at, end_at FROM process_tails"
                                     " WHERE session_id = $1 AND process_id = $2",
                                     v, 2, on_tail, &w, NULL, e);
    judge(s);
    return rc;
}

struct one {
    struct stored_process *out;
    bool found;
};

static enum sg_code on_one(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    struct one *o = arg;
    (void)e;
    if (n >= PROCESS_COLUMN_COUNT && !o->found) {
        take_process(o->out, c);
        o->found = true;
    }
    return SG_OK;
}

enum sg_code store_process_get(struct store_db *db, const struct store_which *w, unsigned bytes,
                               struct stored_process *out, struct sg_error *e)
{
    struct one one = {out, false};
    const struct db_value v[] = {db_text(w->upstream), db_text(w->sandbox), db_text(w->process_id),
                                 db_text(w->session_id)};
    enum sg_code rc =
        w->session_id
            ? db_run(db,
                     "SELECT " PROCESS_COLUMNS " FROM processes"
                     " WHERE upstream = $1 AND sandbox = $2 AND process_id = $3 AND session_id = $4",
                     v, 4, on_one, &one, NULL, e)
            : db_run(
                  db,
                  "SELECT " PROCESS_COLUMNS " FROM processes"
                  " WHERE upstream = $1 AND sandbox = $2 AND process_id = $3 ORDER BY made_at DESC LIMIT 1",
                  v, 3, on_one, &one, NULL, e);
    if (!rc && (!one.found || out->expires_ms <= sg_wall_ms())) {
        if (one.found)
            stored_process_clear(out);
        return sg_fail(e, SG_E_PROCESS_NOT_FOUND, SG_FINISHED, "nothing was saved of such a process");
    }
    if (!rc)
        rc = add_tails(db, out, bytes, e);
    if (rc && one.found)
        stored_process_clear(out);
    return rc;
}

struct list {
    struct stored_process *v;
    size_t n, cap;
    int64_t now;
};

static enum sg_code on_listed(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    struct list *l = arg;
    if (n < PROCESS_COLUMN_COUNT || db_get_int(&c[12]) <= l->now)
        return SG_OK;
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 16;
        struct stored_process *v = reallocarray(l->v, cap, sizeof *v);
        if (!v)
            return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the list");
        l->v = v;
        l->cap = cap;
    }
    take_process(&l->v[l->n++], c);
    return SG_OK;
}

enum sg_code store_process_list(struct store_db *db, const char *upstream, const char *sandbox,
                                const char *session_id, struct stored_process **out, size_t *n,
                                struct sg_error *e)
{
    struct list l = {.now = sg_wall_ms()};
    const struct db_value v[] = {db_text(upstream), db_text(sandbox), db_int(STORE_LIST_MAX),
                                 db_text(session_id)};
    enum sg_code rc = session_id
                          ? db_run(db,
                                   "SELECT " PROCESS_COLUMNS " FROM processes"
                                   " WHERE upstream = $1 AND sandbox = $2 AND session_id = $4"
                                   " ORDER BY started_ms, process_id LIMIT $3",
                                   v, 4, on_listed, &l, NULL, e)
                          : db_run(db,
                                   "SELECT " PROCESS_COLUMNS " FROM processes"
                                   " WHERE upstream = $1 AND sandbox = $2 AND session_id ="
                                   " (SELECT session_id FROM processes WHERE upstream = $1 AND sandbox = $2"
                                   " ORDER BY made_at DESC LIMIT 1)"
                                   " ORDER BY started_ms, process_id LIMIT $3",
                                   v, 3, on_listed, &l, NULL, e);
    for (size_t i = 0; i < l.n && !rc; i++)
        rc = add_tails(db, &l.v[i], 0, e);
    if (rc) {
        free(l.v);
        l = (struct list){0};
    }
    *out = l.v;
    *n = l.n;
    return rc;
}

/* ---- keeping and removing ---- */

enum sg_code store_process_keep(struct store_db *db, const char *session_id, int64_t expires_ms,
                                struct sg_error *e)
{
    const struct db_value v[] = {db_text(session_id), db_int(expires_ms)};
    return db_run(db, "UPDATE processes SET expires_at = $2 WHERE session_id = $1", v, 2, NULL, NULL, NULL,
                  e);
}

enum sg_code store_process_forget(struct store_db *db, const char *upstream, const char *sandbox,
                                  const char *process_id, int64_t *n, struct sg_error *e)
{
    const struct db_value v[] = {db_text(upstream), db_text(sandbox), db_text(process_id)};
    enum sg_code rc;
    *n = 0;
    if (process_id) {
        rc = db_run(
            db,
            "DELETE FROM process_tails WHERE (session_id, process_id) IN (SELECT session_id, process_id"
            " FROM processes WHERE upstream = $1 AND sandbox = $2 AND process_id = $3)",
            v, 3, NULL, NULL, NULL, e);
        return rc ? rc
                  : db_run(db,
                           "DELETE FROM processes WHERE upstream = $1 AND sandbox = $2 AND process_id = $3",
                           v, 3, NULL, NULL, n, e);
    }
    rc = db_run(db,
                "DELETE FROM process_tails WHERE (session_id, process_id) IN (SELECT session_id, process_id"
                " FROM processes WHERE upstream = $1 AND sandbox = $2)",
                v, 2, NULL, NULL, NULL, e);
    db->untidy = true;
    return rc ? rc
              : db_run(db, "DELETE FROM processes WHERE upstream = $1 AND sandbox = $2", v, 2, NULL, NULL, n,
                       e);
}

static enum sg_code prune_expired(struct store_db *db, int64_t now, int64_t *n, struct sg_error *e)
{
    const struct db_value v[] = {db_int(now), db_int(EXPIRED_BATCH)};
    enum sg_code rc = db_run(db,
                             "DELETE FROM process_tails WHERE (session_id, process_id) IN"
                             " (SELECT session_id, process_id FROM processes WHERE expires_at <= $1"
                             " ORDER BY expires_at, session_id, process_id LIMIT $2)",
                             v, 2, NULL, NULL, NULL, e);
    return rc ? rc
              : db_run(db,
                       "DELETE FROM processes WHERE (session_id, process_id) IN"
                       " (SELECT session_id, process_id FROM processes WHERE expires_at <= $1"
                       " ORDER BY expires_at, session_id, process_id LIMIT $2)",
                       v, 2, NULL, NULL, n, e);
}

static enum sg_code on_int(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    int64_t *out = arg;
    (void)n;
    (void)e;
    *out = db_get_int(&c[0]);
    return SG_OK;
}

static enum sg_code used_bytes(struct store_db *db, int64_t *bytes, struct sg_error *e)
{
    int64_t rows = 0, tails = 0;
    enum sg_code rc = db_run(db, "SELECT COUNT(*) FROM processes", NULL, 0, on_int, &rows, NULL, e);
    if (!rc)
        rc = db_run(db, "SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM process_tails", NULL, 0, on_int,
                    &tails, NULL, e);
    *bytes = rows * STORE_ROW_COST + tails;
    return rc;
}

struct oldest {
    struct {
        char session_id[128], process_id[SG_WIRE_ID_MAX + 1];
        int64_t size;
    } v[OLDEST_BATCH];
    size_t n;
};

static enum sg_code on_oldest(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    struct oldest *o = arg;
    (void)n;
    (void)e;
    if (o->n == OLDEST_BATCH)
        return SG_OK;
    (void)snprintf(o->v[o->n].session_id, sizeof o->v->session_id, "%s", db_get_text(&c[0]));
    (void)snprintf(o->v[o->n].process_id, sizeof o->v->process_id, "%s", db_get_text(&c[1]));
    o->v[o->n++].size = db_get_int(&c[2]) + STORE_ROW_COST;
    return SG_OK;
}

static enum sg_code remove_one(struct store_db *db, const char *session_id, const char *process_id,
                               struct sg_error *e)
{
    const struct db_value v[] = {db_text(session_id), db_text(process_id)};
    enum sg_code rc = db_run(db, "DELETE FROM process_tails WHERE session_id = $1 AND process_id = $2", v, 2,
                             NULL, NULL, NULL, e);
    return rc ? rc
              : db_run(db, "DELETE FROM processes WHERE session_id = $1 AND process_id = $2", v, 2, NULL,
                       NULL, NULL, e);
}

/* The oldest go until `excess` bytes are free, or a batch is through. */
static enum sg_code prune_oldest(struct store_db *db, int64_t excess, bool *more, struct sg_error *e)
{
    static const char sql[] =
        "SELECT session_id, process_id, CAST(COALESCE((SELECT SUM(t.size) FROM process_tails t"
        " WHERE t.session_id = p.session_id AND t.process_id = p.process_id), 0) AS BIGINT)"
        " FROM processes p ORDER BY expires_at, session_id, process_id LIMIT $1";
    struct oldest *o = calloc(1, sizeof *o);
    if (!o)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_STARTED, "no memory for the state");
    const struct db_value v = db_int(OLDEST_BATCH);
    enum sg_code rc = db_run(db, sql, &v, 1, on_oldest, o, NULL, e);
    for (size_t i = 0; i < o->n && !rc && excess > 0; i++) {
        rc = remove_one(db, o->v[i].session_id, o->v[i].process_id, e);
        excess -= o->v[i].size;
    }
    *more = excess > 0 && o->n == OLDEST_BATCH;
    free(o);
    return rc;
}

enum sg_code store_process_prune(struct store_db *db, int64_t now_ms, int64_t max_bytes, bool *more,
                                 struct sg_error *e)
{
    int64_t expired = 0, used = 0;
    *more = false;
    enum sg_code rc = prune_expired(db, now_ms, &expired, e);
    db->untidy = expired > 0;
    if (rc || (*more = expired == EXPIRED_BATCH))
        return rc;
    rc = used_bytes(db, &used, e);
    if (rc || used <= max_bytes)
        return rc;
    db->untidy = true;
    return prune_oldest(db, used - max_bytes + max_bytes / 16, more, e); /* a little below, for some peace */
}
