/* What a client may send on an attached WebSocket: any messages, text or binary, in any format.  Nothing crashes,
 * leaks or queues without bound. */
#include "relay/attach.h"
#include "tests/support/fake_carrier.h"
#include "tests/support/fake_guestlink.h"

#include <stdlib.h>
#include <string.h>

struct sink {
    size_t queued;
    bool closed, held;
};

static bool sink_send(void *io, bool text, const void *head, size_t head_len, const void *body,
                      size_t body_len)
{
    struct sink *s = io;
    (void)text;
    (void)head;
    (void)body;
    s->queued += head_len + body_len;
    return !s->closed;
}

static size_t sink_queued(void *io)
{
    return ((struct sink *)io)->queued;
}

static void sink_close(void *io, int code, const char *reason)
{
    struct sink *s = io;
    if (s->closed || !reason || code < 1000)
        abort();
    s->closed = true;
}

static void sink_hold(void *io, bool on)
{
    struct sink *s = io;
    if (s->held == on)
        abort();
    s->held = on;
}

static void session(struct fake *fake, struct relay *relay, const uint8_t *data, size_t size)
{
    static const struct attach_io io = {sink_send, sink_queued, sink_close, sink_hold};
    struct sink sink = {0};
    struct attach_spec s = {.session = {.session_id = "s"},
                            .sandbox = "b",
                            .id = "p1",
                            .format = size && data[0] & 1 ? ATTACH_JSON : ATTACH_BINARY,
                            .mode = size ? data[0] >> 6 & 1 : 0};
    struct attach *a = attach_start(relay, &s, &io, &sink);
    if (!a)
        return;
    fake_turns(fake, 4);
    while (size >= 2 && !sink.held) { /* kind, length, then the message */
        bool text = data[0] & 2;
        size_t len = data[1];
        data += 2;
        size -= 2;
        len = len < size ? len : size;
        char *copy = malloc(len ? len : 1); /* exact, so that a read beyond is seen */
        if (!copy)
            break;
        memcpy(copy, data, len);
        attach_message(a, text, copy, len);
        free(copy);
        data += len;
        size -= len;
        if (sink.queued > ATTACH_QUEUE_MAX + 4096)
            abort();
    }
    attach_gone(a);
    fake_turns(fake, 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fake fake;
    struct sg_loop *loop = sg_loop_new();
    if (!loop)
        return 0;
    fake_init_seeded(&fake, loop, 1);
    struct fake_proc *p = fake_proc(&fake, "p1", 10, 10, true);
    struct relay *relay = relay_new(loop, fake_link(&fake));
    if (p && relay) {
        p->hold = true;
        p->takes_input = size > 1 && data[1] & 1;
        p->terminal = size > 1 && data[1] & 2;
        p->lossless = size > 1 && data[1] & 4;
        fake_input(&fake, "p1")->reads = 0;
        session(&fake, relay, data, size);
    }
    relay_free(relay);
    fake_turns(&fake, 2);
    sg_loop_free(loop);
    fake_free(&fake);
    if (fake_input(&fake, "p1")->wrong)
        abort(); /* the guest was told nonsense */
    fake_inputs_free();
    return 0;
}
