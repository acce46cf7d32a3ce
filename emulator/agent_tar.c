/* Unpacking of foreign archives into the current directory. */
#include "emulator/agent.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int fail(struct agent_tar *t, int error, const char *entry, const char *why)
{
    snprintf(t->err, sizeof t->err, "%.120s%s%.120s", entry != NULL ? entry : "", entry != NULL ? ": " : "",
             why != NULL ? why : strerror(error));
    return error;
}

static int fail_archive(struct agent_tar *t, struct archive *a, const char *entry)
{
    int e = archive_errno(a);
    return fail(t, e > 0 && e < 4096 ? e : EINVAL, entry, archive_error_string(a));
}

/* The name without one leading slash, or NULL when it is absolute still, empty, or climbs. */
static const char *inside(const char *name)
{
    if (name == NULL)
        return NULL;
    if (name[0] == '/')
        name++;
    if (name[0] == '/')
        return NULL;
    if (name[0] == '\0')
        return ".";
    for (const char *p = name; *p != '\0';) {
        size_t n = strcspn(p, "/");
        if (n == 2 && p[0] == '.' && p[1] == '.')
            return NULL;
        p += n;
        p += strspn(p, "/");
    }
    return name;
}

static int copy_data(struct agent_tar *t, struct archive *from, struct archive *to, const char *name)
{
    for (;;) {
        const void *block;
        size_t n;
        la_int64_t at;
        int r = archive_read_data_block(from, &block, &n, &at);
        if (r == ARCHIVE_EOF)
            return 0;
        if (r != ARCHIVE_OK)
            return fail_archive(t, from, name);
        if (archive_write_data_block(to, block, n, at) < ARCHIVE_OK)
            return fail_archive(t, to, name);
        t->bytes += n;
    }
}

enum verdict { TAKE, SKIP, REFUSE };

static enum verdict judge(const struct agent_tar *t, struct archive_entry *e, const char *name)
{
    struct stat sb;
    if (archive_entry_hardlink(e) != NULL)
        return TAKE;
    switch (archive_entry_filetype(e)) {
    case AE_IFREG:
    case AE_IFLNK:
        return TAKE;
    case AE_IFDIR:
        /* The directory we are in is the caller's: whoever owned it elsewhere shall not own it here. */
        if (name[strspn(name, "./")] == '\0')
            return SKIP;
        /* A directory that is there keeps its mode and owner; often it is not the user's to change. */
        return !t->as_root && lstat(name, &sb) == 0 && S_ISDIR(sb.st_mode) ? SKIP : TAKE;
    case AE_IFIFO:
        return t->as_root ? TAKE : REFUSE;
    default:
        return t->as_root ? SKIP : REFUSE;
    }
}

/* The library would change the mode of what the link leads to, wherever that is: such an entry becomes a symbolic
 * link of its own.  Ways through other symbolic links and to nothing are the library's to refuse. */
