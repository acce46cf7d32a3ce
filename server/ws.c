#include "server/ws.h"

#include "base/buf.h"
#include "base/log.h"
#include "base/ws_codec.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    SCRATCH = 64 * 1024,
    CHUNK = 8 * 1024,
    DIRECT = 16 * 1024,
    IOV_BATCH = 16,
    MISSES_MAX = 2,
    READS_PER_EVENT = 4
};

enum ws_state {
    WS_NEW, /* no socket yet */
    WS_OPEN,
    WS_CLOSING,   /* our close frame is queued or sent */
    WS_FLUSHING,  /* the peer's side is over; the rest is being written */
    WS_LINGERING, /* after a fault of the peer: input is thrown away so that it can read our close frame */
    WS_DEAD,
};

struct chunk {
    struct chunk *next;
    size_t off, len, cap;
    unsigned char data[];
};

struct ws {
    struct ws_group *group;
    struct ws *next, **prev; /* group->all */
    struct ws *dirty_next;
    bool dirty;
    enum ws_state state;
    int fd;
    uv_poll_t poll;
    bool want_write;
    bool faulty;            /* the peer broke the protocol */
    struct sg_timer *timer; /* pings while open, then the limit of the close handshake */
    unsigned misses;
    bool heard;            /* bytes came since the last ping */
    bool paused;           /* its owner takes no messages now */
    struct sg_timer *wake; /* made by the first pause: goes on with what was read before it */
    struct sg_buf rest;    /* that */
    struct ws_codec codec;
    struct sg_buf message; /* a message that came in pieces */
    struct chunk *head, *tail;
    size_t queued;
    const struct ws_events *ev;
    void *arg;
    struct sg_grave grave;
};

bool ws_group_init(struct ws_group *g, struct sg_loop *loop, size_t max, uint64_t ping_ms)
{
    memset(g, 0, sizeof *g);
    g->loop = loop;
    g->max = max;
    g->ping_ms = ping_ms;
    g->scratch = malloc(SCRATCH);
    return g->scratch != NULL;
}

struct ws *ws_new(struct ws_group *g)
{
    struct ws *ws = calloc(1, sizeof *ws);
    if (!ws)
        return NULL;
    ws->group = g;
    ws->fd = -1;
    ws->next = g->all;
    ws->prev = &g->all;
    if (g->all)
        g->all->prev = &ws->next;
    g->all = ws;
    g->count++;
    sg_buf_init(&ws->message, WS_MAX_MESSAGE);
    sg_buf_init(&ws->rest, SCRATCH);
    ws_codec_init(&ws->codec, WS_MAX_MESSAGE);
    return ws;
}

void ws_set_events(struct ws *ws, const struct ws_events *ev, void *arg)
{
    ws->ev = ev;
    ws->arg = arg;
}

static void bury(struct sg_grave *g)
{
    struct ws *ws = (struct ws *)((char *)g - offsetof(struct ws, grave));
    while (ws->head) {
        struct chunk *c = ws->head;
        ws->head = c->next;
        free(c);
    }
    sg_buf_free(&ws->message);
    sg_buf_free(&ws->rest);
    free(ws);
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct ws *ws = handle->data;
    close(ws->fd); /* only now: the poll handle let go of it */
    bury(&ws->grave);
}

static void unlink_dirty(struct ws *ws)
{
    if (!ws->dirty)
        return;
    struct ws **p = &ws->group->dirty;
    while (*p && *p != ws)
        p = &(*p)->dirty_next;
    if (*p)
        *p = ws->dirty_next;
    ws->dirty = false;
}

/* The owner's last word from us. */
static void tell_closed(struct ws *ws)
{
    const struct ws_events *ev = ws->ev;
    ws->ev = NULL;
    if (ev)
        ev->on_closed(ws->arg);
}

