#include "emulator/box.h"
#include "emulator/box_host.h"
#include "base/buf.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    STRINGS_MAX = 4 << 20,   /* arguments and environment together; the kernel's own limit is near */
    FILE_TIMEOUT_MS = 30000, /* a program inside can stop the child that serves us */
    READY_TIMEOUT_MS = 30000,
    STOP_TIMEOUT_MS = 20000
};

/* --- requests --- */

/* Counts the caller in, so that box_stop waits for it.  False when the box is gone. */
static bool enter(struct box *box)
{
    pthread_mutex_lock(&box->host->lock);
    bool ok = !box->dead;
    if (ok)
        box->calls++;
    pthread_mutex_unlock(&box->host->lock);
    return ok;
}

static void leave(struct box *box)
{
    pthread_mutex_lock(&box->host->lock);
    box->calls--;
    pthread_cond_broadcast(&box->host->changed);
    pthread_mutex_unlock(&box->host->lock);
}

static struct box_msg *message(enum box_op op)
{
    struct box_msg *m = calloc(1, sizeof *m);
    if (m != NULL)
        m->op = op;
    return m;
}

/* One request and its answer; m is replaced. *fd (may be NULL) is the descriptor of the answer. */
static int ask(struct box *box, struct box_msg *m, const int *fds, size_t n_fds, int timeout_ms, int *fd)
{
    int out[BOX_MSG_FDS];
    if (!enter(box))
        return ESRCH;
    int e = box_rpc(box->ctl, m, fds, n_fds, timeout_ms, NULL, NULL, out);
    leave(box);
    if (e == 0 && m->error != 0)
        e = m->error > 0 && m->error < 4096 ? m->error : EIO; /* foreign input */
    if (e == 0 && fd != NULL) {
        *fd = out[0];
        out[0] = -1;
        if (*fd < 0)
            e = EBADMSG;
    }
    box_fds_close(out, BOX_MSG_FDS);
    return e;
}

/* --- strings --- */

static bool add_string(struct sg_buf *b, const char *s)
{
    return sg_buf_add(b, s, strlen(s) + 1);
}

/* The bytes as a memfd. */
static int strings_fd(const struct sg_buf *b, int *fd)
{
    *fd = memfd_create("strings", MFD_CLOEXEC);
    if (*fd < 0)
        return errno;
    for (size_t done = 0; done < b->len;) {
        ssize_t n = write(*fd, b->data + done, b->len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int e = errno;
            box_fd_close(fd);
            return e;
        }
        done += (size_t)n;
    }
    return 0;
}

/* --- create and stop --- */

static int order_fd(const struct box_spec *spec, int *fd)
{
    struct sg_buf b;
    sg_buf_init(&b, STRINGS_MAX);
    bool ok = add_string(&b, spec->hostname) && add_string(&b, spec->upper) && add_string(&b, spec->work) &&
              add_string(&b, spec->mount);
    for (size_t i = 0; ok && i < spec->n_mounts; i++) {
        const struct box_mount *m = &spec->mounts[i];
        ok = add_string(&b, m->read_only ? "mount-ro"
                            : m->give    ? "mount-new"
                                         : "mount-rw") &&
             add_string(&b, m->source) && add_string(&b, m->target);
    }
    ok = ok && add_string(&b, "lower");
    for (size_t i = 0; ok && spec->lower[i] != NULL; i++)
        ok = add_string(&b, spec->lower[i]);
    int e = ok ? strings_fd(&b, fd) : E2BIG;
    sg_buf_free(&b);
    return e;
}

static void kill_box(const struct box *box)
{
    /* In the plain tier the agent itself must take its processes along. */
    if (box->host->tier == BOX_TIER_PLAIN)
        (void)shutdown(box->ctl, SHUT_WR);
    else if (syscall(SYS_pidfd_send_signal, box->pidfd, SIGKILL, NULL, 0) != 0 && errno != ESRCH)
        (void)shutdown(box->ctl, SHUT_RDWR); /* the agent takes this for the emulator's end */
}

