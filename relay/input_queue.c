#include "relay/input_queue.h"

#include <string.h>

#define OFFSET_MAX (UINT64_MAX / 4) /* the carrier's */

/* Only whole frames count when a carrier is cut. */
enum { FRAME_MAX = 16 * 1024 };
/* What is worth a call of its own while others are under way. */
enum { BATCH_MIN = 256 * 1024 };

void input_queue_init(struct input_queue *q, size_t max)
{
    *q = (struct input_queue){0};
    q->max = max;
    sg_buf_init(&q->buf, 2 * max);
}

void input_queue_free(struct input_queue *q)
{
    sg_buf_free(&q->buf);
}

static uint64_t end_of(const struct input_queue *q)
{
    return q->base + input_queue_held(q);
}

size_t input_queue_room(const struct input_queue *q)
{
    return q->unwanted || q->close_wanted ? 0 : q->max - input_queue_held(q);
}

static void drop_all(struct input_queue *q)
{
    sg_buf_free(&q->buf);
    q->gone = 0;
}

/* Frees the memory that the first n bytes held take, now and then: moving the rest costs. */
static void drop_first(struct input_queue *q, size_t n)
{
    q->gone += n;
    if (q->gone == q->buf.len) {
        drop_all(q); /* quiet input holds no memory */
    } else if (q->gone >= q->max / 2) {
        sg_buf_consume(&q->buf, q->gone);
        q->gone = 0;
    }
}

/* ---- the writer's side ---- */

static enum sg_code over(const struct input_queue *q, struct sg_error *e)
{
    return sg_fail(e, SG_E_STDIN_CLOSED, SG_NOT_SENT, "%s",
                   q->unwanted ? "the program takes no more input" : "the input was closed");
}

static enum sg_code beyond(const struct input_queue *q, struct sg_error *e)
{
    (void)sg_fail(e, SG_E_STDIN_OFFSET, SG_NOT_SENT,
                  "the input known here ends at offset %llu: go on from there",
                  (unsigned long long)end_of(q));
    if (e && q->known)
        e->accepted = (int64_t)q->base;
    return SG_E_STDIN_OFFSET;
}

/* How much of len bytes at offset is known already; false when they begin beyond the end. */
static bool known_part(struct input_queue *q, uint64_t offset, size_t len, size_t *part)
{
    *part = 0;
    if (offset == INPUT_APPEND)
        return true;
    if (!q->based) {
        if (input_queue_held(q)) /* something of an offset that only the guest knows */
            return false;
        q->base = q->sent = offset;
        q->based = true;
    }
    uint64_t end = end_of(q);
    if (offset > end)
        return false;
    *part = len < end - offset ? len : (size_t)(end - offset);
    return true;
}

enum sg_code input_queue_write(struct input_queue *q, uint64_t offset, const void *data, size_t len,
                               size_t *taken, struct sg_error *e)
{
    size_t old;
    *taken = 0;
    if (offset != INPUT_APPEND && offset > OFFSET_MAX - len)
        return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT, "the offset is larger than any input");
    if (!known_part(q, offset, len, &old))
        return beyond(q, e);
    size_t n = len - old;
    if (n && (q->close_wanted || q->unwanted))
        return over(q, e);
    size_t room = q->max - input_queue_held(q);
    n = n < room ? n : room;
    if (n && !sg_buf_add(&q->buf, (const char *)data + old, n)) {
        q->buf.failed = false;
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for input");
    }
    *taken = old + n;
    return SG_OK;
}

enum sg_code input_queue_close(struct input_queue *q, uint64_t offset, struct sg_error *e)
{
    size_t part;
    if (offset != INPUT_APPEND && offset > OFFSET_MAX)
        return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT, "the offset is larger than any input");
    if (!known_part(q, offset, 0, &part))
        return beyond(q, e);
    if (offset != INPUT_APPEND && offset < end_of(q))
        return sg_fail(e, SG_E_STDIN_OFFSET, SG_NOT_SENT,
                       "the input cannot end at %llu: it goes on to offset %llu", (unsigned long long)offset,
                       (unsigned long long)end_of(q));
    if (q->unwanted && !q->closed && !q->close_wanted)
        return over(q, e);
    q->close_wanted = true;
    return SG_OK;
}

enum sg_code input_queue_resize(struct input_queue *q, unsigned cols, unsigned rows, bool redraw,
                                struct sg_error *e)
{
    if (!cols || !rows || cols > PROCESS_SIDE_MAX || rows > PROCESS_SIDE_MAX)
        return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT, "a terminal has 1 to %d columns and rows",
                       PROCESS_SIDE_MAX);
    q->cols = cols;
    q->rows = rows;
    q->redraw = q->redraw || redraw;
    q->size_told = QUEUE_UNSENT;
    return SG_OK;
}

enum sg_code input_queue_signal(struct input_queue *q, int number, bool whole, struct sg_error *e)
{
    if (number < 1 || number > 64)
        return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT, "no such signal");
    if (q->nsignals == INPUT_SIGNALS_MAX)
        return sg_fail(e, SG_E_OVERLOADED, SG_NOT_SENT, "%d signals wait to be sent", INPUT_SIGNALS_MAX);
    q->signals[q->nsignals].number = (uint8_t)number;
    q->signals[q->nsignals++].whole = whole;
    return SG_OK;
}

