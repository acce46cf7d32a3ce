/* Reading and finding: C8, E11. */
#include "fs_calls.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *below(const char *name)
{
    return path_in(scratch, name);
}

static void make_file(const char *name, const char *text)
{
    file_write(below(name), text, strlen(text));
}

static void make_dir(const char *name)
{
    assert_int_equal(mkdir(below(name), 0755), 0);
}

static void assert_bytes(const struct fs_reply *r, const unsigned char *all, uint64_t from, size_t n,
                         bool more)
{
    assert_int_equal(r->last.kind, more ? SG_WIRE_MORE : SG_WIRE_OK);
    assert_int_equal(r->lines[0].kind, SG_WIRE_FILE);
    assert_int_equal(r->len, n);
    if (n) {
        assert_int_equal(r->from, from);
        assert_memory_equal(r->out, all + from, n);
    }
}

static void reads_ranges(void **state)
{
    (void)state;
    enum { N = 300001 };
    unsigned char *all = malloc(N);
    assert_non_null(all);
    uint32_t x = 1;
    for (size_t i = 0; i < N; i++) {
        x = x * 1664525 + 1013904223;
        all[i] = (unsigned char)(x >> 24);
    }
    char *path = below("bytes");
    file_write(path, all, N);
    const struct fs_reply *r = fs("read", "--path", path, NULL);
    assert_bytes(r, all, 0, N, false);
    assert_int_equal(r->lines[0].file.size, N);
    assert_bytes(fs("read", "--path", path, "--limit", "300001", NULL), all, 0, N, false);
    assert_bytes(fs("read", "--path", path, "--limit", "300000", NULL), all, 0, N - 1, true);
    assert_bytes(fs("read", "--path", path, "--offset", "65535", "--limit", "65537", NULL), all, 65535, 65537,
                 true);
    assert_bytes(fs("read", "--path", path, "--offset", "300000", NULL), all, 300000, 1, false);
    assert_bytes(fs("read", "--path", path, "--offset", "300001", NULL), all, 0, 0, false);
    assert_bytes(fs("read", "--path", path, "--offset", "999999999999", NULL), all, 0, 0, false);
    assert_bytes(fs("read", "--path", path, "--tail", "4097", NULL), all, N - 4097, 4097, false);
    assert_bytes(fs("read", "--path", path, "--tail", "999999", NULL), all, 0, N, false);
    assert_bytes(fs("read", "--path", path, "--limit", "0", NULL), all, 0, 0, true);
    free(all);
    fs_fails(fs("read", "--path", scratch, NULL), "EISDIR");
    fs_fails(fs("read", "--path", "/dev/zero", NULL), "EINVAL");
    assert_int_equal(mkfifo(below("pipe"), 0600), 0);
    fs_fails(fs("read", "--path", below("pipe"), NULL), "EINVAL"); /* and does not wait for a writer */
    r = fs("read", "--path", "/proc/self/status", NULL);           /* says that it has no size */
    assert_true(r->last.kind == SG_WIRE_OK && r->len > 100);
}

static void assert_lines(const struct fs_reply *r, const char *text, bool more)
{
    assert_int_equal(r->last.kind, more ? SG_WIRE_MORE : SG_WIRE_OK);
    assert_string_equal(fs_text_of(r), text);
}

/* E11 */
static void reads_lines(void **state)
{
    (void)state;
    char *path = below("text");
    make_file("text", "one\n\nthree\r\nfour");
    const struct fs_reply *r = fs("lines", "--path", path, NULL);
    assert_lines(r, "1:one|2:|3:three\r|4:four|", false);
    assert_int_equal(r->lines[3].offset, 5);
    assert_int_equal(r->lines[4].offset, 12);
    assert_lines(fs("lines", "--path", path, "--from", "2", "--count", "2", NULL), "2:|3:three\r|", true);
    assert_lines(fs("lines", "--path", path, "--from", "4", "--count", "1", NULL), "4:four|", false);
    assert_lines(fs("lines", "--path", path, "--from", "5", NULL), "", false);
    assert_lines(fs("lines", "--path", path, "--count", "0", NULL), "", true);
    assert_lines(fs("lines", "--path", path, "--max-line-bytes", "3", NULL), "1:one|2:|3:thr!4:fou!", false);
    assert_lines(fs("lines", "--path", path, "--max-bytes", "1", NULL), "1:o!", true);
    make_file("text", "one\n");
    assert_lines(fs("lines", "--path", path, NULL), "1:one|", false);
    make_file("text", "");
    assert_lines(fs("lines", "--path", path, NULL), "", false);
    fs_fails(fs("lines", "--path", scratch, NULL), "EISDIR");
}

