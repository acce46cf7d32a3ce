/* Statements on PostgreSQL: prepared once per connection, values in binary form.  Source: PostgreSQL documentation,
 * libpq, asynchronous command processing; the binary forms of int8, int4, int2, bool, text and bytea. */
#include "store/postgres.h"

#include "base/clock.h"
#include "base/log.h"

#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 24 };
/* Of the server's catalogue pg_type; they never change. */
enum {
    OID_BOOL = 16,
    OID_BYTEA = 17,
    OID_NAME = 19,
    OID_INT8 = 20,
    OID_INT2 = 21,
    OID_INT4 = 23,
    OID_TEXT = 25,
    OID_UNKNOWN = 705,
    OID_BPCHAR = 1042,
    OID_VARCHAR = 1043
};

/* ---- waiting ---- */

bool pg_good(const PGresult *r)
{
    ExecStatusType st = PQresultStatus(r);
    return st == PGRES_COMMAND_OK || st == PGRES_TUPLES_OK;
}

static bool wait_for(PGconn *conn, short events, int64_t deadline_ms)
{
    for (;;) {
        int64_t left = deadline_ms - sg_mono_ms();
        struct pollfd p = {.fd = PQsocket(conn), .events = events};
        if (p.fd < 0 || left <= 0)
            return false;
        int n = poll(&p, 1, left > INT32_MAX ? INT32_MAX : (int)left);
        if (n > 0)
            return true;
        if (n < 0 && errno != EINTR)
            return false;
    }
}

static bool sent(PGconn *conn, int64_t deadline_ms)
{
    for (;;) {
        int rest = PQflush(conn);
        if (rest <= 0)
            return rest == 0;
        /* The server may be stuck with an answer that nobody reads. */
        if (!wait_for(conn, POLLIN | POLLOUT, deadline_ms) || !PQconsumeInput(conn))
            return false;
    }
}

static bool arrived(PGconn *conn, int64_t deadline_ms)
{
    while (PQisBusy(conn))
        if (!wait_for(conn, POLLIN, deadline_ms) || !PQconsumeInput(conn))
            return !PQisBusy(conn); /* the library may have put its last words there */
    return true;
}

/* Which of two results is of interest. */
static PGresult *better(PGresult *a, PGresult *b)
{
    bool keep = a && (!pg_good(a) || (pg_good(b) && PQresultStatus(a) == PGRES_TUPLES_OK));
    PQclear(keep ? b : a);
    return keep ? a : b;
}

PGresult *pg_answer(PGconn *conn, int64_t deadline_ms)
{
    PGresult *best = NULL;
    bool whole = sent(conn, deadline_ms) || PQstatus(conn) == CONNECTION_BAD;
    while (whole && (whole = arrived(conn, deadline_ms))) {
        PGresult *r = PQgetResult(conn);
        if (!r)
            return best;
        best = better(best, r);
    }
    PQclear(best);
    return NULL;
}

PGresult *pg_simple(PGconn *conn, const char *sql, int64_t deadline_ms)
{
    return PQsendQuery(conn, sql) ? pg_answer(conn, deadline_ms) : NULL;
}

/* ---- statements ---- */

struct parameters {
    const char *values[DB_PARAMETERS_MAX];
    int lengths[DB_PARAMETERS_MAX], formats[DB_PARAMETERS_MAX];
    Oid oids[DB_PARAMETERS_MAX];
    uint64_t ints[DB_PARAMETERS_MAX];
    int n;
};

static Oid oid_of(enum db_type type)
{
    static const Oid oids[] = {
        [DB_NULL] = 0, [DB_INT] = OID_INT8, [DB_TEXT] = OID_TEXT, [DB_BYTES] = OID_BYTEA};
    return oids[type];
}

