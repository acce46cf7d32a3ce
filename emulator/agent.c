/* PID 1 of a box.  One thread, one poll loop: it starts programs, forks short-lived children for files, reaps
 * everything, and reports the end of what it started.  It goes away with its control socket, and the kernel
 * then kills whatever is left inside. */
#include "emulator/agent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PROCS_MAX = 4096,   /* programs at once, started by request */
    STARTING_MAX = 256, /* of those, between fork and exec */
    WALK_MAX = 16384    /* processes looked at for one CPU reading */
};

enum proc_state { PROC_FREE, PROC_STARTING, PROC_RUNNING, PROC_FAILED };

struct proc {
    enum proc_state state;
    pid_t pid;
    uint64_t token;
    int report; /* STARTING: an errno arrives, or the end of file when exec succeeded */
    int reply;  /* STARTING: where the answer goes */
    int master; /* STARTING: of its terminal, for the answer; -1: none */
};

struct agent {
    int ctl, signals;
    const struct agent_identity *id;
    struct proc *procs; /* PROCS_MAX */
    size_t high;        /* entries at and above were never used */
    size_t starting;
    struct box_msg in, out;
};

_Noreturn static void end(const struct agent *a)
{
    if (a->id->plain_root >= 0)
        agent_plain_end();
    _exit(0); /* and the kernel kills what is inside */
}

static void answer(struct agent *a, int reply, int error, int32_t pid, int fd)
{
    memset(&a->out, 0, offsetof(struct box_msg, data));
    a->out.op = BOX_OP_DONE;
    a->out.error = error;
    a->out.pid = pid;
    (void)box_msg_send(reply, &a->out, &fd, fd >= 0 ? 1 : 0); /* a caller that gave up is no failure */
}

static struct proc *proc_new(struct agent *a)
{
    for (size_t i = 0; i < PROCS_MAX; i++) {
        if (a->procs[i].state != PROC_FREE)
            continue;
        if (i >= a->high)
            a->high = i + 1;
        return &a->procs[i];
    }
    return NULL;
}

static struct proc *proc_of(struct agent *a, pid_t pid)
{
    for (size_t i = 0; i < a->high; i++)
        if (a->procs[i].state != PROC_FREE && a->procs[i].pid == pid)
            return &a->procs[i];
    return NULL;
}

static void op_exec(struct agent *a, int fds[BOX_MSG_FDS])
{
    int report[2] = {-1, -1};
    int master = -1;
    bool pty = a->in.value == BOX_EXEC_PTY;
    struct proc *p = a->starting < STARTING_MAX ? proc_new(a) : NULL;
    int e = 0;
    if (fds[pty ? 1 : 4] < 0)
        e = EBADMSG;
    else if (p == NULL)
        e = EAGAIN;
    else if (pty)
        e = agent_pty_open(a->id, a->in.bytes, &master);
    if (e == 0 && pipe2(report, O_CLOEXEC) != 0)
        e = errno;
    if (e != 0) {
        box_fd_close(&master);
        answer(a, fds[0], e, 0, -1);
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(report[0]);
        e = agent_exec(a->id, &a->in, fds[1], fds + 2, master);
        ssize_t n = write(report[1], &e, sizeof e);
        _exit(n == (ssize_t)sizeof e ? 127 : 126);
    }
    e = errno;
    close(report[1]);
    if (pid < 0) {
        close(report[0]);
        box_fd_close(&master);
        answer(a, fds[0], e, 0, -1);
        return;
    }
    *p = (struct proc){.state = PROC_STARTING,
                       .pid = pid,
                       .token = a->in.token,
                       .report = report[0],
                       .reply = fds[0],
                       .master = master};
    fds[0] = -1;
    a->starting++;
}

/* The child has executed its program, or said why not, or died before either. */
static void finish_start(struct agent *a, struct proc *p)
{
    int e = 0;
    ssize_t n;
    do
        n = read(p->report, &e, sizeof e);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof e)
        e = 0;
    answer(a, p->reply, e, e == 0 ? p->pid : 0, e == 0 ? p->master : -1);
    box_fd_close(&p->master);
    close(p->report);
    close(p->reply);
    p->report = p->reply = -1;
    p->state = e == 0 ? PROC_RUNNING : PROC_FAILED;
    a->starting--;
}

static void reap(struct agent *a)
{
    struct signalfd_siginfo si;
    while (read(a->signals, &si, sizeof si) > 0)
        ;
    for (;;) {
        int status = 0;
        struct rusage usage;
        pid_t pid = wait4(-1, &status, WNOHANG, &usage);
        if (pid <= 0)
            return;
        struct proc *p = proc_of(a, pid);
        if (p == NULL)
            continue; /* an orphan, or a file child */
        if (p->state == PROC_STARTING)
            finish_start(a, p); /* dead, so its end of the pipe is closed: this does not wait */
        if (p->state == PROC_RUNNING) {
            memset(&a->out, 0, offsetof(struct box_msg, data));
            a->out.op = BOX_OP_EXIT;
            a->out.token = p->token;
            a->out.pid = pid;
            a->out.value = status;
            a->out.usage = usage;
            /* Blocks while the emulator is slow: an exit is never dropped. */
            if (box_msg_send(a->ctl, &a->out, NULL, 0) != 0)
                end(a);
        }
        p->state = PROC_FREE;
    }
}

