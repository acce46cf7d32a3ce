#include "emulator/edge_target.h"
#include "emulator/box.h"
#include "emulator/lifecycle.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct search {
    const char *label;
    bool late_routes;
    enum edge_verdict verdict;
    struct edge_target *out;
};

/* With sandbox->lock. */
static int port_of(const struct sandbox *sb, const char *label)
{
    for (unsigned i = 0; i < sb->set.nroutes; i++)
        if (!strcmp(sb->set.routes[i].subdomain, label))
            return sb->set.routes[i].port;
    return -1;
}

static bool since_boot(const struct session *s, int port)
{
    for (unsigned i = 0; i < s->nboot_ports; i++)
        if (s->boot_ports[i] == port)
            return true;
    return false;
}

static enum edge_verdict judge(enum status st)
{
    switch (st) {
    case ST_RUNNING:
        return EDGE_ROUTED;
    case ST_PENDING:
        return EDGE_NOT_LISTENING; /* as the real edge right after a resume */
    case ST_STOPPING:
        return EDGE_STOPPING;
    case ST_SNAPSHOTTING:
        return EDGE_SNAPSHOTTING;
    case ST_STOPPED:
    case ST_FAILED:
    case ST_ABORTED:
    default:
        return EDGE_STOPPED;
    }
}

/* With state->lock: goes on (true) until one has the subdomain. */
static bool look(void *arg, void *value)
{
    struct search *q = arg;
    struct sandbox *sb = value;
    pthread_mutex_lock(&sb->lock);
    int port = sb->deleted ? -1 : port_of(sb, q->label);
    struct session *s = sb->current;
    if (port > 0) {
        q->verdict = s ? judge(s->status) : EDGE_STOPPED;
        if (q->verdict == EDGE_ROUTED && !q->late_routes && !since_boot(s, port))
            q->verdict = EDGE_NOT_LISTENING;
        if (q->verdict == EDGE_ROUTED) {
            q->out->session = session_ref(s);
            q->out->port = port;
        }
    }
    pthread_mutex_unlock(&sb->lock);
    return port <= 0;
}

enum edge_verdict edge_target_find(struct emulator *emu, bool late_routes, const char *label,
                                   struct edge_target *out)
{
    memset(out, 0, sizeof *out);
    snprintf(out->label, sizeof out->label, "%s", label);
    struct search q = {.label = label, .late_routes = late_routes, .verdict = EDGE_NOT_FOUND, .out = out};
    pthread_mutex_lock(&emu->state->lock);
    strmap_each(&emu->state->sandboxes, look, &q);
    pthread_mutex_unlock(&emu->state->lock);
    return q.verdict;
}

void edge_target_drop(struct edge_target *t)
{
    if (t->session)
        session_unref(t->session);
    memset(t, 0, sizeof *t);
}

bool edge_target_holds(const struct edge_target *t)
{
    if (!t->session)
        return true;
    struct sandbox *sb = t->session->sandbox;
    pthread_mutex_lock(&sb->lock);
    bool holds = !sb->deleted && sb->current == t->session && t->session->status == ST_RUNNING &&
                 port_of(sb, t->label) == t->port;
    pthread_mutex_unlock(&sb->lock);
    return holds;
}

enum edge_verdict edge_target_socket(const struct edge_target *t, bool v6, int *fd)
{
    struct api_error e = {0};
    if (session_enter(t->session, &e)) {
        pthread_mutex_lock(&t->session->sandbox->lock);
        enum edge_verdict v = judge(t->session->status);
        pthread_mutex_unlock(&t->session->sandbox->lock);
        return v == EDGE_ROUTED ? EDGE_NOT_LISTENING : v;
    }
    int err = v6 ? box_socket6(t->session->box, fd) : box_socket(t->session->box, fd);
    session_leave(t->session);
    if (!err)
        return EDGE_ROUTED;
    return err == ENOMEM || err == EMFILE || err == ENFILE ? EDGE_NO_MEANS : EDGE_NOT_LISTENING;
}

void edge_target_count(const struct edge_target *t, size_t into_box, size_t out_of_box)
{
    if (!t->session)
        return;
    atomic_fetch_add_explicit(&t->session->ingress, (long long)into_box, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->session->egress, (long long)out_of_box, memory_order_relaxed);
}
