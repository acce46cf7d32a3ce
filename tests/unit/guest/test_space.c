/* A full disk: no room before the start is an error, no room later costs the oldest output and says so. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int mounted_setup(void **state)
{
    if (harness_setup(state))
        return -1;
    static bool mounted;
    mounted = small_root("size=600k,mode=0700");
    *state = &mounted;
    return 0;
}

static int mounted_teardown(void **state)
{
    struct answer a = guest("remove", "--session", "s", "--id", "late", NULL);
    answer_free(&a);
    if (*(bool *)*state && umount2(root, MNT_DETACH))
        return -1;
    return harness_teardown(state);
}

static void full_before_the_start(void **state)
{
    if (!*(bool *)*state)
        skip();
    struct answer a = guest("settle", "--session", "s", "--id", "first", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    static const char zeros[700 * 1024];
    int fd = open(path_in(root, "s/filler"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write(fd, zeros, sizeof zeros) > 0);
    close(fd);
    char script[PATH_MAX + 50];
    char *file = path_in(scratch, "ran");
    snprintf(script, sizeof script, "echo ran >%s", file);
    a = run_sh("full", script);
    assert_error(&a, SG_WF_NO_SPACE, "ENOSPC");
    assert_null(file_text(file));
    assert_int_equal(unlink(path_in(root, "s/filler")), 0);
    a = run_sh("full", script); /* the failed start left nothing that would be in the way */
    assert_int_equal(a.last.kind, SG_WIRE_EXIT);
    assert_string_equal(file_text(file), "ran\n");
}

static void full_while_recording(void **state)
{
    if (!*(bool *)*state)
        skip();
    struct answer a = start_sh("late", "head -c 3000000 /dev/zero; echo err >&2; echo end");
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    a = guest("status", "--session", "s", "--id", "late", "--wait-ms", "20000", NULL);
    assert_int_equal(a.process[0].how, SG_HOW_EXIT); /* the program noticed nothing */
    assert_int_equal(a.process[0].value, 0);
    assert_int_equal(a.process[0].end[0], 3000004);
    a = guest("follow", "--session", "s", "--id", "late", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_EXIT);
    assert_true(a.last.process.output_incomplete);
    assert_true(a.gaps >= 1);
    assert_int_equal(a.next[0], 3000004);
    assert_int_equal(a.next[1], 4);
    assert_true(a.len[0] >= 4 && memcmp(a.out[0] + a.len[0] - 4, "end\n", 4) == 0);
    answer_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_before_the_start),
        cmocka_unit_test(full_while_recording),
    };
    return cmocka_run_group_tests(tests, mounted_setup, mounted_teardown);
}
