/* Running, recording and following programs: C6, C7, A14, U4, P07, P13, P03. */
#include "harness.h"

#include "base/core/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void assert_exit(const struct answer *a, enum sg_wire_how how, uint32_t value)
{
    assert_int_equal(a->last.kind, SG_WIRE_EXIT);
    assert_int_equal(a->last.process.how, how);
    assert_int_equal(a->last.process.value, value);
    for (int s = 0; s < 2; s++)
        assert_int_equal(a->last.process.end[s], a->next[s]); /* C7: after the last byte of both */
}

/* A14, P07 */
static void exact_bytes(void **state)
{
    (void)state;
    struct answer a = run_sh("exact", "printf 'a\\000b\\377\\376\\303'; printf 'no newline' >&2");
    assert_exit(&a, SG_HOW_EXIT, 0);
    assert_int_equal(a.len[0], 6);
    assert_memory_equal(a.out[0], "a\0b\377\376\303", 6);
    assert_text(&a, 1, "no newline");
    answer_free(&a);
    a = run_sh("abc", "printf abc");
    assert_text(&a, 0, "abc");
    assert_exit(&a, SG_HOW_EXIT, 0);
    answer_free(&a);
}

/* C7 */
static void exit_and_signal(void **state)
{
    (void)state;
    struct answer a = run_sh("code", "echo last; exit 42");
    assert_int_equal(a.first.kind, SG_WIRE_HELLO);
    assert_string_equal(a.first.process.id, "code");
    assert_true(a.first.process.pid > 1 && a.first.process.started_ms > 0);
    assert_text(&a, 0, "last\n");
    assert_exit(&a, SG_HOW_EXIT, 42);
    answer_free(&a);
    a = run_sh("killed", "echo last; kill -11 $$");
    assert_text(&a, 0, "last\n");
    assert_exit(&a, SG_HOW_SIGNAL, SIGSEGV);
    answer_free(&a);
    a = guest("status", "--session", "s", "--id", "killed", NULL);
    assert_int_equal(a.process[0].state, SG_PS_FINISHED);
    assert_int_equal(a.process[0].how, SG_HOW_SIGNAL);
    assert_int_equal(a.process[0].end[0], 5);
}

static void sum_of(const void *data, size_t n, unsigned char sum[32])
{
    struct sg_sha256 s;
    sg_sha256_init(&s);
    sg_sha256_update(&s, data, n);
    sg_sha256_final(&s, sum);
}

/* A14: more than one follow may print, so the reader asks again from where it is. */
static void large_output_over_several_follows(void **state)
{
    (void)state;
    enum { SIZE = 66 * 1024 * 1024 + 4321 };
    unsigned char *data = malloc(SIZE);
    assert_non_null(data);
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i < SIZE; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        data[i] = (unsigned char)(x >> 32);
    }
    char *file = path_in(scratch, "random");
    file_write(file, data, SIZE);
    unsigned char want[32], got[32];
    sum_of(data, SIZE, want);
    struct sg_sha256 s;
    sg_sha256_init(&s);
    struct answer a =
        guest("run", "--session", "s", "--id", "big", "--spec", "h", "--", "/bin/cat", file, NULL);
    uint64_t at = 0;
    unsigned calls = 1;
    for (;; calls++) {
        sg_sha256_update(&s, a.out[0], a.len[0]);
        at = a.next[0];
        assert_int_equal(a.gaps, 0);
        answer_free(&a);
        if (a.last.kind != SG_WIRE_MORE)
            break;
        char offset[24];
        snprintf(offset, sizeof offset, "%llu", (unsigned long long)at);
        a = guest_from(at, 0, "follow", "--session", "s", "--id", "big", "--stdout", offset, NULL);
    }
    sg_sha256_final(&s, got);
    assert_exit(&a, SG_HOW_EXIT, 0);
    assert_int_equal(at, SIZE);
    assert_true(calls >= 4); /* sixteen MiB each */
    assert_memory_equal(got, want, 32);
    unlink(file);
    free(data);
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static bool late_is_there(const void *arg)
{
    (void)arg;
    struct answer a = guest("follow", "--session", "s", "--id", "held", "--only", "1", NULL);
    bool there = a.len[0] == 8 && memcmp(a.out[0], "ok\nlate\n", 8) == 0;
    answer_free(&a);
    return there;
}

static bool nothing_holds_output(const void *id)
{
    struct answer a = guest("status", "--session", "s", "--id", (const char *)id, NULL);
    return !a.process[0].descendants_hold_output;
}

