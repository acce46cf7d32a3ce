#include "guest/fs_untar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Bits that give others our rights stay only with the owner they were given by, and that one is not restored. */
#define MODES 01777

static void temp_name(struct untar *u, char out[64])
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    snprintf(out, 64, ".sandgate-%d-%lx-%u", (int)getpid(), (unsigned long)t.tv_nsec, u->temps++);
}

/* The temporary name takes its place, or goes. */
static bool settle(bool ok, int dir, const char *temp, const char *name)
{
    ok = ok && renameat(dir, temp, dir, name) == 0;
    int err = errno;
    if (!ok)
        (void)unlinkat(dir, temp, 0);
    errno = err;
    return ok;
}

static void times_of(const struct tar_entry *e, struct timespec t[2])
{
    t[0] = (struct timespec){.tv_nsec = UTIME_NOW};
    t[1] = (struct timespec){.tv_sec = e->mtime_s, .tv_nsec = e->mtime_ns};
}

/* Contents of the archive, which may not end before them. */
static bool copy_contents(int from, uint64_t at, uint64_t left, int to)
{
    static unsigned char buf[256 * 1024];
    off_t place = (off_t)at;
    while (left > sizeof buf) {
        ssize_t n = copy_file_range(from, &place, to, NULL, left < (1 << 30) ? (size_t)left : 1 << 30, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break; /* it cannot be done so: what is left is read below */
        left -= (uint64_t)n;
    }
    while (left) {
        ssize_t n = pread(from, buf, left < sizeof buf ? (size_t)left : sizeof buf, place);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = EIO;
        if (n <= 0)
            return false;
        for (ssize_t done = 0; done < n;) {
            ssize_t w = write(to, buf + done, (size_t)(n - done));
            if (w < 0 && errno != EINTR)
                return false;
            done += w > 0 ? w : 0;
        }
        place += n;
        left -= (uint64_t)n;
    }
    return true;
}

static bool extract_file(struct untar *u, const struct tar_entry *e)
{
    char temp[64];
    const char *name;
    struct timespec t[2];
    int dir = untar_make_parent(u, e->path, &name);
    if (dir < 0)
        return untar_failed(u, e->path, "its directory");
    temp_name(u, temp);
    int fd = openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return untar_failed(u, e->path, "making the file");
    times_of(e, t);
    bool ok = copy_contents(u->archive, u->source.data, e->size, fd) && fchmod(fd, e->mode & MODES) == 0 &&
              futimens(fd, t) == 0;
    int err = errno;
    if (close(fd) != 0 && ok) {
        err = errno;
        ok = false;
    }
    errno = err;
    return settle(ok, dir, temp, name) || untar_failed(u, e->path, "making the file");
}

static bool extract_symlink(struct untar *u, const struct tar_entry *e)
{
    char temp[64];
    const char *name;
    struct timespec t[2];
    bool later;
    const char *wrong = untar_target_wrong(u, e->path, e->target, &later);
    if (wrong)
        return untar_refused(u, e->path, wrong);
    int dir = untar_make_parent(u, e->path, &name);
    if (dir < 0)
        return untar_failed(u, e->path, "its directory");
    temp_name(u, temp);
    if (symlinkat(e->target, dir, temp))
        return untar_failed(u, e->path, "making the link");
    times_of(e, t);
    (void)utimensat(dir, temp, t, AT_SYMLINK_NOFOLLOW); /* not every file system keeps it */
    return settle(true, dir, temp, name) || untar_failed(u, e->path, "making the link");
}

static bool extract_hardlink(struct untar *u, const struct tar_entry *e)
{
    char temp[64], above[TAR_PATH_MAX + 1];
    const char *name, *slash = strrchr(e->target, '/'), *target = slash ? slash + 1 : e->target;
    size_t n = slash ? (size_t)(slash - e->target) : 0;
    memcpy(above, e->target, n);
    above[n] = '\0';
    int dir = untar_make_parent(u, e->path, &name);
    int from = dir >= 0 ? untar_open_at(u, above, O_PATH | O_DIRECTORY) : -1;
    if (from < 0)
        return untar_failed(u, e->path, "its directory");
    temp_name(u, temp);
    bool ok = linkat(from, target, dir, temp, 0) == 0;
    fs_close(from);
    if (!ok || !settle(true, dir, temp, name))
        return untar_failed(u, e->path, "making the hard link");
    (void)unlinkat(dir, temp, 0); /* still there when both are the same file */
    return true;
}

/* It is ours to fill, whatever it lets us do; what it is to let us do comes in the end. */
static bool open_up(int dir, const char *name)
{
    struct stat st;
    int fd = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool ok = fd >= 0 && fstat(fd, &st) == 0;
    if (ok && (st.st_mode & 0700) != 0700 && st.st_uid == geteuid())
        ok = fs_chmod_fd(fd, (st.st_mode & 07777) | 0700) == 0;
    fs_close(fd);
    return ok;
}

static bool extract_directory(struct untar *u, const struct tar_entry *e)
{
    const char *name;
    int dir = untar_make_parent(u, e->path, &name);
    if (dir < 0)
        return untar_failed(u, e->path, "its directory");
    bool ok = mkdirat(dir, name, 0700) == 0 || (errno == EEXIST && open_up(dir, name));
    return ok || untar_failed(u, e->path, "making the directory");
}

bool untar_extract(struct untar *u)
{
    const struct tar_entry *e = &u->source.reader.entry;
    if (!e->path[0])
        return true;
    switch (e->kind) {
    case TAR_FILE:
        return extract_file(u, e);
    case TAR_SYMLINK:
        return extract_symlink(u, e);
    case TAR_HARDLINK:
        return extract_hardlink(u, e);
    case TAR_DIRECTORY:
        break;
    }
    return extract_directory(u, e);
}

/* What was there and belongs to somebody else stays as it is. */
static bool finish_directory(struct untar *u, const char *path, const struct untar_directory *d)
{
    struct stat st;
    const struct timespec t[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = d->mtime_s, .tv_nsec = d->mtime_ns}};
    int fd = untar_open_at(u, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st)) {
        bool foreign = errno == EACCES;
        fs_close(fd);
        return foreign || untar_failed(u, path, "the directory");
    }
    bool ours = geteuid() == 0 || st.st_uid == geteuid();
    bool ok = !ours || (futimens(fd, t) == 0 && fchmod(fd, (d->mode & MODES) | (st.st_mode & 06000)) == 0);
    fs_close(fd);
    return ok || untar_failed(u, path, "the directory's mode");
}

bool untar_finish_directories(struct untar *u, bool *late)
{
    char path[TAR_PATH_MAX + 1];
    uint32_t node = u->left ? u->left : u->names.n;
    *late = false;
    /* What lies in a directory has a greater number. */
    for (bool any = false; node > UNTAR_TOP; node--) {
        uint32_t d = u->names.nodes[node].directory;
        if (!d || !untar_names_path(&u->names, node, path, sizeof path))
            continue;
        if (any && guest_now_ms() >= u->deadline_ms) {
            u->left = node;
            *late = true;
            return true;
        }
        if (!finish_directory(u, path, &u->names.directories[d - 1]))
            return false;
        any = true;
    }
    return true;
}
