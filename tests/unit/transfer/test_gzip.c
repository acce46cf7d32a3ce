/* gzip piece by piece: B11. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "transfer/gzip.h"
#include "transfer/packer.h"

#include <stdlib.h>
#include <string.h>

enum { MIB = 1024 * 1024, BIG = 3 * MIB };

static char *big, *packed, *back;
static size_t packed_len;

/* Half of it repeats, half of it does not. */
static int set_up(void **state)
{
    (void)state;
    big = malloc(BIG);
    packed = malloc(BIG + MIB);
    back = malloc(BIG + MIB);
    uint64_t x = 88172645463325252;
    for (size_t i = 0; big && i < BIG; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        big[i] = i % 8192 < 4096 ? (char)x : (char)(i / 8192);
    }
    return !big || !packed || !back;
}

static int tear_down(void **state)
{
    (void)state;
    free(big);
    free(packed);
    free(back);
    return 0;
}

static size_t pack(const char *data, size_t len, char *out, size_t cap, size_t piece)
{
    struct gzip g;
    size_t n = 0, made;
    assert_true(gzip_open(&g, GZIP_LEVEL));
    for (bool through = false; !through || !g.done;) {
        size_t some = len < piece ? len : piece;
        const char *at = data;
        do {
            size_t room = cap - n < piece ? cap - n : piece;
            assert_true(room > 0);
            through = gzip_step(&g, &at, &some, (size_t)(at - data) + some == len, out + n, room, &made);
            n += made;
        } while (!through);
        len -= (size_t)(at - data);
        data = at;
    }
    gzip_close(&g);
    return n;
}

/* Reads in[0..len) in pieces of in_piece into back, in pieces of out_piece. */
static enum gunzip_state unpack(struct gunzip *g, const char *in, size_t len, size_t in_piece,
                                size_t out_piece, size_t *n)
{
    enum gunzip_state state = GUNZIP_FINE;
    *n = 0;
    while (len && !state) {
        size_t some = len < in_piece ? len : in_piece, made;
        const char *at = in;
        do {
            size_t room = BIG + MIB - *n < out_piece ? BIG + MIB - *n : out_piece;
            state = gunzip_step(g, &at, &some, back + *n, room, &made);
            *n += made;
            if (state || (!some && made < room))
                break;
        } while (BIG + MIB > *n);
        len -= (size_t)(at - in);
        in = at;
    }
    return state;
}

static void test_round_trips_in_pieces(void **state)
{
    (void)state;
    static const size_t pieces[] = {1, 7, 512, 16384, 65536, BIG};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        size_t len = pieces[i] < 512 ? 20000 : BIG, n;
        packed_len = pack(big, len, packed, BIG + MIB, pieces[i]);
        for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++) {
            struct gunzip g;
            if (pieces[k] < 512 && len > 20000)
                continue;
            assert_true(gunzip_open(&g, UINT64_MAX));
            assert_int_equal(unpack(&g, packed, packed_len, pieces[k], pieces[i], &n), GUNZIP_FINE);
            assert_int_equal(n, len);
            assert_memory_equal(back, big, len);
            assert_true(gunzip_whole(&g));
            gunzip_close(&g);
        }
    }
}

static void test_nothing_is_an_empty_member(void **state)
{
    (void)state;
    struct gunzip g;
    size_t n;
    packed_len = pack("", 0, packed, BIG, 100);
    assert_true(packed_len >= 18);
    assert_true(gunzip_open(&g, 0));
    assert_false(gunzip_whole(&g)); /* no bytes at all are none */
    assert_int_equal(unpack(&g, packed, packed_len, 1, 1, &n), GUNZIP_FINE);
    assert_int_equal(n, 0);
    assert_true(gunzip_whole(&g));
    gunzip_close(&g);
}

static void test_members_follow_each_other(void **state)
{
    (void)state;
    struct gunzip g;
    size_t n, one = pack("hello ", 6, packed, BIG, 100), two = pack("", 0, packed + one, BIG - one, 100);
    size_t len = one + two + pack("world", 5, packed + one + two, BIG - one - two, 100);
    for (size_t piece = 1; piece <= len; piece++) {
        assert_true(gunzip_open(&g, UINT64_MAX));
        assert_int_equal(unpack(&g, packed, len, piece, 3, &n), GUNZIP_FINE);
        assert_int_equal(n, 11);
        assert_memory_equal(back, "hello world", 11);
        assert_int_equal(g.members, 3);
        assert_true(gunzip_whole(&g));
        gunzip_close(&g);
    }
}

static void test_what_is_cut_is_not_whole(void **state)
{
    (void)state;
    struct gunzip g;
    size_t n, len = pack(big, 5000, packed, BIG, 5000);
    for (size_t cut = 0; cut < len; cut++) {
        assert_true(gunzip_open(&g, UINT64_MAX));
        assert_int_equal(unpack(&g, packed, cut, 64, 64, &n), GUNZIP_FINE);
        assert_false(gunzip_whole(&g));
        gunzip_close(&g);
    }
}

static void test_garbage_behind_is_refused(void **state)
{
    (void)state;
    static const char *const garbage[] = {"\0\0\0\0", "more", "\x1f\x8b\x07\0"};
    for (size_t i = 0; i < 3; i++) {
        struct gunzip g;
        size_t n, len = pack(big, 5000, packed, BIG, 5000);
        memcpy(packed + len, garbage[i], 4);
        assert_true(gunzip_open(&g, UINT64_MAX));
        assert_int_equal(unpack(&g, packed, len + 4, 1, 4096, &n), GUNZIP_DAMAGED);
        gunzip_close(&g);
    }
}

