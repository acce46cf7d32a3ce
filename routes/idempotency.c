#include "routes/idempotency.h"

#include "base/crypto.h"
#include "base/log.h"
#include "routes/exchange.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PRINCIPAL_TEXT = 64,
    BEATS = 6,
    SWEEP_ROUNDS = 200,
    BEATS_AT_ONCE = 32, /* in one transaction: one that ends meanwhile costs no others their beat */
};
#define KEEP_MS    INT64_C(86400000)
#define SILENCE_MS INT64_C(60000)
#define MAX_BYTES  (INT64_C(1) << 30)

enum step { ASKING, RUNNING, NOTING, ENDING };

struct key_run {
    struct keys *all;
    struct key_run *next, **prev; /* all->runs */
    enum step step;
    char principal[PRINCIPAL_TEXT];
    unsigned char scope[32], request[32];
    char nonce[STORE_KEY_NONCE_TEXT], operation[STORE_KEY_OPERATION_TEXT];
    char owner[STORE_OWNER_TEXT];
    char id[STORE_KEY_ID_TEXT];
    bool full;
    struct store_key_found found;

    struct store_work work;
    key_begun_fn *begun;
    key_noted_fn *noted;
    void *noted_arg;
    void (*ended)(void *arg);
    void *arg;

    char note[STORE_KEY_NOTE_MAX + 1];
    bool end_asked; /* while a note is on its way */
    enum key_end how;
    struct store_key_answer answer;
    bool held; /* it was still ours */
};

struct keys {
    struct sg_loop *loop;
    struct store *store;
    const char *upstream;
    struct store_key_limits limits;
    int64_t max_bytes;
    atomic_bool full;
    struct sg_timer *timer;
    struct key_run *runs;
    size_t nruns;
    struct beats *beating; /* one at a time */
};

/* ---- the whole ---- */

static void on_beat(void *arg);

struct keys *keys_new(const struct keys_config *c)
{
    struct keys *all = calloc(1, sizeof *all);
    if (!all)
        return NULL;
    all->loop = c->loop;
    all->store = c->store;
    all->upstream = c->upstream;
    all->limits.keep_ms = c->keep_ms ? c->keep_ms : KEEP_MS;
    all->limits.silence_ms = c->silence_ms ? c->silence_ms : SILENCE_MS;
    all->max_bytes = c->max_bytes ? c->max_bytes : MAX_BYTES;
    all->timer = sg_timer_new(c->loop, on_beat, all);
    if (all->timer)
        return all;
    free(all);
    return NULL;
}

static void run_clear(struct key_run *k)
{
    store_key_found_clear(&k->found);
    sg_buf_free(&k->answer.head);
    sg_buf_free(&k->answer.body);
    free(k);
}

static void run_free(struct key_run *k)
{
    *k->prev = k->next;
    if (k->next)
        k->next->prev = k->prev;
    k->all->nruns--;
    run_clear(k);
}

void keys_free(struct keys *all)
{
    if (!all)
        return;
    for (struct key_run *k = all->runs, *next; k; k = next) {
        next = k->next;
        run_clear(k);
    }
    sg_timer_free(all->timer);
    free(all);
}

int64_t keys_keep_ms(const struct keys *all)
{
    return all->limits.keep_ms;
}

struct pruning {
    const struct store_key_limits *limits;
    bool more;
};

static enum sg_code prune_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct pruning *p = arg;
    return store_key_prune(db, p->limits, &p->more, e);
}

static enum sg_code usage_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    return store_key_usage(db, arg, e);
}

void keys_sweep(void *arg)
{
    struct keys *all = arg;
    struct sg_error e;
    struct pruning p = {&all->limits, true};
    int64_t bytes = 0;
    for (int i = 0; i < SWEEP_ROUNDS && p.more; i++)
        if (store_call(all->store, STORE_WRITE, prune_fn, &p, &e))
            return;
    if (store_call(all->store, STORE_READ, usage_fn, &bytes, &e))
        return;
    bool full = bytes > all->max_bytes;
    if (full != atomic_exchange(&all->full, full))
        sg_log(full ? SG_LOG_WARN : SG_LOG_INFO,
               full ? "no room for idempotency keys" : "room for idempotency keys", "bytes", "i", bytes,
               NULL);
}

/* ---- names ---- */

static void derive(const char *what, const char *nonce, size_t n, char *out)
{
    char text[128], hex[65];
    unsigned char hash[32];
    (void)snprintf(text, sizeof text, "%s:%s", what, nonce);
    sg_sha256(text, strlen(text), hash);
    sg_hex(hex, hash, sizeof hash);
    memcpy(out, hex, n);
    out[n] = '\0';
}

void key_operation_of(const char *nonce, char out[STORE_KEY_OPERATION_TEXT])
{
    derive("operation", nonce, STORE_KEY_OPERATION_TEXT - 1, out);
}

