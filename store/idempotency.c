#include "store/idempotency.h"

#include "base/crypto.h"
#include "store/db.h"
#include "store/meta.h"

#include <stdio.h>
#include <string.h>

enum state { RUNNING = 1, OPEN = 2, DONE = 3 };
enum { SECRET = 32, HASH = 32, PRUNE_AT_ONCE = 500, ROW_COST = 1024 };

void store_key_found_init(struct store_key_found *f)
{
    memset(f, 0, sizeof *f);
    sg_buf_init(&f->answer.head, STORE_KEY_HEAD_MAX);
    sg_buf_init(&f->answer.body, STORE_KEY_BODY_MAX);
}

void store_key_found_clear(struct store_key_found *f)
{
    sg_buf_free(&f->answer.head);
    sg_buf_free(&f->answer.body);
}

/* ---- hashes ---- */

static bool keyed_hash(const unsigned char secret[SECRET], char kind, const unsigned char hash[HASH],
                       char hex[STORE_KEY_ID_TEXT])
{
    unsigned char text[1 + HASH], mac[HASH];
    text[0] = (unsigned char)kind;
    memcpy(text + 1, hash, HASH);
    bool ok = sg_hmac_sha256(secret, SECRET, text, sizeof text, mac);
    if (ok)
        sg_hex(hex, mac, sizeof mac);
    return ok;
}

static enum sg_code hashes(struct store_db *db, const struct store_key_ask *a, char id[STORE_KEY_ID_TEXT],
                           char request[STORE_KEY_ID_TEXT], struct sg_error *e)
{
    unsigned char secret[SECRET];
    enum sg_code rc = store_meta_secret(db, "idempotency_key", secret, sizeof secret, e);
    if (!rc && (!keyed_hash(secret, 'k', a->scope, id) || !keyed_hash(secret, 'r', a->request, request)))
        rc = sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_STARTED, "no memory for a hash");
    explicit_bzero(secret, sizeof secret);
    return rc;
}

/* ---- a row ---- */

struct row {
    bool found, live;
    int64_t now, silence;
    int64_t state, runs, expires_at;
    char request[STORE_KEY_ID_TEXT], owner[STORE_OWNER_TEXT];
    struct store_key_found *out;
};

static enum sg_code take_answer(struct store_key_answer *a, const struct db_value *c, struct sg_error *e)
{
    a->status = (int)db_get_int(&c[0]);
    a->type = (int)db_get_int(&c[1]);
    sg_buf_reset(&a->head);
    sg_buf_reset(&a->body);
    bool ok = sg_buf_adds(&a->head, db_get_text(&c[2]));
    if (ok && c[3].type == DB_BYTES)
        ok = sg_buf_add(&a->body, c[3].data, c[3].len);
    return ok ? SG_OK : sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_STARTED, "no memory for the answer");
}

static enum sg_code on_row(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    struct row *r = arg;
    (void)n;
    r->found = true;
    r->state = db_get_int(&c[0]);
    r->runs = db_get_int(&c[1]);
    r->expires_at = db_get_int(&c[2]);
    r->live = r->state == RUNNING && db_get_int(&c[3]) > r->now - r->silence;
    (void)snprintf(r->request, sizeof r->request, "%s", db_get_text(&c[4]));
    (void)snprintf(r->owner, sizeof r->owner, "%s", db_get_text(&c[5]));
    (void)snprintf(r->out->nonce, sizeof r->out->nonce, "%s", db_get_text(&c[6]));
    (void)snprintf(r->out->note, sizeof r->out->note, "%s", db_get_text(&c[7]));
    r->out->answered = db_get_int(&c[8]) != 0;
    return r->state == DONE ? take_answer(&r->out->answer, &c[9], e) : SG_OK;
}

static enum sg_code make_row(struct store_db *db, const struct store_key_ask *a,
                             const struct store_key_limits *l, const struct row *r, const char *request,
                             struct sg_error *e)
{
    static const char sql[] =
        "INSERT INTO idempotency (upstream, principal, id, request, nonce, operation, state, runs, owner,"
        " beat_at, note, answered, status, type, head, body, size, expires_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, 1, 1, $7, $8, '', 0, 0, 0, '', NULL, $9, $10)";
    struct store_key_found *out = r->out;
    if (a->full)
        return sg_fail(e, SG_E_OVERLOADED, SG_NOT_SENT,
                       "there is no room for further idempotency keys ([store] key_max_bytes)");
    const struct db_value v[] = {db_text(a->upstream),       db_text(a->principal), db_text(out->id),
                                 db_text(request),           db_text(a->nonce),     db_text(a->operation),
                                 db_text(a->owner),          db_int(r->now),        db_int(ROW_COST),
                                 db_int(r->now + l->keep_ms)};
    enum sg_code rc = db_run(db, sql, v, 10, NULL, NULL, NULL, e);
    store_key_found_clear(out); /* of the row that has expired */
    out->verdict = STORE_KEY_RUN;
    out->again = out->answered = false;
    out->note[0] = '\0';
    (void)snprintf(out->nonce, sizeof out->nonce, "%s", a->nonce);
    return rc;
}