/* Also a wrong sum at the very end. */
static void test_a_changed_byte_is_noticed(void **state)
{
    (void)state;
    struct gunzip g;
    size_t n, len = pack(big, 3000, packed, BIG, 3000);
    for (size_t i = 10; i < len; i++) {
        packed[i] ^= 0x10;
        assert_true(gunzip_open(&g, UINT64_MAX));
        bool fine = unpack(&g, packed, len, 512, 512, &n) == GUNZIP_FINE && gunzip_whole(&g);
        assert_true(!fine || (n == 3000 && memcmp(back, big, n) == 0)); /* a few bits are of no use */
        gunzip_close(&g);
        packed[i] ^= 0x10;
    }
}

static void test_a_bomb_is_stopped(void **state)
{
    (void)state;
    char *zeros = calloc(1, BIG);
    assert_non_null(zeros);
    struct gunzip g;
    size_t n, len = pack(zeros, BIG, packed, BIG, BIG);
    assert_true(BIG / len > GUNZIP_RATIO_MAX); /* so it is one */
    assert_true(gunzip_open(&g, MIB));
    assert_int_equal(unpack(&g, packed, len, 100, 1000, &n), GUNZIP_TOO_MUCH);
    assert_true(n >= MIB && n < MIB + 100 * GUNZIP_RATIO_MAX * 110);
    gunzip_close(&g);
    assert_true(gunzip_open(&g, BIG)); /* as much is always free */
    assert_int_equal(unpack(&g, packed, len, 100, 1000, &n), GUNZIP_FINE);
    assert_int_equal(n, BIG);
    gunzip_close(&g);
    assert_true(gunzip_open(&g, 0)); /* what grows in proportion is, too */
    len = pack(big, BIG, packed, BIG + MIB, BIG);
    assert_int_equal(unpack(&g, packed, len, 4096, 4096, &n), GUNZIP_FINE);
    assert_int_equal(n, BIG);
    gunzip_close(&g);
    free(zeros);
}

/* ---- in the pool ---- */

struct user {
    struct sg_loop *loop;
    struct packer *p;
    size_t given, got;
    size_t want, piece;
    bool free_at_first, ended, hold;
    struct sg_timer *timer;
    int holds;
};

static void give(struct user *u)
{
    while (u->given < u->want) {
        size_t n = u->want - u->given < u->piece ? u->want - u->given : u->piece;
        size_t taken = packer_write(u->p, big + u->given, n);
        u->given += taken;
        if (u->given == u->want)
            packer_finish(u->p);
        if (taken < n)
            return;
    }
}

static void on_packed(void *arg, const char *data, size_t len)
{
    struct user *u = arg;
    assert_false(u->ended);
    memcpy(packed + u->got, data, len);
    u->got += len;
    if (u->free_at_first) {
        packer_free(u->p);
        u->p = NULL;
        sg_loop_stop(u->loop);
    } else if (u->hold && u->holds++ % 8 == 0) {
        packer_hold(u->p, true);
        sg_timer_start(u->timer, 1);
    }
}

static void on_room(void *arg)
{
    give(arg);
}

static void on_end(void *arg)
{
    struct user *u = arg;
    u->ended = true;
    sg_loop_stop(u->loop);
}

static void on_timer(void *arg)
{
    struct user *u = arg;
    packer_hold(u->p, false);
}

static const struct packer_events events = {on_packed, on_room, on_end};

static void run_packer(struct user *u)
{
    u->loop = sg_loop_new();
    assert_non_null(u->loop);
    u->timer = sg_timer_new(u->loop, on_timer, u);
    u->p = packer_new(u->loop, &events, u);
    assert_non_null(u->p);
    give(u);
    if (!u->want)
        packer_finish(u->p);
    sg_loop_run(u->loop);
    packer_free(u->p);
    sg_timer_free(u->timer);
    sg_loop_free(u->loop);
}

static void check_packed(const struct user *u)
{
    struct gunzip g;
    size_t n;
    assert_true(u->ended);
    assert_true(gunzip_open(&g, UINT64_MAX));
    assert_int_equal(unpack(&g, packed, u->got, 65536, 65536, &n), GUNZIP_FINE);
    assert_true(gunzip_whole(&g));
    gunzip_close(&g);
    assert_int_equal(n, u->want);
    assert_memory_equal(back, big, n);
}

static void test_the_pool_packs_what_it_is_given(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 10000, PACKER_SLICE, BIG};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct user u = {.want = sizes[i], .piece = i % 3 ? 10000 : 3 * PACKER_SLICE, .hold = i % 2 == 0};
        run_packer(&u);
        check_packed(&u);
    }
}

static void test_whoever_leaves_frees_it_at_any_time(void **state)
{
    (void)state;
    struct user u = {.want = BIG, .piece = BIG, .free_at_first = true};
    run_packer(&u);
    assert_true(u.got > 0);
    struct user busy = {.want = BIG, .piece = 1000};
    busy.loop = sg_loop_new();
    assert_non_null(busy.loop);
    busy.p = packer_new(busy.loop, &events, &busy);
    assert_non_null(busy.p);
    give(&busy); /* the pool is at it */
    packer_free(busy.p);
    sg_loop_free(busy.loop);
    assert_int_equal(busy.got, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips_in_pieces),
        cmocka_unit_test(test_nothing_is_an_empty_member),
        cmocka_unit_test(test_members_follow_each_other),
        cmocka_unit_test(test_what_is_cut_is_not_whole),
        cmocka_unit_test(test_garbage_behind_is_refused),
        cmocka_unit_test(test_a_changed_byte_is_noticed),
        cmocka_unit_test(test_a_bomb_is_stopped),
        cmocka_unit_test(test_the_pool_packs_what_it_is_given),
        cmocka_unit_test(test_whoever_leaves_frees_it_at_any_time),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
