#include "base/ws_codec.h"

#include <string.h>

enum { UTF8_START = 0, UTF8_BAD = 1 };

/* The state packs what is still expected: number of continuation bytes (bits 24..31), and the allowed range of
 * the next one (bits 8..15 low, 16..23 high).  0 is the start of a character. */
static uint32_t utf8_expect(unsigned n, unsigned lo, unsigned hi)
{
    return (uint32_t)(n << 24 | hi << 16 | lo << 8);
}

static uint32_t utf8_lead(unsigned char b)
{
    if (b < 0x80)
        return UTF8_START;
    if (b >= 0xc2 && b <= 0xdf)
        return utf8_expect(1, 0x80, 0xbf);
    if (b == 0xe0)
        return utf8_expect(2, 0xa0, 0xbf);
    if (b == 0xed)
        return utf8_expect(2, 0x80, 0x9f); /* no surrogates */
    if (b >= 0xe1 && b <= 0xef)
        return utf8_expect(2, 0x80, 0xbf);
    if (b == 0xf0)
        return utf8_expect(3, 0x90, 0xbf);
    if (b >= 0xf1 && b <= 0xf3)
        return utf8_expect(3, 0x80, 0xbf);
    if (b == 0xf4)
        return utf8_expect(3, 0x80, 0x8f);
    return UTF8_BAD;
}

static uint32_t utf8_step(uint32_t state, unsigned char b)
{
    if (state == UTF8_START)
        return utf8_lead(b);
    unsigned n = state >> 24, hi = state >> 16 & 0xff, lo = state >> 8 & 0xff;
    if (b < lo || b > hi)
        return UTF8_BAD;
    return n == 1 ? UTF8_START : utf8_expect(n - 1, 0x80, 0xbf);
}

static uint32_t utf8_run(uint32_t state, const unsigned char *s, size_t len)
{
    size_t i = 0;
    while (i < len && state != UTF8_BAD) {
        if (state == UTF8_START) { /* ASCII in strides */
            uint64_t w;
            while (len - i >= sizeof w) {
                memcpy(&w, s + i, sizeof w);
                if (w & 0x8080808080808080U)
                    break;
                i += sizeof w;
            }
            if (i == len)
                break;
        }
        state = utf8_step(state, s[i++]);
    }
    return state;
}

void ws_codec_init(struct ws_codec *c, uint64_t max_message)
{
    memset(c, 0, sizeof *c);
    c->max_message = max_message;
}

static void fail(struct ws_codec *c, struct ws_event *ev, int code)
{
    c->done = true;
    ev->kind = WS_EV_ERROR;
    ev->code = code;
}

static size_t head_need(const struct ws_codec *c)
{
    if (c->have < 2)
        return 2;
    unsigned n = c->head[1] & 0x7fU;
    size_t mask = c->head[1] & 0x80U ? 4 : 0; /* a frame without is refused before this matters */
    return 2 + mask + (n == 126 ? 2U : n == 127 ? 8U : 0U);
}

/* The first two bytes say enough to refuse most faults. */
static bool check_start(struct ws_codec *c)
{
    unsigned b0 = c->head[0], b1 = c->head[1], op = b0 & 0x0f;
    if (b0 & 0x70 || !(b1 & 0x80))
        return false; /* reserved bits without an extension; a client must mask */
    if (op >= WS_OP_CLOSE)
        return op <= WS_OP_PONG && b0 & 0x80 && (b1 & 0x7f) <= WS_CONTROL_MAX;
    if (op > WS_OP_BINARY)
        return false;
    return c->in_message == (op == WS_OP_CONT);
}

static bool read_length(struct ws_codec *c)
{
    unsigned n = c->head[1] & 0x7f;
    const unsigned char *p = c->head + 2;
    c->left = n;
    if (n == 126) {
        c->left = (uint64_t)p[0] << 8 | p[1];
        p += 2;
        if (c->left < 126)
            return false; /* not the shortest form */
    } else if (n == 127) {
        c->left = 0;
        for (int i = 0; i < 8; i++)
            c->left = c->left << 8 | p[i];
        p += 8;
        if (c->left <= UINT16_MAX || c->left >> 63)
            return false;
    }
    memcpy(c->mask, p, 4);
    return true;
}

/* The head is complete: the frame's payload begins.  0, or the close code to fail with. */
static int begin_frame(struct ws_codec *c)
{
    if (!read_length(c))
        return WS_CODE_PROTOCOL;
    c->opcode = c->head[0] & 0x0f;
    c->fin = c->head[0] & 0x80;
    c->mask_at = 0;
    c->have = 0;
    c->in_payload = true;
    if (c->opcode >= WS_OP_CLOSE)
        return 0;
    if (c->opcode != WS_OP_CONT) {
        c->in_message = true;
        c->text = c->opcode == WS_OP_TEXT;
        c->message_len = 0;
        c->utf8 = UTF8_START;
    }
    if (c->left > c->max_message - c->message_len)
        return WS_CODE_TOO_LARGE;
    c->message_len += c->left;
    return 0;
}

static void unmask(struct ws_codec *c, unsigned char *data, size_t len)
{
    unsigned char m[8];
    for (unsigned i = 0; i < 8; i++)
        m[i] = c->mask[(c->mask_at + i) & 3];
    c->mask_at = (unsigned char)((c->mask_at + len) & 3);
    uint64_t wide, w;
    memcpy(&wide, m, sizeof wide);
    while (len >= sizeof w) {
        memcpy(&w, data, sizeof w);
        w ^= wide;
        memcpy(data, &w, sizeof w);
        data += sizeof w;
        len -= sizeof w;
    }
    for (size_t i = 0; i < len; i++)
        data[i] ^= m[i];
}