/* Lines of any length, and numbers beyond the pieces that are read at once. */
static void reads_long_lines(void **state)
{
    (void)state;
    enum { LINES = 300, LEN = 997, LONG = 60000 };
    char *all = malloc(LINES * LEN + LONG + 1), want[LEN + 16];
    assert_non_null(all);
    for (size_t i = 0; i < LINES; i++) {
        memset(all + i * LEN, 'a' + (int)(i % 26), LEN);
        all[i * LEN + LEN - 1] = '\n';
    }
    memset(all + LINES * LEN, '#', LONG);
    file_write(below("long"), all, LINES * LEN + LONG);
    const struct fs_reply *r = fs("lines", "--path", below("long"), "--from", "200", "--count", "1", NULL);
    snprintf(want, sizeof want, "200:%.*s|", LEN - 1, all + 199 * LEN);
    assert_lines(r, want, true);
    assert_int_equal(r->lines[1].offset, 199 * LEN);
    r = fs("lines", "--path", below("long"), "--from", "301", "--max-line-bytes", "65536", NULL);
    assert_int_equal(r->last.kind, SG_WIRE_OK);
    size_t len = 0;
    for (size_t i = 1; i < r->n; i++) {
        assert_int_equal(r->lines[i].line, 301);
        assert_int_equal(r->lines[i].offset, LINES * LEN + len);
        assert_int_equal(r->lines[i].goes_on, i + 1 < r->n);
        assert_false(r->lines[i].cut);
        len += r->lines[i].len;
    }
    assert_int_equal(len, LONG);
    free(all);
}

static void make_some(void)
{
    static const char *const dirs[] = {"g", "g/a", "g/a/b", "g/a/b/c", "g/a b", "g/.hid"};
    static const char *const files[] = {
        "g/x.c",   "g/y.h",    "g/a/x.c",     "g/a/b/deep.c",   "g/a/b/c/deepest.h", "g/a-b",
        "g/a.txt", "g/.dot.c", "g/.hid/in.c", "g/a b/sp ace.c", "g/\xff\xfe",        "g/\xc3\xa9.c"};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
        make_dir(dirs[i]);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        make_file(files[i], "needle in x\nother\nNeedle two\n");
    assert_int_equal(symlink("../g", below("g/a/loop")), 0);
    assert_int_equal(symlink("x.c", below("g/link.c")), 0);
}

#define GLOB(...) fs("glob", "--path", below("g"), "--pattern", __VA_ARGS__)

static void assert_names(const struct fs_reply *r, const char *names)
{
    fs_is_done(r, "");
    assert_string_equal(fs_names_of(r), names);
}

static void globs(void **state)
{
    (void)state;
    make_some();
    assert_names(GLOB("*.c", NULL), "link.c x.c \xc3\xa9.c ");
    assert_names(GLOB("?.c", NULL), "x.c \xc3\xa9.c ");
    assert_names(GLOB("*.c", "--hidden", NULL), ".dot.c link.c x.c \xc3\xa9.c ");
    assert_names(GLOB(".*.c", NULL), ".dot.c ");
    assert_names(GLOB("[x-z].[!c]", NULL), "y.h ");
    assert_names(GLOB("*.{c,h}", NULL), "link.c x.c y.h \xc3\xa9.c ");
    assert_names(GLOB("{x,a/{x,b/deep}}.c", NULL), "a/b/deep.c a/x.c x.c ");
    assert_names(GLOB("**/*.c", NULL), "a b/sp ace.c a/b/deep.c a/x.c link.c x.c \xc3\xa9.c ");
    assert_names(GLOB("a/**/*.?", NULL), "a/b/c/deepest.h a/b/deep.c a/x.c ");
    assert_names(GLOB("a/**", NULL), "a/b a/b/c a/b/c/deepest.h a/b/deep.c a/loop a/x.c ");
    assert_names(GLOB("a*", NULL), "a a b a-b a.txt "); /* byte order of whole paths */
    assert_names(GLOB("a**", NULL), "a a b a-b a.txt ");
    assert_names(GLOB("*/", NULL), "a a b ");
    assert_names(GLOB("**/", NULL), "a a b a/b a/b/c ");
    assert_names(GLOB("a\\ b", NULL), "a b ");
    assert_names(GLOB("\xff*", NULL), "\xff\xfe ");
    assert_names(GLOB("a/loop/*", NULL), ""); /* links are not gone through */
    assert_names(GLOB("none*", NULL), "");
    fs_fails(GLOB("/etc/*", NULL), "EINVAL");
    fs_fails(GLOB("../*", NULL), "EINVAL");
    fs_fails(GLOB("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", NULL), "EINVAL");
    fs_fails(fs("glob", "--path", below("g/x.c"), "--pattern", "*", NULL), "ENOTDIR");
    /* In pages, all of it is there once. */
    char all[1024] = "", whole[1024], after[256] = "";
    snprintf(whole, sizeof whole, "%s", fs_names_of(GLOB("**", "--hidden", NULL)));
    for (bool more = true; more;) {
        const struct fs_reply *r =
            GLOB("**", "--hidden", "--limit", "2", after[0] ? "--after" : NULL, after, NULL);
        more = r->last.kind == SG_WIRE_MORE;
        strncat(all, fs_names_of(r), sizeof all - strlen(all) - 1);
        if (more)
            snprintf(after, sizeof after, "%s", (const char *)r->lines[r->n - 1].name);
    }
    assert_string_equal(all, whole);
}

