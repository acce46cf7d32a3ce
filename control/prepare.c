#include "control/prepare.h"

#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"
#include "control/cleanups.h"
#include "control/command.h"
#include "control/control.h"
#include "control/fields.h"
#include "control/sweep.h"
#include "control/tags.h"
#include "guestlink/guestlink.h"
#include "store/retention.h"
#include "vercel/snapshots.h"

#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    AT_ONCE_MAX = 64,
    LIST_MAX = 10, /* snapshots of a builder, which has one at most */
    FLUSH_MS = 300,
    FLUSH_BYTES = 16 * 1024,
    LOST_CREATE_MS = 5000,      /* a builder whose answer was lost is looked for so long */
    BEGIN_MS = 5 * 60 * 1000,   /* for its session to run */
    LOST_CAPTURE_MS = 6 * 1000, /* a capture whose answer was lost, where nothing shows that it goes on */
    CAPTURE_MS = 10 * 60 * 1000,
    POLL_MS = 500,
    SPARE_MS = 30 * 60 * 1000, /* the intended clean-up comes so long after the builder's own end */
};

struct prepare {
    struct prepare *next;
    struct prepares *all;
    struct control *c;
    const struct prepare_order *o;
    struct store_prep row;
    atomic_bool lost; /* somebody else works on it by now */
    char session_id[CONTROL_SESSION_TEXT], *cwd;
    struct sg_buf log; /* not yet in the store */
    int64_t log_end, flushed_ms;
    bool in_doubt; /* there may be a capture that nobody knows of */
    bool in_line;  /* the log does not stand at the beginning of a line */
};

