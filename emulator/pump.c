#include "emulator/pump.h"
#include "base/clock.h"
#include "base/log.h"
#include "emulator/box.h"
#include "emulator/lifecycle.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READ_SIZE = 64 << 10, LINE_ROOM = 6 * (READ_SIZE + 8) + 128, DRAIN_MAX = 2 << 20, EVENTS = 32 };

struct pump {
    struct session *session; /* outlives the pump */
    int epoll_fd, event_fd;
    pthread_t thread;
    pthread_mutex_t lock;
    struct command *incoming; /* lock */
    bool stopping;            /* lock */
    struct command *active;   /* the thread's from here on */
    struct sg_buf line;
    unsigned char data[READ_SIZE];
};

void pump_wake(struct pump *p)
{
    uint64_t one = 1;
    ssize_t n;
    do
        n = write(p->event_fd, &one, sizeof one);
    while (n < 0 && errno == EINTR);
}

static void source_close(struct pump *p, struct command_source *src)
{
    if (src->fd < 0)
        return;
    epoll_ctl(p->epoll_fd, EPOLL_CTL_DEL, src->fd, NULL);
    close(src->fd);
    src->fd = -1;
    src->eof = true;
}

static void log_line(struct pump *p, struct command_source *src, size_t n, bool eof)
{
    sg_buf_reset(&p->line);
    jsontext_line(&src->text, src->name, p->data, n, eof, &p->line);
    if (p->line.len)
        cmdlog_append(&src->command->log, p->line.data, p->line.len);
}

/* One read; false when there is nothing (more) to take. */
static bool source_read(struct pump *p, struct command_source *src, size_t *taken)
{
    if (src->eof)
        return false;
    ssize_t n;
    do
        n = read(src->fd, p->data, sizeof p->data);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) {
        source_close(p, src);
        return false;
    }
    *taken += (size_t)n;
    if (!src->command->pump_finished)
        log_line(p, src, (size_t)n, false);
    return true;
}

static int exit_code_of(int wait_status)
{
    if (WIFSIGNALED(wait_status))
        return 128 + WTERMSIG(wait_status);
    return WEXITSTATUS(wait_status);
}

/* The program is gone: take what it left in the pipes, then say so. */
static void finish(struct pump *p, struct command *c)
{
    for (int i = 0; i < 2; i++) {
        size_t taken = 0; /* bounded: a descendant may write for ever */
        while (taken < DRAIN_MAX && source_read(p, &c->source[i], &taken))
            continue;
        log_line(p, &c->source[i], 0, true);
    }
    c->pump_finished = true;
    int64_t now = sg_mono_ms();
    pthread_mutex_lock(&c->log.lock);
    c->exit_code = exit_code_of(c->wait_status);
    c->duration_ms = now - c->started_mono;
    c->finished = true;
    pthread_mutex_unlock(&c->log.lock);
    cmdlog_end(&c->log);
}

static void take_incoming(struct pump *p)
{
    pthread_mutex_lock(&p->lock);
    struct command *c = p->incoming;
    p->incoming = NULL;
    pthread_mutex_unlock(&p->lock);
    while (c) {
        struct command *next = c->pump_next;
        c->pump_next = p->active;
        p->active = c;
        c = next;
    }
}

static void kill_late(struct pump *p, struct command *c, int64_t now)
{
    if (!c->deadline_mono || now < c->deadline_mono || atomic_load(&c->exited))
        return;
    c->deadline_mono = now + 1000; /* again, should the first signal be lost */
    struct api_error e;
    if (session_enter(p->session, &e))
        return; /* it is being stopped anyway */
    box_kill(p->session->box, c->pid, SIGKILL);
    session_leave(p->session);
}

