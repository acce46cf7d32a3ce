/* What the parts of the PostgreSQL backend share.  Private to store/.
 *
 * A call of libpq never waits on its own but for connecting (which has connect_timeout): answers are waited for with
 * poll until a deadline.  A connection that did not answer in time is closed.
 */
#ifndef SG_STORE_POSTGRES_H
#define SG_STORE_POSTGRES_H

#include "store/db.h"

#include <libpq-fe.h>

enum {
    PG_STATEMENTS_MAX = 128, /* prepared at a time and connection */
    PG_TXID_TEXT = 24,
    PG_VERSION_MIN = 120000,
};

struct pg_statement {
    const char *sql; /* compared by address: statements are static */
    size_t n;
    unsigned char types[DB_PARAMETERS_MAX]; /* enum db_type; DB_NULL: as the server inferred it */
};

struct pg_db {
    struct store_db db;
    PGconn *conn;
    const struct store_options *options; /* the store's */
    enum store_kind kind;                /* of the transaction */
    char txid[PG_TXID_TEXT];             /* of the transaction, when it may write */
    struct pg_statement *statements;
    size_t n;
    uint64_t names; /* of statements given so far */
    bool lost;      /* the connection is gone, or does not answer */
    int unique;     /* violations in a row */
};

/* ---- postgres_connect.c ---- */

/* A connection that is set up, or NULL with e and why. */
PGconn *pg_connect(const struct store_options *o, int64_t deadline_ms, char why[DB_WHY], struct sg_error *e);

/* ---- postgres_errors.c ---- */

/* Says what a result that failed (NULL: there was none) means, and marks the connection. */
enum sg_code pg_explain(struct pg_db *d, const PGresult *r, struct sg_error *e);
/* The same for a connection that could not be made. */
enum sg_code pg_explain_connect(PGconn *conn, char why[DB_WHY], struct sg_error *e);

/* ---- postgres_run.c ---- */

/* Waits for all results of what was sent; *out is the last one that holds rows, or the last one, or the first that
 * failed.  NULL: the connection was lost or did not answer by the deadline.  The caller clears it. */
PGresult *pg_answer(PGconn *conn, int64_t deadline_ms);
/* Text without parameters, maybe several statements, in text form. */
PGresult *pg_simple(PGconn *conn, const char *sql, int64_t deadline_ms);
bool pg_good(const PGresult *r);

enum sg_code pg_run(struct store_db *db, const char *sql, const struct db_value *values, size_t n,
                    db_row_fn *row, void *arg, int64_t *changed, struct sg_error *e);
void pg_forget_statements(struct pg_db *d);

#endif
