/* An upload takes its place: whole or not at all, below the root, and if it is still wanted. */
#include "guest/fs.h"

#include "base/core/sha256.h"
#include "guest/files.h"
#include "guest/out.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

struct put {
    struct guest_root store;
    const char *name; /* of the upload */
    int fd;
    struct fs_place to;
    bool exists;
    struct stat old;
    int lock; /* the directory, while what is there counts */
};

static bool has_digest(struct fs *fs, int fd)
{
    static unsigned char buf[65536];
    static const char prefix[] = "sha-256:";
    unsigned char sum[32];
    char hex[sizeof sum * 2 + 1];
    struct sg_sha256 s;
    sg_sha256_init(&s);
    for (off_t at = 0;;) {
        ssize_t n = pread(fd, buf, sizeof buf, at);
        if (n < 0)
            return fs_failed(fs, "the upload");
        if (n == 0)
            break;
        sg_sha256_update(&s, buf, (size_t)n);
        at += n;
    }
    sg_sha256_final(&s, sum);
    for (size_t i = 0; i < sizeof sum; i++)
        snprintf(hex + 2 * i, 3, "%02x", sum[i]);
    const char *want = fs->a->digest;
    return (strncmp(want, prefix, sizeof prefix - 1) == 0 && strcmp(want + sizeof prefix - 1, hex) == 0) ||
           fs_refused(fs, EBADMSG, "the upload has another digest");
}

static bool check_upload(struct fs *fs, const struct put *p)
{
    struct stat st;
    if (fstat(p->fd, &st))
        return fs_failed(fs, "the upload");
    if (fs->a->has_size && (uint64_t)st.st_size != fs->a->size)
        return fs_refused(fs, EBADMSG, "the upload is not of the announced size");
    return !fs->a->digest || has_digest(fs, p->fd);
}

/* Where what the link at p->to leads to lies; p->to stays as it is when that is nowhere. */
static bool follow(struct fs *fs, struct put *p)
{
    char link[32], path[FS_PATH_MAX + 1];
    struct stat st, again;
    int fd = fs_open(fs, fs->a->path, O_PATH, 0);
    if (fd < 0) {
        p->exists = false;
        return errno == ENOENT || fs_failed(fs, "the target");
    }
    ssize_t n = fstat(fd, &st) == 0 ? readlink(fs_fd_path(fd, link), path, sizeof path - 1) : -1;
    fs_close(fd);
    if (n <= 0)
        return fs_failed(fs, "the target");
    path[n] = '\0';
    fs_place_close(&p->to);
    if (S_ISDIR(st.st_mode))
        return fs_refused(fs, EISDIR, "the target is a directory");
    if (!fs_place(fs, path, &p->to) || fstatat(p->to.dir, p->to.name, &again, AT_SYMLINK_NOFOLLOW))
        return fs_failed(fs, "the target");
    if (again.st_dev != st.st_dev || again.st_ino != st.st_ino)
        return fs_refused(fs, EAGAIN, "the target is being changed");
    p->old = again;
    return true;
}

static bool find_target(struct fs *fs, struct put *p)
{
    const char *path = fs->a->path;
    if (path[strlen(path) - 1] == '/')
        return fs_refused(fs, EISDIR, "the path ends in a slash");
    if (!fs_place(fs, path, &p->to)) /* "/", "." and the root are directories */
        return !fs->outside && (errno == EBUSY || errno == EINVAL)
                   ? fs_refused(fs, EISDIR, "the target is a directory")
                   : fs_failed(fs, "the target");
    p->exists = fstatat(p->to.dir, p->to.name, &p->old, AT_SYMLINK_NOFOLLOW) == 0;
    if (!p->exists && errno != ENOENT)
        return fs_failed(fs, "the target");
    if (p->exists && S_ISLNK(p->old.st_mode) && !follow(fs, p))
        return false;
    if (!p->exists)
        return true;
    if (S_ISDIR(p->old.st_mode))
        return fs_refused(fs, EISDIR, "the target is a directory");
    if (fs->a->exclusive)
        return fs_refused(fs, EEXIST, "the file exists");
    return S_ISREG(p->old.st_mode) || fs_refused(fs, EINVAL, "the target is not a regular file");
}

