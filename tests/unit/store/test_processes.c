/* Processes and watches: what is kept, what replaces what, what goes first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "store/processes.h"
#include "store/watches.h"
#include "tests/support/any_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static enum sg_code put_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    return store_process_put(db, arg, e);
}

static void put(const struct store_process *p)
{
    struct sg_error e;
    struct store_process copy = *p;
    assert_int_equal(store_call(s, STORE_WRITE, put_fn, &copy, &e), SG_OK);
}

struct get {
    struct store_which w;
    unsigned bytes;
    struct stored_process *out;
    bool found;
};

static enum sg_code get_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct get *g = arg;
    if (g->found)
        stored_process_clear(g->out);
    enum sg_code rc = store_process_get(db, &g->w, g->bytes, g->out, e);
    g->found = !rc;
    return rc;
}

static enum sg_code get(const char *session, const char *id, unsigned bytes, struct stored_process *out)
{
    struct sg_error e;
    struct get g = {{"u", "box", session, id}, bytes, out, false};
    return store_call(s, STORE_READ, get_fn, &g, &e);
}

static struct sg_wire_process process(const char *id, enum sg_wire_how how, uint32_t value, uint64_t out_end,
                                      uint64_t err_end)
{
    struct sg_wire_process p = {
        .state = how ? SG_PS_FINISHED : SG_PS_RUNNING,
        .how = how,
        .value = value,
        .end = {out_end, err_end},
        .started_ms = 1000,
        .duration_ms = how ? 5 : 0,
        .pid = 42,
    };
    (void)snprintf(p.id, sizeof p.id, "%s", id);
    return p;
}

static int64_t tomorrow(void)
{
    return sg_wall_ms() + 86400000;
}

static void put_simple(const char *session, const struct sg_wire_process *p, uint64_t first, const char *out)
{
    struct store_process sp = {.upstream = "u",
                               .sandbox = "box",
                               .session_id = session,
                               .p = p,
                               .tail = {{first, out, out ? strlen(out) : 0}},
                               .expires_ms = tomorrow()};
    put(&sp);
}

/* ---- tests ---- */

static void test_round_trip(void **state)
{
    (void)state;
    struct sg_wire_process p = process("web", SG_HOW_SIGNAL, 9, 11, 3);
    p.descendants_hold_output = p.terminal = p.lossless = true;
    p.input = 77;
    struct store_process sp = {.upstream = "u",
                               .sandbox = "box",
                               .session_id = "sbx_1",
                               .p = &p,
                               .tail = {{4, "o\0\xffput!", 7}, {0, "err", 3}},
                               .expires_ms = tomorrow()};
    put(&sp);
    struct stored_process got;
    assert_int_equal(get(NULL, "web", 3, &got), SG_OK);
    assert_string_equal(got.session_id, "sbx_1");
    assert_string_equal(got.p.id, "web");
    assert_int_equal(got.p.state, SG_PS_FINISHED);
    assert_int_equal(got.p.how, SG_HOW_SIGNAL);
    assert_int_equal(got.p.value, 9);
    assert_true(got.p.descendants_hold_output && got.p.terminal && got.p.lossless && !got.p.takes_input);
    assert_int_equal(got.p.input, 77);
    assert_int_equal(got.p.pid, 42);
    assert_int_equal(got.p.started_ms, 1000);
    assert_int_equal(got.p.duration_ms, 5);
    assert_int_equal(got.p.oldest[0], 4);
    assert_int_equal(got.p.end[0], 11);
    assert_int_equal(got.tail[0].len, 7);
    assert_memory_equal(got.tail[0].data, "o\0\xffput!", 7);
    assert_int_equal(got.tail[1].len, 3);
    assert_true(got.complete);
    assert_int_equal(got.expires_ms, sp.expires_ms);
    stored_process_clear(&got);
    assert_int_equal(get("sbx_1", "web", 0, &got), SG_OK);
    assert_int_equal(got.tail[0].len, 0);
    assert_int_equal(got.p.oldest[0], 4);
    stored_process_clear(&got);
    assert_int_equal(get("sbx_2", "web", 0, &got), SG_E_PROCESS_NOT_FOUND);
    assert_int_equal(get(NULL, "other", 0, &got), SG_E_PROCESS_NOT_FOUND);
}

static void test_names_of_another_upstream_are_others(void **state)
{
    (void)state;
    struct sg_wire_process p = process("web", SG_HOW_EXIT, 0, 0, 0);
    struct store_process sp = {
        .upstream = "v", .sandbox = "box", .session_id = "sbx_1", .p = &p, .expires_ms = tomorrow()};
    put(&sp);
    struct stored_process got;
    assert_int_equal(get(NULL, "web", 0, &got), SG_E_PROCESS_NOT_FOUND);
}

