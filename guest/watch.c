#include "guest/watch.h"

#include "base/core/num.h"
#include "guest/ctl.h"
#include "guest/out.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

enum {
    SWEEP = 16,         /* records that are looked at every GUEST_POLL_MS although nothing was notified */
    UNNOTIFIED_MS = 250 /* and all of them this often where the kernel has no notifications left */
};

struct watched {
    const char *id;
    uint64_t seen[2];
    int wd;     /* -1: none */
    int attend; /* connection that says we are here, or -1 */
    bool told, due;
};

struct watch {
    int session; /* -1: nothing was ever started */
    int notify;  /* -1: none */
    struct watched list[WATCH_MAX];
    size_t count, left, next;
    bool unnotified; /* some record has no notification */
    bool attend;
};

static bool parse(struct watch *w, char *const *argv)
{
    for (; *argv; argv += 3) {
        if (!argv[1] || !argv[2] || w->count == WATCH_MAX || !sg_wire_id_valid(argv[0], strlen(argv[0])))
            return false;
        struct watched *p = &w->list[w->count++];
        *p = (struct watched){.id = argv[0], .wd = -1, .attend = -1, .due = true};
        for (size_t s = 0; s < 2; s++)
            if (!sg_parse_u64(argv[1 + s], strlen(argv[1 + s]), INT64_MAX / 4, &p->seen[s]))
                return false;
    }
    w->left = w->count;
    return true;
}

/* The notification comes before the first look, so that nothing falls between them. */
static void notify_of(struct watch *w, struct watched *p, int dir)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", dir);
    uint32_t mask = IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_CLOSE_WRITE;
    if (w->notify >= 0 && p->wd < 0)
        p->wd = inotify_add_watch(w->notify, path, mask);
    w->unnotified |= p->wd < 0;
}

/* A told process may write as it likes: it wakes us no more. */
static void forget(struct watch *w, const struct watched *p)
{
    for (size_t i = 0; i < w->count; i++)
        if (w->list[i].wd == p->wd && !w->list[i].told)
            return; /* named twice */
    if (p->wd >= 0)
        (void)inotify_rm_watch(w->notify, p->wd);
}

static void tell(struct watch *w, struct watched *p, const struct sg_wire_process *what)
{
    out_process(what);
    p->told = true;
    w->left--;
    forget(w, p);
    if (p->attend >= 0)
        close(p->attend); /* who is told follows it again, and attends so */
    p->attend = -1;
}

static void look(struct watch *w, struct watched *p)
{
    struct record rec = {.p = {.state = SG_PS_NOT_STARTED}};
    struct guest_fail f;
    snprintf(rec.p.id, sizeof rec.p.id, "%s", p->id);
    p->due = false;
    int dir = w->session < 0 ? -1 : dir_open(w->session, p->id);
    if (dir < 0) {
        bool later = w->session >= 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM);
        w->unnotified |= later;
        if (!later)
            tell(w, p, &rec.p);
        return;
    }
    notify_of(w, p, dir);
    if (w->attend && p->attend < 0)
        p->attend =
            ctl_connect(dir, 'W', &f); /* one that cannot be attended ends by itself, or never for that */
    if (!record_load(dir, p->id, &rec, &f)) {
        rec.p.state = SG_PS_UNKNOWN;
        rec.p.how = SG_HOW_UNKNOWN;
    }
    close(dir);
    bool goes_on = rec.p.state == SG_PS_STARTING || rec.p.state == SG_PS_RUNNING;
    if (!goes_on || rec.p.end[0] > p->seen[0] || rec.p.end[1] > p->seen[1])
        tell(w, p, &rec.p);
}

static void mark_notified(struct watch *w)
{
    _Alignas(struct inotify_event) char events[16 * 1024];
    ssize_t n = read(w->notify, events, sizeof events);
    for (ssize_t at = 0; at + (ssize_t)sizeof(struct inotify_event) <= n;) {
        const struct inotify_event *e = (const struct inotify_event *)(const void *)(events + at);
        for (size_t i = 0; i < w->count; i++)
            w->list[i].due |= (e->mask & IN_Q_OVERFLOW) != 0 || w->list[i].wd == e->wd;
        at += (ssize_t)(sizeof *e + e->len);
    }
}

static void mark_some(struct watch *w)
{
    for (size_t n = w->unnotified ? w->count : SWEEP; n > 0; n--) {
        w->list[w->next].due = true;
        w->next = (w->next + 1) % w->count;
    }
}

/* False when nobody listens any more. */
static bool wait(struct watch *w, uint64_t until)
{
    uint64_t now = guest_now_ms();
    int ms = w->unnotified ? UNNOTIFIED_MS : GUEST_POLL_MS;
    if (now < until && until - now < (uint64_t)ms)
        ms = (int)(until - now);
    struct pollfd p[2] = {{.fd = w->notify, .events = POLLIN}, {.fd = STDOUT_FILENO}};
    int n = poll(p, 2, ms);
    if (n > 0 && p[0].revents)
        mark_notified(w);
    else if (n == 0)
        mark_some(w);
    return n <= 0 || !p[1].revents;
}

static void watch_all(struct watch *w)
{
    uint64_t until = guest_now_ms() + guest_life_ms();
    for (bool heard = true; heard; heard = w->left && guest_now_ms() < until && wait(w, until)) {
        for (size_t i = 0; i < w->count; i++)
            if (w->list[i].due && !w->list[i].told)
                look(w, &w->list[i]);
        if (!out_flush())
            return;
    }
    out_kind(SG_WIRE_MORE, NULL);
}

bool act_watch(const struct guest_root *root, const struct guest_args *a, struct guest_fail *f)
{
    static struct watch w;
    w.attend = a->attend;
    if (!parse(&w, a->argv))
        return guest_failed(f, SG_WF_USAGE, 0, "bad list of processes to watch");
    w.session = root->fd < 0 ? -1 : session_open(root, a->session, false);
    if (w.session < 0 && root->fd >= 0 && errno != ENOENT)
        return guest_failed(f, SG_WF_INTERNAL, errno, "session directory");
    w.notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    watch_all(&w);
    (void)out_flush(); /* before the descriptor is closed, which takes milliseconds */
    if (w.notify >= 0)
        close(w.notify);
    if (w.session >= 0)
        close(w.session);
    return true;
}
