#include "routes/socket.h"

#include "base/problem.h"

#include <stdlib.h>
#include <string.h>

#define OFFSET_MAX (INT64_MAX / 4) /* the relay's */

/* ---- the handshake's query ---- */

static enum sg_code parse_offsets(struct exchange *ex, struct socket_ask *q, struct sg_error *e)
{
    q->pty = ex_query(ex, "pty", NULL) != NULL;
    if (q->pty && (ex_query(ex, "stdout", NULL) || ex_query(ex, "stderr", NULL)))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "?pty",
                             "a terminal is one stream: not with stdout or stderr");
    enum sg_code rc = ex_query_int(ex, q->pty ? "pty" : "stdout", 0, OFFSET_MAX, &q->offset[0], e);
    return rc ? rc : ex_query_int(ex, "stderr", 0, OFFSET_MAX, &q->offset[1], e);
}

static enum sg_code parse_mode(struct exchange *ex, struct socket_ask *q, struct sg_error *e)
{
    int64_t takeover = 0;
    const char *mode = ex_query(ex, "mode", NULL);
    enum sg_code rc = ex_query_int(ex, "takeover", 0, 1, &takeover, e);
    if (rc)
        return rc;
    if (mode && strcmp(mode, "write") != 0 && strcmp(mode, "watch") != 0)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "?mode", "must be write or watch");
    q->takeover = takeover;
    q->mode = mode && !strcmp(mode, "watch")                 ? ATTACH_WATCH
              : (mode && !strcmp(mode, "write")) || takeover ? ATTACH_WRITE
                                                             : ATTACH_AUTO;
    if (q->takeover && q->mode == ATTACH_WATCH)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "?takeover", "a watcher takes nothing over");
    return SG_OK;
}

static enum sg_code parse_size(struct exchange *ex, struct socket_ask *q, struct sg_error *e)
{
    int64_t cols = 0, rows = 0;
    enum sg_code rc = ex_query_int(ex, "cols", 1, PROCESS_SIDE_MAX, &cols, e);
    if (!rc)
        rc = ex_query_int(ex, "rows", 1, PROCESS_SIDE_MAX, &rows, e);
    if (!rc && !cols != !rows)
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, cols ? "?rows" : "?cols", "columns and rows go together");
    q->cols = (unsigned)cols;
    q->rows = (unsigned)rows;
    return rc;
}

static enum sg_code parse_protocol(struct exchange *ex, struct socket_ask *q, struct sg_error *e)
{
    const char *keepalive = ex_query(ex, "keepalive", NULL);
    if (keepalive && strcmp(keepalive, "ping") != 0 && strcmp(keepalive, "data") != 0)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "?keepalive", "must be ping or data");
    q->keepalive_data = keepalive && !strcmp(keepalive, "data");
    if (ex_ws_offers(ex, "sandgate.v1")) {
        q->protocol = "sandgate.v1";
        q->format = ATTACH_BINARY;
    } else if (ex_ws_offers(ex, "sandgate.v1.json")) {
        q->protocol = "sandgate.v1.json";
        q->format = ATTACH_JSON;
    } else {
        return sg_fail(e, SG_E_BAD_REQUEST, SG_NOT_SENT,
                       "offer the subprotocol sandgate.v1 or sandgate.v1.json");
    }
    return SG_OK;
}

enum sg_code socket_ask_parse(struct exchange *ex, bool resume, struct socket_ask *out, struct sg_error *e)
{
    static const char *const allowed[] = {"stdout", "stderr",  "pty",       "mode",   "takeover", "cols",
                                          "rows",   "session", "keepalive", "resume", NULL};
    static const char *const no_resume[] = {"stdout", "stderr", "pty",     "mode",      "takeover",
                                            "cols",   "rows",   "session", "keepalive", NULL};
    int64_t wake = 0;
    *out = (struct socket_ask){0};
    enum sg_code rc = ex_query_only(ex, resume ? allowed : no_resume, e);
    if (!rc)
        rc = parse_offsets(ex, out, e);
    if (!rc)
        rc = parse_mode(ex, out, e);
    if (!rc)
        rc = parse_size(ex, out, e);
    if (!rc && resume)
        rc = ex_query_int(ex, "resume", 0, 1, &wake, e);
    out->resume = wake;
    return rc ? rc : parse_protocol(ex, out, e);
}

/* ---- life ---- */

static bool copy(char **out, const char *s)
{
    free(*out);
    *out = s ? strdup(s) : NULL;
    return !s || *out;
}

void *socket_new(const struct act *a, size_t size, const struct socket_ask *ask)
{
    struct socket *s = calloc(1, size);
    if (!s)
        return NULL;
    s->gw = a->gw;
    s->ask = *ask;
    if (copy(&s->sandbox, a->sandbox) && copy(&s->session_id, a->session_id) && copy(&s->cwd, a->cwd) &&
        copy(&s->arch, a->arch))
        return s;
    socket_free(s);
    return NULL;
}

