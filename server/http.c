#include "server/internal.h"

#include "base/clock.h"
#include "server/listen.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    POOL_SIZE = 16384, /* per connection: long tokens and cookies fit, and all of it becomes resident */
    WORKER_STACK = 256 * 1024,
    JSON_BODY_DEFAULT = 1024 * 1024,
    ROUNDS = 4,
    SWEEP_MS = 1000,
    SWEEP_DRAIN_MS = 50,
    DRAIN_WS_MS = 1000, /* what on_shutdown handlers get before we close for them */
    GONE_BATCH = 64,
};

/* ---- connections ---- */

struct conn *conn_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static void conn_bury(struct sg_grave *g)
{
    free((char *)g - offsetof(struct conn, grave));
}

static void conn_open(struct http_server *srv, struct MHD_Connection *mhd, void **context)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct conn *c = info ? calloc(1, sizeof *c) : NULL;
    *context = c;
    if (!c)
        return; /* its requests are refused */
    c->srv = srv;
    c->mhd = mhd;
    c->fd = info->connect_fd;
    c->since_ms = sg_mono_ms();
    c->next = srv->conns;
    c->prev = &srv->conns;
    if (srv->conns)
        srv->conns->prev = &c->next;
    srv->conns = c;
    srv->nconns++;
}

static void conn_close(struct http_server *srv, void **context)
{
    struct conn *c = *context;
    *context = NULL;
    if (!c)
        return;
    if (c->watched)
        epoll_ctl(srv->gone_ep, EPOLL_CTL_DEL, c->fd, NULL);
    *c->prev = c->next;
    if (c->next)
        c->next->prev = c->prev;
    srv->nconns--;
    c->grave.fn = conn_bury;
    sg_loop_bury(srv->loop, &c->grave);
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        conn_open(cls, mhd, context);
    else
        conn_close(cls, context);
}

void conn_watch(struct conn *c)
{
    if (c->watched)
        return;
    struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = c};
    if (epoll_ctl(c->srv->gone_ep, EPOLL_CTL_ADD, c->fd, &ev) == 0)
        c->watched = true;
    /* Without it the client's leaving shows at the next write only. */
}

static void on_gone_poll(uv_poll_t *handle, int status, int events)
{
    (void)status;
    (void)events;
    struct http_server *srv = handle->data;
    struct epoll_event ev[GONE_BATCH];
    int n;
    do {
        n = epoll_wait(srv->gone_ep, ev, GONE_BATCH, 0);
        for (int i = 0; i < n; i++) {
            struct conn *c = ev[i].data.ptr;
            c->peer_gone = true;
            struct request *r = c->req;
            if (!r)
                continue;
            if (!r->on_worker && r->stream)
                stream_gone(r->stream);
            else if (request_goes_on(r))
                continue;
            else if (r->on_worker)
                atomic_store(&r->gone, true);
            else
                request_gone(r);
        }
    } while (n == GONE_BATCH);
}

/* ---- requests ---- */

static void *on_uri(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    struct conn *c = conn_of(mhd);
    struct request *r = c ? request_new(cls, uri) : NULL;
    if (!r)
        return NULL;
    r->conn = c;
    c->req = r;
    return r;
}

static void request_bury(struct sg_grave *g)
{
    request_free((struct request *)((char *)g - offsetof(struct request, grave)));
}

static void bury_request(struct request *r)
{
    r->grave.fn = request_bury;
    sg_loop_bury(r->srv->loop, &r->grave);
}

/* The connection lets go of the request.  It is over, unless a handler still holds it. */
static void detach(struct request *r, bool complete)
{
    struct ex_stream *s = r->stream;
    r->conn = NULL;
    r->nheaders = 0;
    r->suspended = false;
    if (r->ws) {
        ws_drop(r->ws);
        r->ws = NULL;
    }
    if (s && !s->dead && !s->ended) {
        if (complete && strcmp(r->ex.method, "HEAD") != 0)
            return; /* all of the announced length was sent: ex_stream_end is still to come */
        s->dead = true;
        if (s->on_gone)
            s->on_gone(s->arg);
    } else if (r->handed_out && (r->answer.kind == ANSWER_NONE || r->storing)) {
        if (!request_goes_on(r))
            request_gone(r);
        return; /* its answer, now or later, ends it */
    }
    bury_request(r);
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **req,
                         enum MHD_RequestTerminationCode code)
{
    (void)cls;
    struct request *r = *req;
    *req = NULL;
    if (!r)
        return;
    if (!r->answer.status) {
        /* Perhaps the library itself refused it. */
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_HTTP_STATUS);
        if (info)
            r->answer.status = (int)info->http_status;
    }
    respond_log(r);
    /* What fails amid an answer the library closes only when it looks at the connection again, and for those of the
     * usual timeout it does not look beyond the first that is still open: idle ones would hold up all the others. */
    if (code == MHD_REQUEST_TERMINATED_WITH_ERROR)
        (void)MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT, 1u);
    r->conn->req = NULL;
    r->conn->since_ms = sg_mono_ms();
    detach(r, code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
}

