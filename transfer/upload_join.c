#include "transfer/upload_impl.h"

#include "base/clock.h"
#include "base/core/num.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fs_call *call(struct upload *u, fs_done_fn *done, struct sg_error *e)
{
    const struct fs_target t = {.session_id = u->session_id, .arch = u->arch, .cwd = u->cwd};
    return fs_call_start(u->all->guestlink, &t, &u->request, done, u, e);
}

static void on_later(void *arg);

/* Whether the call that failed is made once more, after a while: only of those that may be made twice. */
static bool try_later(struct upload *u, const struct sg_error *e)
{
    bool passes = upload_may_pass(e) || e->code == SG_E_OVERLOADED;
    if (!passes || ++u->call_tries >= UPLOAD_TRIES)
        return false;
    if (!u->later)
        u->later = sg_timer_new(u->all->loop, on_later, u);
    if (!u->later)
        return false;
    u->pauses = true;
    sg_timer_start(u->later, upload_backoff_ms(u, u->call_tries, e));
    return true;
}

/* ---- joining ---- */

void upload_close_batch(struct upload *u)
{
    if (!u->open.parts || u->nbatches == UPLOAD_BATCHES)
        return;
    u->batches[u->nbatches++] = u->open;
    u->open = (struct upload_batch){.parts = 0};
    if (!upload_new_nonce(u)) /* the old one's last letter is as good a difference as any */
        u->nonce[UPLOAD_NONCE - 1] = u->nonce[UPLOAD_NONCE - 1] == 'z' ? 'a' : 'z';
}

static bool reaches(const struct fs_answer *a, uint64_t end)
{
    uint64_t size;
    return sg_parse_u64(a->word, strlen(a->word), INT64_MAX, &size) && size == end;
}

static void on_joined(void *arg, const struct fs_answer *a, const struct sg_error *e)
{
    struct upload *u = arg;
    struct sg_error own;
    uint64_t end = u->batches[0].end;
    u->call = NULL;
    fs_request_free(&u->request);
    if (!u->nbatches) { /* they count no more */
        upload_step(u);
        return;
    }
    /* An answer that was lost may have told it before.  Of a resumable one that somebody else may have brought so far it
     * does not count: the guest knows its own parts when it is asked again. */
    bool done = a ? reaches(a, end)
                  : !u->resumable && e->code == SG_E_UPLOAD_OFFSET && e->accepted >= 0 &&
                        (uint64_t)e->accepted == end;
    /* One of our own begins nowhere else: parts are missing that the upstream said it had taken. */
    bool missing = !a && !done && !u->resumable && e->code == SG_E_UPLOAD_OFFSET;
    if ((a && !done) || missing) {
        (void)sg_fail(&own, SG_E_UPSTREAM_BAD_RESPONSE, SG_OUTCOME_UNKNOWN,
                      "the parts of the upload did not join to what they were");
        e = &own;
    }
    if (done) {
        u->joined = end;
        u->call_tries = 0;
        memmove(u->batches, u->batches + 1, --u->nbatches * sizeof *u->batches);
        upload_step(u);
        return;
    }
    if (!a && try_later(u, e))
        return;
    if (u->resumable) { /* what follows cannot be kept either */
        u->nbatches = 0;
        u->open.parts = 0;
    }
    if (u->phase == UPLOAD_FLOWS)
        upload_fail(u, e);
    else
        upload_step(u);
}

void upload_join_next(struct upload *u)
{
    const struct upload_batch *b = u->batches;
    struct sg_error e;
    if (u->call || u->pauses || !u->nbatches)
        return;
    fs_request_begin(&u->request, "join");
    fs_request_text(&u->request, "--upload", u->id);
    fs_request_text(&u->request, "--nonce", b->nonce);
    fs_request_number(&u->request, "--offset", (int64_t)b->at);
    fs_request_number(&u->request, "--size", (int64_t)b->end);
    u->request.again = true;
    u->call = call(u, on_joined, &e);
    if (u->call)
        return;
    fs_request_free(&u->request);
    u->nbatches = 0;
    if (u->phase == UPLOAD_FLOWS)
        upload_fail(u, &e);
    else
        upload_kick(u);
}

/* ---- what it came for ---- */

/* All but the option `without` and its value. */
static void repeat(struct fs_request *to, const struct fs_request *from, const char *without)
{
    *to = (struct fs_request){.reads = from->reads, .again = true, .parts = from->parts, .sudo = from->sudo};
    to->failed = from->failed;
    for (size_t i = 0; i < from->n; i++)
        if (without && !strcmp(from->args[i], without))
            i++;
        else
            fs_request_flag(to, from->args[i]);
}

static void add_source(struct upload *u)
{
    struct upload_batch *o = &u->open;
    uint64_t size = u->start + u->came;
    if (o->parts)
        (void)snprintf(u->from, sizeof u->from, ".up-%s.%s.%" PRIu64, u->id, o->nonce, o->at);
    else
        (void)snprintf(u->from, sizeof u->from, ".up-%s", u->id);
    if (u->resumable)
        fs_request_text(&u->request, "--upload", u->id);
    else
        fs_request_text(&u->request, "--from", u->from);
    fs_request_number(&u->request, "--size", (int64_t)size);
}

