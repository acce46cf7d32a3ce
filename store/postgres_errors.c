/* What PostgreSQL's errors mean to the store.  Source: PostgreSQL documentation, appendix A (SQLSTATE). */
#include "store/postgres.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum { UNIQUE_RETRIES = 3, STATE_LEN = 5 };

enum meaning {
    BROKEN = 1, /* only a new connection can help */
    AGAIN = 2,  /* another transaction was in the way */
    UNTOLD = 4, /* not to be expected: logged with the database's words */
};

struct row {
    const char *state; /* or its class, the first two characters */
    unsigned meaning;
    const char *detail;
};

/* The first that fits. */
static const struct row rows[] = {
    {"40001", AGAIN, "other work on the same state was in the way for too long"},
    {"40P01", AGAIN, "other work on the same state was in the way for too long"},
    {"55P03", 0, "the state is locked by another process"},
    {"57014", 0, "the database took too long"},
    {"57P05", BROKEN | AGAIN, "the database closed the connection"},
    {"57P", BROKEN, "the database is stopping or starting"},
    {"25006", BROKEN, "the database cannot be written"},
    {"25P03", BROKEN | AGAIN, "the database closed the connection"},
    {"26000", BROKEN | AGAIN, "the database forgot a statement"},
    {"53100", 0, "the disk of the database is full"},
    {"53200", 0, "the database has no memory left"},
    {"53300", BROKEN, "the database takes no more connections"},
    {"53", 0, "the database has no room left"},
    {"54000", 0, "a limit of the database was reached"},
    {"08", BROKEN, "the connection to the database was lost"},
    {"28", BROKEN, "the database refuses the login"},
    {"3D000", BROKEN, "the database does not exist"},
    {"42501", UNTOLD | BROKEN, "the database refuses access"},
    {"58", UNTOLD | BROKEN, "the disk of the database fails"},
    {"XX001", UNTOLD | BROKEN, "the database is damaged"},
    {"XX002", UNTOLD | BROKEN, "the database is damaged"},
};

static const struct row *find(const char *state)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strncmp(rows[i].state, state, strlen(rows[i].state)) == 0)
            return &rows[i];
    return NULL;
}

static enum sg_code unavailable(struct sg_error *e, const char *what)
{
    return sg_fail(e, SG_E_STORE_UNAVAILABLE, SG_NOT_STARTED, "%s", what);
}

static void tell(const PGresult *r, const char *state)
{
    sg_log(SG_LOG_ERROR, "store statement failed", "code", "s", state, "message", "s",
           PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY), NULL);
}

/* Nothing of a transaction whose connection is lost before its end stays. */
static enum sg_code lost(struct pg_db *d, struct sg_error *e)
{
    d->lost = d->db.broken = d->db.again = true;
    return unavailable(e, "the database does not answer");
}

enum sg_code pg_explain(struct pg_db *d, const PGresult *r, struct sg_error *e)
{
    const char *state = r ? PQresultErrorField(r, PG_DIAG_SQLSTATE) : NULL;
    if (!state)
        return lost(d, e);
    const struct row *row = find(state);
    if (row) {
        if (row->meaning & BROKEN)
            d->db.broken = true;
        if (row->meaning & AGAIN || strncmp(state, "57P", 3) == 0 || strncmp(state, "08", 2) == 0)
            d->db.again = true;
        if (row->meaning & UNTOLD)
            tell(r, state);
        return unavailable(e, row->detail);
    }
    /* Two that look first and insert then may meet here instead of as a serialization failure. */
    if (strcmp(state, "23505") == 0 && d->unique++ < UNIQUE_RETRIES) {
        d->db.again = true;
        return sg_fail(e, SG_E_INTERNAL, SG_NOT_STARTED, "the state could not be written");
    }
    if (strcmp(state, "42P01") == 0)
        d->db.broken = true; /* the tables are gone: a new connection makes them */
    tell(r, state);
    return sg_fail(e, SG_E_INTERNAL, SG_NOT_STARTED, "the state could not be read or written");
}

/* The library's words in one line, unless the password is among them. */
static void words(PGconn *conn, char why[DB_WHY])
{
    const char *message = PQerrorMessage(conn), *password = PQpass(conn);
    if (password && *password && strstr(message, password))
        message = "(not shown: it holds the password)";
    (void)snprintf(why, DB_WHY, "%s", message);
    for (char *p = why; *p; p++)
        if (*p == '\n' || *p == '\t')
            *p = p[1] ? ' ' : '\0';
}

/* A connection that failed has no SQLSTATE, but the message ends with the server's words, which may be in any language;
 * what is certain is whether a login was asked for. */
enum sg_code pg_explain_connect(PGconn *conn, char why[DB_WHY], struct sg_error *e)
{
    if (!conn)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_STARTED, "no memory for the state");
    words(conn, why);
    if (PQconnectionNeedsPassword(conn) || PQconnectionUsedPassword(conn))
        return unavailable(e, "the database refuses the login");
    return unavailable(e, "the database cannot be reached");
}
