#include "guest/scope.h"

#include "base/core/num.h"

#include <stdlib.h>
#include <string.h>

/* Times that tests do not want to wait for. */
static uint64_t patience(uint64_t ms)
{
#ifdef SG_GUEST_TEST
    const char *env = getenv("SANDGATE_GUEST_PATIENCE_MS");
    uint64_t v;
    if (env && sg_parse_u64(env, strlen(env), INT32_MAX, &v))
        return v;
#endif
    return ms;
}

uint64_t scope_readable_ms(void)
{
    return patience(SCOPE_READABLE_MS);
}

static uint64_t after(uint64_t now, uint64_t ms)
{
    return ms < UINT64_MAX - now ? now + ms : UINT64_MAX;
}

void scope_init(struct scope *s, uint64_t now, uint64_t timeout_ms, uint64_t lease_ms, uint64_t unattended_ms)
{
    *s = (struct scope){.timeout_at = timeout_ms ? after(now, timeout_ms) : 0};
    scope_lease(s, now, lease_ms);
    scope_unattended(s, now, unattended_ms);
}

void scope_lease(struct scope *s, uint64_t now, uint64_t ttl_ms)
{
    s->lease_at = ttl_ms ? after(now, ttl_ms) : 0;
}

void scope_unattended(struct scope *s, uint64_t now, uint64_t ms)
{
    s->unattended_ms = ms;
    uint64_t first = patience(SCOPE_FIRST_MS);
    /* Whoever starts a program needs a moment to attach to it, however short the patience shall be afterwards. */
    uint64_t wait = s->watched || ms > first ? ms : first;
    s->unattended_at = ms && s->watchers == 0 ? after(now, wait) : 0;
}

void scope_watchers(struct scope *s, uint64_t now, unsigned n)
{
    if (n == s->watchers)
        return;
    s->watched = true;
    s->watchers = n;
    s->unattended_at = n == 0 && s->unattended_ms ? after(now, s->unattended_ms) : 0;
}

void scope_cancel(struct scope *s, uint64_t now, uint64_t grace_ms)
{
    uint64_t at = after(now, grace_ms);
    if (s->cancel_at == 0 || at < s->cancel_at)
        s->cancel_at = at;
}

static bool take(uint64_t *at, uint64_t now)
{
    bool due = *at && *at <= now;
    if (due)
        *at = 0;
    return due;
}

bool scope_due(struct scope *s, uint64_t now)
{
    bool again = take(&s->again_at, now), cancelled = take(&s->cancel_at, now);
    bool timed_out = take(&s->timeout_at, now), lease = take(&s->lease_at, now);
    bool unattended = take(&s->unattended_at, now);
    s->timed_out |= timed_out;
    s->ended |= lease || unattended;
    if (!again && !cancelled && !timed_out && !lease && !unattended)
        return false;
    s->again_at = ++s->kills < SCOPE_AGAIN_MAX ? after(now, SCOPE_AGAIN_MS) : 0;
    return true;
}

void scope_done(struct scope *s)
{
    s->again_at = 0;
}

void scope_program_ended(struct scope *s)
{
    s->timeout_at = 0;
}

uint64_t scope_next(const struct scope *s)
{
    const uint64_t at[] = {s->timeout_at, s->cancel_at, s->lease_at, s->unattended_at, s->again_at};
    uint64_t next = UINT64_MAX;
    for (unsigned i = 0; i < sizeof at / sizeof *at; i++)
        if (at[i] && at[i] < next)
            next = at[i];
    return next;
}
