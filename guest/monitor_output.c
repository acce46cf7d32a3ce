#include "guest/monitor_internal.h"

#include "guest/follow.h"
#include "guest/libc.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RETRY_MS = 100,            /* of a full disk */
    HOLD_MS = 60 * 1000,       /* the exit record waits so long for the disk */
    TERMINAL_LEFT = 64 * 1024, /* more than the kernel keeps of a terminal's output */
};

static unsigned char block[MONITOR_BLOCK];

/* A pipe beside the record, because closing an inotify descriptor takes the kernel several milliseconds: too
 * long for the caller of a short command. */
void monitor_ring(struct monitor *m, char what)
{
    ctl_ring(&m->ctl, what);
    if (m->bell < 0 || write(m->bell, &what, 1) == 1 || errno == EAGAIN)
        return; /* a full pipe rings enough */
    close(m->bell);
    m->bell = -1;
}

bool monitor_reads(const struct monitor *m, unsigned s)
{
    const struct monitor_stream *o = &m->out[s];
    return o->fd >= 0 && o->held_len == 0 && recorder_room(&o->rec) > 0;
}

/* True when nothing is held any more. */
static bool put_held(struct monitor *m, unsigned s)
{
    struct monitor_stream *o = &m->out[s];
    if (o->held_len == 0)
        return true;
    size_t n = recorder_write(&o->rec, o->held + o->held_at, o->held_len, &m->out[!s].rec);
    o->held_at += n;
    o->held_len -= n;
    return o->held_len == 0;
}

static void put(struct monitor *m, unsigned s, size_t n)
{
    struct monitor_stream *o = &m->out[s];
    size_t done = recorder_write(&o->rec, block, n, &m->out[!s].rec);
    if (done == n)
        return;
    o->held_at = 0;
    o->held_len = n - done;
    memcpy(o->held, block + done, o->held_len);
    m->retry_ms = guest_now_ms() + RETRY_MS;
}

static void close_stream(struct monitor *m, unsigned s)
{
    struct monitor_stream *o = &m->out[s];
    if (m->spec->cols)
        m->feed.fd = -1; /* the same descriptor */
    close(o->fd);
    o->fd = -1;
}

/* `over`: beyond what may be kept unacknowledged too, because the program has ended. */
static bool drain(struct monitor *m, unsigned s, size_t budget, bool over)
{
    struct monitor_stream *o = &m->out[s];
    bool some = false;
    while (o->fd >= 0 && budget > 0 && put_held(m, s)) {
        uint64_t room = over ? UINT64_MAX : recorder_room(&o->rec);
        size_t want = sizeof block < budget ? sizeof block : budget;
        if (room < want)
            want = (size_t)room;
        if (want == 0)
            break;
        ssize_t n = read(o->fd, block, want);
        if (n > 0) {
            put(m, s, (size_t)n);
            some = true;
            budget -= (size_t)n;
        } else if (n < 0 && errno == EAGAIN) {
            break;
        } else if (n == 0 || errno != EINTR) { /* EIO of a terminal: nobody has it any more */
            close_stream(m, s);
        }
    }
    return some;
}

bool monitor_drain(struct monitor *m, unsigned s, size_t budget)
{
    return drain(m, s, budget, false);
}

bool monitor_retry(struct monitor *m, uint64_t now)
{
    bool some = false;
    m->retry_ms = 0;
    for (unsigned s = 0; s < 2; s++) {
        size_t before = m->out[s].held_len;
        if (!put_held(m, s))
            m->retry_ms = now + RETRY_MS;
        some |= m->out[s].held_len < before;
    }
    return some;
}

/* ---- the end ---- */

static bool write_exit(struct monitor *m, bool again)
{
    for (unsigned s = 0; s < 2; s++) {
        recorder_seal(&m->out[s].rec);
        m->p.end[s] = m->out[s].rec.end;
        m->p.output_incomplete |= m->out[s].rec.incomplete;
    }
    m->p.descendants_hold_output = m->out[0].fd >= 0 || m->out[1].fd >= 0;
    bool ok = state_put_exit(m->state_fd, again, &m->p);
    monitor_ring(m, BELL_ALL);
    return ok;
}

