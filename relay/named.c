#include "relay/named.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* FNV-1a.  Ids are the caller's, but his chains only slow his own processes' look-ups: a session's are few. */
static uint32_t mix(uint32_t h, const char *s)
{
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    return (h ^ '/') * 16777619u;
}

static struct named **bucket(struct named_table *t, const char *session_id, const char *id)
{
    return &t->buckets[mix(mix(2166136261u, session_id), id) % NAMED_BUCKETS];
}

struct named *named_find(struct named_table *t, const char *session_id, const char *id)
{
    struct named *n = *bucket(t, session_id, id);
    while (n && (strcmp(n->id, id) != 0 || strcmp(n->session_id, session_id) != 0))
        n = n->next;
    return n;
}

void named_add(struct named_table *t, struct named *n)
{
    struct named **b = bucket(t, n->session_id, n->id);
    n->next = *b;
    n->prev = b;
    if (n->next)
        n->next->prev = &n->next;
    *b = n;
}

void named_remove(struct named *n)
{
    if (!n->prev)
        return;
    *n->prev = n->next;
    if (n->next)
        n->next->prev = n->prev;
    n->prev = NULL;
}