static int hardlink_to_symlink(struct archive_entry *e, const char *link)
{
    char target[PATH_MAX];
    struct open_how how = {.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
    int fd = (int)syscall(SYS_openat2, AT_FDCWD, link, &how, sizeof how);
    if (fd < 0)
        return errno == ELOOP || errno == ENOENT || errno == ENOTDIR || errno == EACCES ||
                       errno == ENAMETOOLONG
                   ? 0
                   : errno;
    struct stat sb;
    int err = fstat(fd, &sb) != 0 ? errno : 0;
    if (err == 0 && S_ISLNK(sb.st_mode)) {
        ssize_t n = readlinkat(fd, "", target, sizeof target - 1);
        if (n < 0) {
            err = errno;
        } else {
            target[n] = '\0';
            archive_entry_set_hardlink(e, NULL);
            archive_entry_set_filetype(e, AE_IFLNK);
            archive_entry_set_symlink(e, target);
            archive_entry_set_size(e, 0);
        }
    }
    close(fd);
    return err;
}

static int take_entry(struct agent_tar *t, struct archive *from, struct archive *to, struct archive_entry *e)
{
    const char *raw = archive_entry_pathname(e);
    const char *name = inside(raw);
    char shown[128];
    box_text_copy(shown, sizeof shown, raw != NULL ? raw : "(unreadable name)");
    if (name == NULL)
        return fail(t, EINVAL, shown, "the name leads out of the directory");
    if (archive_entry_hardlink(e) != NULL) {
        const char *link = inside(archive_entry_hardlink(e));
        if (link == NULL)
            return fail(t, EINVAL, shown, "the hard link leads out of the directory");
        if (link != archive_entry_hardlink(e)) {
            char *copy = strdup(link);
            if (copy == NULL)
                return fail(t, ENOMEM, shown, NULL);
            archive_entry_set_hardlink(e, copy);
            free(copy);
        }
        int err = hardlink_to_symlink(e, archive_entry_hardlink(e));
        if (err != 0)
            return fail(t, err, shown, NULL);
    }
    switch (judge(t, e, name)) {
    case REFUSE:
        return fail(t, EINVAL, shown, "only files, directories and links can be unpacked");
    case SKIP:
        t->skipped += archive_entry_filetype(e) != AE_IFDIR;
        return 0;
    case TAKE:
    default:
        break;
    }
    if (name != raw) {
        char *copy = strdup(name);
        if (copy == NULL)
            return fail(t, ENOMEM, shown, NULL);
        archive_entry_set_pathname(e, copy);
        free(copy);
    }
    /* Not archive_read_extract(): that turns a refused header into a warning. */
    if (archive_write_header(to, e) != ARCHIVE_OK)
        return fail_archive(t, to, shown);
    int r = archive_entry_size_is_set(e) && archive_entry_size(e) == 0 ? 0 : copy_data(t, from, to, shown);
    if (r != 0)
        return r;
    if (archive_write_finish_entry(to) != ARCHIVE_OK)
        return fail_archive(t, to, shown);
    t->files++;
    return 0;
}

static int64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int all_entries(struct agent_tar *t, struct archive *from, struct archive *to)
{
    int64_t told = now_ms();
    for (;;) {
        struct archive_entry *e;
        int r = archive_read_next_header(from, &e);
        if (r == ARCHIVE_EOF)
            return 0;
        if (r != ARCHIVE_OK && r != ARCHIVE_WARN)
            return fail_archive(t, from, NULL);
        int err = take_entry(t, from, to, e);
        if (err != 0)
            return err;
        if (t->progress != NULL && now_ms() - told >= 500) {
            told = now_ms();
            t->progress(t);
        }
    }
}

/* The sender may still be writing padding: let it finish. */
static void drain(int fd)
{
    char sink[16384];
    ssize_t n;
    do
        n = read(fd, sink, sizeof sink);
    while (n > 0 || (n < 0 && errno == EINTR));
}

int agent_untar(struct agent_tar *t, int fd)
{
    int flags = ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_SECURE_SYMLINKS |
                ARCHIVE_EXTRACT_SECURE_NODOTDOT | ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS;
    if (t->as_root && !t->no_owners)
        flags |= ARCHIVE_EXTRACT_OWNER;
    int e = 0;
    struct archive *from = archive_read_new();
    struct archive *to = archive_write_disk_new();
    if (from == NULL || to == NULL) {
        e = fail(t, ENOMEM, NULL, NULL);
        goto out;
    }
    if (archive_read_support_filter_gzip(from) != ARCHIVE_OK ||
        (t->as_root && (archive_read_support_filter_xz(from) != ARCHIVE_OK ||
                        archive_read_support_filter_zstd(from) != ARCHIVE_OK)) ||
        archive_read_support_format_tar(from) != ARCHIVE_OK ||
        archive_write_disk_set_options(to, flags) != ARCHIVE_OK) {
        e = fail(t, ENOSYS, NULL, "the archive library lacks a format");
        goto out;
    }
    if (archive_read_open_fd(from, fd, 65536) != ARCHIVE_OK) {
        e = fail_archive(t, from, NULL);
        goto out;
    }
    e = all_entries(t, from, to);
    if (archive_write_close(to) < ARCHIVE_WARN && e == 0)
        e = fail_archive(t, to, NULL);
    if (e == 0)
        drain(fd);
out:
    if (to != NULL)
        archive_write_free(to);
    if (from != NULL)
        archive_read_free(from);
    return e;
}
