#include "guest/fs_untar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* ---- targets of links ---- */

/* What of an absolute target comes after the directory; NULL when it does not lie there. */
static const char *below(const char *target, const char *dir)
{
    size_t n = strlen(dir);
    while (n && dir[n - 1] == '/')
        n--;
    if (dir[0] != '/' || strncmp(target, dir, n) != 0 || (target[n] && target[n] != '/'))
        return NULL;
    return target + n;
}

static size_t depth_of(const char *path)
{
    size_t n = 0;
    for (; *path; path++)
        n += *path == '/';
    return n;
}

/* Steps up come first, then names: then it stays inside as long as the directory that it begins in lies deep enough.
 * What goes up again behind a name depends on what that name is. */
const char *untar_target_wrong(const struct untar *u, const char *path, const char *target, bool *later)
{
    static const char leaves[] = "a link that leads out of the target";
    size_t depth = depth_of(path), names = 0;
    *later = false;
    if (u->fs->a->any_links) /* nothing goes through them all the same: see enter() */
        return NULL;
    if (target[0] == '/') {
        const char *rest = below(target, u->dir_real);
        if (!rest)
            rest = below(target, u->fs->a->path);
        if (!rest)
            return leaves;
        target = rest;
        depth = 0;
    }
    for (; *target; target += strspn(target, "/")) {
        size_t n = strcspn(target, "/");
        bool up = n == 2 && target[0] == '.' && target[1] == '.';
        if (up && names + depth == 0)
            return leaves;
        if (up && names)
            *later = true;
        if (up && names)
            names--;
        else if (up)
            depth--;
        else
            names += n && !(n == 1 && target[0] == '.');
        target += n;
    }
    return NULL;
}

/* Behind the last step up. */
static const char *last_up(const char *target)
{
    const char *last = target;
    for (; *target; target += strspn(target, "/")) {
        size_t n = strcspn(target, "/");
        bool up = n == 2 && target[0] == '.' && target[1] == '.';
        target += n;
        last = up ? target : last;
    }
    return last;
}

/* As long as it goes up again, every name has to be a directory that the archive fills: which is none of its links, nor
 * one that is there. */
static bool stays_inside(const struct untar *u, const char *path, const char *target)
{
    const struct untar_names *t = &u->names;
    uint32_t at = UNTAR_TOP;
    if (target[0] == '/') {
        const char *rest = below(target, u->dir_real);
        target = rest ? rest : below(target, u->fs->a->path);
    } else {
        for (const char *slash; (slash = strchr(path, '/')); path = slash + 1)
            at = untar_names_find(t, at, path, (size_t)(slash - path));
    }
    for (const char *end = last_up(target); target < end; target += strspn(target, "/")) {
        size_t n = strcspn(target, "/");
        bool up = n == 2 && target[0] == '.' && target[1] == '.';
        if (up)
            at = at == UNTAR_TOP ? 0 : t->nodes[at].parent;
        else if (n && !(n == 1 && target[0] == '.'))
            at = untar_names_find(t, at, target, n);
        if (!at || !untar_is_directory(t, at))
            return false;
        target += n;
    }
    return true;
}

/* ---- names ---- */

/* What is there already in the place of a name whose parent is there.  dir: the length of the parent's path. */
static bool look(struct untar *u, uint32_t node, const char *path, size_t dir, size_t len)
{
    char name[TAR_NAME_MAX + 1];
    struct stat st;
    struct untar_node *n = &u->names.nodes[node];
    size_t at = dir ? dir + 1 : 0;
    memcpy(name, path + at, len - at);
    name[len - at] = '\0';
    int fd = untar_open(u, path, dir);
    if (fd < 0 || fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW))
        return true; /* not there, or it will be seen then */
    n->there = true;
    bool directory = untar_is_directory(&u->names, node);
    if (directory && S_ISLNK(st.st_mode))
        return untar_refused(u, path, "leads through a link that is there");
    errno = directory && !S_ISDIR(st.st_mode) ? ENOTDIR : !directory && S_ISDIR(st.st_mode) ? EISDIR : 0;
    return errno == 0 || untar_failed(u, path, "something else is there");
}

static bool full(struct untar *u)
{
    return untar_refused(u, "", "it has too many names");
}

static uint32_t add(struct untar *u, uint32_t parent, const char *path, size_t dir, size_t len,
                    enum untar_kind kind)
{
    size_t at = dir ? dir + 1 : 0;
    uint32_t node = untar_names_add(&u->names, parent, path + at, len - at, kind);
    if (!node) {
        full(u);
        return 0;
    }
    return !u->names.nodes[parent].there || look(u, node, path, dir, len) ? node : 0;
}