struct prepares {
    struct control *c;
    int64_t hold_ms;
    pthread_mutex_t lock; /* guards the list; not held over calls */
    struct prepare *first;
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
    const char *old_snapshot; /* taken away with the end; NULL: none */
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

/* ---- that somebody works on it ---- */

static void add(struct prepare *p)
{
    (void)pthread_mutex_lock(&p->all->lock);
    p->next = p->all->first;
    p->all->first = p;
    (void)pthread_mutex_unlock(&p->all->lock);
}

static void take_off(struct prepare *p)
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
static enum sg_code go_on(struct prepare *p, struct sg_error *e)
{
    if (jobs_stopping(p->c->jobs))
        return sg_fail(e, SG_E_DRAINING, SG_NOT_STARTED, "the gateway is shutting down");
    if (atomic_load(&p->lost))
        return sg_fail(e, SG_E_UPSTREAM_CONFLICT, SG_NOT_STARTED,
                       "another gateway took the preparation over");
    return SG_OK;
}

/* ---- the log ---- */

static void flush(struct prepare *p)
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

static void on_output(void *arg, int stream, const void *data, size_t len)
{
    struct prepare *p = arg;
    (void)stream;
    if (len && !sg_buf_add(&p->log, data, len)) {
        p->log.failed = false;
        flush(p);
        (void)sg_buf_add(&p->log, data, len);
        p->log.failed = false;
    }
    if (len)
        p->in_line = ((const char *)data)[len - 1] != '\n';
    if (p->log.len >= FLUSH_BYTES || (p->log.len && sg_mono_ms() - p->flushed_ms >= FLUSH_MS))
        flush(p);
}

static void say(struct prepare *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct prepare *p, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (p->in_line)
        on_output(p, 0, "\n", 1);
    on_output(p, 0, "[sandgate] ", 11);
    on_output(p, 0, line, strlen(line));
    on_output(p, 0, "\n", 1);
}

/* What the steps of this preparation are told by: output begins a line where it is the gateway's. */
static void on_inside(void *arg, int stream, const void *data, size_t len)
{
    struct prepare *p = arg;
    static const char mark[] = "[sandgate] ";
    if (p->in_line && len >= sizeof mark - 1 && !memcmp(data, mark, sizeof mark - 1))
        on_output(p, 0, "\n", 1);
    on_output(p, stream, data, len);
}

/* ---- the builder ---- */

static void keep_in_mind(struct prepare *p, const char *name, const char *alloc, const char *why)
{
    struct sg_error e;
    if (cleanup_sandbox(p->c, name, alloc, why, &e)) /* the one that was intended stays */
        sg_log(SG_LOG_WARN, "builder not remembered", "sandbox", "s", name, "error", "e", &e, NULL);
}

/* Its name is random and nobody else's, so it needs no comparison.  `late`: its create may still arrive. */
static void remove_builder(struct prepare *p, const char *name, const char *alloc, bool late, const char *why)
{
    struct sg_error e;
    enum sg_code rc = vercel_delete(p->c->vercel, name, false, &e);
    if ((rc && rc != SG_E_SANDBOX_NOT_FOUND) || (rc && late)) {
        keep_in_mind(p, name, alloc, why);
        return;
    }
    if (cleanup_forget(p->c, name, alloc, &e)) /* it is looked for in vain later on */
        sg_log(SG_LOG_WARN, "clean-up not forgotten", "sandbox", "s", name, "error", "e", &e, NULL);
}

static void drop_snapshot(struct control *c, const char *id, const char *why)
{
    struct sg_error e;
    if (!cleanup_snapshot(c, id, why, &e))
        return;
    if (vercel_snapshot_delete(c->vercel, id, &e) && e.code != SG_E_SNAPSHOT_NOT_FOUND)
        sg_log(SG_LOG_ERROR, "snapshot left behind", "snapshot", "s", id, "error", "e", &e, NULL);
}

/* Afterwards no capture of it can begin any more. */
static void end_session(struct prepare *p, const char *name)
{
    struct vercel_sandbox s;
    struct sg_error e;
    if (vercel_get(p->c->vercel, name, false, &s, &e))
        return;
    if (s.session_id && vercel_stop(p->c->vercel, s.session_id, &e)) /* it ends with the builder anyhow */
        sg_log(SG_LOG_INFO, "builder not stopped", "sandbox", "s", name, "error", "e", &e, NULL);
    vercel_sandbox_clear(&s);
}

/* Snapshots of a builder that nobody knows of, or will. */
static void drop_captures(struct prepare *p, const char *name, const char *why)
{
    struct vercel_snapshot_page page;
    struct sg_error e;
    end_session(p, name);
    if (vercel_snapshot_list(p->c->vercel, name, LIST_MAX, NULL, &page, &e))
        return;
    for (size_t i = 0; i < page.n; i++)
        if (page.items[i].status == VERCEL_SNAPSHOT_CREATED)
            drop_snapshot(p->c, page.items[i].id, why);
    vercel_snapshot_page_clear(&page);
}

/* What a gateway left that died while it prepared: the builder, and a capture that was not noted any more. */
static void remove_left(struct prepare *p, const struct store_prep *was)
{
    static const char why[] = "the gateway that prepared a template has died";
    if (!*was->builder)
        return;
    drop_captures(p, was->builder, why);
    remove_builder(p, was->builder, was->alloc, true, why);
}

static enum sg_code builder_body(const struct prepare *p, json_t **out, struct sg_error *e)
{
    static const struct field_retention keep = {.keep = 1};
    json_t *body = json_deep_copy(p->o->spec->create), *tags = json_object();
    int bad = json_object_set_new(body, "name", json_string(p->row.builder));
    bad |= json_object_set_new(body, "persistent", json_false());
    bad |= json_object_set_new(body, "timeout", json_integer(p->o->spec->timeout_ms));
    /* whatever sandboxes made from it may reach later */
    bad |= json_object_set_new(body, "networkPolicy", json_pack("{ss}", "mode", "allow-all"));
    bad |= json_object_set(body, "tags", tags);
    enum sg_code rc = bad ? sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the builder") : SG_OK;
    if (!rc)
        rc = field_retention_put(&keep, body, e);
    if (!rc)
        rc = control_tags_add(tags, *p->o->owner ? p->o->owner : NULL, p->row.alloc, e);
    json_decref(tags);
    if (rc) {
        json_decref(body);
        return rc;
    }
    *out = body;
    return SG_OK;
}

static void take_builder(struct prepare *p, const struct vercel_sandbox *s)
{
    const char *cwd = s->session_cwd ? s->session_cwd : s->cwd;
    (void)snprintf(p->session_id, sizeof p->session_id, "%s", s->session_id ? s->session_id : "");
    (void)snprintf(p->row.region, sizeof p->row.region, "%s", s->region ? s->region : "");
    (void)snprintf(p->row.architecture, sizeof p->row.architecture, "%s",
                   s->architecture ? s->architecture : "");
    (void)snprintf(p->row.image, sizeof p->row.image, "%s", s->image ? s->image : "");
    free(p->cwd);
    p->cwd = cwd ? strdup(cwd) : NULL;
}

static enum sg_code pause_for(struct prepare *p, struct sg_error *e)
{
    (void)poll(NULL, 0, POLL_MS);
    return go_on(p, e);
}

/* The create's answer was lost: it is found by its name, which nobody else has. */
static enum sg_code find_builder(struct prepare *p, struct vercel_sandbox *s, struct sg_error *e)
{
    struct sg_error why = *e, own;
    int64_t until = sg_mono_ms() + LOST_CREATE_MS;
    for (;;) {
        enum sg_code rc = vercel_get(p->c->vercel, p->row.builder, false, s, &own);
        if (!rc && control_is_alloc(s, p->row.alloc))
            return SG_OK;
        if (!rc)
            vercel_sandbox_clear(s);
        if (sg_mono_ms() >= until || pause_for(p, &own)) {
            *e = why;
            return e->code;
        }
    }
}

static bool is_over(enum vercel_status s)
{
    return s == VERCEL_STOPPED || s == VERCEL_FAILED || s == VERCEL_ABORTED || s == VERCEL_STOPPING ||
           s == VERCEL_SNAPSHOTTING;
}

/* Until its session runs. */
static enum sg_code await_builder(struct prepare *p, struct vercel_sandbox *s, struct sg_error *e)
{
    int64_t until = sg_mono_ms() + BEGIN_MS;
    enum sg_code rc = SG_OK;
    while (!rc) {
        enum vercel_status status = s->session_status != VERCEL_STATUS_OTHER ? s->session_status : s->status;
        take_builder(p, s);
        vercel_sandbox_clear(s);
        if (status == VERCEL_RUNNING && *p->session_id && p->cwd)
            return SG_OK;
        if (is_over(status) || sg_mono_ms() >= until)
            return sg_fail(e, SG_E_UPSTREAM_UNAVAILABLE, SG_STARTED, "the builder did not begin: it is %s",
                           vercel_status_name(status));
        rc = pause_for(p, e);
        if (!rc)
            rc = vercel_get(p->c->vercel, p->row.builder, false, s, e);
    }
    return rc;
}

static enum sg_code allocate(struct prepare *p, bool *late, struct sg_error *e)
{
    char name[64];
    struct vercel_sandbox s;
    json_t *body = NULL;
    if (!sg_random_id(name, "template-", 20))
        return sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "no randomness for a name");
    (void)snprintf(p->row.builder, sizeof p->row.builder, "%s", name);
    enum sg_code rc = control_alloc(p->c, NULL, p->row.alloc, e);
    if (!rc)
        rc = builder_body(p, &body, e);
    if (!rc)
        rc = cleanup_intend(p->c, p->row.builder, p->row.alloc, p->o->spec->timeout_ms + SPARE_MS,
                            "the builder of a template", e);
    struct call k = {.row = &p->row};
    if (!rc)
        rc = in_store(p, STORE_DURABLE, builder_fn, &k, e);
    if (!rc && !k.held)
        rc = sg_fail(e, SG_E_UPSTREAM_CONFLICT, SG_NOT_SENT, "another gateway took the preparation over");
    if (rc) {
        json_decref(body);
        return rc;
    }
    say(p, "allocating a builder");
    rc = vercel_create(p->c->vercel, body, &s, e);
    json_decref(body);
    if (rc && e->outcome != SG_NOT_SENT && e->outcome != SG_NOT_STARTED) {
        *late = true;
        rc = find_builder(p, &s, e);
        *late = rc != SG_OK;
    }
    return rc ? rc : await_builder(p, &s, e);
}

