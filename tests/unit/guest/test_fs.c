/* Where operations on files act, and what they say of files: C8, E10, P33, P35. */
#include "fs_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

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

static void make_link(const char *target, const char *name)
{
    assert_int_equal(symlink(target, below(name)), 0);
}

static void assert_same(const struct sg_wire_file *f, const struct stat *st)
{
    assert_int_equal(f->mode, st->st_mode & 07777);
    assert_int_equal(f->uid, st->st_uid);
    assert_int_equal(f->gid, st->st_gid);
    assert_int_equal(f->size, st->st_size);
    assert_true(f->mtime_ns == st->st_mtim.tv_sec * INT64_C(1000000000) + st->st_mtim.tv_nsec);
    assert_true(f->ctime_ns == st->st_ctim.tv_sec * INT64_C(1000000000) + st->st_ctim.tv_nsec);
    assert_true(f->ino == st->st_ino && f->dev == st->st_dev && f->nlink == st->st_nlink);
}

/* C8 */
static void says_what_a_file_is(void **state)
{
    (void)state;
    struct stat st;
    make_file("a file", "12345");
    make_link("a file", "to it");
    make_link("nowhere", "dangling");
    const struct fs_reply *r = fs("stat", "--path", below("a file"), NULL);
    fs_is_done(r, "");
    assert_int_equal(stat(below("a file"), &st), 0);
    assert_same(&r->lines[0].file, &st);
    assert_int_equal(r->lines[0].file.type, 'f');
    assert_string_equal(r->lines[0].name, "a file");
    r = fs("stat", "--path", below("to it"), NULL);
    assert_same(&r->lines[0].file, &st);
    assert_int_equal(r->lines[0].len, 0);
    r = fs("lstat", "--path", below("to it"), NULL);
    assert_int_equal(r->lines[0].file.type, 'l');
    assert_string_equal(r->lines[0].data, "a file");
    fs_fails(fs("stat", "--path", below("dangling"), NULL), "ENOENT");
    fs_is_done(fs("lstat", "--path", below("dangling"), NULL), "");
    fs_fails(fs("stat", "--path", below("a file/x"), NULL), "ENOTDIR");
    make_link("loop", "loop");
    fs_fails(fs("stat", "--path", below("loop"), NULL), "ELOOP");
    r = fs("stat", "--path", "/", NULL);
    assert_int_equal(r->lines[0].file.type, 'd');
    assert_int_equal(r->lines[0].name_len, 0);
    r = fs("stat", "--path", "/dev/null", NULL);
    assert_int_equal(r->lines[0].file.type, 'c');
    char longest[4097];
    memset(longest, 'x', 4096);
    longest[4096] = '\0';
    fs_fails(fs("stat", "--path", longest, NULL), "ENAMETOOLONG");
}

static void says_what_is_there(void **state)
{
    (void)state;
    char resolved[PATH_MAX];
    fs_is_done(fs("exists", "--path", below("to it"), NULL), "yes");
    fs_is_done(fs("exists", "--path", below("dangling"), NULL), "no");
    fs_is_done(fs("exists", "--path", below("a file/x"), NULL), "no");
    const struct fs_reply *r = fs("readlink", "--path", below("to it"), NULL);
    fs_is_done(r, "");
    assert_string_equal(r->lines[0].name, "a file");
    fs_fails(fs("readlink", "--path", below("a file"), NULL), "EINVAL");
    r = fs("realpath", "--path", below("to it"), NULL);
    fs_is_done(r, "");
    assert_non_null(realpath(below("a file"), resolved));
    assert_string_equal(r->lines[0].name, resolved);
    fs_fails(fs("realpath", "--path", below("dangling"), NULL), "ENOENT");
    fs_is_done(fs("access", "--path", below("a file"), "--mode", "r", NULL), "");
    assert_int_equal(chmod(below("a file"), 0644), 0);
    fs_fails(fs("access", "--path", below("a file"), "--mode", "rx", NULL), "EACCES");
    fs_fails(fs("access", "--path", below("dangling"), "--mode", "", NULL), "ENOENT");
}