static enum sg_code take_over(struct store_db *db, const struct store_key_ask *a,
                              const struct store_key_limits *l, struct row *r, struct sg_error *e)
{
    static const char sql[] =
        "UPDATE idempotency SET state = 1, owner = $4, beat_at = $5, runs = runs + 1, expires_at = $6"
        " WHERE upstream = $1 AND principal = $2 AND id = $3";
    const struct db_value v[] = {db_text(a->upstream), db_text(a->principal), db_text(r->out->id),
                                 db_text(a->owner),    db_int(r->now),        db_int(r->now + l->keep_ms)};
    r->out->verdict = STORE_KEY_RUN;
    r->out->again = true;
    return db_run(db, sql, v, 6, NULL, NULL, NULL, e);
}

enum sg_code store_key_ask(struct store_db *db, const struct store_key_ask *a,
                           const struct store_key_limits *l, struct store_key_found *out, struct sg_error *e)
{
    static const char select[] =
        "SELECT state, runs, expires_at, beat_at, request, owner, nonce, note, answered, status, type, head,"
        " body FROM idempotency WHERE upstream = $1 AND principal = $2 AND id = $3";
    static const char forget[] = "DELETE FROM idempotency WHERE upstream = $1 AND principal = $2 AND id = $3";
    struct row r = {.silence = l->silence_ms, .out = out};
    char request[STORE_KEY_ID_TEXT];
    enum sg_code rc = hashes(db, a, out->id, request, e);
    if (!rc)
        rc = store_now(db, &r.now, e);
    const struct db_value v[] = {db_text(a->upstream), db_text(a->principal), db_text(out->id)};
    if (!rc)
        rc = db_run(db, select, v, 3, on_row, &r, NULL, e);
    if (rc)
        return rc;
    if (r.found && !r.live && r.expires_at <= r.now) {
        rc = db_run(db, forget, v, 3, NULL, NULL, NULL, e);
        r.found = false;
    }
    if (rc)
        return rc;
    if (!r.found)
        return make_row(db, a, l, &r, request, e);
    if (strcmp(r.request, request) != 0) {
        out->verdict = STORE_KEY_OTHER;
    } else if (r.state == DONE) {
        out->verdict = STORE_KEY_REPLAY;
    } else if (r.state == RUNNING && strcmp(r.owner, a->owner) == 0) {
        out->verdict = STORE_KEY_RUN; /* this was asked before, and the answer lost */
        out->again = r.runs > 1;
    } else if (r.live) {
        out->verdict = STORE_KEY_BUSY;
    } else {
        return take_over(db, a, l, &r, e);
    }
    return SG_OK;
}

/* ---- while it runs, and its end ---- */

enum { KEY_VALUES = 4 };
#define MINE " WHERE upstream = $1 AND principal = $2 AND id = $3 AND owner = $4"

static void mine(const struct store_key *k, struct db_value v[KEY_VALUES])
{
    v[0] = db_text(k->upstream);
    v[1] = db_text(k->principal);
    v[2] = db_text(k->id);
    v[3] = db_text(k->owner);
}

static enum sg_code change(struct store_db *db, const char *sql, const struct db_value *v, size_t n,
                           bool *held, struct sg_error *e)
{
    int64_t changed = 0;
    enum sg_code rc = db_run(db, sql, v, n, NULL, NULL, &changed, e);
    *held = !rc && changed > 0;
    return rc;
}

enum sg_code store_key_beat(struct store_db *db, const struct store_key *k, bool *held, struct sg_error *e)
{
    int64_t now;
    struct db_value v[KEY_VALUES + 1];
    enum sg_code rc = store_now(db, &now, e);
    if (rc)
        return rc;
    mine(k, v);
    v[KEY_VALUES] = db_int(now);
    return change(db, "UPDATE idempotency SET beat_at = $5" MINE " AND state = 1", v, KEY_VALUES + 1, held,
                  e);
}

enum sg_code store_key_note(struct store_db *db, const struct store_key *k, const char *note, bool *held,
                            struct sg_error *e)
{
    int64_t now;
    struct db_value v[KEY_VALUES + 2];
    enum sg_code rc = store_now(db, &now, e);
    if (rc)
        return rc;
    mine(k, v);
    v[KEY_VALUES] = db_int(now);
    v[KEY_VALUES + 1] = db_text(note);
    return change(db, "UPDATE idempotency SET beat_at = $5, note = $6" MINE " AND state = 1", v,
                  KEY_VALUES + 2, held, e);
}

