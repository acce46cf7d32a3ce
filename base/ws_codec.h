/* Server side of RFC 6455 without extensions: bytes in, events out.  Pure, no allocation; any thread, one codec
 * on one thread at a time.
 *
 * The caller hands bytes as they come; payload is unmasked in place and told in pieces, so the caller decides
 * whether and where a message is put together.
 */
#ifndef SG_BASE_WS_CODEC_H
#define SG_BASE_WS_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WS_HEAD_MAX = 10, WS_CONTROL_MAX = 125, WS_REASON_MAX = 123 };

enum ws_opcode {
    WS_OP_CONT = 0,
    WS_OP_TEXT = 1,
    WS_OP_BINARY = 2,
    WS_OP_CLOSE = 8,
    WS_OP_PING = 9,
    WS_OP_PONG = 10,
};

enum ws_code {
    WS_CODE_NORMAL = 1000,
    WS_CODE_GOING_AWAY = 1001,
    WS_CODE_PROTOCOL = 1002,
    WS_CODE_NONE = 1005, /* a close frame without code; never sent */
    WS_CODE_NOT_UTF8 = 1007,
    WS_CODE_TOO_LARGE = 1009,
};

enum ws_event_kind {
    WS_EV_NONE, /* more bytes are needed */
    WS_EV_DATA, /* a piece of a message: text, data, len, end */
    WS_EV_PING, /* data, len: to be sent back in a pong */
    WS_EV_PONG,
    WS_EV_CLOSE, /* code, and the reason in data, len; nothing is read after it */
    WS_EV_ERROR, /* code is the close code to answer with; nothing is read after it */
};

struct ws_event {
    enum ws_event_kind kind;
    bool text;
    bool end; /* the message is complete with this piece */
    unsigned char *data;
    size_t len;
    int code;
};

struct ws_codec {
    uint64_t max_message;
    uint64_t message_len; /* of the message under way, announced frames included */
    uint64_t left;        /* payload bytes of this frame still to come */
    uint32_t utf8;        /* decoder state of a text message */
    unsigned char head[14];
    unsigned char mask[4];
    unsigned char control[WS_CONTROL_MAX];
    unsigned char have; /* bytes in head, then in control */
    unsigned char mask_at;
    unsigned char opcode;
    bool fin;
    bool in_payload;
    bool in_message; /* a message has begun and is not complete */
    bool text;
    bool done; /* close or error was told */
};

void ws_codec_init(struct ws_codec *c, uint64_t max_message);

/* Consumes bytes up to the next event and returns how many; call again with the rest until the event is
 * WS_EV_NONE.  ev->data points into `data` or into the codec and is valid until the next call. */
size_t ws_codec_next(struct ws_codec *c, unsigned char *data, size_t len, struct ws_event *ev);

/* Writes an unmasked frame head (FIN set) and returns its length. */
size_t ws_codec_head(unsigned char out[WS_HEAD_MAX], enum ws_opcode opcode, uint64_t len);
/* Payload of a close frame; the reason is cut at WS_REASON_MAX.  Returns its length. */
size_t ws_codec_close(unsigned char out[WS_CONTROL_MAX], int code, const char *reason);

/* The whole is valid UTF-8. */
bool ws_codec_utf8(const void *s, size_t len);

#endif
