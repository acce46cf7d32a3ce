/* Digests of a body: RFC 9530. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "routes/digest.h"

#include "base/crypto.h"

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
    expect("sha-384=:YWJj:, sha-256=:" EMPTY ":", DIGEST_FINE);
    expect("sha-256=:" EMPTY ": , md5=:YWJjZA==:", DIGEST_FINE);
    expect("sha-384=:YWJj:", DIGEST_OTHER);
    expect("sha-512=:YWJj:", DIGEST_MALFORMED);
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

static void test_sha512(void **state)
{
    (void)state;
    static const char header[] =
        "sha-512=:z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+"
        "SfaPg==:";
    struct digest d = {0};
    char hex[2 * DIGEST_BYTES_512 + 1];
    assert_int_equal(digest_parse(header, &d), DIGEST_FINE);
    assert_true(d.given_512 && !d.given);
    sg_hex(hex, d.sha512, sizeof d.sha512);
    assert_string_equal(hex, "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce"
                             "47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_headers), cmocka_unit_test(test_sha512)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