/* The decoder is ours: the library's would hide %2F and %00. */
static size_t keep_escapes(void *cls, struct MHD_Connection *mhd, char *s)
{
    (void)cls;
    (void)mhd;
    return strlen(s);
}

/* ---- the turn ---- */

static bool resume_ready(struct http_server *srv)
{
    struct request *r = srv->ready;
    srv->ready = NULL;
    bool any = r != NULL;
    while (r) {
        struct request *next = r->ready_next;
        r->in_ready = false;
        r->suspended = false;
        MHD_resume_connection(r->conn->mhd);
        r = next;
    }
    return any;
}

static void run_due(struct http_server *srv)
{
    struct request *r = srv->due; /* what the callbacks add waits for the next round */
    srv->due = NULL;
    while (r) {
        struct request *next = r->due_next;
        r->in_due = false;
        if (r->stream) {
            if (r->conn && r->conn->peer_gone)
                stream_gone(r->stream);
            stream_drained(r->stream);
        } else if (r->gone) {
            request_gone(r);
        }
        r = next;
    }
}

static void arm_timer(struct http_server *srv)
{
    MHD_UNSIGNED_LONG_LONG ms;
    if (MHD_get_timeout(srv->mhd, &ms) != MHD_YES)
        return;
    if (ms == 0)
        srv->run_mhd = true;
    else if (!sg_timer_active(
                 srv->mhd_timer)) /* deadlines only move away, so an armed timer is early enough */
        sg_timer_start(srv->mhd_timer, ms);
}

static void check_drained(struct http_server *srv)
{
    if (!srv->drain_done)
        return;
    bool empty = srv->nconns == 0 && srv->nrequests == 0 && srv->ws.count == 0 &&
                 workers_load(srv->workers) == 0 && srv->gw->lasting == 0;
    if (!empty && sg_mono_ms() < srv->drain_until_ms)
        return;
    void (*done)(void *arg) = srv->drain_done;
    srv->drain_done = NULL;
    done(srv->drain_arg);
}

/* Order matters: what became ready in this turn is resumed in one batch (each resume makes the library walk all
 * suspended connections once, and a batch walks once), and since a resume wakes nothing, the library is run
 * until nothing moves. */
static bool turn(void *arg)
{
    struct http_server *srv = arg;
    bool sockets_left = false;
    for (int round = 0; round < ROUNDS; round++) {
        run_due(srv);
        sockets_left = ws_group_flush(&srv->ws);
        bool resumed = resume_ready(srv);
        if (!resumed && !srv->run_mhd)
            break;
        srv->run_mhd = false;
        MHD_run(srv->mhd);
        arm_timer(srv);
    }
    if (srv->draining)
        check_drained(srv);
    return srv->run_mhd || srv->ready || srv->due || sockets_left;
}

static void on_mhd_poll(uv_poll_t *handle, int status, int events)
{
    (void)status;
    (void)events;
    struct http_server *srv = handle->data;
    srv->run_mhd = true; /* run at the end of the turn */
}

static void on_mhd_timer(void *arg)
{
    struct http_server *srv = arg;
    srv->run_mhd = true;
}

/* ---- what takes too long ---- */

static void sweep_request(struct conn *c, struct request *r, int64_t now)
{
    if (!r->deadline_ms || now < r->deadline_ms)
        return;
    if (r->early_sent || r->answer.kind != ANSWER_NONE || r->suspended) {
        shutdown(c->fd, SHUT_RDWR);
        return;
    }
    struct sg_error e;
    sg_fail(&e, SG_E_REQUEST_TIMEOUT, SG_NOT_SENT, "the request was not complete after %llu ms",
            (unsigned long long)c->srv->cfg.request_timeout_ms);
    answer_problem(r, &e);
    respond_early(r);
    shutdown(c->fd, SHUT_RD);
}

