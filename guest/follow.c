#include "guest/follow.h"

#include "guest/out.h"
#include "guest/segment.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

enum { HOLD_MS = 5 };

/* ---- waiting ---- */

/* -1 when there are no watches left: then polling alone has to do. */
static int watch_open(int dir)
{
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", dir);
    /* IN_CLOSE_WRITE also tells of a killed monitor: the lock file closes with it. */
    uint32_t mask = IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_CLOSE_WRITE;
    if (fd >= 0 && inotify_add_watch(fd, path, mask) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void watch_wait(int fd, uint64_t until_ms)
{
    uint64_t now = guest_now_ms();
    if (now >= until_ms)
        return;
    int ms = until_ms - now < GUEST_POLL_MS ? (int)(until_ms - now) : GUEST_POLL_MS;
    if (fd < 0 && ms > 20)
        ms = 20;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, ms) > 0) {
        char events[4096];
        ssize_t n = read(fd, events, sizeof events);
        (void)n; /* that something changed is all we need */
    }
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
    int dir, watch;
    int bell; /* -1 when there is none, or it broke: the monitor is gone */
    struct record rec;
    struct reader reader[2];
    uint64_t left[2]; /* what may still be printed of a stream */
    uint64_t budget;  /* and of both together */
    uint64_t printed;
};

static unsigned char block[15 * SG_WIRE_DATA_MAX];

static void print_block(struct follow *f, unsigned s, size_t n)
{
    struct reader *r = &f->reader[s];
    for (size_t at = 0; at < n; at += SG_WIRE_DATA_MAX) {
        size_t len = n - at < SG_WIRE_DATA_MAX ? n - at : SG_WIRE_DATA_MAX;
        out_data(s + 1, r->pos + at, block + at, len);
    }
    r->pos += n;
    f->left[s] -= n;
    f->budget -= n;
    f->printed += n;
}

static bool wanted(const struct follow *f, unsigned s)
{
    return (!f->spec->only || f->spec->only == s + 1) && f->left[s] > 0;
}

/* Prints one block of stream s, up to offset `target`.  False when there is nothing to print now. */
static bool pump_one(struct follow *f, unsigned s, uint64_t target)
{
    struct reader *r = &f->reader[s];
    size_t cap = sizeof block, n = 0;
    if (!wanted(f, s) || r->pos >= target || f->budget == 0)
        return false;
    if (cap > f->left[s])
        cap = (size_t)f->left[s];
    if (cap > f->budget)
        cap = (size_t)f->budget;
    if (cap > target - r->pos)
        cap = (size_t)(target - r->pos);
    uint64_t gap_to = 0;
    switch (reader_next(r, block, cap, &n, &gap_to)) {
    case READER_DATA:
        print_block(f, s, n);
        return true;
    case READER_GAP:
        if (gap_to > target)
            gap_to = target;
        out_gap(s + 1, r->pos, gap_to);
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

/* Waits for the bell; its breaking is an event too (the record says what happened). */
static void bell_wait(struct follow *f, uint64_t until_ms)
{
    if (f->bell < 0) {
        watch_wait(f->watch, until_ms);
        return;
    }
    uint64_t now = guest_now_ms();
    uint64_t left = until_ms > now ? until_ms - now : 0;
    struct pollfd p = {.fd = f->bell, .events = POLLIN};
    if (poll(&p, 1, left < GUEST_POLL_MS ? (int)left : GUEST_POLL_MS) <= 0)
        return;
    char rings[4096];
    if (read(f->bell, rings, sizeof rings) == 0)
        f->bell = -1;
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
        out_gap(s + 1, r->pos, f->rec.p.end[s]);
        r->pos = f->rec.p.end[s];
    }
    return true;
}

/* One look at the record and everything there is to print.  True when the last line was printed. */
static bool turn(struct follow *f, uint64_t until_ms, struct guest_fail *fail, bool *ok)
{
    /* The state before the bytes: if it says "ended", all bytes are there. */
    char id[SG_WIRE_ID_MAX + 1];
    memcpy(id, f->rec.p.id, sizeof id);
    *ok = record_poll(f->dir, id, &f->rec, fail);
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
    if (!pump(f, over ? f->rec.p.end : unbounded))
        return true;
    if (over && deliver_rest(f)) {
        out_exit(&f->rec.p);
        return true;
    }
    bool enough = f->budget == 0 || guest_now_ms() >= until_ms || (f->spec->read && f->printed > 0);
    if (enough)
        out_kind(SG_WIRE_MORE, NULL);
    return enough;
}

bool follow_run(int dir, const char *id, const struct follow_spec *spec, struct guest_fail *fail)
{
    struct follow f = {.spec = spec, .dir = dir};
    uint64_t until = guest_now_ms() + (spec->read ? spec->wait_ms : GUEST_FOLLOW_MS);
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
        reader_init(&f.reader[s], dir, s, spec->offset[s]);
        f.left[s] = spec->max_output;
    }
    f.bell = spec->bell;
    f.watch = is_over(&f.rec) || f.bell >= 0 ? -1 : watch_open(dir);
    bool ok = true;
    /* A program that ends at once is told of in one piece, hello and end together. */
    uint64_t hold = f.bell >= 0 ? guest_now_ms() + HOLD_MS : 0;
    while (!turn(&f, until, fail, &ok)) {
        bool holds = hold > guest_now_ms() && f.printed == 0;
        if (!holds && !out_flush())
            break;
        bell_wait(&f, holds && hold < until ? hold : until);
    }
    (void)out_flush(); /* before the watch is closed, which takes milliseconds */
    for (unsigned s = 0; s < 2; s++)
        reader_close(&f.reader[s]);
    if (f.watch >= 0)
        close(f.watch);
    return ok;
}
