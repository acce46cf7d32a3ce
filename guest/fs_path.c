#include "guest/fs.h"

#include "guest/out.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    OPENAT2 = 437, /* the same number everywhere; older headers do not name it */
    FCHMODAT2 = 452,
    BENEATH = 0x08,
    NO_MAGICLINKS = 0x02,
    RACES_MAX = 1000, /* renames beside a ".." make the kernel ask us to try again */
};

struct how {
    uint64_t flags, mode, resolve;
};

bool fs_refused(struct fs *fs, int err, const char *text)
{
    enum sg_wire_fail code = err == ENOSPC || err == EDQUOT ? SG_WF_NO_SPACE : SG_WF_FILE;
    return guest_failed(fs->f, code, err, text);
}

bool fs_failed(struct fs *fs, const char *text)
{
    int err = errno;
    if (fs->outside)
        return fs_refused(fs, EXDEV, "outside");
    if (err == ENOSYS && fs->root >= 0)
        return guest_failed(fs->f, SG_WF_INTERNAL, err, "this kernel cannot confine paths");
    return fs_refused(fs, err, text);
}

void fs_close(int fd)
{
    int err = errno;
    if (fd >= 0)
        close(fd);
    errno = err;
}

const char *fs_fd_path(int fd, char out[32])
{
    snprintf(out, 32, "/proc/self/fd/%d", fd);
    return out;
}

static int open_beneath(struct fs *fs, const char *below, int flags, mode_t mode)
{
    struct how how = {.flags = (uint64_t)(unsigned)flags,
                      .mode = flags & O_CREAT ? mode & 07777 : 0,
                      .resolve = BENEATH | NO_MAGICLINKS};
    int fd = -1;
    for (int i = 0; i < RACES_MAX; i++) {
        fd = (int)syscall(OPENAT2, fs->root, below, &how, sizeof how);
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
            break;
    }
    if (fd < 0 && errno == EXDEV)
        fs->outside = true;
    return fd;
}

