/* The command stream: its end in every form, back pressure, cancelling.  C10 U3 P07 */
#include "fixture.h"

#include "vercel/commands.h"

#include "base/buf.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST "{\"command\":{\"id\":\"cmd_1\",\"name\":\"sh\",\"exitCode\":null}}\n"
#define LAST  "{\"command\":{\"id\":\"cmd_1\",\"name\":\"sh\",\"exitCode\":7}}\n"

struct seen {
    struct fixture *f;
    struct vercel_command_call *call;
    char id[64];
    struct sg_buf text[2];
    int refuse_every; /* each n-th piece is refused once */
    int pieces;
    bool refused_last;
    bool resume_later;
    bool cancel_on_text;
    bool cancelled;
    bool done;
    int exit_code;
    bool failed;
    struct sg_error error;
};

static void on_started(void *arg, const char *id)
{
    struct seen *s = arg;
    assert_string_equal(s->id, "");
    snprintf(s->id, sizeof s->id, "%s", id);
}

static bool on_text(void *arg, int stream, const char *data, size_t len)
{
    struct seen *s = arg;
    assert_string_not_equal(s->id, "");
    assert_false(s->cancelled);
    if (s->cancel_on_text) {
        vercel_command_cancel(s->call);
        s->cancelled = true;
        return true;
    }
    if (s->refuse_every && !s->refused_last && ++s->pieces % s->refuse_every == 0) {
        s->refused_last = true;
        s->resume_later = true;
        return false;
    }
    s->refused_last = false;
    assert_true(sg_buf_add(&s->text[stream - 1], data, len));
    return true;
}

static void on_end(void *arg, int exit_code, const struct sg_error *e)
{
    struct seen *s = arg;
    assert_false(s->done);
    assert_false(s->cancelled);
    s->done = true;
    s->exit_code = exit_code;
    s->failed = e != NULL;
    if (e)
        s->error = *e;
}

static void start(struct fixture *f, struct seen *s)
{
    static const struct vercel_command_events ev = {on_started, on_text, on_end};
    static const char *const args[] = {"-c", "echo hi", NULL};
    const struct vercel_command cmd = {.session_id = "sbx_1", .command = "sh", .args = args};
    struct sg_error e;
    s->f = f;
    sg_buf_init(&s->text[0], 64 << 20);
    sg_buf_init(&s->text[1], 64 << 20);
    s->call = vercel_command_start(f->client, &cmd, &ev, s, &e);
    assert_non_null(s->call);
    assert_false(s->done);
}

static void finish(struct fixture *f, struct seen *s)
{
    while (!s->done) {
        bool turned = false;
        if (s->resume_later) {
            s->resume_later = false;
            vercel_command_resume(s->call);
            turned = true;
        }
        uv_run(sg_loop_uv(f->loop), turned ? UV_RUN_NOWAIT : UV_RUN_ONCE);
    }
}

static void clear(struct seen *s)
{
    sg_buf_free(&s->text[0]);
    sg_buf_free(&s->text[1]);
    *s = (struct seen){0};
}

/* Plays a body as an NDJSON stream, then closes. */
struct play {
    const char *body;
    bool drip, chunked, hold, cut;
    const char *type;
};

static void play(struct raw_conn *c, int n, void *arg)
{
    const struct play *p = arg;
    struct raw_request r;
    char head[256];
    (void)n;
    if (!raw_read(c, &r))
        return;
    snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\n%s\r\n",
             p->type ? p->type : "application/x-ndjson", p->chunked ? "Transfer-Encoding: chunked\r\n" : "");
    raw_sends(c, head);
    if (p->chunked) {
        snprintf(head, sizeof head, "%zx\r\n", strlen(p->body));
        raw_sends(c, head);
    }
    if (p->drip)
        raw_drip(c, p->body);
    else
        raw_sends(c, p->body);
    if (p->hold)
        raw_peer_closed(c);
    if (p->chunked && !p->cut)
        raw_sends(c, "\r\n0\r\n\r\n");
}

struct ending {
    const char *name;
    struct play play;
    bool ok;
    int exit_code;
    enum sg_code code;
    enum sg_outcome outcome;
    const char *out;
};

