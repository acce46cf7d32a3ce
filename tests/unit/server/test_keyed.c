/* Requests with an Idempotency-Key, and answers that are not there in time: the server's own part, with handlers that can
 * be held. */
#include "harness.h"

#include "base/clock.h"
#include "routes/gateway.h"
#include "routes/handlers.h"
#include "routes/idempotency.h"
#include "routes/late.h"
#include "store/store.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- handlers ---- */

static atomic_int calls, agains;
static atomic_bool go_on;
static char last_nonce[64], last_note[64];
static struct exchange *held; /* loop */
static atomic_int gone;

static void count(struct exchange *ex)
{
    atomic_fetch_add(&calls, 1);
    if (ex->again)
        atomic_fetch_add(&agains, 1);
    (void)snprintf(last_nonce, sizeof last_nonce, "%s", ex->nonce ? ex->nonce : "");
    (void)snprintf(last_note, sizeof last_note, "%s", ex->note ? ex->note : "");
}

static void answer_made(struct exchange *ex)
{
    ex_set_header(ex, "Location", "/made/1");
    ex_set_header(ex, "ETag", "\"e1\"");
    ex_answer_json(ex, 201, json_pack("{sisO?}", "call", atomic_load(&calls), "body", ex->body));
}

static void route_make(struct exchange *ex)
{
    count(ex);
    answer_made(ex);
}

/* On a worker: until it may go on. */
static void route_slow(struct exchange *ex)
{
    count(ex);
    while (!atomic_load(&go_on) && !ex_is_gone(ex))
        (void)poll(NULL, 0, 2);
    if (ex_is_gone(ex))
        atomic_fetch_add(&gone, 1);
    const char *given = ex_header(ex, "X-Given"); /* also when the connection is long gone */
    ex_set_header(ex, "X-Given", given ? given : "none");
    answer_made(ex);
}

static void on_held_gone(void *arg)
{
    struct exchange *ex = arg;
    struct sg_error e;
    held = NULL;
    atomic_fetch_add(&gone, 1);
    (void)sg_fail(&e, SG_E_BAD_REQUEST, SG_OUTCOME_UNKNOWN, "the client left");
    ex_fail(ex, &e);
}

static void route_hold(struct exchange *ex)
{
    count(ex);
    held = ex;
    ex_on_gone(ex, on_held_gone, ex);
}

static void release(void *arg)
{
    struct exchange *ex = held;
    (void)arg;
    held = NULL;
    ex_on_gone(ex, NULL, NULL);
    answer_made(ex);
}

static bool is_held(void *arg)
{
    (void)arg;
    return held != NULL;
}

static void fail_as(struct exchange *ex, enum sg_code code, enum sg_outcome outcome)
{
    struct sg_error e;
    count(ex);
    (void)sg_fail(&e, code, outcome, "as asked");
    ex_fail(ex, &e);
}

static void route_fail(struct exchange *ex)
{
    const char *how = ex->params[0];
    if (!strcmp(how, "not-sent"))
        fail_as(ex, SG_E_UPSTREAM_UNREACHABLE, SG_NOT_SENT);
    else if (!strcmp(how, "unknown"))
        fail_as(ex, SG_E_UPSTREAM_TIMEOUT, SG_OUTCOME_UNKNOWN);
    else if (!strcmp(how, "finished"))
        fail_as(ex, SG_E_STEP_FAILED, SG_FINISHED);
    else
        fail_as(ex, SG_E_OUT_OF_MEMORY, SG_FINISHED);
}

static void route_once(struct exchange *ex)
{
    count(ex);
    ex_answer_once(ex, "token tok_1 was created");
    ex_answer_json(ex, 201, json_pack("{ss}", "secret", "hush"));
}

static void route_large(struct exchange *ex)
{
    char *text = malloc(STORE_KEY_BODY_MAX + 1);
    count(ex);
    memset(text, 'x', STORE_KEY_BODY_MAX);
    text[STORE_KEY_BODY_MAX] = '\0';
    ex_answer_json(ex, 200, json_pack("{ss}", "text", text));
    free(text);
}

