/* The archive of a directory, in the byte order of paths, so that it can be cut anywhere and go on.  Every entry is of one
 * state of the file, but that it may have grown behind its end. */
#include "guest/fs.h"
#include "guest/fs_match.h"
#include "guest/fs_stage.h"
#include "guest/fs_tar_cursor.h"
#include "guest/fs_walk.h"
#include "guest/record.h"
#include "guest/tar_write.h"

#include "guest/out.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    NAMES_MS = 60 * 1000
}; /* more than for the rest: a call that read them too slowly would come nowhere */

/* How far the patterns have come in a directory that we are in. */
struct level {
    struct match_state include, exclude;
    bool taken; /* all that is below */
};

struct tar {
    struct fs *fs;
    struct fs_stage stage;
    struct stat dir, own; /* what is archived, and the helper's own directory */
    bool has_own;
    struct match include, exclude;
    struct level levels[FS_DEPTH_MAX + 1];
    struct fs_tar_cursor from, to; /* where this call begins and ends */
    bool failed, full;             /* fs->f says why; there is no room in this call */
    bool met;                      /* the entry that we began in */
};

/* The rest of a name that is too long to be shown says more. */
static bool failed_at(struct tar *t, const char *path, enum sg_wire_fail code, const char *what)
{
    char text[sizeof t->fs->f->text];
    int err = errno;
    size_t n = strlen(path), max = 64;
    snprintf(text, sizeof text, "%s%s: %s", n > max ? "..." : "", n > max ? path + n - max : path, what);
    t->failed = true;
    return code == SG_WF_FILE ? fs_refused(t->fs, err, text) : guest_failed(t->fs->f, code, 0, text);
}

static bool changed(struct tar *t, const char *path)
{
    return failed_at(t, path, SG_WF_CHANGED, "changed while it was read");
}

/* ---- what belongs to it ---- */

static const char *make_patterns(struct match *m, const char *list)
{
    const char *wrong = match_make(list, true, m);
    for (list += strlen(list) + 1; !wrong && *list; list += strlen(list) + 1)
        wrong = match_add(list, m);
    /* What has no slash is looked for at any depth. */
    for (size_t i = 0; !wrong && i < m->count; i++) {
        struct match_pattern *p = &m->patterns[i];
        if (p->count == 1) {
            p->parts[1] = p->parts[0];
            p->parts[0] = "**";
            p->count = 2;
        }
    }
    return wrong;
}

static bool is_excluded(const struct tar *t, const struct fs_entry *e, bool directory)
{
    struct match_state s;
    if (!t->fs->a->exclude)
        return false;
    match_step(&t->exclude, &t->levels[e->depth].exclude, e->name, &s);
    return match_is_full(&t->exclude, &s, directory);
}

static bool is_included(const struct tar *t, const struct fs_entry *e, bool directory)
{
    struct match_state s;
    if (!t->fs->a->include || t->levels[e->depth].taken)
        return true;
    match_step(&t->include, &t->levels[e->depth].include, e->name, &s);
    return match_is_full(&t->include, &s, directory);
}

static bool is_own(const struct tar *t, const struct stat *st)
{
    return t->has_own && st->st_dev == t->own.st_dev && st->st_ino == t->own.st_ino;
}

