/* GET …/processes/{id}/output: one stream's bytes from an offset, as they are.
 *
 * Where bytes are there already, their number is known from the hello and they flow through.  Where none are
 * and the caller waits for the first ones, those are collected up to WAITED_MAX, so that the offsets in the
 * head are exact.
 */
#include "routes/handlers.h"

#include "base/buf.h"
#include "relay/feed.h"
#include "routes/act.h"
#include "routes/ended.h"
#include "routes/process_act.h"
#include "routes/spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAITED_MAX = 1024 * 1024 };
#define OFFSET_MAX (INT64_MAX / 4) /* the relay's */

struct output {
    struct act act;
    int stream;
    bool pty;               /* the terminal was asked for by name */
    uint64_t offset, limit; /* limit 0: none */
    int64_t wait_ms;
    struct reader *reader;
    struct ex_stream *out; /* once the head is sent */
    uint64_t oldest, end;  /* by the hello */
    uint64_t want, sent;
    bool finished, hello, waiting; /* waiting: bytes are collected */
    struct sg_buf waited;
};

/* Takes everything down but the exchange's answer. */
static void output_free(struct output *o)
{
    if (o->reader)
        reader_close(o->reader);
    sg_buf_free(&o->waited);
    act_free(&o->act);
}

static void output_fail(struct act *a, const struct sg_error *e)
{
    struct output *o = (struct output *)a;
    if (act_settled(a))
        ex_fail(a->ex, e);
    output_free(o);
}

static void on_client_gone(void *arg)
{
    struct output *o = arg;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_BAD_REQUEST, SG_FINISHED, "the client left");
    output_fail(&o->act, &e);
}

static void on_stream_drain(void *arg)
{
    struct output *o = arg;
    if (o->reader)
        reader_resume(o->reader);
}

static void on_stream_gone(void *arg)
{
    struct output *o = arg;
    output_free(o);
}

static void set_offset(struct exchange *ex, const char *header, uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, value);
    ex_set_header(ex, header, text);
}

/* Sends the head for `length` bytes.  False: answered with an error, o is freed. */
static bool send_head(struct output *o, uint64_t length, uint64_t end)
{
    struct exchange *ex = o->act.ex;
    act_settled(&o->act);
    set_offset(ex, "X-Offset-Next", o->offset + length);
    set_offset(ex, "X-Offset-End", end);
    set_offset(ex, "X-Offset-Oldest", o->oldest);
    ex_set_header(ex, "X-Session-Id", o->act.session_id);
    ex_set_header(ex, "Cache-Control", "no-store, no-transform");
    o->out = ex_stream_begin(ex, 200, "application/octet-stream", (int64_t)length, on_stream_drain,
                             on_stream_gone, o);
    if (!o->out)
        output_free(o);
    return o->out != NULL;
}

static void finish(struct output *o)
{
    ex_stream_end(o->out);
    output_free(o);
}

static void cut(struct output *o)
{
    ex_stream_abort(o->out);
    output_free(o);
}

/* What was waited for is here, or the time is over. */
static void answer_waited(struct output *o)
{
    uint64_t end = o->offset + o->waited.len;
    if (o->offset > o->end)
        end = o->end; /* asked beyond the end, and nothing came */
    if (!send_head(o, o->waited.len, end > o->end ? end : o->end))
        return;
    if (o->waited.len && !ex_stream_write(o->out, o->waited.data, o->waited.len))
        cut(o);
    else
        finish(o);
}

static void out_of_range(struct output *o)
{
    struct sg_error e;
    set_offset(o->act.ex, "X-Offset-End", o->end);
    (void)sg_fail(&e, SG_E_RANGE_NOT_SATISFIABLE, SG_FINISHED, "the stream ended at %" PRIu64, o->end);
    output_fail(&o->act, &e);
}

static void no_terminal(struct output *o)
{
    struct sg_error e;
    (void)sg_fail_field(&e, SG_E_INVALID_FIELD, "?stream", "the process has no terminal");
    output_fail(&o->act, &e);
}

static void on_hello(void *arg, const struct sg_wire_process *p)
{
    struct output *o = arg;
    o->hello = true;
    if (o->pty && !p->terminal) {
        no_terminal(o);
        return;
    }
    o->oldest = p->oldest[o->stream];
    o->end = p->end[o->stream];
    o->finished = p->how != SG_HOW_NONE || p->state == SG_PS_FINISHED;
    if (o->offset < o->oldest)
        return; /* on_end says so */
    if (o->offset > o->end && o->finished) {
        out_of_range(o);
        return;
    }
    if (o->offset >= o->end) {
        o->waiting = true;
        return;
    }
    o->want = o->end - o->offset;
    if (o->limit && o->want > o->limit)
        o->want = o->limit;
    (void)send_head(o, o->want, o->end);
}

