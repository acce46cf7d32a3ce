#include "vercel/answer.h"
#include "vercel/impl.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    BACKOFF_MS = 250, /* doubled with each attempt, plus up to as much again */
    BACKOFF_MAX_MS = 5000,
    DISCARD_MAX = 1 << 20 /* of an unsuccessful answer's body beyond what is kept */
};

enum state {
    CALL_RUNNING, /* an attempt is with libcurl */
    CALL_WAITING, /* between attempts */
    CALL_DEAD     /* ended or cancelled; the memory goes at the end of the turn */
};

/* Why the running attempt was given up from inside a libcurl callback. */
enum stop_reason { STOP_NONE, STOP_RESEND, STOP_TOO_BIG, STOP_TYPE, STOP_SOURCE };

struct vercel_call {
    struct vt_job job; /* first: a job is cast back to its call */
    TAILQ_ENTRY(vercel_call) link;
    struct vercel_client *client;
    enum state state;

    /* the request */
    char method[12];
    struct sg_buf url;
    char *content_type, *extra_header; /* header lines */
    struct curl_slist headers[2];
    struct curl_slist *header_list;
    char *body;
    size_t body_len;
    vercel_read_fn *read;
    void (*rewind)(void *arg);
    int64_t read_size;
    char expect_type[48];
    struct vercel_meaning means;
    bool idempotent;

    /* whom it tells */
    struct vercel_events ev;
    vercel_collect_fn *collect_done; /* set: the body is collected, ev is not used */
    void *arg;
    void (*gone)(void *arg);
    void *gone_arg;

    /* time, monotonic ms */
    int64_t deadline; /* of the whole call; 0: none */
    int64_t retry_until;
    struct sg_timer *timer; /* backoff; made when first needed */

    /* the attempt */
    int attempts;
    int sends;              /* how often libcurl was about to send the request */
    curl_off_t sent_before; /* request bytes of the handle before this attempt's own (a proxy's CONNECT) */
    bool sent;              /* a byte of the request may have left */
    bool told_head;         /* on_head, or body bytes, were passed on */
    int status;
    char request_id[64];
    uint64_t read_total;
    size_t discarded;
    enum stop_reason stop;
    struct sg_buf in; /* collected body, or what an unsuccessful answer said */

    struct sg_grave grave;
};

static struct vercel_call *of_job(struct vt_job *job)
{
    return (struct vercel_call *)job;
}

/* ---- memory ---- */

static void call_free(struct vercel_call *call)
{
    sg_buf_free(&call->url);
    sg_buf_free(&call->in);
    free(call->content_type);
    free(call->extra_header);
    if (call->body) {
        explicit_bzero(call->body, call->body_len); /* environments travel in it */
        free(call->body);
    }
    free(call);
}

static void on_bury(struct sg_grave *grave)
{
    struct vercel_call *call = (struct vercel_call *)((char *)grave - offsetof(struct vercel_call, grave));
    if (call->gone)
        call->gone(call->gone_arg);
    call_free(call);
}

/* The one place where a call ends. */
static void call_die(struct vercel_call *call)
{
    struct vercel_client *c = call->client;
    call->state = CALL_DEAD;
    vt_stop(c->transport, &call->job);
    sg_timer_free(call->timer);
    call->timer = NULL;
    TAILQ_REMOVE(&c->calls, call, link);
    sg_loop_bury(c->loop, &call->grave);
}

static void call_finish(struct vercel_call *call, const struct sg_error *e)
{
    call_die(call);
    if (call->collect_done) {
        size_t len = e ? 0 : call->in.len;
        char *body = e ? NULL : sg_buf_take(&call->in, &len);
        struct sg_error oom;
        if (!e && !body) {
            (void)sg_fail(&oom, SG_E_OUT_OF_MEMORY, SG_OUTCOME_UNKNOWN,
                          "No memory for the upstream's answer.");
            e = &oom;
        }
        call->collect_done(call->arg, &body, len, e);
        free(body);
    } else if (call->ev.on_done) {
        call->ev.on_done(call->arg, e);
    }
}

/* ---- libcurl's callbacks ---- */

static bool ok_status(const struct vercel_call *call)
{
    return call->status >= 200 && call->status <= 299;
}

static bool type_fits(const char *have, const char *want)
{
    size_t n = strlen(want);
    return have && !strncasecmp(have, want, n) && (have[n] == '\0' || have[n] == ';' || have[n] == ' ');
}

