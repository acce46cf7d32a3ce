/* Carriers of input: bytes go in order and once whatever is lost, in few calls, and the end is told once.
 * C6 P63 P64 */
#include "fixture.h"

#include "guestlink/carrier.h"
#include "guestlink/internal.h"

#include "base/clock.h"
#include "base/core/b64.h"
#include "base/core/carrier.h"
#include "tests/support/rawws.h"

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

enum { BODY_MAX = 1024 * 1024, RECEIVED_MAX = 16 * 1024 * 1024 };

static const struct guest_blob blob = {"amd64", (const unsigned char *)"\177ELF helper", 11, HASH};

static const struct guest_blob *find_blob(const char *arch)
{
    return strcmp(arch, "amd64") ? NULL : &blob;
}

/* What one stdin call runs into. */
enum fault {
    FAULT_NONE,
    FAULT_LOST,      /* done, and no answer */
    FAULT_CUT,       /* not done, and no answer */
    FAULT_HALF_504,  /* half is done, and the answer says how much */
    FAULT_MUTE_504,  /* half is done, and the answer does not say how much */
    FAULT_STUCK_504, /* nothing is done */
    FAULT_429,
    FAULT_503, /* not done */
    FAULT_GONE
};

/* What the interactive socket is worth. */
enum socket {
    SOCKET_NONE, /* the upstream knows no terminals */
    SOCKET_GOOD,
    SOCKET_NOISE,   /* a greeting first, in pieces, the magic among it */
    SOCKET_LOUD,    /* nothing but noise */
    SOCKET_REFUSED, /* no handshake */
    SOCKET_EXITS,   /* the program is not there */
    SOCKET_DIES,    /* ends before the magic */
    SOCKET_DIES_LATER,
    SOCKET_NONSENSE
};

/* A session as the upstream would play it, with the guest's `input` in it. */
struct upstream {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool missing;   /* the helper is not there before it was uploaded */
    bool mute;      /* `input` never speaks */
    bool no_counts; /* an old sandbox */
    const char *first;
    enum fault faults[64]; /* of the n-th stdin call */
    enum fault always;     /* of the later ones */
    const char *last;      /* what `input` says at its end; NULL: K, when its input ends */
    bool end;              /* says `last` now */
    bool cut_stream;
    enum socket socket;
    struct raw_server *server;
    /* seen */
    int terminals, starts;
    bool early; /* something was sent before the magic */
    char start[1024];
    int uploads, runs, calls, asks, closes;
    int opens; /* stdin calls being served: never more than one */
    bool overlapped;
    unsigned char *received;
    size_t len;
    bool closed;
    char body[4096]; /* of the last run */
};

static bool chunk(struct raw_conn *c, const char *text)
{
    char head[32];
    snprintf(head, sizeof head, "%zx\r\n", strlen(text));
    return raw_sends(c, head) && raw_sends(c, text) && raw_sends(c, "\r\n");
}

static bool say(struct raw_conn *c, const char *line)
{
    char text[512];
    snprintf(text, sizeof text, "{\"stream\":\"stdout\",\"data\":\"%s\\n\"}\n", line);
    return chunk(c, text);
}

#define COMMAND(code) "{\"command\":{\"id\":\"cmd_1\",\"exitCode\":" code "}}"

/* False: the connection is cut. */
static bool play_input(struct raw_conn *c, struct upstream *u)
{
    char line[128];
    size_t told = 0;
    raw_sends(c,
              "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n");
    chunk(c, COMMAND("null") "\n");
    pthread_mutex_lock(&u->lock);
    bool ok = u->mute || say(c, u->first ? u->first : "C 1 0 1048576");
    while (ok && !u->closed && !u->end && !u->cut_stream) {
        if (u->len != told && !u->mute) {
            told = u->len;
            snprintf(line, sizeof line, "A %zu 1048576 -", told);
            ok = say(c, line);
        }
        pthread_cond_wait(&u->changed, &u->lock);
    }
    bool cut = u->cut_stream;
    pthread_mutex_unlock(&u->lock);
    if (!ok || cut)
        return false;
    say(c, u->last ? u->last : "K");
    chunk(c, COMMAND("0") "\n");
    return raw_sends(c, "0\r\n\r\n");
}

