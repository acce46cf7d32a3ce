/* Boxes against the real kernel: programs, files, network, hostile archives, and what is left behind. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "box_fixture.h"
#include "emulator/box_host.h"

#include <arpa/inet.h>
#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <poll.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct fixture fx;
static struct session box;

static int open_all(void **state)
{
    (void)state;
    return fixture_open(&fx, false) && session_start(&fx, &box, "main", NULL) == 0 ? 0 : -1;
}

static int close_all(void **state)
{
    (void)state;
    session_stop(&box);
    fixture_close(&fx);
    return 0;
}

#define assert_sh(line, want)                                                                                \
    do {                                                                                                     \
        struct result r_;                                                                                    \
        session_sh(&box, line, &r_);                                                                         \
        assert_int_equal(r_.error, 0);                                                                       \
        assert_string_equal(r_.out, want);                                                                   \
    } while (0)

/* C7: the exit status is the program's own. */
static void test_exit_status(void **state)
{
    (void)state;
    struct result r;
    session_sh(&box, "exit 42", &r);
    assert_int_equal(r.error, 0);
    assert_true(WIFEXITED(r.status));
    assert_int_equal(WEXITSTATUS(r.status), 42);
    session_sh(&box, "kill -TERM $$", &r);
    assert_true(WIFSIGNALED(r.status));
    assert_int_equal(WTERMSIG(r.status), SIGTERM);
}

static void test_streams(void **state)
{
    (void)state;
    struct result r;
    const char *argv[] = {"cat", NULL};
    session_run(&box, BOX_USER_UID, argv, "hello\n", &r);
    assert_string_equal(r.out, "hello\n");
    assert_int_equal(r.status, 0);
}

static int try_exec(const char *program, const char *cwd)
{
    const char *argv[] = {program, NULL};
    pid_t pid = 0;
    int e = session_spawn(&box, BOX_USER_UID, argv, cwd, &pid);
    struct ended ended;
    if (e == 0)
        session_wait(&box, pid, &ended);
    return e;
}

/* A program that cannot be executed is an error of the start, not an exit status. */
static void test_exec_failures(void **state)
{
    (void)state;
    assert_int_equal(try_exec("no-such-program", "/tmp"), ENOENT);
    assert_int_equal(try_exec("/no/such/program", "/tmp"), ENOENT);
    assert_int_equal(try_exec("/etc/passwd", "/tmp"), EACCES);
    assert_int_equal(try_exec("/etc", "/tmp"), EACCES);
    assert_int_equal(try_exec("true", "/no/such/dir"), ENOENT);
    assert_int_equal(try_exec("true", "/etc/passwd"), ENOTDIR);
    assert_sh("printf 'echo hi\\n' > /tmp/bare && chmod +x /tmp/bare", "");
    assert_int_equal(try_exec("/tmp/bare", "/tmp"), ENOEXEC);
    assert_int_equal(try_exec("./bare", "/tmp"), ENOEXEC);
    assert_int_equal(try_exec("true", "/tmp"), 0);
}

/* The sandbox user and passwordless sudo, as on the real service. */
static void test_user(void **state)
{
    (void)state;
    enum box_tier tier = box_host_tier(fx.host);
    if (tier == BOX_TIER_SINGLE_ID) { /* one id: everyone is root there, and sudo is refused */
        assert_sh("id -u", "0\n");
        return;
    }
    assert_sh("whoami; id -u; id -g; pwd", "vercel-sandbox\n1000\n1000\n/vercel/sandbox\n");
    assert_sh("sudo id -u", "0\n");
    assert_sh("sudo -u vercel-sandbox id -u", "1000\n");
    assert_sh("FOO=bar PATH=/opt/x:$PATH sudo env | grep -c '^PATH=/opt/x:'", "1\n");
    assert_sh("sudo sh -c 'echo $HOME'", "/root\n");
    assert_sh("stat -c '%u %a' /vercel/sandbox /home/vercel-sandbox /tmp", "1000 755\n1000 755\n0 1777\n");
    assert_sh("touch /etc/x 2>/dev/null || echo refused", "refused\n");
    struct result r;
    const char *argv[] = {"id", "-u", NULL};
    session_run(&box, 0, argv, NULL, &r);
    assert_string_equal(r.out, "0\n");
}

