#include "emulator/box_host.h"
#include "emulator/spawner.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

const char *box_tier_name(enum box_tier tier)
{
    switch (tier) {
    case BOX_TIER_FULL:
        return "full";
    case BOX_TIER_ROOTLESS:
        return "rootless";
    case BOX_TIER_SINGLE_ID:
        return "single-id";
    case BOX_TIER_PLAIN:
        return "plain";
    default:
        return "unknown";
    }
}

const char *box_tier_note(enum box_tier tier)
{
    switch (tier) {
    case BOX_TIER_FULL:
        return "Nothing differs.";
    case BOX_TIER_ROOTLESS:
        return "rename(2) of a directory that comes from the base or a snapshot fails with EXDEV.";
    case BOX_TIER_SINGLE_ID:
        return "There is no separate sandbox user: every process has the same id, and sudo does not work.";
    case BOX_TIER_PLAIN:
        return "There is no isolation: processes run on this host as the emulator's user, on its ports.";
    default:
        return "";
    }
}

int box_rpc(int sock, struct box_msg *m, const int *fds, size_t n_fds, int timeout_ms,
            void (*progress)(void *arg, const struct box_msg *m), void *arg, int out[BOX_MSG_FDS])
{
    int pair[2];
    int all[BOX_MSG_FDS];
    for (size_t i = 0; i < BOX_MSG_FDS; i++)
        out[i] = -1;
    if (n_fds + 1 > BOX_MSG_FDS)
        return EINVAL;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return errno;
    all[0] = pair[1];
    for (size_t i = 0; i < n_fds; i++)
        all[i + 1] = fds[i];
    struct timeval limit = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000L};
    int e = 0;
    if (timeout_ms > 0 && setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0)
        e = errno;
    if (e == 0)
        e = box_msg_send(sock, m, all, n_fds + 1);
    box_fd_close(&pair[1]); /* the peer holds the only other end: when it dies, we see the end */
    while (e == 0) {
        e = box_msg_recv(pair[0], m, out);
        if (e != 0 || m->op != BOX_OP_PROGRESS)
            break;
        box_fds_close(out, BOX_MSG_FDS);
        if (progress != NULL)
            progress(arg, m);
    }
    box_fd_close(&pair[0]);
    if (e == 0 && m->op != BOX_OP_DONE) {
        box_fds_close(out, BOX_MSG_FDS);
        e = EBADMSG;
    }
    return e == EPIPE ? ESRCH : e == EAGAIN ? ETIMEDOUT : e;
}

/* --- the delivery thread --- */

void box_proc_deliver(struct box_proc *p)
{
    struct box_host *host = p->box->host;
    p->next = NULL;
    p->box->undelivered++;
    *host->ended_last = p;
    host->ended_last = &p->next;
    pthread_cond_broadcast(&host->changed);
}

static void *deliver_main(void *arg)
{
    struct box_host *host = arg;
    pthread_mutex_lock(&host->lock);
    for (;;) {
        struct box_proc *p = host->ended_first;
        if (p == NULL) {
            if (host->stopping)
                break;
            pthread_cond_wait(&host->changed, &host->lock);
            continue;
        }
        host->ended_first = p->next;
        if (p->next == NULL)
            host->ended_last = &host->ended_first;
        struct box *box = p->box;
        pthread_mutex_unlock(&host->lock);
        if (box->on_exit != NULL)
            box->on_exit(box->on_exit_arg, p->pid, p->status, &p->usage);
        free(p);
        pthread_mutex_lock(&host->lock);
        box->undelivered--;
        pthread_cond_broadcast(&host->changed);
    }
    pthread_mutex_unlock(&host->lock);
    return NULL;
}

/* --- the reader thread --- */

static void process_ended(struct box *box, const struct box_msg *m)
{
    pthread_mutex_lock(&box->host->lock);
    for (struct box_proc **at = &box->procs; *at != NULL; at = &(*at)->next) {
        struct box_proc *p = *at;
        if (p->token != m->token)
            continue;
        if (p->state == BP_RUNNING || p->state == BP_ASKED) {
            p->status = m->value;
            p->usage = m->usage;
            p->pid = m->pid;
        }
        if (p->state == BP_RUNNING) {
            *at = p->next;
            box_proc_deliver(p);
        } else if (p->state == BP_ASKED) {
            p->state = BP_ENDED; /* box_exec hands it on once it knows of its success */
        }
        break;
    }
    pthread_mutex_unlock(&box->host->lock);
}

static void box_ended(struct box *box)
{
    pthread_mutex_lock(&box->host->lock);
    for (struct box_proc **at = &box->procs; *at != NULL;) {
        struct box_proc *p = *at;
        if (p->state == BP_RUNNING) {
            p->status = SIGKILL; /* as a wait status */
            *at = p->next;
            box_proc_deliver(p);
            continue;
        }
        if (p->state == BP_ASKED)
            p->state = BP_LOST;
        at = &p->next;
    }
    box->dead = true;
    pthread_cond_broadcast(&box->host->changed);
    pthread_mutex_unlock(&box->host->lock);
}

static void read_box(struct box_host *host, struct box *box, struct box_msg *m)
{
    int fds[BOX_MSG_FDS];
    int e = box_msg_recv(box->ctl, m, fds);
    box_fds_close(fds, BOX_MSG_FDS);
    if (e == 0 && m->op == BOX_OP_EXIT) {
        process_ended(box, m);
    } else if (e == EPIPE) {
        (void)epoll_ctl(host->epoll, EPOLL_CTL_DEL, box->ctl, NULL);
        box_ended(box); /* box_stop may free it from here on */
    }
}

