#include "guest/fs_watch.h"

#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct inotify_event *event_at(struct watcher *w, size_t at)
{
    return (struct inotify_event *)(void *)(w->buf + at);
}

static size_t size_of(const struct inotify_event *e)
{
    return sizeof *e + e->len;
}

/* Reads behind what is there; false: there is nothing now, or no room. */
static bool read_more(struct watcher *w)
{
    if (w->at) {
        memmove(w->buf, w->buf + w->at, w->len - w->at);
        w->len -= w->at;
        w->fresh = w->fresh > w->at ? w->fresh - w->at : 0;
        w->at = 0;
    }
    ssize_t n = read(w->fd, w->buf + w->len, sizeof w->buf - w->len);
    if (n <= 0)
        return false;
    w->fresh = w->len;
    w->fresh_ms = guest_now_ms();
    w->len += (size_t)n;
    return true;
}

static void copy_name(char out[NAME_MAX + 1], const char *name)
{
    snprintf(out, NAME_MAX + 1, "%s", name);
}

/* ---- moves ---- */

static bool find_second(struct watcher *w, size_t *at, uint32_t cookie)
{
    for (; *at < w->len; *at += size_of(event_at(w, *at)))
        if ((event_at(w, *at)->mask & IN_MOVED_TO) && event_at(w, *at)->cookie == cookie)
            return true;
    return false;
}

/* Where the second half of the move at w->at is; 0: it did not stay below what is watched.  The kernel tells both halves
 * one right after the other, but they may be read apart.  What is behind the first half waits, too: in another order it
 * would mean something else. */
static size_t second_half(struct watcher *w)
{
    uint32_t cookie = event_at(w, w->at)->cookie;
    size_t at = w->at + size_of(event_at(w, w->at));
    uint64_t until = w->at < w->fresh ? 0 : w->fresh_ms + WATCH_PAIR_MS;
    for (;;) {
        if (find_second(w, &at, cookie))
            return at;
        size_t moved = w->at;
        if (read_more(w)) {
            at -= moved;
            continue;
        }
        at -= moved;
        uint64_t now = guest_now_ms();
        if (now >= until || w->len > sizeof w->buf / 2)
            return 0;
        struct pollfd p = {.fd = w->fd, .events = POLLIN};
        (void)poll(&p, 1, (int)(until - now));
    }
}

/* What was there makes room for something else. */
static void replaced(struct watcher *w, int parent, const char *name, int by)
{
    int there = watch_child(&w->tree, parent, name);
    if (there >= 0 && there != by)
        watch_orphan(&w->tree, there);
}

static bool move(struct watcher *w, int from, const char *name, int to, const char *new_name, char entry)
{
    char a[FS_PATH_MAX + 1], b[FS_PATH_MAX + 1];
    int node = entry == 'd' ? watch_child(&w->tree, from, name) : -1;
    (void)watch_seen_take(&w->seen, w->tree.nodes[from].wd, name);
    (void)watch_seen_take(&w->seen, w->tree.nodes[to].wd, new_name);
    if (!watch_path(&w->tree, from, name, a) || !watch_path(&w->tree, to, new_name, b)) {
        w->lost = true;
        return true;
    }
    watch_tell_move(&w->tell, entry, a, b);
    if (entry != 'd')
        return true;
    replaced(w, to, new_name, node);
    if (node < 0)
        return !w->recursive || watch_enter(w, to, new_name);
    if (watch_below(&w->tree, to, node) || !watch_place(&w->tree, node, to, new_name) ||
        !watch_is_true(w, node)) {
        w->lost = true;
        return true;
    }
    return watch_again(w, node);
}

/* It has left its place, and what is watched with it. */
static bool left(struct watcher *w, int parent, const char *name, const char *path, char entry)
{
    int node = entry == 'd' ? watch_child(&w->tree, parent, name) : -1;
    (void)watch_seen_take(&w->seen, w->tree.nodes[parent].wd, name);
    if (node >= 0 && w->tree.nodes[node].found_parent >= 0) {
        char new_name[NAME_MAX + 1];
        const struct watch_node *n = &w->tree.nodes[node];
        copy_name(new_name, n->found_name);
        return move(w, parent, name, n->found_parent, new_name, entry);
    }
    watch_tell(&w->tell, SG_CH_DELETE, entry, path);
    if (node >= 0)
        watch_leave(w, node);
    return true;
}