/* ---- the capture ---- */

static enum sg_code take_snapshot(struct prepare *p, const struct vercel_snapshot *s, struct sg_error *e)
{
    if (snprintf(p->row.snapshot_id, sizeof p->row.snapshot_id, "%s", s->id) >=
        (int)sizeof p->row.snapshot_id) {
        p->row.snapshot_id[0] = '\0';
        return sg_fail(e, SG_E_UPSTREAM_BAD_RESPONSE, SG_STARTED, "the snapshot's id is too long");
    }
    if (s->region)
        (void)snprintf(p->row.region, sizeof p->row.region, "%s", s->region);
    if (s->architecture)
        (void)snprintf(p->row.architecture, sizeof p->row.architecture, "%s", s->architecture);
    return SG_OK;
}

/* The builder's own snapshot, if there is one by now. */
static enum sg_code look_for_snapshot(struct prepare *p, bool *found, struct sg_error *e)
{
    struct vercel_snapshot_page page;
    *found = false;
    enum sg_code rc = vercel_snapshot_list(p->c->vercel, p->row.builder, LIST_MAX, NULL, &page, e);
    if (rc)
        return rc;
    for (size_t i = 0; i < page.n && !rc && !*found; i++) {
        const struct vercel_snapshot *s = &page.items[i];
        if (s->status != VERCEL_SNAPSHOT_CREATED || !s->source_session_id ||
            strcmp(s->source_session_id, p->session_id) != 0)
            continue;
        *found = true;
        rc = take_snapshot(p, s, e);
    }
    vercel_snapshot_page_clear(&page);
    return rc;
}

