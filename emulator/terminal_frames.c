#include "emulator/box.h"
#include "emulator/command.h"
#include "emulator/lifecycle.h"
#include "emulator/terminal_internal.h"
#include "emulator/terminal_message.h"

#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- frames to the client ---- */

size_t terminal_room(const struct queue *q)
{
    return q->cap - q->len;
}

/* What fits, as terminal_room has said. */
static void add(struct queue *q, const void *data, size_t n)
{
    if (q->off + q->len + n > q->cap) {
        memmove(q->data, q->data + q->off, q->len);
        q->off = 0;
    }
    if (n)
        memcpy(q->data + q->off + q->len, data, n);
    q->len += n;
}

void terminal_consume(struct queue *q, size_t n)
{
    q->off += n;
    q->len -= n;
    if (!q->len)
        q->off = 0;
}

bool terminal_send(struct terminal *t, enum ws_opcode op, const void *data, size_t n)
{
    unsigned char head[WS_HEAD_MAX];
    size_t h = ws_codec_head(head, op, n);
    if (terminal_room(&t->out) < h + n)
        return false;
    add(&t->out, head, h);
    add(&t->out, data, n);
    return true;
}

static void send_close(struct terminal *t, int code, const char *reason, enum phase next)
{
    unsigned char payload[WS_CONTROL_MAX];
    size_t n = ws_codec_close(payload, code, reason);
    (void)terminal_send(t, WS_OP_CLOSE, payload,
                        n); /* there is room kept for it; without, the socket closes */
    t->phase = next;
    t->deadline = 0; /* runs once everything is sent: a slow client gets its output */
}

/* Hangs up: the program's session gets SIGHUP from the kernel. */
void terminal_hang_up(struct terminal *t)
{
    if (t->master >= 0)
        close(t->master);
    t->master = -1;
    terminal_consume(&t->in, t->in.len);
}

void terminal_send_exit(struct terminal *t, int code, int close_code, const char *reason)
{
    char text[64];
    int n = snprintf(text, sizeof text, "{\"type\":\"exit\",\"code\":%d}", code);
    terminal_hang_up(t);
    (void)terminal_send(t, WS_OP_TEXT, text, (size_t)n);
    send_close(t, close_code, reason, PHASE_CLOSING);
}

/* The client broke the protocol, or left. */
void terminal_refuse(struct terminal *t, int code, const char *reason)
{
    terminal_hang_up(t);
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
            terminal_wake(t);
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
        terminal_refuse(t, CODE_GOING_AWAY, e.message);
        return;
    }
    /* As a shell says it: the client has nowhere else to show it. */
    char text[400];
    int n = snprintf(text, sizeof text, "%s\r\n", e.message);
    (void)terminal_send(t, WS_OP_BINARY, text, (size_t)n);
    terminal_send_exit(t, strcmp(e.code, "executable_not_found") == 0 ? 127 : 126, WS_CODE_NORMAL, NULL);
}

static void take_text(struct terminal *t)
{
    struct terminal_message m;
    terminal_message_parse(t->text.data ? t->text.data : "", t->text.len, &m);
    bool awaited = t->phase == PHASE_START;
    if (m.kind == TERMINAL_START && awaited) {
        start_program(t, &m);
    } else if (awaited || m.kind == TERMINAL_START || m.kind == TERMINAL_BAD_START) {
        terminal_refuse(t, CODE_POLICY,
                        !awaited  ? "already started"
                        : m.error ? m.error
                                  : "start comes first");
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
            terminal_refuse(t, WS_CODE_TOO_LARGE, "the message is too long");
        else if (ev->end)
            take_text(t);
    } else if (t->phase == PHASE_START) {
        terminal_refuse(t, CODE_POLICY, "start comes first");
    } else if (t->master >= 0 && ev->len && terminal_room(&t->in) >= ev->len) {
        /* there is room: no more is read from the socket than fits */
        add(&t->in, ev->data, ev->len);
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
        if (!closing && terminal_room(&t->out) > OUTPUT_KEPT) /* a client that does not read gets none */
            (void)terminal_send(t, WS_OP_PONG, ev->data, ev->len);
        break;
    case WS_EV_CLOSE:
        terminal_hang_up(t);
        if (closing)
            t->phase = PHASE_FLUSH;
        else
            send_close(t, ev->code, NULL, PHASE_FLUSH);
        break;
    case WS_EV_ERROR:
        if (closing)
            t->phase = PHASE_FLUSH;
        else
            terminal_refuse(t, ev->code, NULL);
        break;
    case WS_EV_PONG:
    case WS_EV_NONE:
    default:
        break;
    }
}

void terminal_take(struct terminal *t, unsigned char *p, size_t n)
{
    struct ws_event ev;
    do {
        size_t used = ws_codec_next(&t->codec, p, n, &ev);
        p += used;
        n -= used;
        take_event(t, &ev);
    } while (ev.kind != WS_EV_NONE && t->phase < PHASE_FLUSH);
}
