/* An archive becomes files below a directory, or nothing at all: C8, P33, P34. */
#include "fs_calls.h"
#include "tarball.h"
#include "trees.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NOBODY = 65534 };

static struct tarball ball;

static char *below(const char *name)
{
    return path_in(scratch, name);
}

static void make_dir(const char *name)
{
    assert_int_equal(mkdir(below(name), 0755), 0);
}

static void make_file(const char *name, const char *text)
{
    file_write(below(name), text, strlen(text));
}

static struct stat facts(const char *name)
{
    struct stat st;
    if (lstat(below(name), &st) != 0)
        fail_msg("%s is not there", name);
    return st;
}

/* A directory that is empty. */
static char *fresh(const char *name)
{
    char *path = below(name);
    RUN("rm", "-rf", path);
    make_dir(name);
    return path;
}

static const char *upload(const void *bytes, size_t n)
{
    (void)mkdir(root, 0700);
    file_write(path_in(root, ".up-1"), bytes, n);
    return ".up-1";
}

/* What is in the ball, which it is no more. */
static const char *upload_ball(void)
{
    const char *name = upload(ball.bytes, ball.len);
    tarball_free(&ball);
    return name;
}

static const char *upload_file(const char *path)
{
    size_t n;
    unsigned char *bytes = file_bytes(path, &n);
    const char *name = upload(bytes, n);
    free(bytes);
    return name;
}

#define UNTAR(dir, ...) fs("untar", "--from", upload_ball(), "--path", dir, __VA_ARGS__)

static void assert_no_upload(void)
{
    assert_int_equal(access(path_in(root, ".up-1"), F_OK), -1);
}

static void is_refused(const struct fs_reply *r, const char *text)
{
    assert_int_equal(r->last.kind, SG_WIRE_ERROR);
    if (r->last.fail != SG_WF_ARCHIVE || !strstr(r->last.text, text))
        fail_msg("%d %s: %s (not: %s)", r->last.fail, r->last.errno_name, r->last.text, text);
    assert_no_upload();
}

/* ---- right ones ---- */

static void extracts_what_tar_makes(void **state)
{
    (void)state;
    static const char *const formats[] = {"gnu", "posix", "oldgnu"};
    char from[PATH_MAX], to[PATH_MAX], archive[PATH_MAX], format[32];
    make_tree(below("source"));
    snprintf(from, sizeof from, "%s", below("source"));
    snprintf(archive, sizeof archive, "%s", below("archive.tar"));
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        snprintf(format, sizeof format, "--format=%s", formats[i]);
        RUN("tar", format, "-cf", archive, "-C", from, ".");
        snprintf(to, sizeof to, "%s", fresh("target"));
        const struct fs_reply *r = fs("untar", "--from", upload_file(archive), "--path", to, NULL);
        char word[32];
        snprintf(word, sizeof word, "files:%zu", tree_count(from) + 1); /* and "./" */
        fs_is_done(r, word);
        assert_no_upload();
        trees_are_same(from, to);
        struct stat big = facts("target/big"), again = facts("target/sub/big again");
        assert_true(big.st_ino == again.st_ino && big.st_nlink == 2);
        /* Over what is there, closed directories and all. */
        fs_is_done(fs("untar", "--from", upload_file(archive), "--path", to, NULL), word);
        trees_are_same(from, to);
    }
    assert_int_equal(unlink(archive), 0);
}

static void merges_and_replaces(void **state)
{
    (void)state;
    char *dir = fresh("t");
    make_dir("t/sub");
    make_file("t/sub/kept", "kept");
    make_file("t/sub/old", "old");
    make_file("t/linked", "old");
    make_file("t/was a link", "x");
    assert_int_equal(unlink(below("t/was a link")) | symlink("linked", below("t/was a link")), 0);
    assert_int_equal(link(below("t/linked"), below("t/linked too")), 0);
    int old = open(below("t/sub/old"), O_RDONLY | O_CLOEXEC);
    MEMBER(&ball, .name = "sub/old", .data = "new", .mode = "0006751", .mtime = "00000001000");
    MEMBER(&ball, .name = "sub/made/by/name", .data = "1");
    MEMBER(&ball, .name = "linked", .data = "2");
    MEMBER(&ball, .name = "was a link", .data = "3");
    MEMBER(&ball, .name = "twice", .data = "first");
    MEMBER(&ball, .name = "hard", .type = '1', .target = "twice");
    MEMBER(&ball, .name = "twice", .data = "second");
    MEMBER(&ball, .name = "hard", .type = '1', .target = "hard");
    MEMBER(&ball, .name = "symlink", .type = '2', .target = "nowhere");
    MEMBER(&ball, .name = "symlink", .type = '2', .target = "sub/old");
    MEMBER(&ball, .name = "sub", .type = '5', .mode = "0000700");
    tarball_end(&ball);
    fs_is_done(UNTAR(dir, NULL), "files:11");
    assert_string_equal(file_text(below("t/sub/kept")), "kept");
    assert_string_equal(file_text(below("t/sub/old")), "new");
    char was[4] = "";
    assert_int_equal(read(old, was, 3), 3);
    assert_string_equal(was, "old"); /* who had it open reads on */
    close(old);
    struct stat st = facts("t/sub/old");
    assert_int_equal(st.st_mode & 07777, 0751);
    assert_int_equal(st.st_mtim.tv_sec, 512);
    assert_int_equal(facts("t/sub").st_mode & 07777, 0700);
    assert_int_equal(facts("t/sub/made/by").st_mode & 07777, 0755);
    assert_string_equal(file_text(below("t/linked")), "2");
    assert_string_equal(file_text(below("t/linked too")), "old");
    assert_true(S_ISREG(facts("t/was a link").st_mode));
    assert_string_equal(file_text(below("t/twice")), "second");
    assert_string_equal(file_text(below("t/hard")), "first");
    assert_string_equal(file_text(below("t/symlink")), "new");
    assert_int_equal(tree_count(dir), 12); /* no temporary name is left */
    tarball_end(&ball);
    fs_is_done(UNTAR(dir, NULL), "files:0");
}

