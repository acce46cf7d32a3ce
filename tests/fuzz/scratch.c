#include "scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOBODY = 65534, FILE_MAX = 256 << 10 };

static char top_path[] = "/tmp/sandgate-fuzz-XXXXXX";
static int top = -1, in = -1, outside = -1, home = -1;
static struct stat canary;
static struct rlimit wide;
static pid_t owner;

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    perror(what);
    __builtin_trap();
}

static void empty(int dir, bool checked);

static void remove_entry(int dir, const char *name, bool checked)
{
    struct stat sb;
    must(fstatat(dir, name, &sb, AT_SYMLINK_NOFOLLOW) == 0, name);
    bool known = S_ISREG(sb.st_mode) || S_ISDIR(sb.st_mode) || S_ISLNK(sb.st_mode);
    must(known || !checked, "a file of another kind");
    if (S_ISDIR(sb.st_mode)) {
        (void)fchmodat(dir, name, 0700, 0);
        int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        must(fd >= 0, "open a directory");
        empty(fd, checked);
        close(fd);
    }
    must(unlinkat(dir, name, S_ISDIR(sb.st_mode) ? AT_REMOVEDIR : 0) == 0, "remove");
}

static void empty(int dir, bool checked)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    must(d != NULL, "list");
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            remove_entry(dir, e->d_name, checked);
    closedir(d);
}

static void clean_up(void)
{
    if (getpid() != owner || top < 0)
        return;
    empty(top, false);
    rmdir(top_path);
}

static int make_dir(const char *name)
{
    must(mkdirat(top, name, 0777) == 0 && fchmodat(top, name, 0777, 0) == 0, name);
    return openat(top, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

void scratch_make(void)
{
    must(mkdtemp(top_path) != NULL, "scratch");
    owner = getpid();
    atexit(clean_up);
    top = open(top_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    home = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    must(top >= 0 && home >= 0 && fchmod(top, 0777) == 0, "scratch");
    outside = make_dir("outside");
    int fd = openat(outside, "canary", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    must(fd >= 0 && write(fd, "sings", 5) == 5 && fchmod(fd, 0666) == 0, "canary");
    if (geteuid() == 0)
        must(fchown(fd, NOBODY, NOBODY) == 0 && fchown(outside, NOBODY, NOBODY) == 0, "canary");
    must(fstat(fd, &canary) == 0, "canary");
    close(fd);
    in = make_dir("in");
    if (geteuid() == 0)
        must(fchown(in, NOBODY, NOBODY) == 0, "in");
    must(getrlimit(RLIMIT_FSIZE, &wide) == 0, "limit");
}

int scratch_enter(void)
{
    struct rlimit narrow = {.rlim_cur = FILE_MAX, .rlim_max = wide.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN); /* here, after the fuzzer has set its own handlers */
    must(fchdir(in) == 0 && setrlimit(RLIMIT_FSIZE, &narrow) == 0, "enter");
    if (geteuid() == 0) {
        (void)setfsgid(NOBODY);
        (void)setfsuid(NOBODY);
    }
    return in;
}

void scratch_leave(void)
{
    (void)setfsuid(geteuid());
    (void)setfsgid(getegid());
    must(setrlimit(RLIMIT_FSIZE, &wide) == 0 && fchdir(home) == 0, "leave");
}

static unsigned count(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    unsigned n = 0;
    must(d != NULL, "list");
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n - 2;
}

void scratch_check(void)
{
    struct stat sb;
    must(count(top) == 2 && count(outside) == 1, "something is outside");
    must(fstatat(outside, "canary", &sb, AT_SYMLINK_NOFOLLOW) == 0 && sb.st_ino == canary.st_ino &&
             sb.st_mode == canary.st_mode && sb.st_nlink == 1 && sb.st_uid == canary.st_uid &&
             sb.st_size == canary.st_size && sb.st_mtim.tv_sec == canary.st_mtim.tv_sec &&
             sb.st_mtim.tv_nsec == canary.st_mtim.tv_nsec,
         "what is outside has changed");
    must(fstat(outside, &sb) == 0 && (sb.st_mode & 07777) == 0777, "the directory outside has changed");
    (void)fchmod(in, 0777);
    empty(in, true);
}

bool scratch_holds(int fd)
{
    char link[64], path[PATH_MAX], inside[64];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int n = snprintf(inside, sizeof inside, "%s/in", top_path);
    ssize_t len = readlink(link, path, sizeof path - 1);
    must(n > 0 && len > 0, "name of a descriptor");
    path[len] = '\0';
    return !strncmp(path, inside, (size_t)n) && (path[n] == '/' || path[n] == '\0');
}
