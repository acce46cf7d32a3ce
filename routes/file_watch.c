/* GET …/files/watch: what happens below a directory, as records over plain HTTP (relay/events.h).  A recorded helper in
 * the sandbox watches and prints a line for each change, so everything of reading a process's output serves it: exact
 * offsets, going on after a cut and at another gateway, one stream for all readers of a watch. */
#include "routes/handlers.h"

#include "base/buf.h"
#include "base/clock.h"
#include "relay/audience.h"
#include "relay/feed.h"
#include "relay/frames.h"
#include "routes/files.h"
#include "routes/watch_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RECORD_MAX = 128 * 1024,
    FORCE_MS = 24000, /* for the watch to be in force: no answer is silent for longer than 25 s */
};

struct file_watch {
    struct act act;
    struct fs_request request;
    enum events_format format;
    bool resumed;
    struct watch_cursor at; /* after what was written */
    struct reader *reader;
    struct ex_stream *out; /* once the watch is in force */
    struct sg_timer *tick; /* before that: until it has to be; then: looks for silence */
    struct sg_timer *slow; /* runs while the client takes nothing */
    bool paused;
    bool synced;    /* the next byte is the first of a line */
    bool told_lost; /* not synced: and that something was lost has been told */
    int64_t wrote_ms;
    struct audience_seat audience;
    int64_t ending_ms; /* of the session; 0: not told */
    const char *ending;
    bool greeted;
    uint64_t pos; /* of the next byte */
    size_t have;  /* of a line that is not whole */
    char line[SG_WIRE_LINE_MAX];
    struct sg_buf record;
};

static const struct relay_limits *limits(const struct file_watch *v)
{
    return relay_limits(v->act.gw->relay);
}

/* Takes everything down but the exchange's answer. */
static void watch_free(struct file_watch *v)
{
    audience_leave(&v->audience);
    if (v->reader)
        reader_close(v->reader);
    sg_timer_free(v->tick);
    sg_timer_free(v->slow);
    sg_buf_free(&v->record);
    fs_request_free(&v->request);
    act_free(&v->act);
}

static void watch_fail(struct act *a, const struct sg_error *e)
{
    struct file_watch *v = (struct file_watch *)a;
    if (act_settled(a))
        ex_fail(a->ex, e);
    watch_free(v);
}

static void on_client_gone(void *arg)
{
    struct file_watch *v = arg;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_BAD_REQUEST, SG_FINISHED, "the client left");
    watch_fail(&v->act, &e);
}

/* ---- writing; what returns false has taken v down ---- */

/* Out of memory, or a client that reads nothing: it sees that the answer is not whole. */
static void cut(struct file_watch *v)
{
    ex_stream_abort(v->out);
    watch_free(v);
}

static void on_slow(void *arg)
{
    cut(arg);
}

static void on_stream_drain(void *arg)
{
    struct file_watch *v = arg;
    v->paused = false;
    sg_timer_stop(v->slow);
    if (v->reader)
        reader_resume(v->reader);
}

static void on_stream_gone(void *arg)
{
    watch_free(arg);
}

/* Sends v->record, if `made`. */
static bool write_record(struct file_watch *v, bool made)
{
    bool ok = made && ex_stream_write(v->out, v->record.data, v->record.len);
    v->wrote_ms = sg_mono_ms();
    if (v->record.cap > RECORD_MAX / 8)
        sg_buf_free(&v->record); /* a quiet client holds no buffer */
    else
        sg_buf_reset(&v->record);
    if (!ok)
        cut(v);
    return ok;
}

static void finish(struct file_watch *v)
{
    ex_stream_end(v->out);
    watch_free(v);
}

static void end_with_error(struct file_watch *v, const struct sg_error *e)
{
    char cursor[WATCH_CURSOR_MAX];
    json_t *json = frame_error(e);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    watch_cursor_format(&v->at, cursor);
    bool made = text && events_record_id(&v->record, v->format, cursor, "error", text);
    free(text);
    if (write_record(v, made))
        finish(v);
}

static void end_with(struct file_watch *v, const char *reason)
{
    v->at.over = true;
    if (write_record(v, watch_put(&v->record, v->format, &v->at, "end", "reason", reason, NULL)))
        finish(v);
}

