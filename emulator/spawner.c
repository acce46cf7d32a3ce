/* The spawner: forked first, with an empty environment and no secret, single-threaded for ever.  It clones
 * boxes and helpers, and hands the emulator their sockets.  Everything it started ends with it, and it ends
 * with the emulator. */
#include "emulator/spawner.h"
#include "base/core/signals.h"
#include "emulator/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <locale.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STRINGS_MAX = 1 << 20 };

static const uint64_t BOX_NAMESPACES =
    CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWCGROUP;

struct spawner {
    int sock, signals;
    enum box_tier tier;
    struct id_map map;
    struct agent_identity identity;
    struct sock_fprog filter;
    unsigned seq;
    struct box_msg in, out;
};

/* A new process, with the pipe that holds it until its ids are mapped. */
struct birth {
    pid_t pid;
    int pidfd;
    int go[2];
};

static pid_t clone_with(uint64_t flags, int *pidfd)
{
    struct clone_args args = {.flags = flags | CLONE_PIDFD, .exit_signal = SIGCHLD};
    args.pidfd = (uint64_t)(uintptr_t)pidfd;
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

/* 0 in the parent and in the child (pid 0 there), or errno. */
static int be_born(uint64_t flags, struct birth *b)
{
    b->pidfd = -1;
    if (pipe2(b->go, O_CLOEXEC) != 0)
        return errno;
    b->pid = clone_with(flags, &b->pidfd);
    if (b->pid < 0) {
        int e = errno;
        box_fds_close(b->go, 2);
        return e;
    }
    box_fd_close(&b->go[b->pid == 0 ? 1 : 0]);
    return 0;
}

static void give_up(struct birth *b)
{
    (void)kill(b->pid, SIGKILL); /* the main loop reaps it */
    box_fds_close(b->go, 2);
    box_fd_close(&b->pidfd);
}

static int let_go(struct spawner *s, struct birth *b, bool user_ns)
{
    int e = user_ns ? id_map_write(&s->map, b->pid) : 0;
    if (e == 0 && write(b->go[1], "x", 1) != 1)
        e = errno;
    box_fds_close(b->go, 2);
    return e;
}

static void out_reset(struct spawner *s, enum box_op op)
{
    memset(&s->out, 0, offsetof(struct box_msg, data));
    s->out.op = op;
}

/* --- creating a box --- */

struct order {
    const char *hostname, *mount;
    struct agent_layers layers;
    struct agent_mounts mounts;
};

struct handles {
    int tree, root;
    int ctl[2];
};

/* The string at *p, moving *p behind it; NULL at the end.  The order ends with a NUL. */
static char *next_string(char **p, const char *end)
{
    char *s = *p;
    if (s >= end)
        return NULL;
    *p = s + strlen(s) + 1;
    return s;
}

static int read_mount(const char *how, char **p, const char *end, struct agent_mounts *m)
{
    if (m->n == BOX_MOUNTS_MAX)
        return E2BIG;
    struct box_mount *to = &m->list[m->n];
    to->source = next_string(p, end);
    to->target = next_string(p, end);
    to->read_only = strcmp(how, "mount-ro") == 0;
    to->give = strcmp(how, "mount-new") == 0;
    if (to->source == NULL || to->target == NULL)
        return EBADMSG;
    m->n++;
    return 0;
}

static int read_order(char *s, size_t len, struct order *o)
{
    const char **first[] = {&o->hostname, &o->layers.upper, &o->layers.work, &o->mount};
    const char *end = s + len;
    if (len == 0 || s[len - 1] != '\0')
        return EBADMSG;
    for (size_t i = 0; i < 4; i++)
        if ((*first[i] = next_string(&s, end)) == NULL)
            return EBADMSG;
    const char *word;
    while ((word = next_string(&s, end)) != NULL && strcmp(word, "lower") != 0) {
        int e = read_mount(word, &s, end, &o->mounts);
        if (e != 0)
            return e;
    }
    while ((word = next_string(&s, end)) != NULL) {
        if (o->layers.n_lower == AGENT_LAYERS_MAX)
            return E2BIG;
        o->layers.lower[o->layers.n_lower++] = word;
    }
    return o->layers.n_lower == 0 ? EBADMSG : 0;
}

/* With the initial user namespace's rights: only so does the overlay keep redirected directories. */
static int mount_layers(struct spawner *s, const struct order *o, struct handles *h)
{
    static struct agent_layer_fds fds;
    const char *failed = "";
    int e = agent_layers_open(&o->layers, &fds, &failed);
    if (e != 0) {
        box_msg_text(&s->out, e, "cannot open the layer %s: %s", failed, strerror(e));
    } else {
        e = agent_overlay(&fds, o->mount, false);
        if (e == 0)
            e = agent_detach_mount(o->mount, &h->tree);
        if (e != 0)
            box_msg_text(&s->out, e, "cannot mount the overlay at %s: %s", o->mount, strerror(e));
    }
    agent_layers_close(&fds);
    return e;
}

static void close_handles(struct handles *h)
{
    box_fd_close(&h->tree);
    box_fd_close(&h->root);
    box_fds_close(h->ctl, 2);
}

/* Clones PID 1 and lets it run.  *pidfd and h->ctl[0] lead to it. */
static int start_agent(struct spawner *s, struct handles *h, const struct order *o, int reply,
                       struct birth *b, const char **what)
{
    *what = "make a socket";
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, h->ctl) != 0)
        return errno;
    *what = "make namespaces";
    int e = be_born(s->tier == BOX_TIER_PLAIN ? 0 : BOX_NAMESPACES, b);
    if (e != 0)
        return e;
    if (b->pid == 0) {
        /* Only what the boot names may stay open: a forgotten socket would outlive its owner. */
        close(s->sock);
        close(s->signals);
        close(h->ctl[0]);
        if (reply >= 0)
            close(reply);
        struct agent_boot boot = {.ctl = h->ctl[1],
                                  .go = b->go[0],
                                  .probe = o == NULL,
                                  .tree = h->tree,
                                  .layers = o != NULL ? &o->layers : NULL,
                                  .mounts = o != NULL ? &o->mounts : NULL,
                                  .hostname = o != NULL ? o->hostname : "probe",
                                  .vcpus = o != NULL ? (unsigned)s->in.value : 0,
                                  .seq = s->seq,
                                  .identity = s->identity};
        boot.identity.plain_root = h->root;
        agent_run(&boot);
    }
    *what = "map ids";
    e = let_go(s, b, s->tier != BOX_TIER_PLAIN);
    if (e != 0)
        give_up(b);
    return e;
}

