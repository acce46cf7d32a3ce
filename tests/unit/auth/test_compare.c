/* P52: whatever is sent as a token, exactly one comparison is made, in constant time, over two digests of 32
 * bytes.  The comparison is counted at link time (--wrap), so a short cut would show. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "auth/tokens.h"
#include "base/crypto.h"

#include <stdio.h>
#include <string.h>

static int comparisons;
static size_t compared_length;

bool __real_sg_equal_ct(const void *a, const void *b, size_t len);
bool __wrap_sg_equal_ct(const void *a, const void *b, size_t len);

bool __wrap_sg_equal_ct(const void *a, const void *b, size_t len)
{
    comparisons++;
    compared_length = len;
    return __real_sg_equal_ct(a, b, len);
}

static void p52_one_comparison_of_digests(void **state)
{
    (void)state;
    struct token_table *t;
    struct principal who;
    char token[TOKEN_TEXT], other[TOKEN_TEXT], wrong[TOKEN_TEXT];
    assert_int_equal(token_table_open(NULL, &t, NULL), SG_OK);
    assert_int_equal(token_generate(token, NULL), SG_OK);
    assert_int_equal(token_generate(other, NULL), SG_OK);
    assert_int_equal(token_table_add_memory(t, token, "x", NULL), SG_OK);
    memcpy(wrong, token, sizeof wrong);
    wrong[TOKEN_TEXT - 2] = wrong[TOKEN_TEXT - 2] == 'a' ? 'b' : 'a';
    const struct {
        const char *token;
        enum sg_code want;
    } cases[] = {
        {token, SG_OK},
        {wrong, SG_E_UNAUTHENTICATED},  /* known id */
        {other, SG_E_UNAUTHENTICATED},  /* unknown id */
        {"", SG_E_UNAUTHENTICATED},     /* no form at all */
        {"sgt_", SG_E_UNAUTHENTICATED}, /* too short */
        {"sgt_AAAAAAAAAAAA_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", SG_E_UNAUTHENTICATED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        comparisons = 0;
        compared_length = 0;
        assert_int_equal(token_check(t, cases[i].token, &who, NULL), cases[i].want);
        assert_int_equal(comparisons, 1);
        assert_int_equal(compared_length, 32);
    }
    token_table_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(p52_one_comparison_of_digests)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
