/* Parts of an upload become one file, whatever is cut, repeated or killed: A16, A17, P29, U8. */
#include "fs_calls.h"

#include "base/core/b64.h"
#include "guest/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char *ours(const char *name)
{
    return path_in(root, name);
}

static void part(const char *name, const char *text)
{
    (void)mkdir(root, 0700);
    file_write(ours(name), text, strlen(text));
}

static bool is_there(const char *name)
{
    return access(ours(name), F_OK) == 0;
}

static void is_accepted(const struct fs_reply *r, const char *size)
{
    char text[64];
    snprintf(text, sizeof text, "accepted %s", size);
    fs_says(r, SG_WF_UPLOAD_OFFSET);
    assert_string_equal(r->last.text, text);
}

#define JOIN(id, nonce, offset) fs("join", "--upload", id, "--nonce", nonce, "--offset", offset, NULL)

/* What a cut attempt left right behind the parts that arrived is none of them. */
static void joins_no_further(void **state)
{
    (void)state;
    part(".up-pe.n.0", "one,");
    part(".up-pe.n.4", "two,");
    part(".up-pe.n.8", "thr"); /* half of one */
    fs_is_done(fs("join", "--upload", "pe", "--nonce", "n", "--offset", "0", "--size", "8", NULL), "8");
    assert_string_equal(file_text(ours(".up-pe")), "one,two,");
    assert_true(is_there(".up-pe.n.8"));
    fs_is_done(fs("join", "--upload", "pe", "--nonce", "n", "--offset", "0", "--size", "8", NULL), "8");
    part(".up-pe.m.8", "three");
    fs_is_done(fs("join", "--upload", "pe", "--nonce", "m", "--offset", "8", "--size", "13", NULL), "13");
    assert_string_equal(file_text(ours(".up-pe")), "one,two,three");
    fs_is_done(fs("put", "--path", path_in(scratch, "pe"), "--from", ".up-pe", "--size", "13", NULL),
               "created");
    fs_is_done(fs("upload-remove", "--upload", "pe", NULL), "");
    assert_false(is_there(".up-pe.n.8"));
    part(".up-pz.n.0", ""); /* an empty one is one part, too */
    fs_is_done(fs("join", "--upload", "pz", "--nonce", "n", "--offset", "0", "--size", "0", NULL), "0");
    assert_true(is_there(".up-pz"));
    is_accepted(fs("join", "--upload", "pz", "--nonce", "n", "--offset", "0", "--size", "0", NULL), "0");
}

