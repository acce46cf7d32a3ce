#include "guest/fs_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MASK                                                                                                 \
    (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB |          \
     IN_DELETE_SELF | IN_MOVE_SELF | IN_EXCL_UNLINK | IN_ONLYDIR)

enum { OPEN = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC };

bool watch_gone(struct watcher *w, const char *how)
{
    watch_tell_flush(&w->tell);
    return guest_failed(w->fs->f, SG_WF_NO_WATCH, 0, how);
}

static bool limit(struct watcher *w, int err, const char *text)
{
    watch_tell_flush(&w->tell);
    return guest_failed(w->fs->f, SG_WF_WATCH_LIMIT, err, text);
}

/* ---- opening ---- */

/* What the path leads to, opened for reading; -1 with errno.  Nothing stays open for long: a directory that somebody
 * holds is not told as deleted. */
static int open_top(struct watcher *w)
{
    struct fs *fs = w->fs;
    fs->outside = false;
    if (!fs_confine(fs))
        return -1;
    int fd = fs_open(fs, w->path, OPEN & ~O_NOFOLLOW, 0);
    fs_close(fs->root);
    fs->root = -1;
    return fd;
}

static bool is_top(const struct watcher *w, int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_dev == w->dev && st.st_ino == w->ino;
}

static bool is_node(int fd, const struct watch_node *n)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_dev == n->dev && st.st_ino == n->ino;
}

/* Its directory, if it is where it is thought to be: every one on the way is looked at.  -1 with errno: ENOENT when it
 * is not, which will be told. */
static int open_node(struct watcher *w, int node)
{
    const struct watch_node *n = &w->tree.nodes[node];
    if (node && n->parent < 0) {
        errno = ENOENT;
        return -1;
    }
    int above = node ? open_node(w, n->parent) : -1;
    if (node && above < 0)
        return -1;
    int fd = node ? openat(above, n->name, OPEN) : open_top(w);
    fs_close(above);
    if (fd < 0 || is_node(fd, n))
        return fd;
    close(fd);
    errno = ENOENT;
    return -1;
}

/* ---- setting watches ---- */

enum telling {
    SILENT,  /* nothing: it was there before */
    CONTENT, /* what is below it */
    ALL,     /* and itself */
    MISSED,  /* of a directory that is watched: directories in it that are not */
};

struct scan {
    struct watcher *w;
    int node;
    enum telling telling;
    unsigned depth;
    bool failed;
};

static void tell_found(struct watcher *w, int parent, const char *name, char entry)
{
    char path[FS_PATH_MAX + 1];
    watch_seen_add(&w->seen, w->tree.nodes[parent].wd, name);
    if (watch_path(&w->tree, parent, name, path))
        watch_tell(&w->tell, SG_CH_CREATE, entry, path);
    else
        watch_tell_lost(&w->tell);
}

/* A directory that is watched already has been found at a place: if that is not its own, it was moved there, which will
 * be told.  It goes on under its old name until then. */
static void meet(struct watcher *w, int node, int parent, const char *name)
{
    const struct watch_node *n = &w->tree.nodes[node];
    if (node == 0 || (n->parent == parent && strcmp(n->name, name) == 0))
        return;
    if (!watch_found(&w->tree, node, parent, name))
        w->lost = true;
}

/* Watches the open directory.  One that lost its place is taken for a new one: whoever applies what was told does not
 * know any more what is in it. */
static int watch_fd(struct watcher *w, int fd, struct stat *st, int *node)
{
    char link[32];
    *node = -1;
    if (fstat(fd, st))
        return -1;
    int wd = inotify_add_watch(w->fd, fs_fd_path(fd, link), MASK);
    *node = wd < 0 ? -1 : watch_by_wd(&w->tree, wd);
    if (*node <= 0 || w->tree.nodes[*node].parent >= 0)
        return wd;
    watch_leave(w, *node);
    *node = -1;
    return inotify_add_watch(w->fd, link, MASK);
}

static bool scan(struct watcher *w, int node, int fd, enum telling telling, unsigned depth);

/* A directory in `parent`, -1: the watched one.  fd is closed. */
static bool take(struct watcher *w, int parent, int fd, const char *name, enum telling telling,
                 unsigned depth)
{
    struct stat st;
    int node, wd = watch_fd(w, fd, &st, &node), err = errno;
    bool ok = true;
    if (wd < 0 && (err == ENOSPC || err == ENOMEM)) {
        ok = limit(w, err, "the kernel gives no more watches to this user (fs.inotify.max_user_watches)");
    } else if (wd < 0 && parent < 0) {
        errno = err;
        ok = fs_failed(w->fs, "watching");
    } else if (node >= 0) {
        meet(w, node, parent, name);
    } else {
        if (telling == ALL)
            tell_found(w, parent, name, 'd');
        node = wd < 0 ? -1 : watch_add(&w->tree, parent, name, wd, &st);
        if (node >= 0 && w->recursive)
            return scan(w, node, fd, telling, depth);
        if (wd >= 0 && node < 0)
            ok = w->tree.count < WATCH_DIRECTORIES
                     ? guest_failed(w->fs->f, SG_WF_INTERNAL, ENOMEM, "no memory")
                     : limit(w, 0, "one watch takes 8192 directories at most");
    }
    close(fd);
    return ok;
}

