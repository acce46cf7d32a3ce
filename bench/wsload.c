/* A WebSocket client that measures: opens connections to a server that sends binary frames of sandgate.v1 (nine
 * bytes of head, then payload), and counts payload.
 *
 *   wsload --host H --port P --path PATH [--path PATH]… [--token T] [--connections N] [--bytes B] [--rounds R]
 *          [--rate MIB_PER_S] [--hold SECONDS] [--reattach SECONDS]
 *
 * Each connection takes the next path in turn and is closed by us after B bytes of payload; a round ends when all
 * of its connections have theirs.  Prints one JSON object: seconds and MiB/s of the whole, and percentiles of the
 * time from connecting to the first payload byte (or, with --bytes 0, to the first text frame).
 *
 * --hold       keeps all connections open for so long after the last has had its first frame, then ends; prints
 *              "held" on a line of its own first, for whoever wants to look at the server meanwhile
 * --reattach   as --hold; connections that the server closes are opened again at the offset they had reached; ends
 *              when every one of them has been closed once and has a first frame again, or after so many seconds
 * --rate       reads no faster than this, all connections together
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_MAX = 4096, PATHS_MAX = 1024, READ_MAX = 256 * 1024, EVENTS = 512, RETRY_MS = 50 };

enum state { CLOSED, CONNECTING, HANDSHAKE, OPEN, DONE };

struct conn {
    int fd;
    enum state state;
    const char *path;
    double begun, first; /* seconds; first 0: nothing yet */
    double retry_at;
    uint64_t got; /* payload bytes of this connection, all attachments */
    bool again;   /* closed by the server once */
    char head[HEAD_MAX];
    size_t head_len;
    unsigned char frame[14]; /* the head of the frame under way */
    size_t frame_len;
    uint64_t left; /* of its payload */
    unsigned skip; /* bytes of the protocol's own head still to come */
    bool binary;
};

struct options {
    const char *host, *token, *path[PATHS_MAX];
    size_t paths;
    unsigned port;
    long connections, rounds;
    uint64_t bytes;
    double rate, hold, reattach;
};

static struct options opt = {.host = "127.0.0.1", .connections = 1, .rounds = 1};
static int ep;
static struct conn *conns;
static double *firsts;
static size_t nfirsts;
static uint64_t total;
static unsigned char *buf;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void die(const char *what)
{
    fprintf(stderr, "wsload: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void conn_open(struct conn *c)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port)};
    if (inet_pton(AF_INET, opt.host, &a.sin_addr) != 1)
        die(opt.host);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        die("socket");
    int one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->begun = now();
    c->first = 0;
    c->head_len = c->frame_len = 0;
    c->left = 0;
    c->skip = 0;
    if (connect(c->fd, (struct sockaddr *)&a, sizeof a) && errno != EINPROGRESS) {
        close(c->fd);
        c->fd = -1;
        c->state = CLOSED;
        c->retry_at = now() + RETRY_MS / 1000.0;
        return;
    }
    c->state = CONNECTING;
    struct epoll_event e = {.events = EPOLLOUT, .data.ptr = c};
    if (epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e))
        die("epoll");
}

static void conn_close(struct conn *c, enum state after)
{
    close(c->fd);
    c->fd = -1;
    c->state = after;
    c->retry_at = now() + RETRY_MS / 1000.0;
}

static void say_hello(struct conn *c)
{
    char head[HEAD_MAX];
    char offset[48] = "";
    if (c->got)
        snprintf(offset, sizeof offset, "%cstdout=%" PRIu64, strchr(c->path, '?') ? '&' : '?', c->got);
    int n = snprintf(head, sizeof head,
                     "GET %s%s HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                     "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                     "Sec-WebSocket-Protocol: sandgate.v1\r\n%s%s%s\r\n",
                     c->path, offset, opt.token ? "Authorization: Bearer " : "", opt.token ? opt.token : "",
                     opt.token ? "\r\n" : "");
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    if (n >= (int)sizeof head || write(c->fd, head, (size_t)n) != n) {
        conn_close(c, CLOSED);
        return;
    }
    c->state = HANDSHAKE;
    if (epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e))
        die("epoll");
}

static void had_first(struct conn *c)
{
    if (c->first > 0)
        return;
    c->first = now();
    firsts[nfirsts++ % (size_t)(opt.connections * opt.rounds)] = c->first - c->begun;
}

