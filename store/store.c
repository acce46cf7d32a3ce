#include "store/internal.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BACKOFF_STEPS = 6 }; /* 64 ms */

/* ---- transactions ---- */

static enum sg_code in_transaction(struct store_db *db, enum store_kind kind, const struct store_part *parts,
                                   size_t n, bool *begun, struct sg_error *e)
{
    db->again = db->untidy = false;
    db->now_ms = 0;
    enum sg_code rc = db->backend->begin(db, kind, e);
    *begun = *begun || !rc;
    for (size_t i = 0; i < n && !rc; i++)
        rc = parts[i].fn(db, parts[i].arg, e);
    if (!rc)
        rc = db->backend->commit(db, e);
    if (rc)
        db->backend->rollback(db);
    else if (db->untidy)
        db->backend->tidy(db);
    return rc;
}

static void in_vain(struct store_db *db, enum store_kind kind, const struct store_part *parts, size_t n)
{
    struct sg_error e;
    db->again = db->untidy = false;
    db->now_ms = 0;
    enum sg_code rc = db->backend->begin(db, kind, &e);
    for (size_t i = 0; i < n && !rc; i++)
        rc = parts[i].fn(db, parts[i].arg, &e);
    db->backend->rollback(db);
}

/* *again: nothing happened, and it may be done once more. */
static enum sg_code try_together(struct store *s, enum store_kind kind, const struct store_part *parts,
                                 size_t n, int64_t deadline_ms, bool *begun, bool *again, struct sg_error *e)
{
    bool turn = kind != STORE_READ && s->backend->one_writer;
    struct store_db *db = NULL;
    enum sg_code rc = turn ? pool_turn_take(s, deadline_ms, e) : SG_OK;
    *again = false;
    if (rc)
        return rc;
    rc = pool_take(s, deadline_ms, &db, e);
    if (!rc) {
        if (s->options.rehearse)
            in_vain(db, kind, parts, n);
        rc = in_transaction(db, kind, parts, n, begun, e);
        *again = rc && db->again;
        pool_give(s, db);
    }
    if (turn)
        pool_turn_give(s);
    return rc;
}

/* Those that were in each other's way part by chance; longer every time. */
static void back_off(int attempt)
{
    uint16_t chance = 0;
    int64_t most = INT64_C(1) << (attempt < BACKOFF_STEPS ? attempt : BACKOFF_STEPS); /* ms */
    (void)!sg_random(&chance, sizeof chance);
    int64_t us = most * 1000 * chance / UINT16_MAX;
    const struct timespec t = {.tv_sec = 0, .tv_nsec = (long)us * 1000};
    (void)nanosleep(&t, NULL);
}

enum sg_code store_together(struct store *s, enum store_kind kind, const struct store_part *parts, size_t n,
                            bool *begun, struct sg_error *e)
{
    int64_t deadline = sg_mono_ms() + s->options.busy_ms;
    bool own_begun, again;
    if (!begun)
        begun = &own_begun;
    *begun = false;
    enum sg_code rc = try_together(s, kind, parts, n, deadline, begun, &again, e);
    for (int i = 1; rc && again && sg_mono_ms() < deadline; i++) {
        back_off(i);
        rc = try_together(s, kind, parts, n, deadline, begun, &again, e);
    }
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
    if (s->queue)
        store_queue_free(s->queue);
    pool_free(s);
    free(s->path);
    sg_secret_free(s->url);
    free(s);
}

/* All connections to a file at once: later we may have become somebody who cannot open it. */
static enum sg_code open_first(struct store *s, struct sg_error *e)
{
    enum sg_code rc = SG_OK;
    int wanted = s->url ? 1 : s->max_open, n = 0;
    int64_t deadline = sg_mono_ms() + s->options.busy_ms;
    struct store_db **db = (struct store_db **)calloc((size_t)wanted, sizeof(struct store_db *));
    if (!db)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the state");
    while (n < wanted && !(rc = pool_take(s, deadline, &db[n], e)))
        n++;
    while (n--)
        pool_give(s, db[n]);
    free((void *)db);
    return rc;
}

/* What is given, copied. */
static bool take_options(struct store *s, const struct store_options *o)
{
    bool url = o->url && *o->url, memory = !url && (!o->path || !*o->path);
    s->options = *o;
    s->options.busy_ms = o->busy_ms > 0 ? o->busy_ms : STORE_BUSY_MS;
    s->backend = url ? &postgres_backend : &sqlite_backend;
    s->max_open = memory ? 1 : o->connections > 0 ? (int)o->connections : STORE_CONNECTIONS;
    s->url = url ? sg_secret_new(o->url, strlen(o->url)) : NULL;
    s->path = url || memory ? NULL : strdup(o->path);
    s->options.url = s->url ? sg_secret_bytes(s->url) : NULL;
    s->options.path = s->path;
    return url ? s->url != NULL : memory || s->path;
}

enum sg_code store_open(const struct store_options *o, struct store **out, struct sg_error *e)
{
    struct store *s = calloc(1, sizeof *s);
    bool ok = s && take_options(s, o);
    if (!s || !pool_init(s)) {
        if (s) {
            free((void *)s->idle);
            free(s->path);
            sg_secret_free(s->url);
        }
        free(s);
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the state");
    }
    s->queue = o->loop ? store_queue_new(s, o->loop) : NULL;
    enum sg_code rc = ok && (!o->loop || s->queue)
                          ? open_first(s, e)
                          : sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the state");
    if (rc == SG_E_STORE_UNAVAILABLE)
        rc = SG_OK; /* logged, and tried again when it is wanted */
    if (rc)
        destroy(s);
    else
        *out = s;
    return rc;
}

void store_close(struct store *s)
{
    if (s)
        destroy(s);
}