static void makes_the_target(void **state)
{
    (void)state;
    MEMBER(&ball, .name = "a", .data = "1");
    tarball_end(&ball);
    fresh("t");
    fs_fails(UNTAR(below("t/x/y"), NULL), "ENOENT");
    assert_no_upload();
    MEMBER(&ball, .name = "a", .data = "1");
    tarball_end(&ball);
    size_t n = ball.len;
    char size[24];
    snprintf(size, sizeof size, "%zu", n + 1);
    fs_fails(UNTAR(below("t/x/y"), "--parents", "--size", size, NULL), "EBADMSG");
    assert_int_equal(access(below("t/x"), F_OK), -1);
    MEMBER(&ball, .name = "a", .data = "1");
    tarball_end(&ball);
    snprintf(size, sizeof size, "%zu", n);
    fs_is_done(UNTAR(below("t/x/y"), "--parents", "--size", size, NULL), "files:1");
    assert_string_equal(file_text(below("t/x/y/a")), "1");
    MEMBER(&ball, .name = "../a", .data = "1");
    tarball_end(&ball);
    is_refused(UNTAR(below("t/z"), "--parents", NULL), "..");
    assert_int_equal(access(below("t/z"), F_OK), -1);
    tarball_end(&ball);
    fs_fails(UNTAR(below("t/x/y/a"), NULL), "ENOTDIR");
    fs_fails(fs("untar", "--from", ".up-none", "--path", below("t"), NULL), "ENOENT");
    const struct fs_reply *r = fs("untar", "--from", "../x", "--path", below("t"), NULL);
    assert_int_equal(r->last.fail, SG_WF_USAGE);
}

/* ---- wrong ones ---- */

/* Behind a good entry, which must not be extracted either. */
#define HOSTILE(text, ...)                                                                                   \
    do {                                                                                                     \
        MEMBER(&ball, .name = "good", .data = "good");                                                       \
        MEMBER(&ball, __VA_ARGS__);                                                                          \
        hostile(text);                                                                                       \
    } while (0)

static void hostile(const char *text)
{
    char *dir = fresh("t");
    tarball_end(&ball);
    is_refused(UNTAR(dir, NULL), text);
    assert_int_equal(tree_count(dir), 0);
}

#define LINK(from, to) MEMBER(&ball, .name = (from), .type = '2', .target = (to))

