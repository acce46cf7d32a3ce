/* Submitted work: a thread for reads, a thread for writes, answers on the loop.  What waits for writing is written
 * together, up to GROUP_MAX in one transaction; when that fails, each alone, so that none suffers from another. */
#include "store/internal.h"

#include <stdlib.h>
#include <string.h>

enum { GROUP_MAX = 64, STACK = 512 * 1024, LANES = 2 };

/* Outlives the queue when its task is still on its way to the loop. */
struct bell {
    struct sg_task task;
    struct queue *q; /* NULL: the queue is gone */
    bool posted;
};

struct lane {
    struct queue *q;
    pthread_t thread;
    bool running;
    pthread_cond_t work;
    struct store_work *first, **last;
};

struct queue {
    struct store *store;
    struct sg_loop *loop;
    pthread_mutex_t lock;
    struct lane lanes[LANES]; /* reads, writes */
    size_t count, bytes;
    bool closing;
    struct store_work *done, **done_last;
    struct bell *bell;
};

/* ---- on the threads ---- */

static void run_alone(struct queue *q, struct store_work *w)
{
    const struct store_part part = {w->fn, w->arg};
    w->code = store_together(q->store, w->kind, &part, 1, NULL, &w->error);
}

/* False: the database cannot be used now. */
static bool run_group(struct queue *q, struct store_work *group, size_t n)
{
    struct store_part parts[GROUP_MAX];
    struct sg_error e;
    enum store_kind kind = group->kind;
    bool begun;
    size_t i = 0;
    for (struct store_work *w = group; w; w = w->next) {
        parts[i++] = (struct store_part){w->fn, w->arg};
        if (w->kind > kind)
            kind = w->kind;
    }
    sg_error_clear(&e);
    enum sg_code rc = store_together(q->store, kind, parts, n, &begun, &e);
    /* What may have happened already is not done again. */
    bool alone = rc && begun && n > 1 && e.outcome != SG_OUTCOME_UNKNOWN;
    for (struct store_work *w = group; w; w = w->next) {
        w->code = rc;
        w->error = e;
        if (alone)
            run_alone(q, w);
    }
    return begun;
}

static void fail_group(struct store_work *group)
{
    for (struct store_work *w = group; w; w = w->next)
        w->code = sg_fail(&w->error, SG_E_STORE_UNAVAILABLE, SG_NOT_STARTED, "the gateway is shutting down");
}

/* Takes up to GROUP_MAX off the lane; reads go one by one, for each has somebody waiting. */
static struct store_work *take(struct lane *l, size_t *n)
{
    struct store_work *group = l->first, **end = &l->first;
    size_t max = l == &l->q->lanes[0] ? 1 : GROUP_MAX;
    for (*n = 0; *end && *n < max; (*n)++)
        end = &(*end)->next;
    l->first = *end;
    if (!l->first)
        l->last = &l->first;
    *end = NULL;
    return group;
}

static void hand_back(struct queue *q, struct store_work *group, size_t n)
{
    *q->done_last = group;
    for (struct store_work *w = group; w; w = w->next) {
        q->bytes -= w->bytes;
        q->done_last = &w->next;
    }
    q->count -= n;
    if (q->bell->posted)
        return;
    q->bell->posted = true;
    sg_loop_post(q->loop, &q->bell->task);
}

static void *lane_main(void *arg)
{
    struct lane *l = arg;
    struct queue *q = l->q;
    bool usable = true;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (!l->first && !q->closing)
            pthread_cond_wait(&l->work, &q->lock);
        if (!l->first)
            break;
        size_t n;
        bool hopeless = q->closing && !usable; /* the end does not wait for a database that cannot be used */
        struct store_work *group = take(l, &n);
        pthread_mutex_unlock(&q->lock);
        if (hopeless)
            fail_group(group);
        else
            usable = run_group(q, group, n);
        pthread_mutex_lock(&q->lock);
        hand_back(q, group, n);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

/* ---- on the loop ---- */

static void tell(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    struct store_work *w = q->done;
    q->done = NULL;
    q->done_last = &q->done;
    q->bell->posted = false;
    pthread_mutex_unlock(&q->lock);
    while (w) {
        struct store_work *next = w->next;
        w->done(w);
        w = next;
    }
}

static void on_bell(struct sg_task *task)
{
    struct bell *b = (struct bell *)task; /* its first member */
    if (b->q)
        tell(b->q);
    else
        free(b);
}

static bool start(struct lane *l)
{
    pthread_attr_t attr;
    if (l->running)
        return true;
    if (pthread_attr_init(&attr))
        return false;
    if (!pthread_attr_setstacksize(&attr, STACK))
        l->running = pthread_create(&l->thread, &attr, lane_main, l) == 0;
    pthread_attr_destroy(&attr);
    return l->running;
}

bool store_queue_submit(struct queue *q, struct store_work *w)
{
    struct lane *l = &q->lanes[w->kind == STORE_READ ? 0 : 1];
    pthread_mutex_lock(&q->lock);
    bool room = !q->closing && q->count < STORE_QUEUE_MAX && w->bytes <= STORE_QUEUE_BYTES - q->bytes;
    if (room && start(l)) {
        w->next = NULL;
        *l->last = w;
        l->last = &w->next;
        q->count++;
        q->bytes += w->bytes;
        pthread_cond_signal(&l->work);
    } else {
        room = false;
    }
    pthread_mutex_unlock(&q->lock);
    return room;
}

struct queue *store_queue_new(struct store *s, struct sg_loop *loop)
{
    struct queue *q = calloc(1, sizeof *q);
    struct bell *b = calloc(1, sizeof *b);
    if (!q || !b) {
        free(q);
        free(b);
        return NULL;
    }
    q->store = s;
    q->loop = loop;
    q->done_last = &q->done;
    q->bell = b;
    b->task.fn = on_bell;
    b->q = q;
    pthread_mutex_init(&q->lock, NULL);
    for (int i = 0; i < LANES; i++) {
        struct lane *l = &q->lanes[i];
        l->q = q;
        l->last = &l->first;
        pthread_cond_init(&l->work, NULL);
    }
    return q;
}

void store_queue_free(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closing = true;
    for (int i = 0; i < LANES; i++)
        pthread_cond_signal(&q->lanes[i].work);
    pthread_mutex_unlock(&q->lock);
    for (int i = 0; i < LANES; i++) {
        if (q->lanes[i].running)
            (void)pthread_join(q->lanes[i].thread, NULL);
        pthread_cond_destroy(&q->lanes[i].work);
    }
    bool posted = q->bell->posted;
    tell(q);
    if (posted)
        q->bell->q = NULL; /* frees itself when it arrives */
    else
        free(q->bell);
    pthread_mutex_destroy(&q->lock);
    free(q);
}