static void test_surroundings(void **state)
{
    (void)state;
    assert_sh("hostname; cat /etc/hostname", "testbox\ntestbox\n");
    assert_sh("umask; nproc", "0022\n1\n");
    assert_sh("ulimit -n >/dev/null && ls -A /proc/self/fd | tr '\\n' ' '", "0 1 2 3 ");
    assert_sh(
        "head -c4 /dev/zero | wc -c; echo x > /dev/null; test -c /dev/tty && test -c /dev/ptmx && echo ok",
        "4\nok\n");
    assert_sh("grep -c ^SigBlk:.0000000000000000 /proc/self/status", "1\n");
    assert_sh("grep -E '^(SigIgn|NoNewPrivs)' /proc/self/status | tr -d '\\t '",
              "SigIgn:0000000000000000\nNoNewPrivs:0\n");
    assert_sh("ps -o pid= -p 1 | tr -d ' '", "1\n");
}

/* Root inside is nobody outside, and may not look at PID 1. */
static void test_confinement(void **state)
{
    (void)state;
    struct result r;
    const char *look[] = {
        "sh", "-c",
        "cat /proc/1/environ; ls /proc/1/fd; kill -9 1; echo alive; "
        "mount -t tmpfs none /mnt; mknod /tmp/sda b 8 0; echo x > /proc/sys/kernel/hostname",
        NULL};
    session_run(&box, 0, look, NULL, &r);
    assert_non_null(strstr(r.out, "alive"));
    assert_non_null(strstr(r.out, "/proc/1/environ: Permission denied"));
    assert_non_null(strstr(r.out, "'/proc/1/fd': Permission denied"));
    assert_non_null(strstr(r.out, "mount: "));
    assert_non_null(strstr(r.out, "mknod: "));
    assert_non_null(strstr(r.out, "cannot create /proc/sys/kernel/hostname"));
    session_sh(&box, "python3 -c 'import socket; socket.socket(40, socket.SOCK_STREAM)'", &r);
    assert_non_null(strstr(r.out, "Errno 97")); /* AF_VSOCK is not namespaced */
}

static bool pid_gone(void *arg)
{
    struct result r;
    char line[64];
    snprintf(line, sizeof line, "kill -0 %s", (const char *)arg);
    session_sh(&box, line, &r);
    return r.status != 0;
}

/* A13, P23: a kill reaches the whole process group. */
static void test_kill_group(void **state)
{
    (void)state;
    const char *argv[] = {"sh", "-c", "sleep 1000 & echo $! > /tmp/child; wait", NULL};
    pid_t pid = 0;
    struct ended ended;
    struct result r = {0};
    assert_int_equal(session_spawn(&box, BOX_USER_UID, argv, "/tmp", &pid), 0);
    for (int i = 0; i < 500 && r.out[0] == '\0'; i++)
        session_sh(&box, "cat /tmp/child 2>/dev/null", &r);
    r.out[strcspn(r.out, "\n")] = '\0';
    assert_int_equal(box_kill(box.box, pid, SIGTERM), 0);
    assert_true(session_wait(&box, pid, &ended));
    assert_true(WIFSIGNALED(ended.status));
    assert_int_equal(WTERMSIG(ended.status), SIGTERM);
    assert_true(eventually(pid_gone, r.out));
    assert_int_equal(box_kill(box.box, pid, SIGTERM), ESRCH);
    assert_int_equal(box_kill(box.box, 1, SIGKILL), ESRCH);
    assert_int_equal(box_kill(box.box, -1, SIGKILL), ESRCH);
}

/* Orphans are reaped by the agent; their parent's status is its own. */
static void test_orphans(void **state)
{
    (void)state;
    assert_sh("(setsid sh -c 'sleep 0.05' >/dev/null 2>&1 &); echo done", "done\n");
    assert_sh("for i in $(seq 100); do ps -eo stat= | grep -q '^Z' || break; sleep 0.02; done; ps -eo stat= "
              "| grep -c '^Z'",
              "0\n");
}

