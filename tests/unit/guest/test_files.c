/* Putting uploads in their place, and the helper in its own: A16, A17, U8. */
#include "harness.h"

#include "base/core/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char *upload(const char *name, const char *text)
{
    (void)mkdir(root, 0700);
    char *p = path_in(root, name);
    file_write(p, text, strlen(text));
    return p;
}

static void assert_committed(const struct answer *a, const char *how)
{
    assert_int_equal(a->last.kind, SG_WIRE_OK);
    assert_string_equal(a->last.text, how);
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 07777;
}

/* A16 */
static void creates_and_replaces(void **state)
{
    (void)state;
    char *to = path_in(scratch, "made/of/\xff\xfe parts");
    struct answer a = guest("commit", "--from", upload(".up-1", "one"), "--to", to, NULL);
    assert_error(&a, SG_WF_FILE, "ENOENT"); /* no parents were asked for */
    assert_int_equal(access(path_in(root, ".up-1"), F_OK), -1);
    a = guest("commit", "--from", upload(".up-1", "one"), "--to", to, "--parents", "--size", "3", NULL);
    assert_committed(&a, "created");
    assert_string_equal(file_text(to), "one");
    assert_int_equal(mode_of(to), 0644);
    assert_int_equal(access(path_in(root, ".up-1"), F_OK), -1);
    assert_int_equal(chmod(to, 0751), 0);
    a = guest("commit", "--from", upload(".up-2", "two"), "--to", to, NULL);
    assert_committed(&a, "replaced");
    assert_string_equal(file_text(to), "two");
    assert_int_equal(mode_of(to), 0751); /* keeps what it had */
    a = guest("commit", "--from", upload(".up-3", ""), "--to", to, "--mode", "4600", NULL);
    assert_committed(&a, "replaced");
    assert_string_equal(file_text(to), "");
    assert_int_equal(mode_of(to), 04600);
}

static void relative_to_the_working_directory(void **state)
{
    (void)state;
    char before[PATH_MAX];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(scratch), 0);
    struct answer a = guest("commit", "--from", upload(".up-r", "here"), "--to", "relative", NULL);
    assert_int_equal(chdir(before), 0);
    assert_committed(&a, "created");
    assert_string_equal(file_text(path_in(scratch, "relative")), "here");
}

/* U8 */
static void old_file_survives_failure(void **state)
{
    (void)state;
    char *to = path_in(scratch, "old"), *dir = path_in(scratch, "dir");
    file_write(to, "old", 3);
    struct answer a = guest("commit", "--from", upload(".up-s", "short"), "--to", to, "--size", "9", NULL);
    assert_error(&a, SG_WF_FILE, "EBADMSG");
    assert_int_equal(access(path_in(root, ".up-s"), F_OK), -1);
    a = guest("commit", "--from", ".up-absent", "--to", to, NULL);
    assert_error(&a, SG_WF_FILE, "ENOENT");
    assert_string_equal(file_text(to), "old");
    assert_int_equal(mkdir(dir, 0755), 0);
    a = guest("commit", "--from", upload(".up-d", "x"), "--to", dir, NULL);
    assert_error(&a, SG_WF_FILE, "EISDIR");
    a = guest("commit", "--from", upload(".up-d", "x"), "--to", path_in(scratch, "slash/"), NULL);
    assert_error(&a, SG_WF_FILE, "EISDIR");
    a = guest("commit", "--from", upload(".up-d", "x"), "--to", path_in(scratch, "old/below"), NULL);
    assert_error(&a, SG_WF_FILE, "ENOTDIR");
    a = guest("commit", "--from", upload(".up-d", "x"), "--to", path_in(scratch, "old/below"), "--parents",
              NULL);
    assert_error(&a, SG_WF_FILE, "ENOTDIR");
    assert_int_equal(access(path_in(root, ".up-d"), F_OK), -1);
    assert_string_equal(file_text(to), "old");
}

static void links_stay_links(void **state)
{
    (void)state;
    char *real = path_in(scratch, "real"), *link = path_in(scratch, "link");
    file_write(real, "old", 3);
    assert_int_equal(symlink("real", link), 0);
    struct answer a = guest("commit", "--from", upload(".up-l", "new"), "--to", link, NULL);
    assert_committed(&a, "replaced");
    assert_string_equal(file_text(real), "new");
    struct stat st;
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
}