/* True once PID 1, and with it everything inside, is gone. */
static bool await_end(const struct box *box)
{
    struct pollfd p = {.fd = box->pidfd, .events = POLLIN};
    int n;
    do
        n = poll(&p, 1, STOP_TIMEOUT_MS);
    while (n < 0 && errno == EINTR);
    return n > 0;
}

static int await_ready(struct box *box, struct box_msg *m, char err[BOX_TEXT])
{
    struct pollfd p = {.fd = box->ctl, .events = POLLIN};
    int fds[BOX_MSG_FDS];
    int n;
    do
        n = poll(&p, 1, READY_TIMEOUT_MS);
    while (n < 0 && errno == EINTR);
    int e = n == 0 ? ETIMEDOUT : n < 0 ? errno : box_msg_recv(box->ctl, m, fds);
    if (e == 0)
        box_fds_close(fds, BOX_MSG_FDS);
    if (e == 0 && m->op != BOX_OP_READY)
        e = EBADMSG;
    if (e != 0) {
        snprintf(err, BOX_TEXT, "the sandbox did not start: %s", strerror(e));
        return e;
    }
    if (m->error != 0)
        box_text_copy(err, BOX_TEXT, m->data);
    return m->error;
}

static int order_box(struct box_host *host, const struct box_spec *spec, struct box *box, struct box_msg *m,
                     char err[BOX_TEXT])
{
    int strings = -1;
    int out[BOX_MSG_FDS];
    if (spec->n_mounts > 0 && host->tier == BOX_TIER_PLAIN) {
        snprintf(err, BOX_TEXT, "without isolation nothing can be mounted");
        return ENOTSUP;
    }
    int e = spec->n_mounts > BOX_MOUNTS_MAX ? E2BIG : order_fd(spec, &strings);
    if (e != 0) {
        snprintf(err, BOX_TEXT, "cannot describe the sandbox: %s", strerror(e));
        return e;
    }
    m->value = (int32_t)(spec->vcpus < 4096 ? spec->vcpus : 4096);
    e = box_rpc(host->spawner, m, &strings, 1, 0, NULL, NULL, out);
    box_fd_close(&strings);
    if (e == 0 && m->error != 0) {
        e = m->error;
        box_text_copy(err, BOX_TEXT, m->data);
    } else if (e == 0 && out[1] < 0) {
        e = EBADMSG;
    }
    if (e != 0) {
        if (err[0] == '\0')
            snprintf(err, BOX_TEXT, "the spawner of sandboxes does not answer: %s", strerror(e));
        box_fds_close(out, BOX_MSG_FDS);
        return e;
    }
    box->ctl = out[0];
    box->pidfd = out[1];
    return 0;
}

int box_create(struct box_host *host, const struct box_spec *spec, struct box **out, char err[BOX_TEXT])
{
    err[0] = '\0';
    struct box *box = calloc(1, sizeof *box);
    struct box_msg *m = message(BOX_OP_CREATE);
    int e;
    if (box == NULL || m == NULL) {
        snprintf(err, BOX_TEXT, "out of memory");
        free(box);
        free(m);
        return ENOMEM;
    }
    box->host = host;
    box->ctl = box->pidfd = -1;
    box->on_exit = spec->on_exit;
    box->on_exit_arg = spec->on_exit_arg;
    if ((e = order_box(host, spec, box, m, err)) != 0)
        goto fail;
    if ((e = await_ready(box, m, err)) != 0)
        goto fail;
    pthread_mutex_lock(&host->lock);
    box->next = host->boxes;
    host->boxes = box;
    pthread_mutex_unlock(&host->lock);
    if ((e = box_host_watch(host, box)) != 0) {
        snprintf(err, BOX_TEXT, "cannot watch the sandbox: %s", strerror(e));
        pthread_mutex_lock(&host->lock);
        for (struct box **at = &host->boxes; *at != NULL; at = &(*at)->next) {
            if (*at == box) {
                *at = box->next;
                break;
            }
        }
        pthread_mutex_unlock(&host->lock);
        goto fail;
    }
    free(m);
    *out = box;
    return 0;
fail:
    if (box->pidfd >= 0) {
        kill_box(box);
        (void)await_end(box);
    }
    box_fd_close(&box->ctl);
    box_fd_close(&box->pidfd);
    free(box);
    free(m);
    return e;
}