static size_t frame_head_size(const struct conn *c)
{
    if (c->frame_len < 2)
        return 2;
    unsigned n = c->frame[1] & 0x7f;
    return n == 126 ? 4 : n == 127 ? 10 : 2;
}

/* False when the connection is over. */
static bool take(struct conn *c, const unsigned char *p, size_t n)
{
    while (n) {
        if (!c->left) {
            c->frame[c->frame_len++] = *p++;
            n--;
            if (c->frame_len < frame_head_size(c))
                continue;
            unsigned len = c->frame[1] & 0x7f;
            c->left = len;
            for (size_t i = 2; len >= 126 && i < c->frame_len; i++)
                c->left = (i == 2 ? 0 : c->left) << 8 | c->frame[i];
            c->frame_len = 0;
            unsigned op = c->frame[0] & 0x0f;
            if (op == 8)
                return false;
            c->binary = op == 2;
            c->skip = op == 2 ? 9 : 0;
            if (op == 1 && !opt.bytes)
                had_first(c);
            continue;
        }
        size_t m = n < c->left ? n : (size_t)c->left;
        size_t drop = m < c->skip ? m : c->skip;
        c->skip -= (unsigned)drop;
        if (c->binary && m > drop) {
            had_first(c);
            c->got += m - drop;
            total += m - drop;
        }
        c->left -= m;
        p += m;
        n -= m;
        if (opt.bytes && c->got >= opt.bytes)
            return false;
    }
    return true;
}

static void conn_read(struct conn *c, size_t max)
{
    ssize_t n = read(c->fd, buf, max);
    if (n < 0 && errno == EAGAIN)
        return;
    bool ok = n > 0;
    const unsigned char *p = buf;
    if (ok && c->state == HANDSHAKE) {
        size_t room = sizeof c->head - 1 - c->head_len, m = (size_t)n < room ? (size_t)n : room;
        memcpy(c->head + c->head_len, p, m);
        c->head_len += m;
        c->head[c->head_len] = '\0';
        char *end = strstr(c->head, "\r\n\r\n");
        if (!end)
            return;
        if (strncmp(c->head, "HTTP/1.1 101", 12) != 0) {
            if (opt.reattach <= 0) {
                fprintf(stderr, "wsload: %.300s\n", c->head);
                exit(1);
            }
            conn_close(c, CLOSED);
            return;
        }
        size_t used = (size_t)(end + 4 - c->head) - (c->head_len - m);
        c->state = OPEN;
        p += used;
        n -= (ssize_t)used;
    }
    if (ok && n > 0)
        ok = take(c, p, (size_t)n);
    if (!ok) {
        bool complete = opt.bytes && c->got >= opt.bytes;
        if (!complete && opt.reattach <= 0) {
            fprintf(stderr, "wsload: closed by the server after %" PRIu64 " bytes\n", c->got);
            exit(1);
        }
        c->again = true;
        conn_close(c, complete ? DONE : CLOSED);
    }
}

static bool all(bool (*is)(const struct conn *c))
{
    for (long i = 0; i < opt.connections; i++)
        if (!is(&conns[i]))
            return false;
    return true;
}

static bool is_done(const struct conn *c)
{
    return c->state == DONE;
}

static bool is_held(const struct conn *c)
{
    return c->state == OPEN && c->first > 0;
}

static bool is_back(const struct conn *c)
{
    return c->again && is_held(c);
}

