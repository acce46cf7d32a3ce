/* Terminals in boxes: the program is their session's leader, and they behave as terminals do. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "box_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

static struct fixture fx;
static struct session box;
static bool plain;

static int open_all(void **state)
{
    (void)state;
    return fixture_open(&fx, plain) && session_start(&fx, &box, "main", NULL) == 0 ? 0 : -1;
}

static int close_all(void **state)
{
    (void)state;
    session_stop(&box);
    fixture_close(&fx);
    return 0;
}

struct terminal {
    int master;
    pid_t pid;
    char out[8192];
    size_t n;
};

static int start(struct terminal *t, const char *line)
{
    static const char *const env[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "TERM=xterm", NULL};
    const char *argv[] = {"sh", "-c", line, NULL};
    struct box_exec x = {.argv = argv,
                         .env = env,
                         .cwd = "/tmp",
                         .uid = plain && geteuid() == 0 ? 0 : BOX_USER_UID,
                         .pty = true,
                         .rows = 40,
                         .cols = 123,
                         .master = &t->master};
    memset(t, 0, sizeof *t);
    return box_exec(box.box, &x, &t->pid);
}

/* Reads until the text has come, or the terminal was hung up (text NULL). */
static bool read_until(struct terminal *t, const char *text)
{
    while (text == NULL || strstr(t->out, text) == NULL) {
        struct pollfd p = {.fd = t->master, .events = POLLIN};
        if (t->n + 1 >= sizeof t->out || poll(&p, 1, 20000) <= 0)
            return false;
        ssize_t n = read(t->master, t->out + t->n, sizeof t->out - 1 - t->n);
        if (n < 0 && errno == EIO)
            return text == NULL;
        if (n > 0)
            t->n += (size_t)n;
    }
    return true;
}

static int end_of(struct terminal *t)
{
    struct ended ended = {.status = -1};
    assert_true(session_wait(&box, t->pid, &ended));
    if (t->master >= 0)
        close(t->master);
    return ended.status;
}

/* CONNECT: size, owner and controlling terminal. */
static void test_terminal(void **state)
{
    (void)state;
    struct terminal t;
    assert_int_equal(start(&t, "stty size; tty; test -O $(tty) && echo mine; echo tty >/dev/tty;"
                               "test $(ps -o sid= -p $$) -eq $$ && echo leader; exit 7"),
                     0);
    assert_true(read_until(&t, NULL));
    int status = end_of(&t);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
    assert_non_null(strstr(t.out, "40 123\r\n"));
    assert_non_null(strstr(t.out, "/dev/pts/"));
    assert_non_null(strstr(t.out, "mine\r\n"));
    assert_non_null(strstr(t.out, "\r\ntty\r\n"));
    assert_non_null(strstr(t.out, "leader\r\n"));
}

static void test_resize(void **state)
{
    (void)state;
    struct terminal t;
    struct winsize ws = {.ws_row = 50, .ws_col = 200};
    assert_int_equal(start(&t, "trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.05; done"),
                     0);
    assert_true(read_until(&t, "ready\r\n"));
    assert_int_equal(ioctl(t.master, TIOCSWINSZ, &ws), 0);
    assert_true(read_until(&t, "50 200\r\n"));
    assert_int_equal(WEXITSTATUS(end_of(&t)), 3);
}

/* Also when the emulator was started with signals ignored, as a background job of a script is. */
static void test_interrupt(void **state)
{
    (void)state;
    struct terminal t;
    assert_int_equal(start(&t, "echo ready; exec sleep 1000"), 0);
    assert_true(read_until(&t, "ready\r\n"));
    assert_int_equal(write(t.master, "\003", 1), 1);
    int status = end_of(&t);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGINT);
}

static void test_end_of_input(void **state)
{
    (void)state;
    struct terminal t;
    assert_int_equal(start(&t, "echo ready; exec cat"), 0);
    assert_true(read_until(&t, "ready\r\n"));
    assert_int_equal(write(t.master, "\004", 1), 1);
    assert_int_equal(end_of(&t), 0);
}

static void test_hangup(void **state)
{
    (void)state;
    struct terminal t;
    assert_int_equal(start(&t, "echo ready; exec sleep 1000"), 0);
    assert_true(read_until(&t, "ready\r\n"));
    close(t.master);
    t.master = -1;
    int status = end_of(&t);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGHUP);
}

/* What was written just before the end is not lost. */
static void test_last_output(void **state)
{
    (void)state;
    struct terminal t;
    assert_int_equal(start(&t, "head -c 7000 /dev/zero | tr '\\0' x; echo; echo last"), 0);
    struct ended ended;
    assert_true(session_wait(&box, t.pid, &ended));
    assert_true(read_until(&t, NULL));
    close(t.master);
    assert_int_equal(t.n, 7000 + 2 + 6);
}

static void test_failures(void **state)
{
    (void)state;
    const char *argv[] = {"no-such-program", NULL};
    int master = 99;
    pid_t pid;
    struct box_exec x = {.argv = argv, .cwd = "/tmp", .uid = BOX_USER_UID, .pty = true, .master = &master};
    size_t before = count_fds("self");
    assert_int_equal(box_exec(box.box, &x, &pid), ENOENT);
    assert_int_equal(master, -1);
    assert_int_equal(count_fds("self"), before);
}

int main(int argc, char **argv)
{
    plain = argc > 1 && strcmp(argv[1], "plain") == 0;
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    if (!plain && !fixture_become(argc > 1 ? argv[1] : NULL))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_terminal),  cmocka_unit_test(test_resize),
        cmocka_unit_test(test_interrupt), cmocka_unit_test(test_end_of_input),
        cmocka_unit_test(test_hangup),    cmocka_unit_test(test_last_output),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests_name("emulator/box_pty", tests, open_all, close_all);
}
