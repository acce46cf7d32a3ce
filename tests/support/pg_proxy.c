#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/pg_proxy.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PAIRS_MAX = 32, CHUNK = 65536 };
#define SOCKET ".s.PGSQL.5432"

struct pair {
    int client, server; /* -1: none */
    bool swallow;       /* what the server says is lost, and then the connection */
};

struct pg_proxy {
    char folder[64], upstream[96];
    int listener, wake[2];
    pthread_t thread;
    pthread_mutex_t lock;
    enum pg_cut cut;
    int cuts;
    struct pair pairs[PAIRS_MAX]; /* the thread's */
};

static int local(const char *folder, struct sockaddr_un *a)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void)snprintf(a->sun_path, sizeof a->sun_path, "%.80s/" SOCKET, folder);
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static void drop(struct pair *p)
{
    (void)close(p->client);
    (void)close(p->server);
    *p = (struct pair){-1, -1, false};
}

static void take_new(struct pg_proxy *x)
{
    struct sockaddr_un a;
    int client = accept4(x->listener, NULL, NULL, SOCK_CLOEXEC), server = local(x->upstream, &a);
    bool ok = client >= 0 && server >= 0 && connect(server, (struct sockaddr *)&a, sizeof a) == 0;
    for (size_t i = 0; i < PAIRS_MAX && ok; i++) {
        if (x->pairs[i].client < 0) {
            x->pairs[i] = (struct pair){client, server, false};
            return;
        }
    }
    (void)close(client);
    (void)close(server);
}

static bool all_sent(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return false;
        p += sent > 0 ? sent : 0;
        n -= sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

/* Whether what the client says is what is to be cut; that is done once. */
static enum pg_cut judge(struct pg_proxy *x, const char *bytes, size_t n)
{
    static const char *const words[] = {NULL, "COMMIT", "COMMIT", "BEGIN ISOLATION LEVEL SERIALIZABLE"};
    pthread_mutex_lock(&x->lock);
    enum pg_cut cut = x->cut;
    /* A query is 'Q', four bytes of length, and its text. */
    size_t len = cut ? strlen(words[cut]) : 0;
    if (cut && n >= len + 5 && bytes[0] == 'Q' && memcmp(bytes + 5, words[cut], len) == 0) {
        x->cut = PG_CUT_NOTHING;
        x->cuts++;
    } else {
        cut = PG_CUT_NOTHING;
    }
    pthread_mutex_unlock(&x->lock);
    return cut;
}

static void from_client(struct pg_proxy *x, struct pair *p)
{
    char bytes[CHUNK];
    ssize_t n = recv(p->client, bytes, sizeof bytes, 0);
    enum pg_cut cut = n > 0 ? judge(x, bytes, (size_t)n) : PG_CUT_NOTHING;
    if (cut == PG_CUT_AFTER_COMMIT)
        p->swallow = true;
    if (n <= 0 || cut == PG_CUT_BEFORE_COMMIT || cut == PG_CUT_BEGIN ||
        !all_sent(p->server, bytes, (size_t)n))
        drop(p);
}

static void from_server(struct pair *p)
{
    char bytes[CHUNK];
    ssize_t n = recv(p->server, bytes, sizeof bytes, 0);
    if (n <= 0 || p->swallow || !all_sent(p->client, bytes, (size_t)n))
        drop(p);
}

static void *run(void *arg)
{
    struct pg_proxy *x = arg;
    for (;;) {
        struct pollfd fds[2 + 2 * PAIRS_MAX] = {{.fd = x->wake[0], .events = POLLIN},
                                                {.fd = x->listener, .events = POLLIN}};
        for (size_t i = 0; i < PAIRS_MAX; i++) {
            fds[2 + 2 * i] = (struct pollfd){.fd = x->pairs[i].client, .events = POLLIN};
            fds[3 + 2 * i] = (struct pollfd){.fd = x->pairs[i].server, .events = POLLIN};
        }
        if (poll(fds, 2 + 2 * PAIRS_MAX, -1) < 0 && errno != EINTR)
            return NULL;
        if (fds[0].revents)
            return NULL;
        for (size_t i = 0; i < PAIRS_MAX; i++) {
            if (fds[3 + 2 * i].revents)
                from_server(&x->pairs[i]);
            if (fds[2 + 2 * i].revents && x->pairs[i].client >= 0)
                from_client(x, &x->pairs[i]);
        }
        if (fds[1].revents)
            take_new(x);
    }
}

struct pg_proxy *pg_proxy_new(const char *folder)
{
    struct pg_proxy *x = calloc(1, sizeof *x);
    struct sockaddr_un a;
    assert_non_null(x);
    for (size_t i = 0; i < PAIRS_MAX; i++)
        x->pairs[i] = (struct pair){-1, -1, false};
    (void)snprintf(x->folder, sizeof x->folder, "/tmp/sg-proxy-XXXXXX");
    (void)snprintf(x->upstream, sizeof x->upstream, "%s", folder);
    assert_non_null(mkdtemp(x->folder));
    x->listener = local(x->folder, &a);
    assert_int_equal(bind(x->listener, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(x->listener, PAIRS_MAX), 0);
    assert_int_equal(pipe2(x->wake, 02000000), 0); /* O_CLOEXEC */
    assert_int_equal(pthread_mutex_init(&x->lock, NULL), 0);
    assert_int_equal(pthread_create(&x->thread, NULL, run, x), 0);
    return x;
}

const char *pg_proxy_folder(const struct pg_proxy *x)
{
    return x->folder;
}

void pg_proxy_cut(struct pg_proxy *x, enum pg_cut cut)
{
    pthread_mutex_lock(&x->lock);
    x->cut = cut;
    pthread_mutex_unlock(&x->lock);
}

int pg_proxy_cuts(struct pg_proxy *x)
{
    pthread_mutex_lock(&x->lock);
    int n = x->cuts;
    pthread_mutex_unlock(&x->lock);
    return n;
}

void pg_proxy_free(struct pg_proxy *x)
{
    char p[128];
    assert_int_equal(write(x->wake[1], "x", 1), 1);
    assert_int_equal(pthread_join(x->thread, NULL), 0);
    for (size_t i = 0; i < PAIRS_MAX; i++)
        if (x->pairs[i].client >= 0)
            drop(&x->pairs[i]);
    (void)close(x->listener);
    (void)close(x->wake[0]);
    (void)close(x->wake[1]);
    (void)snprintf(p, sizeof p, "%s/" SOCKET, x->folder);
    (void)unlink(p);
    (void)rmdir(x->folder);
    pthread_mutex_destroy(&x->lock);
    free(x);
}
