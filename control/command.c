#include "control/command.h"

#include "control/control.h"
#include "vercel/commands.h"

#include <pthread.h>
#include <string.h>

enum { TIMEOUT_MS = 60000 };

/* On the stack of who waits; the loop has it until `over`. */
struct wait {
    struct control *c;
    struct vercel_command command;
    struct sg_task begin;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool over, failed;
    int exit_code;
    struct sg_error error;
};

static void end(struct wait *w, int exit_code, const struct sg_error *e)
{
    (void)pthread_mutex_lock(&w->lock);
    w->exit_code = exit_code;
    w->failed = e != NULL;
    if (e)
        w->error = *e;
    w->over = true;
    (void)pthread_cond_signal(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
}

static void on_started(void *arg, const char *command_id)
{
    (void)arg;
    (void)command_id;
}

static bool on_text(void *arg, int stream, const char *data, size_t len)
{
    (void)arg;
    (void)stream;
    (void)data;
    (void)len;
    return true;
}

static void on_end(void *arg, int exit_code, const struct sg_error *e)
{
    end(arg, exit_code, e);
}

static void begin(struct sg_task *t)
{
    struct wait *w = (struct wait *)((char *)t - offsetof(struct wait, begin));
    static const struct vercel_command_events events = {on_started, on_text, on_end};
    struct sg_error e;
    if (!vercel_command_start(w->c->vercel, &w->command, &events, w, &e))
        end(w, -1, &e);
}

enum sg_code control_command(struct control *c, const char *session_id, const char *const *argv, bool sudo,
                             int *exit_code, struct sg_error *e)
{
    struct wait w = {.c = c,
                     .command = {.session_id = session_id,
                                 .command = argv[0],
                                 .args = argv + 1,
                                 .cwd = "/",
                                 .sudo = sudo,
                                 .timeout_ms = TIMEOUT_MS},
                     .begin.fn = begin,
                     .lock = PTHREAD_MUTEX_INITIALIZER,
                     .changed = PTHREAD_COND_INITIALIZER};
    sg_loop_post(c->loop, &w.begin);
    (void)pthread_mutex_lock(&w.lock);
    while (!w.over)
        (void)pthread_cond_wait(&w.changed, &w.lock);
    (void)pthread_mutex_unlock(&w.lock);
    (void)pthread_cond_destroy(&w.changed);
    (void)pthread_mutex_destroy(&w.lock);
    *exit_code = w.exit_code;
    if (!w.failed)
        return SG_OK;
    *e = w.error;
    return e->code;
}