#define GREP(...) fs("grep", "--path", below("g"), "--pattern", __VA_ARGS__)

static void assert_found(const struct fs_reply *r, const char *text)
{
    fs_is_done(r, "");
    assert_string_equal(fs_text_of(r), text);
}

static void greps(void **state)
{
    (void)state;
    assert_found(GREP("^needle", "--glob", "a/x.c", NULL), "a/x.c/1:needle in x|");
    assert_found(GREP("needle", "--icase", "--glob", "{y.h,a-b}", NULL),
                 "a-b/1:needle in x|3:Needle two|y.h/1:needle in x|3:Needle two|");
    assert_found(GREP("need.e (in|on)", "--glob", "*.txt", NULL), "a.txt/1:needle in x|");
    assert_found(GREP("e i", "--fixed", "--glob", "deep*", NULL),
                 "a/b/c/deepest.h/1:needle in x|a/b/deep.c/1:needle in x|");
    assert_found(GREP("E I", "--fixed", "--icase", "--glob", "y.h", NULL), "y.h/1:needle in x|");
    assert_found(GREP("E I", "--fixed", NULL), "");
    assert_found(GREP("x$", "--glob", ".dot*", NULL), "");
    assert_found(GREP("x$", "--glob", ".dot*", "--hidden", NULL), ".dot.c/1:needle in x|");
    assert_found(GREP("other", "--context", "1", "--glob", "y.h", NULL),
                 "y.h/1=needle in x|2:other|3=Needle two|");
    assert_found(GREP("[Nn]eedle", "--context", "5", "--glob", "y.h", NULL),
                 "y.h/1:needle in x|2=other|3:Needle two|");
    assert_found(GREP("needle", "--max-line-bytes", "4", "--glob", "y.h", NULL), "y.h/1:need!");
    assert_found(fs("grep", "--path", below("g/x.c"), "--pattern", "two", NULL), "3:Needle two|");
    assert_found(fs("grep", "--path", below("g/link.c"), "--pattern", "two", NULL), "3:Needle two|");
    const struct fs_reply *r = GREP("needle", "--max-matches", "1", NULL);
    assert_int_equal(r->last.kind, SG_WIRE_MORE);
    assert_int_equal(r->n, 1);
    fs_fails(GREP("(", NULL), "EINVAL");
    fs_fails(GREP("(a)\\1", NULL), "EINVAL");
    fs_fails(GREP("((a{200}){200}){200}", NULL), "EINVAL");
    fs_fails(GREP("a++++++++++++++++++++++++++++++++", NULL), "EINVAL");
    fs_is_done(GREP("([a-z]+ )+([A-Z]+)+ [0-9]{1,200} (a+b+c+d+e+f+g+h+i+)+", NULL), "");
    fs_fails(fs("grep", "--path", below("pipe"), "--pattern", "x", NULL), "EINVAL");
    /* In pages, every match is there once. */
    size_t all = GREP("eedle", NULL)->n, got = 0;
    char after[256] = "", line[32] = "";
    for (bool more = true; more;) {
        r = GREP("eedle", "--max-matches", "3", after[0] ? "--after" : NULL, after, "--from", line, NULL);
        more = r->last.kind == SG_WIRE_MORE;
        got += r->n;
        for (size_t i = 0; i < r->n; i++)
            if (r->lines[i].name_len)
                snprintf(after, sizeof after, "%s", (const char *)r->lines[i].name);
        if (r->n)
            snprintf(line, sizeof line, "%llu", (unsigned long long)r->lines[r->n - 1].line);
    }
    assert_int_equal(got, all);
    /* Context ends where the next match would be, so that the next call begins with it. */
    r = fs("grep", "--path", below("g/x.c"), "--pattern", "eedle", "--max-matches", "1", "--context", "5",
           NULL);
    assert_int_equal(r->last.kind, SG_WIRE_MORE);
    assert_string_equal(fs_text_of(r), "1:needle in x|2=other|");
    r = fs("grep", "--path", below("g/x.c"), "--pattern", "eedle", "--from", "2", NULL);
    assert_found(r, "3:Needle two|");
}

