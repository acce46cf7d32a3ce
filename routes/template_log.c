/* GET /v1/templates/{name}/log: what the steps of its last preparation said, as bytes from an offset or as records
 * (relay/events.h) while it goes on.  Whichever gateway prepares, the store has it; so it is looked at again and again. */
#include "routes/handlers.h"

#include "base/buf.h"
#include "base/clock.h"
#include "relay/events.h"
#include "relay/frames.h"
#include "routes/gateway.h"
#include "routes/spec.h"
#include "store/store.h"
#include "store/templates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOK_MS = 250,
    LIMIT_DEFAULT = 64 * 1024,
    PIECE_MAX = 48 * 1024, /* in one record */
    RECORD_MAX = 96 * 1024,
};

struct view {
    struct exchange *ex; /* NULL once it is answered, or left */
    struct gateway *gw;
    char name[TEMPLATE_NAME_TEXT];
    bool records;
    enum events_format format;
    int64_t wait_until; /* monotonic */
    struct store_work work;
    bool looking, dead; /* dead: freed when the store has answered */
    struct store_prep_read read;
    struct sg_buf bytes, record;
    bool found; /* the template */
    struct ex_stream *out;
    char attempt[TEMPLATE_ATTEMPT_TEXT]; /* whose log is being told */
    int64_t wrote_ms, slow_since;        /* slow_since 0: the client takes what comes */
    struct sg_timer *timer;
};

static void view_free(struct view *v)
{
    sg_timer_stop(v->timer);
    v->dead = true;
    if (v->looking)
        return;
    sg_timer_free(v->timer);
    sg_buf_free(&v->bytes);
    sg_buf_free(&v->record);
    free(v);
}

static void fail(struct view *v, const struct sg_error *e)
{
    struct exchange *ex = v->ex;
    ex_on_gone(ex, NULL, NULL);
    view_free(v);
    ex_fail(ex, e);
}

/* ---- looking ---- */

static enum sg_code look_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct view *v = arg;
    struct store_template t;
    enum sg_code rc = store_template_get(db, v->gw->upstream, v->name, &t, &v->found, e);
    if (!rc && v->found) {
        v->read.fingerprint = t.fingerprint;
        rc = store_prep_read(db, v->gw->upstream, &v->read, e);
        v->read.fingerprint = NULL;
    }
    store_template_clear(&t);
    return rc;
}

static void look(struct view *v)
{
    struct sg_error e;
    v->looking = store_submit(v->gw->store, &v->work);
    if (v->looking)
        return;
    (void)sg_fail(&e, SG_E_OVERLOADED, SG_NOT_SENT, "too much waits for the store");
    if (!v->out) {
        fail(v, &e);
        return;
    }
    ex_stream_abort(v->out);
    view_free(v);
}

static void on_timer(void *arg)
{
    look(arg);
}

static bool is_running(const struct view *v)
{
    return v->read.found && v->read.prep.state == PREP_RUNNING;
}

static const char *state_name(const struct view *v)
{
    if (!v->read.found)
        return "unprepared";
    return is_running(v) ? "preparing" : v->read.prep.state == PREP_READY ? "ready" : "failed";
}

/* ---- as bytes ---- */

static void on_nothing(void *arg)
{
    (void)arg;
}

static void set_number(struct exchange *ex, const char *header, int64_t n)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%lld", (long long)n);
    ex_set_header(ex, header, text);
}

/* All of it is in memory: the stream is handed its bytes and let go. */
static void answer_bytes(struct view *v)
{
    struct exchange *ex = v->ex;
    size_t len = v->bytes.len;
    ex_on_gone(ex, NULL, NULL);
    set_number(ex, "X-Offset-Next", v->read.from + (int64_t)len);
    set_number(ex, "X-Offset-End", v->read.found ? v->read.prep.log_end : 0);
    ex_set_header(ex, "X-Template-State", state_name(v));
    ex_set_header(ex, "Cache-Control", "no-store, no-transform");
    struct ex_stream *out =
        ex_stream_begin(ex, 200, "text/plain; charset=utf-8", (int64_t)len, on_nothing, on_nothing, NULL);
    if (out && (!len || ex_stream_write(out, v->bytes.data, len)))
        ex_stream_end(out);
    else if (out)
        ex_stream_abort(out);
    view_free(v);
}

