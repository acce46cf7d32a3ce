/* One upstream: Vercel's Sandbox API at a base URL, with one set of credentials.
 *
 * The client lives on one loop.  Asynchronous calls are made on the loop's thread and answer there; the
 * blocking forms (vercel_wait_json and the typed functions over it) are for worker threads: they post to the
 * loop and wait.
 *
 * Retries (the only place that retries): a request is sent again only when that is safe — `idempotent`, or
 * proven not to have left — honouring Retry-After, with exponential backoff, jitter, and at most
 * config.retries more attempts within config.retry_budget_ms; all calls together retry at most a fifth as often as they
 * are made, and some. Before each attempt, call_admit.c: the token must be good, the upstream not known to be down
 * (breaker.h), and the plan's limits not used up (quota.h: who fits within the retry budget waits in line).  A POST that is not idempotent is never sent
 * twice once a byte left. `outcome` in an error says what is known: not_sent (no byte left), not_started (the
 * upstream refused: 4xx), unknown (bytes left, no valid answer, or 5xx).
 */
#ifndef SG_VERCEL_CLIENT_H
#define SG_VERCEL_CLIENT_H

#include "base/crypto.h"
#include "base/error.h"
#include "base/loop.h"
#include "vercel/quota.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vercel_config {
    const char *base_url;    /* e.g. https://vercel.com/api; http:// is allowed; no trailing slash needed */
    const char *team_id;     /* sent as teamId; NULL: not sent (OIDC tokens know it) */
    const char *project_id;  /* NULL: not sent */
    const char *proxy;       /* HTTP(S) proxy URL; NULL: none, whatever the environment says */
    const char *ca_bundle;   /* PEM file; NULL: the system's */
    struct sg_secret *token; /* taken over */
    int64_t connect_timeout_ms; /* 0: 5000 */
    int64_t timeout_ms;         /* whole control call, 0: 30000; stop and resume get 10 minutes */
    int64_t create_timeout_ms;  /* of a call that allocates; 0: 10 minutes */
    int64_t token_expires_ms;   /* wall clock; 0: not known.  Never sent afterwards */
    const char *plan;         /* "hobby", "pro", "enterprise": its limits are kept; NULL, others: not known */
    int64_t plan_percent;     /* the share of it that is this gateway's; 0: 100 */
    int64_t breaker_failures; /* in a row, until the upstream counts as down; 0: never */
    int retries;              /* further attempts, default 2 when negative */
    int64_t retry_budget_ms;  /* 0: 10000 */
};

struct vercel_client;
struct vercel_auth_source { /* who can get another token */
    /* Loop thread: the one in force was refused, or has expired.  At most once until vercel_client_set_token or
     * vercel_client_no_token, either of which must follow. */
    void (*wanted)(void *arg);
    void *arg;
};

/* Copies the strings.  Needs curl_global_init done.  INVALID_FIELD for an unusable URL or CA file. */
SG_MUST_CHECK enum sg_code vercel_client_new(struct sg_loop *loop, const struct vercel_config *config,
                                             struct vercel_client **out, struct sg_error *e);
/* Loop thread, not inside a callback of a call; every call in flight ends with UPSTREAM_UNREACHABLE first
 * (outcome as known), also those that other threads wait for.  None may be begun afterwards. */
void vercel_client_free(struct vercel_client *c);
/* How long a call that allocates takes at the most. */
int64_t vercel_create_timeout_ms(const struct vercel_client *c);
/* Loop thread.  Calls that find no good token wait for another one, half a minute at most. */
void vercel_client_set_auth_source(struct vercel_client *c, const struct vercel_auth_source *s);
/* The token from now on (borrowed); what is under way goes on with the one it was begun with. */
SG_MUST_CHECK enum sg_code vercel_client_set_token(struct vercel_client *c, const struct sg_secret *token,
                                                   int64_t expires_ms, struct sg_error *e);
/* There is none to be had now: who waits for it fails with why. */
void vercel_client_no_token(struct vercel_client *c, const struct sg_error *why);
/* The first half of that: calls end and none begins any more, so that nobody waits for them; the client stays. */
void vercel_client_hurry(struct vercel_client *c);
const char *vercel_project_id(const struct vercel_client *c); /* NULL when not set */

