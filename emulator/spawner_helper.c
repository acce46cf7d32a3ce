/* Helper processes: work on whole trees with the ids of a box, confined to one directory by chroot. */
#include "emulator/agent.h"
#include "emulator/box.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 64 };

struct walk {
    int top;        /* removal moves what lies too deep up here */
    uint64_t moved; /* directories moved so far */
    uint64_t files, bytes;
};

static DIR *open_walk(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == EACCES && fchmodat(parent, name, 0700, 0) == 0)
        fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    DIR *d = fdopendir(fd);
    if (d == NULL)
        box_fd_close(&fd);
    return d;
}

static bool dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static int empty(struct walk *w, int parent, const char *name, int depth);

/* However deep a tree is, it is removed with a bounded number of descriptors: what lies deep is moved up. */
static int lift(struct walk *w, int dir, const char *name)
{
    int e = EEXIST;
    for (int tries = 0; tries < 4096 && (e == EEXIST || e == ENOTEMPTY || e == ENOTDIR); tries++) {
        char flat[40];
        snprintf(flat, sizeof flat, ".sandgate-flat-%llu", (unsigned long long)w->moved++);
        e = renameat(dir, name, w->top, flat) != 0 ? errno : 0;
    }
    return e;
}

static int remove_one(struct walk *w, int dir, const char *name, int depth)
{
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    int e = errno;
    struct stat sb;
    if (fstatat(dir, name, &sb, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : errno;
    if (!S_ISDIR(sb.st_mode))
        return e;
    if (depth >= DEPTH_MAX)
        return lift(w, dir, name);
    e = empty(w, dir, name, depth + 1);
    if (e == 0 && unlinkat(dir, name, AT_REMOVEDIR) != 0)
        e = errno;
    return e;
}

static int empty(struct walk *w, int parent, const char *name, int depth)
{
    DIR *d = open_walk(parent, name);
    if (d == NULL)
        return errno;
    int e = 0;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(d);
        if (entry == NULL) {
            e = errno;
            break;
        }
        if (!dots(entry->d_name) && (e = remove_one(w, dirfd(d), entry->d_name, depth)) != 0)
            break;
    }
    closedir(d);
    return e;
}

static int remove_all(struct walk *w)
{
    uint64_t before;
    int e;
    do {
        before = w->moved;
        e = empty(w, w->top, ".", 0);
    } while (e == 0 && w->moved != before);
    return e;
}

static void add_up(struct walk *w, int parent, const char *name, int depth)
{
    DIR *d = open_walk(parent, name);
    if (d == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(d)) != NULL;) {
        struct stat sb;
        if (dots(entry->d_name) || fstatat(dirfd(d), entry->d_name, &sb, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        w->files++;
        if (S_ISREG(sb.st_mode))
            w->bytes += (uint64_t)sb.st_size / (sb.st_nlink > 0 ? sb.st_nlink : 1);
        else if (S_ISDIR(sb.st_mode) && depth < 4 * DEPTH_MAX)
            add_up(w, dirfd(d), entry->d_name, depth + 1);
    }
    closedir(d);
}

static void progress(struct agent_tar *t)
{
    static struct box_msg m;
    m.op = BOX_OP_PROGRESS;
    m.count = t->files;
    m.bytes = t->bytes;
    if (box_msg_send(*(int *)t->arg, &m, NULL, 0) != 0)
        _exit(1); /* nobody waits for the result */
}

/* Places where a box mounts something, so that a session need not change the image for it. */
static int mount_points(const char **what)
{
    static const char *const DIRS[] = {"proc", "dev", "run"};
    static const char *const FILES[] = {"etc/resolv.conf", "etc/hosts", "etc/hostname"};
    *what = "make mount points";
    for (size_t i = 0; i < 3; i++)
        if (mkdir(DIRS[i], 0755) != 0 && errno != EEXIST)
            return errno;
    for (size_t i = 0; i < 3; i++) {
        struct stat sb;
        if (lstat(FILES[i], &sb) == 0 && S_ISREG(sb.st_mode))
            continue;
        if (unlink(FILES[i]) != 0 && errno != ENOENT)
            return errno;
        int fd = open(FILES[i], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (fd < 0)
            return errno;
        close(fd);
    }
    return 0;
}

static void import(struct box_msg *m, bool single_id, int reply, int source)
{
    static struct agent_tar tar;
    const char *what = "";
    tar.as_root = true;
    tar.no_owners = single_id;
    tar.progress = progress;
    tar.arg = &reply;
    umask(0);
    int e = agent_untar(&tar, source);
    m->count = tar.files;
    m->bytes = tar.bytes;
    m->value = (int32_t)(tar.skipped < INT32_MAX ? tar.skipped : INT32_MAX);
    if (e != 0) {
        box_msg_text(m, e, "%s", tar.err);
        return;
    }
    if ((e = agent_prepare_root(single_id, &what)) != 0 || (e = mount_points(&what)) != 0)
        box_msg_text(m, e, "cannot %s: %s", what, strerror(e));
}

static int enter(bool user_ns, bool single_id, int dir)
{
    int e = user_ns && !single_id ? agent_set_ids(0, 0, false) : 0;
    if (e != 0)
        return e;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0)
        return errno;
    sigset_t none;
    sigemptyset(&none);
    if (sigprocmask(SIG_SETMASK, &none, NULL) != 0 || fchdir(dir) != 0)
        return errno;
    if (user_ns || geteuid() == 0)
        return chroot(".") != 0 || chdir("/") != 0 ? errno : 0;
    return 0;
}

void helper_run(enum box_helper_kind kind, bool user_ns, bool single_id, int reply, int dir, int source)
{
    static struct box_msg m;
    struct walk w = {.top = dir};
    m.op = BOX_OP_DONE;
    int e = enter(user_ns, single_id, dir);
    if (e != 0) {
        box_msg_text(&m, e, "cannot enter the directory: %s", strerror(e));
    } else if (kind == BOX_HELPER_IMPORT) {
        import(&m, single_id, reply, source);
    } else if (kind == BOX_HELPER_COPY) {
        helper_copy(&m, user_ns && !single_id, dir, source);
    } else if (kind == BOX_HELPER_REMOVE) {
        if ((e = remove_all(&w)) != 0)
            box_msg_text(&m, e, "cannot remove everything: %s", strerror(e));
    } else {
        add_up(&w, dir, ".", 0);
        m.count = w.files;
        m.bytes = w.bytes;
    }
    (void)box_msg_send(reply, &m, NULL, 0);
}
