/* URI decoding, routing, problem documents and workers, without a socket. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "server/problem.h"
#include "server/router.h"
#include "base/workers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- uri ---- */

static enum uri_result parse(const char *raw, struct uri *u)
{
    static char space[8192];
    assert_true(2 * strlen(raw) + 2 <= sizeof space);
    return uri_parse(raw, space, u);
}

static void uri_segments(void **state)
{
    (void)state;
    struct uri u;
    assert_int_equal(parse("/v1/a%20b/%E2%82%AC", &u), URI_OK);
    assert_int_equal(u.nsegments, 3);
    assert_string_equal(u.segments[1].at, "a b");
    assert_string_equal(u.segments[2].at, "\xe2\x82\xac");
    assert_int_equal(parse("/", &u), URI_OK);
    assert_int_equal(u.nsegments, 1);
    assert_int_equal(u.segments[0].len, 0);
    assert_int_equal(parse("/a%2Fb%00c+d", &u), URI_OK);
    assert_int_equal(u.segments[0].len, 7);
    assert_memory_equal(u.segments[0].at, "a/b\0c+d", 7);
    assert_int_equal(parse("http://host:1/x/y?z=1", &u), URI_OK);
    assert_int_equal(u.nsegments, 2);
    assert_int_equal(u.nquery, 1);
    assert_int_equal(parse("/1/2/3/4/5/6/7/8/9/10/11/12/13", &u), URI_TOO_DEEP);
    static const char *const bad[] = {
        "",    "*",     "x",      "http://host", "/%",
        "/%4", "/%zz",  "/a%2",   "?a=b",        "/1/2/3/4/5/6/7/8/9/10/11/12/13/%",
        "/?%", "/?a=%", "/?a=%0g"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(parse(bad[i], &u), URI_MALFORMED);
}

static void uri_queries(void **state)
{
    (void)state;
    struct uri u;
    assert_int_equal(parse("/?a=1&b&&c=%00x+y%2B&=v&a=2&d=e=f#frag&z=1", &u), URI_OK);
    assert_int_equal(u.nquery, 6);
    assert_string_equal(uri_query(&u, "a")->value.at, "1");
    assert_int_equal(uri_query(&u, "b")->value.len, 0);
    const struct uri_part *c = &uri_query(&u, "c")->value;
    assert_int_equal(c->len, 5);
    assert_memory_equal(c->at, "\0x y+", 5);
    assert_string_equal(uri_query(&u, "d")->value.at, "e=f");
    assert_null(uri_query(&u, "z"));
    char many[512] = "/?";
    for (int i = 0; i < URI_MAX_QUERY; i++)
        strncat(many, "x=1&", 5);
    assert_int_equal(parse(many, &u), URI_OK);
    assert_int_equal(u.nquery, URI_MAX_QUERY);
    strncat(many, "x=1", 4);
    assert_int_equal(parse(many, &u), URI_MALFORMED);
}

/* ---- router ---- */

static void nothing(struct exchange *ex)
{
    (void)ex;
}

static const struct route table[] = {
    {"GET", "/", ROUTE_LOOP, AUTH_NONE, BODY_NONE, nothing},
    {"GET", "/v1/s", ROUTE_LOOP, AUTH_NONE, BODY_NONE, nothing},
    {"POST", "/v1/s", ROUTE_LOOP, AUTH_NONE, BODY_NONE, nothing},
    {"GET", "/v1/s/special", ROUTE_LOOP, AUTH_NONE, BODY_NONE, nothing},
    {"GET", "/v1/s/{name}", ROUTE_LOOP, AUTH_NONE, BODY_NONE, nothing},
    {"DELETE", "/v1/s/{name}", ROUTE_LOOP, AUTH_NONE, BODY_NONE, nothing},
    {"GET", "/v1/s/{name}/p/{id}/attach", ROUTE_UPGRADE, AUTH_NONE, BODY_NONE, nothing},
};

static enum sg_code find(const char *method, const char *path, struct route_match *m)
{
    struct uri u;
    assert_int_equal(parse(path, &u), URI_OK);
    return router_find(table, sizeof table / sizeof *table, method, &u, m);
}

static void routes_match(void **state)
{
    (void)state;
    struct route_match m;
    assert_int_equal(find("GET", "/", &m), SG_OK);
    assert_ptr_equal(m.route, &table[0]);
    assert_int_equal(find("POST", "/v1/s", &m), SG_OK);
    assert_ptr_equal(m.route, &table[2]);
    assert_int_equal(find("GET", "/v1/s/special", &m), SG_OK);
    assert_ptr_equal(m.route, &table[3]);
    assert_int_equal(find("GET", "/v1/s/%6eame", &m), SG_OK);
    assert_ptr_equal(m.route, &table[4]);
    assert_string_equal(m.params[0].at, "name");
    assert_int_equal(find("HEAD", "/v1/s/x", &m), SG_OK);
    assert_ptr_equal(m.route, &table[4]);
    assert_string_equal(m.params[0].at, "x");
    assert_int_equal(find("GET", "/v1/s/a/p/b/attach", &m), SG_OK);
    assert_int_equal(m.nparams, 2);
    assert_string_equal(m.params[1].at, "b");
}

static void routes_do_not_match(void **state)
{
    (void)state;
    struct route_match m;
    static const char *const none[] = {"/v1",         "/v1/s/",    "/v2/s",     "/v1//s",
                                       "/v1/s/a%2fb", "/v1/s/%00", "/v1/s/a/p", "/v1/s/a/p//attach",
                                       "/V1/s",       "/v1/sx"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(find("GET", none[i], &m), SG_E_ROUTE_NOT_FOUND);
    assert_int_equal(find("PUT", "/v1/s/x", &m), SG_E_METHOD_NOT_ALLOWED);
    assert_string_equal(m.allow, "GET, HEAD, DELETE");
    assert_int_equal(find("HEAD", "/v1/s/a/p/b/attach", &m), SG_E_METHOD_NOT_ALLOWED);
    assert_string_equal(m.allow, "GET");
    assert_int_equal(find("get", "/v1/s", &m), SG_E_METHOD_NOT_ALLOWED);
}

/* ---- problem documents ---- */

static const char *text_of(const json_t *doc, const char *key)
{
    return json_string_value(json_object_get(doc, key));
}

/* C10: every code of the table gives a complete document of a known class. */
static void c10_every_code_has_its_document(void **state)
{
    (void)state;
    static const char *const reasons[] = {"AuthenticationError", "PermissionDenied",    "NotFoundError",
                                          "AlreadyExistsError",  "InvalidOptionsError", "UnsupportedError",
                                          "StaleSession",        "RateLimited",         "UnavailableError",
                                          "UnknownError"};
    for (int code = SG_OK + 1; code < SG_CODE_COUNT; code++) {
        const struct sg_error_row *row = sg_error_row((enum sg_code)code);
        struct sg_error e;
        (void)sg_fail(&e, (enum sg_code)code, SG_STARTED, "what happened");
        struct sg_buf b;
        sg_buf_init(&b, 65536);
        assert_true(problem_write(&e, "/v1/x", "req_1", &b));
        json_t *doc = json_loadb(b.data, b.len, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(doc);
        char type[128];
        snprintf(type, sizeof type, "/errors/%s", row->code);
        assert_string_equal(text_of(doc, "type"), type);
        assert_string_equal(text_of(doc, "title"), row->title);
        assert_int_equal(json_integer_value(json_object_get(doc, "status")), row->status);
        assert_int_equal(problem_status(&e), row->status);
        assert_in_range(row->status, 400, 599);
        assert_string_equal(text_of(doc, "detail"), "what happened");
        assert_string_equal(text_of(doc, "instance"), "/v1/x");
        assert_string_equal(text_of(doc, "provider"), "vercel");
        assert_string_equal(text_of(doc, "code"), row->code);
        assert_string_equal(text_of(doc, "request_id"), "req_1");
        assert_string_equal(text_of(doc, "outcome"), "started");
        assert_int_equal(json_is_true(json_object_get(doc, "retryable")), row->retryable != 0);
        bool known = false;
        for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
            known = known || strcmp(reasons[i], text_of(doc, "reason")) == 0;
        assert_true(known);
        assert_int_equal(json_object_size(doc), 11); /* nothing that is not known */
        json_decref(doc);
        sg_buf_free(&b);
    }
}

static void c10_members_appear_when_known(void **state)
{
    (void)state;
    struct sg_error e;
    (void)sg_fail_field(&e, SG_E_FILE_ERROR, "/a~1b/0", "bad");
    e.outcome = SG_OUTCOME_UNKNOWN;
    e.retry_after_ms = 1001;
    e.oldest = 0;
    e.accepted = 7;
    e.upstream_status = 502;
    snprintf(e.upstream_code, sizeof e.upstream_code, "bad_gateway");
    snprintf(e.upstream_request_id, sizeof e.upstream_request_id, "iad1::x");
    snprintf(e.errno_name, sizeof e.errno_name, "ENOENT");
    json_t *doc = problem_json(&e, NULL, NULL);
    assert_string_equal(text_of(doc, "pointer"), "/a~1b/0");
    assert_string_equal(text_of(doc, "errno"), "ENOENT");
    assert_string_equal(text_of(doc, "outcome"), "unknown");
    assert_int_equal(json_integer_value(json_object_get(doc, "retry_after_ms")), 1001);
    assert_true(json_is_integer(json_object_get(doc, "oldest")));
    assert_int_equal(json_integer_value(json_object_get(doc, "accepted")), 7);
    const json_t *up = json_object_get(doc, "upstream");
    assert_int_equal(json_integer_value(json_object_get(up, "status")), 502);
    assert_string_equal(text_of(up, "code"), "bad_gateway");
    assert_string_equal(text_of(up, "request_id"), "iad1::x");
    assert_null(json_object_get(doc, "instance"));
    assert_null(json_object_get(doc, "request_id"));
    assert_int_equal(problem_retry_after(&e), 2);
    e.retry_after_ms = 2000;
    assert_int_equal(problem_retry_after(&e), 2);
    e.retry_after_ms = -1;
    assert_int_equal(problem_retry_after(&e), -1);
    json_decref(doc);
}

/* P62-like: foreign bytes in a detail never break our document. */
static void p62_foreign_bytes_do_not_break_the_document(void **state)
{
    (void)state;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_UPSTREAM_BAD_RESPONSE, SG_OUTCOME_UNKNOWN, "got \"\xff\xfe<html>");
    json_t *doc = problem_json(&e, "/v1/\xff", "r");
    assert_non_null(doc);
    assert_string_equal(text_of(doc, "detail"), "got \"?\?<html>");
    assert_string_equal(text_of(doc, "instance"), "/v1/?");
    json_decref(doc);
    sg_error_clear(&e);
    e.code = (enum sg_code)9999;
    doc = problem_json(&e, NULL, NULL);
    assert_string_equal(text_of(doc, "code"), "internal");
    json_decref(doc);
}

/* ---- workers ---- */

struct job {
    struct work work;
    pthread_mutex_t *lock;
    pthread_cond_t *cond;
    bool *open;
    atomic_int *ran;
};

static void run_job(struct work *w)
{
    struct job *j = (struct job *)w;
    pthread_mutex_lock(j->lock);
    while (!*j->open)
        pthread_cond_wait(j->cond, j->lock);
    pthread_mutex_unlock(j->lock);
    atomic_fetch_add(j->ran, 1);
}

static void workers_are_bounded_and_run_everything(void **state)
{
    (void)state;
    enum { THREADS = 8, QUEUE = 5 };
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    bool open = false;
    atomic_int ran = 0;
    struct workers *p = workers_new(THREADS, QUEUE, (size_t)256 * 1024);
    assert_non_null(p);
    struct job jobs[THREADS + QUEUE + 1];
    for (size_t i = 0; i < THREADS + QUEUE + 1; i++) {
        jobs[i] = (struct job){{NULL, run_job}, &lock, &cond, &open, &ran};
        assert_int_equal(workers_submit(p, &jobs[i].work), i < THREADS + QUEUE);
    }
    assert_int_equal(workers_load(p), THREADS + QUEUE);
    pthread_mutex_lock(&lock);
    open = true;
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&lock);
    struct job *many = calloc(1000, sizeof *many);
    assert_non_null(many);
    int taken = THREADS + QUEUE;
    for (size_t i = 0; i < 1000; i++) {
        many[i] = jobs[0];
        taken += workers_submit(p, &many[i].work);
    }
    workers_free(p); /* waits for all of them */
    assert_int_equal(ran, taken);
    free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uri_segments),
        cmocka_unit_test(uri_queries),
        cmocka_unit_test(routes_match),
        cmocka_unit_test(routes_do_not_match),
        cmocka_unit_test(c10_every_code_has_its_document),
        cmocka_unit_test(c10_members_appear_when_known),
        cmocka_unit_test(p62_foreign_bytes_do_not_break_the_document),
        cmocka_unit_test(workers_are_bounded_and_run_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
