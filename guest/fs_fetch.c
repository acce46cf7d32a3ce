/* The content of a file: what is short with the answer, what is long in parts that are put aside.  Whatever is told is
 * of one state of the file, but that it may have grown behind it.  A single write that is under way just when we look first
 * cannot be told from one that is done: its times are set before its bytes. */
#include "guest/fs.h"
#include "guest/fs_cursor.h"
#include "guest/fs_stage.h"

#include "base/core/file_tag.h"
#include "guest/out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

enum {
    INLINE_TRIES = 4,
    SETTLE_TRIES = 25, /* who appends may lose the processor between the times and the size */
    SETTLE_NS = 2000000,
    MARK_BLOCK = 4096,
    MARK_BLOCKS = 16,
};

struct fetch {
    struct fs *fs;
    int fd;
    struct stat st;        /* as it was when what we tell was read, or earlier */
    uint64_t at, end;      /* what is asked for of it */
    uint64_t marked, mark; /* fs_mark of the bytes before `marked`, which earlier calls gave */
};

enum told {
    TOLD,      /* everything is printed */
    NOT_TOLD,  /* fs->f says why */
    TELL_ANEW, /* nothing was printed: the file changed, and x->st is how it is now */
};

/* ---- whether the file changed ---- */

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* An append sets the times before the size: who sees only the former looks again. */
static bool grows(int fd, struct stat *now)
{
    off_t size = now->st_size;
    for (int i = 0; i < SETTLE_TRIES && now->st_size == size; i++) {
        nanosleep(&(struct timespec){.tv_nsec = SETTLE_NS}, NULL);
        if (fstat(fd, now))
            return false;
    }
    return now->st_size > size;
}

bool fs_is_unchanged(int fd, struct stat *was)
{
    struct stat now;
    if (fstat(fd, &now) || now.st_size < was->st_size)
        return false;
    /* Links that come and go (the file was replaced or renamed) change ctime and no byte. */
    bool same = same_time(now.st_mtim, was->st_mtim) &&
                (same_time(now.st_ctim, was->st_ctim) || now.st_nlink != was->st_nlink);
    if (!same && now.st_size == was->st_size && !grows(fd, &now))
        return false;
    *was = now;
    return true;
}

ssize_t fs_read_range(int fd, unsigned char *to, size_t n, uint64_t at)
{
    size_t len = 0;
    while (len < n) {
        ssize_t got = pread(fd, to + len, n - len, (off_t)(at + len));
        if (got == 0)
            break;
        if (got < 0 && errno != EINTR)
            return -1;
        len += got > 0 ? (size_t)got : 0;
    }
    return (ssize_t)len;
}

uint64_t fs_hash(uint64_t hash, const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ p[i]) * UINT64_C(1099511628211);
    return hash;
}

uint64_t fs_mark(int fd, uint64_t at)
{
    static unsigned char block[MARK_BLOCK];
    uint64_t hash = FS_HASH_START, last = at > MARK_BLOCK ? at - MARK_BLOCK : 0;
    for (unsigned i = 0; at && i < MARK_BLOCKS; i++) {
        uint64_t from = i + 1 < MARK_BLOCKS ? last / (MARK_BLOCKS - 1) * i : last;
        ssize_t n = fs_read_range(fd, block, at - from < MARK_BLOCK ? (size_t)(at - from) : MARK_BLOCK, from);
        hash = fs_hash(hash, block, n > 0 ? (size_t)n : 0);
    }
    return hash;
}

static bool changed(struct fs *fs)
{
    return guest_failed(fs->f, SG_WF_CHANGED, 0, "the file changed while it was read");
}

/* ---- what is asked for ---- */

static void find_range(struct fetch *x)
{
    const struct fs_args *a = x->fs->a;
    uint64_t size = x->st.st_size < 0 ? 0 : (uint64_t)x->st.st_size;
    x->at = a->has_tail ? (a->tail < size ? size - a->tail : 0) : a->offset < size ? a->offset : size;
    x->end = size - x->at > a->limit ? x->at + a->limit : size;
}

/* The head of the answer.  True when the client has the file already: then that was all. */
static bool print_head(struct fetch *x, const struct stat *st)
{
    char tag[SG_FILE_TAG_LEN + 1];
    fs_tag(st, tag);
    fs_print(st, "", -1, NULL);
    bool same = x->fs->a->unless && sg_file_tag_among(tag, x->fs->a->unless);
    if (same)
        out_kind(SG_WIRE_OK, "same");
    return same;
}

