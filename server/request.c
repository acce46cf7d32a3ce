#include "server/internal.h"

#include "base/clock.h"
#include "base/crypto.h"

#include <stdlib.h>
#include <string.h>

struct request *request_new(struct http_server *srv, const char *raw)
{
    size_t len = strlen(raw);
    size_t space = len + 1 + 2 * len + 2; /* the target as it came, then its decoded parts */
    struct request *r = calloc(1, sizeof *r);
    char *text = malloc(space);
    if (!r || !text) {
        free(r);
        free(text);
        return NULL;
    }
    memcpy(text, raw, len + 1);
    r->srv = srv;
    r->raw = text;
    r->raw_in_place = raw;
    r->start_ns = sg_mono_ns();
    r->deadline_ms = r->start_ns / 1000000 + (int64_t)srv->cfg.request_timeout_ms;
    r->ex.gw = srv->gw;
    r->ex.method = "?";
    if (!sg_random_id(r->request_id, "req_", 20)) /* unless the head brings one */
        memcpy(r->request_id, "req_unknown", sizeof "req_unknown");
    r->ex.request_id = r->request_id;
    r->ex.content_length = -1;
    sg_buf_init(&r->body, srv->cfg.max_json_body);
    r->next = srv->requests;
    r->prev = &srv->requests;
    if (srv->requests)
        srv->requests->prev = &r->next;
    srv->requests = r;
    srv->nrequests++;
    return r;
}

static void unlink_due(struct request *r)
{
    if (!r->srv)
        return;
    struct request **p = &r->srv->due;
    while (*p && *p != r)
        p = &(*p)->due_next;
    if (*p)
        *p = r->due_next;
    r->in_due = false;
}

void request_unlink(struct request *r)
{
    if (!r->srv)
        return;
    *r->prev = r->next;
    if (r->next)
        r->next->prev = r->prev;
    r->srv->nrequests--;
    r->srv = NULL;
}

void request_free(struct request *r)
{
    if (r->in_due)
        unlink_due(r);
    request_unlink(r);
    for (size_t i = 0; i < r->nextra; i++)
        free(r->extra[i].name);
    if (r->stream)
        stream_free(r->stream);
    lasting_free(r);
    keyed_free(r);
    json_decref(r->ex.body);
    sg_buf_free(&r->body);
    free(r->answer.body);
    free(r->headers);
    free(r->raw);
    free(r);
}

void request_wake(struct request *r)
{
    if (r->in_ready || !r->suspended)
        return;
    r->in_ready = true;
    r->ready_next = r->srv->ready;
    r->srv->ready = r;
}

void request_due(struct request *r)
{
    if (r->in_due)
        return;
    r->in_due = true;
    r->due_next = r->srv->due;
    r->srv->due = r;
}

bool request_goes_on(const struct request *r)
{
    return r->has_key || r->late;
}

void request_gone(struct request *r)
{
    r->gone = true;
    void (*fn)(void *arg) = r->gone_fn;
    r->gone_fn = NULL;
    if (fn && r->answer.kind == ANSWER_NONE)
        fn(r->gone_arg);
}

static void bury(struct sg_grave *g)
{
    request_free((struct request *)((char *)g - offsetof(struct request, grave)));
}

void request_answered(struct request *r)
{
    if (r->on_worker)
        return; /* its done task comes here again, on the loop */
    if (keyed_hold(r))
        return; /* as it does when the answer is kept */
    lasting_end(r);
    if (!r->srv) {
        request_free(r); /* the server is gone: this was the last hand on it */
    } else if (!r->conn) {
        r->grave.fn = bury;
        sg_loop_bury(r->srv->loop, &r->grave);
    } else if (r->suspended) {
        request_wake(r);
    } else if (r->phase == PHASE_BODY && r->answer.kind == ANSWER_BODY) {
        respond_early(r);
    }
    /* else: inside a call of the HTTP library, which goes on when the handler returns */
}
