/* One process into the store, with the last bytes of its output: those at hand, or read from the sandbox. */
#include "relay/tails_internal.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- putting ---- */

struct put {
    struct store_work work;
    struct tails *t;
    struct tails_sweep *sweep;
    struct tails_place place;
    struct sg_wire_process p;
    struct store_process sp;
    char *data[2];
};

static void put_free(struct put *put)
{
    tails_place_free(&put->place);
    free(put->data[0]);
    free(put->data[1]);
    free(put);
}

static enum sg_code put_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct put *put = arg;
    /* Asked inside the transaction: whoever destroys it says so first, and removes what is there afterwards. */
    if (tails_is_gone(put->t, put->sp.session_id, put->p.id))
        return SG_OK;
    return store_process_put(db, &put->sp, e);
}

static void failed(struct tails *t, const struct sg_error *e)
{
    if (t->failures++ == 0) /* the next clean-up tells how many more */
        sg_log(SG_LOG_WARN, "process not saved", "error", "e", e, NULL);
}

static void put_done(struct store_work *w)
{
    struct put *put = (struct put *)w; /* its first member */
    struct tails_sweep *sweep = put->sweep;
    if (w->code)
        failed(put->t, &w->error);
    put_free(put);
    if (!sweep)
        return;
    sweep->puts--;
    tails_sweep_step(sweep);
}

/* Copies from..to out of a ring. */
static char *ring_copy(const struct ring *ring, uint64_t from, uint64_t to)
{
    char *out = malloc((size_t)(to - from));
    const unsigned char *piece;
    size_t done = 0, n;
    while (out && from + done < to && (n = ring_at(ring, from + done, &piece)) > 0) {
        size_t left = (size_t)(to - from) - done;
        n = n < left ? n : left;
        memcpy(out + done, piece, n);
        done += n;
    }
    return out;
}

static bool take_tail(struct put *put, int s, const struct relay_last *last)
{
    const struct ring *ring = last->ring[s];
    uint64_t from = ring ? ring->base : 0, to = ring ? ring->end : last->len[s];
    if (to > from + STORE_TAIL_MAX)
        from = to - STORE_TAIL_MAX;
    if (from == to)
        return true;
    size_t len = (size_t)(to - from);
    if (ring) {
        put->data[s] = ring_copy(ring, from, to);
    } else {
        put->data[s] = malloc(len);
        if (put->data[s])
            memcpy(put->data[s], last->head[s] + from, len);
    }
    put->sp.tail[s] = (struct store_tail){from, put->data[s], put->data[s] ? len : 0};
    put->work.bytes += len;
    if (put->p.end[s] < to)
        put->p.end[s] = to;
    return put->data[s] != NULL;
}

void tails_put(struct tails *t, const struct tails_place *place, const struct sg_wire_process *p,
               const struct relay_last *last, struct tails_sweep *sweep)
{
    struct sg_error e;
    struct put *put = calloc(1, sizeof *put);
    struct relay_session session = tails_place_session(place);
    bool ok = put && tails_place_copy(&put->place, place->sandbox, &session);
    if (ok) {
        put->t = t;
        put->sweep = sweep;
        put->p = *p;
        put->sp = (struct store_process){
            .upstream = t->upstream,
            .sandbox = put->place.sandbox,
            .session_id = put->place.session.session_id,
            .p = &put->p,
            .expires_ms = sg_wall_ms() + t->keep_ms,
        };
        put->work = (struct store_work){.kind = sweep ? STORE_DURABLE : STORE_WRITE,
                                        .fn = put_fn,
                                        .arg = put,
                                        .done = put_done,
                                        .bytes = sizeof *put};
        for (int s = 0; s < 2 && last && ok; s++)
            ok = take_tail(put, s, last);
    }
    if (!ok)
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_STARTED, "no memory to save a process");
    else if (!store_submit(t->store, &put->work))
        (void)sg_fail(&e, SG_E_STORE_UNAVAILABLE, SG_NOT_STARTED, "too much waits to be saved");
    else {
        if (sweep)
            sweep->puts++;
        return;
    }
    failed(t, &e);
    if (put)
        put_free(put);
}

bool tails_at_hand(const struct sg_wire_process *p, const struct relay_last *last)
{
    for (int s = 0; s < 2; s++) {
        const struct ring *ring = last->ring[s];
        uint64_t end = p->end[s], want = end > STORE_TAIL_MAX ? end - STORE_TAIL_MAX : 0;
        uint64_t from = ring ? ring->base : 0, to = ring ? ring->end : last->len[s];
        if (want < p->oldest[s] && p->oldest[s] <= end)
            want = p->oldest[s];
        if (to != end || (from > want && end - from < STORE_TAIL_MAX - TAILS_SLACK))
            return false;
    }
    return true;
}

/* ---- reading ---- */

struct tails_read {
    TAILQ_ENTRY(tails_read) link;
    struct tails *t;
    struct tails_lane *lane;
    struct tails_place place;
    struct sg_wire_process p;
    struct follower *follower; /* NULL: it waits */
    struct ring ring[2];
};