static void end_gone(struct file_watch *v)
{
    struct sg_error e;
    (void)sg_fail(&e, SG_E_WATCH_GONE, SG_STARTED, "what watched in the sandbox has been ended");
    end_with_error(v, &e);
}

static void on_shutdown(void *arg)
{
    struct file_watch *v = arg;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_DRAINING, SG_STARTED, "the gateway is shutting down");
    end_with_error(v, &e);
}

static bool tell_ending(struct file_watch *v)
{
    char when[SG_TIME_TEXT];
    sg_time_format(v->ending_ms, when);
    return write_record(v, watch_put(&v->record, v->format, &v->at, "session_ending", "deadline", when,
                                     "reason", v->ending, NULL));
}

/* The session is about to end.  The hello comes first. */
static void on_ending(struct audience_seat *seat, int64_t deadline_ms, const char *reason)
{
    struct file_watch *v = (struct file_watch *)((char *)seat - offsetof(struct file_watch, audience));
    v->ending_ms = deadline_ms;
    v->ending = reason;
    if (v->greeted)
        (void)tell_ending(v);
}

/* The watch is in force. */
static bool send_head(struct file_watch *v)
{
    struct exchange *ex = v->act.ex;
    act_settled(&v->act);
    ex_set_header(ex, "X-Session-Id", v->act.session_id);
    ex_set_header(ex, "Cache-Control", "no-store, no-transform");
    v->out = ex_stream_begin(ex, 200, events_type(v->format), -1, on_stream_drain, on_stream_gone, v);
    if (!v->out) {
        watch_free(v);
        return false;
    }
    ex_stream_on_shutdown(v->out, on_shutdown);
    sg_timer_start(v->tick, (uint64_t)limits(v)->keepalive_ms / 2);
    v->audience.ending = on_ending;
    audience_enter(v->act.gw->relay, v->act.sandbox, v->act.session_id, &v->audience);
    if (!write_record(v, watch_put(&v->record, v->format, &v->at, "hello", "sandbox", v->act.sandbox,
                                   "session_id", v->act.session_id, NULL)))
        return false;
    v->greeted = true;
    return !v->ending_ms || tell_ending(v);
}

/* Twice in the time within which something has to be said. */
static void on_tick(void *arg)
{
    struct file_watch *v = arg;
    struct sg_error e;
    if (!v->out) {
        (void)sg_fail(&e, SG_E_UPSTREAM_TIMEOUT, SG_OUTCOME_UNKNOWN,
                      "the directory is not watched yet; nothing was changed: ask again");
        watch_fail(&v->act, &e);
        return;
    }
    int64_t half = limits(v)->keepalive_ms / 2;
    sg_timer_start(v->tick, (uint64_t)half);
    if (!v->paused && sg_mono_ms() - v->wrote_ms >= half / 2)
        (void)write_record(v, events_keepalive(&v->record, v->format));
}

/* ---- the helper's lines ---- */

/* Something was lost; what is in v->line is the rest of a line. */
static bool tell_lost(struct file_watch *v)
{
    const struct sg_wire_line lost = {.kind = SG_WIRE_CHANGE, .change = SG_CH_OVERFLOW};
    v->told_lost = true;
    return write_record(v, watch_put_change(&v->record, v->format, &v->at, &lost));
}

/* The helper's last word. */
static bool take_error(struct file_watch *v, const struct sg_wire_line *l)
{
    struct sg_error e;
    const char *reason = l->fail == SG_WF_NO_WATCH ? watch_end_reason(l->text) : NULL;
    (void)guest_error(l, &e);
    if (!v->out)
        watch_fail(&v->act, &e);
    else if (reason)
        end_with(v, reason);
    else
        end_with_error(v, &e);
    return false;
}

static bool take_nonsense(struct file_watch *v)
{
    struct sg_error e;
    if (v->out &&
        !v->synced) /* the rest of a line whose beginning is gone, or a cursor that was never given out */
        return v->told_lost || tell_lost(v);
    (void)sg_fail(&e, SG_E_UPSTREAM_BAD_RESPONSE, SG_STARTED,
                  "what watches in the sandbox says something that is not its protocol");
    if (v->out)
        end_with_error(v, &e);
    else
        watch_fail(&v->act, &e);
    return false;
}

