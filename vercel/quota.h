/* What the upstream's plan allows in a time, kept on this side: who would exceed it waits in line or is told when.
 *
 * Each kind is a sliding window of units.  The windows are those that are documented for the plans: control-plane requests
 * for each minute, virtual CPUs of new sessions for each minute (a start value that grows with use), deletions for each second.
 * A plan that is not known sets no windows; what an answer 429 says with Retry-After holds in any case.
 * Pure, times (monotonic milliseconds) are given; one thread.
 * Source: the documented limits of Vercel Sandbox, August 2026.
 */
#ifndef SG_VERCEL_QUOTA_H
#define SG_VERCEL_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

enum quota_kind { QUOTA_REQUESTS, QUOTA_VCPUS, QUOTA_DELETES, QUOTA_KINDS };
enum { QUOTA_SLOTS = 60 };

struct quota_limits { /* 0: none */
    int64_t requests_per_min;
    int64_t vcpus_start, vcpus_ramp,
        vcpus_max; /* per minute: at first, more with each minute of use, at most */
    int64_t deletes_per_s;
};
/* Of "hobby", "pro", "enterprise", in so many hundredths (several gateways share a plan); any other word: none. */
struct quota_limits quota_plan(const char *plan, int64_t percent);

struct quota_window {
    int64_t limit; /* units in QUOTA_SLOTS slots; 0: none */
    int64_t start, ramp, max;
    int64_t slot_ms;
    int64_t slot; /* number of the newest slot */
    int64_t used[QUOTA_SLOTS], sum;
    int64_t minute, minute_used; /* for the ramp */
    int64_t held_until;          /* by an answer 429 */
};
struct quota {
    struct quota_window windows[QUOTA_KINDS];
};
void quota_init(struct quota *q, const struct quota_limits *l, int64_t now);
/* Takes so many units where they fit.  Units beyond a whole window fit an empty one. */
bool quota_take(struct quota *q, enum quota_kind kind, int64_t units, int64_t now);
/* They were spent already, whether they fit or not. */
void quota_spend(struct quota *q, enum quota_kind kind, int64_t units, int64_t now);
/* Milliseconds until so many units, those that wait ahead included, will have fitted; at least 1 when they do not now. */
int64_t quota_wait(struct quota *q, enum quota_kind kind, int64_t units, int64_t now);
/* The upstream said that nothing of this kind goes before then. */
void quota_hold(struct quota *q, enum quota_kind kind, int64_t until);

#endif