#define HI  "{\"stream\":\"stdout\",\"data\":\"hi\\n\"}\n"
#define ERR "{\"stream\":\"error\",\"data\":{\"code\":\"sandbox_stream_closed\",\"message\":\"Closed.\"}}\n"

static const struct ending endings[] = {
    {"plain", {FIRST HI LAST}, true, 7, 0, 0, "hi\n"},
    {"no final newline",
     {"\n" FIRST "\r\n" HI "{\"command\":{\"id\":\"cmd_1\",\"exitCode\":0}}"},
     true,
     0,
     0,
     0,
     "hi\n"},
    {"byte by byte", {FIRST HI HI LAST, .drip = true}, true, 7, 0, 0, "hi\nhi\n"},
    {"a held stream does not hold the end",
     {FIRST HI LAST, .chunked = true, .hold = true},
     true,
     7,
     0,
     0,
     "hi\n"},
    {"unknown kinds are passed over", {FIRST "{\"stream\":\"tick\"}\n" LAST}, true, 7, 0, 0, ""},
    {"one command line only", {FIRST HI}, false, -1, SG_E_UPSTREAM_UNREACHABLE, SG_STARTED, "hi\n"},
    {"cut mid-line",
     {FIRST HI "{\"stream\":\"stdout\",\"da"},
     false,
     -1,
     SG_E_UPSTREAM_UNREACHABLE,
     SG_STARTED,
     "hi\n"},
    {"cut mid-chunk",
     {FIRST HI "{\"str", .chunked = true, .cut = true},
     false,
     -1,
     SG_E_UPSTREAM_UNREACHABLE,
     SG_STARTED,
     "hi\n"},
    {"nothing", {""}, false, -1, SG_E_UPSTREAM_UNREACHABLE, SG_OUTCOME_UNKNOWN, ""},
    {"stream closed", {FIRST HI ERR}, false, -1, SG_E_STALE_SESSION, SG_STARTED, "hi\n"},
    {"not JSON", {FIRST HI "<html>\n" LAST}, false, -1, SG_E_UPSTREAM_BAD_RESPONSE, SG_STARTED, "hi\n"},
    {"output first", {HI FIRST LAST}, false, -1, SG_E_UPSTREAM_BAD_RESPONSE, SG_OUTCOME_UNKNOWN, ""},
    {"no exit code", {FIRST FIRST}, false, -1, SG_E_UPSTREAM_BAD_RESPONSE, SG_STARTED, ""},
    {"wrong type",
     {FIRST LAST, .type = "application/json"},
     false,
     -1,
     SG_E_UPSTREAM_BAD_RESPONSE,
     SG_OUTCOME_UNKNOWN,
     ""},
};

static void test_endings_U3_C10(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const struct ending *x = &endings[i];
        struct play p = x->play;
        struct fixture f;
        struct seen s = {0};
        print_message("# %s\n", x->name);
        fixture_open(&f, play, &p, NULL);
        start(&f, &s);
        fixture_run(&f, &s.done);
        assert_int_equal(s.failed, !x->ok);
        assert_int_equal(s.exit_code, x->exit_code);
        assert_string_equal(s.text[0].data ? s.text[0].data : "", x->out);
        if (s.failed) {
            assert_int_equal(s.error.code, x->code);
            assert_int_equal(s.error.outcome, x->outcome);
        }
        assert_int_equal(raw_requests(f.server), 1);
        clear(&s);
        fixture_close(&f);
    }
}

static void play_refused(struct raw_conn *c, int n, void *arg)
{
    struct raw_request r;
    (void)n;
    (void)arg;
    while (raw_read(c, &r)) {
        assert_non_null(strstr(r.body, "\"wait\":true"));
        raw_answer(c, 400, "application/json", "",
                   "{\"error\":{\"code\":\"executable_not_found\",\"message\":\"no\"}}");
    }
}

static void test_refused(void **state)
{
    (void)state;
    struct fixture f;
    struct seen s = {0};
    fixture_open(&f, play_refused, NULL, NULL);
    start(&f, &s);
    fixture_run(&f, &s.done);
    assert_int_equal(s.error.code, SG_E_EXECUTABLE_NOT_FOUND);
    assert_int_equal(s.error.outcome, SG_NOT_STARTED);
    clear(&s);
    fixture_close(&f);
}

