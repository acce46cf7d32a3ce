/* Signals reach the whole tree and nothing else: A13. */
#include "harness.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A daemon: own session, its parent gone, its output elsewhere. */
static void script_daemon(char *script, size_t n, const char *file, const char *inner)
{
    snprintf(
        script, n,
        "(setsid sh -c '%s sh -c \"echo \\$\\$ >%s; exec sleep 1000\" & exit' >/dev/null 2>&1 &); echo up; "
        "exec sleep 1000",
        inner, file);
}

static void signal_kills(const char *id, const char *signal_number)
{
    char script[PATH_MAX + 300];
    char *file = path_in(scratch, id);
    script_daemon(script, sizeof script, file, "setsid");
    struct answer a = start_sh(id, script);
    pid_t program = (pid_t)a.first.process.pid, daemon = pid_from(file);
    assert_true(program > 1 && daemon > 1 && program != daemon);
    assert_false(pid_is_gone(&daemon));
    a = guest("signal", "--session", "s", "--id", id, "--signal", signal_number, NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    wait_until(pid_is_gone, &daemon);
    wait_until(pid_is_gone, &program);
    a = guest("follow", "--session", "s", "--id", id, NULL);
    assert_int_equal(a.last.process.how, SG_HOW_SIGNAL);
    assert_int_equal(a.last.process.value, strtol(signal_number, NULL, 10));
    answer_free(&a);
}

static void kill_reaches_daemons_and_no_others(void **state)
{
    (void)state;
    struct answer a = start_sh("bystander", "exec sleep 1000");
    pid_t bystander = (pid_t)a.first.process.pid;
    signal_kills("d9", "9");
    signal_kills("d15", "15");
    assert_false(pid_is_gone(&bystander));
    a = guest("signal", "--session", "s", "--id", "bystander", "--signal", "9", "--only-program", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    a = guest("status", "--session", "s", "--id", "bystander", "--wait-ms", "10000", NULL);
    assert_int_equal(a.process[0].how, SG_HOW_SIGNAL);
    a = guest("signal", "--session", "s", "--id", "bystander", "--signal", "9", NULL);
    assert_error(&a, SG_WF_FINISHED, "");
}

/* The program has ended, what it left behind has not: it can still be signalled. */
static void leftovers_can_be_killed(void **state)
{
    (void)state;
    char script[PATH_MAX + 100];
    char *file = path_in(scratch, "left");
    snprintf(script, sizeof script, "setsid sh -c 'echo $$ >%s; exec sleep 1000' >/dev/null 2>&1 & exit 0",
             file);
    struct answer a = run_sh("left", script);
    assert_int_equal(a.last.kind, SG_WIRE_EXIT);
    pid_t left = pid_from(file);
    a = guest("signal", "--session", "s", "--id", "left", "--signal", "9", "--only-program", NULL);
    assert_error(&a, SG_WF_FINISHED, "");
    assert_false(pid_is_gone(&left));
    a = guest("signal", "--session", "s", "--id", "left", "--signal", "9", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    wait_until(pid_is_gone, &left);
}

static void only_program_spares_its_children(void **state)
{
    (void)state;
    char script[PATH_MAX + 100];
    char *file = path_in(scratch, "child");
    snprintf(script, sizeof script, "sh -c 'echo $$ >%s; exec sleep 1000' & wait", file);
    struct answer a = start_sh("parent", script);
    pid_t child = pid_from(file), program = (pid_t)a.first.process.pid;
    a = guest("signal", "--session", "s", "--id", "parent", "--signal", "15", "--only-program", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    wait_until(pid_is_gone, &program);
    assert_false(pid_is_gone(&child));
    a = guest("signal", "--session", "s", "--id", "parent", "--signal", "9", NULL);
    wait_until(pid_is_gone, &child);
}

static bool many_pids(const void *path)
{
    const char *t = file_text(path);
    return t && strlen(t) >= 20;
}

/* A tree that forks while it is being killed. */
static void kill_outruns_forks(void **state)
{
    (void)state;
    char script[PATH_MAX + 200];
    char *file = path_in(scratch, "forks");
    /* Bounded: at most 400 children, should the kill fail. */
    snprintf(script, sizeof script,
             "i=0; while [ $i -lt 400 ]; do sleep 1000 & echo $! >>%s; i=$((i+1)); done; wait", file);
    struct answer a = start_sh("forks", script);
    wait_until(many_pids, file);
    a = guest("signal", "--session", "s", "--id", "forks", "--signal", "9", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    FILE *f = fopen(file, "re");
    assert_non_null(f);
    char line[32];
    while (fgets(line, sizeof line, f)) {
        pid_t pid = (pid_t)strtol(line, NULL, 10);
        wait_until(pid_is_gone, &pid);
    }
    (void)fclose(f);
    a = guest("signal", "--session", "s", "--id", "forks", "--signal", "9", NULL);
    assert_error(&a, SG_WF_FINISHED, "");
}

/* A record that names somebody else's process as its monitor. */
static void forged_monitor_is_not_believed(void **state)
{
    (void)state;
    struct answer a = start_sh("victim", "sleep 1000 & wait");
    pid_t victim = (pid_t)a.first.process.pid;
    char copy[200];
    uint64_t v[5];
    started_numbers("victim", v);
    a = run_sh("forger", "true");
    /* The right process with the wrong start time is another process. */
    snprintf(copy, sizeof copy, "S1 %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", v[0], v[1] + 1, v[4]);
    state_write("forger", STATE_STARTED, copy);
    snprintf(copy, sizeof copy, "M1 %" PRIu64 " %" PRIu64 "\n", v[2], v[3] + 1);
    state_write("forger", STATE_MONITOR, copy);
    a = guest("signal", "--session", "s", "--id", "forger", "--signal", "9", NULL);
    assert_error(&a, SG_WF_FINISHED, "");
    assert_false(pid_is_gone(&victim));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kill_reaches_daemons_and_no_others), cmocka_unit_test(leftovers_can_be_killed),
        cmocka_unit_test(only_program_spares_its_children),   cmocka_unit_test(kill_outruns_forks),
        cmocka_unit_test(forged_monitor_is_not_believed),
    };
    return cmocka_run_group_tests(tests, harness_setup, harness_teardown);
}
