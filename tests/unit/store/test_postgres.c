/* What only a server can do to the store: answers lost at the worst moment, a server that dies, freezes or refuses, and
 * the clock of another machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "store/db.h"
#include "store/locks.h"
#include "tests/support/any_store.h"
#include "tests/support/pg_proxy.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a table of numbers ---- */

static enum sg_code make_table(struct store_db *db, void *arg, struct sg_error *e)
{
    (void)arg;
    return db_run(db, "CREATE TABLE n (i BIGINT PRIMARY KEY)", NULL, 0, NULL, NULL, NULL, e);
}

struct addition {
    int64_t i;
    int runs;
    const char *first; /* run before it, the first time */
};

static enum sg_code add(struct store_db *db, void *arg, struct sg_error *e)
{
    struct addition *a = arg;
    const struct db_value v = db_int(a->i);
    enum sg_code rc = SG_OK;
    if (a->runs++ == 0 && a->first)
        rc = db_run(db, a->first, NULL, 0, NULL, NULL, NULL, e);
    return rc ? rc : db_run(db, "INSERT INTO n (i) VALUES ($1)", &v, 1, NULL, NULL, NULL, e);
}

static enum sg_code on_number(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    (void)n;
    (void)e;
    *(int64_t *)arg = db_get_int(&c[0]);
    return SG_OK;
}

static enum sg_code count(struct store_db *db, void *arg, struct sg_error *e)
{
    return db_run(db, "SELECT COUNT(*) FROM n", NULL, 0, on_number, arg, NULL, e);
}

static int64_t counted(struct store *s)
{
    struct sg_error e;
    int64_t n = -1;
    assert_int_equal(store_call(s, STORE_READ, count, &n, &e), SG_OK);
    return n;
}

static struct store *open_with(struct store_options o)
{
    struct sg_error e;
    struct store *s = NULL;
    assert_int_equal(store_open(&o, &s, &e), SG_OK);
    return s;
}

static struct store *with_table(int64_t busy_ms)
{
    struct sg_error e;
    any_store_empty();
    struct store_options o = any_store_options();
    o.busy_ms = busy_ms;
    struct store *s = open_with(o);
    assert_int_equal(store_call(s, STORE_DURABLE, make_table, NULL, &e), SG_OK);
    return s;
}

/* ---- connections that are cut ---- */

static struct pg_proxy *proxy;

/* A store on the latest database, by way of the proxy. */
static struct store *through_proxy(void)
{
    char url[512];
    struct store_options o = any_store_options();
    const char *host = strstr(o.url, any_store_socket_folder());
    assert_non_null(host);
    (void)snprintf(url, sizeof url, "%.*s%s%s", (int)(host - o.url), o.url, pg_proxy_folder(proxy),
                   host + strlen(any_store_socket_folder()));
    o.url = url;
    return open_with(o);
}

/* An addition while the connection is cut; returns how often it ran. */
static int add_while(struct store *s, enum pg_cut cut, int64_t i)
{
    struct sg_error e;
    struct addition a = {.i = i};
    int before = pg_proxy_cuts(proxy);
    (void)counted(s); /* there is a connection that works */
    pg_proxy_cut(proxy, cut);
    assert_int_equal(store_call(s, STORE_DURABLE, add, &a, &e), SG_OK);
    assert_int_equal(pg_proxy_cuts(proxy), before + 1);
    return a.runs;
}

static void test_a_commit_whose_answer_is_lost_is_found_out(void **state)
{
    (void)state;
    struct store *direct = with_table(0);
    proxy = pg_proxy_new(any_store_socket_folder());
    struct store *s = through_proxy();
    assert_int_equal(add_while(s, PG_CUT_AFTER_COMMIT, 1), 1); /* it happened, and is not done again */
    assert_int_equal(counted(direct), 1);
    assert_int_equal(add_while(s, PG_CUT_BEFORE_COMMIT, 2), 2); /* it had not */
    assert_int_equal(counted(direct), 2);
    assert_int_equal(add_while(s, PG_CUT_BEGIN, 3), 1); /* a dead connection is replaced */
    assert_int_equal(counted(direct), 3);
    int64_t n = -1;
    struct sg_error e;
    (void)counted(s);
    pg_proxy_cut(proxy, PG_CUT_AFTER_COMMIT);
    assert_int_equal(store_call(s, STORE_READ, count, &n, &e), SG_OK); /* all was read */
    assert_int_equal(n, 3);
    store_close(s);
    pg_proxy_free(proxy);
    store_close(direct);
}

static enum sg_code cut_off(struct store_db *db, void *arg, struct sg_error *e)
{
    struct addition *a = arg;
    if (a->runs == 0)
        any_store_sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                      " AND usename = 'sandgate'");
    return add(db, arg, e);
}

static void test_a_connection_that_ends_in_the_middle(void **state)
{
    (void)state;
    struct sg_error e;
    struct store *s = with_table(0);
    struct addition a = {.i = 1};
    assert_int_equal(store_call(s, STORE_DURABLE, cut_off, &a, &e), SG_OK);
    assert_int_equal(a.runs, 2);
    assert_int_equal(counted(s), 1);
    store_close(s);
}

