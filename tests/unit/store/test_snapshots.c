/* Who needs which snapshot, what is swept and released, checkpoints: A6/B3 B9. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/checkpoints.h"
#include "store/retention.h"
#include "tests/support/any_store.h"

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

/* ---- names ---- */

struct name_call {
    enum { PUT, DROP, DROP_ALL, ANY, DOOM, SPARE, FORGET } what;
    const char *upstream, *id;
    enum snapshot_name_kind kind;
    const char *name;
    unsigned kinds;
    int64_t ttl_ms;
    bool found;
    struct snapshot_name by;
};

static enum sg_code name_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct name_call *k = arg;
    switch (k->what) {
    case PUT:
        return store_snapshot_name_put(db, k->upstream, k->id, k->kind, k->name, e);
    case DROP:
        return store_snapshot_name_drop(db, k->upstream, k->id, k->kind, k->name, e);
    case DROP_ALL:
        return store_snapshot_name_drop_all(db, k->upstream, k->kind, k->name, e);
    case ANY:
        return store_snapshot_name_any(db, k->upstream, k->id, k->kinds, &k->by, &k->found, e);
    case DOOM:
        return store_snapshot_doom(db, k->upstream, k->id, k->kinds, k->ttl_ms, &k->found, &k->by, e);
    case SPARE:
        return store_snapshot_spare(db, k->upstream, k->id, e);
    case FORGET:
    default:
        return store_snapshot_forget(db, k->upstream, k->id, e);
    }
}

static enum sg_code do_name(struct name_call *k)
{
    struct sg_error e;
    if (!k->upstream)
        k->upstream = "u";
    return store_call(s, STORE_WRITE, name_fn, k, &e);
}

#define NAME(...) do_name(&(struct name_call){__VA_ARGS__})

/* The name that keeps it; "" when none does. */
static const char *kept_by(const char *id, unsigned kinds)
{
    static char name[SNAPSHOT_NAME_TEXT + 16];
    struct name_call k = {.what = ANY, .id = id, .kinds = kinds};
    assert_int_equal(do_name(&k), SG_OK);
    (void)snprintf(name, sizeof name, "%s%s%s", k.found ? snapshot_name_kind(k.by.kind) : "",
                   k.found ? " " : "", k.found ? k.by.name : "");
    return name;
}

/* Whether it was doomed. */
static bool doom(const char *id, unsigned kinds, int64_t ttl_ms)
{
    struct name_call k = {.what = DOOM, .id = id, .kinds = kinds, .ttl_ms = ttl_ms};
    assert_int_equal(do_name(&k), SG_OK);
    return !k.found;
}

static void test_names_keep_a_snapshot(void **state)
{
    (void)state;
    assert_string_equal(kept_by("s1", SNAPSHOT_BY_ANY), "");
    assert_int_equal(NAME(.what = PUT, .id = "s1", .kind = SNAPSHOT_BY_SANDBOX, .name = "box"), SG_OK);
    assert_int_equal(NAME(.what = PUT, .id = "s1", .kind = SNAPSHOT_BY_CHECKPOINT, .name = "c"), SG_OK);
    assert_int_equal(NAME(.what = PUT, .id = "s1", .kind = SNAPSHOT_BY_CHECKPOINT, .name = "c"), SG_OK);
    assert_int_equal(NAME(.what = PUT, .id = "s2", .kind = SNAPSHOT_BY_SANDBOX, .name = "box"), SG_OK);
    assert_string_equal(kept_by("s1", SNAPSHOT_BY_ANY), "checkpoint c");
    assert_string_equal(kept_by("s1", SNAPSHOT_BY_SANDBOX), "sandbox box");
    assert_string_equal(kept_by("s1", SNAPSHOT_BY_TEMPLATE), "");
    assert_false(doom("s1", SNAPSHOT_BY_ANY, 60000));
    assert_int_equal(NAME(.what = DROP, .id = "s1", .kind = SNAPSHOT_BY_CHECKPOINT, .name = "c"), SG_OK);
    assert_string_equal(kept_by("s1", SNAPSHOT_BY_ANY), "sandbox box");
    assert_int_equal(NAME(.what = DROP_ALL, .kind = SNAPSHOT_BY_SANDBOX, .name = "box"), SG_OK);
    assert_string_equal(kept_by("s1", SNAPSHOT_BY_ANY), "");
    assert_string_equal(kept_by("s2", SNAPSHOT_BY_ANY), "");
}