/* The guest itself refused, and has removed the upload. */
static bool is_refusal(const struct sg_error *e)
{
    const struct sg_error_row *row = sg_error_row(e->code);
    return e->outcome == SG_NOT_STARTED && !e->upstream_status && row && !row->retryable &&
           e->code != SG_E_UPSTREAM_BAD_RESPONSE;
}

static void failed_at_last(struct upload *u, const struct sg_error *e)
{
    struct sg_error own = *e;
    bool there = !is_refusal(&own) || u->dirty;
    if (own.outcome == SG_OUTCOME_UNKNOWN && !u->request.parts &&
        (!strcmp(own.errno_name, "ENOENT") || !strcmp(own.errno_name, "EEXIST") ||
         own.code == SG_E_UPLOAD_NOT_FOUND))
        /* the one before, whose answer was lost, may have been the one that took the upload */
        (void)sg_fail(&own, SG_E_UPSTREAM_UNAVAILABLE, SG_OUTCOME_UNKNOWN,
                      "the answer to the last step was lost; it was either done whole or not at all");
    if (own.outcome == SG_NOT_SENT)
        own.outcome = SG_NOT_STARTED;
    if (u->began && own.outcome == SG_NOT_STARTED)
        own.outcome = SG_OUTCOME_UNKNOWN;
    upload_tell(u, NULL, &own);
    if (u->resumable || !there || upload_session_is_over(&own))
        upload_over(u);
    else
        upload_clear(u);
}

static void finish_from(struct upload *u, const char *cursor, size_t len);

/* It takes longer than one call may: its answer says where the next one goes on. */
static void go_on(struct upload *u, const struct fs_answer *a)
{
    struct sg_error e;
    const struct fs_item *last = a->n ? &a->items[a->n - 1] : NULL;
    const char *cursor = last && last->kind == SG_WIRE_NAME ? a->bytes + last->name : "";
    u->began = true;
    if (*cursor == 'c' && last->name_len > 1 && ++u->rounds <= UPLOAD_ROUNDS) {
        finish_from(u, cursor + 1, last->name_len - 1);
        return;
    }
    (void)sg_fail(&e, SG_E_UPSTREAM_BAD_RESPONSE, SG_OUTCOME_UNKNOWN,
                  "the helper in the sandbox does not say where it goes on, or comes to no end");
    failed_at_last(u, &e);
}

static void on_finished(void *arg, const struct fs_answer *a, const struct sg_error *e)
{
    struct upload *u = arg;
    u->call = NULL;
    if (!a) {
        bool undone = e->outcome == SG_NOT_SENT || e->outcome == SG_NOT_STARTED;
        /* after so many bytes a busy upstream is no reason to give up */
        if (!undone || !u->joined || !try_later(u, e))
            failed_at_last(u, e);
        return;
    }
    if (a->more) {
        go_on(u, a);
        return;
    }
    upload_tell(u, a, NULL);
    if (u->dirty && !u->resumable)
        upload_clear(u);
    else
        upload_over(u);
}

static void finish_from(struct upload *u, const char *cursor, size_t len)
{
    struct fs_request before = u->request;
    struct sg_error e;
    if (u->began) /* the owner may be gone, and its request with it */
        repeat(&u->request, &before, "--cursor");
    else
        repeat(&u->request, u->finish, NULL);
    if (!u->began)
        add_source(u);
    if (len)
        fs_request_bytes(&u->request, "--cursor", cursor, len);
    fs_request_free(&before);
    u->call = call(u, on_finished, &e);
    if (!u->call)
        failed_at_last(u, &e);
}

static void on_later(void *arg)
{
    struct upload *u = arg;
    struct sg_error e;
    u->pauses = false;
    if (u->phase != UPLOAD_ENDS) {
        upload_step(u);
        return;
    }
    u->call = call(u, on_finished, &e);
    if (!u->call)
        failed_at_last(u, &e);
}

void upload_finish(struct upload *u)
{
    u->phase = UPLOAD_ENDS;
    finish_from(u, NULL, 0);
}

/* ---- what is left behind: tried once, nobody waits for it ---- */

static void on_cleared(void *arg, const struct fs_answer *a, const struct sg_error *e)
{
    struct upload *u = arg;
    u->call = NULL;
    if (!a && e->code != SG_E_UPLOAD_NOT_FOUND)
        sg_log(SG_LOG_WARN, "upload_left_behind", "session", "s", u->session_id, "upload", "s", u->id,
               "error", "e", e, NULL);
    upload_over(u);
}

void upload_clear(struct upload *u)
{
    struct sg_error e;
    int64_t wait = u->cut_ms ? u->cut_ms + (int64_t)u->all->linger_ms - sg_mono_ms() : 0;
    u->phase = UPLOAD_CLEARS;
    if (wait > 0) {
        sg_timer_start(u->clock, (uint64_t)wait);
        return;
    }
    fs_request_free(&u->request);
    fs_request_begin(&u->request, "upload-remove");
    fs_request_text(&u->request, "--upload", u->id);
    u->request.again = true;
    u->call = call(u, on_cleared, &e);
    if (!u->call)
        upload_over(u);
}
