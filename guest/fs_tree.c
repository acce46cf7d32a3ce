/* Removing, copying and moving what may be whole trees.  Nothing in them is followed: every step is from an open
 * directory to a name in it. */
#include "guest/fs.h"

#include "guest/fs_put.h"
#include "guest/libc.h"
#include "guest/out.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static bool done(struct fs *fs, bool ok, const char *what)
{
    if (!ok)
        return fs_failed(fs, what);
    out_kind(SG_WIRE_OK, NULL);
    return true;
}

/* ---- remove ---- */

enum { PASSES_MAX = 100 };

struct removal {
    unsigned depth;
    struct fs_clock clock;
};

static bool remove_at(struct removal *r, int dir, const char *name);

static bool remove_entry(void *arg, int dir, const char *name)
{
    return remove_at(arg, dir, name);
}

/* What appears meanwhile is removed as well, but somebody who goes on making files wins in the end. */
static bool remove_directory(struct removal *r, int dir, const char *name)
{
    if (r->depth >= FS_DEPTH_MAX) {
        errno = ELOOP;
        return false;
    }
    r->depth++;
    bool ok = false;
    for (int pass = 0; pass < PASSES_MAX; pass++) {
        int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        ok = fd >= 0 && fs_each(fd, remove_entry, r) && unlinkat(dir, name, AT_REMOVEDIR) == 0;
        if (ok || (errno != ENOTEMPTY && errno != EEXIST))
            break;
    }
    r->depth--;
    return ok || errno == ENOENT;
}

static bool remove_at(struct removal *r, int dir, const char *name)
{
    if (fs_clock_over(&r->clock))
        return false;
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return true;
    if (errno != EISDIR && errno != EPERM)
        return false;
    int err = errno;
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
        return true;
    if (errno == ENOTDIR) /* not allowed, and no directory */
        errno = err;
    return (errno == ENOTEMPTY || errno == EEXIST) && remove_directory(r, dir, name);
}

/* Of a link the tag of what it leads to counts: that is the one a client was told. */
static bool is_the_one(struct fs *fs, const struct fs_place *p, const struct stat *st, int *lock)
{
    struct stat there = *st;
    if (!fs->a->if_match)
        return true;
    *lock = openat(p->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0 || !fs_lock(fs, *lock, UINT64_MAX))
        return fs_failed(fs, "the directory");
    if (fstatat(p->dir, p->name, &there, AT_SYMLINK_NOFOLLOW))
        return fs_meets_conditions(fs, NULL);
    if (S_ISLNK(there.st_mode)) {
        int fd = fs_open(fs, fs->a->path, O_PATH, 0);
        if (fd >= 0)
            (void)fstat(fd, &there);
        fs_close(fd);
        fs->outside = false;
    }
    return fs_meets_conditions(fs, &there);
}

/* What takes too long goes on with the next call. */
static bool take_away(struct fs *fs, const struct fs_place *p, const struct stat *st)
{
    struct removal r = {.clock = fs_clock_start()};
    if (!fs->a->recursive)
        return done(fs, unlinkat(p->dir, p->name, S_ISDIR(st->st_mode) ? AT_REMOVEDIR : 0) == 0, "removing");
    bool ok = remove_at(&r, p->dir, p->name);
    if (ok || !r.clock.over)
        return done(fs, ok, "removing");
    out_kind(SG_WIRE_MORE, NULL);
    return true;
}

bool fs_remove(struct fs *fs)
{
    struct fs_place p;
    struct stat st;
    int lock = -1;
    bool there = fs_place(fs, fs->a->path, &p) && fstatat(p.dir, p.name, &st, AT_SYMLINK_NOFOLLOW) == 0, ok;
    bool absent = !there && !fs->outside && (errno == ENOENT || errno == ENOTDIR);
    if (absent && fs->a->if_match)
        ok = fs_meets_conditions(fs, NULL);
    else if (!there)
        ok = done(fs, absent && fs->a->force, "removing");
    else
        ok = is_the_one(fs, &p, &st, &lock) && take_away(fs, &p, &st);
    fs_close(lock);
    fs_place_close(&p);
    return ok;
}

/* ---- copy ---- */

struct copy {
    bool exclusive; /* of the file itself; trees are checked before */
    bool keep;      /* a move: owners and times are kept, and what is written is on the disk */
    unsigned depth;
    unsigned count;  /* of temporary names */
    struct stat top; /* the directory that the copy makes first, which is not copied into itself */
    bool has_top;
    int to; /* of the level we are at */
};

static void temp_name(struct copy *c, char out[64])
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    snprintf(out, 64, ".sandgate-%d-%lx-%u", (int)getpid(), (unsigned long)t.tv_nsec, c->count++);
}