static void test_an_upstreams_names_are_its_own(void **state)
{
    (void)state;
    assert_int_equal(NAME(.what = PUT, .upstream = "other", .id = "s1", .kind = SNAPSHOT_BY_ID, .name = ""),
                     SG_OK);
    assert_string_equal(kept_by("s1", SNAPSHOT_BY_ANY), "");
    assert_true(doom("s1", SNAPSHOT_BY_ANY, 60000));
    assert_int_equal(NAME(.what = PUT, .upstream = "other", .id = "s1", .kind = SNAPSHOT_BY_ID, .name = ""),
                     SG_OK);
}

/* What is being deleted is given to nobody, until that is over, undone, or took too long. */
static void test_doomed(void **state)
{
    (void)state;
    assert_true(doom("s1", SNAPSHOT_BY_ANY, 60000));
    assert_int_equal(NAME(.what = PUT, .id = "s1", .kind = SNAPSHOT_BY_ID, .name = ""), SG_E_SNAPSHOT_GONE);
    assert_string_equal(kept_by("s1", SNAPSHOT_BY_ANY), ""); /* doom is no name */
    assert_true(doom("s1", SNAPSHOT_BY_ANY, 60000));         /* again */
    assert_int_equal(NAME(.what = SPARE, .id = "s1"), SG_OK);
    assert_int_equal(NAME(.what = PUT, .id = "s1", .kind = SNAPSHOT_BY_ID, .name = ""), SG_OK);
    assert_false(doom("s1", SNAPSHOT_BY_ANY, 60000));
    assert_true(
        doom("s1", SNAPSHOT_BY_CHECKPOINT | SNAPSHOT_BY_TEMPLATE, 60000)); /* somebody's explicit wish */
    assert_int_equal(NAME(.what = FORGET, .id = "s1"), SG_OK);
    assert_string_equal(kept_by("s1", SNAPSHOT_BY_ANY), "");
    assert_true(doom("s1", SNAPSHOT_BY_ANY, -1)); /* it was over long ago */
    assert_int_equal(NAME(.what = PUT, .id = "s1", .kind = SNAPSHOT_BY_ID, .name = ""), SG_OK);
}

/* ---- retention and releases ---- */

struct row_call {
    enum { KEEP, SWEPT, AGAIN, UNKEEP, KEPT, RELEASE, LATER, RELEASED, DUE } what;
    const char *sandbox;
    int64_t created_at, ms;
    struct store_retention retention;
    struct store_release release;
    char seen[1024];
};

static void on_kept(void *arg, const struct store_retention *r)
{
    char *seen = arg;
    size_t n = strlen(seen);
    (void)snprintf(seen + n, 1024 - n, "%s@%lld=%s ", r->sandbox, (long long)r->created_at_ms, r->swept);
}

static void on_due(void *arg, const struct store_release *r)
{
    char *seen = arg;
    size_t n = strlen(seen);
    (void)snprintf(seen + n, 1024 - n, "%s:%s:%lld ", r->snapshot_id, r->sandbox, (long long)r->tries);
}

static enum sg_code row_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct row_call *k = arg;
    switch (k->what) {
    case KEEP:
        return store_retention_put(db, "u", k->sandbox, k->created_at, e);
    case SWEPT:
        return store_retention_swept(db, "u", &k->retention, e);
    case AGAIN:
        return store_retention_again(db, "u", k->sandbox, e);
    case UNKEEP:
        return store_retention_drop(db, "u", k->sandbox, k->created_at, e);
    case KEPT:
        k->seen[0] = '\0';
        return store_retention_list(db, "u", "", 100, on_kept, k->seen, e);
    case RELEASE:
        return store_release_put(db, "u", &k->release, e);
    case LATER:
        return store_release_later(db, "u", k->sandbox, k->ms, e);
    case RELEASED:
        return store_release_drop(db, "u", k->sandbox, e);
    case DUE:
    default:
        k->seen[0] = '\0';
        return store_release_due(db, "u", 100, on_due, k->seen, e);
    }
}

static struct row_call *do_row(struct row_call *k)
{
    struct sg_error e;
    assert_int_equal(store_call(s, STORE_WRITE, row_fn, k, &e), SG_OK);
    return k;
}

#define ROW(...) do_row(&(struct row_call){__VA_ARGS__})