/* ---- as records ---- */

/* False: the stream was cut, v is gone. */
static bool write_record(struct view *v, bool made)
{
    bool ok = made && ex_stream_write(v->out, v->record.data, v->record.len);
    v->wrote_ms = sg_mono_ms();
    sg_buf_reset(&v->record);
    if (ok)
        return true;
    ex_stream_abort(v->out);
    view_free(v);
    return false;
}

static void end_with(struct view *v, const char *type, json_t *json)
{
    const struct events_at at = {.offset = {(uint64_t)v->read.offset, 0}, .over = !strcmp(type, "end")};
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    bool made = text && events_record(&v->record, v->format, &at, type, text);
    json_decref(json);
    free(text);
    if (!write_record(v, made))
        return;
    ex_stream_end(v->out);
    view_free(v);
}

static void on_drain(void *arg)
{
    struct view *v = arg;
    v->slow_since = 0;
}

static void on_stream_gone(void *arg)
{
    struct view *v = arg;
    v->out = NULL;
    view_free(v);
}

static void on_shutdown(void *arg)
{
    struct view *v = arg;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_DRAINING, SG_STARTED, "the gateway is shutting down");
    end_with(v, "error", frame_error(&e));
}

/* False: v is gone. */
static bool begin_stream(struct view *v)
{
    if (v->out)
        return true;
    struct exchange *ex = v->ex;
    ex_on_gone(ex, NULL, NULL);
    ex_set_header(ex, "Cache-Control", "no-store, no-transform");
    v->ex = NULL;
    v->out = ex_stream_begin(ex, 200, events_type(v->format), -1, on_drain, on_stream_gone, v);
    if (!v->out) {
        view_free(v);
        return false;
    }
    ex_stream_on_shutdown(v->out, on_shutdown);
    v->wrote_ms = sg_mono_ms();
    return true;
}

static bool write_bytes(struct view *v)
{
    int64_t from = v->read.from;
    for (size_t at = 0; at < v->bytes.len;) {
        size_t len = v->bytes.len - at < PIECE_MAX ? v->bytes.len - at : PIECE_MAX;
        const struct events_at after = {.offset = {(uint64_t)from + at + len, 0}};
        bool made =
            events_data(&v->record, v->format, &after, 0, (uint64_t)from + at, v->bytes.data + at, len);
        if (!write_record(v, made))
            return false;
        at += len;
    }
    v->read.offset = from + (int64_t)v->bytes.len;
    return true;
}

/* Too slow for too long is cut. */
static bool keeps_up(struct view *v)
{
    int64_t now = sg_mono_ms();
    if (ex_stream_queued(v->out) < EX_STREAM_HIGH)
        v->slow_since = 0;
    else if (!v->slow_since)
        v->slow_since = now;
    if (!v->slow_since || now - v->slow_since < relay_limits(v->gw->relay)->slow_reader_ms)
        return true;
    ex_stream_abort(v->out);
    view_free(v);
    return false;
}

static void tell_records(struct view *v)
{
    if (!begin_stream(v))
        return;
    if (!*v->attempt && v->read.found)
        (void)snprintf(v->attempt, sizeof v->attempt, "%s", v->read.prep.attempt);
    bool same = v->read.found && !strcmp(v->attempt, v->read.prep.attempt);
    if (same && !write_bytes(v))
        return;
    bool all = !same || v->read.offset >= v->read.prep.log_end;
    if (all && !(same && is_running(v))) {
        end_with(v, "end", json_pack("{ssss}", "type", "end", "state", state_name(v)));
        return;
    }
    if (!keeps_up(v))
        return;
    if (sg_mono_ms() - v->wrote_ms >= relay_limits(v->gw->relay)->keepalive_ms / 2 &&
        !write_record(v, events_keepalive(&v->record, v->format)))
        return;
    sg_timer_start(v->timer, all || v->slow_since ? LOOK_MS : 1);
}

