#include "carrier_play.h"

#include "base/clock.h"
#include "base/core/b64.h"
#include "base/core/carrier.h"
#include "tests/support/rawws.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BODY_MAX = 1024 * 1024, RECEIVED_MAX = 16 * 1024 * 1024 };

static const struct guest_blob blob = {"amd64", (const unsigned char *)"\177ELF helper", 11, HASH};

static const struct guest_blob *find_blob(const char *arch)
{
    return strcmp(arch, "amd64") ? NULL : &blob;
}

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

void bring(struct owner *o)
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

void open_setup(struct setup *s, size_t len)
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

void begin(struct setup *s)
{
    const struct carrier_spec spec = {
        .session_id = "sbx_1", .id = "p1", .interactive = s->o.try_socket, .sudo = s->o.root};
    struct sg_error e;
    s->o.carrier = carrier_open(s->g, &spec, &events, &s->o, &e);
    assert_non_null(s->o.carrier);
    assert_false(s->o.done);
}

void wake(struct upstream *u)
{
    pthread_mutex_lock(&u->lock);
    pthread_cond_broadcast(&u->changed);
    pthread_mutex_unlock(&u->lock);
}

int calls_seen(struct upstream *u)
{
    pthread_mutex_lock(&u->lock);
    int n = u->calls;
    pthread_mutex_unlock(&u->lock);
    return n;
}

void close_setup(struct setup *s)
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
void short_turn(struct setup *s)
{
    struct sg_timer *t = sg_timer_new(s->f.loop, on_tick, NULL);
    sg_timer_start(t, 3);
    uv_run(sg_loop_uv(s->f.loop), UV_RUN_ONCE);
    sg_timer_free(t);
}

void run_until_kinds(struct setup *s, const char *kinds)
{
    while (!s->o.done && !s->o.cancelled && strcmp(s->o.kinds, kinds) != 0)
        uv_run(sg_loop_uv(s->f.loop), UV_RUN_ONCE);
    assert_string_equal(s->o.kinds, kinds);
}

void check_all_there(const struct setup *s)
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
