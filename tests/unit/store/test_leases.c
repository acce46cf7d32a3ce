/* Leases and clean-ups (C4, A11): what is claimed by one, what runs out, what becomes of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/leases.h"
#include "store/locks.h"
#include "tests/support/any_store.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { LONG_MS = 60 * 60 * 1000 };

static struct store *s;

static int open_it(void **state)
{
    (void)state;
    s = any_store_new(NULL);
    return 0;
}

static int close_it(void **state)
{
    (void)state;
    store_close(s);
    return 0;
}

/* ---- calls in one line ---- */

enum what {
    PUT,
    DUE,
    CLAIM,
    CLAIM_THIS,
    RENEW_CLAIM,
    DROP,
    KEEP,
    LATER,
    HAS,
    GOES,
    BEGIN,
    SEEN,
    RENEW,
    HOLD,
    FIND,
    LEASE_DUE,
    LEASE_HAS,
    LEASE_DROP,
    RELEASE,
    EXPIRE,
    NOW,
};

struct call {
    enum what what;
    const char *owner, *name, *alloc;
    int64_t ms, ms2;
    struct store_cleanup row;
    struct store_lease lease;
    bool yes;
    int64_t n;
};

static enum sg_code of_cleanups(struct store_db *db, struct call *k, struct sg_error *e)
{
    switch ((int)k->what) {
    case PUT:
        return store_cleanup_put(db, "u", &k->row, k->ms, k->ms2, e);
    case DUE:
        return store_cleanup_due(db, "u", &k->yes, e);
    case CLAIM:
        return store_cleanup_claim(db, "u", k->owner, k->ms, &k->row, &k->yes, &k->n, e);
    case CLAIM_THIS:
        return store_cleanup_claim_this(db, "u", k->owner, k->ms, &k->row, &k->yes, e);
    case RENEW_CLAIM:
        return store_cleanup_renew(db, "u", k->owner, k->ms, &k->row, &k->yes, e);
    case DROP:
        return store_cleanup_drop(db, "u", k->owner, &k->row, e);
    case KEEP:
        return store_cleanup_keep(db, "u", &k->row, &k->yes, e);
    case LATER:
        return store_cleanup_later(db, "u", k->owner, &k->row, k->ms, e);
    case HAS:
        return store_cleanup_has(db, "u", k->alloc, &k->yes, e);
    default:
        return store_cleanup_goes(db, "u", k->alloc, &k->yes, e);
    }
}

static enum sg_code of_leases(struct store_db *db, struct call *k, struct sg_error *e)
{
    switch ((int)k->what) {
    case BEGIN:
        return store_lease_begin(db, "u", k->name, k->alloc, k->ms, k->ms2, e);
    case SEEN:
        return store_lease_seen(db, "u", k->name, k->alloc, k->ms, &k->lease, &k->yes, e);
    case RENEW:
        return store_lease_renew(db, "u", k->alloc, k->ms, &k->yes, e);
    case HOLD:
        return store_lease_hold(db, "u", k->alloc, k->ms, &k->yes, e);
    case FIND:
        return store_lease_find(db, "u", k->name, &k->lease, &k->yes, &k->n, e);
    case LEASE_DUE:
        return store_lease_due(db, "u", &k->yes, e);
    case LEASE_HAS:
        return store_lease_has(db, "u", k->alloc, &k->yes, e);
    case LEASE_DROP:
        return store_lease_drop(db, "u", k->alloc, e);
    case RELEASE:
        return store_lease_release(db, "u", k->alloc, "released", &k->row, &k->yes, e);
    case EXPIRE:
        return store_lease_expire(db, "u", 10, LONG_MS, &k->n, e);
    default:
        return store_now(db, &k->n, e);
    }
}

static enum sg_code fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    return k->what < BEGIN ? of_cleanups(db, k, e) : of_leases(db, k, e);
}