static enum sg_code kill_server(struct store_db *db, void *arg, struct sg_error *e)
{
    enum sg_code rc = add(db, arg, e);
    if (!rc)
        any_store_server(ANY_STORE_KILL);
    return rc;
}

static enum sg_code until_connected(struct store *s, struct addition *a, struct sg_error *e)
{
    enum sg_code rc = SG_E_STORE_UNAVAILABLE;
    for (int i = 0; i < 500 && rc == SG_E_STORE_UNAVAILABLE; i++) {
        rc = store_call(s, STORE_DURABLE, add, a, e);
        (void)poll(NULL, 0, rc ? 20 : 0);
    }
    return rc;
}

static void test_the_server_dies_in_the_middle_and_comes_again(void **state)
{
    (void)state;
    struct sg_error e;
    struct store *s = with_table(1000);
    struct addition one = {.i = 1}, two = {.i = 2}, three = {.i = 3};
    assert_int_equal(store_call(s, STORE_DURABLE, add, &one, &e), SG_OK);
    assert_int_equal(store_call(s, STORE_DURABLE, kill_server, &two, &e), SG_E_STORE_UNAVAILABLE);
    assert_true(sg_error_row(e.code)->retryable);
    any_store_server(ANY_STORE_START);
    assert_int_equal(until_connected(s, &three, &e), SG_OK);
    int64_t n = counted(s); /* the second is there only if its caller was told that nobody knows */
    assert_in_range(n, 2, e.outcome == SG_OUTCOME_UNKNOWN ? 3 : 2);
    store_close(s);
}

static void test_a_frozen_server_is_given_up(void **state)
{
    (void)state;
    struct sg_error e;
    struct store *s = with_table(600);
    struct addition a = {.i = 1}, b = {.i = 2};
    any_store_server(ANY_STORE_FREEZE);
    int64_t before = sg_mono_ms();
    assert_int_equal(store_call(s, STORE_DURABLE, add, &a, &e), SG_E_STORE_UNAVAILABLE);
    assert_in_range(sg_mono_ms() - before, 500, 10000);
    before = sg_mono_ms();
    for (int i = 0; i < 20; i++) /* and is not waited for by everybody again */
        assert_int_equal(store_call(s, STORE_READ, count, &a.i, &e), SG_E_STORE_UNAVAILABLE);
    assert_true(sg_mono_ms() - before < 20000);
    any_store_server(ANY_STORE_THAW);
    assert_int_equal(until_connected(s, &b, &e), SG_OK);
    store_close(s);
}

/* ---- what the server says ---- */

static void test_what_its_errors_mean(void **state)
{
    (void)state;
#define RAISE(code) "DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '" code "'; END $$"
    static const struct {
        const char *sql;
        enum sg_code code;
        const char *detail;
        int runs;
    } cases[] = {
        {RAISE("40001"), SG_OK, NULL, 2},
        {RAISE("40P01"), SG_OK, NULL, 2},
        {RAISE("53100"), SG_E_STORE_UNAVAILABLE, "full", 1},
        {RAISE("53200"), SG_E_STORE_UNAVAILABLE, "memory", 1},
        {RAISE("25006"), SG_E_STORE_UNAVAILABLE, "written", 1},
        {RAISE("57014"), SG_E_STORE_UNAVAILABLE, "took too long", 1},
        {RAISE("58030"), SG_E_STORE_UNAVAILABLE, "disk", 1},
        {RAISE("XX001"), SG_E_STORE_UNAVAILABLE, "damaged", 1},
        {RAISE("42501"), SG_E_STORE_UNAVAILABLE, "refuses", 1},
        {RAISE("22021"), SG_E_INTERNAL, "could not be", 1},
        {RAISE("23505"), SG_OK, NULL, 2}, /* two that looked first met */
        {"SELECT 1.5", SG_OK, NULL, 1},   /* of no type that is known, but nobody wants it */
    };
    struct sg_error e;
    struct store *s = with_table(0);
    int64_t there = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct addition a = {.i = (int64_t)i, .first = cases[i].sql};
        assert_int_equal(store_call(s, STORE_WRITE, add, &a, &e), cases[i].code);
        assert_int_equal(a.runs, cases[i].runs);
        if (cases[i].code)
            assert_non_null(strstr(e.detail, cases[i].detail));
        there += !cases[i].code;
        assert_int_equal(counted(s), there); /* and the next one works */
    }
    store_close(s);
}

static void test_urls_that_cannot_be_right_are_not_repeated(void **state)
{
    (void)state;
    static const char *const urls[] = {
        "postgresql://me:hush@[::1:5432/x",
        "postgresql://me:hush@h/x?nonsense=1",
        "mysql://me:hush@h/x",
        "postgresql://me:hush%zz@h/x",
        "host=h password=hush",
    };
    struct sg_error e;
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        struct store *s = NULL;
        struct store_options o = {.url = urls[i]};
        assert_int_equal(store_open(&o, &s, &e), SG_E_INVALID_FIELD);
        assert_null(strstr(e.detail, "hush"));
        assert_null(s);
    }
}

