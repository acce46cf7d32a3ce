/* Which sessions processes were started in, and when each of them has to be swept. */
#include "relay/tails_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "store/locks.h"
#include "store/watches.h"
#include "vercel/sandboxes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DAY_MS INT64_C(86400000)
enum {
    KEEP_MS = 86400000,
    BEFORE_MS = 20000,
    STOP_MS = 5000,
    PRUNE_MS = 60000,
    LOOK_AGAIN_MS = 2000, /* after a look that failed, or while too many look */
    MOVED_MS = 500,       /* a deadline that is later by so much has moved */
    AFTER_MS = 1000,      /* so long after the deadline it is looked whether it moved */
    LONGER_MS = 30000,    /* or the session simply lives on */
    WATCH_OLD_MS = 3600000,
    LOADED_MAX = 100000,
};
#define MAX_BYTES (INT64_C(1) << 30)

/* ---- places ---- */

bool tails_place_copy(struct tails_place *out, const char *sandbox, const struct relay_session *s)
{
    out->sandbox = strdup(sandbox);
    if (session_copy(&out->session, s) && out->sandbox)
        return true;
    tails_place_free(out);
    return false;
}

void tails_place_free(struct tails_place *p)
{
    free(p->sandbox);
    p->sandbox = NULL;
    session_free(&p->session);
}

struct relay_session tails_place_session(const struct tails_place *p)
{
    return (struct relay_session){p->session.session_id, p->session.arch, p->session.cwd};
}

/* ---- sessions ---- */

struct tails_session *tails_find(struct tails *t, const char *session_id)
{
    struct named *n = named_find(&t->sessions, session_id, "");
    return n ? (struct tails_session *)((char *)n - offsetof(struct tails_session, name)) : NULL;
}

static void session_drop(struct tails_session *s)
{
    struct tails *t = s->tails;
    if (s->look) {
        vercel_call_cancel(s->look);
        t->nlooks--;
    }
    named_remove(&s->name);
    TAILQ_REMOVE(&t->by_age, s, age);
    t->nsessions--;
    tails_place_free(&s->place);
    free(s);
}

/* Makes room; what is watched is not forgotten for what may be of no use. */
static bool make_room(struct tails *t)
{
    struct tails_session *s;
    if (t->nsessions < TAILS_SESSIONS_MAX)
        return true;
    TAILQ_FOREACH(s, &t->by_age, age)
    {
        if (s->watched)
            continue;
        session_drop(s);
        return true;
    }
    return false;
}

static struct tails_session *session_new(struct tails *t, const char *sandbox, const struct relay_session *rs)
{
    struct tails_session *s = make_room(t) ? calloc(1, sizeof *s) : NULL;
    if (!s)
        return NULL;
    if (!tails_place_copy(&s->place, sandbox, rs)) {
        free(s);
        return NULL;
    }
    s->tails = t;
    s->name.session_id = s->place.session.session_id;
    s->name.id = "";
    named_add(&t->sessions, &s->name);
    TAILQ_INSERT_TAIL(&t->by_age, s, age);
    t->nsessions++;
    return s;
}

/* ---- rows ---- */

struct row {
    struct store_work work;
    struct store_watch w;
    char *upstream;
    struct tails_place place;
};

static void row_free(struct row *r)
{
    free(r->upstream);
    tails_place_free(&r->place);
    free(r);
}

static void row_done(struct store_work *w)
{
    if (w->code)
        sg_log(SG_LOG_WARN, "session not remembered", "error", "e", &w->error, NULL);
    row_free((struct row *)w); /* its first member */
}

static enum sg_code row_put(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct row *r = arg;
    return store_watch_put(db, &r->w, sg_wall_ms(), e);
}

static enum sg_code row_drop(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct row *r = arg;
    return store_watch_drop(db, r->w.session_id, e);
}

