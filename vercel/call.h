/* Private to vercel/call*.c: one call from its request to its end.  Loop thread.
 *
 * call.c          a call's life: made, told, ended, freed
 * call_request.c  what is sent: the request's copy, and how libcurl is told of it
 * call_receive.c  what libcurl tells while an attempt runs
 * call_attempt.c  attempts: begun, judged, made again
 */
#ifndef SG_VERCEL_CALL_H
#define SG_VERCEL_CALL_H

#include "vercel/auth.h"
#include "vercel/impl.h"

#include "base/buf.h"

enum state {
    CALL_RUNNING, /* an attempt is with libcurl */
    CALL_WAITING, /* between attempts */
    CALL_DEAD     /* ended or cancelled; the memory goes at the end of the turn */
};

/* Where a waiting call waits; otherwise for its timer. */
enum call_place { PLACE_NONE, PLACE_LINE, PLACE_PARKED };

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
    enum quota_kind kind; /* what it spends besides a request, and how much of it */
    int64_t units;
    struct vercel_auth *auth; /* of the newest attempt */

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

    /* until it may go (call_admit.c) */
    enum call_place place;
    TAILQ_ENTRY(vercel_call) wait_link;
    enum quota_kind line; /* PLACE_LINE: in which */
    unsigned passed;      /* of this attempt: kinds of quota it has */
    struct sg_timer *parked_timer;
    struct sg_error *refused; /* told by the timer: nothing is told before it was returned to its maker */
    bool probe;               /* its answer decides whether the upstream is well */
    bool asked_for_token;     /* it was refused once, and waited for another token */

    /* the attempt */
    int attempts;
    int sends;              /* how often libcurl was about to send the request */
    curl_off_t sent_before; /* request bytes of the handle before this attempt's own (a proxy's CONNECT) */
    bool sent;              /* a byte of the request may have left */
    bool unclear; /* an attempt before this one may have acted: what a later one is told does not undo that */
    bool told_head; /* on_head, or body bytes, were passed on */
    int status;
    char request_id[64];
    uint64_t read_total;
    size_t discarded;
    enum stop_reason stop;
    struct sg_buf in; /* collected body, or what an unsuccessful answer said */

    struct sg_grave grave;
};

/* ---- call.c ---- */
/* The one way to an end that is told.  e NULL: a complete 2xx answer. */
void call_finish(struct vercel_call *call, const struct sg_error *e);

/* ---- call_request.c ---- */
/* Copies what is to be sent; false when out of memory, with call_request_free left to do. */
bool call_request_copy(struct vercel_call *call, const struct vercel_request *r);
void call_request_free(struct vercel_call *call);
/* Tells libcurl what this attempt sends. */
bool call_request_set(struct vercel_call *call, CURL *h);

/* ---- call_receive.c ---- */
bool call_ok_status(const struct vercel_call *call);
/* The callbacks of an attempt, for all it receives and for a body that is streamed. */
bool call_receive_set(struct vercel_call *call, CURL *h);

/* ---- call_admit.c ---- */
/* The next attempt, now or when its turn has come.  Refused: nothing was begun. */
SG_MUST_CHECK enum sg_code call_go(struct vercel_call *call, struct sg_error *e);
void call_go_or_fail(struct vercel_call *call);
/* Out of the line, and no probe any more; idempotent. */
void call_admit_leave(struct vercel_call *call);
/* Waits for another token; false: there will be none. */
bool call_park(struct vercel_call *call);
void call_on_line_timer(void *client);
/* The upstream answered, or failed to. */
void call_heard(struct vercel_call *call, bool ok);
/* What is known when nothing is under way. */
enum sg_outcome call_outcome(const struct vercel_call *call);
/* Keeps others from asking before the time that a refusal named. */
void call_told_limit(struct vercel_call *call, const struct sg_error *e);
/* Each call earns a part of a retry for all; false: there are none left. */
void call_retry_earn(struct vercel_client *c);
bool call_retry_spend(struct vercel_client *c);

/* ---- call_attempt.c ---- */
/* Begins an attempt that was admitted.  Nothing was begun when it fails. */
SG_MUST_CHECK enum sg_code call_attempt_start(struct vercel_call *call, struct sg_error *e);
/* A byte of the request may have left, with this attempt or one before. */
bool call_was_sent(const struct vercel_call *call);
/* Goes on when the timer is due: the next attempt, or the refusal. */
void call_on_timer(void *call);
/* As vt_job.done. */
void call_attempt_done(struct vt_job *job, CURL *h, CURLcode result);

#endif