static void test_completeness_is_not_assumed(void **state)
{
    (void)state;
    struct stored_process got;
    struct sg_wire_process silent = process("silent", SG_HOW_EXIT, 3, 0, 0);
    put_simple("sbx_1", &silent, 0, NULL);
    assert_int_equal(get(NULL, "silent", 3, &got), SG_OK);
    assert_true(got.complete);
    stored_process_clear(&got);

    struct sg_wire_process lost = process("lost", SG_HOW_EXIT, 0, 100, 0);
    put_simple("sbx_1", &lost, 0, NULL);
    assert_int_equal(get(NULL, "lost", 3, &got), SG_OK);
    assert_false(got.complete);
    assert_int_equal(got.p.oldest[0], 100); /* nothing of it can be read */
    assert_int_equal(got.p.end[0], 100);
    stored_process_clear(&got);

    struct sg_wire_process cut = process("cut", SG_HOW_EXIT, 0, 100, 0);
    put_simple("sbx_1", &cut, 10, "0123456789");
    assert_int_equal(get(NULL, "cut", 3, &got), SG_OK);
    assert_false(got.complete);
    assert_int_equal(got.p.end[0], 20);
    assert_int_equal(got.seen[0], 100);
    stored_process_clear(&got);

    struct sg_wire_process running = process("running", SG_HOW_NONE, 0, 10, 0);
    put_simple("sbx_1", &running, 0, "0123456789");
    assert_int_equal(get(NULL, "running", 3, &got), SG_OK);
    assert_false(got.complete);
    assert_int_equal(got.p.how, SG_HOW_NONE);
    stored_process_clear(&got);

    struct sg_wire_process odd = process("odd", SG_HOW_UNKNOWN, 0, 0, 0);
    put_simple("sbx_1", &odd, 0, NULL);
    assert_int_equal(get(NULL, "odd", 3, &got), SG_OK);
    assert_false(got.complete);
    stored_process_clear(&got);
}

static void test_more_replaces_less_and_never_the_other_way(void **state)
{
    (void)state;
    struct stored_process got;
    struct sg_wire_process early = process("p", SG_HOW_NONE, 0, 4, 0);
    struct sg_wire_process ended = process("p", SG_HOW_EXIT, 7, 8, 0);
    put_simple("sbx_1", &early, 0, "abcd");
    put_simple("sbx_1", &ended, 2, "cdefgh");
    put_simple("sbx_1", &early, 0, "abcd"); /* a slower gateway */
    put_simple("sbx_1", &ended, 0, NULL);   /* one that could not read the bytes */
    assert_int_equal(get(NULL, "p", 3, &got), SG_OK);
    assert_int_equal(got.p.how, SG_HOW_EXIT);
    assert_int_equal(got.p.value, 7);
    assert_int_equal(got.p.oldest[0], 2);
    assert_memory_equal(got.tail[0].data, "cdefgh", 6);
    assert_true(got.complete);
    stored_process_clear(&got);
    put_simple("sbx_1", &ended, 0, "abcdefgh"); /* more of the same */
    assert_int_equal(get(NULL, "p", 3, &got), SG_OK);
    assert_int_equal(got.tail[0].len, 8);
    stored_process_clear(&got);
}

static void test_only_the_tail_is_kept(void **state)
{
    (void)state;
    struct stored_process got;
    size_t len = STORE_TAIL_MAX + 1000;
    char *big = malloc(len);
    assert_non_null(big);
    for (size_t i = 0; i < len; i++)
        big[i] = (char)(i * 7 % 251);
    struct sg_wire_process p = process("big", SG_HOW_EXIT, 0, len + 5, 0);
    struct store_process sp = {.upstream = "u",
                               .sandbox = "box",
                               .session_id = "sbx_1",
                               .p = &p,
                               .tail = {{5, big, len}},
                               .expires_ms = tomorrow()};
    put(&sp);
    assert_int_equal(get(NULL, "big", 1, &got), SG_OK);
    assert_int_equal(got.p.oldest[0], 1005);
    assert_int_equal(got.p.end[0], len + 5);
    assert_int_equal(got.tail[0].len, STORE_TAIL_MAX);
    assert_memory_equal(got.tail[0].data, big + 1000, STORE_TAIL_MAX);
    assert_true(got.complete);
    stored_process_clear(&got);
    free(big);
}

static void test_the_last_session_speaks_for_a_name(void **state)
{
    (void)state;
    struct stored_process got;
    struct sg_wire_process p = process("web", SG_HOW_EXIT, 1, 0, 0);
    put_simple("sbx_1", &p, 0, NULL);
    int64_t made = sg_wall_ms();
    while (sg_wall_ms() == made)
        ; /* the order of two saves within a millisecond is nobody's */
    p.value = 2;
    put_simple("sbx_2", &p, 0, NULL);
    p.value = 1;
    put_simple("sbx_1", &p, 0, NULL); /* saved once more */
    assert_int_equal(get(NULL, "web", 0, &got), SG_OK);
    assert_string_equal(got.session_id, "sbx_2");
    stored_process_clear(&got);
    assert_int_equal(get("sbx_1", "web", 0, &got), SG_OK);
    assert_int_equal(got.p.value, 1);
    stored_process_clear(&got);
}

