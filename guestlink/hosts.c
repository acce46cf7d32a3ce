#include "guestlink/hosts.h"

#include <stdlib.h>
#include <string.h>

static uint32_t hash_of(const char *s)
{
    uint32_t h = 2166136261u; /* FNV-1a; the ids are the upstream's, not a stranger's */
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    return h % HOST_BUCKETS;
}

void hosts_init(struct hosts *h)
{
    memset(h, 0, sizeof *h);
    TAILQ_INIT(&h->by_age);
    pthread_mutex_init(&h->lock, NULL);
}

static void forget(struct hosts *h, struct host *host)
{
    TAILQ_REMOVE(&h->by_age, host, age);
    LIST_REMOVE(host, bucket);
    h->count--;
    free(host);
}

void hosts_free(struct hosts *h)
{
    struct host *next;
    for (struct host *host = TAILQ_FIRST(&h->by_age); host; host = next) {
        next = TAILQ_NEXT(host, age);
        free(host);
    }
    pthread_mutex_destroy(&h->lock);
}

static bool take_fresh(struct hosts *h, const char *id)
{
    bool found = false;
    pthread_mutex_lock(&h->lock);
    for (int i = 0; i < FRESH_MAX; i++)
        if (!strcmp(h->fresh[i], id)) {
            h->fresh[i][0] = '\0';
            found = true;
        }
    pthread_mutex_unlock(&h->lock);
    return found;
}

static bool make_room(struct hosts *h)
{
    struct host *host;
    if (h->count < HOSTS_MAX)
        return true;
    TAILQ_FOREACH(host, &h->by_age, age)
    if (!host->users) {
        forget(h, host);
        return true;
    }
    return false;
}

struct host *hosts_get(struct hosts *h, const char *id)
{
    struct host *host;
    size_t n = strlen(id);
    if (n == 0 || n > SESSION_ID_MAX)
        return NULL;
    struct host_bucket *b = &h->buckets[hash_of(id)];
    LIST_FOREACH(host, b, bucket)
    if (!strcmp(host->id, id)) {
        TAILQ_REMOVE(&h->by_age, host, age);
        TAILQ_INSERT_TAIL(&h->by_age, host, age);
        host->users++;
        return host;
    }
    host = make_room(h) ? calloc(1, sizeof *host) : NULL;
    if (!host)
        return NULL;
    memcpy(host->id, id, n + 1);
    host->state = take_fresh(h, id) ? HOST_ABSENT : HOST_UNKNOWN;
    host->users = 1;
    TAILQ_INIT(&host->waiters);
    TAILQ_INSERT_TAIL(&h->by_age, host, age);
    LIST_INSERT_HEAD(b, host, bucket);
    h->count++;
    return host;
}

void hosts_put(struct host *host)
{
    host->users--;
}

void hosts_fresh(struct hosts *h, const char *id)
{
    size_t n = strlen(id);
    if (n == 0 || n > SESSION_ID_MAX)
        return;
    pthread_mutex_lock(&h->lock);
    memcpy(h->fresh[h->next_fresh], id, n + 1);
    h->next_fresh = (h->next_fresh + 1) % FRESH_MAX;
    pthread_mutex_unlock(&h->lock);
}
