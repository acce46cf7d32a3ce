#include "guest/fs.h"
#include "guest/fs_names.h"

#include "guest/out.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* The last part of a path, without slashes. */
static void last_part(const char *path, char out[FS_PATH_MAX + 1])
{
    size_t n = strlen(path), at;
    while (n && path[n - 1] == '/')
        n--;
    for (at = n; at && path[at - 1] != '/';)
        at--;
    memcpy(out, path + at, n - at);
    out[n - at] = '\0';
}

bool fs_stat(struct fs *fs)
{
    char name[FS_PATH_MAX + 1];
    struct stat st;
    int flags = O_PATH | (fs->a->op == FS_LSTAT ? O_NOFOLLOW : 0);
    int fd = fs_open(fs, fs->a->path, flags, 0);
    if (fd < 0 || fstat(fd, &st)) {
        fs_close(fd);
        return fs_failed(fs, "stat");
    }
    last_part(fs->a->path, name);
    fs_print(&st, name, fd, ""); /* "": the link that fd is itself */
    close(fd);
    out_kind(SG_WIRE_OK, NULL);
    return true;
}

bool fs_list(struct fs *fs)
{
    struct fs_names names;
    int fd = fs_open(fs, fs->a->path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return fs_failed(fs, "the directory");
    if (fs->a->limit == 0) {
        close(fd);
        out_kind(SG_WIRE_MORE, NULL);
        return true;
    }
    bool ok =
        fs_names_read_until(fd, fs->a->after, fs->a->limit, SIZE_MAX / 4, false, fs->deadline_ms, &names) ||
        fs_failed(fs, "reading the directory");
    for (size_t i = 0; ok && i < names.n; i++) {
        struct stat st;
        if (fstatat(fd, names.v[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
            fs_print(&st, names.v[i], fd, names.v[i]);
        else if (errno != ENOENT) /* gone meanwhile */
            ok = fs_failed(fs, "reading the directory");
    }
    bool more = names.more;
    fs_names_free(&names);
    close(fd);
    if (ok)
        out_kind(more ? SG_WIRE_MORE : SG_WIRE_OK, NULL);
    return ok;
}

bool fs_exists(struct fs *fs)
{
    int fd = fs_open(fs, fs->a->path, O_PATH, 0);
    if (fd < 0 && errno != ENOENT && errno != ENOTDIR)
        return fs_failed(fs, "looking for the file");
    fs_close(fd);
    out_kind(SG_WIRE_OK, fd >= 0 ? "yes" : "no");
    return true;
}

bool fs_access(struct fs *fs)
{
    char link[32];
    int fd = fs_open(fs, fs->a->path, O_PATH, 0);
    bool ok = fd >= 0 && faccessat(AT_FDCWD, fs_fd_path(fd, link), fs->a->access, 0) == 0;
    if (!ok)
        fs_failed(fs, "access");
    else
        out_kind(SG_WIRE_OK, NULL);
    fs_close(fd);
    return ok;
}

bool fs_readlink(struct fs *fs)
{
    struct fs_place p;
    char target[FS_PATH_MAX];
    ssize_t n = fs_place(fs, fs->a->path, &p) ? readlinkat(p.dir, p.name, target, sizeof target) : -1;
    if (n > 0)
        fs_print_name(target, (size_t)n);
    if (n == 0)
        errno = ENOENT;
    if (n <= 0)
        fs_failed(fs, "reading the link");
    else
        out_kind(SG_WIRE_OK, NULL);
    fs_place_close(&p);
    return n > 0;
}

bool fs_realpath(struct fs *fs)
{
    char link[32], path[FS_PATH_MAX];
    struct stat st;
    int fd = fs_open(fs, fs->a->path, O_PATH, 0);
    ssize_t n = fd >= 0 && fstat(fd, &st) == 0 ? readlink(fs_fd_path(fd, link), path, sizeof path) : -1;
    if (n == (ssize_t)sizeof path) {
        errno = ENAMETOOLONG;
        n = -1;
    } else if (n >= 0 &&
               (st.st_nlink == 0 || path[0] != '/')) { /* removed, or not below our root directory */
        errno = ENOENT;
        n = -1;
    }
    if (n < 0)
        fs_failed(fs, "resolving the path");
    fs_close(fd);
    if (n < 0)
        return false;
    fs_print_name(path, (size_t)n);
    out_kind(SG_WIRE_OK, NULL);
    return true;
}
