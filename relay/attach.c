#include "relay/attach.h"

#include "base/core/b64.h"
#include "relay/feed.h"
#include "relay/frames.h"
#include "relay/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CLOSE_DONE = 1000,
    CLOSE_DRAIN = 1001,
    CLOSE_PROTOCOL = 1002,
    CLOSE_FRAME_TYPE = 1003,
    CLOSE_BAD_JSON = 1007,
    CLOSE_FAILED = 1011,
    CLOSE_SLOW = 4008,
    CLOSE_SESSION_OVER = 4010
};

enum { EARLY_MAX = 4 };

struct attach {
    struct sg_loop *loop;
    struct attach_io io;
    void *io_arg;
    enum attach_format format;
    char *sandbox, *session_id;
    uint64_t asked[2];
    struct reader *follower; /* NULL once there is nothing more to follow */

    /* Small pieces of one stream wait here until the frame is full or the loop comes round. */
    struct sg_buf frame;
    int frame_stream;
    uint64_t frame_offset;
    struct sg_task flush; /* posted: it must outlive the loop's queue */
    bool posted;

    bool closing, gone, dead;
    bool paused;
    bool greeted;           /* hello was sent; it comes first: */
    struct sg_error *early; /* up to EARLY_MAX answers to what the client said before */
    size_t nearly;
    int64_t slow_ms, keepalive_ms;
    struct sg_timer *slow, *keepalive;
    struct sg_grave grave;
};

/* ---- sending ---- */

static void stop_following(struct attach *a)
{
    if (a->follower)
        reader_close(a->follower);
    a->follower = NULL;
    if (a->slow)
        sg_timer_stop(a->slow);
    if (a->keepalive)
        sg_timer_stop(a->keepalive);
}

static bool send_message(struct attach *a, bool text, const void *head, size_t head_len, const void *body,
                         size_t body_len)
{
    if (a->closing || a->gone)
        return false;
    if (a->io.send(a->io_arg, text, head, head_len, body, body_len))
        return true;
    a->closing = true; /* attach_gone is on its way */
    sg_buf_free(&a->frame);
    stop_following(a);
    return false;
}

static void close_with(struct attach *a, int code, const char *reason)
{
    stop_following(a);
    sg_buf_free(&a->frame);
    if (a->closing || a->gone)
        return;
    a->closing = true;
    a->io.close(a->io_arg, code, reason);
}

/* Takes frame over. */
static bool send_json(struct attach *a, json_t *frame)
{
    char *text = frame ? json_dumps(frame, JSON_COMPACT) : NULL;
    json_decref(frame);
    if (!text) {
        close_with(a, CLOSE_FAILED, "out of memory");
        return false;
    }
    bool ok = send_message(a, true, text, strlen(text), NULL, 0);
    free(text);
    return ok;
}

static bool send_base64(struct attach *a)
{
    static const char tail[] = "\"}";
    char head[128];
    int n =
        snprintf(head, sizeof head, "{\"type\":\"data\",\"stream\":\"%s\",\"offset\":%" PRIu64 ",\"data\":\"",
                 a->frame_stream ? "stderr" : "stdout", a->frame_offset);
    size_t len = SG_B64_LEN(a->frame.len);
    char *body = malloc(len + sizeof tail);
    if (!body) {
        close_with(a, CLOSE_FAILED, "out of memory");
        return false;
    }
    len = sg_b64_encode(body, a->frame.data, a->frame.len);
    memcpy(body + len, tail, sizeof tail);
    bool ok = send_message(a, true, head, (size_t)n, body, len + sizeof tail - 1);
    free(body);
    return ok;
}

static bool flush(struct attach *a)
{
    if (!a->frame.len)
        return !a->closing && !a->gone;
    bool ok;
    if (a->format == ATTACH_JSON) {
        ok = send_base64(a);
    } else {
        unsigned char head[FRAME_HEAD];
        frame_head(head, a->frame_stream, a->frame_offset);
        ok = send_message(a, false, head, sizeof head, a->frame.data, a->frame.len);
    }
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
    (void)flush(a);
    sg_buf_free(&a->frame); /* a quiet client holds no buffer */
}

/* ---- the process's side ---- */

static void on_hello(void *arg, const struct sg_wire_process *p)
{
    struct attach *a = arg;
    struct frame_hello h = {.sandbox = a->sandbox, .session_id = a->session_id, .p = p};
    for (int s = 0; s < 2; s++)
        h.next[s] = a->asked[s] > p->oldest[s] ? a->asked[s] : p->oldest[s];
    a->greeted = true;
    bool ok = send_json(a, frame_hello(&h));
    for (size_t i = 0; i < a->nearly && ok; i++)
        ok = send_json(a, frame_error(&a->early[i]));
    free(a->early);
    a->early = NULL;
}

