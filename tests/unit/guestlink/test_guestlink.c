/* The way to the helper: one upstream call where it is there, one upload where it is not, lines cut anywhere.
 * U3 C10 */
#include "fixture.h"

#include "base/clock.h"
#include "guestlink/hosts.h"
#include "guestlink/internal.h"
#include "guestlink/lines.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH "0123456789abcdef"

static const struct guest_blob blob = {"amd64", (const unsigned char *)"\177ELF helper", 11, HASH};

static const struct guest_blob *find_blob(const char *arch)
{
    return strcmp(arch, "amd64") ? NULL : &blob;
}

/* A session as the upstream would play it. */
struct upstream {
    pthread_mutex_t lock;
    bool installed;
    bool missing_is_exit; /* a missing program is a command that ends with 127, not a refusal */
    bool never_runs;      /* the helper cannot be executed */
    bool upload_fails;
    bool gate_upload; /* an upload waits for the test */
    const char *says; /* what the helper prints, JSON-escaped */
    const char *err;  /* on stderr */
    bool cut;         /* the stream ends without the last command line */
    int runs, uploads, installs, kills;
    char last_run[4096], last_kill[256];
};

static void stream(struct raw_conn *c, const struct upstream *u, bool run, int exit_code)
{
    char text[16384];
    int n = snprintf(text, sizeof text, "{\"command\":{\"id\":\"cmd_1\",\"exitCode\":null}}\n");
    if (run && u->err)
        n += snprintf(text + n, sizeof text - (size_t)n, "{\"stream\":\"stderr\",\"data\":\"%s\"}\n", u->err);
    if (run) /* split in the middle of a line, as the upstream may */
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "{\"stream\":\"stdout\",\"data\":\"%.7s\"}\n{\"stream\":\"stdout\",\"data\":\"%s\"}\n",
                      u->says, strlen(u->says) > 7 ? u->says + 7 : "");
    if (!(run && u->cut))
        n += snprintf(text + n, sizeof text - (size_t)n, "{\"command\":{\"id\":\"cmd_1\",\"exitCode\":%d}}\n",
                      exit_code);
    raw_answer(c, 200, "application/x-ndjson", "", text);
}

static void play_command(struct raw_conn *c, struct upstream *u, const char *body)
{
    pthread_mutex_lock(&u->lock);
    u->runs++;
    snprintf(u->last_run, sizeof u->last_run, "%s", body);
    bool direct = strstr(body, "\"command\":\"" GUEST_ROOT "/guest-" HASH "\"") != NULL;
    bool install = strstr(body, "\"command\":\"" GUEST_ROOT "/.up-") != NULL;
    bool there = direct ? u->installed : install && u->uploads > 0;
    if (install && there && !u->never_runs) {
        u->installs++;
        u->installed = true;
    }
    pthread_mutex_unlock(&u->lock);
    if (there && !u->never_runs)
        stream(c, u, true, 0);
    else if (u->missing_is_exit || there)
        stream(c, u, false, 127);
    else
        raw_answer(c, 400, "application/json", "",
                   "{\"error\":{\"code\":\"executable_not_found\",\"message\":\"no\"}}");
}

static void play(struct raw_conn *c, int n, void *arg)
{
    struct upstream *u = arg;
    struct raw_request r;
    (void)n;
    while (raw_read(c, &r)) {
        if (strstr(r.target, "/kill")) {
            pthread_mutex_lock(&u->lock);
            u->kills++;
            snprintf(u->last_kill, sizeof u->last_kill, "%.100s %.100s", r.target, r.body);
            pthread_mutex_unlock(&u->lock);
            raw_answer(c, 200, "application/json", "", "{}");
            continue;
        }
        if (!strstr(r.target, "/fs/write")) {
            play_command(c, u, r.body);
            continue;
        }
        if (u->gate_upload && !raw_at_gate(c))
            return;
        pthread_mutex_lock(&u->lock);
        u->uploads++;
        pthread_mutex_unlock(&u->lock);
        if (u->upload_fails)
            raw_answer(c, 400, "application/json", "",
                       "{\"error\":{\"code\":\"bad_request\",\"message\":\"disk full\"}}");
        else
            raw_answer(c, 200, "application/json", "", "{}");
    }
}

struct seen {
    struct guest_call *call;
    char lines[64]; /* kinds, in order */
    char data[256];
    size_t len;
    int refuse;
    bool resume_later;
    bool done, hello, has_last, failed;
    struct sg_wire_line last;
    struct sg_error error;
};