void box_stop(struct box *box)
{
    if (box == NULL)
        return;
    struct box_host *host = box->host;
    kill_box(box);
    if (!await_end(box)) {
        sg_log(SG_LOG_ERROR, "sandbox does not end", NULL);
        (void)shutdown(box->ctl, SHUT_RDWR);
    }
    pthread_mutex_lock(&host->lock);
    while (!box->dead || box->calls > 0 || box->undelivered > 0)
        pthread_cond_wait(&host->changed, &host->lock);
    for (struct box **at = &host->boxes; *at != NULL; at = &(*at)->next) {
        if (*at == box) {
            *at = box->next;
            break;
        }
    }
    pthread_mutex_unlock(&host->lock);
    box_fd_close(&box->ctl);
    box_fd_close(&box->pidfd);
    free(box);
}

uint64_t box_cpu_us(struct box *box)
{
    struct box_msg *m = message(BOX_OP_CPU);
    int e = m == NULL ? ENOMEM : ask(box, m, NULL, 0, FILE_TIMEOUT_MS, NULL);
    pthread_mutex_lock(&box->host->lock);
    if (e == 0 &&
        m->count > box->cpu_us) /* a process between /proc and wait may be missed once: never back */
        box->cpu_us = m->count;
    uint64_t us = box->cpu_us;
    pthread_mutex_unlock(&box->host->lock);
    free(m);
    return us;
}

/* --- programs --- */

static int exec_fd(const struct box_exec *exec, uint64_t *argc, int *fd)
{
    struct sg_buf b;
    sg_buf_init(&b, STRINGS_MAX);
    bool ok = add_string(&b, exec->cwd);
    size_t n = 0;
    for (; ok && exec->argv[n] != NULL; n++)
        ok = add_string(&b, exec->argv[n]);
    for (size_t i = 0; ok && exec->env != NULL && exec->env[i] != NULL; i++)
        ok = add_string(&b, exec->env[i]);
    *argc = n;
    int e = !ok ? E2BIG : n == 0 ? EINVAL : strings_fd(&b, fd);
    sg_buf_wipe(&b); /* an environment holds secrets */
    return e;
}

static struct box_proc *proc_ask(struct box *box)
{
    struct box_proc *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->box = box;
    pthread_mutex_lock(&box->host->lock);
    p->token = ++box->host->last_token;
    p->state = box->dead ? BP_LOST : BP_ASKED;
    p->next = box->procs;
    box->procs = p;
    pthread_mutex_unlock(&box->host->lock);
    return p;
}

/* The answer is here (ok: the program runs, or ran).  From here on its end is delivered. */
static void proc_answered(struct box *box, struct box_proc *p, bool ok, pid_t pid)
{
    pthread_mutex_lock(&box->host->lock);
    bool listed = !ok || p->state != BP_ASKED;
    for (struct box_proc **at = &box->procs; listed && *at != NULL; at = &(*at)->next) {
        if (*at == p) {
            *at = p->next;
            break;
        }
    }
    if (ok) {
        p->pid = pid;
        if (p->state == BP_LOST)
            p->status = SIGKILL;
        if (p->state == BP_ASKED)
            p->state = BP_RUNNING;
        else
            box_proc_deliver(p);
    }
    pthread_mutex_unlock(&box->host->lock);
    if (!ok)
        free(p);
}