static void joins_in_order(void **state)
{
    (void)state;
    (void)mkdir(root, 0700);
    is_accepted(JOIN("p1", "n", "0"), "0");
    assert_false(is_there(".up-p1"));
    part(".up-p1.n.0", "one,");
    fs_is_done(JOIN("p1", "n", "0"), "4");
    assert_string_equal(file_text(ours(".up-p1")), "one,");
    assert_false(is_there(".up-p1.n.0"));
    fs_is_done(JOIN("p1", "n", "0"), "4"); /* the answer was lost */
    is_accepted(JOIN("p1", "n", "5"), "4");
    is_accepted(JOIN("p1", "n", "4"), "4"); /* nothing is there */
    part(".up-p1.n.8", "three,");           /* what was sent later is here first */
    is_accepted(JOIN("p1", "n", "4"), "4");
    fs_is_done(JOIN("p1", "n", "0"), "4");
    part(".up-p1.n.4", "two,");
    part(".up-p1.n.99", "not yet");
    fs_is_done(JOIN("p1", "n", "4"), "14");
    assert_string_equal(file_text(ours(".up-p1")), "one,two,three,");
    fs_is_done(JOIN("p1", "n", "4"), "14");
    fs_is_done(JOIN("p1", "n", "0"), "14");
    assert_true(is_there(".up-p1.n.99"));
    /* Another one may go on at the end, and nowhere else. */
    part(".up-p1.m.4", "TWO,");
    is_accepted(JOIN("p1", "m", "4"), "14");
    part(".up-p1.m.14", "four");
    fs_is_done(JOIN("p1", "m", "14"), "18");
    is_accepted(JOIN("p1", "n", "4"), "18"); /* and then it is that one's */
    assert_string_equal(file_text(ours(".up-p1")), "one,two,three,four");
    /* Twice there: once in it. */
    part(".up-p1.m.14", "four");
    fs_is_done(JOIN("p1", "m", "14"), "18");
    assert_false(is_there(".up-p1.m.14"));
    /* It takes its place, and nothing of it is left but what was never joined; that goes with its removal. */
    char *path = path_in(scratch, "joined");
    fs_is_done(fs("put", "--path", path, "--from", ".up-p1", "--size", "18", NULL), "created");
    assert_string_equal(file_text(path_in(scratch, "joined")), "one,two,three,four");
    assert_false(is_there(".up-p1") || is_there(".up-p1.by"));
    is_accepted(JOIN("p1", "m", "18"), "0");
    assert_string_equal(file_text(path_in(scratch, "joined")), "one,two,three,four");
    part(".up-p11.n.0", "another's");
    fs_is_done(fs("upload-remove", "--upload", "p1", NULL), "");
    assert_false(is_there(".up-p1.n.99") || is_there(".up-p1.m.4"));
    assert_true(is_there(".up-p11.n.0"));
    fs_says(fs("upload-remove", "--upload", "p1", NULL), SG_WF_NO_UPLOAD);
    /* No further than what is known to be there: behind it may lie half a part. */
    part(".up-p5.n.0", "one,");
    part(".up-p5.n.4", "tw");
    fs_is_done(fs("join", "--upload", "p5", "--nonce", "n", "--offset", "0", "--size", "4", NULL), "4");
    assert_true(is_there(".up-p5.n.4"));
    fs_is_done(fs("upload-remove", "--upload", "p5", NULL), "");
    /* Nothing at all is a part, too. */
    part(".up-p2.n.0", "");
    fs_is_done(JOIN("p2", "n", "0"), "0");
    fs_is_done(fs("put", "--path", path_in(scratch, "empty"), "--from", ".up-p2", NULL), "created");
    static const char *const bad[] = {"",         "a.b", "../x", "a/b", "0123456789012345678901234567890123",
                                      "\xc3\xa4", "a b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fs_says(JOIN(bad[i], "n", "0"), SG_WF_USAGE);
        fs_says(JOIN("p1", bad[i], "0"), SG_WF_USAGE);
    }
}

/* What we were cut in is joined from where it was cut. */
static void goes_on_in_a_part(void **state)
{
    (void)state;
    part(".up-p3.n.0", "01234");
    fs_is_done(JOIN("p3", "n", "0"), "5");
    part(".up-p3.n.5", "56789");
    part(".up-p3.by", "n 0");
    part(".up-p3", "0123456"); /* killed here */
    part(".up-p3.n.10", "ab");
    fs_is_done(JOIN("p3", "n", "5"), "12");
    assert_string_equal(file_text(ours(".up-p3")), "0123456789ab");
    assert_false(is_there(".up-p3.n.5") || is_there(".up-p3.n.10"));
    /* Somebody else sees what is there as it is. */
    part(".up-p3", "0123456789abc");
    part(".up-p3.x.13", "d");
    fs_is_done(JOIN("p3", "x", "13"), "14");
    fs_is_done(fs("upload-remove", "--upload", "p3", NULL), "");
}

