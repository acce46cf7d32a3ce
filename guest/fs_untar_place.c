#include "guest/fs_untar.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    OPENAT2 = 437, /* the same number everywhere; older headers do not name it */
    BENEATH = 0x08,
    NO_SYMLINKS = 0x04,
    TRIES = 100,
};

struct how {
    uint64_t flags, mode, resolve;
};

/* One step down at a time, where the kernel cannot do it at once. */
static int walk(int dir, const char *path, int flags)
{
    int fd = openat(dir, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    while (fd >= 0 && *path) {
        char name[TAR_NAME_MAX + 1];
        size_t n = strcspn(path, "/");
        if (n > TAR_NAME_MAX) {
            close(fd);
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(name, path, n);
        name[n] = '\0';
        path += n + (path[n] == '/');
        int next = openat(fd, name, (*path ? O_PATH | O_DIRECTORY : flags) | O_NOFOLLOW | O_CLOEXEC);
        fs_close(fd);
        fd = next;
    }
    return fd;
}

int untar_open_at(const struct untar *u, const char *path, int flags)
{
    struct how how = {.flags = (uint64_t)(unsigned)(flags | O_NOFOLLOW | O_CLOEXEC),
                      .resolve = BENEATH | NO_SYMLINKS};
    int fd = -1;
    for (int i = 0; i < TRIES; i++) {
        fd = (int)syscall(OPENAT2, u->dir, *path ? path : ".", &how, sizeof how);
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
            break;
    }
    return fd < 0 && (errno == ENOSYS || errno == EPERM) && u->fs->root < 0 ? walk(u->dir, path, flags) : fd;
}

void untar_place_close(struct untar *u)
{
    fs_close(u->parent);
    u->parent = -1;
}

int untar_open(struct untar *u, const char *path, size_t len)
{
    if (u->parent >= 0 && strncmp(u->parent_path, path, len) == 0 && u->parent_path[len] == '\0')
        return u->parent;
    untar_place_close(u);
    memcpy(u->parent_path, path, len);
    u->parent_path[len] = '\0';
    u->parent = untar_open_at(u, u->parent_path, O_PATH | O_DIRECTORY);
    return u->parent;
}

/* Makes what is missing of the first len bytes of path. */
static bool make_directories(struct untar *u, const char *path, size_t len)
{
    for (size_t at = 0; at < len;) {
        size_t end = at + strcspn(path + at, "/");
        char name[TAR_NAME_MAX + 1];
        memcpy(name, path + at, end - at);
        name[end - at] = '\0';
        int above = untar_open(u, path, at ? at - 1 : 0);
        if (above < 0 || (mkdirat(above, name, 0777) && errno != EEXIST))
            return false;
        at = end + 1;
    }
    return true;
}

int untar_make_parent(struct untar *u, const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;
    *name = slash ? slash + 1 : path;
    int fd = untar_open(u, path, len);
    if (fd >= 0 || errno != ENOENT)
        return fd;
    return make_directories(u, path, len) ? untar_open(u, path, len) : -1;
}
