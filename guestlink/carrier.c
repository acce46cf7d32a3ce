#include "guestlink/carrier_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void on_bury(struct sg_grave *grave)
{
    struct carrier *c = (struct carrier *)((char *)grave - offsetof(struct carrier, grave));
    sg_buf_free(&c->queue);
    sg_buf_free(&c->in.flight);
    carrier_socket_free(c->spent);
    free(c);
}

static void carrier_die(struct carrier *c)
{
    c->dead = true;
    carrier_stdin_drop(c);
    carrier_socket_drop(c);
    sg_timer_free(c->kick);
    sg_timer_free(c->patience);
    c->kick = c->patience = NULL;
    hosts_put(c->host);
    LIST_REMOVE(c, link);
    sg_loop_bury(c->g->loop, &c->grave);
}

void carrier_end(struct carrier *c, const struct sg_wire_line *line, const struct sg_error *e)
{
    if (c->dead)
        return;
    carrier_die(c);
    c->ev.on_end(c->arg, line, line ? NULL : e);
}

void carriers_end(struct guestlink *g, const struct sg_error *e)
{
    struct carrier *c;
    while ((c = LIST_FIRST(&g->carriers)))
        carrier_end(c, NULL, e);
}

static void push(struct carrier *c)
{
    if (c->dead || !c->open || sg_timer_active(c->kick))
        return;
    if (c->sock)
        carrier_socket_push(c);
    else
        carrier_stdin_push(c);
}

static void on_kick(void *arg)
{
    push(arg);
}

static void on_late(void *arg)
{
    struct carrier *c = arg;
    if (c->sock && !c->open && carrier_socket_late(c))
        return;
    carrier_end(c, NULL, &c->late);
}

void carrier_wait(struct carrier *c, uint64_t ms, enum sg_code code, const char *why)
{
    (void)sg_fail(&c->late, code, SG_OUTCOME_UNKNOWN, "%s", why);
    sg_timer_start(c->patience, ms);
}

void carrier_line(struct carrier *c, const struct sg_wire_line *line)
{
    struct sg_error e;
    bool opens = line->kind == SG_WIRE_CARRIER;
    if (c->dead)
        return;
    if (opens == c->open || !(opens || line->kind == SG_WIRE_ACCEPTED)) {
        (void)sg_fail(&e, SG_E_UPSTREAM_BAD_RESPONSE, SG_OUTCOME_UNKNOWN,
                      "The helper in the sandbox said something that is not its protocol.");
        carrier_end(c, NULL, &e);
        return;
    }
    if (opens) {
        c->open = true;
        sg_timer_stop(c->patience);
    }
    c->ev.on_line(c->arg, line, c->sock != NULL);
    if (opens)
        push(c);
}

void carrier_left(struct carrier *c)
{
    if (c->dead || !c->crowded || carrier_queued(c) > CARRIER_QUEUE_MAX / 2)
        return;
    c->crowded = false;
    c->ev.on_room(c->arg);
}

/* ---- the owner's side ---- */

static enum sg_code begin(struct carrier *c, bool interactive, struct sg_error *e)
{
    if (interactive && carrier_socket_may(c) && carrier_socket_begin(c, e) == SG_OK)
        return SG_OK;
    return carrier_stdin_begin(c, e);
}

struct carrier *carrier_open(struct guestlink *g, const struct carrier_spec *s,
                             const struct carrier_events *ev, void *arg, struct sg_error *e)
{
    const struct guest_blob *blob = guestlink_helper(g, s->arch, e);
    if (!blob)
        return NULL;
    struct carrier *c = calloc(1, sizeof *c);
    if (!c)
        goto oom;
    c->g = g;
    c->blob = blob;
    c->sudo = s->sudo;
    c->ev = *ev;
    c->arg = arg;
    c->grave.fn = on_bury;
    (void)snprintf(c->id, sizeof c->id, "%s", s->id);
    sg_buf_init(&c->queue, CARRIER_QUEUE_MAX);
    sg_buf_init(&c->in.flight, CARRIER_QUEUE_MAX);
    c->kick = sg_timer_new(g->loop, on_kick, c);
    c->patience = sg_timer_new(g->loop, on_late, c);
    if (!c->kick || !c->patience || !(c->host = hosts_get(&g->hosts, s->session_id)))
        goto oom;
    LIST_INSERT_HEAD(&g->carriers, c, link);
    if (begin(c, s->interactive, e) == SG_OK)
        return c;
    carrier_die(c);
    return NULL;
oom:
    if (c) {
        sg_timer_free(c->kick);
        sg_timer_free(c->patience);
        free(c);
    }
    (void)sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "No memory for the way into the sandbox.");
    return NULL;
}

size_t carrier_queued(const struct carrier *c)
{
    return c->queue.len + c->in.flight.len + carrier_socket_queued(c);
}

size_t carrier_send(struct carrier *c, const void *data, size_t len)
{
    size_t used = carrier_queued(c);
    size_t room = used < CARRIER_QUEUE_MAX ? CARRIER_QUEUE_MAX - used : 0;
    size_t n = len < room ? len : room;
    if (c->dead || c->finishing || (n && !sg_buf_add(&c->queue, data, n)))
        n = 0;
    c->queue.failed = false;
    if (n < len)
        c->crowded = true;
    if (!n || !c->open)
        return n;
    if (c->sock && !c->crowded) /* on_room is not due */
        carrier_socket_push(c);
    else if (!sg_timer_active(c->kick))
        sg_timer_start(c->kick, 0); /* what is sent in one turn goes together */
    return n;
}

void carrier_finish(struct carrier *c)
{
    if (c->dead || c->finishing)
        return;
    c->finishing = true;
    if (c->open && !sg_timer_active(c->kick))
        sg_timer_start(c->kick, 0);
}

void carrier_cancel(struct carrier *c)
{
    if (!c->dead)
        carrier_die(c);
}