bool fs_copy_bytes(int from, int to)
{
    static char buf[256 * 1024];
    for (;;) {
        ssize_t n = copy_file_range(from, NULL, to, NULL, 1 << 30, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break; /* at the end, or it cannot be done so: what is left is read below */
    }
    for (;;) {
        ssize_t n = read(from, buf, sizeof buf);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0;
        for (ssize_t at = 0; at < n;) {
            ssize_t w = write(to, buf + at, (size_t)(n - at));
            if (w < 0 && errno != EINTR)
                return false;
            at += w > 0 ? w : 0;
        }
    }
}

/* Bits that give others our rights stay only with the owner they were given by. */
static bool set_attributes(const struct copy *c, int fd, const struct stat *st)
{
    bool same = st->st_uid == geteuid();
    if (c->keep)
        same = fchown(fd, st->st_uid, st->st_gid) == 0 || same;
    if (fchmod(fd, st->st_mode & (same ? 07777 : 01777)))
        return false;
    struct timespec t[2] = {st->st_atim, st->st_mtim};
    return !c->keep || (futimens(fd, t) == 0 && fsync(fd) == 0);
}

bool fs_rename(int from, const char *temp, int to, const char *name, bool exclusive)
{
    if (!exclusive)
        return renameat(from, temp, to, name) == 0;
    if (libc_rename_new(from, temp, to, name) == 0)
        return true;
    if (errno != EINVAL && errno != ENOSYS)
        return false;
    return linkat(from, temp, to, name, 0) == 0 && (unlinkat(from, temp, 0) == 0 || errno == ENOENT);
}

/* The temporary name takes its place, or goes. */
static bool settle(struct copy *c, bool ok, int to, const char *temp, const char *name)
{
    ok = ok && fs_rename(to, temp, to, name, c->exclusive);
    if (!ok) {
        int err = errno;
        (void)unlinkat(to, temp, 0);
        errno = err;
    }
    return ok;
}

static bool copy_regular(struct copy *c, int from, const char *name, int to, const char *to_name)
{
    char temp[64];
    struct stat st;
    int in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (in < 0 || fstat(in, &st) || !S_ISREG(st.st_mode)) {
        if (in >= 0)
            errno = EAGAIN; /* it was one when we looked */
        fs_close(in);
        return false;
    }
    temp_name(c, temp);
    int out = openat(to, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out >= 0) {
        bool ok = fs_copy_bytes(in, out) && set_attributes(c, out, &st);
        ok = settle(c, close(out) == 0 && ok, to, temp, to_name);
        fs_close(in);
        return ok;
    }
    fs_close(in);
    return false;
}

static bool copy_link(struct copy *c, int from, const char *name, int to, const char *to_name,
                      const struct stat *st)
{
    char target[FS_PATH_MAX + 1], temp[64];
    ssize_t n = readlinkat(from, name, target, sizeof target - 1);
    if (n < 0)
        return false;
    target[n] = '\0';
    temp_name(c, temp);
    if (symlinkat(target, to, temp))
        return false;
    if (c->keep) {
        struct timespec t[2] = {st->st_atim, st->st_mtim};
        (void)fchownat(to, temp, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW);
        (void)utimensat(to, temp, t, AT_SYMLINK_NOFOLLOW);
    }
    return settle(c, true, to, temp, to_name);
}

static bool copy_fifo(struct copy *c, int to, const char *to_name, const struct stat *st)
{
    char temp[64];
    temp_name(c, temp);
    if (mknodat(to, temp, S_IFIFO | 0600, 0))
        return false;
    return settle(c, fchmodat(to, temp, st->st_mode & 0777, 0) == 0, to, temp, to_name);
}

static bool copy_at(struct copy *c, int from, const char *name, int to, const char *to_name);

static bool copy_entry(void *arg, int dir, const char *name)
{
    struct copy *c = arg;
    struct stat st;
    int to = c->to;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) && errno == ENOENT)
        return true; /* gone meanwhile */
    bool ok = copy_at(c, dir, name, to, name);
    c->to = to;
    return ok;
}

static bool copy_directory(struct copy *c, int from, const char *name, int to, const char *to_name)
{
    if (c->depth >= FS_DEPTH_MAX) {
        errno = ELOOP;
        return false;
    }
    struct stat st, made;
    int in = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), out = -1;
    bool ok = in >= 0 && fstat(in, &st) == 0;
    bool created = ok && mkdirat(to, to_name, 0700) == 0;
    ok = ok && (created || (errno == EEXIST && !c->exclusive));
    out = ok ? openat(to, to_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    ok = ok && out >= 0 && fstat(out, &made) == 0;
    if (ok && !c->has_top) {
        c->has_top = true;
        c->top = made;
    }
    if (!ok) {
        fs_close(in);
        fs_close(out);
        return false;
    }
    if (st.st_dev == c->top.st_dev && st.st_ino == c->top.st_ino) { /* the copy itself */
        fs_close(in);
        fs_close(out);
        return true;
    }
    bool exclusive = c->exclusive;
    c->exclusive = false;
    c->to = out;
    c->depth++;
    ok = fs_each(in, copy_entry, c); /* closes in */
    c->depth--;
    c->exclusive = exclusive;
    ok = ok && (!created || set_attributes(c, out, &st));
    fs_close(out);
    return ok;
}