static void op_kill(struct agent *a, int reply)
{
    struct proc *p = proc_of(a, a->in.pid);
    int e = ESRCH;
    if (p != NULL && p->state == PROC_RUNNING)
        e = kill(-p->pid, a->in.value) != 0 ? errno : 0;
    answer(a, reply, e, 0, -1);
}

static void op_file(struct agent *a, int fds[BOX_MSG_FDS])
{
    pid_t pid = fork();
    if (pid == 0) {
        /* What reads hostile archives must not be able to speak for the agent. */
        close(a->ctl);
        close(a->signals);
        for (size_t i = 0; i < a->high; i++) {
            if (a->procs[i].state == PROC_STARTING) {
                close(a->procs[i].report);
                close(a->procs[i].reply);
                box_fd_close(&a->procs[i].master);
            }
        }
        agent_file_op(a->id, &a->in, fds[0], fds[1]);
        _exit(0);
    }
    if (pid < 0)
        answer(a, fds[0], errno, 0, -1);
}

static void op_socket(struct agent *a, int reply, int family)
{
    int s = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    answer(a, reply, s < 0 ? errno : 0, 0, s);
    box_fd_close(&s);
}

static uint64_t timeval_us(struct timeval t)
{
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_usec;
}

/* utime + stime + cutime + cstime of a live process, in clock ticks. */
static uint64_t live_ticks(const char *pid)
{
    char path[64];
    char buf[1024];
    snprintf(path, sizeof path, "/proc/%.16s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, buf, sizeof buf - 1);
    close(fd);
    if (n <= 0)
        return 0;
    buf[n] = '\0';
    const char *p = strrchr(buf, ')'); /* the name before may hold anything */
    if (p == NULL)
        return 0;
    p++;
    uint64_t sum = 0;
    for (int field = 3; field <= 17; field++) {
        while (*p == ' ')
            p++;
        if (field >= 14)
            sum += strtoull(p, NULL, 10);
        while (*p != ' ' && *p != '\0')
            p++;
    }
    return sum;
}

static void op_cpu(struct agent *a, int reply)
{
    struct rusage ended;
    uint64_t us = 0;
    if (getrusage(RUSAGE_CHILDREN, &ended) == 0)
        us = timeval_us(ended.ru_utime) + timeval_us(ended.ru_stime);
    long hz = sysconf(_SC_CLK_TCK);
    DIR *d = a->id->plain_root < 0 ? opendir("/proc") : NULL; /* in the plain tier those are everyone's */
    size_t seen = 0;
    for (struct dirent *e; d != NULL && hz > 0 && seen < WALK_MAX && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] < '1' || e->d_name[0] > '9' || strcmp(e->d_name, "1") == 0)
            continue;
        us += live_ticks(e->d_name) * 1000000 / (uint64_t)hz;
        seen++;
    }
    if (d != NULL)
        closedir(d);
    memset(&a->out, 0, offsetof(struct box_msg, data));
    a->out.op = BOX_OP_DONE;
    a->out.count = us;
    (void)box_msg_send(reply, &a->out, NULL, 0);
}

static void request(struct agent *a)
{
    int fds[BOX_MSG_FDS];
    int e = box_msg_recv(a->ctl, &a->in, fds);
    if (e == EBADMSG || e == EAGAIN)
        return;
    if (e != 0)
        end(a); /* the emulator is gone, and so is the box */
    if (fds[0] < 0)
        return;
    switch ((enum box_op)a->in.op) {
    case BOX_OP_EXEC:
        op_exec(a, fds);
        break;
    case BOX_OP_KILL:
        op_kill(a, fds[0]);
        break;
    case BOX_OP_OPEN:
    case BOX_OP_MKDIR:
    case BOX_OP_UNTAR:
        op_file(a, fds);
        break;
    case BOX_OP_SOCKET:
        op_socket(a, fds[0], a->in.value ? AF_INET6 : AF_INET);
        break;
    case BOX_OP_CPU:
        op_cpu(a, fds[0]);
        break;
    case BOX_OP_NONE:
    case BOX_OP_HELLO:
    case BOX_OP_CREATE:
    case BOX_OP_HELPER:
    case BOX_OP_READY:
    case BOX_OP_EXIT:
    case BOX_OP_PROGRESS:
    case BOX_OP_DONE:
    default:
        answer(a, fds[0], ENOSYS, 0, -1);
        break;
    }
    box_fds_close(fds, BOX_MSG_FDS);
}

