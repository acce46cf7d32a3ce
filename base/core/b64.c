#include "base/core/b64.h"

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

/* The value of a character plus one; 0 for everything else, '=' included. */
static const unsigned char plus_one[256] = {
    ['A'] = 1,  ['B'] = 2,  ['C'] = 3,  ['D'] = 4,  ['E'] = 5,  ['F'] = 6,  ['G'] = 7,  ['H'] = 8,
    ['I'] = 9,  ['J'] = 10, ['K'] = 11, ['L'] = 12, ['M'] = 13, ['N'] = 14, ['O'] = 15, ['P'] = 16,
    ['Q'] = 17, ['R'] = 18, ['S'] = 19, ['T'] = 20, ['U'] = 21, ['V'] = 22, ['W'] = 23, ['X'] = 24,
    ['Y'] = 25, ['Z'] = 26, ['a'] = 27, ['b'] = 28, ['c'] = 29, ['d'] = 30, ['e'] = 31, ['f'] = 32,
    ['g'] = 33, ['h'] = 34, ['i'] = 35, ['j'] = 36, ['k'] = 37, ['l'] = 38, ['m'] = 39, ['n'] = 40,
    ['o'] = 41, ['p'] = 42, ['q'] = 43, ['r'] = 44, ['s'] = 45, ['t'] = 46, ['u'] = 47, ['v'] = 48,
    ['w'] = 49, ['x'] = 50, ['y'] = 51, ['z'] = 52, ['0'] = 53, ['1'] = 54, ['2'] = 55, ['3'] = 56,
    ['4'] = 57, ['5'] = 58, ['6'] = 59, ['7'] = 60, ['8'] = 61, ['9'] = 62, ['+'] = 63, ['/'] = 64,
};

/* 0..63, or a number with bits above 63 set. */
static unsigned value(unsigned char c)
{
    return (unsigned)plus_one[c] - 1u;
}

ssize_t sg_b64_decode(void *out, const char *in, size_t n)
{
    if (n % 4)
        return -1;
    const unsigned char *p = (const unsigned char *)in;
    unsigned char *o = out;
    size_t full = n;
    unsigned pad = 0;
    if (n && p[n - 1] == '=') {
        pad = p[n - 2] == '=' ? 2 : 1;
        full = n - 4;
    }
    unsigned bad = 0;
    for (size_t i = 0; i < full; i += 4) {
        unsigned a = value(p[i]), b = value(p[i + 1]), c = value(p[i + 2]), d = value(p[i + 3]);
        bad |= a | b | c | d;
        *o++ = (unsigned char)(a << 2 | b >> 4);
        *o++ = (unsigned char)(b << 4 | c >> 2);
        *o++ = (unsigned char)(c << 6 | d);
    }
    if (pad) {
        unsigned a = value(p[full]), b = value(p[full + 1]), c = pad == 1 ? value(p[full + 2]) : 0;
        bad |= a | b | c;
        if ((pad == 2 && b & 15) || (pad == 1 && c & 3))
            return -1;
        *o++ = (unsigned char)(a << 2 | b >> 4);
        if (pad == 1)
            *o++ = (unsigned char)(b << 4 | c >> 2);
    }
    if (bad > 63)
        return -1;
    return o - (unsigned char *)out;
}
