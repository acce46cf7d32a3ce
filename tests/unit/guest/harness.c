#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ARGS_MAX = 40, SPAWN_ARGS_MAX = 1000 };

static char base[PATH_MAX - 16];
char root[PATH_MAX], scratch[PATH_MAX];
uid_t guest_uid;

int harness_setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(base, sizeof base, "%s/sgguest-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(base) || chmod(base, 0755))
        return -1;
    snprintf(root, sizeof root, "%s/root", base);
    snprintf(scratch, sizeof scratch, "%s/scratch", base);
    /* Monitors become ours when their starter is gone, so that none stays behind where init reaps nobody. */
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    return mkdir(scratch, 0755) || setenv("SANDGATE_GUEST_ROOT", root, 1);
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *w)
{
    (void)st, (void)flag, (void)w;
    return remove(path);
}

static int end_one(const char *path, const struct stat *st, int flag, struct FTW *w)
{
    (void)st, (void)flag;
    const char *id = strrchr(path, '/') + 1;
    if (w->level != 2 || *id == '.')
        return 0;
    char session[PATH_MAX];
    snprintf(session, sizeof session, "%.*s", (int)(id - 1 - path), path);
    struct answer a = guest("remove", "--session", strrchr(session, '/') + 1, "--id", id, NULL);
    answer_free(&a);
    return 0;
}

static bool no_children(const void *arg)
{
    (void)arg;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        continue;
    return waitpid(-1, NULL, WNOHANG) < 0;
}