_Noreturn static void serve(struct agent *a)
{
    static struct pollfd polled[2 + STARTING_MAX];
    static size_t owner[2 + STARTING_MAX];
    for (;;) {
        size_t n = 2;
        polled[0] = (struct pollfd){.fd = a->signals, .events = POLLIN};
        polled[1] = (struct pollfd){.fd = a->ctl, .events = POLLIN};
        for (size_t i = 0; i < a->high && n < 2 + a->starting; i++) {
            if (a->procs[i].state != PROC_STARTING)
                continue;
            owner[n] = i;
            polled[n++] = (struct pollfd){.fd = a->procs[i].report, .events = POLLIN};
        }
        if (poll(polled, n, -1) < 0) {
            if (errno == EINTR || errno == ENOMEM)
                continue;
            _exit(1);
        }
        for (size_t k = 2; k < n; k++)
            if (polled[k].revents != 0 && a->procs[owner[k]].state == PROC_STARTING)
                finish_start(a, &a->procs[owner[k]]);
        if (polled[0].revents != 0)
            reap(a);
        if (polled[1].revents != 0)
            request(a);
    }
}

/* Only a preference: with fewer CPUs than asked for, all of them. */
static void take_cpus(unsigned vcpus, unsigned seq)
{
    cpu_set_t have;
    cpu_set_t want;
    if (vcpus == 0 || sched_getaffinity(0, sizeof have, &have) != 0)
        return;
    unsigned n = (unsigned)CPU_COUNT(&have);
    if (n <= vcpus)
        return;
    CPU_ZERO(&want);
    unsigned first = (unsigned)((uint64_t)seq * vcpus % n);
    unsigned index = 0;
    for (size_t c = 0; c < CPU_SETSIZE; c++) {
        if (!CPU_ISSET(c, &have))
            continue;
        if ((index + n - first) % n < vcpus)
            CPU_SET(c, &want);
        index++;
    }
    (void)sched_setaffinity(0, sizeof want, &want);
}

static int become_root(bool single_id)
{
    int e = single_id ? 0 : agent_set_ids(0, 0, false);
    if (e != 0)
        return e;
    /* After the change of ids, which clears it: the box ends with the spawner. */
    return prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 ? errno : 0;
}

static int start(const struct agent_boot *b, struct agent *a, const char **what)
{
    *what = "start the agent";
    take_cpus(b->vcpus, b->seq);
    sigset_t set;
    sigfillset(&set);
    if (sigprocmask(SIG_SETMASK, &set, NULL) != 0)
        return errno;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    a->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (a->signals < 0)
        return errno;
    a->procs = calloc(PROCS_MAX, sizeof *a->procs);
    return a->procs == NULL ? ENOMEM : 0;
}

static int set_up(const struct agent_boot *b, struct agent *a, const char **what)
{
    char go;
    ssize_t n;
    do
        n = read(b->go, &go, 1);
    while (n < 0 && errno == EINTR);
    if (n != 1)
        _exit(1); /* the spawner gave up */
    close(b->go);
    static struct agent_layer_fds layers = {.upper = -1, .work = -1};
    int mounts[BOX_MOUNTS_MAX] = {-1, -1, -1, -1};
    int e = 0;
    if (b->identity.plain_root >= 0) {
        if ((e = agent_plain_setup(b, what)) != 0)
            return e;
        return start(b, a, what);
    }
    /* Still with the emulator's own id, which may walk the state directory. */
    if (!b->probe && b->tree < 0 && (e = agent_layers_open(b->layers, &layers, what)) != 0)
        return e;
    if (b->mounts != NULL && (e = agent_mounts_open(b->mounts, mounts, what)) != 0)
        return e;
    *what = "become root of the box";
    if ((e = become_root(b->identity.single_id)) != 0)
        return e;
    *what = "take the drives";
    if (b->mounts != NULL && (e = agent_mounts_clone(b->mounts, mounts)) != 0)
        return e;
    if ((e = agent_root(b, &layers, what)) != 0)
        return e;
    agent_layers_close(&layers);
    if (!b->probe && (e = agent_prepare_root(b->identity.single_id, what)) != 0)
        return e;
    if (b->mounts != NULL && (e = agent_mounts_place(b->mounts, mounts, b->identity.single_id, what)) != 0)
        return e;
    /* The sandbox's root shall not look into what was forked from outside. */
    *what = "protect the agent";
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
        return errno;
    return start(b, a, what);
}

_Noreturn void agent_run(const struct agent_boot *b)
{
    static struct agent agent;
    const char *what = "start";
    agent.ctl = b->ctl;
    agent.id = &b->identity;
    int e = set_up(b, &agent, &what);
    agent.out.op = BOX_OP_READY;
    if (e != 0)
        box_msg_text(&agent.out, e, "cannot %s: %s", what, strerror(e));
    int tree = b->tree;
    box_fd_close(&tree);
    if (box_msg_send(b->ctl, &agent.out, NULL, 0) != 0 || e != 0 || b->probe)
        _exit(0);
    serve(&agent);
}
