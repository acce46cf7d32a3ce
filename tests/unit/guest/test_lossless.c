/* Lossless retention: the program waits until its output was received, and nothing of it goes: C7, A14, P16 (guest
 * side); on a full disk too. */
#include "harness.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RETAIN = 200000, SEGMENT = 64 * 1024 };

static struct answer start_lossless(const char *id, const char *retain, const char *script)
{
    return guest("start", "--session", "s", "--id", id, "--spec", "h", "--lossless", "--retain", retain, "--",
                 "/bin/sh", "-c", script, NULL);
}

static struct sg_wire_process state_of(const char *id)
{
    struct answer a = guest("status", "--session", "s", "--id", id, NULL);
    assert_int_equal(a.processes, 1);
    return a.process[0];
}

static bool is_paused(const void *id)
{
    return state_of(id).paused;
}

static bool runs_on(const void *id)
{
    return !state_of(id).paused;
}

/* Bytes in the record's output files. */
static uint64_t kept(const char *id)
{
    char name[100];
    snprintf(name, sizeof name, "s/%s", id);
    DIR *d = opendir(path_in(root, name));
    assert_non_null(d);
    uint64_t sum = 0;
    struct stat st;
    for (struct dirent *e; (e = readdir(d));)
        if ((strncmp(e->d_name, "out.", 4) == 0 || strncmp(e->d_name, "err.", 4) == 0) &&
            fstatat(dirfd(d), e->d_name, &st, 0) == 0)
            sum += (uint64_t)st.st_size;
    closedir(d);
    return sum;
}

/* The program `seq N`: every byte of it is known from its offset. */
static size_t seq_text(char **text, unsigned n)
{
    size_t len = 0, cap = (size_t)n * 8;
    *text = malloc(cap);
    assert_non_null(*text);
    for (unsigned i = 1; i <= n; i++)
        len += (size_t)snprintf(*text + len, cap - len, "%u\n", i);
    return len;
}

/* Reads a stream piece by piece, compares, and says each time what it has. */
static void read_and_ack(const char *id, const char *text, size_t len, uint64_t bound)
{
    uint64_t at = 0;
    for (unsigned calls = 0;; calls++) {
        char offset[24], limit[24];
        snprintf(offset, sizeof offset, "%" PRIu64, at);
        snprintf(limit, sizeof limit, "%u", 30000 + calls % 7 * 10000);
        struct answer a = guest_from(at, 0, "follow", "--session", "s", "--id", id, "--stdout", offset,
                                     "--limit", limit, "--wait-ms", "20000", NULL);
        assert_int_equal(a.gaps, 0);
        assert_true(at + a.len[0] <= len);
        if (a.len[0])
            assert_memory_equal(a.out[0], text + at, a.len[0]);
        at = a.next[0];
        bool end = a.last.kind == SG_WIRE_EXIT;
        answer_free(&a);
        if (end) {
            assert_false(a.last.process.output_incomplete);
            assert_int_equal(a.last.process.how, SG_HOW_EXIT);
            assert_int_equal(a.last.process.value, 0);
            break;
        }
        snprintf(offset, sizeof offset, "%" PRIu64, at);
        a = guest("ack", "--session", "s", "--id", id, "--stdout", offset, "--stderr", "0", NULL);
        assert_true(a.last.kind == SG_WIRE_OK || a.last.fail == SG_WF_FINISHED);
        assert_true(kept(id) <= bound);
    }
    assert_int_equal(at, len);
}

static void waits_and_loses_nothing(void **state)
{
    (void)state;
    char *text;
    size_t len = seq_text(&text, 150000);
    struct answer a = start_lossless("seq", "200000", "exec seq 150000");
    assert_true(a.first.process.lossless);
    wait_until(is_paused, "seq");
    struct sg_wire_process p = state_of("seq");
    assert_int_equal(p.state, SG_PS_RUNNING);
    assert_int_equal(p.end[0], RETAIN);
    assert_int_equal(p.oldest[0], 0);
    read_and_ack("seq", text, len, RETAIN + 2 * SEGMENT);
    p = state_of("seq");
    assert_false(p.paused);
    free(text);
}