enum sg_code store_key_done(struct store_db *db, const struct store_key *k, const struct store_key_limits *l,
                            const struct store_key_answer *a, bool *held, struct sg_error *e)
{
    static const char sql[] =
        "UPDATE idempotency SET state = 3, answered = 1, expires_at = $5, status = $6, type = $7, head = $8,"
        " body = $9, size = $10" MINE;
    int64_t now;
    struct db_value v[KEY_VALUES + 6];
    enum sg_code rc = store_now(db, &now, e);
    if (rc)
        return rc;
    mine(k, v);
    v[4] = db_int(now + l->keep_ms);
    v[5] = db_int(a->status);
    v[6] = db_int(a->type);
    v[7] = db_text(a->head.data ? a->head.data : "");
    v[8] = db_bytes(a->body.data ? a->body.data : "", a->body.len);
    v[9] = db_int((int64_t)(ROW_COST + a->head.len + a->body.len));
    return change(db, sql, v, KEY_VALUES + 6, held, e);
}

enum sg_code store_key_open(struct store_db *db, const struct store_key *k, const struct store_key_limits *l,
                            bool answered, bool *held, struct sg_error *e)
{
    int64_t now;
    struct db_value v[KEY_VALUES + 2];
    enum sg_code rc = store_now(db, &now, e);
    if (rc)
        return rc;
    mine(k, v);
    v[4] = db_int(now + l->keep_ms);
    v[5] = db_int(answered);
    return change(db,
                  "UPDATE idempotency SET state = 2, expires_at = $5,"
                  " answered = CASE WHEN answered > $6 THEN answered ELSE $6 END" MINE,
                  v, KEY_VALUES + 2, held, e);
}

enum sg_code store_key_drop(struct store_db *db, const struct store_key *k, struct sg_error *e)
{
    struct db_value v[KEY_VALUES];
    mine(k, v);
    return db_run(db, "DELETE FROM idempotency" MINE, v, KEY_VALUES, NULL, NULL, NULL, e);
}

/* ---- others ---- */

struct operation {
    int64_t oldest_beat;
    enum store_key_state *state;
    struct store_key_answer *out;
};

static enum sg_code on_operation(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    struct operation *o = arg;
    int64_t state = db_get_int(&c[0]);
    (void)n;
    *o->state = STORE_KEY_ENDED;
    if (state == RUNNING && db_get_int(&c[1]) > o->oldest_beat)
        *o->state = STORE_KEY_RUNS;
    if (state != DONE)
        return SG_OK;
    *o->state = STORE_KEY_DONE;
    return take_answer(o->out, &c[2], e);
}

enum sg_code store_key_operation(struct store_db *db, const char *upstream, const char *principal,
                                 const char *operation, const struct store_key_limits *l,
                                 enum store_key_state *state, struct store_key_answer *out,
                                 struct sg_error *e)
{
    static const char sql[] = "SELECT state, beat_at, status, type, head, body FROM idempotency"
                              " WHERE upstream = $1 AND principal = $2 AND operation = $3";
    int64_t now;
    *state = STORE_KEY_NONE;
    enum sg_code rc = store_now(db, &now, e);
    if (rc)
        return rc;
    struct operation o = {now - l->silence_ms, state, out};
    const struct db_value v[] = {db_text(upstream), db_text(principal), db_text(operation)};
    return db_run(db, sql, v, 3, on_operation, &o, NULL, e);
}

enum sg_code store_key_prune(struct store_db *db, const struct store_key_limits *l, bool *more,
                             struct sg_error *e)
{
    /* What runs is kept: its owner does not know that it lasts. */
    static const char sql[] = "DELETE FROM idempotency WHERE (upstream, principal, id) IN"
                              " (SELECT upstream, principal, id FROM idempotency WHERE expires_at <= $1"
                              " AND (state <> 1 OR beat_at <= $2) ORDER BY expires_at LIMIT $3)";
    int64_t now, changed = 0;
    *more = false;
    enum sg_code rc = store_now(db, &now, e);
    if (rc)
        return rc;
    const struct db_value v[] = {db_int(now), db_int(now - l->silence_ms), db_int(PRUNE_AT_ONCE)};
    rc = db_run(db, sql, v, 3, NULL, NULL, &changed, e);
    *more = !rc && changed == PRUNE_AT_ONCE;
    return rc;
}

static enum sg_code on_usage(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    (void)n;
    (void)e;
    *(int64_t *)arg = db_get_int(&c[0]);
    return SG_OK;
}

enum sg_code store_key_usage(struct store_db *db, int64_t *bytes, struct sg_error *e)
{
    *bytes = 0;
    return db_run(db, "SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM idempotency", NULL, 0, on_usage,
                  bytes, NULL, e);
}
