/* The tier without isolation: what it still promises.  Runs as a user without any privilege. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "box_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct fixture fx;
static struct session box;

static int open_all(void **state)
{
    (void)state;
    return fixture_open(&fx, true) && session_start(&fx, &box, "main", NULL) == 0 ? 0 : -1;
}

static int close_all(void **state)
{
    (void)state;
    session_stop(&box);
    fixture_close(&fx);
    return 0;
}

static void sh(struct session *s, const char *line, const char *want)
{
    struct result r;
    session_sh(s, line, &r);
    assert_int_equal(r.error, 0);
    assert_string_equal(r.out, want);
}

static void test_programs(void **state)
{
    (void)state;
    struct result r;
    char want[800];
    assert_int_equal(box_host_tier(fx.host), BOX_TIER_PLAIN);
    snprintf(want, sizeof want,
             "%s/sessions/main/layer/upper/vercel/sandbox\n"
             "%s/sessions/main/layer/upper/home/vercel-sandbox\n54321\n",
             fx.state, fx.state);
    sh(&box, "pwd; echo $HOME; id -u", want);
    session_sh(&box, "exit 7", &r);
    assert_int_equal(WEXITSTATUS(r.status), 7);
    const char *missing[] = {"no-such-program", NULL};
    pid_t pid = 0;
    assert_int_equal(session_spawn(&box, BOX_USER_UID, missing, "/", &pid), ENOENT);
    const char *some[] = {"true", NULL};
    assert_int_equal(session_spawn(&box, BOX_USER_UID, some, "/none", &pid), ENOENT);
    assert_int_equal(session_spawn(&box, 0, some, "/", &pid), EPERM); /* sudo without root */
    sh(&box, "printf '#!/bin/sh\\necho own\\n' > tool && chmod +x tool", "");
    const char *own[] = {"/vercel/sandbox/tool", NULL};
    session_run(&box, BOX_USER_UID, own, NULL, &r);
    assert_string_equal(r.out, "own\n");
}

/* Paths of the API stay below the session's directory, whatever links say. */
static void test_files(void **state)
{
    (void)state;
    int fd = -1;
    char text[64] = "";
    char err[BOX_TEXT];
    sh(&box,
       "echo body > f && ln -s /etc/passwd abs && ln -s ../../../../../../../../etc/passwd up && mkfifo p",
       "");
    assert_int_equal(box_open_read(box.box, "/vercel/sandbox", "f", &fd), 0);
    assert_int_equal(read(fd, text, sizeof text - 1), 5);
    close(fd);
    assert_int_equal(box_open_read(box.box, "/vercel/sandbox", "abs", &fd), ENOENT);
    assert_int_equal(box_open_read(box.box, "/vercel/sandbox", "up", &fd), ENOENT);
    assert_int_equal(box_open_read(box.box, "/", "../../../../../../etc/passwd", &fd), ENOENT);
    assert_int_equal(box_open_read(box.box, "/vercel/sandbox", "p", &fd), EINVAL);
    assert_int_equal(box_open_read(box.box, "/vercel", "sandbox", &fd), EISDIR);
    assert_int_equal(box_mkdir(box.box, "/vercel/sandbox", "a/b", false), ENOENT);
    assert_int_equal(box_mkdir(box.box, "/vercel/sandbox", "a/b/", true), 0);
    assert_int_equal(box_mkdir(box.box, "/vercel/sandbox", "a", false), EEXIST);
    assert_int_equal(box_mkdir(box.box, "/", "/vercel/sandbox/f/x", true), ENOTDIR);
    sh(&box, "tar -cf - f | (mkdir -p out; cat > out/t.tar); test -d a/b && echo yes", "yes\n");
    assert_int_equal(box_open_read(box.box, "/vercel/sandbox", "out/t.tar", &fd), 0);
    assert_int_equal(box_untar(box.box, "/vercel/sandbox/out", fd, err), 0);
    sh(&box, "cat out/f", "body\n");
    sh(&box, "ln -s /tmp sneak && tar -cPf out/t.tar ../sandbox/f", "");
    assert_int_equal(box_open_read(box.box, "/vercel/sandbox", "out/t.tar", &fd), 0);
    assert_int_not_equal(box_untar(box.box, "/vercel/sandbox/out", fd, err), 0);
}

