#include "relay/feed_impl.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct follower_events up_events;

/* ---- all of them ---- */

static void on_wake(void *arg)
{
    (void)arg; /* that the loop comes round is enough */
}

/* The end of a turn: what came in it goes out in as few pieces as possible. */
static bool on_turn(void *arg);

struct feeds *feeds_new(struct relay *r)
{
    struct feeds *all = calloc(1, sizeof *all);
    if (!all)
        return NULL;
    all->relay = r;
    TAILQ_INIT(&all->all);
    TAILQ_INIT(&all->due);
    all->wake = sg_timer_new(relay_loop(r), on_wake, NULL);
    if (!all->wake || sg_loop_on_turn(relay_loop(r), on_turn, all)) {
        sg_timer_free(all->wake);
        free(all);
        return NULL;
    }
    return all;
}

void feeds_free(struct feeds *all)
{
    if (!all)
        return;
    sg_loop_off_turn(relay_loop(all->relay), on_turn, all);
    sg_timer_free(all->wake);
    free(all);
}

struct feed *feed_find(struct relay *r, const struct relay_session *s, const char *id)
{
    struct named *n = named_find(relay_named(r, RELAY_FEEDS), s->session_id, id);
    return n ? (struct feed *)((char *)n - offsetof(struct feed, name)) : NULL;
}

void feed_due(struct feed *f)
{
    if (f->is_due)
        return;
    f->is_due = true;
    f->feeds->ndue++;
    TAILQ_INSERT_TAIL(&f->feeds->due, f, due);
    if (!sg_timer_active(f->feeds->wake))
        sg_timer_start(f->feeds->wake, 0);
}

static void not_due(struct feed *f)
{
    if (!f->is_due)
        return;
    f->is_due = false;
    f->feeds->ndue--;
    TAILQ_REMOVE(&f->feeds->due, f, due);
}

/* ---- the upstream's side ---- */

static const struct sg_wire_process *newest(const struct feed *f)
{
    const struct sg_wire_process *p = f->up ? follower_known(f->up) : &f->p;
    return p->id[0] ? p : &f->p;
}

/* start: it does not run yet; NULL: it does. */
static bool up_open(struct feed *f, const struct process_spec *start, struct sg_error *e)
{
    struct follow_spec s = {
        .session = {f->session.session_id, f->session.arch, f->session.cwd},
        .id = f->id,
        .offset = {f->ring[0].end, f->ring[1].end},
        .only = -1,
        .attend = f->attend,
        .start = start,
    };
    f->paused = false;
    f->up = follower_open(f->obj.relay, &s, &up_events, f, e);
    return f->up != NULL;
}

static void up_close(struct feed *f)
{
    if (!f->up)
        return;
    if (!f->ended)
        f->p = *newest(f);
    follower_close(f->up);
    f->up = NULL;
}

/* After what is in the rings, the readers are told. */
static void feed_end(struct feed *f, const struct sg_wire_process *p, const struct sg_error *e)
{
    if (f->ended)
        return;
    up_close(f);
    quiet_leave(&f->quiet);
    f->ended = true;
    if (p) {
        const struct relay_last last = {.ring = {&f->ring[0], &f->ring[1]}};
        f->p = *p;
        relay_tell_ended(f->obj.relay, f->session.session_id, p, &last);
    }
    if (e) {
        f->failed = true;
        f->e = *e;
    }
    if (e || p->output_incomplete)
        named_remove(&f->name); /* who comes now may have more luck */
    if (f->nreaders)
        sg_timer_stop(f->timer);
    feed_due(f);
}

static void start_timer(struct feed *f)
{
    const struct relay_limits *l = relay_limits(f->obj.relay);
    f->heard_ms = sg_mono_ms();
    sg_timer_start(f->timer, (uint64_t)(f->nreaders ? l->quiet_ms : l->linger_ms));
}

