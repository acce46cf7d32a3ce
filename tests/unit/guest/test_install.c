/* The helper takes its own place, and sweeps what nobody came back for. */
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

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 07777;
}

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
        cmocka_unit_test(installs_itself),
        cmocka_unit_test(damaged_upload_is_refused),
    };
    return cmocka_run_group_tests(tests, harness_setup, harness_teardown);
}
