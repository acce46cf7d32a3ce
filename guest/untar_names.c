#include "guest/untar_names.h"

#include <stdlib.h>
#include <string.h>

enum { HEADS = 1 << 18, FIRST = 256 };

bool untar_names_start(struct untar_names *t, uint32_t seed)
{
    *t = (struct untar_names){.seed = seed, .cap = FIRST};
    t->heads = calloc(HEADS, sizeof *t->heads);
    t->nodes = calloc(FIRST, sizeof *t->nodes);
    if (!t->heads || !t->nodes)
        return false;
    t->n = UNTAR_TOP;
    t->nodes[UNTAR_TOP] = (struct untar_node){.kind = UNTAR_IMPLIED};
    return true;
}

void untar_names_free(struct untar_names *t)
{
    free(t->heads);
    free(t->nodes);
    free(t->bytes);
    free(t->directories);
    *t = (struct untar_names){0};
}

static uint32_t *head_of(const struct untar_names *t, uint32_t parent, const char *name, size_t len)
{
    uint64_t h = (UINT64_C(0xcbf29ce484222325) ^ t->seed) + parent;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)name[i]) * UINT64_C(0x100000001b3);
    h ^= h >> 32;
    return &t->heads[(h * UINT64_C(0x9e3779b97f4a7c15)) >> 46];
}

uint32_t untar_names_find(const struct untar_names *t, uint32_t parent, const char *name, size_t len)
{
    uint32_t at = *head_of(t, parent, name, len);
    for (; at; at = t->nodes[at].next) {
        const struct untar_node *n = &t->nodes[at];
        if (n->parent == parent && n->len == len && memcmp(t->bytes + n->name, name, len) == 0)
            break;
    }
    return at;
}

/* Room for so many elements; NULL when there is no memory. */
static void *grown(void *old, size_t wanted, uint32_t *cap, size_t size)
{
    if (wanted <= *cap)
        return old;
    uint32_t more = *cap ? *cap * 2 : FIRST;
    void *p = realloc(old, more * size);
    if (p)
        *cap = more;
    return p;
}

static bool make_room(struct untar_names *t, size_t len)
{
    if (t->n == UNTAR_NAMES_MAX || len > UNTAR_BYTES_MAX - t->used)
        return false;
    if (t->used + len > t->byte_cap) {
        size_t cap = t->byte_cap ? t->byte_cap * 2 : (size_t)64 * 1024;
        char *p = realloc(t->bytes, cap);
        if (!p)
            return false;
        t->bytes = p;
        t->byte_cap = cap;
    }
    struct untar_node *p = grown(t->nodes, (size_t)t->n + 2, &t->cap, sizeof *p);
    t->nodes = p ? p : t->nodes;
    return p != NULL;
}

uint32_t untar_names_add(struct untar_names *t, uint32_t parent, const char *name, size_t len,
                         enum untar_kind kind)
{
    if (!make_room(t, len))
        return 0;
    uint32_t *head = head_of(t, parent, name, len), node = ++t->n;
    memcpy(t->bytes + t->used, name, len);
    t->nodes[node] = (struct untar_node){.parent = parent,
                                         .next = *head,
                                         .name = (uint32_t)t->used,
                                         .len = (uint32_t)len,
                                         .kind = (uint8_t)kind};
    t->used += len;
    *head = node;
    return node;
}

bool untar_names_set(struct untar_names *t, uint32_t node, const struct untar_directory *d)
{
    struct untar_node *n = &t->nodes[node];
    if (!n->directory) {
        struct untar_directory *p =
            grown(t->directories, (size_t)t->directory_count + 1, &t->directory_cap, sizeof *p);
        if (!p)
            return false;
        t->directories = p;
        n->directory = ++t->directory_count;
    }
    t->directories[n->directory - 1] = *d;
    return true;
}

bool untar_names_path(const struct untar_names *t, uint32_t node, char *out, size_t cap)
{
    size_t len = 0;
    for (uint32_t at = node; at != UNTAR_TOP; at = t->nodes[at].parent)
        len += t->nodes[at].len + (len ? 1 : 0);
    if (len >= cap)
        return false;
    out[len] = '\0';
    for (uint32_t at = node; at != UNTAR_TOP; at = t->nodes[at].parent) {
        len -= t->nodes[at].len;
        memcpy(out + len, t->bytes + t->nodes[at].name, t->nodes[at].len);
        if (len)
            out[--len] = '/';
    }
    return true;
}