static void row_submit(const struct tails_session *s, store_fn *fn)
{
    struct tails *t = s->tails;
    struct relay_session session = tails_place_session(&s->place);
    struct row *r = calloc(1, sizeof *r);
    if (!r)
        return;
    r->upstream = strdup(t->upstream);
    if (!tails_place_copy(&r->place, s->place.sandbox, &session) || !r->upstream) {
        row_free(r);
        return;
    }
    r->w = (struct store_watch){
        .upstream = r->upstream,
        .session_id = r->place.session.session_id,
        .sandbox = r->place.sandbox,
        .cwd = r->place.session.cwd ? r->place.session.cwd : "",
        .arch = r->place.session.arch,
        .deadline_ms = s->deadline_ms,
    };
    r->work =
        (struct store_work){.kind = STORE_WRITE, .fn = fn, .arg = r, .done = row_done, .bytes = sizeof *r};
    if (!store_submit(t->store, &r->work))
        row_free(r);
}

/* ---- time ---- */

static void arm(struct tails *t, int64_t due_ms)
{
    if (t->stopped || !due_ms || (t->armed_ms && t->armed_ms <= due_ms))
        return;
    int64_t wait = due_ms - sg_wall_ms();
    t->armed_ms = due_ms;
    sg_timer_start(t->timer, wait > 0 ? (uint64_t)wait : 0);
}

static void due_at(struct tails_session *s, int64_t due_ms)
{
    s->due_ms = due_ms;
    arm(s->tails, due_ms);
}

/* When the deadline is known, or has moved. */
static void plan(struct tails_session *s)
{
    int64_t now = sg_wall_ms(), left = s->deadline_ms - now;
    int64_t before = s->tails->before_ms < left / 4 ? s->tails->before_ms : left / 4;
    s->saved = false;
    due_at(s, s->deadline_ms && left > 0 ? s->deadline_ms - before : now);
}

static void unwatch(struct tails_session *s)
{
    s->watched = false;
    s->due_ms = 0;
    row_submit(s, row_drop);
}

/* ---- looking after a session whose time comes ---- */

static bool runs(const struct tails_session *s, const struct vercel_sandbox *now)
{
    enum vercel_status status =
        now->session_status != VERCEL_STATUS_OTHER ? now->session_status : now->status;
    return now->session_id && !strcmp(now->session_id, s->place.session.session_id) &&
           status == VERCEL_RUNNING;
}

static void sweep_now(struct tails_session *s)
{
    int64_t left = s->deadline_ms ? s->deadline_ms - sg_wall_ms() : 0;
    s->saved = true;
    due_at(s, (s->deadline_ms > sg_wall_ms() ? s->deadline_ms : sg_wall_ms()) + AFTER_MS);
    (void)tails_sweep(s->tails, &s->place, true, left > STOP_MS ? left - AFTER_MS : STOP_MS, NULL);
}

static void on_look(void *arg, struct vercel_sandbox *now, const struct sg_error *e)
{
    struct tails_session *s = arg;
    int64_t deadline = 0;
    s->look = NULL;
    s->tails->nlooks--;
    if (e && e->code != SG_E_SANDBOX_NOT_FOUND && e->code != SG_E_DRAINING) {
        if (s->saved || !s->deadline_ms)
            due_at(s, sg_wall_ms() + LOOK_AGAIN_MS);
        else
            sweep_now(s); /* the deadline that is known may be the right one */
        return;
    }
    if (e || !runs(s, now)) {
        unwatch(s);
        return;
    }
    if (now->session_started_at > 0 && now->session_timeout_ms > 0 &&
        now->session_timeout_ms < INT64_MAX - now->session_started_at)
        deadline = now->session_started_at + now->session_timeout_ms;
    if (deadline > s->deadline_ms + MOVED_MS) {
        s->deadline_ms = deadline;
        row_submit(s, row_put);
        plan(s);
        if (s->due_ms > sg_wall_ms() + MOVED_MS)
            return;
    }
    if (s->saved)
        due_at(s, sg_wall_ms() + LONGER_MS); /* its time was over, and it runs */
    else
        sweep_now(s);
}