/* The one way out. */
static void die(struct ws *ws)
{
    if (ws->state == WS_DEAD)
        return;
    ws->state = WS_DEAD;
    struct ws_group *g = ws->group;
    unlink_dirty(ws);
    *ws->prev = ws->next;
    if (ws->next)
        ws->next->prev = ws->prev;
    g->count--;
    sg_timer_free(ws->timer);
    sg_timer_free(ws->wake);
    ws->timer = ws->wake = NULL;
    bool has_socket = ws->fd >= 0;
    if (has_socket)
        uv_poll_stop(&ws->poll);
    tell_closed(ws);
    if (has_socket) {
        uv_close((uv_handle_t *)&ws->poll, on_poll_closed);
    } else {
        ws->grave.fn = bury;
        sg_loop_bury(g->loop, &ws->grave);
    }
}

void ws_drop(struct ws *ws)
{
    die(ws);
}

/* ---- writing ---- */

static void mark_dirty(struct ws *ws)
{
    if (ws->dirty || ws->want_write || ws->fd < 0)
        return;
    ws->dirty = true;
    ws->dirty_next = ws->group->dirty;
    ws->group->dirty = ws;
}

/* Room for n more bytes in one chunk. */
static struct chunk *room(struct ws *ws, size_t n)
{
    struct chunk *c = ws->tail;
    if (c && c->cap - c->len >= n)
        return c;
    size_t cap = n > CHUNK ? n : ws->head ? CHUNK : n < 256 ? 256 : n;
    c = malloc(sizeof *c + cap);
    if (!c)
        return NULL;
    c->next = NULL;
    c->off = c->len = 0;
    c->cap = cap;
    if (ws->tail)
        ws->tail->next = c;
    else
        ws->head = c;
    ws->tail = c;
    return c;
}

static void put(struct chunk *c, const void *data, size_t len)
{
    memcpy(c->data + c->len, data, len);
    c->len += len;
}

/* Large frames are not copied when nothing is queued before them: what the socket takes at once goes there.  Faults
 * of the socket are found by the flush that follows. */
static size_t write_now(const struct ws *ws, const struct iovec *iov, size_t total)
{
    if (ws->head || ws->want_write || ws->fd < 0 || ws->state != WS_OPEN || total < DIRECT)
        return 0;
    struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = 3}; /* only read */
    ssize_t w = sendmsg(ws->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    return w > 0 ? (size_t)w : 0;
}

/* A part of a frame was written and the rest cannot be kept: there is no way on.  Not inside the caller. */
static void give_up(struct ws *ws)
{
    ws->state = WS_CLOSING;
    sg_timer_start(ws->timer, 0);
}

static bool queue_frame(struct ws *ws, enum ws_opcode op, const void *a, size_t alen, const void *b,
                        size_t blen)
{
    if (alen > WS_QUEUE_MAX || blen > WS_QUEUE_MAX || ws->queued + alen + blen > WS_QUEUE_MAX)
        return false;
    unsigned char head[WS_HEAD_MAX];
    size_t hlen = ws_codec_head(head, op, alen + blen), total = hlen + alen + blen;
    const struct iovec iov[3] = {
        {head, hlen}, {(void *)(uintptr_t)a, alen}, {(void *)(uintptr_t)b, blen}}; /* only read */
    size_t sent = write_now(ws, iov, total);
    if (sent == total)
        return true;
    struct chunk *c = room(ws, total - sent);
    if (!c) {
        if (sent)
            give_up(ws);
        return false;
    }
    ws->queued += total - sent;
    for (size_t i = 0; i < 3; i++) {
        size_t skip = sent < iov[i].iov_len ? sent : iov[i].iov_len;
        if (skip < iov[i].iov_len)
            put(c, (const char *)iov[i].iov_base + skip, iov[i].iov_len - skip);
        sent -= skip;
    }
    mark_dirty(ws);
    return true;
}

static void consume(struct ws *ws, size_t n)
{
    ws->queued -= n;
    struct chunk *c;
    while (n && (c = ws->head) != NULL) {
        size_t have = c->len - c->off;
        if (n < have) {
            c->off += n;
            return;
        }
        n -= have;
        ws->head = c->next;
        if (!ws->head)
            ws->tail = NULL;
        free(c);
    }
}

