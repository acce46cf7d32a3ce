#include "store/internal.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* ---- connections ---- */

static enum sg_code migrate(struct store_db *db, struct sg_error *e)
{
    enum sg_code rc = db->backend->begin(db, STORE_DURABLE, e);
    if (!rc)
        rc = db_migrate(db, e);
    if (!rc)
        rc = db->backend->commit(db, e);
    if (rc)
        db->backend->rollback(db);
    return rc;
}

static enum sg_code open_one(struct store *s, bool migrated, struct store_db **out, struct sg_error *e)
{
    struct store_db *db = NULL;
    enum sg_code rc = sqlite_backend.open(&s->options, &db, e);
    if (!rc && !migrated) {
        rc = migrate(db, e);
        if (rc)
            db->backend->close(db);
    }
    *out = rc ? NULL : db;
    return rc;
}

/* Says once that the database cannot be used, and why. */
static void lost(struct store *s, const struct sg_error *e)
{
    sg_log(SG_LOG_ERROR, "store unavailable", "path", "s", s->path, "error", "e", e, NULL);
}

/* With the lock held, which is given up while the database is opened. */
static enum sg_code open_locked(struct store *s, struct store_db **out, struct sg_error *e)
{
    if (s->closed_until_ms && sg_mono_ms() < s->closed_until_ms) {
        *e = s->why;
        return e->code;
    }
    bool migrated = s->migrated;
    s->nopen++;
    pthread_mutex_unlock(&s->lock);
    enum sg_code rc = open_one(s, migrated, out, e);
    pthread_mutex_lock(&s->lock);
    if (!rc) {
        s->migrated = s->path != NULL; /* what was in memory is gone when its one connection is */
        if (s->closed_until_ms)
            sg_log(SG_LOG_INFO, "store available", "path", "s", s->path, NULL);
        s->closed_until_ms = 0;
        return SG_OK;
    }
    s->nopen--;
    if (rc == SG_E_INVALID_FIELD && s->migrated)
        rc = e->code = SG_E_STORE_UNAVAILABLE; /* it was right when we started */
    if (rc != SG_E_INVALID_FIELD &&            /* whoever opens it says that */
        (!s->closed_until_ms || s->why.code != rc || strcmp(s->why.detail, e->detail) != 0))
        lost(s, e);
    s->closed_until_ms = sg_mono_ms() + STORE_REOPEN_MS;
    s->why = *e;
    pthread_cond_signal(&s->given_back); /* whoever waits may try */
    return rc;
}

enum sg_code store_take(struct store *s, struct store_db **out, struct sg_error *e)
{
    enum sg_code rc = SG_OK;
    pthread_mutex_lock(&s->lock);
    while (!s->nidle && s->nopen == s->max_open)
        pthread_cond_wait(&s->given_back, &s->lock);
    if (s->nidle)
        *out = s->idle[--s->nidle];
    else
        rc = open_locked(s, out, e);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

void store_give(struct store *s, struct store_db *db)
{
    bool broken = db->broken;
    if (broken)
        db->backend->close(db);
    pthread_mutex_lock(&s->lock);
    if (broken)
        s->nopen--;
    else
        s->idle[s->nidle++] = db;
    pthread_cond_signal(&s->given_back);
    pthread_mutex_unlock(&s->lock);
}

/* ---- transactions ---- */

enum sg_code store_together(struct store *s, enum store_kind kind, const struct store_part *parts, size_t n,
                            bool *begun, struct sg_error *e)
{
    struct store_db *db;
    bool own_begun;
    if (!begun)
        begun = &own_begun;
    *begun = false;
    enum sg_code rc = store_take(s, &db, e);
    if (rc)
        return rc;
    rc = db->backend->begin(db, kind, e);
    *begun = !rc;
    db->now_ms = 0;
    for (size_t i = 0; i < n && !rc; i++)
        rc = parts[i].fn(db, parts[i].arg, e);
    if (!rc)
        rc = db->backend->commit(db, e);
    if (rc)
        db->backend->rollback(db);
    else if (db->untidy)
        db->backend->tidy(db);
    db->untidy = false;
    store_give(s, db);
    return rc;
}

enum sg_code store_call(struct store *s, enum store_kind kind, store_fn *fn, void *arg, struct sg_error *e)
{
    const struct store_part part = {fn, arg};
    struct sg_error own;
    return store_together(s, kind, &part, 1, NULL, e ? e : &own);
}

bool store_submit(struct store *s, struct store_work *w)
{
    return store_queue_submit(s->queue, w);
}

/* ---- open and close ---- */

static void destroy(struct store *s)
{
    while (s->nidle) {
        struct store_db *db = s->idle[--s->nidle];
        db->backend->close(db);
    }
    pthread_cond_destroy(&s->given_back);
    pthread_mutex_destroy(&s->lock);
    free(s->path);
    free(s);
}

/* All connections at once: later we may have become somebody who cannot open the file. */
static enum sg_code open_all(struct store *s, struct sg_error *e)
{
    enum sg_code rc = SG_OK;
    struct store_db *db[STORE_CONNECTIONS] = {0};
    int n = 0;
    while (n < s->max_open && !(rc = store_take(s, &db[n], e)))
        n++;
    while (n--)
        if (db[n])
            store_give(s, db[n]);
    return rc;
}

enum sg_code store_open(const struct store_options *o, struct store **out, struct sg_error *e)
{
    bool memory = !o->path || !*o->path;
    struct store *s = calloc(1, sizeof *s);
    if (!s)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the state");
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->given_back, NULL);
    s->options = *o;
    s->path = memory ? NULL : strdup(o->path);
    s->options.path = s->path;
    s->max_open = memory ? 1 : STORE_CONNECTIONS;
    s->queue = o->loop ? store_queue_new(s, o->loop) : NULL;
    enum sg_code rc = SG_OK;
    if ((!memory && !s->path) || (o->loop && !s->queue))
        rc = sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the state");
    if (!rc)
        rc = open_all(s, e);
    if (rc == SG_E_STORE_UNAVAILABLE)
        rc = SG_OK; /* logged, and tried again when it is wanted */
    if (!rc) {
        *out = s;
        return SG_OK;
    }
    if (s->queue)
        store_queue_free(s->queue);
    destroy(s);
    return rc;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    if (s->queue)
        store_queue_free(s->queue);
    destroy(s);
}
