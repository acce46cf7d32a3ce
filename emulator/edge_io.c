/* Reading and writing one side of a connection, plain or TLS. */
#include "emulator/edge_internal.h"

#include <errno.h>
#include <openssl/err.h>
#include <unistd.h>

static ptrdiff_t read_plain(struct edge_end *e, char *buf, size_t max)
{
    for (;;) {
        ssize_t n = recv(e->watch.fd, buf, max, 0);
        if (n >= 0)
            return n;
        if (errno == EAGAIN)
            return EDGE_AGAIN;
        if (errno != EINTR)
            return EDGE_BROKEN;
    }
}

static ptrdiff_t tls_failure(struct edge_end *e, int rc)
{
    int err = SSL_get_error(e->ssl, rc);
    ERR_clear_error();
    switch (err) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return EDGE_AGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        return EDGE_BROKEN;
    }
}

ptrdiff_t edge_read(struct edge_end *e, char *buf, size_t max)
{
    ptrdiff_t n;
    if (e->eof)
        return 0;
    if (!e->readable)
        return EDGE_AGAIN;
    if (e->ssl) {
        size_t got = 0;
        int rc = SSL_read_ex(e->ssl, buf, max, &got);
        n = rc > 0 ? (ptrdiff_t)got : tls_failure(e, rc);
    } else {
        n = read_plain(e, buf, max);
    }
    if (n == EDGE_AGAIN)
        e->readable = false;
    else if (n <= 0)
        e->eof = true;
    return n;
}

ptrdiff_t edge_write(struct edge_end *e, const char *p, size_t n)
{
    ptrdiff_t k;
    if (!e->writable)
        return EDGE_AGAIN;
    if (e->ssl) {
        size_t done = 0;
        int rc = SSL_write_ex(e->ssl, p, n, &done);
        k = rc > 0 ? (ptrdiff_t)done : tls_failure(e, rc);
        if (k == 0)
            k = EDGE_BROKEN;
    } else {
        do
            k = send(e->watch.fd, p, n, MSG_NOSIGNAL);
        while (k < 0 && errno == EINTR);
        if (k < 0)
            k = errno == EAGAIN ? EDGE_AGAIN : EDGE_BROKEN;
    }
    if (k == EDGE_AGAIN)
        e->writable = false;
    return k;
}

void edge_shut(struct edge_end *e)
{
    if (e->shut || e->watch.fd < 0)
        return;
    e->shut = true;
    if (e->ssl && SSL_is_init_finished(e->ssl)) {
        SSL_shutdown(e->ssl); /* once: the peer's answer is of no interest */
        ERR_clear_error();
    }
    shutdown(e->watch.fd, SHUT_WR);
}

void edge_close(struct edge_end *e, bool reset)
{
    if (e->watch.fd < 0)
        return;
    if (reset) {
        struct linger now = {.l_onoff = 1, .l_linger = 0};
        setsockopt(e->watch.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    if (e->ssl)
        SSL_free(e->ssl);
    e->ssl = NULL;
    close(e->watch.fd); /* leaves epoll by itself: there is no other descriptor of it */
    e->watch.fd = -1;
    e->readable = e->writable = e->eof = e->shut = false;
}
