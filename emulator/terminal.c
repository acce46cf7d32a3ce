#include "base/clock.h"
#include "base/crypto.h"
#include "emulator/lifecycle.h"
#include "emulator/terminal_internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- life ---- */

void terminal_wake(struct terminal *t)
{
    uint64_t one = 1;
    (void)!write(t->wake, &one, sizeof one);
}

static void release_buffers(struct terminal *t)
{
    sg_buf_wipe(&t->text);
    free(t->in.data);
    free(t->out.data);
    free(t->read_buf);
    free(t->early);
    t->in.data = t->out.data = t->read_buf = NULL;
    t->early = NULL;
}

static void unref(struct terminal *t, int n)
{
    if (atomic_fetch_sub(&t->refs, n) != n)
        return;
    session_unref(t->session);
    if (t->wake >= 0)
        close(t->wake);
    release_buffers(t);
    free(t);
}

void terminal_unref(struct terminal *t)
{
    unref(t, 1);
}

struct terminal *terminal_new(struct emulator *emu, struct session *s, const struct terminal_fault *fault,
                              struct api_error *e)
{
    struct terminal *t = calloc(1, sizeof *t);
    if (!t) {
        api_fail(e, 500, "internal_server_error", "no memory");
        return NULL;
    }
    atomic_init(&t->refs, 1);
    t->emu = emu;
    t->session = session_ref(s);
    t->master = -1;
    t->fault = *fault;
    t->in = (struct queue){.data = malloc(INPUT_MAX), .cap = INPUT_MAX};
    t->out = (struct queue){.data = malloc(OUTPUT_MAX), .cap = OUTPUT_MAX};
    t->read_buf = malloc(READ_SIZE);
    t->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sg_buf_init(&t->text, TEXT_MAX);
    ws_codec_init(&t->codec, MESSAGE_MAX);
    if (!t->in.data || !t->out.data || !t->read_buf || t->wake < 0) {
        terminal_unref(t);
        api_fail(e, 500, "internal_server_error", "no memory");
        return NULL;
    }
    if (session_enter(s, e)) {
        terminal_unref(t);
        return NULL;
    }
    pthread_mutex_lock(&s->sandbox->lock);
    t->connected = t->listed = true;
    t->stopping = s->status != ST_RUNNING; /* who stops it has told the others already */
    if (t->stopping)
        terminal_wake(t);
    t->next = s->terminals;
    s->terminals = t;
    atomic_fetch_add(&t->refs, 1);
    pthread_mutex_unlock(&s->sandbox->lock);
    session_leave(s);
    return t;
}

/* With the lock: true when the list's reference is the caller's to give up. */
static bool unlist(struct terminal *t)
{
    for (struct terminal **at = &t->session->terminals; t->listed && *at; at = &(*at)->next)
        if (*at == t) {
            *at = t->next;
            t->listed = false;
            return true;
        }
    return false;
}

void terminal_drop(struct terminal *t)
{
    pthread_mutex_t *lock = &t->session->sandbox->lock;
    pthread_mutex_lock(lock);
    t->connected = false;
    bool drop = (!t->pid || t->exited) && unlist(t);
    pthread_mutex_unlock(lock);
    unref(t, drop ? 2 : 1);
}

/* ---- what the session says; with sandbox->lock ---- */

bool terminal_exited(struct session *s, pid_t pid, int wait_status, struct terminal **left)
{
    struct terminal *t = s->terminals;
    while (t && (t->pid != pid || t->exited))
        t = t->next;
    if (!t)
        return false;
    t->exited = true;
    t->wait_status = wait_status;
    if (t->connected)
        terminal_wake(t);
    else if (unlist(t))
        *left = t;
    return true;
}

void terminal_session_stopping(struct session *s)
{
    for (struct terminal *t = s->terminals; t; t = t->next) {
        t->stopping = true;
        if (t->connected)
            terminal_wake(t);
    }
}

bool terminal_connected(const struct session *s)
{
    const struct terminal *t = s->terminals;
    while (t && !t->connected)
        t = t->next;
    return t != NULL;
}

/* ---- moving bytes ---- */

static void gone(struct terminal *t)
{
    terminal_hang_up(t);
    t->phase = PHASE_OVER;
}

