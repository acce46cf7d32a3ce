/* No client is kept waiting: when a handler takes longer than that, its request is parted from the connection, which is
 * answered 202 with the place where the answer will be (routes/late.h).  The handler knows nothing of it. */
#include "server/internal.h"

#include "routes/gateway.h"
#include "routes/idempotency.h"
#include "routes/late.h"

#include <stdlib.h>
#include <string.h>

enum { LOOK_AGAIN_MS = 200, TRY_AGAIN_MS = 1000 };

static bool is_answered(const struct request *r)
{
    return !r->on_worker && r->answer.kind != ANSWER_NONE; /* a worker may be answering just now */
}

static void on_patience(void *arg)
{
    struct request *r = arg;
    if (is_answered(r) || !r->conn)
        return;
    if (r->asking || !r->suspended) {
        sg_timer_start(r->patience, LOOK_AGAIN_MS);
        return;
    }
    r->part_due = true;
    request_wake(r);
}

/* The handler may look at them when the connection serves the next request. */
static bool keep_headers(struct request *r)
{
    size_t size = 1;
    for (size_t i = 0; i < r->nheaders; i++)
        size += r->headers[i].name_len + r->headers[i].value_len + 2;
    char *at = r->header_text = malloc(size);
    for (size_t i = 0; i < r->nheaders && at; i++) {
        struct gate_header *h = &r->headers[i];
        memcpy(at, h->name, h->name_len);
        at[h->name_len] = '\0';
        h->name = at;
        at += h->name_len + 1;
        memcpy(at, h->value, h->value_len);
        at[h->value_len] = '\0';
        h->value = at;
        at += h->value_len + 1;
    }
    return at != NULL;
}

static bool may_last(const struct request *r)
{
    return r->ex.gw->lates && (r->route->kind == ROUTE_WORKER ||
                               (r->route->kind == ROUTE_LOOP && (r->route->flags & ROUTE_LASTS)));
}

bool lasting_begin(struct request *r)
{
    if (!may_last(r))
        return true;
    r->keep_error = true;
    r->patience = sg_timer_new(r->srv->loop, on_patience, r);
    if (!r->patience || !keep_headers(r)) {
        struct sg_error e;
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
        ex_fail(&r->ex, &e);
        return false;
    }
    bool async = ex_prefers_async(&r->ex);
    sg_timer_start(r->patience, async ? ASYNC_MS : (uint64_t)lates_after_ms(r->ex.gw->lates));
    return true;
}

/* ---- parting ---- */

/* What answers the connection in its place. */
static struct request *stand_in(const struct request *r)
{
    struct request *n = request_new(r->srv, r->raw);
    if (!n)
        return NULL;
    n->route = r->route;
    n->who = r->who;
    n->ex.who = r->ex.who ? &n->who : NULL;
    n->ex.method = r->ex.method;
    memcpy(n->request_id, r->request_id, sizeof n->request_id);
    n->verdict = r->verdict;
    n->start_ns = r->start_ns;
    n->deadline_ms = 0;
    n->phase = PHASE_READY;
    n->http10 = r->http10;
    n->must_close = r->must_close;
    n->head_read = true;
    return n;
}

static bool is_of_files(const struct route *route)
{
    static const char files[] = "/v1/sandboxes/{name}/files";
    return strncmp(route->pattern, files, sizeof files - 1) == 0;
}

static enum MHD_Result go_on_waiting(struct request *r)
{
    sg_timer_start(r->patience, TRY_AGAIN_MS); /* there may be room then */
    MHD_suspend_connection(r->conn->mhd);
    r->suspended = true;
    return MHD_YES;
}

enum MHD_Result lasting_part(struct request *r, void **req)
{
    r->part_due = false;
    if (is_answered(r)) /* it is being kept */
        return go_on_waiting(r);
    char id[STORE_KEY_OPERATION_TEXT];
    if (r->has_key)
        key_operation_of(r->nonce, id);
    struct late *l = late_open(r->ex.gw->lates, &r->ex, is_of_files(r->route), r->has_key ? id : NULL);
    struct request *n = l ? stand_in(r) : NULL;
    if (!n) {
        if (l)
            late_drop(l);
        return go_on_waiting(r);
    }
    r->late = l;
    n->conn = r->conn;
    n->conn->req = n;
    r->conn = NULL;
    *req = n;
    if (ex_prefers_async(&r->ex))
        ex_set_header(&n->ex, "Preference-Applied", "respond-async");
    late_tell(l, &n->ex);
    return respond_queue(n);
}

void lasting_end(struct request *r)
{
    if (r->patience)
        sg_timer_stop(r->patience);
    struct late *l = r->late;
    r->late = NULL;
    if (!l)
        return;
    struct sg_error lost;
    (void)sg_fail(&lost, SG_E_OUT_OF_MEMORY, SG_OUTCOME_UNKNOWN, "no memory for the answer");
    if (r->answer.kind != ANSWER_BODY || r->answer.code) {
        late_end(l, 0, NULL, r->error ? r->error : &lost);
    } else {
        const struct sg_buf body = {.data = r->answer.body, .len = r->answer.len};
        for (size_t i = 0; i < r->nextra; i++)
            late_header(l, r->extra[i].name, r->extra[i].value);
        late_end(l, r->answer.status, &body, NULL);
    }
    respond_log(r);
}

void lasting_free(struct request *r)
{
    sg_timer_free(r->patience);
    free(r->header_text);
    free(r->error);
}
