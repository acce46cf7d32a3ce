#include "base/core/file_tag.h"

#include "base/core/sha256.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

void sg_file_tag(const struct sg_wire_file *f, char out[SG_FILE_TAG_LEN + 1])
{
    char facts[128];
    unsigned char sum[32];
    struct sg_sha256 s;
    int n = snprintf(facts, sizeof facts, "%" PRIu64 "-%" PRIu64 "-%" PRIu64 "-%" PRId64 "-%" PRId64, f->dev,
                     f->ino, f->size, f->mtime_ns, f->ctime_ns);
    sg_sha256_init(&s);
    sg_sha256_update(&s, facts, (size_t)n);
    sg_sha256_final(&s, sum);
    for (size_t i = 0; i < SG_FILE_TAG_LEN; i++)
        out[i] = letters[sum[i] & 63];
    out[SG_FILE_TAG_LEN] = '\0';
}

/* Compares the next one of *list, which moves behind it and its comma. */
static bool next_is(const char *tag, const char **list)
{
    size_t n = strcspn(*list, ",");
    bool same = n == strlen(tag) && memcmp(*list, tag, n) == 0;
    *list += n + ((*list)[n] == ',');
    return same;
}

bool sg_file_tag_among(const char *tag, const char *list)
{
    while (*list)
        if (next_is(tag, &list))
            return true;
    return false;
}

bool sg_file_tags_valid(const char *list)
{
    size_t n = strlen(list), tags = (n + 1) / (SG_FILE_TAG_LEN + 1);
    if (n == 0 || (n + 1) % (SG_FILE_TAG_LEN + 1) != 0 || tags > SG_FILE_TAGS_MAX)
        return false;
    for (size_t i = 0; i < n; i++) {
        bool comma = i % (SG_FILE_TAG_LEN + 1) == SG_FILE_TAG_LEN;
        if (comma ? list[i] != ',' : !strchr(letters, list[i]))
            return false;
    }
    return true;
}
