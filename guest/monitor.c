#include "guest/monitor_internal.h"

#include "guest/follow.h"
#include "guest/libc.h"
#include "guest/pty.h"
#include "guest/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the loop ---- */

static void reap(struct monitor *m, uint64_t now)
{
    struct signalfd_siginfo si[8];
    ssize_t n = read(m->signal_fd, si, sizeof si);
    (void)n; /* that somebody died is all we need, and if there is more the next turn comes at once */
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid <= 0) {
            m->childless = pid < 0 && errno == ECHILD;
            break;
        }
        if (pid == m->program && !m->ended) {
            m->wait_status = status;
            monitor_program_ended(m, now);
        }
    }
    if (m->childless)
        scope_done(&m->scope);
}

/* Nothing of the program is left, and nothing of its output. */
static bool is_over(const struct monitor *m)
{
    bool output = m->out[0].fd >= 0 || m->out[1].fd >= 0 || m->out[0].held_len || m->out[1].held_len;
    return m->ended && !m->exit_due && m->childless && !output;
}

static int wait_ms(const struct monitor *m, uint64_t now)
{
    const uint64_t at[] = {scope_next(&m->scope), ctl_next(&m->ctl), m->retry_ms,
                           m->feed.look_ms,       m->remove_ms,      m->exit_due ? m->hold_ms : 0};
    uint64_t next = UINT64_MAX;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        if (at[i] && at[i] < next)
            next = at[i];
    if (next == UINT64_MAX)
        return -1;
    uint64_t left = next > now ? next - now : 0;
    return left > INT32_MAX ? INT32_MAX : (int)left;
}

enum { P_OUT, P_ERR, P_SIG, P_FEED, P_CTL, P_COUNT = P_CTL + CTL_POLLS };

static void polls_fill(const struct monitor *m, struct pollfd p[P_COUNT])
{
    bool feeds = feed_wants_write(&m->feed);
    /* What is not read has no place here at all: its hangup would be reported for ever. */
    for (unsigned s = 0; s < 2; s++)
        p[P_OUT + s] = (struct pollfd){.fd = monitor_reads(m, s) ? m->out[s].fd : -1, .events = POLLIN};
    p[P_SIG] = (struct pollfd){.fd = m->signal_fd, .events = POLLIN};
    /* The pipe always: an error is the program's closing its end.  The terminal only to write. */
    p[P_FEED] = (struct pollfd){.fd = m->feed.terminal && !feeds ? -1 : m->feed.fd,
                                .events = (short)(feeds ? POLLOUT : 0)};
    ctl_polls(&m->ctl, &p[P_CTL]);
}

static void on_time(struct monitor *m, uint64_t now)
{
    if (scope_due(&m->scope, now) && !m->childless)
        monitor_kill(m);
    if (m->childless)
        scope_done(&m->scope);
    if (m->retry_ms && now >= m->retry_ms && monitor_retry(m, now))
        monitor_ring(m, BELL_FILES);
    if (m->exit_due)
        monitor_try_exit(m, now);
}

static void turn(struct monitor *m, const struct pollfd p[P_COUNT], uint64_t now)
{
    bool some = false, files = false, had_ended = m->ended;
    for (unsigned s = 0; s < 2; s++) {
        const struct recorder *r = &m->out[s].rec;
        const struct recorder_files before = recorder_files(r);
        if (p[P_OUT + s].revents && p[P_OUT + s].fd == m->out[s].fd)
            some |= monitor_drain(m, s, MONITOR_BLOCK);
        files |= recorder_changed(r, &before);
    }
    if (p[P_SIG].revents)
        reap(m, now);
    ctl_turn(&m->ctl, &p[P_CTL], now);
    scope_watchers(&m->scope, now, ctl_watchers(&m->ctl));
    bool feed_gone = p[P_FEED].fd >= 0 && p[P_FEED].fd == m->feed.fd && !m->feed.terminal &&
                     p[P_FEED].revents & (POLLERR | POLLNVAL);
    if (feed_gone)
        feed_unwanted(&m->feed);
    if (some && m->ended == had_ended) /* an end has rung already */
        monitor_ring(m, files ? BELL_FILES : BELL_OUTPUT);
}

/* Until nothing is left of the program; and of its record, when its scope has ended it. */
static void monitor_loop(struct monitor *m)
{
    struct pollfd p[P_COUNT];
    for (bool over = false; !over || (m->remove_ms && guest_now_ms() < m->remove_ms);) {
        polls_fill(m, p);
        int n = poll(p, P_COUNT, wait_ms(m, guest_now_ms()));
        if (n < 0 && errno != EINTR)
            break;
        uint64_t now = guest_now_ms();
        if (n > 0)
            turn(m, p, now);
        on_time(m, now);
        feed_pump(&m->feed, now);
        monitor_output_ended(m);
        monitor_publish(m);
        ctl_flush(&m->ctl, now);
        if (!over && is_over(m)) {
            over = true;
            if (m->scope.ended || m->spec->own_id)
                m->remove_ms = now + scope_readable_ms();
            close(m->state_fd); /* and with it the lock: the record may be removed before we do */
            m->state_fd = -1;
        }
    }
}