static bool moved_from(struct watcher *w, int node, const char *path, char entry)
{
    char name[NAME_MAX + 1];
    copy_name(name, event_at(w, w->at)->name);
    size_t at = second_half(w);
    struct inotify_event *second = at ? event_at(w, at) : NULL;
    int to = second ? watch_by_wd(&w->tree, second->wd) : -1;
    if (to < 0)
        return left(w, node, name, path, entry);
    second->mask = 0; /* it is done */
    return move(w, node, name, to, second->name, entry);
}

/* ---- all others ---- */

/* A directory is not there any more.  Its watch goes with it; if it does not, another directory was taken for it. */
static void removed(struct watcher *w, int parent, const char *name)
{
    int node = watch_child(&w->tree, parent, name);
    if (node < 0)
        return;
    w->lost = w->lost || w->tree.nodes[node].found_parent >= 0;
    watch_orphan(&w->tree, node);
}

static bool created(struct watcher *w, int node, const char *name, const char *path, char entry)
{
    if (!watch_seen_take(&w->seen, w->tree.nodes[node].wd, name))
        watch_tell(&w->tell, SG_CH_CREATE, entry, path);
    return entry != 'd' || !w->recursive || watch_enter(w, node, name);
}

static bool changed(struct watcher *w, int node, const struct inotify_event *e, const char *path)
{
    char entry = e->mask & IN_ISDIR ? 'd' : 'f';
    if (e->mask & IN_MOVED_FROM)
        return moved_from(w, node, path, entry);
    if (e->mask & IN_MOVED_TO && entry == 'd')
        replaced(w, node, e->name, -1);
    if (e->mask & (IN_CREATE | IN_MOVED_TO))
        return created(w, node, e->name, path, entry);
    if (e->mask & IN_DELETE) {
        (void)watch_seen_take(&w->seen, e->wd, e->name);
        watch_tell(&w->tell, SG_CH_DELETE, entry, path);
        if (entry == 'd')
            removed(w, node, e->name);
    }
    if (e->mask & (IN_MODIFY | IN_CLOSE_WRITE))
        watch_tell(&w->tell, SG_CH_MODIFY, entry, path);
    if (!(e->mask & IN_ATTRIB))
        return true;
    watch_tell(&w->tell, SG_CH_ATTRIB, entry, path);
    bool readable = entry == 'd' && w->recursive && watch_child(&w->tree, node, e->name) < 0;
    return !readable || watch_enter(w, node, e->name);
}

static bool top_changed(struct watcher *w, const struct inotify_event *e)
{
    if (e->mask & IN_MOVE_SELF)
        return watch_gone(w, "moved");
    if (e->mask & IN_UNMOUNT)
        return watch_gone(w, "unmounted");
    if (e->mask & (IN_DELETE_SELF | IN_IGNORED))
        return watch_gone(w, "deleted");
    if (e->mask & IN_ATTRIB)
        watch_tell(&w->tell, SG_CH_ATTRIB, 'd', ".");
    return true;
}

/* The event at w->at. */
static bool take_event(struct watcher *w)
{
    const struct inotify_event *e = event_at(w, w->at);
    char path[FS_PATH_MAX + 1];
    if (e->mask == 0)
        return true;
    if (e->mask & IN_Q_OVERFLOW) {
        w->lost = true;
        return true;
    }
    int node = watch_by_wd(&w->tree, e->wd);
    if (node < 0)
        return true;
    if (e->len == 0 && node == 0)
        return top_changed(w, e);
    if (e->len == 0) { /* of a directory itself: its parent tells more */
        if (e->mask & IN_IGNORED)
            watch_forget(&w->tree, node);
        return true;
    }
    if (watch_path(&w->tree, node, e->name, path))
        return changed(w, node, e, path);
    w->lost = true; /* it happened at a place that we do not know */
    return true;
}

bool watch_read(struct watcher *w)
{
    bool ok = true;
    while (ok && !w->lost && (w->at < w->len || read_more(w))) {
        ok = take_event(w);
        w->at += size_of(event_at(w, w->at));
    }
    if (ok && !w->lost)
        watch_seen_clear(&w->seen); /* all that was queued when they were told has been read */
    return ok;
}
