/* Resumable uploads: known to the sandbox until they have taken their place, which they do once: A17, E11, P29, P33. */
#include "fs_calls.h"

#include "base/core/b64.h"
#include "base/core/file_tag.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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

static char *below(const char *name)
{
    return path_in(scratch, name);
}

static void part(const char *name, const char *text)
{
    file_write(ours(name), text, strlen(text));
}

static bool is_there(const char *name)
{
    return access(ours(name), F_OK) == 0;
}

#define OPEN(id, ...)   fs("upload-open", "--upload", id, __VA_ARGS__)
#define STATE(id)       fs("upload-state", "--upload", id, NULL)
#define FINISH(id, ...) fs("upload-finish", "--upload", id, "--size", __VA_ARGS__)
#define REMOVE(id)      fs("upload-remove", "--upload", id, NULL)

static void join(const char *id, const char *offset, const char *text, const char *size)
{
    char name[64];
    snprintf(name, sizeof name, ".up-%s.n.%s", id, offset);
    part(name, text);
    fs_is_done(fs("join", "--upload", id, "--nonce", "n", "--offset", offset, NULL), size);
}

static void from_open_to_done(void **state)
{
    (void)state;
    fs_says(STATE("r1"), SG_WF_NO_UPLOAD); /* there is not even a root */
    assert_int_equal(mkdir(root, 0700), 0);
    fs_says(STATE("r1"), SG_WF_NO_UPLOAD);
    fs_says(FINISH("r1", "0", NULL), SG_WF_NO_UPLOAD);
    fs_says(REMOVE("r1"), SG_WF_NO_UPLOAD);
    part(".up-r1.n.0", "stray");
    fs_says(fs("join", "--upload", "r1", "--nonce", "n", "--offset", "0", NULL), SG_WF_NO_UPLOAD);
    assert_int_equal(unlink(ours(".up-r1.n.0")), 0);

    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", below("a/\xff file"));
    fs_is_done(OPEN("r1", "--path", path, "--parents", "--mode", "640", "--length", "10", NULL), "");
    fs_is_done(OPEN("r1", "--path", path, "--parents", "--mode", "640", "--length", "10", NULL),
               ""); /* again */
    fs_fails(OPEN("r1", "--path", path, "--parents", "--mode", "641", "--length", "10", NULL), "EEXIST");
    assert_int_equal(access(below("a"), F_OK), -1);
    fs_is_done(STATE("r1"), "0:10:open");
    join("r1", "0", "01234", "5");
    fs_is_done(STATE("r1"), "5:10:open");
    fs_is_done(OPEN("r1", "--path", path, "--parents", "--mode", "640", "--length", "10", NULL), "");
    fs_is_done(STATE("r1"), "5:10:open"); /* asking again takes nothing away */
    const struct fs_reply *r = FINISH("r1", "10", NULL);
    fs_says(r, SG_WF_UPLOAD_OFFSET);
    assert_string_equal(r->last.text, "accepted 5");
    fs_says(FINISH("r1", "5", NULL), SG_WF_UPLOAD_OFFSET); /* it was to be 10 */
    join("r1", "5", "56789", "10");
    r = FINISH("r1", "10", NULL);
    fs_is_done(r, "created");
    struct sg_wire_file told = r->lines[0].file;
    assert_string_equal(file_text(path), "0123456789");
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_true((st.st_mode & 07777) == 0640 && told.ino == st.st_ino && told.size == 10);
    assert_false(is_there(".up-r1") || is_there(".up-r1.by"));
    /* Once: the same is told again, whatever is there by now. */
    fs_is_done(STATE("r1"), "10:10:done");
    file_write(path, "another", 7);
    r = FINISH("r1", "10", NULL);
    fs_is_done(r, "created");
    assert_memory_equal(&r->lines[0].file, &told, sizeof told);
    assert_string_equal(file_text(path), "another");
    part(".up-r1.n.10", "late");
    fs_says(fs("join", "--upload", "r1", "--nonce", "n", "--offset", "10", NULL), SG_WF_NO_UPLOAD);
    fs_is_done(REMOVE("r1"), "");
    assert_false(is_there(".up-r1.n.10") || is_there(".um-r1"));
    fs_says(REMOVE("r1"), SG_WF_NO_UPLOAD);

    /* Nothing at all, relative, of no announced length. */
    char before[PATH_MAX];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(scratch), 0);
    fs_is_done(OPEN("r2", "--path", "empty", NULL), "");
    assert_int_equal(chdir(before), 0);
    fs_is_done(STATE("r2"), "0:-:open");
    fs_is_done(FINISH("r2", "0", NULL), "created");
    assert_string_equal(file_text(below("empty")), "");
    fs_is_done(STATE("r2"), "0:-:done");
    /* A plain upload is none of these. */
    part(".up-p1", "x");
    fs_says(STATE("p1"), SG_WF_NO_UPLOAD);
    fs_is_done(REMOVE("p1"), "");
}

