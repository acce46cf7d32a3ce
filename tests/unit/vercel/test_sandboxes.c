/* One function per endpoint: what each sends, and what its answer becomes.  A3 C10 */
#include "fixture.h"

#include "vercel/sandboxes.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SANDBOX                                                                                              \
    "{\"sandbox\":{\"name\":\"t1\",\"persistent\":true,\"region\":\"iad1\",\"vcpus\":2,\"memory\":4096,"     \
    "\"timeout\":300000,\"createdAt\":1796039000000,\"updatedAt\":1796039000001,\"currentSessionId\":\"sbx_" \
    "01\","                                                                                                  \
    "\"status\":\"running\",\"cwd\":\"/"                                                                     \
    "vercel\",\"tags\":{\"env\":\"x\"},\"keepLastSnapshots\":{\"count\":2}},"                                \
    "\"session\":{\"id\":\"sbx_01\",\"status\":\"running\",\"timeout\":300000,\"startedAt\":5,\"cwd\":\"/"   \
    "vercel\"},"                                                                                             \
    "\"routes\":[{\"url\":\"https://"                                                                        \
    "sb-a.vercel.run\",\"subdomain\":\"sb-a\",\"port\":3000}],\"resumed\":false}"

struct play {
    int status;
    const char *body;
    char seen[4096]; /* method, target, body */
};

static void play(struct raw_conn *c, int n, void *arg)
{
    struct play *p = arg;
    struct raw_request r;
    (void)n;
    while (raw_read(c, &r)) {
        snprintf(p->seen, sizeof p->seen, "%s %s %s", r.method, r.target, r.body);
        raw_answer(c, p->status, "application/json", "", p->body);
    }
}

static const struct tuning tuning = {.retries = 0, .team_id = "team_1", .project_id = "prj_1"};

struct step {
    enum { CREATE, CREATE_RUNTIME, GET, RESUME, LIST, DELETE, STOP } what;
    struct vercel_sandbox s;
    struct vercel_page page;
    enum sg_code code;
    struct sg_error error;
};

static void do_step(struct fixture *f, void *arg)
{
    struct step *x = arg;
    const struct vercel_list_query q = {.limit = 50, .cursor = "c&1", .tag = "k:v w"};
    json_t *body = json_pack("{s:s}", x->what == CREATE_RUNTIME ? "runtime" : "name", "t1");
    switch (x->what) {
    case CREATE:
    case CREATE_RUNTIME:
        x->code = vercel_create(f->client, body, &x->s, &x->error);
        break;
    case GET:
    case RESUME:
        x->code = vercel_get(f->client, "t1", x->what == RESUME, &x->s, &x->error);
        break;
    case LIST:
        x->code = vercel_list(f->client, &q, &x->page, &x->error);
        break;
    case DELETE:
        x->code = vercel_delete(f->client, "t1", true, &x->error);
        break;
    case STOP:
        x->code = vercel_stop(f->client, "sbx_01", &x->error);
        break;
    }
    json_decref(body);
}