static void up_again(struct feed *f)
{
    struct sg_error e;
    quiet_leave(&f->quiet);
    if (f->nreaders && !f->ended)
        start_timer(f);
    if (!f->up && !f->ended && !up_open(f, NULL, &e))
        feed_end(f, NULL, &e);
}

/* From other offsets, or in another way. */
static void up_anew(struct feed *f)
{
    up_close(f);
    up_again(f);
}

/* Asked beyond the end of what runs: others may want what will be written before that. */
static void step_back(struct feed *f, const struct sg_wire_process *p)
{
    bool back = false;
    for (int s = 0; s < 2; s++) {
        if (f->ring[s].end <= p->end[s])
            continue;
        ring_start(&f->ring[s], p->end[s]);
        back = true;
    }
    if (back)
        up_anew(f);
}

static void on_hello(void *arg, const struct sg_wire_process *p)
{
    struct feed *f = arg;
    bool first = !f->greeted;
    f->greeted = true;
    f->p = *p;
    feed_due(f);
    if (first && p->state != SG_PS_FINISHED && p->state != SG_PS_UNKNOWN)
        step_back(f, p);
}

/* Memory for `need` bytes more, if it can be had from who has no use for it. */
static bool reclaim(struct feed *f, size_t need)
{
    struct feeds *all = f->feeds;
    size_t total = (size_t)relay_limits(f->obj.relay)->ring_total;
    struct feed *other, *next;
    for (other = TAILQ_FIRST(&all->all); other && all->used + need > total; other = next) {
        next = TAILQ_NEXT(other, all);
        if (other != f && !other->nreaders)
            feed_drop(other);
    }
    TAILQ_FOREACH(other, &all->all, all)
    {
        if (all->used + need <= total)
            break;
        if (other == f || other->wanted)
            continue; /* somebody will read it */
        for (int s = 0; s < 2; s++)
            ring_start(&other->ring[s], other->ring[s].end);
    }
    return all->used + need <= total;
}

static bool store(struct feed *f, int s, const void *data, size_t len)
{
    struct ring *r = &f->ring[s];
    size_t total = (size_t)relay_limits(f->obj.relay)->ring_total;
    size_t need = ring_need(r, len);
    bool fits = f->feeds->used + need <= total || r->n == RING_BLOCKS || reclaim(f, need);
    while (!fits && ring_drop(r))
        fits = f->feeds->used + ring_need(r, len) <= total;
    if (TAILQ_NEXT(f, all)) {
        TAILQ_REMOVE(&f->feeds->all, f, all);
        TAILQ_INSERT_TAIL(&f->feeds->all, f, all);
    }
    return fits && ring_add(r, data, len);
}

static void walk_direct(struct feed *f, int s, uint64_t offset, const void *data, size_t len);

static bool on_data(void *arg, int s, uint64_t offset, const void *data, size_t len)
{
    struct feed *f = arg;
    f->heard_ms = sg_mono_ms();
    if (f->quiet.session)
        up_again(f); /* not quiet after all */
    if (!store(f, s, data, len)) {
        walk_direct(f, s, offset, data, len);
        ring_start(&f->ring[s], offset + len);
    }
    f->ahead = f->ahead > SIZE_MAX - len ? SIZE_MAX : f->ahead + len;
    f->paused = f->ahead > FEED_AHEAD;
    feed_due(f);
    return !f->paused;
}

static void on_gap(void *arg, int s, uint64_t from, uint64_t to)
{
    struct feed *f = arg;
    (void)from;
    ring_gap(&f->ring[s], to);
    feed_due(f);
}

static void on_end(void *arg, const struct sg_wire_process *p, const struct sg_error *e)
{
    feed_end(arg, p, e);
}

static const struct follower_events up_events = {on_hello, on_data, on_gap, on_end};

struct sg_wire_process feed_known(const struct feed *f)
{
    struct sg_wire_process p = *newest(f);
    for (int s = 0; s < 2; s++)
        if (p.end[s] < f->ring[s].end)
            p.end[s] = f->ring[s].end;
    return p;
}

/* ---- a quiet process ---- */