static void refuses_hostile_archives_whole(void **state)
{
    (void)state;
    HOSTILE("../x: a name with .. in it", .name = "../x", .data = "x");
    HOSTILE("a/../../x", .name = "a/../../x", .data = "x");
    HOSTILE("/tmp/x: an absolute name", .name = "/tmp/x", .data = "x");
    HOSTILE("dev: a device", .name = "dev", .type = '3');
    HOSTILE("dev: a device", .name = "dev", .type = '4');
    HOSTILE("pipe: a FIFO", .name = "pipe", .type = '6');
    HOSTILE("a sparse file", .name = "holes", .type = 'S', .format = TARBALL_GNU);
    HOSTILE("wrong checksum", .name = "x", .sum_off = 1);
    HOSTILE("a bad size", .name = "x", .size = "\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff");
    HOSTILE("x: the archive ends within it", .name = "x", .size = "77777777777");
    MEMBER(&ball, .name = "good", .data = "good");
    tarball_record(&ball, "size", "9223372036854775807");
    MEMBER(&ball, .name = "x");
    hostile("x: the archive ends within it");
    HOSTILE("a name with NUL in it", .name = "a\0/../../x", .name_len = 10);
    /* links that lead out */
    HOSTILE("out: a link that leads out", .name = "out", .type = '2', .target = "..");
    HOSTILE("out: a link that leads out", .name = "out", .type = '2', .target = "../");
    HOSTILE("out: a link that leads out", .name = "out", .type = '2', .target = "a/../../x");
    HOSTILE("out: a link that leads out", .name = "out", .type = '2', .target = "././/..//");
    HOSTILE("out: a link that leads out", .name = "out", .type = '2', .target = "/etc/passwd");
    HOSTILE("d/out: a link that leads out", .name = "d/out", .type = '2', .target = "../../x");
    HOSTILE("out: a link that leads out", .name = "out", .type = '2', .target = "/");
    /* links, and then something through them */
    LINK("link", "sub");
    HOSTILE("link/x: leads through a link of the archive", .name = "link/x", .data = "x");
    LINK("link", ".");
    HOSTILE("link/link: leads through a link", .name = "link/link", .type = '2', .target = "x");
    LINK("link", "sub");
    HOSTILE("link/x: leads through a link", .name = "./link//x", .type = '5');
    LINK("link", "sub");
    HOSTILE("link: is there twice, as different things", .name = "link", .data = "x");
    LINK("link", "sub");
    HOSTILE("link: is there twice", .name = "link/", .type = '5');
    MEMBER(&ball, .name = "dir/x", .data = "x");
    HOSTILE("dir: is there twice", .name = "dir", .type = '2', .target = "x");
    MEMBER(&ball, .name = "file", .data = "x");
    HOSTILE("file/x: lies below a file", .name = "file/x", .data = "x");
    MEMBER(&ball, .name = "dir", .type = '5');
    HOSTILE("dir: is there twice", .name = "dir", .data = "x");
    /* steps up behind a link: a -> "." makes a/.. the directory above */
    LINK("a", ".");
    HOSTILE("b: a link that may lead out", .name = "b", .type = '2', .target = "a/../x");
    MEMBER(&ball, .name = "b", .type = '2', .target = "a/../x");
    HOSTILE("b: a link that may lead out", .name = "a", .type = '2', .target = ".");
    HOSTILE("b: a link that may lead out", .name = "b", .type = '2', .target = "not/there/../x");
    /* hard links */
    HOSTILE("h: a hard link to what is not in the archive", .name = "h", .type = '1', .target = "x");
    HOSTILE("h: a hard link to what is not in the archive", .name = "h", .type = '1', .target = "h");
    HOSTILE("h: an absolute name", .name = "h", .type = '1', .target = "/etc/passwd");
    HOSTILE("h: a name with .. in it", .name = "h", .type = '1', .target = "../x");
    LINK("link", "good");
    HOSTILE("h: a hard link to what is no file", .name = "h", .type = '1', .target = "link");
    MEMBER(&ball, .name = "dir", .type = '5');
    HOSTILE("h: a hard link to what is no file", .name = "h", .type = '1', .target = "dir");
    LINK("link", "sub");
    HOSTILE("h: a hard link to what is not", .name = "h", .type = '1', .target = "link/x");
    /* pax */
    MEMBER(&ball, .name = "good", .data = "good");
    tarball_record(&ball, "path", "../x");
    MEMBER(&ball, .name = "fine");
    hostile("../x");
    MEMBER(&ball, .name = "good", .data = "good");
    tarball_pax(&ball, 'x', "10 path=a\n13 path=../b\n", 23);
    MEMBER(&ball, .name = "fine");
    hostile("given twice");
    MEMBER(&ball, .name = "good", .data = "good");
    tarball_long(&ball, 'K', "/etc");
    MEMBER(&ball, .name = "link", .type = '2', .target = "fine");
    hostile("link: a link that leads out");
    /* something behind the end */
    MEMBER(&ball, .name = "good", .data = "good");
    tarball_end(&ball);
    HOSTILE("something follows the end", .name = "more");
    /* deep */
    char deep[2001];
    for (size_t i = 0; i < 2000; i++)
        deep[i] = i % 2 ? '/' : 'd';
    deep[1999] = '\0';
    MEMBER(&ball, .name = "good", .data = "good");
    tarball_record(&ball, "path", deep);
    MEMBER(&ball, .name = "x");
    hostile("leads too deep");
    static const char zip[] = "\x1f\x8b\x08 this is no tar archive";
    tarball_raw(&ball, zip, sizeof zip);
    tarball_pad(&ball);
    hostile("checksum");
    char *dir = fresh("t");
    is_refused(fs("untar", "--from", upload("", 0), "--path", dir, NULL),
               "the end of the archive is missing");
    is_refused(fs("untar", "--from", upload("x", 1), "--path", dir, NULL), "ends within a block");
}

