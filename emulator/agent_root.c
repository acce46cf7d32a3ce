/* The root file system and the network of a box, set up from inside its namespaces. */
#include "emulator/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif
#ifndef OPEN_TREE_CLOEXEC
#define OPEN_TREE_CLOEXEC O_CLOEXEC
#endif
#ifndef MOVE_MOUNT_F_EMPTY_PATH
#define MOVE_MOUNT_F_EMPTY_PATH 0x00000004
#endif

static int open_tree_fd(int dirfd, const char *path, unsigned flags)
{
    return (int)syscall(SYS_open_tree, dirfd, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | flags);
}

static int move_tree(int tree, const char *target)
{
    if (syscall(SYS_move_mount, tree, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return errno;
    return 0;
}

int agent_layers_open(const struct agent_layers *l, struct agent_layer_fds *fds, const char **failed)
{
    fds->n_lower = 0;
    fds->upper = fds->work = -1;
    for (size_t i = 0; i < l->n_lower; i++) {
        *failed = l->lower[i];
        fds->lower[i] = open(l->lower[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fds->lower[i] < 0)
            return errno;
        fds->n_lower = i + 1;
    }
    *failed = l->upper;
    fds->upper = open(l->upper, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fds->upper < 0)
        return errno;
    *failed = l->work;
    fds->work = open(l->work, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fds->work < 0 ? errno : 0;
}

void agent_layers_close(struct agent_layer_fds *fds)
{
    box_fds_close(fds->lower, fds->n_lower);
    fds->n_lower = 0;
    box_fd_close(&fds->upper);
    box_fd_close(&fds->work);
}

int agent_overlay(const struct agent_layer_fds *fds, const char *target, bool userxattr)
{
    char opt[4096]; /* the kernel copies one page */
    size_t n = 0;
    for (size_t i = 0; i < fds->n_lower; i++) {
        int k = snprintf(opt + n, sizeof opt - n, "%s%d", i == 0 ? "lowerdir=" : ":", fds->lower[i]);
        if (k < 0 || (size_t)k >= sizeof opt - n)
            return E2BIG;
        n += (size_t)k;
    }
    int k = snprintf(opt + n, sizeof opt - n, ",upperdir=%d,workdir=%d,index=off,metacopy=off,%s", fds->upper,
                     fds->work, userxattr ? "userxattr" : "redirect_dir=on");
    if (k < 0 || (size_t)k >= sizeof opt - n)
        return E2BIG;
    if (chdir("/proc/self/fd") != 0)
        return errno;
    int e = mount("overlay", target, "overlay", MS_NODEV, opt) != 0 ? errno : 0;
    if (e == EINVAL && userxattr) {
        /* Older kernels refuse to hear of metacopy together with userxattr. */
        char *cut = strstr(opt, "metacopy=off,");
        if (cut != NULL) {
            memmove(cut, cut + strlen("metacopy=off,"), strlen(cut + strlen("metacopy=off,")) + 1);
            e = mount("overlay", target, "overlay", MS_NODEV, opt) != 0 ? errno : 0;
        }
    }
    if (chdir("/") != 0 && e == 0)
        e = errno;
    return e;
}

int agent_detach_mount(const char *path, int *fd)
{
    int e = 0;
    *fd = open_tree_fd(AT_FDCWD, path, 0);
    if (*fd < 0)
        e = errno;
    if (umount2(path, MNT_DETACH) != 0 && e == 0)
        e = errno;
    if (e != 0)
        box_fd_close(fd);
    return e;
}

static int lo_up(void)
{
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s < 0)
        return errno;
    struct ifreq q;
    memset(&q, 0, sizeof q);
    memcpy(q.ifr_name, "lo", 3);
    q.ifr_flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING;
    int e = ioctl(s, SIOCSIFFLAGS, &q) != 0 ? errno : 0;
    close(s);
    return e;
}

/* A directory at path, whatever a former session left there. */
static int own_dir(const char *path, mode_t mode)
{
    struct stat sb;
    if (lstat(path, &sb) == 0) {
        if (S_ISDIR(sb.st_mode))
            return 0;
        if (unlink(path) != 0)
            return errno;
    }
    return mkdir(path, mode) != 0 && errno != EEXIST ? errno : 0;
}

static int write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return errno;
    size_t n = strlen(text);
    ssize_t w = write(fd, text, n);
    int e = w < 0 ? errno : (size_t)w != n ? ENOSPC : 0;
    if (close(fd) != 0 && e == 0)
        e = errno;
    return e;
}

/* Text that belongs to this session only: on the /run tmpfs, bound over the image, so no snapshot has it. */
static int session_file(const char *name, const char *text)
{
    char from[64];
    char to[64];
    snprintf(from, sizeof from, "/run/sandbox/%s", name);
    snprintf(to, sizeof to, "/etc/%s", name);
    int e = write_file(from, text);
    if (e != 0)
        return e;
    struct stat sb;
    if (lstat(to, &sb) != 0 || !S_ISREG(sb.st_mode)) {
        if (unlink(to) != 0 && errno != ENOENT)
            return errno;
        e = write_file(to, "");
        if (e != 0)
            return e;
    }
    return mount(from, to, NULL, MS_BIND, NULL) != 0 ? errno : 0;
}

static int session_files(const char *hostname)
{
    char hosts[256];
    char name[80];
    int e = own_dir("/run/sandbox", 0755);
    if (e == 0)
        e = own_dir("/etc", 0755);
    if (e == 0)
        e = session_file("resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n");
    snprintf(hosts, sizeof hosts, "127.0.0.1 localhost %s\n::1 localhost ip6-localhost ip6-loopback\n",
             hostname);
    if (e == 0)
        e = session_file("hosts", hosts);
    snprintf(name, sizeof name, "%s\n", hostname);
    if (e == 0)
        e = session_file("hostname", name);
    return e;
}

static const char *const NODES[] = {"null", "zero", "full", "random", "urandom", "tty"};
enum { N_NODES = sizeof NODES / sizeof NODES[0] };

static int open_nodes(int fds[N_NODES])
{
    int e = 0;
    for (size_t i = 0; i < N_NODES; i++) {
        char path[32];
        snprintf(path, sizeof path, "/dev/%s", NODES[i]);
        fds[i] = open(path, O_PATH | O_CLOEXEC);
        if (fds[i] < 0 && e == 0)
            e = errno;
    }
    return e;
}

static int bind_nodes(const int fds[N_NODES])
{
    for (size_t i = 0; i < N_NODES; i++) {
        char path[32];
        snprintf(path, sizeof path, "/dev/%s", NODES[i]);
        int e = write_file(path, "");
        if (e != 0)
            return e;
        int tree = open_tree_fd(fds[i], "", AT_EMPTY_PATH);
        if (tree < 0)
            return errno;
        e = move_tree(tree, path);
        close(tree);
        if (e != 0)
            return e;
    }
    return 0;
}

static int dev_setup(const int nodes[N_NODES])
{
    static const struct {
        const char *to, *name;
    } LINKS[] = {{"pts/ptmx", "/dev/ptmx"},
                 {"/proc/self/fd", "/dev/fd"},
                 {"/proc/self/fd/0", "/dev/stdin"},
                 {"/proc/self/fd/1", "/dev/stdout"},
                 {"/proc/self/fd/2", "/dev/stderr"}};
    int e = own_dir("/dev", 0755);
    if (e != 0)
        return e;
    if (mount("tmpfs", "/dev", "tmpfs", MS_NOSUID, "mode=755,size=1m") != 0)
        return errno;
    e = bind_nodes(nodes);
    if (e != 0)
        return e;
    if (mkdir("/dev/pts", 0755) != 0)
        return errno;
    /* Group 5 (tty) does not exist in a single-id map. */
    if (mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
              "newinstance,ptmxmode=0666,mode=620,gid=5") != 0 &&
        mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620") !=
            0)
        return errno;
    if (mkdir("/dev/shm", 0777) != 0 ||
        mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777,size=256m") != 0)
        return errno;
    for (size_t i = 0; i < sizeof LINKS / sizeof LINKS[0]; i++)
        if (symlink(LINKS[i].to, LINKS[i].name) != 0)
            return errno;
    return 0;
}

static int mount_at(const struct agent_boot *b, const struct agent_layer_fds *fds, const char *target)
{
    if (b->probe)
        return mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m") != 0 ? errno : 0;
    if (b->tree >= 0)
        return move_tree(b->tree, target);
    return agent_overlay(fds, target, true);
}

/* Mounts the new root somewhere in this mount namespace (which only this process sees), and goes there. */
static int mount_root(const struct agent_boot *b, const struct agent_layer_fds *fds)
{
    static const char *const PLACES[] = {"/tmp", "/mnt", "/run", "/sys"};
    int first = 0;
    for (size_t i = 0; i < sizeof PLACES / sizeof PLACES[0]; i++) {
        int e = mount_at(b, fds, PLACES[i]);
        if (e == 0)
            return chdir(PLACES[i]) != 0 ? errno : 0;
        if (first == 0 || (first == ENOENT && e != ENOENT))
            first = e;
    }
    return first;
}

static int enter_root(const struct agent_boot *b, const struct agent_layer_fds *fds, int old_root,
                      const int nodes[N_NODES], const char **what)
{
    int e;
    *what = "mount the root of the box";
    if ((e = mount_root(b, fds)) != 0)
        return e;
    /* From here on every path is resolved inside the box: what a former session left there cannot lead out.
     * The old root stays below until /proc is mounted, because the kernel wants to see a whole /proc. */
    *what = "enter the root of the box";
    if (syscall(SYS_pivot_root, ".", ".") != 0 || chdir("/") != 0)
        return errno;
    *what = "mount /proc";
    if ((e = own_dir("/proc", 0555)) != 0)
        return e;
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0)
        return errno;
    *what = "set up /dev";
    if ((e = dev_setup(nodes)) != 0)
        return e;
    *what = "mount /run";
    if ((e = own_dir("/run", 0755)) != 0)
        return e;
    if (mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64m") != 0)
        return errno;
    *what = "leave the old root";
    if (fchdir(old_root) != 0 || umount2(".", MNT_DETACH) != 0 || chdir("/") != 0)
        return errno;
    if (b->probe)
        return 0;
    *what = "set up /etc/hosts, /etc/hostname and /etc/resolv.conf";
    return session_files(b->hostname);
}

int agent_root(const struct agent_boot *b, const struct agent_layer_fds *fds, const char **what)
{
    int nodes[N_NODES];
    for (size_t i = 0; i < N_NODES; i++)
        nodes[i] = -1;
    int old_root = -1;
    int e;
    *what = "set the host name";
    if (sethostname(b->hostname, strlen(b->hostname)) != 0)
        return errno;
    *what = "bring up the loopback device";
    if ((e = lo_up()) != 0)
        return e;
    *what = "make mounts private";
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return errno;
    *what = "open the host's device nodes";
    if ((e = open_nodes(nodes)) != 0)
        goto out;
    *what = "open the old root";
    if ((old_root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0) {
        e = errno;
        goto out;
    }
    e = enter_root(b, fds, old_root, nodes, what);
out:
    box_fds_close(nodes, N_NODES);
    box_fd_close(&old_root);
    return e;
}
