#include "routes/late.h"

#include "auth/tokens.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "routes/gateway.h"
#include "routes/handlers.h"
#include "routes/idempotency.h"
#include "routes/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SANDBOX_NAME = 128, PRINCIPAL_TEXT = 64 };
enum { PLACE_TEXT = sizeof "/v1/sandboxes//files/operations/" + SANDBOX_NAME + LATE_ID_CHARS };

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
    char principal[PRINCIPAL_TEXT]; /* nobody else is told */
    char sandbox[SANDBOX_NAME + 1]; /* whose files it is about; "": it is about something else */
    bool ended;
    int64_t ended_ms;
    struct sg_error e;              /* it failed, when its status is 0 */
    struct store_key_answer answer; /* status 0: under way, or failed */
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
    sg_buf_free(&l->answer.head);
    sg_buf_free(&l->answer.body);
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

static void place_of(const char *sandbox, const char *id, char out[PLACE_TEXT])
{
    if (sandbox[0])
        (void)snprintf(out, PLACE_TEXT, "/v1/sandboxes/%s/files/operations/%s", sandbox, id);
    else
        (void)snprintf(out, PLACE_TEXT, "/v1/operations/%s", id);
}

static void under_way(const char *sandbox, const char *id, struct exchange *ex)
{
    char place[PLACE_TEXT];
    struct sg_buf out;
    place_of(sandbox, id, place);
    sg_buf_init(&out, LATE_BODY_MAX);
    if (!sg_buf_addf(&out, "{\"operation_id\":\"%s\",\"state\":\"running\"}", id)) {
        struct sg_error e;
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_OUTCOME_UNKNOWN, "no memory for the answer");
        ex_fail(ex, &e);
    } else {
        ex_set_header(ex, "Location", place);
        ex_answer_json_text(ex, 202, &out);
    }
    sg_buf_free(&out);
}

void late_tell(const struct late *l, struct exchange *ex)
{
    under_way(l->sandbox, l->id, ex);
}

/* What the request itself answered.  202 would say of the operation that it runs, for ever. */
static void tell_end(struct exchange *ex, const struct store_key_answer *a)
{
    struct store_key_answer told = *a;
    if (told.status == 202)
        told.status = told.body.len ? 200 : 204;
    key_answer(ex, &told);
}

static void answer(const struct late *l, struct exchange *ex)
{
    if (!l->ended)
        late_tell(l, ex);
    else if (!l->answer.status)
        ex_fail(ex, &l->e);
    else
        tell_end(ex, &l->answer);
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

static const char *principal_of(const struct exchange *ex)
{
    return ex->who ? ex->who->id : "";
}

struct late *late_open(struct lates *all, const struct exchange *ex, bool files, const char *id)
{
    const char *sandbox = files ? ex->params[0] : "";
    forget(all, true);
    struct late *l = all->n < LATES_MAX && strlen(sandbox) <= SANDBOX_NAME ? calloc(1, sizeof *l) : NULL;
    if (!l || (!id && !sg_random_id(l->id, "", LATE_ID_CHARS))) {
        free(l);
        return NULL;
    }
    l->all = all;
    l->gw = ex->gw;
    l->gw->lasting++;
    sg_buf_init(&l->answer.head, LATE_HEAD_MAX);
    sg_buf_init(&l->answer.body, LATE_BODY_MAX);
    if (id)
        (void)snprintf(l->id, sizeof l->id, "%s", id);
    (void)snprintf(l->principal, sizeof l->principal, "%s", principal_of(ex));
    (void)snprintf(l->sandbox, sizeof l->sandbox, "%s", sandbox);
    l->next = all->first;
    all->first = l;
    all->n++;
    return l;
}

void late_drop(struct late *l)
{
    struct late **at = &l->all->first;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    l->all->n--;
    l->gw->lasting--;
    late_free(l);
}

struct late *late_begin(struct lates *all, struct exchange *ex)
{
    struct late *l = late_open(all, ex, true, NULL);
    if (l)
        late_tell(l, ex);
    return l;
}

void late_header(struct late *l, const char *name, const char *value)
{
    (void)sg_buf_addf(&l->answer.head, "%s: %s\n", name, value);
}

void late_etag(struct late *l, const char *etag)
{
    late_header(l, "ETag", etag);
}

void late_end(struct late *l, int status, const struct sg_buf *body, const struct sg_error *e)
{
    struct store_key_answer *a = &l->answer;
    if (e)
        l->e = *e;
    else if (a->head.failed || (body && body->len && !sg_buf_add(&a->body, body->data, body->len)))
        (void)sg_fail(&l->e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
    else
        a->status = status;
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

/* ---- GET …/files/operations/{id}, GET /v1/operations/{id} ---- */

static void not_known(struct exchange *ex)
{
    struct sg_error e;
    (void)sg_fail(&e, SG_E_OPERATION_NOT_FOUND, SG_FINISHED, "it is not known here, or no longer");
    ex_fail(ex, &e);
}

/* One that was begun elsewhere, or before this gateway was started, and has a key. */
struct stored {
    struct exchange *ex; /* NULL: the client left */
    char sandbox[SANDBOX_NAME + 1], id[STORE_KEY_OPERATION_TEXT];
};

static void on_stored_gone(void *arg)
{
    struct stored *s = arg;
    struct exchange *ex = s->ex;
    s->ex = NULL;
    not_known(ex);
}

static void on_stored(void *arg, enum store_key_state state, const struct store_key_answer *a,
                      const struct sg_error *e)
{
    struct stored *s = arg;
    struct exchange *ex = s->ex;
    struct sg_error own;
    if (ex)
        ex_on_gone(ex, NULL, NULL);
    if (ex && e) {
        ex_fail(ex, e);
    } else if (ex && state == STORE_KEY_RUNS) {
        under_way(s->sandbox, s->id, ex);
    } else if (ex && state == STORE_KEY_DONE) {
        tell_end(ex, a);
    } else if (ex && state == STORE_KEY_ENDED) {
        (void)sg_fail(&own, SG_E_OPERATION_NOT_FOUND, SG_OUTCOME_UNKNOWN,
                      "it ended without an answer that was kept: send the request again with its key");
        ex_fail(ex, &own);
    } else if (ex) {
        not_known(ex);
    }
    free(s);
}

static void look_in_store(struct exchange *ex, const char *sandbox, const char *id)
{
    struct stored *s = NULL;
    if (!ex->gw->keys || !ex->who || strlen(id) >= sizeof s->id || strlen(sandbox) >= sizeof s->sandbox ||
        !(s = calloc(1, sizeof *s))) {
        not_known(ex);
        return;
    }
    s->ex = ex;
    (void)snprintf(s->sandbox, sizeof s->sandbox, "%s", sandbox);
    (void)snprintf(s->id, sizeof s->id, "%s", id);
    ex_on_gone(ex, on_stored_gone, s);
    key_operation(ex->gw->keys, ex->who->id, s->id, on_stored, s);
}

static void operation(struct exchange *ex, const char *sandbox, const char *id)
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
    while (l && (strcmp(l->id, id) != 0 || strcmp(l->principal, principal_of(ex)) != 0 ||
                 (sandbox[0] && strcmp(l->sandbox, sandbox) != 0)))
        l = l->next;
    if (!l)
        look_in_store(ex, sandbox, id);
    else if (l->ended || !wait_ms || !wait_for(l, ex, wait_ms))
        answer(l, ex);
}

void route_file_operation(struct exchange *ex)
{
    operation(ex, ex->params[0], ex->params[1]);
}

void route_operation(struct exchange *ex)
{
    operation(ex, "", ex->params[0]);
}