struct list {
    const char *session;
    struct stored_process *v;
    size_t n;
};

static enum sg_code list_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct list *l = arg;
    free(l->v);
    l->v = NULL;
    return store_process_list(db, "u", "box", l->session, &l->v, &l->n, e);
}

static void test_lists(void **state)
{
    (void)state;
    struct sg_error e;
    struct list l = {0};
    assert_int_equal(store_call(s, STORE_READ, list_fn, &l, &e), SG_OK);
    assert_int_equal(l.n, 0);
    assert_null(l.v);
    for (int i = 0; i < 40; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "p%02d", i);
        struct sg_wire_process p = process(id, SG_HOW_EXIT, 0, 3, 0);
        p.started_ms = (uint64_t)(2000 - i);
        put_simple(i % 2 ? "sbx_1" : "sbx_0", &p, 0, "abc");
    }
    l.session = "sbx_1";
    assert_int_equal(store_call(s, STORE_READ, list_fn, &l, &e), SG_OK);
    assert_int_equal(l.n, 20);
    assert_string_equal(l.v[0].p.id, "p39"); /* began first */
    assert_true(l.v[0].complete);
    l.session = NULL;
    assert_int_equal(store_call(s, STORE_READ, list_fn, &l, &e), SG_OK);
    assert_int_equal(l.n, 20);
    free(l.v);
}

struct forget {
    const char *id;
    int64_t n;
};

static enum sg_code forget_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct forget *f = arg;
    return store_process_forget(db, "u", "box", f->id, &f->n, e);
}

static void test_forgetting(void **state)
{
    (void)state;
    struct sg_error e;
    struct stored_process got;
    struct sg_wire_process a = process("a", SG_HOW_EXIT, 0, 3, 0), b = process("b", SG_HOW_EXIT, 0, 3, 0);
    put_simple("sbx_1", &a, 0, "abc");
    put_simple("sbx_2", &a, 0, "abc");
    put_simple("sbx_2", &b, 0, "abc");
    struct forget f = {.id = "a"};
    assert_int_equal(store_call(s, STORE_WRITE, forget_fn, &f, &e), SG_OK);
    assert_int_equal(f.n, 2);
    assert_int_equal(get(NULL, "a", 0, &got), SG_E_PROCESS_NOT_FOUND);
    assert_int_equal(get(NULL, "b", 0, &got), SG_OK);
    stored_process_clear(&got);
    f.id = NULL;
    assert_int_equal(store_call(s, STORE_WRITE, forget_fn, &f, &e), SG_OK);
    assert_int_equal(f.n, 1);
    put_simple("sbx_2", &b, 0, NULL); /* its old bytes do not come back */
    assert_int_equal(get(NULL, "b", 1, &got), SG_OK);
    assert_int_equal(got.tail[0].len, 0);
    stored_process_clear(&got);
}

struct prune {
    int64_t now, max;
    bool more;
};

static enum sg_code prune_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct prune *p = arg;
    return store_process_prune(db, p->now, p->max, &p->more, e);
}

static int prune_all(int64_t now, int64_t max)
{
    struct sg_error e;
    struct prune p = {now, max, true};
    int rounds = 0;
    for (; p.more; rounds++)
        assert_int_equal(store_call(s, STORE_WRITE, prune_fn, &p, &e), SG_OK);
    return rounds;
}

static size_t listed(void)
{
    struct sg_error e;
    struct list l = {.session = "sbx_1"};
    assert_int_equal(store_call(s, STORE_READ, list_fn, &l, &e), SG_OK);
    free(l.v);
    return l.n;
}

static void put_many(int n, const char *bytes)
{
    for (int i = 0; i < n; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "p%03d", i);
        struct sg_wire_process p = process(id, SG_HOW_EXIT, 0, strlen(bytes), 0);
        struct store_process sp = {.upstream = "u",
                                   .sandbox = "box",
                                   .session_id = "sbx_1",
                                   .p = &p,
                                   .tail = {{0, bytes, strlen(bytes)}},
                                   .expires_ms = tomorrow() + i};
        put(&sp);
    }
}

static void test_what_expired_goes(void **state)
{
    (void)state;
    put_many(450, "abc");
    assert_int_equal(prune_all(sg_wall_ms(), INT64_MAX), 1);
    assert_int_equal(listed(), 450);
    assert_int_equal(prune_all(sg_wall_ms() + 2 * 86400000, INT64_MAX), 3); /* in batches */
    assert_int_equal(listed(), 0);
}