static void test_requests(void **state)
{
    (void)state;
    static const struct {
        int what;
        const char *answer, *sent;
    } cases[] = {
        {CREATE, SANDBOX, "POST /api/v4/sandboxes?teamId=team_1 {\"name\":\"t1\",\"projectId\":\"prj_1\"}"},
        {CREATE_RUNTIME, SANDBOX,
         "POST /api/v2/sandboxes?teamId=team_1 {\"runtime\":\"t1\",\"projectId\":\"prj_1\"}"},
        {GET, SANDBOX, "GET /api/v2/sandboxes/t1?teamId=team_1&projectId=prj_1 "},
        {RESUME, SANDBOX, "GET /api/v2/sandboxes/t1?teamId=team_1&projectId=prj_1&resume=true "},
        {LIST, "{\"sandboxes\":[],\"pagination\":{\"count\":0,\"next\":null}}",
         "GET /api/v2/sandboxes?teamId=team_1&limit=50&project=prj_1&cursor=c%261&tags=k%3Av%20w "},
        {DELETE, SANDBOX,
         "DELETE /api/v2/sandboxes/t1?teamId=team_1&projectId=prj_1&deleteOrphanSnapshots=true "},
        {STOP, "{\"session\":{}}", "POST /api/v2/sandboxes/sessions/sbx_01/stop?teamId=team_1 "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct play p = {.status = 200, .body = cases[i].answer};
        struct fixture f;
        struct step x = {.what = cases[i].what};
        fixture_open(&f, play, &p, &tuning);
        fixture_blocking(&f, do_step, &x);
        assert_int_equal(x.code, SG_OK);
        assert_string_equal(p.seen, cases[i].sent);
        if (x.what <= RESUME) {
            assert_string_equal(x.s.name, "t1");
            assert_int_equal(x.s.status, VERCEL_RUNNING);
            assert_string_equal(x.s.session_id, "sbx_01");
            assert_int_equal(x.s.session_started_at, 5);
            assert_int_equal(x.s.created_at, 1796039000000);
            assert_int_equal(x.s.expires_at, -1);
            assert_int_equal(x.s.keep_count, 2);
            assert_int_equal(x.s.keep_delete_evicted, -1);
            assert_int_equal(x.s.nroutes, 1);
            assert_int_equal(x.s.routes[0].port, 3000);
            assert_null(x.s.image);
        }
        vercel_sandbox_clear(&x.s);
        vercel_page_clear(&x.page);
        fixture_close(&f);
    }
}

/* A3: an existing name is one thing, however the upstream says it. */
static void test_refusals_A3(void **state)
{
    (void)state;
    static const struct {
        int what, status;
        const char *body;
        enum sg_code code;
    } cases[] = {
        {CREATE, 409, "{\"error\":{\"code\":\"conflict\",\"message\":\"x\"}}", SG_E_SANDBOX_EXISTS},
        {CREATE, 400,
         "{\"error\":{\"code\":\"bad_request\",\"message\":\"A sandbox with the name 't1' already exists for "
         "this project. Use GET /sandboxes/:name to resume it or delete it first.\"}}",
         SG_E_SANDBOX_EXISTS},
        {CREATE, 404, "{\"error\":{\"code\":\"not_found\",\"message\":\"image\"}}", SG_E_UPSTREAM_NOT_FOUND},
        {GET, 404, "{\"error\":{\"code\":\"not_found\",\"message\":\"x\"}}", SG_E_SANDBOX_NOT_FOUND},
        {RESUME, 400, "{\"error\":{\"message\":\"Cannot resume sandbox: no snapshot available.\"}}",
         SG_E_NOT_RESUMABLE},
        {RESUME, 410, "{\"error\":{\"code\":\"snapshot_not_found\",\"message\":\"x\"}}", SG_E_SNAPSHOT_GONE},
        {RESUME, 422, "{\"error\":{\"code\":\"sandbox_snapshotting\",\"message\":\"x\"}}",
         SG_E_SANDBOX_TRANSITION},
        {DELETE, 404, "{\"error\":{\"code\":\"not_found\",\"message\":\"x\"}}", SG_E_SANDBOX_NOT_FOUND},
        {STOP, 410, "{\"error\":{\"code\":\"sandbox_stopped\",\"message\":\"x\"}}", SG_OK},
        {STOP, 422, "{\"error\":{\"code\":\"sandbox_stopping\",\"message\":\"x\"}}", SG_E_SANDBOX_TRANSITION},
        {STOP, 200, "<html>", SG_E_UPSTREAM_BAD_RESPONSE},
        {LIST, 200, "{\"sandboxes\":[]}", SG_E_UPSTREAM_BAD_RESPONSE},
        {GET, 200, "{}", SG_E_UPSTREAM_BAD_RESPONSE},
        {GET, 200, "{\"sandbox\":{\"name\":\"t1\",\"status\":7,\"createdAt\":1}}",
         SG_E_UPSTREAM_BAD_RESPONSE},
        {GET, 200,
         "{\"sandbox\":{\"name\":\"t1\",\"status\":\"running\",\"createdAt\":1},\"session\":{\"id\":\"a/"
         "b\"}}",
         SG_E_UPSTREAM_BAD_RESPONSE},
        {GET, 200,
         "{\"sandbox\":{\"name\":\"t1\",\"status\":\"running\",\"createdAt\":1},\"routes\":[{\"port\":0}]}",
         SG_E_UPSTREAM_BAD_RESPONSE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct play p = {.status = cases[i].status, .body = cases[i].body};
        struct fixture f;
        struct step x = {.what = cases[i].what};
        fixture_open(&f, play, &p, &tuning);
        fixture_blocking(&f, do_step, &x);
        assert_int_equal(x.code, cases[i].code);
        assert_null(x.s.doc.text);
        assert_null(x.page.doc.text);
        assert_int_equal(raw_requests(f.server), 1);
        fixture_close(&f);
    }
}

static void test_unknown_status_is_kept_apart(void **state)
{
    (void)state;
    static const char text[] = "{\"sandbox\":{\"name\":\"n\",\"status\":\"hibernating\",\"createdAt\":1.0}}";
    struct vercel_sandbox s;
    struct sg_error e;
    assert_int_equal(vercel_sandbox_parse(strdup(text), strlen(text), &s, &e), SG_OK);
    assert_int_equal(s.status, VERCEL_STATUS_OTHER);
    assert_int_equal(s.session_status, VERCEL_STATUS_OTHER);
    assert_int_equal(s.created_at, 1);
    assert_string_equal(s.name, "n");
    vercel_sandbox_clear(&s);
}

static void test_pages(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n; /* SIZE_MAX: refused */
        const char *next;
    } cases[] = {
        {"{\"sandboxes\":[],\"pagination\":{}}", 0, NULL},
        {"{\"sandboxes\":[{\"name\":\"a\",\"status\":\"running\",\"createdAt\":1,\"tags\":{\"k\":\"v\"}},"
         "{\"name\":\"b\",\"status\":\"stopped\",\"createdAt\":2}],\"pagination\":{\"next\":\"c\"}}",
         2, "c"},
        {"{\"sandboxes\":[{\"name\":\"a\"}],\"pagination\":{}}", SIZE_MAX, NULL},
        {"{\"sandboxes\":[7],\"pagination\":{}}", SIZE_MAX, NULL},
        {"{\"sandboxes\":{},\"pagination\":{}}", SIZE_MAX, NULL},
        {"{\"sandboxes\":[]}", SIZE_MAX, NULL},
        {"[]", SIZE_MAX, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct vercel_page p;
        struct sg_error e;
        enum sg_code code = vercel_page_parse(strdup(cases[i].text), strlen(cases[i].text), &p, &e);
        assert_int_equal(code, cases[i].n == SIZE_MAX ? SG_E_UPSTREAM_BAD_RESPONSE : SG_OK);
        if (code)
            continue;
        assert_int_equal(p.n, cases[i].n);
        if (p.n) {
            assert_string_equal(p.items[0].name, "a");
            assert_int_equal(p.items[0].status, VERCEL_RUNNING);
            assert_string_equal(sg_jn_str(p.items[0].tags, "k", ""), "v");
            assert_string_equal(p.items[1].name, "b");
            assert_null(p.items[1].session_id);
        }
        assert_true(cases[i].next ? p.next && strcmp(cases[i].next, p.next) == 0 : !p.next);
        vercel_page_clear(&p);
    }
}

struct got {
    bool done;
    char name[32];
    enum sg_code code;
};

static void on_get(void *arg, struct vercel_sandbox *s, const struct sg_error *e)
{
    struct got *g = arg;
    g->done = true;
    g->code = e ? e->code : SG_OK;
    snprintf(g->name, sizeof g->name, "%s", s ? s->name : "");
}

static void test_get_on_the_loop(void **state)
{
    (void)state;
    struct play p = {.status = 200, .body = SANDBOX};
    struct fixture f;
    struct got g = {0};
    struct sg_error e;
    fixture_open(&f, play, &p, &tuning);
    assert_non_null(vercel_get_start(f.client, "t1", false, on_get, &g, &e));
    fixture_run(&f, &g.done);
    assert_string_equal(g.name, "t1");
    g = (struct got){0};
    p.status = 404;
    p.body = "{\"error\":{\"code\":\"not_found\"}}";
    assert_non_null(vercel_get_start(f.client, "t1", false, on_get, &g, &e));
    fixture_run(&f, &g.done);
    assert_int_equal(g.code, SG_E_SANDBOX_NOT_FOUND);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_refusals_A3),
        cmocka_unit_test(test_unknown_status_is_kept_apart),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_get_on_the_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
