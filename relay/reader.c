#include "relay/feed_impl.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

static const struct follower_events own_events;

bool reader_wants(const struct reader *r, int stream)
{
    return r->only < 0 || r->only == stream;
}

size_t reader_lag(const struct reader *r)
{
    const struct feed *f = r->feed;
    size_t lag = 0;
    if (r->ended || r->own)
        return SIZE_MAX;
    for (int s = 0; s < 2; s++) {
        const struct ring *ring = &f->ring[s];
        if (!reader_wants(r, s) || r->pos[s] >= ring->end)
            continue;
        if (r->pos[s] < ring->gone)
            return SIZE_MAX;
        lag += (size_t)(ring->end - (r->pos[s] > ring->base ? r->pos[s] : ring->base));
    }
    return lag;
}

/* ---- what the owner hears ---- */

static void tell_end(struct reader *r, const struct sg_wire_process *p, const struct sg_error *e)
{
    if (r->ended || r->closed)
        return;
    r->ended = true;
    if (r->own)
        follower_close(r->own);
    r->own = NULL;
    if (r->feed)
        feed_due(r->feed); /* it sets the pace no more */
    r->ev.on_end(r->arg, p, e);
}

static void tell_hello(struct reader *r, const struct sg_wire_process *p)
{
    r->told_hello = true;
    r->ev.on_hello(r->arg, p);
}

static bool goes_on(const struct reader *r)
{
    return !r->paused && !r->closed && !r->ended;
}

/* Bytes at the reader's place; false: no more now. */
static bool give(struct reader *r, int s, const void *data, size_t len)
{
    uint64_t at = r->pos[s];
    if (r->bounded && len > r->limit_left)
        len = (size_t)r->limit_left;
    if (!len)
        return goes_on(r);
    r->pos[s] += len;
    if (r->bounded)
        r->limit_left -= len;
    r->in_data = true;
    r->unpaused = false;
    bool more = r->ev.on_data(r->arg, s, at, data, len);
    r->in_data = false;
    r->paused = !more && !r->unpaused;
    return goes_on(r);
}

static void give_gap(struct reader *r, int s, uint64_t to)
{
    uint64_t from = r->pos[s];
    r->pos[s] = to;
    r->ev.on_gap(r->arg, s, from, to);
}

/* ---- what the ring does not have: a read of its own ---- */

/* As far as the ring begins, or a little further: the ring moves meanwhile. */
static bool joins(const struct reader *r, bool margin)
{
    for (int s = 0; s < 2; s++) {
        const struct ring *ring = &r->feed->ring[s];
        uint64_t far = margin ? (ring->end - ring->base) / 4 : 0;
        if (reader_wants(r, s) && r->pos[s] < (far || r->bounded ? ring->base + far : ring->gone))
            return false;
    }
    return true;
}

static void leave_own(struct reader *r)
{
    follower_close(r->own);
    r->own = NULL;
    feed_due(r->feed);
}

static void own_hello(void *arg, const struct sg_wire_process *p)
{
    struct reader *r = arg;
    if (!r->told_hello)
        tell_hello(r, p);
}

static bool own_data(void *arg, int s, uint64_t offset, const void *data, size_t len)
{
    struct reader *r = arg;
    (void)offset; /* the follower's contract: where we are */
    (void)give(r, s, data, len);
    if (r->closed || r->ended)
        return true;
    if (!r->bounded && joins(r, true))
        leave_own(r);
    return !r->paused;
}

static void own_gap(void *arg, int s, uint64_t from, uint64_t to)
{
    struct reader *r = arg;
    (void)from;
    give_gap(r, s, to);
}

/* The process ended, and what is missing cannot be had. */
static void end_incomplete(struct reader *r)
{
    struct sg_wire_process p = r->feed->p;
    p.output_incomplete = true;
    tell_end(r, &p, NULL);
}

static void own_end(void *arg, const struct sg_wire_process *p, const struct sg_error *e)
{
    struct reader *r = arg;
    struct sg_error bad;
    if (r->bounded) {
        tell_end(r, p, e);
        return;
    }
    bool progress = r->pos[0] > r->own_from[0] || r->pos[1] > r->own_from[1];
    leave_own(r);
    r->stuck = progress ? 0 : r->stuck + 1;
    if (!e && r->stuck >= RELAY_STUCK_MAX) {
        sg_fail(&bad, SG_E_UPSTREAM_BAD_RESPONSE, SG_STARTED, "output that was there before is not found");
        e = &bad;
    }
    if (e && r->feed->ended && !r->feed->failed)
        end_incomplete(r);
    else if (e)
        tell_end(r, NULL, e);
}