static void test_expired_is_not_told_even_before_it_is_removed(void **state)
{
    (void)state;
    struct stored_process got;
    struct sg_wire_process p = process("old", SG_HOW_EXIT, 0, 0, 0);
    struct store_process sp = {
        .upstream = "u", .sandbox = "box", .session_id = "sbx_1", .p = &p, .expires_ms = sg_wall_ms() - 1};
    put(&sp);
    assert_int_equal(get(NULL, "old", 0, &got), SG_E_PROCESS_NOT_FOUND);
    assert_int_equal(listed(), 0);
}

static void test_above_the_ceiling_the_oldest_go(void **state)
{
    (void)state;
    struct stored_process got;
    char kib[1025];
    memset(kib, 'x', 1024);
    kib[1024] = '\0';
    put_many(200, kib); /* each counts 1024 + 256 + 512 */
    int64_t max = 100 * 1792;
    (void)prune_all(sg_wall_ms(), max);
    size_t left = listed();
    assert_in_range(left, 90, 100);
    assert_int_equal(get(NULL, "p199", 1, &got), SG_OK);
    assert_int_equal(got.tail[0].len, 1024);
    stored_process_clear(&got);
    assert_int_equal(get(NULL, "p000", 0, &got), SG_E_PROCESS_NOT_FOUND);
    assert_int_equal(prune_all(sg_wall_ms(), max), 1);
    assert_int_equal(listed(), left); /* and no more than needed */
}

/* ---- watches ---- */

static enum sg_code watch_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    return store_watch_put(db, arg, 1000, e);
}

struct seen {
    int n;
    int64_t deadline;
    char text[128];
};

static void on_watch(void *arg, const struct store_watch *w)
{
    struct seen *seen = arg;
    seen->n++;
    seen->deadline = w->deadline_ms;
    (void)snprintf(seen->text, sizeof seen->text, "%s %s %s %s", w->session_id, w->sandbox, w->cwd,
                   w->arch ? w->arch : "none");
}

static enum sg_code watches_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    *(struct seen *)arg = (struct seen){0};
    return store_watch_list(db, "u", on_watch, arg, e);
}

static enum sg_code drop_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    return store_watch_drop(db, arg, e);
}

static enum sg_code prune_watches_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    (void)arg;
    return store_watch_prune(db, 5000, 500, e);
}

static void test_watches(void **state)
{
    (void)state;
    struct sg_error e;
    struct store_watch w = {"u", "sbx_1", "box", "/work", NULL, 0};
    struct seen seen = {0};
    assert_int_equal(store_call(s, STORE_WRITE, watch_fn, &w, &e), SG_OK);
    w.deadline_ms = 9000;
    assert_int_equal(store_call(s, STORE_WRITE, watch_fn, &w, &e), SG_OK);
    w.deadline_ms = 0; /* not known to this one: what is known stays */
    assert_int_equal(store_call(s, STORE_WRITE, watch_fn, &w, &e), SG_OK);
    struct store_watch foreign = {"v", "sbx_2", "box", "/work", "arm64", 1};
    assert_int_equal(store_call(s, STORE_WRITE, watch_fn, &foreign, &e), SG_OK);
    assert_int_equal(store_call(s, STORE_READ, watches_fn, &seen, &e), SG_OK);
    assert_int_equal(seen.n, 1);
    assert_int_equal(seen.deadline, 9000);
    assert_string_equal(seen.text, "sbx_1 box /work none");
    assert_int_equal(store_call(s, STORE_WRITE, prune_watches_fn, NULL, &e), SG_OK);
    seen.n = 0;
    assert_int_equal(store_call(s, STORE_READ, watches_fn, &seen, &e), SG_OK);
    assert_int_equal(seen.n, 1);
    char id[] = "sbx_1";
    assert_int_equal(store_call(s, STORE_WRITE, drop_fn, id, &e), SG_OK);
    seen.n = 0;
    assert_int_equal(store_call(s, STORE_READ, watches_fn, &seen, &e), SG_OK);
    assert_int_equal(seen.n, 0);
}

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, open_it, close_it)
    const struct CMUnitTest tests[] = {
        T(test_round_trip),
        T(test_names_of_another_upstream_are_others),
        T(test_completeness_is_not_assumed),
        T(test_more_replaces_less_and_never_the_other_way),
        T(test_only_the_tail_is_kept),
        T(test_the_last_session_speaks_for_a_name),
        T(test_lists),
        T(test_forgetting),
        T(test_what_expired_goes),
        T(test_expired_is_not_told_even_before_it_is_removed),
        T(test_above_the_ceiling_the_oldest_go),
        T(test_watches),
    };
    return ANY_STORE_RUN(argc, argv, tests);
}
