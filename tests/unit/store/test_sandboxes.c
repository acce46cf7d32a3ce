/* What only the gateway knows of a sandbox: by its allocation, so that a namesake inherits nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/db.h"
#include "store/sandboxes.h"
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

struct call {
    enum { PUT, MADE, GET, NAMED, INIT, STARTED, CHANGE, FORGET, HAS, LIST } what;
    const char *upstream, *key, *text;
    struct store_sandbox *row;
    struct store_sandbox_change change;
    bool yes;
    char seen[256];
};

static void on_listed(void *arg, const struct store_sandbox *row)
{
    struct call *k = arg;
    size_t n = strlen(k->seen);
    (void)snprintf(k->seen + n, sizeof k->seen - n, "%s=%s ", row->alloc, row->name);
}

static enum sg_code act(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    if (k->yes && (k->what == GET || k->what == NAMED))
        store_sandbox_clear(k->row);
    switch (k->what) {
    case PUT:
        return store_sandbox_put(db, k->upstream, k->row, e);
    case MADE:
        return store_sandbox_made(db, k->upstream, k->text, k->key, e);
    case GET:
        return store_sandbox_get(db, k->upstream, k->key, k->row, &k->yes, e);
    case NAMED:
        return store_sandbox_named(db, k->upstream, k->key, k->row, &k->yes, e);
    case INIT:
        return store_sandbox_init(db, k->upstream, k->key, k->yes, e);
    case STARTED:
        return store_sandbox_started(db, k->upstream, k->key, k->text, e);
    case CHANGE:
        return store_sandbox_change(db, k->upstream, k->text, k->key, &k->change, e);
    case FORGET:
        return store_sandbox_forget(db, k->upstream, k->key, e);
    case HAS:
        return store_sandbox_has(db, k->upstream, k->key, &k->yes, e);
    case LIST:
        k->seen[0] = '\0';
        return store_sandbox_list(db, k->upstream, k->key, 2, on_listed, k, e);
    }
    return SG_E_INTERNAL;
}

static void run(struct call *k)
{
    struct sg_error e;
    if (!k->upstream)
        k->upstream = "up";
    if (store_call(s, STORE_WRITE, act, k, &e))
        fail_msg("%d: %s", (int)k->what, e.detail);
}

static void put(const char *upstream, const char *name, const char *alloc, const char *dir)
{
    struct store_sandbox row = {.web_port = 3000, .keep_alive = 2, .keep_alive_max_ms = 5000};
    char text[64], init[] = "[{\"argv\":[\"true\"]}]";
    (void)snprintf(text, sizeof text, "%s", dir ? dir : "");
    (void)snprintf(row.name, sizeof row.name, "%s", name);
    (void)snprintf(row.alloc, sizeof row.alloc, "%s", alloc);
    row.working_directory = dir ? text : NULL;
    row.init = init;
    run(&(struct call){.what = PUT, .upstream = upstream, .row = &row});
}

static bool get(const char *alloc, struct store_sandbox *out)
{
    struct call k = {.what = GET, .key = alloc, .row = out};
    run(&k);
    return k.yes;
}

static bool has(const char *upstream, const char *alloc)
{
    struct call k = {.what = HAS, .upstream = upstream, .key = alloc};
    run(&k);
    return k.yes;
}

static void keeps_what_was_stated(void **state)
{
    (void)state;
    struct store_sandbox row;
    put("up", "box", "a1", "/work");
    put("up", "box", "a1", "/other"); /* made again by the same request: it stays */
    assert_true(get("a1", &row));
    assert_string_equal(row.name, "box");
    assert_string_equal(row.working_directory, "/work");
    assert_string_equal(row.init, "[{\"argv\":[\"true\"]}]");
    assert_null(row.on_start);
    assert_null(row.started);
    assert_int_equal(row.web_port, 3000);
    assert_int_equal(row.keep_alive, 2);
    assert_int_equal(row.keep_alive_max_ms, 5000);
    assert_false(row.init_done);
    assert_true(row.made_at_ms > 0);
    store_sandbox_clear(&row);
    assert_false(get("a2", &row));
}

