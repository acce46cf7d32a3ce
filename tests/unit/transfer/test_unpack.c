/* A body that may be gzip: B11. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/crypto.h"
#include "transfer/gzip.h"
#include "transfer/unpack.h"

#include <stdlib.h>
#include <string.h>

enum { BIG = 2 * 1024 * 1024, PIECE = 1500 };

static struct sg_loop *loop;
static char *text, *packed, *got;
static size_t packed_len, zeros_len;
static char *zeros_packed;

static size_t pack(const char *data, size_t len, char *out)
{
    struct gzip g;
    size_t made;
    assert_true(gzip_open(&g, GZIP_LEVEL));
    assert_true(gzip_step(&g, &data, &len, true, out, BIG, &made));
    gzip_close(&g);
    return made;
}

static int set_up(void **state)
{
    (void)state;
    loop = sg_loop_new();
    text = calloc(1, BIG);
    packed = malloc(BIG);
    zeros_packed = malloc(BIG);
    got = malloc(BIG + 1);
    if (!loop || !text || !packed || !zeros_packed || !got)
        return -1;
    zeros_len = pack(text, BIG, zeros_packed);
    for (size_t i = 0; i < BIG; i++)
        text[i] = "0123456789abcdef"[(i * i / 77 + i / 1000) % 16];
    packed_len = pack(text, BIG, packed);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(text);
    free(packed);
    free(zeros_packed);
    free(got);
    sg_loop_free(loop);
    return 0;
}

/* A body of data[0..len): every other time it has nothing to give yet. */
struct source {
    const char *data;
    size_t len, at, cut; /* cut: aborted there; 0: not */
    bool pauses, turn;
    struct unpack *u;
    struct sg_timer *timer;
    size_t n; /* got */
    size_t end;
    bool done;
    int mores;
    uint64_t most; /* between two pauses */
};

static size_t source_read(void *arg, char *buf, size_t cap)
{
    struct source *s = arg;
    s->turn = !s->turn;
    if (s->pauses && s->turn) {
        sg_timer_start(s->timer, 0);
        return VERCEL_READ_PAUSE;
    }
    if (s->cut && s->at >= s->cut)
        return VERCEL_READ_ABORT;
    size_t n = s->len - s->at;
    n = n < cap ? n : cap;
    n = n < PIECE ? n : PIECE;
    memcpy(buf, s->data + s->at, n);
    s->at += n;
    return n;
}

static void drain(void *arg)
{
    struct source *s = arg;
    size_t before = s->n;
    s->mores++;
    for (;;) {
        size_t cap = BIG + 1 - s->n < 5000 ? BIG + 1 - s->n : 5000;
        size_t n = unpack_read(s->u, got + s->n, cap);
        if (s->n - before > s->most)
            s->most = s->n - before;
        if (n == VERCEL_READ_PAUSE)
            return;
        if (!n || n == VERCEL_READ_ABORT) {
            s->end = n;
            s->done = true;
            sg_loop_stop(loop);
            return;
        }
        s->n += n;
    }
}

static void on_timer(void *arg)
{
    struct source *s = arg;
    unpack_more(s->u);
}

static void open_source(struct source *s, enum unpack_form form, uint64_t free_bytes,
                        const unsigned char *digest)
{
    const struct unpack_spec spec = {.loop = loop,
                                     .form = form,
                                     .free_bytes = free_bytes,
                                     .sha256 = digest,
                                     .read = source_read,
                                     .more = drain,
                                     .arg = s};
    s->timer = sg_timer_new(loop, on_timer, s);
    s->u = unpack_new(&spec);
    assert_non_null(s->u);
}

static void run(struct source *s)
{
    drain(s);
    sg_loop_run(loop); /* stopped already, or soon */
    assert_true(s->done);
}

static void close_source(struct source *s)
{
    unpack_free(s->u);
    sg_timer_free(s->timer);
}

static void expect_code(struct source *s, enum sg_code code)
{
    struct sg_error e;
    assert_int_equal(s->end, code ? VERCEL_READ_ABORT : 0);
    assert_int_equal(unpack_error(s->u, &e), code);
    if (!code)
        return;
    assert_int_equal(e.outcome, SG_NOT_STARTED);
    char more[16];
    assert_int_equal(unpack_read(s->u, more, sizeof more), VERCEL_READ_ABORT); /* for good */
}

static void check(const char *data, size_t len, enum unpack_form form, const char *want, size_t want_len)
{
    for (int pauses = 0; pauses < 2; pauses++) {
        struct source s = {.data = data, .len = len, .pauses = pauses};
        open_source(&s, form, UINT64_MAX, NULL);
        run(&s);
        expect_code(&s, SG_OK);
        assert_int_equal(s.n, want_len);
        assert_memory_equal(got, want, want_len);
        close_source(&s);
    }
}

