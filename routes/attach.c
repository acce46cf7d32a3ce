/* GET …/processes/{id}/attach: a WebSocket to a process that runs, or has run. */
#include "routes/handlers.h"

#include "relay/feed.h"
#include "relay/input.h"
#include "routes/ended.h"
#include "routes/process_act.h"
#include "routes/socket.h"

#include <string.h>

struct handshake {
    struct act act;
    struct socket_ask ask;
};

/* The session is known: a wrong name or a sandbox at rest was refused with a problem document before this. */
static void upgrade(struct act *a)
{
    struct handshake *h = (struct handshake *)a;
    struct socket *s = socket_new(a, sizeof *s, &h->ask);
    if (s)
        s->id = strdup(a->ex->params[1]);
    if (!s || !s->id) {
        struct sg_error e;
        socket_free(s);
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the connection");
        act_fail(a, &e);
        return;
    }
    socket_upgrade(s, a);
}

static void on_status(void *arg, const struct sg_wire_process *list, size_t n, const struct sg_error *e)
{
    struct act *a = arg;
    struct sg_error own;
    if (process_ended_or_retried(a, e))
        return;
    if (!a->ex)
        (void)sg_fail(&own, SG_E_BAD_REQUEST, SG_NOT_SENT, "the client left");
    else if (!n)
        (void)sg_fail(&own, SG_E_PROCESS_NOT_FOUND, SG_NOT_SENT, "no such process in this session");
    else if (list[0].state == SG_PS_FINISHED || list[0].state == SG_PS_UNKNOWN)
        (void)sg_fail(&own, SG_E_PROCESS_FINISHED, SG_NOT_SENT, "the process has ended");
    else if (!list[0].takes_input && !list[0].lossless)
        (void)sg_fail(&own, SG_E_STDIN_CLOSED, SG_NOT_SENT, "the process was started without input");
    else {
        upgrade(a);
        return;
    }
    a->fail(a, &own);
}

/* Who insists on writing is told before the upgrade when he cannot; that costs a question. */
static void ready(struct act *a)
{
    const struct handshake *h = (const struct handshake *)a;
    struct sg_error e;
    struct relay_session s = act_session(a);
    const char *id = a->ex->params[1];
    if (h->ask.mode != ATTACH_WRITE) {
        upgrade(a);
    } else if (!h->ask.takeover && writer_present(a->gw->relay, s.session_id, id)) {
        (void)sg_fail(&e, SG_E_WRITER_EXISTS, SG_NOT_SENT,
                      "another client of this gateway writes to the process");
        act_fail(a, &e);
    } else if (process_status(a->gw->relay, &s, id, 0, on_status, a, &e)) {
        act_fail(a, &e);
    }
}

/* A process that others are told of just now need not be looked for. */
static void check(struct act *a)
{
    if (feed_present(a->gw->relay, a->session_id, a->ex->params[1]))
        ready(a);
    else
        ended_check(a, ready);
}

void route_process_attach(struct exchange *ex)
{
    struct sg_error e;
    struct socket_ask ask;
    if (socket_ask_parse(ex, false, &ask, &e) || process_id(ex, &e)) {
        ex_fail(ex, &e);
        return;
    }
    struct handshake *h = act_new(ex, sizeof *h, check, act_fail);
    if (!h)
        return;
    h->ask = ask;
    act_begin(&h->act);
}
