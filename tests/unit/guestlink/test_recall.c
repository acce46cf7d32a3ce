/* An answer that was cut off is read again from the upstream's log; the act is not repeated.  U3 P60 */
#include "fixture.h"

#include "guestlink/internal.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH  "0123456789abcdef"
#define FIRST "{\"command\":{\"id\":\"cmd_1\",\"exitCode\":null}}\n"

static const struct guest_blob blob = {"amd64", (const unsigned char *)"\177ELF helper", 11, HASH};

static const struct guest_blob *find_blob(const char *arch)
{
    (void)arch;
    return &blob;
}

/* What the upstream answers, one request after another: NULL-terminated. */
struct step {
    const char *method, *target_end;
    int status;
    const char *type, *body;
    bool cut; /* the connection breaks after the body */
    bool gate;
};

struct script {
    pthread_mutex_t lock;
    const struct step *steps;
    int at;
    bool odd; /* another request came than the script has */
};

static void play(struct raw_conn *c, int n, void *arg)
{
    struct script *s = arg;
    struct raw_request r;
    (void)n;
    while (raw_read(c, &r)) {
        pthread_mutex_lock(&s->lock);
        const struct step *step = &s->steps[s->at];
        size_t end = step->method ? strlen(step->target_end) : 0, len = strlen(r.target);
        bool fits = step->method && !strcmp(step->method, r.method) && len >= end &&
                    !strcmp(r.target + len - end, step->target_end);
        s->at += fits;
        s->odd |= !fits;
        pthread_mutex_unlock(&s->lock);
        if (!fits) {
            print_message("# unexpected: %s %s\n", r.method, r.target);
            return;
        }
        if (step->gate && !raw_at_gate(c))
            return;
        if (!step->cut) {
            raw_answer(c, step->status, step->type, "", step->body);
            continue;
        }
        char head[256];
        snprintf(head, sizeof head, "HTTP/1.1 %d OK\r\nContent-Type: %s\r\nContent-Length: 100000\r\n\r\n",
                 step->status, step->type);
        raw_sends(c, head);
        raw_sends(c, step->body);
        return;
    }
}

struct seen {
    char lines[32];
    bool done, hello, has_last, failed;
    struct sg_wire_line last;
    struct sg_error error;
};

static bool on_line(void *arg, const struct sg_wire_line *line)
{
    struct seen *x = arg;
    size_t n = strlen(x->lines);
    assert_true(n + 1 < sizeof x->lines);
    x->lines[n] = (char)line->kind;
    return true;
}

static void on_end(void *arg, const struct sg_wire_line *line, bool hello, const struct sg_error *e)
{
    struct seen *x = arg;
    assert_false(x->done);
    x->done = true;
    x->hello = hello;
    x->has_last = line != NULL;
    if (line)
        x->last = *line;
    x->failed = e != NULL;
    if (e)
        x->error = *e;
}

struct setup {
    struct fixture f;
    struct script s;
    struct guestlink *g;
    struct guest_call *call;
    struct seen x;
};

static void open_setup(struct setup *t, const struct step *steps)
{
    static const struct tuning once = {.retries = 0};
    static const char *const args[] = {"signal", NULL};
    static const struct guest_events ev = {on_line, on_end};
    const struct guest_args a = {.session_id = "sbx_1", .args = args};
    struct sg_error e;
    *t = (struct setup){.s.steps = steps};
    pthread_mutex_init(&t->s.lock, NULL);
    fixture_open(&t->f, play, &t->s, &once);
    t->g = guestlink_new(t->f.loop, t->f.client);
    assert_non_null(t->g);
    guestlink_set_blobs(t->g, find_blob);
    t->call = guest_call_start(t->g, &a, &ev, &t->x, &e);
    assert_non_null(t->call);
}

static void close_setup(struct setup *t)
{
    guestlink_free(t->g);
    fixture_close(&t->f);
    pthread_mutex_destroy(&t->s.lock);
}

static void run(struct setup *t, const struct step *steps)
{
    open_setup(t, steps);
    fixture_run(&t->f, &t->x.done);
}

/* Exactly the calls of the script were made. */
static void assert_played(const struct setup *t)
{
    assert_false(t->s.odd);
    assert_null(t->s.steps[t->s.at].method);
}