static bool alive(void *arg)
{
    return kill(*(const pid_t *)arg, 0) == 0;
}

static bool gone(void *arg)
{
    return kill(*(const pid_t *)arg, 0) != 0 && errno == ESRCH;
}

/* Stopping finds daemons that left their session, too. */
static void test_stop(void **state)
{
    (void)state;
    struct session s;
    struct result r;
    struct ended ended;
    pid_t pid = 0;
    assert_int_equal(session_start(&fx, &s, "stop", NULL), 0);
    session_sh(&s, "setsid sh -c 'setsid sleep 3000 >/dev/null 2>&1 & echo $!'", &r);
    pid_t daemon = (pid_t)strtol(r.out, NULL, 10);
    assert_true(daemon > 1 && alive(&daemon));
    const char *argv[] = {"sleep", "3000", NULL};
    assert_int_equal(session_spawn(&s, BOX_USER_UID, argv, "/", &pid), 0);
    box_stop(s.box);
    assert_true(session_wait(&s, pid, &ended));
    assert_true(gone(&daemon));
    assert_true(gone(&pid));
    assert_int_equal(layers_session_drop(fx.layers, "stop"), 0);
}

/* So does the emulator's sudden death. */
static void test_kill9(void **state)
{
    (void)state;
    int p[2];
    pid_t pids[2] = {0, 0};
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid_t emulator = fork();
    if (emulator == 0) {
        static struct fixture f;
        static struct session s;
        struct result r;
        const char *argv[] = {"sleep", "3000", NULL};
        if (!fixture_open(&f, true) || session_start(&f, &s, "victim", NULL) != 0 ||
            session_spawn(&s, BOX_USER_UID, argv, "/", &pids[0]) != 0)
            _exit(1);
        session_sh(&s, "setsid sh -c 'setsid sleep 3000 >/dev/null 2>&1 & echo $!'", &r);
        pids[1] = (pid_t)strtol(r.out, NULL, 10);
        (void)!write(p[1], pids, sizeof pids);
        (void)!write(p[1], f.state, sizeof f.state);
        for (;;)
            pause();
    }
    close(p[1]);
    char dir[256] = "";
    assert_int_equal(read(p[0], pids, sizeof pids), sizeof pids);
    assert_int_equal(read(p[0], dir, sizeof dir), sizeof dir);
    close(p[0]);
    assert_true(alive(&pids[0]) && alive(&pids[1]));
    kill(emulator, SIGKILL);
    waitpid(emulator, NULL, 0);
    assert_true(eventually(gone, &pids[0]));
    assert_true(eventually(gone, &pids[1]));
    char line[300];
    snprintf(line, sizeof line, "rm -rf '%s'", dir);
    assert_int_equal(system(line), 0);
}

static void test_snapshot(void **state)
{
    (void)state;
    struct session s;
    uint64_t size = 0;
    assert_int_equal(session_start(&fx, &s, "a", NULL), 0);
    sh(&s, "mkdir -p d/e; echo one > d/e/f; ln -s d l; chmod 751 d; echo g > g", "");
    session_stop(&s);
    assert_int_equal(layers_seal(fx.layers, "a", "snap1", &size), 0);
    assert_int_equal(size, 6);
    const char *one[] = {"snap1", NULL};
    assert_int_equal(session_start(&fx, &s, "b", one), 0);
    sh(&s, "cat l/e/f; stat -c %a d; rm g; echo two > d/e/f", "one\n751\n");
    session_stop(&s);
    assert_int_equal(layers_seal(fx.layers, "b", "snap2", &size), 0);
    const char *two[] = {"snap2", "snap1", NULL};
    assert_int_equal(session_start(&fx, &s, "c", two), 0);
    sh(&s, "ls; cat d/e/f", "d\nl\ntwo\n");
    session_stop(&s);
    assert_int_equal(layers_session_drop(fx.layers, "c"), 0);
    assert_int_equal(layers_remove(fx.layers, "snap1"), 0);
    assert_int_equal(layers_remove(fx.layers, "snap2"), 0);
}

int main(void)
{
    if (!fixture_become("single-id"))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs), cmocka_unit_test(test_files),    cmocka_unit_test(test_stop),
        cmocka_unit_test(test_kill9),    cmocka_unit_test(test_snapshot),
    };
    return cmocka_run_group_tests_name("emulator/plain", tests, open_all, close_all);
}