void tails_lane_init(struct tails_lane *l, size_t max, struct tails_sweep *sweep)
{
    TAILQ_INIT(&l->waiting);
    TAILQ_INIT(&l->running);
    l->nwaiting = l->nrunning = 0;
    l->max = max;
    l->sweep = sweep;
}

static void read_end(struct tails_read *r, bool save)
{
    struct tails_lane *l = r->lane;
    if (r->follower) {
        follower_close(r->follower);
        TAILQ_REMOVE(&l->running, r, link);
        l->nrunning--;
    } else {
        TAILQ_REMOVE(&l->waiting, r, link);
        l->nwaiting--;
    }
    if (save) {
        const struct relay_last last = {.ring = {&r->ring[0], &r->ring[1]}};
        tails_put(r->t, &r->place, &r->p, &last, l->sweep);
    }
    ring_start(&r->ring[0], 0);
    ring_start(&r->ring[1], 0);
    tails_place_free(&r->place);
    free(r);
}

static void on_hello(void *arg, const struct sg_wire_process *p)
{
    struct tails_read *r = arg;
    struct sg_wire_process known = r->p;
    r->p = *p;
    if (known.how == SG_HOW_NONE || p->how != SG_HOW_NONE)
        return;
    relay_take_exit(&r->p, &known); /* a hello does not tell how it ended */
    for (int s = 0; s < 2; s++)     /* but what descendants wrote since */
        if (r->p.end[s] < p->end[s])
            r->p.end[s] = p->end[s];
}

static bool on_data(void *arg, int stream, uint64_t offset, const void *data, size_t len)
{
    struct tails_read *r = arg;
    if (!ring_add(&r->ring[stream], data, len))
        ring_start(&r->ring[stream], offset + len); /* no memory: a later part may still be kept */
    return true;
}

static void on_gap(void *arg, int stream, uint64_t from, uint64_t to)
{
    struct tails_read *r = arg;
    (void)from;
    ring_start(&r->ring[stream], to);
}

static void lane_next(struct tails *t, struct tails_lane *lane);

static void on_end(void *arg, const struct sg_wire_process *p, const struct sg_error *e)
{
    struct tails_read *r = arg;
    struct tails *t = r->t;
    struct tails_lane *l = r->lane;
    if (p && p->how != SG_HOW_NONE)
        r->p = *p;
    read_end(r, !e || e->code != SG_E_PROCESS_NOT_FOUND); /* removed meanwhile: nothing of it is to be told */
    lane_next(t, l);
    if (l->sweep)
        tails_sweep_step(l->sweep);
}

static bool read_begin(struct tails_read *r)
{
    static const struct follower_events events = {on_hello, on_data, on_gap, on_end};
    struct follow_spec spec = {
        .session = tails_place_session(&r->place),
        .id = r->p.id,
        .only = -1,
        .bounded = true,
        .gaps = true,
    };
    struct sg_error e;
    for (int s = 0; s < 2; s++) {
        uint64_t end = r->p.end[s];
        spec.offset[s] = end > STORE_TAIL_MAX ? end - STORE_TAIL_MAX : 0;
        if (spec.offset[s] < r->p.oldest[s])
            spec.offset[s] = r->p.oldest[s];
        ring_start(&r->ring[s], spec.offset[s]);
    }
    struct follower *f = follower_open(r->t->relay, &spec, &events, r, &e);
    if (!f)
        return false;
    TAILQ_REMOVE(&r->lane->waiting, r, link);
    r->lane->nwaiting--;
    r->follower = f;
    TAILQ_INSERT_TAIL(&r->lane->running, r, link);
    r->lane->nrunning++;
    return true;
}

static void lane_next(struct tails *t, struct tails_lane *l)
{
    struct tails_read *r, *next;
    for (r = TAILQ_FIRST(&l->waiting); r && !t->stopped && l->nrunning < l->max; r = next) {
        next = TAILQ_NEXT(r, link);
        if (!read_begin(r))
            read_end(r, true);
    }
}

void tails_read(struct tails *t, const struct tails_place *place, const struct sg_wire_process *p,
                struct tails_lane *lane)
{
    struct relay_session session = tails_place_session(place);
    bool room = lane->nwaiting < TAILS_READS_WAITING || lane->sweep;
    struct tails_read *r = room ? calloc(1, sizeof *r) : NULL;
    if (!r || !tails_place_copy(&r->place, place->sandbox, &session)) {
        free(r);
        tails_put(t, place, p, NULL, lane->sweep); /* a sweep before the session's end may do better */
        return;
    }
    r->t = t;
    r->lane = lane;
    r->p = *p;
    for (int s = 0; s < 2; s++)
        ring_init(&r->ring[s], &t->ring_used);
    TAILQ_INSERT_TAIL(&lane->waiting, r, link);
    lane->nwaiting++;
    lane_next(t, lane);
}

static void end_all(struct tails_reads *reads, bool save)
{
    struct tails_read *r, *next;
    for (r = TAILQ_FIRST(reads); r; r = next) {
        next = TAILQ_NEXT(r, link);
        read_end(r, save);
    }
}

void tails_lane_end(struct tails_lane *l, bool save)
{
    end_all(&l->running, save);
    end_all(&l->waiting, save);
}
