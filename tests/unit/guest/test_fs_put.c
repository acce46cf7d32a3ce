/* Uploads take their place below a root, on conditions, whole or not at all: A16, A17, U8, P31, P33. */
#include "fs_calls.h"

#include "base/core/b64.h"
#include "base/core/file_tag.h"
#include "base/core/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <time.h>
#include <sys/wait.h>
#include <sys/mount.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *below(const char *name)
{
    return path_in(scratch, name);
}

static const char *upload(const char *name, const char *text)
{
    (void)mkdir(root, 0700);
    file_write(path_in(root, name), text, strlen(text));
    return name;
}

static struct stat facts(const char *name)
{
    struct stat st;
    assert_int_equal(lstat(below(name), &st), 0);
    return st;
}

static void assert_no_upload(void)
{
    assert_int_equal(access(path_in(root, ".up-1"), F_OK), -1);
}

#define PUT(path, text, ...) fs("put", "--path", path, "--from", upload(".up-1", text), __VA_ARGS__)

static void puts_and_says_what_is_there(void **state)
{
    (void)state;
    fs_fails(PUT(below("a/b"), "one", NULL), "ENOENT");
    assert_no_upload();
    const struct fs_reply *r = PUT(below("a/b"), "one", "--parents", "--mode", "640", "--size", "3", NULL);
    fs_is_done(r, "created");
    assert_no_upload();
    assert_string_equal(file_text(below("a/b")), "one");
    struct stat st = facts("a/b");
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_true(r->n == 1 && r->lines[0].file.ino == st.st_ino && r->lines[0].file.size == 3);
    assert_true(r->lines[0].file.ctime_ns == st.st_ctim.tv_sec * INT64_C(1000000000) + st.st_ctim.tv_nsec);
    fs_is_done(PUT(below("a/b"), "two", NULL), "replaced");
    assert_string_equal(file_text(below("a/b")), "two");
    assert_int_equal(facts("a/b").st_mode & 07777, 0640);
    assert_int_equal(facts("a").st_mode & 07777, 0755);
    fs_fails(PUT(below("a/b"), "three", "--exclusive", NULL), "EEXIST");
    fs_fails(PUT(below("a/b"), "three", "--size", "4", NULL), "EBADMSG");
    fs_fails(PUT(below("a"), "three", NULL), "EISDIR");
    fs_fails(PUT(below("a/c/"), "three", NULL), "EISDIR");
    fs_fails(PUT("/", "three", NULL), "EISDIR");
    fs_fails(PUT(below("a/b/c"), "three", "--parents", NULL), "ENOTDIR");
    fs_fails(PUT("/dev/null", "three", NULL), "EINVAL");
    assert_no_upload();
    assert_string_equal(file_text(below("a/b")), "two");
    fs_fails(fs("put", "--path", below("a/b"), "--from", ".up-none", NULL), "ENOENT");
    /* A link keeps being one; a dangling one is replaced. */
    assert_int_equal(symlink("b", below("a/link")), 0);
    assert_int_equal(symlink("nowhere", below("a/dangling")), 0);
    fs_is_done(PUT(below("a/link"), "three", NULL), "replaced");
    assert_true(S_ISLNK(facts("a/link").st_mode));
    assert_string_equal(file_text(below("a/b")), "three");
    fs_fails(PUT(below("a/dangling"), "x", "--exclusive", NULL), "EEXIST");
    fs_is_done(PUT(below("a/dangling"), "x", NULL), "created");
}

static void digests(void **state)
{
    (void)state;
    unsigned char sum[32];
    char digest[80] = "sha-256:";
    struct sg_sha256 s;
    sg_sha256_init(&s);
    sg_sha256_update(&s, "right", 5);
    sg_sha256_final(&s, sum);
    for (size_t i = 0; i < sizeof sum; i++)
        snprintf(digest + 8 + 2 * i, 3, "%02x", sum[i]);
    fs_is_done(PUT(below("digest"), "right", "--digest", digest, NULL), "created");
    fs_says(PUT(below("digest"), "wrong", "--digest", digest, NULL), SG_WF_DIGEST);
    fs_says(PUT(below("digest"), "wrong", "--digest", "md5:", NULL), SG_WF_DIGEST);
    assert_no_upload();
    assert_string_equal(file_text(below("digest")), "right");
}

