/* Operations that change files: C8, U8, P33 (what is not followed). */
#include "fs_calls.h"

#include "base/core/b64.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char *below(const char *name)
{
    return path_in(scratch, name);
}

static void make_file(const char *name, const char *text)
{
    file_write(below(name), text, strlen(text));
}

static struct stat facts(const char *name)
{
    struct stat st;
    assert_int_equal(lstat(below(name), &st), 0);
    return st;
}

static mode_t mode_of(const char *name)
{
    return facts(name).st_mode & 07777;
}

static bool is_there(const char *name)
{
    struct stat st;
    return lstat(below(name), &st) == 0;
}

/* A directory with a bit of everything. */
static void make_tree(const char *name)
{
    char path[256];
    assert_int_equal(mkdir(below(name), 0751), 0);
    snprintf(path, sizeof path, "%s/sub", name);
    assert_int_equal(mkdir(below(path), 0700), 0);
    snprintf(path, sizeof path, "%s/sub/\xff file", name);
    make_file(path, "in it");
    assert_int_equal(chmod(below(path), 0640), 0);
    snprintf(path, sizeof path, "%s/link", name);
    assert_int_equal(symlink("../kept", below(path)), 0);
    snprintf(path, sizeof path, "%s/dangling", name);
    assert_int_equal(symlink("/no/where", below(path)), 0);
    snprintf(path, sizeof path, "%s/pipe", name);
    assert_int_equal(mkfifo(below(path), 0600), 0);
}

static void assert_tree(const char *name)
{
    char path[256], target[64];
    assert_int_equal(mode_of(name), 0751);
    snprintf(path, sizeof path, "%s/sub", name);
    assert_int_equal(mode_of(path), 0700);
    snprintf(path, sizeof path, "%s/sub/\xff file", name);
    assert_string_equal(file_text(below(path)), "in it");
    assert_int_equal(mode_of(path), 0640);
    snprintf(path, sizeof path, "%s/link", name);
    assert_int_equal(readlink(below(path), target, sizeof target), 7);
    assert_memory_equal(target, "../kept", 7);
    snprintf(path, sizeof path, "%s/dangling", name);
    assert_int_equal(readlink(below(path), target, sizeof target), 9);
    snprintf(path, sizeof path, "%s/pipe", name);
    assert_true(S_ISFIFO(facts(path).st_mode));
}

static void makes_directories(void **state)
{
    (void)state;
    fs_is_done(fs("mkdir", "--path", below("d"), NULL), "created");
    assert_int_equal(mode_of("d"), 0755);
    fs_fails(fs("mkdir", "--path", below("d"), NULL), "EEXIST");
    fs_is_done(fs("mkdir", "--path", below("d"), "--parents", NULL), "exists");
    fs_fails(fs("mkdir", "--path", below("x/y"), NULL), "ENOENT");
    fs_is_done(fs("mkdir", "--path", below("x/y/z//"), "--parents", "--mode", "2710", NULL), "created");
    assert_int_equal(mode_of("x"), 0755);
    assert_int_equal(mode_of("x/y"), 0755);
    assert_int_equal(mode_of("x/y/z"), 02710);
    make_file("file", "");
    fs_fails(fs("mkdir", "--path", below("file"), "--parents", NULL), "EEXIST");
    fs_fails(fs("mkdir", "--path", below("file/below"), "--parents", NULL), "ENOTDIR");
    fs_is_done(fs("mkdir", "--path", "/", "--parents", NULL), "exists");
}

