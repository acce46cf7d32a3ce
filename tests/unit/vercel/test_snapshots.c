/* Snapshots, changes, forks, sessions: what each call sends, how often, and what its answer becomes.  A6 E5 P58 */
#include "fixture.h"

#include "vercel/snapshots.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SNAPSHOT                                                                                             \
    "{\"id\":\"snap_1\",\"sourceSessionId\":\"sbx_1\",\"region\":\"iad1\",\"status\":\"created\","           \
    "\"sizeBytes\":7,\"createdAt\":1796039000000,\"updatedAt\":1796039000001,\"parentId\":\"snap_0\","       \
    "\"creationMethod\":\"manual\"}"
#define ONE_SNAPSHOT "{\"snapshot\":" SNAPSHOT "}"
#define SESSION                                                                                              \
    "{\"id\":\"sbx_2\",\"status\":\"stopped\",\"createdAt\":1,\"startedAt\":2,\"stoppedAt\":3,"              \
    "\"timeout\":300000,\"vcpus\":2,\"memory\":4096,\"region\":\"fra1\",\"sourceSnapshotId\":\"snap_0\"}"
#define SANDBOX     "{\"sandbox\":{\"name\":\"t2\",\"status\":\"running\",\"createdAt\":1}}"
#define PAGE(list)  "{" list ",\"pagination\":{\"count\":1,\"next\":\"c2\"}}"
#define ERROR(code) "{\"error\":{\"code\":\"" code "\",\"message\":\"x\"}}"

struct play {
    int status;
    const char *body;
    char seen[4096]; /* method, target, body */
    bool cut;        /* no answer: the connection is reset once the request was read */
};

static pthread_mutex_t seen_lock =
    PTHREAD_MUTEX_INITIALIZER; /* a second attempt has a connection of its own */

static void play(struct raw_conn *c, int n, void *arg)
{
    struct play *p = arg;
    struct raw_request r;
    (void)n;
    while (raw_read(c, &r)) {
        pthread_mutex_lock(&seen_lock);
        snprintf(p->seen, sizeof p->seen, "%s %s %s", r.method, r.target, r.body);
        pthread_mutex_unlock(&seen_lock);
        if (p->cut) {
            raw_reset(c);
            return;
        }
        raw_answer(c, p->status, "application/json", "", p->body);
    }
}

static const struct tuning tuning = {.retries = 1, .team_id = "team_1", .project_id = "prj_1"};

enum what { GET, LIST, LIST_ALL, DELETE, TAKE, UPDATE, FORK, EXTEND, SESSIONS };

struct step {
    enum what what;
    struct vercel_snapshot snapshot;
    struct vercel_snapshot_page snapshots;
    struct vercel_session_page sessions;
    struct vercel_sandbox sandbox;
    int64_t timeout_ms;
    enum sg_code code;
    struct sg_error error;
};

static void do_step(struct fixture *f, void *arg)
{
    struct step *x = arg;
    json_t *body = json_pack("{s:s}", "name", "t2");
    switch (x->what) {
    case GET:
        x->code = vercel_snapshot_get(f->client, "snap_1", &x->snapshot, &x->error);
        break;
    case LIST:
        x->code = vercel_snapshot_list(f->client, "t1", 20, "c&1", &x->snapshots, &x->error);
        break;
    case LIST_ALL:
        x->code = vercel_snapshot_list(f->client, NULL, 50, NULL, &x->snapshots, &x->error);
        break;
    case DELETE:
        x->code = vercel_snapshot_delete(f->client, "snap_1", &x->error);
        break;
    case TAKE:
        x->code = vercel_snapshot_take(f->client, "sbx_1", 0, &x->snapshot, &x->error);
        break;
    case UPDATE:
        x->code = vercel_update(f->client, "t1", body, &x->sandbox, &x->error);
        break;
    case FORK:
        x->code = vercel_fork(f->client, "t1", body, &x->sandbox, &x->error);
        break;
    case EXTEND:
        x->code = vercel_extend(f->client, "sbx_1", 60000, &x->timeout_ms, &x->error);
        break;
    case SESSIONS:
        x->code = vercel_session_list(f->client, "t1", 20, NULL, &x->sessions, &x->error);
        break;
    }
    json_decref(body);
}

/* Returns how many requests it took. */
static int run(struct step *x, struct play *p)
{
    struct fixture f;
    fixture_open(&f, play, p, &tuning);
    fixture_blocking(&f, do_step, x);
    int n = raw_requests(f.server);
    fixture_close(&f);
    return n;
}