static bool on_data(void *arg, int stream, uint64_t offset, const void *data, size_t len)
{
    struct output *o = arg;
    (void)stream;
    (void)offset;
    if (o->waiting) {
        size_t room = WAITED_MAX - o->waited.len;
        if (o->limit && o->limit - o->waited.len < room)
            room = (size_t)(o->limit - o->waited.len);
        if (!sg_buf_add(&o->waited, data, len < room ? len : room) || len >= room)
            answer_waited(o); /* enough; the rest is read by the next request */
        return true;
    }
    if (!o->out)
        return true;
    uint64_t left = o->want - o->sent;
    size_t n = len < left ? len : (size_t)left;
    o->sent += n;
    if (!ex_stream_write(o->out, data, n)) {
        cut(o);
        return false;
    }
    if (o->sent == o->want) {
        finish(o);
        return true;
    }
    return ex_stream_queued(o->out) < EX_STREAM_HIGH;
}

static void on_gap(void *arg, int stream, uint64_t from, uint64_t to)
{
    (void)arg;
    (void)stream;
    (void)from;
    (void)to; /* bounded reads end with OUTPUT_EVICTED instead */
}

static void on_end(void *arg, const struct sg_wire_process *p, const struct sg_error *e)
{
    struct output *o = arg;
    if (o->out) { /* the head promised more than came */
        cut(o);
        return;
    }
    if (e) {
        struct sg_error own = *e;
        if (own.code == SG_E_OUTPUT_EVICTED && own.oldest < 0)
            own.oldest = (int64_t)o->oldest;
        reader_close(o->reader);
        o->reader = NULL;
        if (!o->hello && act_retry(&o->act, &own))
            return;
        if (own.code == SG_E_OUTPUT_EVICTED)
            set_offset(o->act.ex, "X-Offset-Oldest", (uint64_t)own.oldest);
        o->act.fail(&o->act, &own);
        return;
    }
    bool finished = p && (p->how != SG_HOW_NONE || p->state == SG_PS_FINISHED);
    if (p && p->end[o->stream] > o->end)
        o->end = p->end[o->stream];
    if (finished && o->offset > o->end)
        out_of_range(o);
    else
        answer_waited(o);
}

static void output_go(struct act *a)
{
    static const struct follower_events events = {on_hello, on_data, on_gap, on_end};
    struct output *o = (struct output *)a;
    struct sg_error e;
    struct follow_spec spec = {
        .session = act_session(a),
        .id = a->ex->params[1],
        .only = o->stream,
        .bounded = true,
        .limit = o->limit ? o->limit : OFFSET_MAX,
        .wait_ms = o->wait_ms,
    };
    spec.offset[o->stream] = o->offset;
    o->reader = reader_open(a->gw->relay, &spec, &events, o, &e);
    if (o->reader)
        ex_on_gone(a->ex, on_client_gone, o);
    else
        output_fail(a, &e);
}

struct output_query {
    int stream;
    bool pty;
    int64_t offset, limit, wait_ms;
};

static enum sg_code parse_query(struct exchange *ex, struct output_query *q, struct sg_error *e)
{
    static const char *const allowed[] = {"stream", "offset", "limit", "wait_ms", "session", NULL};
    enum sg_code rc = ex_query_only(ex, allowed, e);
    const char *stream = ex_query(ex, "stream", NULL);
    q->stream = stream && !strcmp(stream, "stderr");
    q->pty = stream && !strcmp(stream, "pty");
    if (!rc && stream && strcmp(stream, "stdout") != 0 && !q->stream && !q->pty)
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, "?stream", "must be stdout, stderr or pty");
    if (!rc)
        rc = ex_query_int(ex, "offset", 0, OFFSET_MAX, &q->offset, e);
    if (!rc)
        rc = ex_query_int(ex, "limit", 1, OFFSET_MAX, &q->limit, e);
    if (!rc)
        rc = ex_query_int(ex, "wait_ms", 0, SPEC_WAIT_MAX_MS, &q->wait_ms, e);
    if (!rc)
        rc = process_id(ex, e);
    return rc;
}

void route_process_output(struct exchange *ex)
{
    struct sg_error e;
    struct output_query q = {0};
    if (parse_query(ex, &q, &e)) {
        ex_fail(ex, &e);
        return;
    }
    struct output *o = act_new(ex, sizeof *o, output_go, output_fail);
    if (!o)
        return;
    o->stream = q.stream;
    o->pty = q.pty;
    o->offset = (uint64_t)q.offset;
    o->limit = (uint64_t)q.limit;
    o->wait_ms = q.wait_ms;
    sg_buf_init(&o->waited, WAITED_MAX);
    ended_output(&o->act, o->stream, o->offset, o->limit);
    act_begin(&o->act);
}
