/* The HTTP library's access handler: moves a request through head, body and answer. */
#include "server/internal.h"

#include "base/clock.h"
#include "base/json.h"

#include <string.h>

static bool has_body(const struct request *r)
{
    return r->verdict.chunked || r->verdict.content_length > 0;
}

static bool answered(const struct request *r)
{
    return r->answer.kind != ANSWER_NONE;
}

static enum MHD_Result wait_for_answer(struct request *r)
{
    MHD_suspend_connection(r->conn->mhd);
    r->suspended = true;
    return MHD_YES;
}

/* ---- the whole request is here ---- */

/* jansson recurses; a worker's stack is small. */
static bool depth_ok(const char *s, size_t len)
{
    unsigned depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        if (in_string) {
            if (s[i] == '\\')
                i++;
            else if (s[i] == '"')
                in_string = false;
        } else if (s[i] == '"') {
            in_string = true;
        } else if (s[i] == '{' || s[i] == '[') {
            if (++depth > JSON_DEPTH_MAX)
                return false;
        } else if ((s[i] == '}' || s[i] == ']') && depth > 0) {
            depth--;
        }
    }
    return true;
}

static enum sg_code parse_body(struct request *r, struct sg_error *e)
{
    if (r->route->body != BODY_JSON)
        return SG_OK;
    if (!depth_ok(r->body.data, r->body.len))
        return sg_fail(e, SG_E_INVALID_JSON, SG_NOT_SENT, "nested deeper than %d", JSON_DEPTH_MAX);
    enum sg_code rc = sg_json_parse_object(r->body.data ? r->body.data : "", r->body.len, &r->ex.body, e);
    sg_buf_free(&r->body);
    return rc;
}

static void run_handler(struct request *r)
{
    struct sg_error e;
    if (parse_body(r, &e))
        ex_fail(&r->ex, &e);
    else
        r->route->handler(&r->ex);
}

static void worker_run(struct work *w)
{
    struct request *r = (struct request *)((char *)w - offsetof(struct request, work));
    run_handler(r);
    if (!answered(r)) {
        struct sg_error e;
        (void)sg_fail(&e, SG_E_INTERNAL, SG_OUTCOME_UNKNOWN, "the handler gave no answer");
        ex_fail(&r->ex, &e);
    }
    sg_loop_post(r->srv->loop, &r->done);
}

static void worker_done(struct sg_task *t)
{
    struct request *r = (struct request *)((char *)t - offsetof(struct request, done));
    r->on_worker = false;
    request_answered(r);
}

static void hand_to_worker(struct request *r)
{
    r->work.fn = worker_run;
    r->done.fn = worker_done;
    r->on_worker = true;
    if (r->conn)
        conn_watch(r->conn);
    if (workers_submit(r->srv->workers, &r->work))
        return;
    r->on_worker = false;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_OVERLOADED, SG_NOT_SENT, "all %u workers are busy and their queue is full",
                  r->srv->cfg.workers);
    e.retry_after_ms = 1000;
    ex_fail(&r->ex, &e);
}

static void run_upgrade(struct request *r)
{
    r->ws = ws_new(&r->srv->ws);
    if (!r->ws) {
        struct sg_error e;
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the WebSocket");
        ex_fail(&r->ex, &e);
        return;
    }
    r->route->handler(&r->ex);
}

void dispatch_run(struct request *r)
{
    switch (r->route->kind) {
    case ROUTE_WORKER:
        hand_to_worker(r);
        break;
    case ROUTE_LOOP:
        run_handler(r);
        break;
    case ROUTE_UPGRADE:
        run_upgrade(r);
        break;
    case ROUTE_UPLOAD: /* started with the head */
        r->sink->on_end(r->sink_arg);
        break;
    }
}

static void start(struct request *r)
{
    r->handed_out = true;
    r->keep_error = r->has_key;
    if (!lasting_begin(r))
        return;
    if (r->has_key)
        keyed_start(r);
    else
        dispatch_run(r);
}

