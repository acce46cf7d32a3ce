#include "vercel/targz.h"

#include "vercel/crc32.h"

#include "base/buf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TAR_BLOCK = 512,
    TAR_END = 2 * TAR_BLOCK,
    STORED_MAX = 65535,
    GZIP_HEAD = 10,
    GZIP_TAIL = 8,
    BLOCK_HEAD = 5,
    NAME_MAX_PLAIN = 100,
    PATH_LIMIT = 4096
};
#define OCTAL_SIZE_MAX ((UINT64_C(1) << 33) - 1)
#define SIZE_LIMIT     (UINT64_C(1) << 50)

static uint64_t padded(uint64_t n)
{
    return (n + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
}

/* ---- tar headers ---- */

static bool is_ascii(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s >= 0x80)
            return false;
    return true;
}

static bool is_utf8(const char *s)
{
    const unsigned char *p = (const unsigned char *)s;
    while (*p) {
        unsigned more;
        uint32_t c = *p;
        uint32_t least;
        if (c < 0x80) {
            p++;
            continue;
        }
        if (c >= 0xc2 && c <= 0xdf)
            more = 1, c &= 0x1f, least = 0x80;
        else if (c >= 0xe0 && c <= 0xef)
            more = 2, c &= 0x0f, least = 0x800;
        else if (c >= 0xf0 && c <= 0xf4)
            more = 3, c &= 0x07, least = 0x10000;
        else
            return false;
        for (unsigned i = 1; i <= more; i++) {
            if ((p[i] & 0xc0) != 0x80)
                return false;
            c = c << 6 | (p[i] & 0x3f);
        }
        if (c < least || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
            return false;
        p += more + 1;
    }
    return true;
}

/* "LEN key=value\n", where LEN counts itself. */
static bool add_record(struct sg_buf *b, const char *key, const char *value)
{
    size_t rest = strlen(key) + strlen(value) + 3;
    size_t len = rest + 1;
    char digits[24];
    for (;;) {
        int n = snprintf(digits, sizeof digits, "%zu", len);
        if (rest + (size_t)n == len)
            break;
        len = rest + (size_t)n;
    }
    return sg_buf_adds(b, digits) && sg_buf_adds(b, " ") && sg_buf_adds(b, key) && sg_buf_adds(b, "=") &&
           sg_buf_adds(b, value) && sg_buf_adds(b, "\n");
}

static void octal(char *field, size_t width, uint64_t v)
{
    for (size_t i = width - 1; i-- > 0; v >>= 3)
        field[i] = (char)('0' + (v & 7));
}

static bool add_header(struct sg_buf *b, const char *name, char type, unsigned mode, uint64_t size,
                       int64_t mtime_s)
{
    static const char magic[8] = {'u', 's', 't', 'a', 'r', '\0', '0', '0'};
    char h[TAR_BLOCK] = {0};
    memcpy(h, name, strnlen(name, NAME_MAX_PLAIN));
    octal(h + 100, 8, mode & 07777);
    octal(h + 108, 8, 0);
    octal(h + 116, 8, 0);
    octal(h + 124, 12, size <= OCTAL_SIZE_MAX ? size : 0);
    octal(h + 136, 12, mtime_s > 0 ? (uint64_t)mtime_s & OCTAL_SIZE_MAX : 0);
    memset(h + 148, ' ', 8);
    h[156] = type;
    memcpy(h + 257, magic, sizeof magic);
    unsigned sum = 0;
    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += (unsigned char)h[i];
    octal(h + 148, 7, sum);
    return sg_buf_add(b, h, sizeof h);
}

static bool add_pax(struct sg_buf *b, const char *name, uint64_t size, int64_t mtime_s)
{
    static const char zeros[TAR_BLOCK];
    struct sg_buf r;
    sg_buf_init(&r, PATH_LIMIT + 256);
    bool ok = true;
    if (!is_utf8(name))
        ok = add_record(&r, "hdrcharset", "BINARY");
    ok = ok && add_record(&r, "path", name);
    if (size > OCTAL_SIZE_MAX) {
        char digits[24];
        (void)snprintf(digits, sizeof digits, "%" PRIu64, size);
        ok = ok && add_record(&r, "size", digits);
    }
    ok = ok && add_header(b, "PaxHeader", 'x', 0644, r.len, mtime_s) && sg_buf_add(b, r.data, r.len) &&
         sg_buf_add(b, zeros, (size_t)(padded(r.len) - r.len));
    sg_buf_free(&r);
    return ok;
}

/* ---- the stream ---- */

static void put_frame(struct targz *t, const void *bytes, size_t n)
{
    memcpy(t->frame, bytes, n);
    t->frame_len = n;
    t->frame_pos = 0;
}

void targz_rewind(struct targz *t)
{
    static const unsigned char gzip[GZIP_HEAD] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3};
    t->tar_pos = 0;
    t->block_left = 0;
    t->crc = 0;
    t->trailer = false;
    t->source_ended = false;
    put_frame(t, gzip, sizeof gzip);
}