/* Big arguments and environments pass whole. */
static void test_large_arguments(void **state)
{
    (void)state;
    enum { BIG = 120000 };
    char *big = malloc(BIG + 1);
    assert_non_null(big);
    memset(big, 'a', BIG);
    big[BIG] = '\0';
    const char *argv[] = {"sh", "-c", "printf %s \"$0$1$2$3\" | wc -c", big, big, big, big, NULL};
    struct result r;
    session_run(&box, BOX_USER_UID, argv, NULL, &r);
    assert_string_equal(r.out, "480000\n");
    free(big);
}

struct burst {
    pthread_t thread;
    int failures;
};

static void *burst_main(void *arg)
{
    struct burst *b = arg;
    for (int i = 0; i < 20; i++) {
        struct result r;
        session_sh(&box, "echo $((6*7))", &r);
        b->failures += r.error != 0 || r.status != 0 || strcmp(r.out, "42\n") != 0;
    }
    return NULL;
}

struct slow {
    pthread_t thread;
    int fd, error;
};

static void *slow_main(void *arg)
{
    struct slow *s = arg;
    char err[BOX_TEXT];
    s->error = box_untar(box.box, "/tmp", s->fd, err);
    return NULL;
}

/* Many requests at once, none of them delayed by a slow one. */
static void test_in_flight(void **state)
{
    (void)state;
    struct burst b[6];
    struct slow slow = {.error = 0};
    int p[2];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    slow.fd = p[0];
    assert_int_equal(pthread_create(&slow.thread, NULL, slow_main, &slow), 0);
    memset(b, 0, sizeof b);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(pthread_create(&b[i].thread, NULL, burst_main, &b[i]), 0);
    int failures = 0;
    for (size_t i = 0; i < 6; i++) {
        pthread_join(b[i].thread, NULL);
        failures += b[i].failures;
    }
    assert_int_equal(failures, 0);
    assert_int_equal(write(p[1], "no tar", 6), 6); /* the reader is still there */
    close(p[1]);
    pthread_join(slow.thread, NULL);
    assert_int_not_equal(slow.error, 0);
}

static void test_cpu(void **state)
{
    (void)state;
    struct result r;
    uint64_t before = box_cpu_us(box.box);
    session_sh(&box, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done", &r);
    assert_int_equal(r.status, 0);
    assert_true(box_cpu_us(box.box) > before + 20000);
}

/* Reads from port 3000 inside, on a socket from inside. */
static bool greeted(void *arg)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons(3000)};
    char *got = arg;
    int in = -1;
    assert_int_equal(box_socket(box.box, &in), 0);
    struct pollfd p = {.fd = in, .events = POLLIN};
    if ((connect(in, (struct sockaddr *)&a, sizeof a) == 0 || errno == EINPROGRESS) && poll(&p, 1, 1000) == 1)
        (void)!recv(in, got, 2, 0);
    close(in);
    return got[0] != '\0';
}

/* No link leads out: only lo, no route, and the host's loopback is another one. */
static void test_network(void **state)
{
    (void)state;
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(s, 4), 0);
    assert_int_equal(getsockname(s, (struct sockaddr *)&a, &n), 0);
    char line[256];
    snprintf(line, sizeof line,
             "python3 -c 'import socket; s=socket.socket(); print(s.connect_ex((\"127.0.0.1\",%d)), "
             "s.connect_ex((\"192.0.2.1\",80)))'",
             ntohs(a.sin_port));
    assert_sh(line, "111 101\n"); /* ECONNREFUSED, ENETUNREACH */
    assert_sh("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; wc -l < /proc/net/route", "lo\n1\n");
    /* … while a socket from inside reaches a server inside. */
    const char *argv[] = {
        "python3", "-c",
        "import socket; s=socket.create_server((\"127.0.0.1\",3000)); c=s.accept()[0]; c.sendall(b'in')",
        NULL};
    pid_t pid = 0;
    struct ended ended;
    assert_int_equal(session_spawn(&box, BOX_USER_UID, argv, "/", &pid), 0);
    char got[3] = "";
    assert_true(eventually(greeted, got));
    assert_string_equal(got, "in");
    assert_true(session_wait(&box, pid, &ended));
    close(s);
}

static int read_at(const char *cwd, const char *path, char *out, size_t cap)
{
    int fd = -1;
    int e = box_open_read(box.box, cwd, path, &fd);
    if (e != 0)
        return e;
    assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    ssize_t n = read(fd, out, cap - 1);
    out[n > 0 ? n : 0] = '\0';
    close(fd);
    return 0;
}

