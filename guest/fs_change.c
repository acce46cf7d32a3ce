#include "guest/fs.h"

#include "guest/out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* The end of an act that prints nothing but its success. */
static bool done(struct fs *fs, bool ok, const char *what)
{
    if (!ok)
        return fs_failed(fs, what);
    out_kind(SG_WIRE_OK, NULL);
    return true;
}

/* Makes one directory; its parent has to be there. */
static bool make_directory(struct fs *fs, const char *path, int mode, bool *created)
{
    struct fs_place p;
    if (!fs_place(fs, path, &p))
        return false;
    bool ok = mkdirat(p.dir, p.name, mode >= 0 ? 0700 : 0777) == 0;
    *created = ok;
    if (ok && mode >= 0) {
        int fd = openat(p.dir, p.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        ok = fd >= 0 && fchmod(fd, (mode_t)mode) == 0;
        fs_close(fd);
    }
    fs_place_close(&p);
    return ok;
}

static bool is_directory(struct fs *fs, const char *path)
{
    int fd = fs_open(fs, path, O_PATH | O_DIRECTORY, 0);
    fs_close(fd);
    return fd >= 0;
}

bool fs_make_parents(struct fs *fs, char *path)
{
    bool created, ok = true;
    for (char *p = path + strspn(path, "/"); ok && (p = strchr(p, '/')); p++) {
        if (p[1 + strspn(p + 1, "/")] == '\0') /* slashes at the end */
            break;
        *p = '\0';
        if (!is_directory(fs, path)) {
            /* What lies above the root is there, and what leads out of it is found out in the end. */
            bool above = fs->outside;
            fs->outside = false;
            ok = above || (errno == ENOENT && (make_directory(fs, path, -1, &created) || errno == EEXIST));
        }
        *p = '/';
    }
    return ok;
}

bool fs_mkdir(struct fs *fs)
{
    bool created = false;
    if (fs->a->parents) {
        if (is_directory(fs, fs->a->path)) {
            out_kind(SG_WIRE_OK, "exists");
            return true;
        }
        if (errno != ENOENT && errno != ENOTDIR)
            return fs_failed(fs, "the directory");
        if (!fs_make_parents(fs, fs->a->path))
            return fs_failed(fs, "making the parent directories");
    }
    if (!make_directory(fs, fs->a->path, fs->a->mode, &created)) {
        bool beaten = fs->a->parents && !created && errno == EEXIST;
        if (!beaten || !is_directory(fs, fs->a->path)) {
            if (beaten)
                errno = EEXIST;
            return fs_failed(fs, "making the directory");
        }
    }
    out_kind(SG_WIRE_OK, created ? "created" : "exists");
    return true;
}

bool fs_symlink(struct fs *fs)
{
    struct fs_place p;
    bool ok = fs_place(fs, fs->a->path, &p) && symlinkat(fs->a->to, p.dir, p.name) == 0;
    ok = done(fs, ok, "making the link");
    fs_place_close(&p);
    return ok;
}

bool fs_link(struct fs *fs)
{
    struct fs_place from, to = {.dir = -1};
    bool ok = fs_place(fs, fs->a->path, &from) && fs_place(fs, fs->a->to, &to) &&
              linkat(from.dir, from.name, to.dir, to.name, 0) == 0;
    ok = done(fs, ok, "making the link");
    fs_place_close(&from);
    fs_place_close(&to);
    return ok;
}

struct attributes {
    struct fs *fs;
    unsigned depth;
    struct fs_clock clock;
};

static int change_fd(const struct fs_args *a, int fd)
{
    if (a->op == FS_CHMOD)
        return fs_chmod_fd(fd, (mode_t)a->mode);
    return fchownat(fd, "", (uid_t)a->uid, (gid_t)a->gid, AT_EMPTY_PATH);
}

/* In a tree, what is as it should be is left alone: so a call that goes on where one before ended gets further. */
static bool change_one(struct attributes *t, int fd, const struct stat *st)
{
    const struct fs_args *a = t->fs->a;
    bool is_so = a->op == FS_CHMOD ? (st->st_mode & 07777) == (mode_t)a->mode
                                   : (a->uid == UINT32_MAX || st->st_uid == a->uid) &&
                                         (a->gid == UINT32_MAX || st->st_gid == a->gid);
    if (is_so)
        return true;
    return !fs_clock_over(&t->clock) && change_fd(a, fd) == 0;
}

static bool change_tree(struct attributes *t, int fd, bool changed);

static bool change_entry(void *arg, int dir, const char *name)
{
    struct attributes *t = arg;
    struct stat st;
    int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT;
    bool ok = fstat(fd, &st) == 0;
    if (ok && S_ISDIR(st.st_mode)) {
        t->depth++;
        ok = change_tree(t, fd, false);
        t->depth--;
        return ok;
    }
    if (ok && (!S_ISLNK(st.st_mode) || t->fs->a->op == FS_CHOWN)) /* links have no mode */
        ok = change_one(t, fd, &st);
    fs_close(fd);
    return ok;
}

/* fd (O_PATH) is closed.  What is below a directory comes first, unless it cannot be read before. */
static bool change_tree(struct attributes *t, int fd, bool changed)
{
    if (t->depth >= FS_DEPTH_MAX) {
        close(fd);
        errno = ELOOP;
        return false;
    }
    int dir = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 && errno == EACCES && !changed && change_fd(t->fs->a, fd) == 0)
        return change_tree(t, fd, true);
    struct stat st;
    bool ok = dir >= 0 && fs_each(dir, change_entry, t);
    ok = ok && (changed || (fstat(fd, &st) == 0 && change_one(t, fd, &st)));
    fs_close(fd);
    return ok;
}

