/* Whatever is said to a monitor over its socket, cut anywhere: it stays inside its buffers, answers only in lines,
 * signals nobody but the program, and gives the program exactly the bytes that it says it accepted. */
#include "guest/follow.h"
#include "guest/monitor_internal.h"
#include "guest/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PROGRAM = 4711, WORKED_MS = 5 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __wrap_kill(pid_t pid, int sig);

static struct monitor m;
static uint64_t now;
/* What the program has to read, as far as it was accepted, and what it has read. */
static unsigned char accepted[4 * SG_CARRIER_SPOOL], got[sizeof accepted];
static size_t accepted_len, got_len;

static void check(bool ok)
{
    if (!ok)
        abort();
}

/* Nothing here runs: signals are only looked at. */
int __wrap_kill(pid_t pid, int sig)
{
    check((pid == PROGRAM || pid == -PROGRAM) && sig >= 1 && sig <= 64);
    return 0;
}

bool tree_signal(pid_t root, uint64_t root_start, int sig, struct tree_result *res)
{
    check(root == getpid() && root_start == 0 && sig >= 1 && sig <= 64);
    res->signalled = 1;
    return true;
}

uint64_t proc_start_time(pid_t pid)
{
    (void)pid;
    return 0;
}

/* ---- the monitor's acts, with a model of what they accept ---- */

static void note(uint64_t before, uint64_t offset, const unsigned char *data, size_t n)
{
    check(m.feed.accepted >= before);
    size_t grown = (size_t)(m.feed.accepted - before);
    if (grown == 0)
        return;
    check(offset <= before && before - offset < n && grown <= n - (size_t)(before - offset));
    check(accepted_len + grown <= sizeof accepted);
    memcpy(accepted + accepted_len, data + (before - offset), grown);
    accepted_len += grown;
}

static void act(void *arg, char *line, size_t len, struct sg_wire_line *answer)
{
    uint64_t before = m.feed.accepted;
    (void)memchr(line, 0, len); /* all of it can be read */
    monitor_ops.act(arg, line, len, answer);
    /* What an act writes it decodes in place; where it begins is told by what was accepted. */
    size_t grown = (size_t)(m.feed.accepted - before);
    if (grown) {
        check(accepted_len + grown <= sizeof accepted && m.feed.spool.used >= grown);
        for (size_t i = 0; i < grown; i++) {
            size_t at = m.feed.spool.head + m.feed.spool.used - grown + i;
            accepted[accepted_len + i] = m.feed.spool.data[at % SG_CARRIER_SPOOL];
        }
        accepted_len += grown;
    }
}

static bool carry(void *arg, struct sg_wire_line *answer)
{
    return monitor_ops.carry(arg, answer);
}

static bool frame(void *arg, const struct sg_carrier_frame *f, const unsigned char *data,
                  struct sg_wire_line *answer)
{
    uint64_t before = m.feed.accepted;
    bool ok = monitor_ops.frame(arg, f, data, answer);
    if (f->kind == SG_CARRIER_DATA)
        note(before, f->offset, data, f->len);
    else
        check(m.feed.accepted == before);
    return ok;
}

static void input(void *arg, struct sg_wire_line *l)
{
    monitor_ops.input(arg, l);
}

static const struct ctl_ops ops = {.act = act, .carry = carry, .frame = frame, .input = input};

/* ---- a peer ---- */

/* `bell`: what a connection that listens for changes hears. */
static void hear(int fd, bool bell)
{
    static char text[64 * 1024];
    static unsigned char scratch[SG_WIRE_DATA_MAX];
    struct sg_wire_line l;
    ssize_t n = recv(fd, text, sizeof text, MSG_DONTWAIT);
    char *end = text + (n > 0 ? n : 0);
    for (const char *at = text; at < end && bell; at++)
        check(*at == BELL_ALL || *at == BELL_OUTPUT);
    for (char *at = text; at < end && !bell;) { /* lines are written whole as long as they are read */
        char *lf = memchr(at, '\n', (size_t)(end - at));
        check(lf && sg_wire_parse(at, (size_t)(lf - at), scratch, &l));
        check(l.kind == SG_WIRE_CARRIER || l.kind == SG_WIRE_ACCEPTED || l.kind == SG_WIRE_OK ||
              l.kind == SG_WIRE_ERROR);
        at = lf + 1;
    }
}

static void program_reads(int fd)
{
    ssize_t n = read(fd, got + got_len, sizeof got - got_len);
    got_len += n > 0 ? (size_t)n : 0;
}

static void turn(void)
{
    struct pollfd p[CTL_POLLS];
    ctl_polls(&m.ctl, p);
    (void)poll(p, CTL_POLLS, 0);
    ctl_turn(&m.ctl, p, now);
    ctl_ring(&m.ctl, BELL_OUTPUT);
    feed_pump(&m.feed, now);
    ctl_flush(&m.ctl, now);
    now += WORKED_MS;
}

static void setup(int pipe_end, int peer, int listener, bool takes)
{
    static struct monitor_spec spec;
    memset(&m.ctl, 0, sizeof m.ctl);
    m.spec = &spec;
    m.program = PROGRAM;
    m.ended = false;
    m.out[0].fd = m.out[1].fd = -1;
    feed_init(&m.feed, pipe_end, false, takes);
    scope_init(&m.scope, now, 0, 0, 0);
    ctl_init(&m.ctl, &ops, &m);
    m.ctl.fd = listener;
    m.ctl.conn[0] = (struct ctl_conn){.fd = peer, .since_ms = now};
    accepted_len = got_len = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    int sp[2], pipe_fds[2], listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    check(listener >= 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sp) == 0 &&
          pipe2(pipe_fds, O_NONBLOCK | O_CLOEXEC) == 0);
    (void)signal(SIGPIPE, SIG_IGN);
    now = 1000;
    size_t step = 1 + data[0];
    bool reads = data[1] & 1, bell = size > 2 && (data[2] == 'B' || data[2] == 'V');
    setup(pipe_fds[1], sp[0], listener, !(data[1] & 2));
    for (size_t at = 2; at < size && m.ctl.conn[0].fd >= 0;) {
        size_t n = step < size - at ? step : size - at;
        ssize_t w = send(sp[1], data + at, n, MSG_NOSIGNAL);
        at += w > 0 ? (size_t)w : 0;
        turn();
        hear(sp[1], bell);
        if (reads)
            program_reads(pipe_fds[0]);
    }
    (void)shutdown(sp[1], SHUT_WR);
    turn();
    hear(sp[1], bell);
    turn();
    check(m.ctl.conn[0].fd < 0); /* at its end it is let go at once: nothing waits for us */
    check(m.feed.accepted == accepted_len);
    for (size_t before = got_len + 1; before != got_len;) {
        before = got_len;
        feed_pump(&m.feed, now);
        program_reads(pipe_fds[0]);
    }
    check(got_len == accepted_len && memcmp(got, accepted, got_len) == 0);
    feed_unwanted(&m.feed);
    ctl_close(&m.ctl);
    close(sp[1]);
    close(pipe_fds[0]);
    return 0;
}
