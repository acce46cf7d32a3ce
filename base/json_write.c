#include "base/json_write.h"

#include <string.h>

static bool plain(unsigned char c)
{
    return c >= 0x20 && c != '"' && c != '\\';
}

static char *escape(char *o, unsigned char c)
{
    static const char hex[] = "0123456789ABCDEF";
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *at = c ? strchr(from, c) : NULL;
    *o++ = '\\';
    if (at) {
        *o++ = to[at - from];
        return o;
    }
    *o++ = 'u';
    *o++ = '0';
    *o++ = '0';
    *o++ = hex[c >> 4];
    *o++ = hex[c & 15];
    return o;
}

void sg_jw_text(struct sg_buf *b, const char *s)
{
    if (!s) {
        (void)sg_buf_adds(b, "null");
        return;
    }
    size_t len = strlen(s), need;
    char *o = __builtin_mul_overflow(len, 6, &need) ? NULL : sg_buf_reserve(b, need + 2);
    if (!o) {
        b->failed = true;
        return;
    }
    *o++ = '"';
    for (; *s; s++)
        if (plain((unsigned char)*s))
            *o++ = *s;
        else
            o = escape(o, (unsigned char)*s);
    *o++ = '"';
    *o = '\0';
    b->len = (size_t)(o - b->data);
}

void sg_jw_int(struct sg_buf *b, int64_t n)
{
    char text[24], *p = text + sizeof text;
    uint64_t v = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
    do
        *--p = (char)('0' + v % 10);
    while (v /= 10);
    if (n < 0)
        *--p = '-';
    (void)sg_buf_add(b, p, (size_t)(text + sizeof text - p));
}

void sg_jw_bool(struct sg_buf *b, bool v)
{
    (void)sg_buf_adds(b, v ? "true" : "false");
}

void sg_jw_next(struct sg_buf *b)
{
    if (b->len && b->data[b->len - 1] != '{' && b->data[b->len - 1] != '[')
        (void)sg_buf_add(b, ",", 1);
}

void sg_jw_key(struct sg_buf *b, const char *key)
{
    sg_jw_next(b);
    sg_jw_text(b, key);
    (void)sg_buf_add(b, ":", 1);
}
