#include "guest/follow.h"

#include "guest/ctl.h"
#include "guest/out.h"
#include "guest/segment.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

enum {
    HOLD_MS = 5,
    ATTEND_AGAIN_MS = 1000,
    LOOK_MS = 20, /* between looks where nothing tells of changes, … */
    LOOK_MAX_MS = 320,
};

/* ---- waiting ---- */

/* What may have changed while we waited.  Nothing: no time passed that would make one look anyway. */
struct wake {
    bool output; /* bytes were appended to files that were there */
    bool files;  /* output files came or went */
    bool state;  /* something else in the record */
};
static const struct wake everything = {true, true, true};

/* -1 when there are no watches left: then polling alone has to do. */
static int watch_open(int dir)
{
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", dir);
    /* IN_CLOSE_WRITE also tells of a killed monitor: the lock is freed with the file's last descriptor. */
    uint32_t mask = IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_CLOSE_WRITE;
    if (fd >= 0 && inotify_add_watch(fd, path, mask) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void watch_event(const struct inotify_event *e, struct wake *w)
{
    bool output = e->len > 4 && (memcmp(e->name, "out.", 4) == 0 || memcmp(e->name, "err.", 4) == 0);
    if (e->mask & ~(uint32_t)(IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_CLOSE_WRITE))
        *w = everything; /* some were lost, or the directory is gone */
    else if (!output)
        w->state = true;
    else if (e->mask & IN_MODIFY)
        w->output = true;
    else if (!(e->mask & IN_CLOSE_WRITE))
        w->files = true;
}

static struct wake watch_read(int fd)
{
    _Alignas(struct inotify_event) char events[4096];
    struct wake w = {false, false, false};
    ssize_t n = read(fd, events, sizeof events);
    for (ssize_t at = 0; at + (ssize_t)sizeof(struct inotify_event) <= n;) {
        const struct inotify_event *e = (const struct inotify_event *)(const void *)(events + at);
        watch_event(e, &w);
        at += (ssize_t)(sizeof *e + e->len);
    }
    return w;
}

static int poll_ms(uint64_t most, uint64_t until_ms)
{
    uint64_t now = guest_now_ms();
    uint64_t left = until_ms > now ? until_ms - now : 0;
    return (int)(left < most ? left : most);
}

static void watch_wait(int fd, uint64_t until_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int ms = poll_ms(fd < 0 ? LOOK_MS : GUEST_POLL_MS, until_ms);
    if (ms > 0 && poll(&p, 1, ms) > 0)
        (void)watch_read(fd);
}

bool record_wait(int dir, const char *id, bool end, uint64_t deadline_ms, struct record *rec,
                 struct guest_fail *f)
{
    int watch = -1;
    bool ok;
    for (bool first = true;; first = false) {
        ok = record_load(dir, id, rec, f);
        enum sg_wire_state s = rec->p.state;
        if (!ok || (s != SG_PS_STARTING && (!end || s != SG_PS_RUNNING)) || guest_now_ms() >= deadline_ms)
            break;
        if (first)
            watch = watch_open(dir); /* and look again: it may have changed before the watch stood */
        else
            watch_wait(watch, deadline_ms);
    }
    if (watch >= 0)
        close(watch);
    return ok;
}

void record_pause(int dir, uint64_t deadline_ms)
{
    /* The watch may come after the change: then this costs one poll interval, cut short here. */
    uint64_t soon = guest_now_ms() + 20;
    int watch = watch_open(dir);
    watch_wait(watch, soon < deadline_ms ? soon : deadline_ms);
    if (watch >= 0)
        close(watch);
}

/* ---- following ---- */

struct follow {
    const struct follow_spec *spec;
    int dir;
    int bell;           /* what rings: -1 when there is none, or it broke */
    bool connected;     /* the bell is a connection to the monitor, our own */
    int watch;          /* of a record without a bell; -1: we just look */
    uint64_t look_ms;   /* then so often */
    int attend;         /* connection that says we are here, where the bell does not; or -1 */
    uint64_t attend_ms; /* when to try (again) */
    struct record rec;
    struct reader reader[2];
    uint64_t left[2]; /* what may still be printed of a stream */
    uint64_t budget;  /* and of both together */
    uint64_t printed;
};

static unsigned char block[15 * SG_WIRE_DATA_MAX];

static unsigned channel(const struct follow *f, unsigned s)
{
    return s == 0 && f->rec.p.terminal ? 3 : s + 1;
}

static void print_block(struct follow *f, unsigned s, size_t n)
{
    struct reader *r = &f->reader[s];
    for (size_t at = 0; at < n; at += SG_WIRE_DATA_MAX) {
        size_t len = n - at < SG_WIRE_DATA_MAX ? n - at : SG_WIRE_DATA_MAX;
        out_data(channel(f, s), r->pos + at, block + at, len);
    }
    r->pos += n;
    f->left[s] -= n;
    f->budget -= n;
    f->printed += n;
    f->look_ms = LOOK_MS;
}

static bool wanted(const struct follow *f, unsigned s)
{
    return (!f->spec->only || f->spec->only == s + 1) && f->left[s] > 0;
}

/* How many bytes the next block of stream s may have, up to offset `target`. */
static size_t block_size(const struct follow *f, unsigned s, uint64_t target)
{
    uint64_t pos = f->reader[s].pos, cap = sizeof block;
    if (!wanted(f, s) || pos >= target)
        return 0;
    if (cap > f->left[s])
        cap = f->left[s];
    if (cap > f->budget)
        cap = f->budget;
    return (size_t)(cap < target - pos ? cap : target - pos);
}

/* Prints one block of stream s, up to offset `target`.  False when there is nothing to print now. */
static bool pump_one(struct follow *f, unsigned s, uint64_t target)
{
    struct reader *r = &f->reader[s];
    size_t cap = block_size(f, s, target), n = 0;
    uint64_t gap_to = 0;
    if (cap == 0)
        return false;
    switch (reader_next(r, block, cap, &n, &gap_to)) {
    case READER_DATA:
        print_block(f, s, n);
        return true;
    case READER_GAP:
        if (gap_to > target)
            gap_to = target;
        out_gap(channel(f, s), r->pos, gap_to);
        r->pos = gap_to;
        return true;
    case READER_NONE:
        break;
    }
    return false;
}

/* Turn and turn about, so that neither stream starves the other. */
static bool pump(struct follow *f, const uint64_t target[2])
{
    for (bool more = true; more;) {
        more = false;
        for (unsigned s = 0; s < 2; s++)
            more |= pump_one(f, s, target[s]);
        if (more && f->printed >= sizeof block && !out_flush())
            return false;
    }
    return true;
}

/* Prints what was appended to the files that are open: one call for each stream where `pump` needs many, and with
 * a terminal somebody waits for it.  True when there may be more: that is `pump`'s. */
static bool pump_appended(struct follow *f)
{
    bool more = false;
    for (unsigned s = 0; s < 2; s++) {
        struct reader *r = &f->reader[s];
        size_t cap = block_size(f, s, UINT64_MAX);
        if (cap == 0 || r->fd < 0 || r->pos < r->base)
            continue;
        ssize_t n = pread(r->fd, block, cap, (off_t)(r->pos - r->base));
        if (n > 0)
            print_block(f, s, (size_t)n);
        more |= n == (ssize_t)cap;
    }
    return more;
}

/* A connection of ours costs nothing of what the kernel has few of for all processes together, as watches do. */
static void bell_connect(struct follow *f)
{
    struct guest_fail ignored;
    f->bell = ctl_connect(f->dir, f->spec->attend ? 'V' : 'B', &ignored);
    f->connected = f->bell >= 0;
    if (!f->connected)
        f->watch = watch_open(f->dir);
}

/* The monitor is gone, or has no room for us. */
static void bell_lost(struct follow *f)
{
    if (f->connected) {
        close(f->bell);
        f->watch = watch_open(f->dir);
    }
    f->bell = -1;
    f->connected = false;
}

static struct wake bell_read(struct follow *f)
{
    char rings[4096];
    struct wake w = {false, false, false};
    ssize_t n = read(f->bell, rings, sizeof rings);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return w;
    if (n <= 0) {
        bell_lost(f); /* its breaking is an event too: the record says what happened */
        return everything;
    }
    for (ssize_t i = 0; i < n; i++) {
        if (rings[i] != BELL_OUTPUT && rings[i] != BELL_FILES)
            return everything;
        w.output = true;
        w.files |= rings[i] == BELL_FILES;
    }
    return w;
}

static void attend(struct follow *f)
{
    struct guest_fail ignored; /* a process that cannot be attended ends by itself, or never for that */
    if (!f->spec->attend || f->connected || f->attend >= 0 || guest_now_ms() < f->attend_ms)
        return;
    f->attend = ctl_connect(f->dir, 'W', &ignored);
    f->attend_ms = guest_now_ms() + ATTEND_AGAIN_MS;
}

/* Waits for a change.  False when nobody listens any more. */
static bool follow_wait(struct follow *f, uint64_t until_ms, struct wake *w)
{
    bool rings = f->bell >= 0;
    struct pollfd p[3] = {
        {.fd = rings ? f->bell : f->watch, .events = POLLIN},
        {.fd = f->attend},
        {.fd = STDOUT_FILENO},
    };
    *w = everything;
    uint64_t most = p[0].fd >= 0 ? GUEST_POLL_MS : f->look_ms;
    f->look_ms = f->look_ms * 2 < LOOK_MAX_MS ? f->look_ms * 2 : LOOK_MAX_MS;
    if (poll(p, 3, poll_ms(most, until_ms)) <= 0)
        return true;
    if (p[1].revents) {
        close(f->attend);
        f->attend = -1;
    }
    if (p[0].revents)
        *w = rings ? bell_read(f) : watch_read(f->watch);
    return !(p[2].revents & (POLLERR | POLLNVAL));
}

static bool is_over(const struct record *rec)
{
    return rec->p.state == SG_PS_FINISHED || rec->p.state == SG_PS_UNKNOWN;
}

/* After the end was known, everything up to the ends was asked for: what did not come is lost. */
static bool deliver_rest(struct follow *f)
{
    for (unsigned s = 0; s < 2; s++) {
        struct reader *r = &f->reader[s];
        if (!wanted(f, s) || r->pos >= f->rec.p.end[s])
            continue;
        if (f->budget == 0)
            return false;
        out_gap(channel(f, s), r->pos, f->rec.p.end[s]);
        r->pos = f->rec.p.end[s];
    }
    return true;
}

static bool enough(const struct follow *f, uint64_t until_ms)
{
    return f->budget == 0 || guest_now_ms() >= until_ms || (f->spec->read && f->printed > 0);
}

/* One look at what may have changed in the record, and everything there is to print.  True when the last line was
 * printed. */
static bool turn(struct follow *f, const struct wake *w, uint64_t until_ms, struct guest_fail *fail, bool *ok)
{
    /* The state before the bytes: if it says "ended", all bytes are there. */
    char id[SG_WIRE_ID_MAX + 1];
    memcpy(id, f->rec.p.id, sizeof id);
    *ok = !w->state || record_poll(f->dir, id, &f->rec, fail);
    if (*ok && f->rec.tomb) {
        *fail = f->rec.why;
        if (f->rec.tomb == TOMB_REMOVED)
            guest_failed(fail, SG_WF_NO_RECORD, 0, "the process was removed");
        *ok = false;
    }
    if (!*ok)
        return true;
    bool over = is_over(&f->rec);
    const uint64_t unbounded[2] = {UINT64_MAX, UINT64_MAX};
    if ((over || w->files) && !pump(f, over ? f->rec.p.end : unbounded))
        return true;
    if (over && deliver_rest(f)) {
        out_exit(&f->rec.p);
        return true;
    }
    if (!enough(f, until_ms))
        return false;
    out_kind(SG_WIRE_MORE, NULL);
    return true;
}

/* The loop between hello and the last line.  False with *fail. */
static bool follow_on(struct follow *f, uint64_t until_ms, struct guest_fail *fail)
{
    bool ok = true;
    struct wake w = everything;
    if (f->bell >= 0) /* what has changed since the record was read has rung */
        w = (struct wake){.files = f->rec.p.end[0] > 0 || f->rec.p.end[1] > 0};
    /* A program that ends at once is told of in one piece, hello, output and end together. */
    uint64_t hold = f->spec->bell >= 0 ? guest_now_ms() + HOLD_MS : 0;
    while (!turn(f, &w, until_ms, fail, &ok)) {
        do {
            bool holds = hold > guest_now_ms();
            if (!holds && !out_flush())
                return true;
            attend(f);
            if (!follow_wait(f, holds && hold < until_ms ? hold : until_ms, &w))
                return true;
            if (w.output)
                w.files |= pump_appended(f);
        } while (!w.files && !w.state && !enough(f, until_ms));
        /* What was appended does not wait for the rest. */
        if (hold <= guest_now_ms() && !out_flush())
            return true;
    }
    return ok;
}

static uint64_t tail_of(const struct sg_wire_process *p, unsigned s, uint64_t tail)
{
    uint64_t from = p->end[s] > tail ? p->end[s] - tail : 0;
    return from > p->oldest[s] ? from : p->oldest[s];
}

bool follow_run(int dir, const char *id, const struct follow_spec *spec, struct guest_fail *fail)
{
    struct follow f = {.spec = spec, .dir = dir};
    uint64_t until = guest_now_ms() + (spec->read ? spec->wait_ms : guest_life_ms());
    if (!record_load(dir, id, &f.rec, fail))
        return false;
    if (f.rec.tomb) {
        *fail = f.rec.why;
        if (f.rec.tomb == TOMB_REMOVED)
            guest_failed(fail, SG_WF_NO_RECORD, 0, "the process was removed");
        return false;
    }
    out_hello(&f.rec.p);
    f.budget = spec->read && spec->limit < GUEST_FOLLOW_BYTES ? spec->limit : GUEST_FOLLOW_BYTES;
    for (unsigned s = 0; s < 2; s++) {
        reader_init(&f.reader[s], dir, s,
                    spec->from_tail ? tail_of(&f.rec.p, s, spec->tail) : spec->offset[s]);
        f.left[s] = spec->max_output;
    }
    f.bell = spec->bell;
    f.attend = f.watch = -1;
    f.look_ms = LOOK_MS;
    if (!is_over(&f.rec) && f.bell < 0 && guest_now_ms() < until)
        bell_connect(&f);
    bool ok = follow_on(&f, until, fail);
    (void)out_flush(); /* before the watch is closed, which takes milliseconds */
    for (unsigned s = 0; s < 2; s++)
        reader_close(&f.reader[s]);
    if (f.connected)
        close(f.bell);
    if (f.watch >= 0)
        close(f.watch);
    if (f.attend >= 0)
        close(f.attend);
    return ok;
}