#define NDJSON    "application/x-ndjson"
#define OUT(text) "{\"stream\":\"stdout\",\"data\":\"" text "\"}\n"
#define CUT(said)                                                                                            \
    {                                                                                                        \
        "POST", "/cmd", 200, NDJSON, FIRST said, .cut = true                                                 \
    }
#define LOG(said)                                                                                            \
    {                                                                                                        \
        "GET", "/sessions/sbx_1/cmd/cmd_1/logs", 200, NDJSON, said                                           \
    }
#define LOGX(said)                                                                                           \
    {                                                                                                        \
        "GET", "/sessions/sbx_1/cmd/cmd_1/logs", 200, NDJSON, said, .cut = true                              \
    }
#define ENDED(code)                                                                                          \
    {                                                                                                        \
        "GET", "/cmd/cmd_1?wait=true", 200, "application/json",                                              \
            "{\"command\":{\"id\":\"cmd_1\",\"exitCode\":" code "}}"                                         \
    }

/* Wherever the stream broke, the answer is whole, for one more call. */
static void test_answer_comes_from_the_log_U3(void **state)
{
    (void)state;
    static const struct step cases[][3] = {
        {CUT(""), LOG(OUT("K created\\n"))},
        {CUT(OUT("K cre")), LOG(OUT("K created\\n"))},
        {CUT("{\"stream\":\"stdout\",\"da"), LOG(OUT("K created\\n"))},
        {CUT(OUT("K created")), LOG(OUT("K c") OUT("reated") OUT("\\n"))},
        {CUT(OUT("# rem") "{\"stream\":\"stderr\",\"data\":\"w\"}\n"),
         LOG("{\"stream\":\"stderr\",\"data\":\"warning\"}\n" OUT("# remark\\nK created\\n"))},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setup t;
        run(&t, cases[i]);
        assert_true(t.x.has_last);
        assert_int_equal(t.x.last.kind, SG_WIRE_OK);
        assert_string_equal(t.x.last.text, "created");
        assert_string_equal(t.x.lines, "");
        assert_played(&t);
        close_setup(&t);
    }
}

/* Lines that were heard before the cut are not told twice. */
static void test_nothing_twice(void **state)
{
    (void)state;
    static const char line[] = OUT("P running 1 2 none 0 - 0 0 0 0 0 0 p1\\nP run") "{\"stream\":\"stdout\",";
    static const char all[] =
        OUT("P running 1 2 none 0 - 0 0 0 0 0 0 p1\\n") OUT("P running 1 2 none 0 - 0 0 0 0 0 0 p2\\nK\\n");
    char body[512];
    snprintf(body, sizeof body, "%s%s", FIRST, line);
    const struct step steps[] = {{"POST", "/cmd", 200, NDJSON, body, .cut = true}, LOG(all), {0}};
    struct setup t;
    run(&t, steps);
    assert_true(t.x.has_last);
    assert_string_equal(t.x.lines, "PP");
    assert_played(&t);
    close_setup(&t);
}

/* The log breaks, too: the end of the command is awaited, then the log is complete. */
static void test_log_is_cut_too(void **state)
{
    (void)state;
    static const struct step broken[] = {
        CUT(OUT("K ")), LOGX(OUT("K crea")), ENDED("0"), LOG(OUT("K created\\n")), {0}};
    static const struct step closed[] = {CUT(""), LOG(""), ENDED("0"), LOG(OUT("K created\\n")), {0}};
    const struct step *const cases[] = {broken, closed};
    for (size_t i = 0; i < 2; i++) {
        struct setup t;
        run(&t, cases[i]);
        assert_true(t.x.has_last);
        assert_string_equal(t.x.last.text, "created");
        assert_played(&t);
        close_setup(&t);
    }
}

