#include "routes/intake.h"

#include "vercel/client.h"

#include <string.h>

void intake_init(struct intake *in, const struct exchange *ex, void (*more)(void *arg), void *arg)
{
    in->ex = NULL;
    in->more = more;
    in->arg = arg;
    in->gone = in->in_data = in->body_waits = in->reader_waits = in->ended = false;
    in->kept = ex->content_length >= 0 && ex->content_length <= INTAKE_BUFFER;
    in->now = NULL;
    in->now_len = in->start = in->end = 0;
}

static size_t fill(struct intake *in, const char *data, size_t len)
{
    if (!in->kept && in->start) {
        memmove(in->buf, in->buf + in->start, in->end - in->start);
        in->end -= in->start;
        in->start = 0;
    }
    size_t room = sizeof in->buf - in->end;
    size_t n = len < room ? len : room;
    memcpy(in->buf + in->end, data, n);
    in->end += n;
    return n;
}

static void wake(struct intake *in)
{
    if (!in->reader_waits)
        return;
    in->reader_waits = false;
    in->more(in->arg);
}

static size_t on_data(void *arg, const char *data, size_t len)
{
    struct intake *in = arg;
    size_t taken = 0, n;
    in->in_data = true;
    if (!in->kept) { /* right to who waits for it */
        in->now = data;
        in->now_len = len;
        wake(in);
        taken = len - in->now_len;
        in->now = NULL;
        in->now_len = 0;
    }
    do { /* who is woken may read at once and so make room */
        n = fill(in, data + taken, len - taken);
        taken += n;
        wake(in);
    } while (n && taken < len);
    in->in_data = false;
    in->body_waits = taken < len;
    return taken;
}

static void on_end(void *arg)
{
    struct intake *in = arg;
    in->ended = true;
    wake(in);
}

void intake_begin(struct intake *in, struct exchange *ex)
{
    static const struct ex_sink sink = {on_data, on_end};
    in->ex = ex;
    ex_receive(ex, &sink, in);
}

size_t intake_read(struct intake *in, char *out, size_t cap)
{
    size_t n = in->end - in->start;
    if (!n && in->now_len) {
        n = in->now_len < cap ? in->now_len : cap;
        memcpy(out, in->now, n);
        in->now += n;
        in->now_len -= n;
        return n;
    }
    if (!n && in->ended)
        return 0;
    if (!n && in->gone)
        return VERCEL_READ_ABORT;
    if (!n) {
        in->reader_waits = true;
        return VERCEL_READ_PAUSE;
    }
    n = n < cap ? n : cap;
    memcpy(out, in->buf + in->start, n);
    in->start += n;
    if (!in->gone && in->body_waits && !in->in_data) {
        in->body_waits = false;
        ex_receive_resume(in->ex);
    }
    return n;
}

bool intake_rewind(struct intake *in)
{
    if (!in->kept && in->ex)
        return false;
    in->start = 0;
    in->reader_waits = false;
    return true;
}

void intake_gone(struct intake *in)
{
    in->gone = true;
    wake(in);
}
