/* The life of one connection: handshake, then head, lookup, connect and relay for each request, then the end. */
#include "emulator/edge_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* ---- birth and death ---- */

struct edge_conn *edge_conn_new(struct edge *e, int fd, bool secure)
{
    struct edge_conn *c = calloc(1, sizeof *c);
    int on = 1;
    if (!c)
        return NULL;
    c->edge = e;
    c->client.watch.fd = c->upstream.watch.fd = c->job.fd = -1;
    c->cut_left = -1;
    c->job.conn = c;
    sg_buf_init(&c->in, EDGE_HEAD_MAX + EDGE_SCRATCH);
    sg_buf_init(&c->response, EDGE_RESPONSE_MAX + EDGE_SCRATCH);
    sg_buf_init(&c->up, EDGE_HEAD_MAX + 2 * EDGE_SCRATCH);
    sg_buf_init(&c->down, EDGE_RESPONSE_MAX + 2 * EDGE_SCRATCH);
    if (secure) {
        c->client.ssl = edge_tls_accept(e->tls, fd);
        if (!c->client.ssl) {
            free(c);
            return NULL;
        }
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on); /* idle WebSockets may stay, lost peers not */
    c->state = secure ? EDGE_S_HANDSHAKE : EDGE_S_HEAD;
    return c;
}

static void drop_upstream(struct edge_conn *c)
{
    edge_close(&c->upstream, false);
    edge_target_drop(&c->target);
}

void edge_conn_free(struct edge_conn *c)
{
    edge_close(&c->client, false);
    drop_upstream(c);
    edge_target_drop(&c->job.target);
    if (c->job.fd >= 0)
        close(c->job.fd);
    sg_buf_free(&c->in);
    sg_buf_free(&c->response);
    sg_buf_free(&c->up);
    sg_buf_free(&c->down);
    free(c);
}

void edge_conn_cut(struct edge_conn *c)
{
    edge_close(&c->client, true);
    edge_close(&c->upstream, true);
    edge_bury(c);
}

void edge_conn_finish(struct edge_conn *c)
{
    drop_upstream(c);
    sg_buf_free(&c->in);
    sg_buf_free(&c->up);
    sg_buf_free(&c->response);
    c->state = EDGE_S_LINGER;
    edge_set_deadline(c, c->down.len ? EDGE_IDLE_MS : EDGE_LINGER_MS);
}

void edge_conn_answer(struct edge_conn *c)
{
    if (c->down.failed)
        edge_conn_cut(c);
    else
        edge_conn_finish(c);
}

static bool refuse(struct edge_conn *c, int status)
{
    edge_page_refusal(&c->down, status);
    edge_conn_answer(c);
    return true;
}

static bool refuse_verdict(struct edge_conn *c, enum edge_verdict v)
{
    edge_page_verdict(&c->down, v, c->request.head);
    edge_conn_answer(c);
    return true;
}

/* ---- from a request head to the process ---- */

static bool look_up(struct edge_conn *c)
{
    c->state = EDGE_S_LOOKUP;
    edge_set_deadline(c, 0);
    edge_submit(c);
    return false;
}

/* "localhost" inside is 127.0.0.1 or ::1, and a server that was told localhost listens on one of them. */
static bool not_connected(struct edge_conn *c, int err)
{
    if (err != ECONNREFUSED || c->second || !c->target.session)
        return refuse_verdict(c, EDGE_NOT_LISTENING);
    edge_close(&c->upstream, false);
    c->second = true;
    return look_up(c);
}

static int connect_to_target(const struct edge_conn *c, int fd)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    v4.sin_port = v6.sin6_port = htons((uint16_t)c->target.port);
    if (!c->target.session)
        return connect(fd, (const struct sockaddr *)&c->edge->config.api, c->edge->config.api_len);
    return c->second ? connect(fd, (const struct sockaddr *)&v6, sizeof v6)
                     : connect(fd, (const struct sockaddr *)&v4, sizeof v4);
}

static bool start_connect(struct edge_conn *c)
{
    int fd = c->job.fd, on = 1;
    c->job.fd = -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect_to_target(c, fd) && errno != EINPROGRESS) {
        int err = errno;
        close(fd);
        return not_connected(c, err);
    }
    if (!edge_watch_end(c, &c->upstream, fd)) {
        close(fd);
        return refuse_verdict(c, EDGE_NO_MEANS);
    }
    c->state = EDGE_S_CONNECT;
    edge_set_deadline(c, EDGE_CONNECT_MS);
    return false; /* an event says when */
}

