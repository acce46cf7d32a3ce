#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/any_store.h"

#include <libpq-fe.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

bool any_store_rehearses = true;
static bool postgres;
static int number; /* of the database, of this process's */
static char folder[64], path[128];
static char server_url[256], url[320], socket_folder[128];
static FILE *to_server, *from_server;
static pid_t server;

/* ---- the server ---- */

static bool read_answer(void)
{
    char line[512];
    if (!fgets(line, sizeof line, from_server))
        return false;
    const char *from = strstr(line, "\"url\": \"");
    const char *end = from ? strchr(from + 8, '"') : NULL;
    if (!end)
        return false;
    (void)snprintf(server_url, sizeof server_url, "%.*s", (int)(end - from - 8), from + 8);
    const char *host = strstr(server_url, "host=");
    (void)snprintf(socket_folder, sizeof socket_folder, "%.*s", host ? (int)strcspn(host + 5, "&") : 0,
                   host ? host + 5 : "");
    return true;
}

static bool start_server(void)
{
    int in[2], out[2];
    posix_spawn_file_actions_t acts;
    char *const argv[] = {(char[]){"/usr/bin/python3"}, (char[]){SG_PG_SERVER}, NULL};
    if (pipe2(in, 02000000) || pipe2(out, 02000000) || posix_spawn_file_actions_init(&acts)) /* O_CLOEXEC */
        return false;
    (void)posix_spawn_file_actions_adddup2(&acts, in[0], 0);
    (void)posix_spawn_file_actions_adddup2(&acts, out[1], 1);
    bool ok = posix_spawn(&server, argv[0], &acts, NULL, argv, environ) == 0;
    posix_spawn_file_actions_destroy(&acts);
    (void)close(in[0]);
    (void)close(out[1]);
    to_server = fdopen(in[1], "w");
    from_server = fdopen(out[0], "r");
    return ok && to_server && from_server && read_answer();
}

static void stop_server(void)
{
    if (to_server)
        (void)fclose(to_server);
    if (from_server)
        (void)fclose(from_server);
    if (server > 0)
        (void)waitpid(server, NULL, 0);
}

void any_store_server(enum any_store_act act)
{
    static const char *const words[] = {"kill", "start", "freeze", "thaw"};
    assert_true(fprintf(to_server, "%s\n", words[act]) > 0 && fflush(to_server) == 0);
    assert_true(read_answer());
}

const char *any_store_socket_folder(void)
{
    return socket_folder;
}

void any_store_sql(const char *sql)
{
    PGconn *conn = PQconnectdb(url[0] ? url : server_url);
    PGresult *r = PQexec(conn, sql);
    bool ok = PQresultStatus(r) == PGRES_COMMAND_OK || PQresultStatus(r) == PGRES_TUPLES_OK;
    if (!ok)
        print_error("%s: %s\n", sql, PQerrorMessage(conn));
    PQclear(r);
    PQfinish(conn);
    assert_true(ok);
}

/* ---- databases ---- */

static void remove_file(void)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < 4 && path[0]; i++) {
        char p[160];
        (void)snprintf(p, sizeof p, "%s%s", path, suffixes[i]);
        (void)unlink(p);
    }
}

void any_store_empty(void)
{
    number++;
    if (postgres) { /* a schema of its own is as good, and made in no time */
        char sql[64];
        url[0] = '\0';
        (void)snprintf(sql, sizeof sql, "CREATE SCHEMA t%d", number);
        any_store_sql(sql);
        (void)snprintf(url, sizeof url, "%s&options=-csearch_path%%3Dt%d", server_url, number);
        return;
    }
    remove_file();
    (void)snprintf(path, sizeof path, "%s/%d.db", folder, number);
}

bool any_store_is_postgres(void)
{
    return postgres;
}

struct store_options any_store_options(void)
{
    return (struct store_options){.path = path, .url = url};
}

struct store *any_store_again(struct sg_loop *loop)
{
    struct sg_error e = {0};
    struct store *s = NULL;
    struct store_options o = any_store_options();
    o.loop = loop;
    o.rehearse = any_store_rehearses;
    enum sg_code rc = store_open(&o, &s, &e);
    if (rc)
        print_error("%s\n", e.detail);
    assert_int_equal(rc, SG_OK);
    return s;
}

struct store *any_store_new(struct sg_loop *loop)
{
    any_store_empty();
    return any_store_again(loop);
}

int any_store_run(int argc, char **argv, const char *name, const struct CMUnitTest *tests, size_t n)
{
    const char *which = argc > 1 ? argv[1] : "sqlite";
    postgres = strcmp(which, "postgres") == 0;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)snprintf(folder, sizeof folder, "/tmp/sg-store-XXXXXX");
    if ((!postgres && strcmp(which, "sqlite") != 0) || !mkdtemp(folder) || (postgres && !start_server())) {
        (void)fprintf(stderr, "no database \"%s\" for the tests\n", which);
        stop_server();
        (void)rmdir(folder);
        return 1;
    }
    int failed = _cmocka_run_group_tests(name, tests, n, NULL, NULL);
    remove_file();
    (void)rmdir(folder);
    stop_server();
    return failed;
}