/* Many lines of many lengths; the reader refuses again and again, and every byte arrives once and in order. */
enum { PIECES = 3000 };

static size_t piece(int i, char *out)
{
    size_t n = (size_t)(i * 37 % 9000) + 1;
    memset(out, 'a' + i % 26, n);
    return n;
}

static void play_much(struct raw_conn *c, int n, void *arg)
{
    struct raw_request r;
    char line[10000];
    (void)n;
    (void)arg;
    if (!raw_read(c, &r))
        return;
    raw_sends(c, "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n" FIRST);
    for (int i = 0; i < PIECES; i++) {
        size_t at = (size_t)snprintf(line, sizeof line, "{\"stream\":\"%s\",\"data\":\"",
                                     i % 5 ? "stdout" : "stderr");
        at += piece(i, line + at);
        at += (size_t)snprintf(line + at, sizeof line - at, "\"}\n");
        raw_send(c, line, at);
    }
    raw_sends(c, LAST);
}

static void test_pause_and_resume_under_load(void **state)
{
    (void)state;
    static const int every[] = {0, 1, 2, 3, 7, 100};
    struct sg_buf want[2];
    char bytes[10000];
    for (int k = 0; k < 2; k++)
        sg_buf_init(&want[k], 64 << 20);
    for (int i = 0; i < PIECES; i++) {
        size_t n = piece(i, bytes);
        assert_true(sg_buf_add(&want[i % 5 ? 0 : 1], bytes, n));
    }
    for (size_t i = 0; i < sizeof every / sizeof *every; i++) {
        struct fixture f;
        struct seen s = {.refuse_every = every[i]};
        fixture_open(&f, play_much, NULL, NULL);
        start(&f, &s);
        finish(&f, &s);
        assert_false(s.failed);
        assert_int_equal(s.exit_code, 7);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(s.text[k].len, want[k].len);
            assert_memory_equal(s.text[k].data, want[k].data, want[k].len);
        }
        clear(&s);
        fixture_close(&f);
    }
    sg_buf_free(&want[0]);
    sg_buf_free(&want[1]);
}

static void test_cancel_inside_callback(void **state)
{
    (void)state;
    struct fixture f;
    struct seen s = {.cancel_on_text = true};
    fixture_open(&f, play_much, NULL, NULL);
    start(&f, &s);
    fixture_run(&f, &s.cancelled);
    for (int i = 0; i < 10; i++)
        fixture_turn(&f);
    assert_false(s.done);
    clear(&s);
    start(&f, &s); /* the client goes on working */
    fixture_run(&f, &s.done);
    assert_false(s.failed);
    clear(&s);
    fixture_close(&f);
}

static void test_cancel_while_paused(void **state)
{
    (void)state;
    struct fixture f;
    struct seen s = {.refuse_every = 5};
    fixture_open(&f, play_much, NULL, NULL);
    start(&f, &s);
    fixture_run(&f, &s.resume_later);
    vercel_command_resume(s.call);
    vercel_command_cancel(s.call);
    for (int i = 0; i < 10; i++)
        fixture_turn(&f);
    assert_false(s.done);
    clear(&s);
    fixture_close(&f);
}

static void test_free_client_while_streaming(void **state)
{
    (void)state;
    struct fixture f;
    struct seen s = {.refuse_every = 5};
    fixture_open(&f, play_much, NULL, NULL);
    start(&f, &s);
    fixture_run(&f, &s.resume_later);
    vercel_client_free(f.client);
    f.client = NULL;
    assert_true(s.done && s.failed);
    assert_int_equal(s.error.code, SG_E_UPSTREAM_UNREACHABLE);
    assert_int_equal(s.error.outcome, SG_STARTED);
    clear(&s);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_endings_U3_C10),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_pause_and_resume_under_load),
        cmocka_unit_test(test_cancel_inside_callback),
        cmocka_unit_test(test_cancel_while_paused),
        cmocka_unit_test(test_free_client_while_streaming),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