static void greps_what_is_long_or_binary(void **state)
{
    (void)state;
    enum { LONG = 700000 };
    char *big = malloc(LONG + 16);
    assert_non_null(big);
    memset(big, 'x', LONG);
    memcpy(big + 262140, "needle", 6); /* across the end of what is looked at together */
    memcpy(big + LONG, "\nlast needle\n", 13);
    file_write(below("big"), big, LONG + 13);
    memset(big, '\0', LONG); /* NULs in a line, also where it is looked at twice, are no ends of lines */
    memcpy(big + 300000, "needle", 6);
    file_write(below("nuls"), big, LONG + 13);
    free(big);
    const struct fs_reply *r =
        fs("grep", "--path", below("big"), "--pattern", "needle", "--max-line-bytes", "3", NULL);
    assert_found(r, "1:xxx!2:las!");
    assert_int_equal(r->lines[1].offset, LONG + 1);
    assert_found(
        fs("grep", "--path", below("big"), "--pattern", "needle", "--fixed", "--max-line-bytes", "1", NULL),
        "1:x!2:l!");
    assert_found(fs("grep", "--path", below("big"), "--pattern", "^needle", NULL), "");
    assert_found(fs("grep", "--path", below("big"), "--pattern", "^last needle$", NULL), "2:last needle|");
    for (int fixed = 0; fixed < 2; fixed++) {
        const struct fs_reply *n = fs("grep", "--path", below("nuls"), "--pattern", "needle", "--binary",
                                      "--max-line-bytes", "1", fixed ? "--fixed" : NULL, NULL);
        fs_is_done(n, "");
        assert_int_equal(n->n, 2);
        assert_true(n->lines[0].line == 1 && n->lines[1].line == 2 && n->lines[1].offset == LONG + 1);
    }
    file_write(below("binary"), "a\0needle\nneedle", 15);
    assert_found(fs("grep", "--path", below("binary"), "--pattern", "needle", NULL), "");
    r = fs("grep", "--path", below("binary"), "--pattern", "needle", "--binary", NULL);
    fs_is_done(r, "");
    assert_int_equal(r->n, 2);
    assert_int_equal(r->lines[0].len, 8);
    r = fs("grep", "--path", below("binary"), "--pattern", "a.needle", "--binary", NULL);
    assert_int_equal(r->n, 1);
    /* Bounded by bytes. */
    r = fs("grep", "--path", below("g"), "--pattern", "e", "--max-bytes", "100", NULL);
    assert_int_equal(r->last.kind, SG_WIRE_MORE);
    assert_true(r->n >= 1 && r->n < 5);
}