/* The node of the directory that path lies in, 0 when it is refused.  *dir: the length of its path. */
static uint32_t enter(struct untar *u, const char *path, size_t *dir)
{
    uint32_t at = UNTAR_TOP;
    const char *from = path;
    *dir = 0;
    for (const char *slash; at && (slash = strchr(from, '/')); from = slash + 1) {
        size_t len = (size_t)(slash - path);
        uint32_t node = untar_names_find(&u->names, at, from, (size_t)(slash - from));
        if (!node)
            node = add(u, at, path, *dir, len, UNTAR_IMPLIED);
        else if (!untar_is_directory(&u->names, node)) {
            untar_refused(u, path,
                          u->names.nodes[node].kind == UNTAR_LINK ? "leads through a link of the archive"
                                                                  : "lies below a file of the archive");
            node = 0;
        }
        *dir = len;
        at = node;
    }
    return at;
}

static uint32_t find(const struct untar_names *t, const char *path)
{
    uint32_t at = UNTAR_TOP;
    for (size_t n; at && *path; path += n + (path[n] == '/')) {
        n = strcspn(path, "/");
        at = untar_names_find(t, at, path, n);
    }
    return at;
}

static enum untar_kind kind_of(const struct tar_entry *e)
{
    return e->kind == TAR_DIRECTORY ? UNTAR_DIRECTORY : e->kind == TAR_SYMLINK ? UNTAR_LINK : UNTAR_FILE;
}

/* Its name, among those before it. */
static bool check_name(struct untar *u, const struct tar_entry *e)
{
    size_t dir, len = strlen(e->path);
    enum untar_kind kind = kind_of(e);
    uint32_t parent = enter(u, e->path, &dir);
    if (!parent)
        return false;
    size_t at = dir ? dir + 1 : 0;
    uint32_t node = untar_names_find(&u->names, parent, e->path + at, len - at);
    if (!node) {
        node = add(u, parent, e->path, dir, len, kind);
        if (!node)
            return false;
    } else if (kind == UNTAR_DIRECTORY && untar_is_directory(&u->names, node)) {
        u->names.nodes[node].kind = UNTAR_DIRECTORY;
    } else if (u->names.nodes[node].kind != kind) {
        return untar_refused(u, e->path, "is there twice, as different things");
    }
    const struct untar_directory d = {.mtime_s = e->mtime_s, .mtime_ns = e->mtime_ns, .mode = e->mode};
    return kind != UNTAR_DIRECTORY || untar_names_set(&u->names, node, &d) || full(u);
}

static bool check_entry(struct untar *u, bool *later)
{
    const struct tar_entry *e = &u->source.reader.entry;
    if (!e->path[0]) /* the target itself stays as it is */
        return true;
    if (e->kind == TAR_SYMLINK) {
        bool unsure;
        const char *wrong = untar_target_wrong(u, e->path, e->target, &unsure);
        if (wrong)
            return untar_refused(u, e->path, wrong);
        *later = *later || unsure;
    }
    if (e->kind == TAR_HARDLINK) {
        uint32_t node = find(&u->names, e->target);
        if (!node || u->names.nodes[node].kind != UNTAR_FILE)
            return untar_refused(u, e->path,
                                 node ? "a hard link to what is no file"
                                      : "a hard link to what is not in the archive before it");
    }
    return check_name(u, e);
}

static bool next(struct untar *u, enum tar_step *step)
{
    *step = tar_source_next(&u->source);
    if (*step != TAR_WRONG)
        return true;
    return u->source.wrong ? untar_refused(u, u->source.reader.name, u->source.wrong)
                           : untar_failed(u, u->source.reader.name, "reading the archive");
}

enum { CHECK_MS = 60 * 1000 }; /* beyond the deadline of extracting, which goes on in another call */

static bool is_late(struct untar *u)
{
    if (guest_now_ms() <= u->deadline_ms + CHECK_MS)
        return false;
    (void)fs_refused(u->fs, ETIMEDOUT, "the archive is too long to be looked through");
    return true;
}

/* Links whose targets go up behind a name, now that all names are known. */
static bool check_targets(struct untar *u)
{
    enum tar_step step;
    const struct tar_entry *e = &u->source.reader.entry;
    tar_source_open(&u->source, u->archive, (uint64_t)u->facts.st_size);
    while (next(u, &step) && step == TAR_ENTRY) {
        bool later;
        if (is_late(u))
            return false;
        if (e->kind == TAR_SYMLINK && !untar_target_wrong(u, e->path, e->target, &later) && later &&
            !stays_inside(u, e->path, e->target))
            return untar_refused(u, e->path, "a link that may lead out of the target");
    }
    return step == TAR_END;
}

bool untar_check(struct untar *u)
{
    enum tar_step step = TAR_MORE;
    bool later = false;
    tar_source_open(&u->source, u->archive, (uint64_t)u->facts.st_size);
    u->names.nodes[UNTAR_TOP].there = u->dir >= 0;
    while (step != TAR_END) {
        if (u->source.next == u->at) {
            u->reader = u->source.reader;
            u->found = true;
        }
        if (!next(u, &step))
            return false;
        if (step == TAR_ENTRY && !check_entry(u, &later))
            return false;
        u->entries += step == TAR_ENTRY;
        if (is_late(u))
            return false;
    }
    return !later || check_targets(u);
}