static bool on_line(void *arg, const struct sg_wire_line *line)
{
    struct seen *s = arg;
    assert_false(s->done);
    if (s->refuse && s->refuse--) {
        s->resume_later = true;
        return false;
    }
    size_t n = strlen(s->lines);
    assert_true(n + 1 < sizeof s->lines);
    s->lines[n] = (char)line->kind;
    if (line->kind == SG_WIRE_DATA) {
        assert_int_equal(line->offset, s->len);
        memcpy(s->data + s->len, line->data, line->len);
        s->len += line->len;
    }
    return true;
}

static void on_end(void *arg, const struct sg_wire_line *line, bool hello, const struct sg_error *e)
{
    struct seen *s = arg;
    assert_false(s->done);
    assert_true(!line != !e);
    s->done = true;
    s->hello = hello;
    s->has_last = line != NULL;
    if (line)
        s->last = *line;
    s->failed = e != NULL;
    if (e)
        s->error = *e;
}

struct setup {
    struct fixture f;
    struct upstream u;
    struct guestlink *g;
};

static void open_setup(struct setup *s)
{
    pthread_mutex_init(&s->u.lock, NULL);
    if (!s->u.says)
        s->u.says = "H running 0 0 0 0 1796039000000 17 - 0 p1\\nD 1 0 aGVsbG8=\\nX exit 3 - 12 5 0\\n";
    fixture_open(&s->f, play, &s->u, NULL);
    s->g = guestlink_new(s->f.loop, s->f.client);
    assert_non_null(s->g);
    guestlink_set_blobs(s->g, find_blob);
}

static void close_setup(struct setup *s)
{
    guestlink_free(s->g);
    fixture_close(&s->f);
    pthread_mutex_destroy(&s->u.lock);
}

static void call(struct setup *s, struct seen *x)
{
    static const char *const args[] = {"run", "--session", "sbx_1", NULL};
    static const struct guest_events ev = {on_line, on_end};
    const struct guest_args a = {.session_id = "sbx_1", .args = args};
    struct sg_error e;
    x->call = guest_call_start(s->g, &a, &ev, x, &e);
    assert_non_null(x->call);
    assert_false(x->done);
}

static void wait_call(struct setup *s, struct seen *x)
{
    while (!x->done) {
        bool resume = x->resume_later;
        x->resume_later = false;
        if (resume)
            guest_resume(x->call);
        uv_run(sg_loop_uv(s->f.loop), resume ? UV_RUN_NOWAIT : UV_RUN_ONCE);
    }
}

static void check_whole(const struct seen *x)
{
    assert_false(x->failed);
    assert_true(x->hello);
    assert_string_equal(x->lines, "HD");
    assert_memory_equal(x->data, "hello", 5);
    assert_int_equal(x->last.kind, SG_WIRE_EXIT);
    assert_int_equal(x->last.process.value, 3);
}

static void test_one_call_where_it_is(void **state)
{
    (void)state;
    struct setup s = {.u.installed = true};
    open_setup(&s);
    for (int i = 0; i < 3; i++) {
        struct seen x = {.refuse = i};
        call(&s, &x);
        wait_call(&s, &x);
        check_whole(&x);
    }
    assert_int_equal(raw_requests(s.f.server), 3);
    assert_int_equal(s.u.uploads, 0);
    assert_non_null(strstr(s.u.last_run, "\"args\":[\"run\",\"--session\",\"sbx_1\"]"));
    close_setup(&s);
}

/* Missing, said in either way: one upload, the same call again, and known from then on. */
static void test_upload_where_it_is_missing(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct setup s = {.u.missing_is_exit = i};
        open_setup(&s);
        struct seen x = {0};
        call(&s, &x);
        wait_call(&s, &x);
        check_whole(&x);
        assert_int_equal(s.u.runs, 2);
        assert_int_equal(s.u.uploads, 1);
        assert_non_null(
            strstr(s.u.last_run, "\"args\":[\"--install\",\"" HASH "\",\"run\",\"--session\",\"sbx_1\"]"));
        struct seen y = {0};
        call(&s, &y);
        wait_call(&s, &y);
        check_whole(&y);
        assert_int_equal(raw_requests(s.f.server), 4);
        close_setup(&s);
    }
}

/* A session that was just created is not asked in vain. */
static void test_fresh_session_uploads_first(void **state)
{
    (void)state;
    struct setup s = {0};
    open_setup(&s);
    guestlink_fresh(s.g, "sbx_1");
    struct seen x = {0};
    call(&s, &x);
    wait_call(&s, &x);
    check_whole(&x);
    assert_int_equal(s.u.runs, 1);
    assert_int_equal(s.u.uploads, 1);
    close_setup(&s);
}

