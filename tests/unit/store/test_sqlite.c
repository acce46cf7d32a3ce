/* The store on SQLite: files and modes, and what happens when the file cannot be used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "store/db.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64], path[128];

static int make_dir(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/sg-store-XXXXXX");
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/state.db", dir);
    return 0;
}

static int drop_dir(void **state)
{
    (void)state;
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < 4; i++) {
        char p[160];
        (void)snprintf(p, sizeof p, "%s%s", path, suffixes[i]);
        (void)unlink(p);
    }
    return rmdir(dir);
}

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

static struct store *open_store(const char *p, struct sg_loop *loop, int64_t busy_ms)
{
    struct sg_error e;
    struct store *s = NULL;
    struct store_options o = {.path = p, .loop = loop, .busy_ms = busy_ms};
    enum sg_code rc = store_open(&o, &s, &e);
    if (rc)
        print_error("%s\n", e.detail);
    assert_int_equal(rc, SG_OK);
    return s;
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

/* ---- files ---- */

static mode_t mode_of(const char *suffix)
{
    char p[160];
    struct stat st;
    (void)snprintf(p, sizeof p, "%s%s", path, suffix);
    assert_int_equal(stat(p, &st), 0);
    return st.st_mode & 0777;
}

static void test_files_are_private(void **state)
{
    (void)state;
    mode_t old = umask(0);
    struct store *s = open_store(path, NULL, 0);
    umask(old);
    with_table(s);
    assert_int_equal(mode_of(""), 0600);
    assert_int_equal(mode_of("-wal"), 0600);
    assert_int_equal(mode_of("-shm"), 0600);
    store_close(s);
    assert_int_equal(chmod(path, 0644), 0);
    s = open_store(path, NULL, 0);
    assert_int_equal(mode_of(""), 0600);
    store_close(s);
}

static void test_what_was_written_stays(void **state)
{
    (void)state;
    struct sg_error e;
    struct store *s = open_store(path, NULL, 0);
    with_table(s);
    assert_int_equal(add_one(s, 7, &e), SG_OK);
    store_close(s);
    s = open_store(path, NULL, 0);
    assert_int_equal(counted(s), 1);
    store_close(s);
    s = open_store("", NULL, 0); /* in memory: empty */
    with_table(s);
    assert_int_equal(counted(s), 0);
    assert_int_equal(add_one(s, 7, &e), SG_OK);
    assert_int_equal(counted(s), 1);
    store_close(s);
}