int box_exec(struct box *box, const struct box_exec *exec, pid_t *pid)
{
    int strings = -1;
    if (exec->uid != 0 && exec->uid != BOX_USER_UID)
        return EINVAL;
    if (exec->pty)
        *exec->master = -1;
    if (!enter(box)) /* held until the end is arranged, so that box_stop waits for the delivery */
        return ESRCH;
    struct box_msg *m = message(BOX_OP_EXEC);
    struct box_proc *p = m != NULL ? proc_ask(box) : NULL;
    int e = p == NULL ? ENOMEM : exec_fd(exec, &m->count, &strings);
    if (e == 0) {
        int fds[4] = {strings, exec->fds[0], exec->fds[1], exec->fds[2]};
        m->token = p->token;
        m->uid = exec->uid;
        m->value = exec->pty ? BOX_EXEC_PTY : 0;
        m->bytes = (uint64_t)exec->rows << 16 | exec->cols;
        e = ask(box, m, fds, exec->pty ? 1 : 4, 0, exec->pty ? exec->master : NULL);
        if (e == 0 && m->pid <= 1)
            e = EBADMSG;
    }
    if (e == 0)
        *pid = m->pid;
    else if (exec->pty)
        box_fd_close(exec->master);
    if (p != NULL)
        proc_answered(box, p, e == 0, e == 0 ? m->pid : 0);
    leave(box);
    box_fd_close(&strings);
    free(m);
    return e;
}

int box_kill(struct box *box, pid_t pid, int signal_number)
{
    struct box_msg *m = message(BOX_OP_KILL);
    if (m == NULL)
        return ENOMEM;
    m->pid = pid;
    m->value = signal_number;
    int e = pid <= 1 ? ESRCH : ask(box, m, NULL, 0, FILE_TIMEOUT_MS, NULL);
    free(m);
    return e;
}

/* --- files --- */

static struct box_msg *file_message(enum box_op op, const char *cwd, const char *path, int *error)
{
    struct box_msg *m = message(op);
    *error = ENOMEM;
    if (m == NULL)
        return NULL;
    m->uid = BOX_USER_UID;
    if (box_msg_add(m, cwd) && box_msg_add(m, path))
        return m;
    *error = ENAMETOOLONG;
    free(m);
    return NULL;
}

int box_open_read(struct box *box, const char *cwd, const char *path, int *fd)
{
    int e;
    struct box_msg *m = file_message(BOX_OP_OPEN, cwd, path, &e);
    if (m == NULL)
        return e;
    e = ask(box, m, NULL, 0, FILE_TIMEOUT_MS, fd);
    free(m);
    return e;
}

int box_mkdir(struct box *box, const char *cwd, const char *path, bool recursive)
{
    int e;
    struct box_msg *m = file_message(BOX_OP_MKDIR, cwd, path, &e);
    if (m == NULL)
        return e;
    m->value = recursive;
    e = ask(box, m, NULL, 0, FILE_TIMEOUT_MS, NULL);
    free(m);
    return e;
}

int box_untar(struct box *box, const char *cwd, int fd, char err[BOX_TEXT])
{
    int e;
    err[0] = '\0';
    struct box_msg *m = file_message(BOX_OP_UNTAR, cwd, "", &e);
    if (m != NULL)
        e = ask(box, m, &fd, 1, 0, NULL);
    close(fd);
    if (e != 0)
        box_text_copy(err, BOX_TEXT, m != NULL && m->op == BOX_OP_DONE && m->len > 0 ? m->data : strerror(e));
    free(m);
    return e;
}

static int ask_socket(struct box *box, bool v6, int *fd)
{
    struct box_msg *m = message(BOX_OP_SOCKET);
    if (m != NULL)
        m->value = v6;
    int e = m == NULL ? ENOMEM : ask(box, m, NULL, 0, FILE_TIMEOUT_MS, fd);
    free(m);
    return e;
}

int box_socket(struct box *box, int *fd)
{
    return ask_socket(box, false, fd);
}

int box_socket6(struct box *box, int *fd)
{
    return ask_socket(box, true, fd);
}