static void removes(void **state)
{
    (void)state;
    assert_int_equal(mkdir(below("kept"), 0755), 0);
    make_file("kept/file", "kept");
    make_tree("gone");
    fs_fails(fs("remove", "--path", below("gone"), NULL), "ENOTEMPTY");
    fs_is_done(fs("remove", "--path", below("gone/link"), "--recursive", NULL), "");
    assert_string_equal(file_text(below("kept/file")), "kept");
    assert_int_equal(symlink("../kept", below("gone/link")), 0);
    fs_fails(fs("remove", "--path", below("gone/link/"), "--recursive", NULL), "ENOTDIR");
    fs_is_done(fs("remove", "--path", below("gone"), "--recursive", NULL), "");
    assert_false(is_there("gone"));
    assert_string_equal(file_text(below("kept/file")), "kept"); /* the links were not followed */
    fs_fails(fs("remove", "--path", below("gone"), "--recursive", NULL), "ENOENT");
    fs_is_done(fs("remove", "--path", below("gone"), "--force", NULL), "");
    fs_is_done(fs("remove", "--path", below("gone/below"), "--force", NULL), "");
    assert_int_equal(mkdir(below("empty"), 0755), 0);
    fs_is_done(fs("remove", "--path", below("empty/"), NULL), "");
    static const char *const never[] = {"/", "//", "/.", "/..", "/tmp/..", ".", ".."};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        const struct fs_reply *r = fs("remove", "--path", never[i], "--recursive", "--force", NULL);
        fs_fails(r, i < 2 ? "EBUSY" : "EINVAL");
    }
}

/* More directories below each other than a path can name are an error that leaves the rest alone. */
static void removes_what_is_deep(void **state)
{
    (void)state;
    for (unsigned depth = 400; depth <= 600; depth += 200) {
        int dir = open(scratch, O_PATH | O_CLOEXEC);
        assert_int_equal(mkdirat(dir, "deep", 0700), 0);
        int at = openat(dir, "deep", O_PATH | O_CLOEXEC);
        for (unsigned i = 1; i < depth; i++) {
            assert_int_equal(mkdirat(at, "d", 0700), 0);
            int next = openat(at, "d", O_PATH | O_CLOEXEC);
            close(at);
            at = next;
        }
        close(at);
        close(dir);
        const struct fs_reply *r = fs("remove", "--path", below("deep"), "--recursive", NULL);
        if (depth == 400)
            fs_is_done(r, "");
        else
            fs_fails(r, "ELOOP");
    }
    assert_int_equal(rename(below("deep/d/d/d"), below("deeper")), 0);
    char path[1024] = "deeper";
    for (int i = 0; i < 200; i++)
        strncat(path, "/d", sizeof path - strlen(path) - 1);
    assert_int_equal(rename(below(path), below("rest")), 0);
    fs_is_done(fs("remove", "--path", below("deep"), "--recursive", NULL), "");
    fs_is_done(fs("remove", "--path", below("deeper"), "--recursive", NULL), "");
    fs_is_done(fs("remove", "--path", below("rest"), "--recursive", NULL), "");
}

static void copies(void **state)
{
    (void)state;
    make_tree("from");
    fs_fails(fs("copy", "--path", below("from"), "--to", below("to"), NULL), "EISDIR");
    fs_is_done(fs("copy", "--path", below("from"), "--to", below("to"), "--recursive", NULL), "");
    assert_tree("to");
    assert_tree("from");
    fs_fails(fs("copy", "--path", below("from"), "--to", below("to"), "--recursive", "--exclusive", NULL),
             "EEXIST");
    make_file("to/more", "more");
    make_file("to/sub/\xff file", "other");
    assert_int_equal(chmod(below("to/sub/\xff file"), 0600), 0);
    fs_is_done(fs("copy", "--path", below("from"), "--to", below("to"), "--recursive", NULL), "");
    assert_tree("to");
    assert_string_equal(file_text(below("to/more")), "more");
    fs_fails(fs("copy", "--path", below("from"), "--to", below("from/sub/x"), "--recursive", NULL), "EINVAL");
    fs_fails(fs("copy", "--path", below("from"), "--to", below("from"), "--recursive", NULL), "EINVAL");
    fs_fails(fs("copy", "--path", below("from"), "--to", below("kept/file"), "--recursive", NULL), "ENOTDIR");
    fs_fails(fs("copy", "--path", below("kept/file"), "--to", below("to"), NULL), "EISDIR");
    fs_fails(fs("copy", "--path", below("absent"), "--to", below("x"), NULL), "ENOENT");
    fs_fails(fs("copy", "--path", "/dev/null", "--to", below("null"), NULL), "EOPNOTSUPP");
    make_file("exists", "old");
    fs_fails(fs("copy", "--path", below("kept/file"), "--to", below("exists"), "--exclusive", NULL),
             "EEXIST");
    assert_string_equal(file_text(below("exists")), "old");
    fs_is_done(fs("copy", "--path", below("kept/file"), "--to", below("exists"), NULL), "");
    assert_string_equal(file_text(below("exists")), "kept");
    /* A link at the target is replaced, not written through. */
    assert_int_equal(symlink("kept/file", below("pointer")), 0);
    make_file("new", "new");
    fs_is_done(fs("copy", "--path", below("new"), "--to", below("pointer"), NULL), "");
    assert_true(S_ISREG(facts("pointer").st_mode));
    assert_string_equal(file_text(below("kept/file")), "kept");
    const struct fs_reply *r = fs("glob", "--path", scratch, "--pattern", "**/.sandgate*", "--hidden", NULL);
    assert_int_equal(r->n, 0); /* nothing temporary stays */
}