static void print_bytes(uint64_t at, const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i += SG_WIRE_DATA_MAX)
        out_data(1, at + i, p + i, n - i < SG_WIRE_DATA_MAX ? n - i : SG_WIRE_DATA_MAX);
}

/* ---- files that do not say how long they are ---- */

/* File systems whose sizes mean nothing: proc, sysfs, cgroups, debugfs, tracefs, securityfs, bpf, configfs, selinux,
 * efivarfs, pstore. */
static bool has_no_sizes(int fd)
{
    static const uint32_t types[] = {0x9fa0,     0x62656572, 0x27e0eb,   0x63677270, 0x64626720, 0x74726163,
                                     0x73636673, 0xcafe4a11, 0x62656570, 0xf97cff8c, 0xde5e81e4, 0x6165676c};
    struct statfs s;
    if (fstatfs(fd, &s))
        return false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if ((uint32_t)s.f_type == types[i])
            return true;
    return false;
}

struct text {
    unsigned char *bytes; /* owned */
    size_t len;
};

/* Until the end, FS_TEXT_MAX bytes at most. */
static bool read_to_end(struct fetch *x, struct text *t)
{
    for (size_t room = 0;;) {
        if (t->len == room) {
            room = room ? room * 2 : (size_t)64 * 1024;
            unsigned char *more = t->len < FS_TEXT_MAX ? realloc(t->bytes, room) : NULL;
            if (!more)
                return fs_refused(x->fs, t->len < FS_TEXT_MAX ? ENOMEM : EFBIG,
                                  "the file does not say how long it is, and is too long");
            t->bytes = more;
        }
        ssize_t n = read(x->fd, t->bytes + t->len, room - t->len);
        if (n == 0)
            return true;
        if (n < 0 && errno != EINTR)
            return fs_failed(x->fs, "reading");
        t->len += n > 0 ? (size_t)n : 0;
    }
}

static enum told fetch_unsized(struct fetch *x)
{
    struct text t = {0};
    struct stat now;
    enum told told = TOLD;
    if ((lseek(x->fd, 0, SEEK_SET) && !fs_failed(x->fs, "reading")) || !read_to_end(x, &t)) {
        told = NOT_TOLD;
    } else if (fstat(x->fd, &now) == 0 && now.st_size > 0 && !has_no_sizes(x->fd)) {
        x->st = now;
        told = TELL_ANEW;
    } else {
        x->st.st_size = (off_t)t.len;
        if (has_no_sizes(x->fd)) { /* nor do its times tell of changes: each time it is another state */
            (void)clock_gettime(CLOCK_REALTIME, &x->st.st_mtim);
            x->st.st_ctim = x->st.st_mtim;
        }
        find_range(x);
        if (!print_head(x, &x->st)) {
            print_bytes(x->at, t.bytes + x->at, (size_t)(x->end - x->at));
            out_kind(SG_WIRE_OK, NULL);
        }
    }
    free(t.bytes);
    return told;
}

/* ---- short ---- */

static enum told fetch_short(struct fetch *x)
{
    static unsigned char bytes[FS_INLINE_MAX], again[FS_INLINE_MAX];
    size_t n = (size_t)(x->end - x->at);
    struct stat as_read = x->st;
    ssize_t got = fs_read_range(x->fd, bytes, n, x->at);
    bool same = got >= 0 && (size_t)got == n && fs_is_unchanged(x->fd, &x->st);
    if (same && x->st.st_size > as_read.st_size) /* grown, or emptied and written anew */
        same = fs_read_range(x->fd, again, n, x->at) == got && memcmp(again, bytes, n) == 0;
    if (same) {
        if (!print_head(x, &as_read)) {
            print_bytes(x->at, bytes, n);
            out_kind(SG_WIRE_OK, NULL);
        }
        return TOLD;
    }
    if (got >= 0 && fstat(x->fd, &x->st) == 0)
        return TELL_ANEW;
    (void)fs_failed(x->fs, "reading");
    return NOT_TOLD;
}

/* ---- long ---- */