/* The blank line after a head.  False ends the attempt. */
static bool head_complete(struct vercel_call *call)
{
    long status = 0;
    char *type = NULL;
    curl_off_t length = -1;
    (void)curl_easy_getinfo(call->job.easy, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200 || call->status) /* 1xx; or trailers after the body */
        return true;
    call->status = (int)status;
    if (!ok_status(call))
        return true;
    (void)curl_easy_getinfo(call->job.easy, CURLINFO_CONTENT_TYPE, &type);
    if (call->expect_type[0] && !type_fits(type, call->expect_type)) {
        call->stop = STOP_TYPE;
        return false;
    }
    if (call->collect_done)
        return true;
    (void)curl_easy_getinfo(call->job.easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    call->told_head = true;
    if (call->ev.on_head)
        call->ev.on_head(call->arg, call->status, type, length);
    return call->state != CALL_DEAD;
}

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
    static const char name[] = "x-vercel-id:";
    struct vercel_call *call = arg;
    size_t len = size * n;
    if (call->state == CALL_DEAD)
        return 0;
    if (len > sizeof name && !strncasecmp(p, name, sizeof name - 1)) {
        const char *v = p + sizeof name - 1;
        const char *end = p + len;
        while (v < end && (*v == ' ' || *v == '\t'))
            v++;
        while (end > v && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' '))
            end--;
        vercel_keep_request_id(call->request_id, v, (size_t)(end - v));
    }
    bool blank = (len == 2 && p[0] == '\r' && p[1] == '\n') || (len == 1 && p[0] == '\n');
    return !blank || head_complete(call) ? len : 0;
}

/* The body of an unsuccessful answer: its beginning is kept for the error. */
static bool keep_refusal(struct vercel_call *call, const char *p, size_t len)
{
    if (call->discarded || call->in.len + len > VERCEL_ERROR_BODY_MAX) {
        call->discarded += len;
        return call->discarded <= DISCARD_MAX;
    }
    return sg_buf_add(&call->in, p, len);
}

static size_t on_write(char *p, size_t size, size_t n, void *arg)
{
    struct vercel_call *call = arg;
    size_t len = size * n;
    if (call->state == CALL_DEAD)
        return 0;
    if (len == 0)
        return 0;
    if (!ok_status(call))
        return keep_refusal(call, p, len) ? len : 0;
    if (call->collect_done) {
        if (sg_buf_add(&call->in, p, len))
            return len;
        call->stop = STOP_TOO_BIG;
        return 0;
    }
    call->told_head = true;
    if (call->ev.on_data && !call->ev.on_data(call->arg, p, len))
        return call->state == CALL_DEAD ? 0 : (size_t)CURL_WRITEFUNC_PAUSE;
    return call->state == CALL_DEAD ? 0 : len;
}

static size_t on_read(char *buf, size_t size, size_t n, void *arg)
{
    struct vercel_call *call = arg;
    size_t cap = size * n;
    if (call->state == CALL_DEAD || !call->read)
        return CURL_READFUNC_ABORT;
    size_t got = call->read(call->arg, buf, cap);
    if (call->state == CALL_DEAD)
        return CURL_READFUNC_ABORT;
    if (got == VERCEL_READ_PAUSE)
        return CURL_READFUNC_PAUSE;
    bool sized = call->read_size >= 0;
    uint64_t left = sized ? (uint64_t)call->read_size - call->read_total : UINT64_MAX;
    if (got == VERCEL_READ_ABORT || got > cap || got > left || (got == 0 && sized && left)) {
        call->stop = STOP_SOURCE;
        return CURL_READFUNC_ABORT;
    }
    call->read_total += got;
    return got;
}

/* Called each time before libcurl sends the request on a connection.  It would send it again by itself when a
 * kept-alive connection died before the first byte of the answer: not once a byte may have arrived. */
static int on_prereq(void *arg, char *ip, char *local_ip, int port, int local_port)
{
    (void)ip;
    (void)local_ip;
    (void)port;
    (void)local_port;
    struct vercel_call *call = arg;
    curl_off_t size = 0;
    long request_size = 0;
    if (call->state == CALL_DEAD)
        return CURL_PREREQFUNC_ABORT;
    (void)curl_easy_getinfo(call->job.easy, CURLINFO_REQUEST_SIZE, &request_size);
    size = request_size;
    if (call->sends++ == 0) {
        call->sent_before = size;
        atomic_fetch_add(&call->client->attempts, 1);
        return CURL_PREREQFUNC_OK;
    }
    if (size == call->sent_before && !call->read)
        return CURL_PREREQFUNC_OK;
    call->stop = STOP_RESEND;
    return CURL_PREREQFUNC_ABORT;
}

/* ---- attempts ---- */

