/* Transactions, statements and the queue: the same on every database. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "store/db.h"
#include "tests/support/any_store.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- a table of numbers ---- */

static enum sg_code make_table(struct store_db *db, void *arg, struct sg_error *e)
{
    (void)arg;
    return db_run(db, "CREATE TABLE IF NOT EXISTS n (i BIGINT PRIMARY KEY, t TEXT, b BYTEA)", NULL, 0, NULL,
                  NULL, NULL, e);
}

static enum sg_code add(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct db_value v = db_int(*(int64_t *)arg);
    return db_run(db, "INSERT INTO n (i) VALUES ($1)", &v, 1, NULL, NULL, NULL, e);
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

static enum sg_code add_one(struct store *s, int64_t i, struct sg_error *e)
{
    return store_call(s, STORE_DURABLE, add, &i, e);
}

static void with_table(struct store *s)
{
    struct sg_error e;
    assert_int_equal(store_call(s, STORE_WRITE, make_table, NULL, &e), SG_OK);
}

/* ---- life ---- */

static void test_what_was_written_stays(void **state)
{
    (void)state;
    struct sg_error e;
    struct store *s = any_store_new(NULL);
    with_table(s);
    assert_int_equal(add_one(s, 7, &e), SG_OK);
    store_close(s);
    s = any_store_again(NULL);
    assert_int_equal(counted(s), 1);
    store_close(s);
    s = any_store_new(NULL);
    with_table(s);
    assert_int_equal(counted(s), 0);
    store_close(s);
}

static enum sg_code from_the_future(struct store_db *db, void *arg, struct sg_error *e)
{
    (void)arg;
    return db_run(db, "INSERT INTO schema_migrations (version, applied_at) VALUES (1000, 0)", NULL, 0, NULL,
                  NULL, NULL, e);
}

static void test_a_newer_version_is_not_touched(void **state)
{
    (void)state;
    struct sg_error e;
    struct store *s = any_store_new(NULL);
    assert_int_equal(store_call(s, STORE_DURABLE, from_the_future, NULL, &e), SG_OK);
    store_close(s);
    struct store_options o = any_store_options();
    s = NULL;
    assert_int_equal(store_open(&o, &s, &e), SG_E_INVALID_FIELD);
    assert_non_null(strstr(e.detail, "newer"));
    assert_null(s);
}

/* Runs the same in several processes at once; each ends with 0. */
static void in_processes(int n, void (*child)(int i))
{
    pid_t pids[16];
    assert_in_range(n, 1, 16);
    for (int i = 0; i < n; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            child(i);
    }
    for (int i = 0; i < n; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void child_opens(int i)
{
    (void)i;
    struct store *s = any_store_again(NULL);
    store_close(s);
    _exit(0);
}

static enum sg_code migrations(struct store_db *db, void *arg, struct sg_error *e)
{
    return db_run(db, "SELECT CAST(COUNT(*) - MAX(version) AS BIGINT) FROM schema_migrations", NULL, 0,
                  on_number, arg, NULL, e);
}

static void test_several_gateways_start_at_once_on_an_empty_database(void **state)
{
    (void)state;
    struct sg_error e;
    int64_t difference = -1;
    any_store_empty();
    in_processes(6, child_opens);
    struct store *s = any_store_again(NULL);
    assert_int_equal(store_call(s, STORE_READ, migrations, &difference, &e), SG_OK);
    assert_int_equal(difference, 0); /* each step once */
    store_close(s);
}

/* ---- statements ---- */

static enum sg_code on_placed(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    (void)e;
    assert_int_equal(n, 4);
    assert_string_equal(db_get_text(&c[0]), "two");
    assert_int_equal(db_get_int(&c[1]), 1);
    assert_string_equal(db_get_text(&c[2]), "a $1 ?1 in quotes");
    assert_int_equal(c[3].type, DB_BYTES);
    assert_memory_equal(c[3].data, "\0\xff", 2);
    ++*(int *)arg;
    return SG_OK;
}

static enum sg_code place(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct db_value v[] = {db_int(1), db_text("two"), db_bytes("\0\xff", 2)};
    return db_run(db, "SELECT $2, $1, 'a $1 ?1 in quotes', $3 WHERE $1 = 1", v, 3, on_placed, arg, NULL, e);
}

static void test_placeholders_count_by_number(void **state)
{
    (void)state;
    struct sg_error e;
    int rows = 0;
    struct store *s = any_store_new(NULL);
    assert_int_equal(store_call(s, STORE_READ, place, &rows, &e), SG_OK);
    assert_int_equal(store_call(s, STORE_READ, place, &rows, &e), SG_OK); /* prepared already */
    assert_int_equal(rows, 2);
    store_close(s);
}

static enum sg_code on_value(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    (void)n;
    (void)e;
    ++*(int *)arg;
    assert_int_equal(c[0].type, DB_INT);
    assert_true(c[0].i == INT64_MIN || c[0].i == INT64_MAX);
    if (c[0].i == INT64_MIN) {
        assert_int_equal(c[1].type, DB_NULL);
        assert_int_equal(c[2].type, DB_NULL);
    } else {
        assert_int_equal(c[1].type, DB_TEXT);
        assert_string_equal(db_get_text(&c[1]), "");
        assert_int_equal(c[2].type, DB_BYTES);
        assert_int_equal(c[2].len, 0);
    }
    return SG_OK;
}

/* The same statement with null first and something else then. */
static enum sg_code put_edges(struct store_db *db, void *arg, struct sg_error *e)
{
    static const char sql[] = "INSERT INTO n (i, t, b) VALUES ($1, $2, $3)";
    const struct db_value nulls[] = {db_int(INT64_MIN), db_text(NULL), {.type = DB_NULL}};
    const struct db_value empty[] = {db_int(INT64_MAX), db_text(""), db_bytes(NULL, 0)};
    (void)arg;
    enum sg_code rc = db_run(db, sql, nulls, 3, NULL, NULL, NULL, e);
    return rc ? rc : db_run(db, sql, empty, 3, NULL, NULL, NULL, e);
}

static enum sg_code get_values(struct store_db *db, void *arg, struct sg_error *e)
{
    return db_run(db, "SELECT i, t, b FROM n", NULL, 0, on_value, arg, NULL, e);
}

static void test_null_empty_and_the_largest_numbers(void **state)
{
    (void)state;
    struct sg_error e;
    int rows = 0;
    struct store *s = any_store_new(NULL);
    with_table(s);
    assert_int_equal(store_call(s, STORE_WRITE, put_edges, NULL, &e), SG_OK);
    assert_int_equal(store_call(s, STORE_READ, get_values, &rows, &e), SG_OK);
    assert_int_equal(rows, 2);
    store_close(s);
}

static enum sg_code on_text(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    char *all = arg;
    (void)n;
    (void)e;
    (void)snprintf(all + strlen(all), 64 - strlen(all), "%s|", db_get_text(&c[0]));
    return SG_OK;
}

static enum sg_code order(struct store_db *db, void *arg, struct sg_error *e)
{
    static const char *const words[] = {"b", "B", "a-1", "a1", "\xc3\xa4", "_", "a"};
    *(char *)arg = '\0';
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const struct db_value v[] = {db_int((int64_t)i), db_text(words[i])};
        enum sg_code rc = db_run(db, "INSERT INTO n (i, t) VALUES ($1, $2)", v, 2, NULL, NULL, NULL, e);
        if (rc)
            return rc;
    }
    const struct db_value from = db_text("B");
    return db_run(db, "SELECT t FROM n WHERE t > $1 ORDER BY t", &from, 1, on_text, arg, NULL, e);
}

static void test_text_is_ordered_by_its_bytes(void **state)
{
    (void)state;
    struct sg_error e;
    char all[64];
    struct store *s = any_store_new(NULL);
    with_table(s);
    assert_int_equal(store_call(s, STORE_WRITE, order, all, &e), SG_OK);
    assert_string_equal(all, "_|a|a-1|a1|b|\xc3\xa4|");
    store_close(s);
}

enum { MANY_STATEMENTS = 300 };

static enum sg_code many_statements(struct store_db *db, void *arg, struct sg_error *e)
{
    const char *const *sql = arg;
    enum sg_code rc = SG_OK;
    int64_t n = 0;
    for (int i = 0; i < MANY_STATEMENTS && !rc; i++) {
        rc = db_run(db, sql[i], NULL, 0, on_number, &n, NULL, e);
        assert_int_equal(n, i);
    }
    return rc;
}

static void test_more_statements_than_are_kept_prepared(void **state)
{
    (void)state;
    struct sg_error e;
    static char text[MANY_STATEMENTS][32];
    static const char *sql[MANY_STATEMENTS];
    for (int i = 0; i < MANY_STATEMENTS; i++) {
        (void)snprintf(text[i], sizeof text[i], "SELECT %d", i);
        sql[i] = text[i];
    }
    struct store *s = any_store_new(NULL);
    assert_int_equal(store_call(s, STORE_READ, many_statements, (void *)sql, &e), SG_OK);
    assert_int_equal(store_call(s, STORE_READ, many_statements, (void *)sql, &e), SG_OK);
    store_close(s);
}

static enum sg_code add_two_then_fail(struct store_db *db, void *arg, struct sg_error *e)
{
    int64_t i = 100;
    (void)arg;
    enum sg_code rc = add(db, &i, e);
    i = 101;
    if (!rc)
        rc = add(db, &i, e);
    return rc ? rc : sg_fail(e, SG_E_OVERLOADED, SG_NOT_STARTED, "thought better of it");
}

static void test_all_or_nothing(void **state)
{
    (void)state;
    struct sg_error e;
    struct store *s = any_store_new(NULL);
    with_table(s);
    assert_int_equal(store_call(s, STORE_WRITE, add_two_then_fail, NULL, &e), SG_E_OVERLOADED);
    assert_int_equal(counted(s), 0);
    store_close(s);
}

static enum sg_code add_twice_and_say_nothing(struct store_db *db, void *arg, struct sg_error *e)
{
    int64_t i = 5;
    (void)arg;
    enum sg_code rc = add(db, &i, e);
    (void)!add(db, &i, e); /* fails: it is there */
    return rc;
}

/* Databases differ in what the rest of such a transaction may do; that it is committed or fails as a whole they share. */
static void test_a_failure_that_is_ignored(void **state)
{
    (void)state;
    struct sg_error e;
    struct store *s = any_store_new(NULL);
    with_table(s);
    enum sg_code rc = store_call(s, STORE_WRITE, add_twice_and_say_nothing, NULL, &e);
    assert_int_equal(counted(s), rc ? 0 : 1);
    assert_int_equal(add_one(s, 6, &e), SG_OK);
    store_close(s);
}

/* ---- several at once, and sudden ends ---- */

static enum sg_code increment(struct store_db *db, void *arg, struct sg_error *e)
{
    int64_t n = -1;
    (void)arg;
    enum sg_code rc =
        db_run(db, "SELECT CAST(t AS BIGINT) FROM n WHERE i = 1", NULL, 0, on_number, &n, NULL, e);
    char text[24];
    (void)snprintf(text, sizeof text, "%lld", (long long)n + 1);
    const struct db_value v = db_text(text);
    return rc ? rc : db_run(db, "UPDATE n SET t = $1 WHERE i = 1", &v, 1, NULL, NULL, NULL, e);
}

/* Two rows of which at most one may be set: each transaction looks at both and writes another one of them. */
static enum sg_code set_if_none_is(struct store_db *db, void *arg, struct sg_error *e)
{
    int64_t set = -1;
    const struct db_value mine = db_int(*(int64_t *)arg);
    enum sg_code rc =
        db_run(db, "SELECT COUNT(*) FROM n WHERE i >= 10 AND t = 'set'", NULL, 0, on_number, &set, NULL, e);
    if (!rc && set == 0)
        rc = db_run(db, "UPDATE n SET t = 'set' WHERE i = $1", &mine, 1, NULL, NULL, NULL, e);
    return rc;
}

static enum sg_code clear_both(struct store_db *db, void *arg, struct sg_error *e)
{
    (void)arg;
    return db_run(db, "UPDATE n SET t = '' WHERE i >= 10", NULL, 0, NULL, NULL, NULL, e);
}

static enum sg_code both_set(struct store_db *db, void *arg, struct sg_error *e)
{
    return db_run(db, "SELECT COUNT(*) FROM n WHERE i >= 10 AND t = 'set'", NULL, 0, on_number, arg, NULL, e);
}

static enum sg_code make_rows(struct store_db *db, void *arg, struct sg_error *e)
{
    (void)arg;
    return db_run(db, "INSERT INTO n (i, t) VALUES (1, '0'), (10, ''), (11, '')", NULL, 0, NULL, NULL, NULL,
                  e);
}

enum { THREADS = 16, ROUNDS = 25 };

struct worker {
    struct store *s;
    store_fn *fn;
    int64_t i;
    int failed;
    pthread_t thread;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    struct sg_error e;
    for (int i = 0; i < ROUNDS; i++)
        w->failed += store_call(w->s, STORE_WRITE, w->fn, &w->i, &e) != SG_OK;
    return NULL;
}

static void in_threads(struct store *s, store_fn *fn, int n)
{
    struct worker w[THREADS];
    for (int i = 0; i < n; i++) {
        w[i] = (struct worker){.s = s, .fn = fn, .i = 10 + i % 2};
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < n; i++) {
        assert_int_equal(pthread_join(w[i].thread, NULL), 0);
        assert_int_equal(w[i].failed, 0);
    }
}

static enum sg_code read_counter(struct store_db *db, void *arg, struct sg_error *e)
{
    return db_run(db, "SELECT CAST(t AS BIGINT) FROM n WHERE i = 1", NULL, 0, on_number, arg, NULL, e);
}

static void test_what_is_read_is_still_so_when_it_is_written(void **state)
{
    (void)state;
    struct sg_error e;
    int64_t n = -1;
    struct store *s = any_store_new(NULL);
    with_table(s);
    assert_int_equal(store_call(s, STORE_WRITE, make_rows, NULL, &e), SG_OK);
    in_threads(s, increment, THREADS);
    assert_int_equal(store_call(s, STORE_READ, read_counter, &n, &e), SG_OK);
    assert_int_equal(n, THREADS * ROUNDS);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(store_call(s, STORE_WRITE, clear_both, NULL, &e), SG_OK);
        in_threads(s, set_if_none_is, 2);
        assert_int_equal(store_call(s, STORE_READ, both_set, &n, &e), SG_OK);
        assert_int_equal(n, 1);
    }
    store_close(s);
}

static void child_adds(int which)
{
    struct sg_error e;
    struct store *s = any_store_again(NULL);
    for (int64_t i = 0; i < 100; i++)
        if (add_one(s, (int64_t)which * 1000 + i, &e))
            _exit(1);
    store_close(s);
    _exit(0);
}

static void test_two_processes_share_it(void **state)
{
    (void)state;
    struct store *s = any_store_new(NULL);
    with_table(s);
    in_processes(2, child_adds);
    assert_int_equal(counted(s), 200);
    store_close(s);
}

static enum sg_code add_and_die(struct store_db *db, void *arg, struct sg_error *e)
{
    enum sg_code rc = add(db, arg, e);
    (void)kill(getpid(), SIGKILL);
    return rc;
}

static void test_killed_in_the_middle(void **state)
{
    (void)state;
    any_store_empty();
    pid_t pid = fork();
    if (pid == 0) {
        struct sg_error e;
        int64_t i = 2;
        struct store *s = any_store_again(NULL);
        with_table(s);
        if (add_one(s, 1, &e) || store_call(s, STORE_WRITE, add_and_die, &i, &e))
            _exit(1);
        _exit(2);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    struct store *s = any_store_again(NULL);
    assert_int_equal(counted(s), 1); /* what was answered, and nothing else */
    store_close(s);
}

/* ---- the queue ---- */

struct item {
    struct store_work work;
    int64_t i;
    int *done;
    struct sg_loop *stop_after;
    int total;
};

static void on_done(struct store_work *w)
{
    struct item *it = (struct item *)w;
    if (++*it->done == it->total)
        sg_loop_stop(it->stop_after);
}

static void fill(struct item *items, int n, struct sg_loop *loop, int *done)
{
    for (int i = 0; i < n; i++)
        items[i] = (struct item){.work = {.kind = STORE_WRITE, .fn = add, .done = on_done, .bytes = 10},
                                 .i = i,
                                 .done = done,
                                 .stop_after = loop,
                                 .total = n};
    for (int i = 0; i < n; i++)
        items[i].work.arg = &items[i].i;
}

enum { ITEMS = 500 };

static void test_submitted_work_is_answered_and_one_failure_hurts_nobody(void **state)
{
    (void)state;
    struct sg_loop *loop = sg_loop_new();
    struct store *s = any_store_new(loop);
    static struct item items[ITEMS];
    int done = 0;
    with_table(s);
    fill(items, ITEMS, loop, &done);
    items[250].i = 3; /* taken already */
    for (int i = 0; i < ITEMS; i++)
        assert_true(store_submit(s, &items[i].work));
    sg_loop_run(loop);
    assert_int_equal(done, ITEMS);
    for (int i = 0; i < ITEMS; i++)
        assert_int_equal(items[i].work.code, i == 250 ? SG_E_INTERNAL : SG_OK);
    assert_int_equal(counted(s), ITEMS - 1);
    store_close(s);
    sg_loop_free(loop);
}

static void test_closing_answers_what_was_submitted(void **state)
{
    (void)state;
    struct sg_loop *loop = sg_loop_new();
    struct store *s = any_store_new(loop);
    static struct item items[ITEMS];
    int done = 0;
    with_table(s);
    fill(items, ITEMS, loop, &done);
    for (int i = 0; i < ITEMS; i++)
        assert_true(store_submit(s, &items[i].work));
    store_close(s); /* the loop never ran */
    assert_int_equal(done, ITEMS);
    s = any_store_again(NULL);
    assert_int_equal(counted(s), ITEMS);
    store_close(s);
    sg_loop_free(loop);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_written_stays),
        cmocka_unit_test(test_a_newer_version_is_not_touched),
        cmocka_unit_test(test_several_gateways_start_at_once_on_an_empty_database),
        cmocka_unit_test(test_placeholders_count_by_number),
        cmocka_unit_test(test_null_empty_and_the_largest_numbers),
        cmocka_unit_test(test_text_is_ordered_by_its_bytes),
        cmocka_unit_test(test_more_statements_than_are_kept_prepared),
        cmocka_unit_test(test_all_or_nothing),
        cmocka_unit_test(test_a_failure_that_is_ignored),
        cmocka_unit_test(test_what_is_read_is_still_so_when_it_is_written),
        cmocka_unit_test(test_two_processes_share_it),
        cmocka_unit_test(test_killed_in_the_middle),
        cmocka_unit_test(test_submitted_work_is_answered_and_one_failure_hurts_nobody),
        cmocka_unit_test(test_closing_answers_what_was_submitted),
    };
    any_store_rehearses = false; /* much is counted here */
    return ANY_STORE_RUN(argc, argv, tests);
}
