#include "tests/support/rawserver.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNS_MAX = 1024, HEAD_MAX = 65536, WAIT_S = 10 };

struct raw_conn {
    struct raw_server *server;
    pthread_t thread;
    int fd;
    int number;
    char *in;
    size_t len, cap;
    char *head, *body;
};

struct raw_server {
    int fd;
    char url[64];
    raw_script *script;
    void *arg;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct raw_conn *conns[CONNS_MAX];
    int nconns, requests, gates;
    bool stopping;
};

static void *run_conn(void *arg)
{
    struct raw_conn *c = arg;
    c->server->script(c, c->number, c->server->arg);
    shutdown(c->fd,
             SHUT_RDWR); /* the descriptor itself stays until raw_stop: its number must not be reused */
    return NULL;
}

static void *run_server(void *arg)
{
    struct raw_server *s = arg;
    for (;;) {
        int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            return NULL;
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct raw_conn *c = calloc(1, sizeof *c);
        pthread_mutex_lock(&s->lock);
        if (!c || s->stopping || s->nconns == CONNS_MAX) {
            pthread_mutex_unlock(&s->lock);
            free(c);
            close(fd);
            continue;
        }
        c->server = s;
        c->fd = fd;
        s->conns[s->nconns++] = c;
        c->number = s->nconns;
        if (pthread_create(&c->thread, NULL, run_conn, c)) {
            s->nconns--;
            free(c);
            close(fd);
        }
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
    }
}

struct raw_server *raw_start(raw_script *script, void *arg)
{
    struct raw_server *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->script = script;
    s->arg = arg;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    if (s->fd < 0 || bind(s->fd, (struct sockaddr *)&a, sizeof a) || listen(s->fd, 512) ||
        getsockname(s->fd, (struct sockaddr *)&a, &n) || pthread_create(&s->thread, NULL, run_server, s)) {
        perror("raw_start");
        if (s->fd >= 0)
            close(s->fd);
        free(s);
        return NULL;
    }
    snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d", ntohs(a.sin_port));
    return s;
}

void raw_stop(struct raw_server *s)
{
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    shutdown(s->fd, SHUT_RDWR); /* wakes accept */
    pthread_join(s->thread, NULL);
    close(s->fd);
    for (int i = 0; i < s->nconns; i++)
        shutdown(s->conns[i]->fd, SHUT_RDWR);
    for (int i = 0; i < s->nconns; i++) {
        struct raw_conn *c = s->conns[i];
        pthread_join(c->thread, NULL);
        close(c->fd);
        free(c->in);
        free(c->head);
        free(c->body);
        free(c);
    }
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
}

const char *raw_url(const struct raw_server *s)
{
    return s->url;
}

int raw_connections(struct raw_server *s)
{
    pthread_mutex_lock(&s->lock);
    int n = s->nconns;
    pthread_mutex_unlock(&s->lock);
    return n;
}

int raw_requests(struct raw_server *s)
{
    pthread_mutex_lock(&s->lock);
    int n = s->requests;
    pthread_mutex_unlock(&s->lock);
    return n;
}

bool raw_wait_requests(struct raw_server *s, int n)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    pthread_mutex_lock(&s->lock);
    while (s->requests < n && pthread_cond_timedwait(&s->changed, &s->lock, &until) == 0)
        continue;
    bool ok = s->requests >= n;
    pthread_mutex_unlock(&s->lock);
    return ok;
}