static int64_t ns(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Others who put here on a condition wait until we are through. */
static bool is_match(struct fs *fs, struct put *p)
{
    char facts[128];
    if (!fs->a->if_match)
        return true;
    p->lock = openat(p->to.dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (p->lock < 0 || flock(p->lock, LOCK_EX))
        return fs_failed(fs, "the directory");
    p->exists = fstatat(p->to.dir, p->to.name, &p->old, AT_SYMLINK_NOFOLLOW) == 0;
    snprintf(facts, sizeof facts, "%" PRIu64 "-%" PRIu64 "-%" PRId64 "-%" PRId64 "-%" PRId64,
             (uint64_t)p->old.st_dev, (uint64_t)p->old.st_ino, (int64_t)p->old.st_size, ns(p->old.st_mtim),
             ns(p->old.st_ctim));
    return (p->exists && strcmp(facts, fs->a->if_match) == 0) ||
           fs_refused(fs, ESTALE, "the file is another one");
}

static bool set_attributes(const struct fs *fs, const struct put *p, int fd)
{
    mode_t mask = umask(0);
    (void)umask(mask);
    mode_t mode = fs->a->mode >= 0 ? (mode_t)fs->a->mode : p->exists ? p->old.st_mode & 07777 : 0644 & ~mask;
    if (geteuid() == 0 && fchown(fd, p->exists ? p->old.st_uid : 0, p->exists ? p->old.st_gid : 0))
        return false;
    return fchmod(fd, mode) == 0 && fsync(fd) == 0;
}

/* The target lies on another file system: a copy beside it takes the upload's part. */
static bool copy_over(struct fs *fs, struct put *p)
{
    char temp[64];
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    snprintf(temp, sizeof temp, ".sandgate-%d-%lx", (int)getpid(), (unsigned long)t.tv_nsec);
    int fd = openat(p->to.dir, temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool ok = lseek(p->fd, 0, SEEK_SET) == 0 && fs_copy_bytes(p->fd, fd) && set_attributes(fs, p, fd) &&
              fs_rename(p->to.dir, temp, p->to.dir, p->to.name, fs->a->exclusive);
    if (!ok) {
        int err = errno;
        (void)unlinkat(p->to.dir, temp, 0);
        close(fd);
        errno = err;
        return false;
    }
    close(p->fd);
    p->fd = fd; /* what is there now */
    return true;
}

static bool put(struct fs *fs, struct put *p)
{
    if (!check_upload(fs, p))
        return false;
    if (fs->a->parents && !fs_make_parents(fs, fs->a->path))
        return fs_failed(fs, "making the parent directories");
    if (!find_target(fs, p) || !is_match(fs, p))
        return false;
    if (!set_attributes(fs, p, p->fd))
        return fs_failed(fs, "the upload");
    if (!fs_rename(p->store.fd, p->name, p->to.dir, p->to.name, fs->a->exclusive) &&
        (errno != EXDEV || !copy_over(fs, p)))
        return fs_failed(fs, "putting the file in its place");
    (void)fs_sync_directory(p->to.dir); /* it is there; a directory that cannot be read cannot be synced */
    return true;
}

bool fs_put(struct fs *fs)
{
    struct put p = {.store = {.fd = -1}, .fd = -1, .to = {.dir = -1}, .lock = -1};
    struct stat st;
    if (!root_open(&p.store, false, fs->f))
        return false;
    p.name = upload_name(fs->a->upload);
    p.fd = upload_open(&p.store, fs->a->upload, fs->f);
    bool ok = p.fd >= 0 && put(fs, &p);
    if (p.name)
        (void)unlinkat(p.store.fd, p.name, 0);
    if (ok && fstat(p.fd, &st) == 0)
        fs_print(&st, p.to.name, -1, NULL);
    if (ok)
        out_kind(SG_WIRE_OK, p.exists ? "replaced" : "created");
    fs_close(p.fd);
    fs_close(p.lock);
    fs_place_close(&p.to);
    close(p.store.fd);
    return ok;
}
