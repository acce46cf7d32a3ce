#include "relay/attach_internal.h"

#include "base/core/b64.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIRECT = 16 * 1024 };

/* ---- sending ---- */

static void stop(struct attach *a)
{
    if (a->reader)
        reader_close(a->reader);
    a->reader = NULL;
    if (a->slow)
        sg_timer_stop(a->slow);
    if (a->keepalive)
        sg_timer_stop(a->keepalive);
    sg_buf_free(&a->frame);
    audience_leave(&a->audience);
    input_leave(a);
}

static bool send_message(struct attach *a, bool text, const void *head, size_t head_len, const void *body,
                         size_t body_len)
{
    if (a->closing || a->gone)
        return false;
    if (a->io.send(a->io_arg, text, head, head_len, body, body_len))
        return true;
    a->closing = true; /* attach_gone is on its way */
    stop(a);
    return false;
}

void attach_close(struct attach *a, int code, const char *reason)
{
    stop(a);
    if (a->closing || a->gone)
        return;
    a->closing = true;
    a->io.close(a->io_arg, code, reason);
}

bool attach_send(struct attach *a, json_t *frame)
{
    char *text = frame ? json_dumps(frame, JSON_COMPACT) : NULL;
    json_decref(frame);
    if (!text) {
        attach_close(a, CLOSE_FAILED, "out of memory");
        return false;
    }
    bool ok = send_message(a, true, text, strlen(text), NULL, 0);
    free(text);
    return ok;
}

static bool send_base64(struct attach *a, int stream, uint64_t offset, const char *data, size_t size)
{
    static const char tail[] = "\"}";
    char head[128];
    int n =
        snprintf(head, sizeof head, "{\"type\":\"data\",\"stream\":\"%s\",\"offset\":%" PRIu64 ",\"data\":\"",
                 frame_stream_name(frame_stream(&a->p, stream)), offset);
    size_t len = SG_B64_LEN(size);
    char *body = malloc(len + sizeof tail);
    if (!body) {
        attach_close(a, CLOSE_FAILED, "out of memory");
        return false;
    }
    len = sg_b64_encode(body, data, size);
    memcpy(body + len, tail, sizeof tail);
    bool ok = send_message(a, true, head, (size_t)n, body, len + sizeof tail - 1);
    free(body);
    return ok;
}

/* One frame. */
static bool send_output(struct attach *a, int stream, uint64_t offset, const char *data, size_t len)
{
    unsigned char head[FRAME_HEAD];
    if (a->format == ATTACH_JSON)
        return send_base64(a, stream, offset, data, len);
    frame_head(head, frame_stream(&a->p, stream), offset);
    return send_message(a, false, head, sizeof head, data, len);
}

bool attach_flush(struct attach *a)
{
    if (!a->frame.len)
        return !a->closing && !a->gone;
    bool ok = send_output(a, a->frame_stream, a->frame_offset, a->frame.data, a->frame.len);
    sg_buf_reset(&a->frame);
    return ok;
}

static void on_flush(struct sg_task *task)
{
    struct attach *a = (struct attach *)((char *)task - offsetof(struct attach, flush));
    a->posted = false;
    if (a->dead) {
        free(a);
        return;
    }
    (void)attach_flush(a);
    sg_buf_free(&a->frame); /* a quiet client holds no buffer */
}

/* ---- the process's side ---- */

static const char *carrier_name(const struct attach *a)
{
    static const char *const names[] = {NULL, "command", "interactive"};
    return a->writer ? names[writer_carrier(a->writer)] : NULL;
}

static bool greet(struct attach *a)
{
    uint64_t accepted;
    struct frame_hello h = {.sandbox = a->sandbox,
                            .session_id = a->session.session_id,
                            .p = &a->p,
                            .mode = a->writer ? "write" : "watch",
                            .carrier = carrier_name(a),
                            .accepted = a->p.input};
    for (int s = 0; s < 2; s++)
        h.next[s] = a->asked[s] > a->p.oldest[s] ? a->asked[s] : a->p.oldest[s];
    if (a->writer && writer_position(a->writer, &accepted) && accepted > h.accepted)
        h.accepted = accepted;
    h.certain = a->fresh || h.carrier;
    crowd_count(&a->seat, &h.writers, &h.watchers);
    a->told_writers = h.writers;
    a->told_watchers = h.watchers;
    return attach_send(a, frame_hello(&h));
}