/* Finishes what ended, kills what is late, lets go of what is over. */
static void look_after(struct pump *p)
{
    int64_t now = sg_mono_ms();
    for (struct command **link = &p->active; *link;) {
        struct command *c = *link;
        kill_late(p, c, now);
        if (!c->pump_finished && atomic_load(&c->exited))
            finish(p, c);
        if (c->pump_finished && c->source[0].eof && c->source[1].eof) {
            *link = c->pump_next;
            command_unref(c);
        } else {
            link = &c->pump_next;
        }
    }
}

static int next_timeout(const struct pump *p)
{
    int64_t best = -1, now = sg_mono_ms();
    for (const struct command *c = p->active; c; c = c->pump_next) {
        if (!c->deadline_mono || c->pump_finished)
            continue;
        int64_t left = c->deadline_mono > now ? c->deadline_mono - now : 0;
        if (best < 0 || left < best)
            best = left;
    }
    return best > 60000 ? 60000 : (int)best;
}

/* After box_stop: nothing writes any more; whatever is not over ends here. */
static void wind_up(struct pump *p)
{
    take_incoming(p);
    while (p->active) {
        struct command *c = p->active;
        p->active = c->pump_next;
        if (!c->pump_finished) {
            if (!atomic_load(&c->exited))
                c->wait_status = SIGKILL; /* killed with its box */
            finish(p, c);
        }
        source_close(p, &c->source[0]);
        source_close(p, &c->source[1]);
        command_unref(c);
    }
}

static void *pump_main(void *arg)
{
    struct pump *p = arg;
    for (bool stopping = false; !stopping;) {
        struct epoll_event ev[EVENTS];
        int n = epoll_wait(p->epoll_fd, ev, EVENTS, next_timeout(p));
        bool look = n <= 0;
        for (int i = 0; i < n; i++) {
            struct command_source *src = ev[i].data.ptr;
            if (!src) {
                uint64_t count;
                if (read(p->event_fd, &count, sizeof count) > 0)
                    look = true;
                continue;
            }
            size_t taken = 0;
            if (!source_read(p, src, &taken))
                look = true;
        }
        if (look) {
            take_incoming(p);
            look_after(p);
        }
        pthread_mutex_lock(&p->lock);
        stopping = p->stopping;
        pthread_mutex_unlock(&p->lock);
    }
    wind_up(p);
    return NULL;
}

bool pump_add(struct pump *p, struct command *c)
{
    command_ref(c);
    bool ok = true;
    /* watched first, listed second: once it is listed the thread may finish it and close its pipes */
    for (int i = 0; i < 2; i++) {
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &c->source[i]};
        ok = !epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, c->source[i].fd, &ev) && ok;
    }
    if (!ok)
        sg_log(SG_LOG_ERROR, "output_not_watched", "command", "s", c->id, "error", "s", strerror(errno),
               NULL);
    bool timed = c->deadline_mono != 0;
    pthread_mutex_lock(&p->lock);
    c->pump_next = p->incoming;
    p->incoming = c;
    pthread_mutex_unlock(&p->lock);
    if (timed || !ok || atomic_load(&c->exited))
        pump_wake(p);
    return ok;
}

static void pump_free(struct pump *p)
{
    if (p->epoll_fd >= 0)
        close(p->epoll_fd);
    if (p->event_fd >= 0)
        close(p->event_fd);
    sg_buf_free(&p->line);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

struct pump *pump_start(struct session *s)
{
    struct pump *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->session = s;
    pthread_mutex_init(&p->lock, NULL);
    sg_buf_init(&p->line, LINE_ROOM);
    p->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    p->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event ev = {.events = EPOLLIN};
    if (p->epoll_fd < 0 || p->event_fd < 0 || epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, p->event_fd, &ev) ||
        pthread_create(&p->thread, NULL, pump_main, p)) {
        pump_free(p);
        return NULL;
    }
    return p;
}

void pump_finish(struct pump *p)
{
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_mutex_unlock(&p->lock);
    pump_wake(p);
    pthread_join(p->thread, NULL);
    pump_free(p);
}