/* U4, P13 */
static void background_child_holds_output(void **state)
{
    (void)state;
    char script[PATH_MAX + 100];
    char *fifo = path_in(scratch, "fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    snprintf(script, sizeof script, "(read x <%s; echo late) & echo ok", fifo);
    uint64_t begun = now_ms();
    struct answer a = run_sh("held", script);
    assert_true(now_ms() - begun < 2000);
    assert_text(&a, 0, "ok\n");
    assert_exit(&a, SG_HOW_EXIT, 0);
    assert_true(a.last.process.descendants_hold_output);
    answer_free(&a);
    a = run_sh("next", "echo fine");
    assert_text(&a, 0, "fine\n");
    assert_false(a.last.process.descendants_hold_output);
    answer_free(&a);
    file_write(fifo, "go\n", 3);
    wait_until(late_is_there, NULL);
    wait_until(nothing_holds_output, "held");
    a = guest("follow", "--session", "s", "--id", "held", NULL);
    assert_text(&a, 0, "ok\nlate\n");
    assert_exit(&a, SG_HOW_EXIT, 0);
    answer_free(&a);
}

static void endless_descendant_does_not_delay_the_exit(void **state)
{
    (void)state;
    uint64_t begun = now_ms();
    struct answer a = guest("run", "--session", "s", "--id", "noisy", "--spec", "h", "--retain", "65536",
                            "--", "/bin/sh", "-c", "while :; do echo noise; done & exit 5", NULL);
    assert_true(now_ms() - begun < 5000);
    assert_int_equal(a.last.kind, SG_WIRE_EXIT);
    assert_int_equal(a.last.process.value, 5);
    assert_true(a.last.process.descendants_hold_output);
    answer_free(&a);
    a = guest("signal", "--session", "s", "--id", "noisy", "--signal", "9", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    wait_until(nothing_holds_output, "noisy");
}

static void what_cannot_be_executed(void **state)
{
    (void)state;
    for (int twice = 0; twice < 2; twice++) { /* asked again it says the same, and does not try again */
        struct answer a =
            guest("run", "--session", "s", "--id", "none", "--spec", "h", "--", "/no/such", NULL);
        assert_error(&a, SG_WF_EXEC, "ENOENT");
        assert_int_equal(a.lines, 1);
    }
    struct answer a =
        guest("start", "--session", "s", "--id", "path", "--spec", "h", "--", "no-such-program-x", NULL);
    assert_error(&a, SG_WF_EXEC, "ENOENT");
    file_write(path_in(scratch, "data"), "x", 1);
    a = guest("run", "--session", "s", "--id", "noexec", "--spec", "h", "--", path_in(scratch, "data"), NULL);
    assert_error(&a, SG_WF_EXEC, "EACCES");
    a = guest("run", "--session", "s", "--id", "nocwd", "--spec", "h", "--cwd", "/no/dir", "--", "/bin/true",
              NULL);
    assert_error(&a, SG_WF_EXEC, "ENOENT");
    assert_string_equal(a.last.text, "working directory");
    a = guest("follow", "--session", "s", "--id", "none", NULL);
    assert_error(&a, SG_WF_EXEC, "ENOENT");
    a = guest("follow", "--session", "s", "--id", "never", NULL);
    assert_error(&a, SG_WF_NO_RECORD, "");
}

/* C6: a program's surroundings. */
static void surroundings(void **state)
{
    (void)state;
    setenv("KEEP_ME", "kept", 1);
    setenv("DROP_ME", "x", 1);
    struct answer a = guest("run", "--session", "s", "--id", "env", "--spec", "h", "--replace-env", "KEEP_ME",
                            "--replace-env", "ABSENT", "--", "/usr/bin/env", NULL);
    assert_text(&a, 0, "KEEP_ME=kept\n");
    answer_free(&a);
    a = guest("run", "--session", "s", "--id", "env0", "--spec", "h", "--clear-env", "--", "env", NULL);
    assert_text(&a, 0, "");
    assert_exit(&a, SG_HOW_EXIT, 0);
    a = run_sh("env1", "echo $KEEP_ME$DROP_ME");
    assert_text(&a, 0, "keptx\n");
    answer_free(&a);
    a = guest("run", "--session", "s", "--id", "cwd", "--spec", "h", "--cwd", scratch, "--", "/bin/pwd",
              NULL);
    char want[PATH_MAX + 2];
    snprintf(want, sizeof want, "%s\n", scratch);
    assert_text(&a, 0, want);
    answer_free(&a);
    /* Empty stdin; umask 022; leader of its own session and group; no descriptor of ours; SIGPIPE kills. */
    a = run_sh(
        "around",
        "cat; umask; set -- $(cut -d' ' -f1,5,6 /proc/$$/stat); [ $1 = $2 ] && [ $2 = $3 ] && "
        "echo leader; n=3; while [ $n -lt 40 ]; do [ -e /proc/$$/fd/$n ] && echo leak $n; n=$((n+1)); done; "
        "exec grep -E 'Sig(Ign|Blk)' /proc/self/status");
    assert_text(&a, 0, "0022\nleader\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
    answer_free(&a);
}

/* A13: the time limit ends the whole tree. */
static void time_limit(void **state)
{
    (void)state;
    char script[PATH_MAX + 100];
    char *file = path_in(scratch, "pid-limit");
    snprintf(script, sizeof script, "setsid sh -c 'echo $$ >%s; exec sleep 1000' & sleep 1000", file);
    struct answer a = guest("run", "--session", "s", "--id", "limit", "--spec", "h", "--timeout-ms", "700",
                            "--", "/bin/sh", "-c", script, NULL);
    assert_exit(&a, SG_HOW_TIMEOUT, SIGKILL);
    assert_true(a.last.process.duration_ms >= 700 && a.last.process.duration_ms < 5000);
    pid_t pid = pid_from(file);
    wait_until(pid_is_gone, &pid);
}

static void ring_says_what_is_gone(void **state)
{
    (void)state;
    struct answer a = guest("start", "--session", "s", "--id", "ring", "--spec", "h", "--retain", "200000",
                            "--", "/bin/sh", "-c", "head -c 1000000 /dev/zero; echo end", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    a = guest("status", "--session", "s", "--id", "ring", "--wait-ms", "20000", NULL);
    assert_int_equal(a.process[0].state, SG_PS_FINISHED);
    assert_int_equal(a.process[0].end[0], 1000004);
    uint64_t oldest = a.process[0].oldest[0];
    assert_true(oldest >= 1000004 - 200000 && oldest < 1000004 - 65536);
    a = guest("follow", "--session", "s", "--id", "ring", NULL);
    assert_int_equal(a.gaps, 1);
    assert_int_equal(a.gap_to[0], oldest);
    assert_int_equal(a.len[0], 1000004 - oldest);
    assert_memory_equal(a.out[0] + a.len[0] - 4, "end\n", 4);
    assert_exit(&a, SG_HOW_EXIT, 0);
    assert_false(a.last.process.output_incomplete);
    answer_free(&a);
}

static void bounded_reads(void **state)
{
    (void)state;
    struct answer a = run_sh("read", "printf 0123456789; printf abcdef >&2");
    answer_free(&a);
    a = guest_from(2, 0, "follow", "--session", "s", "--id", "read", "--stdout", "2", "--only", "1",
                   "--limit", "5", NULL);
    assert_text(&a, 0, "23456");
    assert_text(&a, 1, "");
    assert_int_equal(a.last.kind, SG_WIRE_MORE);
    answer_free(&a);
    a = guest_from(0, 3, "follow", "--session", "s", "--id", "read", "--stderr", "3", "--only", "2", NULL);
    assert_text(&a, 1, "def");
    assert_int_equal(a.last.kind, SG_WIRE_EXIT);
    answer_free(&a);
    /* Nothing yet: waits that long and says "more"; a first byte ends the wait. */
    char *fifo = path_in(scratch, "fifo-read");
    char script[PATH_MAX + 100];
    assert_int_equal(mkfifo(fifo, 0600), 0);
    snprintf(script, sizeof script, "read x <%s; echo $x; sleep 1000", fifo);
    a = start_sh("wait", script);
    uint64_t begun = now_ms();
    a = guest("follow", "--session", "s", "--id", "wait", "--wait-ms", "150", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_MORE);
    assert_int_equal(a.lines, 2);
    assert_true(now_ms() - begun >= 150);
    const char *const args[] = {"follow", "--session", "s", "--id", "wait", "--wait-ms", "20000", NULL};
    int fd;
    pid_t pid = guest_spawn(NULL, args, &fd);
    file_write(fifo, "x\n", 2);
    a = answer_read(pid, fd, (uint64_t[2]){0, 0});
    assert_text(&a, 0, "x\n");
    assert_int_equal(a.last.kind, SG_WIRE_MORE);
    assert_true(now_ms() - begun < 10000);
    answer_free(&a);
    a = guest("remove", "--session", "s", "--id", "wait", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
}

static void run_prints_no_more_than_asked(void **state)
{
    (void)state;
    struct answer a = guest("run", "--session", "s", "--id", "max", "--spec", "h", "--max-output", "5000",
                            "--", "/bin/sh", "-c", "head -c 20000 /dev/zero; printf err >&2; exit 3", NULL);
    assert_int_equal(a.len[0], 5000);
    assert_text(&a, 1, "err");
    assert_int_equal(a.last.kind, SG_WIRE_EXIT);
    assert_int_equal(a.last.process.value, 3);
    assert_int_equal(a.last.process.end[0], 20000);
    answer_free(&a);
}

static void list_in_order(void **state)
{
    (void)state;
    struct answer a = guest("run", "--session", "list", "--id", "zz", "--spec", "h", "--", "/bin/true", NULL);
    a = guest("run", "--session", "list", "--id", "aa", "--spec", "h", "--", "/bin/false", NULL);
    a = guest("settle", "--session", "list", "--id", "never", NULL);
    a = guest("list", "--session", "list", NULL);
    assert_int_equal(a.processes, 2);
    assert_true(a.process[0].started_ms <= a.process[1].started_ms);
    assert_int_equal(a.process[strcmp(a.process[0].id, "zz") == 0 ? 1 : 0].value, 1);
    a = guest("list", "--session", "nowhere", NULL);
    assert_int_equal(a.processes, 0);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
}

/* P03: without an exit record nobody invents one. */
static void killed_monitor(void **state)
{
    (void)state;
    struct answer a = start_sh("lost", "echo before; exec sleep 1000");
    pid_t program = (pid_t)a.first.process.pid;
    const char *const args[] = {"follow", "--session", "s", "--id", "lost", NULL};
    int fd;
    pid_t follower = guest_spawn(NULL, args, &fd);
    uint64_t v[5];
    started_numbers("lost", v);
    a = guest("follow", "--session", "s", "--id", "lost", "--wait-ms", "20000", NULL);
    assert_text(&a, 0, "before\n"); /* recorded: the monitor is not needed for it any more */
    answer_free(&a);
    assert_int_equal(kill((pid_t)v[2], SIGKILL), 0);
    a = answer_read(follower, fd, (uint64_t[2]){0, 0});
    assert_text(&a, 0, "before\n");
    assert_exit(&a, SG_HOW_UNKNOWN, 0);
    answer_free(&a);
    a = guest("status", "--session", "s", "--id", "lost", NULL);
    assert_int_equal(a.process[0].state, SG_PS_UNKNOWN);
    assert_int_equal(a.process[0].how, SG_HOW_UNKNOWN);
    a = guest("signal", "--session", "s", "--id", "lost", "--signal", "9", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    wait_until(pid_is_gone, &program);
}

static void misuse(void **state)
{
    (void)state;
    const char *const bad[][9] = {
        {"nonsense", NULL},
        {"run", "--session", "s", "--id", "x", "--spec", "h", NULL},
        {"status", "--session", "s", NULL},
        {"status", "--session", "s", "--id", "../x", NULL},
        {"status", "--session", "guest-x", "--id", "x", NULL},
        {"status", "--session", "s", "--id", "x", "--id", "x", NULL},
        {"status", "--session", "s", "--id", "x", "--wait-ms", "-1", NULL},
        {"status", "--session", "s", "--id", "x", "--mode", "644", NULL},
        {"signal", "--session", "s", "--id", "x", "--signal", "65", NULL},
        {"follow", "--session", "s", "--id", "x", "--only", "3", NULL},
        {"list", "--session", "s", "--", "true", NULL},
        {"--install", "short", "list", "--session", "s", NULL},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int fd;
        pid_t pid = guest_spawn(NULL, bad[i], &fd);
        struct answer a = answer_read(pid, fd, (uint64_t[2]){0, 0});
        assert_error(&a, SG_WF_USAGE, "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_bytes),
        cmocka_unit_test(exit_and_signal),
        cmocka_unit_test(large_output_over_several_follows),
        cmocka_unit_test(background_child_holds_output),
        cmocka_unit_test(endless_descendant_does_not_delay_the_exit),
        cmocka_unit_test(what_cannot_be_executed),
        cmocka_unit_test(surroundings),
        cmocka_unit_test(time_limit),
        cmocka_unit_test(ring_says_what_is_gone),
        cmocka_unit_test(bounded_reads),
        cmocka_unit_test(run_prints_no_more_than_asked),
        cmocka_unit_test(list_in_order),
        cmocka_unit_test(killed_monitor),
        cmocka_unit_test(misuse),
    };
    return cmocka_run_group_tests(tests, harness_setup, harness_teardown);
}
