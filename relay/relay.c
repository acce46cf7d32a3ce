#include "relay/audience.h"
#include "relay/internal.h"

#include "base/crypto.h"
#include "relay/named.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct relay {
    struct sg_loop *loop;
    struct guestlink *guestlink;
    struct relay_limits limits;
    struct relay_obj *all;
    struct named_table named[RELAY_NAMED_KINDS];
    struct relay_keeper keeper;
    struct audience_watch audience_watch;
    struct feeds *feeds;
};

static const struct relay_limits defaults = {
    .give_up_ms = 60000,
    .give_up_bounded_ms = 15000,
    .settle_ms = 20000,
    .retry_ms = 5000,
    .pause_max_ms = 5000,
    .slow_reader_ms = 30000,
    .keepalive_ms = 20000,
    .backoff_max_ms = 2000,
    .linger_ms = 10000,
    .quiet_ms = 30000,
    .ring_total = (int64_t)64 * 1024 * 1024,
    .input_idle_ms = 60000,
    .carrier_open_ms = 30000,
};

struct relay *relay_new(struct sg_loop *loop, struct guestlink *g)
{
    struct relay *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->loop = loop;
    r->guestlink = g;
    r->limits = defaults;
    r->feeds = feeds_new(r);
    if (!r->feeds) {
        free(r);
        return NULL;
    }
    return r;
}

static int64_t or_default(int64_t given, int64_t dflt)
{
    return given > 0 ? given : dflt;
}

void relay_set_limits(struct relay *r, const struct relay_limits *l)
{
    r->limits = (struct relay_limits){
        .give_up_ms = or_default(l->give_up_ms, defaults.give_up_ms),
        .give_up_bounded_ms = or_default(l->give_up_bounded_ms, defaults.give_up_bounded_ms),
        .settle_ms = or_default(l->settle_ms, defaults.settle_ms),
        .retry_ms = or_default(l->retry_ms, defaults.retry_ms),
        .pause_max_ms = or_default(l->pause_max_ms, defaults.pause_max_ms),
        .slow_reader_ms = or_default(l->slow_reader_ms, defaults.slow_reader_ms),
        .keepalive_ms = or_default(l->keepalive_ms, defaults.keepalive_ms),
        .backoff_max_ms = or_default(l->backoff_max_ms, defaults.backoff_max_ms),
        .linger_ms = or_default(l->linger_ms, defaults.linger_ms),
        .quiet_ms = or_default(l->quiet_ms, defaults.quiet_ms),
        .ring_total = or_default(l->ring_total, defaults.ring_total),
        .input_idle_ms = or_default(l->input_idle_ms, defaults.input_idle_ms),
        .carrier_open_ms = or_default(l->carrier_open_ms, defaults.carrier_open_ms),
    };
}

const struct relay_limits *relay_limits(const struct relay *r)
{
    return &r->limits;
}

void relay_free(struct relay *r)
{
    if (!r)
        return;
    struct sg_error e;
    sg_fail(&e, SG_E_DRAINING, SG_OUTCOME_UNKNOWN, "the gateway is shutting down");
    while (r->all) /* abandon may make its owner bury others: always take the first */
        r->all->abandon(r->all, &e);
    feeds_free(r->feeds);
    free(r);
}

struct sg_loop *relay_loop(struct relay *r)
{
    return r->loop;
}

struct named_table *relay_named(struct relay *r, enum relay_named kind)
{
    return &r->named[kind];
}

struct feeds *relay_feeds(struct relay *r)
{
    return r->feeds;
}

struct guestlink *relay_guestlink(struct relay *r)
{
    return r->guestlink;
}

void relay_set_audience_watch(struct relay *r, const struct audience_watch *w)
{
    r->audience_watch = *w;
}

const struct audience_watch *relay_audience_watch(const struct relay *r)
{
    return &r->audience_watch;
}

/* ---- the keeper ---- */

void relay_set_keeper(struct relay *r, const struct relay_keeper *k)
{
    r->keeper = k ? *k : (struct relay_keeper){0};
}

void relay_tell_begins(struct relay *r, const char *session_id)
{
    if (r->keeper.begins)
        r->keeper.begins(r->keeper.arg, session_id);
}

void relay_tell_seen(struct relay *r, const char *session_id, const struct sg_wire_process *p)
{
    if (r->keeper.seen && !sg_wire_id_own(p->id))
        r->keeper.seen(r->keeper.arg, session_id, p);
}

