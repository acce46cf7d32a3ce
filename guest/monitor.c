#include "guest/monitor.h"

#include "base/core/signals.h"
#include "guest/libc.h"
#include "guest/segment.h"
#include "guest/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct monitor {
    const struct monitor_spec *spec;
    int dir, exit_fd, signal_fd;
    int bell;    /* -1 once nobody listens */
    int pipe[2]; /* read ends of stdout and stderr; -1 at EOF */
    struct recorder rec[2];
    pid_t program;
    uint64_t begun_ms, deadline_ms; /* 0: none */
    bool timed_out, ended, childless;
    int wait_status;
    struct sg_wire_process p; /* what the exit record says */
};

static unsigned char block[64 * 1024];

static void tell(int status_fd, int err, const char *text)
{
    struct start_status s = {.err = err};
    snprintf(s.text, sizeof s.text, "%s", text);
    ssize_t n = write(status_fd, &s, sizeof s); /* the starter may be gone: the record says it too */
    (void)n;
}

/* ---- the child, between fork and exec ---- */

static bool write_started(const struct monitor_spec *m, int dir, uint64_t monitor_start)
{
    char text[160];
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int n = snprintf(text, sizeof text, "S1 %d %" PRIu64 " %d %" PRIu64 " %" PRIu64 "\n", (int)getpid(),
                     proc_start_time(getpid()), (int)getppid(), monitor_start,
                     (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000);
    return file_put(m->root, dir, "started", text, (size_t)n);
}

static const char *child_prepare(const struct monitor_spec *m, int dir, const int out[2],
                                 uint64_t monitor_start)
{
    if (setsid() < 0)
        return "setsid";
    sg_signals_default();
    if (dup2(out[0], STDOUT_FILENO) < 0 || dup2(out[1], STDERR_FILENO) < 0)
        return "output pipes";
    if (m->cwd && chdir(m->cwd))
        return "working directory";
    if (!write_started(m, dir, monitor_start))
        return "started record";
    umask(022);
    sigset_t none;
    sigemptyset(&none);
    if (sigprocmask(SIG_SETMASK, &none, NULL))
        return "signal mask";
    environ = m->env; /* its PATH is the one that counts */
    libc_exec(m->argv);
    return "program";
}

static _Noreturn void child_run(const struct monitor_spec *m, int dir, const int out[2], int status_fd,
                                uint64_t monitor_start)
{
    const char *what = child_prepare(m, dir, out, monitor_start);
    int err = errno;
    (void)tomb_put(m->root, dir, TOMB_EXEC, err, what);
    unlinkat(dir, "started", 0);
    tell(status_fd, err, what);
    _exit(127);
}

/* ---- recording ---- */

/* A pipe beside the record, because closing an inotify descriptor takes the kernel several milliseconds: too
 * long for the caller of a short command. */
static void ring(struct monitor *m)
{
    if (m->bell < 0 || write(m->bell, "", 1) == 1 || errno == EAGAIN)
        return; /* a full pipe rings enough */
    close(m->bell);
    m->bell = -1;
}

/* Reads what the pipe holds without waiting; `budget` bounds it, because a descendant may write for ever.
 * True when something was recorded. */
static bool drain(struct monitor *m, unsigned s, size_t budget)
{
    bool some = false;
    while (m->pipe[s] >= 0) {
        ssize_t n = read(m->pipe[s], block, sizeof block);
        if (n > 0) {
            recorder_write(&m->rec[s], block, (size_t)n, &m->rec[!s]);
            some = true;
            if ((size_t)n >= budget)
                break;
            budget -= (size_t)n;
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            close(m->pipe[s]);
            m->pipe[s] = -1;
        } else if (errno == EAGAIN) {
            break;
        }
    }
    return some;
}

static void write_exit(struct monitor *m)
{
    struct sg_wire_line l = {.kind = SG_WIRE_EXIT};
    for (unsigned s = 0; s < 2; s++) {
        recorder_seal(&m->rec[s]);
        m->p.end[s] = m->rec[s].end;
        m->p.output_incomplete |= m->rec[s].incomplete;
    }
    m->p.descendants_hold_output = m->pipe[0] >= 0 || m->pipe[1] >= 0;
    l.process = m->p;
    char line[SG_WIRE_LINE_MAX];
    size_t n = sg_wire_format(line, &l);
    if (pwrite(m->exit_fd, line, n, 0) == (ssize_t)n && ftruncate(m->exit_fd, (off_t)n) == 0)
        (void)renameat(m->dir, "exit.new", m->dir, "exit");
    close(m->exit_fd);
    m->exit_fd = -1;
    ring(m);
}

static void on_program_end(struct monitor *m)
{
    m->ended = true;
    m->p.duration_ms = guest_now_ms() - m->begun_ms;
    if (WIFEXITED(m->wait_status)) {
        m->p.how = SG_HOW_EXIT;
        m->p.value = (uint32_t)WEXITSTATUS(m->wait_status);
    } else {
        m->p.how = m->timed_out ? SG_HOW_TIMEOUT : SG_HOW_SIGNAL;
        m->p.value = (uint32_t)WTERMSIG(m->wait_status);
    }
    /* What lies in the pipes now was written before the end; a descendant's later bytes can wait. */
    for (unsigned s = 0; s < 2; s++) {
        int held = 0;
        if (m->pipe[s] >= 0 && ioctl(m->pipe[s], FIONREAD, &held) == 0)
            (void)drain(m, s, (size_t)(held > 0 ? held : 0) + 1);
    }
    if (libc_exists(m->dir, "tombstone"))
        return; /* nothing was executed: the tombstone says why */
    if (!libc_exists(m->dir, "started"))
        return; /* killed before it was executed: the free lock will say "not started" */
    write_exit(m);
}

/* The descendants let go of the output: the exit record says so from now on. */
static void on_output_end(struct monitor *m)
{
    if (!m->ended || !m->p.descendants_hold_output || m->pipe[0] >= 0 || m->pipe[1] >= 0)
        return;
    m->exit_fd = openat(m->dir, "exit.new", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (m->exit_fd < 0)
        return;
    (void)root_own(m->spec->root, m->exit_fd);
    write_exit(m);
}

static void reap(struct monitor *m)
{
    struct signalfd_siginfo si[8];
    while (read(m->signal_fd, si, sizeof si) > 0)
        continue;
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid <= 0) {
            m->childless = pid < 0 && errno == ECHILD;
            return;
        }
        if (pid == m->program && !m->ended) {
            m->wait_status = status;
            on_program_end(m);
        }
    }
}