/* What cannot be read is said, and the rest is found. */
static void passes_over_what_is_not_ours(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    make_dir("mixed");
    make_dir("mixed/closed");
    make_file("mixed/closed/in", "needle\n");
    make_file("mixed/open", "needle\n");
    make_file("mixed/private", "needle\n");
    assert_int_equal(chmod(below("mixed/closed"), 0700), 0);
    assert_int_equal(chmod(below("mixed/private"), 0600), 0);
    assert_int_equal(chmod(scratch, 0755), 0);
    assert_int_equal(chmod(below(".."), 0755), 0); /* the harness's own */
    guest_uid = 54321;
    const struct fs_reply *r = fs("grep", "--path", below("mixed"), "--pattern", "needle", NULL);
    fs_is_done(r, "unreadable");
    assert_string_equal(fs_text_of(r), "open/1:needle|");
    r = fs("glob", "--path", below("mixed"), "--pattern", "**", NULL);
    fs_is_done(r, "unreadable");
    assert_string_equal(fs_names_of(r), "closed open private ");
    fs_fails(fs("read", "--path", below("mixed/private"), NULL), "EACCES");
    fs_fails(fs("list", "--path", below("mixed/closed"), NULL), "EACCES");
    fs_fails(fs("remove", "--path", below("mixed"), "--recursive", NULL), "EACCES");
    fs_fails(fs("chmod", "--path", below("mixed/open"), "--mode", "777", NULL), "EPERM");
    guest_uid = 0;
}