enum sg_code input_queue_ack(struct input_queue *q, const uint64_t received[2], struct sg_error *e)
{
    if (received[0] > OFFSET_MAX || received[1] > OFFSET_MAX)
        return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT, "the offset is larger than any output");
    for (int s = 0; s < 2; s++) {
        if (received[s] <= q->received[s])
            continue;
        q->received[s] = received[s];
        q->receipts = true;
        q->receipts_told = QUEUE_UNSENT;
    }
    return SG_OK;
}

void input_queue_drop_unsent(struct input_queue *q)
{
    size_t keep = q->sent_max > q->base ? (size_t)(q->sent_max - q->base) : 0;
    if (!q->known || !keep) {
        drop_all(q);
        q->based = q->known; /* an offset that only its writer named means nothing to others */
    } else if (input_queue_held(q) > keep) {
        q->buf.len = q->gone + keep;
        q->buf.data[q->buf.len] = '\0';
    }
    if (!q->close_sent)
        q->close_wanted = false;
    q->nsignals = 0;
    q->cols = q->rows = 0;
    q->redraw = q->redraw_begun = false;
}

/* ---- the carrier's side ---- */

/* The guest has everything below `accepted`. */
static void advance(struct input_queue *q, uint64_t accepted)
{
    uint64_t n = accepted - q->base;
    drop_first(q, n < input_queue_held(q) ? (size_t)n : input_queue_held(q));
    q->base = accepted;
    if (q->sent < accepted)
        q->sent = accepted;
    if (q->sent_max < accepted)
        q->sent_max = accepted;
}

/* Bytes that were never sent and are accepted are somebody else's: ours of the same offsets have no place. */
static enum sg_code later_on(struct input_queue *q, uint64_t accepted, struct sg_error *e)
{
    if (accepted < q->base)
        return sg_fail(e, SG_E_UPSTREAM_BAD_RESPONSE, SG_STARTED,
                       "the sandbox lost input that it had accepted");
    if (accepted > q->sent_max && accepted > q->base)
        return sg_fail(e, SG_E_WRITER_REPLACED, SG_NOT_STARTED, "another client wrote to the process");
    advance(q, accepted);
    return SG_OK;
}

/* What lies above is the writer's fault when it was said before the guest was asked. */
static enum sg_code base_on(struct input_queue *q, uint64_t accepted, struct sg_error *e)
{
    bool all_beyond = q->based && !q->known && q->base > accepted;
    bool first = !q->known;
    q->known = true;
    if (!q->based || all_beyond) {
        if (all_beyond) {
            drop_all(q);
            q->close_wanted = false;
        }
        q->based = true;
        q->base = q->sent = q->sent_max = accepted;
    }
    if (all_beyond) {
        (void)sg_fail(e, SG_E_STDIN_OFFSET, SG_NOT_STARTED,
                      "%llu bytes of input have been accepted: go on from there",
                      (unsigned long long)accepted);
        if (e)
            e->accepted = (int64_t)accepted;
        return SG_E_STDIN_OFFSET;
    }
    if (!first)
        return later_on(q, accepted, e);
    advance(q, accepted);
    return SG_OK;
}

static void credit(struct input_queue *q, uint64_t room)
{
    q->limit = room > OFFSET_MAX ? OFFSET_MAX : q->base + room;
    q->most = room > q->most ? room : q->most;
}

enum sg_code input_queue_opened(struct input_queue *q, uint64_t accepted, uint64_t room, struct sg_error *e)
{
    if (accepted > OFFSET_MAX)
        return sg_fail(e, SG_E_UPSTREAM_BAD_RESPONSE, SG_STARTED, "no input can be so long");
    enum sg_code rc = base_on(q, accepted, e);
    if (rc && rc != SG_E_STDIN_OFFSET)
        return rc;
    q->sent = q->base;
    credit(q, room);
    return rc;
}

enum sg_code input_queue_accepted(struct input_queue *q, uint64_t accepted, uint64_t room, bool closed,
                                  bool unwanted, struct sg_error *e)
{
    if (accepted > OFFSET_MAX)
        return sg_fail(e, SG_E_UPSTREAM_BAD_RESPONSE, SG_STARTED, "no input can be so long");
    enum sg_code rc = later_on(q, accepted, e);
    if (rc)
        return rc;
    if (accepted > q->told_at)
        input_queue_sure(q);
    credit(q, room);
    if (closed && !q->closed) {
        q->closed = q->close_wanted = q->close_sent = true;
        drop_all(q); /* another writer's end lies before it */
    }
    if (unwanted) {
        q->unwanted = true;
        drop_all(q);
    }
    return SG_OK;
}

static bool emit(struct sg_buf *out, const struct sg_carrier_frame *f, const void *data, size_t len)
{
    unsigned char head[SG_CARRIER_HEAD_MAX];
    size_t n = sg_carrier_encode(head, f);
    return n && sg_buf_reserve(out, n + len) && sg_buf_add(out, head, n) &&
           (!len || sg_buf_add(out, data, len));
}

