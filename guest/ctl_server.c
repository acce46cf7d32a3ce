#include "guest/ctl_server.h"

#include "guest/follow.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    ACT_FIRST = 4096, /* most acts are short: the room for a long one comes when it does */
    FRAME_MAX = SG_CARRIER_HEAD_MAX + SG_CARRIER_DATA_MAX,
};

void ctl_init(struct ctl_server *c, const struct ctl_ops *ops, void *arg)
{
    c->ops = ops;
    c->arg = arg;
    c->fd = -1;
    for (size_t i = 0; i < CTL_CONNECTIONS; i++)
        c->conn[i].fd = -1;
}

bool ctl_listen(struct ctl_server *c, int dir, const struct guest_root *root)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/ctl", dir);
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t mask = umask(0177);
    bool ok = c->fd >= 0 && bind(c->fd, (struct sockaddr *)&a, sizeof a) == 0 &&
              listen(c->fd, CTL_CONNECTIONS) == 0 &&
              (!root->chown || fchownat(dir, "ctl", root->uid, root->gid, AT_SYMLINK_NOFOLLOW) == 0);
    int err = errno;
    umask(mask);
    if (!ok && c->fd >= 0) {
        close(c->fd);
        c->fd = -1;
    }
    errno = err;
    return ok;
}

/* ---- connections ---- */

static void conn_close(struct ctl_conn *k)
{
    if (k->fd >= 0)
        close(k->fd);
    free(k->in);
    *k = (struct ctl_conn){.fd = -1};
}

static void accept_all(struct ctl_server *c, uint64_t now)
{
    for (;;) {
        int fd = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return;
        size_t i = 0;
        while (i < CTL_CONNECTIONS && c->conn[i].fd >= 0)
            i++;
        if (i == CTL_CONNECTIONS)
            close(fd); /* one too many */
        else
            c->conn[i] = (struct ctl_conn){.fd = fd, .since_ms = now};
    }
}

static bool is_watcher(const struct ctl_conn *k)
{
    return k->fd >= 0 && (k->what == 'W' || k->what == 'V');
}

static bool is_bell(const struct ctl_conn *k)
{
    return k->fd >= 0 && (k->what == 'B' || k->what == 'V');
}

/* Stays until its peer leaves, and has nothing to say. */
static bool only_stays(const struct ctl_conn *k)
{
    return is_watcher(k) || is_bell(k);
}

unsigned ctl_watchers(const struct ctl_server *c)
{
    unsigned n = 0;
    for (size_t i = 0; i < CTL_CONNECTIONS; i++)
        n += is_watcher(&c->conn[i]);
    return n;
}

static unsigned stayers(const struct ctl_server *c)
{
    unsigned n = 0;
    for (size_t i = 0; i < CTL_CONNECTIONS; i++)
        n += only_stays(&c->conn[i]);
    return n;
}