int harness_teardown(void **state)
{
    (void)state;
    (void)nftw(root, end_one, 16, FTW_PHYS);
    wait_until(no_children, NULL);
    return nftw(base, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

pid_t guest_spawn(const char *argv0, const char *const *args, int *fd)
{
    char *argv[SPAWN_ARGS_MAX + 3] = {NULL};
    size_t n = 0;
    const char *prefix = argv0 ? NULL : getenv("GUEST_RUNNER"); /* qemu for the arm64 helper */
    if (prefix)
        argv[n++] = (char *)(uintptr_t)prefix;
    argv[n++] = (char *)(uintptr_t)(argv0 ? argv0 : getenv("GUEST_BINARY"));
    assert_non_null(argv[0]);
    for (; *args; args++) {
        assert_true(n < SPAWN_ARGS_MAX + 2);
        argv[n++] = (char *)(uintptr_t)*args;
    }
    int p[2];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(p[1], 1);
        if (guest_uid && (setgid(guest_uid) || setuid(guest_uid)))
            _exit(125);
        execv(argv[0], argv);
        _exit(126);
    }
    close(p[1]);
    *fd = p[0];
    return pid;
}

static void take_data(struct answer *a, const struct sg_wire_line *l)
{
    unsigned s = l->channel == 3 ? 0 : l->channel - 1; /* a terminal has one stream */
    assert_true(s < 2);
    a->terminal |= l->channel == 3;
    if (l->kind == SG_WIRE_GAP) {
        assert_int_equal(l->offset, a->next[s]);
        a->gaps++;
        a->next[s] = a->gap_to[s] = l->to;
        return;
    }
    assert_int_equal(l->offset, a->next[s]);
    unsigned char *more = a->out[s];
    if (a->len[s] + l->len + 1 > a->cap[s]) {
        a->cap[s] = a->cap[s] * 2 + SG_WIRE_LINE_MAX;
        more = realloc(more, a->cap[s]);
    }
    assert_non_null(more);
    memcpy(more + a->len[s], l->data, l->len);
    a->out[s] = more;
    a->len[s] += l->len;
    more[a->len[s]] = '\0';
    a->next[s] += l->len;
}

static bool is_last(enum sg_wire_kind k)
{
    return k == SG_WIRE_EXIT || k == SG_WIRE_MORE || k == SG_WIRE_OK || k == SG_WIRE_ERROR;
}

static void take_line(struct answer *a, const char *line, size_t n)
{
    unsigned char data[SG_WIRE_DATA_MAX];
    struct sg_wire_line l;
    if (!sg_wire_parse(line, n, data, &l))
        fail_msg("malformed line: %.*s", (int)n, line);
    assert_false(a->lines && is_last(a->last.kind));
    if (a->lines++ == 0)
        a->first = l;
    if (l.kind == SG_WIRE_DATA || l.kind == SG_WIRE_GAP)
        take_data(a, &l);
    if (l.kind == SG_WIRE_PROCESS && a->processes < sizeof a->process / sizeof *a->process)
        a->process[a->processes++] = l.process;
    a->last = l;
}

struct answer answer_read(pid_t pid, int fd, const uint64_t from[2])
{
    static char buf[1 << 20];
    size_t have = 0;
    struct answer a = {.next = {from[0], from[1]}};
    for (ssize_t n; (n = read(fd, buf + have, sizeof buf - have)) > 0;) {
        have += (size_t)n;
        char *at = buf;
        for (char *lf; (lf = memchr(at, '\n', have)); at = lf + 1) {
            if (*at != '#')
                take_line(&a, at, (size_t)(lf - at));
            have -= (size_t)(lf + 1 - at);
        }
        memmove(buf, at, have);
        assert_true(have < SG_WIRE_LINE_MAX);
    }
    assert_int_equal(have, 0); /* never half a line */
    close(fd);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    a.rc = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    assert_true(a.rc == 0 || a.rc == 1 || a.rc == 64); /* 99: a sanitizer's word */
    assert_true(a.lines > 0 && is_last(a.last.kind));
    return a;
}

void answer_free(struct answer *a)
{
    free(a->out[0]);
    free(a->out[1]);
    a->out[0] = a->out[1] = NULL;
}

static struct answer guest_v(const uint64_t from[2], const char *first, va_list ap)
{
    const char *args[ARGS_MAX] = {first};
    size_t n = 1;
    while (n < ARGS_MAX - 1 && (args[n] = va_arg(ap, const char *)))
        n++;
    int fd;
    pid_t pid = guest_spawn(NULL, args, &fd);
    return answer_read(pid, fd, from);
}

struct answer guest(const char *first, ...)
{
    va_list ap;
    va_start(ap, first);
    struct answer a = guest_v((uint64_t[2]){0, 0}, first, ap);
    va_end(ap);
    return a;
}

struct answer guest_from(uint64_t out, uint64_t err, const char *first, ...)
{
    va_list ap;
    va_start(ap, first);
    struct answer a = guest_v((uint64_t[2]){out, err}, first, ap);
    va_end(ap);
    return a;
}

struct answer run_sh(const char *id, const char *script)
{
    return guest("run", "--session", "s", "--id", id, "--spec", "h", "--", "/bin/sh", "-c", script, NULL);
}

struct answer start_sh(const char *id, const char *script)
{
    return guest("start", "--session", "s", "--id", id, "--spec", "h", "--", "/bin/sh", "-c", script, NULL);
}

char *path_in(const char *dir, const char *name)
{
    static char ring[64][PATH_MAX];
    static size_t at;
    char *p = ring[at++ % 64];
    int n = snprintf(p, PATH_MAX, "%s/%s", dir, name);
    assert_true(n > 0 && n < PATH_MAX);
    return p;
}

void file_write(const char *path, const void *data, size_t len)
{
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

char *file_text(const char *path)
{
    static char buf[4096];
    FILE *f = fopen(path, "re");
    if (!f)
        return NULL;
    size_t n = fread(buf, 1, sizeof buf - 1, f);
    buf[n] = '\0';
    (void)fclose(f);
    return buf;
}

void wait_until(bool (*done)(const void *arg), const void *arg)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    time_t end = t.tv_sec + 10;
    while (!done(arg)) {
        clock_gettime(CLOCK_MONOTONIC, &t);
        if (t.tv_sec > end)
            fail_msg("waited ten seconds in vain");
        (void)poll(NULL, 0, 5);
    }
}

bool file_has_text(const void *path)
{
    const char *t = file_text(path);
    return t && strchr(t, '\n');
}

bool pid_is_gone(const void *pid)
{
    char path[64], *t;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)*(const pid_t *)pid);
    t = file_text(path);
    return !t || (strrchr(t, ')') && strncmp(strrchr(t, ')'), ") Z", 3) == 0);
}

pid_t pid_from(const char *path)
{
    wait_until(file_has_text, path);
    return (pid_t)strtol(file_text(path), NULL, 10);
}

void state_slot(const char *id, unsigned slot, char text[128])
{
    char name[100];
    snprintf(name, sizeof name, "s/%s/state", id);
    FILE *f = fopen(path_in(root, name), "re");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)slot * 128, SEEK_SET), 0);
    assert_int_equal(fread(text, 1, 128, f), 128);
    (void)fclose(f);
}

void state_write(const char *id, unsigned slot, const char *text)
{
    char name[100];
    snprintf(name, sizeof name, "s/%s/state", id);
    FILE *f = fopen(path_in(root, name), "r+e");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)slot * 128, SEEK_SET), 0);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static void numbers_of(const char *id, unsigned slot, const char *mark, uint64_t *v, size_t n)
{
    char text[128], *at = text + 2;
    state_slot(id, slot, text);
    assert_memory_equal(text, mark, 2);
    for (size_t i = 0; i < n; i++) {
        char *end;
        v[i] = strtoull(at, &end, 10);
        assert_true(end > at);
        at = end;
    }
    assert_int_equal(*at, '\n');
}

