/* GET …/processes/{id}/events: what an attached WebSocket is told, over plain HTTP (relay/events.h). */
#include "routes/handlers.h"

#include "base/buf.h"
#include "base/clock.h"
#include "relay/audience.h"
#include "relay/events.h"
#include "relay/feed.h"
#include "relay/frames.h"
#include "routes/act.h"
#include "routes/ended.h"
#include "routes/process_act.h"

#include <stdlib.h>
#include <string.h>

enum {
    PIECE_MAX = 64 * 1024,  /* of output in one record */
    RECORD_MAX = 96 * 1024, /* of such a record */
    HEAD_MS = 10000,        /* an answer begins after this, also without its first record */
};
#define OFFSET_MAX (INT64_MAX / 4) /* the relay's */

struct events {
    struct act act;
    enum events_format format;
    uint64_t asked[2];
    struct events_at at; /* after what was written */
    struct reader *reader;
    struct ex_stream *out;       /* once the head is sent */
    struct sg_timer *tick;       /* before that: until it has to be; then: looks for silence */
    struct sg_timer *slow;       /* runs while the client takes nothing */
    bool greeted, paused, ended; /* ended: the last record was written */
    int64_t wrote_ms;
    struct audience_seat audience;
    int64_t ending_ms; /* of the session, told before the hello was; 0: not */
    const char *ending;
    struct sg_buf record;
};

static const struct relay_limits *limits(const struct events *v)
{
    return relay_limits(v->act.gw->relay);
}

/* Takes everything down but the exchange's answer. */
static void events_free(struct events *v)
{
    audience_leave(&v->audience);
    if (v->reader)
        reader_close(v->reader);
    sg_timer_free(v->tick);
    sg_timer_free(v->slow);
    sg_buf_free(&v->record);
    act_free(&v->act);
}

static void events_fail(struct act *a, const struct sg_error *e)
{
    struct events *v = (struct events *)a;
    if (act_settled(a))
        ex_fail(a->ex, e);
    events_free(v);
}

static void on_client_gone(void *arg)
{
    struct events *v = arg;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_BAD_REQUEST, SG_FINISHED, "the client left");
    events_fail(&v->act, &e);
}

/* ---- writing ---- */

/* Out of memory, or a client that reads nothing: it sees that the answer is not whole. */
static void cut(struct events *v)
{
    ex_stream_abort(v->out);
    events_free(v);
}

static void on_slow(void *arg)
{
    cut(arg);
}

static void on_stream_drain(void *arg)
{
    struct events *v = arg;
    v->paused = false;
    sg_timer_stop(v->slow);
    if (v->reader)
        reader_resume(v->reader);
}

static void on_stream_gone(void *arg)
{
    events_free(arg);
}

/* Sends v->record, if `made`.  False: the stream was cut, v is gone. */
static bool write_record(struct events *v, bool made)
{
    bool ok = made && ex_stream_write(v->out, v->record.data, v->record.len);
    v->wrote_ms = sg_mono_ms();
    if (v->record.cap > PIECE_MAX / 4)
        sg_buf_free(&v->record); /* a quiet client holds no buffer */
    else
        sg_buf_reset(&v->record);
    if (!ok)
        cut(v);
    return ok;
}

/* Takes json over. */
static bool write_json(struct events *v, const char *type, json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    bool made = text && events_record(&v->record, v->format, &v->at, type, text);
    free(text);
    return write_record(v, made);
}

static void on_shutdown(void *arg);

/* False: answered with an error, v is gone. */
static bool send_head(struct events *v)
{
    struct exchange *ex = v->act.ex;
    if (v->out)
        return true;
    act_settled(&v->act);
    ex_set_header(ex, "X-Session-Id", v->act.session_id);
    ex_set_header(ex, "Cache-Control", "no-store, no-transform");
    v->out = ex_stream_begin(ex, 200, events_type(v->format), -1, on_stream_drain, on_stream_gone, v);
    if (!v->out) {
        events_free(v);
        return false;
    }
    ex_stream_on_shutdown(v->out, on_shutdown);
    v->wrote_ms = sg_mono_ms();
    sg_timer_start(v->tick, (uint64_t)limits(v)->keepalive_ms / 2);
    return true;
}

