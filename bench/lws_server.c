/* What the gateway's WebSocket side is measured against: a plain libwebsockets server that sends each client the
 * same frames (nine bytes of head, 64 KiB of payload) up to a number of bytes, then nothing.
 *
 *   lws_server PORT BYTES
 */
#include <libwebsockets.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAYLOAD = 64 * 1024, FRAME_HEAD = 9 };

struct session {
    uint64_t sent;
};

static uint64_t bytes;
static unsigned char frame[LWS_PRE + FRAME_HEAD + PAYLOAD];
static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
    (void)sig;
    stop = 1;
}

static int callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in, size_t len)
{
    struct session *s = user;
    (void)in;
    (void)len;
    if (reason == LWS_CALLBACK_ESTABLISHED) {
        s->sent = 0;
        lws_callback_on_writable(wsi);
    } else if (reason == LWS_CALLBACK_SERVER_WRITEABLE && s->sent < bytes) {
        size_t n = bytes - s->sent < PAYLOAD ? (size_t)(bytes - s->sent) : PAYLOAD;
        unsigned char *p = frame + LWS_PRE;
        p[0] = 1;
        for (int i = 0; i < 8; i++)
            p[1 + i] = (unsigned char)(s->sent >> (56 - 8 * i));
        if (lws_write(wsi, p, FRAME_HEAD + n, LWS_WRITE_BINARY) < (int)(FRAME_HEAD + n))
            return -1;
        s->sent += n;
        lws_callback_on_writable(wsi);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 64;
    bytes = strtoull(argv[2], NULL, 10);
    memset(frame + LWS_PRE, 'x', FRAME_HEAD + PAYLOAD);
    signal(SIGTERM, on_signal);
    lws_set_log_level(LLL_ERR, NULL);
    const struct lws_protocols protocols[] = {
        {.name = "sandgate.v1", .callback = callback, .per_session_data_size = sizeof(struct session)}, {0}};
    struct lws_context_creation_info info = {
        .port = (int)strtol(argv[1], NULL, 10), .protocols = protocols, .iface = "127.0.0.1"};
    struct lws_context *ctx = lws_create_context(&info);
    if (!ctx)
        return 1;
    puts("ready");
    fflush(stdout);
    while (!stop && lws_service(ctx, 0) >= 0)
        continue;
    lws_context_destroy(ctx);
    return 0;
}
