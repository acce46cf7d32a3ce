#include "guest/tar_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A header; numbers are octal, ended by NUL. */
struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, target[100];
    char magic[6], version[2], uname[32], gname[32], major[8], minor[8], prefix[155], unused[12];
};
_Static_assert(sizeof(struct header) == TAR_BLOCK, "a header is a block");

#define OCTAL_MAX(field) ((UINT64_C(1) << 3 * (sizeof(field) - 1)) - 1)

/* What does not fit is said by a pax record, and 0 here. */
static void put_octal(char *field, size_t size, uint64_t v)
{
    field[size - 1] = '\0';
    for (size_t i = size - 1; i--; v >>= 3)
        field[i] = (char)('0' + (v & 7));
}
#define PUT(field, v) put_octal(field, sizeof(field), (v) <= OCTAL_MAX(field) ? (v) : 0)

static void put_sum(struct header *h)
{
    const unsigned char *p = (const unsigned char *)h;
    unsigned sum = 0;
    memset(h->sum, ' ', sizeof h->sum);
    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += p[i];
    put_octal(h->sum, sizeof h->sum - 1, sum);
}

static void put_magic(struct header *h)
{
    memcpy(h->magic, "ustar", sizeof h->magic);
    memcpy(h->version, "00", sizeof h->version);
}

/* Fills name and prefix; false when the path does not fit. */
static bool put_path(struct header *h, const char *path)
{
    size_t n = strlen(path), at;
    if (n <= sizeof h->name) {
        memcpy(h->name, path, n);
        return true;
    }
    at = n - sizeof h->name - 1; /* the first place for the slash */
    const char *slash = strchr(path + at, '/');
    if (!slash || (size_t)(slash - path) > sizeof h->prefix || slash == path || !slash[1])
        return false;
    memcpy(h->prefix, path, (size_t)(slash - path));
    memcpy(h->name, slash + 1, n - (size_t)(slash - path) - 1);
    return true;
}

/* So much of a path as fits, for those who do not know pax. */
static void put_cut_path(struct header *h, const char *path)
{
    memcpy(h->name, path, sizeof h->name);
    if (h->name[sizeof h->name - 1] == '/') /* would be a directory */
        h->name[sizeof h->name - 1] = '_';
}

static bool is_utf8(const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        size_t n = p[0] < 0x80   ? 1
                   : p[0] < 0xc2 ? 0
                   : p[0] < 0xe0 ? 2
                   : p[0] < 0xf0 ? 3
                   : p[0] < 0xf5 ? 4
                                 : 0;
        if (n == 0 || (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
            (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
            return false;
        for (size_t i = 1; i < n; i++)
            if ((p[i] & 0xc0) != 0x80)
                return false;
        p += n;
    }
    return true;
}

/* ---- pax records ---- */

struct records {
    char *at;
    size_t used;
};

static void add_record(struct records *r, const char *key, const char *value)
{
    size_t n = strlen(key) + strlen(value) + 3; /* " ", "=", LF */
    size_t len = n + 1;
    char digits[24];
    while (n + (size_t)snprintf(digits, sizeof digits, "%zu", len) != len)
        len = n + strlen(digits);
    r->used += (size_t)snprintf(r->at + r->used, len + 1, "%s %s=%s\n", digits, key, value);
}

static void add_number(struct records *r, const char *key, bool minus, uint64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "%s%" PRIu64, minus ? "-" : "", v);
    add_record(r, key, text);
}

/* What the header cannot say.  path: NULL when it can. */
static size_t write_records(char *out, const struct tar_head *e, const struct header *h, const char *path)
{
    struct records r = {.at = out};
    const char *target = e->target && strlen(e->target) > sizeof h->target ? e->target : NULL;
    bool early = e->mtime_s < 0;
    uint64_t mtime = early ? -(uint64_t)e->mtime_s : (uint64_t)e->mtime_s;
    if ((path && !is_utf8(path)) || (target && !is_utf8(target)))
        add_record(&r, "hdrcharset", "BINARY");
    if (path)
        add_record(&r, "path", path);
    if (target)
        add_record(&r, "linkpath", target);
    if (e->size > OCTAL_MAX(h->size))
        add_number(&r, "size", false, e->size);
    if (early || mtime > OCTAL_MAX(h->mtime))
        add_number(&r, "mtime", early, mtime);
    if (e->uid > OCTAL_MAX(h->uid))
        add_number(&r, "uid", false, e->uid);
    if (e->gid > OCTAL_MAX(h->gid))
        add_number(&r, "gid", false, e->gid);
    return r.used;
}

static void write_pax_header(struct header *h, size_t size)
{
    memset(h, 0, sizeof *h);
    memcpy(h->name, "PaxHeaders/entry", sizeof "PaxHeaders/entry");
    PUT(h->mode, 0644);
    PUT(h->uid, 0);
    PUT(h->gid, 0);
    PUT(h->size, size);
    PUT(h->mtime, 0);
    h->type = 'x';
    put_magic(h);
    put_sum(h);
}

static void write_header(struct header *h, const struct tar_head *e)
{
    static const char types[] = {
        [TAR_FILE] = '0', [TAR_DIRECTORY] = '5', [TAR_SYMLINK] = '2', [TAR_HARDLINK] = '1'};
    PUT(h->mode, (uint64_t)e->mode & 07777);
    PUT(h->uid, (uint64_t)e->uid);
    PUT(h->gid, (uint64_t)e->gid);
    PUT(h->size, e->size);
    PUT(h->mtime, e->mtime_s < 0 ? 0 : (uint64_t)e->mtime_s);
    h->type = types[e->kind];
    if (e->target)
        memcpy(h->target, e->target, strnlen(e->target, sizeof h->target));
    put_magic(h);
    put_sum(h);
}

size_t tar_write_head(unsigned char out[TAR_HEAD_MAX], const struct tar_head *e)
{
    struct header h = {.type = 0};
    char path[TAR_PATH_MAX + 1];
    snprintf(path, sizeof path, "%s%s", e->path, e->kind == TAR_DIRECTORY ? "/" : "");
    bool fits = put_path(&h, path);
    if (!fits)
        put_cut_path(&h, path);
    size_t used = 0, records = write_records((char *)out + TAR_BLOCK, e, &h, fits ? NULL : path);
    if (records) {
        struct header pax;
        write_pax_header(&pax, records);
        memcpy(out, &pax, TAR_BLOCK);
        used = TAR_BLOCK + (size_t)tar_padded(records);
        memset(out + TAR_BLOCK + records, 0, used - TAR_BLOCK - records);
    }
    write_header(&h, e);
    memcpy(out + used, &h, TAR_BLOCK);
    return used + TAR_BLOCK;
}