static bool set_body(struct vercel_call *call, CURL *h)
{
    bool get = !strcmp(call->method, "GET");
    bool post = !strcmp(call->method, "POST");
    bool has_body = call->body || call->read || post;
    bool ok = true;
#define SET(opt, value) ok = ok && curl_easy_setopt(h, opt, value) == CURLE_OK
    SET(CURLOPT_CUSTOMREQUEST, get || post ? NULL : call->method);
    if (has_body) {
        SET(CURLOPT_POST, 1L);
        SET(CURLOPT_POSTFIELDS, call->read ? NULL : call->body ? call->body : "");
        SET(CURLOPT_POSTFIELDSIZE_LARGE,
            call->read ? (curl_off_t)call->read_size : (curl_off_t)call->body_len);
        SET(CURLOPT_READFUNCTION, on_read);
        SET(CURLOPT_READDATA, call);
    } else {
        SET(CURLOPT_POSTFIELDS, NULL);
        SET(CURLOPT_HTTPGET, 1L);
    }
#undef SET
    return ok;
}

static bool set_up(struct vercel_call *call, CURL *h)
{
    long left = 0;
    if (call->deadline) {
        int64_t ms = call->deadline - sg_mono_ms();
        left = ms > 1 ? (long)ms : 1;
    }
    bool ok = set_body(call, h);
#define SET(opt, value) ok = ok && curl_easy_setopt(h, opt, value) == CURLE_OK
    SET(CURLOPT_URL, call->url.data);
    SET(CURLOPT_HTTPHEADER, call->header_list);
    SET(CURLOPT_TIMEOUT_MS, left);
    SET(CURLOPT_FRESH_CONNECT, call->attempts > 0 ? 1L : 0L); /* the kept ones may all be dead */
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, call);
    SET(CURLOPT_WRITEFUNCTION, on_write);
    SET(CURLOPT_WRITEDATA, call);
    SET(CURLOPT_PREREQFUNCTION, on_prereq);
    SET(CURLOPT_PREREQDATA, call);
#undef SET
    return ok;
}

static enum sg_code attempt_start(struct vercel_call *call, struct sg_error *e)
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
    if (!set_up(call, h))
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
    return sg_fail(e, SG_E_OUT_OF_MEMORY, call->sent ? SG_OUTCOME_UNKNOWN : SG_NOT_SENT,
                   "No memory for the call to the upstream.");
}