static bool is_directory(int dir, const char *name)
{
    struct stat st;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static bool visit(void *arg, int dir, const char *name)
{
    struct scan *s = arg;
    bool directory = is_directory(dir, name);
    if (s->telling == MISSED && (!directory || watch_child(&s->w->tree, s->node, name) >= 0))
        return true;
    /* What may not be read cannot be watched. */
    int fd = directory ? openat(dir, name, OPEN) : -1;
    if (fd < 0) {
        if (s->telling != SILENT)
            tell_found(s->w, s->node, name, directory ? 'd' : 'f');
        return true;
    }
    s->failed = !take(s->w, s->node, fd, name, s->telling == SILENT ? SILENT : ALL, s->depth + 1);
    return !s->failed;
}

static bool scan(struct watcher *w, int node, int fd, enum telling telling, unsigned depth)
{
    struct scan s = {.w = w, .node = node, .telling = telling, .depth = depth};
    if (depth > FS_DEPTH_MAX) {
        close(fd);
        return limit(w, 0, "one watch takes directories 512 levels deep at most");
    }
    (void)fs_each(fd, visit, &s); /* what cannot be read to its end has just been removed */
    return !s.failed;
}

static bool short_of(int err)
{
    return err == EMFILE || err == ENFILE || err == ENOMEM;
}

bool watch_enter(struct watcher *w, int parent, const char *name)
{
    int above = open_node(w, parent);
    if (above < 0) {
        w->tree.nodes[parent].missed = true;
        return true;
    }
    int fd = openat(above, name, OPEN), err = errno;
    close(above);
    if (fd >= 0)
        return take(w, parent, fd, name, CONTENT, 0);
    w->lost = w->lost || short_of(err);
    return true; /* it is gone again, another one, or may not be read */
}

bool watch_is_true(struct watcher *w, int node)
{
    struct watch_node *n = &w->tree.nodes[node];
    int above = open_node(w, n->parent);
    int fd = above < 0 ? -1 : openat(above, n->name, OPEN);
    bool same = fd >= 0 && is_node(fd, n);
    fs_close(above);
    fs_close(fd);
    n->doubted = fd < 0;
    return same || n->doubted;
}

bool watch_again(struct watcher *w, int node)
{
    struct watch_node *n = &w->tree.nodes[node];
    int fd = n->missed ? open_node(w, node) : -1;
    if (fd >= 0) {
        n->missed = false;
        if (!scan(w, node, fd, MISSED, 0))
            return false;
    }
    if (n->doubted && !watch_is_true(w, node))
        w->lost = true;
    for (int child = n->first; child >= 0; child = w->tree.nodes[child].next)
        if (!watch_again(w, child))
            return false;
    return true;
}

void watch_leave(struct watcher *w, int node)
{
    const struct watch_node *n = &w->tree.nodes[node];
    while (n->first >= 0)
        watch_leave(w, n->first);
    if (n->found_parent >= 0)
        w->lost = true; /* it is below another one now, and nobody will say that */
    (void)inotify_rm_watch(w->fd, n->wd);
    watch_forget(&w->tree, node);
}

/* ---- the whole ---- */

static bool begin(struct watcher *w)
{
    watch_tree_clear(&w->tree);
    watch_seen_clear(&w->seen);
    w->at = w->fresh = w->len = 0;
    w->lost = false;
    if (w->fd >= 0)
        close(w->fd);
    w->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (w->fd >= 0)
        return true;
    return limit(w, errno, "the kernel gives no more watches to this user (fs.inotify.max_user_instances)");
}

/* What was there cannot be opened any more. */
static bool not_there(struct watcher *w, int err)
{
    if (err == ENOENT || err == ENOTDIR || err == ELOOP || err == EXDEV)
        return watch_gone(w, "deleted");
    watch_tell_flush(&w->tell);
    return guest_failed(w->fs->f, SG_WF_INTERNAL, err, "opening what is watched");
}

bool watch_all(struct watcher *w, bool first)
{
    struct stat st;
    if (!begin(w))
        return false;
    int fd = open_top(w);
    if (fd < 0)
        return first ? fs_failed(w->fs, "opening") : not_there(w, errno);
    if (first && fstat(fd, &st) == 0) {
        w->dev = st.st_dev;
        w->ino = st.st_ino;
    }
    if (!is_top(w, fd)) {
        close(fd);
        return watch_gone(w, "replaced");
    }
    if (!take(w, -1, fd, NULL, SILENT, 0))
        return false;
    if (!first)
        watch_tell_lost(&w->tell);
    return true;
}

bool watch_look(struct watcher *w)
{
    int fd = open_top(w), err = errno;
    w->look_ms = guest_now_ms() + WATCH_LOOK_MS;
    if (fd < 0 && (err == EACCES || short_of(err)))
        return true; /* who may not look any more is still told */
    bool same = fd >= 0 && is_top(w, fd);
    fs_close(fd);
    if (same)
        return true;
    if (!watch_read(w)) /* the kernel may know better what became of it */
        return false;
    return fd < 0 ? not_there(w, err) : watch_gone(w, "replaced");
}