static bool still_captures(struct prepare *p)
{
    struct vercel_sandbox s;
    struct sg_error e;
    if (vercel_get(p->c->vercel, p->row.builder, false, &s, &e))
        return false;
    bool on = s.session_status == VERCEL_SNAPSHOTTING || s.session_status == VERCEL_STOPPING;
    vercel_sandbox_clear(&s);
    return on;
}

/* The answer was lost. */
static enum sg_code find_snapshot(struct prepare *p, struct sg_error *e)
{
    struct sg_error why = *e, own;
    int64_t began = sg_mono_ms(), quiet = began;
    for (;;) {
        bool found = false;
        enum sg_code rc = look_for_snapshot(p, &found, &own);
        if (found) {
            if (rc)
                *e = own;
            return rc;
        }
        int64_t now = sg_mono_ms();
        if (still_captures(p))
            quiet = now;
        if (now - quiet >= LOST_CAPTURE_MS || now - began >= CAPTURE_MS || pause_for(p, &own)) {
            *e = why;
            return e->code;
        }
    }
}

/* What steps printed and were told is nothing for those who start from it. */
static void wipe_records(struct prepare *p)
{
    char dir[sizeof GUEST_ROOT + CONTROL_SESSION_TEXT];
    (void)snprintf(dir, sizeof dir, "%s/%s", GUEST_ROOT, p->session_id);
    const char *const argv[] = {"rm", "-rf", "--", dir, NULL};
    struct sg_error e;
    int exit_code = -1;
    enum sg_code rc = control_command(p->c, p->session_id, argv, true, &exit_code, &e);
    if (rc || exit_code > 0) /* the helper removes what is of other sessions when it first runs */
        say(p, "the records of the steps could not be removed from the snapshot%s%.200s", rc ? ": " : "",
            rc ? e.detail : "");
}

static enum sg_code capture(struct prepare *p, struct sg_error *e)
{
    struct vercel_snapshot s;
    say(p, "capturing");
    wipe_records(p);
    enum sg_code rc = go_on(p, e);
    if (rc)
        return rc;
    rc = vercel_snapshot_take(p->c->vercel, p->session_id, 0, &s, e);
    if (!rc) {
        rc = take_snapshot(p, &s, e);
        vercel_snapshot_clear(&s);
        return rc;
    }
    if (e->outcome == SG_NOT_SENT || e->outcome == SG_NOT_STARTED)
        return rc;
    rc = find_snapshot(p, e);
    p->in_doubt = rc != SG_OK;
    return rc;
}

/* ---- the whole ---- */

static void identify(struct prepare *p)
{
    unsigned char digest[32];
    char text[TEMPLATE_PRINT_TEXT + sizeof p->row.image + 64];
    (void)snprintf(text, sizeof text, "%s\n%s\n%s\n%s", p->row.fingerprint, p->row.image, p->row.region,
                   p->row.architecture);
    sg_sha256(text, strlen(text), digest);
    sg_hex(p->row.identity, digest, sizeof digest);
}