static const struct follower_events own_events = {own_hello, own_data, own_gap, own_end};

static void catch_up(struct reader *r)
{
    struct feed *f = r->feed;
    struct sg_error e;
    struct follow_spec s = {
        .session = {f->session.session_id, f->session.arch, f->session.cwd},
        .id = f->id,
        .offset = {r->pos[0], r->pos[1]},
        .only = -1,
        .bounded = true,
        .gaps = !r->bounded,
    };
    bool behind[2];
    for (int i = 0; i < 2; i++) {
        behind[i] = reader_wants(r, i) && r->pos[i] < f->ring[i].gone;
        if (behind[i])
            s.limit += f->ring[i].end - r->pos[i];
        r->own_from[i] = r->pos[i];
    }
    if (!behind[0] || !behind[1])
        s.only = behind[1];
    if (r->bounded)
        s.limit = r->limit_left;
    r->own = follower_open(r->obj.relay, &s, &own_events, r, &e);
    if (!r->own)
        own_end(r, NULL, &e);
}

/* ---- from the ring ---- */

/* One piece of stream s at most.  False: there is none, or not now. */
static bool give_piece(struct reader *r, int s, size_t *budget)
{
    const unsigned char *data;
    if (!reader_wants(r, s) || !goes_on(r))
        return false;
    const struct ring *ring = &r->feed->ring[s];
    if (r->pos[s] < ring->base) { /* and not before what is known to be gone */
        give_gap(r, s, ring->base);
        return goes_on(r);
    }
    size_t n = ring_at(ring, r->pos[s], &data);
    if (n > *budget)
        n = *budget;
    if (!n || (r->bounded && !r->limit_left))
        return false;
    *budget -= n;
    (void)give(r, s, data, n);
    return true;
}

/* False: nothing is left in the ring, or it takes no more. */
static bool give_from_ring(struct reader *r)
{
    size_t budget = FEED_SERVE;
    bool more = true;
    while (more && budget && goes_on(r)) {
        more = false;
        for (int s = 0; s < 2; s++)
            more = give_piece(r, s, &budget) || more;
    }
    return more && goes_on(r);
}

static bool at_end(const struct reader *r)
{
    for (int s = 0; s < 2; s++)
        if (reader_wants(r, s) && r->pos[s] < r->feed->ring[s].end)
            return false;
    return true;
}

/* A bounded read: was all delivered that there is? */
static bool has_enough(const struct reader *r)
{
    if (!r->limit_left)
        return true;
    return at_end(r) && (r->pos[r->only] > r->start || r->wait_over || r->feed->ended);
}

static bool finish(struct reader *r)
{
    struct feed *f = r->feed;
    if (r->bounded && has_enough(r)) {
        struct sg_wire_process p = feed_known(f);
        tell_end(r, &p, NULL);
    } else if (f->ended && at_end(r)) {
        tell_end(r, f->failed ? NULL : &f->p, f->failed ? &f->e : NULL);
    }
    return false;
}

bool reader_serve(struct reader *r)
{
    struct feed *f = r->feed;
    if (r->closed || r->ended || r->own || (!f->greeted && !f->ended))
        return false;
    if (!r->told_hello && f->greeted) {
        struct sg_wire_process p = feed_known(f);
        tell_hello(r, &p);
    }
    if (!goes_on(r))
        return false;
    if (!joins(r, false)) {
        catch_up(r);
        return false;
    }
    if (give_from_ring(r))
        return true;
    return goes_on(r) ? finish(r) : false;
}

void reader_direct(struct reader *r, int s, uint64_t offset, const void *data, size_t len)
{
    if (!reader_wants(r, s) || r->own || !r->told_hello || !goes_on(r) || r->pos[s] < offset ||
        r->pos[s] >= offset + len)
        return;
    size_t known = (size_t)(r->pos[s] - offset);
    (void)give(r, s, (const char *)data + known, len - known);
}

/* ---- the owner's side ---- */

static void on_wait(void *arg)
{
    struct reader *r = arg;
    r->wait_over = true;
    feed_due(r->feed);
}