static void names_are_any_bytes(void **state)
{
    (void)state;
    static const char *const names[] = {"\x01\x7f", "\n", " ",        "$(x)",     "'\"",
                                        "-rf",      "\\", "\xc3\xa9", "\xff\xfe", "%00"};
    enum { N = sizeof names / sizeof *names };
    make_dir("names");
    for (size_t i = 0; i < N; i++)
        file_write(path_in(below("names"), names[i]), "x", 1);
    const struct fs_reply *r = fs("list", "--path", below("names"), NULL);
    fs_is_done(r, "");
    assert_int_equal(r->n, N);
    for (size_t i = 1; i < N; i++)
        assert_true(strcmp((const char *)r->lines[i - 1].name, (const char *)r->lines[i].name) < 0);
    for (size_t i = 0; i < N; i++) {
        size_t k = 0;
        while (k < N && strcmp((const char *)r->lines[k].name, names[i]) != 0)
            k++;
        assert_true(k < N);
    }
    for (size_t i = 0; i < N; i++) {
        r = fs("read", "--path", path_in(below("names"), names[i]), NULL);
        assert_true(r->len == 1 && r->out[0] == 'x');
        fs_is_done(fs("remove", "--path", path_in(below("names"), names[i]), NULL), "");
        assert_int_equal(access(path_in(below("names"), names[i]), F_OK), -1);
    }
    assert_int_equal(rmdir(below("names")), 0);
}

static void relative_to_the_working_directory_or_the_root(void **state)
{
    (void)state;
    char before[PATH_MAX];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(scratch), 0);
    fs_is_done(fs("stat", "--path", "a file", NULL), "");
    fs_is_done(fs("stat", "--path", "a file", "--root", scratch, NULL), "");
    fs_is_done(fs("stat", "--path", "a file", "--root", ".", NULL), "");
    fs_is_done(fs("lstat", "--path", ".", "--root", ".", NULL), "");
    assert_int_equal(chdir("/"), 0);
    fs_fails(fs("stat", "--path", "a file", NULL), "ENOENT");
    fs_is_done(fs("stat", "--path", "a file", "--root", scratch, NULL), "");
    fs_is_done(fs("list", "--path", ".", "--root", scratch, NULL), "");
    fs_fails(fs("stat", "--path", below("a file") + 1, "--root", scratch, NULL), "ENOENT");
    fs_is_outside(fs("stat", "--path", "../scratch/a file", "--root", scratch, NULL));
    fs_is_outside(fs("mkdir", "--path", "../beside", "--parents", "--root", scratch, NULL));
    fs_is_done(fs("mkdir", "--path", "rel/deep", "--parents", "--root", scratch, NULL), "created");
    fs_is_done(fs("move", "--path", "rel/deep", "--to", "rel/moved", "--root", scratch, NULL), "");
    fs_is_done(fs("remove", "--path", "rel", "--recursive", "--root", scratch, NULL), "");
    fs_fails(fs("remove", "--path", ".", "--recursive", "--root", scratch, NULL), "EBUSY");
    assert_int_equal(chdir(before), 0);
    assert_int_equal(access(below("rel"), F_OK), -1);
    assert_int_equal(access(below("../beside"), F_OK), -1);
}