/* The record of what its scope has ended, or of a helper of our own: nobody starts such a one twice, so not even a
 * tombstone stays. */
static void remove_record(struct monitor *m)
{
    int session = m->spec->own_id ? dir_open(m->dir, "..") : -1;
    if (session >= 0) {
        tree_delete(session, m->spec->own_id, 2);
        close(session);
        return;
    }
    if (!tomb_put(m->spec->root, m->dir, TOMB_REMOVED, 0, "") && errno == ENOSPC) {
        record_clear(m->dir);
        (void)tomb_put(m->spec->root, m->dir, TOMB_REMOVED, 0, "");
    }
    record_clear(m->dir);
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

static bool open_outputs(struct monitor *m, struct monitor_ends *e)
{
    for (unsigned s = 0; s < 2; s++) {
        int fds[2];
        if (pipe2(fds, O_CLOEXEC))
            return false;
        m->out[s].fd = fds[0];
        e->out[s] = fds[1];
        if (fcntl(fds[0], F_SETFL, O_NONBLOCK))
            return false;
    }
    return true;
}

static bool open_input(struct monitor *m, struct monitor_ends *e)
{
    const struct monitor_spec *spec = m->spec;
    int fds[2];
    if (!spec->input_open && !spec->input_len)
        return true;
    if (pipe2(fds, O_CLOEXEC))
        return false;
    e->in = fds[0];
    feed_init(&m->feed, fds[1], false, spec->input_open);
    return fcntl(fds[1], F_SETFL, O_NONBLOCK) == 0;
}

static bool open_terminal(struct monitor *m, struct monitor_ends *e)
{
    if (!pty_open(m->spec->cols, m->spec->rows, &m->out[0].fd, &m->slave))
        return false;
    e->terminal = m->slave;
    feed_init(&m->feed, m->out[0].fd, true, true);
    return true;
}

static bool open_ends(struct monitor *m, struct monitor_ends *e)
{
    *e = (struct monitor_ends){.monitor = m, .in = -1, .out = {-1, -1}, .terminal = -1};
    feed_init(&m->feed, -1, false, false);
    bool ok = m->spec->cols ? open_terminal(m, e) : open_outputs(m, e) && open_input(m, e);
    if (ok && m->feed.fd >= 0)
        feed_begin(&m->feed, m->spec->input, m->spec->input_len);
    return ok;
}

/* Without it such a program is of no use: so it is there before the program.  For all others it is made while the
 * program starts already, and they do without it where it cannot be made. */
static bool needs_ctl(const struct monitor_spec *s)
{
    return s->cols || s->input_open || s->lossless;
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

static void monitor_init(struct monitor *m, const struct monitor_spec *spec, const struct draft *d)
{
    m->spec = spec;
    m->dir = d->dir;
    m->state_fd = d->state;
    m->bell = spec->bell;
    m->slave = -1;
    m->facts = monitor_facts(spec);
    ctl_init(&m->ctl, &monitor_ops, m);
    for (unsigned s = 0; s < 2; s++) {
        m->out[s].fd = -1;
        recorder_init(&m->out[s].rec, spec->root, d->dir, s, spec->retain, spec->lossless);
    }
}

struct state_facts monitor_facts(const struct monitor_spec *spec)
{
    return (struct state_facts){.terminal = spec->cols > 0,
                                .takes_input = spec->cols > 0 || spec->input_open,
                                .lossless = spec->lossless,
                                .ends_unattended = spec->unattended_ms > 0};
}

static void close_ends(const struct monitor_ends *e)
{
    const int fds[] = {e->in, e->out[0], e->out[1]};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static _Noreturn void give_up(const struct monitor *m, int status_fd, const char *what)
{
    int err = errno;
    (void)tomb_put(m->spec->root, m->dir, TOMB_EXEC, err, what);
    monitor_tell(status_fd, err, what);
    _exit(1);
}

_Noreturn void monitor_run(const struct monitor_spec *spec, const struct draft *d, int status_fd)
{
    static struct monitor m; /* what it holds is large */
    struct monitor_ends e;
    monitor_init(&m, spec, d);
    if (!leave_the_command() || !block_signals(&m) || !open_ends(&m, &e))
        give_up(&m, status_fd, spec->cols ? "terminal" : "no resources for the program");
    if (needs_ctl(spec) && !ctl_listen(&m.ctl, m.dir, spec->root))
        give_up(&m, status_fd, "socket");
    e.status = status_fd;
    m.begun_ms = guest_now_ms();
    scope_init(&m.scope, m.begun_ms, spec->timeout_ms, spec->lease_ms, spec->unattended_ms);
    m.program = libc_spawn(monitor_child, &e);
    if (m.program < 0)
        give_up(&m, status_fd, "no resources for the program");
    close_ends(&e);
    (void)state_put_monitor(m.state_fd, getpid(), proc_start_time(getpid()));
    if (!needs_ctl(spec))
        (void)ctl_listen(&m.ctl, m.dir, spec->root);
    close(status_fd); /* the starter goes on: all that it may ask for is there */
    if (chdir("/")) {
        /* then we stay where we are: no more than a directory in use */
    }
    monitor_loop(&m);
    if (m.remove_ms)
        remove_record(&m);
    _exit(0);
}