/* What cannot be known stays unknown, and nothing is run again. */
static void test_unknown_stays_unknown(void **state)
{
    (void)state;
    static const struct step no_log[] = {
        CUT(""),
        {"GET", "/logs", 404, "application/json", "{\"error\":{\"code\":\"not_found\",\"message\":\"x\"}}"},
        {0}};
    static const struct step silent[] = {CUT(""), LOG(""), ENDED("0"), LOG(""), {0}};
    static const struct step running[] = {CUT(""), LOG(""), ENDED("null"), {0}};
    static const struct step gone[] = {
        CUT(""),
        LOG("{\"stream\":\"error\",\"data\":{\"code\":\"sandbox_stream_closed\",\"message\":\"x\"}}\n"),
        {0}};
    static const struct step no_end[] = {
        CUT(""), LOGX(""), {"GET", "?wait=true", 500, "text/html", "<p>"}, {0}};
    static const struct step never[] = {CUT(""), LOGX(""), ENDED("0"), LOGX(OUT("K")), {0}};
    const struct step *const cases[] = {no_log, silent, running, gone, no_end, never};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setup t;
        print_message("# case %zu\n", i);
        run(&t, cases[i]);
        assert_true(t.x.failed);
        assert_int_equal(t.x.error.code, SG_E_UPSTREAM_UNREACHABLE);
        assert_int_equal(t.x.error.outcome, SG_OUTCOME_UNKNOWN);
        assert_played(&t);
        close_setup(&t);
    }
}

/* A command that ended as one whose program is missing, and said nothing: the helper is not there. */
static void test_missing_helper_behind_a_cut(void **state)
{
    (void)state;
    static const struct step steps[] = {
        CUT(""),
        LOG(""),
        ENDED("127"),
        LOG(""),
        {"POST", "/fs/write", 200, "application/json", "{}"},
        {"POST", "/cmd", 200, NDJSON, FIRST OUT("K\\n") "{\"command\":{\"id\":\"cmd_2\",\"exitCode\":0}}\n"},
        {0}};
    struct setup t;
    run(&t, steps);
    assert_true(t.x.has_last);
    assert_played(&t);
    close_setup(&t);
}

/* After the hello a process is followed from where it is, by its owner: no log is read. */
static void test_not_after_the_hello(void **state)
{
    (void)state;
    static const struct step steps[] = {CUT(OUT("H running 0 0 0 0 1 17 - 0 p1\\nD 1 0 aGV")), {0}};
    struct setup t;
    run(&t, steps);
    assert_true(t.x.failed && t.x.hello);
    assert_int_equal(t.x.error.outcome, SG_STARTED);
    assert_played(&t);
    close_setup(&t);
}

/* The hello itself comes from the log, and so does what follows it. */
static void test_hello_from_the_log(void **state)
{
    (void)state;
    static const struct step steps[] = {
        CUT(OUT("H runn")),
        LOG(OUT("H running 0 0 0 0 1 17 - 0 p1\\nD 1 0 aGVsbG8=\\nX exit 3 - 12 5 0\\n")),
        {0}};
    struct setup t;
    run(&t, steps);
    assert_true(t.x.has_last && t.x.hello);
    assert_string_equal(t.x.lines, "HD");
    assert_int_equal(t.x.last.process.value, 3);
    assert_played(&t);
    close_setup(&t);
}

/* Cancelled, or the gateway goes, while the log is read. */
static void test_ends_while_recalling(void **state)
{
    (void)state;
    static const struct step log[] = {CUT(""), {"GET", "/logs", 200, NDJSON, "", .gate = true}, {0}};
    static const struct step end[] = {
        CUT(""), LOG(""), {"GET", "?wait=true", 200, NDJSON, "", .gate = true}, {0}};
    for (int i = 0; i < 4; i++) {
        struct setup t;
        open_setup(&t, i & 1 ? end : log);
        while (raw_requests(t.f.server) < (i & 1 ? 3 : 2))
            uv_run(sg_loop_uv(t.f.loop), UV_RUN_NOWAIT);
        if (i & 2)
            guest_cancel(t.call);
        close_setup(&t);
        assert_int_equal(t.x.done, !(i & 2));
        if (t.x.done)
            assert_int_equal(t.x.error.code, SG_E_DRAINING);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answer_comes_from_the_log_U3),
        cmocka_unit_test(test_nothing_twice),
        cmocka_unit_test(test_log_is_cut_too),
        cmocka_unit_test(test_unknown_stays_unknown),
        cmocka_unit_test(test_missing_helper_behind_a_cut),
        cmocka_unit_test(test_not_after_the_hello),
        cmocka_unit_test(test_hello_from_the_log),
        cmocka_unit_test(test_ends_while_recalling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
