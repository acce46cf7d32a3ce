#include "guest/files.h"

#include "guest/fs.h"
#include "guest/libc.h"
#include "guest/out.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

const char *upload_name(const char *from)
{
    const char *root = guest_root_path();
    size_t n = strlen(root);
    if (strncmp(from, root, n) == 0 && from[n] == '/')
        from += n + 1;
    bool plain = *from && !strchr(from, '/') && strcmp(from, ".") != 0 && strcmp(from, "..") != 0;
    return plain && strncmp(from, "guest-", 6) != 0 ? from : NULL;
}

static bool file_failed(struct guest_fail *f, int err, const char *text)
{
    return guest_failed(f, err == ENOSPC || err == EDQUOT ? SG_WF_NO_SPACE : SG_WF_FILE, err, text);
}

/* mkdir -p for the directories before the last part of path. */
static bool make_parents(const char *path, mode_t mask)
{
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (char *p = part + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        if (mkdir(part, 0777 & ~mask) && errno != EEXIST) {
            struct stat st; /* a read-only or foreign parent that is there already is fine */
            int err = errno;
            if (stat(part, &st) || !S_ISDIR(st.st_mode)) {
                errno = err;
                return false;
            }
        }
        *p = '/';
    }
    return true;
}

struct commit {
    const struct guest_root *root;
    const struct guest_args *a;
    const char *from;      /* name below the root */
    int fd;                /* the upload, open for reading */
    char target[PATH_MAX]; /* links of an existing target resolved: a link keeps being one */
    bool exists;
    struct stat old;
};

static bool look_at_target(struct commit *c, struct guest_fail *f)
{
    snprintf(c->target, sizeof c->target, "%s", c->a->to);
    size_t n = strlen(c->target);
    if (c->target[n - 1] == '/')
        return file_failed(f, EISDIR, "the path ends in a slash");
    if (stat(c->target, &c->old) == 0) {
        c->exists = true;
        if (S_ISDIR(c->old.st_mode))
            return file_failed(f, EISDIR, "the target is a directory");
        if (c->a->exclusive)
            return file_failed(f, EEXIST, "the file exists");
        if (!S_ISREG(c->old.st_mode))
            return file_failed(f, EINVAL, "the target is not a regular file");
        char resolved[PATH_MAX];
        if (!realpath(c->a->to, resolved))
            return file_failed(f, errno, "the target");
        memcpy(c->target, resolved, sizeof resolved);
        return true;
    }
    if (errno != ENOENT)
        return file_failed(f, errno, "the target");
    return true;
}

static bool set_attributes(const struct commit *c, int fd, mode_t mask)
{
    mode_t mode = c->a->mode >= 0 ? (mode_t)c->a->mode : c->exists ? c->old.st_mode & 07777 : 0644 & ~mask;
    if (geteuid() == 0) {
        uid_t uid = c->exists ? c->old.st_uid : 0;
        gid_t gid = c->exists ? c->old.st_gid : 0;
        if (fchown(fd, uid, gid))
            return false;
    }
    return fchmod(fd, mode) == 0;
}

static bool put_in_place(int dir, const char *name, const char *target, bool exclusive)
{
    if (!exclusive)
        return renameat(dir, name, AT_FDCWD, target) == 0;
    if (libc_rename_new(dir, name, AT_FDCWD, target) == 0)
        return true;
    if (errno != EINVAL && errno != ENOSYS)
        return false;
    return linkat(dir, name, AT_FDCWD, target, 0) == 0 && (unlinkat(dir, name, 0) == 0 || errno == ENOENT);
}

/* The target lies on another file system: a copy beside it takes the upload's part. */
static bool copy_over(struct commit *c, mode_t mask)
{
    char beside[PATH_MAX + 64];
    const char *slash = strrchr(c->target, '/');
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    snprintf(beside, sizeof beside, "%.*s.sandgate-%d-%lx", slash ? (int)(slash + 1 - c->target) : 0,
             c->target, (int)getpid(), (unsigned long)t.tv_nsec);
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool ok = lseek(c->fd, 0, SEEK_SET) == 0 && fs_copy_bytes(c->fd, fd) && set_attributes(c, fd, mask) &&
              fsync(fd) == 0;
    ok = close(fd) == 0 && ok;
    ok = ok && put_in_place(AT_FDCWD, beside, c->target, c->a->exclusive);
    if (!ok) {
        int err = errno;
        unlink(beside);
        errno = err;
    }
    return ok;
}