static void test_retention(void **state)
{
    (void)state;
    (void)ROW(.what = KEEP, .sandbox = "b", .created_at = 5);
    (void)ROW(.what = KEEP, .sandbox = "a", .created_at = 6);
    assert_string_equal(ROW(.what = KEPT)->seen, "a@6= b@5= ");
    (void)ROW(.what = SWEPT, .retention = {.sandbox = "a", .created_at_ms = 6, .swept = "s1"});
    (void)ROW(.what = SWEPT,
              .retention = {.sandbox = "b", .created_at_ms = 4, .swept = "x"}); /* another one */
    (void)ROW(.what = KEEP, .sandbox = "a", .created_at = 6);                   /* the same: nothing new */
    assert_string_equal(ROW(.what = KEPT)->seen, "a@6=s1 b@5= ");
    (void)ROW(.what = AGAIN, .sandbox = "a");
    assert_string_equal(ROW(.what = KEPT)->seen, "a@6= b@5= ");
    (void)ROW(.what = SWEPT, .retention = {.sandbox = "a", .created_at_ms = 6, .swept = "s2"});
    (void)ROW(.what = KEEP, .sandbox = "a", .created_at = 9); /* a namesake */
    assert_string_equal(ROW(.what = KEPT)->seen, "a@9= b@5= ");
    (void)ROW(.what = UNKEEP, .sandbox = "a", .created_at = 6); /* the one before */
    (void)ROW(.what = UNKEEP, .sandbox = "b", .created_at = -1);
    assert_string_equal(ROW(.what = KEPT)->seen, "a@9= ");
}

static void test_releases(void **state)
{
    (void)state;
    (void)ROW(.what = RELEASE, .release = {.snapshot_id = "s1", .sandbox = "a", .created_at_ms = 5});
    assert_string_equal(ROW(.what = DUE)->seen, "s1:a:0 ");
    (void)ROW(.what = LATER, .sandbox = "s1", .ms = 60000);
    assert_string_equal(ROW(.what = DUE)->seen, "");
    (void)ROW(.what = RELEASE, .release = {.snapshot_id = "s1"}); /* at once, whatever becomes of a */
    assert_string_equal(ROW(.what = DUE)->seen, "s1::0 ");
    (void)ROW(.what = RELEASE, .release = {.snapshot_id = "s1", .sandbox = "a", .created_at_ms = 5});
    assert_string_equal(ROW(.what = DUE)->seen, "s1::0 ");
    (void)ROW(.what = LATER, .sandbox = "s1", .ms = -1);
    assert_string_equal(ROW(.what = DUE)->seen, "s1::1 ");
    (void)ROW(.what = RELEASED, .sandbox = "s1");
    assert_string_equal(ROW(.what = DUE)->seen, "");
}

/* ---- checkpoints ---- */

struct checkpoint_call {
    enum { MAKE, GET, REMOVE, DEFAULT, GONE, LIST } what;
    const char *name, *snapshot_id;
    bool make_default, found;
    struct store_checkpoint row, before;
    char seen[1024];
};

static void on_checkpoint(void *arg, const struct store_checkpoint *c)
{
    char *seen = arg;
    size_t n = strlen(seen);
    (void)snprintf(seen + n, 1024 - n, "%s=%s%s%s ", c->name, c->snapshot_id, c->is_default ? "*" : "",
                   c->gone ? "!" : "");
}

static enum sg_code checkpoint_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct checkpoint_call *k = arg;
    switch (k->what) {
    case MAKE:
        k->row = (struct store_checkpoint){.size_bytes = -1, .made = true, .is_default = k->make_default};
        (void)snprintf(k->row.name, sizeof k->row.name, "%s", k->name);
        (void)snprintf(k->row.snapshot_id, sizeof k->row.snapshot_id, "%s", k->snapshot_id);
        (void)snprintf(k->row.image, sizeof k->row.image, "img@sha256:1");
        return store_checkpoint_put(db, "u", &k->row, &k->before, e);
    case GET:
        return store_checkpoint_get(db, "u", k->name, &k->row, &k->found, e);
    case REMOVE:
        return store_checkpoint_drop(db, "u", k->name, &k->before, &k->found, e);
    case DEFAULT:
        return store_checkpoint_default(db, "u", k->name, &k->found, e);
    case GONE:
        return store_checkpoint_gone(db, "u", k->name, k->snapshot_id, e);
    case LIST:
    default:
        k->seen[0] = '\0';
        return store_checkpoint_list(db, "u", k->name, 100, on_checkpoint, k->seen, e);
    }
}

