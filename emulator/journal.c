#include "emulator/journal.h"
#include "base/clock.h"
#include "emulator/jsontext.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES = 10000 };

struct entry {
    uint64_t seq; /* 0: empty */
    int64_t time_ms;
    char method[12];
    char *path, *query;
    int status; /* -1: none yet */
    char sha256[65];
    uint64_t bytes;
};

struct journal {
    pthread_mutex_t lock;
    uint64_t last, first_kept; /* entries first_kept..last are there */
    uint64_t dropped;
    struct entry ring[ENTRIES];
};

struct journal *journal_new(void)
{
    struct journal *j = calloc(1, sizeof *j);
    if (!j)
        return NULL;
    pthread_mutex_init(&j->lock, NULL);
    j->first_kept = 1;
    return j;
}

static void entry_free(struct entry *e)
{
    free(e->path);
    free(e->query);
    memset(e, 0, sizeof *e);
}

void journal_free(struct journal *j)
{
    if (!j)
        return;
    for (size_t i = 0; i < ENTRIES; i++)
        entry_free(&j->ring[i]);
    pthread_mutex_destroy(&j->lock);
    free(j);
}

uint64_t journal_begin(struct journal *j, const char *method, const char *path, const char *query)
{
    char *p = strdup(path), *q = strdup(query);
    int64_t now = sg_wall_ms();
    pthread_mutex_lock(&j->lock);
    uint64_t seq = ++j->last;
    struct entry *e = &j->ring[seq % ENTRIES];
    if (e->seq) {
        j->dropped++;
        j->first_kept = e->seq + 1;
    }
    entry_free(e);
    e->seq = seq;
    e->time_ms = now;
    snprintf(e->method, sizeof e->method, "%s", method);
    e->path = p;
    e->query = q;
    e->status = -1;
    pthread_mutex_unlock(&j->lock);
    return seq;
}

void journal_body(struct journal *j, uint64_t seq, const char sha256_hex[65], uint64_t bytes)
{
    pthread_mutex_lock(&j->lock);
    struct entry *e = &j->ring[seq % ENTRIES];
    if (e->seq == seq) {
        memcpy(e->sha256, sha256_hex, 65);
        e->bytes = bytes;
    }
    pthread_mutex_unlock(&j->lock);
}

void journal_status(struct journal *j, uint64_t seq, int status)
{
    pthread_mutex_lock(&j->lock);
    struct entry *e = &j->ring[seq % ENTRIES];
    if (e->seq == seq)
        e->status = status;
    pthread_mutex_unlock(&j->lock);
}

void journal_clear(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    for (size_t i = 0; i < ENTRIES; i++)
        entry_free(&j->ring[i]);
    j->first_kept = j->last + 1;
    j->dropped = 0;
    pthread_mutex_unlock(&j->lock);
}

static void render_entry(struct sg_buf *out, const struct entry *e)
{
    sg_buf_addf(out, "{\"seq\":%" PRIu64 ",\"time\":%" PRId64 ",\"method\":", e->seq, e->time_ms);
    jsontext_adds(out, e->method);
    sg_buf_adds(out, ",\"path\":");
    jsontext_adds(out, e->path ? e->path : "");
    sg_buf_adds(out, ",\"query\":");
    jsontext_adds(out, e->query ? e->query : "");
    if (e->status >= 0)
        sg_buf_addf(out, ",\"status\":%d", e->status);
    else
        sg_buf_adds(out, ",\"status\":null");
    if (*e->sha256)
        sg_buf_addf(out, ",\"body_sha256\":\"%s\",\"body_bytes\":%" PRIu64, e->sha256, e->bytes);
    sg_buf_adds(out, "}");
}

void journal_render(struct journal *j, uint64_t after, struct sg_buf *out)
{
    pthread_mutex_lock(&j->lock);
    const char *sep = "";
    sg_buf_adds(out, "{\"entries\":[");
    uint64_t from = after >= j->first_kept ? after + 1 : j->first_kept;
    for (uint64_t seq = from; seq <= j->last; seq++) {
        const struct entry *e = &j->ring[seq % ENTRIES];
        if (e->seq != seq)
            continue;
        sg_buf_adds(out, sep);
        render_entry(out, e);
        sep = ",";
    }
    sg_buf_addf(out, "],\"dropped\":%" PRIu64 "}", j->dropped);
    pthread_mutex_unlock(&j->lock);
}