/* The session is about to end.  The hello comes first. */
static void on_ending(struct audience_seat *seat, int64_t deadline_ms, const char *reason)
{
    struct attach *a = (struct attach *)((char *)seat - offsetof(struct attach, audience));
    a->ending_ms = deadline_ms;
    a->ending = reason;
    if (a->greeted && attach_flush(a))
        (void)attach_send(a, frame_session_ending(deadline_ms, reason));
}

static void on_hello(void *arg, const struct sg_wire_process *p)
{
    struct attach *a = arg;
    struct sg_error e;
    a->p = *p;
    if (a->pty_asked && !p->terminal) {
        sg_fail_field(&e, SG_E_INVALID_FIELD, "?pty", "the process has no terminal");
        attach_fail(a, &e);
        return;
    }
    if (!input_greet(a, &e)) {
        attach_fail(a, &e);
        return;
    }
    bool ok = greet(a);
    a->greeted = true;
    for (size_t i = 0; i < a->nearly && ok; i++)
        ok = attach_send(a, frame_error(&a->early[i]));
    free(a->early);
    a->early = NULL;
    if (ok && a->ending_ms)
        ok = attach_send(a, frame_session_ending(a->ending_ms, a->ending));
    if (ok)
        input_greeted(a);
}

static bool add(struct attach *a, int stream, uint64_t offset, const char *data, size_t len)
{
    while (len) {
        bool joins = a->frame.len && a->frame_stream == stream && a->frame_offset + a->frame.len == offset;
        if ((!joins || a->frame.len == ATTACH_FRAME_MAX) && !attach_flush(a))
            return false;
        if (!a->frame.len) {
            a->frame_stream = stream;
            a->frame_offset = offset;
        }
        size_t room = ATTACH_FRAME_MAX - a->frame.len;
        size_t n = len < room ? len : room;
        if (!a->frame.len && n >= DIRECT) { /* worth a frame of its own, without a copy */
            if (!send_output(a, stream, offset, data, n))
                return false;
        } else if (!sg_buf_add(&a->frame, data, n)) {
            attach_close(a, CLOSE_FAILED, "out of memory");
            return false;
        }
        data += n;
        offset += n;
        len -= n;
    }
    return true;
}

static bool on_data(void *arg, int stream, uint64_t offset, const void *data, size_t len)
{
    struct attach *a = arg;
    if (!add(a, stream, offset, data, len))
        return false;
    a->at[stream] = offset + len;
    if (!a->posted && a->frame.data) {
        a->posted = true;
        sg_loop_post(a->loop, &a->flush);
    }
    if (a->io.queued(a->io_arg) <= ATTACH_QUEUE_HIGH)
        return true;
    a->paused = true;
    sg_timer_start(a->slow, (uint64_t)a->slow_ms);
    return false;
}

static void on_gap(void *arg, int stream, uint64_t from, uint64_t to)
{
    struct attach *a = arg;
    a->at[stream] = to;
    if (attach_flush(a))
        (void)attach_send(a, frame_gap(frame_stream(&a->p, stream), from, to));
}

void attach_fail(struct attach *a, const struct sg_error *e)
{
    int code = CLOSE_FAILED;
    const char *reason = "the error before says why";
    if (e->code == SG_E_DRAINING) {
        attach_close(a, CLOSE_DRAIN, "the gateway is shutting down");
        return;
    }
    if (e->code == SG_E_STALE_SESSION || e->code == SG_E_SANDBOX_NOT_RUNNING) {
        code = CLOSE_SESSION_OVER;
        reason = "the session has ended";
    }
    if (attach_send(a, frame_error(e)))
        attach_close(a, code, reason);
}

static void on_end(void *arg, const struct sg_wire_process *p, const struct sg_error *e)
{
    struct attach *a = arg;
    struct sg_error lost;
    if (!attach_flush(a))
        return;
    if (p && p->how == SG_HOW_UNKNOWN) {
        sg_fail(&lost, SG_E_PROCESS_LOST, SG_STARTED, "the process ended and left no word how");
        e = &lost;
    }
    if (e)
        attach_fail(a, e);
    else if (attach_send(a, frame_exit(p)))
        attach_close(a, CLOSE_DONE, "the process has ended");
}

/* ---- the client's side ---- */