static void look(struct tails_session *s)
{
    struct tails *t = s->tails;
    struct sg_error e;
    if (s->look)
        return;
    if (t->nlooks < TAILS_LOOKS)
        s->look = vercel_get_start(guestlink_client(relay_guestlink(t->relay)), s->place.sandbox, false,
                                   on_look, s, &e);
    if (s->look) {
        t->nlooks++;
        s->due_ms = 0;
    } else {
        due_at(s, sg_wall_ms() + LOOK_AGAIN_MS);
    }
}

static void on_timer(void *arg)
{
    struct tails *t = arg;
    struct tails_session *s;
    int64_t now = sg_wall_ms(), next = 0;
    t->armed_ms = 0;
    TAILQ_FOREACH(s, &t->by_age, age)
    {
        if (s->due_ms && s->due_ms <= now)
            look(s);
        if (s->due_ms && (!next || s->due_ms < next))
            next = s->due_ms;
    }
    arm(t, next);
}

/* ---- what the relay and the routes say ---- */

void tails_session(struct tails *t, const char *sandbox, const struct relay_session *rs, int64_t deadline_ms)
{
    if (t->stopped)
        return;
    struct tails_session *s = tails_find(t, rs->session_id);
    if (!s)
        s = session_new(t, sandbox, rs);
    if (!s)
        return;
    TAILQ_REMOVE(&t->by_age, s, age);
    TAILQ_INSERT_TAIL(&t->by_age, s, age);
    if (deadline_ms <= s->deadline_ms + MOVED_MS)
        return;
    s->deadline_ms = deadline_ms;
    if (!s->watched)
        return;
    row_submit(s, row_put);
    plan(s);
}

static void on_begins(void *arg, const char *session_id)
{
    struct tails_session *s = tails_find(arg, session_id);
    if (!s || s->tails->stopped)
        return;
    if (!s->watched)
        row_submit(s, row_put);
    else if (!s->saved || s->deadline_ms <= sg_wall_ms())
        return;
    s->watched = true; /* again, for what is started after its sweep */
    plan(s);
}

static void on_seen(void *arg, const char *session_id, const struct sg_wire_process *p)
{
    struct tails *t = arg;
    const struct tails_session *s = tails_find(t, session_id);
    if (s && !t->stopped)
        tails_put(t, &s->place, p, NULL, NULL);
}

static void on_ended(void *arg, const char *session_id, const struct sg_wire_process *p,
                     const struct relay_last *last)
{
    struct tails *t = arg;
    const struct tails_session *s = tails_find(t, session_id);
    if (!s || t->stopped)
        return;
    if (p->output_incomplete || tails_at_hand(p, last))
        tails_put(t, &s->place, p, last, NULL);
    else
        tails_read(t, &s->place, p, &t->ended);
}

/* ---- destroyed ones ---- */

void tails_gone(struct tails *t, const char *session_id, const char *id)
{
    pthread_mutex_lock(&t->gone_lock);
    char *place = t->gone[t->next_gone++ % TAILS_GONE];
    (void)snprintf(place, sizeof t->gone[0], "%s/%s", session_id, id ? id : "");
    pthread_mutex_unlock(&t->gone_lock);
}

bool tails_is_gone(struct tails *t, const char *session_id, const char *id)
{
    size_t n = strlen(session_id);
    bool gone = false;
    pthread_mutex_lock(&t->gone_lock);
    for (unsigned i = 0; i < TAILS_GONE && !gone; i++) {
        const char *g = t->gone[i];
        gone = !strncmp(g, session_id, n) && g[n] == '/' && (!g[n + 1] || !strcmp(g + n + 1, id));
    }
    pthread_mutex_unlock(&t->gone_lock);
    return gone;
}

/* ---- before an end that was ordered ---- */

struct tails_ticket *tails_before_end(struct tails *t, const char *sandbox, const struct relay_session *rs,
                                      void (*done)(void *arg), void *arg)
{
    const struct tails_session *s = tails_find(t, rs->session_id);
    struct tails_place place = {0};
    struct tails_ticket *ticket = calloc(1, sizeof *ticket);
    bool begun = false;
    if (ticket && tails_place_copy(&place, sandbox, rs)) {
        *ticket = (struct tails_ticket){.done = done, .arg = arg};
        begun = tails_sweep(t, &place, s && s->watched, t->stop_ms, ticket);
    }
    tails_place_free(&place);
    if (begun)
        return ticket;
    free(ticket);
    done(arg);
    return NULL;
}

