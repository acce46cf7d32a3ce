#include "emulator/jsontext.h"

#include <stdint.h>
#include <string.h>

/* What the bytes at p begin with. */
enum { SEQ_INCOMPLETE = 0 }; /* > 0: a whole character of that length; < 0: that many bytes are no UTF-8 */

static int sequence(const unsigned char *p, size_t n)
{
    unsigned char lo = 0x80, hi = 0xbf, b = p[0];
    size_t need;
    if (b < 0x80)
        return 1;
    if (b >= 0xc2 && b <= 0xdf) {
        need = 2;
    } else if (b >= 0xe0 && b <= 0xef) {
        need = 3;
        if (b == 0xe0)
            lo = 0xa0;
        else if (b == 0xed)
            hi = 0x9f;
    } else if (b >= 0xf0 && b <= 0xf4) {
        need = 4;
        if (b == 0xf0)
            lo = 0x90;
        else if (b == 0xf4)
            hi = 0x8f;
    } else {
        return -1;
    }
    for (size_t i = 1; i < need; i++) {
        if (i >= n)
            return SEQ_INCOMPLETE;
        if (p[i] < lo || p[i] > hi)
            return -(int)i;
        lo = 0x80;
        hi = 0xbf;
    }
    return (int)need;
}

static bool plain(unsigned char c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

/* Length of the run of bytes that need no escape; eight at a time. */
static size_t plain_run(const unsigned char *p, size_t n)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    size_t i = 0;
    while (i + 8 <= n) {
        uint64_t w;
        memcpy(&w, p + i, 8);
        uint64_t quote = w ^ (ones * '"'), slash = w ^ (ones * '\\');
        uint64_t bad = (w - ones * 0x20) | (quote - ones) | (slash - ones) | w;
        if (bad & high)
            break; /* perhaps: a borrow may report too much, never too little */
        i += 8;
    }
    while (i < n && plain(p[i]))
        i++;
    return i;
}

static char *escape(char *o, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    *o++ = '\\';
    switch (c) {
    case '"':
    case '\\':
        *o++ = (char)c;
        return o;
    case '\n':
        *o++ = 'n';
        return o;
    case '\r':
        *o++ = 'r';
        return o;
    case '\t':
        *o++ = 't';
        return o;
    default:
        *o++ = 'u';
        *o++ = '0';
        *o++ = '0';
        *o++ = hex[c >> 4];
        *o++ = hex[c & 15];
        return o;
    }
}

static char *replacement(char *o)
{
    *o++ = '\xef';
    *o++ = '\xbf';
    *o++ = '\xbd';
    return o;
}

/* Writes the text of n bytes to o (room for 6 * n) and says in *used how many were whole: less than n only
 * when the end is an incomplete character. */
static char *encode(char *o, const unsigned char *p, size_t n, size_t *used)
{
    size_t i = 0;
    while (i < n) {
        size_t run = plain_run(p + i, n - i);
        memcpy(o, p + i, run);
        o += run;
        i += run;
        if (i == n)
            break;
        if (p[i] < 0x80) {
            o = escape(o, p[i++]);
            continue;
        }
        int s = sequence(p + i, n - i);
        if (s == SEQ_INCOMPLETE)
            break;
        if (s > 0) {
            memcpy(o, p + i, (size_t)s);
            o += s;
            i += (size_t)s;
        } else {
            o = replacement(o);
            i += (size_t)-s;
        }
    }
    *used = i;
    return o;
}

void jsontext_add(struct sg_buf *out, const char *s, size_t len)
{
    if (len > SIZE_MAX / 8) {
        out->failed = true;
        return;
    }
    char *start = sg_buf_reserve(out, 6 * len + 5);
    if (!start)
        return;
    char *o = start;
    size_t used;
    *o++ = '"';
    o = encode(o, (const unsigned char *)s, len, &used);
    if (used < len)
        o = replacement(o);
    *o++ = '"';
    out->len += (size_t)(o - start);
    out->data[out->len] = '\0';
}

void jsontext_adds(struct sg_buf *out, const char *s)
{
    jsontext_add(out, s, strlen(s));
}

/* Completes the held back character from the first bytes of p; returns how many were taken. */
static size_t finish_tail(struct jsontext_stream *st, const unsigned char *p, size_t n, char **o)
{
    size_t i = 0;
    while (st->tail_len && i < n) {
        st->tail[st->tail_len++] = p[i++];
        int s = sequence(st->tail, st->tail_len);
        if (s == SEQ_INCOMPLETE)
            continue;
        if (s > 0) {
            memcpy(*o, st->tail, (size_t)s);
            *o += s;
        } else {
            *o = replacement(*o);
            i--; /* the byte that did not fit begins something new */
        }
        st->tail_len = 0;
    }
    return i;
}

void jsontext_line(struct jsontext_stream *st, const char *name, const void *data, size_t n, bool eof,
                   struct sg_buf *out)
{
    const unsigned char *p = data;
    size_t before = out->len, head = strlen(name) + 22;
    char *start = sg_buf_reserve(out, 6 * (n + 4) + head + 8);
    if (!start)
        return;
    char *o = start;
    static const char part1[] = "{\"stream\":\"", part2[] = "\",\"data\":\"";
    memcpy(o, part1, sizeof part1 - 1);
    o += sizeof part1 - 1;
    memcpy(o, name, strlen(name));
    o += strlen(name);
    memcpy(o, part2, sizeof part2 - 1);
    o += sizeof part2 - 1;
    const char *text = o;
    size_t i = finish_tail(st, p, n, &o), used = 0;
    if (i < n) {
        o = encode(o, p + i, n - i, &used);
        i += used;
        st->tail_len = (unsigned)(n - i); /* at most three bytes */
        memcpy(st->tail, p + i, n - i);
    }
    if (eof && st->tail_len) {
        o = replacement(o);
        st->tail_len = 0;
    }
    if (o == text) {
        if (out->data)
            out->data[before] = '\0';
        return;
    }
    memcpy(o, "\"}\n", 3);
    o += 3;
    out->len += (size_t)(o - start);
    out->data[out->len] = '\0';
}
