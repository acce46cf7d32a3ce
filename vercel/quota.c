#include "vercel/quota.h"

#include <string.h>

/* A window is kept a little longer than it is: what was used late in a slot leaves with the whole slot. */
enum { MINUTE_MS = 60000, MINUTE_KEPT_MS = 61200, SECOND_KEPT_MS = 1200 };

static int64_t part(int64_t n, int64_t percent)
{
    int64_t p = n * percent / 100;
    return n && !p ? 1 : p;
}

struct quota_limits quota_plan(const char *plan, int64_t percent)
{
    struct quota_limits l = {0};
    bool hobby = !strcmp(plan, "hobby"), pro = !strcmp(plan, "pro"), enterprise = !strcmp(plan, "enterprise");
    if (!hobby && !pro && !enterprise)
        return l;
    l.requests_per_min = part(hobby ? 1000 : pro ? 10000 : 100000, percent);
    l.vcpus_start = part(hobby ? 20 : 150, percent);
    l.vcpus_ramp = part(hobby ? 20 : 500, percent);
    l.vcpus_max = part(hobby ? 40 : 5000, percent);
    l.deletes_per_s = part(20, percent);
    return l;
}

static void window_init(struct quota_window *w, int64_t limit, int64_t window_ms, int64_t now)
{
    memset(w, 0, sizeof *w);
    w->limit = limit;
    w->slot_ms = window_ms / QUOTA_SLOTS;
    w->slot = now / w->slot_ms;
    w->minute = now / MINUTE_MS;
}

void quota_init(struct quota *q, const struct quota_limits *l, int64_t now)
{
    window_init(&q->windows[QUOTA_REQUESTS], l->requests_per_min, MINUTE_KEPT_MS, now);
    window_init(&q->windows[QUOTA_DELETES], l->deletes_per_s, SECOND_KEPT_MS, now);
    struct quota_window *v = &q->windows[QUOTA_VCPUS];
    window_init(v, l->vcpus_start, MINUTE_KEPT_MS, now);
    v->start = l->vcpus_start;
    v->ramp = l->vcpus_ramp;
    v->max = l->vcpus_max;
}

/* What is allowed grows with each minute in which at least half of it was used, and falls back after one without use. */
static void ramp(struct quota_window *w, int64_t now)
{
    int64_t minute = now / MINUTE_MS;
    if (!w->ramp || minute == w->minute)
        return;
    bool used = w->minute_used * 2 >= w->limit && minute == w->minute + 1;
    w->limit = used ? w->limit + w->ramp : w->start;
    if (w->limit > w->max)
        w->limit = w->max;
    w->minute = minute;
    w->minute_used = 0;
}

/* Forgets what is older than the window. */
static void slide(struct quota_window *w, int64_t now)
{
    int64_t slot = now / w->slot_ms;
    int64_t steps = slot - w->slot < QUOTA_SLOTS ? slot - w->slot : QUOTA_SLOTS;
    for (int64_t i = 0; i < steps; i++) {
        int64_t *old = &w->used[(w->slot + 1 + i) % QUOTA_SLOTS];
        w->sum -= *old;
        *old = 0;
    }
    if (slot > w->slot)
        w->slot = slot;
    ramp(w, now);
}

static void spend(struct quota_window *w, int64_t units)
{
    w->used[w->slot % QUOTA_SLOTS] += units;
    w->sum += units;
    w->minute_used += units;
}

void quota_spend(struct quota *q, enum quota_kind kind, int64_t units, int64_t now)
{
    if (!q->windows[kind].limit)
        return;
    slide(&q->windows[kind], now);
    spend(&q->windows[kind], units);
}

bool quota_take(struct quota *q, enum quota_kind kind, int64_t units, int64_t now)
{
    struct quota_window *w = &q->windows[kind];
    if (now < w->held_until)
        return false;
    if (!w->limit)
        return true;
    slide(w, now);
    if (w->sum && w->sum + units > w->limit)
        return false;
    spend(w, units);
    return true;
}

/* When the window will have room for so many units, if nobody else comes. */
static int64_t room_at(const struct quota_window *w, int64_t units, int64_t now)
{
    int64_t windows = (units - 1) / w->limit, rest = units - windows * w->limit;
    int64_t after = windows * QUOTA_SLOTS * w->slot_ms; /* what waits ahead fills whole windows */
    int64_t free = w->limit - w->sum;
    if (rest <= free)
        return now + after;
    for (int64_t i = 1; i <= QUOTA_SLOTS; i++) { /* from the oldest */
        free += w->used[(w->slot + i) % QUOTA_SLOTS];
        if (rest <= free)
            return (w->slot + i) * w->slot_ms + after; /* it leaves when that slot begins */
    }
    return (w->slot + QUOTA_SLOTS) * w->slot_ms + after;
}

int64_t quota_wait(struct quota *q, enum quota_kind kind, int64_t units, int64_t now)
{
    struct quota_window *w = &q->windows[kind];
    int64_t at = now;
    if (w->limit) {
        slide(w, now);
        at = room_at(w, units, now);
    }
    if (at < w->held_until)
        at = w->held_until;
    return at > now ? at - now : 1;
}

void quota_hold(struct quota *q, enum quota_kind kind, int64_t until)
{
    struct quota_window *w = &q->windows[kind];
    if (until > w->held_until)
        w->held_until = until;
}
