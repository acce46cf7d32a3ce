#include "relay/quiet.h"

#include "base/clock.h"
#include "relay/named.h"

#include <stdlib.h>
#include <string.h>

enum {
    BATCH_MAX_MS =
        1000,        /* who becomes quiet within this, or a quarter of the quiet time, is watched together */
    SPARE_CALLS = 3, /* calls more than needed, before small ones are put together */
    MISSES_MAX = 3,  /* calls in a row that failed: everybody looks himself */
};

TAILQ_HEAD(quiet_list, quiet_entry);

struct quiet_call {
    struct relay_obj obj;
    TAILQ_ENTRY(quiet_call) link;
    struct quiet_session *session;
    struct guest_call *call;
    struct quiet_list entries;
    size_t n;
    int64_t began;
    bool heard;
};

struct quiet_session {
    struct relay_obj obj;
    struct named name;
    struct session_copy session;
    struct quiet_list waiting; /* for a call */
    size_t nwaiting;
    TAILQ_HEAD(, quiet_call) calls;
    size_t ncalls, nwatched;
    struct sg_timer *timer;
    int64_t backoff_ms;
    int misses;
    bool gone; /* buried */
};

/* ---- lists ---- */

static void leave_list(struct quiet_entry *q)
{
    struct quiet_session *s = q->session;
    if (q->call) {
        TAILQ_REMOVE(&q->call->entries, q, link);
        q->call->n--;
        s->nwatched--;
    } else {
        TAILQ_REMOVE(&s->waiting, q, link);
        s->nwaiting--;
    }
    q->call = NULL;
}

static void wait_for_call(struct quiet_entry *q)
{
    leave_list(q);
    TAILQ_INSERT_TAIL(&q->session->waiting, q, link);
    q->session->nwaiting++;
}

static void call_drop(struct quiet_call *c)
{
    struct quiet_session *s = c->session;
    if (c->call)
        guest_cancel(c->call);
    c->call = NULL;
    TAILQ_REMOVE(&s->calls, c, link);
    s->ncalls--;
    obj_bury(&c->obj);
}

/* Nobody is quiet here any more. */
static void drop_if_empty(struct quiet_session *s)
{
    if (s->gone || s->nwaiting || s->ncalls)
        return;
    s->gone = true;
    named_remove(&s->name);
    sg_timer_stop(s->timer);
    obj_bury(&s->obj);
}

static void tell(struct quiet_entry *q, const struct sg_error *e)
{
    leave_list(q);
    q->session = NULL;
    q->on_told(q, e);
}

/* They look themselves; they may come back, or make others leave, meanwhile. */
static void tell_all(struct quiet_call *c, const struct sg_error *e)
{
    struct quiet_entry *q;
    while ((q = TAILQ_FIRST(&c->entries)))
        tell(q, e);
}

/* ---- a call ---- */

static bool on_line(void *arg, const struct sg_wire_line *line)
{
    struct quiet_call *c = arg;
    struct quiet_entry *q;
    c->heard = true;
    if (line->kind != SG_WIRE_PROCESS)
        return true;
    TAILQ_FOREACH(q, &c->entries, link)
    if (!strcmp(q->id, line->process.id)) {
        tell(q, NULL); /* what it is that happened is for the follower to see */
        break;
    }
    return true;
}

static void later(struct quiet_session *s, const struct sg_error *e)
{
    sg_timer_start(s->timer, relay_backoff(s->obj.relay, &s->backoff_ms, e));
}

/* Those that were not told of are watched on. */
static void watch_on(struct quiet_call *c, const struct sg_error *e)
{
    struct quiet_session *s = c->session;
    struct quiet_entry *q;
    bool well = !e && (c->heard || sg_mono_ms() - c->began > relay_limits(s->obj.relay)->backoff_max_ms);
    s->misses = well ? 0 : s->misses + 1;
    if (s->misses >= MISSES_MAX) {
        s->misses = 0;
        tell_all(c, NULL);
        return;
    }
    while ((q = TAILQ_FIRST(&c->entries)))
        wait_for_call(q);
    if (well)
        s->backoff_ms = 0;
    if (s->nwaiting)
        later(s, e);
}

static void on_end(void *arg, const struct sg_wire_line *line, bool hello, const struct sg_error *e)
{
    struct quiet_call *c = arg;
    struct quiet_session *s = c->session;
    struct sg_error copy;
    (void)hello; /* there is none */
    c->call = NULL;
    if (e)
        copy = *e;
    if (e ? relay_may_retry(e) : line->kind == SG_WIRE_MORE)
        watch_on(c, e ? &copy : NULL);
    else
        tell_all(c, e ? &copy : NULL);
    call_drop(c);
    drop_if_empty(s);
}

static void add_entry(struct relay_args *a, const struct quiet_entry *q)
{
    args_add(a, q->id);
    args_addu(a, q->offset[0]);
    args_addu(a, q->offset[1]);
}

static bool call_start(struct quiet_call *c, struct sg_error *e)
{
    static const struct guest_events events = {.on_line = on_line, .on_end = on_end};
    struct quiet_session *s = c->session;
    struct relay_args a = {0};
    const struct quiet_entry *q;
    bool attend = false;
    TAILQ_FOREACH(q, &c->entries, link)
    attend = attend || q->attend;
    args_begin(&a, "watch", s->session.session_id, NULL);
    if (attend)
        args_add(&a, "--attend");
    args_add(&a, "--");
    TAILQ_FOREACH(q, &c->entries, link)
    add_entry(&a, q);
    if (a.failed) {
        sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory to watch processes");
    } else {
        struct guest_args g = {
            .session_id = s->session.session_id, .arch = s->session.arch, .args = (const char *const *)a.v};
        c->call = guest_call_start(relay_guestlink(s->obj.relay), &g, &events, c, e);
    }
    args_free(&a);
    return c->call != NULL;
}