/* One line, which ends before v->pos. */
static bool take_line(struct file_watch *v, const char *text, size_t len)
{
    unsigned char scratch[SG_WIRE_DATA_MAX];
    struct sg_wire_line l;
    bool begun = v->out != NULL;
    v->at.offset = v->pos;
    bool ok = sg_wire_parse(text, len, scratch, &l);
    if (ok && l.kind == SG_WIRE_OK)
        ok = begun || send_head(v);
    else if (ok && l.kind == SG_WIRE_ERROR)
        ok = take_error(v, &l);
    else if (ok && l.kind == SG_WIRE_CHANGE && begun)
        ok = write_record(v, watch_put_change(&v->record, v->format, &v->at, &l));
    else
        ok = take_nonsense(v);
    if (ok) {
        v->synced = true;
        v->told_lost = false;
    }
    return ok;
}

/* Bytes that end with a line or lie within one. */
static bool take_part(struct file_watch *v, const char *data, size_t len, bool whole)
{
    if (len > sizeof v->line - v->have) { /* longer than any line */
        v->have = 0;
        return take_nonsense(v);
    }
    if (whole && !v->have)
        return take_line(v, data, len - 1);
    memcpy(v->line + v->have, data, len);
    v->have += len;
    if (!whole)
        return true;
    len = v->have - 1;
    v->have = 0;
    return take_line(v, v->line, len);
}

/* ---- the reader's side ---- */

static void on_hello(void *arg, const struct sg_wire_process *p)
{
    struct file_watch *v = arg;
    struct sg_error e;
    if (!v->resumed)
        return; /* its first line says that the watch is in force */
    if (p->state == SG_PS_STARTING || p->state == SG_PS_RUNNING) {
        (void)send_head(v);
        return;
    }
    (void)sg_fail(&e, SG_E_WATCH_GONE, SG_FINISHED, "the watch of this cursor has ended");
    watch_fail(&v->act, &e);
}

static bool on_data(void *arg, int stream, uint64_t offset, const void *data, size_t len)
{
    struct file_watch *v = arg;
    const char *p = data;
    if (stream != 0)
        return true;
    v->pos = offset;
    while (len) {
        const char *lf = memchr(p, '\n', len);
        size_t n = lf ? (size_t)(lf - p) + 1 : len;
        v->pos += n;
        if (!take_part(v, p, n, lf != NULL))
            return false;
        p += n;
        len -= n;
    }
    if (!v->out || ex_stream_queued(v->out) < EX_STREAM_HIGH)
        return true;
    v->paused = true;
    sg_timer_start(v->slow, (uint64_t)limits(v)->slow_reader_ms);
    return false;
}

static void on_gap(void *arg, int stream, uint64_t from, uint64_t to)
{
    struct file_watch *v = arg;
    (void)from;
    if (stream != 0)
        return;
    v->have = 0;
    v->at.offset = to;
    v->synced = false;
    if (v->out)
        (void)tell_lost(v);
}

static bool session_is_over(enum sg_code code)
{
    return code == SG_E_STALE_SESSION || code == SG_E_SANDBOX_NOT_RUNNING ||
           code == SG_E_SANDBOX_TRANSITION || code == SG_E_SANDBOX_NOT_FOUND ||
           code == SG_E_UPSTREAM_NOT_FOUND;
}

/* It never came into force. */
static void end_early(struct file_watch *v, struct sg_error *e)
{
    reader_close(v->reader);
    v->reader = NULL;
    if (act_retry(&v->act, e))
        return;
    sg_timer_stop(v->tick);
    if (v->resumed && e->code == SG_E_PROCESS_NOT_FOUND)
        (void)sg_fail(e, SG_E_WATCH_GONE, SG_FINISHED, "the watch of this cursor has ended");
    v->act.fail(&v->act, e);
}

static void on_end(void *arg, const struct sg_wire_process *p, const struct sg_error *e)
{
    struct file_watch *v = arg;
    struct sg_error own;
    (void)p; /* however it ended: its last word would have said that it was right */
    if (e)
        own = *e;
    else
        (void)sg_fail(&own, SG_E_WATCH_GONE, SG_FINISHED, "what watched in the sandbox has ended");
    if (!v->out)
        end_early(v, &own);
    else if (!e || own.code == SG_E_PROCESS_NOT_FOUND)
        end_gone(v);
    else if (session_is_over(own.code))
        end_with(v, "session_ended");
    else
        end_with_error(v, &own);
}

