#include "control/flights.h"

#include "base/log.h"
#include "base/workers.h"
#include "control/cleanups.h"
#include "control/control.h"
#include "control/prepare.h"
#include "control/retention.h"
#include "control/sweep.h"
#include "control/templates.h"
#include "store/locks.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POLL_FIRST_MS = 50, POLL_MAX_MS = 500, OWNER_TEXT = 64 };

struct guest_of { /* somebody who waits without a thread */
    struct guest_of *next;
    flight_done_fn *done;
    void *arg;
};

struct flight {
    struct flight *next;
    struct templates *all;
    struct work work;
    struct template_spec spec;
    char owner[OWNER_TEXT], gone[TEMPLATE_ID_TEXT];
    bool refresh, verify;
    unsigned refs; /* of threads that wait, and of the work */
    bool over;
    struct flight_end end;
    pthread_cond_t changed;
    struct guest_of *guests;
};

struct templates {
    struct control *c;
    struct prepares *prepares;
    struct workers *pool;
    struct job *hold, *rest; /* apart: the one may not wait for the upstream */
    pthread_mutex_t lock;    /* guards the list and what is in it; not held over calls */
    struct flight *flights;
};

/* ---- one flight: until it is prepared, by whomever ---- */

struct call {
    const char *upstream, *fingerprint;
    struct store_prep_claim *claim;
    struct store_prep *prep;
    bool found;
};

static enum sg_code claim_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    return store_prep_claim(db, k->upstream, k->claim, e);
}

static enum sg_code get_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct call *k = arg;
    return store_prep_get(db, k->upstream, k->fingerprint, k->prep, &k->found, e);
}

static enum sg_code code_of(const char *name)
{
    for (enum sg_code c = SG_OK + 1; c < SG_CODE_COUNT; c++)
        if (!strcmp(sg_error_row(c)->code, name))
            return c;
    return SG_E_TEMPLATE_FAILED;
}

/* What another gateway noted of its failure. */
static enum sg_code failed_elsewhere(const struct store_prep *p, struct sg_error *e)
{
    return sg_fail(e, code_of(p->error), SG_NOT_STARTED, "%s", p->detail);
}

/* Another one works on it: until it does no more.  *retry: then it is claimed again. */
static enum sg_code await(struct flight *f, const struct store_prep *busy, bool *retry, struct sg_error *e)
{
    struct control *c = f->all->c;
    struct store_prep now;
    *retry = false;
    for (int pause_ms = POLL_FIRST_MS;; pause_ms = pause_ms * 2 < POLL_MAX_MS ? pause_ms * 2 : POLL_MAX_MS) {
        struct call k = {c->upstream, f->spec.fingerprint, NULL, &now, false};
        (void)poll(NULL, 0, pause_ms);
        if (jobs_stopping(c->jobs))
            return sg_fail(e, SG_E_DRAINING, SG_NOT_STARTED, "the gateway is shutting down");
        enum sg_code rc = control_in_store(c, STORE_READ, get_fn, &k, e);
        if (rc)
            return rc;
        bool same = k.found && !strcmp(now.attempt, busy->attempt);
        if (same && now.state == PREP_FAILED && code_of(now.error) != PREPARE_ABANDONED)
            return failed_elsewhere(&now, e);
        /* whether it is still held is for the database's clock to say, which a claim asks */
        if (!same || now.state != PREP_RUNNING || pause_ms == POLL_MAX_MS) {
            *retry = true;
            return SG_OK;
        }
    }
}

static enum sg_code prepare(struct flight *f, const struct store_prep_claim *claim, struct store_prep *out,
                            struct sg_error *e)
{
    const struct prepare_order o = {.spec = &f->spec,
                                    .owner = f->owner,
                                    .attempt = claim->attempt,
                                    .was = &claim->was,
                                    .refresh = f->refresh};
    return prepare_run(f->all->prepares, &o, out, e);
}

