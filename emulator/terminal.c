#include "emulator/terminal.h"
#include "base/clock.h"
#include "base/ws_codec.h"
#include "emulator/box.h"
#include "emulator/command.h"
#include "emulator/lifecycle.h"
#include "emulator/terminal_message.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    READ_SIZE = 64 << 10,  /* of the socket at once */
    INPUT_MAX = 256 << 10, /* accepted from the client, not yet taken by the terminal */
    OUTPUT_MAX = 64 << 10, /* framed for the client, not yet sent */
    OUTPUT_KEPT = 1024,    /* of that, for control frames and the end */
    PIECE = 16 << 10,      /* read from the terminal into one frame */
    TEXT_MAX = 1 << 20,    /* a start message with its environment */
    MESSAGE_MAX = 100 << 20,
    START_MS = 30000,     /* until the start message */
    CLOSE_MS = 2000,      /* until the client has answered our close frame */
    STOP_MS = 5000,       /* until a client of a stopped session has read everything */
    LOOK_MS = 250,        /* a terminal that nobody has open is looked at again */
    DRAIN_MS = 500,       /* output that comes out of the kernel after the end of the program */
    PING_MS = 20000,      /* notices a client that vanished without a word */
    STALL_PING_MS = 1000, /* the same while nothing is read from it: its end lies behind what is not read */
    STACK_SIZE = 256 << 10,
    CODE_GOING_AWAY = 1001,
    CODE_POLICY = 1008,
};

enum phase {
    PHASE_START,   /* waiting for the start message */
    PHASE_RUN,     /* the program runs, or its last output is on its way */
    PHASE_CLOSING, /* our close frame is queued or sent, the client's is awaited */
    PHASE_FLUSH,   /* both sides have said close */
    PHASE_OVER,
};

struct queue {
    unsigned char *data;
    size_t cap, off, len;
};

struct terminal {
    atomic_int refs;
    struct emulator *emu;
    struct session *session; /* counted */
    /* sandbox->lock */
    struct terminal *next; /* session->terminals */
    bool listed, connected;
    pid_t pid; /* 0: not started */
    bool exited, stopping;
    int wait_status;
    int wake; /* eventfd; written with the lock held, closed with the last reference */
    /* the connection's thread */
    enum phase phase;
    int fd, master;
    int64_t deadline; /* monotonic, of the phase; 0: none */
    int64_t stop_at;  /* the same, of the session; 0: it runs */
    int64_t idle_until;
    int64_t pinged;
    bool master_idle, saw_exit, saw_stop;
    struct ws_codec codec;
    struct sg_buf text;
    struct queue in, out;
    unsigned char *read_buf;
    void *early;
    size_t n_early;
    uint64_t sent;
    struct terminal_fault fault;
    int64_t cut_at; /* monotonic; 0: never */
    void (*done)(void *arg);
    void *done_arg;
};

/* ---- life ---- */

static void wake(struct terminal *t)
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