bool fs_confine(struct fs *fs)
{
    if (!fs->a->root)
        return true;
    char link[32];
    fs->root = open(fs->a->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fs->root < 0)
        return fs_failed(fs, "the root");
    int there = open_beneath(fs, ".", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    if (there < 0)
        return fs_failed(fs, "the root");
    close(there);
    ssize_t n = readlink(fs_fd_path(fs->root, link), fs->root_real, FS_PATH_MAX);
    if (n <= 0)
        return fs_failed(fs, "the root");
    fs->root_real[n] = '\0';
    return true;
}

/* What of path comes after prefix, which is absolute; NULL when it does not begin with it.  This only finds where the
 * resolution begins: it is openat2 that confines it. */
static const char *after_prefix(const char *path, const char *prefix)
{
    for (;;) {
        prefix += strspn(prefix, "/");
        for (path += strspn(path, "/"); path[0] == '.' && (path[1] == '/' || !path[1]);)
            path += 1 + strspn(path + 1, "/");
        size_t n = strcspn(prefix, "/");
        if (n == 0)
            return path;
        if (strncmp(path, prefix, n) != 0 || (path[n] && path[n] != '/'))
            return NULL;
        path += n;
        prefix += n;
    }
}

/* What to resolve from fs->root; NULL with errno.  What is not absolute is below it. */
static const char *below_root(struct fs *fs, const char *path)
{
    if (path[0] != '/')
        return path;
    const char *below = after_prefix(path, fs->a->root);
    if (!below || fs->a->root[0] != '/')
        below = after_prefix(path, fs->root_real);
    if (!below) {
        fs->outside = true;
        errno = EXDEV;
        return NULL;
    }
    return *below ? below : ".";
}

int fs_open(struct fs *fs, const char *path, int flags, mode_t mode)
{
    if (fs->root < 0)
        return open(path, flags | O_CLOEXEC, mode);
    const char *below = below_root(fs, path);
    return below ? open_beneath(fs, below, flags | O_CLOEXEC, mode) : -1;
}

static bool split(const char *text, struct fs_place *p, char dir[2 * FS_PATH_MAX], bool *slash)
{
    size_t n = strlen(text), at;
    while (n && text[n - 1] == '/')
        n--;
    *slash = text[n] == '/';
    for (at = n; at && text[at - 1] != '/';)
        at--;
    int err = n == 0                                                    ? EBUSY
              : (n - at == 1 && text[at] == '.')                        ? EINVAL
              : (n - at == 2 && text[at] == '.' && text[at + 1] == '.') ? EINVAL
              : n - at > NAME_MAX || at >= PATH_MAX                     ? ENAMETOOLONG
                                                                        : 0;
    if (err) {
        errno = err;
        return false;
    }
    memcpy(p->name, text + at, n - at);
    p->name[n - at] = '\0';
    memcpy(dir, at ? text : ".", at ? at : 1);
    dir[at ? at : 1] = '\0';
    return true;
}

bool fs_place(struct fs *fs, const char *path, struct fs_place *p)
{
    char dir[2 * FS_PATH_MAX];
    const char *text = path;
    bool slash;
    p->dir = -1;
    if (fs->root >= 0 && !(text = below_root(fs, path)))
        return false;
    if (fs->root >= 0 && strcmp(text, ".") == 0) {
        errno = EBUSY;
        return false;
    }
    if (!split(text, p, dir, &slash))
        return false;
    int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    p->dir = fs->root >= 0 ? open_beneath(fs, dir, flags, 0) : open(dir, flags);
    struct stat st;
    if (p->dir >= 0 && slash && fstatat(p->dir, p->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        !S_ISDIR(st.st_mode)) {
        fs_place_close(p);
        errno = ENOTDIR;
    }
    return p->dir >= 0;
}

void fs_place_close(struct fs_place *p)
{
    fs_close(p->dir);
    p->dir = -1;
}

int fs_chmod_fd(int fd, mode_t mode)
{
    char link[32];
    if (syscall(FCHMODAT2, fd, "", mode, AT_EMPTY_PATH) == 0)
        return 0;
    return errno == ENOSYS ? chmod(fs_fd_path(fd, link), mode) : -1;
}

bool fs_lock(struct fs *fs, int fd, uint64_t most_ms)
{
    uint64_t start = guest_now_ms();
    for (long ns = 500000; flock(fd, LOCK_EX | LOCK_NB); ns = ns < 8000000 ? ns * 2 : ns) {
        uint64_t now = guest_now_ms();
        if (errno != EWOULDBLOCK && errno != EINTR)
            return false;
        if (now - start >= most_ms || now >= fs->deadline_ms) {
            errno = ETIMEDOUT;
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
    }
    return true;
}

bool fs_each(int fd, fs_entry_fn *fn, void *arg)
{
    DIR *d = fdopendir(fd);
    if (!d) {
        fs_close(fd);
        return false;
    }
    bool ok = true;
    struct dirent *e;
    for (;;) {
        errno = 0;
        e = readdir(d);
        if (!e)
            break;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        ok = fn(arg, dirfd(d), e->d_name);
        if (!ok)
            break;
    }
    int err = errno;
    closedir(d);
    errno = err;
    return ok && err == 0;
}

int64_t fs_ns(struct timespec t)
{
    int64_t ns;
    if (__builtin_mul_overflow((int64_t)t.tv_sec, (int64_t)1000000000, &ns) ||
        __builtin_add_overflow(ns, (int64_t)t.tv_nsec, &ns))
        return t.tv_sec < 0 ? -INT64_MAX : INT64_MAX;
    return ns < -INT64_MAX ? -INT64_MAX : ns;
}

static char type_of(mode_t mode)
{
    static const struct {
        mode_t format;
        char letter;
    } types[] = {{S_IFDIR, 'd'},  {S_IFLNK, 'l'}, {S_IFIFO, 'p'},
                 {S_IFSOCK, 's'}, {S_IFCHR, 'c'}, {S_IFBLK, 'b'}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if ((mode & S_IFMT) == types[i].format)
            return types[i].letter;
    return 'f';
}

struct sg_wire_file fs_wire_file(const struct stat *st)
{
    return (struct sg_wire_file){.type = type_of(st->st_mode),
                                 .mode = st->st_mode & 07777,
                                 .uid = st->st_uid,
                                 .gid = st->st_gid,
                                 .size = st->st_size < 0 ? 0 : (uint64_t)st->st_size,
                                 .mtime_ns = fs_ns(st->st_mtim),
                                 .ctime_ns = fs_ns(st->st_ctim),
                                 .ino = st->st_ino,
                                 .dev = st->st_dev,
                                 .nlink = st->st_nlink};
}

void fs_tag(const struct stat *st, char out[SG_FILE_TAG_LEN + 1])
{
    struct sg_wire_file f = fs_wire_file(st);
    sg_file_tag(&f, out);
}

void fs_print(const struct stat *st, const char *name, int dir, const char *entry)
{
    char target[FS_PATH_MAX];
    struct sg_wire_line l = {
        .kind = SG_WIRE_FILE,
        .name = (const unsigned char *)name,
        .name_len = strlen(name),
        .file = fs_wire_file(st),
    };
    if (entry && S_ISLNK(st->st_mode)) {
        ssize_t n = readlinkat(dir, entry, target, sizeof target);
        if (n > 0 && (size_t)n + l.name_len <= SG_WIRE_DATA_MAX) {
            l.data = (const unsigned char *)target;
            l.len = (size_t)n;
        }
    }
    out_line(&l);
}

void fs_print_name(const char *name, size_t len)
{
    struct sg_wire_line l = {.kind = SG_WIRE_NAME, .name = (const unsigned char *)name, .name_len = len};
    out_line(&l);
}

void fs_print_late(const char *path, uint64_t line)
{
    struct sg_wire_line l = {.kind = SG_WIRE_TEXT,
                             .line = line,
                             .goes_on = true,
                             .name = (const unsigned char *)path,
                             .name_len = strlen(path)};
    out_line(&l);
    out_kind(SG_WIRE_MORE, NULL);
}