static bool take_parameters(struct parameters *p, const struct db_value *values, size_t n)
{
    if (n > DB_PARAMETERS_MAX)
        return false;
    p->n = (int)n;
    for (size_t i = 0; i < n; i++) {
        const struct db_value *v = &values[i];
        p->oids[i] = oid_of(v->type);
        p->formats[i] = 1;
        p->ints[i] = htobe64((uint64_t)v->i);
        p->values[i] = v->type == DB_NULL ? NULL : v->type == DB_INT ? (const char *)&p->ints[i] : v->data;
        if (v->len > INT32_MAX)
            return false;
        p->lengths[i] = v->type == DB_INT ? (int)sizeof(uint64_t) : (int)v->len;
    }
    return true;
}

static void name_of(char out[NAME], const struct pg_db *d, const struct pg_statement *st)
{
    /* A name is never given twice on a connection. */
    (void)snprintf(out, NAME, "s%llu",
                   (unsigned long long)(d->names - d->n) + (unsigned long long)(st - d->statements));
}

/* Parameters that were null when it was prepared have a type that the server chose. */
static bool fits(const struct pg_statement *st, const char *sql, const struct db_value *values, size_t n)
{
    bool same = st->sql == sql && st->n == n;
    for (size_t i = 0; i < n && same; i++)
        same = values[i].type == DB_NULL || values[i].type == (enum db_type)st->types[i];
    return same;
}

void pg_forget_statements(struct pg_db *d)
{
    d->n = 0;
}

static struct pg_statement *find(struct pg_db *d, const char *sql, const struct db_value *values, size_t n)
{
    for (size_t i = 0; i < d->n; i++)
        if (fits(&d->statements[i], sql, values, n))
            return &d->statements[i];
    return NULL;
}

static enum sg_code simple(struct pg_db *d, const char *sql, struct sg_error *e)
{
    PGresult *r = pg_simple(d->conn, sql, d->db.deadline_ms);
    enum sg_code rc = pg_good(r) ? SG_OK : pg_explain(d, r, e);
    PQclear(r);
    return rc;
}

static enum sg_code prepare(struct pg_db *d, const char *sql, const struct db_value *values,
                            const struct parameters *p, const struct pg_statement **out, struct sg_error *e)
{
    char name[NAME];
    if (d->n == PG_STATEMENTS_MAX) {
        enum sg_code rc = simple(d, "DEALLOCATE ALL", e);
        if (rc)
            return rc;
        d->n = 0;
    }
    struct pg_statement *st = &d->statements[d->n];
    d->n++;
    d->names++;
    name_of(name, d, st);
    PGresult *r =
        PQsendPrepare(d->conn, name, sql, p->n, p->oids) ? pg_answer(d->conn, d->db.deadline_ms) : NULL;
    enum sg_code rc = pg_good(r) ? SG_OK : pg_explain(d, r, e);
    PQclear(r);
    *st = (struct pg_statement){.sql = rc ? NULL : sql, .n = (size_t)p->n};
    for (int i = 0; i < p->n; i++)
        st->types[i] = (unsigned char)values[i].type;
    *out = st;
    return rc;
}

/* ---- rows ---- */

static int64_t big_endian(const char *p, int len)
{
    uint64_t n = len && (signed char)p[0] < 0 && len > 1 ? UINT64_MAX : 0;
    for (int i = 0; i < len; i++)
        n = n << 8 | (unsigned char)p[i];
    return (int64_t)n;
}

static bool take_column(const PGresult *r, int row, int column, struct db_value *out)
{
    const char *p = PQgetvalue(r, row, column);
    int len = PQgetlength(r, row, column);
    *out = (struct db_value){.type = DB_NULL};
    if (PQgetisnull(r, row, column))
        return true;
    switch (PQftype(r, column)) {
    case OID_INT8:
    case OID_INT4:
    case OID_INT2:
    case OID_BOOL:
        *out = db_int(big_endian(p, len));
        return len <= 8;
    case OID_TEXT:
    case OID_VARCHAR:
    case OID_BPCHAR:
    case OID_NAME:
    case OID_UNKNOWN:
        *out = (struct db_value){.type = DB_TEXT, .data = p, .len = (size_t)len};
        return true;
    case OID_BYTEA:
        *out = db_bytes(p, (size_t)len);
        return true;
    default:
        sg_log(SG_LOG_ERROR, "store statement failed", "column_type", "i", (int64_t)PQftype(r, column), NULL);
        return false;
    }
}