static void on_noted(void *arg, const struct sg_error *e)
{
    struct exchange *ex = arg;
    if (e)
        ex_fail(ex, e);
    else
        fail_as(ex, SG_E_UPSTREAM_TIMEOUT, SG_OUTCOME_UNKNOWN);
}

static void route_note(struct exchange *ex)
{
    if (ex->note && ex->note[0])
        route_make(ex);
    else
        ex_note(ex, "where it was", on_noted, ex);
}

static const struct route list[] = {
    {"POST", "/make", ROUTE_LOOP, AUTH_TOKEN, BODY_JSON, route_make, AGAIN_SAFE},
    {"POST", "/make/{id}", ROUTE_LOOP, AUTH_TOKEN, BODY_JSON, route_make, AGAIN_SAFE},
    {"POST", "/build", ROUTE_LOOP, AUTH_TOKEN, BODY_JSON, route_make, AGAIN_BUILD},
    {"POST", "/slow", ROUTE_WORKER, AUTH_TOKEN, BODY_JSON, route_slow, AGAIN_SAFE},
    {"POST", "/hold", ROUTE_LOOP, AUTH_TOKEN, BODY_JSON, route_hold, AGAIN_SAFE, ROUTE_LASTS},
    {"POST", "/fail/{how}", ROUTE_LOOP, AUTH_TOKEN, BODY_JSON, route_fail, AGAIN_SAFE},
    {"POST", "/lost/{how}", ROUTE_LOOP, AUTH_TOKEN, BODY_JSON, route_fail},
    {"POST", "/once", ROUTE_LOOP, AUTH_TOKEN, BODY_JSON, route_once, AGAIN_SAFE},
    {"POST", "/large", ROUTE_LOOP, AUTH_TOKEN, BODY_JSON, route_large, AGAIN_SAFE},
    {"POST", "/note", ROUTE_LOOP, AUTH_TOKEN, BODY_JSON, route_note, AGAIN_NONCE},
    {"POST", "/raw", ROUTE_UPLOAD, AUTH_TOKEN, BODY_RAW, route_make},
    {"GET", "/v1/operations/{id}", ROUTE_LOOP, AUTH_TOKEN, BODY_NONE, route_operation},
};

/* ---- a gateway with a store ---- */

static struct harness *h;
static struct store *store;
static int64_t after_ms, silence_ms, max_bytes;

static void open_rooms(void *arg)
{
    struct gateway *gw = harness_gateway(h);
    struct sg_error e;
    const struct store_options o = {.loop = gw->loop};
    (void)arg;
    assert_int_equal(store_open(&o, &store, &e), SG_OK);
    const struct keys_config k = {
        .loop = gw->loop, .store = store, .upstream = "u", .silence_ms = silence_ms, .max_bytes = max_bytes};
    gw->keys = keys_new(&k);
    gw->lates = lates_new(gw->loop, after_ms);
    assert_true(gw->keys && gw->lates);
}

static void close_rooms(void *arg)
{
    struct gateway *gw = harness_gateway(h);
    (void)arg;
    store_close(store);
    lates_free(gw->lates);
    keys_free(gw->keys);
}

static void begin_with(int64_t after, int64_t silence)
{
    after_ms = after;
    silence_ms = silence;
    max_bytes = 0;
    atomic_store(&calls, 0);
    atomic_store(&agains, 0);
    atomic_store(&gone, 0);
    atomic_store(&go_on, false);
    held = NULL;
    h = harness_start(NULL, list, sizeof list / sizeof *list);
    harness_on_loop(h, open_rooms, NULL);
    harness_at_end(h, close_rooms, NULL);
}

static int begin(void **state)
{
    (void)state;
    begin_with(20000, 60000);
    return 0;
}

static int end(void **state)
{
    (void)state;
    atomic_store(&go_on, true);
    harness_stop(h);
    return 0;
}

