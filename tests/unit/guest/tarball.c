#include "tarball.h"

#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 512 };

void tarball_raw(struct tarball *t, const void *bytes, size_t n)
{
    if (t->len + n > t->cap) {
        t->cap = 2 * (t->len + n) + BLOCK;
        t->bytes = realloc(t->bytes, t->cap);
        assert_non_null(t->bytes);
    }
    if (n)
        memcpy(t->bytes + t->len, bytes, n);
    t->len += n;
}

void tarball_pad(struct tarball *t)
{
    static const char zeros[BLOCK];
    tarball_raw(t, zeros, (BLOCK - t->len % BLOCK) % BLOCK);
}

static void field(unsigned char *h, size_t at, size_t max, const char *text)
{
    size_t n = strlen(text);
    memcpy(h + at, text, n < max ? n : max);
}

void tarball_add(struct tarball *t, const struct tarball_member *m)
{
    unsigned char h[BLOCK] = {0};
    char size[32];
    unsigned sum = 0;
    size_t n = m->data ? strlen(m->data) : 0;
    snprintf(size, sizeof size, "%011zo", n);
    memcpy(h, m->name, m->name_len ? m->name_len : strnlen(m->name, 100));
    field(h, 100, 8, m->mode ? m->mode : "0000644");
    field(h, 108, 8, "0000000");
    field(h, 116, 8, "0000000");
    field(h, 124, 12, m->size ? m->size : size);
    field(h, 136, 12, m->mtime ? m->mtime : "00000000144");
    h[156] = (unsigned char)(m->type ? m->type : '0');
    if (m->target)
        memcpy(h + 157, m->target, m->target_len ? m->target_len : strnlen(m->target, 100));
    if (m->format == TARBALL_USTAR)
        memcpy(h + 257,
               "ustar\0"
               "00",
               8);
    if (m->format == TARBALL_GNU)
        memcpy(h + 257, "ustar  \0", 8);
    if (m->magic)
        memcpy(h + 257, m->magic, 8);
    field(h, 345, 155, m->prefix ? m->prefix : "");
    memset(h + 148, ' ', 8);
    for (size_t i = 0; i < BLOCK; i++)
        sum += h[i];
    snprintf((char *)h + 148, 8, "%06o", (unsigned)((int)sum + m->sum_off));
    tarball_raw(t, h, BLOCK);
    tarball_raw(t, m->data ? m->data : "", n);
    tarball_pad(t);
}

void tarball_pax(struct tarball *t, char type, const void *records, size_t n)
{
    char size[32];
    snprintf(size, sizeof size, "%011zo", n);
    MEMBER(t, .name = "pax", .type = type, .size = size);
    tarball_raw(t, records, n);
    tarball_pad(t);
}

void tarball_record(struct tarball *t, const char *key, const char *value)
{
    size_t n = strlen(key) + strlen(value) + 3, len = n + 1;
    char *text = malloc(n + 32);
    assert_non_null(text);
    while (snprintf(text, n + 32, "%zu %s=%s\n", len, key, value) != (int)len)
        len++;
    tarball_pax(t, 'x', text, len);
    free(text);
}

void tarball_long(struct tarball *t, char type, const char *name)
{
    char size[32];
    snprintf(size, sizeof size, "%011zo", strlen(name) + 1);
    MEMBER(t, .name = "././@LongLink", .type = type, .size = size, .format = TARBALL_GNU);
    tarball_raw(t, name, strlen(name) + 1);
    tarball_pad(t);
}

void tarball_end(struct tarball *t)
{
    static const char zeros[2 * BLOCK];
    tarball_raw(t, zeros, sizeof zeros);
}

void tarball_free(struct tarball *t)
{
    free(t->bytes);
    *t = (struct tarball){0};
}