/* What is being joined is told when it is. */
static void waits_for_a_join(void **state)
{
    (void)state;
    (void)mkdir(root, 0700);
    fs_is_done(OPEN("rw", "--path", below("waits"), NULL), "");
    join("rw", "0", "01234", "5");
    int joined = open(ours(".up-rw"), O_WRONLY | O_APPEND | O_CLOEXEC), fd;
    assert_true(joined >= 0 && flock(joined, LOCK_EX) == 0);
    const char *args[] = {"fs", "--op", "upload-state", "--upload", "rw", NULL};
    pid_t pid = guest_spawn(NULL, args, &fd);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 300), 0);
    assert_int_equal(write(joined, "567", 3), 3);
    close(joined);
    struct answer a = answer_read(pid, fd, (uint64_t[2]){0, 0});
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    assert_string_equal(a.last.text, "8:-:open");
    answer_free(&a);
    fs_is_done(REMOVE("rw"), "");
}

static void conditions(void **state)
{
    (void)state;
    (void)mkdir(root, 0700);
    file_write(below("there"), "old", 3);
    fs_fails(OPEN("r3", "--path", below("there"), "--exclusive", NULL), "EEXIST");
    fs_says(OPEN("r3", "--path", below("not there"), "--if-match", "*", NULL), SG_WF_STALE);
    fs_fails(OPEN("r3", "--path", below("no/such"), NULL), "ENOENT");
    fs_fails(OPEN("r3", "--path", scratch, NULL), "EISDIR");
    assert_false(is_there(".um-r3"));
    /* They hold when it ends, not when it began. */
    const struct fs_reply *r = fs("stat", "--path", below("there"), NULL);
    char tag[SG_FILE_TAG_LEN + 1];
    sg_file_tag(&r->lines[0].file, tag);
    fs_is_done(OPEN("r3", "--path", below("there"), "--if-match", tag, NULL), "");
    fs_is_done(OPEN("r4", "--path", below("there"), "--unless", "0123456789abcdefghijkl", NULL), "");
    fs_is_done(OPEN("r5", "--path", below("r5"), "--exclusive", "--digest", "sha-256:00", NULL), "");
    join("r3", "0", "three", "5");
    join("r4", "0", "four", "4");
    join("r5", "0", "five", "4");
    fs_is_done(FINISH("r4", "4", NULL), "replaced");
    fs_says(FINISH("r3", "5", NULL), SG_WF_STALE);
    assert_string_equal(file_text(below("there")), "four");
    fs_is_done(STATE("r3"), "5:-:open"); /* it can be removed, or asked again */
    fs_is_done(REMOVE("r3"), "");
    assert_false(is_there(".up-r3"));
    fs_says(FINISH("r5", "4", NULL), SG_WF_DIGEST);
    static const char right[] = "sha-256:222b0bd51fcef7e65c2e62db2ed65457013bab56be6fafeb19ee11d453153c80";
    file_write(below("r5"), "in the way", 10);
    fs_fails(FINISH("r5", "4", "--digest", right, NULL), "EEXIST");
    assert_int_equal(unlink(below("r5")), 0);
    fs_is_done(FINISH("r5", "4", "--digest", right, NULL), "created");
}