static void on_watched(struct quiet_entry *q)
{
    up_close((struct feed *)((char *)q - offsetof(struct feed, quiet)));
}

static void on_told(struct quiet_entry *q, const struct sg_error *e)
{
    struct feed *f = (struct feed *)((char *)q - offsetof(struct feed, quiet));
    if (e)
        feed_end(f, NULL, e);
    else
        up_again(f);
}

static bool may_be_quiet(const struct feed *f)
{
    const struct reader *r;
    if (!f->up || !f->greeted || f->ended || f->paused || f->quiet.session)
        return false;
    if (f->attend && newest(f)->ends_unattended)
        return false; /* when its clients leave, that has to be known soon */
    TAILQ_FOREACH(r, &f->readers, link)
    if (r->lively)
        return false;
    return true;
}

static void look_whether_quiet(struct feed *f)
{
    int64_t quiet_ms = relay_limits(f->obj.relay)->quiet_ms;
    int64_t silent = sg_mono_ms() - f->heard_ms;
    if (f->ended || f->quiet.session)
        return; /* on_told comes back here */
    if (silent >= quiet_ms && may_be_quiet(f)) {
        struct relay_session session = {f->session.session_id, f->session.arch, f->session.cwd};
        for (int s = 0; s < 2; s++)
            f->quiet.offset[s] = f->ring[s].end;
        f->quiet.attend = f->attend;
        if (quiet_enter(f->obj.relay, &session, &f->quiet))
            return;
    }
    sg_timer_start(f->timer, (uint64_t)(silent < quiet_ms ? quiet_ms - silent : quiet_ms));
}

static void on_timer(void *arg)
{
    struct feed *f = arg;
    if (f->nreaders)
        look_whether_quiet(f);
    else
        feed_drop(f);
}

/* ---- the readers' side ---- */

/* A reader that stands far ahead, at bytes that are there, takes the feed along. */
static void follow_the_first(struct feed *f)
{
    const struct reader *r;
    bool jumped = false;
    if (f->ended || !f->greeted)
        return;
    struct sg_wire_process p = feed_known(f);
    for (int s = 0; s < 2; s++) {
        uint64_t to = f->ring[s].end;
        TAILQ_FOREACH(r, &f->readers, link)
        if (!r->ended && !r->own && reader_wants(r, s) && r->pos[s] > to && r->pos[s] <= p.end[s])
            to = r->pos[s];
        if (to <= f->ring[s].end + FEED_JUMP)
            continue;
        ring_start(&f->ring[s], to);
        jumped = true;
    }
    if (jumped)
        up_anew(f);
}

/* One round over the readers, any of which may close. */
static bool walk(struct feed *f)
{
    bool more = false;
    for (struct reader *r = TAILQ_FIRST(&f->readers); r; r = f->next) {
        f->next = TAILQ_NEXT(r, link);
        more = reader_serve(r) || more;
    }
    return more;
}

static void walk_direct(struct feed *f, int s, uint64_t offset, const void *data, size_t len)
{
    (void)walk(f); /* what came before */
    for (struct reader *r = TAILQ_FIRST(&f->readers); r; r = f->next) {
        f->next = TAILQ_NEXT(r, link);
        reader_direct(r, s, offset, data, len);
    }
}

/* The pace is that of the fastest reader. */
static void keep_pace(struct feed *f)
{
    const struct reader *r;
    size_t least = SIZE_MAX;
    f->wanted = false;
    TAILQ_FOREACH(r, &f->readers, link)
    {
        size_t lag = reader_lag(r);
        least = lag < least ? lag : least;
        f->wanted = f->wanted || (lag > 0 && lag < SIZE_MAX);
    }
    f->ahead = least;
    if (!f->paused || least > FEED_AHEAD / 2 || !f->up)
        return;
    f->paused = false;
    follower_resume(f->up);
}

