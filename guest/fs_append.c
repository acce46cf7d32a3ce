/* An upload behind the end of a file. */
#include "guest/fs.h"
#include "guest/fs_put.h"

#include "guest/files.h"
#include "guest/out.h"
#include "guest/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

/* The file; *made: it was not there.  -1 with fs->f. */
static int open_target(struct fs *fs, bool *made)
{
    const int flags = O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY;
    const char *path = fs->a->path;
    struct stat st;
    mode_t mode = fs->a->mode >= 0 ? 0600 : 0666;
    *made = false;
    int fd = fs_open(fs, path, flags, 0);
    if (fd < 0 && errno == ENOENT) {
        if (fs->a->parents && !fs_make_parents(fs, fs->a->path)) {
            (void)fs_failed(fs, "making the parent directories");
            return -1;
        }
        fd = fs_open(fs, path, flags | O_CREAT | O_EXCL, mode);
        *made = fd >= 0;
        if (fd < 0 && errno == EEXIST) /* meanwhile, or a link that leads nowhere yet */
            fd = fs_open(fs, path, flags | O_CREAT, mode);
    }
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        if (fd >= 0)
            errno = EINVAL;
        fs_close(fd);
        (void)fs_failed(fs, "the file");
        return -1;
    }
    return fd;
}

/* All of it or nothing: another append waits for the lock.  The upload's name goes before the first byte is written: who
 * is asked again, because we were killed and could not say anything, must not write it once more. */
static bool append(struct fs *fs, const struct guest_root *store, int from, int fd, bool made)
{
    struct stat st;
    if (!fs_lock(fs, fd, UINT64_MAX) || fstat(fd, &st))
        return fs_failed(fs, "appending");
    if (fs->a->has_offset && (uint64_t)st.st_size != fs->a->offset)
        return guest_failed(fs->f, SG_WF_STALE, 0, "the file is of another size");
    upload_unlink(store, fs->a->upload);
    if ((made && fs->a->mode >= 0 && fchmod(fd, (mode_t)fs->a->mode)) || !fs_copy_bytes(from, fd) ||
        fsync(fd)) {
        int err = errno;
        (void)!ftruncate(fd, st.st_size);
        errno = err;
        return fs_failed(fs, "appending");
    }
    return true;
}

static void remove_again(struct fs *fs, int fd)
{
    struct fs_place p;
    struct stat mine, there;
    if (fs_place(fs, fs->a->path, &p) && fstat(fd, &mine) == 0 && mine.st_size == 0 &&
        fstatat(p.dir, p.name, &there, AT_SYMLINK_NOFOLLOW) == 0 && mine.st_dev == there.st_dev &&
        mine.st_ino == there.st_ino)
        (void)unlinkat(p.dir, p.name, 0);
    fs_place_close(&p);
}

bool fs_append(struct fs *fs)
{
    struct guest_root store = {.fd = -1};
    struct stat st;
    const char *name = upload_name(fs->a->upload);
    bool made = false;
    int fd = -1;
    if (!name)
        return guest_failed(fs->f, SG_WF_USAGE, 0, "bad value of --from");
    if (!root_open(&store, false, fs->f))
        return false;
    sweep_stale(&store);
    int from = fs_upload_lock(fs, &store, name);
    bool ok = from >= 0 && fs_upload_check(fs, from) && (fd = open_target(fs, &made)) >= 0;
    ok = ok && append(fs, &store, from, fd, made) && (fstat(fd, &st) == 0 || fs_failed(fs, "appending"));
    if (!ok && made)
        remove_again(fs, fd);
    upload_unlink(&store, fs->a->upload); /* when it did not come so far */
    fs_upload_forget(&store, name);
    if (ok) {
        char size[24];
        snprintf(size, sizeof size, "%" PRIu64, (uint64_t)st.st_size);
        fs_print(&st, "", -1, NULL);
        out_kind(SG_WIRE_OK, size);
    }
    fs_close(fd);
    fs_close(from);
    close(store.fd);
    return ok;
}
