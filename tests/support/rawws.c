#include "tests/support/rawws.h"

#include "base/core/b64.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

bool rawws_accept(struct raw_conn *c, const char *head)
{
    const char *key = strcasestr(head, "Sec-WebSocket-Key: ");
    char joined[128], text[256];
    unsigned char digest[SHA_DIGEST_LENGTH];
    char accept[SG_B64_LEN(SHA_DIGEST_LENGTH) + 1];
    if (!key)
        return false;
    snprintf(joined, sizeof joined, "%.24s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key + 19);
    SHA1((unsigned char *)joined, strlen(joined), digest);
    accept[sg_b64_encode(accept, digest, sizeof digest)] = '\0';
    snprintf(text, sizeof text,
             "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
             "Sec-WebSocket-Accept: %s\r\n\r\n",
             accept);
    return raw_sends(c, text);
}

bool rawws_send(struct raw_conn *c, enum ws_opcode op, const void *data, size_t len)
{
    unsigned char head[WS_HEAD_MAX];
    size_t n = ws_codec_head(head, op, len);
    return raw_send(c, head, n) && raw_send(c, data, len);
}

bool rawws_text(struct raw_conn *c, enum ws_opcode op, const char *text)
{
    return rawws_send(c, op, text, strlen(text));
}

void rawws_init(struct rawws *w)
{
    w->from = w->len = 0;
    ws_codec_init(&w->codec, 1 << 20);
}

bool rawws_next(struct raw_conn *c, struct rawws *w, struct ws_event *ev)
{
    for (;;) {
        w->from += ws_codec_next(&w->codec, w->buf + w->from, w->len - w->from, ev);
        if (ev->kind != WS_EV_NONE)
            return true;
        w->from = 0;
        w->len = raw_receive(c, w->buf, sizeof w->buf);
        if (!w->len)
            return false;
    }
}
