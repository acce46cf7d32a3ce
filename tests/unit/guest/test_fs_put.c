/* Uploads take their place below a root, on conditions, whole or not at all: A16, A17, U8, P31, P33. */
#include "fs_calls.h"

#include "base/core/b64.h"
#include "base/core/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
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
    fs_fails(PUT(below("digest"), "wrong", "--digest", digest, NULL), "EBADMSG");
    fs_fails(PUT(below("digest"), "wrong", "--digest", "md5:", NULL), "EBADMSG");
    assert_string_equal(file_text(below("digest")), "right");
}

static const char *match_of(const char *name)
{
    static char text[128];
    const struct fs_reply *r = fs("lstat", "--path", below(name), NULL);
    fs_is_done(r, "");
    const struct sg_wire_file *f = &r->lines[0].file;
    snprintf(text, sizeof text, "%" PRIu64 "-%" PRIu64 "-%" PRIu64 "-%" PRId64 "-%" PRId64, f->dev, f->ino,
             f->size, f->mtime_ns, f->ctime_ns);
    return text;
}

/* Of many who would replace the same one, one does. */
static void conditions_have_one_winner(void **state)
{
    (void)state;
    fs_is_done(PUT(below("match"), "0", NULL), "created");
    char match[128];
    snprintf(match, sizeof match, "%s", match_of("match"));
    fs_is_done(PUT(below("match"), "1", "--if-match", match, NULL), "replaced");
    fs_fails(PUT(below("match"), "2", "--if-match", match, NULL), "ESTALE");
    fs_fails(PUT(below("absent"), "2", "--if-match", match, NULL), "ESTALE");
    assert_string_equal(file_text(below("match")), "1");
    for (int exclusive = 0; exclusive < 2; exclusive++) {
        enum { N = 20 };
        char names[N][16], path[8192];
        pid_t pids[N];
        int fds[N], won = 0;
        snprintf(match, sizeof match, "%s", match_of("match"));
        const char *plain = below(exclusive ? "new" : "match");
        path[sg_b64_encode(path, plain, strlen(plain))] = '\0';
        for (int i = 0; i < N; i++) {
            snprintf(names[i], sizeof names[i], ".up-n%d", i);
            const char *args[] = {"fs",
                                  "--op",
                                  "put",
                                  "--path",
                                  path,
                                  "--from",
                                  upload(names[i], names[i]),
                                  exclusive ? "--exclusive" : "--if-match",
                                  exclusive ? NULL : match,
                                  NULL};
            pids[i] = guest_spawn(NULL, args, &fds[i]);
        }
        int winner = -1;
        for (int i = 0; i < N; i++) {
            struct answer a = answer_read(pids[i], fds[i], (uint64_t[2]){0, 0});
            won += a.last.kind == SG_WIRE_OK;
            winner = a.last.kind == SG_WIRE_OK ? i : winner;
            if (a.last.kind != SG_WIRE_OK)
                assert_error(&a, SG_WF_FILE, exclusive ? "EEXIST" : "ESTALE");
        }
        assert_int_equal(won, 1);
        assert_string_equal(file_text(plain), names[winner]);
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
        cmocka_unit_test(conditions_have_one_winner),
        cmocka_unit_test(stays_in_the_root),
    };
    return cmocka_run_group_tests(tests, harness_setup, teardown);
}
