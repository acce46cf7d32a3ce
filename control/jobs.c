#include "control/jobs.h"

#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"
#include "base/workers.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { QUEUE_MAX = 256, FIRST_MS = 50 };

struct job {
    struct job *next;
    struct jobs *all;
    const char *name;
    int64_t every_ms;
    void (*fn)(void *arg);
    void *arg;
    struct sg_timer *timer; /* loop */
    struct work work;
    struct sg_task ended, kicked;
    bool running, again;     /* loop */
    atomic_bool kick_posted; /* `kicked` is on its way */
};

struct jobs {
    struct sg_loop *loop;
    struct workers *workers;
    struct job *list;
    atomic_bool stopping;
};

struct once {
    struct work work;
    void (*fn)(void *arg);
    void *arg;
};

/* ---- one job ---- */

static void run(struct work *w)
{
    struct job *job = (struct job *)((char *)w - offsetof(struct job, work));
    job->fn(job->arg);
    sg_loop_post(job->all->loop, &job->ended);
}

static void begin(struct job *job)
{
    if (atomic_load(&job->all->stopping))
        return;
    sg_timer_stop(job->timer);
    job->again = false;
    job->running = workers_submit(job->all->workers, &job->work);
    if (job->running)
        return;
    sg_log(SG_LOG_WARN, "no thread for a recurring job", "job", "s", job->name, NULL);
    sg_timer_start(job->timer, (uint64_t)job->every_ms);
}

static void on_timer(void *arg)
{
    begin(arg);
}

static int64_t with_jitter(int64_t ms)
{
    unsigned char r[2] = {0, 0};
    if (!sg_random(r, sizeof r))
        return ms; /* they just do not part */
    return ms + ms / 10 * (r[0] << 8 | r[1]) / 65536;
}

static void on_ended(struct sg_task *t)
{
    struct job *job = (struct job *)((char *)t - offsetof(struct job, ended));
    job->running = false;
    if (job->again)
        begin(job);
    else if (!atomic_load(&job->all->stopping))
        sg_timer_start(job->timer, (uint64_t)with_jitter(job->every_ms));
}

static void on_kicked(struct sg_task *t)
{
    struct job *job = (struct job *)((char *)t - offsetof(struct job, kicked));
    atomic_store(&job->kick_posted, false);
    if (job->running)
        job->again = true;
    else
        begin(job);
}

void job_kick(struct job *job)
{
    if (!atomic_exchange(&job->kick_posted, true))
        sg_loop_post(job->all->loop, &job->kicked);
}

struct job *job_add(struct jobs *j, const char *name, int64_t every_ms, void (*fn)(void *arg), void *arg)
{
    struct job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    *job = (struct job){.all = j,
                        .name = name,
                        .every_ms = every_ms,
                        .fn = fn,
                        .arg = arg,
                        .work.fn = run,
                        .ended.fn = on_ended,
                        .kicked.fn = on_kicked,
                        .timer = sg_timer_new(j->loop, on_timer, job)};
    if (!job->timer) {
        free(job);
        return NULL;
    }
    job->next = j->list;
    j->list = job;
    sg_timer_start(job->timer, (uint64_t)with_jitter(every_ms < FIRST_MS ? every_ms : FIRST_MS));
    return job;
}

/* ---- all of them ---- */

struct jobs *jobs_new(struct sg_loop *loop)
{
    struct jobs *j = calloc(1, sizeof *j);
    if (!j)
        return NULL;
    j->loop = loop;
    j->workers = workers_new(JOBS_THREADS, QUEUE_MAX, JOBS_STACK);
    if (j->workers)
        return j;
    free(j);
    return NULL;
}

bool jobs_stopping(const struct jobs *j)
{
    return atomic_load(&j->stopping);
}

static void run_once(struct work *w)
{
    struct once o = *(struct once *)w;
    free(w);
    o.fn(o.arg);
}

bool jobs_once(struct jobs *j, void (*fn)(void *arg), void *arg)
{
    if (jobs_stopping(j))
        return false;
    struct once *o = malloc(sizeof *o);
    if (!o)
        return false;
    *o = (struct once){.work.fn = run_once, .fn = fn, .arg = arg};
    if (workers_submit(j->workers, &o->work))
        return true;
    free(o);
    return false;
}

void jobs_stop(struct jobs *j)
{
    jobs_stop_within(j, INT64_MAX, NULL, NULL);
}

void jobs_stop_within(struct jobs *j, int64_t patience_ms, void (*hurry)(void *arg), void *arg)
{
    int64_t began = sg_mono_ms();
    atomic_store(&j->stopping, true);
    for (struct job *job = j->list; job; job = job->next)
        sg_timer_stop(job->timer);
    while (workers_load(j->workers)) {
        uv_run(sg_loop_uv(j->loop), UV_RUN_NOWAIT); /* they wait for calls that the loop makes */
        (void)poll(NULL, 0, 1);
        if (hurry && sg_mono_ms() - began >= patience_ms) {
            hurry(arg);
            hurry = NULL;
        }
    }
    uv_run(sg_loop_uv(j->loop), UV_RUN_NOWAIT); /* their ends, and kicks that were posted */
}

void jobs_free(struct jobs *j)
{
    if (!j)
        return;
    workers_free(j->workers);
    while (j->list) {
        struct job *job = j->list;
        j->list = job->next;
        sg_timer_free(job->timer);
        free(job);
    }
    free(j);
}
