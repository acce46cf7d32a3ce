/* Conditional headers: what is kept of a list is a list that the guest takes, and every date has one meaning. */
#include "routes/conditions.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_tags(const char *text, bool weak)
{
    struct condition_tags t = {0};
    enum condition_fit fit = condition_tags_add(&t, text, weak);
    if (!t.given || (*t.list && !sg_file_tags_valid(t.list)))
        abort();
    if (fit == CONDITION_FINE && t.any && *t.list)
        abort();
    if (fit == CONDITION_FINE && *t.list) { /* what is kept comes out of its own writing again */
        struct condition_tags same = {0};
        char one[SG_FILE_TAG_LEN + 3] = "\"";
        memcpy(one + 1, t.list, SG_FILE_TAG_LEN);
        memcpy(one + 1 + SG_FILE_TAG_LEN, "\"", 2);
        if (condition_tags_add(&same, one, false) != CONDITION_FINE || !condition_tag_is(one, same.list) ||
            !condition_tags_match(&t, same.list))
            abort();
    }
}

static void check_date(const char *text)
{
    int64_t s, again;
    char formatted[CONDITION_DATE_TEXT];
    if (!condition_date_parse(text, INT64_C(1796040000), &s))
        return;
    condition_date_format(s, formatted);
    if (strlen(formatted) != sizeof formatted - 1 ||
        !condition_date_parse(formatted, INT64_C(1796040000), &again))
        abort();
    if (s >= 0 && s <= INT64_C(253402300799) && again != s)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    check_tags(text, true);
    check_tags(text, false);
    check_date(text);
    free(text);
    return 0;
}
