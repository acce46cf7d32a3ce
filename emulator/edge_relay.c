/* One exchange: a request carried in, its response carried out, both at the same time and byte for byte. */
#include "emulator/edge_internal.h"

#include <string.h>

/* Sends what the other side takes and keeps the rest.  False: it is gone, or there is no memory. */
static bool push(struct sg_buf *wait, struct edge_end *to, const char *p, size_t n)
{
    while (n && !wait->len) {
        ptrdiff_t k = edge_write(to, p, n);
        if (k == EDGE_AGAIN)
            break;
        if (k < 0)
            return false;
        p += k;
        n -= (size_t)k;
    }
    return !n || sg_buf_add(wait, p, n);
}

static bool flush(struct sg_buf *wait, struct edge_end *to)
{
    while (wait->len) {
        ptrdiff_t k = edge_write(to, wait->data, wait->len);
        if (k == EDGE_AGAIN)
            return true;
        if (k < 0)
            return false;
        sg_buf_consume(wait, (size_t)k);
    }
    sg_buf_free(wait); /* an idle connection holds no buffer */
    return true;
}

/* ---- into the box ---- */

/* The process takes no more; it may have answered before, so the way out stays open. */
static void lost_upstream(struct edge_conn *c)
{
    c->up_broken = true;
    sg_buf_free(&c->up);
    sg_buf_free(&c->in);
}

static void push_up(struct edge_conn *c, const char *p, size_t n)
{
    edge_target_count(&c->target, n, 0);
    if (!push(&c->up, &c->upstream, p, n))
        lost_upstream(c);
}

/* What has been carried; the memory goes with the last of it. */
static void consume_in(struct edge_conn *c, size_t n)
{
    if (n < c->in.len)
        sg_buf_consume(&c->in, n);
    else
        sg_buf_free(&c->in);
}

static void bad_body(struct edge_conn *c)
{
    if (c->answered) {
        edge_conn_cut(c);
        return;
    }
    edge_page_refusal(&c->down, 400);
    edge_conn_answer(c);
}

/* Up to n bytes of the request, which stand in c->in or came just now. */
static bool carry_request(struct edge_conn *c, const char *p, size_t n, bool from_in)
{
    ptrdiff_t k = c->tunnel ? (ptrdiff_t)n : edge_body_feed(&c->request_body, p, n);
    if (k < 0) {
        bad_body(c);
        return false;
    }
    bool kept = from_in || (size_t)k == n || sg_buf_add(&c->in, p + k, n - (size_t)k);
    if (!kept) {
        edge_conn_cut(c);
        return false;
    }
    push_up(c, p, (size_t)k);
    if (from_in)
        consume_in(c, (size_t)k);
    return true;
}

/* The client's half is over; what it has sent has been carried, so its end is carried too. */
static bool client_ended(struct edge_conn *c, bool broken)
{
    if (broken)
        edge_conn_cut(c);
    else if (!c->in.len)
        edge_shut(&c->upstream);
    return false;
}

static bool carry_up(struct edge_conn *c)
{
    if (!flush(&c->up, &c->upstream))
        lost_upstream(c);
    if (c->up.len || c->up_broken)
        return false;
    char *scratch = c->edge->scratch;
    bool wanted = c->tunnel || !c->request_body.done;
    if (wanted && c->in.len)
        return carry_request(c, c->in.data, c->in.len, true);
    /* after the request: a next one may come early, and so may the end */
    size_t room = wanted ? EDGE_SCRATCH : c->in.len < EDGE_HEAD_MAX ? EDGE_HEAD_MAX - c->in.len : 0;
    if (!room)
        return false;
    ptrdiff_t n = edge_read(&c->client, scratch, room);
    if (n == EDGE_AGAIN)
        return false;
    if (n <= 0)
        return client_ended(c, n < 0);
    if (wanted)
        return carry_request(c, scratch, (size_t)n, false);
    if (sg_buf_add(&c->in, scratch, (size_t)n))
        return true;
    edge_conn_cut(c);
    return false;
}

/* ---- out of the box ---- */

static void push_down(struct edge_conn *c, const char *p, size_t n)
{
    bool cut = c->cut_left >= 0 && n >= (uint64_t)c->cut_left;
    if (cut)
        n = (size_t)c->cut_left;
    if (c->cut_left > 0)
        c->cut_left -= (int64_t)n;
    c->answered = true;
    if (!push(&c->down, &c->client, p, n))
        edge_conn_cut(c);
    else if (cut)
        edge_conn_finish(c);
}

/* More than the body should have, or something else than its coding: a client that talked to the process
 * itself would see it too. */
static void carry_body(struct edge_conn *c, const char *p, size_t n)
{
    if (!c->tunnel && edge_body_feed(&c->response_body, p, n) != (ptrdiff_t)n)
        edge_body_init(&c->response_body, EDGE_BODY_REST, 0);
    push_down(c, p, n);
}