/* Reading files as the sandbox user; links stay inside. */
static void test_open(void **state)
{
    (void)state;
    char text[256];
    bool single = box_host_tier(fx.host) == BOX_TIER_SINGLE_ID;
    assert_sh(
        "cd /tmp && echo body > f && mkfifo pipe && ln -s /../../../../etc/hostname up && ln -s loop loop",
        "");
    assert_int_equal(read_at("/tmp", "f", text, sizeof text), 0);
    assert_string_equal(text, "body\n");
    assert_int_equal(read_at("/", "/tmp/f", text, sizeof text), 0);
    assert_int_equal(read_at("/tmp", "up", text, sizeof text), 0);
    assert_string_equal(text, "testbox\n");
    assert_int_equal(read_at("/tmp", "none", text, sizeof text), ENOENT);
    assert_int_equal(read_at("/none", "f", text, sizeof text), ENOENT);
    assert_int_equal(read_at("/tmp", "loop", text, sizeof text), ELOOP);
    assert_int_equal(read_at("/", "tmp", text, sizeof text), EISDIR);
    assert_int_equal(read_at("/", "/dev/zero", text, sizeof text), EINVAL);
    assert_int_equal(read_at("/tmp", "pipe", text, sizeof text), EINVAL);
    assert_int_equal(read_at("/", "/etc/shadow", text, sizeof text), single ? 0 : EACCES);
    assert_int_equal(read_at("/", "/proc/1/root/etc/hostname", text, sizeof text), EACCES);
}

static void test_mkdir(void **state)
{
    (void)state;
    bool single = box_host_tier(fx.host) == BOX_TIER_SINGLE_ID;
    assert_int_equal(box_mkdir(box.box, "/tmp", "a", false), 0);
    assert_int_equal(box_mkdir(box.box, "/tmp", "a", false), EEXIST);
    assert_int_equal(box_mkdir(box.box, "/tmp", "a", true), 0);
    assert_int_equal(box_mkdir(box.box, "/tmp", "b/c", false), ENOENT);
    assert_int_equal(box_mkdir(box.box, "/tmp", "b//c/d/", true), 0);
    assert_int_equal(box_mkdir(box.box, "/", "/etc/passwd/x", true), ENOTDIR);
    if (!single) {
        assert_int_equal(box_mkdir(box.box, "/", "/etc/x", true), EACCES);
        assert_sh("stat -c '%U %a' /tmp/b/c/d", "vercel-sandbox 755\n");
    }
}

/* --- archives --- */

struct tar {
    struct archive *a;
    int fd;
};

static void tar_open(struct tar *t, bool gzip)
{
    t->fd = (int)fileno(tmpfile());
    t->a = archive_write_new();
    if (gzip)
        archive_write_add_filter_gzip(t->a);
    archive_write_set_format_pax_restricted(t->a);
    assert_int_equal(archive_write_open_fd(t->a, t->fd), ARCHIVE_OK);
}

static void tar_add(struct tar *t, const char *name, unsigned type, const char *link, const char *body)
{
    struct archive_entry *e = archive_entry_new();
    archive_entry_set_pathname(e, name);
    archive_entry_set_perm(e, type == AE_IFDIR ? 0755 : 0640);
    archive_entry_set_uid(e, 0);
    archive_entry_set_gid(e, 0);
    if (type == 0)
        archive_entry_set_hardlink(e, link);
    else
        archive_entry_set_filetype(e, type);
    if (type == AE_IFLNK)
        archive_entry_set_symlink(e, link);
    if (type == AE_IFCHR)
        archive_entry_set_rdev(e, 0x103);
    archive_entry_set_size(e, body != NULL ? (la_int64_t)strlen(body) : 0);
    assert_int_equal(archive_write_header(t->a, e), ARCHIVE_OK);
    if (body != NULL)
        assert_int_equal(archive_write_data(t->a, body, strlen(body)), strlen(body));
    archive_entry_free(e);
}

static int tar_unpack(struct tar *t, const char *cwd)
{
    char err[BOX_TEXT];
    archive_write_close(t->a);
    archive_write_free(t->a);
    int fd = dup(t->fd);
    lseek(fd, 0, SEEK_SET);
    int e = box_untar(box.box, cwd, fd, err);
    assert_true((e != 0) == (err[0] != '\0'));
    return e;
}

