/* GET …/processes/{id}/events: what an attached WebSocket is told, over plain HTTP (relay/events.h). */
#include "routes/handlers.h"

#include "relay/feed.h"
#include "relay/frames.h"
#include "routes/act.h"
#include "routes/ended.h"
#include "routes/event_stream.h"
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
    uint64_t asked[2];
    struct events_at at; /* after what was written */
    struct reader *reader;
    struct event_stream stream;
};

/* Takes everything down but the exchange's answer. */
static void events_free(void *arg)
{
    struct events *v = arg;
    event_stream_free(&v->stream);
    if (v->reader)
        reader_close(v->reader);
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

/* ---- writing: what returns false has taken v down ---- */

/* Takes json over. */
static bool write_json(struct events *v, const char *type, json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    bool made = text && events_record(&v->stream.record, v->stream.format, &v->at, type, text);
    free(text);
    return event_stream_write(&v->stream, made);
}

static bool send_head(struct events *v)
{
    if (!v->stream.out)
        act_settled(&v->act);
    return event_stream_begin(&v->stream, v->act.ex, v->act.session_id);
}

static void on_late(void *arg)
{
    (void)send_head(arg);
}

static void on_drain(void *arg)
{
    struct events *v = arg;
    if (v->reader)
        reader_resume(v->reader);
}

static bool on_ending(void *arg, int64_t deadline_ms, const char *reason)
{
    return write_json(arg, "session_ending", frame_session_ending(deadline_ms, reason));
}

/* ---- the last record ---- */

static void end_with_error(struct events *v, const struct sg_error *e)
{
    if (write_json(v, "error", frame_error(e)))
        event_stream_end(&v->stream);
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
        event_stream_end(&v->stream);
}

static void on_shutdown(void *arg, const struct sg_error *e)
{
    end_with_error(arg, e);
}

static const struct event_stream_owner owner = {events_free, on_drain, on_shutdown, on_late, on_ending};

/* ---- the process's side ---- */

static void on_hello(void *arg, const struct sg_wire_process *p)
{
    struct events *v = arg;
    struct frame_hello h = {.sandbox = v->act.sandbox, .session_id = v->act.session_id, .p = p};
    for (int s = 0; s < 2; s++)
        h.next[s] = v->asked[s] > p->oldest[s] ? v->asked[s] : p->oldest[s];
    v->at.terminal = p->terminal;
    if (send_head(v) && write_json(v, "hello", frame_hello(&h)))
        (void)event_stream_greeted(&v->stream);
}

static bool on_data(void *arg, int stream, uint64_t offset, const void *data, size_t len)
{
    struct events *v = arg;
    const char *p = data;
    while (len) {
        size_t n = len < PIECE_MAX ? len : PIECE_MAX;
        v->at.offset[stream] = offset + n;
        bool made = events_data(&v->stream.record, v->stream.format, &v->at, stream, offset, p, n);
        if (!event_stream_write(&v->stream, made))
            return false;
        p += n;
        offset += n;
        len -= n;
    }
    return !event_stream_full(&v->stream);
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
    if (!v->stream.out) {
        reader_close(v->reader);
        v->reader = NULL;
        if (e && act_retry(&v->act, &own))
            return;
        if (e) {
            event_stream_patience(&v->stream, 0);
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
    event_stream_patience(&v->stream, HEAD_MS);
    event_stream_attend(&v->stream, a->gw->relay, a->sandbox, a->session_id);
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
    v->stream.format = format;
    v->at = at;
    v->asked[0] = at.offset[0];
    v->asked[1] = at.offset[1];
    if (event_stream_init(&v->stream, ex->gw->loop, relay_limits(ex->gw->relay), RECORD_MAX, &owner, v)) {
        ended_events(&v->act, format, v->asked);
        act_begin(&v->act);
        return;
    }
    (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
    events_fail(&v->act, &e);
}