static void takes_links_that_stay(void **state)
{
    (void)state;
    char *dir = fresh("t"), absolute[PATH_MAX];
    MEMBER(&ball, .name = "a/b/up", .type = '2', .target = "../../x");
    MEMBER(&ball, .name = "a/b/back", .type = '2', .target = "../b/../../a/./b");
    MEMBER(&ball, .name = "top", .type = '2', .target = ".");
    MEMBER(&ball, .name = "a/top", .type = '2', .target = "..");
    MEMBER(&ball, .name = "through", .type = '2', .target = "a/b/up/not/there");
    MEMBER(&ball, .name = "dots", .type = '2', .target = "...");
    snprintf(absolute, sizeof absolute, "%s/a/b", dir);
    tarball_long(&ball, 'K', absolute);
    MEMBER(&ball, .name = "absolute", .type = '2', .target = "cut", .format = TARBALL_GNU);
    tarball_end(&ball);
    fs_is_done(UNTAR(dir, NULL), "files:7");
    struct stat st;
    assert_int_equal(stat(below("t/a/b/back/up"), &st), -1);
    assert_int_equal(stat(below("t/a/b/back"), &st), 0);
    assert_int_equal(stat(below("t/absolute"), &st), 0);
    /* beside it, not below it */
    fresh("t");
    snprintf(absolute, sizeof absolute, "%s-more", dir);
    tarball_long(&ball, 'K', absolute);
    MEMBER(&ball, .name = "absolute", .type = '2', .target = "cut", .format = TARBALL_GNU);
    tarball_end(&ball);
    is_refused(UNTAR(dir, NULL), "leads out");
    snprintf(absolute, sizeof absolute, "%s/../x", dir);
    tarball_long(&ball, 'K', absolute);
    MEMBER(&ball, .name = "absolute", .type = '2', .target = "cut", .format = TARBALL_GNU);
    tarball_end(&ball);
    is_refused(UNTAR(dir, NULL), "leads out");
}

static void sees_what_is_in_the_way(void **state)
{
    (void)state;
    char *dir = fresh("t");
    make_dir("t/real");
    make_dir("t/dir");
    make_file("t/file", "file");
    RUN("rm", "-rf", below("aside"));
    make_dir("aside");
    assert_int_equal(symlink("../aside", below("t/out")) | symlink("real", below("t/in")), 0);
    size_t count = tree_count(dir);
    static const struct {
        const char *name;
        char type;
        const char *errno_name; /* NULL: the archive is refused */
    } ways[] = {{"out/x", '0', NULL},        {"in/x", '0', NULL},        {"out", '5', NULL},
                {"in/deep/er/x", '5', NULL}, {"file/x", '0', "ENOTDIR"}, {"file", '5', "ENOTDIR"},
                {"dir", '0', "EISDIR"},      {"dir", '2', "EISDIR"}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        MEMBER(&ball, .name = "good", .data = "good");
        MEMBER(&ball, .name = ways[i].name, .type = ways[i].type, .target = ways[i].type == '2' ? "x" : NULL);
        tarball_end(&ball);
        const struct fs_reply *r = UNTAR(dir, NULL);
        if (ways[i].errno_name)
            fs_fails(r, ways[i].errno_name);
        else
            is_refused(r, "leads through a link that is there");
        assert_non_null(strstr(r->last.text, ways[i].name));
        assert_no_upload();
        assert_int_equal(tree_count(dir), count);
        assert_int_equal(tree_count(below("aside")), 0);
    }
    /* A link in the place of a file or link is replaced, and not followed. */
    MEMBER(&ball, .name = "out", .data = "x");
    MEMBER(&ball, .name = "in", .type = '2', .target = "dir");
    tarball_end(&ball);
    fs_is_done(UNTAR(dir, NULL), "files:2");
    assert_true(S_ISREG(facts("t/out").st_mode));
    assert_int_equal(tree_count(below("aside")), 0);
}

static void refuses_every_cut(void **state)
{
    (void)state;
    char *dir = fresh("t");
    tarball_record(&ball, "path", "a long name, in principle");
    MEMBER(&ball, .name = "x", .data = "content");
    tarball_long(&ball, 'L', "another");
    MEMBER(&ball, .name = "x", .data = "content", .format = TARBALL_GNU);
    MEMBER(&ball, .name = "d", .type = '5');
    tarball_end(&ball);
    for (size_t n = 0; n < ball.len; n += n % 512 == 0 ? 511 : 1) {
        const struct fs_reply *r = fs("untar", "--from", upload(ball.bytes, n), "--path", dir, NULL);
        is_refused(r, "");
        assert_int_equal(tree_count(dir), 0);
    }
    tarball_raw(&ball, (const char[5120]){0}, 5120); /* more zeros are fine */
    fs_is_done(UNTAR(dir, NULL), "files:3");
}

/* ---- who extracts, and where ---- */

