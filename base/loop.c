#include "base/loop.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HOOKS = 8, MAX_ROUNDS = 8 };

struct hook {
    bool (*fn)(void *arg);
    void *arg;
};

struct sg_loop {
    uv_loop_t uv;
    uv_async_t wake;
    uv_prepare_t turn;
    pthread_t thread;
    pthread_mutex_t lock; /* guards posted, posted_tail, stopping */
    struct sg_task *posted, **posted_tail;
    bool stopping;
    struct sg_grave *graves;
    struct hook hooks[MAX_HOOKS];
    int nhooks;
};

struct sg_timer {
    uv_timer_t uv;
    void (*fn)(void *arg);
    void *arg;
};

static void run_posted(struct sg_loop *loop)
{
    pthread_mutex_lock(&loop->lock);
    struct sg_task *t = loop->posted;
    loop->posted = NULL;
    loop->posted_tail = &loop->posted;
    pthread_mutex_unlock(&loop->lock);
    while (t) {
        struct sg_task *next = t->next;
        t->fn(t);
        t = next;
    }
}

static void bury_dead(struct sg_loop *loop)
{
    while (loop->graves) {
        struct sg_grave *g = loop->graves;
        loop->graves = g->next;
        g->fn(g);
    }
}

static void on_wake(uv_async_t *handle)
{
    struct sg_loop *loop = handle->data;
    run_posted(loop);
    pthread_mutex_lock(&loop->lock);
    bool stop = loop->stopping;
    pthread_mutex_unlock(&loop->lock);
    if (stop)
        uv_stop(&loop->uv);
}

/* libuv calls prepare handles just before it would sleep: the end of a turn. */
static void on_turn(uv_prepare_t *handle)
{
    struct sg_loop *loop = handle->data;
    bool again = true;
    for (int round = 0; again && round < MAX_ROUNDS; round++) {
        again = false;
        for (int i = 0; i < loop->nhooks; i++)
            if (loop->hooks[i].fn(loop->hooks[i].arg))
                again = true;
    }
    bury_dead(loop);
    if (again)
        uv_async_send(&loop->wake); /* more to do: come round again instead of sleeping */
}

struct sg_loop *sg_loop_new(void)
{
    struct sg_loop *loop = calloc(1, sizeof *loop);
    if (!loop)
        return NULL;
    if (uv_loop_init(&loop->uv)) {
        free(loop);
        return NULL;
    }
    if (uv_async_init(&loop->uv, &loop->wake, on_wake)) {
        uv_loop_close(&loop->uv);
        free(loop);
        return NULL;
    }
    uv_prepare_init(&loop->uv, &loop->turn); /* cannot fail */
    uv_prepare_start(&loop->turn, on_turn);
    loop->wake.data = loop;
    loop->turn.data = loop;
    loop->uv.data = loop;
    pthread_mutex_init(&loop->lock, NULL);
    loop->posted_tail = &loop->posted;
    loop->thread = pthread_self();
    return loop;
}

void sg_loop_free(struct sg_loop *loop)
{
    if (!loop)
        return;
    loop->thread = pthread_self();
    run_posted(loop);
    bury_dead(loop);
    uv_close((uv_handle_t *)&loop->wake, NULL);
    uv_close((uv_handle_t *)&loop->turn, NULL);
    while (uv_run(&loop->uv, UV_RUN_NOWAIT))
        bury_dead(loop);
    bury_dead(loop);
    uv_loop_close(&loop->uv);
    pthread_mutex_destroy(&loop->lock);
    free(loop);
}

void sg_loop_run(struct sg_loop *loop)
{
    loop->thread = pthread_self();
    uv_run(&loop->uv, UV_RUN_DEFAULT);
}

void sg_loop_stop(struct sg_loop *loop)
{
    pthread_mutex_lock(&loop->lock);
    loop->stopping = true;
    pthread_mutex_unlock(&loop->lock);
    uv_async_send(&loop->wake);
}

uv_loop_t *sg_loop_uv(struct sg_loop *loop)
{
    return &loop->uv;
}

bool sg_loop_is_current(const struct sg_loop *loop)
{
    return pthread_equal(loop->thread, pthread_self());
}

void sg_loop_post(struct sg_loop *loop, struct sg_task *task)
{
    task->next = NULL;
    pthread_mutex_lock(&loop->lock);
    *loop->posted_tail = task;
    loop->posted_tail = &task->next;
    pthread_mutex_unlock(&loop->lock);
    uv_async_send(&loop->wake);
}

void sg_loop_bury(struct sg_loop *loop, struct sg_grave *grave)
{
    grave->next = loop->graves;
    loop->graves = grave;
}

int sg_loop_on_turn(struct sg_loop *loop, bool (*fn)(void *arg), void *arg)
{
    if (loop->nhooks == MAX_HOOKS)
        return -1;
    loop->hooks[loop->nhooks++] = (struct hook){fn, arg};
    return 0;
}

void sg_loop_off_turn(struct sg_loop *loop, bool (*fn)(void *arg), void *arg)
{
    for (int i = 0; i < loop->nhooks; i++) {
        if (loop->hooks[i].fn != fn || loop->hooks[i].arg != arg)
            continue;
        memmove(&loop->hooks[i], &loop->hooks[i + 1], (size_t)(loop->nhooks - i - 1) * sizeof loop->hooks[0]);
        loop->nhooks--;
        return;
    }
}

static void on_timer(uv_timer_t *handle)
{
    struct sg_timer *t = handle->data;
    t->fn(t->arg);
}

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

struct sg_timer *sg_timer_new(struct sg_loop *loop, void (*fn)(void *arg), void *arg)
{
    struct sg_timer *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    uv_timer_init(&loop->uv, &t->uv); /* cannot fail */
    t->uv.data = t;
    t->fn = fn;
    t->arg = arg;
    return t;
}

void sg_timer_start(struct sg_timer *t, uint64_t ms)
{
    uv_update_time(t->uv.loop); /* a long turn must not shorten the wait */
    uv_timer_start(&t->uv, on_timer, ms, 0);
}

void sg_timer_stop(struct sg_timer *t)
{
    uv_timer_stop(&t->uv);
}

bool sg_timer_active(const struct sg_timer *t)
{
    return uv_is_active((const uv_handle_t *)&t->uv) != 0;
}

void sg_timer_free(struct sg_timer *t)
{
    if (!t)
        return;
    uv_timer_stop(&t->uv);
    uv_close((uv_handle_t *)&t->uv, on_timer_closed);
}
