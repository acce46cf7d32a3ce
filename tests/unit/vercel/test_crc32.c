/* The fast checksum says what zlib's says: of every length, at every alignment, in any pieces. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "vercel/crc32.h"

#include <string.h>
#include <zlib.h>

enum { ALL = 70000, SHORT = 700 };

static unsigned char bytes[ALL + 64];

static uint32_t expected(uint32_t crc, const unsigned char *p, size_t n)
{
    return (uint32_t)crc32(crc, p, (uInt)n);
}

static int fill(void **state)
{
    (void)state;
    uint32_t x = 7;
    for (size_t i = 0; i < sizeof bytes; i++) {
        x = x * 1664525 + 1013904223;
        bytes[i] = (unsigned char)(x >> 24);
    }
    return 0;
}

static void every_length_and_alignment(void **state)
{
    (void)state;
    for (size_t at = 0; at < 17; at++)
        for (size_t n = 0; n < SHORT; n++)
            if (vercel_crc32(0, bytes + at, n) != expected(0, bytes + at, n))
                fail_msg("%zu bytes at %zu", n, at);
    assert_int_equal(vercel_crc32(0, "123456789", 9), 0xcbf43926);
}

static void goes_on_from_any_piece(void **state)
{
    (void)state;
    const uint32_t whole = expected(0, bytes, ALL);
    uint32_t x = 3, crc = 0;
    assert_int_equal(vercel_crc32(0, bytes, ALL), whole);
    for (size_t at = 0; at < ALL;) {
        x = x * 1664525 + 1013904223;
        size_t n = (x >> 16) % 999;
        n = n < ALL - at ? n : ALL - at;
        crc = vercel_crc32(crc, bytes + at, n);
        at += n;
    }
    assert_int_equal(crc, whole);
}

static void bits_of_all_kinds(void **state)
{
    (void)state;
    static unsigned char same[4096];
    static const int values[] = {0, 0xff, 0x80, 0x01};
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        memset(same, values[v], sizeof same);
        for (size_t n = 0; n < sizeof same; n += 61)
            for (unsigned bit = 0; bit < 32; bit++)
                if (vercel_crc32(1U << bit, same, n) != expected(1U << bit, same, n))
                    fail_msg("%zu times %d from bit %u", n, values[v], bit);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_and_alignment),
        cmocka_unit_test(goes_on_from_any_piece),
        cmocka_unit_test(bits_of_all_kinds),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
