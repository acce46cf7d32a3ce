#include "transfer/download_impl.h"

#include "base/crypto.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DELAY_MS = 50,
    DELAY_MAX_MS = 3200,
    RETRY_AFTER_MAX_MS = 15000,
    UNHEARD_MS = 30000, /* so long a call may take that nobody hears */
};

/* ---- memory ---- */

static void download_free(struct download *d)
{
    sg_timer_free(d->timer);
    sg_timer_free(d->first);
    free(d->session_id);
    free(d->arch);
    free(d->cwd);
    free(d->cursor);
    free(d->call.cursor);
    free(d->part.cursor);
    free(d->next.cursor);
    free(d);
}

static void on_bury(struct sg_grave *grave)
{
    download_free((struct download *)((char *)grave - offsetof(struct download, grave)));
}

/* ---- names ---- */

void download_name(const struct download *d, uint32_t n, char out[DOWNLOAD_NAME])
{
    (void)snprintf(out, DOWNLOAD_NAME, ".down-%s.%u", d->id, (unsigned)n);
}

void download_leave(struct download *d, uint32_t n, bool lost)
{
    if (d->nleft == DOWNLOAD_LEFT) {
        sg_log(SG_LOG_WARN, "download_left_behind", "session", "s", d->session_id, NULL);
        memmove(d->left, d->left + 1, sizeof d->left[0] * --d->nleft);
    }
    d->left[d->nleft++] = (struct download_left){.n = n, .lost = lost};
}

void download_dropped(struct download *d, uint32_t n)
{
    for (size_t i = 0; i < d->nleft; i++) {
        if (d->left[i].n != n)
            continue;
        struct download_left again = d->left[i];
        memmove(d->left + i, d->left + i + 1, sizeof d->left[0] * (--d->nleft - i));
        if (again.lost) { /* once more, at the end */
            again.lost = false;
            d->left[d->nleft++] = again;
        }
        return;
    }
}

void download_part_drop(struct download *d, struct download_part *p)
{
    if (p->n)
        download_leave(d, p->n, false);
    free(p->cursor);
    *p = (struct download_part){.n = 0};
}

/* ---- the end ---- */

void download_clear(struct download *d)
{
    struct sg_error e;
    download_part_drop(d, &d->part);
    download_part_drop(d, &d->next);
    if (d->call.call && d->call.data)
        download_call_abandon(d);
    /* What a call puts aside is removed when it is there. */
    if (d->call.call || (d->nleft && download_drop_start(d, &e) == SG_OK)) {
        sg_timer_start(d->timer, UNHEARD_MS);
        return;
    }
    sg_timer_stop(d->timer);
    d->grave.fn = on_bury;
    sg_loop_bury(guestlink_loop(d->guestlink), &d->grave);
}

static void leave_owner(struct download *d)
{
    d->gone = true;
    sg_timer_stop(d->timer);
    sg_timer_stop(d->first);
    if (d->read)
        vercel_call_cancel(d->read);
    d->read = NULL;
}

void download_end(struct download *d, const struct sg_error *e)
{
    struct sg_error own = e ? *e : (struct sg_error){.code = SG_OK};
    if (!e && !download_tell(d, false)) /* it is empty */
        return;
    leave_owner(d);
    d->ev.on_done(d->arg, e ? &own : NULL);
    download_clear(d);
}

void download_cancel(struct download *d)
{
    leave_owner(d);
    download_clear(d);
}

/* ---- the owner gets ---- */

bool download_tell(struct download *d, bool same)
{
    if (!d->told) {
        d->told = true;
        sg_timer_stop(d->first);
        d->ev.on_head(d->arg, &d->file, same);
    }
    return !d->gone;
}

bool download_deliver(struct download *d, uint64_t pos, const void *data, size_t len)
{
    uint64_t had = d->delivered - pos;
    if (had >= len)
        return true;
    if (!download_tell(d, false))
        return false;
    bool taken = d->ev.on_data(d->arg, (const char *)data + had, len - (size_t)had);
    if (d->gone || !taken)
        return false;
    d->delivered = pos + len;
    d->call_tries = 0;
    d->read_tries = 0;
    return true;
}

void download_resume(struct download *d)
{
    if (d->read && d->read_waits) {
        d->read_waits = false;
        vercel_call_resume(d->read);
    } else if (d->call.call && d->call.waits && !d->part.n) {
        d->call.waits = false;
        guest_resume(d->call.call);
    }
}

/* ---- once more ---- */

static bool is_over(const struct sg_error *e)
{
    return e->code == SG_E_STALE_SESSION || e->code == SG_E_SANDBOX_NOT_RUNNING ||
           e->code == SG_E_SANDBOX_NOT_FOUND || e->code == SG_E_DRAINING;
}

/* Before anything was told the caller may as well ask again, where time is needed. */
static bool passes(const struct download *d, const struct sg_error *e)
{
    const struct sg_error_row *row = sg_error_row(e->code);
    bool slow = e->code == SG_E_UPSTREAM_RATE_LIMITED || e->code == SG_E_OVERLOADED ||
                e->code == SG_E_SANDBOX_TRANSITION;
    if (is_over(e) || e->code == SG_E_FILE_CHANGED || (slow && !d->told))
        return false;
    return (row && row->retryable) || e->code == SG_E_UPSTREAM_BAD_RESPONSE || e->code == SG_E_FILE_NOT_FOUND;
}