static bool play_run(struct raw_conn *c, struct upstream *u, const char *body)
{
    pthread_mutex_lock(&u->lock);
    u->runs++;
    snprintf(u->body, sizeof u->body, "%s", body);
    bool there = !u->missing || u->uploads > 0;
    pthread_mutex_unlock(&u->lock);
    return there ? play_input(c, u)
                 : raw_answer(c, 400, "application/json", "",
                              "{\"error\":{\"code\":\"executable_not_found\",\"message\":\"no\"}}");
}

/* Puts at most max bytes of the data in its place.  Under the lock. */
static size_t take(struct upstream *u, const char *body, size_t max)
{
    const char *data = strstr(body, "\"data\":\"");
    const char *offset = strstr(body, "\"offset\":");
    if (!data)
        return u->len;
    data += 8;
    size_t n = strcspn(data, "\"");
    unsigned char *bytes = malloc(n);
    ssize_t len = sg_b64_decode(bytes, data, n);
    assert_true(len >= 0);
    size_t from = u->no_counts || !offset ? u->len : strtoul(offset + 9, NULL, 10);
    assert_true(from <= u->len);
    for (size_t i = 0; i < (size_t)len && i < max; i++)
        if (from + i >= u->len && u->len < RECEIVED_MAX)
            u->received[u->len++] = bytes[i];
    free(bytes);
    return u->len;
}

static void answer_count(struct raw_conn *c, const struct upstream *u, size_t count)
{
    char body[256];
    if (u->no_counts)
        snprintf(body, sizeof body, "{\"command\":{\"id\":\"cmd_1\"}}");
    else
        snprintf(body, sizeof body, "{\"command\":{\"id\":\"cmd_1\"},\"bytesWritten\":%zu}", count);
    raw_answer(c, 200, "application/json", "", body);
}

/* False: the connection ends without an answer. */
static bool play_stdin(struct raw_conn *c, struct upstream *u, const struct raw_request *r)
{
    char body[256] = "{\"error\":{\"code\":\"x\",\"message\":\"no\"}}";
    pthread_mutex_lock(&u->lock);
    enum fault fault = u->calls < 64 ? u->faults[u->calls] : FAULT_NONE;
    fault = fault != FAULT_NONE ? fault : u->always;
    u->calls++;
    bool closes = strstr(r->body, "\"close\":true") != NULL;
    bool has_data = strstr(r->body, "\"data\"") != NULL;
    if (!closes && !has_data)
        u->asks++;
    u->closes += closes;
    u->overlapped |= u->opens++ > 0;
    size_t count = u->len;
    bool twice = closes && u->closed;
    if (fault == FAULT_NONE || fault == FAULT_LOST) {
        count = take(u, r->body, SIZE_MAX);
        u->closed |= closes;
    } else if (fault == FAULT_HALF_504 || fault == FAULT_MUTE_504) {
        count = take(u, r->body, r->body_len / 4);
    }
    u->opens--;
    pthread_cond_broadcast(&u->changed);
    pthread_mutex_unlock(&u->lock);
    switch (fault) {
    case FAULT_LOST:
    case FAULT_CUT:
        return false;
    case FAULT_HALF_504:
    case FAULT_STUCK_504:
        snprintf(body, sizeof body,
                 "{\"error\":{\"code\":\"timeout\",\"message\":\"no\",\"bytesWritten\":%zu}}", count);
        raw_answer(c, 504, "application/json", "", body);
        break;
    case FAULT_MUTE_504:
        raw_answer(c, 504, "application/json", "", body);
        break;
    case FAULT_429:
        raw_answer(c, 429, "application/json", "", body);
        break;
    case FAULT_503:
        raw_answer(c, 503, "application/json", "", body);
        break;
    case FAULT_GONE:
        raw_answer(c, 404, "application/json", "",
                   "{\"error\":{\"code\":\"command_not_found_or_exited\",\"message\":\"no\"}}");
        break;
    case FAULT_NONE:
    default:
        if (twice)
            raw_answer(c, 400, "application/json", "",
                       "{\"error\":{\"code\":\"command_stdin_unavailable\",\"message\":\"no\"}}");
        else
            answer_count(c, u, count);
        break;
    }
    return true;
}

/* ---- the interactive socket ---- */