static enum sg_code try_checkpoint(struct checkpoint_call *k)
{
    struct sg_error e;
    return store_call(s, STORE_DURABLE, checkpoint_fn, k, &e);
}

static struct checkpoint_call *do_checkpoint(struct checkpoint_call *k)
{
    assert_int_equal(try_checkpoint(k), SG_OK);
    return k;
}

#define CHECKPOINT(...) do_checkpoint(&(struct checkpoint_call){__VA_ARGS__})

static const char *listed(void)
{
    static char text[1024];
    (void)snprintf(text, sizeof text, "%s", CHECKPOINT(.what = LIST, .name = "")->seen);
    return text;
}

static void test_checkpoints(void **state)
{
    (void)state;
    (void)CHECKPOINT(.what = MAKE, .name = "b", .snapshot_id = "s1", .make_default = true);
    (void)CHECKPOINT(.what = MAKE, .name = "a", .snapshot_id = "s2", .make_default = true);
    assert_string_equal(listed(), "a=s2* b=s1 "); /* one default */
    assert_string_equal(kept_by("s1", SNAPSHOT_BY_ANY), "checkpoint b");
    struct checkpoint_call *k = CHECKPOINT(.what = MAKE, .name = "a", .snapshot_id = "s3");
    assert_string_equal(k->before.snapshot_id, "s2");
    assert_string_equal(listed(), "a=s3* b=s1 "); /* what takes its place is the default, too */
    assert_string_equal(kept_by("s2", SNAPSHOT_BY_ANY), "");
    k = CHECKPOINT(.what = GET, .name = NULL);
    assert_true(k->found && !strcmp(k->row.name, "a") && k->row.made && k->row.created_at_ms > 0);
    assert_string_equal(k->row.image, "img@sha256:1");
    assert_int_equal(k->row.size_bytes, -1);
    (void)CHECKPOINT(.what = GONE, .name = "a", .snapshot_id = "s2"); /* not that one any more */
    assert_string_equal(listed(), "a=s3* b=s1 ");
    (void)CHECKPOINT(.what = GONE, .name = "a", .snapshot_id = "s3");
    assert_string_equal(listed(), "a=s3! b=s1 ");
    assert_false(CHECKPOINT(.what = GET, .name = NULL)->found);
    assert_false(CHECKPOINT(.what = DEFAULT, .name = "never")->found);
    assert_true(CHECKPOINT(.what = DEFAULT, .name = "b")->found);
    assert_string_equal(listed(), "a=s3! b=s1* ");
    assert_true(CHECKPOINT(.what = DEFAULT, .name = NULL)->found);
    assert_string_equal(CHECKPOINT(.what = LIST, .name = "a")->seen, "b=s1 ");
    k = CHECKPOINT(.what = REMOVE, .name = "b");
    assert_true(k->found && !strcmp(k->before.snapshot_id, "s1"));
    assert_string_equal(kept_by("s1", SNAPSHOT_BY_ANY), "");
    assert_false(CHECKPOINT(.what = REMOVE, .name = "b")->found);
}

/* A snapshot that is just being deleted gets no name, and what had the name stays. */
static void test_a_checkpoint_of_a_doomed_snapshot(void **state)
{
    (void)state;
    (void)CHECKPOINT(.what = MAKE, .name = "a", .snapshot_id = "s1");
    assert_true(doom("s2", SNAPSHOT_BY_ANY, 60000));
    struct checkpoint_call k = {.what = MAKE, .name = "a", .snapshot_id = "s2"};
    assert_int_equal(try_checkpoint(&k), SG_E_SNAPSHOT_GONE);
    assert_string_equal(listed(), "a=s1 ");
    assert_string_equal(kept_by("s1", SNAPSHOT_BY_ANY), "checkpoint a");
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, open_store, close_store)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(test_names_keep_a_snapshot),
        TEST(test_an_upstreams_names_are_its_own),
        TEST(test_doomed),
        TEST(test_retention),
        TEST(test_releases),
        TEST(test_checkpoints),
        TEST(test_a_checkpoint_of_a_doomed_snapshot),
    };
    return ANY_STORE_RUN(argc, argv, tests);
}
