/* base/core/carrier: frames of input. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/core/carrier.h"

#include <stdlib.h>
#include <string.h>

#define OFFSET_MAX (UINT64_MAX / 4)

static bool same(const struct sg_carrier_frame *a, const struct sg_carrier_frame *b)
{
    return a->kind == b->kind && a->offset == b->offset && a->len == b->len && a->cols == b->cols &&
           a->rows == b->rows && a->signal == b->signal && a->whole == b->whole &&
           a->received[0] == b->received[0] && a->received[1] == b->received[1];
}

static void frames_round_trip(void **state)
{
    (void)state;
    const struct sg_carrier_frame frames[] = {
        {.kind = SG_CARRIER_DATA, .offset = 0, .len = 1},
        {.kind = SG_CARRIER_DATA, .offset = OFFSET_MAX, .len = SG_CARRIER_DATA_MAX},
        {.kind = SG_CARRIER_DATA, .offset = 0x0102030405060708, .len = 0x0a0b},
        {.kind = SG_CARRIER_CLOSE, .offset = 0},
        {.kind = SG_CARRIER_CLOSE, .offset = OFFSET_MAX},
        {.kind = SG_CARRIER_RESIZE, .cols = 1, .rows = 65535},
        {.kind = SG_CARRIER_RESIZE, .cols = 0x0102, .rows = 1},
        {.kind = SG_CARRIER_SIGNAL, .signal = 1, .whole = false},
        {.kind = SG_CARRIER_SIGNAL, .signal = 64, .whole = true},
        {.kind = SG_CARRIER_ACK, .received = {0, OFFSET_MAX}},
        {.kind = SG_CARRIER_ACK, .received = {0x0102030405060708, 9}},
    };
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        unsigned char out[SG_CARRIER_HEAD_MAX];
        struct sg_carrier_frame got;
        size_t n = sg_carrier_encode(out, &frames[i]);
        assert_true(n > 1 && n <= SG_CARRIER_HEAD_MAX);
        for (size_t cut = 0; cut < n; cut++) { /* only part of it is there: nothing is read beyond */
            unsigned char *exact = malloc(cut ? cut : 1);
            assert_non_null(exact);
            memcpy(exact, out, cut);
            assert_int_equal(sg_carrier_decode(exact, cut, &got), 0);
            free(exact);
        }
        assert_int_equal(sg_carrier_decode(out, n, &got), n);
        assert_true(same(&got, &frames[i]));
    }
}

/* The bytes are a contract between versions: the gateway and the helper in a sandbox may be of two. */
static void bytes_are_fixed(void **state)
{
    (void)state;
    const struct {
        struct sg_carrier_frame f;
        const char *bytes;
        size_t n;
    } known[] = {
        {{.kind = SG_CARRIER_DATA, .offset = 258, .len = 3}, "D\0\0\0\0\0\0\1\2\0\0\0\3", 13},
        {{.kind = SG_CARRIER_CLOSE, .offset = 1}, "C\0\0\0\0\0\0\0\1", 9},
        {{.kind = SG_CARRIER_RESIZE, .cols = 80, .rows = 24}, "R\0P\0\30", 5},
        {{.kind = SG_CARRIER_SIGNAL, .signal = 15, .whole = true}, "S\17\1", 3},
        {{.kind = SG_CARRIER_ACK, .received = {1, 2}}, "K\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2", 17},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        unsigned char out[SG_CARRIER_HEAD_MAX];
        assert_int_equal(sg_carrier_encode(out, &known[i].f), known[i].n);
        assert_memory_equal(out, known[i].bytes, known[i].n);
    }
    assert_string_equal(SG_CARRIER_MAGIC, "#sandgate-carrier-1");
}

static void what_is_no_frame(void **state)
{
    (void)state;
    const struct {
        const char *bytes;
        size_t n;
    } bad[] = {
        {"x", 1},
        {"\0", 1},
        {"d", 1},
        {"D\0\0\0\0\0\0\0\0\0\0\0\0", 13},         /* no bytes */
        {"D\0\0\0\0\0\0\0\0\0\1\0\1", 13},         /* too many */
        {"D\0\0\0\0\0\0\0\0\xff\xff\xff\xff", 13}, /* far too many */
        {"D\x40\0\0\0\0\0\0\0\0\0\0\1", 13},       /* an offset beyond all */
        {"C\xff\xff\xff\xff\xff\xff\xff\xff", 9},
        {"R\0\0\0\1", 5},
        {"R\0\1\0\0", 5},
        {"S\0\0", 3},
        {"S\x41\0", 3}, /* 65 */
        {"S\1\2", 3},
        {"K\x40\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 17},
        {"K\0\0\0\0\0\0\0\0\x40\0\0\0\0\0\0\0", 17},
    };
    struct sg_carrier_frame f;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (sg_carrier_decode((const unsigned char *)bad[i].bytes, bad[i].n, &f) != -1)
            fail_msg("accepted frame %zu", i);
    const struct sg_carrier_frame not_sent[] = {
        {.kind = SG_CARRIER_DATA, .len = 0},
        {.kind = SG_CARRIER_DATA, .len = SG_CARRIER_DATA_MAX + 1},
        {.kind = SG_CARRIER_DATA, .len = 1, .offset = OFFSET_MAX + 1},
        {.kind = SG_CARRIER_CLOSE, .offset = UINT64_MAX},
        {.kind = SG_CARRIER_RESIZE, .cols = 0, .rows = 1},
        {.kind = SG_CARRIER_RESIZE, .cols = 1, .rows = 0},
        {.kind = SG_CARRIER_SIGNAL, .signal = 0},
        {.kind = SG_CARRIER_SIGNAL, .signal = 65},
        {.kind = SG_CARRIER_ACK, .received = {0, OFFSET_MAX + 1}},
        {.kind = (enum sg_carrier_kind)0},
    };
    unsigned char out[SG_CARRIER_HEAD_MAX];
    for (size_t i = 0; i < sizeof not_sent / sizeof *not_sent; i++)
        assert_int_equal(sg_carrier_encode(out, &not_sent[i]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_round_trip),
        cmocka_unit_test(bytes_are_fixed),
        cmocka_unit_test(what_is_no_frame),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