static bool commit(struct commit *c, mode_t mask, struct guest_fail *f)
{
    struct stat st;
    c->fd = guest_open_file(c->root->fd, c->from);
    if (c->fd < 0 || fstat(c->fd, &st))
        return file_failed(f, errno, "the upload");
    if (c->a->has_size && (uint64_t)st.st_size != c->a->size)
        return guest_failed(f, SG_WF_FILE, EBADMSG, "the upload is not of the announced size");
    if (c->a->parents && !make_parents(c->a->to, mask))
        return file_failed(f, errno, "making the parent directories");
    if (!look_at_target(c, f))
        return false;
    if (!set_attributes(c, c->fd, mask) || fsync(c->fd))
        return file_failed(f, errno, "the upload");
    if (put_in_place(c->root->fd, c->from, c->target, c->a->exclusive))
        return true;
    if (errno == EXDEV && copy_over(c, mask)) {
        unlinkat(c->root->fd, c->from, 0);
        return true;
    }
    return file_failed(f, errno, "putting the file in its place");
}

bool act_commit(const struct guest_root *root, const struct guest_args *a, mode_t mask, struct guest_fail *f)
{
    struct commit c = {.root = root, .a = a, .from = upload_name(a->from), .fd = -1};
    if (!c.from)
        return guest_failed(f, SG_WF_USAGE, 0, "bad value of --from");
    bool ok = commit(&c, mask, f);
    if (c.fd >= 0)
        close(c.fd);
    if (!ok)
        unlinkat(root->fd, c.from, 0);
    else
        out_kind(SG_WIRE_OK, c.exists ? "replaced" : "created");
    return ok;
}

int upload_open(const struct guest_root *root, const char *from, struct guest_fail *f)
{
    const char *name = upload_name(from);
    if (!name) {
        guest_failed(f, SG_WF_USAGE, 0, "bad value of --from");
        return -1;
    }
    int fd = guest_open_file(root->fd, name);
    if (fd < 0)
        file_failed(f, errno, "the upload");
    return fd;
}

void upload_unlink(const struct guest_root *root, const char *from)
{
    const char *name = upload_name(from);
    if (name)
        (void)unlinkat(root->fd, name, 0);
}

bool upload_read(const struct guest_root *root, const char *name, size_t max, unsigned char **data,
                 size_t *len, struct guest_fail *f)
{
    struct stat st;
    int fd = guest_open_file(root->fd, name);
    *data = NULL;
    *len = 0;
    if (fd < 0)
        return file_failed(f, errno, "the upload");
    bool ok = fstat(fd, &st) == 0 || file_failed(f, errno, "the upload");
    if (ok && (st.st_size < 0 || (uint64_t)st.st_size > max))
        ok = file_failed(f, EFBIG, "the upload");
    size_t size = ok ? (size_t)st.st_size : 0;
    if (size && !(*data = malloc(size)))
        ok = guest_failed(f, SG_WF_INTERNAL, ENOMEM, "no memory");
    while (ok && *len < size) {
        ssize_t n = pread(fd, *data + *len, size - *len, (off_t)*len);
        if (n > 0)
            *len += (size_t)n;
        else if (n == 0)
            ok = file_failed(f, EIO, "the upload became shorter");
        else if (errno != EINTR)
            ok = file_failed(f, errno, "the upload");
    }
    close(fd);
    if (!ok) {
        free(*data);
        *data = NULL;
    }
    return ok;
}

bool act_unlink_upload(const struct guest_root *root, const struct guest_args *a, struct guest_fail *f)
{
    const char *name = upload_name(a->from);
    if (!name)
        return guest_failed(f, SG_WF_USAGE, 0, "bad value of --from");
    if (unlinkat(root->fd, name, 0) && errno != ENOENT)
        return file_failed(f, errno, "the upload");
    out_kind(SG_WIRE_OK, NULL);
    return true;
}