static int poll_timeout(const struct monitor *m)
{
    if (m->ended || !m->deadline_ms)
        return -1;
    uint64_t now = guest_now_ms();
    uint64_t left = now >= m->deadline_ms ? 0 : m->deadline_ms - now;
    return left > INT32_MAX ? INT32_MAX : (int)left;
}

static void on_deadline(struct monitor *m)
{
    struct tree_result res;
    m->timed_out = true;
    m->deadline_ms = 0;
    if (!tree_signal(getpid(), 0, SIGKILL, &res))
        kill(-m->program, SIGKILL); /* no /proc: at least its own group */
}

static void monitor_loop(struct monitor *m)
{
    while (!(m->ended && m->childless && m->pipe[0] < 0 && m->pipe[1] < 0)) {
        struct pollfd p[3] = {
            {.fd = m->pipe[0], .events = POLLIN},
            {.fd = m->pipe[1], .events = POLLIN},
            {.fd = m->signal_fd, .events = POLLIN},
        };
        int n = poll(p, 3, poll_timeout(m));
        if (n < 0 && errno != EINTR)
            break;
        if (n <= 0) {
            if (!m->ended && m->deadline_ms && guest_now_ms() >= m->deadline_ms)
                on_deadline(m);
            continue;
        }
        bool some = false, had_ended = m->ended;
        for (unsigned s = 0; s < 2; s++)
            if (p[s].revents)
                some |= drain(m, s, sizeof block);
        if (p[2].revents)
            reap(m);
        if (some && m->ended == had_ended) /* an end has rung already */
            ring(m);
        if (!m->ended && m->deadline_ms && guest_now_ms() >= m->deadline_ms)
            on_deadline(m);
        on_output_end(m);
    }
}

/* ---- setting up ---- */

static bool leave_the_command(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return false;
    bool ok = dup2(null, 0) >= 0 && dup2(null, 1) >= 0 && dup2(null, 2) >= 0;
    if (null > 2)
        close(null);
    /* An emulator of system calls may not know it: then what daemonises itself escapes the tree, no more. */
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    return ok;
}

static bool open_pipes(struct monitor *m, int out[2])
{
    for (unsigned s = 0; s < 2; s++) {
        int fds[2];
        if (pipe2(fds, O_CLOEXEC))
            return false;
        m->pipe[s] = fds[0];
        out[s] = fds[1];
        if (fcntl(fds[0], F_SETFL, O_NONBLOCK))
            return false;
    }
    return true;
}

static bool block_signals(struct monitor *m)
{
    sigset_t all, chld;
    sigfillset(&all);
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    /* Also undoes an inherited SIG_IGN, which would make the kernel reap our children itself. */
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    if (sigprocmask(SIG_SETMASK, &all, NULL) || sigaction(SIGCHLD, &dfl, NULL))
        return false;
    m->signal_fd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
    return m->signal_fd >= 0;
}

_Noreturn void monitor_run(const struct monitor_spec *spec, const struct draft *d, int status_fd)
{
    static struct monitor m; /* the recorders are large */
    int out[2] = {-1, -1};
    m.spec = spec;
    m.dir = d->dir;
    m.exit_fd = d->exit_fd;
    m.bell = spec->bell;
    m.pipe[0] = m.pipe[1] = -1;
    for (unsigned s = 0; s < 2; s++)
        recorder_init(&m.rec[s], spec->root, d->dir, s, spec->retain);
    uint64_t start = proc_start_time(getpid());
    bool ready = leave_the_command() && block_signals(&m) && open_pipes(&m, out);
    if (ready) {
        m.begun_ms = guest_now_ms();
        m.deadline_ms = spec->timeout_ms ? m.begun_ms + spec->timeout_ms : 0;
        m.program = fork();
    }
    if (!ready || m.program < 0) {
        int err = errno;
        (void)tomb_put(spec->root, d->dir, TOMB_EXEC, err, "no resources for the program");
        tell(status_fd, err, "no resources for the program");
        _exit(1);
    }
    if (m.program == 0)
        child_run(spec, d->dir, out, status_fd, start);
    close(status_fd);
    close(out[0]);
    close(out[1]);
    if (chdir("/")) {
        /* then we stay where we are: no more than a directory in use */
    }
    monitor_loop(&m);
    _exit(0);
}