static bool next_signal(struct input_queue *q, struct sg_buf *out)
{
    struct sg_carrier_frame f = {.kind = SG_CARRIER_SIGNAL};
    if (!q->nsignals)
        return false;
    f.signal = q->signals[0].number;
    f.whole = q->signals[0].whole;
    if (!emit(out, &f, NULL, 0))
        return false;
    memmove(q->signals, q->signals + 1, --q->nsignals * sizeof *q->signals);
    return true;
}

static bool next_size(struct input_queue *q, struct sg_buf *out)
{
    struct sg_carrier_frame f = {
        .kind = SG_CARRIER_RESIZE, .cols = (uint16_t)q->cols, .rows = (uint16_t)q->rows};
    if (!q->cols || q->size_told != QUEUE_UNSENT || q->redraw_begun)
        return false;
    if (q->redraw)
        f.rows = (uint16_t)(q->rows > 1 ? q->rows - 1 : 2);
    if (!emit(out, &f, NULL, 0))
        return false;
    if (q->redraw)
        q->redraw_begun = true;
    else
        q->size_told = QUEUE_SENT;
    q->told_at = q->sent;
    return true;
}

static bool next_receipts(struct input_queue *q, struct sg_buf *out)
{
    struct sg_carrier_frame f = {.kind = SG_CARRIER_ACK, .received = {q->received[0], q->received[1]}};
    if (!q->receipts || q->receipts_held || q->receipts_told != QUEUE_UNSENT || !emit(out, &f, NULL, 0))
        return false;
    q->receipts_told = QUEUE_SENT;
    q->told_at = q->sent;
    q->receipts_held = true; /* the next ones a moment later, however fast they come */
    return true;
}

/* Little is sent at once when nothing is under way, and else waits for what is: so a typist's keys share calls, and
 * room that opens piece by piece is not filled piece by piece. */
static bool worth_it(const struct input_queue *q, uint64_t n)
{
    uint64_t half = q->most / 2;
    bool idle = q->sent == q->base && q->sent + n == end_of(q);
    return !q->batch || idle || q->begun || n >= (half < BATCH_MIN ? half : BATCH_MIN);
}

static bool next_data(struct input_queue *q, struct sg_buf *out)
{
    uint64_t end = end_of(q) < q->limit ? end_of(q) : q->limit;
    if (q->sent >= end || !worth_it(q, end - q->sent)) {
        q->begun = false;
        return false;
    }
    uint64_t n = end - q->sent;
    if (n > FRAME_MAX)
        n = FRAME_MAX;
    struct sg_carrier_frame f = {.kind = SG_CARRIER_DATA, .offset = q->sent, .len = (uint32_t)n};
    if (!emit(out, &f, q->buf.data + q->gone + (q->sent - q->base), (size_t)n))
        return false;
    q->sent += n;
    q->begun = true;
    if (q->sent_max < q->sent)
        q->sent_max = q->sent;
    return true;
}

static bool next_close(struct input_queue *q, struct sg_buf *out)
{
    struct sg_carrier_frame f = {.kind = SG_CARRIER_CLOSE, .offset = end_of(q)};
    if (!q->close_wanted || q->close_sent || q->sent < end_of(q) || !emit(out, &f, NULL, 0))
        return false;
    q->close_sent = true;
    return true;
}

bool input_queue_next(struct input_queue *q, struct sg_buf *out)
{
    return next_signal(q, out) || next_size(q, out) || next_receipts(q, out) || next_data(q, out) ||
           next_close(q, out);
}

void input_queue_settle(struct input_queue *q)
{
    q->receipts_held = false;
    if (q->redraw_begun)
        q->redraw = q->redraw_begun = false;
}

void input_queue_sure(struct input_queue *q)
{
    if (q->size_told == QUEUE_SENT)
        q->size_told = QUEUE_SURE;
    if (q->receipts_told == QUEUE_SENT)
        q->receipts_told = QUEUE_SURE;
}

void input_queue_lost(struct input_queue *q)
{
    q->sent = q->base;
    q->limit = 0;
    q->begun = false;
    if (q->redraw_begun) /* the other size may have arrived: this one does then */
        q->redraw = q->redraw_begun = false;
    q->receipts_held = false;
    if (q->size_told == QUEUE_SENT)
        q->size_told = QUEUE_UNSENT;
    if (q->receipts_told == QUEUE_SENT)
        q->receipts_told = QUEUE_UNSENT;
    if (!q->closed)
        q->close_sent = false;
}

void input_queue_forget(struct input_queue *q)
{
    if (!input_queue_held(q) && !q->close_wanted && !q->unwanted)
        q->known = q->based = false;
}

bool input_queue_wants(const struct input_queue *q)
{
    return q->nsignals || (q->cols && q->size_told == QUEUE_UNSENT) ||
           (q->receipts && q->receipts_told == QUEUE_UNSENT) || input_queue_held(q) ||
           (q->close_wanted && !q->closed && !q->unwanted);
}
