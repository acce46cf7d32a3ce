/* Requests with an Idempotency-Key: run once, answered again.
 *
 * The store is asked before the handler is called, and told before the client is: so whatever this gateway dies of, who
 * asks again either finds the answer, or finds a run that nobody beats for any more and runs it once more, with the same
 * nonce (routes/idempotency.h).  When the answer cannot be kept the client gets it all the same. */
#include "server/internal.h"

#include "base/crypto.h"
#include "base/log.h"
#include "routes/gateway.h"
#include "routes/idempotency.h"
#include "server/problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char header[] = "Idempotency-Key";

static const char *key_of(struct request *r)
{
    return strcmp(r->ex.method, "POST") == 0 ? ex_header(&r->ex, header) : NULL;
}

static bool printable(const char *s)
{
    for (; *s; s++)
        if (*s < ' ' || *s > '~')
            return false;
    return true;
}

enum sg_code keyed_check(struct request *r, struct sg_error *e)
{
    const char *key = key_of(r);
    if (!key)
        return SG_OK;
    if (r->route->body == BODY_RAW || r->route->kind == ROUTE_UPLOAD || r->route->kind == ROUTE_UPGRADE)
        return sg_fail(
            e, SG_E_UNSUPPORTED, SG_NOT_SENT,
            "this call takes no Idempotency-Key: the offsets of what is sent make it safe to repeat");
    if (!r->ex.who || !r->ex.gw->keys)
        return sg_fail(e, SG_E_UNSUPPORTED, SG_NOT_SENT, "this call takes no Idempotency-Key");
    if (ex_header_line(&r->ex, header, 1))
        return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT, "Idempotency-Key is given twice");
    if (!*key || strlen(key) > KEY_CHARS_MAX || !printable(key))
        return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT,
                       "an Idempotency-Key has 1 to %d printable ASCII characters", KEY_CHARS_MAX);
    r->has_key = true;
    return SG_OK;
}

/* ---- what it is ---- */

/* Each piece with its length, so that no two lists of pieces look alike. */
static void add(struct sg_hash *h, const void *p, size_t n)
{
    uint64_t len = n;
    sg_hash_add(h, &len, sizeof len);
    sg_hash_add(h, p, n);
}

static void add_text(struct sg_hash *h, const char *s)
{
    add(h, s ? s : "", s ? strlen(s) : 0);
}

static bool hash_scope(struct request *r, unsigned char out[32])
{
    unsigned char full[SG_HASH_MAX];
    struct sg_hash *h = sg_hash_new(SG_SHA256);
    if (!h)
        return false;
    add_text(h, r->ex.method);
    add_text(h, r->route->pattern);
    for (int i = 0; i < EX_MAX_PARAMS; i++)
        add_text(h, r->ex.params[i]);
    add_text(h, key_of(r));
    bool ok = sg_hash_end(h, full) == 32;
    sg_hash_free(h);
    memcpy(out, full, 32);
    return ok;
}

/* The body as it came, the query, and the conditions: all that says what is wanted. */
static bool hash_request(struct request *r, unsigned char out[32])
{
    unsigned char full[SG_HASH_MAX];
    struct sg_hash *h = sg_hash_new(SG_SHA256);
    if (!h)
        return false;
    const char *query = strchr(r->raw, '?');
    add_text(h, query);
    add_text(h, ex_header(&r->ex, "If-Match"));
    add_text(h, ex_header(&r->ex, "If-None-Match"));
    add(h, r->body.data ? r->body.data : "", r->body.len);
    bool ok = sg_hash_end(h, full) == 32;
    sg_hash_free(h);
    memcpy(out, full, 32);
    return ok;
}

/* ---- beginning ---- */

static void outcome_lost(struct request *r)
{
    struct sg_error e;
    (void)sg_fail(&e, SG_E_OUTCOME_LOST, SG_OUTCOME_UNKNOWN,
                  "an earlier run of this request ended without an answer; it may have acted");
    ex_fail(&r->ex, &e);
}

static void replay(struct request *r, const struct store_key_answer *a)
{
    ex_set_header(&r->ex, "Idempotency-Replayed", "true");
    key_answer(&r->ex, a);
}

static void on_begun(void *arg, const struct store_key_found *f, const struct sg_error *e)
{
    struct request *r = arg;
    r->asking = false;
    if (e || f->verdict != STORE_KEY_RUN)
        r->key = NULL;
    if (e) {
        ex_fail(&r->ex, e);
        return;
    }
    if (f->verdict != STORE_KEY_RUN) {
        replay(r, &f->answer);
        return;
    }
    (void)snprintf(r->nonce, sizeof r->nonce, "%s", f->nonce);
    (void)snprintf(r->note, sizeof r->note, "%s", f->note);
    r->ex.nonce = r->nonce;
    r->ex.note = r->note;
    r->ex.again = f->again;
    r->answered_before = f->answered;
    if (f->again && r->route->again == AGAIN_LOST)
        outcome_lost(r);
    else
        dispatch_run(r);
}

void keyed_start(struct request *r)
{
    struct key_request q = {.principal = r->who.id};
    struct sg_error e;
    if (!hash_scope(r, q.scope) || !hash_request(r, q.request)) {
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
        ex_fail(&r->ex, &e);
        return;
    }
    r->asking = true;
    r->key = key_begin(r->ex.gw->keys, &q, on_begun, r, &e);
    if (r->key)
        return;
    r->asking = false;
    ex_fail(&r->ex, &e);
}

