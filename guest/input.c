#include "guest/input.h"

#include "base/core/carrier.h"
#include "guest/acts.h"
#include "guest/ctl.h"
#include "guest/out.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

enum {
    CHUNK = 64 * 1024,
    RETRY_MS = 20,
    DYING_MS = 300, /* a killed process closes one descriptor after the other, the record's lock maybe last */
};

/* ---- the terminal ---- */

static struct termios tty_was;
static bool tty_changed;
static int out_flags = -1;

static void make_raw(void)
{
    struct termios t;
    if (tcgetattr(STDIN_FILENO, &t))
        return; /* no terminal */
    tty_was = t;
    cfmakeraw(&t);
    t.c_iflag &= ~(tcflag_t)(IXON | IXOFF | IXANY | IMAXBEL);
    t.c_cc[VMIN] = 1;
    t.c_cc[VTIME] = 0;
    signal(SIGTTOU, SIG_IGN); /* nor are we stopped for it */
    tty_changed = tcsetattr(STDIN_FILENO, TCSANOW, &t) == 0;
    (void)tcflush(STDIN_FILENO, TCIFLUSH);
}

void input_greet(void)
{
    make_raw();
    /* For this one call only: a terminal's three descriptors are one, shared with whoever started us. */
    out_flags = fcntl(STDOUT_FILENO, F_GETFL);
    if (out_flags >= 0)
        (void)fcntl(STDOUT_FILENO, F_SETFL, out_flags | O_NONBLOCK);
    out_raw(SG_CARRIER_MAGIC "\n");
    (void)out_push();
}

void input_leave(void)
{
    if (tty_changed)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &tty_was);
    if (out_flags >= 0)
        (void)fcntl(STDOUT_FILENO, F_SETFL, out_flags);
}

/* ---- the carrier ---- */

enum stage {
    OPENING, /* no C line yet: nothing is sent */
    GOING,
    EMPTYING, /* nothing more is read; what was goes to the monitor */
    CLOSING,  /* our side is closed: waits for the last word */
    OVER,
};

struct carrier {
    int sock;
    enum stage stage;
    bool time_is_over;       /* M instead of K */
    uint64_t end_ms;         /* of the stage */
    unsigned char in[CHUNK]; /* from standard input, not yet taken by the monitor */
    size_t in_at, in_len;
    char from[SG_WIRE_LINE_MAX]; /* of the monitor, up to a whole line */
    size_t from_len;
    bool unsaid;    /* standard output did not take all that was printed */
    bool has_newer; /* nor this A line */
    struct sg_wire_line newer;
    struct guest_fail *fail;
    bool failed;
};

static void end_failed(struct carrier *c, enum sg_wire_fail code, int err, const char *text)
{
    guest_failed(c->fail, code, err, text);
    c->failed = true;
    c->stage = OVER;
}

static void say(struct carrier *c)
{
    c->unsaid = out_push() > 0;
    if (c->has_newer && !c->unsaid) {
        c->has_newer = false;
        out_line(&c->newer);
        c->unsaid = out_push() > 0;
    }
}

static void take_line(struct carrier *c, const char *text, size_t n)
{
    static unsigned char scratch[SG_WIRE_DATA_MAX];
    struct sg_wire_line l;
    bool known = sg_wire_parse(text, n, scratch, &l);
    if (known && l.kind == SG_WIRE_CARRIER && c->stage == OPENING) {
        c->stage = GOING;
        c->end_ms = guest_now_ms() + guest_life_ms();
        out_line(&l);
        say(c);
    } else if (known && l.kind == SG_WIRE_ACCEPTED && c->stage != OPENING) {
        c->newer = l;
        c->has_newer = true;
        say(c);
    } else if (known && l.kind == SG_WIRE_OK && c->stage == CLOSING) {
        c->stage = OVER;
    } else if (known && l.kind == SG_WIRE_ERROR) {
        ctl_fail(c->fail, &l);
        c->failed = true;
        c->stage = OVER;
    } else {
        end_failed(c, SG_WF_INTERNAL, EPROTO, "the monitor's answer");
    }
}

/* False when the monitor has closed its side. */
static bool hear(struct carrier *c)
{
    ssize_t n = recv(c->sock, c->from + c->from_len, sizeof c->from - c->from_len, 0);
    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    c->from_len += (size_t)n;
    char *at = c->from, *end = c->from + c->from_len;
    for (char *lf; c->stage != OVER && (lf = memchr(at, '\n', (size_t)(end - at))); at = lf + 1)
        take_line(c, at, (size_t)(lf - at));
    c->from_len = (size_t)(end - at);
    memmove(c->from, at, c->from_len);
    if (c->from_len == sizeof c->from)
        end_failed(c, SG_WF_INTERNAL, EPROTO, "the monitor's answer");
    return true;
}

static void finish_input(struct carrier *c, bool time_is_over)
{
    c->time_is_over = time_is_over;
    c->stage = EMPTYING;
    c->end_ms = guest_now_ms() + CTL_ANSWER_MS;
}

