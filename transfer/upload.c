#include "transfer/upload_impl.h"

#include "base/crypto.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UPLOAD_POOL = 256 * 1024 * 1024 };

/* ---- who waits until a resumable one is quiet ---- */

static bool is_same(const struct upload *u, const char *session_id, const char *id)
{
    return u->resumable && !strcmp(u->id, id) && !strcmp(u->session_id, session_id);
}

static bool is_loud(const struct uploads *all, const char *session_id, const char *id)
{
    const struct upload *u;
    TAILQ_FOREACH(u, &all->list, link)
    if (is_same(u, session_id, id))
        return true;
    return false;
}

static void settler_free(struct upload_settler *s)
{
    free(s->session_id);
    free(s);
}

/* The first that waits for nothing any more. */
static struct upload_settler *take_quiet(struct uploads *all)
{
    for (struct upload_settler **at = &all->settlers; *at; at = &(*at)->next) {
        struct upload_settler *s = *at;
        if (!is_loud(all, s->session_id, s->id)) {
            *at = s->next;
            return s;
        }
    }
    return NULL;
}

/* Whoever is told may settle again, or forget others. */
static void on_tell(void *arg)
{
    struct uploads *all = arg;
    struct upload_settler *s;
    while ((s = take_quiet(all))) {
        upload_quiet_fn *fn = s->fn;
        void *fn_arg = s->arg;
        settler_free(s);
        fn(fn_arg);
    }
}

bool upload_settle(struct uploads *all, const char *session_id, const char *id, upload_quiet_fn *fn,
                   void *arg)
{
    struct sg_error e;
    struct upload *u;
    struct upload_settler *s = is_loud(all, session_id, id) ? calloc(1, sizeof *s) : NULL;
    if (s && !(s->session_id = strdup(session_id))) {
        free(s);
        s = NULL;
    }
    if (!s)
        return false;
    (void)snprintf(s->id, sizeof s->id, "%s", id);
    s->fn = fn;
    s->arg = arg;
    struct upload_settler **end = &all->settlers;
    while (*end)
        end = &(*end)->next;
    *end = s;
    (void)sg_fail(&e, SG_E_OVERLOADED, SG_NOT_STARTED, "somebody else goes on with this upload");
    TAILQ_FOREACH(u, &all->list, link)
    if (is_same(u, session_id, id))
        upload_cut(u, &e);
    return true;
}

void upload_settle_off(struct uploads *all, void *arg)
{
    struct upload_settler **at = &all->settlers;
    while (*at) {
        struct upload_settler *s = *at;
        if (s->arg != arg) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        settler_free(s);
    }
}

/* ---- its end ---- */

static void upload_free(struct upload *u)
{
    sg_timer_free(u->kick);
    sg_timer_free(u->clock);
    sg_timer_free(u->later);
    free(u->session_id);
    free(u->arch);
    free(u->cwd);
    free(u);
}

static void on_bury(struct sg_grave *grave)
{
    upload_free((struct upload *)((char *)grave - offsetof(struct upload, grave)));
}

static void let_go_of_body(struct upload *u)
{
    u->read = NULL;
    blocks_wait_off(u->all->blocks, &u->wait);
    chain_drop(&u->held, u->all->blocks, u->held.bytes);
}

void upload_over(struct upload *u)
{
    struct uploads *all = u->all;
    upload_part_stop(u);
    let_go_of_body(u);
    if (u->call)
        fs_call_cancel(u->call);
    u->call = NULL;
    fs_request_free(&u->request);
    sg_timer_stop(u->kick);
    sg_timer_stop(u->clock);
    if (u->later)
        sg_timer_stop(u->later);
    u->phase = UPLOAD_IS_OVER;
    u->done = NULL;
    TAILQ_REMOVE(&all->list, u, link);
    if (TAILQ_EMPTY(&all->list))
        blocks_rest(all->blocks);
    if (all->settlers)
        sg_timer_start(all->tell, 0);
    sg_loop_bury(all->loop, &u->grave);
}

