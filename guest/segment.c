#include "guest/segment.h"

#include "base/core/num.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_DIGITS = 20, NAME_LEN = 4 + NAME_DIGITS };

static const char *const prefix[2] = {"out.", "err."};

static void file_name(char name[NAME_LEN + 1], unsigned stream, uint64_t offset)
{
    snprintf(name, NAME_LEN + 1, "%s%020" PRIu64, prefix[stream & 1], offset);
}

static bool name_parse(const char *name, unsigned stream, uint64_t *offset)
{
    return strncmp(name, prefix[stream & 1], 4) == 0 && strlen(name) == NAME_LEN &&
           sg_parse_u64(name + 4, NAME_DIGITS, INT64_MAX / 2, offset);
}

/* ---- writing ---- */

void recorder_init(struct recorder *r, const struct guest_root *root, int dir, unsigned stream,
                   uint64_t retain, bool lossless)
{
    r->root = root;
    r->dir = dir;
    r->stream = stream;
    r->retain = retain < GUEST_SEGMENT_MIN ? GUEST_SEGMENT_MIN : retain;
    r->file_size = r->retain / 8;
    if (r->file_size < GUEST_SEGMENT_MIN)
        r->file_size = GUEST_SEGMENT_MIN;
    if (r->file_size > GUEST_SEGMENT_MAX)
        r->file_size = GUEST_SEGMENT_MAX;
    r->fd = -1;
    r->base = r->end = 0;
    r->first = r->count = 0;
    r->incomplete = false;
    r->lossless = lossless;
    r->acked = 0;
}

static void drop_oldest(struct recorder *r)
{
    char name[NAME_LEN + 1];
    file_name(name, r->stream, r->files[r->first]);
    unlinkat(r->dir, name, 0);
    r->first = (r->first + 1) % RECORDER_FILES;
    r->count--;
}

static void close_newest(struct recorder *r)
{
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
}

/* Begins the file at r->end. */
static bool begin_file(struct recorder *r)
{
    char name[NAME_LEN + 1];
    file_name(name, r->stream, r->end);
    int fd = openat(r->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    (void)root_own(r->root, fd);
    /* After a loss nothing older may stay: a reader sees the hole by its file having been unlinked. */
    bool hole = r->fd < 0;
    close_newest(r);
    while (r->count && (hole || r->count == RECORDER_FILES))
        drop_oldest(r);
    r->fd = fd;
    r->base = r->end;
    r->files[(r->first + r->count++) % RECORDER_FILES] = r->base;
    return true;
}

/* Frees some disk; false when there is nothing left to give. */
static bool make_room(struct recorder *r, struct recorder *other)
{
    struct recorder *from = r->count > 1 ? r : other && other->count > 1 ? other : NULL;
    if (from) {
        drop_oldest(from);
        from->incomplete = true;
        return true;
    }
    if (r->count == 0 || r->end == r->base)
        return false;
    close_newest(r); /* its only file: the bytes go, the offsets go on in a new one */
    drop_oldest(r);
    r->incomplete = true;
    return true;
}

static void lose(struct recorder *r, size_t n)
{
    r->incomplete = true;
    r->end += n;
    close_newest(r);
}

/* Appends at most n bytes to the newest file, beginning one if need be: how many, 0 with errno. */
static size_t append(struct recorder *r, const unsigned char *data, size_t n)
{
    if ((r->fd < 0 || r->end - r->base >= r->file_size) && !begin_file(r))
        return 0;
    uint64_t room = r->file_size - (r->end - r->base);
    size_t chunk = n < room ? n : (size_t)room;
    ssize_t w;
    do
        w = pwrite(r->fd, data, chunk, (off_t)(r->end - r->base));
    while (w < 0 && errno == EINTR);
    if (w == 0)
        errno = ENOSPC;
    if (w <= 0)
        return 0;
    r->end += (uint64_t)w;
    return (size_t)w;
}

size_t recorder_write(struct recorder *r, const unsigned char *data, size_t n, struct recorder *other)
{
    for (size_t at = 0; at < n;) {
        size_t w = append(r, data + at, n - at);
        at += w;
        bool full = w == 0 && (errno == ENOSPC || errno == EDQUOT);
        if (full && r->lossless)
            return at;
        if (w == 0 && !(full && make_room(r, other))) {
            lose(r, n - at);
            return n;
        }
    }
    while (!r->lossless && r->count > 1 && r->end - r->files[r->first] > r->retain)
        drop_oldest(r);
    return n;
}

uint64_t recorder_room(const struct recorder *r)
{
    uint64_t held = r->end - r->acked;
    if (!r->lossless)
        return UINT64_MAX;
    return held < r->retain ? r->retain - held : 0;
}

void recorder_ack(struct recorder *r, uint64_t received)
{
    if (!r->lossless || received <= r->acked)
        return;
    r->acked = received < r->end ? received : r->end;
    /* A file goes when the next one begins before what was received. */
    while (r->count > 1 && r->files[(r->first + 1) % RECORDER_FILES] <= r->acked)
        drop_oldest(r);
}

void recorder_give_up(struct recorder *r)
{
    r->lossless = false;
}

void recorder_seal(struct recorder *r)
{
    if (r->fd < 0 && r->end > 0)
        (void)begin_file(r);
}

struct recorder_files recorder_files(const struct recorder *r)
{
    return (struct recorder_files){r->base, r->first, r->count};
}

bool recorder_changed(const struct recorder *r, const struct recorder_files *before)
{
    return r->base != before->base || r->first != before->first || r->count != before->count;
}

/* ---- reading ---- */

struct extent {
    uint64_t base;
    uint64_t size;
};

static int by_base(const void *a, const void *b)
{
    uint64_t x = ((const struct extent *)a)->base, y = ((const struct extent *)b)->base;
    return (x > y) - (x < y);
}

static DIR *list_open(int dir)
{
    int fd = dir_open(dir, ".");
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0)
        close(fd);
    return d;
}