/* Each stream has its own room, and a carrier's acknowledgement counts as well. */
static void streams_wait_alone(void **state)
{
    (void)state;
    struct answer a =
        start_lossless("two", "65536", "head -c 300000 /dev/zero; echo out done >&2; exec sleep 1000");
    wait_until(is_paused, "two");
    struct sg_wire_process p = state_of("two");
    assert_int_equal(p.end[0], 65536);
    assert_int_equal(p.end[1], 0);
    struct sg_wire_line l =
        ctl_say("two", "K 10 0"); /* not enough for a file to go, but for ten bytes more */
    assert_int_equal(l.kind, SG_WIRE_OK);
    while (state_of("two").end[0] != 65546)
        assert_true(state_of("two").end[0] < 65546);
    p = state_of("two");
    assert_int_equal(p.oldest[0], 0);
    assert_true(p.paused);
    /* Beyond what there is: taken as all that there is. */
    while (state_of("two").end[0] < 300000)
        (void)ctl_say("two", "K 4611686018427387903 4611686018427387903");
    a = guest("follow", "--session", "s", "--id", "two", "--only", "2", "--wait-ms", "20000", NULL);
    assert_text(&a, 1, "out done\n"); /* the program went on */
    answer_free(&a);
    assert_true(kept("two") <= 2 * 65536 + SEGMENT);
}

