/* Input for a running command: what is sent, what each answer means, and when it is sent again.  C6 C10 P63 */
#include "fixture.h"

#include "vercel/commands.h"
#include "vercel/stdin.h"

#include "base/core/b64.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND "\"command\":{\"id\":\"cmd_1\",\"exitCode\":null}"

enum { ANSWERS_MAX = 4 };

/* What the sandbox answers, one after the other; status 0 reads the request and cuts the connection. */
struct script {
    struct {
        int status;
        const char *headers, *body;
    } answers[ANSWERS_MAX];
    int asked;
    char target[256];
    char *bodies[ANSWERS_MAX];
    size_t lens[ANSWERS_MAX];
};

static void play(struct raw_conn *c, int n, void *arg)
{
    struct script *s = arg;
    struct raw_request r;
    (void)n;
    while (raw_read(c, &r)) {
        static pthread_mutex_t lock =
            PTHREAD_MUTEX_INITIALIZER; /* a call made again comes on another connection */
        pthread_mutex_lock(&lock);
        int i = s->asked < ANSWERS_MAX ? s->asked : ANSWERS_MAX - 1;
        snprintf(s->target, sizeof s->target, "%.9s %.240s", r.method, r.target);
        free(s->bodies[i]);
        s->bodies[i] = malloc(r.body_len + 1);
        memcpy(s->bodies[i], r.body, r.body_len + 1);
        s->lens[i] = r.body_len;
        s->asked++;
        pthread_mutex_unlock(&lock);
        if (!s->answers[i].status)
            return;
        raw_answer(c, s->answers[i].status, "application/json",
                   s->answers[i].headers ? s->answers[i].headers : "", s->answers[i].body);
    }
}

struct seen {
    bool done;
    enum vercel_stdin_result result;
    int64_t taken;
    bool failed;
    struct sg_error error;
};

static void on_written(void *arg, enum vercel_stdin_result result, int64_t taken, const struct sg_error *e)
{
    struct seen *x = arg;
    assert_false(x->done);
    assert_true((result == VERCEL_STDIN_TAKEN) == (e == NULL));
    x->done = true;
    x->result = result;
    x->taken = taken;
    x->failed = e != NULL;
    if (e)
        x->error = *e;
}

static void script_clear(struct script *s)
{
    for (int i = 0; i < ANSWERS_MAX; i++)
        free(s->bodies[i]);
}

/* One write against one script; the bodies stay with the script. */
static struct seen write_once(struct script *s, struct vercel_stdin w)
{
    struct fixture f;
    const struct tuning quick = {.retries = 2, .retry_budget_ms = 3000};
    struct seen x = {0};
    struct sg_error e;
    fixture_open(&f, play, s, &quick);
    w.session_id = "sbx 1";
    w.command_id = "cmd_1";
    assert_non_null(vercel_stdin_write(f.client, &w, on_written, &x, &e));
    assert_false(x.done);
    fixture_run(&f, &x.done);
    fixture_close(&f);
    return x;
}

static const struct vercel_stdin hello = {.data = "hello", .len = 5};

static struct vercel_stdin at(int64_t offset, bool counts)
{
    struct vercel_stdin w = hello;
    w.offset = offset;
    w.counts = counts;
    return w;
}

/* Each form of a request, member for member. */
static void test_requests(void **state)
{
    (void)state;
    const struct {
        struct vercel_stdin w;
        const char *body;
    } cases[] = {
        {{.offset = -1}, "{}"},
        {{.offset = 0}, "{\"offset\":0}"},
        {{.offset = 3, .data = "hello", .len = 5}, "{\"data\":\"aGVsbG8=\",\"offset\":3}"},
        {{.offset = -1, .data = "hello", .len = 5}, "{\"data\":\"aGVsbG8=\"}"},
        {{.offset = 9, .close = true}, "{\"offset\":9,\"close\":true}"},
        {{.offset = -1, .close = true}, "{\"close\":true}"},
        {{.offset = 1, .data = "\0\xff", .len = 2, .close = true},
         "{\"data\":\"AP8=\",\"offset\":1,\"close\":true}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct script s = {.answers = {{200, NULL, "{" COMMAND ",\"bytesWritten\":14}"}}};
        struct seen x = write_once(&s, cases[i].w);
        assert_int_equal(x.result, VERCEL_STDIN_TAKEN);
        assert_int_equal(x.taken, 14);
        assert_string_equal(s.bodies[0], cases[i].body);
        assert_string_equal(s.target, "POST /api/v2/sandboxes/sessions/sbx%201/cmd/cmd_1/stdin");
        assert_int_equal(s.asked, 1);
        script_clear(&s);
    }
}