/* A directory of more names than are held at once is searched in order, too. */
static void walks_large_directories(void **state)
{
    (void)state;
    enum { N = 9001 };
    make_dir("large");
    int dir = open(below("large"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char name[200], last[200] = "";
    for (unsigned i = 0; i < N; i++) {
        snprintf(name, sizeof name, "%u-%0100d", i * 7 % N, 0);
        int fd = openat(dir, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        close(fd);
    }
    close(dir);
    const struct fs_reply *r = fs("glob", "--path", below("large"), "--pattern", "*", NULL);
    fs_is_done(r, "");
    assert_int_equal(r->n, N);
    for (size_t i = 0; i < N; i++) {
        assert_true(strcmp(last, (const char *)r->lines[i].name) < 0);
        snprintf(last, sizeof last, "%s", (const char *)r->lines[i].name);
    }
    /* It ends in time, and says that there may be more. */
    assert_int_equal(setenv("SANDGATE_GUEST_LIFE_MS", "1", 1), 0);
    fs_fails(fs("glob", "--path", below("large"), "--pattern", "*", NULL), "ETIMEDOUT");
    fs_fails(fs("grep", "--path", below("large"), "--pattern", "x", NULL), "ETIMEDOUT");
    assert_int_equal(unsetenv("SANDGATE_GUEST_LIFE_MS"), 0);
    fs_is_done(fs("remove", "--path", below("large"), "--recursive", NULL), "");
}

enum { LATE_DIRS = 12, LATE_FILES = 60, LATE_LINES = 40000, LATE_EACH = 5000 };

static void make_long_search(void)
{
    char name[64], line[64];
    make_dir("late");
    for (unsigned d = 0; d < LATE_DIRS; d++) {
        snprintf(name, sizeof name, "late/d%u", d);
        make_dir(name);
        for (unsigned i = 0; i < LATE_FILES; i++) {
            snprintf(name, sizeof name, "late/d%u/f%u", d, i);
            make_file(name, "some hay\nneedle\nmore hay\n");
        }
    }
    FILE *f = fopen(below("late/d5/long"), "we"); /* so long that a call ends in it */
    assert_non_null(f);
    for (unsigned i = 1; i <= LATE_LINES; i++) {
        snprintf(line, sizeof line, i % LATE_EACH ? "hay %u hay hay hay hay hay\n" : "needle %u\n", i);
        assert_true(fputs(line, f) >= 0);
    }
    assert_int_equal(fclose(f), 0);
}

/* All that a search tells when its time is over again and again: it goes on where it says.  *pages: how often. */
static size_t search_in_pieces(const char *op, const char *pattern, unsigned *pages, char *found, size_t cap)
{
    char after[4097] = "", line[32] = "0";
    size_t n = 0, len = 0;
    bool glob = strcmp(op, "glob") == 0;
    *pages = 0;
    for (bool more = true; more;) {
        const struct fs_reply *r = glob ? fs(op, "--path", below("late"), "--pattern", pattern,
                                             after[0] ? "--after" : NULL, after, NULL)
                                        : fs(op, "--path", below("late"), "--pattern", pattern, "--from",
                                             line, after[0] ? "--after" : NULL, after, NULL);
        more = r->last.kind == SG_WIRE_MORE;
        if (r->last.kind == SG_WIRE_ERROR)
            fail_msg("%s", r->last.text);
        const struct sg_wire_line *end = more && r->n ? &r->lines[r->n - 1] : NULL;
        assert_true(!more || (end && end->kind == SG_WIRE_TEXT && end->goes_on && end->len == 0));
        for (size_t i = 0; i < r->n - (end ? 1 : 0); i++, n++)
            if (glob || r->lines[i].name_len)
                len += (size_t)snprintf(found + len, cap - len, "%s ", (const char *)r->lines[i].name);
        if (!end)
            continue;
        assert_true(strcmp(after, (const char *)end->name) < 0 ||
                    (strcmp(after, (const char *)end->name) == 0 && strtoull(line, NULL, 10) < end->line));
        snprintf(after, sizeof after, "%s", (const char *)end->name);
        snprintf(line, sizeof line, "%llu", (unsigned long long)end->line);
        ++*pages;
    }
    return n;
}

/* A search whose time was over tells where it goes on, also when it found nothing yet: C8, and no call lasts. */
static void goes_on_where_its_time_was_over(void **state)
{
    (void)state;
    static char whole[65536], got[65536];
    unsigned pages;
    make_long_search();
    const struct fs_reply *r = fs("glob", "--path", below("late"), "--pattern", "**/*[13]", NULL);
    fs_is_done(r, "");
    size_t names = r->n;
    snprintf(whole, sizeof whole, "%s", fs_names_of(r));
    const size_t matches = LATE_DIRS * LATE_FILES + LATE_LINES / LATE_EACH;
    r = fs("grep", "--path", below("late"), "--pattern", "^needle", NULL);
    fs_is_done(r, "");
    assert_int_equal(r->n, matches);

    assert_int_equal(setenv("SANDGATE_GUEST_TICKS", "1", 1), 0);
    assert_int_equal(setenv("SANDGATE_GUEST_LIFE_MS", "300", 1), 0);
    assert_int_equal(search_in_pieces("glob", "**/*[13]", &pages, got, sizeof got), names);
    assert_string_equal(got, whole);
    assert_true(pages > 3);
    assert_int_equal(search_in_pieces("grep", "^needle", &pages, got, sizeof got), matches);
    assert_true(pages > 3);
    assert_int_equal(search_in_pieces("grep", "no such thing", &pages, got, sizeof got), 0);
    assert_true(pages > 3);
    assert_int_equal(setenv("SANDGATE_GUEST_LIFE_MS", "1", 1), 0); /* no step at all */
    fs_fails(fs("grep", "--path", below("late"), "--pattern", "x", NULL), "ETIMEDOUT");
    fs_fails(fs("glob", "--path", below("late"), "--pattern", "x", NULL), "ETIMEDOUT");
    /* One file alone has no path. */
    assert_int_equal(setenv("SANDGATE_GUEST_LIFE_MS", "4", 1), 0);
    size_t found = 0;
    uint64_t line = 0;
    bool more = true;
    for (pages = 0; more; pages++) {
        char from[32];
        snprintf(from, sizeof from, "%llu", (unsigned long long)line);
        r = fs("grep", "--path", below("late/d5/long"), "--pattern", "^needle", "--from", from, NULL);
        more = r->last.kind == SG_WIRE_MORE;
        found += r->n - more;
        if (!more)
            fs_is_done(r, "");
        assert_true(!more || (r->lines[r->n - 1].line > line && r->lines[r->n - 1].name_len == 0));
        line = more ? r->lines[r->n - 1].line : line;
        if (pages == 0) /* what was searched has to be read again, and more than that */
            assert_int_equal(setenv("SANDGATE_GUEST_LIFE_MS", "100", 1), 0);
    }
    assert_true(pages > 1);
    assert_int_equal(found, LATE_LINES / LATE_EACH);
    assert_int_equal(unsetenv("SANDGATE_GUEST_TICKS"), 0);
    assert_int_equal(unsetenv("SANDGATE_GUEST_LIFE_MS"), 0);
    fs_is_done(fs("remove", "--path", below("late"), "--recursive", NULL), "");
}

static int teardown(void **state)
{
    fs_calls_free();
    return harness_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_ranges),
        cmocka_unit_test(reads_lines),
        cmocka_unit_test(reads_long_lines),
        cmocka_unit_test(globs),
        cmocka_unit_test(greps),
        cmocka_unit_test(greps_what_is_long_or_binary),
        cmocka_unit_test(passes_over_what_is_not_ours),
        cmocka_unit_test(walks_large_directories),
        cmocka_unit_test(goes_on_where_its_time_was_over),
    };
    return cmocka_run_group_tests(tests, harness_setup, teardown);
}
