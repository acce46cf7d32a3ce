/* A16: entity tags, HTTP dates, and what a conditional request comes to. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "routes/conditions.h"

#include <stdio.h>
#include <string.h>

#define A "AAAAAAAAAAAAAAAAAAAAAA"
#define B "bbbbbbbbbbbbbbbbbb_-09"

static const int64_t now_s = 1796040000; /* 2026-11-30 */

static void tags_are_kept_as_the_guest_takes_them(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        bool weak, any;
        const char *list;
    } cases[] = {
        {"\"" A "\"", false, false, A},
        {" \t\"" A "\" \t", false, false, A},
        {"\"" A "\",\"" B "\"", false, false, A "," B},
        {", ,\"" A "\" , , \"" B "\",", false, false, A "," B},
        {"\"" A "\", \"" A "\"", false, false, A},
        {"W/\"" A "\"", true, false, A},
        {"W/\"" A "\"", false, false, ""}, /* compared strongly it is equal to none */
        {"W/\"" A "\", \"" B "\"", false, false, B},
        {"\"\"", false, false, ""},
        {"\"somebody-else's\"", false, false, ""},
        {"\"a,b\", \"" A "\"", false, false, A}, /* a comma in a tag */
        {"\"x\xfc\"", false, false, ""},
        {"\"" A "x\"", false, false, ""},
        {"\"AAAAAAAAAAAAAAAAAAAAA.\"", false, false, ""},
        {"\"AAAAAAAAAA,AAAAAAAAAAA\"", false, false, ""},
        {"*", false, true, ""},
        {"  * ", true, true, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct condition_tags t = {0};
        assert_int_equal(condition_tags_add(&t, cases[i].header, cases[i].weak), CONDITION_FINE);
        assert_true(t.given);
        assert_int_equal(t.any, cases[i].any);
        assert_string_equal(t.list, cases[i].list);
        if (*t.list)
            assert_true(sg_file_tags_valid(t.list));
    }
}

static void lists_that_are_none(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",   " ",       ",",         A,        "\"" A,        A "\"",     "w/\"" A "\"", "W\"" A "\"",
        "W/", "\"a b\"", "\"a\x7f\"", "\"a\"b", "\"a\" \"b\"", "*, \"a\"", "\"a\", *",    "**"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct condition_tags t = {0};
        assert_int_equal(condition_tags_add(&t, bad[i], true), CONDITION_MALFORMED);
        assert_true(t.given);
    }
}

static void lines_are_one_list(void **state)
{
    (void)state;
    struct condition_tags t = {0};
    assert_int_equal(condition_tags_add(&t, "\"" A "\"", false), CONDITION_FINE);
    assert_int_equal(condition_tags_add(&t, "\"" B "\"", false), CONDITION_FINE);
    assert_string_equal(t.list, A "," B);
    assert_true(condition_tags_match(&t, A) && condition_tags_match(&t, B));
    assert_false(condition_tags_match(&t, "AAAAAAAAAAAAAAAAAAAAAb"));
    assert_int_equal(condition_tags_add(&t, "*", false), CONDITION_MALFORMED);
    t = (struct condition_tags){0};
    assert_int_equal(condition_tags_add(&t, "*", false), CONDITION_FINE);
    assert_true(condition_tags_match(&t, A));
    assert_int_equal(condition_tags_add(&t, "\"" B "\"", false), CONDITION_MALFORMED);
}

/* As many of ours as the guest takes, and not one more; of others any number. */
static void the_list_is_bounded(void **state)
{
    (void)state;
    struct condition_tags t = {0};
    for (int i = 0; i <= SG_FILE_TAGS_MAX; i++) {
        char header[64];
        (void)snprintf(header, sizeof header, "\"AAAAAAAAAAAAAAAAAAAA%02d\", \"other%d\"", i, i);
        enum condition_fit fit = condition_tags_add(&t, header, false);
        assert_int_equal(fit, i < SG_FILE_TAGS_MAX ? CONDITION_FINE : CONDITION_TOO_MANY);
    }
    assert_true(sg_file_tags_valid(t.list));
    assert_int_equal(strlen(t.list), sizeof t.list - 1);
}

static void one_strong_tag(void **state)
{
    (void)state;
    assert_true(condition_tag_is("\"" A "\"", A));
    assert_true(condition_tag_is(" \"" A "\" ", A));
    assert_false(condition_tag_is("W/\"" A "\"", A));
    assert_false(condition_tag_is("\"" A "\", \"" B "\"", A));
    assert_false(condition_tag_is("\"" A "", A));
    assert_false(condition_tag_is("\"" B "\"", A));
    assert_false(condition_tag_is("*", A));
    assert_false(condition_tag_is("", A));
    assert_false(condition_tag_is("Sun, 06 Nov 1994 08:49:37 GMT", A));
}

