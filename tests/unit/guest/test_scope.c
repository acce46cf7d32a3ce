/* What ends a program: leases, nobody attached, a cancel's grace; and what must not: A15, S1, P14, P23, P26. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Stands for the minute that ended scopes stay readable, and for the half that the first watcher has. */
#define PATIENCE "1000"

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void pause_ms(int ms)
{
    (void)poll(NULL, 0, ms);
}

static struct answer start_with(const char *id, const char *option, const char *ms, const char *script)
{
    return guest("start", "--session", "s", "--id", id, "--spec", "h", option, ms, "--", "/bin/sh", "-c",
                 script, NULL);
}

static struct sg_wire_process wait_end(const char *id)
{
    struct answer a = guest("status", "--session", "s", "--id", id, "--wait-ms", "20000", NULL);
    assert_int_equal(a.processes, 1);
    assert_int_equal(a.process[0].state, SG_PS_FINISHED);
    return a.process[0];
}

static bool runs(const char *id)
{
    struct answer a = guest("status", "--session", "s", "--id", id, NULL);
    return a.processes == 1 && a.process[0].state == SG_PS_RUNNING;
}

static bool is_removed(const void *id)
{
    struct answer a = guest("status", "--session", "s", "--id", (const char *)id, NULL);
    return a.last.kind == SG_WIRE_ERROR && a.last.fail == SG_WF_NO_RECORD;
}

/* A15: the whole tree ends with its lease, is readable for a while, and then its files are gone. */
static void lease_runs_out(void **state)
{
    (void)state;
    char script[PATH_MAX + 200], *file = path_in(scratch, "leased");
    snprintf(script, sizeof script,
             "(setsid sh -c 'echo $$ >%s; exec sleep 1000' >/dev/null 2>&1 &); echo output; exec sleep 1000",
             file);
    struct answer a = start_with("lease", "--lease-ms", "1500", script);
    pid_t program = (pid_t)a.first.process.pid, daemon = pid_from(file);
    uint64_t begun = now_ms();
    struct sg_wire_process p = wait_end("lease");
    assert_true(now_ms() - begun < 5000);
    assert_int_equal(p.how, SG_HOW_SCOPE);
    assert_int_equal(p.value, SIGKILL);
    wait_until(pid_is_gone, &program);
    wait_until(pid_is_gone, &daemon);
    a = guest("follow", "--session", "s", "--id", "lease", NULL);
    if (a.last.kind == SG_WIRE_EXIT) { /* unless this took longer than it stays readable */
        assert_text(&a, 0, "output\n");
        assert_int_equal(a.last.process.how, SG_HOW_SCOPE);
    }
    answer_free(&a);
    wait_until(is_removed, "lease");
    assert_int_equal(access(path_in(root, "s/lease/state"), F_OK), -1);
    assert_int_equal(access(path_in(root, "s/lease/out.00000000000000000000"), F_OK), -1);
    assert_int_equal(access(path_in(root, "s/lease/tombstone"), F_OK), 0); /* its id is not free again */
    a = start_sh("lease", "echo again");
    assert_error(&a, SG_WF_NOT_STARTED, "");
}

static void lease_is_renewed_or_given_up(void **state)
{
    (void)state;
    struct answer a = start_with("renew", "--lease-ms", "400", "exec sleep 1000");
    struct answer b = start_with("detach", "--lease-ms", "400", "exec sleep 1000");
    assert_int_equal(b.last.kind, SG_WIRE_OK);
    b = guest("lease", "--session", "s", "--id", "detach", "--ttl-ms", "0", NULL);
    assert_int_equal(b.last.kind, SG_WIRE_OK);
    for (uint64_t end = now_ms() + 1000; now_ms() < end; pause_ms(100)) {
        a = guest("lease", "--session", "s", "--id", "renew", "--ttl-ms", "400", NULL);
        assert_int_equal(a.last.kind, SG_WIRE_OK);
    }
    assert_true(runs("renew") && runs("detach"));
    assert_int_equal(wait_end("renew").how, SG_HOW_SCOPE); /* nobody renews it any more */
    assert_true(runs("detach"));
    wait_until(is_removed, "renew");
    a = guest("lease", "--session", "s", "--id", "renew", "--ttl-ms", "400", NULL);
    assert_error(&a, SG_WF_NO_RECORD, "");
    /* And a process that had none can get one. */
    a = guest("lease", "--session", "s", "--id", "detach", "--ttl-ms", "1", NULL);
    assert_int_equal(wait_end("detach").how, SG_HOW_SCOPE);
}