void started_numbers(const char *id, uint64_t v[5])
{
    uint64_t program[3];
    numbers_of(id, STATE_STARTED, "S1", program, 3);
    numbers_of(id, STATE_MONITOR, "M1", v + 2, 2);
    v[0] = program[0];
    v[1] = program[1];
    v[4] = program[2];
}

static bool write_map(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return ok;
}

bool small_root(const char *options)
{
    char uid[40], gid[40];
    snprintf(uid, sizeof uid, "0 %u 1", (unsigned)geteuid());
    snprintf(gid, sizeof gid, "0 %u 1", (unsigned)getegid());
    if (geteuid() == 0 ? unshare(CLONE_NEWNS) : unshare(CLONE_NEWNS | CLONE_NEWUSER))
        return false;
    if (geteuid() != 0 && !(write_map("/proc/self/setgroups", "deny") &&
                            write_map("/proc/self/uid_map", uid) && write_map("/proc/self/gid_map", gid)))
        return false;
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           (mkdir(root, 0700) == 0 || errno == EEXIST) && mount("none", root, "tmpfs", 0, options) == 0;
}

/* ---- the monitor's socket ---- */

int ctl_open(const char *id, char what)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char name[100];
    snprintf(name, sizeof name, "s/%s/ctl", id);
    const char *path = path_in(root, name);
    assert_true(strlen(path) < sizeof a.sun_path);
    memcpy(a.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, (struct sockaddr *)&a, sizeof a)) {
        close(fd);
        return -1;
    }
    assert_int_equal(send(fd, &what, 1, MSG_NOSIGNAL), 1);
    return fd;
}

bool ctl_line(int fd, struct sg_wire_line *l)
{
    char line[SG_WIRE_LINE_MAX];
    unsigned char data[SG_WIRE_DATA_MAX];
    size_t n = 0;
    do {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_true(n < sizeof line);
        if (poll(&p, 1, 10000) != 1)
            fail_msg("the monitor says nothing");
        ssize_t got = recv(fd, line + n, 1, 0);
        if (got <= 0) {
            assert_int_equal(n, 0); /* never half a line */
            return false;
        }
    } while (line[n++] != '\n');
    if (!sg_wire_parse(line, n - 1, data, l))
        fail_msg("malformed line: %.*s", (int)n, line);
    return true;
}

static void send_all(int fd, const void *data, size_t n)
{
    for (const char *p = data; n;) {
        ssize_t w = send(fd, p, n, MSG_NOSIGNAL);
        assert_true(w > 0);
        p += w;
        n -= (size_t)w;
    }
}

struct sg_wire_line ctl_say(const char *id, const char *act)
{
    struct sg_wire_line l, more;
    int fd = ctl_open(id, 'A');
    assert_true(fd >= 0);
    send_all(fd, act, strlen(act));
    send_all(fd, "\n", 1);
    assert_true(ctl_line(fd, &l));
    assert_false(ctl_line(fd, &more));
    close(fd);
    return l;
}

void carrier_frame(int fd, struct sg_carrier_frame f)
{
    unsigned char head[SG_CARRIER_HEAD_MAX];
    size_t n = sg_carrier_encode(head, &f);
    assert_true(n > 0);
    send_all(fd, head, n);
}

void carrier_data(int fd, uint64_t offset, const void *data, size_t n)
{
    carrier_frame(fd,
                  (struct sg_carrier_frame){.kind = SG_CARRIER_DATA, .offset = offset, .len = (uint32_t)n});
    send_all(fd, data, n);
}

struct sg_wire_line carrier_accepted(int fd, uint64_t accepted)
{
    struct sg_wire_line l;
    do {
        assert_true(ctl_line(fd, &l));
        assert_int_equal(l.kind, SG_WIRE_ACCEPTED);
    } while (l.accepted < accepted);
    assert_int_equal(l.accepted, accepted);
    return l;
}

void assert_error(const struct answer *a, enum sg_wire_fail f, const char *errno_name)
{
    assert_int_equal(a->last.kind, SG_WIRE_ERROR);
    assert_string_equal(sg_wire_fail_name(a->last.fail), sg_wire_fail_name(f));
    assert_string_equal(a->last.errno_name, errno_name);
    assert_int_equal(a->rc, f == SG_WF_USAGE ? 64 : 1);
}

void assert_text(const struct answer *a, int stream, const char *text)
{
    assert_int_equal(a->len[stream], strlen(text));
    if (*text)
        assert_memory_equal(a->out[stream], text, strlen(text));
}
