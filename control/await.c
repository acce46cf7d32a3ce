/* Waiting for what becomes of a sandbox: one look after another, shared by all who wait for the same one.  As many wait as there
 * are requests open.  A look counts for those who came before it began. */
#include "control/control.h"
#include "control/look.h"
#include "control/record.h"

#include "base/buf.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

enum { LOOK_FIRST_MS = 200, LOOK_MAX_MS = 2000 };

struct waiter {
    struct control_op op;
    TAILQ_ENTRY(waiter) link;  /* among those who wait … */
    STAILQ_ENTRY(waiter) next; /* … or those to be answered */
    struct watch *watch;
    struct control_wait want;
    struct sg_timer *timer;
    bool ripe;    /* a look began after it came */
    bool seen;    /* and ended: what was seen last may be told to it */
    bool overdue; /* its patience was over before the first look was */
    bool ready;   /* it is to be answered */
    char first[CONTROL_ETAG_LEN + 1];
    control_record_fn *done; /* NULL: nobody wants the answer any more */
    void *arg;
};
TAILQ_HEAD(waiters, waiter);
STAILQ_HEAD(ready, waiter);

struct watch {
    struct watch *next;
    struct control *c;
    char *name;
    struct look *look;
    struct sg_timer *timer;
    uint64_t pause_ms;
    struct waiters waiting;
    struct ready ready;
    bool busy;            /* answering: not freed meanwhile */
    struct sg_buf record; /* the last one seen */
    char etag[CONTROL_ETAG_LEN + 1];
};

/* ---- a watch's life ---- */

static void watch_free(struct watch *w)
{
    struct watch **at = &w->c->watches;
    while (*at && *at != w)
        at = &(*at)->next;
    if (*at)
        *at = w->next;
    if (w->look)
        look_cancel(w->look);
    sg_timer_free(w->timer);
    sg_buf_free(&w->record);
    free(w->name);
    free(w);
}

static bool watch_idle(const struct watch *w)
{
    return TAILQ_EMPTY(&w->waiting) && STAILQ_EMPTY(&w->ready);
}

static void on_pause_over(void *arg);

static struct watch *watch_of(struct control *c, const char *name)
{
    struct watch *w = c->watches;
    while (w && strcmp(w->name, name) != 0)
        w = w->next;
    if (w)
        return w;
    w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->c = c;
    TAILQ_INIT(&w->waiting);
    STAILQ_INIT(&w->ready);
    sg_buf_init(&w->record, CONTROL_RECORD_MAX);
    w->name = strdup(name);
    w->timer = sg_timer_new(c->loop, on_pause_over, w);
    w->next = c->watches;
    c->watches = w;
    if (w->name && w->timer)
        return w;
    watch_free(w);
    return NULL;
}

/* ---- answering ---- */

/* From now on it waits for nothing but its answer. */
static void make_ready(struct waiter *r)
{
    struct watch *w = r->watch;
    r->ready = true;
    control_op_remove(w->c, &r->op);
    TAILQ_REMOVE(&w->waiting, r, link);
    STAILQ_INSERT_TAIL(&w->ready, r, next);
    sg_timer_stop(r->timer);
}

static void waiter_free(struct waiter *r)
{
    sg_timer_free(r->timer);
    free(r);
}

