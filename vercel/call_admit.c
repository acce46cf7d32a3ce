/* Whether an attempt may be made now: with a token that is good, to an upstream that answers, within what the plan allows.
 * Who has to wait does so here, in line; who cannot be helped in time is refused, and told how long it would have been. */
#include "vercel/call.h"

#include "base/clock.h"
#include "base/log.h"

enum {
    PARKED_MS = 30000,
    TOKEN_MILLI = 1000,
    HELD_MAX_MS = 60000, /* then one asks again: an answer may name a year */
};

/* What was sent and is not unclear was refused. */
enum sg_outcome call_outcome(const struct vercel_call *call)
{
    if (call->unclear)
        return SG_OUTCOME_UNKNOWN;
    return call->sent ? SG_NOT_STARTED : SG_NOT_SENT;
}

/* ---- who waits ---- */

static void wait_in(struct vercel_call *call, enum call_place place, struct vercel_call_list *list)
{
    call->state = CALL_WAITING;
    call->place = place;
    TAILQ_INSERT_TAIL(list, call, wait_link);
}

void call_admit_leave(struct vercel_call *call)
{
    struct vercel_client *c = call->client;
    if (call->place == PLACE_PARKED) {
        TAILQ_REMOVE(&c->parked, call, wait_link);
    } else if (call->place == PLACE_LINE) {
        TAILQ_REMOVE(&c->lines[call->line], call, wait_link);
        c->line_units[call->line] -= call->line == QUOTA_REQUESTS ? 1 : call->units;
    }
    call->place = PLACE_NONE;
    breaker_dropped(&c->breaker, call->probe);
    call->probe = false;
}

/* ---- the token ---- */

static enum sg_code expired(const struct vercel_call *call, struct sg_error *e)
{
    char when[SG_TIME_TEXT];
    sg_time_format(call->client->auth->expires_ms, when);
    return sg_fail(e, SG_E_UPSTREAM_AUTH, call_outcome(call),
                   "The gateway's upstream token expired at %s and was not replaced.", when);
}

static void on_parked_too_long(void *arg)
{
    struct vercel_call *call = arg;
    struct sg_error e;
    if (vercel_auth_expired(call->client->auth))
        (void)expired(call, &e);
    else
        (void)sg_fail(&e, SG_E_UPSTREAM_AUTH, call_outcome(call),
                      "The upstream refused the gateway's token, and no new one came in time.");
    call_finish(call, &e);
}

bool call_park(struct vercel_call *call)
{
    struct vercel_client *c = call->client;
    if (!c->auth_source.wanted)
        return false;
    if (!call->parked_timer)
        call->parked_timer = sg_timer_new(c->loop, on_parked_too_long, call);
    if (!call->parked_timer)
        return false;
    int64_t left = call->deadline ? call->deadline - sg_mono_ms() : PARKED_MS;
    sg_timer_start(call->parked_timer, (uint64_t)(left < 1 ? 1 : left < PARKED_MS ? left : PARKED_MS));
    wait_in(call, PLACE_PARKED, &c->parked);
    if (!c->auth_wanted) {
        c->auth_wanted = true;
        c->auth_source.wanted(c->auth_source.arg);
    }
    return true;
}

static size_t parked(const struct vercel_client *c)
{
    size_t n = 0;
    const struct vercel_call *call;
    TAILQ_FOREACH(call, &c->parked, wait_link)
    n++;
    return n;
}

void vercel_client_set_auth_source(struct vercel_client *c, const struct vercel_auth_source *s)
{
    c->auth_source = *s;
}

enum sg_code vercel_client_set_token(struct vercel_client *c, const struct sg_secret *token,
                                     int64_t expires_ms, struct sg_error *e)
{
    struct vercel_auth *a = vercel_auth_new(token, expires_ms);
    if (!a)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the upstream token");
    vercel_auth_unref(c->auth);
    c->auth = a;
    c->auth_wanted = false;
    for (size_t n = parked(c); n && !TAILQ_EMPTY(&c->parked); n--) { /* an end may begin or cancel others */
        struct vercel_call *call = TAILQ_FIRST(&c->parked);
        call_admit_leave(call);
        sg_timer_stop(call->parked_timer);
        call_go_or_fail(call);
    }
    return SG_OK;
}