/* Half a megabyte of every byte, made while it is sent, arrives as it was; also when it has to be sent again. */
static void test_big_write_made_twice(void **state)
{
    (void)state;
    for (size_t less = 0; less < 3; less++) {
        size_t len = VERCEL_STDIN_MAX - less;
        unsigned char *data = malloc(len);
        for (size_t i = 0; i < len; i++)
            data[i] = (unsigned char)(i * 7 + i / 251);
        struct script s = {
            .answers = {{503, NULL, "{}"}, {200, NULL, "{" COMMAND ",\"bytesWritten\":600000}"}}};
        struct vercel_stdin w = {.offset = 77, .data = data, .len = len, .counts = true};
        struct seen x = write_once(&s, w);
        assert_int_equal(x.result, VERCEL_STDIN_TAKEN);
        assert_int_equal(s.asked, 2);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(s.lens[i], 9 + SG_B64_LEN(len) + 14);
            assert_memory_equal(s.bodies[i], "{\"data\":\"", 9);
            assert_string_equal(s.bodies[i] + s.lens[i] - 14, "\",\"offset\":77}");
            unsigned char *back = malloc(len + 3);
            assert_int_equal(sg_b64_decode(back, s.bodies[i] + 9, SG_B64_LEN(len)), (ssize_t)len);
            assert_memory_equal(back, data, len);
            free(back);
        }
        free(data);
        script_clear(&s);
    }
}

static void test_too_big(void **state)
{
    (void)state;
    struct fixture f;
    struct seen x = {0};
    struct sg_error e;
    fixture_open(&f, NULL, NULL, &(struct tuning){.base_url = "http://127.0.0.1:9"});
    const struct vercel_stdin w = {"sbx_1", "cmd_1", 0, "", VERCEL_STDIN_MAX + 1, false, true};
    assert_null(vercel_stdin_write(f.client, &w, on_written, &x, &e));
    assert_int_equal(e.code, SG_E_BODY_TOO_LARGE);
    assert_int_equal(e.outcome, SG_NOT_SENT);
    fixture_close(&f);
}

#define ERROR(code, more) "{\"error\":{\"code\":\"" code "\",\"message\":\"no\"" more "}}"

