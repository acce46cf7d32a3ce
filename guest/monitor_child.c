#include "guest/monitor_internal.h"

#include "base/core/signals.h"
#include "guest/libc.h"
#include "guest/pty.h"
#include "guest/tree.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void monitor_tell(int status_fd, int err, const char *text)
{
    struct start_status s = {.err = err};
    snprintf(s.text, sizeof s.text, "%s", text);
    ssize_t n = write(status_fd, &s, sizeof s); /* the starter may be gone: the record says it too */
    (void)n;
}

static bool write_started(const struct monitor *m)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    struct state_started s = {.program = getpid(),
                              .program_start = proc_start_time(getpid()),
                              .wall_ms = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000};
    return state_put_started(m->state_fd, &s);
}

static const char *prepare(const struct monitor *m, const struct monitor_ends *e)
{
    if (setsid() < 0)
        return "setsid";
    sg_signals_default();
    if (e->terminal >= 0 && !pty_adopt(e->terminal))
        return "terminal";
    if (e->in >= 0 && dup2(e->in, STDIN_FILENO) < 0)
        return "input pipe";
    if (e->terminal < 0 && (dup2(e->out[0], STDOUT_FILENO) < 0 || dup2(e->out[1], STDERR_FILENO) < 0))
        return "output pipes";
    if (m->spec->cwd && chdir(m->spec->cwd))
        return "working directory";
    if (!write_started(m))
        return "started record";
    umask(022);
    sigset_t none;
    sigemptyset(&none);
    if (sigprocmask(SIG_SETMASK, &none, NULL))
        return "signal mask";
    libc_exec(m->spec->argv, m->spec->env);
    return "program";
}

int monitor_child(void *arg)
{
    const struct monitor_ends *e = arg;
    const char *what = prepare(e->monitor, e);
    int err = errno;
    (void)tomb_put(e->monitor->spec->root, e->monitor->dir, TOMB_EXEC, err, what);
    (void)state_clear_started(e->monitor->state_fd);
    monitor_tell(e->status, err, what);
    return 127;
}
