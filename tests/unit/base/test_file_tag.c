/* base/core/file_tag: what a file's content is known by: A16, E10. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/core/file_tag.h"

#include <stdio.h>
#include <string.h>

static const struct sg_wire_file file = {.type = 'f',
                                         .mode = 0644,
                                         .uid = 1000,
                                         .gid = 1000,
                                         .size = 5,
                                         .mtime_ns = 1700000000123456789,
                                         .ctime_ns = 1700000000123456790,
                                         .ino = 77,
                                         .dev = 65024,
                                         .nlink = 1};

/* Gateways of different versions, and the helpers they left in sandboxes, have to agree: so it is written down. */
static void is_always_the_same(void **state)
{
    (void)state;
    char tag[SG_FILE_TAG_LEN + 1];
    sg_file_tag(&file, tag);
    assert_string_equal(tag, "4VZVpBatVICM0u-j2or6Hb");
    assert_int_equal(strlen(tag), SG_FILE_TAG_LEN);
    assert_true(sg_file_tags_valid(tag));
}

static void changes_with_every_fact(void **state)
{
    (void)state;
    char tags[6][SG_FILE_TAG_LEN + 1];
    struct sg_wire_file f[6] = {file, file, file, file, file, file};
    f[1].size++;
    f[2].mtime_ns++;
    f[3].ctime_ns = -f[3].ctime_ns;
    f[4].ino = UINT64_MAX;
    f[5].dev--;
    for (size_t i = 0; i < 6; i++) {
        sg_file_tag(&f[i], tags[i]);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(tags[i], tags[k]);
    }
    /* What is no part of it: the content's age is in ctime. */
    struct sg_wire_file same = file;
    same.nlink = 2;
    same.mode = 0600;
    char tag[SG_FILE_TAG_LEN + 1];
    sg_file_tag(&same, tag);
    assert_string_equal(tag, tags[0]);
}

#define A "AAAAAAAAAAAAAAAAAAAAAA"
#define B "bbbbbbbbbbbbbbbbbbbbb-"
#define C "0123456789_-0123456789"

static void lists(void **state)
{
    (void)state;
    static const char *const good[] = {A, A "," B, A "," B "," C, A "," A};
    static const char *const bad[] = {"",          ",",
                                      A ",",       "," A,
                                      A ",," B,    A B,
                                      A ", " B,    A "," B "x",
                                      "*",         A ",*",
                                      "\"" A "\"", "AAAAAAAAAAAAAAAAAAAAA",
                                      A "A",       "AAAAAAAAAAAAAAAAAAAAA+",
                                      A "\n"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(sg_file_tags_valid(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(sg_file_tags_valid(bad[i]));
    assert_true(sg_file_tag_among(A, A) && sg_file_tag_among(A, A "," B) && sg_file_tag_among(B, A "," B));
    assert_true(sg_file_tag_among(C, A "," B "," C));
    assert_false(sg_file_tag_among(C, A "," B) || sg_file_tag_among(C, "") || sg_file_tag_among(C, "*"));
    /* No part of one is one. */
    assert_false(sg_file_tag_among("AAAA", A) || sg_file_tag_among(A, "AAAA") ||
                 sg_file_tag_among(A "," B, A "," B));
    char many[(SG_FILE_TAGS_MAX + 1) * (SG_FILE_TAG_LEN + 1)];
    size_t n = 0;
    for (size_t i = 0; i <= SG_FILE_TAGS_MAX; i++) {
        n += (size_t)snprintf(many + n, sizeof many - n, "%s%s", i ? "," : "", A);
        assert_int_equal(sg_file_tags_valid(many), i < SG_FILE_TAGS_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_always_the_same),
        cmocka_unit_test(changes_with_every_fact),
        cmocka_unit_test(lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
