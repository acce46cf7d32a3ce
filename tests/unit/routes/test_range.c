/* A16: which bytes a Range header asks for. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "routes/range.h"

static void ignores_what_is_not_one_byte_range(void **state)
{
    (void)state;
    static const char *const bad[] = {NULL,
                                      "",
                                      "bytes",
                                      "bytes=",
                                      "bytes=-",
                                      "bytes=a-b",
                                      "bytes=1",
                                      "bytes=5-4",
                                      "lines=0-1",
                                      "bytes=0-1,3-",
                                      "bytes=0-1x",
                                      "bytes=0--1",
                                      "bytes=-1-",
                                      "bytes=--1",
                                      "bytes= ",
                                      "bytes 0-1/2",
                                      "bytes=+1-2",
                                      "bytes=1- 2",
                                      "bytes=18446744073709551616-18446744073709551615",
                                      "bytes=0010-9",
                                      "bytes=99999999999999999999999-5"};
    struct byte_range r;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(range_parse(bad[i], &r));
}

static void check(const char *header, uint64_t size, enum range_fit fit, uint64_t from, uint64_t len)
{
    struct byte_range r;
    uint64_t f = 0, l = 0;
    assert_true(range_parse(header, &r));
    assert_int_equal(range_resolve(&r, size, &f, &l), fit);
    if (fit == RANGE_PART) {
        assert_int_equal(f, from);
        assert_int_equal(l, len);
    }
}

static void resolves(void **state)
{
    (void)state;
    check("bytes=0-0", 10, RANGE_PART, 0, 1);
    check("bytes=2-5", 10, RANGE_PART, 2, 4);
    check("Bytes= 2-5 ", 10, RANGE_PART, 2, 4);
    check("bytes=9-", 10, RANGE_PART, 9, 1);
    check("bytes=5-999", 10, RANGE_PART, 5, 5);
    check("bytes=5-99999999999999999999999", 10, RANGE_PART, 5, 5);
    check("bytes=-3", 10, RANGE_PART, 7, 3);
    check("bytes=-99999999999999999999999", 10, RANGE_PART, 0, 10);
    check("bytes=0009-00000000000000000000000009", 10, RANGE_PART, 9, 1);
    check("bytes=99999999999999999999998-99999999999999999999999", 10, RANGE_OUTSIDE, 0, 0);
    check("bytes=10-", 10, RANGE_OUTSIDE, 0, 0);
    check("bytes=99999999999999999999999-", 10, RANGE_OUTSIDE, 0, 0);
    check("bytes=0-", 0, RANGE_OUTSIDE, 0, 0);
    check("bytes=-0", 10, RANGE_OUTSIDE, 0, 0);
    check("bytes=-1", 0, RANGE_WHOLE, 0, 0);
    check("bytes=0-18446744073709551615", UINT64_MAX, RANGE_PART, 0, UINT64_MAX);
    check("bytes=18446744073709551614-18446744073709551614", UINT64_MAX, RANGE_PART, UINT64_MAX - 1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ignores_what_is_not_one_byte_range),
        cmocka_unit_test(resolves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
