/* The record of one sandbox, waiting for what becomes of it, resuming and stopping it: on the loop. */
#include "routes/handlers.h"

#include "base/buf.h"
#include "base/json.h"
#include "routes/gateway.h"
#include "routes/spec.h"
#include "routes/state.h"

#include <stdlib.h>
#include <string.h>

enum { LOCATION_MAX = 512 };

/* A request that waits for control/.  A client that leaves is answered at once; a read of its is given up, what was begun goes
 * on. */
struct waiting {
    struct exchange *ex;   /* NULL once the client left */
    struct control_op *op; /* what is given up then; NULL: nothing */
    struct state_match match;
};

static void on_gone(void *arg)
{
    struct waiting *w = arg;
    struct exchange *ex = w->ex;
    struct sg_error e;
    w->ex = NULL;
    if (w->op) {
        control_cancel(w->op);
        free(w);
    }
    (void)sg_fail(&e, SG_E_BAD_REQUEST, SG_OUTCOME_UNKNOWN, "the client left");
    ex_fail(ex, &e);
}

static struct waiting *wait_begin(struct exchange *ex)
{
    struct sg_error e;
    struct waiting *w = calloc(1, sizeof *w);
    if (!w) {
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
        ex_fail(ex, &e);
        return NULL;
    }
    if (state_match_of(ex, &w->match, &e)) {
        free(w);
        ex_fail(ex, &e);
        return NULL;
    }
    w->ex = ex;
    ex_on_gone(ex, on_gone, w);
    return w;
}

/* The exchange to answer, NULL when nobody is there any more. */
static struct exchange *wait_end(struct waiting *w)
{
    struct exchange *ex = w->ex;
    free(w);
    if (ex)
        ex_on_gone(ex, NULL, NULL);
    return ex;
}

/* ---- get ---- */

static void on_record(void *arg, struct sg_buf *record, const char *etag, const struct sg_error *e)
{
    struct waiting *w = arg;
    struct sg_error own;
    bool had = !e && state_had(&w->match, etag);
    if (!e && !state_fits(&w->match, etag)) {
        (void)sg_fail(&own, SG_E_PRECONDITION_FAILED, SG_FINISHED,
                      "the sandbox is in another state than If-Match says");
        e = &own;
    }
    struct exchange *ex = wait_end(w);
    if (!ex)
        return;
    if (e) {
        ex_fail(ex, e);
        return;
    }
    state_set_etag(ex, etag);
    if (had)
        ex_answer_empty(ex, 304);
    else
        ex_answer_json_text(ex, 200, record);
}

static bool has(void *arg, const char *etag)
{
    const struct waiting *w = arg;
    return state_had(&w->match, etag);
}

static enum sg_code read_wait(struct exchange *ex, struct control_wait *want, struct sg_error *e)
{
    static const char *const query[] = {"wait_ms", "until", NULL};
    *want = (struct control_wait){.status = VERCEL_PENDING};
    enum sg_code rc = ex_query_only(ex, query, e);
    if (!rc)
        rc = ex_query_int(ex, "wait_ms", 0, SPEC_WAIT_MAX_MS, &want->wait_ms, e);
    const char *until = ex_query(ex, "until", NULL);
    if (rc || !until)
        return rc;
    want->for_status = true;
    for (; want->status < VERCEL_STATUS_OTHER; want->status++)
        if (strcmp(until, vercel_status_name(want->status)) == 0)
            return SG_OK;
    return sg_fail_field(e, SG_E_INVALID_FIELD, "?until", "no such status");
}

void route_sandbox_get(struct exchange *ex)
{
    struct sg_error e;
    struct control_wait want;
    struct control *c = ex->gw->control;
    if (read_wait(ex, &want, &e)) {
        ex_fail(ex, &e);
        return;
    }
    struct waiting *w = wait_begin(ex);
    if (!w)
        return;
    if (w->match.none_match.given)
        want.has = has;
    struct control_op *op = want.wait_ms ? control_await(c, ex->params[0], &want, on_record, w)
                                         : control_get(c, ex->params[0], on_record, w);
    if (op) /* else it was answered already */
        w->op = op;
}

/* ---- resume and stop ---- */

static void answer_moved(struct exchange *ex, json_t *record, bool pending)
{
    struct sg_buf place;
    if (!record)
        record = json_pack("{ss}", "name", ex->params[0]);
    if (!record) {
        struct sg_error e;
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
        ex_fail(ex, &e);
        return;
    }
    if (!pending) {
        state_set_etag_of(ex, record);
        ex_answer_json(ex, 200, record);
        return;
    }
    sg_buf_init(&place, LOCATION_MAX);
    (void)sg_buf_adds(&place, "/v1/sandboxes/");
    (void)sg_buf_add_urlenc(&place, ex->params[0]);
    if (!place.failed)
        ex_set_header(ex, "Location", place.data);
    sg_buf_free(&place);
    ex_answer_json(ex, 202, record);
}

static void on_moved(void *arg, json_t *record, bool pending, const struct sg_error *e)
{
    struct exchange *ex = wait_end(arg);
    if (!ex)
        json_decref(record);
    else if (e)
        ex_fail(ex, e);
    else
        answer_moved(ex, record, pending);
}

static bool fits(void *arg, const char *etag)
{
    const struct waiting *w = arg;
    return state_fits(&w->match, etag);
}

/* The body of stop and resume: {wait_ms?}. */
static enum sg_code wait_of(struct exchange *ex, int64_t *wait_ms, struct sg_error *e)
{
    static const char *const fields[] = {"wait_ms", NULL};
    *wait_ms = SPEC_WAIT_MAX_MS;
    if (ex_prefers_async(ex)) {
        *wait_ms = 0;
        ex_set_header(ex, "Preference-Applied", "respond-async");
    }
    enum sg_code rc = ex_query_only(ex, fields, e);
    if (!rc)
        rc = ex_query_int(ex, "wait_ms", 0, SPEC_WAIT_MAX_MS, wait_ms, e);
    if (!rc)
        rc = sg_json_only(ex->body, "", fields, e);
    if (!rc)
        rc = sg_json_int(ex->body, "", "wait_ms", 0, SPEC_WAIT_MAX_MS, wait_ms, e);
    return rc;
}

typedef void move_fn(struct control *c, const char *name, const struct control_move *how,
                     control_move_fn *done, void *arg);

static void move(struct exchange *ex, move_fn *start)
{
    struct sg_error e;
    struct control_move how = {.wait_ms = 0};
    if (wait_of(ex, &how.wait_ms, &e)) {
        ex_fail(ex, &e);
        return;
    }
    struct waiting *w = wait_begin(ex);
    if (!w)
        return;
    if (w->match.match.given)
        how.fits = fits;
    start(ex->gw->control, ex->params[0], &how, on_moved, w);
}

void route_sandbox_resume(struct exchange *ex)
{
    move(ex, control_resume);
}

void route_sandbox_stop(struct exchange *ex)
{
    move(ex, control_stop);
}