static int create(struct spawner *s, const struct order *o, int reply, struct handles *h, struct birth *b)
{
    const char *what = "";
    int e = 0;
    if (s->tier == BOX_TIER_FULL)
        e = mount_layers(s, o, h);
    if (s->tier == BOX_TIER_PLAIN && (h->root = open(o->mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        e = errno;
        box_msg_text(&s->out, e, "cannot open %s: %s", o->mount, strerror(e));
    }
    if (e != 0)
        return e;
    s->seq++;
    e = start_agent(s, h, o, reply, b, &what);
    if (e != 0)
        box_msg_text(&s->out, e, "cannot %s: %s", what, strerror(e));
    return e;
}

static void op_create(struct spawner *s, int reply, int strings)
{
    static struct order order;
    static struct handles h;
    struct birth b = {.pidfd = -1, .go = {-1, -1}};
    struct stat sb;
    char *map = MAP_FAILED;
    size_t len = 0;
    order.layers.n_lower = 0;
    order.mounts.n = 0;
    h = (struct handles){.tree = -1, .root = -1, .ctl = {-1, -1}};
    out_reset(s, BOX_OP_DONE);
    if (fstat(strings, &sb) == 0 && sb.st_size > 0 && sb.st_size <= STRINGS_MAX) {
        len = (size_t)sb.st_size;
        map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE, strings, 0);
    }
    if (map == MAP_FAILED || read_order(map, len, &order) != 0)
        box_msg_text(&s->out, E2BIG, "too many layers, or paths that are too long");
    else
        (void)create(s, &order, reply, &h, &b); /* what failed is in s->out */
    s->out.pid = b.pid;
    int fds[2] = {h.ctl[0], b.pidfd};
    if (box_msg_send(reply, &s->out, fds, s->out.error == 0 ? 2 : 0) != 0 && b.pidfd >= 0)
        (void)kill(b.pid, SIGKILL);
    close_handles(&h);
    box_fd_close(&b.pidfd);
    if (map != MAP_FAILED)
        munmap(map, len);
}

/* --- helpers --- */

static void op_helper(struct spawner *s, int fds[BOX_MSG_FDS])
{
    enum box_helper_kind kind = (enum box_helper_kind)s->in.value;
    /* Root removes as itself: the work directory of an overlay it mounted belongs to no id of a box. */
    bool user_ns = s->tier != BOX_TIER_PLAIN &&
                   (kind == BOX_HELPER_IMPORT || kind == BOX_HELPER_COPY || s->map.how != MAP_SHIFTED);
    struct birth b;
    int e = be_born(user_ns ? CLONE_NEWUSER : 0, &b);
    if (e == 0 && b.pid == 0) {
        char go;
        close(s->sock);
        close(s->signals);
        if (read(b.go[0], &go, 1) != 1)
            _exit(1);
        close(b.go[0]);
        helper_run(kind, user_ns, s->identity.single_id || s->tier == BOX_TIER_PLAIN, fds[0], fds[1], fds[2]);
        _exit(0);
    }
    if (e == 0 && (e = let_go(s, &b, user_ns)) != 0)
        give_up(&b);
    if (e == 0) {
        box_fd_close(&b.pidfd);
        return; /* the helper answers */
    }
    out_reset(s, BOX_OP_DONE);
    box_msg_text(&s->out, e, "cannot start a helper: %s", strerror(e));
    (void)box_msg_send(fds[0], &s->out, NULL, 0);
}

/* --- start --- */

/* Boots an agent on an empty root, without layers, and lets it go at once. */
static int probe(struct spawner *s, const char **what, char text[BOX_TEXT])
{
    struct handles h = {.tree = -1, .root = -1, .ctl = {-1, -1}};
    struct birth b = {.pidfd = -1, .go = {-1, -1}};
    int fds[BOX_MSG_FDS];
    text[0] = '\0';
    int e = start_agent(s, &h, NULL, -1, &b, what);
    box_fd_close(&h.ctl[1]);
    if (e == 0) {
        *what = "set up a root";
        e = box_msg_recv(h.ctl[0], &s->in, fds);
        if (e == 0) {
            box_fds_close(fds, BOX_MSG_FDS);
            e = s->in.error;
            if (e != 0)
                box_text_copy(text, BOX_TEXT, s->in.data);
        }
    }
    if (b.pid > 0)
        while (waitpid(b.pid, NULL, 0) < 0 && errno == EINTR)
            ;
    close_handles(&h);
    box_fd_close(&b.pidfd);
    return e;
}

static void advise(struct box_msg *m, int error, const char *what, const char *text)
{
    const char *fix = "run as root, or allow unprivileged user namespaces, or use --isolation=none";
    if (strstr(text, "/proc") != NULL)
        fix = "in a container add --security-opt systempaths=unconfined, or use --isolation=none";
    else if (geteuid() == 0)
        fix = "in a container add --security-opt seccomp=unconfined --security-opt systempaths=unconfined, "
              "or use --isolation=none";
    if (text[0] != '\0')
        box_msg_text(m, error, "%.100s; %s", text, fix);
    else
        box_msg_text(m, error, "cannot %s: %s; %s", what, strerror(error), fix);
}

/* Mounts made here stay here. */
static bool own_mounts(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0;
}

static int find_tier(struct spawner *s)
{
    const char *what = "";
    char text[BOX_TEXT];
    int e;
    if (geteuid() == 0) {
        s->map.how = MAP_SHIFTED;
        s->tier = own_mounts() ? BOX_TIER_FULL : BOX_TIER_ROOTLESS;
        e = probe(s, &what, text);
    } else {
        s->tier = BOX_TIER_ROOTLESS;
        e = id_map_subids(&s->map) ? probe(s, &what, text) : ENOENT;
        if (e != 0) {
            s->tier = BOX_TIER_SINGLE_ID;
            s->map.how = MAP_SINGLE;
            s->identity.single_id = true;
            e = probe(s, &what, text);
        }
    }
    if (e != 0)
        advise(&s->out, e, what, text);
    return e;
}

/* Which state directories this spawner can use: the attribute flavour and the ids of files on disk. */
static void flavour(struct spawner *s)
{
    char *out = s->out.data;
    size_t cap = 128;
    const char *attr = s->tier == BOX_TIER_FULL ? "trusted" : "user";
    if (s->tier == BOX_TIER_PLAIN)
        snprintf(out, cap, "plain");
    else if (s->map.how == MAP_SHIFTED)
        snprintf(out, cap, "%s %d+%d", attr, ID_BASE, ID_COUNT);
    else if (s->map.how == MAP_SUBIDS)
        snprintf(out, cap, "%s %lu/%lu %lu+%lu/%lu+%lu", attr, (unsigned long)geteuid(),
                 (unsigned long)getegid(), s->map.uid_start, s->map.uid_count, s->map.gid_start,
                 s->map.gid_count);
    else
        snprintf(out, cap, "%s %lu/%lu", attr, (unsigned long)geteuid(), (unsigned long)getegid());
    s->out.len = (uint32_t)strlen(out);
    s->out.uid = s->map.how == MAP_SHIFTED && s->tier != BOX_TIER_PLAIN ? ID_BASE : geteuid();
    s->out.value = (int32_t)s->tier;
}

static void forget_environment(void)
{
    for (char **e = environ; e != NULL && *e != NULL; e++)
        explicit_bzero(*e, strlen(*e));
    clearenv();
}

static int calm_down(struct spawner *s)
{
    sg_signals_default();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0)
        return errno;
    (void)prctl(PR_SET_NAME, "sandgate-spawn", 0, 0, 0);
    forget_environment();
    umask(022);
    /* Names in archives are UTF-8; without this, libarchive would refuse them in the C locale. */
    (void)setlocale(LC_CTYPE, "C.UTF-8");
    if (dup2(s->sock, 3) < 0)
        return errno;
    s->sock = 3;
    if (fcntl(3, F_SETFD, FD_CLOEXEC) != 0 || syscall(SYS_close_range, 4U, ~0U, 0U) != 0)
        return errno;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0)
        return errno;
    if (fcntl(2, F_GETFD) < 0 && dup2(null, 2) < 0)
        return errno;
    close(null);
    if (chdir("/") != 0)
        return errno;
    struct rlimit wide;
    if (getrlimit(RLIMIT_NOFILE, &s->identity.nofile) != 0)
        return errno;
    wide = s->identity.nofile;
    wide.rlim_cur = wide.rlim_max < 65536 ? wide.rlim_max : 65536;
    (void)setrlimit(RLIMIT_NOFILE, &wide);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    if (sigprocmask(SIG_SETMASK, &set, NULL) != 0)
        return errno;
    s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->signals < 0 ? errno : 0;
}

