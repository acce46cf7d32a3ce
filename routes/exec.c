/* GET …/exec: a WebSocket whose first message says what to run; it is started once, and attached to. */
#include "routes/handlers.h"

#include "base/json.h"
#include "routes/socket.h"
#include "routes/spec.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_MS = 30000 /* for the first message */ };

struct handshake {
    struct act act;
    struct socket_ask ask;
};

struct exec {
    struct socket s;
    struct sg_timer *first;
    json_t *body; /* what spec borrows from */
    struct spec spec;
    bool have_spec, retried;
};

static void clear(struct socket *s)
{
    struct exec *x = (struct exec *)s;
    sg_timer_free(x->first);
    if (x->have_spec)
        spec_clear(&x->spec);
    json_decref(x->body);
}

/* ---- starting ---- */

static void start(struct exec *x);

static void on_session(void *arg, const struct control_session *c, const struct sg_error *e)
{
    struct exec *x = arg;
    struct sg_error own;
    if (socket_back(&x->s))
        return;
    if (!e && !socket_set_session(&x->s, c)) {
        (void)sg_fail(&own, SG_E_OUT_OF_MEMORY, SG_NOT_STARTED, "no memory for the request");
        e = &own;
    }
    if (e)
        socket_fail(&x->s, e);
    else
        start(x);
}

/* The session that the handshake found was over, and nothing can have begun there: once, in the one that is now. */
static bool again(struct exec *x, const struct sg_error *e)
{
    bool over = e->code == SG_E_STALE_SESSION || e->code == SG_E_UPSTREAM_NOT_FOUND;
    bool nothing = e->outcome == SG_NOT_SENT || e->outcome == SG_NOT_STARTED;
    if (x->retried || !over || !nothing)
        return false;
    x->retried = true;
    x->s.busy = true;
    control_session_forget(x->s.gw->control, x->s.sandbox);
    control_session(x->s.gw->control, x->s.sandbox, on_session, x);
    return true;
}

static void on_start(void *arg, const struct sg_wire_process *p, const struct sg_error *e)
{
    struct exec *x = arg;
    if (socket_back(&x->s)) /* the process goes on, as after any disconnect */
        return;
    if (e) {
        if (!again(x, e))
            socket_fail(&x->s, e);
        return;
    }
    /* The same id and spec may have been started long before. */
    bool fresh = !p->end[0] && !p->end[1] && !p->input;
    socket_attach(&x->s, fresh, x->spec.sudo);
    ws_resume(x->s.ws);
}

static void start(struct exec *x)
{
    struct sg_error e;
    struct relay_session session = {.session_id = x->s.session_id, .arch = x->s.arch, .cwd = x->s.cwd};
    struct process_spec p = spec_for_relay(&x->spec, session);
    x->s.busy = true;
    if (!process_start(x->s.gw->relay, &p, on_start, x, &e))
        return;
    x->s.busy = false;
    socket_fail(&x->s, &e);
}

/* ---- the first message ---- */

static void on_message(struct socket *s, bool text, const void *data, size_t len)
{
    struct exec *x = (struct exec *)s;
    struct sg_error e;
    if (x->body || x->have_spec) { /* the socket could not be paused */
        ws_close(s->ws, SOCKET_PROTOCOL, "wait for the hello");
        return;
    }
    sg_timer_stop(x->first);
    if (!text) {
        ws_close(s->ws, 1003, "the first message is the process's spec, as text");
        return;
    }
    if (len > s->gw->max_json_body) {
        (void)sg_fail(&e, SG_E_BODY_TOO_LARGE, SG_NOT_SENT, "the spec is longer than a JSON body may be");
        socket_fail(s, &e);
        return;
    }
    if (sg_json_parse_object(data, len, &x->body, &e) || spec_parse(x->body, SPEC_PROCESS, &x->spec, &e)) {
        socket_fail(s, &e);
        return;
    }
    x->have_spec = true;
    spec_set_defaults(&x->spec, SPEC_PROCESS, s->gw->retain_bytes, s->gw->run_max_output);
    s->id = strdup(x->spec.id);
    if (!s->id) {
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
        socket_fail(s, &e);
        return;
    }
    (void)ws_pause(s->ws); /* input may follow at once: it is read when there is somebody to take it */
    start(x);
}

static void on_late(void *arg)
{
    struct exec *x = arg;
    ws_close(x->s.ws, SOCKET_PROTOCOL, "the first message, the process's spec, did not come");
}

static void opened(struct socket *s)
{
    sg_timer_start(((struct exec *)s)->first, FIRST_MS);
}

/* ---- handshake ---- */

static void upgrade(struct act *a)
{
    struct handshake *h = (struct handshake *)a;
    struct exec *x = socket_new(a, sizeof *x, &h->ask);
    if (x) {
        x->s.opened = opened;
        x->s.message = on_message;
        x->s.clear = clear;
        x->retried = ex_query(a->ex, "session", NULL) != NULL; /* that session or none */
        x->first = sg_timer_new(a->gw->loop, on_late, x);
    }
    if (!x || !x->first) {
        struct sg_error e;
        socket_free(x ? &x->s : NULL);
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the connection");
        act_fail(a, &e);
        return;
    }
    socket_upgrade(&x->s, a);
}

void route_exec(struct exchange *ex)
{
    struct sg_error e;
    struct socket_ask ask;
    if (socket_ask_parse(ex, true, &ask, &e)) {
        ex_fail(ex, &e);
        return;
    }
    struct handshake *h = act_new(ex, sizeof *h, upgrade, act_fail);
    if (!h)
        return;
    h->ask = ask;
    h->act.resume = ask.resume;
    act_begin(&h->act);
}