static void works_for_an_ordinary_user(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    RUN("rm", "-rf", root);
    assert_int_equal(mkdir(root, 0700) | chown(root, NOBODY, NOBODY), 0);
    char *dir = fresh("t");
    assert_int_equal(chown(dir, NOBODY, NOBODY), 0);
    make_dir("t/foreign");
    for (int i = 0; i < 2; i++) { /* the second time over what is there */
        MEMBER(&ball, .name = "shut", .type = '5', .mode = "0000000", .mtime = "00000000077");
        MEMBER(&ball, .name = "shut/in", .type = '5', .mode = "0000555", .mtime = "00000000077");
        MEMBER(&ball, .name = "shut/in/file", .data = "x", .mode = "0006777");
        MEMBER(&ball, .name = "foreign", .type = '5', .mode = "0000777");
        MEMBER(&ball, .name = "late/in/file", .data = "y", .mode = "0000000");
        MEMBER(&ball, .name = "late/in", .type = '5', .mode = "0000000", .mtime = "00000000077");
        MEMBER(&ball, .name = "late", .type = '5', .mode = "0000000", .mtime = "00000000077");
        tarball_end(&ball);
        (void)upload_ball();
        assert_int_equal(chown(path_in(root, ".up-1"), NOBODY, NOBODY), 0);
        guest_uid = NOBODY;
        const struct fs_reply *r = fs("untar", "--from", ".up-1", "--path", dir, NULL);
        guest_uid = 0;
        if (i == 1) { /* what lies below "late" comes before we know that it may be opened */
            fs_fails(r, "EACCES");
            assert_non_null(strstr(r->last.text, "4 of 7 entries done"));
            break;
        }
        fs_is_done(r, "files:7");
        struct stat st = facts("t/shut/in/file");
        assert_true(st.st_uid == NOBODY && (st.st_mode & 07777) == 0777);
        assert_int_equal(facts("t/foreign").st_mode & 07777, 0755);
        assert_true((facts("t/shut").st_mode & 07777) == 0 && facts("t/shut").st_mtim.tv_sec == 63);
        assert_true((facts("t/shut/in").st_mode & 07777) == 0555 && facts("t/shut/in").st_mtim.tv_sec == 63);
        assert_true((facts("t/late/in").st_mode & 07777) == 0 && facts("t/late/in").st_mtim.tv_sec == 63);
        assert_true((facts("t/late").st_mode & 07777) == 0 && facts("t/late").st_mtim.tv_sec == 63);
    }
    RUN("rm", "-rf", root);
}

static void stays_below_a_root(void **state)
{
    (void)state;
    char in[PATH_MAX], out[PATH_MAX];
    snprintf(in, sizeof in, "%s", fresh("in"));
    snprintf(out, sizeof out, "%s", fresh("out"));
    assert_int_equal(symlink("../out", below("in/link")), 0);
    make_dir("in/sub");
    MEMBER(&ball, .name = "x", .data = "x");
    tarball_end(&ball);
    fs_is_outside(UNTAR(out, "--root", in, NULL));
    assert_no_upload();
    MEMBER(&ball, .name = "x", .data = "x");
    tarball_end(&ball);
    fs_is_outside(UNTAR(below("in/link"), "--root", in, NULL));
    MEMBER(&ball, .name = "x", .data = "x");
    tarball_end(&ball);
    fs_is_outside(UNTAR(below("in/link/made"), "--root", in, "--parents", NULL));
    assert_int_equal(tree_count(out), 0);
    MEMBER(&ball, .name = "x", .data = "x");
    tarball_end(&ball);
    fs_is_done(UNTAR("sub/made", "--root", in, "--parents", NULL), "files:1");
    assert_string_equal(file_text(below("in/sub/made/x")), "x");
}

static atomic_bool racing;

struct places {
    char *race, *aside, *link;
};

/* Without rest, the directory is there, or a link to the one outside. */
static void *swap(void *arg)
{
    const struct places *p = arg;
    while (atomic_load(&racing)) {
        (void)rename(p->race, p->aside);
        (void)rename(p->link, p->race);
        (void)rename(p->race, p->link);
        (void)rename(p->aside, p->race);
    }
    return NULL;
}

static void races_do_not_lead_out(void **state)
{
    (void)state;
    char in[PATH_MAX], out[PATH_MAX], name[40];
    pthread_t t;
    snprintf(in, sizeof in, "%s", fresh("in"));
    snprintf(out, sizeof out, "%s", fresh("out"));
    make_dir("out/dir");
    make_file("out/f0", "secret");
    struct stat before = facts("out/f0"), dir_before = facts("out/dir");
    struct places places = {strdup(below("in/race")), strdup(below("in/aside")),
                            strdup(below("in/racelink"))};
    unsigned refused = 0;
    for (int i = 0; i < 20 || (i < 60 && !refused); i++) {
        RUN("rm", "-rf", in);
        make_dir("in");
        make_dir("in/race");
        assert_int_equal(symlink("../out", places.link), 0);
        for (int k = 0; k < 40; k++) {
            snprintf(name, sizeof name, "race/f%d", k);
            MEMBER(&ball, .name = name, .data = "ours");
            snprintf(name, sizeof name, "other%d/x", k); /* so that the directory is opened again and again */
            MEMBER(&ball, .name = name, .data = "ours");
        }
        MEMBER(&ball, .name = "race/dir", .type = '5', .mode = "0000700");
        MEMBER(&ball, .name = "race/hard", .type = '1', .target = "race/f0");
        MEMBER(&ball, .name = "race/dir/link", .type = '2', .target = "../f0");
        tarball_end(&ball);
        (void)upload_ball();
        atomic_store(&racing, true);
        assert_int_equal(pthread_create(&t, NULL, swap, &places), 0);
        const struct fs_reply *r = i % 2 ? fs("untar", "--from", ".up-1", "--path", in, "--root", in, NULL)
                                         : fs("untar", "--from", ".up-1", "--path", in, NULL);
        atomic_store(&racing, false);
        assert_int_equal(pthread_join(t, NULL), 0);
        refused += r->last.kind == SG_WIRE_ERROR;
        assert_int_equal(tree_count(out), 2);
    }
    assert_true(refused > 0);
    struct stat after = facts("out/f0"), dir_after = facts("out/dir");
    assert_true(after.st_ino == before.st_ino && after.st_ctim.tv_nsec == before.st_ctim.tv_nsec &&
                after.st_nlink == 1);
    assert_true(dir_after.st_mode == dir_before.st_mode &&
                dir_after.st_ctim.tv_nsec == dir_before.st_ctim.tv_nsec);
    assert_string_equal(file_text(below("out/f0")), "secret");
    free(places.race);
    free(places.aside);
    free(places.link);
}