void key_process_of(const char *nonce, unsigned turn, char out[KEY_PROCESS_TEXT])
{
    char what[32];
    (void)snprintf(what, sizeof what, "process %u", turn);
    out[0] = 'p';
    out[1] = '_';
    derive(what, nonce, KEY_PROCESS_TEXT - 3, out + 2);
}

/* ---- beginning ---- */

static enum sg_code ask_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct key_run *k = arg;
    const struct store_key_ask a = {.upstream = k->all->upstream,
                                    .principal = k->principal,
                                    .scope = k->scope,
                                    .request = k->request,
                                    .nonce = k->nonce,
                                    .operation = k->operation,
                                    .owner = k->owner,
                                    .full = k->full};
    return store_key_ask(db, &a, &k->all->limits, &k->found, e);
}

static void watch(struct keys *all)
{
    if (!sg_timer_active(all->timer))
        sg_timer_start(all->timer, (uint64_t)(all->limits.silence_ms / BEATS));
}

static enum sg_code refused(const struct key_run *k, struct sg_error *e)
{
    if (k->found.verdict == STORE_KEY_OTHER)
        return sg_fail(e, SG_E_IDEMPOTENCY_KEY_REUSED, SG_NOT_SENT,
                       "this key came with another body, query or precondition before");
    if (k->found.verdict != STORE_KEY_BUSY)
        return SG_OK;
    (void)sg_fail(e, SG_E_REQUEST_IN_PROGRESS, SG_NOT_SENT,
                  "the first request with this key is still running");
    e->retry_after_ms = 1000;
    return e->code;
}

static void on_asked(struct store_work *w)
{
    struct key_run *k = w->arg;
    struct sg_error e;
    enum sg_code rc = w->code;
    if (rc) {
        e = w->error;
        e.outcome = SG_NOT_SENT;
    } else {
        rc = refused(k, &e);
    }
    bool runs = !rc && k->found.verdict == STORE_KEY_RUN;
    key_begun_fn *begun = k->begun;
    void *arg = k->arg;
    k->begun = NULL;
    if (runs && !begun) { /* nobody waits any more, and nothing happened */
        k->step = RUNNING;
        (void)snprintf(k->id, sizeof k->id, "%s", k->found.id);
        key_end(k, k->found.again ? KEY_OPEN : KEY_DROP, NULL, NULL, NULL);
        return;
    }
    if (runs) {
        k->step = RUNNING;
        (void)snprintf(k->id, sizeof k->id, "%s", k->found.id);
        watch(k->all);
        begun(arg, &k->found, NULL);
        return;
    }
    if (begun)
        begun(arg, rc ? NULL : &k->found, rc ? &e : NULL);
    run_free(k);
}

static bool submit(struct key_run *k, enum store_kind kind, store_fn *fn, void (*done)(struct store_work *w))
{
    k->work = (struct store_work){.kind = kind,
                                  .fn = fn,
                                  .arg = k,
                                  .done = done,
                                  .bytes = sizeof *k + k->answer.head.len + k->answer.body.len};
    return store_submit(k->all->store, &k->work);
}

static bool name_run(struct key_run *k)
{
    return store_owner(k->owner) && store_owner(k->nonce); /* both 32 random digits */
}

struct key_run *key_begin(struct keys *all, const struct key_request *q, key_begun_fn *done, void *arg,
                          struct sg_error *e)
{
    struct key_run *k = calloc(1, sizeof *k);
    if (!k || !name_run(k)) {
        free(k);
        (void)sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
        return NULL;
    }
    k->all = all;
    (void)snprintf(k->principal, sizeof k->principal, "%s", q->principal);
    memcpy(k->scope, q->scope, sizeof k->scope);
    memcpy(k->request, q->request, sizeof k->request);
    key_operation_of(k->nonce, k->operation);
    k->full = atomic_load(&all->full);
    store_key_found_init(&k->found);
    sg_buf_init(&k->answer.head, STORE_KEY_HEAD_MAX);
    sg_buf_init(&k->answer.body, STORE_KEY_BODY_MAX);
    k->begun = done;
    k->arg = arg;
    k->next = all->runs;
    k->prev = &all->runs;
    if (all->runs)
        all->runs->prev = &k->next;
    all->runs = k;
    all->nruns++;
    if (submit(k, STORE_DURABLE, ask_fn, on_asked))
        return k;
    run_free(k);
    (void)sg_fail(e, SG_E_STORE_UNAVAILABLE, SG_NOT_SENT,
                  "too much waits for the database, or it is being closed");
    return NULL;
}

/* ---- while it runs ---- */

static struct store_key key_of(const struct key_run *k)
{
    return (struct store_key){k->all->upstream, k->principal, k->id, k->owner};
}

