#include "talk.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARGS_MAX = 40, PATIENCE_MS = 10000 };

void wait_fd(int fd, short events)
{
    struct pollfd p = {.fd = fd, .events = events};
    int n;
    do
        n = poll(&p, 1, PATIENCE_MS);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        fail_msg("waited ten seconds in vain");
}

static void collect(const char *args[ARGS_MAX], const char *first, va_list ap)
{
    size_t n = 0;
    args[n++] = first;
    while (n < ARGS_MAX - 1 && (args[n] = va_arg(ap, const char *)))
        n++;
    assert_true(n < ARGS_MAX - 1);
}

/* guest_spawn lets its child inherit our standard input. */
static void spawn(struct talk *t, const char *const *args, int in)
{
    int saved = fcntl(0, F_DUPFD_CLOEXEC, 3);
    assert_true(saved >= 0 && dup2(in, 0) == 0);
    t->pid = guest_spawn(NULL, args, &t->out);
    assert_int_equal(dup2(saved, 0), 0);
    close(saved);
    close(in);
}

void talk_open(struct talk *t, const char *first, ...)
{
    const char *args[ARGS_MAX];
    va_list ap;
    va_start(ap, first);
    collect(args, first, ap);
    va_end(ap);
    int p[2];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    *t = (struct talk){.in = p[1]};
    spawn(t, args, p[0]);
}

void talk_open_terminal(struct talk *t, const char *first, ...)
{
    const char *args[ARGS_MAX];
    va_list ap;
    va_start(ap, first);
    collect(args, first, ap);
    va_end(ap);
    int master, slave;
    assert_int_equal(openpty(&master, &slave, NULL, NULL, NULL), 0);
    assert_int_equal(fcntl(master, F_SETFD, FD_CLOEXEC), 0);
    assert_int_equal(fcntl(slave, F_SETFD, FD_CLOEXEC), 0);
    *t = (struct talk){.in = master, .out = master};
    char *argv[ARGS_MAX + 2] = {getenv("GUEST_BINARY")};
    for (size_t i = 0; args[i]; i++)
        argv[1 + i] = (char *)(uintptr_t)args[i];
    t->pid = fork();
    assert_true(t->pid >= 0);
    if (t->pid == 0) {
        dup2(slave, 0);
        dup2(slave, 1);
        execv(argv[0], argv);
        _exit(126);
    }
    close(slave);
}

void talk_send(struct talk *t, const void *data, size_t n)
{
    for (const char *p = data; n;) {
        ssize_t w = write(t->in, p, n);
        assert_true(w > 0);
        p += w;
        n -= (size_t)w;
    }
}

void talk_close_input(struct talk *t)
{
    close(t->in);
    t->in = -1;
}

const char *talk_text(struct talk *t, size_t *len)
{
    static char line[SG_WIRE_LINE_MAX + 1];
    for (;;) {
        char *lf = memchr(t->buf, '\n', t->have);
        if (lf) {
            *len = (size_t)(lf - t->buf);
            assert_true(*len < sizeof line);
            memcpy(line, t->buf, *len);
            line[*len] = '\0';
            t->have -= *len + 1;
            memmove(t->buf, lf + 1, t->have);
            return line;
        }
        assert_true(t->have < sizeof t->buf);
        wait_fd(t->out, POLLIN);
        ssize_t n = read(t->out, t->buf + t->have, sizeof t->buf - t->have);
        if (n <= 0) {
            assert_true(n == 0 || errno == EIO); /* a terminal's other end is closed */
            assert_int_equal(t->have, 0);
            return NULL;
        }
        t->have += (size_t)n;
    }
}

struct sg_wire_line talk_line(struct talk *t)
{
    struct sg_wire_line l;
    size_t n;
    const char *text;
    do
        text = talk_text(t, &n);
    while (text && *text == '#');
    assert_non_null(text);
    if (!sg_wire_parse(text, n, t->data, &l))
        fail_msg("malformed line: %s", text);
    return l;
}

int talk_end(struct talk *t)
{
    size_t n;
    const char *more = talk_text(t, &n);
    if (more)
        fail_msg("one more line: %s", more);
    if (t->in >= 0 && t->in != t->out)
        close(t->in);
    close(t->out);
    int status;
    assert_int_equal(waitpid(t->pid, &status, 0), t->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}