enum { BIG = 48 << 20 }; /* takes some time to be extracted */

struct swapper {
    const char *dir, *race, *aside, *link;
    atomic_bool ends;
    bool swapped;
};

/* As soon as the second pass is at the big file, the directory becomes a link to the one outside. */
static void *swap_amid(void *arg)
{
    struct swapper *s = arg;
    while (!atomic_load(&s->ends) && !s->swapped) {
        DIR *d = opendir(s->dir);
        for (struct dirent *e; d && (e = readdir(d));)
            s->swapped = s->swapped || strncmp(e->d_name, ".sandgate-", 10) == 0;
        if (d)
            closedir(d);
        if (s->swapped)
            s->swapped = rename(s->race, s->aside) == 0 && rename(s->link, s->race) == 0;
    }
    return NULL;
}

/* first and last: before and behind the big file. */
static void upload_around(const struct tarball_member *first, const struct tarball_member *last)
{
    char size[16];
    if (first)
        tarball_add(&ball, first);
    snprintf(size, sizeof size, "%011o", (unsigned)BIG);
    MEMBER(&ball, .name = "big", .size = size);
    size_t front = ball.len;
    tarball_add(&ball, last);
    tarball_end(&ball);
    (void)upload(ball.bytes, front);
    int fd = open(path_in(root, ".up-1"), O_WRONLY | O_CLOEXEC);
    ssize_t rest = (ssize_t)(ball.len - front);
    assert_true(fd >= 0 && pwrite(fd, ball.bytes + front, (size_t)rest, (off_t)front + BIG) == rest);
    close(fd);
    tarball_free(&ball);
}

/* What is swapped after everything was checked makes it fail, and nothing comes to where the link leads. */
static void is_not_led_out(const struct tarball_member *first, const struct tarball_member *last,
                           bool confined)
{
    char in[PATH_MAX], out[PATH_MAX];
    snprintf(in, sizeof in, "%s", fresh("in"));
    snprintf(out, sizeof out, "%s", fresh("out"));
    make_dir("out/sub");
    struct swapper s = {.dir = in};
    for (int tries = 0; !s.swapped; tries++) {
        assert_true(tries < 20);
        fresh("in");
        make_dir("in/race");
        make_dir("in/race/sub");
        assert_int_equal(symlink("../out", below("in/link")), 0);
        upload_around(first, last);
        char *names[] = {strdup(below("in/race")), strdup(below("in/aside")), strdup(below("in/link"))};
        s.race = names[0], s.aside = names[1], s.link = names[2];
        atomic_store(&s.ends, false);
        pthread_t t;
        assert_int_equal(pthread_create(&t, NULL, swap_amid, &s), 0);
        const struct fs_reply *r =
            fs("untar", "--from", ".up-1", "--path", in, confined ? "--root" : NULL, in, NULL);
        atomic_store(&s.ends, true);
        assert_int_equal(pthread_join(t, NULL), 0);
        for (size_t i = 0; i < 3; i++)
            free(names[i]);
        assert_int_equal(tree_count(out), 1);
        assert_int_equal(facts("out").st_mode & 07777, 0755);
        assert_int_equal(facts("out/sub").st_mode & 07777, 0755);
        struct stat link;
        s.swapped = s.swapped && lstat(below("in/race"), &link) == 0 && S_ISLNK(link.st_mode);
        if (s.swapped && r->last.kind != SG_WIRE_ERROR)
            s.swapped = false; /* too late: all was done */
        else if (s.swapped && strcmp(r->last.errno_name, "ELOOP") != 0)
            assert_string_equal(r->last.errno_name, "ENOTDIR");
    }
}