/* ---- the general call ---- */

enum vercel_class {
    VERCEL_CONTROL, /* short JSON */
    VERCEL_LOGS,    /* long NDJSON streams */
    VERCEL_BULK     /* file bodies; HTTP/1.1 only */
};

/* Where a streamed request body comes from.  Fills buf with at most cap bytes; 0 is the end,
 * VERCEL_READ_PAUSE means nothing now (call vercel_call_resume later), VERCEL_READ_ABORT gives the call up.
 */
#define VERCEL_READ_PAUSE ((size_t)-1)
#define VERCEL_READ_ABORT ((size_t)-2)
typedef size_t vercel_read_fn(void *arg, char *buf, size_t cap);

/* What some statuses mean for this call; SG_OK: UPSTREAM_REJECTED, UPSTREAM_NOT_FOUND, UPSTREAM_CONFLICT. */
struct vercel_meaning {
    enum sg_code on_400, on_404, on_409;
};

struct vercel_request {
    const char *method;       /* "GET" … */
    const char *path;         /* "/v2/sandboxes/a%20b", encoded, without query */
    const char *query;        /* "resume=true&limit=5", encoded; teamId is added by the client; NULL: none */
    const char *content_type; /* NULL: application/json */
    const char *extra_header; /* "x-cwd: /"; NULL: none */
    const char *body;         /* copied; NULL: none (Content-Length: 0 for POST) */
    size_t body_len;
    vercel_read_fn *read; /* streamed body instead of `body`; never sent again, unless it can be rewound */
    int64_t read_size;    /* its size; -1: chunked */
    void (*rewind)(void *arg); /* starts the streamed body over; NULL: cannot */
    const char *expect_type;   /* media type a 2xx must have, else UPSTREAM_BAD_RESPONSE; NULL: any */
    struct vercel_meaning means;
    enum vercel_class class;
    enum quota_kind spends; /* QUOTA_REQUESTS: nothing else */
    int64_t units;          /* of it */
    bool idempotent;
    int64_t timeout_ms; /* 0: the client's; -1: none (streams: then only stalls of the TCP peer end it) */
};

struct vercel_events {
    /* Status 2xx and its head arrived; at most once.  May be NULL. */
    void (*on_head)(void *arg, int status, const char *content_type, int64_t content_length);
    /* Body of a 2xx answer.  False pauses: the same bytes come again after vercel_call_resume. */
    bool (*on_data)(void *arg, const char *data, size_t len);
    /* The end, exactly once unless cancelled; e is NULL for a complete 2xx answer.  The call is dead
     * afterwards. */
    void (*on_done)(void *arg, const struct sg_error *e);
};

struct vercel_call;
/* Loop thread.  NULL with *e filled when it could not even begin (outcome not_sent); on_done is not called
 * then. No callback runs before this returns. */
struct vercel_call *vercel_call_start(struct vercel_client *c, const struct vercel_request *r,
                                      const struct vercel_events *ev, void *arg, struct sg_error *e);
/* Continues a paused on_data or read.  Loop thread; not from inside on_data. */
void vercel_call_resume(struct vercel_call *call);
/* Drops it without further callbacks.  Loop thread; may be called inside any callback. */
void vercel_call_cancel(struct vercel_call *call);

/* ---- JSON calls ---- */

/* Asynchronous: done once, on the loop; `json` is borrowed and NULL when e is set.  The answer is limited to
 * 8 MiB and must be a JSON object, else UPSTREAM_BAD_RESPONSE. */
typedef void vercel_json_fn(void *arg, json_t *json, const struct sg_error *e);
struct vercel_call *vercel_json_start(struct vercel_client *c, const struct vercel_request *r,
                                      vercel_json_fn *done, void *arg, struct sg_error *e);
/* Blocking: any thread but the loop's.  *out is a new reference. */
SG_MUST_CHECK enum sg_code vercel_wait_json(struct vercel_client *c, const struct vercel_request *r,
                                            json_t **out, struct sg_error *e);

/* Calls made so far (attempts that sent bytes), for tests and metrics.  Any thread. */
uint64_t vercel_attempts(const struct vercel_client *c);

#endif
