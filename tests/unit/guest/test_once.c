/* Exactly one start per id, whatever is lost, repeated or tampered with: U3, A13. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* U3 */
static void twenty_starts_run_once(void **state)
{
    (void)state;
    enum { N = 20 };
    char script[PATH_MAX + 50];
    char *file = path_in(scratch, "ran");
    snprintf(script, sizeof script, "echo ran >>%s; echo out", file);
    const char *const args[] = {"run", "--session", "s",       "--id", "once", "--spec",
                                "h",   "--",        "/bin/sh", "-c",   script, NULL};
    pid_t pids[N];
    int fds[N];
    for (int i = 0; i < N; i++)
        pids[i] = guest_spawn(NULL, args, &fds[i]);
    for (int i = 0; i < N; i++) {
        struct answer a = answer_read(pids[i], fds[i], (uint64_t[2]){0, 0});
        assert_text(&a, 0, "out\n"); /* everyone sees the one run */
        assert_int_equal(a.last.kind, SG_WIRE_EXIT);
        answer_free(&a);
    }
    assert_string_equal(file_text(file), "ran\n");
    struct answer a =
        guest("start", "--session", "s", "--id", "once", "--spec", "h2", "--", "/bin/true", NULL);
    assert_error(&a, SG_WF_CONFLICT, "");
}

static void settled_id_never_runs(void **state)
{
    (void)state;
    struct answer a = guest("settle", "--session", "s", "--id", "tomb", NULL);
    assert_int_equal(a.first.kind, SG_WIRE_HELLO);
    assert_int_equal(a.first.process.state, SG_PS_NOT_STARTED);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    a = run_sh("tomb", "echo ran");
    assert_error(&a, SG_WF_NOT_STARTED, "");
    a = guest("status", "--session", "s", "--id", "tomb", NULL);
    assert_int_equal(a.process[0].state, SG_PS_NOT_STARTED);
    a = run_sh("ran", "exit 4");
    a = guest("settle", "--session", "s", "--id", "ran", NULL);
    assert_int_equal(a.first.process.state, SG_PS_FINISHED);
}

/* A late start and the settling of it: exactly one of them wins, and both say the same. */
static void settle_races_a_late_run(void **state)
{
    (void)state;
    int ran = 0, settled = 0;
    for (int i = 0; i < 40; i++) {
        char id[16], script[PATH_MAX + 50];
        snprintf(id, sizeof id, "race%d", i);
        char *file = path_in(scratch, id);
        snprintf(script, sizeof script, "echo ran >>%s", file);
        const char *const run[] = {"run", "--session", "s",       "--id", id,     "--spec",
                                   "h",   "--",        "/bin/sh", "-c",   script, NULL};
        const char *const settle[] = {"settle", "--session", "s", "--id", id, NULL};
        int fd[2];
        pid_t pid[2];
        pid[i % 2] = guest_spawn(NULL, i % 2 ? settle : run, &fd[i % 2]);
        if (i % 4 > 1)
            (void)poll(NULL, 0, i / 8); /* shifts the two against each other */
        pid[!(i % 2)] = guest_spawn(NULL, i % 2 ? run : settle, &fd[!(i % 2)]);
        struct answer r = answer_read(pid[0], fd[0], (uint64_t[2]){0, 0});
        struct answer s = answer_read(pid[1], fd[1], (uint64_t[2]){0, 0});
        if (r.last.kind == SG_WIRE_EXIT) {
            ran++;
            assert_true(s.first.process.state == SG_PS_RUNNING || s.first.process.state == SG_PS_FINISHED);
            assert_string_equal(file_text(file), "ran\n");
        } else {
            settled++;
            assert_error(&r, SG_WF_NOT_STARTED, "");
            assert_int_equal(s.first.process.state, SG_PS_NOT_STARTED);
            assert_null(file_text(file));
        }
    }
    assert_int_equal(ran + settled, 40);
}