static void answer_terminal(struct raw_conn *c, struct upstream *u)
{
    char body[256];
    pthread_mutex_lock(&u->lock);
    u->terminals++;
    pthread_mutex_unlock(&u->lock);
    snprintf(body, sizeof body, "{\"url\":\"ws%s/ws/interactive\",\"token\":\"t%d\"}", raw_url(u->server) + 4,
             u->terminals);
    if (u->socket == SOCKET_NONE)
        raw_answer(c, 404, "application/json", "", "{\"error\":{\"code\":\"not_found\",\"message\":\"no\"}}");
    else
        raw_answer(c, 200, "application/json", "", body);
}

static bool type_out(struct raw_conn *c, const char *text)
{
    return rawws_text(c, WS_OP_BINARY, text);
}

/* What the guest says first; false: it is over with it. */
static bool greet(struct raw_conn *c, const struct upstream *u)
{
    char noise[3000];
    memset(noise, 'n', sizeof noise - 1);
    noise[sizeof noise - 1] = '\0';
    if (u->socket == SOCKET_EXITS)
        rawws_text(c, WS_OP_TEXT, "{\"type\":\"exit\",\"code\":127}");
    if (u->socket == SOCKET_EXITS || u->socket == SOCKET_DIES) {
        rawws_send(c, WS_OP_CLOSE, "\x03\xe8", 2);
        return false;
    }
    for (int i = 0; u->socket == SOCKET_LOUD && i < 4; i++)
        type_out(c, noise);
    if (u->socket == SOCKET_LOUD)
        return true;
    if (u->socket == SOCKET_NOISE) {
        type_out(c, noise);
        type_out(c, "Welcome\r\n# " SG_CARRIER_MAGIC " is not it\r\n$ ");
        type_out(c, "#sandgate-");
        type_out(c, "carrier-1");
        type_out(c, "\r");
        type_out(c, "\nC 1 0 10");
        type_out(c, "48576\r\n#a remark\n");
    } else {
        type_out(c, SG_CARRIER_MAGIC "\n");
        type_out(c, u->socket == SOCKET_NONSENSE ? "oops\n" : u->first ? u->first : "C 1 0 1048576\n");
    }
    return u->socket != SOCKET_DIES_LATER;
}

static void play_socket(struct raw_conn *c, struct upstream *u, const char *head)
{
    struct rawws w;
    struct ws_event ev;
    char line[128];
    if (u->socket == SOCKET_REFUSED) {
        raw_answer(c, 401, "text/plain", "", "no");
        return;
    }
    if (!rawws_accept(c, head))
        return;
    rawws_init(&w);
    for (bool started = false; rawws_next(c, &w, &ev);) {
        if (ev.kind == WS_EV_CLOSE) {
            rawws_send(c, WS_OP_CLOSE, "\x03\xe8", 2);
            return;
        }
        if (ev.kind != WS_EV_DATA)
            continue;
        if (ev.text) {
            pthread_mutex_lock(&u->lock);
            u->starts++;
            snprintf(u->start, sizeof u->start, "%.*s", (int)ev.len, (const char *)ev.data);
            pthread_mutex_unlock(&u->lock);
            started = greet(c, u);
            if (!started)
                return;
            continue;
        }
        pthread_mutex_lock(&u->lock);
        u->early |= !started || u->socket == SOCKET_LOUD;
        for (size_t i = 0; i < ev.len && u->len < RECEIVED_MAX; i++)
            u->received[u->len++] = ev.data[i];
        snprintf(line, sizeof line, "A %zu 1048576 -\n", u->len);
        bool end = u->last && u->len >= 100;
        pthread_mutex_unlock(&u->lock);
        type_out(c, line);
        if (end)
            type_out(c, u->last);
    }
}

static void play(struct raw_conn *c, int n, void *arg)
{
    struct upstream *u = arg;
    struct raw_request r;
    (void)n;
    while (raw_read(c, &r)) {
        if (strstr(r.target, "/ws/interactive?token=t")) {
            play_socket(c, u, r.head);
            return;
        }
        if (strstr(r.target, "/interactive")) {
            answer_terminal(c, u);
        } else if (strstr(r.target, "/stdin")) {
            if (!play_stdin(c, u, &r))
                return;
        } else if (strstr(r.target, "/fs/write")) {
            pthread_mutex_lock(&u->lock);
            u->uploads++;
            pthread_mutex_unlock(&u->lock);
            raw_answer(c, 200, "application/json", "", "{}");
        } else {
            if (!play_run(c, u, r.body))
                return;
        }
    }
}

