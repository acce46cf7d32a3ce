#include "guest/fs_tar_cursor.h"

#include "base/core/b64.h"
#include "base/core/num.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char phases[] = {
    [FS_TAR_AFTER] = 'a', [FS_TAR_HEAD] = 'h', [FS_TAR_CONTENTS] = 'd', [FS_TAR_END] = 'e'};
enum { PHASES = sizeof phases };

static bool is_plain(const char *path)
{
    for (; *path; path++)
        if (*path < ' ' || *path > '~')
            return false;
    return true;
}

bool fs_tar_cursor_format(char out[FS_TAR_CURSOR_MAX], const struct fs_tar_cursor *c)
{
    bool plain = is_plain(c->path);
    int n =
        snprintf(out, FS_TAR_CURSOR_MAX,
                 "t1:%" PRIu64 ":%" PRIu64 ":%" PRIu64 ":%" PRIu64 ":%c:%" PRIu64 ":%" PRIu64 ":%" PRIu64
                 ":%" PRIu64 ":%" PRId64 ":%" PRId64 ":%" PRIu64 ":%c",
                 c->offset, c->skipped, c->dev, c->ino, phases[c->phase], c->at, c->entry.dev, c->entry.ino,
                 c->entry.size, c->entry.mtime_ns, c->entry.ctime_ns, c->entry.mark, plain ? '=' : '~');
    size_t len = strlen(c->path), room = FS_TAR_CURSOR_MAX - (size_t)n - 1;
    if ((plain ? len : SG_B64_LEN(len)) > room)
        return false;
    if (plain)
        memcpy(out + n, c->path, len);
    else
        len = sg_b64_encode(out + n, c->path, len);
    out[(size_t)n + len] = '\0';
    return true;
}

/* What comes before the next colon of *text, which moves behind it; NULL: there is none. */
static const char *field(const char **text, size_t *n)
{
    const char *from = *text, *colon = strchr(from, ':');
    if (!colon)
        return NULL;
    *n = (size_t)(colon - from);
    *text = colon + 1;
    return from;
}

static bool next(const char **text, uint64_t max, uint64_t *out)
{
    size_t n;
    const char *p = field(text, &n);
    return p && sg_parse_u64(p, n, max, out);
}

static bool next_signed(const char **text, int64_t *out)
{
    uint64_t v;
    bool minus = **text == '-';
    *text += minus;
    if (!next(text, INT64_MAX, &v))
        return false;
    *out = minus ? -(int64_t)v : (int64_t)v;
    return true;
}

static bool next_phase(const char **text, enum fs_tar_phase *out)
{
    size_t n;
    const char *p = field(text, &n);
    const char *at = p && n == 1 ? memchr(phases, *p, PHASES) : NULL;
    if (at)
        *out = (enum fs_tar_phase)(at - phases);
    return at != NULL;
}

/* Paths of entries are clean; so they are where a walk comes by. */
static bool path_fits(const struct fs_tar_cursor *c)
{
    size_t n = strlen(c->path);
    if (c->phase == FS_TAR_HEAD || c->phase == FS_TAR_CONTENTS)
        return n > 0;
    return c->phase == FS_TAR_AFTER ? c->at == 0 : c->at < (uint64_t)2 * TAR_BLOCK;
}

bool fs_tar_cursor_parse(const char *text, struct fs_tar_cursor *c)
{
    char again[FS_TAR_CURSOR_MAX];
    const char *p = text;
    size_t n = strlen(text);
    if (n >= FS_TAR_CURSOR_MAX || strncmp(text, "t1:", 3) != 0)
        return false;
    p += 3;
    if (!next(&p, INT64_MAX, &c->offset) || !next(&p, INT64_MAX, &c->skipped) ||
        !next(&p, UINT64_MAX, &c->dev) || !next(&p, UINT64_MAX, &c->ino) || !next_phase(&p, &c->phase) ||
        !next(&p, INT64_MAX, &c->at) || !next(&p, UINT64_MAX, &c->entry.dev) ||
        !next(&p, UINT64_MAX, &c->entry.ino) || !next(&p, INT64_MAX, &c->entry.size) ||
        !next_signed(&p, &c->entry.mtime_ns) || !next_signed(&p, &c->entry.ctime_ns) ||
        !next(&p, UINT64_MAX, &c->entry.mark))
        return false;
    n = *p ? strlen(p + 1) : 0;
    if (*p == '=' && n <= TAR_PATH_MAX) {
        memcpy(c->path, p + 1, n + 1);
    } else if (*p == '~') {
        unsigned char bytes[FS_TAR_CURSOR_MAX];
        ssize_t len = sg_b64_decode(bytes, p + 1, n);
        if (len < 0 || len > TAR_PATH_MAX || memchr(bytes, '\0', (size_t)len))
            return false;
        memcpy(c->path, bytes, (size_t)len);
        c->path[len] = '\0';
    } else {
        return false;
    }
    /* no leading zeros, no other spelling */
    return path_fits(c) && fs_tar_cursor_format(again, c) && strcmp(again, text) == 0;
}
