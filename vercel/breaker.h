/* The circuit breaker: an upstream that fails again and again is asked now and then, and everybody else is told so at once.
 *
 * Closed until `failures` calls in a row failed, over at least `over_ms`; then open for a pause that doubles with each probe
 * that fails; after a pause one call goes through and decides.  Any success closes it.  Pure, times are given; one thread.
 */
#ifndef SG_VERCEL_BREAKER_H
#define SG_VERCEL_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

enum {
    BREAKER_FAILURES = 10,
    BREAKER_OVER_MS = 2000,
    BREAKER_PAUSE_MS = 500,
    BREAKER_PAUSE_MAX_MS = 5000,
    BREAKER_PROBE_MS =
        10000, /* a probe that says nothing for so long no longer keeps others from being one */
};

struct breaker {
    int64_t limit;    /* failures in a row; 0: never opens */
    int64_t failures; /* in a row */
    int64_t since_ms; /* the first of them */
    bool open;
    int64_t pause_ms, until_ms; /* no probe before */
    int64_t probe_ms;           /* one is under way since then; 0: none */
};

/* failures: BREAKER_FAILURES, or what is configured; 0: off. */
void breaker_init(struct breaker *b, int64_t failures);
/* 0: the call may be made; *probe: it decides, so its end must be told.  Else it is refused, and so many milliseconds later
 * another one may be made. */
int64_t breaker_ask(struct breaker *b, int64_t now, bool *probe);
/* As breaker_ask, without deciding anything. */
int64_t breaker_blocks(const struct breaker *b, int64_t now);
/* An attempt ended: ok when the upstream answered anything that is not its own failure. */
void breaker_told(struct breaker *b, int64_t now, bool ok, bool probe);
/* A probe was given up before anything was known. */
void breaker_dropped(struct breaker *b, bool probe);

#endif
