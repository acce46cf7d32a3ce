/* That somebody works on a preparation, what the store is told of it, and its log. */
#include "control/prepare_impl.h"

#include "base/clock.h"
#include "store/cleanups.h"
#include "store/retention.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    AT_ONCE_MAX = 64,
    FLUSH_MS = 300,
    FLUSH_BYTES = 16 * 1024,
    LEFT_MS = 10 * 1000, /* within which a builder is deleted by whoever prepared in it */
};

struct prepares *prepares_new(struct control *c, int64_t hold_ms)
{
    struct prepares *all = calloc(1, sizeof *all);
    if (!all)
        return NULL;
    *all = (struct prepares){.c = c, .hold_ms = hold_ms ? hold_ms : PREPARE_HOLD_MS};
    if (!pthread_mutex_init(&all->lock, NULL))
        return all;
    free(all);
    return NULL;
}

void prepares_free(struct prepares *all)
{
    if (!all)
        return;
    (void)pthread_mutex_destroy(&all->lock);
    free(all);
}

int64_t prepares_hold_ms(const struct prepares *all)
{
    return all->hold_ms;
}

/* ---- the store's side ---- */

struct call {
    struct control *c;
    const char *fingerprint, *attempt;
    int64_t hold_ms;
    struct store_prep *row;
    const char *old_snapshot;    /* taken away with the end; NULL: none */
    const char *builder, *alloc; /* likewise, should the gateway die before it does so itself */
    bool held;
    const void *data;
    size_t len;
    int64_t end, after;
};

static enum sg_code hold_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    return store_prep_hold(db, k->c->upstream, k->fingerprint, k->attempt, k->hold_ms, &k->held, e);
}

static enum sg_code builder_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    return store_prep_builder(db, k->c->upstream, k->row, &k->held, e);
}

static enum sg_code end_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    enum sg_code rc = store_prep_end(db, k->c->upstream, k->row, &k->held, e);
    if (!rc && k->held && *k->row->snapshot_id)
        rc = store_snapshot_name_put(db, k->c->upstream, k->row->snapshot_id, SNAPSHOT_BY_TEMPLATE,
                                     k->row->fingerprint, e);
    if (!rc && k->held && *k->builder) {
        struct store_cleanup left = {.kind = CLEANUP_SANDBOX, .why = "the builder of a template"};
        (void)snprintf(left.target, sizeof left.target, "%s", k->builder);
        (void)snprintf(left.alloc, sizeof left.alloc, "%s", k->alloc);
        rc = store_cleanup_put(db, k->c->upstream, &left, LEFT_MS, LEFT_MS, e);
    }
    if (rc || !k->held || !k->old_snapshot)
        return rc;
    return prepare_release(db, k->c->upstream, k->old_snapshot, k->row->fingerprint, e);
}

enum sg_code prepare_release(struct store_db *db, const char *upstream, const char *snapshot_id,
                             const char *fingerprint, struct sg_error *e)
{
    struct store_release r = {.sandbox = ""};
    (void)snprintf(r.snapshot_id, sizeof r.snapshot_id, "%s", snapshot_id);
    enum sg_code rc =
        store_snapshot_name_drop(db, upstream, snapshot_id, SNAPSHOT_BY_TEMPLATE, fingerprint, e);
    return rc ? rc : store_release_put(db, upstream, &r, e);
}

static enum sg_code leave_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    return store_prep_leave(db, k->c->upstream, k->fingerprint, k->attempt, e);
}

static enum sg_code log_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    k->after = k->end; /* this may run again */
    return store_prep_log(db, k->c->upstream, k->fingerprint, k->attempt, &k->after, k->data, k->len, e);
}

static enum sg_code in_store(struct prepare *p, enum store_kind kind, store_fn *fn, struct call *k,
                             struct sg_error *e)
{
    k->c = p->c;
    k->fingerprint = p->row.fingerprint;
    k->attempt = p->row.attempt;
    return store_call(p->c->store, kind, fn, k, e);
}

enum sg_code prepare_note_builder(struct prepare *p, bool *held, struct sg_error *e)
{
    struct call k = {.row = &p->row};
    enum sg_code rc = in_store(p, STORE_DURABLE, builder_fn, &k, e);
    *held = k.held;
    return rc;
}

enum sg_code prepare_note_end(struct prepare *p, const char *builder, const char *alloc,
                              const char *old_snapshot, bool *held, struct sg_error *e)
{
    struct call k = {.row = &p->row, .builder = builder, .alloc = alloc, .old_snapshot = old_snapshot};
    enum sg_code rc = in_store(p, STORE_DURABLE, end_fn, &k, e);
    *held = k.held;
    return rc;
}