static void moves(void **state)
{
    (void)state;
    fs_is_done(fs("move", "--path", below("from"), "--to", below("moved"), NULL), "");
    assert_false(is_there("from"));
    assert_tree("moved");
    fs_fails(fs("move", "--path", below("moved"), "--to", below("to"), NULL), "ENOTEMPTY");
    fs_fails(fs("move", "--path", below("moved"), "--to", below("moved/sub/x"), NULL), "EINVAL");
    make_file("a", "a");
    make_file("b", "b");
    fs_fails(fs("move", "--path", below("a"), "--to", below("b"), "--exclusive", NULL), "EEXIST");
    assert_string_equal(file_text(below("b")), "b");
    fs_is_done(fs("move", "--path", below("a"), "--to", below("b"), NULL), "");
    assert_string_equal(file_text(below("b")), "a");
    assert_false(is_there("a"));
    fs_is_done(fs("move", "--path", below("b"), "--to", below("c"), "--exclusive", NULL), "");
    fs_fails(fs("move", "--path", below("b"), "--to", below("c"), NULL), "ENOENT");
    fs_fails(fs("move", "--path", below("c"), "--to", below("no/c"), NULL), "ENOENT");
}

/* To another file system it is a copy that takes the target's place at once. */
static void moves_to_another_file_system(void **state)
{
    (void)state;
    struct stat here, there;
    if (stat("/dev/shm", &there) || stat(scratch, &here) || here.st_dev == there.st_dev)
        skip();
    char other[64];
    snprintf(other, sizeof other, "/dev/shm/sandgate-fs-%d", (int)getpid());
    assert_int_equal(mkdir(other, 0700), 0);
    struct stat before = facts("moved/sub/\xff file"), after;
    fs_is_done(fs("move", "--path", below("moved"), "--to", path_in(other, "t"), NULL), "");
    assert_false(is_there("moved"));
    assert_int_equal(stat(path_in(other, "t/sub/\xff file"), &after), 0);
    assert_true(after.st_mtim.tv_sec == before.st_mtim.tv_sec &&
                after.st_mtim.tv_nsec == before.st_mtim.tv_nsec);
    fs_fails(fs("move", "--path", below("c"), "--to", path_in(other, "t"), NULL), "EISDIR");
    assert_true(is_there("c"));
    fs_is_done(fs("move", "--path", path_in(other, "t"), "--to", below("moved"), "--exclusive", NULL), "");
    assert_tree("moved");
    fs_is_done(fs("move", "--path", below("c"), "--to", path_in(other, "c"), NULL), "");
    make_file("c", "second");
    fs_fails(fs("move", "--path", below("c"), "--to", path_in(other, "c"), "--exclusive", NULL), "EEXIST");
    assert_string_equal(file_text(path_in(other, "c")), "a");
    fs_is_done(fs("move", "--path", below("c"), "--to", path_in(other, "c"), NULL), "");
    assert_string_equal(file_text(path_in(other, "c")), "second");
    fs_fails(fs("link", "--path", below("new"), "--to", path_in(other, "new"), NULL), "EXDEV");
    const struct fs_reply *r = fs("list", "--path", other, NULL);
    assert_int_equal(r->n, 1);
    fs_is_done(fs("remove", "--path", other, "--recursive", NULL), "");
}

