/* An upload takes its place: whole or not at all, below the root, and if it is still wanted. */
#include "guest/fs_put.h"

#include "base/core/sha256.h"
#include "guest/files.h"
#include "guest/out.h"
#include "guest/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    TRIES = 3,
    /* Whoever puts without a condition waits no longer for those who do: a program may hold the directory, too. */
    UNCONDITIONAL_WAIT_MS = 2000,
};

/* ---- the upload ---- */

int fs_upload_lock(struct fs *fs, const struct guest_root *store, const char *name)
{
    struct stat mine, there;
    for (int i = 0; i < TRIES; i++) {
        int fd = guest_open_file(store->fd, name);
        if (fd < 0 || !fs_lock(fs, fd, UINT64_MAX)) {
            fs_close(fd);
            (void)fs_failed(fs, "the upload");
            return -1;
        }
        if (fstat(fd, &mine) == 0 && fstatat(store->fd, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
            mine.st_dev == there.st_dev && mine.st_ino == there.st_ino)
            return fd;
        close(fd);
    }
    (void)fs_refused(fs, ENOENT, "the upload");
    return -1;
}

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
           guest_failed(fs->f, SG_WF_DIGEST, 0, "the upload has another digest");
}

bool fs_upload_check(struct fs *fs, int fd)
{
    struct stat st;
    if (fstat(fd, &st))
        return fs_failed(fs, "the upload");
    if (fs->a->has_size && (uint64_t)st.st_size != fs->a->size)
        return fs_refused(fs, EBADMSG, "the upload is not of the announced size");
    return !fs->a->digest || has_digest(fs, fd);
}

void fs_upload_forget(const struct guest_root *store, const char *name)
{
    char by[NAME_MAX + 1];
    if (snprintf(by, sizeof by, "%s.by", name) < (int)sizeof by)
        (void)unlinkat(store->fd, by, 0);
}

/* ---- the target ---- */

/* Where what the link at p->to leads to lies; p->to stays as it is when that is nowhere. */
static bool follow(struct fs *fs, struct fs_put *p)
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

static bool may_be_replaced(struct fs *fs, const struct stat *st)
{
    if (S_ISDIR(st->st_mode))
        return fs_refused(fs, EISDIR, "the target is a directory");
    if (fs->a->exclusive)
        return fs_refused(fs, EEXIST, "the file exists");
    return S_ISREG(st->st_mode) || fs_refused(fs, EINVAL, "the target is not a regular file");
}

bool fs_meets_conditions(struct fs *fs, const struct stat *there)
{
    const char *match = fs->a->if_match, *unless = fs->a->unless;
    char tag[SG_FILE_TAG_LEN + 1];
    if (there)
        fs_tag(there, tag);
    if (match && !there)
        return guest_failed(fs->f, SG_WF_STALE, 0, "the file is not there");
    if (match && strcmp(match, "*") != 0 && !sg_file_tag_among(tag, match))
        return guest_failed(fs->f, SG_WF_STALE, 0, "the file is another one");
    if (unless && there && sg_file_tag_among(tag, unless))
        return guest_failed(fs->f, SG_WF_STALE, 0, "the file is the one that is not to be replaced");
    return true;
}

static bool find_target(struct fs *fs, struct fs_put *p)
{
    const char *path = fs->a->path;
    if (path[strlen(path) - 1] == '/')
        return fs_refused(fs, EISDIR, "the path ends in a slash");
    fs_place_close(&p->to);
    if (!fs_place(fs, path, &p->to)) /* "/", "." and the root are directories */
        return !fs->outside && (errno == EBUSY || errno == EINVAL)
                   ? fs_refused(fs, EISDIR, "the target is a directory")
                   : fs_failed(fs, "the target");
    p->exists = fstatat(p->to.dir, p->to.name, &p->old, AT_SYMLINK_NOFOLLOW) == 0;
    if (!p->exists && errno != ENOENT)
        return fs_failed(fs, "the target");
    if (!p->exists)
        p->old = (struct stat){0};
    if (p->exists && S_ISLNK(p->old.st_mode) && !follow(fs, p))
        return false;
    return (!p->exists || may_be_replaced(fs, &p->old)) &&
           fs_meets_conditions(fs, p->exists ? &p->old : NULL);
}

/* Once more, now that nobody else puts there. */
static bool look_again(struct fs *fs, struct fs_put *p)
{
    struct stat st;
    if (fstatat(p->to.dir, p->to.name, &st, AT_SYMLINK_NOFOLLOW)) {
        p->exists = false;
        return (errno == ENOENT || fs_failed(fs, "the target")) && fs_meets_conditions(fs, NULL);
    }
    if (S_ISLNK(st.st_mode)) /* the same one that leads nowhere, or somebody plays with us */
        return p->exists || st.st_ino != p->old.st_ino ? fs_refused(fs, EAGAIN, "the target is being changed")
                                                       : fs_meets_conditions(fs, NULL);
    p->exists = true;
    p->old = st;
    return may_be_replaced(fs, &st) && fs_meets_conditions(fs, &st);
}