/* P33: who is confined sees its own, and writes below its root. */
static void roots(void **state)
{
    (void)state;
    (void)mkdir(root, 0700);
    assert_int_equal(mkdir(below("in"), 0755), 0);
    assert_int_equal(mkdir(below("other"), 0755), 0);
    fs_is_done(OPEN("r6", "--path", "file", "--root", below("in"), NULL), "");
    fs_is_done(OPEN("r7", "--path", below("outside"), NULL), "");
    fs_is_outside(OPEN("r8", "--path", "../outside", "--root", below("in"), NULL));
    join("r6", "0", "six", "3");
    join("r7", "0", "seven", "5");
#define AS(op, id, dir, ...) fs(op, "--upload", id, "--root", below(dir), __VA_ARGS__)
    static const char *const foreign[][2] = {{"r6", "other"}, {"r7", "in"}, {"r7", "other"}};
    for (size_t i = 0; i < 3; i++) {
        const char *id = foreign[i][0], *dir = foreign[i][1];
        fs_says(AS("upload-state", id, dir, NULL), SG_WF_NO_UPLOAD);
        fs_says(AS("upload-finish", id, dir, "--size", "3", NULL), SG_WF_NO_UPLOAD);
        fs_says(AS("upload-remove", id, dir, NULL), SG_WF_NO_UPLOAD);
        fs_says(AS("join", id, dir, "--nonce", "n", "--offset", "3", NULL), SG_WF_NO_UPLOAD);
    }
    fs_is_done(AS("upload-state", "r6", "in", NULL), "3:-:open");
    /* What a program makes of the place meanwhile does not lead out. */
    assert_int_equal(symlink("../outside", below("in/file")), 0);
    fs_is_outside(AS("upload-finish", "r6", "in", "--size", "3", NULL));
    fs_is_outside(FINISH("r6", "3", NULL)); /* who is not confined keeps to it, too */
    assert_int_equal(access(below("outside"), F_OK), -1);
    assert_int_equal(unlink(below("in/file")), 0);
    fs_is_done(AS("upload-finish", "r6", "in", "--size", "3", NULL), "created");
    assert_string_equal(file_text(below("in/file")), "six");
    fs_is_done(AS("upload-remove", "r6", "in", NULL), "");
    /* Nor does what it writes where we keep what we know. */
    char meta[PATH_MAX * 4 + 200], coded[PATH_MAX * 2];
    fs_is_done(OPEN("r9", "--path", "file", "--root", below("in"), NULL), "");
    join("r9", "0", "nine", "4");
    coded[sg_b64_encode(coded, below("outside"), strlen(below("outside")))] = '\0';
    char coded_root[PATH_MAX * 2];
    coded_root[sg_b64_encode(coded_root, below("in"), strlen(below("in")))] = '\0';
    snprintf(meta, sizeof meta,
             "sandgate upload 1\nopen\n--op\nupload-open\n--upload\nr9\n--path\n%s\n--root\n%s\nend\n", coded,
             coded_root);
    part(".um-r9", meta);
    fs_is_outside(AS("upload-finish", "r9", "in", "--size", "4", NULL));
    assert_int_equal(access(below("outside"), F_OK), -1);
    fs_is_done(REMOVE("r9"), "");
    fs_is_done(REMOVE("r7"), "");
}