static bool add(struct attach *a, int stream, uint64_t offset, const char *data, size_t len)
{
    while (len) {
        bool joins = a->frame.len && a->frame_stream == stream && a->frame_offset + a->frame.len == offset;
        if ((!joins || a->frame.len == ATTACH_FRAME_MAX) && !flush(a))
            return false;
        if (!a->frame.len) {
            a->frame_stream = stream;
            a->frame_offset = offset;
        }
        size_t room = ATTACH_FRAME_MAX - a->frame.len;
        size_t n = len < room ? len : room;
        if (!sg_buf_add(&a->frame, data, n)) {
            close_with(a, CLOSE_FAILED, "out of memory");
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
    if (!a->posted) {
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
    if (flush(a))
        (void)send_json(a, frame_gap(stream, from, to));
}

static void end_with_error(struct attach *a, const struct sg_error *e)
{
    int code = CLOSE_FAILED;
    const char *reason = "the process's output cannot be read";
    if (e->code == SG_E_DRAINING) {
        close_with(a, CLOSE_DRAIN, "the gateway is shutting down");
        return;
    }
    if (e->code == SG_E_STALE_SESSION || e->code == SG_E_SANDBOX_NOT_RUNNING) {
        code = CLOSE_SESSION_OVER;
        reason = "the session has ended";
    }
    if (send_json(a, frame_error(e)))
        close_with(a, code, reason);
}

static void on_end(void *arg, const struct sg_wire_process *p, const struct sg_error *e)
{
    struct attach *a = arg;
    struct sg_error lost;
    if (!flush(a))
        return;
    if (p && p->how == SG_HOW_UNKNOWN) {
        sg_fail(&lost, SG_E_PROCESS_LOST, SG_STARTED, "the process ended and left no word how");
        e = &lost;
    }
    if (e)
        end_with_error(a, e);
    else if (send_json(a, frame_exit(p)))
        close_with(a, CLOSE_DONE, "the process has ended");
}

/* ---- the client's side ---- */

static void answer_later(struct attach *a, const struct sg_error *e)
{
    if (!a->early)
        a->early = calloc(EARLY_MAX, sizeof *a->early);
    if (!a->early)
        close_with(a, CLOSE_FAILED, "out of memory");
    else if (a->nearly == EARLY_MAX)
        close_with(a, CLOSE_PROTOCOL, "wait for the hello");
    else
        a->early[a->nearly++] = *e;
}

static void reply_error(struct attach *a, const struct sg_error *e)
{
    if (!a->greeted)
        answer_later(a, e);
    else if (a->io.queued(a->io_arg) > ATTACH_QUEUE_MAX)
        close_with(a, CLOSE_SLOW, "answers are not read");
    else
        (void)send_json(a, frame_error(e));
}

static void take_binary(struct attach *a, size_t len)
{
    struct sg_error e;
    if (a->format == ATTACH_JSON) {
        close_with(a, CLOSE_FRAME_TYPE, "this protocol has text frames only");
    } else if (len < FRAME_HEAD) {
        close_with(a, CLOSE_PROTOCOL, "a binary frame begins with its channel and offset");
    } else {
        sg_fail(&e, SG_E_UNSUPPORTED, SG_NOT_SENT, "this process takes no input");
        reply_error(a, &e);
    }
}

void attach_message(struct attach *a, bool text, const void *data, size_t len)
{
    struct sg_error e;
    if (a->closing || a->gone)
        return;
    if (!text) {
        take_binary(a, len);
        return;
    }
    switch (frame_parse(data, len, &e)) {
    case FRAME_DETACH:
        if (flush(a))
            close_with(a, CLOSE_DONE, "detached");
        break;
    case FRAME_ACK: /* frees nothing in a ring */
        break;
    case FRAME_UNSUPPORTED:
    case FRAME_UNKNOWN:
        reply_error(a, &e);
        break;
    case FRAME_BAD_JSON:
        close_with(a, CLOSE_BAD_JSON, "not a JSON object");
        break;
    }
}

void attach_drained(struct attach *a)
{
    if (!a->paused)
        return;
    a->paused = false;
    sg_timer_stop(a->slow);
    if (a->follower)
        reader_resume(a->follower);
}

void attach_drain(struct attach *a)
{
    if (flush(a))
        close_with(a, CLOSE_DRAIN, "the gateway is shutting down");
}

static void on_slow(void *arg)
{
    close_with(arg, CLOSE_SLOW, "output is not read");
}

static void on_keepalive(void *arg)
{
    struct attach *a = arg;
    sg_timer_start(a->keepalive, (uint64_t)a->keepalive_ms);
    if (!a->paused && a->greeted)
        (void)send_json(a, frame_keepalive());
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
    free(a->session_id);
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
    stop_following(a);
    a->grave.fn = on_grave;
    sg_loop_bury(a->loop, &a->grave);
}

static bool prepare(struct attach *a, struct relay *r, const struct attach_spec *s)
{
    a->sandbox = strdup(s->sandbox);
    a->session_id = strdup(s->session.session_id);
    a->slow = sg_timer_new(a->loop, on_slow, a);
    a->keepalive = sg_timer_new(a->loop, on_keepalive, a);
    a->slow_ms = relay_limits(r)->slow_reader_ms;
    a->keepalive_ms = relay_limits(r)->keepalive_ms;
    return a->sandbox && a->session_id && a->slow && a->keepalive;
}

struct attach *attach_start(struct relay *r, const struct attach_spec *s, const struct attach_io *io,
                            void *io_arg)
{
    struct attach *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->loop = relay_loop(r);
    a->io = *io;
    a->io_arg = io_arg;
    a->format = s->format;
    a->flush.fn = on_flush;
    sg_buf_init(&a->frame, ATTACH_FRAME_MAX);
    if (!prepare(a, r, s)) {
        attach_gone(a);
        return NULL;
    }
    struct follow_spec spec = {.session = s->session, .id = s->id, .only = -1};
    for (int i = 0; i < 2; i++)
        spec.offset[i] = a->asked[i] = s->offset[i];
    struct follower_events ev = {
        .on_hello = on_hello, .on_data = on_data, .on_gap = on_gap, .on_end = on_end};
    struct sg_error e;
    a->follower = reader_open(r, &spec, &ev, a, &e);
    if (!a->follower)
        end_with_error(a, &e);
    else if (s->keepalive_data)
        sg_timer_start(a->keepalive, (uint64_t)a->keepalive_ms);
    return a;
}
