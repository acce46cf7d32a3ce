/* Import of base trees: from a tar, or from a directory that is turned into one on the way. */
#include "emulator/layers_dir.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- a directory as a stream --- */

struct packer {
    const char *dir;
    int out;
    int error;
    char err[BOX_TEXT];
};

static int pack_fail(struct packer *p, struct archive *a)
{
    int e = archive_errno(a);
    const char *s = archive_error_string(a);
    snprintf(p->err, sizeof p->err, "cannot read %.100s: %.100s", p->dir, s != NULL ? s : "unknown error");
    return e > 0 && e < 4096 ? e : EIO;
}

static int pack_data(struct packer *p, struct archive *from, struct archive *to)
{
    for (;;) {
        const void *block;
        size_t n;
        la_int64_t at;
        int r = archive_read_data_block(from, &block, &n, &at);
        if (r == ARCHIVE_EOF)
            return 0;
        if (r != ARCHIVE_OK)
            return pack_fail(p, from);
        if (archive_write_data(to, block, n) < 0)
            return pack_fail(p, to);
    }
}

/* The name of an entry within the tree. */
static const char *relative(const struct packer *p, const char *path)
{
    size_t n = strlen(p->dir);
    if (path == NULL || strncmp(path, p->dir, n) != 0)
        return NULL;
    path += n;
    path += strspn(path, "/");
    return path[0] == '\0' ? "." : path;
}

static int pack_entry(struct packer *p, struct archive *from, struct archive *to,
                      struct archive_entry_linkresolver *links, struct archive_entry *e)
{
    const char *name = relative(p, archive_entry_pathname(e));
    char *copy = name != NULL ? strdup(name) : NULL;
    if (copy == NULL)
        return ENOMEM;
    archive_entry_set_pathname(e, copy);
    free(copy);
    if (archive_entry_filetype(e) == AE_IFSOCK)
        return 0;
    struct archive_entry *deferred = NULL; /* never set by the tar strategies */
    archive_entry_linkify(links, &e, &deferred);
    /* Sparse maps would have to be followed while writing; a base is read once, plainly. */
    archive_entry_sparse_clear(e);
    if (archive_write_header(to, e) < ARCHIVE_WARN)
        return pack_fail(p, to);
    bool body = archive_entry_filetype(e) == AE_IFREG && archive_entry_hardlink(e) == NULL;
    return body ? pack_data(p, from, to) : 0;
}

static int pack(struct packer *p)
{
    int e = 0;
    struct archive *from = archive_read_disk_new();
    struct archive *to = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    struct archive_entry_linkresolver *links = archive_entry_linkresolver_new();
    if (from == NULL || to == NULL || entry == NULL || links == NULL) {
        e = ENOMEM;
        goto out;
    }
    archive_read_disk_set_symlink_physical(from);
    archive_read_disk_set_behavior(from, ARCHIVE_READDISK_NO_TRAVERSE_MOUNTS | ARCHIVE_READDISK_NO_XATTR |
                                             ARCHIVE_READDISK_NO_ACL | ARCHIVE_READDISK_NO_FFLAGS);
    if (archive_write_set_format_pax_restricted(to) != ARCHIVE_OK ||
        archive_write_open_fd(to, p->out) != ARCHIVE_OK ||
        archive_read_disk_open(from, p->dir) != ARCHIVE_OK) {
        e = pack_fail(p, from);
        goto out;
    }
    archive_entry_linkresolver_set_strategy(links, archive_format(to));
    for (;;) {
        archive_entry_clear(entry);
        int r = archive_read_next_header2(from, entry);
        if (r == ARCHIVE_EOF)
            break;
        if (r < ARCHIVE_WARN) {
            e = pack_fail(p, from);
            goto out;
        }
        (void)archive_read_disk_descend(from);
        if ((e = pack_entry(p, from, to, links, entry)) != 0)
            goto out;
    }
    if (archive_write_close(to) != ARCHIVE_OK)
        e = pack_fail(p, to);
out:
    archive_entry_linkresolver_free(links);
    archive_entry_free(entry);
    if (to != NULL)
        archive_write_free(to);
    if (from != NULL)
        archive_read_free(from);
    return e;
}

static void *pack_main(void *arg)
{
    struct packer *p = arg;
    p->error = pack(p);
    box_fd_close(&p->out);
    return NULL;
}

