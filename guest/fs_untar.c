#include "guest/fs_untar.h"

#include "base/core/num.h"
#include "guest/files.h"
#include "guest/fs_put.h"
#include "guest/out.h"
#include "guest/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { NAME_SHOWN = 56 };

/* The end of a name says more. */
static int shown(const char *name, const char **from)
{
    size_t n = strlen(name);
    *from = n > NAME_SHOWN ? name + n - NAME_SHOWN : name;
    return n > NAME_SHOWN ? NAME_SHOWN : (int)n;
}

bool untar_refused(struct untar *u, const char *name, const char *wrong)
{
    char text[sizeof u->fs->f->text];
    const char *from;
    int n = shown(name, &from);
    snprintf(text, sizeof text, "%s%.*s%s%s", from > name ? "..." : "", n, from, n ? ": " : "", wrong);
    return guest_failed(u->fs->f, SG_WF_ARCHIVE, 0, text);
}

bool untar_failed(struct untar *u, const char *path, const char *what)
{
    char text[sizeof u->fs->f->text], much[48] = "";
    const char *from;
    int err = errno, n = shown(path, &from);
    if (u->extracting)
        snprintf(much, sizeof much, " (%" PRIu64 " of %" PRIu64 " entries done)", u->done, u->entries);
    snprintf(text, sizeof text, "%s%.*s%s%s%s", from > path ? "..." : "", n, from, n ? ": " : "", what, much);
    return fs_refused(u->fs, err, text);
}

/* ---- where to go on ---- */

/* "u1:<at>:<done>:<left>:<size>:<ino>:<ctime_ns>" of the archive: the entry (or its end), how many came before it, and
 * with left from which directory down they are to be finished. */
static void print_cursor(const struct untar *u)
{
    char text[160];
    int n = snprintf(text, sizeof text,
                     "cu1:%" PRIu64 ":%" PRIu64 ":%" PRIu32 ":%" PRIu64 ":%" PRIu64 ":%" PRIu64, u->at,
                     u->done, u->left, (uint64_t)u->facts.st_size, (uint64_t)u->facts.st_ino,
                     (uint64_t)fs_ns(u->facts.st_ctim));
    fs_print_name(text, (size_t)n);
}

static bool read_cursor(struct untar *u)
{
    uint64_t v[6];
    const char *text = u->fs->a->cursor;
    if (!text)
        return true;
    bool ok = strncmp(text, "u1:", 3) == 0;
    text += ok ? 3 : 0;
    for (size_t i = 0; ok && i < sizeof v / sizeof *v; i++) {
        size_t n = strcspn(text, ":");
        ok = sg_parse_u64(text, n,
                          i == 2   ? UNTAR_NAMES_MAX
                          : i >= 4 ? UINT64_MAX
                                   : INT64_MAX,
                          &v[i]) &&
             (text[n] == ':') == (i + 1 < sizeof v / sizeof *v);
        text += n + (text[n] == ':');
    }
    if (!ok)
        return guest_failed(u->fs->f, SG_WF_USAGE, 0, "bad value of --cursor");
    if (v[3] != (uint64_t)u->facts.st_size || v[4] != u->facts.st_ino ||
        v[5] != (uint64_t)fs_ns(u->facts.st_ctim))
        return guest_failed(u->fs->f, SG_WF_CHANGED, 0, "the archive changed while it was extracted");
    u->at = v[0];
    u->done = v[1];
    u->left = (uint32_t)v[2];
    return true;
}

/* ---- the archive and its target ---- */

static bool is_unchanged(struct untar *u)
{
    struct stat st;
    bool same = fstat(u->archive, &st) == 0 && st.st_size == u->facts.st_size &&
                fs_ns(st.st_mtim) == fs_ns(u->facts.st_mtim) && fs_ns(st.st_ctim) == fs_ns(u->facts.st_ctim);
    return same || guest_failed(u->fs->f, SG_WF_CHANGED, 0, "the archive changed while it was extracted");
}

static bool open_archive(struct untar *u)
{
    if (fstat(u->archive, &u->facts))
        return fs_failed(u->fs, "the archive");
    if (u->fs->a->has_size && (uint64_t)u->facts.st_size != u->fs->a->size)
        return fs_refused(u->fs, EBADMSG, "the upload is not of the announced size");
    return read_cursor(u);
}