static void links(void **state)
{
    (void)state;
    fs_is_done(fs("symlink", "--path", below("s"), "--to", "any \xff text", NULL), "");
    const struct fs_reply *r = fs("readlink", "--path", below("s"), NULL);
    assert_string_equal(r->lines[0].name, "any \xff text");
    fs_fails(fs("symlink", "--path", below("s"), "--to", "x", NULL), "EEXIST");
    fs_is_done(fs("link", "--path", below("new"), "--to", below("hard"), NULL), "");
    assert_true(facts("new").st_ino == facts("hard").st_ino);
    fs_fails(fs("link", "--path", below("new"), "--to", below("hard"), NULL), "EEXIST");
    fs_is_done(fs("link", "--path", below("s"), "--to", below("hard s"), NULL), "");
    assert_true(S_ISLNK(facts("hard s").st_mode)); /* a link is not followed */
}

static void changes_attributes(void **state)
{
    (void)state;
    make_file("attr", "12345");
    assert_int_equal(symlink("attr", below("to attr")), 0);
    fs_is_done(fs("chmod", "--path", below("to attr"), "--mode", "4711", NULL), "");
    assert_int_equal(mode_of("attr"), 04711);
    fs_fails(fs("chmod", "--path", below("s"), "--mode", "700", NULL), "ENOENT");
    assert_int_equal(chmod(below("kept/file"), 0604), 0);
    make_tree("modes");
    fs_is_done(fs("chmod", "--path", below("modes"), "--mode", "750", "--recursive", NULL), "");
    assert_int_equal(mode_of("modes/sub/\xff file"), 0750);
    assert_int_equal(mode_of("modes/sub"), 0750);
    assert_int_equal(mode_of("modes"), 0750);
    assert_int_equal(mode_of("kept/file"), 0604);
    if (geteuid() == 0) {
        fs_is_done(fs("chown", "--path", below("modes"), "--uid", "12", "--recursive", NULL), "");
        assert_int_equal(facts("modes/sub/\xff file").st_uid, 12);
        assert_int_equal(facts("modes/link").st_uid, 12);
        assert_int_equal(facts("kept/file").st_uid, 0);
        fs_is_done(fs("chown", "--path", below("to attr"), "--gid", "34", "--no-follow", NULL), "");
        assert_int_equal(facts("to attr").st_gid, 34);
        assert_int_equal(facts("attr").st_gid, getegid());
    }
    fs_is_done(fs("truncate", "--path", below("to attr"), "--size", "2", NULL), "");
    assert_string_equal(file_text(below("attr")), "12");
    fs_is_done(fs("truncate", "--path", below("attr"), "--size", "100000", NULL), "");
    assert_int_equal(facts("attr").st_size, 100000);
    fs_fails(fs("truncate", "--path", below("kept"), "--size", "0", NULL), "EISDIR");
    fs_fails(fs("truncate", "--path", below("modes/pipe"), "--size", "0", NULL), "ENXIO");
    fs_is_done(fs("utimes", "--path", below("to attr"), "--mtime-ns", "-1", "--atime-ns",
                  "1500000000123456789", NULL),
               "");
    struct stat st = facts("attr");
    assert_true(st.st_mtim.tv_sec == -1 && st.st_mtim.tv_nsec == 999999999);
    assert_true(st.st_atim.tv_sec == 1500000000 && st.st_atim.tv_nsec == 123456789);
    fs_is_done(fs("utimes", "--path", below("attr"), "--atime-ns", "5", NULL), "");
    assert_true(facts("attr").st_mtim.tv_sec == -1);
    fs_is_done(fs("utimes", "--path", below("attr"), NULL), "");
    assert_true(facts("attr").st_mtim.tv_sec > 1500000000);
    fs_is_done(fs("utimes", "--path", below("s"), "--no-follow", "--mtime-ns", "7", NULL), "");
    assert_true(facts("s").st_mtim.tv_nsec == 7);
}

