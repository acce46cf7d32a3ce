/* Templates in the store, and who may work on a preparation.  C5, E8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/db.h"
#include "store/templates.h"
#include "tests/support/any_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UP    "team/project"
#define PRINT "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

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

/* Runs `body` inside a transaction: a nested function would be simpler, C has none. */
struct call {
    enum sg_code (*fn)(struct store_db *db, struct call *c, struct sg_error *e);
    struct store_template t;
    struct store_prep prep;
    struct store_prep_claim claim;
    struct store_prep_read read;
    struct store_template *list;
    size_t n;
    const char *text;
    bool yes;
    int64_t end;
    size_t len;
};

static enum sg_code run(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *c = arg;
    return c->fn(db, c, e);
}

static void call(struct call *c, enum sg_code (*fn)(struct store_db *db, struct call *c, struct sg_error *e))
{
    struct sg_error e;
    c->fn = fn;
    assert_int_equal(store_call(s, STORE_WRITE, run, c, &e), SG_OK);
}

static enum sg_code put(struct store_db *db, struct call *c, struct sg_error *e)
{
    return store_template_put(db, UP, &c->t, &c->yes, e);
}

static enum sg_code get(struct store_db *db, struct call *c, struct sg_error *e)
{
    store_template_clear(&c->t); /* this may run again */
    return store_template_get(db, UP, c->text, &c->t, &c->yes, e);
}

static enum sg_code drop(struct store_db *db, struct call *c, struct sg_error *e)
{
    return store_template_drop(db, UP, c->text, &c->yes, e);
}

static enum sg_code list(struct store_db *db, struct call *c, struct sg_error *e)
{
    free(c->list);
    c->list = NULL;
    return store_template_list(db, UP, c->text, 2, &c->list, &c->n, e);
}

static enum sg_code claim(struct store_db *db, struct call *c, struct sg_error *e)
{
    return store_prep_claim(db, UP, &c->claim, e);
}

static enum sg_code hold(struct store_db *db, struct call *c, struct sg_error *e)
{
    return store_prep_hold(db, UP, PRINT, c->text, 60000, &c->yes, e);
}

static enum sg_code builder(struct store_db *db, struct call *c, struct sg_error *e)
{
    return store_prep_builder(db, UP, &c->prep, &c->yes, e);
}

static enum sg_code end(struct store_db *db, struct call *c, struct sg_error *e)
{
    return store_prep_end(db, UP, &c->prep, &c->yes, e);
}

static enum sg_code leave(struct store_db *db, struct call *c, struct sg_error *e)
{
    return store_prep_leave(db, UP, PRINT, c->text, e);
}

static enum sg_code sweep(struct store_db *db, struct call *c, struct sg_error *e)
{
    return store_prep_sweep(db, UP, &c->prep, &c->yes, e);
}

static enum sg_code left(struct store_db *db, struct call *c, struct sg_error *e)
{
    return store_prep_left(db, UP, c->prep.fingerprint, &c->yes, e);
}

static enum sg_code add_log(struct store_db *db, struct call *c, struct sg_error *e)
{
    c->end = c->prep.log_end; /* this may run again */
    return store_prep_log(db, UP, PRINT, c->prep.attempt, &c->end, c->text, c->len, e);
}

static enum sg_code read_log(struct store_db *db, struct call *c, struct sg_error *e)
{
    return store_prep_read(db, UP, &c->read, e);
}

static void put_template(const char *name, const char *print, char *spec, bool made)
{
    struct call c = {.t = {.spec = spec}};
    (void)snprintf(c.t.name, sizeof c.t.name, "%s", name);
    (void)snprintf(c.t.fingerprint, sizeof c.t.fingerprint, "%s", print);
    call(&c, put);
    assert_int_equal(c.yes, made);
}

