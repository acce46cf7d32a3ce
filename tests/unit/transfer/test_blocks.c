/* The memory of uploads: a ceiling, a line of those who wait, chains that keep the order of bytes.  P32. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "transfer/blocks.h"

#include <stdlib.h>
#include <string.h>

struct waiter {
    struct blocks_wait w;
    struct block *got;
};

static void on_block(void *arg, struct block *b)
{
    ((struct waiter *)arg)->got = b;
}

static void test_line(void **state)
{
    (void)state;
    struct blocks *p = blocks_new(3 * BLOCK_BYTES);
    struct block *b[3];
    struct waiter w[3];
    assert_non_null(p);
    for (int i = 0; i < 3; i++) {
        w[i] = (struct waiter){.w = {.fn = on_block, .arg = &w[i]}};
        assert_true(blocks_plenty(p) || i > 0);
    }
    assert_false(blocks_wait(p, &w[0].w)); /* nobody has any: nothing will come back */
    for (int i = 0; i < 3; i++)
        assert_non_null(b[i] = blocks_take(p));
    assert_null(blocks_take(p));
    assert_false(blocks_plenty(p));
    for (int i = 0; i < 3; i++)
        assert_true(blocks_wait(p, &w[i].w));
    blocks_wait_off(p, &w[1].w);
    blocks_wait_off(p, &w[1].w);
    b[0]->len = 5;
    blocks_give(p, b[0]);
    assert_ptr_equal(w[0].got, b[0]);
    assert_int_equal(b[0]->len, 0);
    assert_null(blocks_take(p)); /* the next one is for who waits */
    assert_int_equal(blocks_share(p), BLOCK_ROOM);
    blocks_give(p, b[1]);
    assert_ptr_equal(w[2].got, b[1]);
    assert_null(w[1].got);
    assert_int_equal(blocks_in_use(p), 3);
    for (int i = 0; i < 3; i++)
        blocks_give(p, b[i]);
    assert_int_equal(blocks_in_use(p), 0);
    blocks_rest(p);
    blocks_free(p);
    blocks_free(NULL);
}

/* The more is in use, the less anybody should plan with. */
static void test_share(void **state)
{
    (void)state;
    struct blocks *p = blocks_new(UINT64_C(40) * BLOCK_BYTES);
    struct block *b[40];
    uint64_t last = UINT64_MAX;
    for (int i = 0; i < 40; i++) {
        uint64_t share = blocks_share(p);
        assert_true(share <= last && share >= BLOCK_ROOM);
        assert_true(share <= (uint64_t)(40 - i) * BLOCK_ROOM);
        last = share;
        assert_non_null(b[i] = blocks_take(p));
    }
    for (int i = 0; i < 40; i++)
        blocks_give(p, b[i]);
    blocks_rest(p);
    blocks_free(p);
}

/* What comes out is what went in, whatever the pieces, with a reader that goes back to the beginning at times. */
static void test_chain(void **state)
{
    (void)state;
    struct blocks *p = blocks_new(UINT64_C(64) * BLOCK_BYTES);
    struct chain c = {0};
    struct chain_mark m = {0};
    uint64_t in = 0, out = 0, read = 0;
    unsigned rng = 12345;
    char *buf = malloc(2 * BLOCK_BYTES);
    assert_non_null(buf);
    for (int step = 0; step < 3000; step++) {
        rng = rng * 1103515245 + 12345;
        size_t n = (rng >> 8) % (step % 7 ? 9000 : 2 * BLOCK_BYTES);
        if (rng >> 30 == 0 || c.bytes > UINT64_C(30) * BLOCK_BYTES) {
            uint64_t drop = n % (c.bytes + 1);
            chain_drop(&c, p, drop);
            out += drop;
            read = out;
            m = (struct chain_mark){0};
        } else if (rng >> 30 == 1) {
            size_t got = chain_read(&c, &m, buf, n);
            assert_true(got == n || read + got == in);
            for (size_t i = 0; i < got; i++)
                assert_int_equal((unsigned char)buf[i], (unsigned char)((read + i) * 31 >> 3));
            read += got;
            if (step % 5 == 0) {
                m = (struct chain_mark){0};
                read = out;
            }
        } else {
            for (size_t left = n; left;) {
                size_t room;
                char *at = chain_room(&c, &room);
                if (!room) {
                    chain_push(&c, blocks_take(p));
                    continue;
                }
                room = room < left ? room : left;
                for (size_t i = 0; i < room; i++)
                    at[i] = (char)((in + i) * 31 >> 3);
                chain_wrote(&c, room);
                in += room;
                left -= room;
            }
        }
        assert_int_equal(c.bytes, in - out);
        assert_true(blocks_in_use(p) <= c.bytes / BLOCK_ROOM + 2);
    }
    chain_drop(&c, p, c.bytes);
    assert_int_equal(blocks_in_use(p), 0);
    assert_null(c.first);
    chain_push(&c, blocks_take(p)); /* one that nothing was written to */
    chain_drop(&c, p, 0);
    assert_int_equal(blocks_in_use(p), 0);
    blocks_free(p);
    free(buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