static bool copy_at(struct copy *c, int from, const char *name, int to, const char *to_name)
{
    struct stat st;
    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW))
        return false;
    if (S_ISREG(st.st_mode))
        return copy_regular(c, from, name, to, to_name);
    if (S_ISDIR(st.st_mode))
        return copy_directory(c, from, name, to, to_name);
    if (S_ISLNK(st.st_mode))
        return copy_link(c, from, name, to, to_name, &st);
    if (S_ISFIFO(st.st_mode))
        return copy_fifo(c, to, to_name, &st);
    errno = EOPNOTSUPP; /* devices and sockets */
    return false;
}

/* Whether the directory dir is or lies below the one of st. */
static bool lies_below(int dir, const struct stat *st)
{
    struct stat here, above;
    int fd = openat(dir, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    bool below = false;
    for (int i = 0; fd >= 0 && !below && i < FS_PATH_MAX && fstat(fd, &here) == 0; i++) {
        below = here.st_dev == st->st_dev && here.st_ino == st->st_ino;
        int up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        bool top =
            up < 0 || fstat(up, &above) || (above.st_dev == here.st_dev && above.st_ino == here.st_ino);
        close(fd);
        fd = up;
        if (top)
            break;
    }
    fs_close(fd);
    return below;
}

/* What is there at the target decides whether the copy may be. */
static bool may_copy(struct fs *fs, const struct stat *from, const struct fs_place *to)
{
    struct stat st;
    if (S_ISDIR(from->st_mode) && lies_below(to->dir, from)) {
        errno = EINVAL;
        return false;
    }
    if (fstatat(to->dir, to->name, &st, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT;
    errno = fs->a->exclusive                                         ? EEXIST
            : st.st_dev == from->st_dev && st.st_ino == from->st_ino ? EINVAL
            : S_ISDIR(from->st_mode) && !S_ISDIR(st.st_mode)         ? ENOTDIR
            : !S_ISDIR(from->st_mode) && S_ISDIR(st.st_mode)         ? EISDIR
                                                                     : 0;
    return errno == 0;
}

static bool two_places(struct fs *fs, struct fs_place *from, struct fs_place *to, struct stat *st)
{
    to->dir = -1;
    return fs_place(fs, fs->a->path, from) && fs_place(fs, fs->a->to, to) &&
           fstatat(from->dir, from->name, st, AT_SYMLINK_NOFOLLOW) == 0;
}

bool fs_copy(struct fs *fs)
{
    struct fs_place from, to;
    struct stat st;
    struct copy c = {.exclusive = fs->a->exclusive};
    bool ok = two_places(fs, &from, &to, &st);
    if (ok && S_ISDIR(st.st_mode) && !fs->a->recursive) {
        errno = EISDIR;
        ok = false;
    }
    ok = ok && may_copy(fs, &st, &to) && copy_at(&c, from.dir, from.name, to.dir, to.name);
    ok = done(fs, ok, "copying");
    fs_place_close(&from);
    fs_place_close(&to);
    return ok;
}

/* ---- move ---- */

bool fs_sync_directory(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0 && fsync(fd) == 0;
    fs_close(fd);
    return ok;
}

/* To another file system: a copy beside the target takes its place at once, and only then the source goes. */
static bool move_over(struct fs *fs, const struct fs_place *from, const struct fs_place *to,
                      const struct stat *st)
{
    struct copy c = {.exclusive = true, .keep = true};
    char temp[64];
    struct removal r = {.clock = {.end_ms = UINT64_MAX}};
    if (!may_copy(fs, st, to))
        return false;
    temp_name(&c, temp);
    bool ok = copy_at(&c, from->dir, from->name, to->dir, temp) &&
              fs_rename(to->dir, temp, to->dir, to->name, fs->a->exclusive);
    if (!ok) {
        int err = errno;
        (void)remove_at(&r, to->dir, temp);
        errno = err;
        return false;
    }
    (void)fs_sync_directory(to->dir);
    return remove_at(&r, from->dir, from->name);
}

bool fs_move(struct fs *fs)
{
    struct fs_place from, to;
    struct stat st;
    bool ok = two_places(fs, &from, &to, &st);
    if (ok) {
        ok = fs->a->exclusive ? libc_rename_new(from.dir, from.name, to.dir, to.name) == 0
                              : renameat(from.dir, from.name, to.dir, to.name) == 0;
        if (!ok && errno == EXDEV)
            ok = move_over(fs, &from, &to, &st);
    }
    ok = done(fs, ok, "moving");
    fs_place_close(&from);
    fs_place_close(&to);
    return ok;
}