static struct call run(struct call k)
{
    struct sg_error e;
    enum sg_code rc = store_call(s, STORE_DURABLE, fn, &k, &e);
    if (rc)
        print_error("%s\n", e.detail);
    assert_int_equal(rc, SG_OK);
    return k;
}

#define DO(...) run((struct call){__VA_ARGS__})

static struct store_cleanup row(const char *name, const char *alloc)
{
    struct store_cleanup c = {.kind = CLEANUP_SANDBOX};
    (void)snprintf(c.target, sizeof c.target, "%s", name);
    (void)snprintf(c.alloc, sizeof c.alloc, "%s", alloc);
    (void)snprintf(c.why, sizeof c.why, "a test");
    return c;
}

/* The database's clock has moved on. */
static void pass(void)
{
    int64_t before = DO(NOW).n;
    while (DO(NOW).n < before + 3)
        (void)poll(NULL, 0, 1);
}

/* ---- clean-ups ---- */

static void test_one_claims_and_drops(void **state)
{
    (void)state;
    assert_false(DO(DUE).yes);
    DO(PUT, .row = row("box", "a"));
    assert_true(DO(DUE).yes);
    struct call k = DO(CLAIM, .owner = "x", .ms = LONG_MS);
    assert_true(k.yes);
    assert_string_equal(k.row.target, "box");
    assert_string_equal(k.row.why, "a test");
    assert_int_equal(k.row.tries, 0);
    assert_false(DO(DUE).yes);
    assert_false(DO(CLAIM, .owner = "y", .ms = LONG_MS).yes);
    assert_false(DO(CLAIM_THIS, .owner = "y", .ms = LONG_MS, .row = k.row).yes);
    assert_false(DO(RENEW_CLAIM, .owner = "y", .ms = LONG_MS, .row = k.row).yes);
    assert_true(DO(RENEW_CLAIM, .owner = "x", .ms = LONG_MS, .row = k.row).yes);
    DO(DROP, .owner = "y", .row = k.row); /* not his */
    assert_true(DO(HAS, .alloc = "a").yes);
    DO(DROP, .owner = "x", .row = k.row);
    assert_false(DO(HAS, .alloc = "a").yes);
    assert_false(DO(RENEW_CLAIM, .owner = "x", .ms = LONG_MS, .row = k.row).yes);
}

static void test_tried_again_later(void **state)
{
    (void)state;
    DO(PUT, .row = row("box", "a"));
    struct call k = DO(CLAIM, .owner = "x", .ms = LONG_MS);
    DO(LATER, .owner = "x", .row = k.row, .ms = LONG_MS);
    assert_false(DO(DUE).yes);
    assert_true(DO(GOES, .alloc = "a").yes); /* it was tried */
    DO(PUT, .row = row("box", "a"));         /* asked for once more: now */
    k = DO(CLAIM, .owner = "y", .ms = LONG_MS);
    assert_true(k.yes);
    assert_int_equal(k.row.tries, 1);
}

static void test_kept_unless_it_is_being_taken_away(void **state)
{
    (void)state;
    struct store_cleanup box = row("box", "a");
    assert_false(DO(KEEP, .row = box).yes); /* nothing was remembered */
    DO(PUT, .row = box);
    assert_false(DO(KEEP, .row = box).yes); /* its time has come, and nobody has begun */
    assert_false(DO(HAS, .alloc = "a").yes);
    DO(PUT, .row = box);
    struct call k = DO(CLAIM, .owner = "x", .ms = LONG_MS);
    assert_true(DO(KEEP, .row = box).yes);
    DO(LATER, .owner = "x", .row = k.row, .ms = LONG_MS);
    assert_true(DO(KEEP, .row = box).yes); /* it may be half gone */
    assert_true(DO(HAS, .alloc = "a").yes);
}