static int start_packer(struct packer *p, pthread_t *thread, int *source)
{
    int pipefd[2];
    if (pipe2(pipefd, O_CLOEXEC) != 0)
        return box_errno();
    p->out = pipefd[1];
    sigset_t all; /* a broken pipe shall be an error there, and no signal */
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int e = pthread_create(thread, NULL, pack_main, p);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e != 0) {
        close(pipefd[0]);
        close(pipefd[1]);
        return e;
    }
    *source = pipefd[0];
    return 0;
}

/* --- import --- */

struct report {
    layers_progress_fn *fn;
    void *arg;
};

static void on_progress(void *arg, const struct box_msg *m)
{
    const struct report *r = arg;
    if (r->fn != NULL)
        r->fn(r->arg, m->count, m->bytes);
}

/* Unpacks the source into dir.  Consumes source. */
static int unpack(struct layers *l, int dir, int *source, struct report *r, char err[BOX_TEXT])
{
    struct box_msg *m = calloc(1, sizeof *m);
    int e = m == NULL ? ENOMEM
                      : box_host_helper(l->host, BOX_HELPER_IMPORT, dir, *source, on_progress, r, m, err);
    box_fd_close(source);
    if (e == 0 && r->fn != NULL)
        r->fn(r->arg, m->count, m->bytes);
    free(m);
    return e;
}

static int fill(struct layers *l, int dir, const char *path, struct report *r, char err[BOX_TEXT])
{
    struct packer p = {.dir = path, .out = -1};
    pthread_t thread;
    bool packing = false;
    struct stat sb;
    int source = -1;
    int e = stat(path, &sb) != 0 ? errno : 0;
    if (e == 0 && S_ISDIR(sb.st_mode)) {
        e = start_packer(&p, &thread, &source);
        packing = e == 0;
    } else if (e == 0) {
        source = open(path, O_RDONLY | O_CLOEXEC);
        if (source < 0)
            e = errno;
    }
    if (e != 0) {
        snprintf(err, BOX_TEXT, "cannot read the base %.150s: %s", path, strerror(e));
        return e;
    }
    e = unpack(l, dir, &source, r, err);
    if (packing) {
        pthread_join(thread, NULL);
        if (p.error != 0 && (e == 0 || p.error != EPIPE)) { /* the cause comes before its consequence */
            e = p.error;
            snprintf(err, BOX_TEXT, "%s", p.err[0] != '\0' ? p.err : strerror(e));
        }
    }
    return e;
}

/* Puts the finished tree into its place; an old one goes to the trash. */
static int publish(struct layers *l, const char *tmp, const char *path)
{
    if (renameat2(l->fd, tmp, l->fd, path, RENAME_NOREPLACE) == 0)
        return layers_sync_dir(l, "base");
    if (errno != EEXIST)
        return errno;
    if (renameat2(l->fd, tmp, l->fd, path, RENAME_EXCHANGE) != 0)
        return errno;
    int e = layers_sync_dir(l, "base");
    return e != 0 ? e : layers_trash(l, tmp);
}

int layers_import_base(struct layers *l, const char *name, const char *source, bool force,
                       layers_progress_fn *progress, void *arg, char err[BOX_TEXT])
{
    err[0] = '\0';
    char tmp[LAYERS_PATH];
    char path[LAYERS_PATH];
    struct report r = {progress, arg};
    if (!layers_name_valid(name)) {
        snprintf(err, BOX_TEXT, "a base is named with letters, digits, '.', '_' and '-', at most %d",
                 LAYERS_NAME_MAX);
        return EINVAL;
    }
    if (!force && layers_has_base(l, name))
        return 0;
    snprintf(tmp, sizeof tmp, "base/.%s.%u", name, atomic_fetch_add(&l->serial, 1));
    snprintf(path, sizeof path, "base/%s", name);
    int dir = -1;
    int e = 0;
    if (mkdirat(l->fd, tmp, 0755) != 0 || fchmodat(l->fd, tmp, 0755, 0) != 0)
        e = errno;
    if (e == 0)
        e = layers_give(l, l->fd, tmp);
    if (e == 0 && (dir = openat(l->fd, tmp, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        e = errno;
    if (e == 0)
        e = fill(l, dir, source, &r, err);
    /* Whole on disk before it is there by name. */
    if (e == 0 && syncfs(dir) != 0)
        e = errno;
    if (e == 0)
        e = publish(l, tmp, path);
    box_fd_close(&dir);
    if (e != 0) {
        if (err[0] == '\0')
            snprintf(err, BOX_TEXT, "cannot import the base into %.150s: %s", l->dir, strerror(e));
        (void)layers_trash(l, tmp);
    }
    return e;
}
