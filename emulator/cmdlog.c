#include "emulator/cmdlog.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MEM_MAX = 64 << 10 };
static const uint64_t FILE_MAX = 4ull << 30;

int cmdlog_init(struct cmdlog *l, const char *spill_dir)
{
    memset(l, 0, sizeof *l);
    l->fd = -1;
    l->dir = spill_dir;
    pthread_condattr_t attr;
    int err = pthread_condattr_init(&attr);
    if (err)
        return err;
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    err = pthread_cond_init(&l->more, &attr);
    pthread_condattr_destroy(&attr);
    if (err)
        return err;
    err = pthread_mutex_init(&l->lock, NULL);
    if (err)
        pthread_cond_destroy(&l->more);
    return err;
}

void cmdlog_free(struct cmdlog *l)
{
    free(l->mem);
    if (l->fd >= 0)
        close(l->fd);
    pthread_cond_destroy(&l->more);
    pthread_mutex_destroy(&l->lock);
}

static void mark_lost(struct cmdlog *l)
{
    pthread_mutex_lock(&l->lock);
    l->lost = true;
    pthread_mutex_unlock(&l->lock);
}

/* The first bytes of a log; false when they belong into the file. */
static bool append_memory(struct cmdlog *l, const char *p, size_t n)
{
    if (l->fd >= 0 || l->mem_len + n > MEM_MAX)
        return false;
    bool ok = true;
    pthread_mutex_lock(&l->lock);
    if (l->mem_len + n > l->mem_cap) {
        size_t cap = l->mem_cap ? l->mem_cap : 512;
        while (cap < l->mem_len + n)
            cap *= 2;
        char *mem = realloc(l->mem, cap);
        ok = mem != NULL;
        if (ok) {
            l->mem = mem;
            l->mem_cap = cap;
        }
    }
    if (ok) {
        memcpy(l->mem + l->mem_len, p, n);
        l->mem_len += n;
        l->end += n;
        pthread_cond_broadcast(&l->more);
    }
    pthread_mutex_unlock(&l->lock);
    return ok;
}

void cmdlog_append(struct cmdlog *l, const char *lines, size_t len)
{
    if (l->lost || append_memory(l, lines, len))
        return; /* only this thread sets lost */
    if (l->fd < 0) {
        int fd = open(l->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (fd < 0) {
            mark_lost(l);
            return;
        }
        pthread_mutex_lock(&l->lock);
        l->fd = fd;
        pthread_mutex_unlock(&l->lock);
    }
    if (l->end + len > FILE_MAX) {
        mark_lost(l);
        return;
    }
    /* no lock over the write: readers know nothing of these bytes before `end` moves */
    off_t at = (off_t)(l->end - l->mem_len);
    for (size_t done = 0; done < len;) {
        ssize_t n = pwrite(l->fd, lines + done, len - done, at + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            mark_lost(l);
            return;
        }
        done += (size_t)n;
    }
    pthread_mutex_lock(&l->lock);
    l->end += len;
    pthread_cond_broadcast(&l->more);
    pthread_mutex_unlock(&l->lock);
}

void cmdlog_end(struct cmdlog *l)
{
    pthread_mutex_lock(&l->lock);
    l->ended = true;
    pthread_cond_broadcast(&l->more);
    pthread_mutex_unlock(&l->lock);
}

bool cmdlog_lost(struct cmdlog *l)
{
    pthread_mutex_lock(&l->lock);
    bool lost = l->lost;
    pthread_mutex_unlock(&l->lock);
    return lost;
}

static struct timespec to_timespec(int64_t ms)
{
    return (struct timespec){.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000};
}

/* Where to cut a piece that is not the end: after its last line, else before a divided character. */
static size_t cut(const char *buf, size_t n)
{
    const char *nl = memrchr(buf, '\n', n);
    if (nl)
        return (size_t)(nl - buf) + 1;
    size_t i = n;
    while (i > 0 && n - i < 4 && ((unsigned char)buf[i - 1] & 0xc0) == 0x80)
        i--;
    if (i > 0 && (unsigned char)buf[i - 1] >= 0xc0)
        i--; /* the lead byte goes with its rest (a whole character here waits for the next piece: harmless) */
    else
        i = n;
    return i ? i : n;
}

ssize_t cmdlog_read(struct cmdlog *l, uint64_t offset, char *buf, size_t max, int64_t deadline_ms)
{
    struct timespec ts = to_timespec(deadline_ms);
    size_t n = 0;
    pthread_mutex_lock(&l->lock);
    while (offset >= l->end && !l->ended)
        if (pthread_cond_timedwait(&l->more, &l->lock, &ts) == ETIMEDOUT && offset >= l->end && !l->ended) {
            pthread_mutex_unlock(&l->lock);
            return CMDLOG_AGAIN;
        }
    uint64_t avail = offset < l->end ? l->end - offset : 0;
    size_t want = avail < max ? (size_t)avail : max;
    if (offset < l->mem_len) {
        n = l->mem_len - (size_t)offset;
        if (n > want)
            n = want;
        memcpy(buf, l->mem + offset, n);
    }
    int fd = l->fd;
    uint64_t mem_len = l->mem_len;
    pthread_mutex_unlock(&l->lock);
    if (want == 0)
        return CMDLOG_END;
    while (n < want) {
        ssize_t k = pread(fd, buf + n, want - n, (off_t)(offset + n - mem_len));
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return CMDLOG_FAILED;
        n += (size_t)k;
    }
    return (ssize_t)(n < avail ? cut(buf, n) : n);
}

bool cmdlog_wait_end(struct cmdlog *l, int64_t deadline_ms)
{
    struct timespec ts = to_timespec(deadline_ms);
    pthread_mutex_lock(&l->lock);
    while (!l->ended && pthread_cond_timedwait(&l->more, &l->lock, &ts) != ETIMEDOUT)
        continue;
    bool ended = l->ended;
    pthread_mutex_unlock(&l->lock);
    return ended;
}