static void nonsense_below_the_root(void **state)
{
    (void)state;
    (void)mkdir(root, 0700);
    fs_is_done(OPEN("rn", "--path", below("nonsense"), "--length", "3", NULL), "");
    char meta[4096];
    FILE *f = fopen(ours(".um-rn"), "re");
    assert_non_null(f);
    size_t n = fread(meta, 1, sizeof meta, f);
    (void)fclose(f);
    /* Cut anywhere, as if we had been stopped: it is none. */
    for (size_t i = 0; i < n; i += 7) {
        file_write(ours(".um-rn"), meta, i);
        fs_says(STATE("rn"), SG_WF_NO_UPLOAD);
    }
    char twice[2 * sizeof meta];
    memcpy(twice, meta, n);
    memcpy(twice + n, meta, n);
    file_write(ours(".um-rn"), twice, 2 * n);
    fs_says(STATE("rn"), SG_WF_NO_UPLOAD);
    file_write(ours(".um-ro"), meta, n); /* another's */
    fs_says(STATE("ro"), SG_WF_NO_UPLOAD);
    assert_int_equal(unlink(ours(".um-rn")), 0);
    assert_int_equal(mkfifo(ours(".um-rn"), 0600), 0);
    fs_says(STATE("rn"), SG_WF_NO_UPLOAD);
    fs_says(FINISH("rn", "0", NULL), SG_WF_NO_UPLOAD);
    assert_int_equal(unlink(ours(".um-rn")), 0);
    file_write(below("mine"), meta, n);
    assert_int_equal(symlink(below("mine"), ours(".um-rn")), 0);
    fs_says(STATE("rn"), SG_WF_NO_UPLOAD);
    assert_int_equal(unlink(ours(".um-rn")), 0);
    file_write(ours(".um-rn"), meta, n);
    fs_is_done(STATE("rn"), "0:3:open");
    assert_int_equal(symlink(below("mine"), ours(".up-rn")), 0);
    fs_is_done(STATE("rn"), "0:3:open");
    assert_int_equal(FINISH("rn", "0", NULL)->last.kind, SG_WIRE_ERROR);
    fs_is_done(REMOVE("rn"), "");
    assert_int_equal(access(below("mine"), F_OK), 0);
}

static bool killed_at(const char *const *args, long ns)
{
    int fd, status;
    pid_t pid = guest_spawn(NULL, args, &fd);
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(fd);
    return !WIFEXITED(status);
}

/* Killed anywhere, the end is told in the end, and it was put once: what somebody wrote there since stays. */
static void killed_anywhere(void **state)
{
    (void)state;
    enum { ROUNDS = 12 };
    (void)mkdir(root, 0700);
    const char *args[] = {"fs", "--op", "upload-finish", "--upload", "rk", "--size", "5", NULL};
    unsigned put_before_told = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s", below("killed"));
        fs_is_done(OPEN("rk", "--path", path, NULL), "");
        join("rk", "0", "fresh", "5");
        bool was_killed = false;
        for (long ns = 200000 + i % 8 * 150000; (was_killed = killed_at(args, ns)); ns += 400000) {
            const char *text = file_text(path);
            if (!text)
                continue;
            assert_string_equal(text, "fresh");
            put_before_told++;
            break;
        }
        file_write(path, "newer", 5);
        fs_is_done(FINISH("rk", "5", NULL), "created");
        assert_string_equal(file_text(path), "newer");
        fs_is_done(STATE("rk"), "5:-:done");
        assert_false(is_there(".up-rk"));
        fs_is_done(REMOVE("rk"), "");
        assert_int_equal(unlink(path), 0);
    }
    print_message("# put, and killed before that was told: %u times\n", put_before_told);
}

/* Many who end the same one hear the same. */
static void many_at_once(void **state)
{
    (void)state;
    enum { N = 16 };
    (void)mkdir(root, 0700);
    fs_is_done(OPEN("rm", "--path", below("many"), NULL), "");
    join("rm", "0", "once", "4");
    const char *args[] = {"fs", "--op", "upload-finish", "--upload", "rm", "--size", "4", NULL};
    pid_t pids[N];
    int fds[N];
    uint64_t ino = 0;
    for (int i = 0; i < N; i++)
        pids[i] = guest_spawn(NULL, args, &fds[i]);
    for (int i = 0; i < N; i++) {
        struct answer a = answer_read(pids[i], fds[i], (uint64_t[2]){0, 0});
        assert_int_equal(a.last.kind, SG_WIRE_OK);
        assert_string_equal(a.last.text, "created");
        assert_true(i == 0 || a.first.file.ino == ino);
        ino = a.first.file.ino;
        answer_free(&a);
    }
    fs_is_done(REMOVE("rm"), "");
}

