#include "routes/late.h"

#include "base/clock.h"
#include "base/core/file_tag.h"
#include "base/crypto.h"
#include "base/json_write.h"
#include "routes/gateway.h"
#include "routes/handlers.h"
#include "routes/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SANDBOX_NAME = 128 };

/* A client that waits for the end. */
struct waiter {
    struct waiter *next;
    struct late *late;
    struct exchange *ex;
    struct sg_timer *timer;
};

struct late {
    struct lates *all;
    struct gateway *gw;
    struct late *next; /* by age, the youngest first */
    char id[LATE_ID_CHARS + 1];
    char sandbox[SANDBOX_NAME + 1];
    int status; /* 0: under way, or failed */
    bool ended;
    int64_t ended_ms;
    struct sg_error e;
    struct sg_buf body;
    char etag[SG_FILE_TAG_LEN + 3]; /* quoted; empty: none */
    struct waiter *waiters;
};

struct lates {
    struct sg_loop *loop;
    int64_t after_ms;
    struct late *first;
    size_t n;
};

struct lates *lates_new(struct sg_loop *loop, int64_t after_ms)
{
    struct lates *all = calloc(1, sizeof *all);
    if (all) {
        all->loop = loop;
        all->after_ms = after_ms;
    }
    return all;
}

int64_t lates_after_ms(const struct lates *all)
{
    return all->after_ms;
}

static void late_free(struct late *l)
{
    sg_buf_free(&l->body);
    free(l);
}

void lates_free(struct lates *all)
{
    while (all && all->first) {
        struct late *l = all->first;
        all->first = l->next;
        late_free(l);
    }
    free(all);
}

/* ---- answering ---- */

static void under_way(const struct late *l, struct exchange *ex)
{
    char place[sizeof "/v1/sandboxes//files/operations/" + SANDBOX_NAME + LATE_ID_CHARS];
    struct sg_buf out;
    (void)snprintf(place, sizeof place, "/v1/sandboxes/%s/files/operations/%s", l->sandbox, l->id);
    sg_buf_init(&out, LATE_BODY_MAX);
    if (!sg_buf_addf(&out, "{\"operation_id\":\"%s\",\"state\":\"running\"}", l->id)) {
        struct sg_error e;
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_OUTCOME_UNKNOWN, "no memory for the answer");
        ex_fail(ex, &e);
    } else {
        ex_set_header(ex, "Location", place);
        ex_answer_json_text(ex, 202, &out);
    }
    sg_buf_free(&out);
}

static void answer(const struct late *l, struct exchange *ex)
{
    struct sg_error e = l->e;
    struct sg_buf copy;
    sg_buf_init(&copy, LATE_BODY_MAX);
    if (!l->ended)
        under_way(l, ex);
    else if (!l->status)
        ex_fail(ex, &e);
    else if (!l->body.len) {
        if (l->etag[0])
            ex_set_header(ex, "ETag", l->etag);
        ex_answer_empty(ex, l->status);
    } else if (sg_buf_add(&copy, l->body.data, l->body.len))
        ex_answer_json_text(ex, l->status, &copy);
    else {
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
        ex_fail(ex, &e);
    }
    sg_buf_free(&copy);
}

/* ---- waiting ---- */

static void unlink_waiter(struct waiter *w)
{
    struct waiter **at = &w->late->waiters;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
}

/* It is in no list any more. */
static void waiter_free(struct waiter *w)
{
    sg_timer_free(w->timer);
    free(w);
}

static void waiter_answer(struct waiter *w)
{
    struct late *l = w->late;
    struct exchange *ex = w->ex;
    ex_on_gone(ex, NULL, NULL);
    waiter_free(w);
    answer(l, ex);
}

static void on_waited(void *arg)
{
    unlink_waiter(arg);
    waiter_answer(arg);
}

static void on_gone(void *arg)
{
    struct waiter *w = arg;
    struct exchange *ex = w->ex;
    struct sg_error e;
    unlink_waiter(w);
    waiter_free(w);
    (void)sg_fail(&e, SG_E_BAD_REQUEST, SG_FINISHED, "the client left");
    ex_fail(ex, &e);
}