/* The upstream is silent: what it still does is the sandbox's sweep to find. */
static void give_up_unheard(struct download *d)
{
    if (d->dropping)
        d->nleft = 0;
    else
        download_leave(d, d->call.n, false);
    download_call_abandon(d);
    download_clear(d);
}

static void on_timer(void *arg)
{
    struct download *d = arg;
    if (d->gone) {
        give_up_unheard(d);
        return;
    }
    d->call_later = d->read_later = false;
    download_step(d);
}

static void on_first(void *arg)
{
    struct download *d = arg;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_UPSTREAM_TIMEOUT, SG_NOT_STARTED,
                  "the sandbox has not given a first byte in time");
    download_end(d, &e);
}

bool download_later(struct download *d, const struct sg_error *e, int *tries, int most, bool *later)
{
    if (!passes(d, e) || ++*tries >= most)
        return false;
    int64_t ms = DELAY_MS;
    for (int i = 1; i < *tries && ms < DELAY_MAX_MS; i++)
        ms *= 2;
    if (e->retry_after_ms > ms)
        ms = e->retry_after_ms < RETRY_AFTER_MAX_MS ? e->retry_after_ms : RETRY_AFTER_MAX_MS;
    *later = true;
    sg_timer_start(d->timer, (uint64_t)ms);
    return true;
}

bool download_repeats(const struct download *d, uint64_t from)
{
    return d->exact || d->delivered <= from;
}

static void go_back(struct download *d, uint64_t from, char *cursor)
{
    free(d->cursor);
    d->cursor = cursor;
    d->from = from;
    d->ended = false;
    d->rewind = false;
    download_part_drop(d, &d->part);
    download_part_drop(d, &d->next);
}

void download_begin_anew(struct download *d)
{
    if (d->read)
        vercel_call_cancel(d->read);
    d->read = NULL;
    go_back(d, 0, NULL);
}

void download_rewind(struct download *d)
{
    if (d->call.call && !d->call.data) {
        d->rewind = true; /* its end goes on */
        return;
    }
    if (d->call.call)
        download_call_abandon(d);
    char *cursor = d->part.cursor;
    d->part.cursor = NULL;
    go_back(d, d->part.from, cursor);
}

/* ---- going on ---- */

static void next_part(struct download *d)
{
    while (!d->part.n && d->next.n) {
        d->part = d->next;
        d->next = (struct download_part){.n = 0};
        if (!d->part.bytes)
            download_part_drop(d, &d->part);
    }
}

static bool may_ask(const struct download *d)
{
    return !d->call.call && !d->call_later && !d->ended && !d->rewind && !d->next.n;
}

void download_step(struct download *d)
{
    struct sg_error e;
    next_part(d);
    if (d->part.n && !d->read && !d->read_later && !d->rewind && download_read_start(d, &e) != SG_OK) {
        download_read_failed(d, &e);
        return;
    }
    if (may_ask(d) && download_call_start(d, &e) != SG_OK) {
        download_call_failed(d, &e);
        return;
    }
    if (d->call.call && d->call.waits && !d->part.n) {
        d->call.waits = false;
        guest_resume(d->call.call);
        return;
    }
    if (d->ended && !d->call.call && !d->part.n && !d->next.n)
        download_end(d, NULL);
}

/* ---- the beginning ---- */

static bool copy(struct download *d, const struct fs_target *t)
{
    d->session_id = strdup(t->session_id);
    d->arch = t->arch ? strdup(t->arch) : NULL;
    d->cwd = t->cwd ? strdup(t->cwd) : NULL;
    return d->session_id && (d->arch || !t->arch) && (d->cwd || !t->cwd) &&
           sg_random_id(d->id, "", DOWNLOAD_ID);
}

static bool is_fetch(const struct fs_request *r)
{
    return r->n > 2 && strcmp(r->args[2], "fetch") == 0;
}

struct download *download_start(struct guestlink *g, const struct download_spec *s,
                                const struct download_events *ev, void *arg, struct sg_error *e)
{
    struct download *d = s->request->failed ? NULL : calloc(1, sizeof *d);
    if (d) {
        d->guestlink = g;
        d->request = s->request;
        d->exact = is_fetch(s->request);
        d->part_bytes = s->part_bytes ? s->part_bytes : DOWNLOAD_PART;
        d->ev = *ev;
        d->arg = arg;
        d->timer = sg_timer_new(guestlink_loop(g), on_timer, d);
        d->first = sg_timer_new(guestlink_loop(g), on_first, d);
    }
    if (!d || !d->timer || !d->first || !copy(d, &s->target)) {
        (void)sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the download");
        goto fail;
    }
    if (download_call_start(d, e) == SG_OK) {
        sg_timer_start(d->first, DOWNLOAD_FIRST_MS);
        return d;
    }

fail:
    if (d)
        download_free(d);
    return NULL;
}