static void nonsense_below_the_root(void **state)
{
    (void)state;
    char *mine = path_in(scratch, "mine");
    file_write(mine, "mine", 4);
    (void)mkdir(root, 0700);
    assert_int_equal(symlink(path_in(scratch, "mine"), ours(".up-p4.n.0")), 0);
    assert_int_equal(JOIN("p4", "n", "0")->last.kind, SG_WIRE_ERROR);
    assert_int_equal(unlink(ours(".up-p4.n.0")), 0);
    assert_int_equal(mkfifo(ours(".up-p4.n.0"), 0600), 0);
    assert_int_equal(JOIN("p4", "n", "0")->last.kind, SG_WIRE_ERROR);
    assert_int_equal(unlink(ours(".up-p4.n.0")), 0);
    part(".up-p4.n.0", "x");
    assert_int_equal(symlink(path_in(scratch, "mine"), ours(".up-p4")), 0);
    assert_int_equal(JOIN("p4", "n", "0")->last.kind, SG_WIRE_ERROR);
    assert_int_equal(unlink(ours(".up-p4")), 0);
    assert_int_equal(mkfifo(ours(".up-p4"), 0600), 0);
    assert_int_equal(JOIN("p4", "n", "0")->last.kind, SG_WIRE_ERROR);
    assert_int_equal(unlink(ours(".up-p4")), 0);
    assert_int_equal(symlink(path_in(scratch, "mine"), ours(".up-p4.by")), 0);
    fs_is_done(JOIN("p4", "n", "0"), "1");
    assert_string_equal(file_text(path_in(scratch, "mine")), "mine");
    part(".up-p4.n.01", "y");
    part(".up-p4.n.1x", "y");
    part(".up-p4.n.", "y");
    is_accepted(JOIN("p4", "n", "1"), "1");
    /* A program that holds the lock keeps us for a while only. */
    int fd = open(ours(".up-p4"), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && flock(fd, LOCK_EX) == 0);
    assert_int_equal(setenv("SANDGATE_GUEST_LIFE_MS", "400", 1), 0);
    fs_fails(JOIN("p4", "n", "1"), "ETIMEDOUT");
    fs_fails(fs("put", "--path", path_in(scratch, "locked"), "--from", ".up-p4", NULL), "ETIMEDOUT");
    assert_int_equal(unsetenv("SANDGATE_GUEST_LIFE_MS"), 0);
    close(fd);
    (void)fs("upload-remove", "--upload", "p4", NULL);
}

enum { PARTS = 12, PART = 700000, ROUNDS = 12 };

static unsigned char whole[PARTS * PART];

static void make_parts(const char *id, unsigned from)
{
    char name[64];
    for (unsigned i = from; i < PARTS; i++) {
        snprintf(name, sizeof name, ".up-%s.n.%u", id, i * PART);
        file_write(ours(name), whole + (size_t)i * PART, PART);
    }
}

static bool is_beginning(const char *name, size_t *len)
{
    static unsigned char bytes[PARTS * PART];
    *len = 0;
    FILE *f = fopen(ours(name), "re");
    if (!f)
        return true;
    *len = fread(bytes, 1, sizeof bytes, f);
    bool ok = fgetc(f) == EOF;
    (void)fclose(f);
    return ok && memcmp(bytes, whole, *len) == 0;
}

/* P29: kill -9 anywhere. */
static void killed_anywhere(void **state)
{
    (void)state;
    (void)mkdir(root, 0700);
    for (size_t i = 0; i < sizeof whole; i++)
        whole[i] = (unsigned char)(i * 2654435761U >> 13);
    unsigned cut = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        size_t len;
        make_parts("pk", 0);
        for (unsigned tries = 0;; tries++) {
            const char *args[] = {"fs",      "--op", "join",     "--upload", "pk",
                                  "--nonce", "n",    "--offset", "0",        NULL};
            int fd, status;
            pid_t pid = guest_spawn(NULL, args, &fd);
            /* Later each time, so that it comes to an end however slow this is. */
            struct timespec t = {.tv_nsec = (long)(round * 300000 + tries * 1500000) % 1000000000};
            nanosleep(&t, NULL);
            kill(pid, SIGKILL);
            assert_int_equal(waitpid(pid, &status, 0), pid);
            close(fd);
            assert_true(is_beginning(".up-pk", &len));
            if (WIFEXITED(status))
                break;
            cut += len > 0 && len < sizeof whole;
        }
        char size[24];
        snprintf(size, sizeof size, "%zu", sizeof whole);
        fs_is_done(JOIN("pk", "n", "0"), size);
        assert_true(is_beginning(".up-pk", &len) && len == sizeof whole);
        fs_is_done(fs("upload-remove", "--upload", "pk", NULL), "");
    }
    print_message("# cut in the middle %u times\n", cut);
}

/* Many at once, of two gateways, do it once. */
static void many_at_once(void **state)
{
    (void)state;
    enum { N = 16 };
    size_t len;
    make_parts("pm", 0);
    pid_t pids[N];
    int fds[N];
    for (int i = 0; i < N; i++) {
        const char *args[] = {"fs", "--op", "join", "--upload", "pm", "--nonce", "n", "--offset", "0", NULL};
        pids[i] = guest_spawn(NULL, args, &fds[i]);
    }
    for (int i = 0; i < N; i++) {
        struct answer a = answer_read(pids[i], fds[i], (uint64_t[2]){0, 0});
        assert_int_equal(a.last.kind, SG_WIRE_OK);
        assert_int_equal(strtoull(a.last.text, NULL, 10), sizeof whole);
        answer_free(&a);
    }
    assert_true(is_beginning(".up-pm", &len) && len == sizeof whole);
    fs_is_done(fs("upload-remove", "--upload", "pm", NULL), "");
}