static void text_of(char out[2048], const char *path, const char *key, const char *body, const char *more)
{
    (void)snprintf(out, 2048,
                   "POST %s HTTP/1.1\r\n" HOST AUTH "%s%s%s%sContent-Type: application/json\r\n"
                   "Content-Length: %zu\r\n\r\n%s",
                   path, key ? "Idempotency-Key: " : "", key ? key : "", key ? "\r\n" : "", more ? more : "",
                   strlen(body), body);
}

static void post(struct reply *r, const char *path, const char *key, const char *body)
{
    char text[2048];
    text_of(text, path, key, body, NULL);
    exchange_once(h, text, r);
}

static void assert_same(const struct reply *a, const struct reply *b)
{
    assert_int_equal(a->status, b->status);
    assert_int_equal(a->body.len, b->body.len);
    assert_memory_equal(a->body.data, b->body.data, a->body.len);
}

static bool says(const struct reply *r, const char *text)
{
    return memmem(r->body.data, r->body.len, text, strlen(text)) != NULL;
}

/* ---- tests ---- */

static void the_first_answer_is_given_again(void **state)
{
    (void)state;
    struct reply first, again;
    post(&first, "/make", "k", "{\"a\":1}");
    assert_int_equal(first.status, 201);
    assert_null(reply_header(&first, "Idempotency-Replayed"));
    assert_int_equal(strlen(last_nonce), 32);
    for (int i = 0; i < 2; i++) {
        post(&again, "/make", "k", "{\"a\":1}");
        assert_same(&first, &again);
        assert_string_equal(reply_header(&again, "Location"), "/made/1");
        assert_string_equal(reply_header(&again, "ETag"), "\"e1\"");
        assert_string_equal(reply_header(&again, "Content-Type"), "application/json");
        assert_string_equal(reply_header(&again, "Idempotency-Replayed"), "true");
        reply_free(&again);
    }
    assert_int_equal(atomic_load(&calls), 1);
    reply_free(&first);
}

static void a_key_belongs_to_one_request(void **state)
{
    (void)state;
    struct reply r;
    static const struct {
        const char *path, *key, *body;
        bool own; /* another request altogether */
    } others[] = {{"/make", "k", "{\"a\":2}", false},
                  {"/make?q=1", "k", "{\"a\":1}", false},
                  {"/make/x", "k", "{\"a\":1}", true},
                  {"/make", "K", "{\"a\":1}", true},
                  {"/make/y", "k", "{\"a\":1}", true}};
    post(&r, "/make", "k", "{\"a\":1}");
    assert_int_equal(r.status, 201);
    reply_free(&r);
    int n = 1;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        post(&r, others[i].path, others[i].key, others[i].body);
        if (others[i].own)
            assert_int_equal(r.status, 201);
        else
            assert_problem(&r, 422, "idempotency_key_reused");
        n += others[i].own;
        reply_free(&r);
    }
    assert_int_equal(atomic_load(&calls), n);
}

static void keys_have_a_form(void **state)
{
    (void)state;
    struct reply r;
    char key[300], text[2048];
    memset(key, 'k', 256);
    key[256] = '\0';
    post(&r, "/make", key, "{}");
    assert_problem(&r, 422, "invalid_field");
    reply_free(&r);
    key[255] = '\0';
    post(&r, "/make", key, "{}");
    assert_int_equal(r.status, 201);
    reply_free(&r);
    text_of(text, "/make", "a", "{}", "Idempotency-Key: b\r\n");
    exchange_once(h, text, &r);
    assert_problem(&r, 422, "invalid_field");
    reply_free(&r);
    post(&r, "/make", "", "{}");
    assert_problem(&r, 422, "invalid_field");
    reply_free(&r);
    post(&r, "/raw", "k", "{}");
    assert_problem(&r, 422, "unsupported");
    reply_free(&r);
    assert_int_equal(atomic_load(&calls), 1);
}

