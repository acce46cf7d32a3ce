#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sg_buf_init(struct sg_buf *b, size_t max)
{
    *b = (struct sg_buf){.max = max};
}

void sg_buf_free(struct sg_buf *b)
{
    free(b->data);
    sg_buf_init(b, b->max);
}

void sg_buf_wipe(struct sg_buf *b)
{
    if (b->data)
        explicit_bzero(b->data, b->cap);
    sg_buf_free(b);
}

void sg_buf_reset(struct sg_buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data)
        b->data[0] = '\0';
}

char *sg_buf_reserve(struct sg_buf *b, size_t n)
{
    if (n > b->max || b->len > b->max - n) {
        b->failed = true;
        return NULL;
    }
    size_t need = b->len + n + 1;
    if (need > b->cap) {
        size_t cap = b->cap ? b->cap : 128;
        while (cap < need)
            cap += cap / 2 + 64;
        if (cap > b->max + 1)
            cap = b->max + 1;
        char *p = realloc(b->data, cap);
        if (!p) {
            b->failed = true;
            return NULL;
        }
        b->data = p;
        b->cap = cap;
    }
    return b->data + b->len;
}

bool sg_buf_add(struct sg_buf *b, const void *data, size_t len)
{
    char *p = sg_buf_reserve(b, len);
    if (!p)
        return false;
    if (len)
        memcpy(p, data, len);
    b->len += len;
    b->data[b->len] = '\0';
    return true;
}

bool sg_buf_adds(struct sg_buf *b, const char *s)
{
    return sg_buf_add(b, s, strlen(s));
}

bool sg_buf_addf(struct sg_buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) {
        b->failed = true;
        return false;
    }
    char *p = sg_buf_reserve(b, (size_t)n);
    if (!p)
        return false;
    va_start(ap, fmt);
    (void)vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return true;
}

bool sg_buf_add_urlenc(struct sg_buf *b, const char *s)
{
    static const char hex[] = "0123456789ABCDEF";
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        char enc[3] = {'%', hex[c >> 4], hex[c & 15]};
        bool ok = strchr(plain, c) ? sg_buf_add(b, s, 1) : sg_buf_add(b, enc, 3);
        if (!ok)
            return false;
    }
    return true;
}

void sg_buf_consume(struct sg_buf *b, size_t n)
{
    if (!n)
        return;
    memmove(b->data, b->data + n, b->len - n + 1);
    b->len -= n;
}

char *sg_buf_take(struct sg_buf *b, size_t *len)
{
    if (!sg_buf_reserve(b, 0))
        return NULL;
    b->data[b->len] = '\0';
    char *p = b->data;
    if (len)
        *len = b->len;
    b->data = NULL;
    sg_buf_init(b, b->max);
    return p;
}
