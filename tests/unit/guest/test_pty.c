/* Terminals: B10 (guest side), C7, U4, A13. */
#include "harness.h"

#include "base/core/b64.h"
#include "guest/ctl.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct answer pty_run(const char *id, const char *script)
{
    return guest("run", "--session", "s", "--id", id, "--spec", "h", "--pty", "91x33", "--", "/bin/sh", "-c",
                 script, NULL);
}

static struct answer pty_start(const char *id, const char *program, const char *arg, const char *script)
{
    return guest("start", "--session", "s", "--id", id, "--spec", "h", "--pty", "80x24", "--", program, arg,
                 script, NULL);
}

/* What somebody at the keyboard has typed so far, per test one terminal at a time. */
static uint64_t typed;

static void type_bytes(const char *id, const char *text)
{
    static char act[4096];
    int len = snprintf(act, sizeof act, "W %" PRIu64 " ", typed);
    assert_true((size_t)len + SG_B64_LEN(strlen(text)) < sizeof act);
    len += (int)sg_b64_encode(act + len, text, strlen(text));
    act[len] = '\0';
    struct sg_wire_line l = ctl_say(id, act);
    typed += strlen(text);
    assert_int_equal(l.kind, SG_WIRE_ACCEPTED);
    assert_int_equal(l.accepted, typed);
}

struct expected {
    const char *id, *text;
};

static bool shows(const void *arg)
{
    const struct expected *e = arg;
    struct answer a = guest("follow", "--session", "s", "--id", e->id, "--wait-ms", "0", NULL);
    bool found = a.out[0] && memmem(a.out[0], a.len[0], e->text, strlen(e->text));
    answer_free(&a);
    return found;
}

static void wait_for(const char *id, const char *text)
{
    struct expected e = {id, text};
    for (int i = 0; i < 200 && !shows(&e); i++)
        (void)poll(NULL, 0, 50);
    if (shows(&e))
        return;
    struct answer a = guest("follow", "--session", "s", "--id", id, "--wait-ms", "0", NULL);
    fail_msg("the terminal does not show '%s' but: %s", text, a.out[0] ? (char *)a.out[0] : "nothing");
}

static struct answer end_of(const char *id)
{
    struct answer a = guest("status", "--session", "s", "--id", id, "--wait-ms", "20000", NULL);
    assert_int_equal(a.process[0].state, SG_PS_FINISHED);
    return guest("follow", "--session", "s", "--id", id, NULL);
}

static void a_real_terminal(void **state)
{
    (void)state;
    struct answer a =
        pty_run("real", "stty size; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all; echo err >&2; "
                        "set -- $(cut -d' ' -f5-8 /proc/$$/stat); [ $1 = $2 ] && [ $1 = $4 ] && "
                        "[ $3 != 0 ] && echo controlling; n=3; while [ $n -lt 40 ]; do [ -e /proc/$$/fd/$n ] "
                        "&& echo leak $n; n=$((n+1)); done; "
                        "exit 9");
    assert_true(a.terminal && a.first.process.terminal);
    assert_text(&a, 0, "33 91\r\nall\r\nerr\r\ncontrolling\r\n");
    assert_int_equal(a.len[1], 0);
    assert_int_equal(a.last.kind, SG_WIRE_EXIT);
    assert_int_equal(a.last.process.how, SG_HOW_EXIT);
    assert_int_equal(a.last.process.value, 9);
    assert_int_equal(a.last.process.end[0], a.next[0]);
    answer_free(&a);
    a = guest("status", "--session", "s", "--id", "real", NULL);
    assert_true(a.process[0].terminal);
}

/* C7: what was written last is there, though nobody has the terminal any more and the kernel moves it in pieces. */
static void exit_is_after_the_last_byte(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        char id[16];
        snprintf(id, sizeof id, "last%d", i);
        struct answer a = pty_run(id, "stty -opost; head -c 100000 /dev/zero; printf end");
        assert_int_equal(a.len[0], 100003);
        assert_memory_equal(a.out[0] + 100000, "end", 3);
        assert_int_equal(a.last.kind, SG_WIRE_EXIT);
        assert_int_equal(a.last.process.end[0], 100003);
        assert_false(a.last.process.descendants_hold_output);
        answer_free(&a);
    }
}