enum sg_code prepare_usable(struct control *c, const char *snapshot_id, struct sg_error *e)
{
    struct vercel_snapshot s;
    enum sg_code rc = vercel_snapshot_get(c->vercel, snapshot_id, &s, e);
    if (rc == SG_E_SNAPSHOT_NOT_FOUND)
        return sg_fail(e, SG_E_SNAPSHOT_GONE, SG_NOT_STARTED, "snapshot %.64s is gone", snapshot_id);
    if (rc)
        return rc;
    bool usable = s.status == VERCEL_SNAPSHOT_CREATED;
    vercel_snapshot_clear(&s);
    return usable ? SG_OK
                  : sg_fail(e, SG_E_SNAPSHOT_GONE, SG_NOT_STARTED, "snapshot %.64s is gone", snapshot_id);
}

/* Everything was resolved to what it was before, and that is still there. */
static bool nothing_new(struct prepare *p)
{
    const struct store_prep *was = p->o->was;
    struct sg_error e;
    return p->o->refresh && was->state == PREP_READY && !strcmp(was->identity, p->row.identity) &&
           !prepare_usable(p->c, was->snapshot_id, &e);
}

static enum sg_code build(struct prepare *p, bool *late, struct sg_error *e)
{
    enum sg_code rc = allocate(p, late, e);
    if (rc)
        return rc;
    identify(p);
    if (nothing_new(p)) {
        say(p, "nothing has changed");
        (void)snprintf(p->row.snapshot_id, sizeof p->row.snapshot_id, "%s", p->o->was->snapshot_id);
        return SG_OK;
    }
    const struct step_session s = {.sandbox = p->row.builder,
                                   .session_id = p->session_id,
                                   .cwd = p->cwd,
                                   .arch = *p->row.architecture ? p->row.architecture : NULL};
    char id[40];
    (void)snprintf(id, sizeof id, "tmpl-%.24s", p->row.attempt);
    rc = steps_base_check(p->c, &s, e);
    if (!rc)
        rc = prepare_inside(p->c, p->o->spec, &s, id, on_inside, p, e);
    if (!rc)
        rc = go_on(p, e);
    if (!rc)
        rc = steps_base_check_again(p->c, &s, e); /* the steps may have taken something away */
    if (!rc)
        rc = capture(p, e);
    if (!rc)
        identify(p);
    return rc;
}

/* What the caller is told of a failure: not what it was of the builder, which is nobody's business. */
static void translate(struct sg_error *e)
{
    char why[sizeof e->detail];
    switch ((int)e->code) {
    case SG_E_STEP_FAILED:
        e->code = SG_E_TEMPLATE_FAILED;
        break;
    case SG_E_STALE_SESSION: /* its time ran out, or somebody deleted it */
    case SG_E_SANDBOX_NOT_RUNNING:
    case SG_E_SANDBOX_NOT_FOUND:
    case SG_E_SANDBOX_TRANSITION:
    case SG_E_UPSTREAM_NOT_FOUND:
        (void)snprintf(why, sizeof why, "%s", e->detail);
        (void)sg_fail(e, SG_E_TEMPLATE_FAILED, e->outcome, "the builder ended before it was done: %.180s",
                      why);
        break;
    default:
        break;
    }
}

static void note_failure(struct prepare *p, struct sg_error *e)
{
    const struct store_prep *was = p->o->was;
    translate(e);
    const struct sg_error_row *row = sg_error_row(e->code);
    e->outcome = SG_NOT_STARTED; /* of what the caller wants it for */
    say(p, "failed: %.300s", e->detail);
    if (p->o->refresh && was->state == PREP_READY) { /* what there was is as good as before */
        char attempt[TEMPLATE_ATTEMPT_TEXT];
        memcpy(attempt, p->row.attempt, sizeof attempt);
        p->row = *was;
        memcpy(p->row.attempt, attempt, sizeof attempt);
    } else {
        p->row.state = PREP_FAILED;
        p->row.snapshot_id[0] = '\0';
    }
    (void)snprintf(p->row.error, sizeof p->row.error, "%s", row ? row->code : "internal");
    (void)snprintf(p->row.detail, sizeof p->row.detail, "%s", e->detail);
}