static void send_on(struct carrier *c)
{
    while (c->in_len) {
        ssize_t n = send(c->sock, c->in + c->in_at, c->in_len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            if (errno != EAGAIN)
                c->in_len = 0; /* its last word is still to be read */
            break;
        }
        c->in_at += (size_t)n;
        c->in_len -= (size_t)n;
    }
    if (c->in_len == 0)
        c->in_at = 0;
    if (c->in_len == 0 && c->stage == EMPTYING) {
        (void)shutdown(c->sock, SHUT_WR);
        c->stage = CLOSING;
    }
}

static size_t in_room(struct carrier *c)
{
    if (c->in_at && c->in_at + c->in_len == sizeof c->in) {
        memmove(c->in, c->in + c->in_at, c->in_len);
        c->in_at = 0;
    }
    return sizeof c->in - c->in_at - c->in_len;
}

static void read_more(struct carrier *c)
{
    size_t room = in_room(c);
    ssize_t n = read(STDIN_FILENO, c->in + c->in_at + c->in_len, room);
    if (n > 0)
        c->in_len += (size_t)n;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        finish_input(c, false);
    send_on(c);
}

/* The end of a stage's time. */
static void on_time(struct carrier *c)
{
    if (c->stage == GOING)
        finish_input(c, true);
    else if (c->stage == OPENING || !c->time_is_over)
        end_failed(c, SG_WF_INTERNAL, ETIMEDOUT, "the monitor does not answer");
    else
        c->stage = OVER;
    send_on(c);
}

/* Waits for something to do and does it.  False when the monitor's side is closed. */
static bool step(struct carrier *c)
{
    uint64_t now = guest_now_ms();
    if (now >= c->end_ms) {
        on_time(c);
        return true;
    }
    struct pollfd p[3] = {
        {.fd = c->stage == GOING && in_room(c) ? STDIN_FILENO : -1, .events = POLLIN},
        {.fd = c->sock, .events = (short)(POLLIN | (c->in_len && c->stage != OPENING ? POLLOUT : 0))},
        {.fd = STDOUT_FILENO, .events = c->unsaid ? POLLOUT : 0},
    };
    if (poll(p, 3, (int)(c->end_ms - now)) <= 0)
        return true;
    if (p[2].revents & (POLLOUT | POLLERR))
        say(c);
    if (out_is_broken() || (p[2].revents & (POLLERR | POLLNVAL))) {
        c->stage = OVER; /* nobody is there to be told */
        return true;
    }
    if (p[0].revents)
        read_more(c);
    if (p[1].revents & POLLOUT)
        send_on(c);
    return !(p[1].revents & (POLLIN | POLLHUP | POLLERR)) || hear(c);
}

/* The monitor has closed without a last word. */
static void on_silence(struct carrier *c, int dir, const char *id, uint64_t patience)
{
    close(c->sock);
    c->sock = -1;
    struct guest_fail f;
    guest_failed(&f, SG_WF_INTERNAL, ECONNRESET, "the monitor closed the carrier");
    uint64_t dying = guest_now_ms() + DYING_MS;
    for (act_why(dir, id, &f); c->stage != OPENING && f.code != SG_WF_FINISHED && guest_now_ms() < dying;
         act_why(dir, id, &f))
        (void)poll(NULL, 0, RETRY_MS);
    if (c->stage == OPENING && f.code != SG_WF_FINISHED && guest_now_ms() < patience) {
        (void)poll(NULL, 0, RETRY_MS); /* one connection too many */
        c->from_len = 0;
        c->sock = ctl_connect(dir, 'I', &f);
    }
    if (c->sock < 0) {
        *c->fail = f;
        c->failed = true;
        c->stage = OVER;
    }
}

static bool carry(int dir, const char *id, struct guest_fail *f)
{
    static struct carrier c; /* large */
    uint64_t patience = guest_now_ms() + CTL_ANSWER_MS;
    c = (struct carrier){.stage = OPENING, .end_ms = patience, .unsaid = true, .fail = f};
    c.sock = ctl_connect(dir, 'I', f);
    if (c.sock < 0) {
        act_why(dir, id, f);
        return false;
    }
    while (c.stage != OVER)
        if (!step(&c) && c.stage != OVER)
            on_silence(&c, dir, id, patience);
    if (c.sock >= 0)
        close(c.sock);
    if (c.has_newer)
        out_line(&c.newer);
    if (!c.failed)
        out_kind(c.time_is_over ? SG_WIRE_MORE : SG_WIRE_OK, NULL);
    return !c.failed;
}

bool act_input(const struct guest_root *root, const struct guest_args *a, struct guest_fail *f)
{
    struct record rec;
    int dir = act_record(root, a, &rec, f);
    if (dir < 0)
        return false;
    bool ok = carry(dir, a->id, f);
    struct guest_fail unread;
    /* Whoever sent it may not have heard: of a program that has ended nobody else can tell. */
    if (!ok && f->code == SG_WF_FINISHED && record_load(dir, a->id, &rec, &unread))
        snprintf(f->text, sizeof f->text, "accepted %" PRIu64, rec.p.input);
    close(dir);
    return ok;
}
