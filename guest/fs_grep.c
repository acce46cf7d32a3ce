#include "guest/fs.h"
#include "guest/fs_match.h"
#include "guest/fs_walk.h"

#include "guest/out.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    WINDOW = 256 * 1024, /* of a longer line so much is searched at once */
    OVERLAP = 16 * 1024, /* and so much of it again with the next: longer matches may be missed there */
    BINARY_LOOK = 8192,  /* a file with a NUL in its first bytes is binary */
    LINE_COST = 32,
};

struct grep {
    struct fs *fs;
    regex_t regex;
    bool has_regex, has_globs;
    struct match globs;
    size_t fixed_len;
    uint64_t matches, printed; /* lines that match; bytes of what was printed */
    bool full, unreadable, late;
    char late_path[FS_PATH_MAX + 1]; /* of the file that was not searched to its end */

    /* of the file we are in */
    int fd;
    const char *path; /* NULL: the one that was asked for */
    bool path_said;
    uint64_t line, start;                /* the line we are in, and where it begins */
    bool hit, middle;                    /* it matches; its beginning is not in the buffer any more */
    uint64_t after_left;                 /* lines of context to come */
    uint64_t last_printed;               /* number of the line */
    uint64_t starts[FS_CONTEXT_MAX + 1]; /* of the lines before, by their number */
    uint64_t skip;                       /* lines up to this were searched by another call */
    size_t have;
    uint64_t base; /* offset of the buffer in the file */
    char buf[WINDOW + 1];
    unsigned char text[FS_LINE_MAX + 1]; /* of a line that is printed */
};

/* ---- printing ---- */

static size_t read_line(struct grep *g, uint64_t start, bool *cut)
{
    size_t max = (size_t)g->fs->a->max_line, have = 0;
    const unsigned char *lf = NULL;
    while (have <= max && !lf) {
        ssize_t n = pread(g->fd, g->text + have, max + 1 - have, (off_t)(start + have));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        lf = memchr(g->text + have, '\n', (size_t)n);
        have = lf ? (size_t)(lf - g->text) : have + (size_t)n;
    }
    *cut = have > max;
    return *cut ? max : have;
}

static void print_line(struct grep *g, uint64_t line, uint64_t start, bool context)
{
    struct sg_wire_line l = {.kind = SG_WIRE_TEXT, .line = line, .context = context};
    bool cut;
    size_t len = read_line(g, start, &cut), at = 0;
    do {
        bool with_path = g->path && !g->path_said;
        l.name = (const unsigned char *)g->path;
        l.name_len = with_path ? strlen(g->path) : 0;
        g->path_said = true;
        size_t room = SG_WIRE_DATA_MAX - l.name_len;
        l.offset = start + at;
        l.data = g->text + at;
        l.len = len - at < room ? len - at : room;
        at += l.len;
        l.goes_on = at < len;
        l.cut = cut && !l.goes_on;
        g->printed += l.name_len + l.len + LINE_COST;
        out_line(&l);
    } while (at < len);
    g->last_printed = line;
}

static void print_match(struct grep *g)
{
    uint64_t context = g->fs->a->context, from = g->line > context ? g->line - context : 1;
    from = from > g->last_printed ? from : g->last_printed + 1;
    for (; from < g->line; from++)
        print_line(g, from, g->starts[from % (FS_CONTEXT_MAX + 1)], true);
    print_line(g, g->line, g->start, false);
    g->after_left = context;
    g->matches++;
}

static bool is_full(const struct grep *g)
{
    const struct fs_args *a = g->fs->a;
    return (g->matches >= a->max_matches && g->after_left == 0) || g->printed >= a->max_bytes ||
           g->printed >= FS_TEXT_MAX || out_is_broken();
}

/* ---- searching ---- */

/* p[0..n) of a line; p[n] may be written to, and so may the bytes. */
static bool matches(struct grep *g, char *p, size_t n, bool whole)
{
    const struct fs_args *a = g->fs->a;
    if (a->fixed) {
        for (size_t i = 0; a->icase && i < n; i++)
            p[i] = (char)tolower((unsigned char)p[i]);
        return memmem(p, n, a->pattern, g->fixed_len) != NULL;
    }
    char kept = p[n];
    for (char *nul = p; (nul = memchr(nul, '\0', n - (size_t)(nul - p)));)
        *nul = '\n'; /* a text ends at a NUL; so something else stands for it */
    p[n] = '\0';
    bool found = regexec(&g->regex, p, 0, NULL, (g->middle ? REG_NOTBOL : 0) | (whole ? 0 : REG_NOTEOL)) == 0;
    p[n] = kept;
    for (char *lf = p; (lf = memchr(lf, '\n', n - (size_t)(lf - p)));)
        *lf = '\0'; /* of a line that is too long the end is looked at again */
    return found;
}

static void end_line(struct grep *g, uint64_t next)
{
    if (!g->hit && g->after_left) {
        g->after_left--;
        print_line(g, g->line, g->start, true);
    }
    g->starts[g->line % (FS_CONTEXT_MAX + 1)] = g->start;
    g->line++;
    g->start = next;
    g->hit = false;
    g->middle = false;
}