/* What nobody came back for goes after a day without a byte. */
static void goes_in_its_time(void **state)
{
    (void)state;
    (void)mkdir(root, 0700);
    fs_is_done(OPEN("rt", "--path", below("late"), NULL), "");
    join("rt", "0", "late", "4");
    assert_int_equal(setenv("SANDGATE_GUEST_AHEAD_S", "86300", 1), 0);
    fs_is_done(OPEN("ru", "--path", below("late"), NULL), "");
    assert_true(is_there(".um-rt") && is_there(".up-rt"));
    assert_int_equal(setenv("SANDGATE_GUEST_AHEAD_S", "86500", 1), 0);
    fs_is_done(OPEN("rv", "--path", below("late"), NULL), "");
    assert_int_equal(unsetenv("SANDGATE_GUEST_AHEAD_S"), 0);
    assert_false(is_there(".um-rt") || is_there(".up-rt") || is_there(".up-rt.by"));
    fs_says(STATE("rt"), SG_WF_NO_UPLOAD);
    fs_is_done(REMOVE("rv"), "");
}

/* As root for the sandbox's user, whose files they stay: U8. */
static void belongs_to_the_owner_of_the_root(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    (void)mkdir(root, 0700);
    assert_int_equal(chown(root, 1234, 1235), 0);
    fs_is_done(OPEN("rs", "--path", below("by root"), NULL), "");
    join("rs", "0", "text", "4");
    static const char *const made[] = {".um-rs", ".up-rs.by"};
    struct stat st;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(stat(ours(made[i]), &st), 0);
        assert_true(st.st_uid == 1234 && st.st_gid == 1235 && (st.st_mode & 07777) == 0600);
    }
    fs_is_done(FINISH("rs", "4", NULL), "created");
    assert_int_equal(stat(below("by root"), &st), 0);
    assert_true(st.st_uid == 0 && (st.st_mode & 07777) == 0644);
    fs_is_done(REMOVE("rs"), "");
    assert_int_equal(chown(root, 0, 0), 0);
}

/* Over the border of file systems, a copy takes its place. */
static void to_another_file_system(void **state)
{
    (void)state;
    if (!small_root("size=1M,mode=0700"))
        skip();
    fs_is_done(OPEN("rx", "--path", below("from afar"), NULL), "");
    join("rx", "0", "text", "4");
    const struct fs_reply *r = FINISH("rx", "4", NULL);
    fs_is_done(r, "created");
    struct stat st;
    assert_int_equal(stat(below("from afar"), &st), 0);
    assert_int_equal(r->lines[0].file.ino, st.st_ino);
    assert_false(is_there(".up-rx"));
    /* Killed between the copy's rename and the upload's removal: it is found there. */
    char meta[4096];
    FILE *f = fopen(ours(".um-rx"), "re");
    assert_non_null(f);
    size_t n = fread(meta, 1, sizeof meta - 1, f);
    (void)fclose(f);
    meta[n] = '\0';
    char *word = strstr(meta, "\ndone\n");
    assert_non_null(word);
    memcpy(word, "\nends\n", 6);
    file_write(ours(".um-rx"), meta, n);
    file_write(ours(".up-rx"), "text", 4);
    r = FINISH("rx", "4", NULL);
    fs_is_done(r, "created");
    assert_int_equal(r->lines[0].file.ino, st.st_ino);
    struct stat after;
    assert_int_equal(stat(below("from afar"), &after), 0);
    assert_int_equal(after.st_ino, st.st_ino);
    assert_false(is_there(".up-rx"));
    /* Before: then it is put. */
    file_write(ours(".up-rx"), "text", 4);
    assert_int_equal(unlink(below("from afar")), 0);
    fs_is_done(FINISH("rx", "4", NULL), "created");
    assert_string_equal(file_text(below("from afar")), "text");
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
        cmocka_unit_test(from_open_to_done),
        cmocka_unit_test(waits_for_a_join),
        cmocka_unit_test(conditions),
        cmocka_unit_test(roots),
        cmocka_unit_test(nonsense_below_the_root),
        cmocka_unit_test(killed_anywhere),
        cmocka_unit_test(many_at_once),
        cmocka_unit_test(goes_in_its_time),
        cmocka_unit_test(belongs_to_the_owner_of_the_root),
        cmocka_unit_test(to_another_file_system),
    };
    return cmocka_run_group_tests(tests, harness_setup, teardown);
}