/* A file that has grown since it had this size may as well have been emptied and written anew. */
static bool has_only_grown(const struct fetch *x, off_t size, const struct fs_stage *s, uint64_t copied)
{
    return x->st.st_size == size ||
           (fs_stage_holds(s, x->fd, x->at, copied) && fs_mark(x->fd, x->marked) == x->mark);
}

static bool fetch_part(struct fetch *x)
{
    struct fs_stage s;
    char cursor[FS_CURSOR_MAX];
    uint64_t n = x->end - x->at, copied;
    fs_stage_begin(&s, x->fs, x->at, n);
    bool ok = fs_stage_copy(&s, x->fd, x->at, n, &copied);
    bool whole = copied == n, full = fs_stage_room(&s) == 0;
    off_t size = x->st.st_size;
    uint64_t mark = ok && !whole ? fs_mark(x->fd, x->at + copied) : 0;
    if (ok && (!fs_is_unchanged(x->fd, &x->st) || (!whole && !full) || !has_only_grown(x, size, &s, copied)))
        ok = changed(x->fs);
    if (ok) {
        struct sg_wire_file f = fs_wire_file(&x->st);
        struct fs_cursor c = {.at = x->at + copied,
                              .end = x->end,
                              .dev = f.dev,
                              .ino = f.ino,
                              .size = f.size,
                              .mtime_ns = f.mtime_ns,
                              .ctime_ns = f.ctime_ns,
                              .mark = mark};
        (void)fs_cursor_format(cursor, &c);
        ok = fs_stage_end(&s, whole ? NULL : cursor, NULL);
    }
    fs_stage_close(&s);
    return ok;
}

static bool go_on(struct fetch *x)
{
    struct fs_cursor c;
    struct sg_wire_file f = fs_wire_file(&x->st);
    if (!fs_cursor_parse(x->fs->a->cursor, &c))
        return guest_failed(x->fs->f, SG_WF_USAGE, 0, "bad value of --cursor");
    bool same = f.mtime_ns == c.mtime_ns && f.ctime_ns == c.ctime_ns;
    if (f.dev != c.dev || f.ino != c.ino || f.size < c.size ||
        (f.size == c.size && !same && !grows(x->fd, &x->st)) || fs_mark(x->fd, c.at) != c.mark)
        return changed(x->fs);
    x->at = c.at;
    x->marked = c.at;
    x->mark = c.mark;
    x->end = c.end;
    fs_print(&x->st, "", -1, NULL);
    return fetch_part(x);
}

static bool fetch(struct fetch *x)
{
    if (x->fs->a->cursor)
        return go_on(x);
    bool unsized = has_no_sizes(x->fd);
    for (int i = 0; i < INLINE_TRIES; i++) {
        enum told told = TELL_ANEW;
        if (!unsized && x->fs->a->limit && !fs_rest(x->fd, &x->st))
            break;
        if (unsized || x->st.st_size == 0) {
            told = fetch_unsized(x);
        } else {
            find_range(x);
            if (x->end - x->at > x->fs->a->inline_max)
                return print_head(x, &x->st) || fetch_part(x);
            told = fetch_short(x);
        }
        if (told != TELL_ANEW)
            return told == TOLD;
    }
    return changed(x->fs);
}

bool fs_fetch(struct fs *fs)
{
    struct fetch x = {.fs = fs, .mark = fs_mark(-1, 0)};
    x.fd = fs_open_regular(fs, &x.st);
    bool ok = (x.fd >= 0 || fs_failed(fs, "reading")) && fetch(&x);
    fs_close(x.fd);
    return ok;
}

static bool remove_staged(struct fs *fs, int dir, const char *name)
{
    return unlinkat(dir, name, 0) == 0 || errno == ENOENT || fs_failed(fs, "what was put aside");
}

bool fs_drop(struct fs *fs)
{
    struct guest_root store;
    if (!root_open(&store, false, fs->f)) {
        if (fs->f->code != SG_WF_NO_RECORD)
            return false;
        out_kind(SG_WIRE_OK, NULL);
        return true;
    }
    bool ok = remove_staged(fs, store.fd, fs->a->stage) &&
              (!fs->a->drop || remove_staged(fs, store.fd, fs->a->drop));
    close(store.fd);
    if (ok)
        out_kind(SG_WIRE_OK, NULL);
    return ok;
}