static void reap(struct spawner *s)
{
    struct signalfd_siginfo si;
    while (read(s->signals, &si, sizeof si) > 0)
        ;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

static void request(struct spawner *s)
{
    int fds[BOX_MSG_FDS];
    int e = box_msg_recv(s->sock, &s->in, fds);
    if (e == EBADMSG || e == EAGAIN)
        return;
    if (e != 0)
        _exit(0); /* the emulator is gone; the boxes follow */
    if (s->in.op == BOX_OP_CREATE && fds[1] >= 0)
        op_create(s, fds[0], fds[1]);
    else if (s->in.op == BOX_OP_HELPER && fds[1] >= 0)
        op_helper(s, fds);
    box_fds_close(fds, BOX_MSG_FDS);
}

_Noreturn void spawner_run(int sock, bool plain)
{
    static struct spawner spawner;
    struct spawner *s = &spawner;
    s->sock = sock;
    s->identity.plain_root = -1;
    int e = calm_down(s);
    if (e == 0 && (e = agent_filter_build(&s->filter)) == 0)
        s->identity.filter = &s->filter;
    out_reset(s, BOX_OP_HELLO);
    if (e != 0) {
        box_msg_text(&s->out, e, "cannot start the spawner: %s", strerror(e));
    } else if (plain) {
        s->tier = BOX_TIER_PLAIN;
        flavour(s);
    } else if ((e = find_tier(s)) == 0) {
        out_reset(s, BOX_OP_HELLO);
        flavour(s);
    }
    if (box_msg_send(s->sock, &s->out, NULL, 0) != 0 || e != 0)
        _exit(1);
    struct pollfd p[2] = {{.fd = s->signals, .events = POLLIN}, {.fd = s->sock, .events = POLLIN}};
    for (;;) {
        if (poll(p, 2, -1) < 0) {
            if (errno == EINTR || errno == ENOMEM)
                continue;
            _exit(1);
        }
        if (p[0].revents != 0)
            reap(s);
        if (p[1].revents != 0)
            request(s);
    }
}
