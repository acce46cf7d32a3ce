#include "vercel/breaker.h"

#include <string.h>

void breaker_init(struct breaker *b, int64_t failures)
{
    memset(b, 0, sizeof *b);
    b->limit = failures;
}

int64_t breaker_ask(struct breaker *b, int64_t now, bool *probe)
{
    *probe = false;
    if (!b->open)
        return 0;
    if (now < b->until_ms)
        return b->until_ms - now;
    if (b->probe_ms && now < b->probe_ms + BREAKER_PROBE_MS)
        return BREAKER_PAUSE_MS;
    *probe = true;
    b->probe_ms = now ? now : 1;
    return 0;
}

int64_t breaker_blocks(const struct breaker *b, int64_t now)
{
    return b->open && now < b->until_ms ? b->until_ms - now : 0;
}

static void pause_now(struct breaker *b, int64_t now)
{
    int64_t next = b->pause_ms * 2;
    b->pause_ms = next < BREAKER_PAUSE_MS ? BREAKER_PAUSE_MS
                                          : (next > BREAKER_PAUSE_MAX_MS ? BREAKER_PAUSE_MAX_MS : next);
    b->until_ms = now + b->pause_ms;
    b->probe_ms = 0;
}

void breaker_told(struct breaker *b, int64_t now, bool ok, bool probe)
{
    if (ok) {
        breaker_init(b, b->limit);
        return;
    }
    if (!b->failures++)
        b->since_ms = now;
    if (b->open) {
        if (probe) /* what was sent before it opened says nothing new */
            pause_now(b, now);
    } else if (b->limit && b->failures >= b->limit && now - b->since_ms >= BREAKER_OVER_MS) {
        b->open = true;
        pause_now(b, now);
    }
}

void breaker_dropped(struct breaker *b, bool probe)
{
    if (probe)
        b->probe_ms = 0;
}