static void test_templates(void **state)
{
    (void)state;
    char one[] = "{\"a\":1}", two[] = "{}";
    put_template("b", PRINT, one, true);
    put_template("a", PRINT, one, true);
    put_template("c", PRINT, one, true);
    put_template("b", "other", two, false);
    struct call c = {.text = "b"};
    call(&c, get);
    assert_true(c.yes);
    assert_string_equal(c.t.spec, "{}");
    assert_string_equal(c.t.fingerprint, "other");
    store_template_clear(&c.t);
    c = (struct call){0};
    call(&c, list);
    assert_int_equal(c.n, 2);
    assert_string_equal(c.list[0].name, "a");
    free(c.list);
    c = (struct call){.text = "b"};
    call(&c, list);
    assert_int_equal(c.n, 1);
    assert_string_equal(c.list[0].name, "c");
    free(c.list);
    c = (struct call){.text = "b"};
    call(&c, drop);
    assert_true(c.yes);
    call(&c, drop);
    assert_false(c.yes);
    call(&c, get);
    assert_false(c.yes);
}

static enum store_prep_verdict claim_by(const char *attempt, const char *gone, bool anew,
                                        struct store_prep *was)
{
    struct call c = {
        .claim = {.fingerprint = PRINT, .attempt = attempt, .hold_ms = 60000, .gone = gone, .anew = anew}};
    call(&c, claim);
    if (was)
        *was = c.claim.was;
    return c.claim.verdict;
}

static bool end_by(const char *attempt, enum store_prep_state how, const char *snapshot)
{
    struct call c = {.prep = {.state = how, .fingerprint = PRINT}};
    (void)snprintf(c.prep.attempt, sizeof c.prep.attempt, "%s", attempt);
    (void)snprintf(c.prep.snapshot_id, sizeof c.prep.snapshot_id, "%s", snapshot);
    call(&c, end);
    return c.yes;
}

static bool held_by(const char *attempt)
{
    struct call c = {.text = attempt};
    call(&c, hold);
    return c.yes;
}

/* One works on it; who is silent loses it, and cannot change it any more. */
static void test_claims(void **state)
{
    (void)state;
    char spec[] = "{}";
    struct store_prep was;
    put_template("t", PRINT, spec, true);
    assert_int_equal(claim_by("one", NULL, false, &was), PREP_YOURS);
    assert_int_equal(was.started_at_ms, 0);
    assert_int_equal(claim_by("two", NULL, false, &was), PREP_BUSY);
    assert_string_equal(was.attempt, "one");
    assert_true(held_by("one"));
    assert_false(held_by("two"));
    struct call c = {.prep = {.fingerprint = PRINT, .attempt = "one", .builder = "box", .alloc = "tag"}};
    call(&c, builder);
    assert_true(c.yes);
    c = (struct call){0};
    call(&c, left);
    assert_false(c.yes);
    c = (struct call){.text = "one"};
    call(&c, leave); /* as if its time had run out */
    c = (struct call){0};
    call(&c, left);
    assert_true(c.yes);
    assert_int_equal(claim_by("two", NULL, false, &was), PREP_YOURS);
    assert_string_equal(was.builder, "box");
    assert_string_equal(was.alloc, "tag");
    assert_false(held_by("one"));
    assert_false(end_by("one", PREP_READY, "snap_late"));
    assert_true(end_by("two", PREP_READY, "snap_1"));
    assert_int_equal(claim_by("three", NULL, false, &was), PREP_USABLE);
    assert_string_equal(was.snapshot_id, "snap_1");
    assert_string_equal(was.builder, "");
}

