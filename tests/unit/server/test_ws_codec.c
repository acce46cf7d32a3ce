/* The WebSocket codec: cases of RFC 6455, and the same bytes through wslay. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ws_oracle.h"

#include <stdlib.h>
#include <string.h>

/* ---- what the codec says of some bytes ---- */

static size_t frame(unsigned char *out, unsigned b0, const void *data, size_t len)
{
    static const unsigned char mask[4] = {1, 2, 0xf0, 0x55};
    size_t n = 0;
    out[n++] = (unsigned char)b0;
    if (len < 126) {
        out[n++] = (unsigned char)(0x80 | len);
    } else {
        out[n++] = 0x80 | 126;
        out[n++] = (unsigned char)(len >> 8);
        out[n++] = (unsigned char)len;
    }
    memcpy(out + n, mask, 4);
    n += 4;
    for (size_t i = 0; i < len; i++)
        out[n + i] = (unsigned char)(((const unsigned char *)data)[i] ^ mask[i & 3]);
    return n + len;
}

static void close_codes(void **state)
{
    (void)state;
    for (int code = 0; code < 65536; code += code < 5100 ? 1 : 997) {
        bool fair = (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) ||
                    (code >= 3000 && code <= 4999);
        unsigned char bytes[64], payload[] = {(unsigned char)(code >> 8), (unsigned char)code, 'o', 'k'};
        size_t n = frame(bytes, 0x88, payload, 4);
        struct ws_codec c;
        struct ws_event e;
        ws_codec_init(&c, 100);
        assert_int_equal(ws_codec_next(&c, bytes, n, &e), n);
        assert_int_equal(e.kind, fair ? WS_EV_CLOSE : WS_EV_ERROR);
        assert_int_equal(e.code, fair ? code : 1002);
        if (fair)
            assert_memory_equal(e.data, "ok", 2);
        assert_int_equal(ws_codec_next(&c, bytes, n, &e), n); /* nothing more is heard */
        assert_int_equal(e.kind, WS_EV_NONE);
    }
}

static void a_close_without_code(void **state)
{
    (void)state;
    unsigned char bytes[16];
    size_t n = frame(bytes, 0x88, "", 0);
    struct ws_codec c;
    struct ws_event e;
    ws_codec_init(&c, 100);
    ws_codec_next(&c, bytes, n, &e);
    assert_int_equal(e.kind, WS_EV_CLOSE);
    assert_int_equal(e.code, WS_CODE_NONE);
}

static void lengths_must_be_the_shortest_form(void **state)
{
    (void)state;
    static const struct {
        unsigned char head[14];
        size_t len;
        int code;
    } cases[] = {
        {{0x82, 0xfe, 0, 125, 0, 0, 0, 0}, 8, 1002},
        {{0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0}, 14, 1002},
        {{0x82, 0xff, 0x80, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}, 14, 1002},
        {{0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, 14, 1009},
        {{0x82, 0xfe, 0xff, 0xff, 0, 0, 0, 0}, 8, 1009},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char bytes[14];
        memcpy(bytes, cases[i].head, 14);
        struct ws_codec c;
        struct ws_event e;
        ws_codec_init(&c, 65534);
        ws_codec_next(&c, bytes, cases[i].len, &e);
        assert_int_equal(e.kind, WS_EV_ERROR);
        assert_int_equal(e.code, cases[i].code);
    }
}

static void heads_we_write(void **state)
{
    (void)state;
    unsigned char h[WS_HEAD_MAX];
    assert_int_equal(ws_codec_head(h, WS_OP_TEXT, 125), 2);
    assert_memory_equal(h, "\x81\x7d", 2);
    assert_int_equal(ws_codec_head(h, WS_OP_BINARY, 126), 4);
    assert_memory_equal(h, "\x82\x7e\x00\x7e", 4);
    assert_int_equal(ws_codec_head(h, WS_OP_BINARY, 65535), 4);
    assert_int_equal(ws_codec_head(h, WS_OP_PING, 65536), 10);
    assert_memory_equal(h, "\x89\x7f\0\0\0\0\0\x01\0\0", 10);
    unsigned char p[WS_CONTROL_MAX];
    char longish[300];
    memset(longish, 'a', sizeof longish);
    memcpy(longish + 122, "\xc3\xa9", 2); /* would be cut in two */
    longish[299] = '\0';
    assert_int_equal(ws_codec_close(p, 1001, longish), 2 + 122);
    assert_int_equal(ws_codec_close(p, 1001, NULL), 2);
    assert_int_equal(ws_codec_close(p, WS_CODE_NONE, "x"), 0);
}

/* ---- against wslay ---- */

static uint32_t seed = 12345;

static unsigned rnd(unsigned n)
{
    seed ^= seed << 13;
    seed ^= seed >> 17;
    seed ^= seed << 5;
    return seed % n;
}

static size_t random_text(unsigned char *out, size_t cap)
{
    static const char *const parts[] = {
        "a",    "hello ",   "\xc3\xa9",     "\xe2\x82\xac",     "\xf0\x9f\x98\x80", "\xed\x9f\xbf",
        "\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"};
    size_t n = 0;
    unsigned fair = rnd(4);
    while (n + 10 < cap && rnd(12)) {
        const char *p = parts[rnd(fair ? 6 : 11)];
        while (*p)
            out[n++] = (unsigned char)*p++;
    }
    return n;
}

/* A plausible conversation with a fault now and then. */
static size_t conversation(unsigned char *out, size_t cap)
{
    static const unsigned first[] = {0x81, 0x82, 0x01, 0x02, 0x80, 0x00, 0x89, 0x8a, 0x88};
    size_t n = 0;
    unsigned frames = 1 + rnd(12);
    bool open = false;
    for (unsigned i = 0; i < frames && n + 400 < cap; i++) {
        unsigned char payload[300];
        unsigned b0 = open ? (rnd(3) ? 0x80 * rnd(2) : 0x89) : first[rnd(4)];
        if (rnd(25) == 0)
            b0 = first[rnd(9)];
        if (rnd(120) == 0)
            b0 = rnd(256);
        size_t len = random_text(payload, (b0 & 8) ? 120 : 290);
        if ((b0 & 15) == 8 && len >= 2) {
            payload[0] = 3;
            payload[1] = (unsigned char)(0xe8 + rnd(14));
        }
        if (!(b0 & 8))
            open = !(b0 & 0x80);
        n += frame(out + n, b0, payload, len);
        if (rnd(200) == 0)
            out[n - len - 5] ^= (unsigned char)(1U << rnd(8)); /* the length byte, most times */
    }
    return n;
}

static void the_same_bytes_mean_the_same_to_wslay(void **state)
{
    (void)state;
    unsigned char bytes[4096];
    for (int i = 0; i < 30000; i++) {
        uint32_t before = seed;
        size_t n = conversation(bytes, sizeof bytes);
        if (!oracle_agrees(bytes, n, 700, before))
            fail_msg("seed %u: the codec and wslay differ", before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close_codes),
        cmocka_unit_test(a_close_without_code),
        cmocka_unit_test(lengths_must_be_the_shortest_form),
        cmocka_unit_test(heads_we_write),
        cmocka_unit_test(the_same_bytes_mean_the_same_to_wslay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
