/* Named locks, the database's clock, and values that are made once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/db.h"
#include "store/locks.h"
#include "store/meta.h"
#include "tests/support/any_store.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct store *s;

static int open_store(void **state)
{
    (void)state;
    s = any_store_new(NULL);
    return 0;
}

static int close_store(void **state)
{
    (void)state;
    store_close(s);
    return 0;
}

enum act { TAKE, RENEW, DROP };

struct call {
    enum act act;
    const char *name, *owner;
    int64_t ttl_ms;
    bool yes;
};

static enum sg_code act(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *c = arg;
    if (c->act == DROP)
        return store_lock_drop(db, c->name, c->owner, e);
    return c->act == TAKE ? store_lock_take(db, c->name, c->owner, c->ttl_ms, &c->yes, e)
                          : store_lock_renew(db, c->name, c->owner, c->ttl_ms, &c->yes, e);
}

static bool lock(enum act what, const char *name, const char *owner, int64_t ttl_ms)
{
    struct sg_error e;
    struct call c = {what, name, owner, ttl_ms, false};
    assert_int_equal(store_call(s, STORE_WRITE, act, &c, &e), SG_OK);
    return c.yes;
}

static void test_one_holder_at_a_time(void **state)
{
    (void)state;
    assert_true(lock(TAKE, "a", "one", 60000));
    assert_true(lock(TAKE, "a", "one", 60000)); /* its own */
    assert_false(lock(TAKE, "a", "two", 60000));
    assert_false(lock(RENEW, "a", "two", 60000));
    assert_true(lock(TAKE, "b", "two", 60000)); /* another lock */
    (void)lock(DROP, "a", "two", 0);            /* not theirs to drop */
    assert_false(lock(TAKE, "a", "two", 60000));
    (void)lock(DROP, "a", "one", 0);
    assert_true(lock(TAKE, "a", "two", 60000));
    assert_false(lock(RENEW, "a", "one", 60000));
}

/* What is no text is refused alike by all databases, and the connection is as good as before. */
static void test_what_is_no_text_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"\xff", "a\xc3", "\xed\xa0\x80", "\xc0\xaf"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sg_error e;
        struct call c = {TAKE, bad[i], "one", 60000, false};
        assert_int_equal(store_call(s, STORE_WRITE, act, &c, &e), SG_E_BAD_REQUEST);
        assert_int_equal(e.outcome, SG_NOT_STARTED);
    }
    assert_true(lock(TAKE, "\xc3\xa9", "one", 60000));
    assert_false(lock(TAKE, "\xc3\xa9", "two", 60000));
}

static void test_whoever_does_not_renew_loses_it(void **state)
{
    (void)state;
    assert_true(lock(TAKE, "a", "one", 1));
    bool taken = false;
    for (int i = 0; i < 500 && !taken; i++) {
        taken = lock(TAKE, "a", "two", 60000);
        (void)poll(NULL, 0, taken ? 0 : 2);
    }
    assert_true(taken);
    assert_false(lock(RENEW, "a", "one", 60000));
    assert_true(lock(RENEW, "a", "two", 60000));
}

static void test_over_but_wanted_by_nobody_is_renewed(void **state)
{
    (void)state;
    assert_true(lock(TAKE, "a", "one", -1000));
    assert_true(lock(RENEW, "a", "one", 60000));
    assert_false(lock(TAKE, "a", "two", 60000));
}

static void test_owners_differ(void **state)
{
    (void)state;
    char a[STORE_OWNER_TEXT], b[STORE_OWNER_TEXT];
    assert_true(store_owner(a));
    assert_true(store_owner(b));
    assert_int_equal(strlen(a), STORE_OWNER_TEXT - 1);
    assert_string_not_equal(a, b);
}

static enum sg_code on_count(void *arg, const struct db_value *c, size_t n, struct sg_error *e)
{
    (void)n;
    (void)e;
    *(int64_t *)arg = db_get_int(&c[0]);
    return SG_OK;
}

static enum sg_code prune(struct store_db *db, void *arg, struct sg_error *e)
{
    enum sg_code rc = store_locks_prune(db, e);
    return rc ? rc : db_run(db, "SELECT COUNT(*) FROM locks", NULL, 0, on_count, arg, NULL, e);
}

static void test_abandoned_ones_are_removed(void **state)
{
    (void)state;
    struct sg_error e;
    int64_t n = -1, day = 24 * 60 * 60 * 1000;
    assert_true(lock(TAKE, "old", "one", -day - 60000));
    assert_true(lock(TAKE, "young", "one", -day + 60000));
    assert_int_equal(store_call(s, STORE_WRITE, prune, &n, &e), SG_OK);
    assert_int_equal(n, 1);
    assert_true(lock(RENEW, "young", "one", 1));
}

struct times {
    int64_t first, second;
};

static enum sg_code look_twice(struct store_db *db, void *arg, struct sg_error *e)
{
    struct times *t = arg;
    enum sg_code rc = store_now(db, &t->first, e);
    (void)poll(NULL, 0, 5);
    return rc ? rc : store_now(db, &t->second, e);
}

static void test_the_clock_stands_still_in_a_transaction(void **state)
{
    (void)state;
    struct sg_error e;
    struct times a, b;
    assert_int_equal(store_call(s, STORE_READ, look_twice, &a, &e), SG_OK);
    assert_int_equal(store_call(s, STORE_WRITE, look_twice, &b, &e), SG_OK);
    assert_int_equal(a.first, a.second);
    assert_int_equal(b.first, b.second);
    assert_in_range(b.first - a.first, 5, 60000);
}

struct secret {
    const char *name;
    size_t len;
    unsigned char v[STORE_META_SECRET_MAX];
};

static enum sg_code get_secret(struct store_db *db, void *arg, struct sg_error *e)
{
    struct secret *x = arg;
    return store_meta_secret(db, x->name, x->v, x->len, e);
}

static void test_a_secret_is_made_once(void **state)
{
    (void)state;
    struct sg_error e;
    struct secret a = {"one", 32, {0}}, b = a, c = {"two", 32, {0}}, none = a, shorter = {"one", 16, {0}};
    assert_int_equal(store_call(s, STORE_DURABLE, get_secret, &a, &e), SG_OK);
    assert_int_equal(store_call(s, STORE_DURABLE, get_secret, &b, &e), SG_OK);
    assert_int_equal(store_call(s, STORE_DURABLE, get_secret, &c, &e), SG_OK);
    assert_memory_not_equal(a.v, none.v, 32);
    assert_memory_equal(a.v, b.v, 32);
    assert_memory_not_equal(a.v, c.v, 32);
    assert_int_equal(store_call(s, STORE_DURABLE, get_secret, &shorter, &e), SG_E_INTERNAL);
}

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, open_store, close_store)
    const struct CMUnitTest tests[] = {
        T(test_one_holder_at_a_time),
        T(test_what_is_no_text_is_refused),
        T(test_whoever_does_not_renew_loses_it),
        T(test_over_but_wanted_by_nobody_is_renewed),
        T(test_owners_differ),
        T(test_abandoned_ones_are_removed),
        T(test_the_clock_stands_still_in_a_transaction),
        T(test_a_secret_is_made_once),
    };
    return ANY_STORE_RUN(argc, argv, tests);
}