/* A good archive, with names as the service's clients send them. */
static void test_untar(void **state)
{
    (void)state;
    struct tar t;
    tar_open(&t, true);
    tar_add(&t, "vercel/sandbox/a/b.txt", AE_IFREG, NULL, "one");
    tar_add(&t, "/vercel/sandbox/a/c.txt", AE_IFREG, NULL, "two");
    tar_add(&t, "vercel/", AE_IFDIR, NULL, NULL);
    tar_add(&t, "vercel/sandbox/l", AE_IFLNK, "/nowhere", NULL);
    tar_add(&t, "vercel/sandbox/h", 0, "vercel/sandbox/a/b.txt", NULL);
    tar_add(&t, "vercel/sandbox/\xc3\xbc", AE_IFREG, NULL, "umlaut");
    assert_int_equal(tar_unpack(&t, "/"), 0);
    assert_sh("cat a/b.txt a/c.txt h; readlink l; cat \xc3\xbc; stat -c ' %u %a' a/b.txt",
              box_host_tier(fx.host) == BOX_TIER_SINGLE_ID ? "onetwoone/nowhere\numlaut 0 640\n"
                                                           : "onetwoone/nowhere\numlaut 1000 640\n");
    tar_open(&t, false);
    tar_add(&t, "a/b.txt", AE_IFREG, NULL, "again");
    assert_int_equal(tar_unpack(&t, "/vercel/sandbox"), 0);
    assert_sh("cat a/b.txt h", "againone"); /* replaced, not written through */
}

/* P34: hostile archives are refused, and nothing appears where they pointed. */
static void test_hostile_archives(void **state)
{
    (void)state;
    struct tar t;
    tar_open(&t, true);
    tar_add(&t, "../outside", AE_IFREG, NULL, "x");
    assert_int_not_equal(tar_unpack(&t, "/vercel/sandbox"), 0);
    tar_open(&t, true);
    tar_add(&t, "d/../../outside", AE_IFREG, NULL, "x");
    assert_int_not_equal(tar_unpack(&t, "/vercel/sandbox"), 0);
    tar_open(&t, true);
    tar_add(&t, "//tmp/outside", AE_IFREG, NULL, "x");
    assert_int_not_equal(tar_unpack(&t, "/vercel/sandbox"), 0);
    tar_open(&t, true);
    tar_add(&t, "sneak", AE_IFLNK, "/tmp", NULL);
    tar_add(&t, "sneak/outside", AE_IFREG, NULL, "x");
    assert_int_not_equal(tar_unpack(&t, "/vercel/sandbox"), 0);
    tar_open(&t, true);
    tar_add(&t, "hard", 0, "../../etc/passwd", NULL);
    assert_int_not_equal(tar_unpack(&t, "/vercel/sandbox"), 0);
    tar_open(&t, true);
    tar_add(&t, "hard2", 0, "sneak/f", NULL);
    assert_int_not_equal(tar_unpack(&t, "/vercel/sandbox"), 0);
    tar_open(&t, true);
    tar_add(&t, "device", AE_IFCHR, NULL, NULL);
    assert_int_not_equal(tar_unpack(&t, "/vercel/sandbox"), 0);
    tar_open(&t, true);
    tar_add(&t, "fifo", AE_IFIFO, NULL, NULL);
    assert_int_not_equal(tar_unpack(&t, "/vercel/sandbox"), 0);
    assert_sh(
        "ls /tmp/outside /vercel/outside /outside ../outside hard hard2 device fifo 2>/dev/null | wc -l",
        "0\n");
    assert_int_not_equal(access("/tmp/outside", F_OK), 0);
}

/* P34: a hard link to a symbolic link is one of its own, and what that leads to keeps its mode. */
static void test_hardlink_to_symlink(void **state)
{
    (void)state;
    struct tar t;
    assert_sh("echo v > /tmp/victim && chmod 600 /tmp/victim && ln -s /tmp/victim there", "");
    tar_open(&t, true);
    tar_add(&t, "first", AE_IFLNK, "/tmp/victim", NULL);
    tar_add(&t, "second", 0, "first", NULL);
    tar_add(&t, "third", 0, "there", NULL);
    assert_int_equal(tar_unpack(&t, "/vercel/sandbox"), 0);
    assert_sh("stat -c %a /tmp/victim; readlink second third; rm /tmp/victim first second third there",
              "600\n/tmp/victim\n/tmp/victim\n");
}