static void what_did_nothing_runs_anew(void **state)
{
    (void)state;
    struct reply r;
    post(&r, "/fail/not-sent", "k", "{}");
    assert_problem(&r, 503, "upstream_unreachable");
    reply_free(&r);
    post(&r, "/fail/not-sent", "k", "{\"a\":1}"); /* the key is free */
    assert_problem(&r, 503, "upstream_unreachable");
    reply_free(&r);
    post(&r, "/make", "j", "{"); /* nor does what is no JSON take it */
    assert_problem(&r, 400, "invalid_json");
    reply_free(&r);
    post(&r, "/make", "j", "{}");
    assert_int_equal(r.status, 201);
    reply_free(&r);
    assert_int_equal(atomic_load(&agains), 0);
}

static void what_is_not_known_is_run_again(void **state)
{
    (void)state;
    struct reply r;
    char nonce[64];
    static const char *const hows[] = {"unknown", "memory"};
    for (int i = 0; i < 2; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "/fail/%s", hows[i]);
        atomic_store(&agains, 0);
        post(&r, path, "k", "{}");
        assert_true(r.status > 500);
        reply_free(&r);
        memcpy(nonce, last_nonce, sizeof nonce);
        post(&r, path, "k", "{}");
        assert_true(r.status > 500);
        assert_null(reply_header(&r, "Idempotency-Replayed"));
        reply_free(&r);
        assert_string_equal(nonce, last_nonce);
        assert_int_equal(atomic_load(&agains), 1);
    }
    post(&r, "/fail/finished", "k", "{}");
    assert_problem(&r, 422, "step_failed");
    struct reply again;
    post(&again, "/fail/finished", "k", "{}");
    assert_same(&r, &again);
    assert_string_equal(reply_header(&again, "Content-Type"), "application/problem+json");
    assert_string_equal(reply_header(&again, "Idempotency-Replayed"), "true");
    reply_free(&r);
    reply_free(&again);
}

static void what_cannot_be_found_out_is_said_so(void **state)
{
    (void)state;
    struct reply r, again;
    post(&r, "/lost/unknown", "k", "{}");
    assert_problem(&r, 504, "upstream_timeout");
    reply_free(&r);
    post(&r, "/lost/unknown", "k", "{}");
    assert_problem(&r, 409, "outcome_lost");
    post(&again, "/lost/unknown", "k", "{}");
    assert_same(&r, &again);
    assert_int_equal(atomic_load(&calls), 1);
    reply_free(&r);
    reply_free(&again);
}

static void credentials_are_kept_nowhere(void **state)
{
    (void)state;
    struct reply r;
    post(&r, "/once", "k", "{}");
    assert_int_equal(r.status, 201);
    assert_true(says(&r, "hush"));
    reply_free(&r);
    post(&r, "/once", "k", "{}");
    assert_int_equal(r.status, 409);
    assert_true(says(&r, "already_created"));
    assert_true(says(&r, "tok_1"));
    assert_false(says(&r, "hush"));
    assert_int_equal(atomic_load(&calls), 1);
    reply_free(&r);
}

static void what_is_built_is_built_again(void **state)
{
    (void)state;
    struct reply r;
    static const char *const paths[] = {"/build", "/large"};
    for (int i = 0; i < 2; i++) {
        int before = atomic_load(&calls);
        post(&r, paths[i], "k", "{}");
        assert_true(r.status < 300);
        assert_null(reply_header(&r, "Idempotency-Replayed"));
        reply_free(&r);
        post(&r, paths[i], "k", "{}");
        assert_true(r.status < 300);
        assert_string_equal(reply_header(&r, "Idempotency-Replayed"), "true");
        reply_free(&r);
        assert_int_equal(atomic_load(&calls), before + 2);
    }
    assert_int_equal(atomic_load(&agains), 2);
}

static void notes_are_found_again(void **state)
{
    (void)state;
    struct reply r;
    post(&r, "/note", "k", "{}");
    assert_problem(&r, 504, "upstream_timeout");
    reply_free(&r);
    post(&r, "/note", "k", "{}");
    assert_int_equal(r.status, 201);
    assert_string_equal(last_note, "where it was");
    assert_int_equal(atomic_load(&agains), 1);
    reply_free(&r);
    post(&r, "/note", NULL, "{}"); /* without a key nobody comes back */
    assert_problem(&r, 504, "upstream_timeout");
    reply_free(&r);
}