/* ---- an owner ---- */

struct owner {
    struct carrier *carrier;
    const unsigned char *data; /* what it has to bring */
    size_t len, sent;
    size_t piece; /* bytes of one carrier_send */
    bool finish;  /* once all is sent */
    bool try_socket, root;
    bool cancel_on_line, cancelled;
    char kinds[256];
    uint64_t accepted;
    bool interactive;
    bool done, has_line;
    struct sg_wire_line line;
    struct sg_error error;
};

static void bring(struct owner *o)
{
    while (o->sent < o->len) {
        size_t n = o->len - o->sent < o->piece ? o->len - o->sent : o->piece;
        size_t k = carrier_send(o->carrier, o->data + o->sent, n);
        assert_true(k <= n);
        assert_true(carrier_queued(o->carrier) <= CARRIER_QUEUE_MAX);
        o->sent += k;
        if (k < n)
            return;
    }
    if (o->finish)
        carrier_finish(o->carrier);
}

static void on_line(void *arg, const struct sg_wire_line *line, bool interactive)
{
    struct owner *o = arg;
    assert_false(o->done || o->cancelled);
    size_t n = strlen(o->kinds);
    if (n + 1 < sizeof o->kinds)
        o->kinds[n] = (char)line->kind;
    assert_true(line->accepted >= o->accepted);
    o->accepted = line->accepted;
    o->interactive = interactive;
    if (o->cancel_on_line) {
        carrier_cancel(o->carrier);
        o->cancelled = true;
    }
}

static void on_room(void *arg)
{
    struct owner *o = arg;
    assert_false(o->done || o->cancelled);
    assert_true(o->sent < o->len);
    assert_true(carrier_queued(o->carrier) < CARRIER_QUEUE_MAX);
    bring(o);
}

static void on_end(void *arg, const struct sg_wire_line *line, const struct sg_error *e)
{
    struct owner *o = arg;
    assert_false(o->done || o->cancelled);
    assert_true(!line != !e);
    o->done = true;
    o->has_line = line != NULL;
    if (line)
        o->line = *line;
    if (e)
        o->error = *e;
}

static const struct carrier_events events = {on_line, on_room, on_end};

struct setup {
    struct fixture f;
    struct upstream u;
    struct guestlink *g;
    struct owner o;
    unsigned char *data;
};

static void open_setup(struct setup *s, size_t len)
{
    const struct tuning quick = {.retries = 1, .retry_budget_ms = 1000};
    pthread_mutex_init(&s->u.lock, NULL);
    pthread_cond_init(&s->u.changed, NULL);
    s->u.received = malloc(RECEIVED_MAX);
    s->data = malloc(len + 1);
    assert_non_null(s->data);
    for (size_t i = 0; i < len; i++)
        s->data[i] = (unsigned char)(i * 31 + i / 255);
    fixture_open(&s->f, play, &s->u, &quick);
    s->u.server = s->f.server;
    s->g = guestlink_new(s->f.loop, s->f.client);
    assert_non_null(s->g);
    guestlink_set_blobs(s->g, find_blob);
    s->o.data = s->data;
    s->o.len = len;
    s->o.piece = s->o.piece ? s->o.piece : 65536 + 13;
}

static void begin(struct setup *s)
{
    const struct carrier_spec spec = {
        .session_id = "sbx_1", .id = "p1", .interactive = s->o.try_socket, .sudo = s->o.root};
    struct sg_error e;
    s->o.carrier = carrier_open(s->g, &spec, &events, &s->o, &e);
    assert_non_null(s->o.carrier);
    assert_false(s->o.done);
}

static void wake(struct upstream *u)
{
    pthread_mutex_lock(&u->lock);
    pthread_cond_broadcast(&u->changed);
    pthread_mutex_unlock(&u->lock);
}

static int calls_seen(struct upstream *u)
{
    pthread_mutex_lock(&u->lock);
    int n = u->calls;
    pthread_mutex_unlock(&u->lock);
    return n;
}

