#include "transfer/upload_impl.h"

#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TOO_LARGE = 413, TIMED_OUT = 408, RETRY_AFTER_MAX_MS = 20000 };

bool upload_new_nonce(struct upload *u)
{
    return sg_random_id(u->nonce, "", UPLOAD_NONCE);
}

/* Something of the last attempt may still come: it must not meet the next one. */
static bool rename_part(struct upload *u)
{
    u->dirty = true;
    upload_close_batch(u);
    return upload_new_nonce(u);
}

/* ---- what the transport reads ---- */

static size_t read_part(void *arg, char *buf, size_t cap)
{
    struct upload *u = arg;
    struct upload_part *p = &u->part;
    uint64_t left = p->size - p->given;
    if (!left)
        return 0;
    size_t n = chain_read(&u->held, &p->mark, buf, left < cap ? (size_t)left : cap);
    p->call_waits = n == 0;
    if (!n)
        return VERCEL_READ_PAUSE;
    p->given += n;
    p->moved_ms = sg_mono_ms();
    return n;
}

void upload_part_more(struct upload *u)
{
    struct upload_part *p = &u->part;
    if (!p->call || !p->call_waits || u->held.bytes <= p->given)
        return;
    p->call_waits = false;
    p->moved_ms = sg_mono_ms();
    vercel_call_resume(p->call);
}

/* ---- attempts ---- */

static void part_failed(struct upload *u, const struct sg_error *e);
static void part_arrived(struct upload *u);

static void on_part(void *arg, const struct sg_error *e)
{
    struct upload *u = arg;
    u->part.call = NULL;
    sg_timer_stop(u->clock);
    if (e)
        part_failed(u, e);
    else
        part_arrived(u);
}

static void send_part(struct upload *u)
{
    struct upload_part *p = &u->part;
    struct sg_error e;
    char path[sizeof GUEST_ROOT + sizeof u->from];
    (void)snprintf(path, sizeof path, GUEST_ROOT "/.up-%s.%s.%" PRIu64, u->id, u->nonce, u->base);
    const struct vercel_file_write w = {
        .session_id = u->session_id, .path = path, .mode = 0600, .size = p->size, .read = read_part};
    p->given = 0;
    p->mark = (struct chain_mark){NULL, 0};
    p->call_waits = false;
    p->started_ms = p->moved_ms = sg_mono_ms();
    p->tries++;
    p->call = vercel_file_write_start(guestlink_client(u->all->guestlink), &w, on_part, u, &e);
    if (p->call)
        sg_timer_start(u->clock, u->all->tick_ms);
    else
        upload_fail(u, &e);
}

static void stop_call(struct upload *u)
{
    struct upload_part *p = &u->part;
    sg_timer_stop(u->clock);
    if (!p->call)
        return;
    vercel_call_cancel(p->call);
    p->call = NULL;
    u->sent = true;
    u->cut_ms = sg_mono_ms();
}

void upload_part_stop(struct upload *u)
{
    stop_call(u);
    u->part = (struct upload_part){.active = false};
}

static void part_arrived(struct upload *u)
{
    struct upload_batch *o = &u->open;
    if (!o->parts) {
        *o = (struct upload_batch){.at = u->base};
        memcpy(o->nonce, u->nonce, sizeof o->nonce);
    }
    chain_drop(&u->held, u->all->blocks, u->part.size);
    u->base += u->part.size;
    o->end = u->base;
    o->parts++;
    u->sent = true;
    u->part = (struct upload_part){.active = false};
    bool idle = u->resumable && !u->call && !u->nbatches;
    if (idle || o->parts >= UPLOAD_BATCH_PARTS || o->end - o->at >= UPLOAD_BATCH_BYTES)
        upload_close_batch(u);
    upload_step(u);
}

/* ---- failures ---- */

bool upload_may_pass(const struct sg_error *e)
{
    switch ((int)e->code) {
    case SG_E_UPSTREAM_UNREACHABLE:
    case SG_E_UPSTREAM_UNAVAILABLE:
    case SG_E_UPSTREAM_TIMEOUT:
    case SG_E_UPSTREAM_RATE_LIMITED:
    case SG_E_UPSTREAM_BAD_RESPONSE:
        return e->retry_after_ms <= RETRY_AFTER_MAX_MS;
    default:
        return e->upstream_status == TIMED_OUT;
    }
}

uint64_t upload_backoff_ms(const struct upload *u, int tries, const struct sg_error *e)
{
    uint64_t ms = u->all->backoff_ms << (tries < 8 ? tries - 1 : 7);
    ms = ms < UPLOAD_BACKOFF_MAX_MS ? ms : UPLOAD_BACKOFF_MAX_MS;
    unsigned char r = 0;
    if (sg_random(&r, 1))
        ms += ms * r / 256;
    if (e->retry_after_ms > 0 && ms <= (uint64_t)e->retry_after_ms)
        ms = (uint64_t)e->retry_after_ms + 1;
    return ms;
}

