/* Connecting to PostgreSQL.  Source: PostgreSQL documentation, libpq, database connection control functions. */
#include "store/postgres.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER = 24, SET_UP_MS = 2000 };

static void on_notice(void *arg, const PGresult *r)
{
    (void)arg;
    sg_log(SG_LOG_DEBUG, "database notice", "message", "s", PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY),
           NULL);
}

/* Its text is never repeated: the library's complaints quote it, password included. */
static enum sg_code check_url(const char *url, struct sg_error *e)
{
    bool known = strncmp(url, "postgresql://", 13) == 0 || strncmp(url, "postgres://", 11) == 0;
    char *complaint = NULL;
    PQconninfoOption *parsed = known ? PQconninfoParse(url, &complaint) : NULL;
    PQfreemem(complaint);
    if (!parsed)
        return sg_fail(
            e, SG_E_INVALID_FIELD, SG_NOT_SENT,
            "the URL of the database is not understood: it must be postgresql://USER@HOST:PORT/NAME, with"
            " %%XX for what has a meaning in URLs");
    PQconninfoFree(parsed);
    return SG_OK;
}

/* Tables are made and compared in UTF-8 and by bytes; transactions need what old versions have not. */
static enum sg_code check_server(PGconn *conn, struct sg_error *e)
{
    const char *encoding = PQparameterStatus(conn, "server_encoding");
    if (PQserverVersion(conn) < PG_VERSION_MIN)
        return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT, "PostgreSQL %d is too old; 12 or later is needed",
                       PQserverVersion(conn) / 10000);
    if (!encoding || strcmp(encoding, "UTF8") != 0)
        return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT, "the database's encoding must be UTF8, not %.40s",
                       encoding ? encoding : "unknown");
    return SG_OK;
}

/* Small tables would be read as a whole, and then every writer is in every other's way.  Work does not wait inside a
 * transaction: one that stands still belongs to a gateway that is frozen or gone, and is taken back. */
static enum sg_code set_up(PGconn *conn, const struct store_options *o, int64_t deadline_ms, char why[DB_WHY],
                           struct sg_error *e)
{
    char sql[512];
    long long most = (long long)(o->busy_ms - o->busy_ms / 4); /* the server says so before we give up */
    (void)snprintf(
        sql, sizeof sql,
        "SET statement_timeout = %lld; SET lock_timeout = %lld; SET idle_in_transaction_session_timeout = "
        "%lld;"
        " SET enable_seqscan = off; SET client_min_messages = warning; SET standard_conforming_strings = on",
        most, most - most / 8, (long long)o->busy_ms);
    PGresult *r = pg_simple(conn, sql, deadline_ms);
    enum sg_code rc = pg_good(r) ? SG_OK : pg_explain_connect(conn, why, e);
    PQclear(r);
    return rc;
}

static PGconn *dial(const struct store_options *o)
{
    char timeout[NUMBER], user_timeout[NUMBER];
    int64_t s = (o->busy_ms + 999) / 1000;
    (void)snprintf(timeout, sizeof timeout, "%lld", (long long)(s < 2 ? 2 : s));
    (void)snprintf(user_timeout, sizeof user_timeout, "%lld", (long long)o->busy_ms);
    /* What stands before the URL it may say otherwise; what stands behind it may not. */
    const char *const keys[] = {"fallback_application_name",
                                "connect_timeout",
                                "tcp_user_timeout",
                                "keepalives_idle",
                                "keepalives_interval",
                                "keepalives_count",
                                "target_session_attrs",
                                "gssencmode",
                                "dbname",
                                "client_encoding",
                                NULL};
    const char *const values[] = {"sandgate",   timeout,   user_timeout, "20",   "5", "3",
                                  "read-write", "disable", o->url,       "UTF8", NULL};
    return PQconnectdbParams(keys, values, 1);
}

PGconn *pg_connect(const struct store_options *o, int64_t deadline_ms, char why[DB_WHY], struct sg_error *e)
{
    enum sg_code rc = check_url(o->url, e);
    PGconn *conn = rc ? NULL : dial(o);
    if (rc)
        return NULL;
    rc = PQstatus(conn) == CONNECTION_OK && !PQsetnonblocking(conn, 1) ? check_server(conn, e)
                                                                       : pg_explain_connect(conn, why, e);
    if (!rc) {
        (void)PQsetNoticeReceiver(conn, on_notice, NULL);
        int64_t least = sg_mono_ms() + SET_UP_MS; /* others can use it, too */
        rc = set_up(conn, o, deadline_ms > least ? deadline_ms : least, why, e);
    }
    if (!rc)
        return conn;
    PQfinish(conn);
    return NULL;
}