static void close_setup(struct setup *s)
{
    guestlink_free(s->g);
    pthread_mutex_lock(&s->u.lock);
    s->u.cut_stream = true;
    pthread_mutex_unlock(&s->u.lock);
    wake(&s->u);
    fixture_close(&s->f);
    pthread_mutex_destroy(&s->u.lock);
    pthread_cond_destroy(&s->u.changed);
    free(s->u.received);
    free(s->data);
}

static void on_tick(void *arg)
{
    (void)arg;
}

/* A turn that waits for little, for trying things at every moment. */
static void short_turn(struct setup *s)
{
    struct sg_timer *t = sg_timer_new(s->f.loop, on_tick, NULL);
    sg_timer_start(t, 3);
    uv_run(sg_loop_uv(s->f.loop), UV_RUN_ONCE);
    sg_timer_free(t);
}

static void run_until_kinds(struct setup *s, const char *kinds)
{
    while (!s->o.done && !s->o.cancelled && strcmp(s->o.kinds, kinds) != 0)
        uv_run(sg_loop_uv(s->f.loop), UV_RUN_ONCE);
    assert_string_equal(s->o.kinds, kinds);
}

static void check_all_there(const struct setup *s)
{
    assert_true(s->o.done);
    assert_true(s->o.has_line);
    assert_int_equal(s->o.line.kind, SG_WIRE_OK);
    assert_int_equal(s->u.len, s->o.len);
    assert_memory_equal(s->u.received, s->data, s->o.len);
    assert_true(s->u.closed);
    assert_false(s->u.overlapped);
    assert_int_equal(s->o.kinds[0], 'C');
}

/* Ten mebibytes in about twenty calls, none of them for asking. */
static void test_upload_in_few_calls(void **state)
{
    (void)state;
    struct setup s = {.o.finish = true};
    open_setup(&s, 10 * 1024 * 1024);
    begin(&s);
    bring(&s.o);
    fixture_run(&s.f, &s.o.done);
    check_all_there(&s);
    assert_in_range(s.u.calls, 20, 24);
    assert_int_equal(s.u.asks, 0);
    assert_int_equal(s.u.closes, 1);
    assert_int_equal(s.u.runs, 1);
    assert_false(s.o.interactive);
    assert_non_null(strstr(s.u.body, "\"args\":[\"input\",\"--session\",\"sbx_1\",\"--id\",\"p1\"]"));
    assert_non_null(strstr(s.u.body, "\"attachStdin\":true"));
    close_setup(&s);
}

/* Keys typed faster than calls return share calls. */
static void test_typing_shares_calls(void **state)
{
    (void)state;
    struct setup s = {.o.piece = 1};
    open_setup(&s, 2000);
    begin(&s);
    run_until_kinds(&s, "C");
    while (s.o.sent < s.o.len) {
        s.o.sent += carrier_send(s.o.carrier, s.data + s.o.sent, 1);
        fixture_turn(&s.f);
    }
    carrier_finish(s.o.carrier);
    fixture_run(&s.f, &s.o.done);
    check_all_there(&s);
    assert_in_range(s.u.calls, 2, 500);
    close_setup(&s);
}

/* Nothing is sent before the guest has said that it listens. */
static void test_nothing_before_the_guest_spoke(void **state)
{
    (void)state;
    struct setup s = {.u.mute = true};
    open_setup(&s, 100);
    begin(&s);
    bring(&s.o);
    while (raw_requests(s.f.server) < 1)
        fixture_turn(&s.f);
    int64_t until = sg_mono_ms() + 200;
    while (sg_mono_ms() < until)
        fixture_turn(&s.f);
    assert_int_equal(raw_requests(s.f.server), 1);
    carrier_cancel(s.o.carrier);
    close_setup(&s);
}

static void lossy(const enum fault *faults, size_t n, enum fault always, bool whole)
{
    struct setup s = {.o.finish = true, .u.always = always};
    memcpy(s.u.faults, faults, n * sizeof *faults);
    open_setup(&s, 3 * 1024 * 1024);
    begin(&s);
    bring(&s.o);
    fixture_run(&s.f, &s.o.done);
    if (whole) {
        check_all_there(&s);
    } else {
        assert_false(s.o.has_line);
        assert_memory_equal(s.u.received, s.data, s.u.len); /* what is in is a beginning, once */
    }
    close_setup(&s);
}

