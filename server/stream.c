/* Streamed answers: a queue of chunks between a producer on the loop and the HTTP library's reader. */
#include "server/internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { CHUNK = 16 * 1024, CHUNK_SMALL = 1024 };

static struct request *request_of(struct exchange *ex)
{
    return (struct request *)ex;
}

struct ex_stream *ex_stream_begin(struct exchange *ex, int status, const char *content_type, int64_t length,
                                  void (*on_drain)(void *arg), void (*on_gone)(void *arg), void *arg)
{
    struct request *r = request_of(ex);
    struct sg_error e;
    if (r->answer.kind != ANSWER_NONE || r->phase == PHASE_BODY || !r->conn) {
        sg_fail(&e, SG_E_INTERNAL, SG_OUTCOME_UNKNOWN, "the answer cannot be streamed at this point");
        ex_fail(ex, &e);
        return NULL;
    }
    struct ex_stream *s = calloc(1, sizeof *s);
    char *type = content_type ? strdup(content_type) : NULL;
    if (!s || (content_type && !type)) {
        free(s);
        free(type);
        sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_OUTCOME_UNKNOWN, "no memory for the answer");
        ex_fail(ex, &e);
        return NULL;
    }
    s->req = r;
    s->length = length;
    s->on_drain = on_drain;
    s->on_gone = on_gone;
    s->arg = arg;
    s->content_type = type;
    r->stream = s;
    r->answer = (struct answer){ANSWER_STREAM, status, NULL, NULL, 0, SG_OK};
    if (r->conn->peer_gone)
        request_due(r); /* on_gone, but not from inside this call */
    else
        conn_watch(r->conn);
    request_answered(r);
    return s;
}

static struct chunk *room(struct ex_stream *s, size_t len)
{
    size_t cap = len > CHUNK ? len : s->head ? CHUNK : len > CHUNK_SMALL ? len : CHUNK_SMALL;
    struct chunk *c = malloc(sizeof *c + cap);
    if (!c)
        return NULL;
    c->next = NULL;
    c->off = c->len = 0;
    c->cap = cap;
    if (s->tail)
        s->tail->next = c;
    else
        s->head = c;
    s->tail = c;
    return c;
}

static void put(struct chunk *c, const char *data, size_t len)
{
    memcpy(c->data + c->len, data, len);
    c->len += len;
}

bool ex_stream_write(struct ex_stream *s, const void *data, size_t len)
{
    if (len > STREAM_QUEUE_MAX || s->queued > STREAM_QUEUE_MAX - len)
        return false;
    if (!s->req->conn || s->dead || s->aborted || s->ended || len == 0)
        return true; /* nobody reads any more */
    struct chunk *tail = s->tail;
    size_t first = tail ? tail->cap - tail->len : 0;
    first = first < len ? first : len;
    struct chunk *more = NULL;
    if (len > first && !(more = room(s, len - first)))
        return false;
    if (first)
        put(tail, data, first);
    if (more)
        put(more, (const char *)data + first, len - first);
    s->queued += len;
    request_wake(s->req);
    return true;
}

void ex_stream_on_shutdown(struct ex_stream *s, void (*fn)(void *arg))
{
    s->on_shutdown = fn;
}

size_t ex_stream_queued(const struct ex_stream *s)
{
    return s->queued;
}

void ex_stream_end(struct ex_stream *s)
{
    s->ended = true;
    if (s->req->conn)
        request_wake(s->req);
    else
        request_answered(s->req); /* all was sent before; this frees it */
}

/* Makes the HTTP library notice now, also while it waits for a slow client. */
static void cut(struct ex_stream *s)
{
    struct request *r = s->req;
    s->aborted = true;
    request_wake(r);
    if (!r->suspended && r->phase == PHASE_READY)
        shutdown(r->conn->fd, SHUT_RDWR);
}

void ex_stream_abort(struct ex_stream *s)
{
    struct request *r = s->req;
    s->dead = true; /* the producer is through with it: no callbacks */
    if (!r->conn) {
        request_answered(r);
        return;
    }
    if (s->length < 0 && r->http10) {
        /* Without chunked coding a plain close would look like the regular end. */
        struct linger now = {.l_onoff = 1, .l_linger = 0};
        setsockopt(r->conn->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    cut(s);
}

void stream_gone(struct ex_stream *s)
{
    if (s->dead || s->ended)
        return;
    s->dead = true;
    if (s->on_gone)
        s->on_gone(s->arg);
    cut(s);
}

void stream_shutdown(struct ex_stream *s)
{
    if (!s->dead && !s->ended && s->on_shutdown)
        s->on_shutdown(s->arg);
}

void stream_drained(struct ex_stream *s)
{
    if (!s->drain_due)
        return;
    s->drain_due = false;
    if (!s->dead && !s->ended && s->on_drain)
        s->on_drain(s->arg);
}

static size_t take(struct ex_stream *s, char *buf, size_t max)
{
    size_t n = 0;
    while (s->head && n < max) {
        struct chunk *c = s->head;
        size_t have = c->len - c->off, want = max - n;
        size_t m = have < want ? have : want;
        memcpy(buf + n, c->data + c->off, m);
        c->off += m;
        n += m;
        if (c->off < c->len)
            break;
        s->head = c->next;
        if (!s->head)
            s->tail = NULL;
        free(c);
    }
    return n;
}

ssize_t stream_read(void *cls, uint64_t pos, char *buf, size_t max)
{
    (void)pos;
    struct ex_stream *s = cls;
    struct request *r = s->req;
    if (s->aborted || r->srv->stopping)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t n = take(s, buf, max);
    if (n) {
        bool above = s->queued >= EX_STREAM_LOW;
        s->queued -= n;
        r->bytes_sent += n;
        if (above && s->queued < EX_STREAM_LOW) {
            s->drain_due = true;
            request_due(r);
        }
        return (ssize_t)n;
    }
    if (s->ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    MHD_suspend_connection(r->conn->mhd);
    r->suspended = true;
    return 0;
}

void stream_free(struct ex_stream *s)
{
    while (s->head) {
        struct chunk *c = s->head;
        s->head = c->next;
        free(c);
    }
    free(s->content_type);
    free(s);
}