static void on_sweep(void *arg)
{
    struct http_server *srv = arg;
    int64_t now = sg_mono_ms();
    int64_t idle = srv->draining ? 0 : (int64_t)srv->cfg.idle_timeout_ms;
    for (struct conn *c = srv->conns; c; c = c->next) {
        if (c->req)
            sweep_request(c, c->req, now);
        else if (now - c->since_ms >= idle)
            shutdown(c->fd, SHUT_RD); /* the library reads the end and closes; what was sent still arrives */
    }
    if (srv->draining && srv->drain_close_ms && now >= srv->drain_close_ms) {
        srv->drain_close_ms = 0;
        ws_group_close_all(&srv->ws, 1001, "draining");
    }
    sg_timer_start(srv->sweep_timer, srv->draining ? SWEEP_DRAIN_MS : SWEEP_MS);
}

/* ---- life ---- */

static unsigned or_default(unsigned v, unsigned dflt)
{
    return v ? v : dflt;
}

static void take_config(struct http_server *srv, const struct http_server_config *cfg)
{
    struct http_server_config *c = &srv->cfg;
    *c = *cfg;
    c->listen = NULL; /* the caller's memory */
    c->max_connections = or_default(c->max_connections, 4096);
    c->max_websockets = or_default(c->max_websockets, 2048);
    c->workers = or_default(c->workers, 512);
    c->worker_queue = or_default(c->worker_queue, 1024);
    if (!c->max_json_body)
        c->max_json_body = JSON_BODY_DEFAULT;
    if (!c->idle_timeout_ms)
        c->idle_timeout_ms = 75000;
    if (!c->request_timeout_ms)
        c->request_timeout_ms = 30000;
    if (!c->ws_ping_ms)
        c->ws_ping_ms = 20000;
}

static bool start_daemon(struct http_server *srv)
{
    unsigned seconds = (unsigned)((srv->cfg.idle_timeout_ms + 999) / 1000);
    srv->mhd = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_ALLOW_UPGRADE, 0, NULL, NULL, dispatch_access, srv,
        MHD_OPTION_LISTEN_SOCKET, srv->listen_fd, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_SIZE,
        MHD_OPTION_CONNECTION_LIMIT, srv->cfg.max_connections, MHD_OPTION_CONNECTION_TIMEOUT, seconds,
        MHD_OPTION_URI_LOG_CALLBACK, on_uri, srv, MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, srv, MHD_OPTION_NOTIFY_CONNECTION, on_connection, srv,
        MHD_OPTION_END);
    return srv->mhd != NULL;
}

static bool start_poll(struct http_server *srv, uv_poll_t *poll, int fd, uv_poll_cb fn)
{
    if (uv_poll_init(sg_loop_uv(srv->loop), poll, fd))
        return false;
    poll->data = srv;
    srv->polls++;
    return uv_poll_start(poll, UV_READABLE, fn) == 0;
}

static bool start(struct http_server *srv)
{
    srv->gone_ep = epoll_create1(EPOLL_CLOEXEC);
    srv->mhd_timer = sg_timer_new(srv->loop, on_mhd_timer, srv);
    srv->sweep_timer = sg_timer_new(srv->loop, on_sweep, srv);
    srv->workers = workers_new(srv->cfg.workers, srv->cfg.worker_queue, WORKER_STACK);
    if (srv->gone_ep < 0 || !srv->mhd_timer || !srv->sweep_timer || !srv->workers ||
        !ws_group_init(&srv->ws, srv->loop, srv->cfg.max_websockets, srv->cfg.ws_ping_ms) ||
        !start_daemon(srv))
        return false;
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(srv->mhd, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info || !start_poll(srv, &srv->mhd_poll, info->epoll_fd, on_mhd_poll) ||
        !start_poll(srv, &srv->gone_poll, srv->gone_ep, on_gone_poll) ||
        sg_loop_on_turn(srv->loop, turn, srv))
        return false;
    sg_timer_start(srv->sweep_timer, SWEEP_MS);
    srv->run_mhd = true;
    return true;
}

