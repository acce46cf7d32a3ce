/* The plain tier: no isolation.  Programs run on the host as the emulator's user; only paths that come through
 * the API are resolved below the root directory of the session. */
#include "emulator/agent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DEPTH_MAX = 256, END_ROUNDS = 1000 };

int agent_plain_open(int root, const char *path, int flags)
{
    struct open_how how = {.flags = (unsigned)flags | (unsigned)O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

int agent_plain_chdir(int root, const char *path)
{
    int fd = agent_plain_open(root, path, O_PATH | O_DIRECTORY);
    if (fd < 0)
        return errno;
    int e = fchdir(fd) != 0 ? errno : 0;
    close(fd);
    return e;
}

int agent_plain_join(const char *cwd, const char *path, char out[PATH_MAX])
{
    int n =
        path[0] == '/' ? snprintf(out, PATH_MAX, "%s", path) : snprintf(out, PATH_MAX, "%s/%s", cwd, path);
    return n < 0 || n >= PATH_MAX ? ENAMETOOLONG : 0;
}

static int make_below(int root, char *path, const char *name, bool may_exist)
{
    int parent = agent_plain_open(root, path, O_PATH | O_DIRECTORY);
    if (parent < 0)
        return errno;
    int e = mkdirat(parent, name, 0777) != 0 ? errno : 0;
    struct stat sb;
    if (e == EEXIST && may_exist && fstatat(parent, name, &sb, 0) == 0 && S_ISDIR(sb.st_mode))
        e = 0;
    close(parent);
    return e;
}

int agent_plain_mkdir(int root, const char *path, bool recursive)
{
    char p[PATH_MAX];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof p)
        return n == 0 ? ENOENT : ENAMETOOLONG;
    memcpy(p, path, n + 1);
    while (n > 1 && p[n - 1] == '/')
        p[--n] = '\0';
    char *slash = strrchr(p, '/');
    if (slash == NULL)
        return EINVAL; /* the caller joins */
    const char *name = slash + 1;
    if (name[0] == '\0')
        return recursive ? 0 : EEXIST; /* the root itself */
    *slash = '\0';
    if (recursive && p[0] != '\0') {
        int e = agent_plain_mkdir(root, p, true);
        if (e != 0)
            return e == EEXIST ? ENOTDIR : e;
    }
    char top[] = "/";
    return make_below(root, p[0] != '\0' ? p : top, name, recursive);
}

/* --- copying a snapshot --- */

static int copy_tree(int from, int to, int depth);

static int copy_file(int from, int to, const char *name, mode_t mode)
{
    int in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int out = in < 0 ? -1 : openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int e = out < 0 ? errno : 0;
    while (e == 0) {
        ssize_t n = copy_file_range(in, NULL, out, NULL, (size_t)1 << 30, 0);
        if (n < 0)
            e = errno;
        if (n <= 0)
            break;
    }
    if (e == 0 && fchmod(out, mode & 07777) != 0)
        e = errno;
    box_fd_close(&in);
    box_fd_close(&out);
    return e;
}

static int copy_link(int from, int to, const char *name)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(from, name, target, sizeof target - 1);
    if (n < 0)
        return errno;
    target[n] = '\0';
    return symlinkat(target, to, name) != 0 ? errno : 0;
}

static int copy_dir(int from, int to, const char *name, mode_t mode, int depth)
{
    if (mkdirat(to, name, 0700) != 0)
        return errno;
    int in = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int out = in < 0 ? -1 : openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int e = out < 0 ? errno : copy_tree(in, out, depth + 1);
    if (e == 0 && fchmod(out, mode & 07777) != 0)
        e = errno;
    box_fd_close(&in);
    box_fd_close(&out);
    return e;
}

static int copy_tree(int from, int to, int depth)
{
    if (depth > DEPTH_MAX)
        return ENAMETOOLONG;
    int fd = fcntl(from, F_DUPFD_CLOEXEC, 3);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL) {
        int e = errno;
        box_fd_close(&fd);
        return e;
    }
    int e = 0;
    for (const struct dirent *entry; e == 0 && (entry = readdir(d)) != NULL;) {
        const char *name = entry->d_name;
        struct stat sb;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        if (fstatat(from, name, &sb, AT_SYMLINK_NOFOLLOW) != 0)
            e = errno;
        else if (S_ISDIR(sb.st_mode))
            e = copy_dir(from, to, name, sb.st_mode, depth);
        else if (S_ISREG(sb.st_mode))
            e = copy_file(from, to, name, sb.st_mode);
        else if (S_ISLNK(sb.st_mode))
            e = copy_link(from, to, name);
    }
    closedir(d);
    return e;
}

static bool is_empty(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    bool empty = d != NULL;
    if (d == NULL)
        box_fd_close(&fd);
    for (const struct dirent *e; d != NULL && empty && (e = readdir(d)) != NULL;)
        empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
    if (d != NULL)
        closedir(d);
    return empty;
}

int agent_plain_setup(const struct agent_boot *b, const char **what)
{
    static const char *const DIRS[] = {"/vercel/sandbox", "/home/vercel-sandbox", "/tmp"};
    int root = b->identity.plain_root;
    int e = 0;
    /* Orphans come to us, so that the end of the session can find them. */
    *what = "become the reaper";
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
        return errno;
    *what = "copy the snapshot";
    if (b->layers->n_lower > 1 && is_empty(root)) {
        /* Every plain layer is complete: the topmost is all there is to see.  The last is the base: the host. */
        int from = open(b->layers->lower[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        e = from < 0 ? errno : copy_tree(from, root, 0);
        box_fd_close(&from);
    }
    *what = "create the directories of the user";
    umask(022);
    for (size_t i = 0; i < 3 && e == 0; i++)
        e = agent_plain_mkdir(root, DIRS[i], true);
    return e;
}

/* --- the end --- */

/* Kills the children we have now: signals reach grandchildren when they become ours. */
static void kill_children(void)
{
    char path[64];
    char buf[1024];
    DIR *d = opendir("/proc");
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] < '1' || e->d_name[0] > '9')
            continue;
        snprintf(path, sizeof path, "/proc/%.16s/stat", e->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof buf - 1);
        box_fd_close(&fd);
        if (n <= 0)
            continue;
        buf[n] = '\0';
        const char *p = strrchr(buf, ')'); /* ") S ppid" */
        if (p != NULL && strlen(p) > 4 && strtol(p + 4, NULL, 10) == getpid())
            (void)kill((pid_t)strtol(e->d_name, NULL, 10), SIGKILL);
    }
    if (d != NULL)
        closedir(d);
}

_Noreturn void agent_plain_end(void)
{
    const struct timespec nap = {.tv_nsec = 2000000};
    for (int i = 0; i < END_ROUNDS; i++) {
        kill_children();
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            ;
        if (pid < 0 && errno == ECHILD)
            break;
        nanosleep(&nap, NULL);
    }
    _exit(0);
}