static void test_answers(void **state)
{
    (void)state;
    const struct {
        int status;
        const char *body;
        enum vercel_stdin_result result;
        int64_t taken;
        enum sg_code code;
    } cases[] = {
        {200, "{" COMMAND ",\"bytesWritten\":0}", VERCEL_STDIN_TAKEN, 0, SG_OK},
        {200, "{" COMMAND "}", VERCEL_STDIN_TAKEN, -1, SG_OK}, /* a sandbox that does not count */
        {200, "{" COMMAND ",\"bytesWritten\":\"5\"}", VERCEL_STDIN_TAKEN, -1, SG_OK},
        {200, "{" COMMAND ",\"bytesWritten\":-5}", VERCEL_STDIN_TAKEN, -1, SG_OK},
        {200, "[]", VERCEL_STDIN_FAILED, -1, SG_E_UPSTREAM_BAD_RESPONSE},
        {200, "{\"com", VERCEL_STDIN_FAILED, -1, SG_E_UPSTREAM_BAD_RESPONSE},
        {409, ERROR("conflict", ""), VERCEL_STDIN_GAP, -1, SG_E_STDIN_OFFSET},
        {409, ERROR("sandbox_stopping", ""), VERCEL_STDIN_FAILED, -1, SG_E_SANDBOX_TRANSITION},
        {400, ERROR("command_stdin_unavailable", ""), VERCEL_STDIN_CLOSED, -1, SG_E_UPSTREAM_REJECTED},
        {400, ERROR("bad_request", ""), VERCEL_STDIN_FAILED, -1, SG_E_UPSTREAM_REJECTED},
        {404, ERROR("command_not_found_or_exited", ""), VERCEL_STDIN_GONE, -1, SG_E_PROCESS_FINISHED},
        {410, ERROR("sandbox_stopped", ""), VERCEL_STDIN_FAILED, -1, SG_E_STALE_SESSION},
        {422, ERROR("sandbox_snapshotting", ""), VERCEL_STDIN_FAILED, -1, SG_E_SANDBOX_TRANSITION},
        {413, "<html>too big</html>", VERCEL_STDIN_FAILED, -1, SG_E_UPSTREAM_BAD_RESPONSE},
        {500, ERROR("internal", ""), VERCEL_STDIN_FAILED, -1, SG_E_UPSTREAM_UNAVAILABLE},
        {504, ERROR("timeout", ",\"bytesWritten\":4096"), VERCEL_STDIN_SLOW, 4096, SG_E_UPSTREAM_UNAVAILABLE},
        {504, "{\"error\":{\"code\":\"timeout\"},\"bytesWritten\":7}", VERCEL_STDIN_SLOW, 7,
         SG_E_UPSTREAM_UNAVAILABLE},
        {504, ERROR("timeout", ""), VERCEL_STDIN_SLOW, -1, SG_E_UPSTREAM_UNAVAILABLE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct script s = {.answers = {{cases[i].status, NULL, cases[i].body}}};
        struct seen x = write_once(&s, at(0, false));
        assert_int_equal(x.result, cases[i].result);
        assert_int_equal(x.taken, cases[i].taken);
        assert_int_equal(x.failed ? x.error.code : SG_OK, cases[i].code);
        assert_int_equal(s.asked, 1);
        script_clear(&s);
    }
}

/* Lost and refused requests are made again only where the sandbox passes over what it has. */
static void test_again_only_where_safe(void **state)
{
    (void)state;
    const struct {
        struct vercel_stdin w;
        int first;
        int asked;
    } cases[] = {
        {at(5, true), 0, 2},      {at(5, true), 502, 2},  {at(5, true), 429, 2},
        {{.offset = -1}, 0, 2}, /* a question changes nothing */
        {{.offset = -1}, 503, 2}, {at(5, false), 0, 1},   {at(5, false), 502, 1},
        {at(-1, true), 0, 1},     {at(-1, true), 429, 1}, {{.offset = -1, .close = true}, 0, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct script s = {
            .answers = {{cases[i].first, NULL, "{}"}, {200, NULL, "{" COMMAND ",\"bytesWritten\":10}"}}};
        struct seen x = write_once(&s, cases[i].w);
        assert_int_equal(s.asked, cases[i].asked);
        assert_int_equal(x.result, cases[i].asked == 2 ? VERCEL_STDIN_TAKEN : VERCEL_STDIN_FAILED);
        if (cases[i].asked == 2)
            assert_string_equal(s.bodies[0], s.bodies[1]);
        else
            assert_int_equal(x.error.outcome, cases[i].first == 429 ? SG_NOT_STARTED : SG_OUTCOME_UNKNOWN);
        script_clear(&s);
    }
}

static void test_cancel(void **state)
{
    (void)state;
    struct fixture f;
    struct script s = {.answers = {{200, NULL, "{" COMMAND "}"}}};
    struct seen x = {0};
    struct sg_error e;
    char *data = calloc(1, VERCEL_STDIN_MAX);
    fixture_open(&f, play, &s, NULL);
    const struct vercel_stdin w = {"sbx_1", "cmd_1", 0, data, VERCEL_STDIN_MAX, false, true};
    struct vercel_call *call = vercel_stdin_write(f.client, &w, on_written, &x, &e);
    assert_non_null(call);
    for (int i = 0; i < 3; i++)
        fixture_turn(&f);
    vercel_call_cancel(call);
    free(data); /* at once: nothing reads it any more */
    for (int i = 0; i < 3; i++)
        fixture_turn(&f);
    assert_false(x.done);
    fixture_close(&f);
    script_clear(&s);
}

/* ---- the command whose input it is ---- */

static void play_command(struct raw_conn *c, int n, void *arg)
{
    struct raw_request r;
    (void)n;
    if (raw_read(c, &r)) {
        snprintf(arg, 1024, "%s", r.body);
        raw_answer(c, 400, "application/json", "", ERROR("bad_request", ""));
    }
}

static void on_command_end(void *arg, int exit_code, const struct sg_error *e)
{
    (void)exit_code;
    assert_non_null(e);
    *(bool *)arg = true;
}

static void test_command_asks_for_input(void **state)
{
    (void)state;
    static const struct vercel_command_events ev = {.on_end = on_command_end};
    for (int attach = 0; attach < 2; attach++) {
        struct fixture f;
        char body[1024] = "";
        bool done = false;
        struct sg_error e;
        fixture_open(&f, play_command, body, NULL);
        const struct vercel_command cmd = {.session_id = "sbx_1", .command = "cat", .attach_stdin = attach};
        assert_non_null(vercel_command_start(f.client, &cmd, &ev, &done, &e));
        fixture_run(&f, &done);
        fixture_close(&f);
        if (attach)
            assert_non_null(strstr(body, "\"attachStdin\":true"));
        else
            assert_null(strstr(body, "attachStdin"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_big_write_made_twice),
        cmocka_unit_test(test_too_big),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_again_only_where_safe),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_command_asks_for_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