static void set_poll(struct ws *ws, bool want_write);
static void on_poll(uv_poll_t *handle, int status, int events);

/* Writes what the socket takes.  False: the socket is dead (and so is ws). */
static bool flush(struct ws *ws)
{
    size_t before = ws->queued;
    while (ws->head) {
        struct iovec iov[IOV_BATCH];
        size_t n = 0;
        for (struct chunk *c = ws->head; c && n < IOV_BATCH; c = c->next)
            iov[n++] = (struct iovec){c->data + c->off, c->len - c->off};
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = n};
        ssize_t w = sendmsg(ws->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (w < 0) {
            if (errno == EINTR)
                continue;
            if (errno == EAGAIN)
                break;
            die(ws);
            return false;
        }
        consume(ws, (size_t)w);
    }
    if (!ws->head && ws->state == WS_FLUSHING) {
        shutdown(ws->fd, SHUT_WR);
        if (!ws->faulty) {
            die(ws);
            return false;
        }
        ws->state = WS_LINGERING;
    }
    set_poll(ws, ws->head != NULL);
    if (before >= WS_QUEUE_LOW && ws->queued < WS_QUEUE_LOW && ws->state == WS_OPEN && ws->ev->on_drain)
        ws->ev->on_drain(ws->arg);
    return true;
}

bool ws_group_flush(struct ws_group *g)
{
    struct ws *list = g->dirty; /* what on_drain adds waits for the next round */
    g->dirty = NULL;
    while (list) {
        struct ws *ws = list;
        list = ws->dirty_next;
        ws->dirty = false;
        flush(ws);
    }
    return g->dirty != NULL;
}

bool ws_send(struct ws *ws, bool text, const void *head, size_t head_len, const void *body, size_t body_len)
{
    if (ws->state != WS_OPEN)
        return false;
    return queue_frame(ws, text ? WS_OP_TEXT : WS_OP_BINARY, head, head_len, body, body_len);
}

size_t ws_queued(const struct ws *ws)
{
    return ws->queued;
}

/* Queues our close frame.  False when even that has no room: the socket is cut. */
static bool send_close(struct ws *ws, int code, const char *reason)
{
    unsigned char payload[WS_CONTROL_MAX];
    size_t len = ws_codec_close(payload, code, reason);
    if (!queue_frame(ws, WS_OP_CLOSE, payload, len, NULL, 0)) {
        die(ws);
        return false;
    }
    sg_timer_start(ws->timer, WS_CLOSE_MS);
    return true;
}

void ws_close(struct ws *ws, int code, const char *reason)
{
    if (ws->state != WS_OPEN)
        return;
    ws_resume(ws); /* to hear the peer's close frame */
    /* Out of memory here must not run on_closed inside the caller: the timer does it. */
    unsigned char payload[WS_CONTROL_MAX];
    size_t len = ws_codec_close(payload, code, reason);
    ws->state = WS_CLOSING;
    bool queued = queue_frame(ws, WS_OP_CLOSE, payload, len, NULL, 0);
    sg_timer_start(ws->timer, queued ? WS_CLOSE_MS : 0);
}

/* ---- reading ---- */

static void deliver(struct ws *ws, const struct ws_event *e)
{
    if (ws->state != WS_OPEN)
        return; /* we said goodbye: what still comes is not wanted */
    if (e->end && ws->message.len == 0) {
        ws->ev->on_message(ws->arg, e->text, e->data, e->len);
        return;
    }
    if (!sg_buf_add(&ws->message, e->data, e->len)) {
        ws_close(ws, 1011, "out of memory");
        sg_buf_free(&ws->message);
        return;
    }
    if (e->end) {
        ws->ev->on_message(ws->arg, e->text, ws->message.data, ws->message.len);
        sg_buf_free(&ws->message);
    }
}

