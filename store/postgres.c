/* PostgreSQL as the store's database: connections and transactions.  Source: PostgreSQL documentation, libpq;
 * transaction isolation; txid_status. */
#include "store/postgres.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MIGRATION_LOCK = 0x5a4d6e, /* of pg_advisory_xact_lock: all gateways know it */
    GRACE_MS = 500,            /* the server's own timeout answers first */
    ROLLBACK_MS = 2000,
    MIGRATION_MS = 60000,
    LOOK_AGAIN_MS = 50, /* whether a commit happened */
};

#define SQL_NOW "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"

static struct pg_db *own(struct store_db *db)
{
    return (struct pg_db *)db; /* its first member */
}

static enum sg_code simple(struct pg_db *d, const char *sql, struct sg_error *e)
{
    PGresult *r = pg_simple(d->conn, sql, d->db.deadline_ms + GRACE_MS);
    enum sg_code rc = pg_good(r) ? SG_OK : pg_explain(d, r, e);
    PQclear(r);
    return rc;
}

/* ---- opening ---- */

static void pg_close(struct store_db *db)
{
    struct pg_db *d = own(db);
    PQfinish(d->conn);
    free(d->statements);
    free(d);
}

static enum sg_code pg_open(const struct store_options *o, int64_t deadline_ms, struct store_db **out,
                            char why[DB_WHY], struct sg_error *e)
{
    struct sg_error own_error;
    sg_error_clear(&own_error);
    PGconn *conn = pg_connect(o, deadline_ms, why, &own_error);
    if (!conn) {
        *e = own_error;
        return own_error.code;
    }
    struct pg_db *d = calloc(1, sizeof *d);
    struct pg_statement *st = calloc(PG_STATEMENTS_MAX, sizeof *st);
    if (!d || !st) {
        free(st);
        free(d);
        PQfinish(conn);
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_STARTED, "no memory for the state");
    }
    d->conn = conn;
    d->db.backend = &postgres_backend;
    d->db.deadline_ms = deadline_ms;
    d->options = o;
    d->statements = st;
    *out = &d->db;
    return SG_OK;
}

/* ---- transactions ---- */

/* What a transaction that may write begins with: its number, by which its end can be asked for, and the time. */
#define SQL_BEGIN_WRITE(commit)                                                                              \
    "BEGIN ISOLATION LEVEL SERIALIZABLE; SET LOCAL synchronous_commit = " commit                             \
    "; SELECT CAST(txid_current() AS TEXT), CAST(" SQL_NOW " AS TEXT)"

static const char *const begins[] = {
    [STORE_READ] = "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY",
    [STORE_WRITE] = SQL_BEGIN_WRITE("off"),
    [STORE_DURABLE] = SQL_BEGIN_WRITE("on"),
};

static int64_t number(const char *text)
{
    char *end;
    long long n = strtoll(text, &end, 10);
    return *end ? 0 : n;
}

static enum sg_code pg_begin(struct store_db *db, enum store_kind kind, struct sg_error *e)
{
    struct pg_db *d = own(db);
    d->kind = kind;
    d->txid[0] = '\0';
    PGresult *r = pg_simple(d->conn, begins[kind], db->deadline_ms + GRACE_MS);
    enum sg_code rc = pg_good(r) ? SG_OK : pg_explain(d, r, e);
    if (!rc && PQntuples(r) == 1 && PQnfields(r) == 2) {
        (void)snprintf(d->txid, sizeof d->txid, "%s", PQgetvalue(r, 0, 0));
        db->now_ms = number(PQgetvalue(r, 0, 1));
    }
    PQclear(r);
    return rc;
}

/* Not serializable: what it sees must not be older than the lock that it waited for. */
static enum sg_code pg_begin_migration(struct store_db *db, struct sg_error *e)
{
    struct pg_db *d = own(db);
    char sql[256];
    d->kind = STORE_DURABLE;
    d->txid[0] = '\0';
    db->deadline_ms = sg_mono_ms() + MIGRATION_MS;
    (void)snprintf(
        sql, sizeof sql,
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = %d; SET LOCAL statement_timeout = %d;"
        " SET LOCAL synchronous_commit = on; SELECT pg_advisory_xact_lock(%d)",
        MIGRATION_MS, MIGRATION_MS, MIGRATION_LOCK);
    return simple(d, sql, e);
}

static void pg_rollback(struct store_db *db)
{
    struct pg_db *d = own(db);
    if (db->broken || PQtransactionStatus(d->conn) == PQTRANS_IDLE)
        return;
    PGresult *r = pg_simple(d->conn, "ROLLBACK", sg_mono_ms() + ROLLBACK_MS);
    if (!pg_good(r))
        db->broken = true;
    PQclear(r);
}

/* ---- whether a commit happened whose answer was lost ---- */

