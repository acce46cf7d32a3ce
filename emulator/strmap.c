#include "emulator/strmap.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct strmap_entry {
    struct strmap_entry *next;
    void *value;
    uint64_t hash;
    char key[];
};

static uint64_t hash_of(const char *s)
{
    uint64_t h = 1469598103934665603u; /* FNV-1a; names come from authenticated callers */
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 1099511628211u;
    return h;
}

void strmap_init(struct strmap *m)
{
    memset(m, 0, sizeof *m);
}

void strmap_free(struct strmap *m)
{
    for (size_t i = 0; i < m->slots; i++)
        while (m->slot[i]) {
            struct strmap_entry *e = m->slot[i];
            m->slot[i] = e->next;
            free(e);
        }
    free(m->slot);
    strmap_init(m);
}

static struct strmap_entry **find(const struct strmap *m, const char *key, uint64_t h)
{
    struct strmap_entry **p = &m->slot[h & (m->slots - 1)];
    while (*p && ((*p)->hash != h || strcmp((*p)->key, key) != 0))
        p = &(*p)->next;
    return p;
}

void *strmap_get(const struct strmap *m, const char *key)
{
    if (!m->slots)
        return NULL;
    struct strmap_entry *e = *find(m, key, hash_of(key));
    return e ? e->value : NULL;
}

static bool grow(struct strmap *m)
{
    size_t n = m->slots ? m->slots * 2 : 64;
    struct strmap_entry **slot = calloc(n, sizeof(struct strmap_entry *));
    if (!slot)
        return false;
    for (size_t i = 0; i < m->slots; i++)
        while (m->slot[i]) {
            struct strmap_entry *e = m->slot[i];
            m->slot[i] = e->next;
            e->next = slot[e->hash & (n - 1)];
            slot[e->hash & (n - 1)] = e;
        }
    free(m->slot);
    m->slot = slot;
    m->slots = n;
    return true;
}

bool strmap_add(struct strmap *m, const char *key, void *value, bool *no_memory)
{
    *no_memory = false;
    if (m->count >= m->slots && !grow(m)) {
        *no_memory = true;
        return false;
    }
    uint64_t h = hash_of(key);
    struct strmap_entry **p = find(m, key, h);
    if (*p)
        return false;
    size_t n = strlen(key) + 1;
    struct strmap_entry *e = malloc(sizeof *e + n);
    if (!e) {
        *no_memory = true;
        return false;
    }
    memcpy(e->key, key, n);
    e->hash = h;
    e->value = value;
    e->next = NULL;
    *p = e;
    m->count++;
    return true;
}

void *strmap_remove(struct strmap *m, const char *key)
{
    if (!m->slots)
        return NULL;
    struct strmap_entry **p = find(m, key, hash_of(key)), *e = *p;
    if (!e)
        return NULL;
    void *value = e->value;
    *p = e->next;
    free(e);
    m->count--;
    return value;
}

void strmap_each(const struct strmap *m, bool (*fn)(void *arg, void *value), void *arg)
{
    for (size_t i = 0; i < m->slots; i++)
        for (struct strmap_entry *e = m->slot[i]; e; e = e->next)
            if (!fn(arg, e->value))
                return;
}