static void test_paths_that_cannot_be_right(void **state)
{
    (void)state;
    struct sg_error e;
    struct store *s = NULL;
    char missing[160];
    (void)snprintf(missing, sizeof missing, "%s/none/deeper/state.db", dir);
    struct store_options o = {.path = missing};
    assert_int_equal(store_open(&o, &s, &e), SG_E_INVALID_FIELD);
    assert_non_null(strstr(e.detail, "none/deeper/state.db"));
    (void)snprintf(missing, sizeof missing, "%s/made/state.db", dir);
    s = open_store(missing, NULL, 0); /* one level is made */
    store_close(s);
    assert_int_equal(unlink(missing), 0);
    *strrchr(missing, '/') = '\0';
    struct stat st;
    assert_int_equal(stat(missing, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(rmdir(missing), 0);
    s = NULL;
    o.path = dir;
    assert_int_equal(store_open(&o, &s, &e), SG_E_INVALID_FIELD);
    assert_null(s);
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

/* ---- when it cannot be used ---- */

static sqlite3 *other(void)
{
    sqlite3 *h = NULL;
    assert_int_equal(sqlite3_open(path, &h), SQLITE_OK);
    return h;
}

static void test_locked_by_another_process(void **state)
{
    (void)state;
    struct sg_error e;
    struct store *s = open_store(path, NULL, 50);
    with_table(s);
    assert_int_equal(add_one(s, 1, &e), SG_OK);
    sqlite3 *h = other();
    assert_int_equal(sqlite3_exec(h, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    int64_t before = sg_mono_ms();
    assert_int_equal(add_one(s, 2, &e), SG_E_STORE_UNAVAILABLE);
    assert_true(sg_mono_ms() - before < 4500); /* not the five seconds of the default */
    assert_non_null(strstr(e.detail, "locked"));
    assert_true(sg_error_row(e.code)->retryable);
    assert_int_equal(counted(s), 1); /* reads go on */
    assert_int_equal(sqlite3_exec(h, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(add_one(s, 2, &e), SG_OK);
    sqlite3_close(h);
    store_close(s);
}

static void test_the_queue_is_bounded_while_the_database_is_locked(void **state)
{
    (void)state;
    enum { MANY = STORE_QUEUE_MAX + 10 };
    struct sg_loop *loop = sg_loop_new();
    struct store *s = open_store(path, loop, 100);
    struct item *items = calloc(MANY, sizeof *items);
    int done = 0, taken = 0;
    assert_non_null(items);
    with_table(s);
    sqlite3 *h = other();
    assert_int_equal(sqlite3_exec(h, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    fill(items, MANY, loop, &done);
    for (int i = 0; i < MANY; i++)
        taken += store_submit(s, &items[i].work);
    assert_in_range(taken, STORE_QUEUE_MAX, STORE_QUEUE_MAX + 1); /* one group may be through by now */
    items[0].work.bytes = STORE_QUEUE_BYTES;
    assert_int_equal(sqlite3_exec(h, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(h);
    store_close(s);
    assert_int_equal(done, taken);
    free(items);
    sg_loop_free(loop);
}

static void test_the_end_does_not_wait_for_a_locked_database(void **state)
{
    (void)state;
    struct sg_loop *loop = sg_loop_new();
    struct store *s = open_store(path, loop, 1500);
    static struct item items[ITEMS];
    int done = 0;
    with_table(s);
    sqlite3 *h = other();
    assert_int_equal(sqlite3_exec(h, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    fill(items, ITEMS, loop, &done);
    for (int i = 0; i < ITEMS; i++)
        assert_true(store_submit(s, &items[i].work));
    int64_t before = sg_mono_ms();
    store_close(s);
    assert_true(sg_mono_ms() - before < 9000); /* not 1.5 s for each of eight groups */
    assert_int_equal(done, ITEMS);
    assert_int_equal(items[ITEMS - 1].work.code, SG_E_STORE_UNAVAILABLE);
    sqlite3_close(h);
    sg_loop_free(loop);
}

static enum sg_code add_blob(struct store_db *db, void *arg, struct sg_error *e)
{
    static const char zeros[64 * 1024];
    const struct db_value v[] = {db_int(*(int64_t *)arg), db_bytes(zeros, sizeof zeros)};
    return db_run(db, "INSERT INTO n (i, b) VALUES ($1, $2)", v, 2, NULL, NULL, NULL, e);
}

static void test_full(void **state)
{
    (void)state;
    struct sg_error e;
    struct store *s = NULL;
    struct store_options o = {.path = path, .max_pages = 100}; /* 400 KiB */
    assert_int_equal(store_open(&o, &s, &e), SG_OK);
    with_table(s);
    enum sg_code rc = SG_OK;
    int64_t i;
    for (i = 0; i < 20 && !rc; i++)
        rc = store_call(s, STORE_WRITE, add_blob, &i, &e);
    assert_int_equal(rc, SG_E_STORE_UNAVAILABLE);
    assert_non_null(strstr(e.detail, "full"));
    assert_int_equal(counted(s), i - 1); /* nothing by halves, and what was there is read */
    store_close(s);
}

static void test_damaged_and_whole_again(void **state)
{
    (void)state;
    struct sg_error e;
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    for (int i = 0; i < 4000; i++)
        assert_true(fputs("this is no database ", f) >= 0);
    assert_int_equal(fclose(f), 0);
    struct store *s = open_store(path, NULL, 0); /* the gateway starts nevertheless */
    assert_int_equal(add_one(s, 1, &e), SG_E_STORE_UNAVAILABLE);
    assert_non_null(strstr(e.detail, "damaged"));
    assert_int_equal(unlink(path), 0);
    enum sg_code rc = SG_E_STORE_UNAVAILABLE;
    for (int i = 0; i < 200 && rc; i++) { /* it is tried again every second */
        rc = store_call(s, STORE_WRITE, make_table, NULL, &e);
        (void)poll(NULL, 0, rc ? 20 : 0);
    }
    assert_int_equal(rc, SG_OK);
    assert_int_equal(add_one(s, 1, &e), SG_OK);
    store_close(s);
}

static void test_read_only(void **state)
{
    (void)state;
    struct sg_error e;
    struct store *s = open_store(path, NULL, 0);
    with_table(s);
    store_close(s);
    assert_int_equal(chmod(path, 0444), 0);
    assert_int_equal(chmod(dir, 0555), 0);
    pid_t pid = fork();
    if (pid == 0) { /* root could write it */
        if (geteuid() == 0 && (setgid(65534) || setuid(65534)))
            _exit(2);
        struct store_options o = {.path = path};
        if (store_open(&o, &s, &e))
            _exit(3);
        int64_t i = 1;
        enum sg_code rc = store_call(s, STORE_WRITE, add, &i, &e);
        store_close(s);
        _exit(rc == SG_E_STORE_UNAVAILABLE ? 0 : 4);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(chmod(dir, 0755), 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, make_dir, drop_dir)
    const struct CMUnitTest tests[] = {
        T(test_files_are_private),
        T(test_what_was_written_stays),
        T(test_paths_that_cannot_be_right),
        T(test_locked_by_another_process),
        T(test_the_queue_is_bounded_while_the_database_is_locked),
        T(test_the_end_does_not_wait_for_a_locked_database),
        T(test_full),
        T(test_damaged_and_whole_again),
        T(test_read_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