static bool was_called(void *arg)
{
    return atomic_load(&calls) >= *(int *)arg;
}

static bool is_idle(void *arg)
{
    struct http_stats stats;
    (void)arg;
    http_server_stats(harness_server(h), &stats);
    return stats.requests == 0;
}

static void two_at_a_time_and_clients_that_leave(void **state)
{
    (void)state;
    struct reply r;
    char text[2048];
    static const char *const paths[] = {"/slow", "/hold"};
    for (int i = 0; i < 2; i++) {
        int n = i + 1;
        int fd = client_connect(h);
        text_of(text, paths[i], "k", "{}", NULL);
        client_puts(fd, text);
        harness_wait(h, was_called, &n);
        post(&r, paths[i], "k", "{}");
        assert_problem(&r, 409, "request_in_progress");
        assert_string_equal(reply_header(&r, "Retry-After"), "1");
        reply_free(&r);
        post(&r, paths[i], "k", "{\"other\":1}");
        assert_problem(&r, 422, "idempotency_key_reused");
        reply_free(&r);
        close(fd); /* and the act goes on */
        if (i == 0) {
            atomic_store(&go_on, true);
        } else {
            harness_wait(h, is_held, NULL);
            harness_on_loop(h, release, NULL);
        }
        harness_wait(h, is_idle, NULL);
        assert_int_equal(atomic_load(&gone), 0);
        post(&r, paths[i], "k", "{}");
        assert_int_equal(r.status, 201);
        assert_string_equal(reply_header(&r, "Idempotency-Replayed"), "true");
        reply_free(&r);
        assert_int_equal(atomic_load(&calls), n);
    }
}

static void a_gateway_that_ends_leaves_it_open(void **state)
{
    (void)state;
    char text[2048];
    int fd = client_connect(h), one = 1;
    text_of(text, "/hold", "k", "{}", NULL);
    client_puts(fd, text);
    harness_wait(h, was_called, &one); /* the handler is told at the end, and answers */
    (void)close(fd);
}

static void beats_keep_it(void **state)
{
    (void)state;
    harness_stop(h);
    begin_with(20000, 300);
    struct reply r;
    char text[2048];
    int fd = client_connect(h), one = 1;
    text_of(text, "/hold", "k", "{}", NULL);
    client_puts(fd, text);
    harness_wait(h, was_called, &one);
    (void)poll(NULL, 0, 700); /* more than twice as long as a silent one may last */
    post(&r, "/hold", "k", "{}");
    assert_problem(&r, 409, "request_in_progress");
    reply_free(&r);
    harness_on_loop(h, release, NULL);
    client_reply(fd, &r, false);
    assert_int_equal(r.status, 201);
    reply_free(&r);
    (void)close(fd);
}

/* ---- lasting ---- */

static void get(struct reply *r, const char *path)
{
    char text[512];
    (void)snprintf(text, sizeof text, "GET %s HTTP/1.1\r\n" HOST AUTH "\r\n", path);
    exchange_once(h, text, r);
}