/* Searches what is in the buffer, as far as lines are whole or it is full; keeps the rest. */
static void search_buffer(struct grep *g, bool at_end)
{
    size_t p = 0;
    while (p < g->have && !g->full) {
        char *lf = memchr(g->buf + p, '\n', g->have - p);
        bool whole = lf || at_end;
        if (!whole && (p > 0 || g->have < WINDOW))
            break;
        size_t end = lf ? (size_t)(lf - g->buf) : g->have;
        if (!g->hit && g->line > g->skip && matches(g, g->buf + p, end - p, whole)) {
            g->full =
                g->matches == g->fs->a->max_matches; /* it is for the next call, not context of this one */
            if (g->full)
                return;
            g->hit = true;
            print_match(g);
        }
        if (!whole) {
            g->middle = true;
            p = end - OVERLAP;
            break;
        }
        p = end + (lf ? 1 : 0);
        end_line(g, g->base + p);
        g->full = is_full(g);
    }
    memmove(g->buf, g->buf + p, g->have - p);
    g->have -= p;
    g->base += p;
}

static void search_file(struct grep *g, int fd, const char *path, uint64_t skip)
{
    g->fd = fd;
    g->path = path;
    g->path_said = g->hit = g->middle = false;
    g->line = 1;
    g->start = g->base = g->have = g->after_left = g->last_printed = 0;
    g->skip = skip;
    for (bool first = true; !g->full; first = false) {
        ssize_t n = read(fd, g->buf + g->have, WINDOW - g->have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            g->unreadable = true;
        g->late = guest_now_ms() > g->fs->deadline_ms;
        if (g->late && path)
            memcpy(g->late_path, path, strlen(path) + 1);
        if (n < 0 || g->late)
            return;
        if (first && !g->fs->a->binary && memchr(g->buf, '\0', n < BINARY_LOOK ? (size_t)n : BINARY_LOOK))
            return;
        g->have += (size_t)n;
        search_buffer(g, n == 0);
        if (n == 0)
            return;
    }
}

/* ---- which files ---- */

static bool enter(void *arg, const struct fs_entry *e)
{
    struct grep *g = arg;
    return g->fs->a->hidden || e->name[0] != '.';
}

static bool visit(void *arg, const struct fs_entry *e)
{
    struct grep *g = arg;
    const struct fs_args *a = g->fs->a;
    struct stat st;
    if (!enter(arg, e) || (g->has_globs && !match_path(&g->globs, e->path)))
        return true;
    if (fstatat(e->dir, e->name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
        return true;
    int fd = openat(e->dir, e->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) {
        g->unreadable = g->unreadable || (errno != ENOENT && errno != ELOOP);
        return true;
    }
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        search_file(g, fd, e->path, a->after && strcmp(a->after, e->path) == 0 ? a->from : 0);
    close(fd);
    return !g->full && !g->late;
}

/* Where it goes on; there has to be some way between here and where it began. */
static bool end_late(struct fs *fs, const struct grep *g, const struct fs_walk *w)
{
    uint64_t line = g->hit ? g->line : g->line - 1;
    if (g->late && line > g->skip)
        fs_print_late(g->late_path, line);
    else if (w->last[0])
        fs_print_late(w->last, 0);
    else
        return fs_refused(fs, ETIMEDOUT, "there is too much to search");
    return true;
}

static bool search(struct fs *fs, struct grep *g, int fd)
{
    struct stat st;
    if (fstat(fd, &st))
        return fs_failed(fs, "the path");
    struct fs_walk w = {.arg = g,
                        .visit = visit,
                        .enter = enter,
                        .after = fs->a->after,
                        .after_too = fs->a->from > 0,
                        .deadline_ms = fs->deadline_ms};
    if (S_ISREG(st.st_mode))
        search_file(g, fd, NULL, fs->a->from);
    else if (!S_ISDIR(st.st_mode))
        return fs_refused(fs, EINVAL, "neither a file nor a directory");
    else if (!fs_walk(&w, fd))
        return fs_failed(fs, "reading the directory");
    if (!g->full && (g->late || w.late))
        return end_late(fs, g, &w);
    if (g->full)
        out_kind(SG_WIRE_MORE, NULL);
    else
        out_kind(SG_WIRE_OK, g->unreadable || w.unreadable ? "unreadable" : NULL);
    return true;
}

static bool prepare(struct fs *fs, struct grep *g)
{
    const struct fs_args *a = fs->a;
    const char *wrong = NULL;
    if (a->glob) {
        g->has_globs = true;
        wrong = match_make(a->glob, true, &g->globs);
    }
    if (!wrong && !a->fixed)
        wrong = match_regex_wrong(a->pattern);
    if (wrong)
        return fs_refused(fs, EINVAL, wrong);
    if (a->fixed) {
        g->fixed_len = strlen(a->pattern);
        for (char *p = a->pattern; a->icase && *p; p++)
            *p = (char)tolower((unsigned char)*p);
        return true;
    }
    int rc = regcomp(&g->regex, a->pattern, REG_EXTENDED | REG_NOSUB | (a->icase ? REG_ICASE : 0));
    if (rc) {
        char text[sizeof fs->f->text];
        regerror(rc, &g->regex, text, sizeof text);
        return fs_refused(fs, EINVAL, text);
    }
    g->has_regex = true;
    return true;
}

bool fs_grep(struct fs *fs)
{
    struct grep *g = calloc(1, sizeof *g);
    if (!g)
        return guest_failed(fs->f, SG_WF_INTERNAL, ENOMEM, "no memory");
    g->fs = fs;
    g->full = fs->a->max_matches == 0;
    bool ok = prepare(fs, g);
    if (ok) {
        int fd = fs_open(fs, fs->a->path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
        ok = fd >= 0 ? search(fs, g, fd) : fs_failed(fs, "the path");
        fs_close(fd);
    }
    if (g->has_regex)
        regfree(&g->regex);
    match_free(&g->globs);
    free(g);
    return ok;
}
