/* The parts of an upload become one file, each as soon as it is there.
 *
 * Parts lie at .up-<id>.<nonce>.<offset>, what they become at .up-<id>, which grows only behind its end: whatever stops
 * us, what is in it is the beginning of the upload.  .up-<id>.by says whose parts were joined last and from where on.
 * So the same join may be asked again, also after it was cut, and whoever else comes with another offset than the end
 * is refused.  The lock is that of the file, and counts as long as it has its name. */
#include "guest/fs.h"
#include "guest/fs_put.h"
#include "guest/fs_upload.h"

#include "base/core/num.h"
#include "guest/out.h"
#include "guest/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PARTS_MAX = 4096, LOCK_TRIES = 100, BY_MAX = 64 };

struct join {
    struct fs *fs;
    struct guest_root store;
    struct upload_names names;
    int fd; /* what they become, locked */
    uint64_t size;
    uint64_t parts[PARTS_MAX]; /* offsets, sorted */
    size_t n;
};

static bool goes_on_at(struct join *j, uint64_t size)
{
    return upload_offset_failed(j->fs, size);
}

static void part_name(const struct join *j, uint64_t offset, char out[FS_UPLOAD_NAME_MAX])
{
    snprintf(out, FS_UPLOAD_NAME_MAX, ".up-%.*s.%.*s.%" PRIu64, FS_ID_MAX, j->fs->a->id, FS_ID_MAX,
             j->fs->a->nonce, offset);
}

/* ---- the file ---- */