static enum sg_code fly(struct flight *f, struct store_prep *out, struct sg_error *e)
{
    struct control *c = f->all->c;
    char attempt[STORE_OWNER_TEXT];
    char gone[TEMPLATE_ID_TEXT];
    bool refresh = f->refresh;
    memcpy(gone, f->gone, sizeof gone);
    if (!store_owner(attempt))
        return sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "no randomness");
    for (;;) {
        struct store_prep_claim claim = {.fingerprint = f->spec.fingerprint,
                                         .attempt = attempt,
                                         .hold_ms = prepares_hold_ms(f->all->prepares),
                                         .gone = *gone ? gone : NULL,
                                         .anew = refresh};
        struct call k = {.upstream = c->upstream, .claim = &claim};
        if (jobs_stopping(c->jobs))
            return sg_fail(e, SG_E_DRAINING, SG_NOT_STARTED, "the gateway is shutting down");
        enum sg_code rc = control_in_store(c, STORE_DURABLE, claim_fn, &k, e);
        if (rc)
            return rc;
        if (claim.verdict == PREP_YOURS)
            return prepare(f, &claim, out, e);
        *out = claim.was;
        if (claim.verdict == PREP_USABLE) {
            rc = f->verify && *out->snapshot_id ? prepare_usable(c, out->snapshot_id, e) : SG_OK;
            if (rc != SG_E_SNAPSHOT_GONE)
                return rc;
            memcpy(gone, out->snapshot_id, sizeof gone);
            continue;
        }
        bool retry = false;
        rc = await(f, &claim.was, &retry, e);
        if (!retry)
            return rc;
        refresh = false; /* it is being done by who was waited for */
    }
}

/* ---- all of them ---- */

static void flight_free(struct flight *f)
{
    template_spec_clear(&f->spec);
    (void)pthread_cond_destroy(&f->changed);
    free(f);
}

/* With the lock held. */
static void leave(struct flight *f)
{
    if (--f->refs == 0)
        flight_free(f);
}

static void run(struct work *w)
{
    struct flight *f = (struct flight *)((char *)w - offsetof(struct flight, work));
    struct templates *all = f->all;
    struct flight_end end = {0};
    end.code = fly(f, &end.prep, &end.error);
    (void)pthread_mutex_lock(&all->lock);
    f->end = end;
    f->over = true;
    struct flight **at = &all->flights;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    struct guest_of *guests = f->guests;
    f->guests = NULL;
    (void)pthread_cond_broadcast(&f->changed);
    leave(f);
    (void)pthread_mutex_unlock(&all->lock);
    while (guests) {
        struct guest_of *g = guests;
        guests = g->next;
        g->done(g->arg, &end);
        free(g);
    }
}

/* With the lock held: one that flies already, or a new one; the spec is taken over. */
static struct flight *find_or_begin(struct templates *all, struct flight_wish *w, struct sg_error *e)
{
    const char *gone = w->gone ? w->gone : "";
    struct flight *f = all->flights;
    while (f && (strcmp(f->spec.fingerprint, w->spec->fingerprint) != 0 || strcmp(f->gone, gone) != 0 ||
                 f->refresh != w->refresh || f->verify != w->verify))
        f = f->next;
    if (f) {
        template_spec_clear(w->spec);
        return f;
    }
    f = calloc(1, sizeof *f);
    if (!f || pthread_cond_init(&f->changed, NULL)) {
        free(f);
        template_spec_clear(w->spec);
        (void)sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory to prepare a template");
        return NULL;
    }
    f->all = all;
    f->work.fn = run;
    f->spec = *w->spec;
    *w->spec = (struct template_spec){0};
    f->refresh = w->refresh;
    f->verify = w->verify;
    f->refs = 1;
    (void)snprintf(f->owner, sizeof f->owner, "%s", w->owner ? w->owner : "");
    (void)snprintf(f->gone, sizeof f->gone, "%s", gone);
    if (!workers_submit(all->pool, &f->work)) {
        flight_free(f);
        (void)sg_fail(e, SG_E_OVERLOADED, SG_NOT_SENT, "%d templates are being prepared, and more wait",
                      FLIGHTS_THREADS);
        return NULL;
    }
    f->next = all->flights;
    all->flights = f;
    return f;
}

enum sg_code flight_wait(struct templates *all, struct flight_wish *w, struct store_prep *out,
                         struct sg_error *e)
{
    (void)pthread_mutex_lock(&all->lock);
    struct flight *f = find_or_begin(all, w, e);
    if (!f) {
        (void)pthread_mutex_unlock(&all->lock);
        return e->code;
    }
    f->refs++;
    while (!f->over)
        (void)pthread_cond_wait(&f->changed, &all->lock);
    enum sg_code rc = f->end.code;
    if (rc)
        *e = f->end.error;
    else
        *out = f->end.prep;
    leave(f);
    (void)pthread_mutex_unlock(&all->lock);
    return rc;
}