static void test_broken_archives(void **state)
{
    (void)state;
    char err[BOX_TEXT];
    int p[2];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_int_equal(write(p[1], "this is no archive", 18), 18);
    close(p[1]);
    assert_int_not_equal(box_untar(box.box, "/tmp", p[0], err), 0);
    assert_int_equal(fcntl(p[0], F_GETFD), -1); /* consumed */
    struct tar t;
    tar_open(&t, false);
    tar_add(&t, "cut", AE_IFREG, NULL, "0123456789");
    archive_write_close(t.a);
    archive_write_free(t.a);
    assert_int_equal(ftruncate(t.fd, 515), 0);
    int fd = dup(t.fd);
    lseek(fd, 0, SEEK_SET);
    assert_int_not_equal(box_untar(box.box, "/tmp", fd, err), 0);
    tar_open(&t, true);
    tar_add(&t, "f", AE_IFREG, NULL, "x");
    assert_int_equal(tar_unpack(&t, "/no/such/place"), ENOENT);
    if (box_host_tier(fx.host) != BOX_TIER_SINGLE_ID) {
        tar_open(&t, true);
        tar_add(&t, "f", AE_IFREG, NULL, "x");
        assert_int_equal(tar_unpack(&t, "/etc"), EACCES);
    }
}

/* --- ends --- */

/* A number of seconds that only this run of the tests sleeps. */
static const char *mark(void)
{
    static char text[24];
    if (text[0] == '\0')
        snprintf(text, sizeof text, "27%08ld", (long)getpid());
    return text;
}

/* Whether any process of this host is "sleep <mark>". */
static bool on_host(void)
{
    char want[40];
    int n = snprintf(want, sizeof want, "sleep %s", mark());
    want[5] = '\0'; /* as in /proc */
    DIR *d = opendir("/proc");
    bool found = false;
    for (const struct dirent *e; d != NULL && !found && (e = readdir(d)) != NULL;) {
        char path[300];
        char have[64] = "";
        snprintf(path, sizeof path, "/proc/%s/cmdline", e->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        found = read(fd, have, sizeof have) == n + 1 && memcmp(have, want, (size_t)n + 1) == 0;
        close(fd);
    }
    if (d != NULL)
        closedir(d);
    return found;
}

static bool daemon_up(void *arg)
{
    struct result r;
    session_sh(arg, "pgrep -x sleep >/dev/null", &r);
    return r.status == 0;
}

/* A13: stopping takes everything along, also what left its session, and every end is told once. */
static void test_stop(void **state)
{
    (void)state;
    struct session s;
    struct ended ended;
    pid_t pid = 0;
    assert_int_equal(session_start(&fx, &s, "stopped", NULL), 0);
    char line[128];
    snprintf(line, sizeof line, "setsid setsid sleep %s & exec sleep %s", mark(), mark());
    const char *daemon[] = {"sh", "-c", line, NULL};
    assert_int_equal(session_spawn(&s, BOX_USER_UID, daemon, "/", &pid), 0);
    assert_true(eventually(daemon_up, &s));
    assert_true(on_host());
    box_stop(s.box);
    assert_int_equal(s.n_ended > 0 && s.ended[s.n_ended - 1].pid == pid, 1);
    assert_true(session_wait(&s, pid, &ended));
    assert_true(WIFSIGNALED(ended.status));
    assert_false(on_host());
    assert_int_equal(layers_session_drop(fx.layers, "stopped"), 0);
}

static bool no_more_mounts(void *arg)
{
    char pid[24];
    snprintf(pid, sizeof pid, "%ld", (long)fx.host->spawner_pid);
    return count_mounts("self") == ((const size_t *)arg)[0] && count_mounts(pid) == ((const size_t *)arg)[1];
}

static void test_no_leaks(void **state)
{
    (void)state;
    char spawner[24];
    snprintf(spawner, sizeof spawner, "%ld", (long)fx.host->spawner_pid);
    size_t mounts[2] = {count_mounts("self"), count_mounts(spawner)};
    size_t fds = count_fds("self");
    size_t spawner_fds = count_fds(spawner);
    assert_true(spawner_fds > 0);
    for (int i = 0; i < 50; i++) {
        struct session s;
        struct result r;
        char id[32];
        snprintf(id, sizeof id, "leak%d", i);
        assert_int_equal(session_start(&fx, &s, id, NULL), 0);
        session_sh(&s, "echo x > f", &r);
        assert_int_equal(r.status, 0);
        session_stop(&s);
        assert_int_equal(layers_session_drop(fx.layers, id), 0);
    }
    assert_int_equal(count_fds("self"), fds);
    assert_true(eventually(no_more_mounts, mounts));
    assert_int_equal(count_fds(spawner), spawner_fds);
}

/* The emulator dies without a word: nothing of it stays. */
struct victim {
    pid_t emulator;
    char spawner[24];
};

/* A zombie that nobody reaps yet has ended. */
static bool runs(const char *pid)
{
    char path[64];
    char state = 'Z';
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;
    bool read = fscanf(f, "%*d (%*[^)]) %c", &state) == 1;
    fclose(f);
    return read && state != 'Z' && state != 'X';
}

static bool all_gone(void *arg)
{
    const struct victim *v = arg;
    return !runs(v->spawner) && !on_host();
}

static void victim_main(int out)
{
    static struct fixture f;
    static struct session s;
    pid_t pid = 0;
    char line[64];
    char script[128];
    snprintf(script, sizeof script, "setsid sleep %s & exec sleep %s", mark(), mark());
    const char *argv[] = {"sh", "-c", script, NULL};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!fixture_open(&f, false) || session_start(&f, &s, "victim", NULL) != 0 ||
        session_spawn(&s, BOX_USER_UID, argv, "/", &pid) != 0 || !eventually(daemon_up, &s))
        _exit(1);
    int n = snprintf(line, sizeof line, "%ld %s\n", (long)f.host->spawner_pid, f.state);
    (void)!write(out, line, (size_t)n);
    for (;;)
        pause();
}