static void temporary_names(void **state)
{
    (void)state;
    assert_int_equal(mkdir(below("tmp"), 0755), 0);
    const struct fs_reply *one = fs("mktemp", "--path", below("tmp"), NULL);
    fs_is_done(one, "");
    const struct fs_reply *two =
        fs("mktemp", "--path", below("tmp/"), "--prefix", "\xff a", "--directory", NULL);
    fs_is_done(two, "");
    struct stat st;
    assert_int_equal(lstat((const char *)one->lines[0].name, &st), 0);
    assert_true(S_ISREG(st.st_mode) && (st.st_mode & 07777) == 0600);
    assert_int_equal(lstat((const char *)two->lines[0].name, &st), 0);
    assert_true(S_ISDIR(st.st_mode) && (st.st_mode & 07777) == 0700);
    assert_non_null(strstr((const char *)two->lines[0].name, "tmp/\xff a"));
    fs_fails(fs("mktemp", "--path", below("absent"), NULL), "ENOENT");
}

static const char *upload(const char *text)
{
    (void)mkdir(root, 0700);
    file_write(path_in(root, ".up-a"), text, strlen(text));
    return ".up-a";
}

static void appends(void **state)
{
    (void)state;
    fs_is_done(fs("append", "--path", below("log"), "--from", upload("one "), NULL), "4");
    assert_int_equal(access(path_in(root, ".up-a"), F_OK), -1);
    fs_is_done(fs("append", "--path", below("log"), "--from", upload("two"), "--offset", "4", NULL), "7");
    assert_string_equal(file_text(below("log")), "one two");
    /* Repeated after a lost answer: nothing is there twice. */
    fs_says(fs("append", "--path", below("log"), "--from", upload("two"), "--offset", "4", NULL),
            SG_WF_STALE);
    assert_string_equal(file_text(below("log")), "one two");
    assert_int_equal(mode_of("log"), 0644);
    fs_fails(fs("append", "--path", below("kept"), "--from", upload("x"), NULL), "EISDIR");
    fs_fails(fs("append", "--path", below("log"), "--from", ".up-none", NULL), "ENOENT");
    const struct fs_reply *r = fs("append", "--path", below("log"), "--from", "../x", NULL);
    assert_int_equal(r->last.fail, SG_WF_USAGE);
}

/* U8: an append that was killed amid it and is asked again, as after a lost answer, puts nothing there twice. */
static void killed_appends(void **state)
{
    enum { SIZE = 3000000, AMID = 3, STEP_NS = 500000, TRIES_MAX = 400 };
    static char text[SIZE + 1], coded[8192];
    char path[PATH_MAX];
    unsigned amid = 0;
    (void)state;
    snprintf(path, sizeof path, "%s", below("killed"));
    memset(text, 'n', SIZE);
    coded[sg_b64_encode(coded, path, strlen(path))] = '\0';
    for (long i = 0; amid < AMID && i < TRIES_MAX; i++) {
        const char *args[] = {"fs", "--op", "append", "--path", coded, "--from", upload(text), NULL};
        int fd, status;
        file_write(path, "old", 3);
        pid_t pid = guest_spawn(NULL, args, &fd);
        nanosleep(&(struct timespec){.tv_nsec = i % 40 * STEP_NS}, NULL);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        close(fd);
        off_t before = facts("killed").st_size;
        amid += WIFSIGNALED(status) && before > 3;
        if (before > 3)
            fs_fails(fs("append", "--path", path, "--from", ".up-a", NULL), "ENOENT");
        assert_int_equal(facts("killed").st_size, before);
    }
    assert_true(amid > 0);
    (void)unlink(path_in(root, ".up-a"));
}