void raw_open_gate(struct raw_server *s)
{
    pthread_mutex_lock(&s->lock);
    s->gates++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

bool raw_at_gate(struct raw_conn *c)
{
    struct raw_server *s = c->server;
    pthread_mutex_lock(&s->lock);
    while (!s->gates && !s->stopping)
        pthread_cond_wait(&s->changed, &s->lock);
    bool ok = !s->stopping;
    if (ok)
        s->gates--;
    pthread_mutex_unlock(&s->lock);
    return ok;
}

/* ---- reading requests ---- */

static bool more(struct raw_conn *c)
{
    if (c->cap - c->len < 65536) {
        char *p = realloc(c->in, c->cap + 131072);
        if (!p)
            return false;
        c->in = p;
        c->cap += 131072;
    }
    ssize_t n = recv(c->fd, c->in + c->len, c->cap - c->len - 1, 0);
    if (n <= 0)
        return false;
    c->len += (size_t)n;
    c->in[c->len] = '\0';
    return true;
}

static void drop(struct raw_conn *c, size_t n)
{
    memmove(c->in, c->in + n, c->len - n);
    c->len -= n;
    c->in[c->len] = '\0';
}

static char *take(struct raw_conn *c, size_t n)
{
    char *p = malloc(n + 1);
    if (!p)
        return NULL;
    memcpy(p, c->in, n);
    p[n] = '\0';
    drop(c, n);
    return p;
}

static bool read_chunked(struct raw_conn *c, struct raw_request *out)
{
    char *body = calloc(1, 1);
    size_t len = 0;
    for (;;) {
        char *eol;
        while (!c->len || !(eol = strstr(c->in, "\r\n")))
            if (!more(c))
                goto fail;
        size_t size = strtoul(c->in, NULL, 16);
        size_t head = (size_t)(eol - c->in) + 2;
        while (c->len < head + size + 2)
            if (!more(c))
                goto fail;
        char *p = realloc(body, len + size + 1);
        if (!p)
            goto fail;
        body = p;
        memcpy(body + len, c->in + head, size);
        len += size;
        body[len] = '\0';
        drop(c, head + size + 2);
        if (size == 0)
            break;
    }
    c->body = out->body = body;
    out->body_len = len;
    return true;
fail:
    free(body);
    return false;
}

bool raw_read(struct raw_conn *c, struct raw_request *out)
{
    free(c->head);
    free(c->body);
    c->head = c->body = NULL;
    char *end;
    while (!c->len || !(end = strstr(c->in, "\r\n\r\n")))
        if (c->len > HEAD_MAX || !more(c))
            return false;
    c->head = out->head = take(c, (size_t)(end - c->in) + 4);
    if (!c->head || sscanf(c->head, "%15s %2047s", out->method, out->target) != 2)
        return false;
    const char *length = strcasestr(c->head, "\r\ncontent-length:");
    if (strcasestr(c->head, "\r\ntransfer-encoding: chunked")) {
        if (!read_chunked(c, out))
            return false;
    } else {
        size_t n = length ? strtoul(length + 17, NULL, 10) : 0;
        while (c->len < n)
            if (!more(c))
                return false;
        c->body = out->body = n ? take(c, n) : calloc(1, 1);
        out->body_len = n;
    }
    pthread_mutex_lock(&c->server->lock);
    c->server->requests++;
    pthread_cond_broadcast(&c->server->changed);
    pthread_mutex_unlock(&c->server->lock);
    return true;
}

size_t raw_receive(struct raw_conn *c, void *buf, size_t cap)
{
    if (!c->len && !more(c))
        return 0;
    size_t n = c->len < cap ? c->len : cap;
    memcpy(buf, c->in, n);
    drop(c, n);
    return n;
}

/* ---- sending ---- */

bool raw_send(struct raw_conn *c, const void *data, size_t len)
{
    const char *p = data;
    while (len) {
        ssize_t n = send(c->fd, p, len, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

bool raw_sends(struct raw_conn *c, const char *text)
{
    return raw_send(c, text, strlen(text));
}

bool raw_drip(struct raw_conn *c, const char *text)
{
    for (; *text; text++)
        if (!raw_send(c, text, 1))
            return false;
    return true;
}

bool raw_answer(struct raw_conn *c, int status, const char *type, const char *headers, const char *body)
{
    size_t cap = strlen(body) + strlen(headers) + 256;
    char *text = malloc(cap);
    if (!text)
        return false;
    int n = snprintf(text, cap, "HTTP/1.1 %d Status\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s\r\n%s",
                     status, type, strlen(body), headers, body);
    bool ok = raw_send(c, text, (size_t)n);
    free(text);
    return ok;
}

void raw_reset(struct raw_conn *c)
{
    struct linger l = {1, 0};
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
    /* The number must stay taken until raw_stop: close by putting another descriptor in its place. */
    int null = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (null >= 0) {
        dup3(null, c->fd, O_CLOEXEC);
        close(null);
    }
}

bool raw_peer_closed(struct raw_conn *c)
{
    char buf[4096];
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    while (poll(&p, 1, WAIT_S * 1000) == 1)
        if (recv(c->fd, buf, sizeof buf, 0) <= 0)
            return true;
    return false;
}
