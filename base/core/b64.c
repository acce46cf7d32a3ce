#include "base/core/b64.h"

#include <endian.h>
#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t sg_b64_encode(char *out, const void *data, size_t n)
{
    const unsigned char *p = data;
    char *o = out;
    for (; n >= 3; n -= 3, p += 3) {
        *o++ = alphabet[p[0] >> 2];
        *o++ = alphabet[(p[0] & 3) << 4 | p[1] >> 4];
        *o++ = alphabet[(p[1] & 15) << 2 | p[2] >> 6];
        *o++ = alphabet[p[2] & 63];
    }
    if (n) {
        unsigned b = n == 2 ? p[1] : 0;
        *o++ = alphabet[p[0] >> 2];
        *o++ = alphabet[(unsigned)(p[0] & 3) << 4 | b >> 4];
        *o++ = n == 2 ? alphabet[(b & 15) << 2] : '=';
        *o++ = '=';
    }
    return (size_t)(o - out);
}

/* What a character stands for, at each of the four places of a group, and a bit that says that it is one: all four
 * bits are set in groups that are well-formed. */
/* clang-format off */
#define ALPHABET(X) \
    X('A', 0) X('B', 1) X('C', 2) X('D', 3) X('E', 4) X('F', 5) X('G', 6) X('H', 7) \
    X('I', 8) X('J', 9) X('K', 10) X('L', 11) X('M', 12) X('N', 13) X('O', 14) X('P', 15) \
    X('Q', 16) X('R', 17) X('S', 18) X('T', 19) X('U', 20) X('V', 21) X('W', 22) X('X', 23) \
    X('Y', 24) X('Z', 25) X('a', 26) X('b', 27) X('c', 28) X('d', 29) X('e', 30) X('f', 31) \
    X('g', 32) X('h', 33) X('i', 34) X('j', 35) X('k', 36) X('l', 37) X('m', 38) X('n', 39) \
    X('o', 40) X('p', 41) X('q', 42) X('r', 43) X('s', 44) X('t', 45) X('u', 46) X('v', 47) \
    X('w', 48) X('x', 49) X('y', 50) X('z', 51) X('0', 52) X('1', 53) X('2', 54) X('3', 55) \
    X('4', 56) X('5', 57) X('6', 58) X('7', 59) X('8', 60) X('9', 61) X('+', 62) X('/', 63)
/* clang-format on */
#define PLACE(k, c, v) [c] = 1u << (24 + (k)) | (uint32_t)(v) << (18 - 6 * (k)),
#define PLACE0(c, v)   PLACE(0, c, v)
#define PLACE1(c, v)   PLACE(1, c, v)
#define PLACE2(c, v)   PLACE(2, c, v)
#define PLACE3(c, v)   PLACE(3, c, v)

enum { WELL_FORMED = 0xf << 24 };

static const uint32_t place[4][256] = {
    {ALPHABET(PLACE0)}, {ALPHABET(PLACE1)}, {ALPHABET(PLACE2)}, {ALPHABET(PLACE3)}};

static uint32_t group(const unsigned char *p)
{
    return place[0][p[0]] | place[1][p[1]] | place[2][p[2]] | place[3][p[3]];
}

static void put(unsigned char *o, uint32_t bytes)
{
    o[0] = (unsigned char)(bytes >> 16);
    o[1] = (unsigned char)(bytes >> 8);
    o[2] = (unsigned char)bytes;
}

/* The last group, when it is padded.  Bytes written, -1 when malformed. */
static ssize_t padded(unsigned char *o, const unsigned char *p)
{
    unsigned pad = p[2] == '=' ? 2 : 1;
    const unsigned char whole[4] = {p[0], p[1], pad == 2 ? 'A' : p[2], 'A'};
    uint32_t v = group(whole), unused = pad == 2 ? 0xffff : 0xff;
    if ((v & WELL_FORMED) != WELL_FORMED || v & unused)
        return -1;
    o[0] = (unsigned char)(v >> 16);
    if (pad == 1)
        o[1] = (unsigned char)(v >> 8);
    return 3 - (ssize_t)pad;
}

ssize_t sg_b64_decode(void *out, const char *in, size_t n)
{
    if (n % 4)
        return -1;
    const unsigned char *p = (const unsigned char *)in;
    unsigned char *o = out;
    size_t full = n && p[n - 1] == '=' ? n - 4 : n, i = 0;
    uint32_t well = WELL_FORMED;
    for (; full - i >= 8; i += 4, o += 3) { /* four bytes are stored; the next group writes over the last */
        uint32_t v = group(p + i);
        well &= v;
        v = htobe32(v << 8);
        memcpy(o, &v, sizeof v);
    }
    if (i < full) {
        uint32_t v = group(p + i);
        well &= v;
        put(o, v);
        o += 3;
    }
    ssize_t rest = full < n ? padded(o, p + full) : 0;
    if (well != WELL_FORMED || rest < 0)
        return -1;
    return o + rest - (unsigned char *)out;
}
