#include "fixture.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

const struct vercel_request get_request = {.method = "GET", .path = "/v2/x", .idempotent = true};
const struct vercel_request post_request = {
    .method = "POST", .path = "/v2/x", .body = "{\"a\":1}", .body_len = 7};

void fixture_open(struct fixture *f, raw_script *script, void *arg, const struct tuning *t)
{
    static const struct tuning plain = {.retries = -1};
    char url[128];
    curl_global_init(CURL_GLOBAL_DEFAULT);
    *f = (struct fixture){0};
    t = t ? t : &plain;
    f->loop = sg_loop_new();
    assert_non_null(f->loop);
    if (script) {
        f->server = raw_start(script, arg);
        assert_non_null(f->server);
        snprintf(url, sizeof url, "%s/api/", raw_url(f->server));
    }
    struct vercel_config config = {
        .base_url = t->base_url ? t->base_url : url,
        .team_id = t->team_id,
        .project_id = t->project_id,
        .proxy = t->proxy,
        .token = sg_secret_new("t0k3n", 5),
        .retries = t->retries,
        .timeout_ms = t->timeout_ms,
        .retry_budget_ms = t->retry_budget_ms,
        .connect_timeout_ms = t->connect_timeout_ms,
        .plan = t->plan,
        .breaker_failures = t->breaker_failures,
        .token_expires_ms = t->token_expires_ms,
    };
    struct sg_error e;
    assert_int_equal(vercel_client_new(f->loop, &config, &f->client, &e), SG_OK);
}

void fixture_close(struct fixture *f)
{
    vercel_client_free(f->client);
    if (f->server)
        raw_stop(f->server);
    sg_loop_free(f->loop);
    curl_global_cleanup();
}

/* A turn's last step may set the flag just before the loop sleeps: it never sleeps for long. */
struct patience {
    struct sg_timer *timer;
    int64_t until_ms;
};

static void on_patience(void *arg)
{
    const struct patience *p = arg;
    sg_timer_start(p->timer, 20);
}

void fixture_run(struct fixture *f, const bool *flag)
{
    struct patience p = {.until_ms = sg_mono_ms() + 20000};
    p.timer = sg_timer_new(f->loop, on_patience, &p);
    assert_non_null(p.timer);
    sg_timer_start(p.timer, 20);
    while (!*flag && sg_mono_ms() < p.until_ms)
        uv_run(sg_loop_uv(f->loop), UV_RUN_ONCE);
    sg_timer_free(p.timer);
    if (!*flag)
        fail_msg("nothing happened for 20 s");
}

void fixture_turn(struct fixture *f)
{
    uv_run(sg_loop_uv(f->loop), UV_RUN_NOWAIT);
}

struct blocking {
    struct sg_task task; /* first */
    struct fixture *f;
    void (*fn)(struct fixture *f, void *arg);
    void *arg;
    bool done;
};

static void on_blocking_done(struct sg_task *task)
{
    ((struct blocking *)task)->done = true;
}

static void *run_blocking(void *arg)
{
    struct blocking *b = arg;
    b->fn(b->f, b->arg);
    sg_loop_post(b->f->loop, &b->task);
    return NULL;
}

void fixture_blocking(struct fixture *f, void (*fn)(struct fixture *f, void *arg), void *arg)
{
    struct blocking b = {.task.fn = on_blocking_done, .f = f, .fn = fn, .arg = arg};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_blocking, &b), 0);
    fixture_run(f, &b.done);
    pthread_join(thread, NULL);
}

static void on_json(void *arg, json_t *json, const struct sg_error *e)
{
    struct answer *a = arg;
    assert_false(a->done); /* exactly once */
    a->done = true;
    a->json = json_incref(json);
    a->failed = e != NULL;
    if (e)
        a->error = *e;
}

struct vercel_call *ask(struct fixture *f, struct answer *a, const struct vercel_request *r)
{
    *a = (struct answer){0};
    struct sg_error e;
    struct vercel_call *call = vercel_json_start(f->client, r, on_json, a, &e);
    assert_non_null(call);
    assert_false(a->done);
    return call;
}

void ask_and_wait(struct fixture *f, struct answer *a, const struct vercel_request *r)
{
    ask(f, a, r);
    fixture_run(f, &a->done);
}

void answer_clear(struct answer *a)
{
    json_decref(a->json);
    *a = (struct answer){0};
}