/* The peer's side is over; answer with `code` unless we have said ours. */
static void finish(struct ws *ws, int code)
{
    const char *why = code == WS_CODE_TOO_LARGE ? "a message carries at most 1048576 bytes" : NULL;
    if (ws->state == WS_OPEN && !send_close(ws, code, why))
        return;
    ws->state = WS_FLUSHING;
    tell_closed(ws); /* however long the peer takes to go */
    flush(ws);
}

/* What came behind the message that made the owner pause. */
static bool keep_rest(struct ws *ws, const unsigned char *data, size_t len)
{
    if (!len || sg_buf_add(&ws->rest, data, len))
        return true;
    ws_close(ws, 1011, "out of memory");
    return true;
}

/* False when the socket's reading side is over. */
static bool feed(struct ws *ws, unsigned char *data, size_t len)
{
    ws->heard = true;
    struct ws_event e;
    for (;;) {
        size_t used = ws_codec_next(&ws->codec, data, len, &e);
        data += used;
        len -= used;
        switch (e.kind) {
        case WS_EV_NONE:
            return true;
        case WS_EV_DATA:
            deliver(ws, &e);
            break;
        case WS_EV_PING:
            /* A peer that pings without reading gets no more answers than the queue may hold. */
            if (ws->state == WS_OPEN && ws->queued < WS_QUEUE_HIGH)
                (void)queue_frame(ws, WS_OP_PONG, e.data, e.len, NULL, 0);
            break;
        case WS_EV_PONG:
            break;
        case WS_EV_CLOSE:
        case WS_EV_ERROR:
            ws->faulty = e.kind == WS_EV_ERROR;
            finish(ws, e.code);
            return false;
        }
        if (ws->state == WS_DEAD)
            return false;
        if (ws->paused)
            return keep_rest(ws, data, len);
    }
}

/* Nothing is read from the socket now: the owner does not want it, or what was read before comes first. */
static bool holds(const struct ws *ws)
{
    return ws->paused || ws->rest.len;
}

static void read_socket(struct ws *ws)
{
    unsigned char *buf = ws->group->scratch;
    for (int i = 0; i < READS_PER_EVENT; i++) {
        ssize_t n = recv(ws->fd, buf, SCRATCH, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            die(ws);
            return;
        }
        if (!feed(ws, buf, (size_t)n) || n < SCRATCH || holds(ws))
            return;
    }
}

/* A peer that is gone is noticed all the same: by its end of file, or when it acknowledges nothing of our pings. */
static void poll_now(struct ws *ws)
{
    int events = holds(ws) ? UV_DISCONNECT : UV_READABLE;
    uv_poll_start(&ws->poll, events | (ws->want_write ? UV_WRITABLE : 0), on_poll);
}

static void limit_silence(struct ws *ws, uint64_t ms)
{
    unsigned limit = ms < UINT_MAX ? (unsigned)ms : UINT_MAX;
    (void)setsockopt(ws->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof limit);
}

static void on_wake(void *arg)
{
    struct ws *ws = arg;
    if (ws->paused || ws->state == WS_DEAD || !ws->rest.len)
        return;
    unsigned char *data = ws->group->scratch;
    size_t len = ws->rest.len;
    memcpy(data, ws->rest.data, len);
    sg_buf_free(&ws->rest);
    (void)feed(ws, data, len);
    if (ws->state != WS_DEAD)
        poll_now(ws);
}

bool ws_pause(struct ws *ws)
{
    if (ws->paused || ws->state != WS_OPEN)
        return ws->paused;
    if (!ws->wake)
        ws->wake = sg_timer_new(ws->group->loop, on_wake, ws);
    if (!ws->wake)
        return false;
    ws->paused = true;
    limit_silence(ws, (MISSES_MAX + 1) * ws->group->ping_ms);
    poll_now(ws);
    return true;
}