enum sg_code prepare_note_leave(struct prepare *p, struct sg_error *e)
{
    struct call k = {0};
    return in_store(p, STORE_WRITE, leave_fn, &k, e);
}

/* ---- that somebody works on it ---- */

void prepare_add(struct prepare *p)
{
    (void)pthread_mutex_lock(&p->all->lock);
    p->next = p->all->first;
    p->all->first = p;
    (void)pthread_mutex_unlock(&p->all->lock);
}

void prepare_take_off(struct prepare *p)
{
    (void)pthread_mutex_lock(&p->all->lock);
    struct prepare **at = &p->all->first;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    (void)pthread_mutex_unlock(&p->all->lock);
}

struct held {
    char fingerprint[TEMPLATE_PRINT_TEXT], attempt[TEMPLATE_ATTEMPT_TEXT];
};

static void mark_lost(struct prepares *all, const char *attempt)
{
    (void)pthread_mutex_lock(&all->lock);
    for (struct prepare *p = all->first; p; p = p->next)
        if (!strcmp(p->row.attempt, attempt))
            atomic_store(&p->lost, true);
    (void)pthread_mutex_unlock(&all->lock);
}

void prepares_hold(struct prepares *all)
{
    struct held rows[AT_ONCE_MAX];
    size_t n = 0;
    (void)pthread_mutex_lock(&all->lock);
    for (const struct prepare *p = all->first; p && n < AT_ONCE_MAX; p = p->next, n++) {
        memcpy(rows[n].fingerprint, p->row.fingerprint, sizeof rows[n].fingerprint);
        memcpy(rows[n].attempt, p->row.attempt, sizeof rows[n].attempt);
    }
    (void)pthread_mutex_unlock(&all->lock);
    for (size_t i = 0; i < n; i++) {
        struct sg_error e;
        struct call k = {.c = all->c,
                         .fingerprint = rows[i].fingerprint,
                         .attempt = rows[i].attempt,
                         .hold_ms = all->hold_ms};
        /* a store that is away lets the hold run out; what comes of it is seen at the end */
        if (!store_call(all->c->store, STORE_WRITE, hold_fn, &k, &e) && !k.held)
            mark_lost(all, rows[i].attempt);
    }
}

/* Between two things that are done: may the next one begin? */
enum sg_code prepare_go_on(struct prepare *p, struct sg_error *e)
{
    if (jobs_stopping(p->c->jobs))
        return sg_fail(e, SG_E_DRAINING, SG_NOT_STARTED, "the gateway is shutting down");
    if (atomic_load(&p->lost))
        return sg_fail(e, SG_E_UPSTREAM_CONFLICT, SG_NOT_STARTED,
                       "another gateway took the preparation over");
    return SG_OK;
}

/* ---- the log ---- */

void prepare_flush(struct prepare *p)
{
    struct sg_error e;
    for (size_t at = 0; at < p->log.len;) {
        size_t len = p->log.len - at < TEMPLATE_LOG_PIECE ? p->log.len - at : TEMPLATE_LOG_PIECE;
        struct call k = {.data = p->log.data + at, .len = len, .end = p->log_end};
        if (!in_store(p, STORE_WRITE, log_fn, &k, &e)) /* without a store this piece is not told */
            p->log_end = k.after;
        at += len;
    }
    sg_buf_reset(&p->log);
    p->flushed_ms = sg_mono_ms();
}

void prepare_output(void *arg, int stream, const void *data, size_t len)
{
    struct prepare *p = arg;
    (void)stream;
    if (len && !sg_buf_add(&p->log, data, len)) {
        p->log.failed = false;
        prepare_flush(p);
        (void)sg_buf_add(&p->log, data, len);
        p->log.failed = false;
    }
    if (len)
        p->in_line = ((const char *)data)[len - 1] != '\n';
    if (p->log.len >= FLUSH_BYTES || (p->log.len && sg_mono_ms() - p->flushed_ms >= FLUSH_MS))
        prepare_flush(p);
}

void prepare_say(struct prepare *p, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (p->in_line)
        prepare_output(p, 0, "\n", 1);
    prepare_output(p, 0, "[sandgate] ", 11);
    prepare_output(p, 0, line, strlen(line));
    prepare_output(p, 0, "\n", 1);
    prepare_flush(p); /* where it stands is known to whoever takes over, and reads it */
}

/* What the steps of this preparation are told by: output begins a line where it is the gateway's. */
void prepare_output_inside(void *arg, int stream, const void *data, size_t len)
{
    struct prepare *p = arg;
    static const char mark[] = "[sandgate] ";
    if (p->in_line && len >= sizeof mark - 1 && !memcmp(data, mark, sizeof mark - 1))
        prepare_output(p, 0, "\n", 1);
    prepare_output(p, stream, data, len);
}