/* A ring has no use for acknowledgements, and never waits. */
static void a_ring_does_not_wait(void **state)
{
    (void)state;
    struct answer a =
        guest("start", "--session", "s", "--id", "ring", "--spec", "h", "--retain", "65536", "--", "/bin/sh",
              "-c", "head -c 1000000 /dev/zero; read x </dev/null; exec sleep 1000", NULL);
    assert_false(a.first.process.lossless);
    a = guest("ack", "--session", "s", "--id", "ring", "--stdout", "5", "--stderr", "0", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    while (state_of("ring").end[0] < 1000000)
        assert_false(state_of("ring").paused);
    assert_true(state_of("ring").oldest[0] > 0);
}

/* What is in the pipe when the program ends is recorded beyond the limit: the exit follows the last byte at once. */
static void the_end_does_not_wait(void **state)
{
    (void)state;
    struct answer a = start_lossless("ends", "65536", "head -c 100000 /dev/zero; printf end");
    a = guest("status", "--session", "s", "--id", "ends", "--wait-ms", "20000", NULL);
    assert_int_equal(a.process[0].how, SG_HOW_EXIT);
    assert_int_equal(a.process[0].end[0], 100003);
    assert_int_equal(a.process[0].oldest[0], 0);
    assert_false(a.process[0].paused);
}

/* C7 on a terminal: the kernel does not say how much of the last output it holds. */
static void the_end_of_a_terminal_does_not_wait(void **state)
{
    (void)state;
    struct answer a = guest("start", "--session", "s", "--id", "tty", "--spec", "h", "--lossless", "--retain",
                            "65536", "--pty", "80x24", "--", "/bin/sh", "-c",
                            "stty -opost; head -c 65536 /dev/zero; head -c 3000 /dev/zero; printf end", NULL);
    a = guest("status", "--session", "s", "--id", "tty", "--wait-ms", "20000", NULL);
    assert_int_equal(a.process[0].how, SG_HOW_EXIT);
    assert_int_equal(a.process[0].end[0], 68539);
    assert_int_equal(a.process[0].oldest[0], 0);
    assert_false(a.process[0].output_incomplete);
}

static void a_paused_program_can_be_killed(void **state)
{
    (void)state;
    struct answer a = start_lossless("kill", "65536", "exec cat /dev/zero");
    wait_until(is_paused, "kill");
    a = guest("signal", "--session", "s", "--id", "kill", "--signal", "9", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    a = guest("status", "--session", "s", "--id", "kill", "--wait-ms", "20000", NULL);
    assert_int_equal(a.process[0].how, SG_HOW_SIGNAL);
    /* A time limit too, and a terminal pauses like a pipe. */
    a = guest("run", "--session", "s", "--id", "limit", "--spec", "h", "--lossless", "--retain", "65536",
              "--pty", "80x24", "--timeout-ms", "300", "--", "cat", "/dev/zero", NULL);
    assert_int_equal(a.last.process.how, SG_HOW_TIMEOUT);
    assert_true(a.len[0] >= 65536 && a.len[0] < 3 * 65536);
    answer_free(&a);
}

/* ---- a full disk ---- */

static void fill(const char *name)
{
    static const char zeros[64 * 1024];
    int fd = open(path_in(root, name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    while (write(fd, zeros, sizeof zeros) > 0)
        continue;
    close(fd);
}

static void full_disk_pauses(void **state)
{
    if (!*(bool *)*state)
        skip();
    char *text;
    size_t len = seq_text(&text, 300000);
    struct answer a = start_lossless("disk", "100000000", "exec seq 300000");
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    wait_until(is_paused, "disk"); /* long before the limit */
    assert_true(state_of("disk").end[0] < 1 << 20);
    /* Received output makes room.  A first file of 12 MB never goes: so by hand, as if something else had grown. */
    assert_int_equal(mount("none", root, NULL, MS_REMOUNT, "size=8m,mode=0700"), 0);
    wait_until(runs_on, "disk");
    read_and_ack("disk", text, len, 8 << 20);
    free(text);
    a = guest("remove", "--session", "s", "--id", "disk", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    assert_int_equal(mount("none", root, NULL, MS_REMOUNT, "size=1m,mode=0700"), 0);
}

static void acknowledged_files_make_room(void **state)
{
    if (!*(bool *)*state)
        skip();
    char *text;
    size_t len = seq_text(&text, 300000);
    fill("s/filler");
    assert_int_equal(truncate(path_in(root, "s/filler"), 500 * 1024), 0);
    /* Room for half a megabyte, eight files of 64 KiB. */
    struct answer a = start_lossless("acked", "1000000", "exec seq 300000");
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    wait_until(is_paused, "acked");
    assert_true(state_of("acked").end[0] < 700 * 1024);
    read_and_ack("acked", text, len, 700 << 10);
    free(text);
    assert_int_equal(unlink(path_in(root, "s/filler")), 0);
    a = guest("remove", "--session", "s", "--id", "acked", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
}

/* The program has ended and its last bytes find no room: the exit waits for them, until somebody gives up. */
static void the_last_bytes_wait_for_room(void **state)
{
    if (!*(bool *)*state)
        skip();
    char script[PATH_MAX + 100];
    char *fifo = path_in(scratch, "fifo-full");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    snprintf(script, sizeof script, "echo begin; read x <%s; seq 2000; exit 6", fifo);
    for (int give_up = 0; give_up < 2; give_up++) {
        const char *id = give_up ? "gone" : "late";
        struct answer a = start_lossless(id, "1000000", script);
        a = guest("follow", "--session", "s", "--id", id, "--wait-ms", "20000", NULL);
        answer_free(&a);
        fill("s/filler");
        file_write(fifo, "go\n", 3);
        wait_until(is_paused, id);
        pid_t program = (pid_t)state_of(id).pid;
        wait_until(pid_is_gone, &program);
        struct sg_wire_process p = state_of(id);
        assert_int_equal(p.state, SG_PS_RUNNING);
        assert_true(p.paused);
        if (give_up) {
            (void)ctl_say(id, "T 9 0");
            a = guest("status", "--session", "s", "--id", id, "--wait-ms", "20000", NULL);
            assert_true(a.process[0].output_incomplete);
        }
        assert_int_equal(unlink(path_in(root, "s/filler")), 0);
        a = guest("status", "--session", "s", "--id", id, "--wait-ms", "20000", NULL);
        assert_int_equal(a.process[0].how, SG_HOW_EXIT);
        assert_int_equal(a.process[0].value, 6);
        assert_int_equal(a.process[0].end[0], 6 + 8893);
        assert_int_equal(a.process[0].output_incomplete, give_up);
        a = guest("remove", "--session", "s", "--id", id, NULL);
        assert_int_equal(a.last.kind, SG_WIRE_OK);
    }
}

static bool mounted;

/* From here on the root is a small file system. */
static int full_setup(void **state)
{
    if (!mounted)
        mounted = small_root("size=1m,mode=0700");
    *state = &mounted;
    return 0;
}

static int teardown(void **state)
{
    if (mounted && umount2(root, MNT_DETACH))
        return -1;
    return harness_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_and_loses_nothing),
        cmocka_unit_test(streams_wait_alone),
        cmocka_unit_test(a_ring_does_not_wait),
        cmocka_unit_test(the_end_does_not_wait),
        cmocka_unit_test(the_end_of_a_terminal_does_not_wait),
        cmocka_unit_test(a_paused_program_can_be_killed),
        cmocka_unit_test_setup(full_disk_pauses, full_setup),
        cmocka_unit_test_setup(acknowledged_files_make_room, full_setup),
        cmocka_unit_test_setup(the_last_bytes_wait_for_room, full_setup),
    };
    return cmocka_run_group_tests(tests, harness_setup, teardown);
}