/* False: no memory to wait with. */
static bool wait_for(struct late *l, struct exchange *ex, int64_t wait_ms)
{
    struct waiter *w = calloc(1, sizeof *w);
    if (!w || !(w->timer = sg_timer_new(l->all->loop, on_waited, w))) {
        free(w);
        return false;
    }
    w->late = l;
    w->ex = ex;
    w->next = l->waiters;
    l->waiters = w;
    ex_on_gone(ex, on_gone, w);
    sg_timer_start(w->timer, (uint64_t)wait_ms);
    return true;
}

/* ---- keeping ---- */

/* Forgets what nobody asked for in time; with `room`, also the oldest that has ended, when all places are taken. */
static void forget(struct lates *all, bool room)
{
    int64_t old = sg_mono_ms() - LATE_KEEP_MS;
    struct late **oldest = NULL;
    for (struct late **at = &all->first; *at;) {
        struct late *l = *at;
        if (l->ended && l->ended_ms < old && !l->waiters) {
            *at = l->next;
            late_free(l);
            all->n--;
            continue;
        }
        if (l->ended && !l->waiters)
            oldest = at;
        at = &l->next;
    }
    if (room && all->n >= LATES_MAX && oldest) {
        struct late *l = *oldest;
        *oldest = l->next;
        late_free(l);
        all->n--;
    }
}

struct late *late_begin(struct lates *all, struct exchange *ex)
{
    forget(all, true);
    struct late *l =
        all->n < LATES_MAX && strlen(ex->params[0]) <= SANDBOX_NAME ? calloc(1, sizeof *l) : NULL;
    if (!l || !sg_random_id(l->id, "", LATE_ID_CHARS)) {
        free(l);
        return NULL;
    }
    l->all = all;
    l->gw = ex->gw;
    l->gw->lasting++;
    sg_buf_init(&l->body, LATE_BODY_MAX);
    (void)snprintf(l->sandbox, sizeof l->sandbox, "%s", ex->params[0]);
    l->next = all->first;
    all->first = l;
    all->n++;
    under_way(l, ex);
    return l;
}

void late_etag(struct late *l, const char *etag)
{
    (void)snprintf(l->etag, sizeof l->etag, "%s", etag);
}

void late_end(struct late *l, int status, const struct sg_buf *body, const struct sg_error *e)
{
    if (e) {
        l->e = *e;
    } else if (body && body->len && !sg_buf_add(&l->body, body->data, body->len)) {
        (void)sg_fail(&l->e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
    } else {
        l->status = status;
    }
    l->ended = true;
    l->gw->lasting--;
    l->ended_ms = sg_mono_ms();
    struct waiter *next, *w = l->waiters;
    l->waiters = NULL;
    for (; w; w = next) {
        next = w->next;
        waiter_answer(w);
    }
}

/* ---- GET …/files/operations/{id} ---- */

void route_file_operation(struct exchange *ex)
{
    static const char *const query[] = {"wait_ms", NULL};
    struct lates *all = ex->gw->lates;
    struct sg_error e;
    int64_t wait_ms = 0;
    if (ex_query_only(ex, query, &e) || ex_query_int(ex, "wait_ms", 0, SPEC_WAIT_MAX_MS, &wait_ms, &e)) {
        ex_fail(ex, &e);
        return;
    }
    forget(all, false);
    struct late *l = all->first;
    while (l && (strcmp(l->id, ex->params[1]) != 0 || strcmp(l->sandbox, ex->params[0]) != 0))
        l = l->next;
    if (!l) {
        (void)sg_fail(&e, SG_E_OPERATION_NOT_FOUND, SG_FINISHED, "it is not known here, or no longer");
        ex_fail(ex, &e);
    } else if (l->ended || !wait_ms || !wait_for(l, ex, wait_ms)) {
        answer(l, ex);
    }
}
