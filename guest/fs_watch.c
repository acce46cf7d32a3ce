#include "guest/fs_watch.h"

#include "guest/out.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Our working directory must not be what keeps a directory from being deleted. */
static bool leave_directory(struct fs *fs, char full[PATH_MAX + FS_PATH_MAX + 2])
{
    size_t n = 0;
    if (fs->a->path[0] != '/' && !fs->a->root) {
        if (!getcwd(full, PATH_MAX))
            return fs_failed(fs, "the working directory");
        n = strlen(full);
        full[n++] = '/';
    }
    snprintf(full + n, FS_PATH_MAX + 1, "%s", fs->a->path);
    return chdir("/") == 0 || fs_failed(fs, "the working directory");
}

static int wait_ms(const struct watcher *w)
{
    uint64_t now = guest_now_ms(), next = w->look_ms;
    if (w->tell.due_ms && w->tell.due_ms < next)
        next = w->tell.due_ms;
    return next > now ? (int)(next - now) : 0;
}

/* False: nobody listens any more, or *ok is false. */
static bool turn(struct watcher *w, bool *ok)
{
    struct pollfd p[2] = {{.fd = w->fd, .events = POLLIN}, {.fd = STDOUT_FILENO}};
    if (poll(p, 2, wait_ms(w)) > 0) {
        *ok = !p[0].revents || watch_read(w);
        if (p[1].revents)
            return false;
    }
    if (*ok && w->lost)
        *ok = watch_all(w, false);
    uint64_t now = guest_now_ms();
    if (*ok && now >= w->look_ms)
        *ok = watch_look(w);
    if (*ok && w->tell.due_ms && now >= w->tell.due_ms)
        watch_tell_flush(&w->tell);
    return out_flush() && *ok;
}

bool fs_watch(struct fs *fs)
{
    static char path[PATH_MAX + FS_PATH_MAX + 2];
    static struct watcher w;
    w.fs = fs;
    w.path = path;
    w.recursive = fs->a->recursive;
    w.fd = -1;
    fs_close(fs->root); /* it might be what is watched */
    fs->root = -1;
    bool ok = leave_directory(fs, path);
    if (ok && !watch_tree_init(&w.tree))
        ok = guest_failed(fs->f, SG_WF_INTERNAL, ENOMEM, "no memory");
    ok = ok && watch_all(&w, true);
    if (ok) {
        out_kind(SG_WIRE_OK, NULL); /* from here on nothing is missed */
        w.look_ms = guest_now_ms() + WATCH_LOOK_MS;
        bool heard = out_flush();
        while (heard && turn(&w, &ok)) {
        }
        watch_tell_flush(&w.tell);
    }
    watch_tree_free(&w.tree);
    watch_seen_free(&w.seen);
    if (w.fd >= 0)
        close(w.fd);
    return ok;
}
