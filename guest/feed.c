#include "guest/feed.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "guest/pty.h"

enum { LOOK_MS = 20, LOOK_MAX_MS = 640, VEOF_DEFAULT = 4 };

void feed_init(struct feed *f, int fd, bool terminal, bool takes)
{
    f->fd = fd;
    f->terminal = terminal;
    f->takes = takes;
    f->closed = f->unwanted = f->partial = false;
    f->eofs = 0;
    f->accepted = f->look_ms = 0;
    f->look_pause_ms = LOOK_MS;
    spool_clear(&f->spool);
}

void feed_begin(struct feed *f, const unsigned char *data, size_t n)
{
    n = n < spool_room(&f->spool) ? n : spool_room(&f->spool);
    spool_put(&f->spool, data, n);
    f->accepted = n;
    f->closed = !f->takes;
    feed_pump(f, 0);
}

static void feed_drop(struct feed *f)
{
    if (!f->terminal && f->fd >= 0)
        close(f->fd);
    f->fd = -1;
    f->look_ms = 0;
    spool_clear(&f->spool);
}

size_t feed_room(const struct feed *f)
{
    return f->fd < 0 || f->closed ? 0 : spool_room(&f->spool);
}

enum feed_result feed_data(struct feed *f, uint64_t offset, const unsigned char *data, size_t n, bool whole)
{
    if (offset > f->accepted)
        return FEED_BEYOND;
    if (n <= f->accepted - offset)
        return FEED_OK;
    data += f->accepted - offset;
    n -= (size_t)(f->accepted - offset);
    if (!f->takes || f->closed || f->unwanted)
        return FEED_OVER;
    size_t room = feed_room(f);
    if (n > room && whole)
        return FEED_FULL;
    n = n < room ? n : room;
    spool_put(&f->spool, data, n);
    f->accepted += n;
    return FEED_OK;
}

enum feed_result feed_close(struct feed *f, uint64_t offset)
{
    if (!f->takes)
        return FEED_OVER;
    if (offset != f->accepted)
        return f->unwanted ? FEED_OVER : FEED_BEYOND;
    if (f->closed)
        return FEED_OK;
    f->closed = true;
    /* In the middle of a line the first one only ends the line. */
    f->eofs = 1;
    return FEED_OK;
}

/* A terminal that is not reading lines (an editor, a shell's own line editor) would take the character for a key. */
static void pump_eof(struct feed *f, uint64_t now_ms)
{
    unsigned char eof[2] = {VEOF_DEFAULT};
    if (f->eofs == 0 || now_ms < f->look_ms)
        return;
    if (!pty_is_canonical(f->fd, &eof[0])) {
        f->look_ms = now_ms + f->look_pause_ms;
        f->look_pause_ms = f->look_pause_ms * 2 < LOOK_MAX_MS ? f->look_pause_ms * 2 : LOOK_MAX_MS;
        return;
    }
    f->look_ms = 0;
    if (f->partial && f->eofs == 1)
        f->eofs = 2;
    f->partial = false;
    eof[1] = eof[0];
    ssize_t n = write(f->fd, eof, f->eofs);
    if (n > 0)
        f->eofs -= (unsigned)n;
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        f->eofs = 0;
}

/* True when the descriptor took some of the spool. */
static bool pump_some(struct feed *f)
{
    size_t n;
    const unsigned char *p = spool_peek(&f->spool, &n);
    ssize_t w = n ? write(f->fd, p, n) : 0;
    if (w > 0) {
        unsigned char last = p[w - 1];
        f->partial = last != '\n' && last != '\r' && last != VEOF_DEFAULT;
        spool_take(&f->spool, (size_t)w);
    } else if (w < 0 && errno != EAGAIN && errno != EINTR) {
        feed_unwanted(f);
    }
    return w > 0;
}

bool feed_wants_write(const struct feed *f)
{
    return f->fd >= 0 && (f->spool.used > 0 || (f->terminal && f->eofs > 0 && f->look_ms == 0));
}

void feed_pump(struct feed *f, uint64_t now_ms)
{
    while (f->fd >= 0 && pump_some(f))
        continue;
    if (f->fd < 0 || f->spool.used > 0 || !f->closed)
        return;
    if (f->terminal)
        pump_eof(f, now_ms);
    else
        feed_drop(f); /* the end of file is the closing of the pipe */
}

void feed_unwanted(struct feed *f)
{
    f->unwanted = true;
    feed_drop(f);
}

void feed_finish(struct feed *f)
{
    f->closed = true;
    if (f->terminal)
        feed_drop(f);
    else
        feed_pump(f, 0);
}
