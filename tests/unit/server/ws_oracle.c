#include "ws_oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wslay/wslay.h>

enum { LOG_MAX = 64 * 1024, TAIL = 144 };

/* What was understood, as bytes: one record per message, ping, pong, close. */
struct log {
    size_t len;
    unsigned char bytes[LOG_MAX];
    int end; /* close code told or, negative, the code of a fault; 0: neither */
};

static void note(struct log *l, unsigned char kind, const void *data, size_t len)
{
    if (l->len + len + 9 > LOG_MAX)
        return;
    l->bytes[l->len++] = kind;
    memcpy(l->bytes + l->len, &len, sizeof len);
    l->len += sizeof len;
    if (len)
        memcpy(l->bytes + l->len, data, len);
    l->len += len;
}

/* ---- ours ---- */

struct assembly {
    unsigned char *data;
    size_t len;
};

static void our_event(struct log *l, struct assembly *m, const struct ws_event *e)
{
    switch (e->kind) {
    case WS_EV_NONE:
        break;
    case WS_EV_DATA:
        if (e->len)
            memcpy(m->data + m->len, e->data, e->len);
        m->len += e->len;
        if (e->end) {
            note(l, e->text ? WS_OP_TEXT : WS_OP_BINARY, m->data, m->len);
            m->len = 0;
        }
        break;
    case WS_EV_PING:
    case WS_EV_PONG:
        note(l, e->kind == WS_EV_PING ? WS_OP_PING : WS_OP_PONG, e->data, e->len);
        break;
    case WS_EV_CLOSE:
        note(l, WS_OP_CLOSE, e->data, e->len);
        l->end = e->code;
        break;
    case WS_EV_ERROR:
        l->end = -e->code;
        break;
    }
}

static void run_ours(struct log *l, const unsigned char *bytes, size_t len, uint64_t max, uint32_t seed)
{
    struct ws_codec c;
    struct assembly m = {malloc(max + 1), 0};
    unsigned char *copy = malloc(len + 1);
    if (!m.data || !copy)
        abort();
    memcpy(copy, bytes, len);
    ws_codec_init(&c, max);
    size_t at = 0;
    while (at < len) {
        seed = seed * 1664525 + 1013904223;
        size_t piece = seed >> 28 ? (seed >> 20) % 40 + 1 : len;
        size_t end = piece < len - at ? at + piece : len;
        struct ws_event e;
        do {
            at += ws_codec_next(&c, copy + at, end - at, &e);
            our_event(l, &m, &e);
        } while (e.kind != WS_EV_NONE);
    }
    free(copy);
    free(m.data);
}

/* ---- wslay ---- */

struct feed {
    struct log *log;
    const unsigned char *bytes;
    size_t len;
};

static ssize_t give(wslay_event_context_ptr ctx, uint8_t *buf, size_t len, int flags, void *arg)
{
    (void)flags;
    struct feed *f = arg;
    if (f->len == 0) {
        wslay_event_set_error(ctx, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    size_t n = len < f->len ? len : f->len;
    memcpy(buf, f->bytes, n);
    f->bytes += n;
    f->len -= n;
    return (ssize_t)n;
}

static ssize_t swallow(wslay_event_context_ptr ctx, const uint8_t *data, size_t len, int flags, void *arg)
{
    (void)ctx;
    (void)data;
    (void)flags;
    (void)arg;
    return (ssize_t)len;
}

static void understood(wslay_event_context_ptr ctx, const struct wslay_event_on_msg_recv_arg *msg, void *arg)
{
    (void)ctx;
    struct log *l = ((struct feed *)arg)->log;
    if (msg->opcode != WSLAY_CONNECTION_CLOSE) {
        note(l, msg->opcode, msg->msg, msg->msg_length);
        return;
    }
    bool with_code = msg->msg_length >= 2; /* the code is part of what wslay gives */
    note(l, WS_OP_CLOSE, with_code ? msg->msg + 2 : NULL, with_code ? msg->msg_length - 2 : 0);
    l->end = msg->status_code ? msg->status_code : WS_CODE_NONE;
}

static void run_theirs(struct log *l, const unsigned char *bytes, size_t len, uint64_t max)
{
    struct feed f = {l, bytes, len};
    const struct wslay_event_callbacks cb = {give, swallow, NULL, NULL, NULL, NULL, understood};
    wslay_event_context_ptr ctx;
    if (wslay_event_context_server_init(&ctx, &cb, &f))
        abort();
    wslay_event_config_set_max_recv_msg_length(ctx, max);
    int rc = 0;
    while (wslay_event_want_read(ctx) && f.len && rc == 0)
        rc = wslay_event_recv(ctx);
    while (wslay_event_want_write(ctx) && wslay_event_send(ctx) == 0)
        ;
    if (l->end == 0 && wslay_event_get_close_sent(ctx))
        l->end = -(int)wslay_event_get_status_code_sent(ctx);
    wslay_event_context_free(ctx);
}

/* ---- */

/* wslay knows the registry as of 2011: 1012 to 1014 are newer. */
static bool newer_close_code(const struct log *ours, const struct log *theirs)
{
    return ours->end >= 1012 && ours->end <= 1014 && theirs->end == -1002;
}

/* wslay takes a close frame of one byte for one without a code. */
static bool half_a_close_code(const struct log *ours, const struct log *theirs)
{
    return ours->end == -WS_CODE_PROTOCOL && theirs->end == WS_CODE_NONE && theirs->len == ours->len + 9 &&
           memcmp(ours->bytes, theirs->bytes, ours->len) == 0;
}

bool oracle_agrees(const unsigned char *bytes, size_t len, uint64_t max_message, uint32_t seed)
{
    static struct log ours, theirs;
    ours.len = theirs.len = 0;
    ours.end = theirs.end = 0;
    /* Ours refuses a frame at its second byte, wslay when its head is whole; wslay checks the reason of a close
     * frame as it comes, ours at its end: make whole what the input cuts. */
    unsigned char *padded = calloc(1, len + TAIL);
    if (!padded)
        abort();
    memcpy(padded, bytes, len);
    run_ours(&ours, padded, len + TAIL, max_message, seed);
    run_theirs(&theirs, padded, len + TAIL, max_message);
    free(padded);
    if (newer_close_code(&ours, &theirs) || half_a_close_code(&ours, &theirs))
        return true;
    if (theirs.end == -WS_CODE_NONE)
        theirs.end = -WS_CODE_PROTOCOL; /* some of its refusals of a frame carry no code */
    bool same =
        ours.end == theirs.end && ours.len == theirs.len && memcmp(ours.bytes, theirs.bytes, ours.len) == 0;
    if (!same) {
        (void)fprintf(stderr, "ours: %zu bytes, end %d; wslay: %zu bytes, end %d; input", ours.len, ours.end,
                      theirs.len, theirs.end);
        for (size_t i = 0; i < len && i < 400; i++)
            (void)fprintf(stderr, " %02x", bytes[i]);
        (void)fprintf(stderr, "\n");
    }
    return same;
}