struct beat {
    char principal[PRINCIPAL_TEXT], id[STORE_KEY_ID_TEXT], owner[STORE_OWNER_TEXT];
};

struct beats {
    struct store_work work;
    struct keys *all;
    size_t n, at, lost; /* those from `at` on are to be told */
    struct beat list[];
};

static enum sg_code beat_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct beats *b = arg;
    size_t end = b->n - b->at < BEATS_AT_ONCE ? b->n : b->at + BEATS_AT_ONCE;
    b->lost = 0;
    for (size_t i = b->at; i < end; i++) {
        const struct store_key k = {b->all->upstream, b->list[i].principal, b->list[i].id, b->list[i].owner};
        bool held;
        enum sg_code rc = store_key_beat(db, &k, &held, e);
        if (rc)
            return rc;
        b->lost += !held;
    }
    return SG_OK;
}

static void on_beaten(struct store_work *w)
{
    struct beats *b = w->arg;
    if (!w->code && b->lost) /* it ended meanwhile, or was taken over: its end says so */
        sg_log(SG_LOG_DEBUG, "keys without a row", "n", "i", (int64_t)b->lost, NULL);
    b->at += BEATS_AT_ONCE;
    if (b->at < b->n && store_submit(b->all->store, &b->work))
        return;
    b->all->beating = NULL;
    free(b);
}

static void on_beat(void *arg)
{
    struct keys *all = arg;
    if (!all->runs)
        return;
    watch(all);
    if (all->beating)
        return; /* the database is slow */
    struct beats *b = calloc(1, sizeof *b + all->nruns * sizeof *b->list);
    if (!b)
        return; /* the next one may come in time */
    b->all = all;
    for (const struct key_run *k = all->runs; k; k = k->next) {
        if (k->step == ASKING)
            continue;
        struct beat *at = &b->list[b->n++];
        memcpy(at->principal, k->principal, sizeof at->principal);
        memcpy(at->id, k->id, sizeof at->id);
        memcpy(at->owner, k->owner, sizeof at->owner);
    }
    b->work = (struct store_work){.kind = STORE_WRITE,
                                  .fn = beat_fn,
                                  .arg = b,
                                  .done = on_beaten,
                                  .bytes = sizeof *b + b->n * sizeof *b->list};
    all->beating = b;
    if (b->n && store_submit(all->store, &b->work))
        return;
    all->beating = NULL;
    free(b);
}

static enum sg_code note_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct key_run *k = arg;
    struct store_key key = key_of(k);
    return store_key_note(db, &key, k->note, &k->held, e);
}

static void end_now(struct key_run *k);

static void on_noted(struct store_work *w)
{
    struct key_run *k = w->arg;
    struct sg_error e;
    key_noted_fn *noted = k->noted;
    enum sg_code rc = w->code;
    if (rc) {
        e = w->error;
        e.outcome = SG_NOT_SENT;
    } else if (!k->held) {
        rc =
            sg_fail(&e, SG_E_REQUEST_IN_PROGRESS, SG_NOT_SENT, "another gateway has taken this request over");
        e.retry_after_ms = 1000;
    }
    k->step = RUNNING;
    k->noted = NULL;
    void *arg = k->noted_arg;
    if (!rc && k->end_asked)
        rc = sg_fail(&e, SG_E_DRAINING, SG_NOT_SENT, "the gateway is shutting down");
    if (k->end_asked)
        end_now(k);
    if (noted)
        noted(arg, rc ? &e : NULL);
}

void key_note(struct key_run *k, const char *note, key_noted_fn *done, void *arg)
{
    (void)snprintf(k->note, sizeof k->note, "%s", note);
    k->noted = done;
    k->noted_arg = arg;
    k->step = NOTING;
    if (submit(k, STORE_DURABLE, note_fn, on_noted))
        return;
    struct sg_error e;
    k->step = RUNNING;
    k->noted = NULL;
    (void)sg_fail(&e, SG_E_STORE_UNAVAILABLE, SG_NOT_SENT,
                  "too much waits for the database, or it is being closed");
    done(arg, &e);
}

/* ---- the end ---- */

static enum sg_code end_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct key_run *k = arg;
    struct store_key key = key_of(k);
    const struct store_key_limits *l = &k->all->limits;
    k->held = true;
    if (k->how == KEY_DROP)
        return store_key_drop(db, &key, e);
    if (k->how == KEY_DONE)
        return store_key_done(db, &key, l, &k->answer, &k->held, e);
    return store_key_open(db, &key, l, k->how == KEY_ANSWERED, &k->held, e);
}