/* Twice in the time within which something has to be said. */
static void on_tick(void *arg)
{
    struct events *v = arg;
    if (!v->out) {
        (void)send_head(v);
        return;
    }
    int64_t half = limits(v)->keepalive_ms / 2;
    sg_timer_start(v->tick, (uint64_t)half);
    if (!v->paused && sg_mono_ms() - v->wrote_ms >= half / 2)
        (void)write_record(v, events_keepalive(&v->record, v->format));
}

/* ---- the last record ---- */

static void finish(struct events *v)
{
    ex_stream_end(v->out);
    events_free(v);
}

static void end_with_error(struct events *v, const struct sg_error *e)
{
    if (write_json(v, "error", frame_error(e)))
        finish(v);
}

static void end_with_exit(struct events *v, const struct sg_wire_process *p)
{
    struct sg_error lost;
    if (p->how == SG_HOW_UNKNOWN) {
        (void)sg_fail(&lost, SG_E_PROCESS_LOST, SG_STARTED, "the process ended and left no word how");
        end_with_error(v, &lost);
        return;
    }
    if (!write_json(v, "exit", frame_exit(p)))
        return;
    v->at.over = true;
    if (write_json(v, "end", json_pack("{ss}", "type", "end")))
        finish(v);
}

static void on_shutdown(void *arg)
{
    struct events *v = arg;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_DRAINING, SG_STARTED, "the gateway is shutting down");
    end_with_error(v, &e);
}

/* ---- the process's side ---- */

/* The session is about to end.  The hello comes first. */
static void on_ending(struct audience_seat *seat, int64_t deadline_ms, const char *reason)
{
    struct events *v = (struct events *)((char *)seat - offsetof(struct events, audience));
    v->ending_ms = deadline_ms;
    v->ending = reason;
    if (v->greeted && v->out)
        (void)write_json(v, "session_ending", frame_session_ending(deadline_ms, reason));
}

static void on_hello(void *arg, const struct sg_wire_process *p)
{
    struct events *v = arg;
    struct frame_hello h = {.sandbox = v->act.sandbox, .session_id = v->act.session_id, .p = p};
    for (int s = 0; s < 2; s++)
        h.next[s] = v->asked[s] > p->oldest[s] ? v->asked[s] : p->oldest[s];
    v->greeted = true;
    v->at.terminal = p->terminal;
    if (send_head(v) && write_json(v, "hello", frame_hello(&h)) && v->ending_ms)
        (void)write_json(v, "session_ending", frame_session_ending(v->ending_ms, v->ending));
}

static bool on_data(void *arg, int stream, uint64_t offset, const void *data, size_t len)
{
    struct events *v = arg;
    const char *p = data;
    while (len) {
        size_t n = len < PIECE_MAX ? len : PIECE_MAX;
        v->at.offset[stream] = offset + n;
        if (!write_record(v, events_data(&v->record, v->format, &v->at, stream, offset, p, n)))
            return false;
        p += n;
        offset += n;
        len -= n;
    }
    if (ex_stream_queued(v->out) < EX_STREAM_HIGH)
        return true;
    v->paused = true;
    sg_timer_start(v->slow, (uint64_t)limits(v)->slow_reader_ms);
    return false;
}

static void on_gap(void *arg, int stream, uint64_t from, uint64_t to)
{
    struct events *v = arg;
    v->at.offset[stream] = to;
    (void)write_json(v, "gap", frame_gap(v->at.terminal ? FRAME_PTY : (enum frame_stream)stream, from, to));
}

static void on_end(void *arg, const struct sg_wire_process *p, const struct sg_error *e)
{
    struct events *v = arg;
    struct sg_error own;
    if (e)
        own = *e;
    if (!v->out) {
        reader_close(v->reader);
        v->reader = NULL;
        if (e && act_retry(&v->act, &own))
            return;
        if (e) {
            sg_timer_stop(v->tick);
            v->act.fail(&v->act, &own);
            return;
        }
        if (!send_head(v))
            return;
    }
    if (e)
        end_with_error(v, &own);
    else
        end_with_exit(v, p);
}