/* The first part becomes the file; -1 with errno. */
static int begin(struct join *j)
{
    char name[FS_UPLOAD_NAME_MAX];
    part_name(j, 0, name);
    int fd = guest_open_file(j->store.fd, name);
    if (fd < 0)
        return -1;
    close(fd);
    return openat(j->store.fd, j->names.joined, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

static bool has_its_name(struct join *j)
{
    struct stat mine, there;
    bool ok = fstat(j->fd, &mine) == 0 && S_ISREG(mine.st_mode) &&
              fstatat(j->store.fd, j->names.joined, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
              mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
    j->size = ok ? (uint64_t)mine.st_size : 0;
    return ok;
}

/* Opens what the parts become and waits for its lock. */
static bool open_joined(struct join *j)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        j->fd = openat(j->store.fd, j->names.joined, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (j->fd < 0 && errno == ENOENT && j->fs->a->offset == 0) {
            j->fd = begin(j);
            if (j->fd < 0 && errno == EEXIST)
                continue;
            if (j->fd >= 0 && !root_own(&j->store, j->fd))
                return fs_failed(j->fs, "the upload");
        }
        if (j->fd < 0)
            return errno == ENOENT ? goes_on_at(j, 0) : fs_failed(j->fs, "the upload");
        if (!fs_lock(j->fs, j->fd, UINT64_MAX))
            return fs_failed(j->fs, "the upload");
        if (has_its_name(j))
            return true;
        close(j->fd);
        j->fd = -1;
    }
    return fs_refused(j->fs, EAGAIN, "the upload is not what it was");
}

/* ---- whose parts were joined last ---- */

/* "<nonce> <offset>" */
static bool is_by_us(struct join *j)
{
    char text[BY_MAX];
    size_t n = strlen(j->fs->a->nonce);
    long len = guest_read_file(j->store.fd, j->names.by, text, sizeof text);
    uint64_t from;
    return len > 0 && (size_t)len > n + 1 && strncmp(text, j->fs->a->nonce, n) == 0 && text[n] == ' ' &&
           sg_parse_u64(text + n + 1, (size_t)len - n - 1, INT64_MAX, &from) && j->fs->a->offset >= from;
}

static bool say_by_us(struct join *j)
{
    char text[BY_MAX];
    int n = snprintf(text, sizeof text, "%s %" PRIu64, j->fs->a->nonce, j->fs->a->offset);
    return upload_write(&j->store, j->names.by, text, (size_t)n, false, NULL) ||
           fs_failed(j->fs, "the upload");
}

/* ---- the parts ---- */

static bool take_name(void *arg, int dir, const char *name)
{
    struct join *j = arg;
    size_t n = strlen(j->names.joined), m = strlen(j->fs->a->nonce);
    uint64_t offset;
    (void)dir;
    if (strncmp(name, j->names.joined, n) != 0 || name[n] != '.' ||
        strncmp(name + n + 1, j->fs->a->nonce, m) != 0 || name[n + 1 + m] != '.')
        return true;
    const char *number = name + n + m + 2;
    if (!sg_parse_u64(number, strlen(number), INT64_MAX / 2, &offset) || (number[0] == '0' && number[1]))
        return true;
    j->parts[j->n++] = offset;
    return j->n < PARTS_MAX;
}

static int by_offset(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static bool find_parts(struct join *j)
{
    int fd = dir_open(j->store.fd, ".");
    errno = 0;
    if (fd < 0 || (!fs_each(fd, take_name, j) && errno))
        return fs_failed(j->fs, "looking for the parts");
    qsort(j->parts, j->n, sizeof *j->parts, by_offset);
    return true;
}

/* What the part has beyond the end is written there.  All of it or nothing. */
static bool append_part(struct join *j, int part, uint64_t skip)
{
    if (lseek(part, (off_t)skip, SEEK_SET) >= 0 && lseek(j->fd, (off_t)j->size, SEEK_SET) >= 0 &&
        fs_copy_bytes(part, j->fd))
        return true;
    int err = errno;
    (void)!ftruncate(j->fd, (off_t)j->size);
    return fs_refused(j->fs, err, "joining a part");
}

/* *joined: it continues the file, or did. */
static bool join_part(struct join *j, uint64_t offset, bool *joined)
{
    char name[FS_UPLOAD_NAME_MAX];
    struct stat st;
    part_name(j, offset, name);
    int fd = guest_open_file(j->store.fd, name);
    if (fd < 0 || fstat(fd, &st)) {
        fs_close(fd);
        return fs_failed(j->fs, "a part of the upload");
    }
    uint64_t end = offset + (uint64_t)st.st_size;
    *joined = offset <= j->size;
    bool ok = true;
    if (*joined && end > j->size) {
        ok = append_part(j, fd, j->size - offset);
        j->size = ok ? end : j->size;
    }
    close(fd);
    if (ok && *joined)
        (void)unlinkat(j->store.fd, name, 0);
    return ok;
}

/* An empty file gives way to the first part.  Its lock is taken before it has the name.  False: it can still be copied,
 * or that says what is wrong. */
static bool rename_first(struct join *j)
{
    char name[FS_UPLOAD_NAME_MAX];
    struct stat st;
    if (j->size > 0)
        return false;
    part_name(j, 0, name);
    int fd = openat(j->store.fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_nlink != 1 || !fs_lock(j->fs, fd, 0) ||
        renameat(j->store.fd, name, j->store.fd, j->names.joined)) {
        fs_close(fd);
        return false;
    }
    close(j->fd);
    j->fd = fd;
    j->size = (uint64_t)st.st_size;
    return true;
}

/* What lies behind the end that was asked for may be half a part: an attempt that was cut. */
static bool is_beyond(const struct join *j, uint64_t offset)
{
    const struct fs_args *a = j->fs->a;
    return a->has_size && offset >= a->size && offset > a->offset;
}

static bool join(struct join *j)
{
    uint64_t from = j->fs->a->offset;
    bool ours = is_by_us(j), joined = false;
    if (j->size < from || (j->size > from && !ours))
        return goes_on_at(j, j->size);
    if (!find_parts(j))
        return false;
    size_t i = 0;
    while (i < j->n && j->parts[i] < from)
        i++;
    if (!ours && (i == j->n || j->parts[i] != from))
        return goes_on_at(j, j->size);
    if (!ours && !say_by_us(j))
        return false;
    if (i < j->n && j->parts[i] == 0)
        joined = rename_first(j);
    for (i += joined; i < j->n; i++) {
        bool goes_on = false;
        if (is_beyond(j, j->parts[i]))
            break;
        if (!join_part(j, j->parts[i], &goes_on))
            return false;
        if (!goes_on)
            break;
        joined = true;
    }
    return joined || j->size > from || goes_on_at(j, j->size);
}

bool fs_join(struct fs *fs)
{
    static struct join j;
    j = (struct join){.fs = fs, .store = {.fd = -1}, .fd = -1};
    if (!root_open(&j.store, false, fs->f))
        return false;
    sweep_stale(&j.store);
    upload_names(fs->a->id, &j.names);
    bool ok = upload_may_grow(fs, &j.store, &j.names) && open_joined(&j) && join(&j);
    if (ok) {
        char word[24];
        snprintf(word, sizeof word, "%" PRIu64, j.size);
        out_kind(SG_WIRE_OK, word);
    }
    fs_close(j.fd);
    close(j.store.fd);
    return ok;
}