enum sg_code targz_init(struct targz *t, const char *path, unsigned mode, uint64_t size, int64_t mtime_s,
                        vercel_read_fn *read, void *arg, struct sg_error *e)
{
    *t = (struct targz){.size = size, .read = read, .arg = arg};
    size_t n = strlen(path);
    if (path[0] != '/' || n > PATH_LIMIT || path[n - 1] == '/' || size > SIZE_LIMIT)
        return sg_fail(e, SG_E_INVALID_PATH, SG_NOT_SENT, "Not the absolute path of a file.");
    while (*path == '/')
        path++;
    struct sg_buf b;
    sg_buf_init(&b, PATH_LIMIT + 8L * TAR_BLOCK);
    bool pax = strlen(path) > NAME_MAX_PLAIN || !is_ascii(path) || size > OCTAL_SIZE_MAX;
    if ((!pax || add_pax(&b, path, size, mtime_s)) && add_header(&b, path, '0', mode, size, mtime_s))
        t->head = sg_buf_take(&b, &t->head_len);
    sg_buf_free(&b);
    if (!t->head)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "No memory for the archive.");
    t->tar_size = t->head_len + padded(size) + TAR_END;
    targz_rewind(t);
    return SG_OK;
}

void targz_free(struct targz *t)
{
    free(t->head);
    t->head = NULL;
}

uint64_t targz_size(const struct targz *t)
{
    uint64_t blocks = (t->tar_size + STORED_MAX - 1) / STORED_MAX;
    return GZIP_HEAD + blocks * BLOCK_HEAD + t->tar_size + GZIP_TAIL;
}

/* What stands between the stored bytes: the head of the next block, or the trailer. */
static void next_frame(struct targz *t)
{
    unsigned char f[GZIP_TAIL];
    uint64_t left = t->tar_size - t->tar_pos;
    if (left == 0) {
        uint32_t isize = (uint32_t)t->tar_size;
        for (int i = 0; i < 4; i++) {
            f[i] = (unsigned char)(t->crc >> 8 * i);
            f[4 + i] = (unsigned char)(isize >> 8 * i);
        }
        put_frame(t, f, GZIP_TAIL);
        t->trailer = true;
        return;
    }
    t->block_left = left < STORED_MAX ? left : STORED_MAX;
    unsigned n = (unsigned)t->block_left;
    f[0] = t->block_left == left; /* last one */
    f[1] = (unsigned char)n;
    f[2] = (unsigned char)(n >> 8);
    f[3] = (unsigned char)~f[1];
    f[4] = (unsigned char)~f[2];
    put_frame(t, f, BLOCK_HEAD);
}

/* Bytes of the archive from where it is: headers, the file, padding. */
static size_t tar_bytes(struct targz *t, char *buf, size_t cap)
{
    uint64_t file_end = t->head_len + t->size;
    uint64_t end = t->tar_pos < t->head_len ? t->head_len : t->tar_pos < file_end ? file_end : t->tar_size;
    size_t n = end - t->tar_pos < cap ? (size_t)(end - t->tar_pos) : cap;
    if (t->tar_pos < t->head_len) {
        memcpy(buf, t->head + t->tar_pos, n);
        return n;
    }
    if (t->tar_pos < file_end) {
        size_t got = t->read(t->arg, buf, n);
        return got == 0 || (got > n && got != VERCEL_READ_PAUSE) ? VERCEL_READ_ABORT : got;
    }
    if (!t->source_ended) {
        char more;
        size_t got = t->read(t->arg, &more, 1);
        if (got == VERCEL_READ_PAUSE)
            return got;
        if (got != 0)
            return VERCEL_READ_ABORT;
        t->source_ended = true;
    }
    memset(buf, 0, n);
    return n;
}

size_t targz_read(struct targz *t, char *buf, size_t cap)
{
    size_t done = 0;
    while (done < cap) {
        if (t->frame_pos < t->frame_len) {
            size_t n = t->frame_len - t->frame_pos;
            n = n < cap - done ? n : cap - done;
            memcpy(buf + done, t->frame + t->frame_pos, n);
            t->frame_pos += n;
            done += n;
            continue;
        }
        if (t->trailer)
            break;
        if (t->block_left == 0) {
            next_frame(t);
            continue;
        }
        size_t want = cap - done < t->block_left ? cap - done : (size_t)t->block_left;
        size_t n = tar_bytes(t, buf + done, want);
        if (n == VERCEL_READ_PAUSE)
            return done ? done : n;
        if (n == VERCEL_READ_ABORT)
            return n;
        t->crc = vercel_crc32(t->crc, buf + done, n);
        t->tar_pos += n;
        t->block_left -= n;
        done += n;
    }
    return done;
}