static void watch_go(struct act *a)
{
    static const struct follower_events events = {on_hello, on_data, on_gap, on_end};
    struct file_watch *v = (struct file_watch *)a;
    struct sg_error e;
    const struct process_spec start = {.session = act_session(a),
                                       .id = v->at.id,
                                       .argv = (const char *const *)v->request.args,
                                       .sudo = v->request.sudo,
                                       .retain_bytes = a->gw->watch_retain_bytes,
                                       .unattended_ms = a->gw->watch_grace_ms,
                                       .own = true};
    const struct follow_spec spec = {.session = act_session(a),
                                     .id = v->at.id,
                                     .offset = {v->at.offset, 0},
                                     .only = -1,
                                     .attend = true,
                                     .start = v->resumed ? NULL : &start};
    v->reader = reader_open(a->gw->relay, &spec, &events, v, &e);
    if (!v->reader) {
        watch_fail(a, &e);
        return;
    }
    ex_on_gone(a->ex, on_client_gone, v);
    sg_timer_start(v->tick, FORCE_MS);
}

/* ---- the question ---- */

static const struct files_op op = {
    .op = "watch",
    .fields = {{"path", "--path", FILES_PATH, .needed = true},
               {"recursive", "--recursive", FILES_FLAG},
               {"cursor", NULL, FILES_WORD}},
    .reads = true,
};

static enum sg_code parse_cursor(struct exchange *ex, struct file_watch *v, struct sg_error *e)
{
    /* A browser that connects again sends the URL of the beginning, and where it is in this header. */
    const char *text = ex_header(ex, "Last-Event-ID");
    size_t len = text ? strlen(text) : 0;
    bool header = len > 0;
    if (!header)
        text = ex_query(ex, "cursor", &len);
    v->resumed = text != NULL;
    if (!v->resumed)
        return watch_id_make(v->at.id, &v->request)
                   ? SG_OK
                   : sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "no randomness for an id");
    if (watch_cursor_parse(text, len, &v->at) && watch_id_fits(v->at.id, &v->request))
        return SG_OK;
    if (header)
        return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT, "Last-Event-ID is not one of this watch");
    return sg_fail_field(e, SG_E_INVALID_FIELD, "?cursor", "is not one of this watch");
}

static enum sg_code parse(struct exchange *ex, struct file_watch *v, struct sg_error *e)
{
    bool resume = false;
    enum sg_code rc = files_parse(ex, &op, &v->request, &resume, e);
    if (rc)
        return rc;
    files_confine(ex, &v->request);
    if (v->request.failed)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
    rc = parse_cursor(ex, v, e);
    if (!rc && !events_accept(ex_header(ex, "Accept"), &v->format))
        rc = sg_fail(e, SG_E_NOT_ACCEPTABLE, SG_NOT_SENT,
                     "there is text/event-stream, and application/x-ndjson");
    if (!rc && ex->gw->draining)
        rc = sg_fail(e, SG_E_DRAINING, SG_NOT_SENT, "the gateway is shutting down");
    return rc;
}

void route_file_watch(struct exchange *ex)
{
    struct sg_error e;
    struct file_watch *v = act_new(ex, sizeof *v, watch_go, watch_fail);
    if (!v)
        return;
    sg_buf_init(&v->record, RECORD_MAX);
    if (parse(ex, v, &e)) {
        watch_fail(&v->act, &e);
        return;
    }
    if (v->at.over) { /* tells a browser not to come again */
        if (act_settled(&v->act))
            ex_answer_empty(ex, 204);
        watch_free(v);
        return;
    }
    v->pos = v->at.offset;
    v->tick = sg_timer_new(ex->gw->loop, on_tick, v);
    v->slow = sg_timer_new(ex->gw->loop, on_slow, v);
    if (v->tick && v->slow) {
        act_begin(&v->act);
        return;
    }
    (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
    watch_fail(&v->act, &e);
}
