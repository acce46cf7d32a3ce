#include "guest/fs_stage.h"

#include "guest/out.h"
#include "guest/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    COPY_STEP = 4 * 1024 * 1024,    /* how much at most is copied before we look again */
    RESERVE = 1024 * 1024,          /* left to the programs of the sandbox */
    BUFFER = FS_INLINE_MAX,         /* also what small writes are collected in */
    LINES_MAX = GUEST_FOLLOW_BYTES, /* with one answer */
};

static unsigned char buffer[BUFFER];

static bool no_room(int err)
{
    return err == ENOSPC || err == EDQUOT || err == EROFS || err == EFBIG;
}

static uint64_t part(const struct fs_stage *s)
{
    return s->fs->a->stage && s->fs->a->part ? s->fs->a->part : LINES_MAX;
}

void fs_stage_begin(struct fs_stage *s, struct fs *fs, uint64_t offset, uint64_t most)
{
    *s = (struct fs_stage){.fs = fs, .offset = offset, .most = most, .store = {.fd = -1}, .fd = -1};
    struct guest_fail ignored;
    if (fs->a->drop && root_open(&s->store, false, &ignored))
        (void)unlinkat(s->store.fd, fs->a->drop, 0);
}

uint64_t fs_stage_room(const struct fs_stage *s)
{
    uint64_t most = part(s);
    if (s->how == FS_STAGE_LINES && most > LINES_MAX)
        most = LINES_MAX;
    return s->taken < most ? most - s->taken : 0;
}

static void print(struct fs_stage *s, uint64_t at, const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i += SG_WIRE_DATA_MAX)
        out_data(1, s->offset + at + i, p + i, n - i < SG_WIRE_DATA_MAX ? n - i : SG_WIRE_DATA_MAX);
    size_t before = s->sum_from <= at ? 0 : s->sum_from - at < n ? (size_t)(s->sum_from - at) : n;
    s->sum = fs_hash(s->sum, p + before, n - before);
}

/* Takes the room at once, where the file system can: so nobody else's bytes find the disk full because of ours. */
static bool take_room(struct fs_stage *s)
{
    struct statvfs v;
    uint64_t want = part(s) < s->most ? part(s) : s->most;
    if (fstatvfs(s->store.fd, &v) == 0 && v.f_blocks && v.f_frsize &&
        v.f_bavail < (want + RESERVE) / v.f_frsize) {
        errno = ENOSPC;
        return false;
    }
    return fallocate(s->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)want) == 0 || !no_room(errno);
}