static void read_socket(struct terminal *t)
{
    size_t room = INPUT_MAX - t->in.len;
    ssize_t n = recv(t->socket.fd, t->read_buf, room < READ_SIZE ? room : READ_SIZE, MSG_DONTWAIT);
    if (n > 0)
        terminal_take(t, t->read_buf, (size_t)n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        gone(t);
}

static void write_socket(struct terminal *t)
{
    size_t n = t->out.len;
    int64_t limit = t->fault.cut_after_bytes;
    if (limit >= 0 && (uint64_t)limit - t->sent < n)
        n = (size_t)((uint64_t)limit - t->sent);
    ssize_t k = n ? send(t->socket.fd, t->out.data + t->out.off, n, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
    if (k > 0) {
        terminal_consume(&t->out, (size_t)k);
        t->sent += (uint64_t)k;
    }
    if ((k < 0 && errno != EAGAIN && errno != EINTR) || (limit >= 0 && t->sent >= (uint64_t)limit))
        gone(t);
}

static void read_master(struct terminal *t)
{
    unsigned char piece[PIECE];
    if (terminal_room(&t->out) < OUTPUT_KEPT + PIECE + WS_HEAD_MAX)
        return;
    ssize_t n = read(t->master, piece, sizeof piece);
    if (n > 0) {
        (void)terminal_send(t, WS_OP_BINARY, piece, (size_t)n);
        t->master_idle = false;
        t->idle_until = sg_mono_ms() + DRAIN_MS;
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        t->master_idle = true; /* nobody has the terminal open: for ever, once the program has ended */
        t->idle_until = sg_mono_ms() + LOOK_MS;
    }
}

static void write_master(struct terminal *t)
{
    ssize_t n = write(t->master, t->in.data + t->in.off, t->in.len);
    if (n > 0)
        terminal_consume(&t->in, (size_t)n);
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        terminal_consume(&t->in, t->in.len); /* nobody will read it */
}

/* What the session has said meanwhile. */
static void hear_session(struct terminal *t)
{
    uint64_t count;
    (void)!read(t->wake, &count, sizeof count);
    pthread_mutex_lock(&t->session->sandbox->lock);
    bool exited = t->exited, stopping = t->stopping;
    pthread_mutex_unlock(&t->session->sandbox->lock);
    int64_t now = sg_mono_ms();
    if (stopping && !t->saw_stop) {
        t->saw_stop = true;
        t->stop_at = now + STOP_MS;
        if (t->phase == PHASE_START)
            terminal_refuse(t, CODE_GOING_AWAY, "the session has stopped");
    }
    if (exited && !t->saw_exit) {
        t->saw_exit = true;
        t->master_idle = false; /* somebody may have had it open since */
        t->idle_until = now + DRAIN_MS;
        terminal_consume(&t->in, t->in.len);
    }
}

/* ---- the loop ---- */

static bool may_read_master(const struct terminal *t)
{
    return t->master >= 0 && terminal_room(&t->out) >= OUTPUT_KEPT + PIECE + WS_HEAD_MAX;
}

/* The program has ended, and everything it wrote is on its way. */
static void finish_program(struct terminal *t)
{
    int st = t->wait_status;
    int code = WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
    if (t->saw_stop)
        terminal_send_exit(t, code, CODE_GOING_AWAY, "the session has stopped");
    else
        terminal_send_exit(t, code, WS_CODE_NORMAL, NULL);
}

static int64_t ping_at(const struct terminal *t)
{
    if (t->phase != PHASE_RUN || t->fault.cut_after_bytes >= 0)
        return INT64_MAX;
    return t->pinged + (t->in.len == INPUT_MAX ? STALL_PING_MS : PING_MS);
}

static int wait_ms(const struct terminal *t, int64_t now)
{
    int64_t until = ping_at(t);
    bool looking = t->phase == PHASE_RUN && (t->master_idle || (t->saw_exit && may_read_master(t)));
    if (t->deadline)
        until = t->deadline;
    if (t->stop_at && t->stop_at < until)
        until = t->stop_at;
    if (t->gone_at && t->gone_at < until)
        until = t->gone_at;
    if (t->cut_at && t->cut_at < until)
        until = t->cut_at;
    if (looking && t->idle_until < until)
        until = t->idle_until;
    if (until == INT64_MAX)
        return -1;
    return until <= now ? 0 : until - now > 60000 ? 60000 : (int)(until - now);
}

enum { AT_SOCKET, AT_WAKE, AT_MASTER, AT_PEER, AT_ALL };

static void fill_poll(const struct terminal *t, struct pollfd p[AT_ALL])
{
    bool read = t->phase != PHASE_FLUSH && t->in.len < INPUT_MAX;
    short socket_events = t->phase == PHASE_FLUSH ? 0 : POLLRDHUP;
    short master_events = 0;
    if (read)
        socket_events |= POLLIN;
    if (t->out.len)
        socket_events |= POLLOUT;
    if (may_read_master(t) && !t->master_idle)
        master_events |= POLLIN;
    if (t->master >= 0 && t->in.len && !t->saw_exit && !t->master_idle)
        master_events |= POLLOUT;
    p[AT_SOCKET] = (struct pollfd){.fd = t->socket.fd, .events = socket_events};
    p[AT_WAKE] = (struct pollfd){.fd = t->wake, .events = POLLIN};
    /* a terminal that nobody has open reports its hang-up for ever: it is not asked then */
    p[AT_MASTER] = (struct pollfd){.fd = master_events ? t->master : -1, .events = master_events};
    p[AT_PEER] = (struct pollfd){.fd = t->peer_gone ? -1 : t->socket.peer, .events = POLLRDHUP};
}

static void check_times(struct terminal *t, int64_t now)
{
    if ((t->cut_at && now >= t->cut_at) || (t->stop_at && now >= t->stop_at) ||
        (t->gone_at && now >= t->gone_at)) {
        gone(t);
    } else if (t->deadline && now >= t->deadline) {
        if (t->phase == PHASE_START)
            terminal_refuse(t, CODE_POLICY, "no start message came");
        else
            gone(t);
    } else if (t->phase == PHASE_RUN && t->master_idle && !t->saw_exit && now >= t->idle_until) {
        t->master_idle = false; /* looked at again */
    }
    if (now >= ping_at(t)) {
        t->pinged = now;
        if (terminal_room(&t->out) > OUTPUT_KEPT)
            (void)terminal_send(t, WS_OP_PING, NULL, 0);
    }
}

static void turn(struct terminal *t)
{
    struct pollfd p[AT_ALL];
    fill_poll(t, p);
    int n = poll(p, AT_ALL, wait_ms(t, sg_mono_ms()));
    if (n < 0 && errno != EINTR) {
        gone(t);
        return;
    }
    short socket_events = n > 0 ? p[AT_SOCKET].revents : 0;
    if (n > 0 && p[AT_WAKE].revents)
        hear_session(t);
    if (n > 0 && p[AT_PEER].revents) { /* what it sent last may still be on its way through TLS */
        t->peer_gone = true;
        t->gone_at = sg_mono_ms() + LOOK_MS;
    }
    if (n > 0 && p[AT_MASTER].revents && t->master >= 0) {
        if (p[AT_MASTER].revents & POLLOUT)
            write_master(t);
        if (p[AT_MASTER].revents & (POLLIN | POLLHUP | POLLERR))
            read_master(t);
    }
    /* A client that has closed its side without a word is gone, whatever is still unread of it. */
    if (socket_events & (POLLERR | POLLHUP | POLLNVAL | POLLRDHUP) && !(socket_events & POLLIN))
        gone(t);
    if (socket_events & POLLIN && t->phase < PHASE_FLUSH)
        read_socket(t);
    if (t->out.len && t->phase != PHASE_OVER)
        write_socket(t);
    int64_t now = sg_mono_ms();
    bool quiet = p[AT_MASTER].events & POLLIN && !p[AT_MASTER].revents && now >= t->idle_until;
    if (t->phase == PHASE_RUN && t->saw_exit && (t->master_idle || quiet))
        finish_program(t);
    if (t->phase == PHASE_CLOSING && !t->out.len && !t->deadline)
        t->deadline = now + CLOSE_MS;
    if (t->phase == PHASE_FLUSH && !t->out.len)
        t->phase = PHASE_OVER;
    if (t->phase != PHASE_OVER)
        check_times(t, now);
}

static void *terminal_main(void *arg)
{
    struct terminal *t = arg;
    struct terminals *all = t->emu->terminals;
    int64_t now = sg_mono_ms();
    t->deadline = now + START_MS;
    t->pinged = now;
    if (t->fault.cut_after_ms >= 0)
        t->cut_at = now + t->fault.cut_after_ms;
    if (t->early)
        terminal_take(t, t->early, t->socket.n_early);
    while (t->phase != PHASE_OVER)
        turn(t);
    terminal_hang_up(t);
    t->socket.done(t->socket.done_arg);
    release_buffers(t); /* the rest may have to wait for the program's end */
    terminal_drop(t);
    sg_crypto_thread_end();
    terminals_leave(all);
    return NULL;
}

/* An echo must not wait for the acknowledgement of the one before. */
static void send_at_once(int fd)
{
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static bool spawn(struct terminal *t)
{
    pthread_attr_t attr;
    pthread_t thread;
    if (pthread_attr_init(&attr))
        return false;
    bool ok = !pthread_attr_setstacksize(&attr, STACK_SIZE) &&
              !pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED) &&
              !pthread_create(&thread, &attr, terminal_main, t);
    pthread_attr_destroy(&attr);
    return ok;
}

void terminal_start(struct terminal *t, const struct terminal_socket *socket)
{
    struct terminals *all = t->emu->terminals;
    size_t n = socket->n_early;
    void (*done)(void *) = socket->done;
    void *done_arg = socket->done_arg;
    t->socket = *socket;
    send_at_once(socket->peer >= 0 ? socket->peer : socket->fd);
    bool ok = n <= INPUT_MAX && (!n || (t->early = malloc(n)));
    if (ok && n)
        memcpy(t->early, socket->early, n);
    if (ok && terminals_enter(all)) {
        if (spawn(t))
            return;
        terminals_leave(all);
    }
    terminal_drop(t);
    done(done_arg);
}