/* That it cannot be written means that enough was: whoever is gone is noticed by reading. */
static void ring(const struct ctl_conn *k, char what)
{
    (void)send(k->fd, &what, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void ctl_ring(struct ctl_server *c, char what)
{
    for (size_t i = 0; i < CTL_CONNECTIONS; i++)
        if (is_bell(&c->conn[i]))
            ring(&c->conn[i], what);
}

/* What is written afterwards, if something else waits still, is left out: only the last word ends a connection. */
static void say(struct ctl_conn *k, const struct sg_wire_line *l)
{
    char line[SG_WIRE_LINE_MAX];
    size_t n = sg_wire_format(line, l);
    if (k->out_at == k->out_len)
        k->out_at = k->out_len = 0;
    if (n > sizeof k->out - k->out_len)
        return;
    memcpy(k->out + k->out_len, line, n);
    k->out_len += n;
}

static void leave_with(struct ctl_conn *k, const struct sg_wire_line *l)
{
    say(k, l);
    k->carrier = false;
    k->leave = true;
}

void ctl_end_carrier(struct ctl_server *c, enum sg_wire_fail why, const char *text)
{
    struct sg_wire_line l = {.kind = SG_WIRE_ERROR, .fail = why};
    snprintf(l.text, sizeof l.text, "%s", text);
    for (size_t i = 0; i < CTL_CONNECTIONS; i++)
        if (c->conn[i].fd >= 0 && c->conn[i].carrier)
            leave_with(&c->conn[i], &l);
}

static void told_now(struct ctl_conn *k, const struct sg_wire_line *l)
{
    k->told = (struct ctl_told){l->accepted, l->room, l->closed, l->unwanted};
}

/* True when the line differs from what the peer knows. */
static bool is_news(const struct ctl_conn *k, const struct sg_wire_line *l)
{
    return k->told.accepted != l->accepted || k->told.room != l->room || k->told.closed != l->closed ||
           k->told.unwanted != l->unwanted;
}

static void begin_carrier(struct ctl_server *c, struct ctl_conn *k)
{
    struct sg_wire_line l = {.kind = SG_WIRE_CARRIER};
    if (!c->ops->carry(c->arg, &l)) {
        leave_with(k, &l);
        return;
    }
    ctl_end_carrier(c, SG_WF_FENCED, "another carrier was opened");
    k->carrier = true;
    l = (struct sg_wire_line){.kind = SG_WIRE_CARRIER, .epoch = ++c->epoch};
    c->ops->input(c->arg, &l);
    say(k, &l);
    told_now(k, &l);
    if (l.closed || l.unwanted)
        k->told = (struct ctl_told){0}; /* a C line has no flags: an A line tells them */
}

/* True when the buffer has room for more; false: the connection is closed. */
static bool in_grow(struct ctl_conn *k, size_t first, size_t max)
{
    if (k->in_len < k->in_cap)
        return true;
    size_t cap = k->in_cap ? max : first;
    unsigned char *in = k->in_cap < max ? realloc(k->in, cap) : NULL;
    if (!in) {
        conn_close(k);
        return false;
    }
    k->in = in;
    k->in_cap = cap;
    return true;
}

/* ---- what they say ---- */

static void do_act(struct ctl_server *c, struct ctl_conn *k)
{
    unsigned char *lf = memchr(k->in, '\n', k->in_len);
    if (!lf)
        return;
    struct sg_wire_line l = {.kind = SG_WIRE_OK};
    c->ops->act(c->arg, (char *)k->in, (size_t)(lf - k->in), &l);
    leave_with(k, &l);
}

static void in_take(struct ctl_conn *k, size_t n)
{
    memmove(k->in, k->in + n, k->in_len - n);
    k->in_len -= n;
}

static void do_frames(struct ctl_server *c, struct ctl_conn *k)
{
    size_t at = 0;
    struct sg_wire_line l = {.kind = SG_WIRE_ERROR, .fail = SG_WF_USAGE, .text = "malformed frame"};
    while (!k->leave) {
        struct sg_carrier_frame f;
        int head = sg_carrier_decode(k->in + at, k->in_len - at, &f);
        size_t payload = head > 0 && f.kind == SG_CARRIER_DATA ? f.len : 0;
        if (head == 0 || (head > 0 && k->in_len - at - (size_t)head < payload))
            break;
        if (head < 0 || !c->ops->frame(c->arg, &f, k->in + at + head, &l)) {
            leave_with(k, &l);
            return;
        }
        at += (size_t)head + payload;
    }
    in_take(k, at);
}

static void first_word(struct ctl_server *c, struct ctl_conn *k)
{
    k->what = (char)k->in[0];
    in_take(k, 1);
    switch (k->what) {
    case 'I':
        k->since_ms = 0;
        begin_carrier(c, k);
        break;
    case 'W':
    case 'B':
    case 'V':
        k->since_ms = 0;
        if (stayers(c) > (k->what == 'B' ? CTL_BELLS : CTL_WATCHERS))
            conn_close(k);
        else if (is_bell(k))
            ring(k, BELL_ALL); /* what changed before it was taken */
        break;
    case 'A':
        break;
    default:
        conn_close(k);
    }
}

static void peer_ended(struct ctl_server *c, struct ctl_conn *k)
{
    struct sg_wire_line l = {.kind = SG_WIRE_ACCEPTED};
    k->eof = true;
    if (!k->carrier) {
        if (!k->leave)
            conn_close(k);
        return;
    }
    c->ops->input(c->arg, &l);
    if (is_news(k, &l))
        say(k, &l);
    leave_with(k, &(struct sg_wire_line){.kind = SG_WIRE_OK});
}

static void conn_read(struct ctl_server *c, struct ctl_conn *k)
{
    bool frames = k->what == 'I';
    if (!in_grow(k, frames ? FRAME_MAX : ACT_FIRST, frames ? FRAME_MAX : CTL_ACT_MAX))
        return;
    ssize_t n = recv(k->fd, k->in + k->in_len, k->in_cap - k->in_len, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0) {
        conn_close(k);
        return;
    }
    k->in_len += (size_t)n;
    if (n > 0 && k->what == 0)
        first_word(c, k);
    if (k->fd >= 0 && k->what == 'A' && !k->leave)
        do_act(c, k);
    else if (k->fd >= 0 && k->what == 'I' && !k->leave)
        do_frames(c, k);
    else if (only_stays(k))
        k->in_len = 0;
    if (k->fd >= 0 && n == 0)
        peer_ended(c, k);
}

/* ---- turns ---- */

void ctl_polls(const struct ctl_server *c, struct pollfd *p)
{
    p[0] = (struct pollfd){.fd = c->fd, .events = POLLIN};
    for (size_t i = 0; i < CTL_CONNECTIONS; i++) {
        const struct ctl_conn *k = &c->conn[i];
        bool writes = k->out_at < k->out_len;
        /* One that is about to be closed is not read any more: only whether its peer takes the rest counts. */
        p[1 + i] =
            (struct pollfd){.fd = k->fd, .events = (short)((k->leave ? 0 : POLLIN) | (writes ? POLLOUT : 0))};
    }
}

void ctl_turn(struct ctl_server *c, const struct pollfd *p, uint64_t now)
{
    for (size_t i = 0; i < CTL_CONNECTIONS; i++) {
        struct ctl_conn *k = &c->conn[i];
        if (k->fd < 0 || k->fd != p[1 + i].fd || !p[1 + i].revents)
            continue;
        if (k->leave && p[1 + i].revents & (POLLHUP | POLLERR))
            conn_close(k);
        else if (!k->leave && p[1 + i].revents & (POLLIN | POLLHUP | POLLERR))
            conn_read(c, k);
    }
    if (p[0].revents)
        accept_all(c, now);
}

static void conn_write(struct ctl_conn *k, uint64_t now)
{
    while (k->out_at < k->out_len) {
        ssize_t n = send(k->fd, k->out + k->out_at, k->out_len - k->out_at, MSG_NOSIGNAL);
        if (n > 0) {
            k->out_at += (size_t)n;
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            conn_close(k);
        else if (k->since_ms == 0)
            k->since_ms = now;
        return;
    }
    if (k->what == 'I' || only_stays(k))
        k->since_ms = 0;
}

void ctl_flush(struct ctl_server *c, uint64_t now)
{
    for (size_t i = 0; i < CTL_CONNECTIONS; i++) {
        struct ctl_conn *k = &c->conn[i];
        if (k->fd < 0)
            continue;
        struct sg_wire_line l = {.kind = SG_WIRE_ACCEPTED};
        /* While something waits to be written, the news waits too, and grows together. */
        if (k->carrier && k->out_at == k->out_len) {
            c->ops->input(c->arg, &l);
            if (is_news(k, &l)) {
                say(k, &l);
                told_now(k, &l);
            }
        }
        conn_write(k, now);
        bool done = k->leave && k->out_at == k->out_len;
        if (k->fd >= 0 && (done || (k->since_ms && now - k->since_ms >= CTL_ANSWER_MS)))
            conn_close(k);
    }
}

uint64_t ctl_next(const struct ctl_server *c)
{
    uint64_t next = UINT64_MAX;
    for (size_t i = 0; i < CTL_CONNECTIONS; i++)
        if (c->conn[i].fd >= 0 && c->conn[i].since_ms && c->conn[i].since_ms + CTL_ANSWER_MS < next)
            next = c->conn[i].since_ms + CTL_ANSWER_MS;
    return next;
}

void ctl_close(struct ctl_server *c)
{
    if (c->fd < 0)
        return;
    for (size_t i = 0; i < CTL_CONNECTIONS; i++)
        conn_close(&c->conn[i]);
    close(c->fd);
    c->fd = -1;
}