void tails_cancel(struct tails_ticket *ticket)
{
    LIST_REMOVE(ticket, link);
    free(ticket);
}

/* ---- forgetting ---- */

struct forget {
    struct store_work work;
    char *upstream, *sandbox, *id;
    void (*done)(void *arg);
    void *arg;
};

static enum sg_code forget_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct forget *f = arg;
    int64_t n;
    return store_process_forget(db, f->upstream, f->sandbox, f->id, &n, e);
}

static void forget_done(struct store_work *w)
{
    struct forget *f = (struct forget *)w; /* its first member */
    if (w->code)
        sg_log(SG_LOG_WARN, "saved output not removed", "error", "e", &w->error, NULL);
    f->done(f->arg);
    free(f->upstream);
    free(f->sandbox);
    free(f->id);
    free(f);
}

void tails_forget(struct tails *t, const char *sandbox, const char *session_id, const char *id,
                  void (*done)(void *arg), void *arg)
{
    tails_gone(t, session_id, id); /* first: a save on its way finds this, or is undone below */
    struct forget *f = calloc(1, sizeof *f);
    if (!f) {
        done(arg);
        return;
    }
    f->done = done;
    f->arg = arg;
    f->upstream = strdup(t->upstream);
    f->sandbox = strdup(sandbox);
    f->id = strdup(id);
    f->work = (struct store_work){
        .kind = STORE_DURABLE, .fn = forget_fn, .arg = f, .done = forget_done, .bytes = sizeof *f};
    if (!f->upstream || !f->sandbox || !f->id) {
        f->work.code = sg_fail(&f->work.error, SG_E_OUT_OF_MEMORY, SG_NOT_STARTED, "no memory");
        forget_done(&f->work);
    } else if (!store_submit(t->store, &f->work)) {
        f->work.code = sg_fail(&f->work.error, SG_E_STORE_UNAVAILABLE, SG_NOT_STARTED, "too much waits");
        forget_done(&f->work);
    }
}

/* ---- cleaning up, and what other gateways watch ---- */

struct loaded {
    struct tails_place place;
    int64_t deadline_ms;
};

struct upkeep {
    struct store_work work;
    struct tails *t;
    char *upstream;
    int64_t max_bytes;
    bool more;
    struct loaded *sessions;
    size_t n, cap;
};

static void forget_loaded(struct upkeep *u)
{
    for (size_t i = 0; i < u->n; i++)
        tails_place_free(&u->sessions[i].place);
    u->n = 0;
}

static void on_watch(void *arg, const struct store_watch *w)
{
    struct upkeep *u = arg;
    const struct relay_session rs = {w->session_id, w->arch, w->cwd};
    if (u->n == u->cap) {
        size_t cap = u->cap ? u->cap * 2 : 16;
        struct loaded *v = cap <= LOADED_MAX ? reallocarray(u->sessions, cap, sizeof *v) : NULL;
        if (!v)
            return; /* whoever watches them still does */
        u->sessions = v;
        u->cap = cap;
    }
    u->sessions[u->n] = (struct loaded){.deadline_ms = w->deadline_ms};
    if (tails_place_copy(&u->sessions[u->n].place, w->sandbox, &rs))
        u->n++;
}

static enum sg_code upkeep_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct upkeep *u = arg;
    int64_t now = sg_wall_ms();
    forget_loaded(u);
    enum sg_code rc = store_process_prune(db, now, u->max_bytes, &u->more, e);
    if (!rc)
        rc = store_watch_prune(db, now - WATCH_OLD_MS, now - 2 * DAY_MS, e);
    if (!rc)
        rc = store_locks_prune(db, e);
    if (!rc)
        rc = store_watch_list(db, u->upstream, on_watch, u, e);
    return rc;
}

