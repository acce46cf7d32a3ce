/* All processes of a session into the store, before it ends: the store says what it has, the sandbox what there is,
 * and the difference is read, several at a time, until it is done or the time is over. */
#include "relay/tails_internal.h"

#include "base/clock.h"
#include "store/watches.h"

#include <stdlib.h>
#include <string.h>

enum { LAST_SAVES_MS = 1000 }; /* after the time is over: for what was read to be written */

/* ---- who waits ---- */

static void tell(struct tails_sweep *s)
{
    struct tails_ticket *ticket;
    while ((ticket = LIST_FIRST(&s->tickets)) != NULL) {
        LIST_REMOVE(ticket, link);
        void (*done)(void *arg) = ticket->done;
        void *arg = ticket->arg;
        free(ticket);
        done(arg);
    }
}

/* Nobody joins any more, and who waits is told. */
static void close_sweep(struct tails_sweep *s)
{
    if (s->link.le_prev) {
        LIST_REMOVE(s, link);
        s->link.le_prev = NULL;
    }
    sg_timer_stop(s->timer);
    tell(s);
}

static bool under_way(const struct tails_sweep *s)
{
    return s->reading || s->listing || s->puts || s->lane.nrunning || s->lane.nwaiting;
}

static void sweep_free(struct tails_sweep *s)
{
    s->tails->sweeping--;
    tails_place_free(&s->place);
    sg_timer_free(s->timer);
    free(s->stored);
    free(s);
}

/* ---- keeping ---- */

static enum sg_code keep_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct tails_sweep *s = arg;
    return store_process_keep(db, s->place.session.session_id, sg_wall_ms() + s->tails->keep_ms, e);
}

static void on_kept(struct store_work *w)
{
    struct tails_sweep *s = w->arg;
    s->reading = false;
    tails_sweep_step(s);
}

/* What was saved while the session ran is kept as long as what was saved now. */
static bool keep(struct tails_sweep *s)
{
    s->kept = true;
    if (!s->nstored)
        return false;
    s->work = (struct store_work){.kind = STORE_DURABLE, .fn = keep_fn, .arg = s, .done = on_kept};
    s->reading = store_submit(s->tails->store, &s->work);
    return s->reading;
}

void tails_sweep_step(struct tails_sweep *s)
{
    if (under_way(s) || (s->listed && !s->kept && keep(s)))
        return;
    close_sweep(s);
    sweep_free(s);
}

/* ---- what there is ---- */

static int by_id(const void *a, const void *b)
{
    const struct stored_process *x = a, *y = b;
    return strcmp(x->p.id, y->p.id);
}

/* Has the store all that could be saved of it now? */
static bool has_all(const struct stored_process *had, const struct sg_wire_process *p)
{
    if (had->p.how != p->how || had->p.output_incomplete != p->output_incomplete)
        return false;
    for (int i = 0; i < 2; i++) {
        uint64_t want = p->end[i] > STORE_TAIL_MAX ? p->end[i] - STORE_TAIL_MAX : 0;
        if (want < p->oldest[i])
            want = p->oldest[i];
        if (had->seen[i] != p->end[i] || had->p.end[i] != p->end[i] ||
            (had->p.oldest[i] > want && had->p.end[i] - had->p.oldest[i] < STORE_TAIL_MAX - TAILS_SLACK))
            return false;
    }
    return true;
}

static void save(struct tails_sweep *s, const struct sg_wire_process *p)
{
    struct stored_process key = {.p = *p};
    const struct stored_process *had =
        s->nstored ? bsearch(&key, s->stored, s->nstored, sizeof key, by_id) : NULL;
    if (p->state == SG_PS_NOT_STARTED || (had && has_all(had, p)))
        return;
    if (p->end[0] == p->oldest[0] && p->end[1] == p->oldest[1])
        tails_put(s->tails, &s->place, p, NULL, s);
    else
        tails_read(s->tails, &s->place, p, &s->lane);
}

