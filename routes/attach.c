/* GET …/processes/{id}/attach: the handshake, and the wire between a WebSocket and relay/attach. */
#include "routes/handlers.h"

#include "base/log.h"
#include "relay/attach.h"
#include "routes/act.h"
#include "routes/ended.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { CLOSE_INTERNAL = 1011, CLOSE_SESSION_ENDED = 4010 };
#define OFFSET_MAX (INT64_MAX / 4) /* the relay's */

struct handshake {
    struct act act;
    const char *protocol;
    enum attach_format format;
    int64_t offset[2];
    bool keepalive_data;
};

/* What lives as long as the socket. */
struct wire {
    struct gateway *gw;
    struct ws *ws;
    struct attach *attach;
    char *sandbox, *id, *session_id, *cwd, *arch;
    uint64_t offset[2];
    enum attach_format format;
    bool keepalive_data;
};

static void wire_free(struct wire *w)
{
    if (!w)
        return;
    free(w->sandbox);
    free(w->id);
    free(w->session_id);
    free(w->cwd);
    free(w->arch);
    free(w);
}

/* ---- attach → socket ---- */

static bool io_send(void *io, bool text, const void *head, size_t head_len, const void *body, size_t body_len)
{
    struct wire *w = io;
    return ws_send(w->ws, text, head, head_len, body, body_len);
}

static size_t io_queued(void *io)
{
    struct wire *w = io;
    return ws_queued(w->ws);
}

static void io_close(void *io, int code, const char *reason)
{
    struct wire *w = io;
    if (code == CLOSE_SESSION_ENDED)
        control_session_forget(w->gw->control, w->sandbox);
    ws_close(w->ws, code, reason);
}

/* ---- socket → attach ---- */

static void on_open(void *arg, struct ws *ws)
{
    static const struct attach_io io = {io_send, io_queued, io_close};
    struct wire *w = arg;
    w->ws = ws;
    struct attach_spec spec = {
        .session = {.session_id = w->session_id, .arch = w->arch, .cwd = w->cwd},
        .sandbox = w->sandbox,
        .id = w->id,
        .offset = {w->offset[0], w->offset[1]},
        .format = w->format,
        .keepalive_data = w->keepalive_data,
    };
    w->attach = attach_start(w->gw->relay, &spec, &io, w);
    if (!w->attach)
        ws_close(ws, CLOSE_INTERNAL, "out of memory");
}

static void on_message(void *arg, bool text, const void *data, size_t len)
{
    struct wire *w = arg;
    if (w->attach)
        attach_message(w->attach, text, data, len);
}

static void on_drain(void *arg)
{
    struct wire *w = arg;
    if (w->attach)
        attach_drained(w->attach);
}

static void on_closed(void *arg)
{
    struct wire *w = arg;
    if (w->attach)
        attach_gone(w->attach);
    wire_free(w);
}

static void on_shutdown(void *arg)
{
    struct wire *w = arg;
    if (w->attach)
        attach_drain(w->attach);
}

/* ---- handshake ---- */

static char *copy(const char *s, bool *bad)
{
    char *c = s ? strdup(s) : NULL;
    if (s && !c)
        *bad = true;
    return c;
}

/* The session is known: a wrong name or a sandbox at rest was refused with a problem document before this. */
static void upgrade(struct act *a)
{
    static const struct ws_events events = {on_open, on_message, on_drain, on_closed, on_shutdown};
    struct handshake *h = (struct handshake *)a;
    struct wire *w = calloc(1, sizeof *w);
    bool bad = !w;
    if (w) {
        w->gw = a->gw;
        w->sandbox = copy(a->sandbox, &bad);
        w->id = copy(a->ex->params[1], &bad);
        w->session_id = copy(a->session_id, &bad);
        w->cwd = copy(a->cwd, &bad);
        w->arch = copy(a->arch, &bad);
        w->offset[0] = (uint64_t)h->offset[0];
        w->offset[1] = (uint64_t)h->offset[1];
        w->format = h->format;
        w->keepalive_data = h->keepalive_data;
    }
    if (bad) {
        struct sg_error e;
        wire_free(w);
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the connection");
        act_fail(a, &e);
        return;
    }
    struct exchange *ex = a->ex;
    const char *protocol = h->protocol;
    act_settled(a);
    act_free(a);
    ex_upgrade(ex, protocol, &events, w);
}

static void check(struct act *a)
{
    ended_check(a, upgrade);
}

static enum sg_code parse(struct exchange *ex, struct handshake *h, struct sg_error *e)
{
    static const char *const allowed[] = {"stdout", "stderr", "keepalive", "session", NULL};
    const char *up = ex_header(ex, "Upgrade");
    if (!up || strcasecmp(up, "websocket") != 0)
        return sg_fail(e, SG_E_UPGRADE_REQUIRED, SG_NOT_SENT, "this path speaks WebSocket only");
    enum sg_code rc = ex_query_only(ex, allowed, e);
    if (!rc)
        rc = ex_query_int(ex, "stdout", 0, OFFSET_MAX, &h->offset[0], e);
    if (!rc)
        rc = ex_query_int(ex, "stderr", 0, OFFSET_MAX, &h->offset[1], e);
    if (rc)
        return rc;
    const char *keepalive = ex_query(ex, "keepalive", NULL);
    if (keepalive && strcmp(keepalive, "ping") != 0 && strcmp(keepalive, "data") != 0)
        return sg_fail_field(e, SG_E_INVALID_FIELD, "?keepalive", "must be ping or data");
    h->keepalive_data = keepalive && !strcmp(keepalive, "data");
    if (ex_ws_offers(ex, "sandgate.v1")) {
        h->protocol = "sandgate.v1";
        h->format = ATTACH_BINARY;
    } else if (ex_ws_offers(ex, "sandgate.v1.json")) {
        h->protocol = "sandgate.v1.json";
        h->format = ATTACH_JSON;
    } else {
        return sg_fail(e, SG_E_BAD_REQUEST, SG_NOT_SENT,
                       "offer the subprotocol sandgate.v1 or sandgate.v1.json");
    }
    if (!sg_wire_id_valid(ex->params[1], strlen(ex->params[1])))
        return sg_fail(e, SG_E_PROCESS_NOT_FOUND, SG_NOT_SENT, "no process can have this id");
    return SG_OK;
}

void route_process_attach(struct exchange *ex)
{
    struct sg_error e;
    struct handshake asked = {0};
    if (parse(ex, &asked, &e)) {
        if (e.code == SG_E_UPGRADE_REQUIRED)
            ex_set_header(ex, "Upgrade", "websocket");
        ex_fail(ex, &e);
        return;
    }
    struct handshake *h = act_new(ex, sizeof *h, check, act_fail);
    if (!h)
        return;
    h->protocol = asked.protocol;
    h->format = asked.format;
    h->keepalive_data = asked.keepalive_data;
    h->offset[0] = asked.offset[0];
    h->offset[1] = asked.offset[1];
    act_begin(&h->act);
}
