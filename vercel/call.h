/* Private to vercel/call*.c: one call from its request to its end.  Loop thread.
 *
 * call.c          a call's life: made, told, ended, freed
 * call_request.c  what is sent: the request's copy, and how libcurl is told of it
 * call_receive.c  what libcurl tells while an attempt runs
 * call_attempt.c  attempts: begun, judged, made again
 */
#ifndef SG_VERCEL_CALL_H
#define SG_VERCEL_CALL_H

#include "vercel/impl.h"

#include "base/buf.h"

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

/* ---- call_attempt.c ---- */
/* The next attempt.  Nothing was begun when it fails. */
SG_MUST_CHECK enum sg_code call_attempt_start(struct vercel_call *call, struct sg_error *e);
/* A byte of the request may have left, with this attempt or one before. */
bool call_was_sent(const struct vercel_call *call);
/* As vt_job.done. */
void call_attempt_done(struct vt_job *job, CURL *h, CURLcode result);

#endif