void vercel_client_no_token(struct vercel_client *c, const struct sg_error *why)
{
    c->auth_wanted = false;
    for (size_t n = parked(c); n && !TAILQ_EMPTY(&c->parked); n--) {
        struct vercel_call *call = TAILQ_FIRST(&c->parked);
        struct sg_error e = *why;
        e.outcome = call_outcome(call);
        call_finish(call, &e);
    }
}

/* ---- the plan ---- */

static enum sg_code quota_refused(struct vercel_call *call, enum quota_kind kind, int64_t wait,
                                  struct sg_error *e)
{
    static const char *const what[] = {
        [QUOTA_REQUESTS] = "requests", [QUOTA_VCPUS] = "new virtual CPUs", [QUOTA_DELETES] = "deletions"};
    (void)sg_fail(e, SG_E_UPSTREAM_RATE_LIMITED, call_outcome(call),
                  "What the upstream allows of %s in a time is used up.", what[kind]);
    e->retry_after_ms = wait;
    return e->code;
}

static void start_line_timer(struct vercel_client *c, int64_t ms)
{
    if (!sg_timer_active(c->line_timer) || ms < c->line_due_ms - sg_mono_ms()) {
        c->line_due_ms = sg_mono_ms() + ms;
        sg_timer_start(c->line_timer, (uint64_t)ms);
    }
}

static int64_t latest(const struct vercel_call *call)
{
    return call->deadline && call->deadline < call->retry_until ? call->deadline : call->retry_until;
}

/* SG_OK with *now false: it waits in line. */
static enum sg_code pass(struct vercel_call *call, enum quota_kind kind, int64_t units, bool *now,
                         struct sg_error *e)
{
    struct vercel_client *c = call->client;
    int64_t t = sg_mono_ms();
    *now = TAILQ_EMPTY(&c->lines[kind]) && quota_take(&c->quota, kind, units, t);
    if (*now)
        return SG_OK;
    int64_t wait = quota_wait(&c->quota, kind, c->line_units[kind] + units, t);
    if (t + wait > latest(call))
        return quota_refused(call, kind, wait, e);
    call->line = kind;
    c->line_units[kind] += units;
    wait_in(call, PLACE_LINE, &c->lines[kind]);
    start_line_timer(c, quota_wait(&c->quota, kind, 1, t));
    return SG_OK;
}

static enum sg_code go_on(struct vercel_call *call, struct sg_error *e);

static int64_t units_in(const struct vercel_call *call, enum quota_kind kind)
{
    return kind == QUOTA_REQUESTS ? 1 : call->units;
}

/* What was promised when they got into the line may not hold any more: a refusal closed it, or less is allowed now. */
static void refuse_late(struct vercel_client *c, enum quota_kind kind)
{
    struct vercel_call *call;
    do {
        int64_t ahead = 0, now = sg_mono_ms(), wait = 0;
        TAILQ_FOREACH(call, &c->lines[kind], wait_link)
        {
            ahead += units_in(call, kind);
            wait = quota_wait(&c->quota, kind, ahead, now);
            if (now + wait > latest(call))
                break;
        }
        if (call) {
            struct sg_error e;
            (void)quota_refused(call, kind, wait, &e);
            call_finish(call, &e); /* others may begin or end by it: from the head again */
        }
    } while (call);
}

static void serve_line(struct vercel_client *c, enum quota_kind kind)
{
    struct vercel_call *call;
    while ((call = TAILQ_FIRST(&c->lines[kind]))) {
        int64_t units = units_in(call, kind), now = sg_mono_ms();
        if (!quota_take(&c->quota, kind, units, now)) {
            refuse_late(c, kind);
            if ((call = TAILQ_FIRST(&c->lines[kind])))
                start_line_timer(c, quota_wait(&c->quota, kind, units_in(call, kind), sg_mono_ms()));
            return;
        }
        call_admit_leave(call);
        struct sg_error e;
        call->passed |= 1U << kind;
        if (go_on(call, &e))
            call_finish(call, &e);
    }
}