static void test_a_claim_ends_with_its_time(void **state)
{
    (void)state;
    DO(PUT, .row = row("box", "a"));
    struct call k = DO(CLAIM, .owner = "x", .ms = 0);
    assert_true(k.yes);
    pass();
    assert_true(DO(DUE).yes);
    assert_true(DO(CLAIM, .owner = "y", .ms = LONG_MS).yes);
    assert_false(DO(RENEW_CLAIM, .owner = "x", .ms = LONG_MS, .row = k.row).yes);
    DO(DROP, .owner = "x", .row = k.row);
    assert_true(DO(HAS, .alloc = "a").yes);
}

static void test_what_is_only_intended_is_not_going(void **state)
{
    (void)state;
    DO(PUT, .row = row("box", "a"), .ms = LONG_MS, .ms2 = LONG_MS);
    assert_false(DO(DUE).yes);
    assert_true(DO(HAS, .alloc = "a").yes);
    assert_false(DO(GOES, .alloc = "a").yes);
    DO(PUT, .row = row("box", "a"));
    pass();
    assert_true(DO(GOES, .alloc = "a").yes);
    struct call k = DO(CLAIM, .owner = "x", .ms = LONG_MS);
    assert_true(k.row.lost_until_ms > k.n); /* the longer of both stays */
    DO(DROP, .row = k.row);                 /* whoever claims it */
    assert_false(DO(HAS, .alloc = "a").yes);
}

static void test_names_and_tags_are_told_apart(void **state)
{
    (void)state;
    DO(PUT, .row = row("box", "a"));
    DO(PUT, .row = row("box", "b"));
    DO(PUT, .row = row("", "c"));
    struct store_cleanup snapshot = row("snap_1", "");
    snapshot.kind = CLEANUP_SNAPSHOT;
    DO(PUT, .row = snapshot);
    int n = 0, snapshots = 0;
    for (;; n++) {
        struct call k = DO(CLAIM, .owner = "x", .ms = LONG_MS);
        if (!k.yes)
            break;
        snapshots += k.row.kind == CLEANUP_SNAPSHOT;
    }
    assert_int_equal(n, 4);
    assert_int_equal(snapshots, 1);
}

/* ---- leases ---- */

static void test_begun_seen_renewed(void **state)
{
    (void)state;
    DO(BEGIN, .name = "box", .alloc = "a", .ms = 5000, .ms2 = LONG_MS);
    assert_false(DO(FIND, .name = "box").yes); /* nobody has it yet */
    assert_true(DO(LEASE_HAS, .alloc = "a").yes);
    struct call k = DO(SEEN, .name = "box", .alloc = "a", .ms = 5000);
    assert_true(k.yes);
    assert_int_equal(k.lease.expires_at_ms - k.lease.seen_at_ms, 5000);
    DO(BEGIN, .name = "box", .alloc = "a", .ms = 1, .ms2 = 1); /* the same request again takes nothing back */
    k = DO(FIND, .name = "box");
    assert_true(k.yes);
    assert_int_equal(k.lease.ttl_ms, 5000);
    assert_true(k.lease.expires_at_ms > k.n + 4000);
    assert_true(DO(RENEW, .alloc = "a", .ms = LONG_MS).yes);
    k = DO(FIND, .name = "box");
    assert_true(k.lease.expires_at_ms >= k.n + LONG_MS - 1000);
    assert_false(DO(RENEW, .alloc = "b", .ms = LONG_MS).yes);
    assert_false(DO(LEASE_DUE).yes);
    assert_int_equal(DO(EXPIRE).n, 0);
    DO(LEASE_DROP, .alloc = "a");
    assert_false(DO(FIND, .name = "box").yes);
    assert_false(DO(HAS, .alloc = "a").yes);
}