static bool connect_step(struct edge_conn *c)
{
    struct sockaddr_storage peer;
    socklen_t len = sizeof peer;
    int err = 0;
    socklen_t err_len = sizeof err;
    if (!c->upstream.writable)
        return false;
    if (getsockopt(c->upstream.watch.fd, SOL_SOCKET, SO_ERROR, &err, &err_len))
        err = errno;
    if (err)
        return not_connected(c, err);
    if (getpeername(c->upstream.watch.fd, (struct sockaddr *)&peer, &len)) {
        c->upstream.writable = false; /* not yet */
        return false;
    }
    edge_relay_begin(c);
    return true;
}

/* The place is known; a connection to it exists, or a socket that may be connected. */
static bool go_inside(struct edge_conn *c)
{
    if (c->upstream.watch.fd < 0)
        return start_connect(c);
    edge_relay_begin(c);
    return true;
}

/* True when a rule wants something else than going inside. */
static bool fault_instead(struct edge_conn *c)
{
    struct fault_action a = {0};
    char method[32], path[2048];
    const struct edge_request *r = &c->request;
    c->cut_left = -1;
    if (!c->edge->emu->faults || !c->target.session)
        return false;
    snprintf(method, sizeof method, "%.*s", (int)(r->method_len < 31 ? r->method_len : 31), r->method);
    snprintf(path, sizeof path, "%.*s", (int)(r->target_len < 2047 ? r->target_len : 2047), r->target);
    if (!faults_match_edge(c->edge->emu->faults, c->target.label, c->target.port, method, path, &a))
        return false;
    bool instead = true;
    c->cut_left = a.cut_after_bytes;
    if (a.close_before) {
        edge_conn_cut(c);
    } else if (a.status) {
        edge_page_fault(&c->down, &a, r->head);
        edge_conn_answer(c);
    } else if (a.delay_ms) {
        c->state = EDGE_S_DELAY;
        edge_set_deadline(c, a.delay_ms);
    } else {
        instead = false;
    }
    fault_action_free(&a);
    return instead;
}

static bool is_api_host(const struct edge *e, const char *host)
{
    for (size_t i = 0; i < e->config.n_api_hosts; i++)
        if (!strcmp(host, e->config.api_hosts[i]))
            return true;
    return false;
}

static bool route(struct edge_conn *c)
{
    struct edge *e = c->edge;
    struct edge_request *r = &c->request;
    const char *sni = c->client.ssl ? SSL_get_servername(c->client.ssl, TLSEXT_NAMETYPE_host_name) : NULL;
    char label[EDGE_LABEL_TEXT] = "";
    if (!*r->host && sni && strlen(sni) < sizeof r->host)
        for (size_t i = 0; sni[i]; i++)
            r->host[i] = (char)(sni[i] >= 'A' && sni[i] <= 'Z' ? sni[i] + ('a' - 'A') : sni[i]);
    if (sni && strcasecmp(sni, r->host) != 0)
        return refuse(c, 421);
    bool api = is_api_host(e, r->host);
    if (!api && !edge_host_label(r->host, e->config.suffix, label))
        return refuse_verdict(c, EDGE_NOT_FOUND);
    bool here = c->upstream.watch.fd >= 0 && !strcmp(label, c->target.label) && api == !c->target.session;
    c->reused = here && edge_target_holds(&c->target);
    if (c->reused)
        return fault_instead(c) ? true : go_inside(c);
    drop_upstream(c);
    memcpy(c->job.label, label, sizeof label);
    c->second = false;
    return look_up(c);
}

void edge_conn_found(struct edge_conn *c)
{
    struct edge_job *j = &c->job;
    if (j->verdict == EDGE_ROUTED && !c->second) {
        c->target = j->target;
        memset(&j->target, 0, sizeof j->target);
        if (!edge_target_holds(&c->target)) { /* it went away meanwhile: what is it now? */
            j->verdict = edge_target_find(c->edge->emu, c->edge->config.late_routes, j->label, &j->target);
            edge_target_drop(&j->target);
            if (j->verdict == EDGE_ROUTED) /* a new session, whose server cannot be up yet */
                j->verdict = EDGE_NOT_LISTENING;
        }
    }
    if (j->verdict != EDGE_ROUTED)
        refuse_verdict(c, j->verdict);
    else if (c->second || !fault_instead(c))
        go_inside(c);
    /* a socket that nobody took, unless it waits for a delay or a helper has the job again */
    if (c->state != EDGE_S_DELAY && !j->out && j->fd >= 0) {
        close(j->fd);
        j->fd = -1;
    }
    edge_conn_run(c);
}

