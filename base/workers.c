#include "base/workers.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { IDLE_SECONDS = 10 };

struct thread {
    struct thread *next;
    struct workers *pool;
    pthread_t id;
};

struct workers {
    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t work;
    pthread_cond_t ended_one;
    struct work *head, **tail;
    size_t queued, running;
    size_t threads;
    struct thread *ended; /* to be joined */
    bool stopping;
    size_t max_threads, max_queue;
    pthread_attr_t attr;
};

struct workers *workers_new(size_t threads, size_t queue, size_t stack)
{
    struct workers *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    pthread_condattr_t ca;
    if (pthread_attr_init(&p->attr)) {
        free(p);
        return NULL;
    }
    if (pthread_attr_setstacksize(&p->attr, stack) || pthread_condattr_init(&ca)) {
        pthread_attr_destroy(&p->attr);
        free(p);
        return NULL;
    }
    pthread_condattr_setclock(&ca, CLOCK_MONOTONIC);
    pthread_cond_init(&p->work, &ca);
    pthread_cond_init(&p->ended_one, &ca);
    pthread_condattr_destroy(&ca);
    pthread_mutex_init(&p->lock, NULL);
    p->tail = &p->head;
    p->max_threads = threads ? threads : 1;
    p->max_queue = queue;
    return p;
}

static void run_one(struct workers *p)
{
    struct work *w = p->head;
    p->head = w->next;
    if (!p->head)
        p->tail = &p->head;
    p->queued--;
    p->running++;
    pthread_mutex_unlock(&p->lock);
    w->fn(w);
    pthread_mutex_lock(&p->lock);
    p->running--;
}

/* False: nothing came for a while, or the pool ends. */
static bool wait_for_work(struct workers *p)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += IDLE_SECONDS;
    int rc = 0;
    while (!p->head && !p->stopping && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&p->work, &p->lock, &until);
    return p->head != NULL;
}

static void *thread_main(void *arg)
{
    struct thread *t = arg;
    struct workers *p = t->pool;
    pthread_mutex_lock(&p->lock);
    while (p->head || wait_for_work(p))
        run_one(p);
    p->threads--;
    t->next = p->ended;
    p->ended = t;
    pthread_cond_signal(&p->ended_one);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void join_all(struct thread *t)
{
    while (t) {
        struct thread *next = t->next;
        pthread_join(t->id, NULL);
        free(t);
        t = next;
    }
}

/* With the lock held; the new thread waits for it. */
static bool add_thread(struct workers *p)
{
    struct thread *t = calloc(1, sizeof *t);
    if (!t)
        return false;
    t->pool = p;
    if (pthread_create(&t->id, &p->attr, thread_main, t)) {
        free(t);
        return false;
    }
    p->threads++;
    return true;
}

bool workers_submit(struct workers *p, struct work *w)
{
    w->next = NULL;
    pthread_mutex_lock(&p->lock);
    struct thread *ended = p->ended;
    p->ended = NULL;
    bool ok = true;
    size_t spare = p->threads - p->running; /* idle, or just starting */
    if (p->queued >= spare) {
        bool grown = p->threads < p->max_threads && add_thread(p);
        if (!grown && (p->threads == 0 || p->queued >= spare + p->max_queue))
            ok = false;
    }
    if (ok) {
        *p->tail = w;
        p->tail = &w->next;
        p->queued++;
        pthread_cond_signal(&p->work);
    }
    pthread_mutex_unlock(&p->lock);
    join_all(ended);
    return ok;
}

size_t workers_load(struct workers *p)
{
    pthread_mutex_lock(&p->lock);
    size_t n = p->queued + p->running;
    pthread_mutex_unlock(&p->lock);
    return n;
}

void workers_free(struct workers *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_cond_broadcast(&p->work);
    while (p->threads)
        pthread_cond_wait(&p->ended_one, &p->lock);
    struct thread *ended = p->ended;
    p->ended = NULL;
    pthread_mutex_unlock(&p->lock);
    join_all(ended);
    pthread_attr_destroy(&p->attr);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->ended_one);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
