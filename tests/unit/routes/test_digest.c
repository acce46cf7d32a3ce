/* Digests of a body: RFC 9530. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "routes/digest.h"

#include <string.h>

#define EMPTY "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="

static void expect(const char *header, enum digest_fit fit)
{
    struct digest d = {.given = !(fit == DIGEST_FINE)};
    char option[DIGEST_OPTION];
    assert_int_equal(digest_parse(header, &d), fit);
    if (fit == DIGEST_FINE) {
        assert_true(d.given);
        digest_option(&d, option);
        assert_string_equal(option,
                            "sha-256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}

static void test_headers(void **state)
{
    (void)state;
    expect("sha-256=:" EMPTY ":", DIGEST_FINE);
    expect("  sha-256=:" EMPTY ":\t", DIGEST_FINE);
    expect("sha-512=:YWJj:, sha-256=:" EMPTY ":", DIGEST_FINE);
    expect("sha-256=:" EMPTY ": , md5=:YWJjZA==:", DIGEST_FINE);
    expect("sha-512=:YWJj:", DIGEST_OTHER);
    expect("sha-256-x=:" EMPTY ":", DIGEST_OTHER);
    expect("", DIGEST_MALFORMED);
    expect("sha-256", DIGEST_MALFORMED);
    expect("sha-256=" EMPTY, DIGEST_MALFORMED);
    expect("sha-256=:" EMPTY, DIGEST_MALFORMED);
    expect("sha-256=:YWJj:", DIGEST_MALFORMED);
    expect("sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFV=:", DIGEST_MALFORMED); /* unused bits */
    expect("sha-256=:" EMPTY ":,", DIGEST_MALFORMED);
    expect("sha-256=:" EMPTY ": sha-512=:YWJj:", DIGEST_MALFORMED);
    expect("SHA-256=:" EMPTY ":", DIGEST_MALFORMED); /* keys are in small letters */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_headers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