static void a_namesake_inherits_nothing(void **state)
{
    (void)state;
    struct store_sandbox row;
    put("up", "box", "a1", "/work");
    put("elsewhere", "box", "a1", "/theirs");
    put("up", "box", "a2", NULL);
    assert_true(has("up", "a1")); /* that it is asked for takes nothing from the one that is there */
    run(&(struct call){.what = MADE, .key = "a2", .text = "box"});
    assert_false(has("up", "a1"));
    assert_true(has("elsewhere", "a1"));
    struct call k = {.what = NAMED, .key = "box", .row = &row};
    run(&k);
    assert_true(k.yes);
    assert_string_equal(row.alloc, "a2");
    assert_null(row.working_directory);
    store_sandbox_clear(&row);
    run(&(struct call){.what = FORGET, .key = "a2"});
    assert_false(has("up", "a2"));
    k = (struct call){.what = NAMED, .key = "box", .row = &row};
    run(&k);
    assert_false(k.yes);
}

static void counts_failures_of_init_E13(void **state)
{
    (void)state;
    struct store_sandbox row;
    put("up", "box", "a1", NULL);
    run(&(struct call){.what = INIT, .key = "a1", .yes = false});
    run(&(struct call){.what = INIT, .key = "a1", .yes = false});
    assert_true(get("a1", &row));
    assert_int_equal(row.init_fails, 2);
    assert_false(row.init_done);
    store_sandbox_clear(&row);
    run(&(struct call){.what = INIT, .key = "a1", .yes = true});
    run(&(struct call){.what = STARTED, .key = "a1", .text = "sbx_1"});
    assert_true(get("a1", &row));
    assert_true(row.init_done);
    assert_int_equal(row.init_fails, 2);
    assert_string_equal(row.started, "sbx_1");
    store_sandbox_clear(&row);
}

static void changes_what_is_said(void **state)
{
    (void)state;
    struct store_sandbox row;
    const int64_t mode = 1, port = 0;
    run(&(struct call){.what = CHANGE, .key = "a1", .text = "box", .change = {.working_directory = "/w"}});
    run(&(struct call){
        .what = CHANGE, .key = "a1", .text = "box", .change = {.keep_alive = &mode, .web_port = &port}});
    assert_true(get("a1", &row));
    assert_string_equal(row.working_directory, "/w");
    assert_int_equal(row.keep_alive, 1);
    store_sandbox_clear(&row);
    run(&(struct call){.what = CHANGE, .key = "a1", .text = "box", .change = {.working_directory = ""}});
    assert_true(get("a1", &row));
    assert_null(row.working_directory);
    store_sandbox_clear(&row);
}

static void lists_in_pages(void **state)
{
    (void)state;
    put("up", "x", "a1", NULL);
    put("up", "y", "a2", NULL);
    put("up", "z", "a3", NULL);
    put("elsewhere", "q", "a0", NULL);
    struct call k = {.what = LIST, .key = ""};
    run(&k);
    assert_string_equal(k.seen, "a1=x a2=y ");
    k = (struct call){.what = LIST, .key = "a2"};
    run(&k);
    assert_string_equal(k.seen, "a3=z ");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(keeps_what_was_stated, open_store, close_store),
        cmocka_unit_test_setup_teardown(a_namesake_inherits_nothing, open_store, close_store),
        cmocka_unit_test_setup_teardown(counts_failures_of_init_E13, open_store, close_store),
        cmocka_unit_test_setup_teardown(changes_what_is_said, open_store, close_store),
        cmocka_unit_test_setup_teardown(lists_in_pages, open_store, close_store),
    };
    return ANY_STORE_RUN(argc, argv, tests);
}