static bool head_step(struct edge_conn *c)
{
    char *scratch = c->edge->scratch;
    ptrdiff_t n = EDGE_AGAIN;
    if (c->upstream.watch.fd >= 0) {
        n = edge_read(&c->upstream, scratch, EDGE_SCRATCH);
        if (n > 0) /* nobody asked, but it was said */
            sg_buf_add(&c->down, scratch, (size_t)n);
        if (n != EDGE_AGAIN) {
            edge_conn_answer(c);
            return true;
        }
    }
    if (c->in.len < EDGE_HEAD_MAX) {
        n = edge_read(&c->client, scratch, EDGE_HEAD_MAX - c->in.len);
        if (n > 0 && !c->in.len && c->reused)
            edge_set_deadline(c, EDGE_HEAD_MS);
        if (n == EDGE_BROKEN || (n > 0 && !sg_buf_add(&c->in, scratch, (size_t)n))) {
            edge_conn_cut(c);
            return false;
        }
    }
    ptrdiff_t head = edge_request_parse(c->in.data, c->in.len, &c->request);
    if (head < 0)
        return refuse(c, (int)-head);
    if (head > 0) {
        c->head_len = (size_t)head;
        return route(c);
    }
    if (c->client.eof) {
        edge_conn_finish(c);
        return true;
    }
    return n > 0;
}

void edge_conn_next(struct edge_conn *c)
{
    if (c->up_broken || c->upstream.eof || (c->client.eof && !c->in.len)) {
        edge_conn_finish(c);
        return;
    }
    if (!c->in.len)
        sg_buf_free(&c->in);
    c->state = EDGE_S_HEAD;
    c->reused = true;
    edge_set_deadline(c, c->in.len ? EDGE_HEAD_MS : EDGE_IDLE_MS);
}

/* ---- the end ---- */

static bool linger_step(struct edge_conn *c)
{
    if (c->down.len) {
        ptrdiff_t k = edge_write(&c->client, c->down.data, c->down.len);
        if (k == EDGE_BROKEN)
            edge_conn_cut(c);
        if (k <= 0)
            return false;
        sg_buf_consume(&c->down, (size_t)k);
        edge_set_deadline(c, c->down.len ? EDGE_IDLE_MS : EDGE_LINGER_MS);
        return true;
    }
    edge_shut(&c->client);
    ptrdiff_t n = edge_read(&c->client, c->edge->scratch, EDGE_SCRATCH);
    if (n <= 0 && n != EDGE_AGAIN) {
        edge_close(&c->client, false);
        edge_bury(c);
    }
    return n > 0;
}

void edge_conn_expired(struct edge_conn *c)
{
    edge_set_deadline(c, 0);
    switch (c->state) {
    case EDGE_S_HEAD:
        if (c->in.len)
            refuse(c, 408);
        else
            edge_conn_finish(c);
        break;
    case EDGE_S_DELAY:
        go_inside(c);
        break;
    case EDGE_S_CONNECT:
        refuse_verdict(c, EDGE_NOT_LISTENING); /* its queue of connections is full */
        break;
    case EDGE_S_HANDSHAKE:
    case EDGE_S_LINGER:
    case EDGE_S_LOOKUP:
    case EDGE_S_RELAY:
    case EDGE_S_DEAD:
    default:
        edge_close(&c->client, c->down.len > 0);
        edge_bury(c);
        break;
    }
    edge_conn_run(c);
}

static bool handshake_step(struct edge_conn *c)
{
    int rc = edge_tls_handshake(&c->client);
    if (rc < 0)
        edge_conn_cut(c);
    if (rc <= 0)
        return false;
    c->state = EDGE_S_HEAD;
    edge_set_deadline(c, EDGE_HEAD_MS);
    return true;
}

static bool step(struct edge_conn *c)
{
    switch (c->state) {
    case EDGE_S_HANDSHAKE:
        return handshake_step(c);
    case EDGE_S_HEAD:
        return head_step(c);
    case EDGE_S_CONNECT:
        return connect_step(c);
    case EDGE_S_RELAY:
        return edge_relay_step(c);
    case EDGE_S_LINGER:
        return linger_step(c);
    case EDGE_S_LOOKUP:
    case EDGE_S_DELAY:
    case EDGE_S_DEAD:
    default:
        return false;
    }
}

void edge_conn_run(struct edge_conn *c)
{
    for (int i = 0; i < EDGE_TURNS; i++)
        if (!step(c))
            return;
    edge_again(c);
}