static bool open_target(struct untar *u)
{
    char link[32];
    u->dir = fs_open(u->fs, u->fs->a->path, O_PATH | O_DIRECTORY, 0);
    ssize_t n = u->dir >= 0 ? readlink(fs_fd_path(u->dir, link), u->dir_real, FS_PATH_MAX) : 0;
    u->dir_real[n > 0 ? n : 0] = '\0';
    return u->dir >= 0;
}

/* The first pass has found nothing wrong. */
static bool make_target(struct untar *u)
{
    struct fs_place p;
    if (u->dir >= 0)
        return true;
    bool ok = fs_make_parents(u->fs, u->fs->a->path) && fs_place(u->fs, u->fs->a->path, &p);
    if (ok) {
        ok = mkdirat(p.dir, p.name, 0777) == 0 || errno == EEXIST;
        fs_place_close(&p);
    }
    return (ok && open_target(u)) || fs_failed(u->fs, "making the directory");
}

/* ---- the second pass ---- */

/* *late: the time is over, and u->at says where to go on. */
static bool extract(struct untar *u, bool *late)
{
    enum tar_step step = TAR_ENTRY;
    *late = false;
    tar_source_open(&u->source, u->archive, (uint64_t)u->facts.st_size);
    tar_source_go_on(&u->source, &u->reader, u->at);
    for (bool any = false; !u->left; any = true) {
        *late = any && guest_now_ms() >= u->deadline_ms;
        if (*late)
            return true;
        step = tar_source_next(&u->source);
        if (step != TAR_ENTRY)
            break;
        if (!untar_extract(u))
            return false;
        u->at = u->source.next;
        u->done++;
    }
    if (step == TAR_WRONG) /* it was right before */
        return guest_failed(u->fs->f, SG_WF_CHANGED, 0, "the archive changed while it was extracted");
    return untar_finish_directories(u, late);
}

bool untar_run(struct untar *u, bool *more)
{
    uint32_t seed = 0;
    if (!open_archive(u))
        return false;
    if (!open_target(u) && !(u->fs->a->parents && errno == ENOENT && !u->fs->outside))
        return fs_failed(u->fs, "the directory");
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
        seed = (uint32_t)getpid();
    if (!untar_names_start(&u->names, seed))
        return guest_failed(u->fs->f, SG_WF_INTERNAL, ENOMEM, "no memory");
    if (!untar_check(u) || !is_unchanged(u))
        return false;
    if (!u->found || u->left > u->names.n)
        return guest_failed(u->fs->f, SG_WF_USAGE, 0, "bad value of --cursor");
    u->extracting = true;
    return make_target(u) && extract(u, more) && is_unchanged(u);
}

void untar_close(struct untar *u)
{
    untar_place_close(u);
    fs_close(u->dir);
    untar_names_free(&u->names);
}

/* What came of it is said; unless it goes on, the archive is needed no more. */
static bool settle(struct untar *u, const struct guest_root *store, const char *name, bool ok, bool more)
{
    char word[32];
    if (ok && more) {
        print_cursor(u);
        out_kind(SG_WIRE_MORE, NULL);
        return true;
    }
    (void)unlinkat(store->fd, name, 0);
    fs_upload_forget(store, name);
    if (ok) {
        snprintf(word, sizeof word, "files:%" PRIu64, u->done);
        out_kind(SG_WIRE_OK, word);
    }
    return ok;
}

bool fs_untar(struct fs *fs)
{
    struct guest_root store;
    bool more = false, ok = false;
    const char *name = upload_name(fs->a->upload);
    if (!name)
        return guest_failed(fs->f, SG_WF_USAGE, 0, "bad value of --from");
    struct untar *u = calloc(1, sizeof *u);
    if (!u)
        return guest_failed(fs->f, SG_WF_INTERNAL, ENOMEM, "no memory");
    if (root_open(&store, false, fs->f)) {
        sweep_stale(&store);
        /* An earlier call may be at it still, its answer lost; then it is there no more. */
        u->archive = fs_upload_lock(fs, &store, name);
        if (u->archive >= 0) {
            u->fs = fs;
            u->deadline_ms = guest_now_ms() + guest_life_ms() / 2;
            u->dir = u->parent = -1;
            ok = untar_run(u, &more);
            ok = settle(u, &store, name, ok, more);
            untar_close(u);
            close(u->archive);
        }
        close(store.fd);
    }
    free(u);
    return ok;
}