void flight_join(struct templates *all, struct flight_wish *w, flight_done_fn *done, void *arg)
{
    struct flight_end end = {0};
    struct guest_of *g = calloc(1, sizeof *g);
    (void)pthread_mutex_lock(&all->lock);
    struct flight *f = NULL;
    if (g)
        f = find_or_begin(all, w, &end.error);
    else
        (void)sg_fail(&end.error, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory to prepare a template");
    if (f) {
        *g = (struct guest_of){f->guests, done, arg};
        f->guests = g;
    }
    (void)pthread_mutex_unlock(&all->lock);
    if (f)
        return;
    if (!g)
        template_spec_clear(w->spec);
    free(g);
    end.code = end.error.code;
    done(arg, &end);
}

/* ---- what is left over, and what nobody has any more ---- */

struct leftover {
    const char *upstream;
    struct store_prep prep;
    struct store_prep_claim claim;
    bool found;
};

static enum sg_code left_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct leftover *l = arg;
    char fingerprint[TEMPLATE_PRINT_TEXT];
    enum sg_code rc = store_prep_left(db, l->upstream, fingerprint, &l->found, e);
    if (rc || !l->found)
        return rc;
    l->claim.fingerprint = fingerprint;
    rc = store_prep_claim(db, l->upstream, &l->claim, e);
    l->claim.fingerprint = NULL;
    return rc;
}

static enum sg_code sweep_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct leftover *l = arg;
    enum sg_code rc = store_prep_sweep(db, l->upstream, &l->prep, &l->found, e);
    if (!rc && l->found && *l->prep.snapshot_id)
        rc = prepare_release(db, l->upstream, l->prep.snapshot_id, l->prep.fingerprint, e);
    return rc;
}

void templates_sweep(struct control *c)
{
    struct leftover l = {.upstream = c->upstream, .found = true};
    struct sg_error e;
    bool any = false;
    while (!control_in_store(c, STORE_DURABLE, sweep_fn, &l, &e) && l.found) {
        any = true;
        if (*l.prep.builder && cleanup_sandbox(c, l.prep.builder, l.prep.alloc,
                                               "the preparation of a template was interrupted", &e))
            return; /* it stays remembered as intended */
    }
    if (any)
        control_sweep_kick(c);
}

static void abandon_left(struct templates *all)
{
    struct control *c = all->c;
    char attempt[STORE_OWNER_TEXT];
    struct sg_error e;
    while (!jobs_stopping(c->jobs) && store_owner(attempt)) {
        struct leftover l = {.upstream = c->upstream,
                             .claim = {.attempt = attempt, .hold_ms = prepares_hold_ms(all->prepares)}};
        if (control_in_store(c, STORE_DURABLE, left_fn, &l, &e) || !l.found || l.claim.verdict != PREP_YOURS)
            return;
        prepare_abandon(all->prepares, attempt, &l.claim.was);
    }
}

static void run_hold(void *arg)
{
    const struct templates *all = arg;
    prepares_hold(all->prepares);
}

static void run_rest(void *arg)
{
    struct templates *all = arg;
    abandon_left(all);
    templates_sweep(all->c);
}

bool templates_start(struct control *c, int64_t hold_ms)
{
    struct templates *all = calloc(1, sizeof *all);
    if (!all)
        return false;
    all->c = c;
    (void)pthread_mutex_init(&all->lock, NULL);
    c->templates = all;
    all->prepares = prepares_new(c, hold_ms);
    all->pool = workers_new(FLIGHTS_THREADS, FLIGHTS_WAITING, FLIGHTS_STACK);
    if (!all->prepares || !all->pool)
        return false;
    int64_t every_ms = prepares_hold_ms(all->prepares) / 4;
    all->hold = job_add(c->jobs, "templates in preparation", every_ms, run_hold, all);
    all->rest = job_add(c->jobs, "templates left over", every_ms, run_rest, all);
    return all->hold && all->rest;
}

void templates_stop(struct control *c)
{
    while (c->templates && c->templates->pool && workers_load(c->templates->pool)) {
        uv_run(sg_loop_uv(c->loop), UV_RUN_NOWAIT); /* they wait for calls that the loop makes */
        (void)poll(NULL, 0, 1);
    }
    uv_run(sg_loop_uv(c->loop), UV_RUN_NOWAIT); /* what they had to tell */
}

void templates_free(struct control *c)
{
    if (!c->templates)
        return;
    workers_free(c->templates->pool);
    prepares_free(c->templates->prepares);
    (void)pthread_mutex_destroy(&c->templates->lock);
    free(c->templates);
    c->templates = NULL;
}