static void test_what_it_is_shows(void **state)
{
    (void)state;
    check(packed, packed_len, UNPACK_GZIP, text, BIG);
    check(packed, packed_len, UNPACK_LOOK, text, BIG);
    check(packed, packed_len, UNPACK_NOT, packed, packed_len);
    check(text, BIG, UNPACK_LOOK, text, BIG);
    check(text, BIG, UNPACK_NOT, text, BIG);
    check("", 0, UNPACK_LOOK, "", 0);
    check("\x1f", 1, UNPACK_LOOK, "\x1f", 1);
    check("\x1f\x8c", 2, UNPACK_LOOK, "\x1f\x8c", 2);
}

static void expect(const char *data, size_t len, size_t cut, enum sg_code code)
{
    struct source s = {.data = data, .len = len, .cut = cut};
    open_source(&s, UNPACK_GZIP, UINT64_MAX, NULL);
    run(&s);
    if (cut) {
        assert_int_equal(s.end, VERCEL_READ_ABORT);
        assert_int_equal(unpack_error(s.u, NULL), SG_OK); /* nothing is wrong with it */
    } else {
        expect_code(&s, code);
    }
    close_source(&s);
}

static void test_what_is_wrong_is_said(void **state)
{
    (void)state;
    expect("", 0, 0, SG_E_ARCHIVE_REFUSED);
    expect(packed, packed_len - 1, 0, SG_E_ARCHIVE_REFUSED);
    expect(text, 1000, 0, SG_E_ARCHIVE_REFUSED);
    expect(packed, packed_len, PIECE * 5, SG_OK);
    packed[packed_len] = 0;
    expect(packed, packed_len + 1, 0, SG_E_ARCHIVE_REFUSED);
}

static void test_a_turn_is_short_and_a_bomb_stopped(void **state)
{
    (void)state;
    struct source s = {.data = zeros_packed, .len = zeros_len};
    open_source(&s, UNPACK_GZIP, BIG, NULL);
    run(&s);
    expect_code(&s, SG_OK);
    assert_int_equal(s.n, BIG);
    assert_true(s.most <= GUNZIP_TURN);
    assert_true(s.mores >= BIG / GUNZIP_TURN);
    close_source(&s);
    struct source bomb = {.data = zeros_packed, .len = zeros_len};
    open_source(&bomb, UNPACK_LOOK, 100000, NULL);
    run(&bomb);
    expect_code(&bomb, SG_E_ARCHIVE_REFUSED);
    assert_true(bomb.n < BIG);
    close_source(&bomb);
}

static void test_the_digest_is_of_what_came(void **state)
{
    (void)state;
    unsigned char digest[32];
    static const enum unpack_form forms[] = {UNPACK_GZIP, UNPACK_LOOK, UNPACK_NOT};
    sg_sha256(packed, packed_len, digest);
    for (int i = 0; i < 6; i++) {
        struct source s = {.data = packed, .len = packed_len, .pauses = i % 2};
        digest[5] ^= i >= 3;
        open_source(&s, forms[i % 3], UINT64_MAX, digest);
        digest[5] ^= i >= 3;
        run(&s);
        expect_code(&s, i < 3 ? SG_OK : SG_E_DIGEST_MISMATCH);
        close_source(&s);
    }
}

static void test_it_begins_again(void **state)
{
    (void)state;
    char some[100];
    struct source s = {.data = packed, .len = packed_len};
    open_source(&s, UNPACK_LOOK, UINT64_MAX, NULL);
    assert_int_equal(unpack_read(s.u, some, sizeof some), sizeof some);
    s.at = 0;
    assert_true(unpack_rewind(s.u));
    run(&s);
    expect_code(&s, SG_OK);
    assert_int_equal(s.n, BIG);
    assert_memory_equal(got, text, BIG);
    close_source(&s);
    struct source waiting = {.data = packed,
                             .len = packed_len}; /* and is freed while it waits for its turn */
    open_source(&waiting, UNPACK_LOOK, UINT64_MAX, NULL);
    drain(&waiting);
    assert_false(waiting.done);
    close_source(&waiting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_it_is_shows),
        cmocka_unit_test(test_what_is_wrong_is_said),
        cmocka_unit_test(test_a_turn_is_short_and_a_bomb_stopped),
        cmocka_unit_test(test_the_digest_is_of_what_came),
        cmocka_unit_test(test_it_begins_again),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