static void removed_id_never_runs_again(void **state)
{
    (void)state;
    struct answer a = start_sh("gone", "echo output; sleep 1000");
    pid_t program = (pid_t)a.first.process.pid;
    a = guest("remove", "--session", "s", "--id", "gone", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    assert_true(pid_is_gone(&program));
    a = start_sh("gone", "echo output; sleep 1000");
    assert_error(&a, SG_WF_NOT_STARTED, "");
    a = guest("follow", "--session", "s", "--id", "gone", NULL);
    assert_error(&a, SG_WF_NO_RECORD, "");
    assert_int_equal(access(path_in(root, "s/gone/state"), F_OK), -1);
    a = guest("remove", "--session", "s", "--id", "absent", NULL);
    assert_error(&a, SG_WF_NO_RECORD, "");
}

/* The starter was killed before anything was executed. */
static void start_cut_short(void **state)
{
    (void)state;
    assert_int_equal(mkdir(path_in(root, "s/cut"), 0700), 0);
    static const char page[1024] = "h\n";
    file_write(path_in(root, "s/cut/state"), page, sizeof page);
    struct answer a = run_sh("cut", "echo ran");
    assert_error(&a, SG_WF_NOT_STARTED, "");
    a = guest("settle", "--session", "s", "--id", "cut", NULL);
    assert_int_equal(a.first.process.state, SG_PS_NOT_STARTED);
}

static void new_session_removes_the_old(void **state)
{
    (void)state;
    struct answer a = guest("run", "--session", "old", "--id", "p", "--spec", "h", "--", "/bin/true", NULL);
    a = guest("start", "--session", "live", "--id", "p", "--spec", "h", "--", "/bin/sleep", "1000", NULL);
    assert_int_equal(access(path_in(root, "s"), F_OK), -1); /* the first of `old` removed it */
    a = guest("run", "--session", "new", "--id", "p", "--spec", "h", "--", "/bin/true", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_EXIT);
    assert_int_equal(access(path_in(root, "old"), F_OK), -1);
    assert_int_equal(access(path_in(root, "live/p/state"), F_OK), 0);
    a = guest("remove", "--session", "live", "--id", "p", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
}

static const char *const victims[] = {"state",
                                      "state+128", /* started */
                                      "state+256", /* the two exits */
                                      "state+512",
                                      "state+768", /* facts */
                                      "state+896", /* monitor */
                                      "tombstone",
                                      "ctl",
                                      "out.00000000000000000000",
                                      "err.99999999999999999999",
                                      "out.09223372036854775807"};

static void tamper_slot(const char *path, const char *plus, const char *text)
{
    char file[PATH_MAX];
    snprintf(file, sizeof file, "%.*s", (int)(plus - path), path);
    int fd = open(file, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, text, strlen(text), strtol(plus + 1, NULL, 10)), strlen(text));
    close(fd);
}

static void tamper(const char *path, unsigned how)
{
    static const char *const texts[] = {
        "",
        "\n",
        "S1 1 1 1\n",
        "S1 99999999999999999999 1 1\n",
        "M1 1 1\n",
        "X exit 0 - 5 9223372036854775807 1\n",
        "X exit 0 - 5 100 2", /* torn */
        "E exec ENOENT text that is free\n",
        "D 1 0 QUJD\n",
        "F 00000000000000000001 00000000000000000002 ol  \n",
        "F 99999999999999999999 99999999999999999999 tolp\n",
    };
    enum { TEXTS = sizeof texts / sizeof *texts };
    const char *plus = strrchr(path, '+');
    if (plus) {
        tamper_slot(path, plus, how < TEXTS ? texts[how] : "\xff\xfe F 1\n");
        return;
    }
    (void)unlink(path);
    if (how < TEXTS)
        file_write(path, texts[how], strlen(texts[how]));
    else if (how == TEXTS)
        assert_int_equal(mkfifo(path, 0600), 0);
    else if (how == TEXTS + 1)
        assert_int_equal(symlink("/etc/passwd", path), 0);
    else if (how == TEXTS + 2)
        assert_int_equal(mkdir(path, 0700), 0);
    else
        file_write(path, "\0\xff\0 99 \n\n", 9);
}

/* The program may spoil its own record, but not crash us, hang us or make us read elsewhere. */
static void tampered_records(void **state)
{
    (void)state;
    unsigned n = 0;
    for (unsigned how = 0; how < 15; how++) {
        for (size_t v = 0; v < sizeof victims / sizeof *victims; v++) {
            char id[16], name[96];
            snprintf(id, sizeof id, "t%u", n++);
            struct answer a = run_sh(id, "echo x");
            answer_free(&a);
            snprintf(name, sizeof name, "s/%s/%s", id, victims[v]);
            tamper(path_in(root, name), how);
            a = guest("follow", "--session", "s", "--id", id, "--wait-ms", "0", "--limit", "100", NULL);
            for (int s = 0; s < 2; s++)
                assert_true(!a.out[s] || !strstr((char *)a.out[s], "root:"));
            answer_free(&a);
            a = guest("status", "--session", "s", "--id", id, NULL);
            a = guest("signal", "--session", "s", "--id", id, "--signal", "9", NULL);
            assert_int_equal(a.last.kind,
                             SG_WIRE_ERROR); /* nothing of it runs, so nothing may be signalled */
            a = guest("settle", "--session", "s", "--id", id, NULL);
            a = guest("remove", "--session", "s", "--id", id, NULL);
        }
    }
    struct answer a = guest("list", "--session", "s", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
}

static void records_that_are_links(void **state)
{
    (void)state;
    assert_int_equal(symlink(scratch, path_in(root, "s/link")), 0);
    struct answer a = run_sh("link", "echo x");
    assert_int_equal(a.last.kind, SG_WIRE_ERROR);
    assert_int_equal(symlink(scratch, path_in(root, "linked")), 0);
    a = guest("run", "--session", "linked", "--id", "x", "--spec", "h", "--", "/bin/true", NULL);
    assert_int_equal(a.last.kind, SG_WIRE_ERROR);
    char other[PATH_MAX + 8];
    snprintf(other, sizeof other, "%s-link", root);
    assert_int_equal(symlink(root, other), 0);
    setenv("SANDGATE_GUEST_ROOT", other, 1);
    a = run_sh("x", "echo x");
    setenv("SANDGATE_GUEST_ROOT", path_in(scratch, "file"), 1);
    file_write(path_in(scratch, "file"), "", 0);
    struct answer b = run_sh("x", "echo x");
    setenv("SANDGATE_GUEST_ROOT", root, 1);
    assert_error(&a, SG_WF_INTERNAL, "ENOTDIR"); /* what O_DIRECTORY | O_NOFOLLOW says to a link */
    assert_error(&b, SG_WF_INTERNAL, "ENOTDIR");
}

/* Root processes under the sandbox user's root directory: the user reads what root recorded. */
static void root_gives_records_to_the_user(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    char own[PATH_MAX];
    snprintf(own, sizeof own, "%s", path_in(scratch, "users-root"));
    assert_int_equal(mkdir(own, 0700), 0);
    assert_int_equal(chown(own, 1000, 1000), 0);
    setenv("SANDGATE_GUEST_ROOT", own, 1);
    struct answer a = run_sh("r", "id -u; head -c 100000 /dev/zero >&2");
    struct answer b = start_sh("k", "exec sleep 1000");
    guest_uid = 1000;
    struct answer c = guest("follow", "--session", "s", "--id", "r", NULL);
    struct answer d = guest("signal", "--session", "s", "--id", "k", "--signal", "9", NULL);
    struct answer e = run_sh("u", "id -u");
    guest_uid = 1001; /* and nobody else does */
    struct answer f = guest("follow", "--session", "s", "--id", "r", NULL);
    guest_uid = 0;
    struct answer g = guest("signal", "--session", "s", "--id", "k", "--signal", "9", NULL);
    struct answer h = guest("remove", "--session", "s", "--id", "k", NULL);
    struct stat st;
    int rc = stat(path_in(own, "s/r/state"), &st);
    setenv("SANDGATE_GUEST_ROOT", root, 1);
    assert_text(&a, 0, "0\n");
    assert_int_equal(b.last.kind, SG_WIRE_OK);
    assert_text(&c, 0, "0\n");
    assert_int_equal(c.len[1], 100000);
    assert_int_equal(c.last.kind, SG_WIRE_EXIT);
    assert_error(&d, SG_WF_INTERNAL, "EPERM"); /* the gateway asks again with sudo */
    assert_text(&e, 0, "1000\n");
    assert_error(&f, SG_WF_INTERNAL, "EACCES");
    assert_int_equal(g.last.kind, SG_WIRE_OK);
    assert_int_equal(h.last.kind, SG_WIRE_OK);
    assert_true(rc == 0 && st.st_uid == 1000);
    answer_free(&a);
    answer_free(&c);
    answer_free(&e);
}

/* And writes to its input; a terminal belongs to whoever the program runs as. */
static void root_programs_are_controlled_by_the_user(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    char own[PATH_MAX];
    snprintf(own, sizeof own, "%s", path_in(scratch, "users-root2"));
    assert_int_equal(mkdir(own, 0700), 0);
    assert_int_equal(chown(own, 1000, 1000), 0);
    setenv("SANDGATE_GUEST_ROOT", own, 1);
    struct answer a = guest("start", "--session", "s", "--id", "in", "--spec", "h", "--input-open", "--",
                            "/bin/sh", "-c", "read x; id -u; echo $x", NULL);
    struct stat st;
    int rc = lstat(path_in(own, "s/in/ctl"), &st);
    guest_uid = 1001;
    struct answer b = guest("write", "--session", "s", "--id", "in", "--offset", "0", "--data", "eA==", NULL);
    guest_uid = 1000;
    struct answer c = guest("write", "--session", "s", "--id", "in", "--offset", "0", "--data", "aGkK", NULL);
    struct answer d = guest("run", "--session", "s", "--id", "tty", "--spec", "h", "--pty", "80x24", "--",
                            "/bin/sh", "-c", "stat -c %u $(tty); stat -L -c %u /proc/self/fd/1", NULL);
    struct answer e = guest("follow", "--session", "s", "--id", "in", NULL);
    guest_uid = 0;
    struct answer f = guest("run", "--session", "s", "--id", "tty0", "--spec", "h", "--pty", "80x24", "--",
                            "/bin/sh", "-c", "stat -c %u $(tty)", NULL);
    setenv("SANDGATE_GUEST_ROOT", root, 1);
    assert_int_equal(a.last.kind, SG_WIRE_OK);
    assert_true(rc == 0 && S_ISSOCK(st.st_mode) && st.st_uid == 1000 && (st.st_mode & 0777) == 0600);
    assert_error(&b, SG_WF_INTERNAL, "EACCES");
    assert_int_equal(c.first.kind, SG_WIRE_ACCEPTED);
    assert_text(&d, 0, "1000\r\n1000\r\n");
    assert_text(&e, 0, "0\nhi\n");
    assert_text(&f, 0, "0\r\n");
    answer_free(&d);
    answer_free(&e);
    answer_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twenty_starts_run_once),
        cmocka_unit_test(settled_id_never_runs),
        cmocka_unit_test(settle_races_a_late_run),
        cmocka_unit_test(removed_id_never_runs_again),
        cmocka_unit_test(start_cut_short),
        cmocka_unit_test(tampered_records),
        cmocka_unit_test(root_gives_records_to_the_user),
        cmocka_unit_test(root_programs_are_controlled_by_the_user),
        cmocka_unit_test(records_that_are_links),
        cmocka_unit_test(new_session_removes_the_old),
    };
    return cmocka_run_group_tests(tests, harness_setup, harness_teardown);
}
