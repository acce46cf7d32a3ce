#include "harness.h"

#include "auth/tokens.h"
#include "base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 20000 };

struct harness {
    struct sg_loop *loop;
    struct http_server *server;
    struct gateway gw;
    pthread_t thread;
    void (*at_end)(void *arg);
    void *at_end_arg;
};

/* The token table is not the subject here: one good token, one expired. */
enum sg_code token_check(struct token_table *t, const char *token, struct principal *out, struct sg_error *e)
{
    (void)t;
    if (strcmp(token, "expired-token") == 0)
        return sg_fail(e, SG_E_TOKEN_EXPIRED, SG_NOT_SENT, "expired");
    if (strcmp(token, TOKEN) != 0)
        return sg_fail(e, SG_E_UNAUTHENTICATED, SG_NOT_SENT, "wrong token");
    memset(out, 0, sizeof *out);
    memcpy(out->id, "abcdefghijkl", TOKEN_ID_LEN + 1);
    return SG_OK;
}

enum sg_code token_check_header(struct token_table *t, const char *authorization, struct principal *out,
                                struct sg_error *e)
{
    if (strncmp(authorization, "Bearer ", 7) != 0)
        return sg_fail(e, SG_E_UNAUTHENTICATED, SG_NOT_SENT, "not a bearer token");
    return token_check(t, authorization + 7, out, e);
}

static void *loop_main(void *arg)
{
    struct harness *h = arg;
    sg_loop_run(h->loop);
    return NULL;
}

struct harness *harness_start(const struct http_server_config *cfg, const struct route *list, size_t count)
{
    if (!getenv("SG_TEST_LOG"))
        sg_log_set_level(SG_LOG_ERROR);
    struct harness *h = calloc(1, sizeof *h);
    assert_non_null(h);
    h->loop = sg_loop_new();
    assert_non_null(h->loop);
    h->gw.loop = h->loop;
    struct http_server_config c = {0};
    if (cfg)
        c = *cfg;
    if (!c.listen)
        c.listen = "127.0.0.1:0";
    c.routes = list;
    c.routes_count = count;
    char err[HTTP_ERR] = "";
    h->server = http_server_new(h->loop, &c, &h->gw, NULL, err);
    if (!h->server)
        fail_msg("%s", err);
    assert_int_equal(pthread_create(&h->thread, NULL, loop_main, h), 0);
    return h;
}

void harness_stop(struct harness *h)
{
    sg_loop_stop(h->loop);
    pthread_join(h->thread, NULL);
    http_server_free(h->server);
    if (h->at_end)
        h->at_end(h->at_end_arg);
    sg_loop_free(h->loop);
    free(h);
}

void harness_at_end(struct harness *h, void (*fn)(void *arg), void *arg)
{
    h->at_end = fn;
    h->at_end_arg = arg;
}

struct gateway *harness_gateway(struct harness *h)
{
    return &h->gw;
}

struct http_server *harness_server(struct harness *h)
{
    return h->server;
}

int harness_port(struct harness *h)
{
    return http_server_port(h->server);
}

struct call {
    struct sg_task task;
    void (*fn)(void *arg);
    void *arg;
    sem_t done;
};

static void run_call(struct sg_task *t)
{
    struct call *c = (struct call *)t;
    c->fn(c->arg);
    sem_post(&c->done);
}

void harness_on_loop(struct harness *h, void (*fn)(void *arg), void *arg)
{
    struct call c = {.task.fn = run_call, .fn = fn, .arg = arg};
    sem_init(&c.done, 0, 0);
    sg_loop_post(h->loop, &c.task);
    while (sem_wait(&c.done) && errno == EINTR)
        ;
    sem_destroy(&c.done);
}

struct question {
    bool (*cond)(void *arg);
    void *arg;
    bool yes;
};

static void ask(void *arg)
{
    struct question *q = arg;
    q->yes = q->cond(q->arg);
}

static void nap(void)
{
    struct timespec ts = {0, 2000000};
    nanosleep(&ts, NULL);
}

void harness_wait(struct harness *h, bool (*cond)(void *arg), void *arg)
{
    for (int i = 0; i < PATIENCE_MS / 2; i++) {
        struct question q = {cond, arg, false};
        harness_on_loop(h, ask, &q);
        if (q.yes)
            return;
        nap();
    }
    fail_msg("the condition did not come true");
}

int client_connect(struct harness *h)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons((uint16_t)harness_port(h))};
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    struct timeval tv = {PATIENCE_MS / 1000, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
    return fd;
}

void client_send(int fd, const void *data, size_t len)
{
    const char *p = data;
    while (len) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);
        assert_true(n > 0);
        p += n;
        len -= (size_t)n;
    }
}

void client_puts(int fd, const char *text)
{
    client_send(fd, text, strlen(text));
}