static void test_what_ran_out_is_cleaned_up_once(void **state)
{
    (void)state;
    DO(SEEN, .name = "box", .alloc = "a", .ms = 1);
    DO(BEGIN, .name = "", .alloc = "b", .ms = 5000, .ms2 = 0); /* its gateway died */
    DO(SEEN, .name = "other", .alloc = "c", .ms = LONG_MS);
    pass();
    assert_true(DO(LEASE_DUE).yes);
    assert_int_equal(DO(EXPIRE).n, 2);
    assert_int_equal(DO(EXPIRE).n, 0);
    assert_false(DO(LEASE_DUE).yes);
    assert_false(DO(RENEW, .alloc = "a", .ms = LONG_MS).yes); /* too late */
    for (int i = 0; i < 2; i++) {
        struct call k = DO(CLAIM, .owner = "x", .ms = LONG_MS);
        assert_true(k.yes);
        bool lost = !strcmp(k.row.alloc, "b"); /* its answer may be on its way */
        assert_string_equal(k.row.target, lost ? "" : "box");
        assert_true(lost ? k.row.lost_until_ms > k.n : k.row.lost_until_ms == 0);
    }
    assert_true(DO(FIND, .name = "other").yes);
}

static void test_renewed_in_the_grace(void **state)
{
    (void)state;
    DO(SEEN, .name = "box", .alloc = "a", .ms = 1);
    pass();
    assert_true(DO(LEASE_DUE).yes);
    assert_true(DO(RENEW, .alloc = "a", .ms = LONG_MS).yes);
    assert_false(DO(LEASE_DUE).yes);
    assert_int_equal(DO(EXPIRE).n, 0);
}

static void test_held(void **state)
{
    (void)state;
    DO(SEEN, .name = "box", .alloc = "a", .ms = 1);
    assert_true(DO(HOLD, .alloc = "a", .ms = LONG_MS).yes);
    int64_t end = DO(FIND, .name = "box").lease.expires_at_ms;
    assert_true(DO(HOLD, .alloc = "a", .ms = 1).yes); /* never shorter */
    assert_int_equal(DO(FIND, .name = "box").lease.expires_at_ms, end);
    assert_false(DO(HOLD, .alloc = "b", .ms = 1).yes);
}

static void test_released_twice(void **state)
{
    (void)state;
    DO(SEEN, .name = "box", .alloc = "a", .ms = LONG_MS);
    struct call k = DO(RELEASE, .alloc = "a");
    assert_true(k.yes);
    assert_string_equal(k.row.target, "box");
    assert_false(DO(RELEASE, .alloc = "a").yes);
    assert_true(DO(CLAIM_THIS, .owner = "x", .ms = LONG_MS, .row = k.row).yes);
    assert_false(DO(SEEN, .name = "box", .alloc = "a", .ms = LONG_MS).yes); /* it is going */
    assert_false(DO(FIND, .name = "box").yes);
}

static void test_an_intent_does_not_hinder_a_lease(void **state)
{
    (void)state;
    DO(PUT, .row = row("box", "a"), .ms = LONG_MS, .ms2 = LONG_MS);
    assert_true(DO(SEEN, .name = "box", .alloc = "a", .ms = LONG_MS).yes);
}

static void test_the_allocation_seen_last_has_the_name(void **state)
{
    (void)state;
    DO(SEEN, .name = "box", .alloc = "a", .ms = LONG_MS);
    pass();
    DO(SEEN, .name = "box", .alloc = "b", .ms = LONG_MS);
    assert_string_equal(DO(FIND, .name = "box").lease.alloc, "b");
}

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, open_it, close_it)
    const struct CMUnitTest tests[] = {
        T(test_one_claims_and_drops),
        T(test_tried_again_later),
        T(test_kept_unless_it_is_being_taken_away),
        T(test_a_claim_ends_with_its_time),
        T(test_what_is_only_intended_is_not_going),
        T(test_names_and_tags_are_told_apart),
        T(test_begun_seen_renewed),
        T(test_what_ran_out_is_cleaned_up_once),
        T(test_renewed_in_the_grace),
        T(test_held),
        T(test_released_twice),
        T(test_an_intent_does_not_hinder_a_lease),
        T(test_the_allocation_seen_last_has_the_name),
    };
    return ANY_STORE_RUN(argc, argv, tests);
}