/* ---- both ---- */

static void on_looked(struct store_work *w)
{
    struct view *v = (struct view *)((char *)w - offsetof(struct view, work));
    struct sg_error e;
    v->looking = false;
    if (v->dead) {
        view_free(v);
        return;
    }
    if (w->code && v->out) {
        end_with(v, "error", frame_error(&w->error));
        return;
    }
    if (w->code) {
        e = w->error;
        fail(v, &e);
        return;
    }
    if (!v->found && !v->out) {
        (void)sg_fail(&e, SG_E_TEMPLATE_NOT_FOUND, SG_NOT_STARTED, "there is no template %s", v->name);
        fail(v, &e);
        return;
    }
    if (v->records)
        tell_records(v);
    else if (!v->bytes.len && is_running(v) && sg_mono_ms() < v->wait_until)
        sg_timer_start(v->timer, LOOK_MS);
    else
        answer_bytes(v);
}

static void on_gone(void *arg)
{
    struct view *v = arg;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_BAD_REQUEST, SG_FINISHED, "the client left");
    fail(v, &e);
}

/* What is asked for; text is what is told unless records are wanted. */
static enum sg_code ask(struct exchange *ex, struct view *v, struct sg_error *e)
{
    static const char *const allowed[] = {"offset", "limit", "wait_ms", NULL};
    int64_t wait_ms = 0;
    v->read.limit = LIMIT_DEFAULT;
    enum sg_code rc = ex_query_only(ex, allowed, e);
    if (!rc)
        rc = ex_query_int(ex, "offset", 0, INT64_MAX / 4, &v->read.offset, e);
    if (!rc)
        rc = ex_query_int(ex, "limit", 1, TEMPLATE_LOG_MAX, &v->read.limit, e);
    if (!rc)
        rc = ex_query_int(ex, "wait_ms", 0, SPEC_WAIT_MAX_MS, &wait_ms, e);
    if (!rc && strlen(ex->params[0]) >= sizeof v->name)
        rc = sg_fail(e, SG_E_TEMPLATE_NOT_FOUND, SG_NOT_SENT, "there is no template of this name");
    if (rc)
        return rc;
    (void)snprintf(v->name, sizeof v->name, "%s", ex->params[0]);
    v->wait_until = sg_mono_ms() + wait_ms;
    const char *accept = ex_header(ex, "Accept");
    v->records = accept && !strstr(accept, "text/plain") && !strstr(accept, "*/*") &&
                 events_accept(accept, &v->format);
    struct events_at at;
    const char *last = v->records ? ex_header(ex, "Last-Event-ID") : NULL;
    if (last && events_parse_id(last, &at) && at.offset[0] <= INT64_MAX / 4)
        v->read.offset = (int64_t)at.offset[0];
    return SG_OK;
}

void route_template_log(struct exchange *ex)
{
    struct sg_error e;
    struct view *v = calloc(1, sizeof *v);
    if (!v) {
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
        ex_fail(ex, &e);
        return;
    }
    v->ex = ex;
    v->gw = ex->gw;
    sg_buf_init(&v->bytes, TEMPLATE_LOG_MAX);
    sg_buf_init(&v->record, RECORD_MAX);
    v->read.bytes = &v->bytes;
    v->timer = sg_timer_new(ex->gw->loop, on_timer, v);
    v->work = (struct store_work){.kind = STORE_READ, .fn = look_fn, .arg = v, .done = on_looked};
    if (!v->timer)
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
    if (!v->timer || ask(ex, v, &e)) {
        fail(v, &e);
        return;
    }
    ex_on_gone(ex, on_gone, v);
    look(v);
}