bool upload_session_is_over(const struct sg_error *e)
{
    return e->code == SG_E_STALE_SESSION || e->code == SG_E_SANDBOX_NOT_RUNNING ||
           e->code == SG_E_SANDBOX_NOT_FOUND || e->code == SG_E_UPSTREAM_NOT_FOUND ||
           e->code == SG_E_DRAINING;
}

void upload_tell(struct upload *u, const struct fs_answer *a, const struct sg_error *e)
{
    upload_done_fn *done = u->done;
    uint64_t there = u->resumable ? u->joined : a || !e ? u->came : 0;
    u->done = NULL;
    u->read = NULL;
    if (done)
        done(u->arg, a, there, e);
}

void upload_fail(struct upload *u, const struct sg_error *e)
{
    struct sg_error own = *e;
    upload_part_stop(u);
    let_go_of_body(u);
    if (own.outcome != SG_NOT_SENT || u->sent)
        own.outcome = SG_NOT_STARTED; /* what it came for has not begun yet */
    u->why = own;
    u->phase = UPLOAD_FAILS;
    if (u->resumable && !upload_session_is_over(&own))
        upload_close_batch(u); /* what has arrived is kept before anything is told */
    else
        u->nbatches = 0;
    if (!u->resumable)
        upload_tell(u, NULL, &u->why);
    upload_kick(u);
}

static void go_on_failing(struct upload *u)
{
    if (u->call || u->pauses)
        return;
    if (u->nbatches) {
        upload_join_next(u);
        return;
    }
    upload_tell(u, NULL, &u->why);
    if (u->resumable || !u->sent || upload_session_is_over(&u->why))
        upload_over(u);
    else
        upload_clear(u);
}

/* ---- going on ---- */

static bool all_is_sent(const struct upload *u)
{
    return (u->ended || u->is_cut) && !u->held.bytes && !u->part.active;
}

/* One part of our own needs no joining. */
static bool is_single(const struct upload *u)
{
    return !u->resumable && u->open.parts == 1 && u->open.at == 0 && u->nbatches == 0;
}

static void conclude(struct upload *u)
{
    if (!all_is_sent(u))
        return;
    if (!is_single(u)) {
        upload_close_batch(u);
        upload_join_next(u);
        if (u->nbatches || u->call)
            return;
    }
    if (u->phase != UPLOAD_FLOWS)
        return;
    if (!u->is_cut && u->finish) {
        upload_finish(u);
        return;
    }
    upload_tell(u, NULL, u->is_cut ? &u->why : NULL);
    upload_over(u);
}

void upload_step(struct upload *u)
{
    if (u->phase == UPLOAD_FLOWS)
        upload_fill(u);
    if (u->phase == UPLOAD_FLOWS && u->broken) {
        u->broken = false;
        if (u->resumable)
            upload_cut(u, &u->why);
        else
            upload_fail(u, &u->why);
    }
    if (u->phase == UPLOAD_FLOWS && (u->starved || u->is_cut))
        upload_part_shorten(u);
    if (u->phase == UPLOAD_FLOWS)
        upload_part_next(u);
    if (u->phase == UPLOAD_FLOWS)
        upload_part_more(u);
    if (u->phase == UPLOAD_FLOWS)
        upload_join_next(u);
    if (u->phase == UPLOAD_FLOWS)
        conclude(u);
    if (u->phase == UPLOAD_FAILS)
        go_on_failing(u);
}

void upload_kick(struct upload *u)
{
    sg_timer_start(u->kick, 0);
}

static void on_kick(void *arg)
{
    upload_step(arg);
}

static void on_clock(void *arg)
{
    struct upload *u = arg;
    if (u->phase == UPLOAD_CLEARS)
        upload_clear(u);
    else
        upload_part_clock(u);
}

/* ---- the owner's side ---- */

static void on_block(void *arg, struct block *b)
{
    struct upload *u = arg;
    chain_push(&u->held, b);
    upload_kick(u);
}

static bool name_it(struct upload *u, const struct upload_spec *s)
{
    if (s->id)
        return snprintf(u->id, sizeof u->id, "%s", s->id) < (int)sizeof u->id;
    return sg_random_id(u->id, "p", UPLOAD_ID_CHARS - 1);
}