static void test_losses(void **state)
{
    (void)state;
    static const enum fault cases[][8] = {
        {FAULT_LOST},
        {FAULT_CUT},
        {FAULT_503},
        {FAULT_429},
        {FAULT_HALF_504},
        {FAULT_MUTE_504},
        {FAULT_STUCK_504},
        {FAULT_NONE, FAULT_LOST, FAULT_HALF_504, FAULT_NONE, FAULT_MUTE_504, FAULT_429, FAULT_CUT,
         FAULT_LOST},
        {FAULT_MUTE_504, FAULT_429, FAULT_NONE, FAULT_HALF_504, FAULT_HALF_504, FAULT_HALF_504},
        {FAULT_LOST, FAULT_NONE, FAULT_LOST, FAULT_NONE, FAULT_CUT, FAULT_NONE, FAULT_503, FAULT_503},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        lossy(cases[i], 8, FAULT_NONE, true);
}

/* The close is lost as often as the upstream likes: it is said again, and "closed already" is its success. */
static void test_lost_close(void **state)
{
    (void)state;
    struct setup s = {.o.finish = true, .u.faults = {FAULT_NONE, FAULT_LOST}};
    open_setup(&s, 10);
    begin(&s);
    bring(&s.o);
    fixture_run(&s.f, &s.o.done);
    check_all_there(&s);
    close_setup(&s);
}

/* Where nothing gets through the carrier ends, and has brought nothing twice. */
static void test_hopeless(void **state)
{
    (void)state;
    static const enum fault always[] = {FAULT_LOST, FAULT_CUT, FAULT_503, FAULT_STUCK_504, FAULT_MUTE_504};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        lossy(&always[i], 1, always[i], false);
}

/* A sandbox that does not count: all is well while nothing is lost, and nothing is sent twice when it is. */
static void test_without_counts(void **state)
{
    (void)state;
    for (int lost = 0; lost < 3; lost++) {
        static const enum fault second[] = {FAULT_NONE, FAULT_LOST, FAULT_MUTE_504};
        struct setup s = {.o.finish = true, .u.no_counts = true, .u.faults = {FAULT_NONE, second[lost]}};
        open_setup(&s, 2 * 1024 * 1024);
        begin(&s);
        bring(&s.o);
        fixture_run(&s.f, &s.o.done);
        if (!lost) {
            check_all_there(&s);
        } else {
            assert_false(s.o.has_line);
            assert_int_equal(s.o.error.outcome, SG_OUTCOME_UNKNOWN);
            assert_int_equal(s.u.asks, 1);
            assert_in_range(s.u.len, 1, s.o.len - 1);
            assert_memory_equal(s.u.received, s.data, s.u.len);
        }
        close_setup(&s);
    }
}

/* The guest's last word is the end: also when the stdin endpoint is the first to know. */
static void test_last_words(void **state)
{
    (void)state;
    static const char *const words[] = {"M", "E fenced - another carrier", "E finished - it has ended",
                                        "E no_input - it reads nothing"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (int first_by_stdin = 0; first_by_stdin < 2; first_by_stdin++) {
            struct setup s = {.u.last = words[i]};
            if (first_by_stdin)
                s.u.always = FAULT_GONE;
            open_setup(&s, 100);
            begin(&s);
            bring(&s.o);
            while (first_by_stdin && calls_seen(&s.u) < 1)
                fixture_turn(&s.f);
            run_until_kinds(&s, first_by_stdin ? "C" : "CA");
            pthread_mutex_lock(&s.u.lock);
            s.u.end = true;
            pthread_mutex_unlock(&s.u.lock);
            wake(&s.u);
            fixture_run(&s.f, &s.o.done);
            assert_true(s.o.has_line);
            assert_int_equal(s.o.line.kind, words[i][0]);
            close_setup(&s);
        }
}

static void test_refused_by_the_guest(void **state)
{
    (void)state;
    struct setup s = {.u.first = "E no_record - nothing of this name", .u.end = true, .u.last = "K"};
    open_setup(&s, 100);
    begin(&s);
    bring(&s.o);
    fixture_run(&s.f, &s.o.done);
    assert_string_equal(s.o.kinds, "");
    assert_int_equal(s.o.line.kind, SG_WIRE_ERROR);
    assert_int_equal(s.o.line.fail, SG_WF_NO_RECORD);
    assert_int_equal(s.u.calls, 0);
    close_setup(&s);
}

static void test_nonsense_from_the_guest(void **state)
{
    (void)state;
    static const char *const firsts[] = {"A 0 10 -", "hello", "K x y z", "D 1 0 AAAA"};
    for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++) {
        struct setup s = {.u.first = firsts[i]};
        open_setup(&s, 100);
        begin(&s);
        fixture_run(&s.f, &s.o.done);
        assert_false(s.o.has_line);
        assert_int_equal(s.o.error.code, SG_E_UPSTREAM_BAD_RESPONSE);
        close_setup(&s);
    }
}

static void test_stream_cut(void **state)
{
    (void)state;
    struct setup s = {0};
    open_setup(&s, 100);
    begin(&s);
    bring(&s.o);
    run_until_kinds(&s, "CA");
    pthread_mutex_lock(&s.u.lock);
    s.u.cut_stream = true;
    pthread_mutex_unlock(&s.u.lock);
    wake(&s.u);
    fixture_run(&s.f, &s.o.done);
    assert_false(s.o.has_line);
    assert_int_equal(s.o.error.code, SG_E_UPSTREAM_UNREACHABLE);
    close_setup(&s);
}

static void test_helper_is_missing(void **state)
{
    (void)state;
    struct setup s = {.o.finish = true, .u.missing = true};
    open_setup(&s, 1000);
    begin(&s);
    bring(&s.o);
    fixture_run(&s.f, &s.o.done);
    check_all_there(&s);
    assert_int_equal(s.u.uploads, 1);
    assert_int_equal(s.u.runs, 2);
    close_setup(&s);
}

static void test_cancel(void **state)
{
    (void)state;
    for (int when = 0; when < 40; when++) { /* so many turns after it began */
        struct setup s = {.o.finish = true, .u.missing = when % 2 == 0};
        open_setup(&s, 1024 * 1024);
        begin(&s);
        bring(&s.o);
        for (int i = 0; i < when && !s.o.done; i++)
            short_turn(&s);
        carrier_cancel(s.o.carrier);
        s.o.cancelled = true;
        for (int i = 0; i < 5; i++)
            fixture_turn(&s.f);
        close_setup(&s);
    }
    struct setup s = {.o.cancel_on_line = true};
    open_setup(&s, 100);
    begin(&s);
    bring(&s.o);
    while (!s.o.cancelled)
        uv_run(sg_loop_uv(s.f.loop), UV_RUN_ONCE);
    close_setup(&s);
}

/* The gateway stops with carriers open. */
static void test_shutdown(void **state)
{
    (void)state;
    struct setup s = {0};
    open_setup(&s, 100);
    begin(&s);
    bring(&s.o);
    run_until_kinds(&s, "CA");
    guestlink_free(s.g);
    s.g = NULL;
    assert_true(s.o.done);
    assert_int_equal(s.o.error.code, SG_E_DRAINING);
    close_setup(&s);
}

/* ---- by the interactive socket ---- */

static void reset_owner(struct setup *s)
{
    s->o = (struct owner){
        .data = s->data, .len = s->o.len, .piece = 65536, .finish = s->o.finish, .try_socket = true};
    s->u.len = 0;
    s->u.closed = false;
}

/* Typed bytes go over one connection, an upload too, and finishing is an end as asked for. */
static void test_socket(void **state)
{
    (void)state;
    for (int noise = 0; noise < 2; noise++) {
        struct setup s = {.o.try_socket = true, .u.socket = noise ? SOCKET_NOISE : SOCKET_GOOD};
        open_setup(&s, 3 * 1024 * 1024);
        begin(&s);
        bring(&s.o);
        while (s.o.accepted < s.o.len && !s.o.done)
            uv_run(sg_loop_uv(s.f.loop), UV_RUN_ONCE);
        assert_true(s.o.interactive);
        assert_false(s.o.done);
        assert_false(s.u.early);
        assert_memory_equal(s.u.received, s.data, s.o.len);
        assert_int_equal(s.o.kinds[0], 'C');
        carrier_finish(s.o.carrier);
        fixture_run(&s.f, &s.o.done);
        assert_int_equal(s.o.line.kind, SG_WIRE_OK);
        assert_int_equal(s.u.runs, 0);
        assert_string_equal(s.u.start, "{\"type\":\"start\",\"command\":\"" GUEST_ROOT "/guest-" HASH
                                       "\",\"args\":[\"input\",\"--session\",\"sbx_1\",\"--id\",\"p1\"],"
                                       "\"env\":[],\"cwd\":\"/\"}");
        close_setup(&s);
    }
}

static void test_socket_as_root(void **state)
{
    (void)state;
    struct setup s = {.o.try_socket = true, .o.root = true, .u.socket = SOCKET_GOOD};
    open_setup(&s, 10);
    begin(&s);
    run_until_kinds(&s, "C");
    assert_non_null(
        strstr(s.u.start, "\"command\":\"sudo\",\"args\":[\"" GUEST_ROOT "/guest-" HASH "\",\"input\""));
    carrier_cancel(s.o.carrier);
    close_setup(&s);
}

/* Whatever is wrong with the socket before the magic, the other way is taken without a word, and for a while the
 * socket is not tried again. */
static void test_falls_back(void **state)
{
    (void)state;
    static const enum socket sockets[] = {SOCKET_NONE, SOCKET_LOUD, SOCKET_REFUSED, SOCKET_EXITS,
                                          SOCKET_DIES};
    for (size_t i = 0; i < sizeof sockets / sizeof *sockets; i++) {
        struct setup s = {.o.try_socket = true, .o.finish = true, .u.socket = sockets[i]};
        open_setup(&s, 100000);
        for (int again = 0; again < 2; again++) {
            begin(&s);
            bring(&s.o);
            fixture_run(&s.f, &s.o.done);
            check_all_there(&s);
            assert_false(s.o.interactive);
            assert_false(s.u.early);
            assert_int_equal(s.u.terminals, sockets[i] == SOCKET_EXITS ? again + 1 : 1);
            reset_owner(&s);
        }
        close_setup(&s);
    }
}

/* Once the guest has spoken there is no other way any more. */
static void test_socket_ends(void **state)
{
    (void)state;
    static const enum socket sockets[] = {SOCKET_DIES_LATER, SOCKET_NONSENSE};
    for (size_t i = 0; i < sizeof sockets / sizeof *sockets; i++) {
        struct setup s = {.o.try_socket = true, .u.socket = sockets[i]};
        open_setup(&s, 10);
        begin(&s);
        fixture_run(&s.f, &s.o.done);
        assert_false(s.o.has_line);
        assert_int_equal(s.u.runs, 0);
        close_setup(&s);
    }
    struct setup s = {
        .o.try_socket = true, .u.socket = SOCKET_GOOD, .u.last = "E fenced - another carrier\n"};
    open_setup(&s, 100);
    begin(&s);
    bring(&s.o);
    fixture_run(&s.f, &s.o.done);
    assert_int_equal(s.o.line.fail, SG_WF_FENCED);
    close_setup(&s);
}

static void test_socket_cancel_and_shutdown(void **state)
{
    (void)state;
    for (int when = 0; when < 30; when++) {
        struct setup s = {.o.try_socket = true, .u.socket = when % 3 ? SOCKET_GOOD : SOCKET_DIES};
        open_setup(&s, 300000);
        begin(&s);
        bring(&s.o);
        for (int i = 0; i < when && !s.o.done; i++)
            short_turn(&s);
        if (when % 2) {
            carrier_cancel(s.o.carrier);
            s.o.cancelled = true;
        }
        close_setup(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_upload_in_few_calls),
        cmocka_unit_test(test_typing_shares_calls),
        cmocka_unit_test(test_nothing_before_the_guest_spoke),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_lost_close),
        cmocka_unit_test(test_hopeless),
        cmocka_unit_test(test_without_counts),
        cmocka_unit_test(test_last_words),
        cmocka_unit_test(test_refused_by_the_guest),
        cmocka_unit_test(test_nonsense_from_the_guest),
        cmocka_unit_test(test_stream_cut),
        cmocka_unit_test(test_helper_is_missing),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_shutdown),
        cmocka_unit_test(test_socket),
        cmocka_unit_test(test_socket_as_root),
        cmocka_unit_test(test_falls_back),
        cmocka_unit_test(test_socket_ends),
        cmocka_unit_test(test_socket_cancel_and_shutdown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