/* True when the entry is a file of the stream; *e says where it lies. */
static bool extent_of(DIR *d, const char *name, unsigned stream, struct extent *e)
{
    struct stat st;
    if (!name_parse(name, stream, &e->base) || fstatat(dirfd(d), name, &st, AT_SYMLINK_NOFOLLOW) ||
        !S_ISREG(st.st_mode) || st.st_size < 0 || st.st_size > INT64_MAX / 4)
        return false;
    e->size = (uint64_t)st.st_size;
    return true;
}

static struct extent extents[GUEST_SEGMENTS_MAX];

/* Lists the files of a stream in order. */
static size_t extents_list(int dir, unsigned stream)
{
    DIR *d = list_open(dir);
    size_t n = 0;
    for (struct dirent *e; d && n < GUEST_SEGMENTS_MAX && (e = readdir(d));)
        n += extent_of(d, e->d_name, stream, &extents[n]);
    if (d)
        closedir(d);
    qsort(extents, n, sizeof *extents, by_base);
    return n;
}

bool segments_extent(int dir, uint64_t oldest[2], uint64_t end[2])
{
    DIR *d = list_open(dir);
    if (!d)
        return false;
    bool any[2] = {false, false};
    oldest[0] = oldest[1] = end[0] = end[1] = 0;
    for (struct dirent *e; (e = readdir(d));) {
        unsigned s = e->d_name[0] == 'e';
        struct extent x;
        if (!extent_of(d, e->d_name, s, &x))
            continue;
        if (!any[s] || x.base < oldest[s])
            oldest[s] = x.base;
        if (x.base + x.size > end[s])
            end[s] = x.base + x.size;
        any[s] = true;
    }
    closedir(d);
    return true;
}

void reader_init(struct reader *r, int dir, unsigned stream, uint64_t pos)
{
    *r = (struct reader){.dir = dir, .stream = stream, .pos = pos, .fd = -1};
}

void reader_close(struct reader *r)
{
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
}

static bool reader_open(struct reader *r, uint64_t base)
{
    char name[NAME_LEN + 1];
    file_name(name, r->stream, base);
    int fd = guest_open_file(r->dir, name);
    if (fd < 0)
        return false;
    reader_close(r);
    r->fd = fd;
    r->base = base;
    return true;
}

static bool reader_pread(struct reader *r, unsigned char *buf, size_t cap, size_t *n)
{
    if (r->fd < 0 || r->pos < r->base)
        return false;
    ssize_t got = pread(r->fd, buf, cap, (off_t)(r->pos - r->base));
    *n = got > 0 ? (size_t)got : 0;
    return got > 0;
}

/* False while our file is still in its place: then it is the newest, as far as pos is concerned. */
static bool reader_is_stale(const struct reader *r)
{
    struct stat st;
    return r->fd < 0 || fstat(r->fd, &st) || st.st_nlink == 0;
}

/* Finds where pos lies by listing the directory. */
static enum reader_result reader_search(struct reader *r, uint64_t *gap_to)
{
    size_t n = extents_list(r->dir, r->stream);
    for (size_t i = 0; i < n; i++) {
        const struct extent *e = &extents[i];
        if (e->base > r->pos) {
            *gap_to = e->base;
            return READER_GAP;
        }
        if (r->pos < e->base + e->size || (i + 1 == n && r->pos == e->base + e->size))
            return reader_open(r, e->base) ? READER_DATA : READER_NONE;
    }
    return READER_NONE;
}

enum reader_result reader_next(struct reader *r, unsigned char *buf, size_t cap, size_t *n, uint64_t *gap_to)
{
    if (reader_pread(r, buf, cap, n))
        return READER_DATA;
    if ((r->fd < 0 || r->pos != r->base) && reader_open(r, r->pos) && reader_pread(r, buf, cap, n))
        return READER_DATA;
    if (!reader_is_stale(r))
        return READER_NONE;
    reader_close(r);
    enum reader_result res = reader_search(r, gap_to);
    if (res == READER_DATA && !reader_pread(r, buf, cap, n))
        return READER_NONE;
    return res;
}