void ws_resume(struct ws *ws)
{
    if (!ws->paused || ws->state != WS_OPEN)
        return;
    ws->paused = false;
    ws->heard = true;
    limit_silence(ws, 0);
    poll_now(ws);
    if (ws->rest.len)
        sg_timer_start(ws->wake, 0); /* not inside the caller's own callback */
}

static void on_poll(uv_poll_t *handle, int status, int events)
{
    struct ws *ws = handle->data;
    if (status < 0) {
        die(ws);
        return;
    }
    if (events & UV_WRITABLE && !flush(ws))
        return;
    if (holds(ws)) {
        if (events & UV_DISCONNECT && ws->paused)
            die(ws);
    } else if (events & (UV_READABLE | UV_DISCONNECT)) {
        read_socket(ws);
    }
}

static void set_poll(struct ws *ws, bool want_write)
{
    if (ws->want_write == want_write)
        return;
    ws->want_write = want_write;
    poll_now(ws);
}

static void on_timer(void *arg)
{
    struct ws *ws = arg;
    if (ws->state != WS_OPEN) {
        die(ws); /* the peer did not finish the close handshake in time */
        return;
    }
    ws->misses = ws->heard || ws->paused ? 0 : ws->misses + 1; /* what it answers is not read while paused */
    if (ws->misses >= MISSES_MAX) {
        sg_log(SG_LOG_INFO, "websocket_lost", "reason", "s", "no answer to pings", NULL);
        die(ws);
        return;
    }
    ws->heard = false;
    (void)queue_frame(ws, WS_OP_PING, NULL, 0, NULL, 0);
    sg_timer_start(ws->timer, ws->group->ping_ms);
}

void ws_start(struct ws *ws, int fd, const void *early, size_t early_len)
{
    if (fd < 0 || uv_poll_init(sg_loop_uv(ws->group->loop), &ws->poll, fd)) {
        if (fd >= 0)
            close(fd);
        die(ws);
        return;
    }
    ws->fd = fd;
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* a turn's frames leave together anyway */
    ws->poll.data = ws;
    ws->timer = sg_timer_new(ws->group->loop, on_timer, ws);
    if (!ws->timer || uv_poll_start(&ws->poll, UV_READABLE, on_poll)) {
        die(ws);
        return;
    }
    ws->heard = true;
    sg_timer_start(ws->timer, ws->group->ping_ms);
    ws->state = WS_OPEN;
    ws->ev->on_open(ws->arg, ws);
    const unsigned char *p = early;
    while (early_len && ws->state != WS_DEAD) {
        size_t n = early_len < SCRATCH ? early_len : SCRATCH;
        if (ws->paused) { /* a client that did not wait for the answer to its handshake */
            if (!sg_buf_add(&ws->rest, p, early_len))
                ws_close(ws, 1011, "out of memory");
            return;
        }
        memcpy(ws->group->scratch, p, n);
        if (!feed(ws, ws->group->scratch, n))
            return;
        p += n;
        early_len -= n;
    }
}

/* ---- all of them ---- */

static void each(struct ws_group *g, void (*fn)(struct ws *ws, int code, const char *reason), int code,
                 const char *reason)
{
    for (struct ws *ws = g->all, *next; ws; ws = next) {
        next = ws->next; /* fn may end ws, never another socket */
        fn(ws, code, reason);
    }
}

static void shut_one(struct ws *ws, int code, const char *reason)
{
    if (ws->state != WS_OPEN)
        return;
    if (ws->ev->on_shutdown)
        ws->ev->on_shutdown(ws->arg);
    else
        ws_close(ws, code, reason);
}

void ws_group_shutdown(struct ws_group *g)
{
    each(g, shut_one, WS_CODE_GOING_AWAY, "draining");
}

void ws_group_close_all(struct ws_group *g, int code, const char *reason)
{
    each(g, ws_close, code, reason);
}

void ws_group_end(struct ws_group *g)
{
    while (g->all)
        die(g->all);
    free(g->scratch);
    g->scratch = NULL;
}