/* 10,000 entries in one call, and more of them in pages */
static void lists_in_pages(void **state)
{
    (void)state;
    enum { N = 10007 };
    make_dir("many");
    int dir = open(below("many"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char name[32];
    for (unsigned i = 0; i < N; i++) {
        snprintf(name, sizeof name, "%u", i * 7919 % N);
        int fd = openat(dir, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        close(fd);
    }
    close(dir);
    const struct fs_reply *r = fs("list", "--path", below("many"), NULL);
    assert_int_equal(r->last.kind, SG_WIRE_MORE);
    assert_int_equal(r->n, 10000);
    size_t all = 0;
    char last[32] = "";
    for (bool more = true; more;) {
        r = fs("list", "--path", below("many"), "--limit", "999", all ? "--after" : NULL, last, NULL);
        more = r->last.kind == SG_WIRE_MORE;
        assert_true(r->n == 999 || !more);
        for (size_t i = 0; i < r->n; i++) {
            assert_true(strcmp((const char *)r->lines[i].name, last) > 0);
            snprintf(last, sizeof last, "%s", (const char *)r->lines[i].name);
        }
        all += r->n;
    }
    assert_int_equal(all, N);
    fs_is_done(fs("list", "--path", below("many"), "--after", "9999", NULL), "");
    fs_is_done(fs("remove", "--path", below("many"), "--recursive", NULL), "");
    fs_fails(fs("list", "--path", below("many"), NULL), "ENOENT");
    fs_fails(fs("list", "--path", below("a file"), NULL), "ENOTDIR");
}

static void misuse_is_refused(void **state)
{
    (void)state;
    static const char *const bad[][8] = {
        {"fs", NULL},
        {"fs", "--op", NULL},
        {"fs", "--op", "fly", NULL},
        {"fs", "--op", "stat", NULL},
        {"fs", "--op", "stat", "--path", NULL},
        {"fs", "--op", "stat", "--path", "", NULL},
        {"fs", "--op", "stat", "--path", "L3RtcA", NULL},
        {"fs", "--op", "stat", "--path", "AA==", NULL}, /* a NUL */
        {"fs", "--op", "stat", "--path", "Lw==", "--path", "Lw==", NULL},
        {"fs", "--op", "stat", "--path", "Lw==", "--to", "Lw==", NULL},
        {"fs", "--op", "move", "--path", "Lw==", NULL},
        {"fs", "--op", "chmod", "--path", "Lw==", NULL},
        {"fs", "--op", "chmod", "--path", "Lw==", "--mode", "17777", NULL},
        {"fs", "--op", "access", "--path", "Lw==", "--mode", "rr", NULL},
        {"fs", "--op", "list", "--path", "Lw==", "--limit", "10001", NULL},
        {"fs", "--op", "stat", "--path", "Lw==", "extra", NULL},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int fd;
        pid_t pid = guest_spawn(NULL, bad[i], &fd);
        struct answer a = answer_read(pid, fd, (uint64_t[2]){0, 0});
        assert_int_equal(a.rc, 64);
        assert_int_equal(a.last.fail, SG_WF_USAGE);
    }
}

/* ---- P33: nothing leads out of the root ---- */

static char *in(const char *name) /* the root */
{
    return path_in(below("in"), name);
}

static void build_in_and_out(void)
{
    make_dir("in");
    make_dir("out");
    make_dir("in/sub");
    make_file("out/secret", "secret");
    make_file("in/sub/ours", "ours");
    make_link("../out", "in/away");
    make_link("../out/secret", "in/leak");
    make_link("sub/ours", "in/inner");
    make_link("..", "in/sub/up");
    assert_int_equal(symlink(below("out"), below("in/absolute")), 0);
    assert_int_equal(symlink("/proc/self/root", below("in/magic")), 0);
}

static const char *keep(const char *path) /* path_in's buffers come around */
{
    static char kept[16][PATH_MAX];
    static size_t n;
    assert_true(n < sizeof kept / sizeof *kept);
    snprintf(kept[n], PATH_MAX, "%s", path);
    return kept[n++];
}

#define IN(op, ...) fs(op, "--root", below("in"), "--path", __VA_ARGS__, NULL)

static void stays_in_the_root(void **state)
{
    (void)state;
    build_in_and_out();
    fs_is_done(IN("stat", in("sub/ours")), "");
    fs_is_done(IN("stat", in("sub/../sub/./ours")), "");
    fs_is_done(IN("stat", in("inner")), "");
    fs_is_done(IN("stat", in("sub/up/inner")), "");
    fs_is_done(IN("stat", below("in")), "");
    fs_is_done(IN("stat", below("in//")), "");
    fs_is_done(IN("lstat", in("leak")), "");
    fs_is_done(IN("readlink", in("leak")), "");
    fs_is_done(IN("list", below("in")), "");
    const char *const out[] = {keep(in("leak")),
                               keep(in("away/secret")),
                               keep(in("absolute/secret")),
                               keep(in("../out/secret")),
                               keep(in("sub/../../out/secret")),
                               keep(in("magic/etc/passwd")),
                               keep(below("out/secret")),
                               keep(below("in/..")),
                               "/etc/passwd"};
    for (size_t i = 0; i < sizeof out / sizeof *out; i++) {
        const struct fs_reply *r = IN("stat", out[i]);
        if (r->last.kind == SG_WIRE_ERROR && strcmp(r->last.errno_name, "ELOOP") == 0)
            continue; /* what a magic link is called */
        fs_is_outside(r);
        fs_is_outside(IN("exists", out[i]));
        fs_is_outside(IN("realpath", out[i]));
        fs_is_outside(IN("access", out[i], "--mode", "r"));
        fs_is_outside(IN("read", out[i]));
        fs_is_outside(IN("lines", out[i]));
        fs_is_outside(IN("grep", out[i], "--pattern", "secret"));
        fs_is_outside(IN("chmod", out[i], "--mode", "777"));
        fs_is_outside(IN("chown", out[i], "--uid", "1"));
        fs_is_outside(IN("truncate", out[i], "--size", "0"));
        fs_is_outside(IN("utimes", out[i]));
    }
    /* A name like the root's is not below it. */
    make_dir("in2");
    fs_is_outside(IN("list", below("in2")));
    const char *const dirs[] = {keep(in("away")), keep(in("absolute")), keep(in("..")), keep(below("out"))};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        char *name = path_in(dirs[i], "x"), *secret = path_in(dirs[i], "secret");
        fs_is_outside(IN("list", dirs[i]));
        fs_is_outside(IN("glob", dirs[i], "--pattern", "*"));
        fs_is_outside(IN("mktemp", dirs[i]));
        fs_is_outside(IN("mkdir", name));
        fs_is_outside(IN("mkdir", path_in(name, "y"), "--parents"));
        fs_is_outside(IN("symlink", name, "--to", "x"));
        fs_is_outside(IN("remove", secret, "--recursive", "--force"));
        fs_is_outside(IN("move", secret, "--to", in("got")));
        fs_is_outside(IN("move", in("sub/ours"), "--to", name));
        fs_is_outside(IN("copy", secret, "--to", in("got")));
        fs_is_outside(IN("copy", in("sub/ours"), "--to", name));
        fs_is_outside(IN("link", secret, "--to", in("got")));
        fs_is_outside(IN("link", in("sub/ours"), "--to", name));
    }
    assert_string_equal(file_text(below("out/secret")), "secret");
    assert_int_equal(access(below("out/x"), F_OK), -1);
    assert_int_equal(access(in("got"), F_OK), -1);
    fs_fails(IN("remove", below("in"), "--recursive"), "EBUSY");
    fs_fails(IN("move", below("in"), "--to", in("sub/x")), "EBUSY");
    fs_fails(IN("remove", in("sub/up/."), "--recursive"), "EINVAL");
    /* Links are acted on themselves. */
    fs_is_done(IN("copy", in("leak"), "--to", in("copied")), "");
    assert_int_equal(unlink(in("copied")), 0);
    fs_is_done(IN("move", in("away"), "--to", in("moved")), "");
    fs_is_done(IN("remove", in("moved"), "--recursive"), "");
    fs_is_done(IN("chmod", below("in"), "--mode", "0755", "--recursive"), "");
    assert_string_equal(file_text(below("out/secret")), "secret");
    fs_is_done(IN("mkdir", in("a/b/c"), "--parents"), "created");
}

static atomic_bool racing;

/* Without rest, "in/race" is a directory of ours, or a link to the one outside. */
struct places {
    char *race, *link;
};

static void *swap(void *arg)
{
    const struct places *p = arg;
    while (atomic_load(&racing)) {
        /* In one step: were it missing for a moment, mkdir --parents would put a third one there for good. */
        (void)renameat2(AT_FDCWD, p->race, AT_FDCWD, p->link, RENAME_EXCHANGE);
        sched_yield();
    }
    return NULL;
}

static void races_do_not_lead_out(void **state)
{
    (void)state;
    pthread_t t;
    struct stat before, after;
    make_dir("in/race");
    make_file("in/race/secret", "ours");
    make_link("../out", "in/racelink");
    assert_int_equal(stat(below("out/secret"), &before), 0);
    struct places places = {strdup(in("race")), strdup(in("racelink"))};
    atomic_store(&racing, true);
    assert_int_equal(pthread_create(&t, NULL, swap, &places), 0);
    unsigned refused = 0, done = 0;
    for (int i = 0; i < 20 || (i < 300 && (!refused || !done)); i++) {
        const struct fs_reply *r = IN("read", in("race/secret"));
        assert_true(r->len == 0 || (r->len == 4 && memcmp(r->out, "ours", 4) == 0));
        refused += r->last.kind == SG_WIRE_ERROR;
        done += r->last.kind == SG_WIRE_OK;
        (void)IN("chmod", in("race/secret"), "--mode", "600");
        (void)IN("truncate", in("race/secret"), "--size", "4");
        (void)IN("chmod", in("race"), "--mode", "700", "--recursive");
        (void)IN("mkdir", in("race/made/deep"), "--parents");
        (void)IN("copy", in("sub/ours"), "--to", in("race/copied"));
        r = IN("grep", in("."), "--pattern", "secret");
        assert_int_equal(r->n, 0);
        if (i % 10 == 9)
            (void)IN("remove", in("race/made"), "--recursive", "--force");
    }
    atomic_store(&racing, false);
    assert_int_equal(pthread_join(t, NULL), 0);
    free(places.race);
    free(places.link);
    assert_true(refused && done);
    assert_int_equal(stat(below("out/secret"), &after), 0);
    assert_int_equal(after.st_mode, before.st_mode);
    assert_true(after.st_ctim.tv_sec == before.st_ctim.tv_sec &&
                after.st_ctim.tv_nsec == before.st_ctim.tv_nsec);
    assert_string_equal(file_text(below("out/secret")), "secret");
    const struct fs_reply *r = fs("list", "--path", below("out"), NULL);
    assert_int_equal(r->n, 1);
}

static int teardown(void **state)
{
    fs_calls_free();
    return harness_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_what_a_file_is),
        cmocka_unit_test(says_what_is_there),
        cmocka_unit_test(names_are_any_bytes),
        cmocka_unit_test(relative_to_the_working_directory_or_the_root),
        cmocka_unit_test(lists_in_pages),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(stays_in_the_root),
        cmocka_unit_test(races_do_not_lead_out),
    };
    return cmocka_run_group_tests(tests, harness_setup, teardown);
}