static void what_lasts_is_answered_with_its_place(void **state)
{
    (void)state;
    harness_stop(h);
    begin_with(50, 60000);
    static const char *const paths[] = {"/slow", "/hold"};
    for (int i = 0; i < 4; i++) {
        const char *key = i & 2 ? "k" : NULL;
        struct reply r, end_reply;
        char text[2048], place[256];
        int n = i + 1;
        atomic_store(&go_on, false);
        int fd = client_connect(h);
        text_of(text, paths[i & 1], key, "{\"a\":1}", "X-Given: yes\r\n");
        client_puts(fd, text);
        client_reply(fd, &r, false);
        assert_int_equal(r.status, 202);
        assert_int_equal(atomic_load(&calls), n);
        (void)snprintf(place, sizeof place, "%s", reply_header(&r, "Location"));
        assert_memory_equal(place, "/v1/operations/", 15);
        json_t *doc = reply_json(&r);
        assert_string_equal(json_string_value(json_object_get(doc, "state")), "running");
        assert_string_equal(json_string_value(json_object_get(doc, "operation_id")), place + 15);
        json_decref(doc);
        reply_free(&r);
        /* the connection serves other requests meanwhile */
        client_puts(fd, "GET /v1/operations/none HTTP/1.1\r\n" HOST AUTH "X-Given: no\r\n\r\n");
        client_reply(fd, &r, false);
        assert_problem(&r, 404, "operation_not_found");
        reply_free(&r);
        close(fd);
        get(&r, place);
        assert_int_equal(r.status, 202);
        reply_free(&r);
        if (key) {
            post(&r, paths[i & 1], key, "{\"a\":1}");
            assert_problem(&r, 409, "request_in_progress");
            reply_free(&r);
        }
        if (i & 1)
            harness_on_loop(h, release, NULL);
        else
            atomic_store(&go_on, true);
        char waiting[300];
        (void)snprintf(waiting, sizeof waiting, "%s?wait_ms=20000", place);
        get(&end_reply, waiting);
        assert_int_equal(end_reply.status, 201);
        assert_string_equal(reply_header(&end_reply, "Location"), "/made/1");
        if (!(i & 1))
            assert_string_equal(reply_header(&end_reply, "X-Given"), "yes");
        if (key) { /* what came late is what the key answers */
            post(&r, paths[i & 1], key, "{\"a\":1}");
            assert_same(&r, &end_reply);
            assert_string_equal(reply_header(&r, "Idempotency-Replayed"), "true");
            reply_free(&r);
        }
        reply_free(&end_reply);
        harness_wait(h, is_idle, NULL);
        assert_int_equal(atomic_load(&gone), 0);
    }
    struct reply r;
    get(&r, "/v1/operations/none");
    assert_problem(&r, 404, "operation_not_found");
    reply_free(&r);
}

static void who_prefers_it_is_not_kept_waiting(void **state)
{
    (void)state;
    struct reply r;
    char text[2048];
    text_of(text, "/hold", NULL, "{}", "Prefer: return=minimal, Respond-Async; wait=1\r\n");
    int64_t before = sg_mono_ms();
    exchange_once(h, text, &r);
    assert_int_equal(r.status, 202);
    assert_string_equal(reply_header(&r, "Preference-Applied"), "respond-async");
    assert_true(sg_mono_ms() - before < 10000);
    reply_free(&r);
    harness_on_loop(h, release, NULL);
    text_of(text, "/fail/unknown", NULL, "{}", "Prefer: respond-async\r\n");
    exchange_once(h, text, &r); /* what is there already is answered */
    assert_problem(&r, 504, "upstream_timeout");
    reply_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_first_answer_is_given_again, begin, end),
        cmocka_unit_test_setup_teardown(a_key_belongs_to_one_request, begin, end),
        cmocka_unit_test_setup_teardown(keys_have_a_form, begin, end),
        cmocka_unit_test_setup_teardown(what_did_nothing_runs_anew, begin, end),
        cmocka_unit_test_setup_teardown(what_is_not_known_is_run_again, begin, end),
        cmocka_unit_test_setup_teardown(what_cannot_be_found_out_is_said_so, begin, end),
        cmocka_unit_test_setup_teardown(credentials_are_kept_nowhere, begin, end),
        cmocka_unit_test_setup_teardown(what_is_built_is_built_again, begin, end),
        cmocka_unit_test_setup_teardown(notes_are_found_again, begin, end),
        cmocka_unit_test_setup_teardown(two_at_a_time_and_clients_that_leave, begin, end),
        cmocka_unit_test_setup_teardown(a_gateway_that_ends_leaves_it_open, begin, end),
        cmocka_unit_test_setup_teardown(beats_keep_it, begin, end),
        cmocka_unit_test_setup_teardown(what_lasts_is_answered_with_its_place, begin, end),
        cmocka_unit_test_setup_teardown(who_prefers_it_is_not_kept_waiting, begin, end),
    };
    return cmocka_run_group_tests_name("server/keyed", tests, NULL, NULL);
}