static void interrupts_and_job_control(void **state)
{
    (void)state;
    typed = 0;
    struct answer a = pty_start("jobs", "/bin/sh", "-i", NULL);
    assert_true(a.first.process.takes_input && a.first.process.terminal);
    type_bytes("jobs", "PS1=re'ady> '\r");
    wait_for("jobs", "ready> ");
    type_bytes("jobs", "sh -c \"echo beg''un; exec sleep 1000\"\r"); /* the echo of this is another text */
    wait_for("jobs", "begun\r\n");
    type_bytes("jobs", "\003"); /* ends the sleep, not the shell */
    type_bytes("jobs", "echo code $?\r");
    wait_for("jobs", "code 130\r\n");
    type_bytes("jobs", "sh -c 'echo stopping; kill -TSTP $$; echo woken'\r");
    wait_for("jobs", "Stopped");
    type_bytes("jobs", "fg\r");
    wait_for("jobs", "\r\nwoken\r\n");
    type_bytes("jobs", "sleep 1000 &\r");
    type_bytes("jobs", "jobs; echo li''sted\r");
    wait_for("jobs", "Running");
    wait_for("jobs", "listed\r\n");
    type_bytes("jobs", "kill %1; exit 4\r");
    a = end_of("jobs");
    assert_int_equal(a.last.process.how, SG_HOW_EXIT);
    assert_int_equal(a.last.process.value, 4);
    answer_free(&a);
}