static void test_kill9(void **state)
{
    (void)state;
    int p[2];
    char dir[200] = "";
    struct victim v = {0};
    char line[256] = "";
    size_t mounts = count_mounts("self");
    (void)mark(); /* the same in the child */
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    v.emulator = fork();
    if (v.emulator == 0) {
        close(p[0]);
        victim_main(p[1]);
    }
    close(p[1]);
    ssize_t n = read(p[0], line, sizeof line - 1);
    assert_true(n > 0);
    assert_int_equal(sscanf(line, "%23s %199s", v.spawner, dir), 2);
    assert_true(on_host());
    kill(v.emulator, SIGKILL);
    waitpid(v.emulator, NULL, 0);
    assert_true(eventually(all_gone, &v));
    assert_int_equal(count_mounts("self"), mounts);
    close(p[0]);
    /* No mount holds the directory: it can be removed and used again at once. */
    struct layers *l = NULL;
    char err[BOX_TEXT];
    assert_int_equal(layers_open(dir, fx.host, &l, err), 0);
    assert_int_equal(layers_session_drop(l, "victim"), 0);
    layers_close(l);
    snprintf(line, sizeof line, "rm -rf '%s'", dir);
    assert_int_equal(system(line), 0);
}

/* Boxes come and go side by side, some while a program is being started in them. */
struct churn {
    pthread_t thread;
    int number, failures;
};

static void *churn_main(void *arg)
{
    struct churn *c = arg;
    for (int i = 0; i < 6; i++) {
        struct session s;
        struct result r;
        pid_t pid = 0;
        char id[32];
        const char *argv[] = {"sleep", "1000", NULL};
        snprintf(id, sizeof id, "churn%d-%d", c->number, i);
        if (session_start(&fx, &s, id, NULL) != 0) {
            c->failures++;
            continue;
        }
        session_sh(&s, "echo hi", &r);
        c->failures += r.error != 0 || strcmp(r.out, "hi\n") != 0;
        c->failures += session_spawn(&s, BOX_USER_UID, argv, "/", &pid) != 0;
        box_stop(s.box);
        struct ended ended;
        c->failures += !session_wait(&s, pid, &ended) || !WIFSIGNALED(ended.status);
        c->failures += layers_session_drop(fx.layers, id) != 0;
    }
    return NULL;
}