static void turn(double since, bool reading)
{
    struct epoll_event ev[EVENTS];
    double allowed = opt.rate > 0 ? (now() - since) * opt.rate * 1048576 : 0;
    bool may_read = reading && (opt.rate <= 0 || (double)total < allowed);
    if (!may_read) {
        struct timespec ms = {.tv_nsec = 1000000};
        nanosleep(&ms, NULL);
        return;
    }
    int n = epoll_wait(ep, ev, EVENTS, 20);
    for (int i = 0; i < n; i++) {
        struct conn *c = ev[i].data.ptr;
        if (c->state == CONNECTING && (ev[i].events & (EPOLLERR | EPOLLHUP)))
            conn_close(c, CLOSED);
        else if (c->state == CONNECTING)
            say_hello(c);
        else if (c->state == HANDSHAKE || c->state == OPEN)
            conn_read(c, READ_MAX);
    }
    for (long i = 0; i < opt.connections && opt.reattach > 0; i++)
        if (conns[i].state == CLOSED && now() >= conns[i].retry_at)
            conn_open(&conns[i]);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(double p)
{
    size_t n = nfirsts;
    if (n == 0)
        return -1;
    qsort(firsts, n, sizeof *firsts, compare);
    size_t i = (size_t)((double)n * p);
    return firsts[i < n ? i : n - 1] * 1000;
}

static void parse(int argc, char **argv)
{
    static const struct option longs[] = {{"host", required_argument, NULL, 'h'},
                                          {"port", required_argument, NULL, 'p'},
                                          {"path", required_argument, NULL, 'u'},
                                          {"token", required_argument, NULL, 't'},
                                          {"connections", required_argument, NULL, 'c'},
                                          {"bytes", required_argument, NULL, 'b'},
                                          {"rounds", required_argument, NULL, 'r'},
                                          {"rate", required_argument, NULL, 'R'},
                                          {"hold", required_argument, NULL, 'H'},
                                          {"reattach", required_argument, NULL, 'a'},
                                          {0}};
    for (int o; (o = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        switch (o) {
        case 'h':
            opt.host = optarg;
            break;
        case 'p':
            opt.port = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'u':
            if (opt.paths < PATHS_MAX)
                opt.path[opt.paths++] = optarg;
            break;
        case 't':
            opt.token = optarg;
            break;
        case 'c':
            opt.connections = strtol(optarg, NULL, 10);
            break;
        case 'b':
            opt.bytes = strtoull(optarg, NULL, 10);
            break;
        case 'r':
            opt.rounds = strtol(optarg, NULL, 10);
            break;
        case 'R':
            opt.rate = strtod(optarg, NULL);
            break;
        case 'H':
            opt.hold = strtod(optarg, NULL);
            break;
        case 'a':
            opt.reattach = strtod(optarg, NULL);
            break;
        default:
            exit(64);
        }
    }
    bool lasts = opt.hold > 0 || opt.reattach > 0;
    if (!opt.port || !opt.paths || opt.connections < 1 || opt.rounds < 1 || (!opt.bytes && !lasts)) {
        fprintf(stderr, "wsload: --port, --path and one of --bytes, --hold, --reattach are needed\n");
        exit(64);
    }
}

static void hold(double since)
{
    while (!all(is_held))
        turn(since, true);
    puts("held");
    fflush(stdout);
    double end = now() + (opt.hold > 0 ? opt.hold : opt.reattach), dropped = 0;
    while (now() < end && !(opt.reattach > 0 && all(is_back))) {
        turn(since, true);
        for (long i = 0; i < opt.connections && dropped == 0; i++)
            if (conns[i].again)
                dropped = now();
    }
    if (opt.reattach > 0) {
        long back = 0;
        for (long i = 0; i < opt.connections; i++)
            back += is_back(&conns[i]);
        printf("{\"back\": %ld, \"seconds\": %.3f}\n", back, now() - dropped);
        exit(back == opt.connections ? 0 : 1);
    }
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    ep = epoll_create1(EPOLL_CLOEXEC);
    conns = calloc((size_t)opt.connections, sizeof *conns);
    firsts = calloc((size_t)(opt.connections * opt.rounds), sizeof *firsts);
    buf = malloc(READ_MAX);
    if (ep < 0 || !conns || !firsts || !buf)
        die("starting");
    double start = now();
    for (long round = 0; round < opt.rounds; round++) {
        for (long i = 0; i < opt.connections; i++) {
            conns[i] = (struct conn){.path = opt.path[(size_t)i % opt.paths]};
            conn_open(&conns[i]);
            if (opt.hold > 0 || opt.reattach > 0)
                turn(start, true); /* not all at once: a listen queue is finite */
        }
        if (opt.hold > 0 || opt.reattach > 0) {
            hold(start);
            break;
        }
        while (!all(is_done))
            turn(start, true);
    }
    double seconds = now() - start, p50 = percentile(0.5), p99 = percentile(0.99);
    printf("{\"seconds\": %.6f, \"mib_per_s\": %.2f, \"first_p50_ms\": %.3f, \"first_p99_ms\": %.3f}\n",
           seconds, (double)total / 1048576 / seconds, p50, p99);
    return 0;
}