/* It was there and is not any more (the sandbox may remove it): uploaded again. */
static void test_removed_meanwhile(void **state)
{
    (void)state;
    struct setup s = {.u.installed = true};
    open_setup(&s);
    struct seen x = {0}, y = {0};
    call(&s, &x);
    wait_call(&s, &x);
    pthread_mutex_lock(&s.u.lock);
    s.u.installed = false;
    pthread_mutex_unlock(&s.u.lock);
    call(&s, &y);
    wait_call(&s, &y);
    check_whole(&y);
    assert_int_equal(s.u.uploads, 1);
    close_setup(&s);
}

static void test_concurrent_calls_share_one_upload(void **state)
{
    (void)state;
    for (int fresh = 0; fresh < 2; fresh++) {
        enum { N = 20 };
        struct setup s = {0};
        struct seen x[N] = {0};
        open_setup(&s);
        if (fresh)
            guestlink_fresh(s.g, "sbx_1");
        for (int i = 0; i < N; i++)
            call(&s, &x[i]);
        for (int i = 0; i < N; i++) {
            wait_call(&s, &x[i]);
            check_whole(&x[i]);
        }
        assert_int_equal(s.u.uploads, 1);
        assert_int_equal(s.u.installs, 1);
        close_setup(&s);
    }
}

/* The one that uploads is cancelled: another takes over; the cancelled one is never told. */
static void test_uploader_is_cancelled(void **state)
{
    (void)state;
    struct setup s = {.u.gate_upload = true};
    open_setup(&s);
    guestlink_fresh(s.g, "sbx_1");
    struct seen x = {0}, y = {0}, z = {0};
    call(&s, &x);
    call(&s, &y);
    call(&s, &z);
    while (raw_requests(s.f.server) < 1)
        uv_run(sg_loop_uv(s.f.loop), UV_RUN_NOWAIT);
    guest_cancel(x.call);
    guest_cancel(z.call);
    raw_open_gate(s.f.server);
    raw_open_gate(s.f.server);
    wait_call(&s, &y);
    check_whole(&y);
    assert_false(x.done);
    assert_false(z.done);
    close_setup(&s);
}

static void test_upload_refused(void **state)
{
    (void)state;
    struct setup s = {.u.upload_fails = true};
    open_setup(&s);
    struct seen x = {0}, y = {0};
    guestlink_fresh(s.g, "sbx_1");
    call(&s, &x);
    call(&s, &y);
    wait_call(&s, &x);
    wait_call(&s, &y);
    assert_true(x.failed && y.failed);
    assert_int_equal(x.error.outcome, SG_NOT_STARTED);
    assert_non_null(strstr(x.error.detail, "disk full"));
    assert_int_equal(s.u.uploads, 1); /* the failure is shared, too */
    close_setup(&s);
}

static void test_cannot_be_run(void **state)
{
    (void)state;
    struct setup s = {.u.never_runs = true};
    open_setup(&s);
    struct seen x = {0};
    call(&s, &x);
    wait_call(&s, &x);
    assert_true(x.failed);
    assert_int_equal(x.error.code, SG_E_UPSTREAM_BAD_RESPONSE);
    assert_int_equal(x.error.outcome, SG_NOT_STARTED);
    assert_non_null(strstr(x.error.detail, "127"));
    assert_int_equal(s.u.uploads, 1);
    close_setup(&s);
}

struct ending {
    const char *says;
    bool cut;
    bool has_last, hello;
    enum sg_code code;
    enum sg_outcome outcome;
};