bool socket_set_session(struct socket *s, const struct control_session *c)
{
    return copy(&s->session_id, c->session_id) && copy(&s->cwd, c->cwd) && copy(&s->arch, c->arch);
}

void socket_free(struct socket *s)
{
    if (!s)
        return;
    if (s->clear)
        s->clear(s);
    free(s->sandbox);
    free(s->id);
    free(s->session_id);
    free(s->cwd);
    free(s->arch);
    free(s);
}

bool socket_back(struct socket *s)
{
    s->busy = false;
    if (!s->gone)
        return false;
    socket_free(s);
    return true;
}

/* ---- attach → socket ---- */

static bool io_send(void *io, bool text, const void *head, size_t head_len, const void *body, size_t body_len)
{
    struct socket *s = io;
    return ws_send(s->ws, text, head, head_len, body, body_len);
}

static size_t io_queued(void *io)
{
    struct socket *s = io;
    return ws_queued(s->ws);
}

static void io_close(void *io, int code, const char *reason)
{
    struct socket *s = io;
    if (code == SOCKET_SESSION_OVER)
        control_session_forget(s->gw->control, s->sandbox);
    ws_close(s->ws, code, reason);
}

static void io_hold(void *io, bool on)
{
    struct socket *s = io;
    if (on)
        (void)ws_pause(s->ws); /* else the next message ends the connection */
    else
        ws_resume(s->ws);
}

void socket_attach(struct socket *s, bool fresh, bool sudo)
{
    static const struct attach_io io = {io_send, io_queued, io_close, io_hold};
    struct attach_spec spec = {
        .session = {.session_id = s->session_id, .arch = s->arch, .cwd = s->cwd},
        .sandbox = s->sandbox,
        .id = s->id,
        .offset = {(uint64_t)s->ask.offset[0], (uint64_t)s->ask.offset[1]},
        .pty = s->ask.pty,
        .format = s->ask.format,
        .mode = s->ask.mode,
        .takeover = s->ask.takeover,
        .cols = s->ask.cols,
        .rows = s->ask.rows,
        .fresh = fresh,
        .sudo = sudo,
        .keepalive_data = s->ask.keepalive_data,
    };
    s->attach = attach_start(s->gw->relay, &spec, &io, s);
    if (!s->attach)
        ws_close(s->ws, SOCKET_FAILED, "out of memory");
}

void socket_fail(struct socket *s, const struct sg_error *e)
{
    json_t *frame = sg_problem_json(e, NULL, NULL);
    bool over = e->code == SG_E_STALE_SESSION || e->code == SG_E_SANDBOX_NOT_RUNNING;
    if (json_object_set_new(frame, "type", json_string("error")) == 0) {
        char *text = json_dumps(frame, JSON_COMPACT);
        if (text)
            (void)ws_send(s->ws, true, text, strlen(text), NULL, 0);
        free(text);
    }
    json_decref(frame);
    if (e->code == SG_E_DRAINING)
        ws_close(s->ws, 1001, "the gateway is shutting down");
    else
        io_close(s, over ? SOCKET_SESSION_OVER : SOCKET_FAILED,
                 over ? "the session has ended" : "the error before says why");
}

/* ---- socket → attach ---- */

static void on_open(void *arg, struct ws *ws)
{
    struct socket *s = arg;
    s->ws = ws;
    if (s->opened)
        s->opened(s);
    else
        socket_attach(s, false, false);
}

static void on_message(void *arg, bool text, const void *data, size_t len)
{
    struct socket *s = arg;
    if (s->attach)
        attach_message(s->attach, text, data, len);
    else if (s->message)
        s->message(s, text, data, len);
}

static void on_drain(void *arg)
{
    struct socket *s = arg;
    if (s->attach)
        attach_drained(s->attach);
}

static void on_closed(void *arg)
{
    struct socket *s = arg;
    s->gone = true;
    if (s->attach)
        attach_gone(s->attach);
    s->attach = NULL;
    if (!s->busy)
        socket_free(s);
}

static void on_shutdown(void *arg)
{
    struct socket *s = arg;
    if (s->attach)
        attach_drain(s->attach);
    else
        ws_close(s->ws, 1001, "the gateway is shutting down");
}

void socket_upgrade(struct socket *s, struct act *a)
{
    static const struct ws_events events = {on_open, on_message, on_drain, on_closed, on_shutdown};
    struct exchange *ex = a->ex;
    (void)act_settled(a);
    act_free(a);
    ex_upgrade(ex, s->ask.protocol, &events, s);
}