/* The tag that a client is told. */
static const char *tag_of(const char *name)
{
    static char text[SG_FILE_TAG_LEN + 1];
    const struct fs_reply *r = fs("stat", "--path", below(name), NULL);
    fs_is_done(r, "");
    sg_file_tag(&r->lines[0].file, text);
    return text;
}

#define OTHER_TAG "0123456789abcdefghijkl"

static void conditions(void **state)
{
    (void)state;
    char tag[SG_FILE_TAG_LEN + 1], list[128];
    fs_says(PUT(below("c"), "x", "--if-match", "*", NULL), SG_WF_STALE);
    fs_says(PUT(below("c"), "x", "--if-match", OTHER_TAG, NULL), SG_WF_STALE);
    fs_says(PUT(below("new/c"), "x", "--if-match", "*", "--parents", NULL), SG_WF_STALE);
    assert_int_equal(access(below("new"), F_OK), -1);
    assert_int_equal(access(below("c"), F_OK), -1);
    fs_is_done(PUT(below("c"), "1", "--unless", OTHER_TAG, NULL), "created");
    fs_is_done(PUT(below("c"), "2", "--if-match", "*", NULL), "replaced");
    snprintf(tag, sizeof tag, "%s", tag_of("c"));
    snprintf(list, sizeof list, OTHER_TAG ",%s", tag);
    fs_says(PUT(below("c"), "x", "--if-match", OTHER_TAG, NULL), SG_WF_STALE);
    fs_says(PUT(below("c"), "x", "--unless", list, NULL), SG_WF_STALE);
    assert_string_equal(file_text(below("c")), "2");
    assert_string_equal(tag_of("c"), tag); /* not even its times changed */
    const struct fs_reply *r = PUT(below("c"), "3", "--if-match", list, NULL);
    fs_is_done(r, "replaced");
    sg_file_tag(&r->lines[0].file, tag);
    assert_string_equal(tag_of("c"), tag); /* what is told of a put is what a get says */
    fs_is_done(PUT(below("c"), "4", "--unless", OTHER_TAG, NULL), "replaced");
    /* Any change of attributes counts. */
    snprintf(tag, sizeof tag, "%s", tag_of("c"));
    assert_int_equal(chmod(below("c"), 0600), 0);
    fs_says(PUT(below("c"), "x", "--if-match", tag, NULL), SG_WF_STALE);
    fs_says(fs("remove", "--path", below("c"), "--if-match", tag, NULL), SG_WF_STALE);
    fs_is_done(fs("remove", "--path", below("c"), "--if-match", tag_of("c"), NULL), "");
    fs_says(fs("remove", "--path", below("c"), "--if-match", "*", NULL), SG_WF_STALE);
    fs_says(fs("remove", "--path", below("c"), "--if-match", "*", "--force", NULL), SG_WF_STALE);
    /* What a link leads to is what a client saw; it is the link that goes. */
    fs_is_done(PUT(below("c"), "5", NULL), "created");
    assert_int_equal(symlink("c", below("to c")), 0);
    snprintf(tag, sizeof tag, "%s", tag_of("to c"));
    fs_is_done(PUT(below("to c"), "6", "--if-match", tag, NULL), "replaced");
    fs_says(fs("remove", "--path", below("to c"), "--if-match", tag, NULL), SG_WF_STALE);
    fs_is_done(fs("remove", "--path", below("to c"), "--if-match", tag_of("c"), NULL), "");
    assert_string_equal(file_text(below("c")), "6");
    static const char *const bad[] = {"",
                                      "x",
                                      OTHER_TAG ",",
                                      "," OTHER_TAG,
                                      OTHER_TAG "," OTHER_TAG "x",
                                      "*," OTHER_TAG,
                                      "\"" OTHER_TAG "\""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        fs_says(PUT(below("c"), "x", "--if-match", bad[i], NULL), SG_WF_USAGE);
    fs_says(PUT(below("c"), "x", "--unless", "*", NULL), SG_WF_USAGE);
    fs_says(PUT(below("c"), "x", "--if-match", "*", "--exclusive", NULL), SG_WF_USAGE);
}

enum { WRITERS = 50, RACES = 6 };

/* So many at once would put, all with a content of their own: one does. */
static void race(const char *name, const char *condition, const char *value, enum sg_wire_fail lost)
{
    static char names[WRITERS][24], coded[8192], path[PATH_MAX];
    snprintf(path, sizeof path, "%s", below(name));
    pid_t pids[WRITERS];
    int fds[WRITERS], winner = -1;
    coded[sg_b64_encode(coded, path, strlen(path))] = '\0';
    for (int i = 0; i < WRITERS; i++) {
        snprintf(names[i], sizeof names[i], ".up-n%d", i);
        const char *args[] = {"fs",      "--op", "put", "--path", coded, "--from", upload(names[i], names[i]),
                              condition, value,  NULL};
        pids[i] = guest_spawn(NULL, args, &fds[i]);
    }
    for (int i = 0; i < WRITERS; i++) {
        struct answer a = answer_read(pids[i], fds[i], (uint64_t[2]){0, 0});
        if (a.last.kind == SG_WIRE_OK) {
            assert_int_equal(winner, -1);
            winner = i;
        } else {
            assert_error(&a, lost, lost == SG_WF_FILE ? "EEXIST" : "");
        }
        answer_free(&a);
        assert_int_equal(access(path_in(root, names[i]), F_OK), -1);
    }
    assert_true(winner >= 0);
    assert_string_equal(file_text(path), names[winner]);
}

/* Of many who would create or replace the same one, one does. */
static void conditions_have_one_winner(void **state)
{
    (void)state;
    for (int i = 0; i < RACES; i++) {
        race("raced", "--exclusive", NULL, SG_WF_FILE);
        char tag[SG_FILE_TAG_LEN + 1];
        snprintf(tag, sizeof tag, "%s", tag_of("raced"));
        race("raced", "--if-match", tag, SG_WF_STALE);
        assert_int_equal(unlink(below("raced")), 0);
    }
}

/* P33 */
static void stays_in_the_root(void **state)
{
    (void)state;
    assert_int_equal(mkdir(below("in"), 0755), 0);
    assert_int_equal(mkdir(below("out"), 0755), 0);
    file_write(below("out/secret"), "secret", 6);
    assert_int_equal(symlink("../out/secret", below("in/leak")), 0);
    assert_int_equal(symlink("../out", below("in/away")), 0);
    assert_int_equal(symlink("../out/new", below("in/to new")), 0);
    static const char *const bad[] = {"in/leak",       "in/away/secret", "in/away/new", "in/to new",
                                      "in/../out/new", "out/new",        "in/away/x/y"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int parents = 0; parents < 2; parents++)
            fs_is_outside(PUT(below(bad[i]), "x", "--root", below("in"), parents ? "--parents" : NULL, NULL));
    assert_string_equal(file_text(below("out/secret")), "secret");
    assert_int_equal(access(below("out/new"), F_OK), -1);
    assert_int_equal(access(below("out/x"), F_OK), -1);
    assert_no_upload();
    fs_is_done(PUT(below("in/deep/er/file"), "ours", "--root", below("in"), "--parents", NULL), "created");
    assert_int_equal(symlink("deep/er/file", below("in/inner")), 0);
    fs_is_done(PUT(below("in/inner"), "more", "--root", below("in"), NULL), "replaced");
    assert_string_equal(file_text(below("in/deep/er/file")), "more");
}

/* What lies on another file system is a copy, and nothing stays beside it. */
static void over_a_file_system_border(void **state)
{
    (void)state;
    struct stat here, there;
    char dir[] = "/dev/shm/sgguest-XXXXXX", to[PATH_MAX];
    assert_int_equal(stat(scratch, &here), 0);
    assert_int_equal(stat("/dev/shm", &there), 0);
    assert_int_not_equal(here.st_dev, there.st_dev); /* else this test says nothing */
    assert_non_null(mkdtemp(dir));
    snprintf(to, sizeof to, "%s/file", dir);
    fs_is_done(PUT(to, "across", "--mode", "600", NULL), "created");
    fs_is_done(PUT(to, "again", NULL), "replaced");
    assert_string_equal(file_text(to), "again");
    assert_int_equal(stat(to, &there), 0);
    assert_int_equal(there.st_mode & 07777, 0600);
    fs_fails(PUT(to, "third", "--exclusive", NULL), "EEXIST");
    assert_string_equal(file_text(to), "again");
    assert_no_upload();
    assert_int_equal(unlink(to), 0);
    assert_int_equal(rmdir(dir), 0); /* no temporary file stayed */
}

static void uploads_lie_below_the_root(void **state)
{
    (void)state;
    file_write(below("mine"), "mine", 4);
    const char *const bad[] = {below("mine"), "../scratch/mine", "..", "guest-0123456789abcdef", "a/b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        fs_says(fs("put", "--path", below("stolen"), "--from", bad[i], NULL), SG_WF_USAGE);
    upload(".up-u", "x");
    assert_int_equal(symlink(below("mine"), path_in(root, ".up-link")), 0);
    assert_int_equal(fs("put", "--path", below("stolen"), "--from", ".up-link", NULL)->last.kind,
                     SG_WIRE_ERROR);
    assert_int_equal(access(below("stolen"), F_OK), -1);
    assert_string_equal(file_text(below("mine")), "mine");
}

/* P29: kill -9 at any moment leaves the old file with its mode, or the new one whole; and nothing beside it. */
static void killed_at_any_moment(const char *dir)
{
    enum { SIZE = 1500000, ROUNDS = 6 };
    static char text[SIZE + 1], there[SIZE + 1], coded[8192], path[PATH_MAX];
    unsigned killed = 0;
    memset(text, 'n', SIZE);
    snprintf(path, sizeof path, "%s/f", below(dir));
    coded[sg_b64_encode(coded, path, strlen(path))] = '\0';
    for (unsigned round = 0; round < ROUNDS; round++) {
        file_write(path, "old", 3);
        assert_int_equal(chmod(path, 0751), 0);
        bool ended = false;
        for (long ns = 300000 + round % 4 * 200000; !ended; ns += 1000000) {
            const char *args[] = {"fs", "--op", "put", "--path", coded, "--from", upload(".up-k", text),
                                  NULL};
            int fd, status;
            pid_t pid = guest_spawn(NULL, args, &fd);
            nanosleep(&(struct timespec){.tv_nsec = ns % 1000000000}, NULL);
            kill(pid, SIGKILL);
            assert_int_equal(waitpid(pid, &status, 0), pid);
            close(fd);
            ended = WIFEXITED(status);
            killed += !ended;
            struct stat st;
            assert_int_equal(stat(path, &st), 0);
            assert_int_equal(st.st_mode & 07777, 0751);
            FILE *f = fopen(path, "re");
            assert_non_null(f);
            size_t n = fread(there, 1, sizeof there, f);
            (void)fclose(f);
            assert_true(n == 3 ? memcmp(there, "old", 3) == 0 : n == SIZE && memcmp(there, text, n) == 0);
            assert_string_equal(fs_names_of(fs("list", "--path", below(dir), NULL)), "f ");
            ended = ended || n == SIZE;
        }
    }
    assert_true(killed > 0);
    (void)unlink(path_in(root, ".up-k"));
}

static void killed(void **state)
{
    (void)state;
    assert_int_equal(mkdir(below("killed"), 0755), 0);
    killed_at_any_moment("killed");
    if (!small_root("size=4M,mode=0700"))
        skip();
    killed_at_any_moment("killed"); /* from another file system */
    assert_int_equal(umount2(root, MNT_DETACH), 0);
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
        cmocka_unit_test(puts_and_says_what_is_there),
        cmocka_unit_test(digests),
        cmocka_unit_test(conditions),
        cmocka_unit_test(conditions_have_one_winner),
        cmocka_unit_test(stays_in_the_root),
        cmocka_unit_test(killed),
        cmocka_unit_test(over_a_file_system_border),
        cmocka_unit_test(uploads_lie_below_the_root),
    };
    return cmocka_run_group_tests(tests, harness_setup, teardown);
}