void call_on_line_timer(void *client)
{
    for (int kind = QUOTA_KINDS - 1; kind >= 0; kind--) /* requests last: the others go on to it */
        serve_line(client, (enum quota_kind)kind);
}

void call_told_limit(struct vercel_call *call, const struct sg_error *e)
{
    struct vercel_client *c = call->client;
    if (e->upstream_status != 429 || e->retry_after_ms <= 0)
        return;
    int64_t ms = e->retry_after_ms < HELD_MAX_MS ? e->retry_after_ms : HELD_MAX_MS;
    quota_hold(&c->quota, call->kind, sg_mono_ms() + ms);
    if (!TAILQ_EMPTY(&c->lines[call->kind]))
        start_line_timer(c, 0); /* who stands there waits longer now, or not any more */
}

/* ---- the upstream's health ---- */

static enum sg_code broken(struct vercel_call *call, int64_t wait, struct sg_error *e)
{
    struct vercel_client *c = call->client;
    (void)sg_fail(e, SG_E_UPSTREAM_UNREACHABLE, call_outcome(call),
                  "The upstream failed %lld times in a row; it is asked again soon.",
                  (long long)c->breaker.failures);
    e->retry_after_ms = wait;
    return e->code;
}

void call_heard(struct vercel_call *call, bool ok)
{
    struct breaker *b = &call->client->breaker;
    bool was = b->open;
    breaker_told(b, sg_mono_ms(), ok, call->probe);
    call->probe = false;
    if (b->open != was)
        sg_log(b->open ? SG_LOG_WARN : SG_LOG_INFO, b->open ? "upstream_down" : "upstream_up", "failures",
               "i", b->failures, NULL);
}

/* ---- all of it ---- */

static enum sg_code go_on(struct vercel_call *call, struct sg_error *e)
{
    struct vercel_client *c = call->client;
    for (int kind = QUOTA_KINDS - 1; kind >= 0; kind--) {
        bool now = true;
        bool wanted = kind == QUOTA_REQUESTS || kind == (int)call->kind;
        enum sg_code rc = SG_OK;
        if (wanted && !(call->passed & 1U << kind))
            rc = pass(call, (enum quota_kind)kind, kind == QUOTA_REQUESTS ? 1 : call->units, &now, e);
        if (rc || !now)
            return rc;
        call->passed |= 1U << kind;
    }
    int64_t wait = breaker_ask(&c->breaker, sg_mono_ms(), &call->probe);
    return wait ? broken(call, wait, e) : call_attempt_start(call, e);
}

enum sg_code call_go(struct vercel_call *call, struct sg_error *e)
{
    struct vercel_client *c = call->client;
    call->passed = 0;
    if (vercel_auth_expired(c->auth))
        return call_park(call) ? SG_OK : expired(call, e);
    int64_t wait = breaker_blocks(&c->breaker, sg_mono_ms());
    return wait ? broken(call, wait, e) : go_on(call, e);
}

void call_go_or_fail(struct vercel_call *call)
{
    struct sg_error e;
    if (call_go(call, &e))
        call_finish(call, &e);
}

/* ---- retries of all calls together ---- */

enum {
    RETRY_TOKENS = 100 * TOKEN_MILLI,
    RETRY_FOR_A_CALL = TOKEN_MILLI / 5,
    RETRY_EACH_MS = 10, /* ten a second in any case */
};

static void refill(struct vercel_client *c, int64_t more)
{
    int64_t now = sg_mono_ms();
    c->retry_tokens += more + (now - c->retry_seen_ms) * RETRY_EACH_MS;
    c->retry_seen_ms = now;
    if (c->retry_tokens > RETRY_TOKENS)
        c->retry_tokens = RETRY_TOKENS;
}

void call_retry_earn(struct vercel_client *c)
{
    refill(c, RETRY_FOR_A_CALL);
}

bool call_retry_spend(struct vercel_client *c)
{
    refill(c, 0);
    if (c->retry_tokens < TOKEN_MILLI)
        return false;
    c->retry_tokens -= TOKEN_MILLI;
    return true;
}