/* One byte, or -1 at the end. */
static int next_byte(int fd)
{
    unsigned char c;
    ssize_t n = recv(fd, &c, 1, 0);
    if (n < 0 && errno == EAGAIN)
        fail_msg("no answer in time");
    return n == 1 ? c : -1;
}

static bool read_line(int fd, char *out, size_t cap)
{
    size_t n = 0;
    for (;;) {
        int c = next_byte(fd);
        if (c < 0 || n + 1 >= cap)
            return false;
        if (c == '\n')
            break;
        if (c != '\r')
            out[n++] = (char)c;
    }
    out[n] = '\0';
    return true;
}

static void read_body(int fd, struct reply *r, size_t len)
{
    char *at = sg_buf_reserve(&r->body, len ? len : 1);
    assert_non_null(at);
    size_t got = 0;
    while (got < len) {
        ssize_t n = recv(fd, at + got, len - got, 0);
        if (n < 0 && errno == EAGAIN)
            fail_msg("the body stalled");
        if (n <= 0) {
            r->closed = r->cut = true;
            break;
        }
        got += (size_t)n;
    }
    r->body.len += got;
}

static void read_chunked(int fd, struct reply *r)
{
    char line[128];
    while (!r->cut) {
        if (!read_line(fd, line, sizeof line)) {
            r->closed = r->cut = true;
            return;
        }
        size_t n = strtoul(line, NULL, 16);
        if (n)
            read_body(fd, r, n);
        if (!r->cut && !read_line(fd, line, sizeof line))
            r->closed = r->cut = true;
        if (n == 0)
            return;
    }
}

void client_reply(int fd, struct reply *r, bool head_only)
{
    memset(r, 0, sizeof *r);
    sg_buf_init(&r->body, (size_t)256 << 20);
    char line[4096];
    size_t used = 0;
    if (!read_line(fd, line, sizeof line)) {
        r->closed = r->cut = true;
        return;
    }
    r->status = strncmp(line, "HTTP/1.", 7) == 0 ? (int)strtol(line + 9, NULL, 10) : -1;
    while (read_line(fd, line, sizeof line) && line[0])
        used += (size_t)snprintf(r->head + used, sizeof r->head - used, "%s\n", line);
    const char *length = reply_header(r, "Content-Length");
    if (head_only || r->status == 204 || r->status == 304 || r->status < 200)
        return;
    if (length) {
        read_body(fd, r, strtoul(length, NULL, 10));
    } else if (reply_header(r, "Transfer-Encoding")) {
        read_chunked(fd, r);
    } else {
        char *at;
        ssize_t n = -1;
        while ((at = sg_buf_reserve(&r->body, 65536)) && (n = recv(fd, at, 65536, 0)) > 0)
            r->body.len += (size_t)n;
        r->closed = true;
        r->cut = n < 0;
    }
}

void reply_free(struct reply *r)
{
    sg_buf_free(&r->body);
}

const char *reply_header(const struct reply *r, const char *name)
{
    static char value[512];
    size_t len = strlen(name);
    for (const char *p = r->head; *p; p = strchr(p, '\n') + 1) {
        if (strncasecmp(p, name, len) != 0 || p[len] != ':')
            continue;
        p += len + 1;
        p += strspn(p, " ");
        snprintf(value, sizeof value, "%.*s", (int)strcspn(p, "\n"), p);
        return value;
    }
    return NULL;
}

json_t *reply_json(const struct reply *r)
{
    json_error_t e;
    json_t *v = json_loadb(r->body.data ? r->body.data : "", r->body.len, JSON_ALLOW_NUL, &e);
    if (!v)
        fail_msg("not JSON (status %d): %s: %.*s", r->status, e.text, (int)r->body.len,
                 r->body.data ? r->body.data : "");
    return v;
}

void exchange_once(struct harness *h, const char *request, struct reply *r)
{
    int fd = client_connect(h);
    client_puts(fd, request);
    client_reply(fd, r, strncmp(request, "HEAD ", 5) == 0);
    close(fd);
}

void assert_problem(const struct reply *r, int status, const char *code)
{
    assert_int_equal(r->status, status);
    const char *type = reply_header(r, "Content-Type");
    assert_non_null(type);
    assert_string_equal(type, "application/problem+json");
    json_t *doc = reply_json(r);
    assert_string_equal(json_string_value(json_object_get(doc, "code")), code);
    assert_int_equal(json_integer_value(json_object_get(doc, "status")), status);
    assert_string_equal(json_string_value(json_object_get(doc, "request_id")),
                        reply_header(r, "X-Request-Id"));
    json_decref(doc);
}

bool client_sees_end(int fd)
{
    char buf[4096];
    for (;;) {
        ssize_t n = recv(fd, buf, sizeof buf, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            return true;
        if (n < 0)
            return false;
    }
}