void relay_tell_ended(struct relay *r, const char *session_id, const struct sg_wire_process *p,
                      const struct relay_last *last)
{
    if (r->keeper.ended && p->how != SG_HOW_NONE && !sg_wire_id_own(p->id))
        r->keeper.ended(r->keeper.arg, session_id, p, last);
}

void obj_init(struct relay_obj *o, struct relay *r,
              void (*abandon)(struct relay_obj *o, const struct sg_error *e),
              void (*destroy)(struct relay_obj *o))
{
    o->relay = r;
    o->abandon = abandon;
    o->destroy = destroy;
    o->prev = NULL;
    o->next = r->all;
    if (r->all)
        r->all->prev = o;
    r->all = o;
}

static void on_grave(struct sg_grave *g)
{
    struct relay_obj *o = (struct relay_obj *)((char *)g - offsetof(struct relay_obj, grave));
    o->destroy(o);
}

void obj_bury(struct relay_obj *o)
{
    if (o->next)
        o->next->prev = o->prev;
    if (o->prev)
        o->prev->next = o->next;
    else
        o->relay->all = o->next;
    o->prev = o->next = NULL;
    o->grave.fn = on_grave;
    sg_loop_bury(o->relay->loop, &o->grave);
}

/* ---- copies ---- */

static bool copy_string(char **out, const char *s)
{
    *out = s ? strdup(s) : NULL;
    return !s || *out;
}

bool session_copy(struct session_copy *c, const struct relay_session *s)
{
    *c = (struct session_copy){0};
    return copy_string(&c->session_id, s->session_id) && copy_string(&c->arch, s->arch) &&
           copy_string(&c->cwd, s->cwd);
}

void session_free(struct session_copy *c)
{
    free(c->session_id);
    free(c->arch);
    free(c->cwd);
    *c = (struct session_copy){0};
}

void args_add(struct relay_args *a, const char *s)
{
    if (a->failed)
        return;
    if (a->n + 2 > a->cap) {
        size_t cap = a->cap ? a->cap * 2 : 16;
        char **v = reallocarray(a->v, cap, sizeof *v);
        if (!v) {
            a->failed = true;
            return;
        }
        a->v = v;
        a->cap = cap;
    }
    a->v[a->n] = strdup(s);
    if (!a->v[a->n]) {
        a->failed = true;
        return;
    }
    a->v[++a->n] = NULL;
}

void args_addu(struct relay_args *a, uint64_t n)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, n);
    args_add(a, text);
}

void args_begin(struct relay_args *a, const char *verb, const char *session_id, const char *id)
{
    args_add(a, verb);
    args_add(a, "--session");
    args_add(a, session_id);
    if (id) {
        args_add(a, "--id");
        args_add(a, id);
    }
}

void args_free(struct relay_args *a)
{
    for (size_t i = 0; i < a->n; i++)
        free(a->v[i]);
    free(a->v);
    *a = (struct relay_args){0};
}

/* ---- retrying ---- */

bool relay_may_retry(const struct sg_error *e)
{
    const struct sg_error_row *row = sg_error_row(e->code);
    return row && (row->retryable || e->code == SG_E_UPSTREAM_BAD_RESPONSE) && e->code != SG_E_DRAINING;
}

uint64_t relay_backoff(const struct relay *r, int64_t *backoff_ms, const struct sg_error *e)
{
    int64_t max = r->limits.backoff_max_ms;
    int64_t base = *backoff_ms > 0 ? *backoff_ms : (max + 19) / 20;
    *backoff_ms = base * 2 < max ? base * 2 : max;
    uint16_t random = 0;
    if (!sg_random(&random, sizeof random))
        random = 0;
    int64_t ms = base / 2 + base * (int64_t)random / (2 * (int64_t)UINT16_MAX); /* half to whole */
    if (e && e->retry_after_ms > ms)
        ms = e->retry_after_ms;
    return ms > 0 ? (uint64_t)ms : 1;
}

void relay_take_exit(struct sg_wire_process *p, const struct sg_wire_process *x)
{
    p->state = x->how == SG_HOW_UNKNOWN ? SG_PS_UNKNOWN : SG_PS_FINISHED;
    p->how = x->how;
    p->value = x->value;
    p->descendants_hold_output = x->descendants_hold_output;
    p->output_incomplete = x->output_incomplete;
    p->duration_ms = x->duration_ms;
    for (int s = 0; s < 2; s++)
        p->end[s] = x->end[s];
}