/* What lies in the pipes when the program has ended was written before; a descendant's later bytes can wait.  True
 * when all of it is recorded. */
static bool drain_last(struct monitor *m)
{
    for (unsigned s = 0; s < 2; s++) {
        int left = 0;
        if (m->out[s].fd < 0)
            continue;
        if (m->spec->cols)
            left = TERMINAL_LEFT; /* the kernel does not say how much waits to be moved to our end */
        else if (ioctl(m->out[s].fd, FIONREAD, &left) || left < 0)
            left = 0;
        (void)drain(m, s, (size_t)left + 1, true); /* one more: the end itself, if it is there */
    }
    return m->out[0].held_len == 0 && m->out[1].held_len == 0;
}

void monitor_program_ended(struct monitor *m, uint64_t now)
{
    m->ended = m->exit_due = true;
    m->p.duration_ms = now - m->begun_ms;
    int status = m->wait_status;
    if (WIFEXITED(status)) {
        m->p.how = SG_HOW_EXIT;
        m->p.value = (uint32_t)WEXITSTATUS(status);
    } else {
        m->p.how = SG_HOW_SIGNAL;
        m->p.value = (uint32_t)WTERMSIG(status);
        if (WTERMSIG(status) == SIGKILL && m->scope.timed_out)
            m->p.how = SG_HOW_TIMEOUT;
        else if (WTERMSIG(status) == SIGKILL && m->scope.ended)
            m->p.how = SG_HOW_SCOPE;
    }
    scope_program_ended(&m->scope);
    if (m->slave >= 0)
        close(m->slave);
    m->slave = -1;
    m->hold_ms = now + HOLD_MS;
    monitor_try_exit(m, now);
    feed_finish(&m->feed);
    char accepted[40];
    snprintf(accepted, sizeof accepted, "accepted %" PRIu64, m->feed.accepted);
    ctl_end_carrier(&m->ctl, SG_WF_FINISHED, accepted);
}

void monitor_try_exit(struct monitor *m, uint64_t now)
{
    if (!m->exit_due)
        return;
    bool all = drain_last(m);
    if (!all && now >= m->hold_ms) {
        for (unsigned s = 0; s < 2; s++)
            recorder_give_up(&m->out[s].rec);
        all = drain_last(m);
    }
    if (!all)
        return;
    m->exit_due = false;
    struct state st;
    struct state_started started;
    state_read(m->state_fd, &st);
    if (!state_started(&st, &started))
        return;         /* nothing was executed: a tombstone says why, or else the free lock "not started" */
    monitor_publish(m); /* whoever sees the end sees how much input there was */
    m->exit_told = write_exit(m, false);
}

void monitor_output_ended(struct monitor *m)
{
    if (!m->exit_told || !m->p.descendants_hold_output || m->out[0].fd >= 0 || m->out[1].fd >= 0 ||
        m->out[0].held_len || m->out[1].held_len)
        return;
    (void)write_exit(m, true);
}

/* ---- facts ---- */

static bool is_paused(const struct monitor *m)
{
    for (unsigned s = 0; s < 2; s++) {
        const struct monitor_stream *o = &m->out[s];
        if (o->held_len || (o->fd >= 0 && recorder_room(&o->rec) == 0))
            return true;
    }
    return false;
}

void monitor_publish(struct monitor *m)
{
    const struct feed *in = &m->feed;
    struct state_facts f = {.input = in->accepted,
                            .terminal = m->spec->cols > 0,
                            .takes_input = in->takes && !in->closed && !in->unwanted && !m->ended,
                            .lossless = m->spec->lossless,
                            .paused = is_paused(m),
                            .ends_unattended = m->scope.unattended_ms > 0};
    const struct state_facts *old = &m->facts;
    if (f.input == old->input && f.takes_input == old->takes_input && f.paused == old->paused &&
        f.ends_unattended == old->ends_unattended)
        return;
    bool change = f.takes_input != old->takes_input || f.paused != old->paused;
    (void)state_put_facts(m->state_fd, &f);
    m->facts = f;
    if (change)
        monitor_ring(m, BELL_ALL);
}
