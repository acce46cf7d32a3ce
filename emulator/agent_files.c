/* File requests, done by a short-lived child that is the sandbox user inside the sandbox root: no path can
 * lead anywhere the user's own programs could not go. */
#include "emulator/agent.h"
#include "emulator/box.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_regular(int plain_root, const char *path, int *fd)
{
    static const int FLAGS = O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC;
    int e = 0;
    struct stat sb;
    *fd = plain_root < 0 ? open(path, FLAGS) : agent_plain_open(plain_root, path, FLAGS);
    if (*fd < 0)
        return errno == ENXIO ? EINVAL : errno; /* a socket */
    if (fstat(*fd, &sb) != 0)
        e = errno;
    else if (!S_ISREG(sb.st_mode))
        e = S_ISDIR(sb.st_mode) ? EISDIR : EINVAL;
    if (e == 0 && fcntl(*fd, F_SETFL, 0) != 0)
        e = errno;
    if (e != 0)
        box_fd_close(fd);
    return e;
}

static int make_one(const char *path, bool may_exist)
{
    if (mkdir(path, 0777) == 0)
        return 0;
    int e = errno;
    struct stat sb;
    if (!may_exist)
        return e;
    if (stat(path, &sb) != 0)
        return e;
    return S_ISDIR(sb.st_mode) ? 0 : e;
}

static int make_dirs(const char *path, bool recursive)
{
    char p[PATH_MAX];
    size_t n = strlen(path);
    if (n == 0)
        return ENOENT;
    if (n >= sizeof p)
        return ENAMETOOLONG;
    memcpy(p, path, n + 1);
    for (size_t i = 1; recursive && i < n; i++) {
        if (p[i] != '/' || p[i - 1] == '/')
            continue;
        p[i] = '\0';
        int e = make_one(p, true);
        if (e != 0)
            return e == EEXIST ? ENOTDIR : e;
        p[i] = '/';
    }
    return make_one(p, recursive);
}

static int plain_path(int root, uint32_t op, const char *cwd, const char **path)
{
    static char joined[PATH_MAX];
    if (op == BOX_OP_UNTAR)
        return agent_plain_chdir(root, cwd);
    int e = agent_plain_join(cwd, *path, joined);
    *path = joined;
    return e;
}

void agent_file_op(const struct agent_identity *id, const struct box_msg *m, int reply, int archive)
{
    static struct box_msg out;
    static struct agent_tar tar;
    int fd = -1;
    size_t pos = 0;
    const char *cwd = box_msg_next(m, &pos);
    const char *path = box_msg_next(m, &pos);
    out.op = BOX_OP_DONE;
    int e = agent_become(id, m->uid);
    umask(022);
    if (e == 0 && (cwd == NULL || path == NULL))
        e = EBADMSG;
    if (e == 0 && id->plain_root >= 0)
        e = plain_path(id->plain_root, m->op, cwd, &path);
    else if (e == 0 && (path[0] != '/' || m->op == BOX_OP_UNTAR) && chdir(cwd) != 0)
        e = errno;
    if (e != 0)
        box_msg_text(&out, e, "%.200s: %s", cwd != NULL ? cwd : "", strerror(e));
    else if (m->op == BOX_OP_OPEN)
        out.error = open_regular(id->plain_root, path, &fd);
    else if (m->op == BOX_OP_MKDIR)
        out.error = id->plain_root < 0 ? make_dirs(path, m->value != 0)
                                       : agent_plain_mkdir(id->plain_root, path, m->value != 0);
    else if ((e = agent_untar(&tar, archive)) != 0)
        box_msg_text(&out, e, "%s", tar.err);
    (void)box_msg_send(reply, &out, &fd, fd >= 0 ? 1 : 0);
}
