#include "guest/fs_walk.h"

#include "guest/fs_names.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    NAMES_MAX = 4096,               /* of one directory at a time */
    NAMES_BYTES = 256 * 1024,       /* likewise */
    NAMES_TOTAL = 16 * 1024 * 1024, /* of all levels; then a directory's names are read in small pieces */
    NAMES_FEW = 1024,
};

struct level {
    int fd;
    struct fs_names names;
    size_t next, len; /* of names; of the path before them, slash included */
};

struct walk {
    struct fs_walk *w;
    bool ended; /* by w->failed */
    struct level levels[FS_DEPTH_MAX];
    unsigned depth; /* levels in use */
    size_t held;    /* bytes of names */
    char path[FS_PATH_MAX + 2];
};

/* What errno says is about the first len bytes of the path. */
static void note(struct walk *k, size_t len)
{
    char next = k->path[len];
    k->w->unreadable = true;
    k->path[len] = '\0';
    if (k->w->failed && !k->w->failed(k->w->arg, k->path))
        k->ended = true;
    k->path[len] = next;
}

/* What comes right before the first name that w->after lets us look at here, or further before: so the others need not
 * be sorted.  NULL: nothing does. */
static const char *first_name(const struct walk *k, const struct level *l, char name[FS_PATH_MAX + 1])
{
    const char *after = k->w->after;
    if (!after || l->len > strlen(after) || strncmp(after, k->path, l->len) != 0)
        return NULL;
    after += l->len;
    size_t n = strcspn(after, "/");
    if (n == 0 || n > FS_PATH_MAX)
        return NULL;
    memcpy(name, after, n);
    if (!after[n]) /* it may be wanted itself */
        name[n - 1]--;
    name[n] = '\0';
    return *name ? name : NULL;
}

static bool read_names(struct walk *k, struct level *l, const char *after)
{
    size_t max = k->held > NAMES_TOTAL ? NAMES_FEW : NAMES_BYTES;
    uint64_t until = k->w->names_deadline_ms ? k->w->names_deadline_ms : k->w->deadline_ms;
    bool ok = fs_names_read_until(l->fd, after, NAMES_MAX, max, true, until, &l->names);
    l->next = 0;
    k->held += l->names.bytes;
    return ok;
}

static void drop_names(struct walk *k, struct level *l)
{
    k->held -= l->names.bytes;
    fs_names_free(&l->names);
}

/* The next key of the level, NULL at its end. */
static const char *next_key(struct walk *k, struct level *l)
{
    if (l->next == l->names.n && l->names.more && l->names.n) {
        char *last = strdup(l->names.v[l->names.n - 1]);
        drop_names(k, l);
        if (!last || !read_names(k, l, last))
            note(k, l->len ? l->len - 1 : 0);
        free(last);
    }
    return l->next < l->names.n ? l->names.v[l->next++] : NULL;
}

/* fd is the walk's from here on, unless it is the first one. */
static bool push(struct walk *k, int fd, size_t len)
{
    struct level *l = &k->levels[k->depth];
    char first[FS_PATH_MAX + 1];
    *l = (struct level){.fd = fd, .len = len};
    if (read_names(k, l, first_name(k, l, first))) {
        k->depth++;
        return true;
    }
    int err = errno;
    drop_names(k, l);
    if (k->depth)
        close(fd);
    errno = err;
    return false;
}

static void pop(struct walk *k)
{
    struct level *l = &k->levels[--k->depth];
    drop_names(k, l);
    if (k->depth)
        close(l->fd);
}

/* Whether `after` lies below the directory of this path, which ends in a slash; or everything there comes later. */
static bool has_later(const char *after, const char *path, size_t len)
{
    return !after || strncmp(after, path, len) <= 0;
}

static void enter(struct walk *k, const struct level *l, const char *name)
{
    struct fs_entry e = {
        .dir = l->fd, .name = name, .path = k->path, .len = strlen(k->path), .depth = k->depth - 1};
    if (k->w->enter && !k->w->enter(k->w->arg, &e))
        return;
    k->path[e.len] = '/';
    k->path[e.len + 1] = '\0';
    if (!has_later(k->w->after, k->path, e.len + 1))
        return;
    int fd = -1;
    if (k->depth < FS_DEPTH_MAX)
        fd = openat(l->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    else
        errno = ELOOP;
    if ((fd < 0 && errno != ENOENT) || (fd >= 0 && !push(k, fd, e.len + 1)))
        note(k, e.len);
}

static bool step(struct walk *k)
{
    struct level *l = &k->levels[k->depth - 1];
    const char *key = next_key(k, l);
    if (!key) {
        pop(k);
        return !k->ended;
    }
    size_t n = strlen(key);
    bool descent = key[n - 1] == '/';
    n -= descent;
    char name[FS_PATH_MAX + 1];
    if (l->len + n > FS_PATH_MAX - 1 || n > FS_PATH_MAX) {
        errno = ENAMETOOLONG;
        note(k, l->len ? l->len - 1 : 0);
        return !k->ended;
    }
    memcpy(name, key, n);
    name[n] = '\0';
    memcpy(k->path + l->len, name, n + 1);
    if (descent) {
        enter(k, l, name);
        return !k->ended;
    }
    struct fs_entry e = {
        .dir = l->fd, .name = name, .path = k->path, .len = l->len + n, .depth = k->depth - 1};
    int order = k->w->after ? strcmp(k->path, k->w->after) : 1;
    if (order < 0 || (order == 0 && !k->w->after_too))
        return true;
    if (!k->w->visit(k->w->arg, &e))
        return false;
    memcpy(k->w->last, k->path, e.len + 1);
    return true;
}

bool fs_walk(struct fs_walk *w, int fd)
{
    struct walk *k = calloc(1, sizeof *k);
    if (!k)
        return false;
    k->w = w;
    bool ok = push(k, fd, 0);
    while (ok && k->depth) {
        w->late = guest_now_ms() > w->deadline_ms;
        if (w->late || !step(k))
            break;
    }
    int err = errno;
    while (k->depth)
        pop(k);
    free(k);
    errno = err;
    return ok;
}