static void on_list(void *arg, const struct sg_wire_process *list, size_t n, const struct sg_error *e)
{
    struct tails_sweep *s = arg;
    (void)e; /* then nothing can be said of them */
    s->listed = true;
    if (!s->cut && !s->tails->stopped) {
        for (size_t i = 0; i < n; i++) /* what still runs has never been saved */
            if (list[i].how == SG_HOW_NONE)
                save(s, &list[i]);
        for (size_t i = 0; i < n; i++)
            if (list[i].how != SG_HOW_NONE)
                save(s, &list[i]);
    }
    s->listing = false; /* only now: a read that could not begin must not end us before */
    tails_sweep_step(s);
}

static void ask_sandbox(struct tails_sweep *s)
{
    struct relay_session session = tails_place_session(&s->place);
    struct sg_error e;
    s->listing = process_list(s->tails->relay, &session, on_list, s, &e) == SG_OK;
}

/* ---- what the store has ---- */

static enum sg_code had_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct tails_sweep *s = arg;
    const char *session_id = s->place.session.session_id;
    enum sg_code rc = SG_OK;
    free(s->stored);
    s->stored = NULL;
    s->nstored = 0;
    if (!s->watched)
        rc = store_watch_has(db, session_id, &s->watched, e);
    if (rc || !s->watched)
        return rc;
    rc = store_process_list(db, s->tails->upstream, s->place.sandbox, session_id, &s->stored, &s->nstored, e);
    if (s->nstored)
        qsort(s->stored, s->nstored, sizeof *s->stored, by_id);
    return rc;
}

static void on_had(struct store_work *w)
{
    struct tails_sweep *s = w->arg;
    s->reading = false;
    /* a store that cannot be read may still be written */
    if ((s->watched || w->code) && !s->cut && !s->tails->stopped)
        ask_sandbox(s);
    tails_sweep_step(s);
}

/* ---- time ---- */

static void on_timer(void *arg)
{
    struct tails_sweep *s = arg;
    if (s->cut) {
        close_sweep(s); /* it frees itself when the last answer has come */
        return;
    }
    s->cut = true;
    sg_timer_start(s->timer, LAST_SAVES_MS);
    tails_lane_end(&s->lane, true);
    tails_sweep_step(s);
}

/* ---- the beginning ---- */

static struct tails_sweep *sweep_of(struct tails *t, const char *session_id)
{
    struct tails_sweep *s;
    LIST_FOREACH(s, &t->sweeps, link)
    if (strcmp(s->place.session.session_id, session_id) == 0 && !s->cut)
        return s;
    return NULL;
}

static struct tails_sweep *sweep_new(struct tails *t, const struct tails_place *place, bool watched)
{
    struct relay_session session = tails_place_session(place);
    struct tails_sweep *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->tails = t;
    s->watched = watched;
    t->sweeping++;
    tails_lane_init(&s->lane, TAILS_SWEEP_READS, s);
    LIST_INIT(&s->tickets);
    s->timer = sg_timer_new(relay_loop(t->relay), on_timer, s);
    s->work = (struct store_work){.kind = STORE_READ, .fn = had_fn, .arg = s, .done = on_had};
    if (s->timer && tails_place_copy(&s->place, place->sandbox, &session) &&
        store_submit(t->store, &s->work)) {
        s->reading = true;
        LIST_INSERT_HEAD(&t->sweeps, s, link);
        return s;
    }
    sweep_free(s);
    return NULL;
}

bool tails_sweep(struct tails *t, const struct tails_place *place, bool watched, int64_t budget_ms,
                 struct tails_ticket *ticket)
{
    if (t->stopped)
        return false;
    struct tails_sweep *s = sweep_of(t, place->session.session_id);
    if (!s) {
        s = sweep_new(t, place, watched);
        if (!s)
            return false;
        sg_timer_start(s->timer, (uint64_t)(budget_ms > 0 ? budget_ms : 1));
    }
    if (ticket)
        LIST_INSERT_HEAD(&s->tickets, ticket, link);
    return true;
}

/* Those whose last answer has come are freed; the others when it comes. */
void tails_sweeps_stop(struct tails *t)
{
    struct tails_sweep *s, *next;
    for (s = LIST_FIRST(&t->sweeps); s; s = next) {
        next = LIST_NEXT(s, link);
        s->cut = true;
        tails_lane_end(&s->lane, false);
        close_sweep(s);
        if (!under_way(s))
            sweep_free(s);
    }
}
