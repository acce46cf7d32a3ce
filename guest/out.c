#include "guest/out.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { OUT_FLUSH = 64 * 1024 };

static char buf[OUT_FLUSH + SG_WIRE_LINE_MAX];
static size_t used;
static bool broken;

/* Writes from buf + at on; waits for room if it has to, at most so long. */
static size_t write_from(size_t at, int wait_ms)
{
    while (at < used && !broken) {
        ssize_t n = write(STDOUT_FILENO, buf + at, used - at);
        if (n >= 0) {
            at += (size_t)n;
        } else if (errno == EAGAIN) {
            struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
            if (wait_ms == 0)
                return at;
            broken = poll(&p, 1, wait_ms) == 0; /* nobody reads */
        } else if (errno != EINTR) {
            broken = true;
        }
    }
    return used;
}

static void write_all(void)
{
    (void)write_from(0, GUEST_FOLLOW_MS);
    used = 0;
}

size_t out_push(void)
{
    size_t at = write_from(0, 0);
    used -= at;
    memmove(buf, buf + at, used);
    return used;
}

bool out_is_broken(void)
{
    return broken;
}

bool out_flush(void)
{
    if (used)
        write_all();
    return !broken;
}

void out_line(const struct sg_wire_line *l)
{
    if (used >= OUT_FLUSH)
        write_all();
    used += sg_wire_format(buf + used, l);
}

void out_kind(enum sg_wire_kind kind, const char *word)
{
    struct sg_wire_line l = {.kind = kind};
    snprintf(l.text, sizeof l.text, "%s", word ? word : "");
    out_line(&l);
}

void out_hello(const struct sg_wire_process *p)
{
    out_line(&(struct sg_wire_line){.kind = SG_WIRE_HELLO, .process = *p});
}

void out_exit(const struct sg_wire_process *p)
{
    out_line(&(struct sg_wire_line){.kind = SG_WIRE_EXIT, .process = *p});
}

void out_process(const struct sg_wire_process *p)
{
    out_line(&(struct sg_wire_line){.kind = SG_WIRE_PROCESS, .process = *p});
}

void out_data(unsigned channel, uint64_t offset, const unsigned char *data, size_t len)
{
    struct sg_wire_line l;
    l.kind = SG_WIRE_DATA;
    l.channel = channel;
    l.offset = offset;
    l.data = data;
    l.len = len;
    out_line(&l);
}

void out_gap(unsigned channel, uint64_t from, uint64_t to)
{
    out_line(&(struct sg_wire_line){.kind = SG_WIRE_GAP, .channel = channel, .offset = from, .to = to});
}

void out_error(const struct guest_fail *f)
{
    struct sg_wire_line l = {.kind = SG_WIRE_ERROR, .fail = f->code};
    memcpy(l.errno_name, f->errno_name, sizeof l.errno_name);
    snprintf(l.text, sizeof l.text, "%s", f->text);
    out_line(&l);
}

void out_raw(const char *text)
{
    if (used >= OUT_FLUSH)
        write_all();
    size_t n = strnlen(text, SG_WIRE_LINE_MAX);
    memcpy(buf + used, text, n);
    used += n;
}