static void call_destroy(struct relay_obj *o)
{
    free(o);
}

/* Whoever is in it must not come here when it is gone. */
static void forget(struct quiet_list *list)
{
    struct quiet_entry *q;
    while ((q = TAILQ_FIRST(list))) {
        TAILQ_REMOVE(list, q, link);
        q->session = NULL;
        q->call = NULL;
    }
}

static void call_abandon(struct relay_obj *o, const struct sg_error *e)
{
    struct quiet_call *c = (struct quiet_call *)o;
    (void)e; /* its owners hear it themselves */
    c->session->nwatched -= c->n;
    forget(&c->entries);
    call_drop(c);
}

/* The first of those that wait get a call. */
static bool watch_some(struct quiet_session *s, struct sg_error *e)
{
    struct quiet_call *c = calloc(1, sizeof *c);
    if (!c) {
        sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory to watch processes");
        return false;
    }
    obj_init(&c->obj, s->obj.relay, call_abandon, call_destroy);
    c->session = s;
    c->began = sg_mono_ms();
    TAILQ_INIT(&c->entries);
    TAILQ_INSERT_TAIL(&s->calls, c, link);
    s->ncalls++;
    for (struct quiet_entry *q; c->n < QUIET_MAX && (q = TAILQ_FIRST(&s->waiting)); c->n++) {
        leave_list(q);
        q->call = c;
        TAILQ_INSERT_TAIL(&c->entries, q, link);
        s->nwatched++;
    }
    if (call_start(c, e)) {
        struct quiet_entry *q;
        TAILQ_FOREACH(q, &c->entries, link)
        {
            if (!q->watched)
                q->on_watched(q);
            q->watched = true;
        }
        return true;
    }
    for (struct quiet_entry *q; (q = TAILQ_FIRST(&c->entries));)
        wait_for_call(q);
    call_drop(c);
    return false;
}

/* Many small calls, of processes that became quiet one by one, are made one. */
static void put_together(struct quiet_session *s)
{
    size_t need = (s->nwatched + s->nwaiting + QUIET_MAX - 1) / QUIET_MAX;
    struct quiet_call *c, *next;
    if (s->ncalls + 1 <= need + SPARE_CALLS)
        return;
    for (c = TAILQ_FIRST(&s->calls); c; c = next) {
        next = TAILQ_NEXT(c, link);
        if (c->n > QUIET_MAX / 2)
            continue;
        for (struct quiet_entry *q; (q = TAILQ_FIRST(&c->entries));)
            wait_for_call(q);
        call_drop(c);
    }
}

static void on_timer(void *arg)
{
    struct quiet_session *s = arg;
    struct sg_error e;
    put_together(s);
    while (s->nwaiting)
        if (!watch_some(s, &e)) {
            later(s, &e);
            return;
        }
}

/* ---- the session ---- */

static void session_destroy(struct relay_obj *o)
{
    struct quiet_session *s = (struct quiet_session *)o;
    session_free(&s->session);
    sg_timer_free(s->timer);
    free(s);
}

static void session_abandon(struct relay_obj *o, const struct sg_error *e)
{
    struct quiet_session *s = (struct quiet_session *)o;
    struct quiet_call *c;
    while ((c = TAILQ_FIRST(&s->calls)))
        call_abandon(&c->obj, e);
    forget(&s->waiting);
    s->nwaiting = 0;
    drop_if_empty(s);
}

static struct quiet_session *session_get(struct relay *r, const struct relay_session *of)
{
    struct named *n = named_find(relay_named(r, RELAY_QUIET), of->session_id, "");
    if (n)
        return (struct quiet_session *)((char *)n - offsetof(struct quiet_session, name));
    struct quiet_session *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    obj_init(&s->obj, r, session_abandon, session_destroy);
    TAILQ_INIT(&s->waiting);
    TAILQ_INIT(&s->calls);
    s->timer = sg_timer_new(relay_loop(r), on_timer, s);
    if (!s->timer || !session_copy(&s->session, of)) {
        s->gone = true;
        obj_bury(&s->obj);
        return NULL;
    }
    s->name.session_id = s->session.session_id;
    s->name.id = "";
    named_add(relay_named(r, RELAY_QUIET), &s->name);
    return s;
}

bool quiet_enter(struct relay *r, const struct relay_session *of, struct quiet_entry *q)
{
    struct quiet_session *s = session_get(r, of);
    if (!s)
        return false;
    q->session = s;
    q->call = NULL;
    q->watched = false;
    TAILQ_INSERT_TAIL(&s->waiting, q, link);
    s->nwaiting++;
    if (!sg_timer_active(s->timer)) {
        int64_t ms = relay_limits(r)->quiet_ms / 4 + 1;
        sg_timer_start(s->timer, (uint64_t)(ms < BATCH_MAX_MS ? ms : BATCH_MAX_MS));
    }
    return true;
}

void quiet_leave(struct quiet_entry *q)
{
    struct quiet_session *s = q->session;
    struct quiet_call *c = q->call;
    if (!s)
        return;
    leave_list(q);
    q->session = NULL;
    if (c && !c->n && c->call)
        call_drop(c); /* nobody waits for what it might say */
    drop_if_empty(s);
}