/* ---- notes ---- */

void ex_note(struct exchange *ex, const char *note, void (*done)(void *arg, const struct sg_error *e),
             void *arg)
{
    struct request *r = (struct request *)ex;
    if (!r->key) { /* nobody comes back to it */
        done(arg, NULL);
        return;
    }
    (void)snprintf(r->note, sizeof r->note, "%s", note);
    key_note(r->key, note, done, arg);
}

void ex_answer_once(struct exchange *ex, const char *what)
{
    struct request *r = (struct request *)ex;
    r->once = true;
    (void)snprintf(r->created, sizeof r->created, "%s", what);
}

/* ---- the end ---- */

/* Of a failure: may it have changed something, and can that be found out? */
static enum key_end judge_failure(const struct request *r)
{
    const struct sg_error *e = r->error;
    if (!e)
        return KEY_OPEN;
    if (e->code == SG_E_OUTCOME_LOST)
        return KEY_DONE; /* nor will it ever be known */
    if (e->outcome == SG_NOT_SENT || e->outcome == SG_NOT_STARTED)
        return r->ex.again ? KEY_OPEN : KEY_DROP;
    const struct sg_error_row *row = sg_error_row(e->code);
    return e->outcome == SG_FINISHED && row && !row->retryable ? KEY_DONE : KEY_OPEN;
}

static enum key_end judge(const struct request *r)
{
    if (r->answer.kind == ANSWER_BODY && r->answer.code)
        return judge_failure(r);
    if (r->once)
        return KEY_DONE;
    if (r->route->again == AGAIN_BUILD)
        return KEY_ANSWERED;
    return r->answer.kind == ANSWER_BODY ? KEY_DONE : KEY_OPEN;
}

/* Headers that belong to the one answer only. */
static bool own_header(const char *name)
{
    static const char *const names[] = {"Idempotency-Replayed", "Preference-Applied", "Retry-After",
                                        "WWW-Authenticate"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return false;
}

static bool copy_answer(const struct request *r, struct store_key_answer *a)
{
    a->status = r->answer.status;
    a->type = r->answer.code ? KEY_PROBLEM : KEY_JSON;
    bool ok = true;
    for (size_t i = 0; i < r->nextra && ok; i++)
        if (!own_header(r->extra[i].name))
            ok = sg_buf_addf(&a->head, "%s: %s\n", r->extra[i].name, r->extra[i].value);
    return ok && (!r->answer.len || sg_buf_add(&a->body, r->answer.body, r->answer.len));
}

/* What is told instead of a credential. */
static bool once_answer(const struct request *r, struct store_key_answer *a)
{
    struct sg_error e;
    char instance[512];
    struct uri_part path = {"", 0};
    (void)uri_path(r->raw, &path);
    (void)snprintf(instance, sizeof instance, "%.*s", (int)(path.len < 500 ? path.len : 500), path.at);
    (void)sg_fail(&e, SG_E_ALREADY_CREATED, SG_FINISHED, "%s", r->created);
    a->status = problem_status(&e);
    a->type = KEY_PROBLEM;
    return problem_write(&e, instance, r->request_id, &a->body);
}

static void on_ended(void *arg)
{
    struct request *r = arg;
    r->key = NULL;
    r->storing = false;
    request_answered(r);
}

/* What cannot be kept at its size is run again by whoever asks again. */
static enum key_end fill(const struct request *r, enum key_end how, struct store_key_answer *a)
{
    sg_buf_init(&a->head, STORE_KEY_HEAD_MAX);
    sg_buf_init(&a->body, STORE_KEY_BODY_MAX);
    if (how == KEY_DONE && !(r->once && !r->answer.code ? once_answer(r, a) : copy_answer(r, a)))
        return KEY_ANSWERED;
    return how;
}

bool keyed_hold(struct request *r)
{
    if (!r->key || r->storing)
        return r->storing;
    struct key_run *k = r->key;
    struct store_key_answer a = {0};
    enum key_end how = fill(r, judge(r), &a);
    if (r->answered_before && r->answer.status < 400)
        ex_set_header(&r->ex, "Idempotency-Replayed", "true");
    bool waits = r->srv && !r->srv->stopping && r->answer.kind == ANSWER_BODY;
    r->storing = waits;
    if (!waits)
        r->key = NULL;
    key_end(k, how, &a, waits ? on_ended : NULL, r);
    sg_buf_free(&a.head);
    sg_buf_free(&a.body);
    return waits;
}

void keyed_stop(struct request *r)
{
    if (!r->key || (!r->asking && !r->storing))
        return; /* its handler is told, and answers */
    key_forget(r->key);
    r->key = NULL;
    if (r->storing) {
        r->storing = false;
        request_answered(r);
        return;
    }
    struct sg_error e;
    r->asking = false;
    (void)sg_fail(&e, SG_E_DRAINING, SG_NOT_SENT, "the gateway is shutting down");
    ex_fail(&r->ex, &e);
}

void keyed_free(struct request *r)
{
    if (r->key)
        key_end(r->key, KEY_OPEN, NULL, NULL, NULL);
    r->key = NULL;
}