static enum sg_code give_rows(const PGresult *r, db_row_fn *row, void *arg, struct sg_error *e)
{
    struct db_value columns[DB_COLUMNS_MAX];
    int n = PQnfields(r);
    enum sg_code rc = SG_OK;
    if (n > DB_COLUMNS_MAX)
        return sg_fail(e, SG_E_INTERNAL, SG_NOT_STARTED, "a row of the state is too wide");
    for (int i = 0; i < PQntuples(r) && !rc; i++) {
        for (int j = 0; j < n && !rc; j++)
            if (!take_column(r, i, j, &columns[j]))
                rc = sg_fail(e, SG_E_INTERNAL, SG_NOT_STARTED, "the state could not be read");
        if (!rc)
            rc = row(arg, columns, (size_t)n, e);
    }
    return rc;
}

static int64_t changed_rows(PGresult *r)
{
    int64_t n = 0;
    for (const char *p = PQcmdTuples(r); isdigit((unsigned char)*p) && n < INT64_MAX / 16; p++)
        n = n * 10 + (*p - '0');
    return n;
}

/* ---- tables ---- */

static bool is_definition(const char *sql)
{
    static const char *const verbs[] = {"CREATE ", "ALTER ", "DROP ", "DO "};
    bool found = false;
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs && !found; i++)
        found = strncmp(sql, verbs[i], strlen(verbs[i])) == 0;
    return found;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Text is ordered and compared by its bytes, as the other database does, whatever the server's language: every TEXT of
 * a definition becomes TEXT COLLATE "C". */
static char *with_byte_order(const char *sql)
{
    static const char from[] = "TEXT", to[] = "TEXT COLLATE \"C\"";
    size_t count = 0;
    for (const char *p = strstr(sql, from); p; p = strstr(p + 1, from))
        count++;
    size_t size = strlen(sql) + count * (sizeof to - sizeof from) + 1, len = 0;
    char *out = malloc(size);
    bool quoted = false;
    for (const char *p = sql; out && *p;) {
        bool word = !quoted && strncmp(p, from, 4) == 0 && !is_word(p[4]) && (p == sql || !is_word(p[-1]));
        quoted = quoted != (*p == '\'');
        const char *add = word ? to : p;
        size_t n = word ? sizeof to - 1 : 1;
        memcpy(out + len, add, n);
        len += n;
        p += word ? 4 : 1;
    }
    if (out)
        out[len] = '\0';
    return out;
}

static enum sg_code define(struct pg_db *d, const char *sql, struct sg_error *e)
{
    char *own = with_byte_order(sql);
    if (!own)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_STARTED, "no memory for the state");
    enum sg_code rc = simple(d, own, e);
    free(own);
    return rc;
}

enum sg_code pg_run(struct store_db *db, const char *sql, const struct db_value *values, size_t n,
                    db_row_fn *row, void *arg, int64_t *changed, struct sg_error *e)
{
    struct pg_db *d = (struct pg_db *)db; /* its first member */
    struct parameters p;
    char name[NAME];
    if (n == 0 && is_definition(sql))
        return define(d, sql, e);
    if (!take_parameters(&p, values, n))
        return sg_fail(e, SG_E_INTERNAL, SG_NOT_STARTED, "too much for a statement");
    const struct pg_statement *st = find(d, sql, values, n);
    enum sg_code rc = st ? SG_OK : prepare(d, sql, values, &p, &st, e);
    if (rc)
        return rc;
    name_of(name, d, st);
    PGresult *r = PQsendQueryPrepared(d->conn, name, p.n, p.values, p.lengths, p.formats, 1)
                      ? pg_answer(d->conn, db->deadline_ms)
                      : NULL;
    if (!pg_good(r))
        rc = pg_explain(d, r, e);
    else if (row && PQresultStatus(r) == PGRES_TUPLES_OK)
        rc = give_rows(r, row, arg, e);
    if (!rc && changed)
        *changed = changed_rows(r);
    PQclear(r);
    return rc;
}