/* A snapshot that is gone is made anew once; another one that is gone was replaced already. */
static void test_gone(void **state)
{
    (void)state;
    char spec[] = "{}";
    struct store_prep was;
    put_template("t", PRINT, spec, true);
    assert_int_equal(claim_by("one", NULL, false, &was), PREP_YOURS);
    assert_true(end_by("one", PREP_READY, "snap_1"));
    assert_int_equal(claim_by("two", "snap_0", false, &was), PREP_USABLE);
    assert_int_equal(claim_by("two", "snap_1", false, &was), PREP_YOURS);
    assert_string_equal(was.snapshot_id, "snap_1");
    assert_int_equal(claim_by("three", "snap_1", false, &was), PREP_BUSY);
    assert_true(end_by("two", PREP_READY, "snap_2"));
    assert_int_equal(claim_by("three", "snap_1", false, &was), PREP_USABLE);
    assert_int_equal(claim_by("three", NULL, true, &was), PREP_YOURS);
    assert_true(end_by("three", PREP_FAILED, ""));
    assert_int_equal(claim_by("four", NULL, false, &was), PREP_YOURS);
}

/* What no template has is taken away, unless somebody works on it. */
static void test_sweep(void **state)
{
    (void)state;
    char spec[] = "{}";
    put_template("t", PRINT, spec, true);
    assert_int_equal(claim_by("one", NULL, false, NULL), PREP_YOURS);
    struct call c = {.text = "t"};
    call(&c, drop);
    c = (struct call){0};
    call(&c, sweep);
    assert_false(c.yes);
    assert_true(end_by("one", PREP_READY, "snap_1"));
    put_template("u", PRINT, spec, true);
    c = (struct call){0};
    call(&c, sweep);
    assert_false(c.yes);
    c = (struct call){.text = "u"};
    call(&c, drop);
    c = (struct call){0};
    call(&c, sweep);
    assert_true(c.yes);
    assert_string_equal(c.prep.snapshot_id, "snap_1");
    call(&c, sweep);
    assert_false(c.yes);
}

static void test_log(void **state)
{
    (void)state;
    static char piece[TEMPLATE_LOG_PIECE];
    struct sg_buf bytes;
    sg_buf_init(&bytes, 4096);
    assert_int_equal(claim_by("one", NULL, false, NULL), PREP_YOURS);
    struct call c = {.prep = {.attempt = "one"}, .text = "hello ", .len = 6};
    call(&c, add_log);
    c.prep.log_end = c.end;
    c.text = "world";
    c.len = 5;
    call(&c, add_log);
    assert_int_equal(c.end, 11);
    struct call r = {.read = {.fingerprint = PRINT, .offset = 3, .limit = 6, .bytes = &bytes}};
    call(&r, read_log);
    assert_true(r.read.found);
    assert_int_equal(r.read.from, 3);
    assert_int_equal(r.read.prep.log_end, 11);
    assert_int_equal(bytes.len, 6);
    assert_memory_equal(bytes.data, "lo wor", 6);
    c.text = piece;
    c.len = sizeof piece;
    for (int i = 0; i < TEMPLATE_LOG_MAX / TEMPLATE_LOG_PIECE + 1; i++) {
        c.prep.log_end = c.end;
        call(&c, add_log);
    }
    r.read.offset = 0; /* the oldest went */
    call(&r, read_log);
    assert_true(r.read.from > 0);
    assert_int_equal(bytes.len, 6);
    assert_true(r.read.prep.log_end - r.read.from <= TEMPLATE_LOG_MAX + TEMPLATE_LOG_PIECE);
    struct call l = {.text = "one"};
    call(&l, leave);
    assert_int_equal(claim_by("two", NULL, false, NULL), PREP_YOURS); /* another preparation, another log */
    call(&r, read_log);
    assert_int_equal(r.read.prep.log_end, 0);
    assert_int_equal(bytes.len, 0);
    sg_buf_free(&bytes);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_templates, open_store, close_store),
        cmocka_unit_test_setup_teardown(test_claims, open_store, close_store),
        cmocka_unit_test_setup_teardown(test_gone, open_store, close_store),
        cmocka_unit_test_setup_teardown(test_sweep, open_store, close_store),
        cmocka_unit_test_setup_teardown(test_log, open_store, close_store),
    };
    return ANY_STORE_RUN(argc, argv, tests);
}