/* What an earlier call left under this name gives way.  False with errno. */
static bool make_file(struct fs_stage *s)
{
    struct guest_fail ignored;
    const char *name = s->fs->a->stage;
    errno = ENOSPC;
    if (!name || (s->store.fd < 0 && !root_open(&s->store, false, &ignored)))
        return false;
    sweep_stale(&s->store);
    (void)unlinkat(s->store.fd, name, 0);
    s->fd = openat(s->store.fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return s->fd >= 0 && root_own(&s->store, s->fd) && take_room(s);
}

static void forget_file(struct fs_stage *s)
{
    if (s->fd < 0)
        return;
    (void)unlinkat(s->store.fd, s->fs->a->stage, 0);
    fs_close(s->fd);
    s->fd = -1;
}

/* The disk is full: what there is comes with the answer, and so does what follows. */
static bool turn_to_lines(struct fs_stage *s)
{
    static unsigned char piece[16 * SG_WIRE_DATA_MAX];
    uint64_t at = 0;
    while (at < s->stored) {
        size_t want = s->stored - at < sizeof piece ? (size_t)(s->stored - at) : sizeof piece;
        ssize_t n = pread(s->fd, piece, want, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = EIO;
        if (n <= 0)
            return fs_failed(s->fs, "reading what was put aside");
        print(s, at, piece, (size_t)n);
        at += (uint64_t)n;
    }
    print(s, at, buffer, s->held);
    s->held = 0;
    forget_file(s);
    s->how = FS_STAGE_LINES;
    return true;
}

/* Everything that is held into the file; false with errno, and then all of it still is. */
static bool flush(struct fs_stage *s)
{
    size_t at = 0;
    while (at < s->held) {
        ssize_t n = pwrite(s->fd, buffer + at, s->held - at, (off_t)(s->stored + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ENOSPC;
        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    s->stored += s->held;
    s->held = 0;
    return true;
}

static bool spill(struct fs_stage *s)
{
    bool ok = true;
    if (s->how == FS_STAGE_HELD) {
        ok = make_file(s);
        if (ok)
            s->how = FS_STAGE_FILE;
    }
    if (ok && flush(s))
        return true;
    return no_room(errno) ? turn_to_lines(s) : fs_failed(s->fs, "putting bytes aside");
}

bool fs_stage_write(struct fs_stage *s, const void *data, size_t n)
{
    const unsigned char *p = data;
    while (n) {
        if (s->how == FS_STAGE_LINES) {
            print(s, s->taken, p, n);
            s->taken += n;
            return !out_is_broken() || fs_refused(s->fs, EPIPE, "nobody reads");
        }
        size_t most = s->how == FS_STAGE_HELD ? (size_t)s->fs->a->inline_max : sizeof buffer;
        size_t k = n < most - s->held ? n : most - s->held;
        memcpy(buffer + s->held, p, k);
        s->held += k;
        s->taken += k;
        p += k;
        n -= k;
        if (n && !spill(s))
            return false;
    }
    return true;
}

/* What the kernel copies by itself goes right into the file; -1 with errno, 0 at the end. */
static ssize_t copy_step(struct fs_stage *s, int fd, uint64_t at, size_t n)
{
    off_t from = (off_t)at, to = (off_t)s->stored;
    ssize_t got = copy_file_range(fd, &from, s->fd, &to, n, 0);
    if (got > 0) {
        s->stored += (uint64_t)got;
        s->taken += (uint64_t)got;
    }
    return got;
}

bool fs_stage_copy(struct fs_stage *s, int fd, uint64_t at, uint64_t n, uint64_t *copied)
{
    static unsigned char block[256 * 1024];
    bool by_kernel = true;
    *copied = 0;
    s->sum = FS_HASH_START;
    s->sum_from = s->taken;
    while (*copied < n) {
        uint64_t room = fs_stage_room(s), left = n - *copied < room ? n - *copied : room;
        if (left == 0)
            return true;
        if (s->how == FS_STAGE_HELD && s->held + left > s->fs->a->inline_max && !spill(s))
            return false;
        if (s->how == FS_STAGE_FILE && s->held && !spill(s))
            return false;
        if (s->how == FS_STAGE_FILE && by_kernel) {
            ssize_t got = copy_step(s, fd, at + *copied, left < COPY_STEP ? (size_t)left : COPY_STEP);
            by_kernel = got > 0; /* otherwise reading says what is the matter */
            *copied += got > 0 ? (uint64_t)got : 0;
            continue;
        }
        ssize_t got =
            pread(fd, block, left < sizeof block ? (size_t)left : sizeof block, (off_t)(at + *copied));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fs_failed(s->fs, "reading");
        if (got == 0)
            return true;
        if (!fs_stage_write(s, block, (size_t)got))
            return false;
        *copied += (uint64_t)got;
    }
    return true;
}

static bool is_as_printed(const struct fs_stage *s, int fd, uint64_t at, uint64_t n)
{
    static unsigned char theirs[64 * 1024];
    uint64_t sum = FS_HASH_START;
    while (n) {
        size_t k = n < sizeof theirs ? (size_t)n : sizeof theirs;
        if (fs_read_range(fd, theirs, k, at) != (ssize_t)k)
            return false;
        sum = fs_hash(sum, theirs, k);
        at += k;
        n -= k;
    }
    return sum == s->sum;
}

bool fs_stage_holds(const struct fs_stage *s, int fd, uint64_t at, uint64_t n)
{
    static unsigned char ours[64 * 1024], theirs[sizeof ours];
    if (n != s->taken - s->sum_from)
        return false;
    if (s->how == FS_STAGE_LINES)
        return is_as_printed(s, fd, at, n);
    for (uint64_t from = s->taken - n, end = s->taken; from < end;) {
        bool in_file = from < s->stored;
        uint64_t left = (in_file ? s->stored : end) - from;
        size_t k = left < sizeof ours ? (size_t)left : sizeof ours;
        if (in_file && fs_read_range(s->fd, ours, k, from) != (ssize_t)k)
            return false;
        if (fs_read_range(fd, theirs, k, at) != (ssize_t)k ||
            memcmp(theirs, in_file ? ours : buffer + (from - s->stored), k) != 0)
            return false;
        from += k;
        at += k;
    }
    return true;
}

static void print_word(char letter, const char *text)
{
    char word[FS_PATH_MAX + 2];
    int n = snprintf(word, sizeof word, "%c%s", letter, text);
    fs_print_name(word, (size_t)n < sizeof word ? (size_t)n : sizeof word - 1);
}

bool fs_stage_end(struct fs_stage *s, const char *cursor, const char *word)
{
    if (s->how == FS_STAGE_FILE && s->held && !spill(s))
        return false;
    if (s->how == FS_STAGE_HELD)
        print(s, 0, buffer, s->held);
    if (s->how == FS_STAGE_FILE) {
        char count[24];
        snprintf(count, sizeof count, "%" PRIu64, s->stored);
        print_word('s', count);
        (void)!ftruncate(s->fd, (off_t)s->stored); /* gives back what was taken for more */
        fs_close(s->fd);
        s->fd = -1; /* it stays */
    }
    if (cursor)
        print_word('c', cursor);
    out_kind(cursor ? SG_WIRE_MORE : SG_WIRE_OK, word);
    return true;
}

void fs_stage_close(struct fs_stage *s)
{
    forget_file(s);
    fs_close(s->store.fd);
    s->store.fd = -1;
}