static void events_go(struct act *a)
{
    static const struct follower_events events = {on_hello, on_data, on_gap, on_end};
    struct events *v = (struct events *)a;
    struct sg_error e;
    struct follow_spec spec = {.session = act_session(a),
                               .id = a->ex->params[1],
                               .offset = {v->asked[0], v->asked[1]},
                               .only = -1,
                               .attend = true};
    v->reader = reader_open(a->gw->relay, &spec, &events, v, &e);
    if (!v->reader) {
        events_fail(a, &e);
        return;
    }
    ex_on_gone(a->ex, on_client_gone, v);
    sg_timer_start(v->tick, HEAD_MS);
    v->audience.ending = on_ending;
    audience_leave(&v->audience); /* of another session, before */
    audience_enter(a->gw->relay, a->sandbox, a->session_id, &v->audience);
}

/* ---- the question ---- */

static enum sg_code parse_offsets(struct exchange *ex, struct events_at *at, struct sg_error *e)
{
    static const char *const allowed[] = {"stdout", "stderr", "pty", "session", NULL};
    int64_t offset[2] = {0, 0};
    const char *id = ex_header(ex, "Last-Event-ID");
    enum sg_code rc = ex_query_only(ex, allowed, e);
    bool terminal = ex_query(ex, "pty", NULL) != NULL;
    if (!rc && terminal && (ex_query(ex, "stdout", NULL) || ex_query(ex, "stderr", NULL)))
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, "?pty",
                           "a terminal is one stream: not with stdout or stderr");
    if (!rc)
        rc = ex_query_int(ex, terminal ? "pty" : "stdout", 0, OFFSET_MAX, &offset[0], e);
    if (!rc)
        rc = ex_query_int(ex, "stderr", 0, OFFSET_MAX, &offset[1], e);
    if (rc)
        return rc;
    *at = (struct events_at){.offset = {(uint64_t)offset[0], (uint64_t)offset[1]}, .terminal = terminal};
    /* A browser that connects again sends the URL of the beginning, and where it is in this header. */
    if (id && *id && !events_parse_id(id, at))
        return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT, "Last-Event-ID is not one of this resource");
    return SG_OK;
}

static enum sg_code parse(struct exchange *ex, struct events_at *at, enum events_format *format,
                          struct sg_error *e)
{
    enum sg_code rc = parse_offsets(ex, at, e);
    if (!rc && !events_accept(ex_header(ex, "Accept"), format))
        rc = sg_fail(e, SG_E_NOT_ACCEPTABLE, SG_NOT_SENT,
                     "there is text/event-stream, and application/x-ndjson");
    if (!rc)
        rc = process_id(ex, e);
    if (!rc && ex->gw->draining)
        rc = sg_fail(e, SG_E_DRAINING, SG_NOT_SENT, "the gateway is shutting down");
    return rc;
}

void route_process_events(struct exchange *ex)
{
    struct sg_error e;
    struct events_at at;
    enum events_format format;
    if (parse(ex, &at, &format, &e)) {
        ex_fail(ex, &e);
        return;
    }
    if (at.over) { /* tells a browser not to come again */
        ex_answer_empty(ex, 204);
        return;
    }
    struct events *v = act_new(ex, sizeof *v, events_go, events_fail);
    if (!v)
        return;
    v->format = format;
    v->at = at;
    v->asked[0] = at.offset[0];
    v->asked[1] = at.offset[1];
    sg_buf_init(&v->record, RECORD_MAX);
    v->tick = sg_timer_new(ex->gw->loop, on_tick, v);
    v->slow = sg_timer_new(ex->gw->loop, on_slow, v);
    if (v->tick && v->slow) {
        ended_events(&v->act, format, v->asked);
        act_begin(&v->act);
        return;
    }
    (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
    events_fail(&v->act, &e);
}