static bool change(struct fs *fs, const char *what)
{
    struct attributes t = {.fs = fs, .clock = fs_clock_start()};
    struct stat st;
    int fd = fs_open(fs, fs->a->path, O_PATH | (fs->a->no_follow ? O_NOFOLLOW : 0), 0);
    bool ok = fd >= 0 && fstat(fd, &st) == 0;
    if (ok && fs->a->recursive && S_ISDIR(st.st_mode)) {
        ok = change_tree(&t, fd, false);
        if (!ok && t.clock.over) {
            out_kind(SG_WIRE_MORE, NULL);
            return true;
        }
    } else {
        ok = ok && change_fd(fs->a, fd) == 0;
        fs_close(fd);
    }
    return done(fs, ok, what);
}

bool fs_chmod(struct fs *fs)
{
    return change(fs, "changing the mode");
}

bool fs_chown(struct fs *fs)
{
    return change(fs, "changing the owner");
}

/* A regular file, open for writing. */
static int open_regular(struct fs *fs)
{
    struct stat st;
    int fd = fs_open(fs, fs->a->path, O_WRONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)))
        return fd;
    close(fd);
    errno = EINVAL;
    return -1;
}

bool fs_truncate(struct fs *fs)
{
    int fd = open_regular(fs);
    bool ok = done(fs, fd >= 0 && ftruncate(fd, (off_t)fs->a->size) == 0, "setting the size");
    fs_close(fd);
    return ok;
}

static struct timespec when(bool given, bool any, int64_t ns)
{
    if (!given)
        return (struct timespec){.tv_nsec = any ? UTIME_OMIT : UTIME_NOW};
    int64_t s = ns / 1000000000, rest = ns % 1000000000;
    if (rest < 0) {
        rest += 1000000000;
        s--;
    }
    return (struct timespec){.tv_sec = s, .tv_nsec = rest};
}

bool fs_utimes(struct fs *fs)
{
    const struct fs_args *a = fs->a;
    bool any = a->has_atime || a->has_mtime;
    struct timespec t[2] = {when(a->has_atime, any, a->atime_ns), when(a->has_mtime, any, a->mtime_ns)};
    int fd = fs_open(fs, a->path, O_PATH | (a->no_follow ? O_NOFOLLOW : 0), 0);
    char link[32];
    bool ok = fd >= 0 && utimensat(fd, "", t, AT_EMPTY_PATH) == 0;
    if (fd >= 0 && !ok && (errno == EINVAL || errno == ENOENT)) /* an old kernel */
        ok = utimensat(AT_FDCWD, fs_fd_path(fd, link), t, 0) == 0;
    ok = done(fs, ok, "setting the times");
    fs_close(fd);
    return ok;
}

static bool random_name(const char *prefix, char out[FS_PATH_MAX + 1])
{
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz012345";
    unsigned char r[12];
    char tail[sizeof r + 1];
    if (getrandom(r, sizeof r, 0) != (ssize_t)sizeof r)
        return false;
    for (size_t i = 0; i < sizeof r; i++)
        tail[i] = alphabet[r[i] % 32];
    tail[sizeof r] = '\0';
    snprintf(out, FS_PATH_MAX + 1, "%s%s", prefix ? prefix : "tmp.", tail);
    return true;
}

bool fs_mktemp(struct fs *fs)
{
    char name[FS_PATH_MAX + 1], path[FS_PATH_MAX + 1];
    int dir = fs_open(fs, fs->a->path, O_PATH | O_DIRECTORY, 0);
    bool ok = dir >= 0;
    for (int tries = 0; ok && tries < 100; tries++) {
        ok = random_name(fs->a->prefix, name);
        size_t n = strlen(fs->a->path);
        const char *slash = fs->a->path[n - 1] == '/' ? "" : "/";
        if (ok && snprintf(path, sizeof path, "%s%s%s", fs->a->path, slash, name) >= FS_PATH_MAX) {
            errno = ENAMETOOLONG;
            ok = false;
        }
        if (!ok)
            break;
        int fd = -1;
        if (fs->a->directory)
            ok = mkdirat(dir, name, 0700) == 0;
        else
            ok = (fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)) >= 0;
        fs_close(fd);
        if (ok || errno != EEXIST)
            break;
        ok = true;
    }
    if (ok)
        fs_print_name(path, strlen(path));
    ok = done(fs, ok, "making a temporary file");
    fs_close(dir);
    return ok;
}