/* A15: on_disconnect.kill_after_ms. */
static void ends_when_nobody_is_attached(void **state)
{
    (void)state;
    struct answer a = start_with("watched", "--unattended-ms", "100", "exec sleep 1000");
    int one = ctl_open("watched", 'W'), two = ctl_open("watched", 'W');
    assert_true(one >= 0 && two >= 0);
    pause_ms(500);
    assert_true(runs("watched"));
    close(one);
    pause_ms(300);
    assert_true(runs("watched")); /* there is another one */
    close(two);
    uint64_t begun = now_ms();
    assert_int_equal(wait_end("watched").how, SG_HOW_SCOPE);
    assert_true(now_ms() - begun < 3000);
    /* Whoever comes back in time keeps it alive. */
    a = start_with("back", "--unattended-ms", "700", "exec sleep 1000");
    for (int i = 0; i < 4; i++) {
        int fd = ctl_open("back", 'W');
        assert_true(fd >= 0);
        pause_ms(50);
        close(fd);
        pause_ms(300);
        assert_true(runs("back"));
    }
    a = guest("unattended", "--session", "s", "--id", "back", "--ms", "0", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    pause_ms(900);
    assert_true(runs("back"));
    a = guest("unattended", "--session", "s", "--id", "back", "--ms", "50", NULL);
    assert_int_equal(wait_end("back").how, SG_HOW_SCOPE);
    /* Nobody ever came: whoever started it may be dead. */
    a = start_with("alone", "--unattended-ms", "50", "exec sleep 1000");
    begun = now_ms();
    assert_int_equal(wait_end("alone").how, SG_HOW_SCOPE);
    assert_true(now_ms() - begun >= 900 && now_ms() - begun < 10000); /* longer than the 50 ms */
    answer_free(&a);
}

/* A follower that attends counts while it runs, and its being killed is noticed. */
static void followers_attend(void **state)
{
    (void)state;
    struct answer a = start_with("attend", "--unattended-ms", "200", "echo up; exec sleep 1000");
    const char *const args[] = {"follow", "--session", "s", "--id", "attend", "--attend", NULL};
    int fd;
    pid_t pid = guest_spawn(NULL, args, &fd);
    char c;
    assert_int_equal(read(fd, &c, 1), 1);
    pause_ms(800);
    assert_true(runs("attend"));
    assert_int_equal(kill(pid, SIGKILL), 0);
    close(fd);
    assert_int_equal(wait_end("attend").how, SG_HOW_SCOPE);
    answer_free(&a);
}

/* P26: without being told to, nobody's leaving ends anything. */
static void leaving_ends_nothing(void **state)
{
    (void)state;
    struct answer a = start_sh("stay", "exec sleep 1000");
    for (int i = 0; i < 3; i++) {
        int w = ctl_open("stay", 'W');
        pause_ms(20);
        close(w);
    }
    a = guest("start", "--session", "s", "--id", "stay2", "--spec", "h", "--input-open", "--", "cat", NULL);
    int in = ctl_open("stay2", 'I');
    struct sg_wire_line l;
    assert_true(ctl_line(in, &l));
    close(in);
    pause_ms(500);
    assert_true(runs("stay") && runs("stay2")); /* a carrier's end is no end of input either */
    answer_free(&a);
}

/* S1: a polite signal, partial output, and its own exit code when it listens. */
static void cancel_lets_it_finish(void **state)
{
    (void)state;
    struct answer a =
        start_sh("polite", "trap 'echo bye; exit 7' INT; echo part; while :; do sleep 0.01; done");
    a = guest("follow", "--session", "s", "--id", "polite", "--wait-ms", "20000", NULL);
    answer_free(&a);
    a = guest("cancel", "--session", "s", "--id", "polite", "--signal", "2", "--grace-ms", "20000", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    struct sg_wire_process p = wait_end("polite");
    assert_int_equal(p.how, SG_HOW_EXIT);
    assert_int_equal(p.value, 7);
    a = guest("follow", "--session", "s", "--id", "polite", NULL);
    assert_text(&a, 0, "part\nbye\n");
    answer_free(&a);
    a = guest("cancel", "--session", "s", "--id", "polite", "--signal", "2", "--grace-ms", "0", NULL);
    assert_error(&a, SG_WF_FINISHED, "");
}

/* S1, P23: what does not listen is killed with all its children, though whoever asked is gone long ago. */
static void cancel_kills_after_the_grace(void **state)
{
    (void)state;
    char script[PATH_MAX + 200], *file = path_in(scratch, "stubborn");
    snprintf(script, sizeof script,
             "trap '' TERM; (setsid sh -c 'echo $$ >%s; while :; do sleep 1; done' &); echo part; "
             "while :; do sleep 1; done",
             file);
    struct answer a = start_sh("stubborn", script);
    pid_t program = (pid_t)a.first.process.pid, daemon = pid_from(file);
    uint64_t begun = now_ms();
    a = guest("cancel", "--session", "s", "--id", "stubborn", "--signal", "15", "--grace-ms", "60000", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    a = guest("cancel", "--session", "s", "--id", "stubborn", "--signal", "15", "--grace-ms", "400", NULL);
    a = guest("cancel", "--session", "s", "--id", "stubborn", "--signal", "15", "--grace-ms", "60000", NULL);
    assert_true(runs("stubborn"));
    struct sg_wire_process p = wait_end("stubborn"); /* the earliest of them holds */
    assert_true(now_ms() - begun >= 400 && now_ms() - begun < 10000);
    assert_int_equal(p.how, SG_HOW_SIGNAL);
    assert_int_equal(p.value, SIGKILL);
    assert_true(pid_is_gone(&program)); /* P23: told only afterwards */
    wait_until(pid_is_gone, &daemon);
    a = guest("follow", "--session", "s", "--id", "stubborn", NULL);
    assert_text(&a, 0, "part\n");
    answer_free(&a);
}

/* P14: nothing ends a program but what was asked for; and a time limit is told as one, though there is a lease. */
static void only_stated_limits(void **state)
{
    (void)state;
    struct answer a = guest("run", "--session", "s", "--id", "both", "--spec", "h", "--timeout-ms", "200",
                            "--lease-ms", "60000", "--", "sleep", "1000", NULL);
    assert_int_equal(a.last.process.how, SG_HOW_TIMEOUT);
    a = guest("run", "--session", "s", "--id", "ends", "--spec", "h", "--lease-ms", "60000", "--timeout-ms",
              "60000", "--", "/bin/sh", "-c", "exit 3", NULL);
    assert_int_equal(a.last.process.how, SG_HOW_EXIT);
    assert_int_equal(a.last.process.value, 3);
    a = guest("status", "--session", "s", "--id", "both", NULL); /* and its record stays */
    assert_int_equal(a.process[0].how, SG_HOW_TIMEOUT);
}

/* While a record waits for its removal, others may remove it first. */
static void removed_by_hand_meanwhile(void **state)
{
    (void)state;
    setenv("SANDGATE_GUEST_PATIENCE_MS", "1500", 1);
    struct answer a = start_with("hand", "--lease-ms", "50", "exec sleep 1000");
    setenv("SANDGATE_GUEST_PATIENCE_MS", PATIENCE, 1);
    assert_int_equal(wait_end("hand").how, SG_HOW_SCOPE);
    uint64_t begun = now_ms();
    a = guest("remove", "--session", "s", "--id", "hand", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    assert_true(now_ms() - begun < 1000);
    assert_true(is_removed("hand"));
}

static int setup(void **state)
{
    return setenv("SANDGATE_GUEST_PATIENCE_MS", PATIENCE, 1) || harness_setup(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lease_runs_out),
        cmocka_unit_test(lease_is_renewed_or_given_up),
        cmocka_unit_test(ends_when_nobody_is_attached),
        cmocka_unit_test(followers_attend),
        cmocka_unit_test(leaving_ends_nothing),
        cmocka_unit_test(cancel_lets_it_finish),
        cmocka_unit_test(cancel_kills_after_the_grace),
        cmocka_unit_test(only_stated_limits),
        cmocka_unit_test(removed_by_hand_meanwhile),
    };
    return cmocka_run_group_tests(tests, setup, harness_teardown);
}