static bool on_turn(void *arg)
{
    struct feeds *all = arg;
    struct feed *f;
    if (TAILQ_EMPTY(&all->due))
        return false;
    sg_timer_stop(all->wake);
    for (size_t n = all->ndue; n && (f = TAILQ_FIRST(&all->due)); n--) {
        not_due(f);
        follow_the_first(f);
        if (walk(f))
            feed_due(f);
        keep_pace(f);
    }
    return true; /* somebody has frames to write now */
}

void feed_enter(struct feed *f, struct reader *r)
{
    bool anew = r->attend && !f->attend;
    r->feed = f;
    TAILQ_INSERT_TAIL(&f->readers, r, link);
    f->attend = f->attend || r->attend;
    if (f->nreaders++ == 0)
        start_timer(f);
    if (anew && f->up)
        up_anew(f);
    else if (!f->up && (r->lively || anew || !f->quiet.session))
        up_again(f);
    feed_due(f);
}

void feed_leave(struct feed *f, struct reader *r)
{
    if (f->next == r)
        f->next = TAILQ_NEXT(r, link);
    TAILQ_REMOVE(&f->readers, r, link);
    r->feed = NULL;
    if (--f->nreaders == 0) {
        start_timer(f);
        if (!f->name.prev)
            sg_timer_start(f->timer, 0); /* nobody can come any more */
    }
    feed_due(f); /* it may have been the fastest */
}

/* ---- life ---- */

static void destroy(struct relay_obj *o)
{
    struct feed *f = (struct feed *)o;
    session_free(&f->session);
    sg_timer_free(f->timer);
    free(f);
}

void feed_drop(struct feed *f)
{
    up_close(f);
    quiet_leave(&f->quiet);
    named_remove(&f->name);
    for (int s = 0; s < 2; s++)
        ring_start(&f->ring[s], 0);
    not_due(f);
    TAILQ_REMOVE(&f->feeds->all, f, all);
    if (f->timer)
        sg_timer_stop(f->timer);
    obj_bury(&f->obj);
}

static void abandon(struct relay_obj *o, const struct sg_error *e)
{
    struct feed *f = (struct feed *)o;
    struct reader *r;
    while ((r = TAILQ_FIRST(&f->readers)))
        r->obj.abandon(&r->obj, e);
    feed_drop(f);
}

struct feed *feed_new(struct relay *r, const struct follow_spec *s, struct sg_error *e)
{
    struct feed *f = calloc(1, sizeof *f);
    if (!f) {
        sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory to follow a process");
        return NULL;
    }
    obj_init(&f->obj, r, abandon, destroy);
    f->feeds = relay_feeds(r);
    TAILQ_INIT(&f->readers);
    TAILQ_INSERT_TAIL(&f->feeds->all, f, all);
    (void)snprintf(f->id, sizeof f->id, "%s", s->id);
    f->attend = s->attend;
    f->quiet.id = f->id;
    f->quiet.on_watched = on_watched;
    f->quiet.on_told = on_told;
    for (int i = 0; i < 2; i++) {
        ring_init(&f->ring[i], &f->feeds->used);
        ring_start(&f->ring[i], s->offset[i]);
    }
    f->timer = sg_timer_new(relay_loop(r), on_timer, f);
    if (!f->timer || !session_copy(&f->session, &s->session))
        sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory to follow a process");
    else if (up_open(f, s->start, e))
        goto made;
    feed_drop(f);
    return NULL;
made:
    f->name.session_id = f->session.session_id;
    f->name.id = f->id;
    named_add(relay_named(r, RELAY_FEEDS), &f->name);
    return f;
}

bool feed_present(struct relay *r, const char *session_id, const char *id)
{
    struct relay_session s = {.session_id = session_id};
    const struct feed *f = feed_find(r, &s, id);
    return f && f->greeted;
}

void feed_forget(struct relay *r, const char *session_id, const char *id)
{
    struct relay_session s = {.session_id = session_id};
    struct feed *f = feed_find(r, &s, id);
    if (!f)
        return;
    named_remove(&f->name);
    if (!f->nreaders)
        feed_drop(f);
}
