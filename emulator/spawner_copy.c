/* Copying a tree that programs may be changing at this moment: what is there is taken, what vanished on the way
 * is left out, and no name leads out of the source (every step is one component, no link is followed). */
#include "emulator/agent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 512, ENTRIES_MAX = 4000000, LINKS_MAX = 1 << 16 };

/* A file with several names that has been copied under one of them. */
struct link {
    dev_t dev;
    ino_t ino;
    char *path; /* below the target */
};

struct copy {
    int top;     /* the target */
    bool owners; /* keep them */
    uint64_t entries, bytes;
    char path[PATH_MAX]; /* of the entry at hand, below the target */
    size_t len;
    struct link *links; /* open addressing, LINKS_MAX places */
    size_t n_links;
};

static struct link *find_link(struct copy *c, const struct stat *sb)
{
    if (c->links == NULL && (c->links = calloc(LINKS_MAX, sizeof *c->links)) == NULL)
        return NULL;
    size_t i = ((size_t)sb->st_ino * 0x9E3779B1U) % LINKS_MAX;
    while (c->links[i].path != NULL && (c->links[i].ino != sb->st_ino || c->links[i].dev != sb->st_dev))
        i = (i + 1) % LINKS_MAX;
    return &c->links[i];
}

/* True when the entry became another name of a file that is there already. */
static bool link_known(struct copy *c, const struct stat *sb)
{
    if (sb->st_nlink < 2)
        return false;
    struct link *l = find_link(c, sb);
    return l != NULL && l->path != NULL && linkat(c->top, l->path, c->top, c->path, 0) == 0;
}

/* Later names become copies of their own when there is no room to remember this one. */
static void remember(struct copy *c, const struct stat *sb)
{
    if (sb->st_nlink < 2 || c->n_links >= LINKS_MAX / 2)
        return;
    struct link *l = find_link(c, sb);
    if (l == NULL || l->path != NULL || (l->path = strdup(c->path)) == NULL)
        return;
    l->dev = sb->st_dev;
    l->ino = sb->st_ino;
    c->n_links++;
}

static int copy_bytes(int in, int out, uint64_t size, uint64_t *done)
{
    uint64_t left = size; /* as it was when we looked: a file that grows must not keep us */
    while (left > 0) {
        size_t want = left < (1U << 30) ? (size_t)left : 1U << 30;
        ssize_t n = copy_file_range(in, NULL, out, NULL, want, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        if (n == 0)
            break;
        left -= (uint64_t)n;
        *done += (uint64_t)n;
    }
    return 0;
}

/* Owner, mode and time, in the order in which none undoes another. */
static int dress(const struct copy *c, int fd, const struct stat *sb)
{
    struct timespec times[2] = {sb->st_atim, sb->st_mtim};
    if (c->owners && fchown(fd, sb->st_uid, sb->st_gid) != 0)
        return errno;
    if (fchmod(fd, sb->st_mode & 07777) != 0 || futimens(fd, times) != 0)
        return errno;
    return 0;
}

static int copy_file(struct copy *c, int from, int to, const char *name)
{
    struct stat sb;
    int in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (in < 0)
        return errno;
    int out = -1;
    int e = fstat(in, &sb) != 0 ? errno : !S_ISREG(sb.st_mode) ? ENOENT : 0;
    if (e == 0 && !link_known(c, &sb)) {
        out = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        e = out < 0 ? errno : copy_bytes(in, out, (uint64_t)sb.st_size, &c->bytes);
        if (e == 0)
            e = dress(c, out, &sb);
        if (e == 0)
            remember(c, &sb);
    }
    box_fd_close(&in);
    box_fd_close(&out);
    return e;
}

static int copy_link(struct copy *c, int from, int to, const char *name, const struct stat *sb)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(from, name, target, sizeof target - 1);
    if (n < 0)
        return errno;
    target[n] = '\0';
    if (symlinkat(target, to, name) != 0)
        return errno;
    return c->owners && fchownat(to, name, sb->st_uid, sb->st_gid, AT_SYMLINK_NOFOLLOW) != 0 ? errno : 0;
}

static int copy_dir(struct copy *c, int from, int to, int depth);

static int enter_dir(struct copy *c, int from, int to, const char *name, int depth)
{
    struct stat sb;
    if (depth >= DEPTH_MAX)
        return ENAMETOOLONG;
    int in = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (in < 0)
        return errno;
    int out = -1;
    int e = fstat(in, &sb) != 0 || mkdirat(to, name, 0700) != 0 ? errno : 0;
    if (e == 0 && (out = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
        e = errno;
    if (e == 0)
        e = copy_dir(c, in, out, depth + 1);
    if (e == 0)
        e = dress(c, out, &sb);
    box_fd_close(&in);
    box_fd_close(&out);
    return e;
}

static int copy_entry(struct copy *c, int from, int to, const char *name, int depth)
{
    struct stat sb;
    if (++c->entries > ENTRIES_MAX)
        return E2BIG;
    if (fstatat(from, name, &sb, AT_SYMLINK_NOFOLLOW) != 0)
        return errno;
    if (S_ISDIR(sb.st_mode))
        return enter_dir(c, from, to, name, depth);
    if (S_ISREG(sb.st_mode))
        return copy_file(c, from, to, name);
    if (S_ISLNK(sb.st_mode))
        return copy_link(c, from, to, name, &sb);
    if (S_ISFIFO(sb.st_mode))
        return mkfifoat(to, name, sb.st_mode & 0777) != 0 ? errno : 0;
    return 0; /* a socket means nothing without its process */
}

static int copy_dir(struct copy *c, int from, int to, int depth)
{
    int fd = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL) {
        int e = errno;
        box_fd_close(&fd);
        return e;
    }
    int e = 0;
    size_t len = c->len;
    for (const struct dirent *entry; e == 0 && (entry = readdir(d)) != NULL;) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        int n = snprintf(c->path + len, sizeof c->path - len, "%s%s", len > 0 ? "/" : "", name);
        if (n < 0 || (size_t)n >= sizeof c->path - len) {
            e = ENAMETOOLONG;
            break;
        }
        c->len = len + (size_t)n;
        e = copy_entry(c, from, to, name, depth);
        if (e == ENOENT)
            e = 0; /* gone meanwhile, or replaced */
        c->len = len;
        c->path[len] = '\0';
    }
    closedir(d);
    return e;
}

void helper_copy(struct box_msg *m, bool owners, int target, int source)
{
    static struct copy c;
    c.top = target;
    c.owners = owners;
    umask(0);
    int e = copy_dir(&c, source, target, 0);
    m->count = c.entries;
    m->bytes = c.bytes;
    if (e != 0)
        box_msg_text(m, e, "cannot copy the tree: %s", strerror(e));
}