static void adopt(struct tails *t, const struct loaded *l)
{
    struct relay_session rs = tails_place_session(&l->place);
    struct tails_session *s = tails_find(t, rs.session_id);
    if (!s)
        s = session_new(t, l->place.sandbox, &rs);
    if (!s || s->watched)
        return;
    s->watched = true;
    if (l->deadline_ms > s->deadline_ms)
        s->deadline_ms = l->deadline_ms;
    plan(s);
}

static void upkeep_start(struct tails *t);

static void upkeep_done(struct store_work *w)
{
    struct upkeep *u = (struct upkeep *)w; /* its first member */
    struct tails *t = u->t;
    t->pruning = false;
    for (size_t i = 0; i < u->n && !w->code && !t->stopped; i++)
        adopt(t, &u->sessions[i]);
    if (u->more && !w->code)
        upkeep_start(t);
    forget_loaded(u);
    free(u->sessions);
    free(u->upstream);
    free(u);
}

static void upkeep_start(struct tails *t)
{
    if (t->pruning || t->stopped)
        return;
    struct upkeep *u = calloc(1, sizeof *u);
    if (!u)
        return;
    u->t = t;
    u->upstream = strdup(t->upstream);
    u->max_bytes = t->max_bytes;
    u->work = (struct store_work){.kind = STORE_WRITE, .fn = upkeep_fn, .arg = u, .done = upkeep_done};
    if (u->upstream && store_submit(t->store, &u->work)) {
        t->pruning = true;
        return;
    }
    free(u->upstream);
    free(u);
}

static void on_prune(void *arg)
{
    struct tails *t = arg;
    if (t->failures > 1)
        sg_log(SG_LOG_WARN, "processes not saved", "count", "i", (int64_t)t->failures, NULL);
    t->failures = 0;
    upkeep_start(t);
    sg_timer_start(t->prune, (uint64_t)t->prune_ms);
}

/* ---- life ---- */

static int64_t or_default(int64_t given, int64_t dflt)
{
    return given > 0 ? given : dflt;
}

struct tails *tails_new(struct relay *r, const struct tails_config *c)
{
    struct tails *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->relay = r;
    t->store = c->store;
    t->upstream = strdup(c->upstream);
    t->keep_ms = or_default(c->keep_ms, KEEP_MS);
    t->max_bytes = or_default(c->max_bytes, MAX_BYTES);
    t->before_ms = or_default(c->before_ms, BEFORE_MS);
    t->stop_ms = or_default(c->stop_ms, STOP_MS);
    t->prune_ms = or_default(c->prune_ms, PRUNE_MS);
    pthread_mutex_init(&t->gone_lock, NULL);
    TAILQ_INIT(&t->by_age);
    LIST_INIT(&t->sweeps);
    tails_lane_init(&t->ended, TAILS_READS, NULL);
    t->timer = sg_timer_new(relay_loop(r), on_timer, t);
    t->prune = sg_timer_new(relay_loop(r), on_prune, t);
    if (!t->upstream || !t->timer || !t->prune) {
        tails_free(t);
        return NULL;
    }
    const struct relay_keeper keeper = {on_begins, on_seen, on_ended, t};
    relay_set_keeper(r, &keeper);
    sg_timer_start(t->prune, 0);
    return t;
}

void tails_stop(struct tails *t)
{
    struct tails_session *s, *next;
    if (!t || t->stopped)
        return;
    t->stopped = true;
    relay_set_keeper(t->relay, NULL);
    sg_timer_stop(t->timer);
    sg_timer_stop(t->prune);
    tails_lane_end(&t->ended, false);
    tails_sweeps_stop(t);
    for (s = TAILQ_FIRST(&t->by_age); s; s = next) {
        next = TAILQ_NEXT(s, age);
        session_drop(s);
    }
}

void tails_free(struct tails *t)
{
    if (!t)
        return;
    sg_timer_free(t->timer);
    sg_timer_free(t->prune);
    pthread_mutex_destroy(&t->gone_lock);
    free(t->upstream);
    free(t);
}

struct store *tails_store(const struct tails *t)
{
    return t->store;
}

const char *tails_upstream(const struct tails *t)
{
    return t->upstream;
}

int64_t tails_keep_ms(const struct tails *t)
{
    return t->keep_ms;
}
