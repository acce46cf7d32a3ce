#include "guest/fs_upload.h"

#include "guest/fs_meta.h"
#include "guest/fs_put.h"
#include "guest/out.h"
#include "guest/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { LOCK_TRIES = 100, JOIN_WAIT_MS = 5000 };

/* An upload as one of its operations sees it.  One at a time. */
struct upload {
    struct fs *fs;
    struct guest_root store;
    struct upload_names names;
    int lock; /* the meta's file, locked, as long as it has its name */
    struct fs_meta meta;
};

void upload_names(const char *id, struct upload_names *n)
{
    snprintf(n->joined, sizeof n->joined, ".up-%s", id);
    snprintf(n->by, sizeof n->by, ".up-%s.by", id);
    snprintf(n->meta, sizeof n->meta, ".um-%s", id);
}

bool upload_offset_failed(struct fs *fs, uint64_t size)
{
    char text[64];
    snprintf(text, sizeof text, "accepted %" PRIu64, size);
    return guest_failed(fs->f, SG_WF_UPLOAD_OFFSET, 0, text);
}

static bool no_upload(struct fs *fs)
{
    return guest_failed(fs->f, SG_WF_NO_UPLOAD, 0, "no such upload");
}

static bool write_all(int fd, const char *data, size_t len)
{
    size_t at = 0;
    while (at < len) {
        ssize_t n = pwrite(fd, data + at, len - at, (off_t)at);
        if (n == 0)
            errno = ENOSPC;
        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

bool upload_write(const struct guest_root *store, const char *name, const char *data, size_t len,
                  bool exclusive, int *fd)
{
    char temp[FS_UPLOAD_NAME_MAX + 16];
    snprintf(temp, sizeof temp, "%s-%d", name, (int)getpid());
    (void)unlinkat(store->fd, temp, 0); /* of another with our number, long ago */
    int file = openat(store->fd, temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool ok = file >= 0 && root_own(store, file) && write_all(file, data, len) &&
              (!fd || (flock(file, LOCK_EX) == 0 && fsync(file) == 0)) &&
              fs_rename(store->fd, temp, store->fd, name, exclusive);
    if (!ok) {
        int err = errno;
        if (file >= 0)
            (void)unlinkat(store->fd, temp, 0);
        errno = err;
    }
    if (!ok || !fd)
        fs_close(file);
    else
        *fd = file;
    return ok;
}

/* ---- what is known ---- */

/* Reads the meta: false when there is none, or none of ours. */
static bool load(struct fs_meta *m, int store, const char *name, const char *id)
{
    long n = guest_read_file(store, name, m->text, sizeof m->text);
    return n > 0 && n <= FS_META_MAX && fs_meta_parse(m, (size_t)n) && strcmp(m->a.id, id) == 0;
}

/* Who is confined sees what was begun below the same root. */
static bool is_below(const struct fs *fs, const struct fs_meta *m)
{
    return !fs->a->root || (m->a.root && strcmp(m->a.root, fs->a->root) == 0);
}

static bool find(struct upload *u)
{
    return (load(&u->meta, u->store.fd, u->names.meta, u->fs->a->id) && is_below(u->fs, &u->meta)) ||
           no_upload(u->fs);
}

static bool begin(struct upload *u, struct fs *fs)
{
    u->fs = fs;
    u->lock = -1;
    u->meta.a = (struct fs_args){0};
    u->store.fd = -1;
    upload_names(fs->a->id, &u->names);
    if (root_open(&u->store, false, fs->f))
        return true;
    return fs->f->code == SG_WF_NO_RECORD ? no_upload(fs) : false;
}

static void finish(struct upload *u)
{
    fs_meta_free(&u->meta);
    fs_close(u->lock);
    fs_close(u->store.fd);
}

/* find(), and nobody else ends or removes it meanwhile. */
static bool find_locked(struct upload *u)
{
    struct stat mine, there;
    for (int i = 0; i < LOCK_TRIES; i++) {
        u->lock = guest_open_file(u->store.fd, u->names.meta);
        if (u->lock < 0)
            return no_upload(u->fs);
        if (!fs_lock(u->fs, u->lock, UINT64_MAX) || fstat(u->lock, &mine))
            return fs_failed(u->fs, "the upload");
        if (fstatat(u->store.fd, u->names.meta, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
            mine.st_dev == there.st_dev && mine.st_ino == there.st_ino)
            return find(u);
        close(u->lock);
        u->lock = -1;
    }
    return fs_refused(u->fs, EAGAIN, "the upload is being changed");
}

/* The size of what came so far; false: nothing did. */
static bool joined_size(const struct upload *u, uint64_t *size)
{
    struct stat st;
    bool there = fstatat(u->store.fd, u->names.joined, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
    *size = there ? (uint64_t)st.st_size : 0;
    return there;
}

/* Whether what was to take its place did: it left the store for it, or is found there. */
static bool took_place(const struct upload *u)
{
    uint64_t size;
    return u->meta.state == FS_META_DONE || (u->meta.state == FS_META_ENDS && !joined_size(u, &size));
}

bool upload_may_grow(struct fs *fs, const struct guest_root *store, const struct upload_names *n)
{
    static struct fs_meta m;
    if (fs->a->id[0] != 'r')
        return true;
    bool ok = load(&m, store->fd, n->meta, fs->a->id) && is_below(fs, &m) && m.state != FS_META_DONE;
    fs_meta_free(&m);
    if (ok)
        (void)utimensat(store->fd, n->meta, NULL, AT_SYMLINK_NOFOLLOW);
    return ok || no_upload(fs);
}

static struct upload upload;

/* ---- upload-open ---- */

/* Where a relative path leads must not depend on who ends the upload. */
static bool make_absolute(struct fs *fs, struct fs_args *a, char path[FS_PATH_MAX + 1])
{
    char cwd[PATH_MAX];
    if (a->root || a->path[0] == '/')
        return true;
    if (!getcwd(cwd, sizeof cwd))
        return fs_failed(fs, "the working directory");
    if (snprintf(path, FS_PATH_MAX + 1, "%s/%s", cwd, a->path) > FS_PATH_MAX)
        return fs_refused(fs, ENAMETOOLONG, "the path");
    a->path = path;
    return true;
}

static bool open_upload(struct upload *u)
{
    static char text[FS_META_MAX], there[FS_META_MAX + 1], path[FS_PATH_MAX + 1];
    struct fs *fs = u->fs;
    struct fs_args a = *fs->a;
    if (!make_absolute(fs, &a, path))
        return false;
    size_t n = fs_meta_format(text, FS_META_OPEN, &a, NULL, false);
    if (n == 0)
        return fs_refused(fs, E2BIG, "the upload's options");
    /* Asked again? */
    if (guest_read_file(u->store.fd, u->names.meta, there, sizeof there) == (long)n &&
        memcmp(there, text, n) == 0)
        return true;
    if (!fs_put_look(fs))
        return false;
    int fd;
    if (!upload_write(&u->store, u->names.meta, text, n, true, &fd))
        return fs_failed(fs, "the upload");
    close(fd);
    return true;
}

bool fs_upload_open(struct fs *fs)
{
    bool ok = begin(&upload, fs);
    if (ok) {
        sweep_stale(&upload.store);
        ok = open_upload(&upload);
    }
    if (ok)
        out_kind(SG_WIRE_OK, NULL);
    finish(&upload);
    return ok;
}

/* ---- upload-state ---- */

/* A join that is under way ends first: where the upload goes on is told so that it will not have moved at once. */
static void wait_for_join(const struct upload *u)
{
    int fd = guest_open_file(u->store.fd, u->names.joined);
    if (fd >= 0)
        (void)fs_lock(u->fs, fd, JOIN_WAIT_MS);
    fs_close(fd);
}

bool fs_upload_state(struct fs *fs)
{
    struct upload *u = &upload;
    uint64_t size = 0;
    bool ok = begin(u, fs);
    if (ok) {
        wait_for_join(u);
        (void)joined_size(u, &size); /* first: who ends it says so before it is gone */
        ok = find(u);
    }
    if (ok) {
        char word[64], length[24] = "-";
        bool done = took_place(u);
        if (u->meta.a.has_length)
            snprintf(length, sizeof length, "%" PRIu64, u->meta.a.length);
        snprintf(word, sizeof word, "%" PRIu64 ":%s:%s", done ? u->meta.file.size : size, length,
                 done ? "done" : "open");
        out_kind(SG_WIRE_OK, word);
    }
    finish(u);
    return ok;
}

/* ---- upload-finish ---- */

/* The lock of what is written now is ours before others can see it. */
static bool say(struct upload *u, enum fs_meta_state state, const struct sg_wire_file *file, bool replaced)
{
    static char text[FS_META_MAX];
    int fd;
    size_t n = fs_meta_format(text, state, &u->meta.a, file, replaced);
    if (n == 0)
        return fs_refused(u->fs, E2BIG, "the upload's options");
    if (!upload_write(&u->store, u->names.meta, text, n, false, &fd))
        return fs_failed(u->fs, "the upload");
    fs_close(u->lock);
    u->lock = fd;
    return true;
}

static bool about_to_take_place(void *arg, const struct stat *st, bool replaces)
{
    struct sg_wire_file f = fs_wire_file(st);
    return say(arg, FS_META_ENDS, &f, replaces);
}

/* An upload without a byte was never joined. */
static bool make_empty(const struct upload *u)
{
    return file_put(&u->store, u->store.fd, u->names.joined, NULL, 0) || errno == EEXIST ||
           fs_failed(u->fs, "the upload");
}

static bool take_place(struct upload *u, struct fs *fs)
{
    struct fs_put p = {
        .fs = fs, .store = &u->store, .name = u->names.joined, .before = about_to_take_place, .arg = u};
    bool ok = fs_put_take(&p);
    if (ok) {
        struct sg_wire_file f = fs_wire_file(&p.now);
        struct guest_fail ignored = *fs->f;
        (void)say(u, FS_META_DONE, &f, p.exists); /* otherwise it still says what was to take its place */
        *fs->f = ignored;
        fs_put_tell(&f, p.exists);
    }
    fs_put_close(&p);
    return ok;
}

/* We were killed right after it took its place as a copy: then that is found there. */
static bool copy_is_there(struct upload *u, struct fs *fs)
{
    struct stat st;
    if (u->meta.state != FS_META_ENDS)
        return false;
    int fd = fs_open(fs, fs->a->path, O_PATH, 0);
    bool there =
        fd >= 0 && fstat(fd, &st) == 0 && st.st_ino == u->meta.file.ino && st.st_dev == u->meta.file.dev;
    fs_close(fd);
    fs->outside = false;
    if (there)
        (void)unlinkat(u->store.fd, u->names.joined, 0);
    return there;
}

static bool end_upload(struct upload *u)
{
    const struct fs_args *asked = u->fs->a;
    struct fs_args a = u->meta.a; /* what a put would be told */
    struct fs fs = *u->fs;
    uint64_t size;
    a.op = FS_PUT;
    a.has_size = true;
    a.size = asked->size;
    a.digest = asked->digest ? asked->digest : a.digest;
    fs.a = &a;
    if (took_place(u)) {
        fs_put_tell(&u->meta.file, u->meta.replaced);
        return true;
    }
    bool there = joined_size(u, &size);
    if (size != asked->size || (a.has_length && a.length != size))
        return upload_offset_failed(u->fs, size);
    if (!there && !make_empty(u))
        return false;
    bool ok = fs_confine(&fs);
    if (ok && copy_is_there(u, &fs))
        fs_put_tell(&u->meta.file, u->meta.replaced);
    else
        ok = ok && take_place(u, &fs);
    fs_close(fs.root);
    return ok;
}

bool fs_upload_finish(struct fs *fs)
{
    bool ok = begin(&upload, fs) && find_locked(&upload) && end_upload(&upload);
    finish(&upload);
    return ok;
}

/* ---- upload-remove ---- */

struct removal {
    const struct upload *u;
    size_t n;
};

static bool remove_part(void *arg, int dir, const char *name)
{
    struct removal *r = arg;
    size_t n = strlen(r->u->names.joined);
    if (strncmp(name, r->u->names.joined, n) == 0 && (name[n] == '.' || name[n] == '\0'))
        r->n += unlinkat(dir, name, 0) == 0;
    return true;
}

bool fs_upload_remove(struct fs *fs)
{
    struct upload *u = &upload;
    bool ok = begin(u, fs);
    /* A plain upload has no meta, and nobody is confined to it. */
    if (ok && (fs->a->id[0] == 'r' || fs->a->root))
        ok = find_locked(u);
    if (ok) {
        struct removal r = {.u = u};
        int dir = dir_open(u->store.fd, ".");
        ok = (dir >= 0 && fs_each(dir, remove_part, &r)) || fs_failed(fs, "removing the upload");
        r.n += ok && unlinkat(u->store.fd, u->names.meta, 0) == 0;
        ok = ok && (r.n > 0 || no_upload(fs));
    }
    if (ok)
        out_kind(SG_WIRE_OK, NULL);
    finish(u);
    return ok;
}