static void answer_later(struct attach *a, const struct sg_error *e)
{
    if (!a->early)
        a->early = calloc(ATTACH_EARLY_MAX, sizeof *a->early);
    if (!a->early)
        attach_close(a, CLOSE_FAILED, "out of memory");
    else if (a->nearly == ATTACH_EARLY_MAX)
        attach_close(a, CLOSE_PROTOCOL, "wait for the hello");
    else
        a->early[a->nearly++] = *e;
}

void attach_answer(struct attach *a, const struct sg_error *e)
{
    if (!a->greeted)
        answer_later(a, e);
    else if (a->io.queued(a->io_arg) > ATTACH_QUEUE_MAX)
        attach_close(a, CLOSE_SLOW, "answers are not read");
    else
        (void)attach_send(a, frame_error(e));
}

void attach_drained(struct attach *a)
{
    input_drained(a);
    if (!a->paused)
        return;
    a->paused = false;
    sg_timer_stop(a->slow);
    if (a->reader)
        reader_resume(a->reader);
}

void attach_drain(struct attach *a)
{
    if (attach_flush(a))
        attach_close(a, CLOSE_DRAIN, "the gateway is shutting down");
}

static void on_slow(void *arg)
{
    attach_close(arg, CLOSE_SLOW, "output is not read");
}

static void on_keepalive(void *arg)
{
    struct attach *a = arg;
    sg_timer_start(a->keepalive, (uint64_t)a->keepalive_ms);
    if (!a->paused && a->greeted)
        (void)attach_send(a, frame_keepalive());
}

/* ---- life ---- */

static void on_grave(struct sg_grave *g)
{
    struct attach *a = (struct attach *)((char *)g - offsetof(struct attach, grave));
    sg_timer_free(a->slow);
    sg_timer_free(a->keepalive);
    sg_buf_free(&a->frame);
    free(a->early);
    free(a->sandbox);
    free(a->id);
    session_free(&a->session);
    if (a->posted)
        a->dead = true; /* on_flush frees it */
    else
        free(a);
}

void attach_gone(struct attach *a)
{
    if (a->gone)
        return;
    a->gone = true;
    stop(a);
    a->grave.fn = on_grave;
    sg_loop_bury(a->loop, &a->grave);
}

static bool prepare(struct attach *a, struct relay *r, const struct attach_spec *s)
{
    a->sandbox = strdup(s->sandbox);
    a->id = strdup(s->id);
    a->slow = sg_timer_new(a->loop, on_slow, a);
    a->keepalive = sg_timer_new(a->loop, on_keepalive, a);
    a->slow_ms = relay_limits(r)->slow_reader_ms;
    a->keepalive_ms = relay_limits(r)->keepalive_ms;
    return session_copy(&a->session, &s->session) && a->sandbox && a->id && a->slow && a->keepalive;
}

static void begin(struct attach *a, const struct attach_spec *s)
{
    struct follow_spec spec = {.session = s->session,
                               .id = s->id,
                               .offset = {s->offset[0], s->offset[1]},
                               .only = -1,
                               .attend = true,
                               .lively = s->mode == ATTACH_WRITE || s->cols};
    struct follower_events ev = {
        .on_hello = on_hello, .on_data = on_data, .on_gap = on_gap, .on_end = on_end};
    struct sg_error e;
    a->audience.ending = on_ending;
    audience_enter(a->relay, a->sandbox, a->session.session_id, &a->audience);
    bool ok = input_begin(a, s, &e);
    if (ok)
        a->reader = reader_open(a->relay, &spec, &ev, a, &e);
    if (!a->reader)
        attach_fail(a, &e);
    else if (s->keepalive_data)
        sg_timer_start(a->keepalive, (uint64_t)a->keepalive_ms);
}

struct attach *attach_start(struct relay *r, const struct attach_spec *s, const struct attach_io *io,
                            void *io_arg)
{
    struct attach *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->relay = r;
    a->loop = relay_loop(r);
    a->io = *io;
    a->io_arg = io_arg;
    a->format = s->format;
    a->mode = s->mode;
    a->pty_asked = s->pty;
    a->fresh = s->fresh;
    a->flush.fn = on_flush;
    sg_buf_init(&a->frame, ATTACH_FRAME_MAX);
    for (int i = 0; i < 2; i++)
        a->asked[i] = a->at[i] = s->offset[i];
    if (!prepare(a, r, s)) {
        attach_gone(a);
        return NULL;
    }
    begin(a, s);
    return a;
}