static enum MHD_Result final_call(struct request *r, void **req)
{
    if (r->phase != PHASE_READY) {
        r->phase = PHASE_READY;
        r->deadline_ms = 0;
        if (!answered(r))
            start(r);
    }
    /* A worker may have filled the answer already; it is ours when its done task ran. */
    if (!r->on_worker && !r->storing && answered(r))
        return respond_queue(r);
    return r->part_due ? lasting_part(r, req) : wait_for_answer(r);
}

/* ---- the body ---- */

static void too_large(struct request *r)
{
    struct sg_error e;
    (void)sg_fail(&e, SG_E_BODY_TOO_LARGE, SG_NOT_SENT, "bodies of this call are at most %zu bytes",
                  r->srv->cfg.max_json_body);
    ex_fail(&r->ex, &e);
}

/* After the answer only the end of the body is awaited, within bounds. */
static enum MHD_Result discard(struct request *r, size_t *len)
{
    if (r->conn->peer_gone || r->body_seen > (r->early_sent ? DISCARD_MAX : DISCARD_SMALL))
        return MHD_NO;
    *len = 0;
    return MHD_YES;
}

static enum MHD_Result upload_call(struct request *r, const char *data, size_t *len)
{
    size_t left = *len;
    do {
        r->resume_asked = false; /* a sink may find room again while it is still being told */
        size_t taken = r->sink->on_data(r->sink_arg, data, left);
        taken = taken < left ? taken : left;
        data += taken;
        left -= taken;
    } while (left && r->resume_asked && !answered(r));
    if (answered(r)) {
        r->body_seen = 0;
        return discard(r, len);
    }
    *len = left;
    return left ? wait_for_answer(r) : MHD_YES;
}

static enum MHD_Result body_call(struct request *r, const char *data, size_t *len)
{
    if (answered(r)) {
        if (!r->early_sent && r->sink)
            respond_early(r); /* answered while this connection was paused */
        r->body_seen += *len;
        return discard(r, len);
    }
    if (r->route->kind == ROUTE_UPLOAD)
        return upload_call(r, data, len);
    r->body_seen += *len;
    if (r->body_seen > r->srv->cfg.max_json_body) {
        too_large(r);
        return discard(r, len);
    }
    if (r->route->body == BODY_JSON && !sg_buf_add(&r->body, data, *len)) {
        struct sg_error e;
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request body");
        ex_fail(&r->ex, &e);
    }
    *len = 0;
    return MHD_YES;
}

/* ---- the head ---- */

/* Refused with a body on its way.  The library could only answer and close at once, which resets the connection
 * under a client that is still sending; so unless the client waits for our word (or the head is not to be
 * trusted), a small body is read first, and a large one after the answer. */
static enum MHD_Result refuse_body(struct request *r)
{
    if (r->answer.kind != ANSWER_BODY || r->verdict.expect_continue || r->must_close)
        return respond_queue(r);
    r->phase = PHASE_BODY;
    if (r->verdict.chunked || r->verdict.content_length > DISCARD_SMALL)
        respond_early(r);
    return MHD_YES;
}

/* May be called again after a pause: an upload's handler may think before it takes the body. */
static enum MHD_Result head_call(struct request *r, const char *method, const char *version)
{
    if (!r->head_read) {
        r->head_read = true;
        head_process(r, method, version);
        if (!answered(r) && r->route->kind == ROUTE_UPLOAD) {
            r->handed_out = true;
            r->deadline_ms = 0; /* its pace is the handler's and the idle timeout's matter */
            r->route->handler(&r->ex);
        }
    }
    if (answered(r)) {
        if (r->must_close && !r->route)
            return respond_queue(r); /* the gate: not a byte more of this is read */
        if (has_body(r))
            return refuse_body(r);
    } else if (r->route->kind == ROUTE_UPLOAD && !r->sink) {
        return wait_for_answer(r);
    }
    r->phase = PHASE_BODY;
    return MHD_YES;
}

enum MHD_Result dispatch_access(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                                const char *version, const char *data, size_t *data_len, void **req)
{
    (void)cls;
    (void)mhd;
    (void)url;
    struct request *r = *req;
    if (!r || r->srv->stopping)
        return MHD_NO;
    if (r->phase == PHASE_HEAD)
        return head_call(r, method, version);
    if (*data_len)
        return body_call(r, data, data_len);
    return final_call(r, req);
}