static bool close_code_valid(int code)
{
    if (code >= 3000 && code <= 4999)
        return true;
    return code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006;
}

static void close_event(struct ws_codec *c, struct ws_event *ev)
{
    c->done = true;
    ev->kind = WS_EV_CLOSE;
    ev->code = WS_CODE_NONE;
    ev->data = c->control;
    ev->len = 0;
    if (c->have == 0)
        return;
    if (c->have == 1) {
        fail(c, ev, WS_CODE_PROTOCOL);
        return;
    }
    ev->code = c->control[0] << 8 | c->control[1];
    ev->data = c->control + 2;
    ev->len = c->have - 2U;
    if (utf8_run(UTF8_START, ev->data, ev->len) != UTF8_START)
        fail(c, ev, WS_CODE_NOT_UTF8);
    else if (!close_code_valid(ev->code))
        fail(c, ev, WS_CODE_PROTOCOL);
}

static size_t take_control(struct ws_codec *c, const unsigned char *data, size_t len, struct ws_event *ev)
{
    size_t n = c->left < len ? (size_t)c->left : len;
    if (n) {
        memcpy(c->control + c->have, data, n);
        unmask(c, c->control + c->have, n);
    }
    c->have = (unsigned char)(c->have + n);
    c->left -= n;
    if (c->left)
        return n;
    if (c->opcode == WS_OP_CLOSE) {
        close_event(c, ev);
    } else {
        ev->kind = c->opcode == WS_OP_PING ? WS_EV_PING : WS_EV_PONG;
        ev->data = c->control;
        ev->len = c->have;
    }
    c->have = 0;
    c->in_payload = false;
    return n;
}

static size_t take_data(struct ws_codec *c, unsigned char *data, size_t len, struct ws_event *ev)
{
    size_t n = c->left < len ? (size_t)c->left : len;
    if (n == 0 && c->left)
        return 0;
    unmask(c, data, n);
    c->left -= n;
    bool end = c->left == 0 && c->fin;
    if (c->text) {
        c->utf8 = utf8_run(c->utf8, data, n);
        if (c->utf8 == UTF8_BAD || (end && c->utf8 != UTF8_START)) {
            fail(c, ev, WS_CODE_NOT_UTF8);
            return n;
        }
    }
    ev->kind = WS_EV_DATA;
    ev->text = c->text;
    ev->end = end;
    ev->data = data;
    ev->len = n;
    if (c->left == 0)
        c->in_payload = false;
    if (end)
        c->in_message = false;
    return n;
}

static size_t take_head(struct ws_codec *c, const unsigned char *data, size_t len, struct ws_event *ev)
{
    size_t used = 0;
    while (used < len) {
        c->head[c->have++] = data[used++];
        if (c->have == 2 && !check_start(c)) {
            fail(c, ev, WS_CODE_PROTOCOL);
            return used;
        }
        if (c->have >= 2 && c->have == head_need(c)) {
            int code = begin_frame(c);
            if (code)
                fail(c, ev, code);
            return used;
        }
    }
    return used;
}

size_t ws_codec_next(struct ws_codec *c, unsigned char *data, size_t len, struct ws_event *ev)
{
    memset(ev, 0, sizeof *ev);
    if (c->done)
        return len;
    size_t used = 0;
    while (ev->kind == WS_EV_NONE) {
        if (c->in_payload) {
            bool waiting = c->left > 0 && used == len;
            if (waiting)
                break;
            used += c->opcode >= WS_OP_CLOSE ? take_control(c, data + used, len - used, ev)
                                             : take_data(c, data + used, len - used, ev);
        } else {
            if (used == len)
                break;
            used += take_head(c, data + used, len - used, ev);
        }
    }
    return used;
}

size_t ws_codec_head(unsigned char out[WS_HEAD_MAX], enum ws_opcode opcode, uint64_t len)
{
    out[0] = (unsigned char)(0x80U | (unsigned)opcode);
    if (len < 126) {
        out[1] = (unsigned char)len;
        return 2;
    }
    unsigned bytes = len <= UINT16_MAX ? 2 : 8;
    out[1] = bytes == 2 ? 126 : 127;
    for (unsigned i = 0; i < bytes; i++)
        out[2 + i] = (unsigned char)(len >> (8 * (bytes - 1 - i)) & 0xff);
    return 2 + bytes;
}

size_t ws_codec_close(unsigned char out[WS_CONTROL_MAX], int code, const char *reason)
{
    if (code == WS_CODE_NONE)
        return 0;
    out[0] = (unsigned char)(code >> 8 & 0xff);
    out[1] = (unsigned char)(code & 0xff);
    size_t n = reason ? strlen(reason) : 0;
    if (n > WS_REASON_MAX) {
        n = WS_REASON_MAX;
        while (n > 0 && ((unsigned char)reason[n] & 0xc0) == 0x80)
            n--; /* not inside a character */
    }
    for (size_t i = 0; i < n; i++)
        out[2 + i] = (unsigned char)reason[i];
    return n + 2;
}

bool ws_codec_utf8(const void *s, size_t len)
{
    return utf8_run(UTF8_START, s, len) == UTF8_START;
}
