#include "guest/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { PAUSE_MS = 20 };

/* The socket itself, not what a link in its place points to; -1 with *f. */
static int find_socket(int dir, struct guest_fail *f)
{
    struct stat st;
    int at = openat(dir, "ctl", O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (at >= 0 && fstat(at, &st) == 0 && S_ISSOCK(st.st_mode))
        return at;
    int err = errno;
    if (at >= 0)
        close(at);
    if (at >= 0 || err == ENOENT)
        guest_failed(f, SG_WF_NO_INPUT, 0, "the process has nothing to be controlled by");
    else
        guest_failed(f, SG_WF_INTERNAL, err, "opening the monitor's socket");
    return -1;
}

/* 0, or an errno. */
static int connect_to(int at, int fd)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "/proc/self/fd/%d", at);
    return connect(fd, (struct sockaddr *)&to, sizeof to) ? errno : 0;
}

int ctl_connect(int dir, char what, struct guest_fail *f)
{
    uint64_t end = what == 'W' ? 0 : guest_now_ms() + CTL_ANSWER_MS; /* attending can be tried again */
    int at = find_socket(dir, f);
    if (at < 0)
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int err = fd < 0 ? errno : connect_to(at, fd);
    while (err == EAGAIN && guest_now_ms() < end) { /* so many at once that it did not come to accept them */
        (void)poll(NULL, 0, PAUSE_MS);
        err = connect_to(at, fd);
    }
    close(at);
    if (err == 0 && send(fd, &what, 1, MSG_NOSIGNAL) != 1)
        err = errno;
    if (err == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    if (err == ECONNREFUSED)
        guest_failed(f, SG_WF_FINISHED, 0, "the process has ended");
    else
        guest_failed(f, SG_WF_INTERNAL, err, "connecting to the monitor");
    return -1;
}

static bool wait_for(int fd, short what, uint64_t end)
{
    uint64_t now = guest_now_ms();
    struct pollfd p = {.fd = fd, .events = what};
    int n = now < end ? poll(&p, 1, (int)(end - now)) : 0;
    return n > 0 || (n < 0 && errno == EINTR);
}

/* Errors of sending do not count: the answer may be there already, and if not, reading tells. */
static void send_all(int fd, const char *act, size_t n, uint64_t end)
{
    while (n) {
        ssize_t w = send(fd, act, n, MSG_NOSIGNAL);
        if (w > 0) {
            act += w;
            n -= (size_t)w;
        } else if (w < 0 && errno != EINTR && (errno != EAGAIN || !wait_for(fd, POLLOUT, end))) {
            return;
        }
    }
}

enum exchange { ANSWERED, SAID_NOTHING, SAID_NONSENSE, TOO_LATE };

static enum exchange read_answer(int fd, uint64_t end, struct sg_wire_line *answer)
{
    char line[SG_WIRE_LINE_MAX];
    static unsigned char scratch[SG_WIRE_DATA_MAX];
    for (size_t have = 0; have < sizeof line;) {
        ssize_t n = recv(fd, line + have, sizeof line - have, 0);
        if (n > 0) {
            have += (size_t)n;
            char *lf = memchr(line, '\n', have);
            if (lf)
                return sg_wire_parse(line, (size_t)(lf - line), scratch, answer) ? ANSWERED : SAID_NONSENSE;
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            return have ? SAID_NONSENSE : SAID_NOTHING;
        } else if (errno == EAGAIN && !wait_for(fd, POLLIN, end)) {
            return TOO_LATE;
        }
    }
    return SAID_NONSENSE;
}

static bool judge(const struct sg_wire_line *answer, struct guest_fail *f)
{
    if (answer->kind == SG_WIRE_ACCEPTED || answer->kind == SG_WIRE_OK)
        return true;
    if (answer->kind != SG_WIRE_ERROR)
        return guest_failed(f, SG_WF_INTERNAL, EPROTO, "the monitor's answer");
    ctl_fail(f, answer);
    return false;
}

void ctl_fail(struct guest_fail *f, const struct sg_wire_line *l)
{
    f->code = l->fail;
    snprintf(f->errno_name, sizeof f->errno_name, "%s", l->errno_name);
    snprintf(f->text, sizeof f->text, "%.*s", (int)sizeof f->text - 1, l->text);
}

bool ctl_act(int dir, struct sg_wire_line *answer, struct guest_fail *f, const char *format, ...)
{
    static char act[CTL_ACT_MAX + 1];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(act, CTL_ACT_MAX, format, ap);
    va_end(ap);
    if (n <= 0 || n >= CTL_ACT_MAX)
        return guest_failed(f, SG_WF_INTERNAL, EOVERFLOW, "the act");
    act[n++] = '\n';
    for (uint64_t end = guest_now_ms() + CTL_ANSWER_MS;;) {
        int fd = ctl_connect(dir, 'A', f);
        if (fd < 0)
            return false;
        send_all(fd, act, (size_t)n, end);
        enum exchange e = read_answer(fd, end, answer);
        close(fd);
        if (e == ANSWERED)
            return judge(answer, f);
        if (e == SAID_NONSENSE)
            return guest_failed(f, SG_WF_INTERNAL, EPROTO, "the monitor's answer");
        if (e == TOO_LATE || guest_now_ms() >= end)
            return guest_failed(f, SG_WF_INTERNAL, ETIMEDOUT, "the monitor does not answer");
        (void)poll(NULL, 0, PAUSE_MS); /* one connection too many, or the monitor ends just now */
    }
}
