/* The cross-built helper under qemu-user.  The programs it starts are this machine's. */
#include "fs_calls.h"
#include "talk.h"

#include "guest/guest_blob.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int setup(void **state)
{
    if (access(getenv("GUEST_RUNNER"), X_OK)) {
        (void)fprintf(stderr, "qemu-aarch64 is missing: install qemu-user to test the arm64 helper\n");
        return -1;
    }
    return harness_setup(state);
}

static void runs_and_follows(void **state)
{
    (void)state;
    struct answer a = run_sh("a", "printf 'a\\000\\377'; echo err >&2; exit 7");
    assert_int_equal(a.len[0], 3);
    assert_memory_equal(a.out[0], "a\0\377", 3);
    assert_text(&a, 1, "err\n");
    assert_int_equal(a.last.kind, SG_WIRE_EXIT);
    assert_int_equal(a.last.process.value, 7);
    answer_free(&a);
    a = guest_from(2, 4, "follow", "--session", "s", "--id", "a", "--stdout", "2", "--stderr", "4", NULL);
    assert_int_equal(a.len[0], 1);
    assert_int_equal(a.last.process.value, 7);
    answer_free(&a);
    a = guest("run", "--session", "s", "--id", "none", "--spec", "h", "--", "/no/such", NULL);
    assert_error(&a, SG_WF_EXEC, "ENOENT");
    /* No signals here: qemu shows its guests a /proc/self/stat without a start time, and without that the
     * helper signals nobody. */
    a = start_sh("k", "kill -15 $$");
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    a = guest("status", "--session", "s", "--id", "k", "--wait-ms", "20000", NULL);
    assert_int_equal(a.process[0].how, SG_HOW_SIGNAL);
}

static void puts_a_file(void **state)
{
    (void)state;
    char *to = path_in(scratch, "d/file");
    file_write(path_in(root, ".up-1"), "data", 4);
    fs_is_done(fs("put", "--path", to, "--from", ".up-1", "--parents", "--mode", "640", NULL), "created");
    assert_string_equal(file_text(to), "data");
    file_write(path_in(root, ".up-1"), "other", 5);
    fs_fails(fs("put", "--path", to, "--from", ".up-1", "--exclusive", NULL), "EEXIST");
    fs_calls_free();
}

/* Carriers, acts, terminals and watching: sockets, notifications and terminal calls of the other machine. */
static void carries_input(void **state)
{
    (void)state;
    static struct talk t;
    struct answer a = guest("start", "--session", "s", "--id", "cat", "--spec", "h", "--input-open",
                            "--input-data", "YWJj", "--", "/bin/cat", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    a = guest("write", "--session", "s", "--id", "cat", "--offset", "3", "--data", "ZGVm", NULL);
    assert_int_equal(a.first.accepted, 6);
    talk_open(&t, "input", "--session", "s", "--id", "cat", NULL);
    struct sg_wire_line l = talk_line(&t);
    assert_true(l.kind == SG_WIRE_CARRIER && l.accepted == 6);
    talk_send(&t, "D\0\0\0\0\0\0\0\6\0\0\0\3ghiC\0\0\0\0\0\0\0\11", 13 + 3 + 9);
    talk_close_input(&t);
    while ((l = talk_line(&t)).kind == SG_WIRE_ACCEPTED)
        continue;
    assert_true(l.kind == SG_WIRE_OK || (l.kind == SG_WIRE_ERROR && l.fail == SG_WF_FINISHED));
    (void)talk_end(&t);
    a = guest("follow", "--session", "s", "--id", "cat", NULL);
    assert_text(&a, 0, "abcdefghi");
    assert_int_equal(a.last.kind, SG_WIRE_EXIT);
    answer_free(&a);
    a = guest("run", "--session", "s", "--id", "tty", "--spec", "h", "--pty", "80x25", "--", "/bin/sh", "-c",
              "stty size; tty >/dev/null && exit 5", NULL);
    assert_text(&a, 0, "25 80\r\n");
    assert_true(a.terminal && a.last.process.value == 5);
    answer_free(&a);
    a = guest("watch", "--session", "s", "--", "tty", "0", "0", "none", "0", "0", NULL);
    assert_int_equal(a.processes, 2);
    assert_int_equal(a.last.kind, SG_WIRE_MORE);
}

/* A terminal, output that waits, and a lease that ends the program by its group, where /proc does not help. */
static void keeps_scopes(void **state)
{
    (void)state;
    struct answer a = guest("run", "--session", "s", "--id", "sized", "--spec", "h", "--pty", "90x30", "--",
                            "/bin/sh", "-c", "stty size", NULL);
    assert_text(&a, 0, "30 90\r\n");
    assert_int_equal(a.last.process.how, SG_HOW_EXIT);
    answer_free(&a);
    setenv("SANDGATE_GUEST_PATIENCE_MS", "1000", 1); /* its monitor stays that long to remove the record */
    a = guest("run", "--session", "s", "--id", "lease", "--spec", "h", "--lossless", "--retain", "65536",
              "--lease-ms", "500", "--", "cat", "/dev/zero", NULL);
    assert_int_equal(a.last.process.how, SG_HOW_SCOPE);
    assert_true(a.len[0] >= 65536 && a.len[0] < 4 * 65536);
    assert_int_equal(a.gaps, 0);
    answer_free(&a);
}

/* The very bytes that the gateway carries. */
static void the_carried_one_runs(void **state)
{
    (void)state;
    const struct guest_blob *b = guest_blob_for("arm64");
    assert_non_null(b);
    char *file = path_in(scratch, "carried"), command[2 * PATH_MAX + 16], line[128], want[64];
    file_write(file, b->data, b->len);
    assert_int_equal(chmod(file, 0755), 0);
    snprintf(command, sizeof command, "%s %s version", getenv("GUEST_RUNNER"), file);
    FILE *p = popen(command, "re");
    assert_non_null(p);
    assert_non_null(fgets(line, sizeof line, p));
    assert_int_equal(pclose(p), 0);
    snprintf(want, sizeof want, " %s\n", b->hash);
    assert_non_null(strstr(line, want));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_and_follows),     cmocka_unit_test(carries_input),
        cmocka_unit_test(puts_a_file),          cmocka_unit_test(keeps_scopes),
        cmocka_unit_test(the_carried_one_runs),
    };
    return cmocka_run_group_tests(tests, setup, harness_teardown);
}