static void test_churn(void **state)
{
    (void)state;
    struct churn c[6];
    int failures = 0;
    memset(c, 0, sizeof c);
    for (int i = 0; i < 6; i++) {
        c[i].number = i;
        assert_int_equal(pthread_create(&c[i].thread, NULL, churn_main, &c[i]), 0);
    }
    for (int i = 0; i < 6; i++) {
        pthread_join(c[i].thread, NULL);
        failures += c[i].failures;
    }
    assert_int_equal(failures, 0);
}

/* --- where nothing is permitted --- */

/* As a container's default profile does. */
static bool forbid_namespaces(void)
{
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
    return f != NULL &&
           (box_host_tier(fx.host) != BOX_TIER_FULL || seccomp_attr_set(f, SCMP_FLTATR_CTL_NNP, 0) == 0) &&
           seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) == 0 &&
           seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(unshare), 0) == 0 && seccomp_load(f) == 0;
}

static bool mask_proc(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("/dev/null", "/proc/version", NULL, MS_BIND, NULL) == 0;
}

static void start_fails(bool (*prepare)(void), const char *fix)
{
    int p[2];
    char err[BOX_TEXT] = "";
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct box_host *host = NULL;
        if (!prepare() || box_host_start(false, &host, err) == 0)
            snprintf(err, sizeof err, "it started");
        (void)!write(p[1], err, sizeof err);
        _exit(0);
    }
    close(p[1]);
    assert_int_equal(read(p[0], err, sizeof err), sizeof err);
    close(p[0]);
    waitpid(pid, NULL, 0);
    if (strstr(err, fix) == NULL || strstr(err, "--isolation=none") == NULL)
        fail_msg("'%s' does not name %s", err, fix);
}

static void test_no_permission(void **state)
{
    (void)state;
    /* Root is told what its container lacks, others to become root. */
    start_fails(forbid_namespaces,
                geteuid() == 0 ? "--security-opt seccomp=unconfined --security-opt systempaths=unconfined"
                               : "run as root");
    if (box_host_tier(fx.host) == BOX_TIER_FULL) /* only there may this test mount something */
        start_fails(mask_proc, "--security-opt systempaths=unconfined");
}

/* A dead box answers ESRCH, and its programs' ends are told. */
static void test_dead_box(void **state)
{
    (void)state;
    struct session s;
    struct ended ended;
    pid_t pid = 0;
    const char *argv[] = {"sleep", "1000", NULL};
    assert_int_equal(session_start(&fx, &s, "dead", NULL), 0);
    assert_int_equal(session_spawn(&s, BOX_USER_UID, argv, "/", &pid), 0);
    assert_int_equal(shutdown(s.box->ctl, SHUT_WR), 0); /* as if the emulator had gone */
    assert_true(session_wait(&s, pid, &ended));
    assert_int_equal(session_spawn(&s, BOX_USER_UID, argv, "/", &pid), ESRCH);
    int fd = -1;
    assert_int_equal(box_open_read(s.box, "/", "etc/passwd", &fd), ESRCH);
    session_stop(&s);
    assert_int_equal(layers_session_drop(fx.layers, "dead"), 0);
}

int main(int argc, char **argv)
{
    if (!fixture_become(argc > 1 ? argv[1] : NULL))
        return 1;
    setlocale(LC_CTYPE, "C.UTF-8"); /* for names in archives */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exit_status),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_exec_failures),
        cmocka_unit_test(test_user),
        cmocka_unit_test(test_surroundings),
        cmocka_unit_test(test_confinement),
        cmocka_unit_test(test_kill_group),
        cmocka_unit_test(test_orphans),
        cmocka_unit_test(test_large_arguments),
        cmocka_unit_test(test_in_flight),
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_network),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_mkdir),
        cmocka_unit_test(test_untar),
        cmocka_unit_test(test_hostile_archives),
        cmocka_unit_test(test_hardlink_to_symlink),
        cmocka_unit_test(test_broken_archives),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_no_leaks),
        cmocka_unit_test(test_kill9),
        cmocka_unit_test(test_dead_box),
        cmocka_unit_test(test_churn),
        cmocka_unit_test(test_no_permission),
    };
    return cmocka_run_group_tests_name("emulator/box", tests, open_all, close_all);
}