static void over(struct key_run *k, const struct sg_error *e)
{
    void (*ended)(void *arg) = k->ended;
    void *arg = k->arg;
    if (e)
        sg_log(SG_LOG_WARN, "the answer of a key was not kept", "error", "e", e, NULL);
    else if (!k->held)
        sg_log(SG_LOG_WARN, "a key was taken over by another gateway while it ran", NULL);
    run_free(k);
    if (ended)
        ended(arg);
}

static void on_ended(struct store_work *w)
{
    over(w->arg, w->code ? &w->error : NULL);
}

static void end_now(struct key_run *k)
{
    struct sg_error e;
    k->step = ENDING;
    /* without one that is not an answer, somebody else finds what silence would tell him */
    if (submit(k, k->how == KEY_DONE ? STORE_DURABLE : STORE_WRITE, end_fn, on_ended))
        return;
    (void)sg_fail(&e, SG_E_STORE_UNAVAILABLE, SG_NOT_SENT,
                  "too much waits for the database, or it is being closed");
    over(k, &e);
}

void key_end(struct key_run *k, enum key_end how, struct store_key_answer *a, void (*ended)(void *arg),
             void *arg)
{
    k->how = how;
    if (a) {
        sg_buf_free(&k->answer.head);
        sg_buf_free(&k->answer.body);
        k->answer = *a;
        sg_buf_init(&a->head, STORE_KEY_HEAD_MAX);
        sg_buf_init(&a->body, STORE_KEY_BODY_MAX);
    }
    k->ended = ended;
    k->arg = arg;
    if (k->step == NOTING)
        k->end_asked = true;
    else
        end_now(k);
}

void key_forget(struct key_run *k)
{
    k->begun = NULL;
    k->ended = NULL;
}

/* ---- operations ---- */

struct look {
    struct store_work work;
    struct keys *all;
    char principal[PRINCIPAL_TEXT], operation[STORE_KEY_OPERATION_TEXT];
    enum store_key_state state;
    struct store_key_answer answer;
    key_operation_fn *done;
    void *arg;
};

static enum sg_code look_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct look *l = arg;
    return store_key_operation(db, l->all->upstream, l->principal, l->operation, &l->all->limits, &l->state,
                               &l->answer, e);
}

static void on_looked(struct store_work *w)
{
    struct look *l = w->arg;
    l->done(l->arg, l->state, &l->answer, w->code ? &w->error : NULL);
    sg_buf_free(&l->answer.head);
    sg_buf_free(&l->answer.body);
    free(l);
}

void key_operation(struct keys *all, const char *principal, const char *operation, key_operation_fn *done,
                   void *arg)
{
    struct sg_error e;
    struct look *l = strlen(operation) < STORE_KEY_OPERATION_TEXT ? calloc(1, sizeof *l) : NULL;
    if (!l) {
        done(arg, STORE_KEY_NONE, NULL, NULL);
        return;
    }
    l->all = all;
    (void)snprintf(l->principal, sizeof l->principal, "%s", principal);
    (void)snprintf(l->operation, sizeof l->operation, "%s", operation);
    sg_buf_init(&l->answer.head, STORE_KEY_HEAD_MAX);
    sg_buf_init(&l->answer.body, STORE_KEY_BODY_MAX);
    l->done = done;
    l->arg = arg;
    l->work = (struct store_work){.kind = STORE_READ,
                                  .fn = look_fn,
                                  .arg = l,
                                  .done = on_looked,
                                  .bytes = sizeof *l + STORE_KEY_BODY_MAX};
    if (store_submit(all->store, &l->work))
        return;
    free(l);
    (void)sg_fail(&e, SG_E_STORE_UNAVAILABLE, SG_FINISHED, "too much waits for the database");
    done(arg, STORE_KEY_NONE, NULL, &e);
}

/* ---- answers ---- */

static bool give_headers(struct exchange *ex, const struct sg_buf *head)
{
    char *text = head->data ? strdup(head->data) : NULL, *rest = text, *line;
    while ((line = strsep(&rest, "\n"))) {
        char *colon = strstr(line, ": ");
        if (!colon)
            continue;
        *colon = '\0';
        ex_set_header(ex, line, colon + 2);
    }
    free(text);
    return text || !head->data;
}

void key_answer(struct exchange *ex, const struct store_key_answer *a)
{
    struct sg_buf body;
    if (!give_headers(ex, &a->head)) {
        struct sg_error e;
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
        ex_fail(ex, &e);
        return;
    }
    if (!a->body.len) {
        ex_answer_empty(ex, a->status);
        return;
    }
    if (a->type == KEY_PROBLEM)
        ex_set_header(ex, "Content-Type", "application/problem+json");
    sg_buf_init(&body, STORE_KEY_BODY_MAX);
    (void)sg_buf_add(&body, a->body.data, a->body.len);
    ex_answer_json_text(ex, a->status, &body);
    sg_buf_free(&body);
}
