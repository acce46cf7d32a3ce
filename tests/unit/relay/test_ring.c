/* The ring: what was appended is read back at its offsets, memory stays within its bounds and is all given back. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "relay/ring.h"

#include <stdlib.h>
#include <string.h>

static size_t used;

static unsigned char byte_at(uint64_t at)
{
    return (unsigned char)(at * 2654435761u >> 13);
}

static bool add(struct ring *r, size_t len)
{
    static unsigned char data[300 * 1024];
    for (size_t i = 0; i < len; i++)
        data[i] = byte_at(r->end + i);
    size_t need = ring_need(r, len), before = used;
    bool ok = ring_add(r, data, len);
    assert_true(used <= before + need);
    return ok;
}

/* Everything kept is right, in pieces of any kind. */
static void check(const struct ring *r)
{
    const unsigned char *p;
    uint64_t at = r->base;
    size_t n;
    assert_true(r->gone <= r->base && r->base <= r->end);
    while ((n = ring_at(r, at, &p)) > 0) {
        assert_true(n <= RING_BLOCK);
        for (size_t i = 0; i < n; i += n < 64 ? 1 : n / 64)
            assert_int_equal(p[i], byte_at(at + i));
        assert_int_equal(p[n - 1], byte_at(at + n - 1));
        at += n;
    }
    assert_int_equal(at, r->end);
    assert_int_equal(ring_at(r, r->end, &p), 0);
    if (r->base)
        assert_int_equal(ring_at(r, r->base - 1, &p), 0);
    assert_int_equal(ring_size(r), used);
    assert_true(used <= (size_t)RING_BLOCK * RING_BLOCKS);
}

static void test_random(void **state)
{
    (void)state;
    srand(20);
    for (int round = 0; round < 40; round++) {
        struct ring r;
        used = 0;
        ring_init(&r, &used);
        ring_start(&r, (uint64_t)(rand() % 100000));
        for (int i = 0; i < 300; i++) {
            uint64_t end = r.end;
            int what = rand() % 100;
            if (what < 70)
                assert_true(add(&r, (size_t)(rand() % 5000)));
            else if (what < 90)
                assert_true(add(&r, (size_t)(rand() % (int)(300 * 1024))));
            else if (what < 94)
                (void)ring_drop(&r);
            else if (what < 97)
                ring_gap(&r, end + 1 + (uint64_t)(rand() % 100000));
            else
                ring_start(&r, (uint64_t)(rand() % 1000000));
            check(&r);
        }
        ring_start(&r, 0);
        assert_int_equal(used, 0);
    }
}

/* A whole megabyte is held, and not a byte more. */
static void test_size(void **state)
{
    (void)state;
    struct ring r;
    used = 0;
    ring_init(&r, &used);
    for (int i = 0; i < 1024; i++)
        assert_true(add(&r, 1024));
    assert_int_equal(r.base, 0);
    assert_int_equal(r.end, 1024 * 1024);
    check(&r);
    assert_true(add(&r, 1));
    assert_int_equal(r.base, RING_BLOCK);
    check(&r);
    ring_start(&r, r.end);
    assert_true(add(&r, 10)); /* a little costs a little */
    assert_true(used <= 1024);
    ring_start(&r, 5);
    assert_int_equal(used, 0);
}

/* What is known to be gone is told apart from what was only dropped here. */
static void test_gaps(void **state)
{
    (void)state;
    struct ring r;
    used = 0;
    ring_init(&r, &used);
    assert_true(add(&r, 100));
    ring_gap(&r, 500);
    assert_int_equal(r.gone, 100);
    assert_int_equal(r.base, 500);
    ring_gap(&r, 600);
    assert_int_equal(r.gone, 100);
    assert_int_equal(r.base, 600);
    assert_true(add(&r, 70000));
    assert_int_equal(r.gone, 100);
    assert_true(ring_drop(&r));
    assert_int_equal(r.gone, r.base);
    check(&r);
    ring_start(&r, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_gaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