/* A17 */
static void exclusive_has_one_winner(void **state)
{
    (void)state;
    enum { N = 20 };
    char *to = path_in(scratch, "exclusive"), names[N][16];
    pid_t pids[N];
    int fds[N], won = 0;
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], ".up-x%d", i);
        upload(names[i], names[i]);
    }
    for (int i = 0; i < N; i++) {
        const char *const args[] = {"commit", "--from", names[i], "--to", to, "--exclusive", NULL};
        pids[i] = guest_spawn(NULL, args, &fds[i]);
    }
    const char *winner = NULL;
    for (int i = 0; i < N; i++) {
        struct answer a = answer_read(pids[i], fds[i], (uint64_t[2]){0, 0});
        assert_int_equal(access(path_in(root, names[i]), F_OK), -1);
        if (a.last.kind == SG_WIRE_OK) {
            won++;
            winner = names[i];
        } else {
            assert_error(&a, SG_WF_FILE, "EEXIST");
        }
    }
    assert_int_equal(won, 1);
    assert_string_equal(file_text(to), winner);
    assert_int_equal(symlink("nowhere", path_in(scratch, "dangling")), 0);
    struct answer a = guest("commit", "--from", upload(".up-e", "x"), "--to", path_in(scratch, "dangling"),
                            "--exclusive", NULL);
    assert_error(&a, SG_WF_FILE, "EEXIST");
}

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
    struct answer a = guest("commit", "--from", upload(".up-b", "across"), "--to", to, "--mode", "600", NULL);
    assert_committed(&a, "created");
    struct answer b = guest("commit", "--from", upload(".up-b", "again"), "--to", to, NULL);
    assert_string_equal(file_text(to), "again");
    assert_int_equal(mode_of(to), 0600);
    struct answer c = guest("commit", "--from", upload(".up-b", "third"), "--to", to, "--exclusive", NULL);
    assert_string_equal(file_text(to), "again");
    assert_int_equal(access(path_in(root, ".up-b"), F_OK), -1);
    assert_int_equal(unlink(to), 0);
    assert_int_equal(rmdir(dir), 0); /* no temporary file stayed */
    assert_committed(&b, "replaced");
    assert_error(&c, SG_WF_FILE, "EEXIST");
}