/* A full disk costs nothing of what is there, and nothing beside it stays. */
static void full_disk(void **state)
{
    (void)state;
    if (!small_root("size=1400k,mode=0700"))
        skip();
    static char bytes[400 * 1024];
    memset(bytes, 'a', sizeof bytes);
    file_write(ours(".up-pf.n.0"), bytes, sizeof bytes);
    fs_is_done(JOIN("pf", "n", "0"), "409600");
    file_write(ours(".up-pf.n.409600"), bytes, sizeof bytes);
    file_write(ours("filler"), bytes, sizeof bytes);
    const struct fs_reply *r = JOIN("pf", "n", "409600");
    fs_says(r, SG_WF_NO_SPACE);
    assert_string_equal(r->last.errno_name, "ENOSPC");
    struct stat st;
    assert_int_equal(stat(ours(".up-pf"), &st), 0);
    assert_int_equal(st.st_size, 409600);
    assert_true(is_there(".up-pf.n.409600"));
    assert_int_equal(unlink(ours("filler")), 0);
    fs_is_done(JOIN("pf", "n", "409600"), "819200");
    /* A put to a disk without room, from another: the old file stays, with its mode. */
    char *path = path_in(scratch, "full");
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(mount("none", path, "tmpfs", 0, "size=400k"), 0);
    file_write(path_in(scratch, "full/old"), "old", 3);
    assert_int_equal(chmod(path_in(scratch, "full/old"), 0751), 0);
    for (int i = 0; i < 3; i++) {
        part(".up-pg.n.0", "");
        file_write(ours(".up-pg"), bytes, sizeof bytes);
        assert_int_equal(truncate(ours(".up-pg"), 0), 0);
        int fd = open(ours(".up-pg"), O_WRONLY | O_CLOEXEC);
        assert_true(fd >= 0 && write(fd, bytes, 399 * 1024) > 0 && ftruncate(fd, 3 * 1024 * 1024) == 0);
        close(fd);
        static const char *const paths[] = {"full/old", "full/new", "full/a/b/new"};
        r = fs("put", "--path", path_in(scratch, paths[i]), "--from", ".up-pg", i == 2 ? "--parents" : NULL,
               NULL);
        fs_says(r, SG_WF_NO_SPACE);
        assert_false(is_there(".up-pg"));
    }
    assert_int_equal(stat(path_in(scratch, "full/old"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0751);
    assert_string_equal(file_text(path_in(scratch, "full/old")), "old");
    r = fs("list", "--path", path_in(scratch, "full"), NULL);
    assert_string_equal(fs_names_of(r), "old ");
    /* And when there is room, over the border of file systems. */
    part(".up-ph", "fits");
    r = fs("put", "--path", path_in(scratch, "full/old"), "--from", ".up-ph", NULL);
    fs_is_done(r, "replaced");
    assert_string_equal(file_text(path_in(scratch, "full/old")), "fits");
    assert_int_equal(stat(path_in(scratch, "full/old"), &st), 0);
    assert_true((st.st_mode & 07777) == 0751 && r->lines[0].file.ino == st.st_ino);
    part(".up-ph", "more");
    fs_fails(fs("put", "--path", path_in(scratch, "full/old"), "--from", ".up-ph", "--exclusive", NULL),
             "EEXIST");
    part(".up-ph", "more");
    fs_is_done(fs("put", "--path", path_in(scratch, "full/second"), "--from", ".up-ph", "--exclusive", NULL),
               "created");
    assert_string_equal(fs_names_of(fs("list", "--path", path_in(scratch, "full"), NULL)), "old second ");
    assert_int_equal(umount2(path_in(scratch, "full"), MNT_DETACH), 0);
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
        cmocka_unit_test(joins_in_order),    cmocka_unit_test(joins_no_further),
        cmocka_unit_test(goes_on_in_a_part), cmocka_unit_test(nonsense_below_the_root),
        cmocka_unit_test(killed_anywhere),   cmocka_unit_test(many_at_once),
        cmocka_unit_test(full_disk),
    };
    return cmocka_run_group_tests(tests, harness_setup, teardown);
}