/* e NULL: the record that was seen last. */
static void tell(const struct watch *w, const struct waiter *r, const struct sg_error *e)
{
    struct sg_error own;
    struct sg_buf copy;
    char etag[CONTROL_ETAG_LEN + 1];
    memcpy(etag, w->etag, sizeof etag);
    sg_buf_init(&copy, CONTROL_RECORD_MAX);
    if (!e && !sg_buf_add(&copy, w->record.data, w->record.len)) {
        (void)sg_fail(&own, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
        e = &own;
    }
    r->done(r->arg, e ? NULL : &copy, e ? NULL : etag, e);
    sg_buf_free(&copy);
}

/* Answers those that are ready.  False: nobody is left, and the watch is gone.  A callback may end any other waiter, but not
 * the watch. */
static bool answer_ready(struct watch *w, const struct sg_error *e)
{
    struct waiter *r;
    bool outer = w->busy;
    w->busy = true;
    while ((r = STAILQ_FIRST(&w->ready))) {
        STAILQ_REMOVE_HEAD(&w->ready, next);
        if (r->done)
            tell(w, r, e);
        waiter_free(r);
    }
    w->busy = outer;
    if (outer || !watch_idle(w))
        return true;
    watch_free(w);
    return false;
}

static void waiter_end(struct control_op *op, const struct sg_error *e)
{
    struct waiter *r = (struct waiter *)op;
    struct watch *w = r->watch;
    if (!e)
        r->done = NULL;
    if (r->ready)
        return; /* its turn comes, and frees it */
    make_ready(r);
    if (!w->busy)
        (void)answer_ready(w, e);
}

/* ---- looking ---- */

/* By itself it becomes nothing else. */
static bool at_rest(enum vercel_status s)
{
    return s == VERCEL_STOPPED || s == VERCEL_FAILED || s == VERCEL_ABORTED;
}

static bool is_over(struct waiter *r, enum vercel_status status, const char *etag)
{
    const struct control_wait *want = &r->want;
    if (r->overdue)
        return true;
    if (want->for_status)
        return status == want->status || (at_rest(status) && !control_resuming(r->watch->c, r->watch->name));
    if (want->has)
        return !want->has(r->arg, etag);
    if (!*r->first)
        memcpy(r->first, etag, sizeof r->first);
    return at_rest(status) || strcmp(r->first, etag) != 0;
}

static void on_look(void *arg, struct vercel_sandbox *s, const struct store_sandbox *known,
                    const struct sg_error *e)
{
    struct watch *w = arg;
    struct sg_error own;
    w->look = NULL;
    if (!e) {
        char before[sizeof w->etag];
        memcpy(before, w->etag, sizeof before);
        control_observe(w->c, s);
        sg_buf_reset(&w->record);
        control_record_write(s, known, sg_wall_ms(), &w->record, w->etag);
        if (strcmp(before, w->etag) != 0)
            w->pause_ms = LOOK_FIRST_MS;
        if (w->record.failed) {
            (void)sg_fail(&own, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
            e = &own;
        }
    }
    bool unripe = false;
    struct waiter *r, *next;
    for (r = TAILQ_FIRST(&w->waiting); r; r = next) {
        next = TAILQ_NEXT(r, link);
        if (!r->ripe)
            unripe = true;
        else if (e || is_over(r, control_status(s), w->etag))
            make_ready(r);
        else
            r->seen = true;
    }
    if (!answer_ready(w, e))
        return;
    sg_timer_start(w->timer, unripe ? 0 : w->pause_ms);
    w->pause_ms = w->pause_ms * 3 / 2 < LOOK_MAX_MS ? w->pause_ms * 3 / 2 : LOOK_MAX_MS;
}

static void look_now(struct watch *w)
{
    struct sg_error e;
    struct waiter *r, *next;
    TAILQ_FOREACH(r, &w->waiting, link)
    r->ripe = true;
    w->look = look_start(w->c, w->name, false, on_look, w, &e);
    if (w->look)
        return;
    for (r = TAILQ_FIRST(&w->waiting); r; r = next) {
        next = TAILQ_NEXT(r, link);
        make_ready(r);
    }
    (void)answer_ready(w, &e);
}

static void on_pause_over(void *arg)
{
    struct watch *w = arg;
    if (!w->look)
        look_now(w);
}

static void on_patience_over(void *arg)
{
    struct waiter *r = arg;
    if (!r->seen) { /* the next look answers */
        r->overdue = true;
        return;
    }
    make_ready(r);
    (void)answer_ready(r->watch, NULL);
}

/* ---- beginning ---- */

struct control_op *control_await(struct control *c, const char *name, const struct control_wait *want,
                                 control_record_fn *done, void *arg)
{
    struct sg_error e;
    if (control_name_for_lookup(name, &e)) {
        done(arg, NULL, NULL, &e);
        return NULL;
    }
    struct watch *w = watch_of(c, name);
    struct waiter *r = w ? calloc(1, sizeof *r) : NULL;
    if (r)
        r->timer = sg_timer_new(c->loop, on_patience_over, r);
    if (!r || !r->timer) {
        free(r);
        if (w && watch_idle(w))
            watch_free(w);
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
        done(arg, NULL, NULL, &e);
        return NULL;
    }
    r->op.end = waiter_end;
    r->watch = w;
    r->want = *want;
    r->done = done;
    r->arg = arg;
    control_op_add(c, &r->op);
    TAILQ_INSERT_TAIL(&w->waiting, r, link);
    w->pause_ms = LOOK_FIRST_MS;
    sg_timer_start(r->timer, (uint64_t)want->wait_ms);
    if (!w->look)
        sg_timer_start(w->timer, 0);
    return &r->op;
}

void control_await_look(struct control *c, const char *name)
{
    for (struct watch *w = c->watches; w; w = w->next)
        if (strcmp(w->name, name) == 0 && !w->busy) {
            w->pause_ms = LOOK_FIRST_MS;
            if (!w->look)
                sg_timer_start(w->timer, 0);
        }
}