struct http_server *http_server_new(struct sg_loop *loop, const struct http_server_config *cfg,
                                    struct gateway *gw, struct token_table *tokens, char err[HTTP_ERR])
{
    struct http_server *srv = calloc(1, sizeof *srv);
    if (!srv) {
        snprintf(err, HTTP_ERR, "no memory for the HTTP server");
        return NULL;
    }
    srv->loop = loop;
    srv->gw = gw;
    srv->tokens = tokens;
    srv->gone_ep = -1;
    take_config(srv, cfg);
    srv->listen_fd = listen_open(cfg->listen, &srv->port, err);
    if (srv->listen_fd < 0) {
        free(srv);
        return NULL;
    }
    if (start(srv))
        return srv;
    snprintf(err, HTTP_ERR, "the HTTP server could not start: no memory or descriptors left");
    http_server_free(srv);
    return NULL;
}

int http_server_port(const struct http_server *s)
{
    return s->port;
}

void http_server_stats(struct http_server *s, struct http_stats *out)
{
    *out = (struct http_stats){s->nconns, s->ws.count, s->nrequests, workers_load(s->workers)};
}

static void stop_listening(struct http_server *srv)
{
    if (srv->listen_fd < 0)
        return;
    if (srv->mhd)
        MHD_quiesce_daemon(srv->mhd);
    close(srv->listen_fd);
    srv->listen_fd = -1;
}

void http_server_drain(struct http_server *srv, uint64_t timeout_ms, void (*done)(void *arg), void *arg)
{
    int64_t now = sg_mono_ms();
    uint64_t for_sockets = timeout_ms / 2 < DRAIN_WS_MS ? timeout_ms / 2 : DRAIN_WS_MS;
    srv->draining = true;
    srv->gw->draining = true;
    srv->drain_until_ms = now + (int64_t)timeout_ms;
    srv->drain_close_ms = now + (int64_t)for_sockets;
    srv->drain_done = done;
    srv->drain_arg = arg;
    stop_listening(srv);
    ws_group_shutdown(&srv->ws);
    for (struct request *r = srv->requests; r; r = r->next) /* they die on the grave list only */
        if (r->stream && r->conn)
            stream_shutdown(r->stream);
    sg_timer_start(srv->sweep_timer, 0); /* closes the idle connections */
}

/* A worker may wait for something that the loop does. */
static void finish_workers(struct http_server *srv)
{
    while (srv->workers && workers_load(srv->workers)) {
        uv_run(sg_loop_uv(srv->loop), UV_RUN_NOWAIT);
        (void)poll(NULL, 0, 1); /* whatever it is, not at full speed */
    }
    workers_free(srv->workers);
    uv_run(sg_loop_uv(srv->loop), UV_RUN_NOWAIT); /* their last answers */
}

static void cut_requests(struct http_server *srv)
{
    for (struct request *r = srv->requests, *next; r; r = next) {
        next = r->next; /* requests die on the grave list only */
        keyed_stop(r);
        if (r->stream && r->conn)
            stream_gone(r->stream);
        else if (r->handed_out && r->answer.kind == ANSWER_NONE)
            request_gone(r);
        if (r->conn)
            request_wake(r);
    }
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct http_server *srv = handle->data;
    if (--srv->polls == 0)
        free(srv);
}

static void close_polls(struct http_server *srv)
{
    if (srv->polls == 0) {
        free(srv);
        return;
    }
    bool both = srv->polls == 2;
    uv_close((uv_handle_t *)&srv->mhd_poll, on_poll_closed);
    if (both)
        uv_close((uv_handle_t *)&srv->gone_poll, on_poll_closed);
}

void http_server_free(struct http_server *srv)
{
    if (!srv)
        return;
    srv->drain_done = NULL;
    stop_listening(srv);
    finish_workers(srv);
    srv->stopping = true;
    sg_loop_off_turn(srv->loop, turn, srv);
    cut_requests(srv);
    if (srv->ws.loop)
        ws_group_end(&srv->ws);
    resume_ready(srv);
    if (srv->polls > 0)
        uv_poll_stop(&srv->mhd_poll);
    if (srv->polls > 1)
        uv_poll_stop(&srv->gone_poll);
    if (srv->mhd) {
        MHD_run(srv->mhd); /* every resumed connection is refused and closed */
        MHD_stop_daemon(srv->mhd);
    }
    if (srv->gone_ep >= 0)
        close(srv->gone_ep);
    sg_timer_free(srv->mhd_timer);
    sg_timer_free(srv->sweep_timer);
    uv_run(sg_loop_uv(srv->loop), UV_RUN_NOWAIT); /* buries what died above */
    while (srv->requests)
        request_unlink(srv->requests); /* some handler has still to answer it */
    close_polls(srv);
}