/* B10: the size changes under the program, and the same size again makes it draw again. */
static void sizes(void **state)
{
    (void)state;
    struct answer a = pty_start("size", "/bin/sh", "-c",
                                "trap 'stty size; n=$((n+1))' WINCH; n=0; echo up; "
                                "while [ $n -lt 2 ]; do sleep 0.01; done; trap '' WINCH; exit 0");
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    wait_for("size", "up\r\n");
    struct sg_wire_line l = ctl_say("size", "R 132 50");
    assert_int_equal(l.kind, SG_WIRE_OK);
    wait_for("size", "50 132\r\n");
    a = guest("resize", "--session", "s", "--id", "size", "--cols", "132", "--rows", "50", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    a = end_of("size");
    const char *again = "up\r\n50 132\r\n50 132\r\n";
    assert_true(a.len[0] >= strlen(again));
    assert_memory_equal(a.out[0], again, strlen(again));
    answer_free(&a);
    a = guest("resize", "--session", "s", "--id", "size", "--cols", "80", "--rows", "24", NULL);
    assert_error(&a, SG_WF_FINISHED, "");
    /* By a carrier too, among the keys. */
    a = pty_start("size2", "/bin/sh", "-c", "read x; stty size");
    int fd = ctl_open("size2", 'I');
    assert_true(ctl_line(fd, &l));
    assert_int_equal(l.kind, SG_WIRE_CARRIER);
    carrier_frame(fd, (struct sg_carrier_frame){.kind = SG_CARRIER_RESIZE, .cols = 100, .rows = 40});
    carrier_data(fd, 0, "go\r", 3);
    while (ctl_line(fd, &l) && l.kind == SG_WIRE_ACCEPTED)
        continue;
    assert_int_equal(l.fail, SG_WF_FINISHED);
    close(fd);
    a = end_of("size2");
    assert_text(&a, 0, "go\r\n40 100\r\n");
    answer_free(&a);
}

/* The end of input is a character, given when somebody reads lines; also in the middle of one. */
static void end_of_input(void **state)
{
    (void)state;
    struct answer a =
        pty_start("eof", "/bin/sh", "-c", "stty -echo; echo up; cat; echo end; cat; echo never");
    wait_for("eof", "up\r\n");
    typed = 0;
    type_bytes("eof", "line\rhalf");
    char act[32];
    snprintf(act, sizeof act, "C %" PRIu64, typed);
    struct sg_wire_line l = ctl_say("eof", act);
    assert_true(l.kind == SG_WIRE_ACCEPTED && l.closed);
    wait_for("eof", "line\r\nhalfend\r\n");
    l = ctl_say("eof", "W 9 eA==");
    assert_int_equal(l.fail, SG_WF_NO_INPUT);
    a = guest("signal", "--session", "s", "--id", "eof", "--signal", "9", NULL);
    /* Not while a program reads keys: it would take the character for one. */
    char *fifo = path_in(scratch, "fifo-raw"), script[PATH_MAX + 200];
    assert_int_equal(mkfifo(fifo, 0600), 0);
    snprintf(
        script, sizeof script,
        "stty -icanon -echo min 0 time 2; echo raw; read go <%s; head -c 1 | od -An -c; stty icanon; cat; "
        "echo end",
        fifo);
    a = pty_start("raw", "/bin/sh", "-c", script);
    wait_for("raw", "raw\r\n");
    l = ctl_say("raw", "C 0");
    assert_true(l.closed);
    file_write(fifo, "go\n", 3);
    a = end_of("raw");
    assert_text(&a, 0, "raw\r\nend\r\n");
    assert_int_equal(a.last.process.value, 0);
    answer_free(&a);
}

/* The program lets go of its terminal for a moment: that is no end. */
static void closes_and_opens_again(void **state)
{
    (void)state;
    struct answer a =
        pty_run("again", "exec </dev/null >/dev/null 2>&1; sleep 0.1; exec >/dev/tty; echo back");
    assert_text(&a, 0, "back\r\n");
    assert_int_equal(a.last.process.value, 0);
    answer_free(&a);
}

/* U4: a job in the background outlives the shell, keeps the terminal, and what it writes is recorded. */
static void background_job_keeps_the_terminal(void **state)
{
    (void)state;
    char *fifo = path_in(scratch, "fifo-bg"), script[PATH_MAX + 100];
    assert_int_equal(mkfifo(fifo, 0600), 0);
    snprintf(script, sizeof script, "set -m; (trap '' HUP; read x <%s; echo late) & exit 5", fifo);
    struct answer a = pty_run("bg", script);
    assert_int_equal(a.last.kind, SG_WIRE_EXIT);
    assert_int_equal(a.last.process.value, 5);
    assert_true(a.last.process.descendants_hold_output);
    answer_free(&a);
    file_write(fifo, "go\n", 3);
    wait_for("bg", "late\r\n");
}

/* A13: a signal reaches what runs in groups of its own, as job control makes them. */
static void signal_reaches_all_groups(void **state)
{
    (void)state;
    char *file = path_in(scratch, "bgpid"), script[PATH_MAX + 100];
    snprintf(script, sizeof script, "set -m; sh -c 'echo $$ >%s; exec sleep 1000' & exec sleep 1000", file);
    struct answer a = pty_start("groups", "/bin/sh", "-c", script);
    pid_t bg = pid_from(file), program = (pid_t)a.first.process.pid;
    a = guest("signal", "--session", "s", "--id", "groups", "--signal", "9", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    wait_until(pid_is_gone, &bg);
    wait_until(pid_is_gone, &program);
}

/* A program that reads nothing: keys beyond what the terminal takes wait, nobody is blocked, a signal arrives. */
static void unread_keys_wait(void **state)
{
    (void)state;
    struct answer a = pty_start("slow", "/bin/sh", "-c", "stty -icanon -echo; echo up; read x; sleep 1000");
    wait_for("slow", "up\r\n");
    int fd = ctl_open("slow", 'I');
    struct sg_wire_line l;
    assert_true(ctl_line(fd, &l));
    static const unsigned char keys[60000];
    for (uint64_t at = 0; at < 10 * sizeof keys; at += sizeof keys)
        carrier_data(fd, at, keys, sizeof keys);
    l = carrier_accepted(fd, 10 * sizeof keys);
    assert_true(l.room < SG_CARRIER_SPOOL - 8 * sizeof keys);
    carrier_frame(fd, (struct sg_carrier_frame){.kind = SG_CARRIER_SIGNAL, .signal = SIGKILL, .whole = true});
    while (ctl_line(fd, &l) && l.kind == SG_WIRE_ACCEPTED)
        continue;
    assert_int_equal(l.fail, SG_WF_FINISHED);
    close(fd);
    a = end_of("slow");
    assert_int_equal(a.last.process.how, SG_HOW_SIGNAL);
    answer_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_real_terminal),
        cmocka_unit_test(exit_is_after_the_last_byte),
        cmocka_unit_test(interrupts_and_job_control),
        cmocka_unit_test(sizes),
        cmocka_unit_test(end_of_input),
        cmocka_unit_test(closes_and_opens_again),
        cmocka_unit_test(background_job_keeps_the_terminal),
        cmocka_unit_test(signal_reaches_all_groups),
        cmocka_unit_test(unread_keys_wait),
    };
    return cmocka_run_group_tests(tests, harness_setup, harness_teardown);
}
