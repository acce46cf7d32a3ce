#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"
#include "emulator/lifecycle.h"

#include <errno.h>
#include <stdlib.h>

/* Ends sessions at their deadlines, and all of them at the end: one thread watches, each stop has its own. */

struct stop_job {
    struct emulator *emu;
    struct session *session;
    enum stop_kind kind;
};

static pthread_t timer_thread;
static bool timer_running;

static void *stop_main(void *arg)
{
    struct stop_job job = *(struct stop_job *)arg;
    free(arg);
    struct snapshot *sn = NULL;
    struct api_error e;
    if (lifecycle_stop(job.emu, job.session, job.kind, -1, &sn, &e))
        sg_log(SG_LOG_ERROR, "stop_failed", "session", "s", job.session->id, "error", "s", e.message, NULL);
    if (sn)
        snapshot_unref(sn);
    session_unref(job.session);
    sg_crypto_thread_end();
    struct state *st = job.emu->state;
    pthread_mutex_lock(&st->lock);
    st->stop_threads--;
    pthread_cond_broadcast(&st->changed);
    pthread_mutex_unlock(&st->lock);
    return NULL;
}

/* With state->lock. */
static void spawn_stop(struct emulator *emu, struct session *s, enum stop_kind kind)
{
    struct stop_job *job = malloc(sizeof *job);
    pthread_t t;
    if (!job)
        return; /* tried again at the next turn */
    *job = (struct stop_job){.emu = emu, .session = session_ref(s), .kind = kind};
    s->stop_thread = true;
    emu->state->stop_threads++;
    if (pthread_create(&t, NULL, stop_main, job)) {
        emu->state->stop_threads--;
        s->stop_thread = false;
        session_unref(s);
        free(job);
        return;
    }
    pthread_detach(t);
}

/* With state->lock: starts what is due and returns the next deadline. */
static int64_t look(struct emulator *emu, int64_t now)
{
    int64_t next = now + 60000;
    for (struct session *s = emu->state->live; s; s = s->live_next) {
        pthread_mutex_lock(&s->sandbox->lock);
        int64_t at = s->started_mono + s->timeout_ms;
        bool running = s->status == ST_RUNNING && !s->stop_thread;
        if (running && at <= now) {
            spawn_stop(emu, s, STOP_TIMEOUT);
            if (!s->stop_thread)
                next = now + 100;
        } else if (running && at < next) {
            next = at;
        }
        pthread_mutex_unlock(&s->sandbox->lock);
    }
    return next;
}

static void *timer_main(void *arg)
{
    struct emulator *emu = arg;
    struct state *st = emu->state;
    pthread_mutex_lock(&st->lock);
    while (!atomic_load(&emu->closing)) {
        int64_t next = look(emu, sg_mono_ms());
        struct timespec ts = {.tv_sec = next / 1000, .tv_nsec = next % 1000 * 1000000};
        pthread_cond_timedwait(&st->changed, &st->lock, &ts);
    }
    pthread_mutex_unlock(&st->lock);
    return NULL;
}

bool lifecycle_start_timer(struct emulator *emu)
{
    timer_running = !pthread_create(&timer_thread, NULL, timer_main, emu);
    return timer_running;
}

void lifecycle_shutdown(struct emulator *emu)
{
    struct state *st = emu->state;
    atomic_store(&emu->closing, true);
    lifecycle_deadline_changed(emu);
    if (timer_running)
        pthread_join(timer_thread, NULL);
    timer_running = false;
    pthread_mutex_lock(&st->lock);
    while (st->live || st->stop_threads) {
        for (struct session *s = st->live; s; s = s->live_next) {
            pthread_mutex_lock(&s->sandbox->lock);
            if (s->status == ST_RUNNING && !s->stop_thread)
                spawn_stop(emu, s, STOP_REQUEST);
            pthread_mutex_unlock(&s->sandbox->lock);
        }
        int64_t again = sg_mono_ms() + 500; /* should a thread have been refused */
        struct timespec ts = {.tv_sec = again / 1000, .tv_nsec = again % 1000 * 1000000};
        pthread_cond_timedwait(&st->changed, &st->lock, &ts);
    }
    pthread_mutex_unlock(&st->lock);
}