static void dates_of_all_three_forms(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t s;
    } good[] = {
        {"Sun, 06 Nov 1994 08:49:37 GMT", 784111777},
        {"Sunday, 06-Nov-94 08:49:37 GMT", 784111777},
        {"Sun Nov  6 08:49:37 1994", 784111777},
        {" Sun, 06 Nov 1994 08:49:37 GMT\t", 784111777},
        {"Thu, 01 Jan 1970 00:00:00 GMT", 0},
        {"Thu Jan  1 00:00:00 1970", 0},
        {"Thu, 29 Feb 2024 00:00:00 GMT", 1709164800},
        {"Monday, 30-Nov-26 12:00:00 GMT", 1796040000},
        {"Friday, 01-Jan-77 00:00:00 GMT", 220924800},
        {"Wednesday, 01-Jan-76 00:00:00 GMT", 3345062400},
        {"Fri, 31 Dec 9999 23:59:59 GMT", 253402300799},
    };
    static const char *const bad[] = {
        "",
        "now",
        "784111777",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37 GMT x",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun 06 Nov 1994 08:49:37 GMT",
        "Xyz, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 nov 1994 08:49:37 GMT",
        "Sun, 00 Nov 1994 08:49:37 GMT",
        "Sun, 31 Nov 1994 08:49:37 GMT",
        "Wed, 29 Feb 2023 00:00:00 GMT",
        "Sun, 06 Nov 1994 24:00:00 GMT",
        "Sun, 06 Nov 1994 08:60:00 GMT",
        "Sun, 06 Nov 1994 08:49:61 GMT",
        "Sun, 06 Nov -994 08:49:37 GMT",
        "Sunday, 06-Nov-1994 08:49:37 GMT",
        "Sun Nov 6 08:49:37 1994",
        "Sun, 06 Nov 1994 08:49:37 GMT                                     ,",
    };
    int64_t s;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(condition_date_parse(good[i].text, now_s, &s));
        assert_int_equal(s, good[i].s);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(condition_date_parse(bad[i], now_s, &s));
}

static void dates_are_written_and_read(void **state)
{
    (void)state;
    char text[CONDITION_DATE_TEXT];
    condition_date_format(784111777, text);
    assert_string_equal(text, "Sun, 06 Nov 1994 08:49:37 GMT");
    condition_date_format(-1, text);
    assert_string_equal(text, "Thu, 01 Jan 1970 00:00:00 GMT");
    condition_date_format(INT64_MAX, text);
    assert_string_equal(text, "Fri, 31 Dec 9999 23:59:59 GMT");
    for (int64_t t = 0; t < 253402300799; t += 987654321) {
        int64_t s = -1;
        condition_date_format(t, text);
        assert_true(condition_date_parse(text, now_s, &s));
        assert_int_equal(s, t);
    }
}

static const struct sg_wire_file file = {
    .type = 'f', .mode = 0644, .size = 5, .mtime_ns = 784111777 * INT64_C(1000000000) + 900, .ino = 7};

/* Tags of a request: given or not, with the file's own, another, or any. */
enum about { NONE, OWN, OTHER, ANY };

static void fill(struct condition_tags *t, enum about about)
{
    *t = (struct condition_tags){.given = about != NONE, .any = about == ANY};
    if (about == OWN)
        sg_file_tag(&file, t->list);
    else if (about == OTHER)
        memcpy(t->list, A, sizeof A);
}

/* RFC 9110 section 13.2.2, all combinations; times are -1 before, 0 at and 1 after the change, 2 not given. */
static void all_combinations(void **state)
{
    (void)state;
    for (int i = 0; i < 4 * 4 * 4 * 4 * 2 * 2; i++) {
        struct conditions c = {0};
        enum about match = (enum about)(i & 3), none = (enum about)(i >> 2 & 3);
        int unmodified = (i >> 4 & 3) - 1, modified = (i >> 6 & 3) - 1;
        bool there = i >> 8 & 1, reads = i >> 9 & 1;
        fill(&c.match, match);
        fill(&c.none_match, none);
        c.has_unmodified_since = unmodified != 2;
        c.unmodified_since = 784111777 + unmodified;
        c.has_modified_since = modified != 2;
        c.modified_since = 784111777 + modified;

        enum condition_result want = CONDITION_GO;
        bool first = match != NONE ? there && match != OTHER : !(there && unmodified == -1);
        if (!first)
            want = CONDITION_FAILED;
        else if (none != NONE && there && none != OTHER)
            want = reads ? CONDITION_NOT_MODIFIED : CONDITION_FAILED;
        else if (none == NONE && reads && there && modified != 2 && modified >= 0)
            want = CONDITION_NOT_MODIFIED;
        assert_int_equal(conditions_judge(&c, there ? &file : NULL, reads), want);
    }
}

static void what_no_file_can_fulfil(void **state)
{
    (void)state;
    struct conditions c = {0};
    assert_false(conditions_impossible(&c));
    assert_int_equal(condition_tags_add(&c.match, "\"not-ours\"", false), CONDITION_FINE);
    assert_true(conditions_impossible(&c));
    assert_int_equal(conditions_judge(&c, &file, true), CONDITION_FAILED);
    c = (struct conditions){.match = {.given = true, .any = true}};
    assert_false(conditions_impossible(&c));
    c = (struct conditions){.match = {.given = true, .list = A}};
    assert_false(conditions_impossible(&c));
}

/* Times before the epoch round down, as Last-Modified of a whole second does. */
static void fractions_of_a_second(void **state)
{
    (void)state;
    struct conditions c = {.has_unmodified_since = true, .unmodified_since = -1};
    struct sg_wire_file old = {.type = 'f', .mtime_ns = -1};
    assert_int_equal(conditions_judge(&c, &old, true), CONDITION_GO);
    old.mtime_ns = 0;
    assert_int_equal(conditions_judge(&c, &old, true), CONDITION_FAILED);
    old.mtime_ns = INT64_MIN;
    assert_int_equal(conditions_judge(&c, &old, true), CONDITION_GO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags_are_kept_as_the_guest_takes_them),
        cmocka_unit_test(lists_that_are_none),
        cmocka_unit_test(lines_are_one_list),
        cmocka_unit_test(the_list_is_bounded),
        cmocka_unit_test(one_strong_tag),
        cmocka_unit_test(dates_of_all_three_forms),
        cmocka_unit_test(dates_are_written_and_read),
        cmocka_unit_test(all_combinations),
        cmocka_unit_test(what_no_file_can_fulfil),
        cmocka_unit_test(fractions_of_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