static void step_clear(struct step *x)
{
    vercel_snapshot_clear(&x->snapshot);
    vercel_snapshot_page_clear(&x->snapshots);
    vercel_session_page_clear(&x->sessions);
    vercel_sandbox_clear(&x->sandbox);
}

static void test_requests(void **state)
{
    (void)state;
    static const struct {
        enum what what;
        const char *answer, *sent;
    } cases[] = {
        {GET, ONE_SNAPSHOT, "GET /api/v2/sandboxes/snapshots/snap_1?teamId=team_1 "},
        {LIST, PAGE("\"snapshots\":[" SNAPSHOT "]"),
         "GET /api/v2/sandboxes/snapshots?teamId=team_1&limit=20&project=prj_1&name=t1&cursor=c%261&"
         "sortOrder=desc "},
        {LIST_ALL, PAGE("\"snapshots\":[" SNAPSHOT "]"),
         "GET /api/v2/sandboxes/snapshots?teamId=team_1&limit=50&project=prj_1&sortOrder=desc "},
        {DELETE, ONE_SNAPSHOT, "DELETE /api/v2/sandboxes/snapshots/snap_1?teamId=team_1 "},
        {TAKE, ONE_SNAPSHOT,
         "POST /api/v2/sandboxes/sessions/sbx_1/snapshot?teamId=team_1 {\"expiration\":0}"},
        {UPDATE, SANDBOX, "PATCH /api/v2/sandboxes/t1?teamId=team_1&projectId=prj_1 {\"name\":\"t2\"}"},
        {FORK, SANDBOX, "POST /api/v3/sandboxes/t1/fork?teamId=team_1&projectId=prj_1 {\"name\":\"t2\"}"},
        {EXTEND, "{\"session\":{\"id\":\"sbx_1\",\"timeout\":360000}}",
         "POST /api/v2/sandboxes/sessions/sbx_1/extend-timeout?teamId=team_1 {\"duration\":60000}"},
        {SESSIONS, PAGE("\"sessions\":[" SESSION "]"),
         "GET /api/v2/sandboxes/sessions?teamId=team_1&limit=20&project=prj_1&name=t1&sortOrder=desc "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct play p = {.status = cases[i].what == TAKE ? 201 : 200, .body = cases[i].answer};
        struct step x = {.what = cases[i].what};
        assert_int_equal(run(&x, &p), 1);
        assert_int_equal(x.code, SG_OK);
        assert_string_equal(p.seen, cases[i].sent);
        if (x.what == GET || x.what == TAKE)
            assert_string_equal(x.snapshot.id, "snap_1");
        if (x.what == LIST || x.what == LIST_ALL) {
            assert_int_equal(x.snapshots.n, 1);
            assert_string_equal(x.snapshots.items[0].parent_id, "snap_0");
            assert_string_equal(x.snapshots.next, "c2");
        }
        if (x.what == UPDATE || x.what == FORK)
            assert_string_equal(x.sandbox.name, "t2");
        if (x.what == EXTEND)
            assert_int_equal(x.timeout_ms, 360000);
        if (x.what == SESSIONS) {
            assert_int_equal(x.sessions.n, 1);
            assert_string_equal(x.sessions.items[0].id, "sbx_2");
            assert_int_equal(x.sessions.items[0].status, VERCEL_STOPPED);
            assert_int_equal(x.sessions.items[0].stopped_at, 3);
            assert_string_equal(x.sessions.items[0].source_snapshot_id, "snap_0");
        }
        step_clear(&x);
    }
}

/* What the upstream refuses is told as what it means here, and asked once. */
static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        enum what what;
        int status;
        const char *body;
        enum sg_code code;
    } cases[] = {
        {GET, 404, ERROR("not_found"), SG_E_SNAPSHOT_NOT_FOUND},
        {GET, 410, ERROR("snapshot_not_found"), SG_E_SNAPSHOT_NOT_FOUND},
        {GET, 410, ERROR("gone"), SG_E_SNAPSHOT_NOT_FOUND},
        {GET, 200, "{}", SG_E_UPSTREAM_BAD_RESPONSE},
        {LIST, 404, ERROR("not_found"), SG_E_SANDBOX_NOT_FOUND},
        {LIST_ALL, 404, ERROR("not_found"), SG_E_UPSTREAM_NOT_FOUND},
        {LIST, 200, ONE_SNAPSHOT, SG_E_UPSTREAM_BAD_RESPONSE},
        {DELETE, 404, ERROR("not_found"), SG_E_SNAPSHOT_NOT_FOUND},
        {DELETE, 410, ERROR("snapshot_expired"), SG_OK},
        {DELETE, 409, ERROR("conflict"), SG_E_UPSTREAM_CONFLICT},
        {TAKE, 410, ERROR("sandbox_stopped"), SG_E_STALE_SESSION},
        {TAKE, 422, ERROR("sandbox_snapshotting"), SG_E_SANDBOX_TRANSITION},
        {TAKE, 404, ERROR("not_found"), SG_E_SANDBOX_NOT_FOUND},
        {TAKE, 402, ERROR("payment_required"), SG_E_PLAN_LIMIT},
        {TAKE, 201, "{\"snapshot\":{\"id\":\"snap_1\",\"status\":\"failed\",\"createdAt\":1}}",
         SG_E_UPSTREAM_UNAVAILABLE},
        {UPDATE, 404, ERROR("not_found"), SG_E_SANDBOX_NOT_FOUND},
        {FORK, 404, ERROR("not_found"), SG_E_SANDBOX_NOT_FOUND},
        {FORK, 409, ERROR("conflict"), SG_E_SANDBOX_EXISTS},
        {FORK, 400,
         "{\"error\":{\"code\":\"bad_request\",\"message\":\"A sandbox with the name 't2' already exists\"}}",
         SG_E_SANDBOX_EXISTS},
        {FORK, 410, ERROR("snapshot_not_found"), SG_E_SNAPSHOT_GONE},
        {FORK, 410, ERROR("gone"), SG_E_SNAPSHOT_GONE},
        {FORK, 422, ERROR("snapshot_region_mismatch"), SG_E_UPSTREAM_REJECTED},
        {EXTEND, 400, ERROR("sandbox_timeout_invalid"), SG_E_SESSION_LIMIT},
        {EXTEND, 400, ERROR("bad_request"), SG_E_UPSTREAM_REJECTED},
        {EXTEND, 410, ERROR("sandbox_stopped"), SG_E_STALE_SESSION},
        {EXTEND, 404, ERROR("not_found"), SG_E_STALE_SESSION},
        {EXTEND, 200, "{\"session\":{}}", SG_E_UPSTREAM_BAD_RESPONSE},
        {SESSIONS, 404, ERROR("not_found"), SG_E_SANDBOX_NOT_FOUND},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct play p = {.status = cases[i].status, .body = cases[i].body};
        struct step x = {.what = cases[i].what};
        assert_int_equal(run(&x, &p), 1);
        assert_int_equal(x.code, cases[i].code);
        if (x.code)
            assert_int_equal(x.error.code, cases[i].code);
        assert_null(x.snapshot.doc.text);
        assert_null(x.snapshots.doc.text);
        assert_null(x.sessions.doc.text);
        assert_null(x.sandbox.doc.text);
    }
}