static void cannot_be_led_out_amid(void **state)
{
    (void)state;
    static const struct tarball_member dirs[] = {{.name = "race", .type = '5', .mode = "0000700"},
                                                 {.name = "race/sub", .type = '5', .mode = "0000700"}},
                                       kinds[] = {{.name = "race/x", .data = "x"},
                                                  {.name = "race/sub/x", .data = "x"},
                                                  {.name = "race/sub/x", .type = '2', .target = "y"},
                                                  {.name = "race/sub/x", .type = '1', .target = "big"},
                                                  {.name = "race/sub/x", .type = '5'},
                                                  {.name = "race/new/x", .data = "x"}},
                                       other = {.name = "other", .data = "x"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        is_not_led_out(i == 0 ? &dirs[0] : NULL, &kinds[i], i % 2);
    for (size_t i = 0; i < 4; i++) /* the directory's mode */
        is_not_led_out(&dirs[i % 2], &other, i / 2);
}

/* ---- long ones ---- */

/* The cursor of an answer that goes on. */
static const char *cursor_of(const struct fs_reply *r)
{
    static char cursor[256];
    assert_int_equal(r->last.kind, SG_WIRE_MORE);
    assert_int_equal(r->n, 1);
    assert_true(r->lines[0].kind == SG_WIRE_NAME && r->lines[0].name[0] == 'c');
    snprintf(cursor, sizeof cursor, "%s", (const char *)r->lines[0].name + 1);
    return cursor;
}

static void goes_on_where_it_was(void **state)
{
    (void)state;
    char from[PATH_MAX], to[PATH_MAX], archive[PATH_MAX], word[32];
    make_tree(below("source"));
    snprintf(from, sizeof from, "%s", below("source"));
    snprintf(archive, sizeof archive, "%s", below("archive.tar"));
    RUN("tar", "--format=posix", "--pax-option=globexthdr.name=g,mtime=1000000007", "-cf", archive, "-C",
        from, ".");
    snprintf(to, sizeof to, "%s", fresh("target"));
    assert_int_equal(setenv("SANDGATE_GUEST_LIFE_MS", "0", 1), 0);
    const struct fs_reply *r = fs("untar", "--from", upload_file(archive), "--path", to, NULL);
    unsigned calls = 1;
    while (r->last.kind == SG_WIRE_MORE) {
        char cursor[256];
        snprintf(cursor, sizeof cursor, "%s", cursor_of(r));
        assert_int_equal(access(path_in(root, ".up-1"), F_OK), 0);
        r = fs("untar", "--from", ".up-1", "--path", to, "--cursor", cursor, NULL);
        assert_true(++calls < 100);
    }
    assert_int_equal(unsetenv("SANDGATE_GUEST_LIFE_MS"), 0);
    snprintf(word, sizeof word, "files:%zu", tree_count(from) + 1);
    fs_is_done(r, word);
    assert_no_upload();
    assert_true(calls > 5);
    trees_are_same(from, to);
}

static void refuses_foreign_cursors(void **state)
{
    (void)state;
    char *dir = fresh("t"), cursor[256];
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof name, "file%d", i);
        MEMBER(&ball, .name = name, .data = "x");
    }
    tarball_end(&ball);
    assert_int_equal(setenv("SANDGATE_GUEST_LIFE_MS", "0", 1), 0);
    const struct fs_reply *r = fs("untar", "--from", upload(ball.bytes, ball.len), "--path", dir, NULL);
    snprintf(cursor, sizeof cursor, "%s", cursor_of(r));
    assert_int_equal(unsetenv("SANDGATE_GUEST_LIFE_MS"), 0);
    static const char *const wrong[] = {"",
                                        "x",
                                        "u1:",
                                        "u1:1:1:0:1:1",
                                        "u2:0:0:0:0:0:0",
                                        "u1:a:0:0:0:0:0",
                                        "u1:0:0:0:0:0:0:",
                                        "u1:-1:0:0:0:0:0",
                                        "u1:0:0:9999999999:0:0:0"};
    for (size_t i = 1; i < sizeof wrong / sizeof *wrong; i++) {
        r = fs("untar", "--from", upload(ball.bytes, ball.len), "--path", dir, "--cursor", wrong[i], NULL);
        assert_true(r->last.kind == SG_WIRE_ERROR && r->last.fail == SG_WF_USAGE);
    }
    /* the archive is another one now */
    assert_int_equal(unlink(path_in(root, ".up-1")) != 0 && errno != ENOENT, 0);
    r = fs("untar", "--from", upload(ball.bytes, ball.len), "--path", dir, "--cursor", cursor, NULL);
    assert_true(r->last.kind == SG_WIRE_ERROR && r->last.fail == SG_WF_CHANGED);
    assert_no_upload();
    /* in the middle of an entry */
    (void)upload(ball.bytes, ball.len);
    struct stat st;
    assert_int_equal(stat(path_in(root, ".up-1"), &st), 0);
    snprintf(cursor, sizeof cursor, "u1:1536:1:0:%zu:%llu:%llu", ball.len, (unsigned long long)st.st_ino,
             (unsigned long long)st.st_ctim.tv_sec * 1000000000 + (unsigned long long)st.st_ctim.tv_nsec);
    r = fs("untar", "--from", ".up-1", "--path", dir, "--cursor", cursor, NULL);
    assert_true(r->last.kind == SG_WIRE_ERROR && r->last.fail == SG_WF_USAGE);
    tarball_free(&ball);
}

struct holder {
    int fd;
    bool removes;
};

static void *let_go(void *arg)
{
    const struct holder *h = arg;
    struct timespec t = {.tv_nsec = 50000000}; /* it does not wait for us to be early */
    nanosleep(&t, NULL);
    if (h->removes)
        (void)unlink(path_in(root, ".up-1"));
    close(h->fd);
    return NULL;
}