void terminal_unref(struct terminal *t)
{
    if (atomic_fetch_sub(&t->refs, 1) != 1)
        return;
    session_unref(t->session);
    if (t->wake >= 0)
        close(t->wake);
    release_buffers(t);
    free(t);
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
    t->fd = t->master = -1;
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
    t->next = s->terminals;
    s->terminals = t;
    atomic_fetch_add(&t->refs, 1);
    pthread_mutex_unlock(&s->sandbox->lock);
    session_leave(s);
    if (t->stopping)
        wake(t);
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

/* The client is gone.  With a program that lives on, the list keeps the terminal to hear of its end. */
static void disconnect(struct terminal *t)
{
    pthread_mutex_t *lock = &t->session->sandbox->lock;
    pthread_mutex_lock(lock);
    t->connected = false;
    bool drop = (!t->pid || t->exited) && unlist(t);
    pthread_mutex_unlock(lock);
    if (drop)
        terminal_unref(t);
}

void terminal_drop(struct terminal *t)
{
    disconnect(t);
    terminal_unref(t);
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
        wake(t);
    else if (unlist(t))
        *left = t;
    return true;
}

void terminal_session_stopping(struct session *s)
{
    for (struct terminal *t = s->terminals; t; t = t->next) {
        t->stopping = true;
        if (t->connected)
            wake(t);
    }
}

bool terminal_connected(const struct session *s)
{
    const struct terminal *t = s->terminals;
    while (t && !t->connected)
        t = t->next;
    return t != NULL;
}

/* ---- frames to the client ---- */

static size_t queue_room(struct queue *q)
{
    if (q->off) {
        memmove(q->data, q->data + q->off, q->len);
        q->off = 0;
    }
    return q->cap - q->len;
}

static void queue_drop(struct queue *q, size_t n)
{
    q->off += n;
    q->len -= n;
    if (!q->len)
        q->off = 0;
}

static bool send_frame(struct terminal *t, enum ws_opcode op, const void *data, size_t n)
{
    unsigned char head[WS_HEAD_MAX];
    size_t h = ws_codec_head(head, op, n);
    if (queue_room(&t->out) < h + n)
        return false;
    memcpy(t->out.data + t->out.len, head, h);
    if (n)
        memcpy(t->out.data + t->out.len + h, data, n);
    t->out.len += h + n;
    return true;
}

static void send_close(struct terminal *t, int code, const char *reason, enum phase next)
{
    unsigned char payload[WS_CONTROL_MAX];
    size_t n = ws_codec_close(payload, code, reason);
    (void)send_frame(t, WS_OP_CLOSE, payload, n); /* there is room kept for it; without, the socket closes */
    t->phase = next;
    t->deadline = 0; /* runs once everything is sent: a slow client gets its output */
}

/* Hangs up: the program's session gets SIGHUP from the kernel. */
static void hang_up(struct terminal *t)
{
    if (t->master >= 0)
        close(t->master);
    t->master = -1;
    queue_drop(&t->in, t->in.len);
}

static void send_exit(struct terminal *t, int code, int close_code, const char *reason)
{
    char text[64];
    int n = snprintf(text, sizeof text, "{\"type\":\"exit\",\"code\":%d}", code);
    hang_up(t);
    (void)send_frame(t, WS_OP_TEXT, text, (size_t)n);
    send_close(t, close_code, reason, PHASE_CLOSING);
}

/* The client broke the protocol, or left. */
static void refuse(struct terminal *t, int code, const char *reason)
{
    hang_up(t);
    send_close(t, code, reason, PHASE_CLOSING);
}

/* ---- starting the program ---- */

static int execute(struct terminal *t, const struct terminal_message *m, const struct command_plan *plan,
                   struct api_error *e)
{
    struct session *s = t->session;
    pid_t pid = 0;
    struct box_exec ex = {.argv = plan->argv,
                          .env = plan->env,
                          .cwd = plan->cwd,
                          .uid = m->sudo ? 0 : BOX_USER_UID,
                          .pty = true,
                          .rows = m->rows,
                          .cols = m->cols,
                          .master = &t->master};
    if (session_enter(s, e))
        return -1;
    int err = box_exec(s->box, &ex, &pid);
    if (err) {
        command_exec_error(s->box, err, m->program, plan->cwd, e);
    } else {
        pthread_mutex_lock(&s->sandbox->lock);
        t->pid = pid;
        if (command_take_early(s, pid, &t->wait_status)) {
            t->exited = true;
            wake(t);
        }
        pthread_mutex_unlock(&s->sandbox->lock);
    }
    session_leave(s);
    return err ? -1 : 0;
}

static void start_program(struct terminal *t, const struct terminal_message *m)
{
    struct command_request rq = {
        .program = m->program, .args = m->args, .cwd = m->cwd, .env = m->env, .sudo = m->sudo};
    struct command_plan plan;
    struct api_error e = {0};
    if (!json_object_get(m->env, "TERM"))
        json_object_set_new(m->env, "TERM", json_string("xterm-256color"));
    int rc = command_plan(t->emu, t->session, &rq, &plan, &e);
    if (!rc) {
        rc = execute(t, m, &plan, &e);
        command_plan_free(&plan);
    }
    if (!rc) {
        t->phase = PHASE_RUN;
        t->deadline = 0;
        return;
    }
    if (e.status == 410 || e.status == 422) {
        refuse(t, CODE_GOING_AWAY, e.message);
        return;
    }
    /* As a shell says it: the client has nowhere else to show it. */
    char text[400];
    int n = snprintf(text, sizeof text, "%s\r\n", e.message);
    (void)send_frame(t, WS_OP_BINARY, text, (size_t)n);
    send_exit(t, strcmp(e.code, "executable_not_found") == 0 ? 127 : 126, WS_CODE_NORMAL, NULL);
}

static void take_text(struct terminal *t)
{
    struct terminal_message m;
    terminal_message_parse(t->text.data ? t->text.data : "", t->text.len, &m);
    bool awaited = t->phase == PHASE_START;
    if (m.kind == TERMINAL_START && awaited) {
        start_program(t, &m);
    } else if (awaited || m.kind == TERMINAL_START || m.kind == TERMINAL_BAD_START) {
        refuse(t, CODE_POLICY, !awaited ? "already started" : m.error ? m.error : "start comes first");
    } else if (m.kind == TERMINAL_RESIZE && t->master >= 0) {
        struct winsize ws = {.ws_row = m.rows, .ws_col = m.cols};
        (void)ioctl(t->master, TIOCSWINSZ, &ws);
    }
    terminal_message_free(&m);
    sg_buf_wipe(&t->text); /* an environment holds secrets */
}

/* ---- frames from the client ---- */

static void take_data(struct terminal *t, const struct ws_event *ev)
{
    if (ev->text) {
        if (!sg_buf_add(&t->text, ev->data, ev->len))
            refuse(t, WS_CODE_TOO_LARGE, "the message is too long");
        else if (ev->end)
            take_text(t);
    } else if (t->phase == PHASE_START) {
        refuse(t, CODE_POLICY, "start comes first");
    } else if (t->master >= 0 && ev->len && queue_room(&t->in) >= ev->len) {
        /* there is room: no more is read from the socket than fits */
        memcpy(t->in.data + t->in.len, ev->data, ev->len);
        t->in.len += ev->len;
    }
}

static void take_event(struct terminal *t, const struct ws_event *ev)
{
    bool closing = t->phase == PHASE_CLOSING;
    switch (ev->kind) {
    case WS_EV_DATA:
        if (!closing)
            take_data(t, ev);
        break;
    case WS_EV_PING:
        if (!closing && queue_room(&t->out) > OUTPUT_KEPT) /* a client that does not read gets none */
            (void)send_frame(t, WS_OP_PONG, ev->data, ev->len);
        break;
    case WS_EV_CLOSE:
        hang_up(t);
        if (closing)
            t->phase = PHASE_FLUSH;
        else
            send_close(t, ev->code, NULL, PHASE_FLUSH);
        break;
    case WS_EV_ERROR:
        if (closing)
            t->phase = PHASE_FLUSH;
        else
            refuse(t, ev->code, NULL);
        break;
    case WS_EV_PONG:
    case WS_EV_NONE:
    default:
        break;
    }
}

static void take_bytes(struct terminal *t, unsigned char *p, size_t n)
{
    struct ws_event ev;
    do {
        size_t used = ws_codec_next(&t->codec, p, n, &ev);
        p += used;
        n -= used;
        take_event(t, &ev);
    } while (ev.kind != WS_EV_NONE && t->phase < PHASE_FLUSH);
}

/* ---- moving bytes ---- */

static void gone(struct terminal *t)
{
    hang_up(t);
    t->phase = PHASE_OVER;
}

static void read_socket(struct terminal *t)
{
    size_t room = INPUT_MAX - t->in.len;
    ssize_t n = recv(t->fd, t->read_buf, room < READ_SIZE ? room : READ_SIZE, MSG_DONTWAIT);
    if (n > 0)
        take_bytes(t, t->read_buf, (size_t)n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        gone(t);
}

static void write_socket(struct terminal *t)
{
    size_t n = t->out.len;
    int64_t limit = t->fault.cut_after_bytes;
    if (limit >= 0 && (uint64_t)limit - t->sent < n)
        n = (size_t)((uint64_t)limit - t->sent);
    ssize_t k = n ? send(t->fd, t->out.data + t->out.off, n, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
    if (k > 0) {
        queue_drop(&t->out, (size_t)k);
        t->sent += (uint64_t)k;
    }
    if ((k < 0 && errno != EAGAIN && errno != EINTR) || (limit >= 0 && t->sent >= (uint64_t)limit))
        gone(t);
}

static void read_master(struct terminal *t)
{
    unsigned char piece[PIECE];
    if (queue_room(&t->out) < OUTPUT_KEPT + PIECE + WS_HEAD_MAX)
        return;
    ssize_t n = read(t->master, piece, sizeof piece);
    if (n > 0) {
        (void)send_frame(t, WS_OP_BINARY, piece, (size_t)n);
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
        queue_drop(&t->in, (size_t)n);
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        queue_drop(&t->in, t->in.len); /* nobody will read it */
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
            refuse(t, CODE_GOING_AWAY, "the session has stopped");
    }
    if (exited && !t->saw_exit) {
        t->saw_exit = true;
        t->idle_until = now + DRAIN_MS;
        queue_drop(&t->in, t->in.len);
    }
}

/* ---- the loop ---- */

static bool may_read_master(struct terminal *t)
{
    return t->master >= 0 && queue_room(&t->out) >= OUTPUT_KEPT + PIECE + WS_HEAD_MAX;
}

/* The program has ended, and everything it wrote is on its way. */
static void finish_program(struct terminal *t)
{
    int st = t->wait_status;
    int code = WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
    if (t->saw_stop)
        send_exit(t, code, CODE_GOING_AWAY, "the session has stopped");
    else
        send_exit(t, code, WS_CODE_NORMAL, NULL);
}

static int64_t ping_at(const struct terminal *t)
{
    if (t->phase != PHASE_RUN || t->fault.cut_after_bytes >= 0)
        return INT64_MAX;
    return t->pinged + (t->in.len == INPUT_MAX ? STALL_PING_MS : PING_MS);
}

static int wait_ms(struct terminal *t, int64_t now)
{
    int64_t until = ping_at(t);
    bool looking = t->phase == PHASE_RUN && (t->master_idle || (t->saw_exit && may_read_master(t)));
    if (t->deadline)
        until = t->deadline;
    if (t->stop_at && t->stop_at < until)
        until = t->stop_at;
    if (t->cut_at && t->cut_at < until)
        until = t->cut_at;
    if (looking && t->idle_until < until)
        until = t->idle_until;
    if (until == INT64_MAX)
        return -1;
    return until <= now ? 0 : until - now > 60000 ? 60000 : (int)(until - now);
}

static void fill_poll(struct terminal *t, struct pollfd p[3])
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
    p[0] = (struct pollfd){.fd = t->fd, .events = socket_events};
    p[1] = (struct pollfd){.fd = t->wake, .events = POLLIN};
    /* a terminal that nobody has open reports its hang-up for ever: it is not asked then */
    p[2] = (struct pollfd){.fd = master_events ? t->master : -1, .events = master_events};
}

static void check_times(struct terminal *t, int64_t now)
{
    if ((t->cut_at && now >= t->cut_at) || (t->stop_at && now >= t->stop_at)) {
        gone(t);
    } else if (t->deadline && now >= t->deadline) {
        if (t->phase == PHASE_START)
            refuse(t, CODE_POLICY, "no start message came");
        else
            gone(t);
    } else if (t->phase == PHASE_RUN && t->master_idle && !t->saw_exit && now >= t->idle_until) {
        t->master_idle = false; /* looked at again */
    }
    if (now >= ping_at(t)) {
        t->pinged = now;
        if (queue_room(&t->out) > OUTPUT_KEPT)
            (void)send_frame(t, WS_OP_PING, NULL, 0);
    }
}

static void turn(struct terminal *t)
{
    struct pollfd p[3];
    fill_poll(t, p);
    int n = poll(p, 3, wait_ms(t, sg_mono_ms()));
    if (n < 0 && errno != EINTR) {
        gone(t);
        return;
    }
    short socket_events = n > 0 ? p[0].revents : 0;
    if (p[1].revents)
        hear_session(t);
    if (n > 0 && p[2].revents && t->master >= 0) {
        if (p[2].revents & POLLOUT)
            write_master(t);
        if (p[2].revents & (POLLIN | POLLHUP | POLLERR))
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
    bool quiet = p[2].events & POLLIN && !p[2].revents && now >= t->idle_until;
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
    if (t->n_early)
        take_bytes(t, t->early, t->n_early);
    while (t->phase != PHASE_OVER)
        turn(t);
    hang_up(t);
    t->done(t->done_arg);
    release_buffers(t); /* the rest may have to wait for the program's end */
    disconnect(t);
    terminal_unref(t);
    terminals_leave(all);
    return NULL;
}

void terminal_start(struct terminal *t, int fd, const void *early, size_t n, void (*done)(void *arg),
                    void *arg)
{
    pthread_attr_t attr;
    pthread_t thread;
    bool ok = n <= INPUT_MAX && (!n || (t->early = malloc(n)));
    t->fd = fd;
    t->done = done;
    t->done_arg = arg;
    if (ok && n) {
        memcpy(t->early, early, n);
        t->n_early = n;
    }
    if (ok && terminals_enter(t->emu->terminals)) {
        pthread_attr_init(&attr);
        pthread_attr_setstacksize(&attr, STACK_SIZE);
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        ok = !pthread_create(&thread, &attr, terminal_main, t);
        pthread_attr_destroy(&attr);
        if (ok)
            return;
        terminals_leave(t->emu->terminals);
    }
    terminal_drop(t);
    done(arg);
}