/* ---- what takes its place ---- */

/* Like what is there; false with errno. */
static bool set_attributes(const struct fs_put *p)
{
    const struct fs_args *a = p->fs->a;
    struct stat st;
    mode_t mask = umask(0), mode;
    (void)umask(mask);
    if (geteuid() == 0 && fchown(p->fd, p->exists ? p->old.st_uid : 0, p->exists ? p->old.st_gid : 0))
        return false;
    if (fstat(p->fd, &st))
        return false;
    mode = a->mode >= 0 ? (mode_t)a->mode : p->exists ? p->old.st_mode & 07777 : 0644 & ~mask;
    if (a->mode < 0 && p->exists && st.st_uid != p->old.st_uid) /* these gave the rights of somebody else */
        mode &= ~(mode_t)S_ISUID;
    if (a->mode < 0 && p->exists && st.st_gid != p->old.st_gid)
        mode &= ~(mode_t)S_ISGID;
    if ((st.st_mode & 07777) != mode && fchmod(p->fd, mode))
        return false;
    return fsync(p->fd) == 0;
}

/* Beside the target, which is on another file system; without a name for as long as the kernel allows that, so that
 * nothing is left when we are killed. */
static bool copy_beside(struct fs_put *p)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    snprintf(p->temp, sizeof p->temp, ".sandgate-%d-%lx", (int)getpid(), (unsigned long)t.tv_nsec);
    int fd = openat(p->to.dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    p->nameless = fd >= 0;
    if (fd < 0)
        fd = openat(p->to.dir, p->temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    p->fd = fd;
    return lseek(p->upload, 0, SEEK_SET) == 0 && fs_copy_bytes(p->upload, fd) && set_attributes(p);
}

static bool is_copy(const struct fs_put *p)
{
    return p->fd != p->upload;
}

static void drop_copy(struct fs_put *p)
{
    int err = errno;
    if (is_copy(p)) {
        if (!p->nameless)
            (void)unlinkat(p->to.dir, p->temp, 0);
        close(p->fd);
    }
    p->fd = p->upload;
    errno = err;
}

/* The moment itself; false with errno. */
static bool take_name(struct fs_put *p)
{
    bool exclusive = p->fs->a->exclusive;
    char link[32];
    if (!is_copy(p))
        return fs_rename(p->store->fd, p->name, p->to.dir, p->to.name, exclusive);
    if (p->nameless) {
        const char *name = exclusive ? p->to.name : p->temp;
        if (linkat(AT_FDCWD, fs_fd_path(p->fd, link), p->to.dir, name, AT_SYMLINK_FOLLOW))
            return false;
        p->nameless = false;
        if (exclusive)
            return true;
    }
    return fs_rename(p->to.dir, p->temp, p->to.dir, p->to.name, exclusive);
}

static bool lock_target(struct fs_put *p)
{
    const struct fs_args *a = p->fs->a;
    bool needed = a->if_match || a->unless;
    fs_close(p->lock);
    p->lock = openat(p->to.dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = p->lock >= 0 && fs_lock(p->fs, p->lock, needed ? UINT64_MAX : UNCONDITIONAL_WAIT_MS);
    return ok || !needed || fs_failed(p->fs, "the directory");
}

static bool same_rights(const struct stat *a, const struct stat *b)
{
    return a->st_mode == b->st_mode && a->st_uid == b->st_uid && a->st_gid == b->st_gid;
}

/* Once.  *again: nothing was done, and the next time it may succeed. */
static bool put(struct fs_put *p, bool *again)
{
    struct fs *fs = p->fs;
    struct stat st;
    *again = false;
    if (fs->a->parents && !fs_make_parents(fs, fs->a->path))
        return fs_failed(fs, "making the parent directories");
    if (!find_target(fs, p))
        return false;
    if (fstat(p->upload, &st) || fstat(p->to.dir, &p->now))
        return fs_failed(fs, "the upload");
    bool ok = st.st_dev == p->now.st_dev ? set_attributes(p) : copy_beside(p);
    if (!ok)
        return fs_failed(fs, "the upload");
    struct stat before = p->old;
    bool existed = p->exists;
    if (!lock_target(p) || !look_again(fs, p))
        return false;
    if ((existed != p->exists || !same_rights(&before, &p->old)) && !set_attributes(p))
        return fs_failed(fs, "the upload");
    if (fstat(p->fd, &p->now))
        return fs_failed(fs, "the upload");
    if (p->before && !p->before(p->arg, &p->now, p->exists))
        return false;
    ok = take_name(p);
    if (!ok && errno == EXDEV && !is_copy(p)) { /* two mounts of one file system look like one until now */
        if (!copy_beside(p) || fstat(p->fd, &p->now))
            return fs_failed(fs, "the upload");
        if (p->before && !p->before(p->arg, &p->now, p->exists))
            return false;
        ok = take_name(p);
    }
    if (ok)
        return true;
    *again = fs->a->parents && errno == ENOENT; /* somebody took the directory away */
    return fs_failed(fs, "putting the file in its place");
}

/* Where in path the first directory ends that is not there; 0: they all are. */
static size_t first_missing(struct fs *fs)
{
    char *path = fs->a->path;
    for (char *s = path + strspn(path, "/"); (s = strchr(s, '/')); s += strspn(s, "/")) {
        *s = '\0';
        int fd = fs_open(fs, path, O_PATH | O_DIRECTORY, 0);
        *s = '/';
        bool above = fs->outside;
        fs->outside = false;
        fs_close(fd);
        if (fd < 0 && !above && errno == ENOENT)
            return (size_t)(s - path);
    }
    return 0;
}

/* Those that were made for nothing go, unless somebody else has put something there. */
static void remove_parents(struct fs *fs, size_t from)
{
    struct fs_place d;
    char *path = fs->a->path;
    bool ok = true;
    for (size_t n = strlen(path); from && ok && n >= from; n--) {
        if (path[n] != '/' || (n && path[n - 1] == '/'))
            continue;
        path[n] = '\0';
        ok = fs_place(fs, path, &d) && unlinkat(d.dir, d.name, AT_REMOVEDIR) == 0;
        fs_place_close(&d);
        path[n] = '/';
    }
    fs->outside = false;
}

bool fs_put_take(struct fs_put *p)
{
    struct fs *fs = p->fs;
    p->fd = p->lock = p->to.dir = -1;
    p->upload = p->fd = fs_upload_lock(fs, p->store, p->name);
    if (p->upload < 0 || !fs_upload_check(fs, p->upload))
        return false;
    size_t missing = fs->a->parents ? first_missing(fs) : 0;
    if (missing && !fs_meets_conditions(fs, NULL))
        return false;
    bool ok = false, again = true;
    for (int i = 0; !ok && again && i < TRIES; i++) {
        ok = put(p, &again);
        if (!ok)
            drop_copy(p);
    }
    if (!ok) {
        struct guest_fail why = *fs->f;
        remove_parents(fs, missing);
        *fs->f = why;
        return false;
    }
    (void)fs_sync_directory(p->to.dir); /* it is there; a directory that cannot be read cannot be synced */
    if (is_copy(p))
        (void)unlinkat(p->store->fd, p->name, 0);
    fs_upload_forget(p->store, p->name);
    (void)fstat(p->fd, &p->now);
    return true;
}

void fs_put_close(struct fs_put *p)
{
    if (is_copy(p))
        fs_close(p->fd);
    fs_close(p->upload);
    fs_close(p->lock);
    fs_place_close(&p->to);
}

void fs_put_tell(const struct sg_wire_file *f, bool replaced)
{
    struct sg_wire_line l = {.kind = SG_WIRE_FILE, .name = (const unsigned char *)"", .file = *f};
    out_line(&l);
    out_kind(SG_WIRE_OK, replaced ? "replaced" : "created");
}

bool fs_put_look(struct fs *fs)
{
    struct fs_put p = {.fs = fs, .to = {.dir = -1}};
    bool ok;
    if (fs->a->parents && first_missing(fs))
        ok = fs_meets_conditions(fs, NULL);
    else
        ok = find_target(fs, &p);
    fs_place_close(&p.to);
    return ok;
}

bool fs_put(struct fs *fs)
{
    struct guest_root store = {.fd = -1};
    struct fs_put p = {.fs = fs, .store = &store, .name = upload_name(fs->a->upload)};
    if (!p.name)
        return guest_failed(fs->f, SG_WF_USAGE, 0, "bad value of --from");
    if (!root_open(&store, false, fs->f))
        return false;
    sweep_stale(&store);
    bool ok = fs_put_take(&p);
    struct sg_wire_file f = fs_wire_file(&p.now);
    if (ok)
        fs_put_tell(&f, p.exists);
    else
        upload_unlink(&store, fs->a->upload);
    fs_put_close(&p);
    close(store.fd);
    return ok;
}