/* Who asks again waits for the call before, which may have done it all. */
static void one_at_a_time(void **state)
{
    (void)state;
    char *dir = fresh("t");
    for (int i = 0; i < 2; i++) {
        MEMBER(&ball, .name = "x", .data = "x");
        tarball_end(&ball);
        (void)upload_ball();
        struct holder h = {.fd = open(path_in(root, ".up-1"), O_RDONLY | O_CLOEXEC), .removes = i == 1};
        assert_true(h.fd >= 0 && flock(h.fd, LOCK_EX) == 0);
        pthread_t t;
        assert_int_equal(pthread_create(&t, NULL, let_go, &h), 0);
        const struct fs_reply *r = fs("untar", "--from", ".up-1", "--path", dir, NULL);
        assert_int_equal(pthread_join(t, NULL), 0);
        if (i == 0)
            fs_is_done(r, "files:1");
        else
            fs_fails(r, "ENOENT");
    }
    /* not for ever */
    MEMBER(&ball, .name = "x", .data = "x");
    tarball_end(&ball);
    (void)upload_ball();
    int fd = open(path_in(root, ".up-1"), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && flock(fd, LOCK_EX) == 0);
    assert_int_equal(setenv("SANDGATE_GUEST_LIFE_MS", "20", 1), 0);
    fs_fails(fs("untar", "--from", ".up-1", "--path", dir, NULL), "ETIMEDOUT");
    assert_int_equal(unsetenv("SANDGATE_GUEST_LIFE_MS"), 0);
    close(fd);
    fs_is_done(fs("untar", "--from", ".up-1", "--path", dir, NULL), "files:1");
}

static void takes_many_names(void **state)
{
    (void)state;
    enum { FILES = 3000 };
    char *dir = fresh("t"), name[40];
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "many/%d", i);
        MEMBER(&ball, .name = name);
    }
    tarball_end(&ball);
    fs_is_done(UNTAR(dir, NULL), "files:3000");
    assert_int_equal(tree_count(dir), FILES + 1);
}

/* The last one: it mounts. */
static void tells_how_far_it_came(void **state)
{
    (void)state;
    RUN("rm", "-rf", root);
    if (!small_root("size=1m,mode=0755"))
        skip();
    char text[200001];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(mkdir(path_in(root, "t"), 0755), 0);
    file_write(path_in(root, "t/two"), "old", 3);
    MEMBER(&ball, .name = "one", .data = text);
    MEMBER(&ball, .name = "two", .data = text);
    MEMBER(&ball, .name = "three", .data = "x");
    tarball_end(&ball);
    file_write(path_in(root, "filler"), text, 200000);
    file_write(path_in(root, "filler2"), text, 150000);
    const struct fs_reply *r = UNTAR(path_in(root, "t"), NULL);
    assert_true(r->last.kind == SG_WIRE_ERROR && r->last.fail == SG_WF_NO_SPACE);
    assert_string_equal(r->last.text, "two: making the file (1 of 3 entries done)");
    assert_no_upload();
    assert_string_equal(file_text(path_in(root, "t/two")), "old");
    assert_int_equal(tree_count(path_in(root, "t")), 2);
    assert_int_equal(umount2(root, MNT_DETACH), 0);
}

/* The very last one: from here on there is no openat2. */
static void older_kernels(void **state)
{
    (void)state;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 437, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof code / sizeof *code, .filter = code};
    assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        skip();
    MEMBER(&ball, .name = "x", .data = "x");
    tarball_end(&ball);
    char *dir = fresh("t");
    const struct fs_reply *r = UNTAR(dir, "--root", dir, NULL);
    assert_true(r->last.kind == SG_WIRE_ERROR && r->last.fail == SG_WF_INTERNAL);
    assert_string_equal(r->last.errno_name, "ENOSYS");
    extracts_what_tar_makes(state);
    merges_and_replaces(state);
    sees_what_is_in_the_way(state);
    static const struct tarball_member sub = {.name = "race/sub", .type = '5', .mode = "0000700"},
                                       file = {.name = "race/sub/x", .data = "x"};
    is_not_led_out(&sub, &file, false);
}

static int teardown(void **state)
{
    fs_calls_free();
    RUN("chmod", "-R", "u+rwX", scratch);
    return harness_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(extracts_what_tar_makes), cmocka_unit_test(merges_and_replaces),
        cmocka_unit_test(makes_the_target),        cmocka_unit_test(refuses_hostile_archives_whole),
        cmocka_unit_test(takes_links_that_stay),   cmocka_unit_test(sees_what_is_in_the_way),
        cmocka_unit_test(refuses_every_cut),       cmocka_unit_test(works_for_an_ordinary_user),
        cmocka_unit_test(stays_below_a_root),      cmocka_unit_test(races_do_not_lead_out),
        cmocka_unit_test(cannot_be_led_out_amid),  cmocka_unit_test(goes_on_where_it_was),
        cmocka_unit_test(refuses_foreign_cursors), cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(takes_many_names),        cmocka_unit_test(tells_how_far_it_came),
        cmocka_unit_test(older_kernels),
    };
    return cmocka_run_group_tests(tests, harness_setup, teardown);
}
