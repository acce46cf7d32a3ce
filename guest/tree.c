#include "guest/tree.h"

#include "base/core/num.h"
#include "guest/guest.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    TREE_MAX = 65536, /* processes looked at */
    TREE_KILL_MS = 3000,
    TREE_TERM_ROUNDS = 16,
};

struct proc {
    pid_t pid, parent;
    char state;
    uint64_t start;
    bool in_tree, done;
};

struct table {
    struct proc *list;
    size_t n, cap;
};

static bool proc_read(pid_t pid, struct proc *p)
{
    char path[40], buf[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    long n = guest_read_file(AT_FDCWD, path, buf, sizeof buf - 1);
    if (n <= 0)
        return false;
    buf[n] = '\0';
    /* The name in parentheses may hold anything, parentheses too: what counts starts after the last one. */
    char *at = strrchr(buf, ')');
    if (!at || at[1] != ' ' || at[2] == '\0')
        return false;
    *p = (struct proc){.pid = pid, .state = at[2]};
    at += 3;
    for (int field = 4; *at == ' '; field++) {
        char *word = at + 1;
        size_t len = strcspn(word, " \n");
        uint64_t v;
        if (field == 4 && sg_parse_u64(word, len, INT32_MAX, &v))
            p->parent = (pid_t)v;
        if (field == 22)
            return sg_parse_u64(word, len, INT64_MAX, &p->start);
        at = word + len;
    }
    return false;
}

uint64_t proc_start_time(pid_t pid)
{
    struct proc p;
    return proc_read(pid, &p) ? p.start : 0;
}

static int by_pid(const void *a, const void *b)
{
    pid_t x = ((const struct proc *)a)->pid, y = ((const struct proc *)b)->pid;
    return (x > y) - (x < y);
}

static struct proc *table_find(const struct table *t, pid_t pid)
{
    struct proc key = {.pid = pid};
    return t->n ? bsearch(&key, t->list, t->n, sizeof key, by_pid) : NULL;
}

static bool table_add(struct table *t, const struct proc *p)
{
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 256;
        struct proc *list = cap > TREE_MAX ? NULL : realloc(t->list, cap * sizeof *list);
        if (!list)
            return false;
        t->list = list;
        t->cap = cap;
    }
    t->list[t->n++] = *p;
    return true;
}

/* All processes, with the descendants of root marked. */
static bool table_fill(struct table *t, pid_t root)
{
    DIR *d = opendir("/proc");
    if (!d)
        return false;
    t->n = 0;
    bool ok = true;
    for (struct dirent *e; ok && (e = readdir(d));) {
        uint64_t pid;
        struct proc p;
        if (sg_parse_u64(e->d_name, strlen(e->d_name), INT32_MAX, &pid) && proc_read((pid_t)pid, &p))
            ok = table_add(t, &p);
    }
    closedir(d);
    if (t->n)
        qsort(t->list, t->n, sizeof *t->list, by_pid);
    for (bool again = true; again;) {
        again = false;
        for (size_t i = 0; i < t->n; i++) {
            struct proc *p = &t->list[i];
            if (p->in_tree || p->pid == root)
                continue;
            /* root itself may not be in the table: an emulator shows its guests half of /proc/self/stat. */
            const struct proc *up = p->parent == root ? NULL : table_find(t, p->parent);
            if (p->parent == root || (up && up->in_tree))
                again = p->in_tree = true;
        }
    }
    return ok;
}

/* Signals p, which was seen in the tree, unless its process id belongs to another process by now. */
static int signal_checked(const struct proc *p, int sig)
{
    int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
    if (fd < 0 && errno != ENOSYS)
        return -1;
    struct proc now;
    int rc = -1;
    if (!proc_read(p->pid, &now) || now.start != p->start)
        errno = ESRCH;
    else if (fd >= 0)
        rc = (int)syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0);
    else
        rc = kill(p->pid, sig);
    int err = errno;
    if (fd >= 0)
        close(fd);
    errno = err;
    return rc;
}

static bool root_is(pid_t root, uint64_t start)
{
    return root > 1 && (start == 0 ? root == getpid() : proc_start_time(root) == start);
}

/* One walk.  Returns how many living descendants were not signalled in an earlier round. */
static size_t round_signal(const struct table *t, const struct table *before, int sig,
                           struct tree_result *res)
{
    size_t fresh = 0;
    for (size_t i = 0; i < t->n; i++) {
        struct proc *p = &t->list[i];
        if (!p->in_tree || p->state == 'Z' || p->state == 'X' || p->pid == getpid())
            continue;
        const struct proc *old = table_find(before, p->pid);
        bool seen = old && old->done && old->start == p->start;
        p->done = true;
        if (seen && sig != SIGKILL)
            continue;
        fresh++;
        if (signal_checked(p, sig) == 0)
            res->signalled += !seen;
        else if (errno == EPERM)
            res->denied += !seen;
    }
    return fresh;
}

bool tree_signal(pid_t root, uint64_t root_start, int sig, struct tree_result *res)
{
    *res = (struct tree_result){0};
    struct table now = {0}, before = {0};
    uint64_t deadline = guest_now_ms() + TREE_KILL_MS;
    bool ok = false;
    for (int round = 0;; round++) {
        /* Checked after the walk too: then root was itself all the time, and the tree was its own. */
        ok = root_is(root, root_start) && table_fill(&now, root) && root_is(root, root_start);
        if (!ok)
            break;
        size_t fresh = round_signal(&now, &before, sig, res);
        if (fresh == 0 || (sig != SIGKILL && sig != SIGTERM) ||
            (sig == SIGTERM && round >= TREE_TERM_ROUNDS) || guest_now_ms() >= deadline ||
            (res->denied && !res->signalled))
            break;
        if (sig == SIGKILL && round > 0)
            (void)poll(NULL, 0, 1); /* killed processes need a moment to be gone */
        struct table swap = before;
        before = now;
        now = swap;
    }
    free(now.list);
    free(before.list);
    return ok || res->signalled > 0;
}

bool tree_signal_one(pid_t pid, uint64_t start, int sig)
{
    struct proc p;
    if (pid <= 1 || !proc_read(pid, &p) || p.start != start || p.state == 'Z') {
        errno = ESRCH;
        return false;
    }
    return signal_checked(&p, sig) == 0;
}
