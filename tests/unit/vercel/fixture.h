/* A client on its own loop against a raw server, for the tests of vercel/ and guestlink/. */
#ifndef SG_TEST_VERCEL_FIXTURE_H
#define SG_TEST_VERCEL_FIXTURE_H

#include "tests/support/rawserver.h"
#include "vercel/client.h"

struct fixture {
    struct sg_loop *loop;
    struct raw_server *server;
    struct vercel_client *client;
};

struct tuning {
    const char *base_url; /* NULL: the server's, with "/api" */
    const char *team_id, *project_id, *proxy;
    int retries; /* -1: the default */
    int64_t timeout_ms, retry_budget_ms, connect_timeout_ms;
    const char *plan;
    int64_t breaker_failures, token_expires_ms;
};

/* script NULL: no server. */
void fixture_open(struct fixture *f, raw_script *script, void *arg, const struct tuning *t);
void fixture_close(struct fixture *f);

/* Runs the loop until *flag; the test fails after 20 s. */
void fixture_run(struct fixture *f, const bool *flag);
/* One turn that does not wait. */
void fixture_turn(struct fixture *f);

/* Runs fn on a thread of its own while the loop turns, for the blocking functions. */
void fixture_blocking(struct fixture *f, void (*fn)(struct fixture *f, void *arg), void *arg);

/* A JSON call that is waited for. */
struct answer {
    bool done;
    json_t *json;
    bool failed;
    struct sg_error error;
};
struct vercel_call *ask(struct fixture *f, struct answer *a, const struct vercel_request *r);
void ask_and_wait(struct fixture *f, struct answer *a, const struct vercel_request *r);
void answer_clear(struct answer *a);

extern const struct vercel_request get_request;  /* GET /v2/x, idempotent */
extern const struct vercel_request post_request; /* POST /v2/x with a small body */

#endif
