#include "guest/fs.h"

#include "guest/out.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int fs_open_regular(struct fs *fs, struct stat *st)
{
    int fd = fs_open(fs, fs->a->path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return -1;
    if (fstat(fd, st) == 0 && S_ISREG(st->st_mode))
        return fd;
    close(fd);
    errno = S_ISDIR(st->st_mode) ? EISDIR : EINVAL;
    return -1;
}

static ssize_t read_at(int fd, void *buf, size_t n, uint64_t at)
{
    ssize_t got;
    do {
        got = pread(fd, buf, n, (off_t)at);
    } while (got < 0 && errno == EINTR);
    return got;
}

/* ---- read ---- */

static bool read_bytes(struct fs *fs, int fd, uint64_t at, uint64_t left, bool *more)
{
    static unsigned char block[16 * SG_WIRE_DATA_MAX];
    *more = false;
    while (!out_is_broken()) {
        /* One byte beyond the limit says whether there is more. */
        size_t want = left < sizeof block ? (size_t)left + 1 : sizeof block;
        ssize_t got = read_at(fd, block, want, at);
        if (got < 0)
            return fs_failed(fs, "reading");
        if (got == 0)
            return true;
        size_t n = (uint64_t)got > left ? (size_t)left : (size_t)got;
        for (size_t i = 0; i < n; i += SG_WIRE_DATA_MAX)
            out_data(1, at + i, block + i, n - i < SG_WIRE_DATA_MAX ? n - i : SG_WIRE_DATA_MAX);
        at += n;
        left -= n;
        *more = (uint64_t)got > n;
        if (*more)
            return true;
    }
    return true;
}

bool fs_read(struct fs *fs)
{
    const struct fs_args *a = fs->a;
    struct stat st;
    bool more;
    int fd = fs_open_regular(fs, &st);
    if (fd < 0)
        return fs_failed(fs, "reading");
    fs_print(&st, "", -1, NULL);
    uint64_t size = (uint64_t)st.st_size, at = a->offset;
    if (a->has_tail)
        at = a->tail < size ? size - a->tail : 0;
    bool ok = read_bytes(fs, fd, at, a->limit, &more);
    close(fd);
    if (ok)
        out_kind(more ? SG_WIRE_MORE : SG_WIRE_OK, NULL);
    return ok;
}

/* ---- lines ---- */

struct lines {
    const struct fs_args *a;
    uint64_t line, start; /* of the line we are in: its number, and offset of what was not printed yet */
    uint64_t printed;     /* bytes of it */
    uint64_t total;       /* bytes of text, and some for each line */
    size_t have;          /* of the piece */
    bool cut, any;        /* the line is longer than is printed; it has bytes */
    unsigned char piece[SG_WIRE_DATA_MAX];
};

enum { LINE_COST = 32 };

static bool wanted(const struct lines *l)
{
    return l->line >= l->a->from && l->line - l->a->from < l->a->count;
}

static void print_piece(struct lines *l, bool goes_on)
{
    struct sg_wire_line out = {.kind = SG_WIRE_TEXT,
                               .line = l->line,
                               .offset = l->start,
                               .goes_on = goes_on,
                               .cut = l->cut,
                               .data = l->piece,
                               .len = l->have};
    out_line(&out);
    l->printed += l->have;
    l->start += l->have;
    l->total += l->have + LINE_COST;
    l->have = 0;
}

/* Part of a line, without its LF. */
static void take(struct lines *l, const unsigned char *p, size_t n)
{
    l->any = l->any || n;
    if (!wanted(l))
        return;
    while (n && !l->cut) {
        uint64_t most = l->a->max_line < l->a->max_bytes ? l->a->max_line : l->a->max_bytes;
        uint64_t room = most - l->printed - l->have;
        if (room == 0) {
            l->cut = true;
            break;
        }
        if (l->have == sizeof l->piece)
            print_piece(l, true);
        size_t k = sizeof l->piece - l->have;
        k = n < k ? n : k;
        k = k < room ? k : (size_t)room;
        memcpy(l->piece + l->have, p, k);
        l->have += k;
        p += k;
        n -= k;
    }
}

static void end_line(struct lines *l, uint64_t next)
{
    if (wanted(l))
        print_piece(l, false);
    l->line++;
    l->start = next;
    l->printed = 0;
    l->have = 0;
    l->cut = false;
    l->any = false;
}

/* Nothing more is to be printed. */
static bool is_full(const struct lines *l)
{
    return l->line >= l->a->from && (!wanted(l) || l->total >= l->a->max_bytes || l->total >= FS_TEXT_MAX);
}

static bool print_lines(struct fs *fs, int fd, bool *more)
{
    static unsigned char block[65536];
    static struct lines l;
    l = (struct lines){.a = fs->a, .line = 1};
    *more = false;
    for (uint64_t at = 0; !out_is_broken();) {
        ssize_t got = read_at(fd, block, sizeof block, at);
        if (got < 0)
            return fs_failed(fs, "reading");
        if (got == 0) {
            if (l.any && !is_full(&l))
                end_line(&l, at);
            return true;
        }
        if (guest_now_ms() > fs->deadline_ms) {
            *more = l.line > l.a->from && l.printed == 0; /* whole lines were printed */
            return *more || fs_refused(fs, ETIMEDOUT, "the file is too long");
        }
        for (size_t i = 0; i < (size_t)got;) {
            *more = is_full(&l);
            if (*more)
                return true;
            const unsigned char *lf = memchr(block + i, '\n', (size_t)got - i);
            size_t n = lf ? (size_t)(lf - block) - i : (size_t)got - i;
            take(&l, block + i, n);
            i += n + (lf ? 1 : 0);
            if (lf)
                end_line(&l, at + i);
        }
        at += (uint64_t)got;
    }
    return true;
}

bool fs_lines(struct fs *fs)
{
    struct stat st;
    bool more;
    int fd = fs_open_regular(fs, &st);
    if (fd < 0)
        return fs_failed(fs, "reading");
    fs_print(&st, "", -1, NULL);
    bool ok = print_lines(fs, fd, &more);
    close(fd);
    if (ok)
        out_kind(more ? SG_WIRE_MORE : SG_WIRE_OK, NULL);
    return ok;
}
