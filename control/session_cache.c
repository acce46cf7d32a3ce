#include "control/session_cache.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    struct entry *chain;         /* of its bucket */
    struct entry *newer, *older; /* by last use */
    uint64_t hash;
    char *name;
    struct cached_session s;
};

struct session_cache {
    pthread_mutex_t lock;
    size_t max, count, nbuckets; /* nbuckets: a power of two */
    struct entry **buckets;
    struct entry *newest, *oldest;
};

void cached_session_clear(struct cached_session *s)
{
    free(s->session_id);
    free(s->cwd);
    free(s->arch);
    s->session_id = s->cwd = s->arch = NULL;
}

static bool copy_session(struct cached_session *out, const char *session_id, const char *cwd,
                         const char *arch, int64_t deadline_ms)
{
    out->deadline_ms = deadline_ms;
    out->session_id = strdup(session_id);
    out->cwd = strdup(cwd);
    out->arch = arch ? strdup(arch) : NULL;
    if (out->session_id && out->cwd && (out->arch || !arch))
        return true;
    cached_session_clear(out);
    return false;
}

/* FNV-1a: names are checked against a small alphabet and belong to the caller's own project. */
static uint64_t hash_of(const char *s)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * UINT64_C(1099511628211);
    return h;
}

struct session_cache *session_cache_new(size_t max)
{
    struct session_cache *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->max = max;
    c->nbuckets = 64;
    while (c->nbuckets < max)
        c->nbuckets *= 2;
    c->buckets = calloc(c->nbuckets, sizeof(struct entry *));
    if (!c->buckets) {
        free(c);
        return NULL;
    }
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

static struct entry **slot_of(struct session_cache *c, const char *name, uint64_t hash)
{
    struct entry **p = &c->buckets[hash & (c->nbuckets - 1)];
    while (*p && ((*p)->hash != hash || strcmp((*p)->name, name) != 0))
        p = &(*p)->chain;
    return p;
}

static void unlink_use(struct session_cache *c, struct entry *en)
{
    *(en->newer ? &en->newer->older : &c->newest) = en->older;
    *(en->older ? &en->older->newer : &c->oldest) = en->newer;
}

static void link_newest(struct session_cache *c, struct entry *en)
{
    en->newer = NULL;
    en->older = c->newest;
    *(c->newest ? &c->newest->newer : &c->oldest) = en;
    c->newest = en;
}

static struct entry *take_out(struct session_cache *c, const char *name, uint64_t hash)
{
    struct entry **p = slot_of(c, name, hash);
    struct entry *en = *p;
    if (!en)
        return NULL;
    *p = en->chain;
    unlink_use(c, en);
    c->count--;
    return en;
}

static void entry_free(struct entry *en)
{
    if (!en)
        return;
    cached_session_clear(&en->s);
    free(en->name);
    free(en);
}

void session_cache_free(struct session_cache *c)
{
    if (!c)
        return;
    while (c->newest) {
        struct entry *en = c->newest;
        c->newest = en->older;
        entry_free(en);
    }
    free(c->buckets);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

bool session_cache_get(struct session_cache *c, const char *name, struct cached_session *out)
{
    memset(out, 0, sizeof *out);
    uint64_t hash = hash_of(name);
    pthread_mutex_lock(&c->lock);
    struct entry *en = *slot_of(c, name, hash);
    bool found = en && copy_session(out, en->s.session_id, en->s.cwd, en->s.arch, en->s.deadline_ms);
    if (found) {
        unlink_use(c, en);
        link_newest(c, en);
    }
    pthread_mutex_unlock(&c->lock);
    return found;
}

void session_cache_put(struct session_cache *c, const char *name, const char *session_id, const char *cwd,
                       const char *arch, int64_t deadline_ms)
{
    struct entry *en = calloc(1, sizeof *en);
    if (en) {
        en->name = strdup(name);
        en->hash = hash_of(name);
    }
    if (!en || !en->name || !copy_session(&en->s, session_id, cwd, arch, deadline_ms)) {
        entry_free(en);
        session_cache_forget(c, name);
        return;
    }
    pthread_mutex_lock(&c->lock);
    struct entry *out = take_out(c, name, en->hash);
    if (!out && c->count >= c->max && c->oldest)
        out = take_out(c, c->oldest->name, c->oldest->hash);
    struct entry **p = slot_of(c, name, en->hash);
    *p = en;
    link_newest(c, en);
    c->count++;
    pthread_mutex_unlock(&c->lock);
    entry_free(out);
}

void session_cache_forget(struct session_cache *c, const char *name)
{
    pthread_mutex_lock(&c->lock);
    struct entry *en = take_out(c, name, hash_of(name));
    pthread_mutex_unlock(&c->lock);
    entry_free(en);
}

size_t session_cache_count(struct session_cache *c)
{
    pthread_mutex_lock(&c->lock);
    size_t n = c->count;
    pthread_mutex_unlock(&c->lock);
    return n;
}
