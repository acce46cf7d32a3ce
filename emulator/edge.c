/* The edge's loop: sockets and deadlines of all connections on one thread, and the helpers that ask boxes. */
#include "emulator/edge_internal.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { EVENTS = 128, ACCEPTS = 64, NO_MEANS_MS = 100 };

/* ---- helpers ---- */

static void wake(struct edge *e)
{
    uint64_t one = 1;
    while (write(e->wake.fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
}

void edge_submit(struct edge_conn *c)
{
    struct edge *e = c->edge;
    c->job.next = NULL;
    c->job.out = true;
    pthread_mutex_lock(&e->lock);
    *e->todo_tail = &c->job;
    e->todo_tail = &c->job.next;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
}

static enum edge_verdict api_socket(const struct edge *e, int *fd)
{
    *fd = socket(e->config.api.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return *fd < 0 ? EDGE_NO_MEANS : EDGE_ROUTED;
}

static void do_job(struct edge *e, struct edge_job *j)
{
    if (!*j->label) { /* no sandbox: the API */
        j->verdict = api_socket(e, &j->fd);
        return;
    }
    if (j->conn->second) { /* whose target does not change while the job is out */
        j->verdict = edge_target_socket(&j->conn->target, true, &j->fd);
        return;
    }
    j->verdict = edge_target_find(e->emu, e->config.late_routes, j->label, &j->target);
    if (j->verdict == EDGE_ROUTED)
        j->verdict = edge_target_socket(&j->target, false, &j->fd);
    if (j->verdict != EDGE_ROUTED)
        edge_target_drop(&j->target);
}

static void *help(void *arg)
{
    struct edge *e = arg;
    pthread_mutex_lock(&e->lock);
    while (!atomic_load(&e->stopping)) {
        struct edge_job *j = e->todo;
        if (!j) {
            pthread_cond_wait(&e->work, &e->lock);
            continue;
        }
        e->todo = j->next;
        if (!e->todo)
            e->todo_tail = &e->todo;
        pthread_mutex_unlock(&e->lock);
        do_job(e, j);
        pthread_mutex_lock(&e->lock);
        j->next = e->back;
        e->back = j;
        wake(e);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

static void take_back(struct edge *e)
{
    pthread_mutex_lock(&e->lock);
    struct edge_job *j = e->back, *next;
    e->back = NULL;
    pthread_mutex_unlock(&e->lock);
    for (; j; j = next) {
        next = j->next;
        j->out = false;
        if (j->conn->state == EDGE_S_DEAD)
            edge_conn_free(j->conn);
        else
            edge_conn_found(j->conn);
    }
}

/* ---- connections ---- */

void edge_set_deadline(struct edge_conn *c, int64_t ms)
{
    c->deadline = ms ? sg_mono_ms() + ms : 0;
    if (ms && c->deadline < c->edge->next_scan)
        c->edge->next_scan = c->deadline;
}

bool edge_watch_end(struct edge_conn *c, struct edge_end *end, int fd)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                             .data = {.ptr = &end->watch}};
    end->watch = (struct edge_watch){.source = EDGE_END, .fd = fd};
    end->conn = c;
    end->readable = end->writable = end->eof = end->shut = false;
    if (!epoll_ctl(c->edge->epoll, EPOLL_CTL_ADD, fd, &ev))
        return true;
    end->watch.fd = -1;
    return false;
}

void edge_again(struct edge_conn *c)
{
    if (c->again || c->state == EDGE_S_DEAD)
        return;
    c->again = true;
    c->again_next = c->edge->again;
    c->edge->again = c;
}

void edge_bury(struct edge_conn *c)
{
    struct edge *e = c->edge;
    if (c->state == EDGE_S_DEAD)
        return;
    c->state = EDGE_S_DEAD;
    *(c->prev ? &c->prev->next : &e->all) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    e->count--;
    if (!c->job.out) { /* otherwise it dies when its job is back */
        c->dead_next = e->dead;
        e->dead = c;
    }
}

static void listen_to(struct edge *e, bool on)
{
    struct edge_watch *listeners[] = {&e->plain, &e->secure};
    for (size_t i = 0; i < 2; i++) {
        struct epoll_event ev = {.events = on ? EPOLLIN : 0, .data = {.ptr = listeners[i]}};
        if (listeners[i]->fd >= 0)
            epoll_ctl(e->epoll, EPOLL_CTL_MOD, listeners[i]->fd, &ev);
    }
    e->accepting = on;
}

static void add_connection(struct edge *e, int fd, bool secure)
{
    struct edge_conn *c = edge_conn_new(e, fd, secure);
    if (!c) {
        close(fd);
        return;
    }
    if (!edge_watch_end(c, &c->client, fd)) {
        c->client.watch.fd = fd;
        edge_conn_free(c);
        return;
    }
    c->next = e->all;
    if (e->all)
        e->all->prev = c;
    e->all = c;
    e->count++;
    edge_set_deadline(c, EDGE_HEAD_MS);
}

static void accept_some(struct edge *e, const struct edge_watch *w)
{
    for (int i = 0; i < ACCEPTS && e->count < EDGE_CONNECTIONS_MAX; i++) {
        int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            add_connection(e, fd, w == &e->secure);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            e->accept_at = sg_mono_ms() + NO_MEANS_MS; /* what waits stays in the kernel's queue */
            if (e->accept_at < e->next_scan)
                e->next_scan = e->accept_at;
            listen_to(e, false);
            return;
        } else if (errno == EAGAIN) {
            return;
        }
    }
    if (e->count >= EDGE_CONNECTIONS_MAX)
        listen_to(e, false);
}

/* ---- one turn ---- */

static void on_event(struct edge *e, struct edge_watch *w)
{
    if (w->source == EDGE_LISTENER) {
        if (e->accepting)
            accept_some(e, w);
        return;
    }
    if (w->source == EDGE_WAKE) {
        uint64_t n;
        while (read(w->fd, &n, sizeof n) < 0 && errno == EINTR)
            continue;
        return;
    }
    struct edge_end *end = (struct edge_end *)w; /* its first member */
    if (end->watch.fd < 0)
        return; /* closed earlier in this turn */
    end->readable = end->writable = true;
    edge_conn_run(end->conn);
}

static void check_routes(struct edge *e)
{
    struct edge_conn *next;
    for (struct edge_conn *c = e->all; c; c = next) {
        next = c->next;
        if (c->upstream.watch.fd >= 0 && !edge_target_holds(&c->target))
            edge_conn_cut(c);
    }
}

static void scan_deadlines(struct edge *e)
{
    int64_t now = sg_mono_ms();
    if (now < e->next_scan)
        return;
    e->next_scan = INT64_MAX;
    if (e->accept_at && e->accept_at > now)
        e->next_scan = e->accept_at;
    else
        e->accept_at = 0;
    struct edge_conn *next;
    for (struct edge_conn *c = e->all; c; c = next) {
        next = c->next;
        if (c->deadline && c->deadline <= now)
            edge_conn_expired(c);
        else if (c->deadline && c->deadline < e->next_scan)
            e->next_scan = c->deadline;
    }
}

static void run_again(struct edge *e)
{
    struct edge_conn *c = e->again, *next;
    e->again = NULL;
    for (; c; c = next) {
        next = c->again_next;
        c->again = false;
        edge_conn_run(c);
    }
}

static void bury_dead(struct edge *e)
{
    struct edge_conn *c = e->dead, *next;
    e->dead = NULL;
    for (; c; c = next) {
        next = c->dead_next;
        if (c->again) { /* stands in that list: next turn */
            c->dead_next = e->dead;
            e->dead = c;
        } else {
            edge_conn_free(c);
        }
    }
    if (!e->accepting && !e->accept_at && e->count < EDGE_CONNECTIONS_MAX)
        listen_to(e, true);
}

static int patience(const struct edge *e)
{
    if (e->again)
        return 0;
    if (e->next_scan == INT64_MAX)
        return -1;
    int64_t ms = e->next_scan - sg_mono_ms();
    return ms < 0 ? 0 : ms > 60000 ? 60000 : (int)ms;
}

static void *run_loop(void *arg)
{
    struct edge *e = arg;
    struct epoll_event ev[EVENTS];
    while (!atomic_load(&e->stopping)) {
        int n = epoll_wait(e->epoll, ev, EVENTS, patience(e));
        if (n < 0 && errno != EINTR) {
            sg_log(SG_LOG_ERROR, "edge_failed", "error", "s", strerror(errno), NULL);
            break;
        }
        run_again(e);
        for (int i = 0; i < n; i++)
            on_event(e, ev[i].data.ptr);
        take_back(e);
        if (atomic_exchange(&e->recheck, false))
            check_routes(e);
        scan_deadlines(e);
        bury_dead(e);
    }
    return NULL;
}

/* ---- start and stop ---- */

static bool watch(struct edge *e, struct edge_watch *w, enum edge_source source, int fd)
{
    struct epoll_event ev = {.events = EPOLLIN, .data = {.ptr = w}};
    *w = (struct edge_watch){.source = source, .fd = fd};
    return fd < 0 || !epoll_ctl(e->epoll, EPOLL_CTL_ADD, fd, &ev);
}

static bool start(struct edge *e)
{
    int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    e->wake.fd = wake_fd;
    e->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (wake_fd < 0 || e->epoll < 0 || !watch(e, &e->wake, EDGE_WAKE, wake_fd) ||
        !watch(e, &e->plain, EDGE_LISTENER, e->config.plain_fd) ||
        !watch(e, &e->secure, EDGE_LISTENER, e->config.tls_fd))
        return false;
    e->accepting = true;
    if (e->config.tls_fd >= 0) {
        e->tls = edge_tls_new(&e->config);
        if (!e->tls)
            return false;
    }
    while (e->nhelpers < EDGE_HELPERS) {
        if (pthread_create(&e->helper[e->nhelpers], NULL, help, e))
            return false;
        e->nhelpers++;
    }
    e->loop_runs = !pthread_create(&e->loop, NULL, run_loop, e);
    return e->loop_runs;
}

struct edge *edge_start(struct emulator *emu, const struct edge_config *config)
{
    struct edge *e = calloc(1, sizeof *e);
    if (!e) {
        if (config->plain_fd >= 0)
            close(config->plain_fd);
        if (config->tls_fd >= 0)
            close(config->tls_fd);
        return NULL;
    }
    e->emu = emu;
    e->config = *config;
    e->epoll = e->wake.fd = -1;
    e->plain.fd = config->plain_fd;
    e->secure.fd = config->tls_fd;
    e->next_scan = INT64_MAX;
    e->todo_tail = &e->todo;
    atomic_init(&e->stopping, false);
    atomic_init(&e->recheck, false);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->work, NULL);
    if (start(e))
        return e;
    edge_stop(e);
    return NULL;
}

void edge_routes_changed(struct edge *e)
{
    if (!e)
        return;
    atomic_store(&e->recheck, true);
    wake(e);
}

/* All threads have ended: jobs that nobody takes back. */
static void drop_jobs(struct edge_job *j)
{
    for (struct edge_job *next; j; j = next) {
        next = j->next;
        j->out = false;
        if (j->conn->state == EDGE_S_DEAD)
            edge_conn_free(j->conn);
    }
}

void edge_stop(struct edge *e)
{
    if (!e)
        return;
    pthread_mutex_lock(&e->lock);
    atomic_store(&e->stopping, true);
    pthread_cond_broadcast(&e->work);
    pthread_mutex_unlock(&e->lock);
    if (e->wake.fd >= 0)
        wake(e);
    if (e->loop_runs)
        pthread_join(e->loop, NULL);
    for (unsigned i = 0; i < e->nhelpers; i++)
        pthread_join(e->helper[i], NULL);
    drop_jobs(e->todo);
    drop_jobs(e->back);
    run_again(e); /* empties the list */
    while (e->all)
        edge_conn_cut(e->all);
    for (struct edge_conn *c = e->dead, *next; c; c = next) {
        next = c->dead_next;
        edge_conn_free(c);
    }
    int fds[] = {e->plain.fd, e->secure.fd, e->wake.fd, e->epoll};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    edge_tls_free(e->tls);
    pthread_cond_destroy(&e->work);
    pthread_mutex_destroy(&e->lock);
    free(e);
}
