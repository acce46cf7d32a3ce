/* GET …/files/watch: what happens below a directory, as records over plain HTTP (relay/events.h).  A recorded helper in
 * the sandbox watches and prints a line for each change, so everything of reading a process's output serves it: exact
 * offsets, going on after a cut and at another gateway, one stream for all readers of a watch. */
#include "routes/handlers.h"

#include "base/clock.h"
#include "relay/feed.h"
#include "relay/frames.h"
#include "routes/event_stream.h"
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
    bool resumed;
    struct watch_cursor at; /* after what was written */
    struct reader *reader;
    struct event_stream stream; /* its head: the watch is in force */
    bool synced;                /* the next byte is the first of a line */
    bool told_lost;             /* not synced: and that something was lost has been told */
    uint64_t pos;               /* of the next byte */
    size_t have;                /* of a line that is not whole */
    char line[SG_WIRE_LINE_MAX];
};

/* Takes everything down but the exchange's answer. */
static void watch_free(void *arg)
{
    struct file_watch *v = arg;
    event_stream_free(&v->stream);
    if (v->reader)
        reader_close(v->reader);
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

/* ---- writing: what returns false has taken v down ---- */

static bool write_record(struct file_watch *v, bool made)
{
    return event_stream_write(&v->stream, made);
}

static void on_drain(void *arg)
{
    struct file_watch *v = arg;
    if (v->reader)
        reader_resume(v->reader);
}

static void end_with_error(struct file_watch *v, const struct sg_error *e)
{
    char cursor[WATCH_CURSOR_MAX];
    json_t *json = frame_error(e);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    watch_cursor_format(&v->at, cursor);
    bool made = text && events_record_id(&v->stream.record, v->stream.format, cursor, "error", text);
    free(text);
    if (write_record(v, made))
        event_stream_end(&v->stream);
}

static void end_with(struct file_watch *v, const char *reason)
{
    v->at.over = true;
    if (write_record(v,
                     watch_put(&v->stream.record, v->stream.format, &v->at, "end", "reason", reason, NULL)))
        event_stream_end(&v->stream);
}

static void end_gone(struct file_watch *v)
{
    struct sg_error e;
    (void)sg_fail(&e, SG_E_WATCH_GONE, SG_STARTED, "what watched in the sandbox has been ended");
    end_with_error(v, &e);
}

static void on_shutdown(void *arg, const struct sg_error *e)
{
    end_with_error(arg, e);
}

static bool on_ending(void *arg, int64_t deadline_ms, const char *reason)
{
    struct file_watch *v = arg;
    char when[SG_TIME_TEXT];
    sg_time_format(deadline_ms, when);
    return write_record(v, watch_put(&v->stream.record, v->stream.format, &v->at, "session_ending",
                                     "deadline", when, "reason", reason, NULL));
}

/* The watch is in force. */
static bool send_head(struct file_watch *v)
{
    struct event_stream *s = &v->stream;
    act_settled(&v->act);
    if (!event_stream_begin(s, v->act.ex, v->act.session_id))
        return false;
    event_stream_attend(s, v->act.gw->relay, v->act.sandbox, v->act.session_id);
    return write_record(v, watch_put(&s->record, s->format, &v->at, "hello", "sandbox", v->act.sandbox,
                                     "session_id", v->act.session_id, NULL)) &&
           event_stream_greeted(s);
}

static void on_late(void *arg)
{
    struct file_watch *v = arg;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_UPSTREAM_TIMEOUT, SG_OUTCOME_UNKNOWN,
                  "the directory is not watched yet; nothing was changed: ask again");
    watch_fail(&v->act, &e);
}

static const struct event_stream_owner owner = {watch_free, on_drain, on_shutdown, on_late, on_ending};

/* ---- the helper's lines ---- */

/* Something was lost; what is in v->line is the rest of a line. */
static bool tell_lost(struct file_watch *v)
{
    const struct sg_wire_line lost = {.kind = SG_WIRE_CHANGE, .change = SG_CH_OVERFLOW};
    v->told_lost = true;
    return write_record(v, watch_put_change(&v->stream.record, v->stream.format, &v->at, &lost));
}

/* The helper's last word. */
static bool take_error(struct file_watch *v, const struct sg_wire_line *l)
{
    struct sg_error e;
    const char *reason = l->fail == SG_WF_NO_WATCH ? watch_end_reason(l->text) : NULL;
    (void)guest_error(l, &e);
    if (!v->stream.out)
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
    if (v->stream.out &&
        !v->synced) /* the rest of a line whose beginning is gone, or a cursor that was never given out */
        return v->told_lost || tell_lost(v);
    (void)sg_fail(&e, SG_E_UPSTREAM_BAD_RESPONSE, SG_STARTED,
                  "what watches in the sandbox says something that is not its protocol");
    if (v->stream.out)
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
    bool begun = v->stream.out != NULL;
    v->at.offset = v->pos;
    bool ok = sg_wire_parse(text, len, scratch, &l);
    if (ok && l.kind == SG_WIRE_OK)
        ok = begun || send_head(v);
    else if (ok && l.kind == SG_WIRE_ERROR)
        ok = take_error(v, &l);
    else if (ok && l.kind == SG_WIRE_CHANGE && begun)
        ok = write_record(v, watch_put_change(&v->stream.record, v->stream.format, &v->at, &l));
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
    return !v->stream.out || !event_stream_full(&v->stream);
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
    if (v->stream.out)
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
    event_stream_patience(&v->stream, 0);
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
    if (!v->stream.out)
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
    event_stream_patience(&v->stream, FORCE_MS);
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
    if (!rc && !events_accept(ex_header(ex, "Accept"), &v->stream.format))
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
    if (event_stream_init(&v->stream, ex->gw->loop, relay_limits(ex->gw->relay), RECORD_MAX, &owner, v)) {
        act_begin(&v->act);
        return;
    }
    (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
    watch_fail(&v->act, &e);
}
