#include "vercel/answer.h"
#include "vercel/call.h"

#include "base/clock.h"
#include "base/log.h"

#include <string.h>

enum {
    BACKOFF_MS = 250, /* doubled with each attempt, plus up to as much again */
    BACKOFF_MAX_MS = 5000
};

static struct vercel_call *of_job(struct vt_job *job)
{
    return (struct vercel_call *)job;
}

enum sg_code call_attempt_start(struct vercel_call *call, struct sg_error *e)
{
    struct vt *t = call->client->transport;
    CURL *h = vt_easy(t, call->job.class);
    if (!h)
        goto oom;
    call->sends = 0;
    call->sent_before = 0;
    call->status = 0;
    call->read_total = 0;
    call->discarded = 0;
    call->stop = STOP_NONE;
    call->request_id[0] = '\0';
    sg_buf_reset(&call->in);
    if (call->attempts > 0 && call->rewind)
        call->rewind(call->arg);
    if (!call_request_set(call, h) || !call_receive_set(call, h))
        goto oom;
    call->job.easy = h;
    call->state = CALL_RUNNING;
    call->attempts++;
    if (vt_start(t, &call->job))
        return SG_OK;
    call->job.easy = NULL;
oom:
    if (h)
        vt_easy_release(t, call->job.class, h);
    return sg_fail(e, SG_E_OUT_OF_MEMORY, call_outcome(call), "No memory for the call to the upstream.");
}

void call_on_timer(void *arg)
{
    struct vercel_call *call = arg;
    if (call->refused) {
        struct sg_error e = *call->refused;
        call_finish(call, &e);
    } else {
        call_go_or_fail(call);
    }
}

/* How long to wait before the next attempt; -1: there is none. */
static int64_t backoff(const struct vercel_call *call, const struct sg_error *e)
{
    int64_t ms = (int64_t)BACKOFF_MS << (call->attempts < 8 ? call->attempts - 1 : 7);
    if (ms > BACKOFF_MAX_MS)
        ms = BACKOFF_MAX_MS;
    unsigned char r[2] = {0, 0};
    if (sg_random(r, sizeof r))
        ms += ms * (r[0] << 8 | r[1]) / 65536;
    if (call->stop == STOP_RESEND && call->attempts == 1)
        ms = 0; /* a kept connection had just died: nothing says the upstream is in trouble */
    if (e->retry_after_ms >= 0 && ms < e->retry_after_ms + 1)
        ms = e->retry_after_ms + 1;
    int64_t then = sg_mono_ms() + ms;
    if (then > call->retry_until || (call->deadline && then >= call->deadline))
        return -1;
    return ms;
}

static bool transient(const struct sg_error *e)
{
    switch ((int)e->code) {
    case SG_E_UPSTREAM_UNREACHABLE:
    case SG_E_UPSTREAM_UNAVAILABLE:
    case SG_E_UPSTREAM_RATE_LIMITED:
        return true;
    case SG_E_UPSTREAM_BAD_RESPONSE: /* a gateway's error page, or an answer cut in the middle */
        return e->upstream_status >= 500 || e->upstream_status == 0;
    default:
        return false;
    }
}

static bool try_again(struct vercel_call *call, const struct sg_error *e, bool hopeless)
{
    if (hopeless || call->told_head || call->attempts > call->client->retries || !transient(e))
        return false;
    if (call->sent && !call->idempotent)
        return false;
    if (call->read && !call->rewind)
        return false;
    int64_t ms = backoff(call, e);
    if (ms < 0)
        return false;
    if (!call->timer)
        call->timer = sg_timer_new(call->client->loop, call_on_timer, call);
    if (!call->timer || !call_retry_spend(call->client))
        return false;
    call->state = CALL_WAITING;
    sg_log(SG_LOG_DEBUG, "upstream_retry", "attempt", "i", (int64_t)call->attempts, "wait_ms", "i", ms,
           "error", "e", e, NULL);
    sg_timer_start(call->timer, (uint64_t)ms);
    return true;
}

static bool tls_fault(CURLcode result)
{
    return result == CURLE_PEER_FAILED_VERIFICATION || result == CURLE_SSL_CACERT_BADFILE ||
           result == CURLE_SSL_ISSUER_ERROR || result == CURLE_SSL_CIPHER || result == CURLE_SSL_CERTPROBLEM;
}