static void test_endings(void **state)
{
    (void)state;
    static const struct ending cases[] = {
        {"K\\n", false, true, false, 0, 0},
        {"E no_record - no such process\\n", false, true, false, 0, 0},
        {"# remark\\nK created\\n", false, true, false, 0, 0},
        {"K\\n", true, true, false, 0, 0}, /* the answer was whole before the cut */
        {"H running 0 0 0 0 1 17 - 0 p1\\n", true, false, true, SG_E_UPSTREAM_UNREACHABLE, SG_STARTED},
        {"H running 0 0 0 0 1 17 - 0 p1\\nD 1 0 aGV", true, false, true, SG_E_UPSTREAM_UNREACHABLE,
         SG_STARTED},
        {"H running 0 0 0 0 1 17 - 0 p1\\n", false, false, true, SG_E_UPSTREAM_UNREACHABLE, SG_STARTED},
        {"H runn", true, false, false, SG_E_UPSTREAM_UNREACHABLE, SG_OUTCOME_UNKNOWN},
        {"H running 0 0 0 0 1 17 - 0 p1\\nD 1 0 ???\\n", false, false, true, SG_E_UPSTREAM_BAD_RESPONSE,
         SG_STARTED},
        {"what is this\\n", false, false, false, SG_E_UPSTREAM_BAD_RESPONSE, SG_OUTCOME_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setup s = {
            .u = {.installed = true, .says = cases[i].says, .cut = cases[i].cut, .err = "warning"}};
        struct seen x = {0};
        print_message("# %s\n", cases[i].says);
        open_setup(&s);
        call(&s, &x);
        wait_call(&s, &x);
        assert_int_equal(x.has_last, cases[i].has_last);
        assert_int_equal(x.hello, cases[i].hello);
        if (x.failed) {
            assert_int_equal(x.error.code, cases[i].code);
            assert_int_equal(x.error.outcome, cases[i].outcome);
        }
        close_setup(&s);
    }
}

static void test_no_helper_for_architecture(void **state)
{
    (void)state;
    struct setup s = {0};
    open_setup(&s);
    static const struct guest_events ev = {on_line, on_end};
    static const char *const args[] = {"list", NULL};
    const struct guest_args a = {.session_id = "sbx_1", .arch = "mips", .args = args};
    struct sg_error e;
    assert_null(guest_call_start(s.g, &a, &ev, NULL, &e));
    assert_int_equal(e.code, SG_E_UNSUPPORTED);
    assert_int_equal(raw_requests(s.f.server), 0);
    close_setup(&s);
}

static void test_free_with_calls(void **state)
{
    (void)state;
    struct setup s = {.u.gate_upload = true};
    open_setup(&s);
    guestlink_fresh(s.g, "sbx_1");
    struct seen x = {0}, y = {0};
    call(&s, &x);
    call(&s, &y);
    while (raw_requests(s.f.server) < 1)
        uv_run(sg_loop_uv(s.f.loop), UV_RUN_NOWAIT);
    close_setup(&s);
    assert_true(x.done && y.done); /* whoever waits is told why */
    assert_int_equal(x.error.code, SG_E_DRAINING);
    assert_int_equal(y.error.code, SG_E_DRAINING);
}

static int kills(struct upstream *u)
{
    pthread_mutex_lock(&u->lock);
    int n = u->kills;
    pthread_mutex_unlock(&u->lock);
    return n;
}

static void call_and_pause(struct setup *s, struct seen *x)
{
    *x = (struct seen){.refuse = 1};
    call(s, x);
    while (!x->resume_later)
        uv_run(sg_loop_uv(s->f.loop), UV_RUN_ONCE);
}

/* A15: a helper that stands for somebody is ended when he leaves, and a little later; one that is only not listened to
 * any more is not. */
static void test_abandoned_is_ended_upstream(void **state)
{
    (void)state;
    struct setup s = {.u.installed = true};
    struct seen x, y, z;
    open_setup(&s);
    call_and_pause(&s, &x);
    guest_cancel(x.call);
    call_and_pause(&s, &y);
    int64_t began = sg_mono_ms();
    guest_abandon(y.call);
    while (kills(&s.u) == 0)
        uv_run(sg_loop_uv(s.f.loop), UV_RUN_ONCE);
    assert_true(sg_mono_ms() - began >= FAREWELL_MS - 50);
    assert_non_null(strstr(s.u.last_kill, "/sessions/sbx_1/cmd/cmd_1/kill"));
    assert_non_null(strstr(s.u.last_kill, "{\"signal\":15}"));
    call_and_pause(&s, &z);
    guest_abandon(z.call);
    close_setup(&s); /* before its time: it is not said, and nothing is left */
    assert_int_equal(s.u.kills, 1);
    assert_false(x.done || y.done || z.done);
}

/* ---- the pure parts ---- */

static void test_lines_cut_anywhere(void **state)
{
    (void)state;
    static const char input[] = "one\ntwo\n\nthree\nrest";
    static const char *const want[] = {"one", "two", "", "three"};
    for (size_t cut = 0; cut < sizeof input - 1; cut++)
        for (int give_back = 0; give_back < 2; give_back++) {
            static struct lines l;
            l = (struct lines){.len = 0};
            const char *part[] = {input, input + cut};
            size_t len[] = {cut, sizeof input - 1 - cut};
            size_t got = 0, n;
            const char *line;
            bool back = give_back;
            for (int i = 0; i < 2; i++)
                while (lines_next(&l, &part[i], &len[i], &line, &n) == LINES_LINE) {
                    assert_true(got < 4);
                    assert_int_equal(n, strlen(want[got]));
                    assert_memory_equal(line, want[got], n);
                    if (back) {
                        lines_give_back(&l, line, n);
                        back = false;
                        continue;
                    }
                    back = give_back;
                    got++;
                }
            assert_int_equal(got, 4);
        }
}

static void test_line_too_long(void **state)
{
    (void)state;
    static struct lines l;
    static char text[SG_WIRE_LINE_MAX + 2];
    memset(text, 'x', sizeof text);
    const char *p = text, *line;
    size_t len = SG_WIRE_LINE_MAX, n;
    l = (struct lines){.len = 0};
    assert_int_equal(lines_next(&l, &p, &len, &line, &n), LINES_MORE);
    len = 1;
    assert_int_equal(lines_next(&l, &p, &len, &line, &n), LINES_TOO_LONG);
}

static void test_hosts_are_bounded(void **state)
{
    (void)state;
    static struct hosts h;
    char id[64];
    hosts_init(&h);
    struct host *kept = hosts_get(&h, "kept");
    kept->state = HOST_READY;
    for (int i = 0; i < 2 * HOSTS_MAX; i++) {
        snprintf(id, sizeof id, "sbx_%d", i);
        struct host *host = hosts_get(&h, id);
        assert_non_null(host);
        assert_int_equal(host->state, HOST_UNKNOWN);
        hosts_put(host);
        assert_true(h.count <= HOSTS_MAX);
    }
    assert_ptr_equal(hosts_get(&h, "kept"), kept); /* in use: not forgotten */
    hosts_put(kept);
    hosts_put(kept);
    assert_null(hosts_get(&h, ""));
    hosts_free(&h);
}

static void test_errors_C10(void **state)
{
    (void)state;
    static const struct {
        enum sg_wire_fail fail;
        const char *err;
        enum sg_code code;
    } cases[] = {
        {SG_WF_NO_RECORD, "", SG_E_PROCESS_NOT_FOUND},
        {SG_WF_CONFLICT, "", SG_E_PROCESS_ID_CONFLICT},
        {SG_WF_EXEC, "ENOENT", SG_E_EXECUTABLE_NOT_FOUND},
        {SG_WF_FINISHED, "", SG_E_PROCESS_FINISHED},
        {SG_WF_NO_SPACE, "ENOSPC", SG_E_NO_SPACE},
        {SG_WF_FILE, "ENOENT", SG_E_FILE_NOT_FOUND},
        {SG_WF_FILE, "EISDIR", SG_E_IS_DIRECTORY},
        {SG_WF_FILE, "EACCES", SG_E_PERMISSION_DENIED},
        {SG_WF_FILE, "ELOOP", SG_E_FILE_ERROR},
        {SG_WF_INTERNAL, "", SG_E_INTERNAL},
        {SG_WF_USAGE, "", SG_E_INTERNAL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sg_wire_line line = {.kind = SG_WIRE_ERROR, .fail = cases[i].fail, .text = "why"};
        struct sg_error e;
        snprintf(line.errno_name, sizeof line.errno_name, "%s", cases[i].err);
        assert_int_equal(guest_error(&line, &e), cases[i].code);
        assert_string_equal(e.errno_name, cases[i].err);
        assert_string_equal(e.detail, "why");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_call_where_it_is),
        cmocka_unit_test(test_upload_where_it_is_missing),
        cmocka_unit_test(test_fresh_session_uploads_first),
        cmocka_unit_test(test_removed_meanwhile),
        cmocka_unit_test(test_concurrent_calls_share_one_upload),
        cmocka_unit_test(test_uploader_is_cancelled),
        cmocka_unit_test(test_upload_refused),
        cmocka_unit_test(test_cannot_be_run),
        cmocka_unit_test(test_endings),
        cmocka_unit_test(test_no_helper_for_architecture),
        cmocka_unit_test(test_free_with_calls),
        cmocka_unit_test(test_abandoned_is_ended_upstream),
        cmocka_unit_test(test_lines_cut_anywhere),
        cmocka_unit_test(test_line_too_long),
        cmocka_unit_test(test_hosts_are_bounded),
        cmocka_unit_test(test_errors_C10),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
