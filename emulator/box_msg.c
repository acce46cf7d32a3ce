#include "emulator/box_msg.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD = offsetof(struct box_msg, data) };

union control {
    struct cmsghdr align;
    char space[CMSG_SPACE(BOX_MSG_FDS * sizeof(int))];
};

void box_fd_close(int *fd)
{
    if (*fd >= 0) {
        int saved = errno;
        close(*fd);
        *fd = -1;
        errno = saved;
    }
}

void box_fds_close(int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        box_fd_close(&fds[i]);
}

int box_msg_send(int sock, const struct box_msg *m, const int *fds, size_t n_fds)
{
    if (m->len >= BOX_MSG_DATA || n_fds > BOX_MSG_FDS)
        return EMSGSIZE;
    struct box_msg *bytes = (struct box_msg *)(uintptr_t)m; /* sendmsg only reads it */
    struct iovec iov = {.iov_base = bytes, .iov_len = HEAD + m->len};
    union control control;
    memset(&control, 0, sizeof control);
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n_fds > 0) {
        h.msg_control = control.space;
        h.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
    }
    for (;;) {
        if (sendmsg(sock, &h, MSG_NOSIGNAL) >= 0)
            return 0;
        if (errno == ECONNRESET)
            return EPIPE;
        if (errno != EINTR)
            return errno;
    }
}

/* Takes the descriptors of a message.  Those beyond our room were closed by the kernel (MSG_CTRUNC). */
static void take_fds(struct msghdr *h, int fds[BOX_MSG_FDS])
{
    size_t have = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c != NULL; c = CMSG_NXTHDR(h, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len < CMSG_LEN(0))
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
            if (have < BOX_MSG_FDS)
                fds[have++] = fd;
            else
                close(fd);
        }
    }
}

int box_msg_recv(int sock, struct box_msg *m, int fds[BOX_MSG_FDS])
{
    for (size_t i = 0; i < BOX_MSG_FDS; i++)
        fds[i] = -1;
    struct iovec iov = {.iov_base = m, .iov_len = sizeof *m};
    union control control;
    struct msghdr h = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.space,
                       .msg_controllen = sizeof control.space};
    ssize_t n;
    do
        n = recvmsg(sock, &h, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == ECONNRESET ? EPIPE : errno;
    if (n == 0)
        return EPIPE;
    take_fds(&h, fds);
    if ((h.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || n < (ssize_t)HEAD || m->len >= BOX_MSG_DATA ||
        (size_t)n != HEAD + (size_t)m->len) {
        box_fds_close(fds, BOX_MSG_FDS);
        return EBADMSG;
    }
    m->data[m->len] = '\0';
    return 0;
}

void box_text_copy(char *out, size_t cap, const char *text)
{
    size_t i = 0;
    for (; text[i] != '\0' && i + 1 < cap; i++) {
        unsigned char c = (unsigned char)text[i];
        out[i] = c >= 0x20 && c < 0x7f ? text[i] : '?';
    }
    if (cap > 0)
        out[i] = '\0';
}

void box_msg_text(struct box_msg *m, int error, const char *fmt, ...)
{
    char raw[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    box_text_copy(m->data, 256, raw);
    m->len = (uint32_t)strlen(m->data);
    m->error = error;
}

bool box_msg_add(struct box_msg *m, const char *s)
{
    size_t n = strlen(s) + 1;
    if (n >= BOX_MSG_DATA - (size_t)m->len)
        return false;
    memcpy(m->data + m->len, s, n);
    m->len += (uint32_t)n;
    return true;
}

const char *box_msg_next(const struct box_msg *m, size_t *pos)
{
    if (*pos >= m->len)
        return NULL;
    const char *s = m->data + *pos;
    const char *end = memchr(s, '\0', m->len - *pos);
    if (end == NULL)
        return NULL;
    *pos += (size_t)(end - s) + 1;
    return s;
}