static void *reader_main(void *arg)
{
    struct box_host *host = arg;
    struct box_msg *m = calloc(1, sizeof *m);
    while (m != NULL) {
        struct epoll_event events[16];
        int n = epoll_wait(host->epoll, events, 16, -1);
        bool stop = false;
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == NULL)
                stop = true;
            else
                read_box(host, events[i].data.ptr, m);
        }
        if (stop)
            break;
    }
    free(m);
    return NULL;
}

int box_host_watch(struct box_host *host, struct box *box)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = box};
    return epoll_ctl(host->epoll, EPOLL_CTL_ADD, box->ctl, &ev) != 0 ? errno : 0;
}

/* --- start and stop --- */

static void host_free(struct box_host *host)
{
    box_fd_close(&host->spawner);
    if (host->spawner_pid > 0)
        while (waitpid(host->spawner_pid, NULL, 0) < 0 && errno == EINTR)
            ;
    box_fd_close(&host->epoll);
    box_fd_close(&host->wake);
    pthread_cond_destroy(&host->changed);
    pthread_mutex_destroy(&host->lock);
    free(host);
}

static int start_spawner(struct box_host *host, bool plain)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return errno;
    pid_t parent = getpid();
    host->spawner_pid = fork();
    if (host->spawner_pid == 0) {
        close(pair[0]);
        if (getppid() != parent)
            _exit(0);
        spawner_run(pair[1], plain);
    }
    int e = host->spawner_pid < 0 ? errno : 0;
    close(pair[1]);
    host->spawner = pair[0];
    return e;
}

static int hello(struct box_host *host, char err[BOX_TEXT])
{
    struct box_msg *m = calloc(1, sizeof *m);
    int fds[BOX_MSG_FDS];
    if (m == NULL)
        return ENOMEM;
    int e = box_msg_recv(host->spawner, m, fds);
    box_fds_close(fds, BOX_MSG_FDS);
    if (e == 0 && (m->op != BOX_OP_HELLO || m->value < BOX_TIER_FULL || m->value > BOX_TIER_PLAIN))
        e = EBADMSG;
    if (e == 0 && m->error != 0) {
        e = m->error;
        box_text_copy(err, BOX_TEXT, m->data);
    } else if (e == 0) {
        host->tier = (enum box_tier)m->value;
        host->root_uid = m->uid;
        box_text_copy(host->flavour, sizeof host->flavour, m->data);
    }
    free(m);
    return e;
}

static int start_threads(struct box_host *host)
{
    host->epoll = epoll_create1(EPOLL_CLOEXEC);
    host->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (host->epoll < 0 || host->wake < 0)
        return errno;
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(host->epoll, EPOLL_CTL_ADD, host->wake, &ev) != 0)
        return errno;
    /* Signals belong to the program's own threads. */
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int e = pthread_create(&host->reader, NULL, reader_main, host);
    if (e == 0 && (e = pthread_create(&host->deliverer, NULL, deliver_main, host)) != 0) {
        uint64_t one = 1;
        (void)!write(host->wake, &one, sizeof one);
        pthread_join(host->reader, NULL);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return e;
}

int box_host_start(bool plain, struct box_host **out, char err[BOX_TEXT])
{
    err[0] = '\0';
    struct box_host *host = calloc(1, sizeof *host);
    if (host == NULL) {
        snprintf(err, BOX_TEXT, "out of memory");
        return -1;
    }
    host->spawner = host->epoll = host->wake = -1;
    host->ended_last = &host->ended_first;
    pthread_mutex_init(&host->lock, NULL);
    pthread_cond_init(&host->changed, NULL);
    int e = start_spawner(host, plain);
    if (e == 0)
        e = hello(host, err);
    if (e == 0)
        e = start_threads(host);
    if (e != 0) {
        if (err[0] == '\0')
            snprintf(err, BOX_TEXT, "cannot start the spawner of sandboxes: %s", strerror(e));
        host_free(host);
        return -1;
    }
    *out = host;
    return 0;
}

enum box_tier box_host_tier(const struct box_host *host)
{
    return host->tier;
}

const char *box_host_advice(const struct box_host *host)
{
    return host->tier == BOX_TIER_SINGLE_ID ? id_map_advice() : "";
}

void box_host_stop(struct box_host *host)
{
    if (host == NULL)
        return;
    for (;;) {
        pthread_mutex_lock(&host->lock);
        struct box *box = host->boxes;
        pthread_mutex_unlock(&host->lock);
        if (box == NULL)
            break;
        box_stop(box);
    }
    pthread_mutex_lock(&host->lock);
    host->stopping = true;
    pthread_cond_broadcast(&host->changed);
    pthread_mutex_unlock(&host->lock);
    uint64_t one = 1;
    (void)!write(host->wake, &one, sizeof one);
    pthread_join(host->reader, NULL);
    pthread_join(host->deliverer, NULL);
    host_free(host);
}

int box_host_helper(struct box_host *host, enum box_helper_kind kind, int dir, int source,
                    void (*progress)(void *arg, const struct box_msg *m), void *arg, struct box_msg *m,
                    char err[BOX_TEXT])
{
    int fds[2] = {dir, source};
    int out[BOX_MSG_FDS];
    memset(m, 0, offsetof(struct box_msg, data));
    m->op = BOX_OP_HELPER;
    m->value = (int32_t)kind;
    int e = box_rpc(host->spawner, m, fds, source >= 0 ? 2 : 1, 0, progress, arg, out);
    box_fds_close(out, BOX_MSG_FDS);
    if (e != 0) {
        snprintf(err, BOX_TEXT, "the spawner of sandboxes does not answer: %s", strerror(e));
        return e;
    }
    if (m->error != 0)
        box_text_copy(err, BOX_TEXT, m->len > 0 ? m->data : strerror(m->error));
    return m->error;
}