/* The upstream takes no parts of this size: from now on none are sent to it. */
static bool halve(struct upload *u, const struct sg_error *e)
{
    uint64_t half = u->part.size / 2;
    if (e->upstream_status != TOO_LARGE || u->part.size <= UPLOAD_PART_MIN)
        return false;
    u->limit = half > UPLOAD_PART_MIN ? half : UPLOAD_PART_MIN;
    if (u->all->part_bytes > u->limit)
        u->all->part_bytes = u->limit;
    sg_log(SG_LOG_WARN, "upload_part_too_large", "session", "s", u->session_id, "part_bytes", "i",
           (int64_t)u->limit, NULL);
    u->part.size = u->limit;
    u->part.tries = 0;
    send_part(u);
    return true;
}

static void part_failed(struct upload *u, const struct sg_error *e)
{
    bool left = e->outcome != SG_NOT_SENT && e->outcome != SG_NOT_STARTED;
    u->sent = u->sent || left;
    if (left)
        u->cut_ms = sg_mono_ms();
    if (halve(u, e))
        return;
    bool again = upload_may_pass(e) && u->part.tries < UPLOAD_TRIES;
    if (!again || (left && !rename_part(u))) {
        upload_fail(u, e);
        return;
    }
    sg_log(SG_LOG_INFO, "upload_part_again", "session", "s", u->session_id, "try", "i",
           (int64_t)u->part.tries, "error", "e", e, NULL);
    sg_timer_start(u->clock, upload_backoff_ms(u, u->part.tries, e));
    upload_step(u); /* meanwhile the body comes in */
}

/* The same bytes once more, but only those that are here. */
static void send_what_is_here(struct upload *u)
{
    struct sg_error e;
    bool on_its_way = u->part.call != NULL;
    u->part.size = u->held.bytes;
    if (!u->part.size) {
        u->dirty = u->dirty || on_its_way;
        upload_part_stop(u);
        return;
    }
    if (!on_its_way)
        return; /* it waits to be sent again */
    stop_call(u);
    u->part.tries--;
    if (rename_part(u)) {
        send_part(u);
    } else {
        (void)sg_fail(&e, SG_E_INTERNAL, SG_NOT_STARTED, "no randomness for the name of a part");
        upload_fail(u, &e);
    }
}

void upload_part_shorten(struct upload *u)
{
    if (u->part.active && u->held.bytes < u->part.size)
        send_what_is_here(u);
}

/* ---- time ---- */

static void too_slow(struct upload *u)
{
    struct sg_error e;
    stop_call(u);
    (void)sg_fail(&e, SG_E_UPSTREAM_TIMEOUT, SG_OUTCOME_UNKNOWN,
                  "The upstream took too long to take a part of the file.");
    part_failed(u, &e);
}

void upload_part_clock(struct upload *u)
{
    struct upload_part *p = &u->part;
    int64_t now = sg_mono_ms();
    if (u->phase != UPLOAD_FLOWS || !p->active)
        return;
    if (!p->call) {
        send_part(u);
        return;
    }
    sg_timer_start(u->clock, u->all->tick_ms);
    bool here = u->held.bytes >= p->size;
    if (!here && u->held.bytes && now - p->started_ms > u->all->stream_ms) {
        /* the client is slow: what comes next is announced in pieces that it can bring in time */
        u->limit = u->held.bytes > UPLOAD_PART_MIN ? u->held.bytes : UPLOAD_PART_MIN;
        send_what_is_here(u);
    } else if (!p->call_waits && now - p->moved_ms > u->all->stall_ms) {
        too_slow(u);
    }
}

/* ---- the next one ---- */

/* Nothing has been sent, and never will be without this: an empty file needs a part, too. */
static bool is_empty(const struct upload *u)
{
    return u->ended && u->came == 0 && u->open.parts == 0 && u->nbatches == 0 && !u->sent &&
           (!u->resumable || (u->start == 0 && u->finish && !u->is_cut));
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Of a known length: announced before all of it is here. */
static bool known_size(const struct upload *u, uint64_t *n)
{
    uint64_t left = (uint64_t)u->size - (u->base - u->start), share = blocks_share(u->all->blocks);
    *n = least(left, u->limit);
    if (*n > u->held.bytes)
        *n = u->starved || u->held.bytes > share ? u->held.bytes : least(*n, share);
    return left && u->held.first;
}

/* Else it has to be here: all of a part, or what came while the last one was on its way. */
static bool unknown_size(const struct upload *u, uint64_t *n)
{
    uint64_t here = u->held.bytes;
    bool last = u->ended || u->is_cut || u->starved;
    bool enough = u->base > u->start && here >= least(u->limit / 2, UPLOAD_AHEAD);
    *n = least(here, u->limit);
    return here && (last || enough || here >= u->limit);
}

void upload_part_next(struct upload *u)
{
    uint64_t n = 0;
    if (u->part.active || u->nbatches == UPLOAD_BATCHES)
        return;
    bool known = u->size >= 0 && !u->is_cut;
    if (!is_empty(u) && !(known ? known_size(u, &n) : unknown_size(u, &n)))
        return;
    u->part = (struct upload_part){.active = true, .size = n};
    send_part(u);
}
