#include "routes/step_runner.h"

#include "base/buf.h"
#include "control/jobs.h"
#include "control/program.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

enum {
    QUEUE_MAX = 64 * 1024, /* of output that the thread has not taken yet; above it the stream pauses */
    TICK_MS = 500, /* how often the thread looks whether the gateway stops, and says that time goes by */
};

/* One piece in the queue, before its bytes. */
struct piece {
    int stream;
    size_t len;
};

/* On the stack of the thread that waits; the loop has it from the first post until `over`. */
struct wait {
    struct gateway *gw;
    struct process_spec spec;
    bool background;
    pthread_mutex_t lock; /* guards what follows up to `follower` */
    pthread_cond_t changed;
    struct sg_buf queue;
    bool paused; /* on_data said so */
    bool ended;  /* how it ended is known */
    bool over;   /* the loop does not know this any more */
    bool failed; /* `error`, else `process` */
    struct sg_wire_process process;
    struct sg_error error;
    struct follower *follower; /* loop */
    struct sg_task begin, resume, leave;
};

/* ---- on the loop ---- */

static void end(struct wait *w, const struct sg_wire_process *p, const struct sg_error *e)
{
    (void)pthread_mutex_lock(&w->lock);
    if (!w->ended) {
        w->failed = e != NULL;
        if (e)
            w->error = *e;
        else
            w->process = *p;
    }
    w->ended = true;
    (void)pthread_cond_signal(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
}

static void on_hello(void *arg, const struct sg_wire_process *p)
{
    struct wait *w = arg;
    if (w->background)
        end(w, p, NULL);
}

static bool on_data(void *arg, int stream, uint64_t offset, const void *data, size_t len)
{
    struct wait *w = arg;
    (void)offset;
    if (w->background)
        return true;
    struct piece piece = {stream, len};
    (void)pthread_mutex_lock(&w->lock);
    bool kept = sg_buf_reserve(&w->queue, sizeof piece + len) != NULL;
    if (kept && sg_buf_add(&w->queue, &piece, sizeof piece))
        (void)sg_buf_add(&w->queue, data, len);
    w->queue.failed = false; /* without memory this piece is not told: the process matters more */
    w->paused = w->queue.len >= QUEUE_MAX;
    bool more = !w->paused;
    (void)pthread_cond_signal(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
    return more;
}

static void on_gap(void *arg, int stream, uint64_t from, uint64_t to)
{
    (void)arg;
    (void)stream;
    (void)from;
    (void)to;
}

static void on_end(void *arg, const struct sg_wire_process *p, const struct sg_error *e)
{
    struct wait *w = arg;
    follower_close(w->follower);
    w->follower = NULL;
    end(w, p, e);
}

static void begin(struct sg_task *t)
{
    struct wait *w = (struct wait *)((char *)t - offsetof(struct wait, begin));
    static const struct follower_events events = {on_hello, on_data, on_gap, on_end};
    struct sg_error e;
    const struct follow_spec f = {
        .session = w->spec.session, .id = w->spec.id, .only = -1, .start = &w->spec};
    w->follower = follower_open(w->gw->relay, &f, &events, w, &e);
    if (!w->follower)
        end(w, NULL, &e);
}

static void resume(struct sg_task *t)
{
    struct wait *w = (struct wait *)((char *)t - offsetof(struct wait, resume));
    if (w->follower)
        follower_resume(w->follower);
}

/* The last that the loop does with it. */
static void leave(struct sg_task *t)
{
    struct wait *w = (struct wait *)((char *)t - offsetof(struct wait, leave));
    if (w->follower)
        follower_close(w->follower);
    w->follower = NULL;
    (void)pthread_mutex_lock(&w->lock);
    w->over = true;
    (void)pthread_cond_signal(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
}

/* ---- on the thread that waits ---- */

/* Woken by a change, or after TICK_MS: false. */
static bool wait_change(struct wait *w)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += TICK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    return pthread_cond_timedwait(&w->changed, &w->lock, &until) != ETIMEDOUT;
}

static void give(const char *data, size_t len, step_output_fn *output, void *arg)
{
    while (len >= sizeof(struct piece)) {
        struct piece piece;
        memcpy(&piece, data, sizeof piece);
        data += sizeof piece;
        output(arg, piece.stream, data, piece.len);
        data += piece.len;
        len -= sizeof piece + piece.len;
    }
}

/* Hands on what is queued; called and returns with the lock held. */
static void take_queue(struct wait *w, step_output_fn *output, void *arg)
{
    struct sg_buf taken = w->queue;
    bool paused = w->paused;
    sg_buf_init(&w->queue, taken.max);
    w->paused = false;
    (void)pthread_mutex_unlock(&w->lock);
    if (output)
        give(taken.data, taken.len, output, arg);
    sg_buf_free(&taken);
    if (paused) /* the task is free: nothing is queued before it has run */
        sg_loop_post(w->gw->loop, &w->resume);
    (void)pthread_mutex_lock(&w->lock);
}

/* Until its end is known and all output was handed on, or the gateway stops. */
static void wait_end(struct wait *w, step_output_fn *output, void *arg)
{
    (void)pthread_mutex_lock(&w->lock);
    while (!jobs_stopping(control_jobs(w->gw->control))) {
        if (w->queue.len) {
            take_queue(w, output, arg);
        } else if (w->ended) {
            break;
        } else if (!wait_change(w) && output) {
            (void)pthread_mutex_unlock(&w->lock);
            output(arg, 0, "", 0);
            (void)pthread_mutex_lock(&w->lock);
        }
    }
    (void)pthread_mutex_unlock(&w->lock);
    sg_loop_post(w->gw->loop, &w->leave);
    (void)pthread_mutex_lock(&w->lock);
    while (!w->over)
        (void)pthread_cond_wait(&w->changed, &w->lock);
    (void)pthread_mutex_unlock(&w->lock);
}

static enum sg_code judge(const struct wait *w, struct step_result *res, struct sg_error *e)
{
    if (!w->ended)
        return sg_fail(e, SG_E_DRAINING, SG_STARTED, "the gateway is shutting down; the step goes on");
    if (w->failed) {
        *e = w->error;
        return e->code;
    }
    *res = (struct step_result){.exit_code = -1};
    if (w->process.how == SG_HOW_EXIT)
        res->exit_code = (int)w->process.value;
    else if (w->process.how == SG_HOW_SIGNAL || w->process.how == SG_HOW_SCOPE)
        res->signal = (int)w->process.value;
    res->timed_out = w->process.how == SG_HOW_TIMEOUT;
    return SG_OK;
}

static bool wait_init(struct wait *w)
{
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr))
        return false;
    bool ok = !pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) && !pthread_cond_init(&w->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    if (ok && pthread_mutex_init(&w->lock, NULL)) {
        (void)pthread_cond_destroy(&w->changed);
        ok = false;
    }
    return ok;
}

