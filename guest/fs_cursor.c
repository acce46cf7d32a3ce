#include "guest/fs_cursor.h"

#include "base/core/num.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

size_t fs_cursor_format(char out[FS_CURSOR_MAX], const struct fs_cursor *c)
{
    int n = snprintf(out, FS_CURSOR_MAX,
                     "f1:%" PRIu64 ":%" PRIu64 ":%" PRIu64 ":%" PRIu64 ":%" PRIu64 ":%" PRId64 ":%" PRId64
                     ":%" PRIu64,
                     c->at, c->end, c->size, c->dev, c->ino, c->mtime_ns, c->ctime_ns, c->mark);
    return (size_t)n;
}

/* The number that *text begins with, which moves behind it and its colon. */
static bool next(const char **text, uint64_t max, uint64_t *out)
{
    size_t n = strcspn(*text, ":");
    if (!sg_parse_u64(*text, n, max, out))
        return false;
    *text += n + ((*text)[n] == ':');
    return true;
}

static bool next_signed(const char **text, int64_t *out)
{
    bool minus = **text == '-';
    uint64_t n;
    *text += minus;
    if (!next(text, INT64_MAX, &n))
        return false;
    *out = minus ? -(int64_t)n : (int64_t)n;
    return true;
}

bool fs_cursor_parse(const char *text, struct fs_cursor *c)
{
    static const char kind[] = "f1:";
    char again[FS_CURSOR_MAX];
    const char *p = text + sizeof kind - 1;
    if (strncmp(text, kind, sizeof kind - 1) != 0)
        return false;
    if (!next(&p, INT64_MAX, &c->at) || !next(&p, INT64_MAX, &c->end) || !next(&p, INT64_MAX, &c->size) ||
        !next(&p, UINT64_MAX, &c->dev) || !next(&p, UINT64_MAX, &c->ino) || !next_signed(&p, &c->mtime_ns) ||
        !next_signed(&p, &c->ctime_ns) || !next(&p, UINT64_MAX, &c->mark) || c->at >= c->end ||
        c->end > c->size)
        return false;
    return fs_cursor_format(again, c) == strlen(text) &&
           strcmp(again, text) == 0; /* no leading zeros, nothing more */
}