static void uploads_lie_below_the_root(void **state)
{
    (void)state;
    char *file = path_in(scratch, "mine"), *to = path_in(scratch, "stolen");
    file_write(file, "mine", 4);
    const char *const bad[] = {file, "../scratch/mine", "..", "guest-0123456789abcdef", "a/b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct answer a = guest("commit", "--from", bad[i], "--to", to, NULL);
        assert_error(&a, SG_WF_USAGE, "");
        a = guest("unlink-upload", "--from", bad[i], NULL);
        assert_error(&a, SG_WF_USAGE, "");
    }
    upload(".up-u", "x");
    assert_int_equal(symlink(file, path_in(root, ".up-link")), 0);
    struct answer a = guest("commit", "--from", ".up-link", "--to", to, NULL);
    assert_int_equal(a.last.kind, SG_WIRE_ERROR);
    assert_int_equal(access(to, F_OK), -1);
    assert_string_equal(file_text(file), "mine");
    a = guest("unlink-upload", "--from", path_in(root, ".up-u"), NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    assert_int_equal(access(path_in(root, ".up-u"), F_OK), -1);
    a = guest("unlink-upload", "--from", ".up-u", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
}

/* ---- installing ---- */

static void copy_helper(const char *name, char hash[17])
{
    static char buf[16 << 20];
    FILE *f = fopen(getenv("GUEST_BINARY"), "re");
    assert_non_null(f);
    size_t n = fread(buf, 1, sizeof buf, f);
    (void)fclose(f);
    assert_true(n > 0 && n < sizeof buf);
    (void)mkdir(root, 0700);
    file_write(path_in(root, name), buf, n);
    assert_int_equal(chmod(path_in(root, name), 0755), 0);
    struct sg_sha256 s;
    unsigned char sum[32];
    sg_sha256_init(&s);
    sg_sha256_update(&s, buf, n);
    sg_sha256_final(&s, sum);
    for (size_t i = 0; i < 8; i++)
        snprintf(hash + 2 * i, 3, "%02x", sum[i]);
}

static struct answer run_upload(const char *name, const char *hash)
{
    const char *const args[] = {"--install", hash, "run", "--session", "i",         "--id", name + 1,
                                "--spec",    "h",  "--",  "/bin/echo", "installed", NULL};
    int fd;
    pid_t pid = guest_spawn(path_in(root, name), args, &fd);
    return answer_read(pid, fd, (uint64_t[2]){0, 0});
}

static long seconds(const char *text)
{
    return strtol(text, NULL, 10);
}

static void installs_itself(void **state)
{
    (void)state;
    char hash[17], place[40];
    copy_helper(".up-i1", hash);
    file_write(path_in(root, ".up-another"), "x", 1);
    struct timespec old[2] = {{.tv_sec = time(NULL) - 700}, {.tv_sec = time(NULL) - 700}};
    assert_int_equal(utimensat(AT_FDCWD, path_in(root, ".up-another"), old, 0), 0); /* as archives do */
    assert_int_equal(chmod(root, 0755), 0);
    struct answer a = run_upload(".up-i1", hash);
    assert_text(&a, 0, "installed\n"); /* and went on with the command */
    answer_free(&a);
    snprintf(place, sizeof place, "guest-%s", hash);
    assert_int_equal(mode_of(path_in(root, place)), 0755);
    assert_int_equal(mode_of(root), 0700);
    assert_int_equal(access(path_in(root, ".up-i1"), F_OK), -1);
    assert_int_equal(access(path_in(root, ".up-another"), F_OK), 0);
    /* A second gateway uploaded the same at the same time. */
    copy_helper(".up-i2", hash);
    a = run_upload(".up-i2", hash);
    assert_text(&a, 0, "installed\n");
    answer_free(&a);
    assert_int_equal(access(path_in(root, ".up-i2"), F_OK), -1);
    assert_int_equal(access(path_in(root, place), X_OK), 0);
    a = run_upload(place, hash); /* the installed one may be told again */
    assert_text(&a, 0, "installed\n");
    answer_free(&a);
    /* What nobody came back for goes: each kind at its time. */
    static const struct {
        const char *ahead_s, *name;
    } kinds[] = {{"590", NULL},       {"610", ".up-another"}, {"3610", ".up-p1"},     {"3610", ".up-p1.n.0"},
                 {"3610", ".down-1"}, {"86410", ".up-r1"},    {"86410", ".up-r1.by"}, {"86410", ".um-r1"}};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    for (size_t i = 1; i < KINDS; i++)
        file_write(path_in(root, kinds[i].name), "x", 1);
    for (size_t i = 0; i < KINDS; i++) {
        copy_helper(".up-i3", hash);
        assert_int_equal(setenv("SANDGATE_GUEST_AHEAD_S", kinds[i].ahead_s, 1), 0);
        a = run_upload(".up-i3", hash);
        answer_free(&a);
        for (size_t k = 1; k < KINDS; k++)
            assert_int_equal(access(path_in(root, kinds[k].name), F_OK),
                             seconds(kinds[k].ahead_s) <= seconds(kinds[i].ahead_s) ? -1 : 0);
    }
    assert_int_equal(unsetenv("SANDGATE_GUEST_AHEAD_S"), 0);
    assert_int_equal(access(path_in(root, place), X_OK), 0);
}

static void damaged_upload_is_refused(void **state)
{
    (void)state;
    char hash[17];
    copy_helper(".up-bad", hash);
    FILE *f = fopen(path_in(root, ".up-bad"), "ae");
    assert_non_null(f);
    assert_int_equal(fputc('x', f), 'x');
    assert_int_equal(fclose(f), 0);
    struct answer a = run_upload(".up-bad", hash);
    assert_error(&a, SG_WF_INTERNAL, "EBADMSG");
    assert_int_equal(access(path_in(root, ".up-bad"), F_OK), -1);
    a = guest("status", "--session", "i", "--id", "up-bad", NULL);
    assert_error(&a, SG_WF_NO_RECORD, ""); /* nothing was started */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(creates_and_replaces),       cmocka_unit_test(relative_to_the_working_directory),
        cmocka_unit_test(old_file_survives_failure),  cmocka_unit_test(links_stay_links),
        cmocka_unit_test(exclusive_has_one_winner),   cmocka_unit_test(over_a_file_system_border),
        cmocka_unit_test(uploads_lie_below_the_root), cmocka_unit_test(installs_itself),
        cmocka_unit_test(damaged_upload_is_refused),
    };
    return cmocka_run_group_tests(tests, harness_setup, harness_teardown);
}