/* An attempt that ended without a complete answer. */
static void explain_cut(const struct vercel_call *call, CURLcode result, struct sg_error *e)
{
    enum sg_outcome outcome = call->sent ? SG_OUTCOME_UNKNOWN : SG_NOT_SENT;
    if (call->stop == STOP_SOURCE)
        (void)sg_fail(e, SG_E_BAD_REQUEST, outcome, "The body ended early, late or was given up.");
    else if (call->stop == STOP_RESEND)
        (void)sg_fail(e, SG_E_UPSTREAM_UNREACHABLE, outcome,
                      "The upstream closed the connection without an answer.");
    else if (result == CURLE_OUT_OF_MEMORY)
        (void)sg_fail(e, SG_E_OUT_OF_MEMORY, outcome, "No memory for the call to the upstream.");
    else if (result == CURLE_OPERATION_TIMEDOUT && call->sent)
        (void)sg_fail(e, SG_E_UPSTREAM_TIMEOUT, outcome, "The upstream did not answer in time.");
    else if (result == CURLE_PARTIAL_FILE && call->collect_done)
        (void)sg_fail(e, SG_E_UPSTREAM_BAD_RESPONSE, outcome, "The upstream's answer was cut.");
    else
        (void)sg_fail(e, SG_E_UPSTREAM_UNREACHABLE, outcome, "The upstream cannot be reached: %s.",
                      curl_easy_strerror(result));
}

static void explain(struct vercel_call *call, CURL *h, CURLcode result, struct sg_error *e)
{
    char *type = NULL;
    curl_off_t retry_after = 0;
    /* A refusal is an answer even when the connection broke after it. */
    if (call->status && !call_ok_status(call)) {
        (void)curl_easy_getinfo(h, CURLINFO_CONTENT_TYPE, &type);
        (void)curl_easy_getinfo(h, CURLINFO_RETRY_AFTER, &retry_after);
        struct vercel_answer a = {
            .status = call->status,
            .content_type = type,
            .body = call->in.data,
            .len = call->in.len,
            .complete = result == CURLE_OK && !call->discarded,
            .retry_after_ms =
                retry_after > 0 && retry_after < 86400L * 365 ? (int64_t)retry_after * 1000 : -1,
            .request_id = call->request_id,
            .means = call->means,
        };
        (void)vercel_answer_error(&a, e);
    } else if (call->stop == STOP_TYPE) {
        (void)vercel_bad_answer(call->status, call->request_id, "has an unexpected content type", e);
    } else if (call->stop == STOP_TOO_BIG) {
        (void)vercel_bad_answer(call->status, call->request_id, "is too large", e);
    } else {
        explain_cut(call, result, e);
        vercel_keep_request_id(e->upstream_request_id, call->request_id, strlen(call->request_id));
    }
}

/* What a failed attempt says of the upstream's health: a failed control call, and one of any kind that could not even connect.
 * What befalls one session's streams or files says nothing of the whole. */
static void hear(struct vercel_call *call, CURLcode result)
{
    bool ours = call->stop == STOP_SOURCE || result == CURLE_OUT_OF_MEMORY;
    bool control = call->job.class == VT_CONTROL;
    if (call->status ? call->status >= 500 && control : !ours && (control || !call->sent))
        call_heard(call, false);
    else
        call_admit_leave(call);
}

/* The token was refused: with another one it may be taken.  Whatever the call is, nothing of it has begun. */
static bool renew_token(struct vercel_call *call, const struct sg_error *e)
{
    if (e->code != SG_E_UPSTREAM_AUTH || !e->upstream_status || call->asked_for_token || call->told_head ||
        (call->read && !call->rewind))
        return false;
    call->asked_for_token = true;
    if (call->auth == call->client->auth)
        return call_park(call);
    call_go_or_fail(call); /* there is a new one already */
    return true;
}

static bool was_sent(const struct vercel_call *call, CURL *h)
{
    long size = 0;
    if (h)
        (void)curl_easy_getinfo(h, CURLINFO_REQUEST_SIZE, &size);
    return call->sent || (call->sends > 0 && size > call->sent_before);
}

bool call_was_sent(const struct vercel_call *call)
{
    return was_sent(call, call->job.easy);
}

void call_attempt_done(struct vt_job *job, CURL *h, CURLcode result)
{
    struct vercel_call *call = of_job(job);
    if (call->state == CALL_DEAD)
        return;
    call->sent = was_sent(call, h);
    (void)curl_easy_setopt(h, CURLOPT_HTTPHEADER, NULL); /* the call's own memory */
    (void)curl_easy_setopt(h, CURLOPT_POSTFIELDS, NULL);
    if (result == CURLE_OK && call_ok_status(call)) {
        call_finish(call, NULL);
        return;
    }
    struct sg_error e;
    explain(call, h, result == CURLE_OK && !call->status ? CURLE_GOT_NOTHING : result, &e);
    if (call->unclear && e.outcome != SG_FINISHED)
        e.outcome = SG_OUTCOME_UNKNOWN;
    if (e.outcome == SG_OUTCOME_UNKNOWN && strcmp(call->method, "GET") != 0)
        call->unclear = true;
    hear(call, result);
    call_told_limit(call, &e);
    if (!renew_token(call, &e) && !try_again(call, &e, tls_fault(result)))
        call_finish(call, &e);
}