static void response_heads(struct edge_conn *c)
{
    while (c->response.len && c->state == EDGE_S_RELAY) {
        struct edge_response r;
        ptrdiff_t h = edge_response_parse(c->response.data, c->response.len, c->request.head, &r);
        if (h == 0)
            return;
        if (h < 0) { /* no HTTP: carried as it is */
            c->in_body = true;
            edge_body_init(&c->response_body, EDGE_BODY_REST, 0);
            h = (ptrdiff_t)c->response.len;
        } else if (r.status == 101) {
            c->tunnel = true;
        } else if (r.status >= 200) {
            c->in_body = true;
            edge_body_init(&c->response_body, r.kind, r.length);
        }
        push_down(c, c->response.data, (size_t)h);
        sg_buf_consume(&c->response, (size_t)h);
        if (c->in_body || c->tunnel)
            break;
    }
    if (c->response.len && c->state == EDGE_S_RELAY)
        carry_body(c, c->response.data, c->response.len);
    sg_buf_free(&c->response);
}

static void response_bytes(struct edge_conn *c, const char *p, size_t n)
{
    edge_target_count(&c->target, 0, n);
    if (c->in_body || c->tunnel)
        carry_body(c, p, n);
    else if (sg_buf_add(&c->response, p, n))
        response_heads(c);
    else
        edge_conn_cut(c);
}

/* The process has closed its side. */
static void response_ended(struct edge_conn *c, bool broken)
{
    if (c->tunnel) {
        if (broken)
            edge_conn_cut(c);
        else
            edge_shut(&c->client);
        return;
    }
    if (c->response.len) /* half a head: the client shall see the same */
        push_down(c, c->response.data, c->response.len);
    if (c->state != EDGE_S_RELAY)
        return;
    if (!c->answered && !c->reused) {
        edge_page(&c->down, 502, "BAD_GATEWAY", "The server in the sandbox closed the connection.",
                  c->request.head);
        edge_conn_answer(c);
    } else if (broken) {
        edge_conn_cut(c);
    } else {
        edge_conn_finish(c);
    }
}

static bool carry_down(struct edge_conn *c)
{
    if (!flush(&c->down, &c->client)) {
        edge_conn_cut(c);
        return false;
    }
    if (c->down.len || c->client.shut)
        return false;
    ptrdiff_t n = edge_read(&c->upstream, c->edge->scratch, EDGE_SCRATCH);
    if (n == EDGE_AGAIN)
        return false;
    if (n > 0)
        response_bytes(c, c->edge->scratch, (size_t)n);
    else
        response_ended(c, n < 0);
    return true;
}

/* ---- both ---- */

/* The API says addresses of its own in answers, so it must know that the client came by TLS.  No process in a
 * sandbox ever sees this: there a head is carried as it came. */
static void push_api_head(struct edge_conn *c)
{
    static const char line[] = "X-Forwarded-Proto: https\r\n";
    size_t first = (size_t)(c->request.target - c->in.data) + c->request.target_len + strlen(" HTTP/1.1\r\n");
    struct sg_buf head;
    sg_buf_init(&head, EDGE_HEAD_MAX + sizeof line);
    sg_buf_add(&head, c->in.data, first);
    sg_buf_adds(&head, line);
    sg_buf_add(&head, c->in.data + first, c->head_len - first);
    if (head.failed)
        lost_upstream(c);
    else
        push_up(c, head.data, head.len);
    sg_buf_free(&head);
}

void edge_relay_begin(struct edge_conn *c)
{
    c->state = EDGE_S_RELAY;
    edge_set_deadline(c, 0);
    c->in_body = c->tunnel = c->answered = c->up_broken = false;
    edge_body_init(&c->request_body, c->request.kind, c->request.length);
    edge_body_init(&c->response_body, EDGE_BODY_NONE, 0);
    if (!c->target.session && c->client.ssl)
        push_api_head(c);
    else
        push_up(c, c->in.data, c->head_len);
    consume_in(c, c->head_len);
}

bool edge_relay_step(struct edge_conn *c)
{
    bool moved = carry_up(c);
    if (c->state == EDGE_S_RELAY)
        moved = carry_down(c) || moved;
    if (c->state != EDGE_S_RELAY)
        return c->state != EDGE_S_DEAD;
    bool empty = !c->up.len && !c->down.len;
    if (c->tunnel) {
        if (c->upstream.eof && ((empty && c->client.eof) || c->up_broken))
            edge_conn_finish(c);
    } else if (c->in_body && c->response_body.done && (c->up_broken || (empty && c->request_body.done))) {
        edge_conn_next(c);
        return true;
    }
    return moved;
}