/* A full disk leaves what was there, and nothing beside it. */
static void full_disk(void **state)
{
    (void)state;
    if (!small_root("size=1m,mode=0755"))
        skip();
    static char big[700 * 1024];
    memset(big, 'b', sizeof big);
    char *old = path_in(root, "old");
    file_write(old, "old", 3);
    file_write(path_in(root, "big"), big, sizeof big);
    const struct fs_reply *r = fs("copy", "--path", path_in(root, "big"), "--to", old, NULL);
    assert_int_equal(r->last.fail, SG_WF_NO_SPACE);
    assert_string_equal(r->last.errno_name, "ENOSPC");
    assert_string_equal(file_text(old), "old");
    r = fs("list", "--path", root, NULL);
    assert_int_equal(r->n, 2);
    assert_int_equal(umount2(root, MNT_DETACH), 0);
}

/* Calls until it is through, with so little time for each that it takes several; how many ended with "more". */
static unsigned in_pieces(const char *op, const char *option, const char *value)
{
    unsigned pieces = 0;
    assert_int_equal(setenv("SANDGATE_GUEST_TICKS", "1", 1), 0);
    assert_int_equal(setenv("SANDGATE_GUEST_LIFE_MS", "60", 1), 0);
    for (;; pieces++) {
        const struct fs_reply *r = fs(op, "--path", below("wide"), "--recursive", option, value, NULL);
        if (r->last.kind != SG_WIRE_MORE) {
            fs_is_done(r, "");
            break;
        }
        assert_true(pieces < 1000);
    }
    assert_int_equal(unsetenv("SANDGATE_GUEST_TICKS"), 0);
    assert_int_equal(unsetenv("SANDGATE_GUEST_LIFE_MS"), 0);
    return pieces;
}

/* What is done with large trees ends in time, says that there is more, and goes on with the next call.  C8. */
static void goes_on_with_large_trees(void **state)
{
    (void)state;
    enum { DIRS = 8, FILES = 700 };
    char name[64];
    assert_int_equal(mkdir(below("wide"), 0755), 0);
    for (unsigned d = 0; d < DIRS; d++) {
        snprintf(name, sizeof name, "wide/%u", d);
        assert_int_equal(mkdir(below(name), 0755), 0);
        for (unsigned i = 0; i < FILES; i++) {
            snprintf(name, sizeof name, "wide/%u/%u", d, i);
            make_file(name, "");
        }
    }
    assert_true(in_pieces("chmod", "--mode", "751") > 0);
    for (unsigned d = 0; d < DIRS; d++)
        for (unsigned i = 0; i < FILES; i += 23) {
            snprintf(name, sizeof name, "wide/%u/%u", d, i);
            assert_int_equal(mode_of(name), 0751);
        }
    assert_int_equal(mode_of("wide"), 0751);
    assert_int_equal(mode_of("wide/0"), 0751);
    assert_true(in_pieces("remove", "--force", NULL) > 0);
    assert_false(is_there("wide"));
}

static int teardown(void **state)
{
    fs_calls_free();
    return harness_teardown(state);
}

int main(void)
{
    umask(022);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(makes_directories),
        cmocka_unit_test(removes),
        cmocka_unit_test(removes_what_is_deep),
        cmocka_unit_test(copies),
        cmocka_unit_test(moves),
        cmocka_unit_test(moves_to_another_file_system),
        cmocka_unit_test(links),
        cmocka_unit_test(changes_attributes),
        cmocka_unit_test(temporary_names),
        cmocka_unit_test(appends),
        cmocka_unit_test(killed_appends),
        cmocka_unit_test(full_disk),
        cmocka_unit_test(goes_on_with_large_trees),
    };
    return cmocka_run_group_tests(tests, harness_setup, teardown);
}