static bool enter(void *arg, const struct fs_entry *e)
{
    struct tar *t = arg;
    struct level *l = &t->levels[e->depth + 1];
    struct stat st;
    if (is_excluded(t, e, true) ||
        (t->has_own && fstatat(e->dir, e->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && is_own(t, &st)))
        return false;
    if (t->fs->a->exclude)
        match_step(&t->exclude, &t->levels[e->depth].exclude, e->name, &l->exclude);
    if (!t->fs->a->include)
        return true;
    match_step(&t->include, &t->levels[e->depth].include, e->name, &l->include);
    l->taken = is_included(t, e, true);
    return l->taken || match_goes_on(&t->include, &l->include);
}

/* ---- bytes ---- */

/* Those from *skip on (which becomes less); *at counts all that are behind us.  What has no room makes it full. */
static bool emit(struct tar *t, const unsigned char *p, size_t n, uint64_t *skip, uint64_t *at)
{
    size_t k = n < *skip ? n : (size_t)*skip;
    *skip -= k;
    *at += k;
    p += k;
    n -= k;
    uint64_t room = fs_stage_room(&t->stage);
    t->full = n > room;
    n = t->full ? (size_t)room : n;
    *at += n;
    if (fs_stage_write(&t->stage, p, n))
        return true;
    t->failed = true;
    return false;
}

static void cut_at(struct tar *t, enum fs_tar_phase phase, const char *path, uint64_t at,
                   const struct stat *st)
{
    struct fs_tar_cursor *c = &t->to;
    c->phase = phase;
    c->at = at;
    memset(&c->entry, 0, sizeof c->entry);
    if (st) {
        struct sg_wire_file f = fs_wire_file(st);
        c->entry.dev = f.dev;
        c->entry.ino = f.ino;
        c->entry.size = f.size;
        c->entry.mtime_ns = f.mtime_ns;
        c->entry.ctime_ns = f.ctime_ns;
    }
    snprintf(c->path, sizeof c->path, "%s", path);
}

static bool in_phase(const struct tar *t, enum fs_tar_phase phase)
{
    return !t->met && t->from.phase == phase;
}

/* An entry's header, or what of it is left.  A header is not cut if this call has told anything before it. */
static bool emit_head(struct tar *t, const struct tar_head *h, const struct stat *st)
{
    static unsigned char head[TAR_HEAD_MAX];
    if (in_phase(t, FS_TAR_CONTENTS))
        return true;
    uint64_t skip = in_phase(t, FS_TAR_HEAD) ? t->from.at : 0, at = 0;
    size_t n = tar_write_head(head, h);
    if (skip >= n && skip)
        return changed(t, h->path);
    t->full = t->stage.taken && n > fs_stage_room(&t->stage);
    if (t->full)
        return true; /* behind the entry before it */
    if (!emit(t, head, n, &skip, &at))
        return false;
    if (t->full)
        cut_at(t, FS_TAR_HEAD, h->path, at, st);
    return true;
}

/* The size bytes of fd, and zeros up to a whole block. */
static bool emit_contents(struct tar *t, const char *path, int fd, uint64_t size, struct stat *st)
{
    static const unsigned char zeros[TAR_BLOCK];
    uint64_t at = in_phase(t, FS_TAR_CONTENTS) ? t->from.at : 0, copied = 0, end = tar_padded(size);
    uint64_t mark = in_phase(t, FS_TAR_CONTENTS) ? t->from.entry.mark : fs_mark(fd, 0);
    struct stat was = *st;
    if (at > end)
        return changed(t, path);
    uint64_t from = at < size ? at : size;
    if (at < size && !fs_stage_copy(&t->stage, fd, at, size - at, &copied)) {
        t->failed = true;
        return false;
    }
    at += copied;
    t->full = at < size;
    uint64_t next = t->full ? fs_mark(fd, at) : 0;
    if ((t->full && fs_stage_room(&t->stage)) || (copied && !fs_is_unchanged(fd, st)))
        return changed(t, path);
    /* What has grown may as well have been emptied and written anew. */
    if (st->st_size > was.st_size &&
        (!fs_stage_holds(&t->stage, fd, from, copied) || fs_mark(fd, from) != mark))
        return changed(t, path);
    uint64_t none = 0;
    if (!t->full && !emit(t, zeros, (size_t)(end - at), &none, &at))
        return false;
    if (t->full) {
        cut_at(t, FS_TAR_CONTENTS, path, at, st);
        t->to.entry.size = size;
        t->to.entry.mark = at < size ? next : fs_mark(fd, size);
    }
    return true;
}

/* ---- entries ---- */

static struct timespec from_ns(int64_t ns)
{
    int64_t s = ns / 1000000000, rest = ns % 1000000000;
    return (struct timespec){.tv_sec = rest < 0 ? s - 1 : s, .tv_nsec = rest < 0 ? rest + 1000000000 : rest};
}

/* Whether it still is the entry that we began in; *st becomes what we knew of it.  Its header cannot change half way, but
 * a file may have grown behind what its header says. */
static bool is_known(const struct tar *t, int fd, struct stat *st)
{
    struct stat was = *st;
    const struct fs_tar_cursor *c = &t->from;
    struct sg_wire_file f = fs_wire_file(st);
    if (f.dev != c->entry.dev || f.ino != c->entry.ino)
        return false;
    was.st_size = (off_t)c->entry.size;
    was.st_mtim = from_ns(c->entry.mtime_ns);
    was.st_ctim = from_ns(c->entry.ctime_ns);
    if (c->phase == FS_TAR_CONTENTS) {
        uint64_t before = c->at < c->entry.size ? c->at : c->entry.size;
        if (!fs_is_unchanged(fd, &was) || fs_mark(fd, before) != c->entry.mark)
            return false;
        *st = was;
        return true;
    }
    return f.size == c->entry.size && f.mtime_ns == c->entry.mtime_ns && f.ctime_ns == c->entry.ctime_ns;
}

static struct tar_head head_of(enum tar_kind kind, const char *path, const struct stat *st)
{
    return (struct tar_head){.kind = kind,
                             .path = path,
                             .mode = st->st_mode & 07777,
                             .uid = st->st_uid,
                             .gid = st->st_gid,
                             .mtime_s = st->st_mtim.tv_sec};
}

static bool add_file(struct tar *t, const struct fs_entry *e)
{
    struct stat st;
    int fd = openat(e->dir, e->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && t->met)
        return true; /* gone meanwhile */
    if (fd < 0)
        return errno == ELOOP || errno == ENOENT ? changed(t, e->path)
                                                 : failed_at(t, e->path, SG_WF_FILE, "cannot be read");
    bool ok =
        (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (t->met ? fs_rest(fd, &st) : is_known(t, fd, &st))) ||
        changed(t, e->path);
    if (ok) {
        struct tar_head h = head_of(TAR_FILE, e->path, &st);
        h.size = in_phase(t, FS_TAR_CONTENTS) ? t->from.entry.size : (uint64_t)st.st_size;
        ok = emit_head(t, &h, &st) && (t->full || emit_contents(t, e->path, fd, h.size, &st));
    }
    fs_close(fd);
    return ok;
}

static bool add_link(struct tar *t, const struct fs_entry *e, const struct stat *st)
{
    char target[TAR_PATH_MAX + 1];
    ssize_t n = readlinkat(e->dir, e->name, target, sizeof target);
    if (n < 0 && errno == ENOENT && t->met)
        return true;
    if (n <= 0 || n == sizeof target)
        return changed(t, e->path);
    target[n] = '\0';
    struct tar_head h = head_of(TAR_SYMLINK, e->path, st);
    h.target = target;
    return emit_head(t, &h, st);
}

static bool add_entry(struct tar *t, const struct fs_entry *e, const struct stat *st)
{
    if (S_ISREG(st->st_mode))
        return add_file(t, e);
    struct stat now = *st;
    if (!t->met && (t->from.phase != FS_TAR_HEAD || !is_known(t, -1, &now)))
        return changed(t, e->path);
    if (S_ISLNK(st->st_mode))
        return add_link(t, e, st);
    if (S_ISDIR(st->st_mode)) {
        struct tar_head h = head_of(TAR_DIRECTORY, e->path, st);
        return emit_head(t, &h, st);
    }
    t->to.skipped++;
    return true;
}

static bool visit(void *arg, const struct fs_entry *e)
{
    struct tar *t = arg;
    struct stat st;
    if (!t->met && strcmp(e->path, t->from.path) != 0)
        return changed(t, t->from.path); /* it is gone */
    if (fstatat(e->dir, e->name, &st, AT_SYMLINK_NOFOLLOW)) {
        if (errno == ENOENT && t->met)
            return true;
        return errno == ENOENT ? changed(t, e->path) : failed_at(t, e->path, SG_WF_FILE, "cannot be read");
    }
    bool directory = S_ISDIR(st.st_mode);
    if (!is_excluded(t, e, directory) && is_included(t, e, directory) && !is_own(t, &st) &&
        !add_entry(t, e, &st))
        return false;
    t->met = true;
    if (t->full)
        return false;
    cut_at(t, FS_TAR_AFTER, e->path, 0, NULL);
    return !out_is_broken();
}

static bool unreadable(void *arg, const char *path)
{
    struct tar *t = arg;
    if (errno == ENOTDIR || errno == ELOOP) /* it was one */
        return changed(t, path);
    return failed_at(t, *path ? path : ".", SG_WF_FILE, "cannot be read");
}

/* ---- the whole ---- */

static bool add_end(struct tar *t)
{
    static const unsigned char zeros[TAR_TRAILER];
    uint64_t skip = t->from.phase == FS_TAR_END ? t->from.at : 0, at = 0;
    if (!emit(t, zeros, sizeof zeros, &skip, &at))
        return false;
    if (t->full)
        cut_at(t, FS_TAR_END, "", at, NULL);
    return true;
}

static bool end_call(struct tar *t, bool more)
{
    char cursor[FS_TAR_CURSOR_MAX], word[40];
    t->to.offset = t->from.offset + t->stage.taken;
    snprintf(word, sizeof word, "skipped:%" PRIu64, t->to.skipped);
    if (more && !fs_tar_cursor_format(cursor, &t->to)) {
        errno = ENAMETOOLONG;
        return failed_at(t, t->to.path, SG_WF_FILE, "has too long a path");
    }
    return fs_stage_end(&t->stage, more ? cursor : NULL, more ? NULL : word);
}

static bool add_all(struct tar *t, int fd)
{
    const struct fs_tar_cursor *c = &t->from;
    bool within = c->phase == FS_TAR_HEAD || c->phase == FS_TAR_CONTENTS;
    struct fs_walk w = {.arg = t,
                        .visit = visit,
                        .enter = enter,
                        .failed = unreadable,
                        .after = c->path[0] ? c->path : NULL,
                        .after_too = within,
                        .deadline_ms = t->fs->deadline_ms,
                        .names_deadline_ms = t->fs->deadline_ms + NAMES_MS};
    t->met = !within;
    t->to = t->from;
    if (c->phase != FS_TAR_END) {
        if (!fs_walk(&w, fd))
            return fs_failed(t->fs, "reading the directory");
        if (!t->failed && !w.late && !t->met)
            return changed(t, c->path);
        if (t->failed)
            return false;
        if (t->full || w.late)
            return end_call(t, true);
    }
    return add_end(t) && end_call(t, t->full);
}

static bool begin(struct tar *t, int fd)
{
    const struct fs_args *a = t->fs->a;
    struct guest_root store;
    struct guest_fail ignored;
    const char *wrong = a->include ? make_patterns(&t->include, a->include) : NULL;
    if (!wrong && a->exclude)
        wrong = make_patterns(&t->exclude, a->exclude);
    if (wrong)
        return fs_refused(t->fs, EINVAL, wrong);
    match_start(&t->include, &t->levels[0].include);
    match_start(&t->exclude, &t->levels[0].exclude);
    if (fstat(fd, &t->dir))
        return fs_failed(t->fs, "the directory");
    if (root_open(&store, false, &ignored)) {
        t->has_own = fstat(store.fd, &t->own) == 0;
        close(store.fd);
    }
    struct sg_wire_file f = fs_wire_file(&t->dir);
    t->from = (struct fs_tar_cursor){.dev = f.dev, .ino = f.ino};
    if (!a->cursor)
        return true;
    if (!fs_tar_cursor_parse(a->cursor, &t->from))
        return guest_failed(t->fs->f, SG_WF_USAGE, 0, "bad value of --cursor");
    return (t->from.dev == f.dev && t->from.ino == f.ino) ||
           guest_failed(t->fs->f, SG_WF_CHANGED, 0, "the directory is another one");
}

bool fs_tar(struct fs *fs)
{
    struct tar *t = calloc(1, sizeof *t);
    if (!t)
        return guest_failed(fs->f, SG_WF_INTERNAL, ENOMEM, "no memory");
    t->fs = fs;
    fs_stage_begin(&t->stage, fs, 0, UINT64_MAX); /* what is to be dropped is, whatever comes */
    int fd = fs_open(fs, fs->a->path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_NOCTTY, 0);
    bool ok = fd >= 0 ? begin(t, fd) : fs_failed(fs, "the directory");
    if (ok) {
        fs_print(&t->dir, "", -1, NULL);
        t->stage.offset = t->from.offset;
        ok = add_all(t, fd);
    }
    fs_stage_close(&t->stage);
    fs_close(fd);
    match_free(&t->include);
    match_free(&t->exclude);
    free(t);
    return ok;
}