/* Into the store; what cannot be noted is taken away again. */
static enum sg_code finish(struct prepare *p, enum sg_code rc, struct sg_error *e)
{
    struct sg_error own;
    const char *made = *p->row.snapshot_id ? p->row.snapshot_id : NULL;
    char snapshot[TEMPLATE_ID_TEXT] = "", builder[64], alloc[65];
    const struct store_prep *was = p->o->was;
    (void)snprintf(builder, sizeof builder, "%s", p->row.builder);
    (void)snprintf(alloc, sizeof alloc, "%s", p->row.alloc);
    if (made && strcmp(made, was->snapshot_id) != 0)
        (void)snprintf(snapshot, sizeof snapshot, "%s", made);
    if (rc == SG_E_DRAINING || atomic_load(&p->lost)) {
        struct call k = {0};
        flush(p);
        if (in_store(p, STORE_WRITE, leave_fn, &k, &own)) /* the next one waits until the hold runs out */
            sg_log(SG_LOG_WARN, "preparation not left", "error", "e", &own, NULL);
    } else {
        struct call k = {.row = &p->row};
        if (rc)
            note_failure(p, e);
        else
            p->row.state = PREP_READY;
        if (*was->snapshot_id && strcmp(p->row.snapshot_id, was->snapshot_id) != 0)
            k.old_snapshot = was->snapshot_id;
        if (!rc)
            say(p, "ready");
        flush(p);
        enum sg_code noted = in_store(p, STORE_DURABLE, end_fn, &k, &own);
        if (!noted && !k.held)
            noted = sg_fail(&own, SG_E_UPSTREAM_CONFLICT, SG_NOT_STARTED,
                            "another gateway took the preparation over");
        if (!rc && noted) {
            *e = own;
            rc = noted;
        }
    }
    if (rc && *snapshot)
        drop_snapshot(p->c, snapshot, "its preparation failed");
    (void)snprintf(p->row.builder, sizeof p->row.builder, "%s", builder);
    (void)snprintf(p->row.alloc, sizeof p->row.alloc, "%s", alloc);
    return rc ? e->code : SG_OK;
}

enum sg_code prepare_run(struct prepares *all, const struct prepare_order *o, struct store_prep *out,
                         struct sg_error *e)
{
    struct prepare p = {.all = all, .c = all->c, .o = o, .flushed_ms = sg_mono_ms()};
    bool late = false;
    (void)snprintf(p.row.fingerprint, sizeof p.row.fingerprint, "%s", o->spec->fingerprint);
    (void)snprintf(p.row.attempt, sizeof p.row.attempt, "%s", o->attempt);
    sg_buf_init(&p.log, TEMPLATE_LOG_PIECE);
    add(&p);
    remove_left(&p, o->was);
    enum sg_code rc = build(&p, &late, e);
    rc = finish(&p, rc, e);
    take_off(&p);
    if (*p.row.builder && p.in_doubt)
        drop_captures(&p, p.row.builder, "its preparation failed");
    if (*p.row.builder)
        remove_builder(&p, p.row.builder, p.row.alloc, late, "the builder of a template");
    control_sweep_kick(p.c);
    if (!rc)
        *out = p.row;
    sg_buf_free(&p.log);
    free(p.cwd);
    return rc;
}

void prepare_abandon(struct prepares *all, const char *attempt, const struct store_prep *was)
{
    const struct prepare_order o = {.attempt = attempt, .was = was, .owner = ""};
    struct prepare p = {.all = all, .c = all->c, .o = &o};
    struct sg_error e;
    (void)snprintf(p.row.fingerprint, sizeof p.row.fingerprint, "%s", was->fingerprint);
    (void)snprintf(p.row.attempt, sizeof p.row.attempt, "%s", attempt);
    sg_buf_init(&p.log, TEMPLATE_LOG_PIECE);
    add(&p);
    remove_left(&p, was);
    (void)sg_fail(&e, PREPARE_ABANDONED, SG_NOT_STARTED, "the gateway that prepared it has died");
    if (finish(&p, e.code, &e) == PREPARE_ABANDONED)
        sg_log(SG_LOG_WARN, "preparation abandoned", "fingerprint", "s", was->fingerprint, NULL);
    take_off(&p);
    sg_buf_free(&p.log);
}