static bool build(struct upload *u, struct uploads *all, const struct upload_spec *s)
{
    const struct fs_target *t = &s->target;
    u->all = all;
    u->session_id = strdup(t->session_id);
    u->arch = t->arch ? strdup(t->arch) : NULL;
    u->cwd = t->cwd ? strdup(t->cwd) : NULL;
    u->kick = sg_timer_new(all->loop, on_kick, u);
    u->clock = sg_timer_new(all->loop, on_clock, u);
    return u->session_id && (u->arch || !t->arch) && (u->cwd || !t->cwd) && u->kick && u->clock &&
           name_it(u, s) && upload_new_nonce(u);
}

struct upload *upload_start(struct uploads *all, const struct upload_spec *s, upload_done_fn *done, void *arg,
                            struct sg_error *e)
{
    struct upload *u = calloc(1, sizeof *u);
    if (!u || !build(u, all, s)) {
        (void)sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for an upload");
        if (u)
            upload_free(u);
        return NULL;
    }
    u->resumable = s->id != NULL;
    u->start = u->base = u->joined = s->id ? s->at : 0;
    u->size = s->size;
    u->read = s->read;
    u->finish = s->finish;
    u->done = done;
    u->arg = arg;
    u->limit = all->part_bytes;
    u->wait = (struct blocks_wait){.fn = on_block, .arg = u};
    u->grave.fn = on_bury;
    TAILQ_INSERT_TAIL(&all->list, u, link);
    upload_kick(u);
    return u;
}

void upload_resume(struct upload *u)
{
    if (u->phase != UPLOAD_FLOWS)
        return;
    u->source_waits = false;
    upload_fill(u);
    if (u->phase != UPLOAD_FLOWS)
        return;
    upload_part_more(u);
    if (!u->part.active || u->ended || u->broken || u->starved)
        upload_kick(u);
}

void upload_cancel(struct upload *u)
{
    struct sg_error e;
    u->done = NULL;
    u->read = NULL;
    if (u->phase != UPLOAD_FLOWS)
        return;
    (void)sg_fail(&e, SG_E_BAD_REQUEST, SG_NOT_STARTED, "the client left");
    if (u->resumable)
        upload_cut(u, &e);
    else
        upload_fail(u, &e);
}

/* ---- all of them ---- */

struct uploads *uploads_new(struct sg_loop *loop, struct guestlink *g, const struct upload_limits *l)
{
    struct uploads *all = calloc(1, sizeof *all);
    if (!all)
        return NULL;
    all->loop = loop;
    all->guestlink = g;
    all->backoff_ms = UPLOAD_BACKOFF_MS;
    all->linger_ms = UPLOAD_LINGER_MS;
    all->tick_ms = UPLOAD_TICK_MS;
    all->stream_ms = UPLOAD_STREAM_MS;
    all->stall_ms = UPLOAD_STALL_MS;
    all->part_bytes = l->part_bytes ? l->part_bytes : UPLOAD_PART;
    TAILQ_INIT(&all->list);
    all->tell = sg_timer_new(loop, on_tell, all);
    all->blocks = blocks_new(l->pool_bytes ? l->pool_bytes : UPLOAD_POOL);
    if (all->tell && all->blocks)
        return all;
    uploads_free(all);
    return NULL;
}

/* The gateway goes before it has ended. */
static void end_now(struct upload *u)
{
    struct sg_error e;
    (void)sg_fail(&e, SG_E_DRAINING, u->phase == UPLOAD_ENDS ? SG_OUTCOME_UNKNOWN : SG_NOT_STARTED,
                  "the gateway is shutting down");
    upload_tell(u, NULL, &e);
    upload_over(u);
}

void uploads_free(struct uploads *all)
{
    struct upload *u;
    struct upload_settler *s;
    if (!all)
        return;
    while ((u = TAILQ_FIRST(&all->list)))
        end_now(u);
    while ((s = all->settlers)) {
        upload_quiet_fn *fn = s->fn;
        void *arg = s->arg;
        all->settlers = s->next;
        settler_free(s);
        fn(arg);
    }
    sg_timer_free(all->tell);
    blocks_free(all->blocks);
    free(all);
}