enum fate { COMMITTED, ABORTED, UNDECIDED, NOT_KNOWN };

static enum fate ask(PGconn *conn, const char *txid, int64_t deadline_ms)
{
    const char *const values[] = {txid};
    enum fate fate = NOT_KNOWN;
    PGresult *r =
        PQsendQueryParams(conn, "SELECT txid_status(CAST($1 AS BIGINT))", 1, NULL, values, NULL, NULL, 0)
            ? pg_answer(conn, deadline_ms)
            : NULL;
    if (!r || !PQresultErrorField(r, PG_DIAG_SQLSTATE))
        fate = UNDECIDED; /* not asked: tried again */
    if (PQresultStatus(r) == PGRES_TUPLES_OK && PQntuples(r) == 1) {
        const char *status = PQgetvalue(r, 0, 0);
        fate = strcmp(status, "committed") == 0     ? COMMITTED
               : strcmp(status, "aborted") == 0     ? ABORTED
               : strcmp(status, "in progress") == 0 ? UNDECIDED
                                                    : NOT_KNOWN;
    }
    PQclear(r);
    return fate;
}

static enum fate find_out(struct pg_db *d)
{
    enum fate fate = UNDECIDED;
    char why[DB_WHY];
    struct sg_error e;
    const struct timespec pause = {.tv_nsec = LOOK_AGAIN_MS * 1000000L};
    while (fate == UNDECIDED && sg_mono_ms() < d->db.deadline_ms) {
        PGconn *conn = pg_connect(d->options, d->db.deadline_ms, why, &e);
        if (conn)
            fate = ask(conn, d->txid, d->db.deadline_ms);
        PQfinish(conn);
        if (fate == UNDECIDED)
            (void)nanosleep(&pause, NULL);
    }
    return fate;
}

static enum sg_code settle(struct pg_db *d, struct sg_error *e)
{
    enum fate fate = d->txid[0] ? find_out(d) : NOT_KNOWN;
    d->db.broken = true;
    d->db.again = fate == ABORTED || !d->txid[0]; /* a migration looks first where it stands */
    sg_log(SG_LOG_WARN, "store commit unanswered", "committed", "s",
           fate == COMMITTED ? "yes"
           : fate == ABORTED ? "no"
                             : "unknown",
           NULL);
    if (fate == COMMITTED)
        return SG_OK;
    return fate == ABORTED
               ? sg_fail(e, SG_E_STORE_UNAVAILABLE, SG_NOT_STARTED, "the database was interrupted")
               : sg_fail(e, SG_E_STORE_UNAVAILABLE, SG_OUTCOME_UNKNOWN,
                         "the database was interrupted while it wrote");
}

static enum sg_code pg_commit(struct store_db *db, struct sg_error *e)
{
    struct pg_db *d = own(db);
    PGresult *r = pg_simple(d->conn, "COMMIT", db->deadline_ms + GRACE_MS);
    enum sg_code rc;
    /* A server that is being stopped says so also to whom it has not said that it committed. */
    const char *state = r ? PQresultErrorField(r, PG_DIAG_SQLSTATE) : NULL;
    if (pg_good(r) && strcmp(PQcmdStatus(r), "COMMIT") == 0) {
        rc = SG_OK;
        d->unique = 0;
    } else if (pg_good(r)) { /* ROLLBACK: a statement failed, and who ran it did not say so */
        rc = sg_fail(e, SG_E_INTERNAL, SG_NOT_STARTED, "the state could not be written");
    } else if (d->kind == STORE_READ) {
        rc = state && strncmp(state, "40", 2) == 0 ? pg_explain(d, r, e) : SG_OK; /* all was read */
        if (!rc)
            db->broken = true;
    } else if (!state || strncmp(state, "57", 2) == 0 || strncmp(state, "08", 2) == 0) {
        rc = settle(d, e);
    } else {
        rc = pg_explain(d, r, e);
    }
    PQclear(r);
    return rc;
}

static enum sg_code on_now(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    (void)n;
    (void)e;
    *(int64_t *)arg = db_get_int(&c[0]);
    return SG_OK;
}

static enum sg_code pg_now(struct store_db *db, int64_t *ms, struct sg_error *e)
{
    return pg_run(db, "SELECT " SQL_NOW, NULL, 0, on_now, ms, NULL, e);
}

static void pg_tidy(struct store_db *db)
{
    (void)db; /* the server's own vacuum does it */
}

const struct db_backend postgres_backend = {
    .name = "postgresql",
    .open = pg_open,
    .close = pg_close,
    .begin = pg_begin,
    .begin_migration = pg_begin_migration,
    .commit = pg_commit,
    .rollback = pg_rollback,
    .run = pg_run,
    .now = pg_now,
    .tidy = pg_tidy,
};