static enum sg_code run(void *arg, const struct step_session *s, const json_t *step, const char *id,
                        bool background, step_output_fn *output, void *output_arg, struct step_result *res,
                        struct sg_error *e)
{
    struct gateway *gw = arg;
    struct program p;
    enum sg_code rc = program_parse(step, "", &p, e);
    if (rc) {
        program_clear(&p);
        return rc;
    }
    struct wait w = {
        .gw = gw,
        .background = background,
        .spec = {.session = {.session_id = s->session_id, .arch = s->arch, .cwd = s->cwd},
                 .id = id,
                 .argv = p.argv,
                 .cwd = p.cwd,
                 .env = p.env,
                 .env_replace = p.env_replace,
                 .sudo = p.sudo,
                 .user = p.user,
                 .timeout_ms = p.timeout_ms || background ? p.timeout_ms : STEP_TIMEOUT_MS,
                 .retain_bytes = gw->retain_bytes},
        .begin.fn = begin,
        .resume.fn = resume,
        .leave.fn = leave,
    };
    sg_buf_init(&w.queue, QUEUE_MAX + (size_t)1024 * 1024);
    if (wait_init(&w)) {
        sg_loop_post(gw->loop, &w.begin);
        wait_end(&w, output, output_arg);
        rc = judge(&w, res, e);
        (void)pthread_mutex_destroy(&w.lock);
        (void)pthread_cond_destroy(&w.changed);
    } else {
        rc = sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory to run a step");
    }
    sg_buf_free(&w.queue);
    program_clear(&p);
    return rc;
}

struct step_runner step_runner_of(struct gateway *gw)
{
    return (struct step_runner){run, gw};
}
