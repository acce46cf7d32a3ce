/* The table of running sessions: bounded, newest use kept, safe from several threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "control/session_cache.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void remembers_replaces_and_forgets(void **state)
{
    (void)state;
    struct session_cache *c = session_cache_new(4);
    struct cached_session s;
    assert_false(session_cache_get(c, "a", &s));
    session_cache_put(c, "a", "sbx_1", "/w", NULL, 0);
    assert_true(session_cache_get(c, "a", &s));
    assert_string_equal(s.session_id, "sbx_1");
    assert_string_equal(s.cwd, "/w");
    assert_null(s.arch);
    cached_session_clear(&s);
    session_cache_put(c, "a", "sbx_2", "/", "arm64", 12345);
    assert_int_equal(session_cache_count(c), 1);
    assert_true(session_cache_get(c, "a", &s));
    assert_string_equal(s.session_id, "sbx_2");
    assert_string_equal(s.arch, "arm64");
    assert_int_equal(s.deadline_ms, 12345);
    cached_session_clear(&s);
    session_cache_forget(c, "a");
    session_cache_forget(c, "a");
    assert_false(session_cache_get(c, "a", &s));
    assert_int_equal(session_cache_count(c), 0);
    session_cache_free(c);
}

static bool has(struct session_cache *c, const char *name)
{
    struct cached_session s;
    bool found = session_cache_get(c, name, &s);
    cached_session_clear(&s);
    return found;
}

static void drops_the_longest_unused(void **state)
{
    (void)state;
    struct session_cache *c = session_cache_new(3);
    session_cache_put(c, "a", "1", "/", NULL, 0);
    session_cache_put(c, "b", "2", "/", NULL, 0);
    session_cache_put(c, "c", "3", "/", NULL, 0);
    assert_true(has(c, "a"));
    session_cache_put(c, "d", "4", "/", NULL, 0);
    assert_int_equal(session_cache_count(c), 3);
    assert_false(has(c, "b"));
    assert_true(has(c, "a"));
    assert_true(has(c, "c"));
    assert_true(has(c, "d"));
    session_cache_free(c);
}

static void *churn(void *arg)
{
    struct session_cache *c = arg;
    unsigned seed = 7;
    for (int i = 0; i < 20000; i++) {
        char name[16], id[32];
        seed = seed * 1103515245 + 12345;
        (void)snprintf(name, sizeof name, "n%u", (seed >> 16) % 97);
        (void)snprintf(id, sizeof id, "s_%s", name);
        struct cached_session s;
        if (seed % 3 == 0) {
            session_cache_forget(c, name);
        } else if (seed % 3 == 1) {
            session_cache_put(c, name, id, "/", NULL, 0);
        } else if (session_cache_get(c, name, &s)) {
            if (strcmp(s.session_id, id) != 0)
                return arg;
            cached_session_clear(&s);
        }
    }
    return NULL;
}

static void holds_under_threads(void **state)
{
    (void)state;
    struct session_cache *c = session_cache_new(50);
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, churn, c), 0);
    for (int i = 0; i < 4; i++) {
        void *bad;
        pthread_join(t[i], &bad);
        assert_null(bad);
    }
    assert_true(session_cache_count(c) <= 50);
    session_cache_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(remembers_replaces_and_forgets),
        cmocka_unit_test(drops_the_longest_unused),
        cmocka_unit_test(holds_under_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
