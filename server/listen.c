#include "server/listen.h"

#include "base/core/num.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    BACKLOG = 1024,
    HOST_MAX = 256,
    KEEPALIVE_IDLE_S = 60,
    KEEPALIVE_INTERVAL_S = 20,
    KEEPALIVE_COUNT = 3,
};

static int split(const char *address, char host[HOST_MAX], char port[8])
{
    const char *colon = strrchr(address, ':');
    if (!colon || colon == address)
        return -1;
    const char *from = address;
    size_t n = (size_t)(colon - address);
    if (from[0] == '[') {
        if (n < 3 || from[n - 1] != ']')
            return -1;
        from++;
        n -= 2;
    } else if (memchr(from, ':', n)) {
        return -1; /* an IPv6 address needs brackets */
    }
    uint64_t number;
    size_t plen = strlen(colon + 1);
    if (n >= HOST_MAX || plen >= 8 || !sg_parse_u64(colon + 1, plen, 65535, &number))
        return -1;
    memcpy(host, from, n);
    host[n] = '\0';
    memcpy(port, colon + 1, plen + 1);
    return 0;
}

static int open_one(const struct addrinfo *ai)
{
    int fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, ai->ai_protocol);
    if (fd < 0)
        return -1;
    int on = 1, idle = KEEPALIVE_IDLE_S, interval = KEEPALIVE_INTERVAL_S, count = KEEPALIVE_COUNT;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    /* Accepted sockets inherit these: a peer that vanished without a word must not hold a stream for ever. */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static int port_of(int fd)
{
    struct sockaddr_storage ss = {0};
    socklen_t len = sizeof ss;
    if (getsockname(fd, (struct sockaddr *)&ss, &len))
        return 0;
    if (ss.ss_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, &ss, sizeof in6);
        return ntohs(in6.sin6_port);
    }
    struct sockaddr_in in;
    memcpy(&in, &ss, sizeof in);
    return ntohs(in.sin_port);
}

int listen_open(const char *address, int *port, char err[LISTEN_ERR])
{
    char host[HOST_MAX], service[8];
    if (split(address, host, service)) {
        snprintf(err, LISTEN_ERR, "listen address \"%.100s\" is not HOST:PORT or [IPV6]:PORT", address);
        return -1;
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(host, service, &hints, &list);
    if (rc) {
        snprintf(err, LISTEN_ERR, "cannot listen on %.100s: %s", address, gai_strerror(rc));
        return -1;
    }
    int fd = -1;
    errno = EADDRNOTAVAIL;
    for (const struct addrinfo *ai = list; ai && fd < 0; ai = ai->ai_next)
        fd = open_one(ai);
    int saved = errno;
    freeaddrinfo(list);
    if (fd < 0) {
        char reason[96];
        const char *text = strerror_r(saved, reason, sizeof reason);
        if (saved == EADDRINUSE)
            snprintf(err, LISTEN_ERR, "cannot listen on %.100s: another program is using this port", address);
        else
            snprintf(err, LISTEN_ERR, "cannot listen on %.100s: %s", address, text);
        return -1;
    }
    *port = port_of(fd);
    return fd;
}