void reader_resume(struct reader *r)
{
    if (r->closed || r->ended)
        return;
    if (r->in_data)
        r->unpaused = true;
    if (!r->paused)
        return;
    r->paused = false;
    if (r->own)
        follower_resume(r->own);
    else
        feed_due(r->feed);
}

static void destroy(struct relay_obj *o)
{
    struct reader *r = (struct reader *)o;
    sg_timer_free(r->wait);
    free(r);
}

void reader_close(struct reader *r)
{
    if (r->closed)
        return;
    r->closed = true;
    if (r->own)
        follower_close(r->own);
    r->own = NULL;
    if (r->wait)
        sg_timer_stop(r->wait);
    if (r->feed)
        feed_leave(r->feed, r);
    obj_bury(&r->obj);
}

static void abandon(struct relay_obj *o, const struct sg_error *e)
{
    struct reader *r = (struct reader *)o;
    struct sg_error copy = *e;
    tell_end(r, NULL, &copy);
    reader_close(r); /* an owner that did not: nothing may be left behind */
}

/* Can the ring answer this read, or tell when there is something to answer? */
static bool answers(const struct feed *f, const struct follow_spec *s)
{
    if (!f->greeted || f->failed || s->only < 0)
        return false;
    const struct ring *ring = &f->ring[s->only];
    uint64_t at = s->offset[s->only];
    if (at < ring->base || at > ring->end)
        return false;
    if (s->limit && s->limit <= ring->end - at)
        return true;
    if (f->ended) /* descendants may have written more since */
        return !f->p.descendants_hold_output;
    struct sg_wire_process p =
        feed_known(f); /* not what is on its way: that is there, and no matter of waiting */
    return at == ring->end && at == p.end[s->only] && s->wait_ms > 0 && !f->paused;
}

/* A feed that nobody reads and that is elsewhere is of no use. */
static bool suits(const struct feed *f, const struct follow_spec *s)
{
    if (f->nreaders)
        return true;
    for (int i = 0; i < 2; i++)
        if ((s->only < 0 || s->only == i) && s->offset[i] < f->ring[i].gone)
            return false;
    return true;
}

/* The feed to read from; NULL without error: none. */
static bool choose(struct relay *relay, const struct follow_spec *s, struct feed **out, struct sg_error *e)
{
    struct feed *f = feed_find(relay, &s->session, s->id);
    if (s->bounded) {
        *out = f && answers(f, s) ? f : NULL;
        return true;
    }
    if (f && !suits(f, s)) {
        feed_drop(f);
        f = NULL;
    }
    *out = f ? f : feed_new(relay, s, e);
    return *out != NULL;
}

static bool begin(struct reader *r, const struct follow_spec *s, struct sg_error *e)
{
    struct feed *f;
    if (!choose(r->obj.relay, s, &f, e))
        return false;
    if (!f) {
        r->own = follower_open(r->obj.relay, s, &own_events, r, e);
        return r->own != NULL;
    }
    if (r->bounded && s->wait_ms > 0) {
        r->wait = sg_timer_new(relay_loop(r->obj.relay), on_wait, r);
        if (!r->wait) {
            sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory to follow a process");
            return false;
        }
        sg_timer_start(r->wait, (uint64_t)s->wait_ms);
    }
    feed_enter(f, r);
    return true;
}

struct reader *reader_open(struct relay *relay, const struct follow_spec *s, const struct follower_events *ev,
                           void *arg, struct sg_error *e)
{
    if (follow_spec_check(s, e))
        return NULL;
    struct reader *r = calloc(1, sizeof *r);
    if (!r) {
        sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory to follow a process");
        return NULL;
    }
    obj_init(&r->obj, relay, abandon, destroy);
    r->ev = *ev;
    r->arg = arg;
    r->only = s->only;
    r->attend = s->attend;
    r->lively = s->lively;
    r->bounded = s->bounded;
    r->limit_left = s->bounded && s->limit ? s->limit : UINT64_MAX;
    r->wait_over = s->wait_ms <= 0;
    for (int i = 0; i < 2; i++)
        r->pos[i] = s->offset[i];
    r->start = s->only >= 0 ? s->offset[s->only] : 0;
    if (begin(r, s, e))
        return r;
    reader_close(r);
    return NULL;
}