/* A capture, a fork or an extension whose answer is lost may have happened: it is never asked for again.  The others are the
 * same when repeated. */
static void test_what_is_sent_again(void **state)
{
    (void)state;
    static const struct {
        enum what what;
        int times;
    } cases[] = {{GET, 2},  {LIST, 2}, {DELETE, 2}, {UPDATE, 2},
                 {TAKE, 1}, {FORK, 1}, {EXTEND, 1}, {SESSIONS, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct play p = {.cut = true};
        struct step x = {.what = cases[i].what};
        assert_int_equal(run(&x, &p), cases[i].times);
        assert_int_equal(x.code, SG_E_UPSTREAM_UNREACHABLE);
        assert_int_equal(x.error.outcome, SG_OUTCOME_UNKNOWN);
    }
}

static void test_snapshot_forms(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool good;
        enum vercel_snapshot_status status;
        int64_t expires_at;
        const char *regions; /* joined */
    } cases[] = {
        {ONE_SNAPSHOT, true, VERCEL_SNAPSHOT_CREATED, -1, "iad1 "},
        {"{\"snapshot\":{\"id\":\"s\",\"status\":\"deleted\",\"createdAt\":1,\"expiresAt\":5,\"regions\":["
         "\"a\",7,\"\",\"b\"]}}",
         true, VERCEL_SNAPSHOT_DELETED, 5, "a b "},
        {"{\"snapshot\":{\"id\":\"s\",\"status\":\"frozen\",\"createdAt\":1.0,\"expiresAt\":-7}}", true,
         VERCEL_SNAPSHOT_OTHER, -1, ""},
        {"{\"snapshot\":{\"status\":\"created\",\"createdAt\":1}}", false, 0, 0, ""},
        {"{\"snapshot\":{\"id\":\"a/b\",\"status\":\"created\",\"createdAt\":1}}", false, 0, 0, ""},
        {"{\"snapshot\":{\"id\":\"s\",\"createdAt\":1}}", false, 0, 0, ""},
        {"{\"snapshot\":{\"id\":\"s\",\"status\":\"created\"}}", false, 0, 0, ""},
        {"{\"snapshot\":[]}", false, 0, 0, ""},
        {"[]", false, 0, 0, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct vercel_snapshot s;
        struct sg_error e;
        char regions[128] = "";
        enum sg_code code = vercel_snapshot_parse(strdup(cases[i].text), strlen(cases[i].text), &s, &e);
        assert_int_equal(code, cases[i].good ? SG_OK : SG_E_UPSTREAM_BAD_RESPONSE);
        if (code)
            continue;
        assert_int_equal(s.status, cases[i].status);
        assert_int_equal(s.expires_at, cases[i].expires_at);
        for (size_t k = 0; s.regions[k]; k++) {
            strncat(regions, s.regions[k], 32);
            strncat(regions, " ", 2);
        }
        assert_string_equal(regions, cases[i].regions);
        vercel_snapshot_clear(&s);
    }
}

/* More regions than are kept: the first ones. */
static void test_many_regions(void **state)
{
    (void)state;
    struct vercel_snapshot s;
    struct sg_error e;
    json_t *list = json_array();
    for (int i = 0; i < 100; i++)
        json_array_append_new(list, json_sprintf("r%d", i));
    json_t *doc = json_pack("{s:{s:s,s:s,s:i,s:o}}", "snapshot", "id", "s", "status", "created", "createdAt",
                            1, "regions", list);
    char *text = json_dumps(doc, JSON_COMPACT);
    json_decref(doc);
    assert_int_equal(vercel_snapshot_parse(text, strlen(text), &s, &e), SG_OK);
    assert_string_equal(s.regions[VERCEL_SNAPSHOT_REGIONS - 1], "r30");
    assert_null(s.regions[VERCEL_SNAPSHOT_REGIONS]);
    vercel_snapshot_clear(&s);
}

static void test_pages(void **state)
{
    (void)state;
    static const struct {
        const char *snapshots, *sessions; /* one bad entry spoils the page */
    } bad[] = {
        {PAGE("\"snapshots\":[" SNAPSHOT ",7]"), PAGE("\"sessions\":[" SESSION ",7]")},
        {PAGE("\"snapshots\":{}"), PAGE("\"sessions\":{}")},
        {"{\"snapshots\":[]}", "{\"sessions\":[]}"},
        {PAGE("\"snapshots\":[{\"id\":\"\"}]"), PAGE("\"sessions\":[{\"id\":\"a?\",\"createdAt\":1}]")},
        {"7", "7"},
    };
    struct vercel_snapshot_page p;
    struct vercel_session_page q;
    struct sg_error e;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *a = bad[i].snapshots, *b = bad[i].sessions;
        assert_int_equal(vercel_snapshot_page_parse(strdup(a), strlen(a), &p, &e),
                         SG_E_UPSTREAM_BAD_RESPONSE);
        assert_null(p.items);
        assert_int_equal(vercel_session_page_parse(strdup(b), strlen(b), &q, &e), SG_E_UPSTREAM_BAD_RESPONSE);
        assert_null(q.items);
    }
    static const char empty[] = "{\"snapshots\":[],\"sessions\":[],\"pagination\":{\"next\":null}}";
    assert_int_equal(vercel_snapshot_page_parse(strdup(empty), strlen(empty), &p, &e), SG_OK);
    assert_true(p.n == 0 && !p.next);
    vercel_snapshot_page_clear(&p);
    assert_int_equal(vercel_session_page_parse(strdup(empty), strlen(empty), &q, &e), SG_OK);
    assert_true(q.n == 0 && !q.next);
    vercel_session_page_clear(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),           cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_what_is_sent_again), cmocka_unit_test(test_snapshot_forms),
        cmocka_unit_test(test_many_regions),       cmocka_unit_test(test_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