static void test_another_encoding_is_refused(void **state)
{
    (void)state;
    struct sg_error e;
    struct store *s = NULL;
    char url[320];
    any_store_sql(
        "CREATE DATABASE bytes TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'");
    (void)snprintf(url, sizeof url, "postgresql:///bytes?host=%s&user=sandgate", any_store_socket_folder());
    struct store_options o = {.url = url};
    assert_int_equal(store_open(&o, &s, &e), SG_E_INVALID_FIELD);
    assert_non_null(strstr(e.detail, "UTF8"));
    assert_null(s);
}

static void test_what_is_missing_now_may_be_there_later(void **state)
{
    (void)state;
    struct sg_error e;
    struct store *s = NULL;
    int64_t n;
    char url[320];
    (void)snprintf(url, sizeof url, "postgresql:///later?host=%s&user=sandgate", any_store_socket_folder());
    struct store_options o = {.url = url};
    assert_int_equal(store_open(&o, &s, &e), SG_OK); /* the gateway starts */
    assert_int_equal(store_call(s, STORE_READ, count, &n, &e), SG_E_STORE_UNAVAILABLE);
    any_store_sql("CREATE DATABASE later");
    enum sg_code rc = SG_E_STORE_UNAVAILABLE;
    for (int i = 0; i < 500 && rc; i++) {
        rc = store_call(s, STORE_DURABLE, make_table, NULL, &e);
        (void)poll(NULL, 0, rc ? 20 : 0);
    }
    assert_int_equal(rc, SG_OK);
    assert_int_equal(counted(s), 0);
    store_close(s);
}

/* ---- the clock ---- */

static enum sg_code look(struct store_db *db, void *arg, struct sg_error *e)
{
    return store_now(db, arg, e);
}

static void test_time_is_the_database_s(void **state)
{
    (void)state;
    struct sg_error e;
    int64_t hour = 3600000, read = 0, written = 0;
    char url[400];
    any_store_empty();
    any_store_sql("CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS"
                  " $$ SELECT pg_catalog.clock_timestamp() + interval '1 hour' $$");
    (void)snprintf(url, sizeof url, "%s%%2Cpg_catalog",
                   any_store_options().url); /* ahead of the server's own */
    struct store *s = open_with((struct store_options){.url = url});
    int64_t here = sg_wall_ms();
    assert_int_equal(store_call(s, STORE_READ, look, &read, &e), SG_OK);
    assert_int_equal(store_call(s, STORE_WRITE, look, &written, &e), SG_OK);
    assert_in_range(read - here, hour - 1000, hour + 60000);
    assert_in_range(written - read, 0, 60000);
    store_close(s);
}

/* ---- connections ---- */

struct slow {
    struct store *s;
    int64_t ms;
    enum sg_code rc;
    struct sg_error e;
    pthread_t thread;
};

static enum sg_code wait_a_little(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct slow *w = arg;
    const struct db_value v = db_int(w->ms);
    return db_run(db, "SELECT 1 FROM pg_sleep(CAST($1 AS BIGINT) / 1000.0)", &v, 1, NULL, NULL, NULL, e);
}

static void *wait_in_thread(void *arg)
{
    struct slow *w = arg;
    w->rc = store_call(w->s, STORE_READ, wait_a_little, w, &w->e);
    return NULL;
}

enum { CALLERS = 64 };

/* All at once for so long each; how many were refused. */
static int refused(int64_t connections, int64_t busy_ms, int64_t ms)
{
    struct slow w[CALLERS];
    struct store_options o = any_store_options();
    int n = 0;
    o.connections = connections;
    o.busy_ms = busy_ms;
    struct store *s = open_with(o);
    for (int i = 0; i < CALLERS; i++) {
        w[i] = (struct slow){.s = s, .ms = ms};
        assert_int_equal(pthread_create(&w[i].thread, NULL, wait_in_thread, &w[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(pthread_join(w[i].thread, NULL), 0);
        if (!w[i].rc)
            continue;
        assert_int_equal(w[i].rc, SG_E_STORE_UNAVAILABLE);
        n++;
    }
    store_close(s);
    return n;
}

static void test_more_callers_than_connections(void **state)
{
    (void)state;
    any_store_empty();
    assert_int_equal(refused(8, 20000, 5), 0);
    assert_in_range(refused(2, 400, 200), 1, CALLERS - 2); /* some are served, and nobody waits without end */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_commit_whose_answer_is_lost_is_found_out),
        cmocka_unit_test(test_a_connection_that_ends_in_the_middle),
        cmocka_unit_test(test_the_server_dies_in_the_middle_and_comes_again),
        cmocka_unit_test(test_a_frozen_server_is_given_up),
        cmocka_unit_test(test_what_its_errors_mean),
        cmocka_unit_test(test_urls_that_cannot_be_right_are_not_repeated),
        cmocka_unit_test(test_another_encoding_is_refused),
        cmocka_unit_test(test_what_is_missing_now_may_be_there_later),
        cmocka_unit_test(test_time_is_the_database_s),
        cmocka_unit_test(test_more_callers_than_connections),
    };
    return ANY_STORE_RUN(argc, argv, tests);
}