static void on_backoff(void *arg)
{
    struct vercel_call *call = arg;
    struct sg_error e;
    if (attempt_start(call, &e) != SG_OK)
        call_finish(call, &e);
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
        call->timer = sg_timer_new(call->client->loop, on_backoff, call);
    if (!call->timer)
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
    if (call->status && !ok_status(call)) {
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

static void on_attempt_done(struct vt_job *job, CURL *h, CURLcode result)
{
    struct vercel_call *call = of_job(job);
    long request_size = 0;
    if (call->state == CALL_DEAD)
        return;
    (void)curl_easy_getinfo(h, CURLINFO_REQUEST_SIZE, &request_size);
    if (call->sends > 0 && request_size > call->sent_before)
        call->sent = true;
    (void)curl_easy_setopt(h, CURLOPT_HTTPHEADER, NULL); /* the call's own memory */
    (void)curl_easy_setopt(h, CURLOPT_POSTFIELDS, NULL);
    if (result == CURLE_OK && ok_status(call)) {
        call_finish(call, NULL);
        return;
    }
    struct sg_error e;
    explain(call, h, result == CURLE_OK && !call->status ? CURLE_GOT_NOTHING : result, &e);
    if (!try_again(call, &e, tls_fault(result)))
        call_finish(call, &e);
}

/* ---- making a call ---- */

static char *header_line(const char *name, const char *value)
{
    size_t n = strlen(name) + strlen(value) + 1;
    char *s = malloc(n);
    if (s)
        (void)snprintf(s, n, "%s%s", name, value);
    return s;
}

static bool copy_headers(struct vercel_call *call, const struct vercel_request *r)
{
    struct curl_slist *tail = call->client->common_headers;
    call->content_type =
        header_line("Content-Type: ", r->content_type ? r->content_type : "application/json");
    if (!call->content_type)
        return false;
    call->headers[0] = (struct curl_slist){call->content_type, tail};
    call->header_list = &call->headers[0];
    if (r->extra_header) {
        call->extra_header = strdup(r->extra_header);
        if (!call->extra_header)
            return false;
        call->headers[1] = (struct curl_slist){call->extra_header, call->header_list};
        call->header_list = &call->headers[1];
    }
    return true;
}

static bool copy_body(struct vercel_call *call, const struct vercel_request *r)
{
    if (!r->body)
        return true;
    call->body = malloc(r->body_len + 1);
    if (!call->body)
        return false;
    memcpy(call->body, r->body, r->body_len);
    call->body[r->body_len] = '\0';
    call->body_len = r->body_len;
    return true;
}

static bool build_url(struct vercel_call *call, const struct vercel_request *r)
{
    const struct vercel_client *c = call->client;
    sg_buf_init(&call->url, VERCEL_URL_MAX);
    bool ok = sg_buf_adds(&call->url, c->base_url) && sg_buf_adds(&call->url, r->path);
    if (ok && c->team_query)
        ok = sg_buf_adds(&call->url, "?") && sg_buf_adds(&call->url, c->team_query);
    if (ok && r->query && *r->query)
        ok = sg_buf_adds(&call->url, c->team_query ? "&" : "?") && sg_buf_adds(&call->url, r->query);
    return ok;
}

static enum vt_class class_of(enum vercel_class class)
{
    switch (class) {
    case VERCEL_LOGS:
        return VT_LOGS;
    case VERCEL_BULK:
        return VT_BULK;
    case VERCEL_CONTROL:
    default:
        return VT_CONTROL;
    }
}

static struct vercel_call *call_new(struct vercel_client *c, const struct vercel_request *r)
{
    struct vercel_call *call = calloc(1, sizeof *call);
    if (!call)
        return NULL;
    call->client = c;
    call->job.class = class_of(r->class);
    call->job.done = on_attempt_done;
    call->grave.fn = on_bury;
    call->read = r->read;
    call->rewind = r->rewind;
    call->read_size = r->read_size;
    call->means = r->means;
    call->idempotent = r->idempotent;
    sg_buf_init(&call->in, VERCEL_JSON_MAX);
    (void)snprintf(call->method, sizeof call->method, "%s", r->method);
    (void)snprintf(call->expect_type, sizeof call->expect_type, "%s", r->expect_type ? r->expect_type : "");
    int64_t now = sg_mono_ms();
    int64_t timeout = r->timeout_ms ? r->timeout_ms : c->timeout_ms;
    call->deadline = timeout > 0 ? now + timeout : 0;
    call->retry_until = now + c->retry_budget_ms;
    if (!build_url(call, r) || !copy_headers(call, r) || !copy_body(call, r)) {
        call_free(call);
        return NULL;
    }
    return call;
}

static struct vercel_call *start(struct vercel_client *c, const struct vercel_request *r,
                                 const struct vercel_events *ev, vercel_collect_fn *collect, void *arg,
                                 struct sg_error *e)
{
    if (c->closing) {
        (void)sg_fail(e, SG_E_UPSTREAM_UNREACHABLE, SG_NOT_SENT, "The gateway is shutting down.");
        return NULL;
    }
    if (strlen(c->base_url) + strlen(r->path) + (r->query ? strlen(r->query) : 0) > VERCEL_URL_MAX / 2) {
        (void)sg_fail(e, SG_E_URI_TOO_LONG, SG_NOT_SENT, "The request to the upstream would be too long.");
        return NULL;
    }
    struct vercel_call *call = call_new(c, r);
    if (!call) {
        (void)sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "No memory for the call to the upstream.");
        return NULL;
    }
    if (ev)
        call->ev = *ev;
    call->collect_done = collect;
    call->arg = arg;
    if (attempt_start(call, e) != SG_OK) {
        call_free(call);
        return NULL;
    }
    TAILQ_INSERT_TAIL(&c->calls, call, link);
    return call;
}

struct vercel_call *vercel_call_start(struct vercel_client *c, const struct vercel_request *r,
                                      const struct vercel_events *ev, void *arg, struct sg_error *e)
{
    return start(c, r, ev, NULL, arg, e);
}

struct vercel_call *vercel_collect_start(struct vercel_client *c, const struct vercel_request *r,
                                         vercel_collect_fn *done, void *arg, struct sg_error *e)
{
    return start(c, r, NULL, done, arg, e);
}

void vercel_call_resume(struct vercel_call *call)
{
    if (call->state == CALL_RUNNING)
        vt_resume(call->client->transport, &call->job);
}

void vercel_call_cancel(struct vercel_call *call)
{
    if (call->state == CALL_DEAD)
        return;
    call_die(call);
}

void vercel_call_on_gone(struct vercel_call *call, void (*gone)(void *arg), void *arg)
{
    call->gone = gone;
    call->gone_arg = arg;
}

struct vercel_client *vercel_call_client(struct vercel_call *call)
{
    return call->client;
}

const char *vercel_call_request_id(const struct vercel_call *call)
{
    return call->request_id;
}

/* The client goes: every call ends. */
void vercel_call_end_all(struct vercel_client *c)
{
    struct vercel_call *call;
    while ((call = TAILQ_FIRST(&c->calls))) {
        long size = 0;
        if (call->job.easy)
            (void)curl_easy_getinfo(call->job.easy, CURLINFO_REQUEST_SIZE, &size);
        bool sent = call->sent || (call->sends > 0 && size > call->sent_before);
        struct sg_error e;
        (void)sg_fail(&e, SG_E_UPSTREAM_UNREACHABLE, sent ? SG_OUTCOME_UNKNOWN : SG_NOT_SENT,
                      "The gateway is shutting down.");
        call_finish(call, &e);
    }
}
