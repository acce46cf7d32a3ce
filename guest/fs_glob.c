#include "guest/fs.h"
#include "guest/fs_match.h"
#include "guest/fs_walk.h"

#include "guest/out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct glob {
    struct match match;
    struct match_state states[FS_DEPTH_MAX + 1]; /* of the directories that we are in */
    uint64_t limit, found, bytes;
    bool more;
};

static bool is_directory(const struct fs_entry *e)
{
    struct stat st;
    return fstatat(e->dir, e->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static bool visit(void *arg, const struct fs_entry *e)
{
    struct glob *g = arg;
    struct match_state s;
    match_step(&g->match, &g->states[e->depth], e->name, &s);
    if (!match_is_full(&g->match, &s, true))
        return true;
    if (!match_is_full(&g->match, &s, false) && !is_directory(e))
        return true;
    g->more = g->found == g->limit || g->bytes > FS_TEXT_MAX;
    if (g->more)
        return false;
    fs_print_name(e->path, e->len);
    g->found++;
    g->bytes += e->len;
    return !out_is_broken();
}

static bool enter(void *arg, const struct fs_entry *e)
{
    struct glob *g = arg;
    struct match_state *next = &g->states[e->depth + 1];
    match_step(&g->match, &g->states[e->depth], e->name, next);
    return match_goes_on(&g->match, next);
}

static bool glob(struct fs *fs, struct glob *g, int fd)
{
    struct fs_walk w = {
        .arg = g, .visit = visit, .enter = enter, .after = fs->a->after, .deadline_ms = fs->deadline_ms};
    const char *wrong = match_make(fs->a->pattern, fs->a->hidden, &g->match);
    if (wrong)
        return fs_refused(fs, EINVAL, wrong);
    match_start(&g->match, &g->states[0]);
    g->limit = fs->a->limit;
    if (!fs_walk(&w, fd))
        return fs_failed(fs, "reading the directory");
    if (w.late && !w.last[0])
        return fs_refused(fs, ETIMEDOUT, "there is too much to look at");
    if (w.late)
        fs_print_late(w.last, 0);
    else if (g->more)
        out_kind(SG_WIRE_MORE, NULL);
    else
        out_kind(SG_WIRE_OK, w.unreadable ? "unreadable" : NULL);
    return true;
}

bool fs_glob(struct fs *fs)
{
    struct glob *g = calloc(1, sizeof *g);
    if (!g)
        return guest_failed(fs->f, SG_WF_INTERNAL, ENOMEM, "no memory");
    int fd = fs_open(fs, fs->a->path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_NOCTTY, 0);
    bool ok = fd >= 0 ? glob(fs, g, fd) : fs_failed(fs, "the directory");
    fs_close(fd);
    match_free(&g->match);
    free(g);
    return ok;
}
