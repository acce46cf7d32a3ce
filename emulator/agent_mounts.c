/* Drives: directories of the host that are bound into a box.  Opened while the agent still has the emulator's
 * own id, cloned before the old root goes, placed once every path is resolved inside the box. */
#include "emulator/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
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
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

/* The kernel's struct mount_attr, which older headers lack. */
struct attributes {
    uint64_t set, clear, propagation, userns;
};
static const uint64_t READ_ONLY = 1, NO_DEVICES = 4;

int agent_mounts_open(const struct agent_mounts *m, int fds[BOX_MOUNTS_MAX], const char **failed)
{
    static char text[160];
    *failed = text;
    for (size_t i = 0; i < m->n; i++) {
        snprintf(text, sizeof text, "open the drive for %.120s", m->list[i].target);
        fds[i] = open(m->list[i].source, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fds[i] < 0)
            return errno;
    }
    return 0;
}

int agent_mounts_clone(const struct agent_mounts *m, int fds[BOX_MOUNTS_MAX])
{
    for (size_t i = 0; i < m->n; i++) {
        unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH;
        int tree = (int)syscall(SYS_open_tree, fds[i], "", flags);
        if (tree < 0)
            return errno;
        close(fds[i]);
        fds[i] = tree;
        struct attributes a = {.set = NO_DEVICES | (m->list[i].read_only ? READ_ONLY : 0)};
        if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &a, sizeof a) != 0)
            return errno;
    }
    return 0;
}

/* mkdir -p; what is made last belongs to the sandbox user. */
static int make_target(const char *target, bool single_id)
{
    char path[PATH_MAX];
    struct stat sb;
    size_t n = strlen(target);
    if (n == 0 || n >= sizeof path)
        return ENAMETOOLONG;
    memcpy(path, target, n + 1);
    bool made = false;
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        char c = path[i];
        path[i] = '\0';
        made = mkdir(path, 0755) == 0;
        int e = made ? 0 : errno;
        if (!made && (stat(path, &sb) != 0 || !S_ISDIR(sb.st_mode)))
            return e == EEXIST ? ENOTDIR : e;
        path[i] = c;
    }
    if (made && !single_id && chown(path, BOX_USER_UID, BOX_USER_GID) != 0)
        return errno;
    return 0;
}

int agent_mounts_place(const struct agent_mounts *m, int fds[BOX_MOUNTS_MAX], bool single_id,
                       const char **failed)
{
    static char text[160];
    *failed = text;
    for (size_t i = 0; i < m->n; i++) {
        const struct box_mount *at = &m->list[i];
        snprintf(text, sizeof text, "mount a drive at %.120s", at->target);
        int e = make_target(at->target, single_id);
        if (e != 0)
            return e;
        if (at->give && !single_id && fchownat(fds[i], "", BOX_USER_UID, BOX_USER_GID, AT_EMPTY_PATH) != 0)
            return errno;
        if (syscall(SYS_move_mount, fds[i], "", AT_FDCWD, at->target, MOVE_MOUNT_F_EMPTY_PATH) != 0)
            return errno;
        box_fd_close(&fds[i]);
    }
    return 0;
}
