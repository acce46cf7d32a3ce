#include "guest/start.h"

#include "guest/libc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct spawn {
    const struct monitor_spec *m;
    const struct draft *d;
    int status_fd;
};

static int leave(void *arg)
{
    const struct spawn *s = arg;
    if (setsid() < 0)
        return errno;
    pid_t monitor = fork();
    if (monitor == 0)
        monitor_run(s->m, s->d, s->status_fd);
    return monitor < 0 ? errno : 0;
}

/* Two children, one of the other, and a session of its own take the monitor out of the command that started it:
 * neither a signal to the command's group nor a walk down from its process reaches the program. */
static bool spawn_monitor(const struct monitor_spec *m, const struct draft *d, int status_fd)
{
    struct spawn s = {m, d, status_fd};
    pid_t between = libc_spawn(leave, &s);
    if (between < 0)
        return false;
    int status = 0;
    while (waitpid(between, &status, 0) < 0)
        if (errno != EINTR)
            return true; /* reaped by somebody else: the status pipe tells what became of it */
    errno = WIFEXITED(status) ? WEXITSTATUS(status) : ECHILD;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool start_placed(const struct guest_root *root, struct draft *d, const struct monitor_spec *m,
                         struct guest_fail *f)
{
    int status[2] = {-1, -1};
    struct start_status s;
    if (pipe2(status, O_CLOEXEC) || !spawn_monitor(m, d, status[1])) {
        int err = errno;
        if (status[0] >= 0) {
            close(status[0]);
            close(status[1]);
        }
        (void)tomb_put(root, d->dir, TOMB_EXEC, err, "no resources for the program");
        return guest_failed(f, SG_WF_EXEC, err, "no resources for the program");
    }
    close(status[1]);
    close(d->state);
    d->state = -1;
    ssize_t n;
    do
        n = read(status[0], &s, sizeof s);
    while (n < 0 && errno == EINTR);
    close(status[0]);
    if (n != (ssize_t)sizeof s)
        return true; /* executed, or killed: the record knows */
    bool full = s.err == ENOSPC || s.err == EDQUOT;
    s.text[sizeof s.text - 1] = '\0';
    return guest_failed(f, full ? SG_WF_NO_SPACE : SG_WF_EXEC, s.err, s.text);
}

enum start_result start_program(const struct guest_root *root, int session, const char *id, const char *spec,
                                const struct monitor_spec *m, int *dir, struct guest_fail *f)
{
    *dir = dir_open(session, id);
    if (*dir < 0 && errno == ENOENT) {
        struct draft d;
        struct state_facts facts = monitor_facts(m);
        if (!draft_make(root, session, spec, &facts, &d, f))
            return START_FAILED;
        if (draft_place(session, &d, id)) {
            bool ok = start_placed(root, &d, m, f);
            if (ok) {
                *dir = d.dir;
                d.dir = -1;
            }
            draft_drop(session, &d);
            return ok ? START_NEW : START_FAILED;
        }
        int err = errno;
        draft_drop(session, &d);
        if (err != EEXIST) {
            guest_failed(f, err == ENOSPC || err == EDQUOT ? SG_WF_NO_SPACE : SG_WF_INTERNAL, err,
                         "placing the record");
            return START_FAILED;
        }
        *dir = dir_open(session, id);
    }
    if (*dir < 0) {
        guest_failed(f, SG_WF_INTERNAL, errno, "opening the record");
        return START_FAILED;
    }
    struct record rec;
    if (!record_load(*dir, id, &rec, f))
        return START_FAILED;
    bool barred = rec.tomb == TOMB_SETTLED || rec.tomb == TOMB_REMOVED;
    if (!barred && !record_has_spec(*dir, spec)) {
        guest_failed(f, SG_WF_CONFLICT, 0, "the id was used with another spec");
        return START_FAILED;
    }
    *f = rec.why;
    return rec.tomb ? START_FAILED : START_OLD;
}

bool start_settle(const struct guest_root *root, int session, const char *id, bool *won, struct guest_fail *f)
{
    struct draft d;
    *won = false;
    if (!draft_make(root, session, NULL, NULL, &d, f))
        return false;
    *won = draft_place(session, &d, id);
    int err = errno;
    draft_drop(session, &d);
    if (*won || err == EEXIST)
        return true;
    return guest_failed(f, err == ENOSPC || err == EDQUOT ? SG_WF_NO_SPACE : SG_WF_INTERNAL, err,
                        "placing the tombstone");
}
