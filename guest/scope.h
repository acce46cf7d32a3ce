/* When a program has to end whatever it does: its time limit, a cancel's grace, a lease that ran out, nobody
 * attached for too long.  Only times and counts, no signals.  Times are guest_now_ms. */
#ifndef SG_GUEST_SCOPE_H
#define SG_GUEST_SCOPE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    SCOPE_READABLE_MS = 60 * 1000, /* record and output of what its scope ended stay that long */
    SCOPE_FIRST_MS = 30 * 1000,    /* for the first watcher to come, at least */
    SCOPE_AGAIN_MS = 1000,         /* between attempts to kill what did not die */
    SCOPE_AGAIN_MAX = 60,
};

struct scope {
    uint64_t timeout_at, cancel_at, lease_at, unattended_at, again_at; /* 0: none */
    uint64_t unattended_ms;                                            /* 0: never */
    unsigned watchers, kills;
    bool watched;          /* there was a watcher */
    bool timed_out, ended; /* the time limit, or lease or watchers, have ended it */
};

/* 0: no such limit. */
void scope_init(struct scope *s, uint64_t now, uint64_t timeout_ms, uint64_t lease_ms,
                uint64_t unattended_ms);
/* 0: no lease any more. */
void scope_lease(struct scope *s, uint64_t now, uint64_t ttl_ms);
/* 0: never. */
void scope_unattended(struct scope *s, uint64_t now, uint64_t ms);
void scope_watchers(struct scope *s, uint64_t now, unsigned n);
/* Of several the earliest holds. */
void scope_cancel(struct scope *s, uint64_t now, uint64_t grace_ms);

/* True when everything has to be killed now; which limit it was is noted.  It is due again after SCOPE_AGAIN_MS,
 * until scope_done. */
bool scope_due(struct scope *s, uint64_t now);
/* Nothing is left. */
void scope_done(struct scope *s);
/* The program itself has ended: its time limit ends with it. */
void scope_program_ended(struct scope *s);
/* When to look next; UINT64_MAX: no need. */
uint64_t scope_next(const struct scope *s);

/* How long the record stays readable. */
uint64_t scope_readable_ms(void);

#endif
