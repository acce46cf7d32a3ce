/* Making one session last longer: asks when it ends, and extends it once among all gateways.  Private to keep-alive; jobs,
 * blocking. */
#ifndef SG_CONTROL_EXTEND_AHEAD_H
#define SG_CONTROL_EXTEND_AHEAD_H

#include "control/sandboxes.h"

enum extend_result {
    EXTEND_FINE,    /* it lasts as long as wanted */
    EXTEND_MAX,     /* the maximum holds it back */
    EXTEND_PLAN,    /* the upstream's plan does */
    EXTEND_NOT_NOW, /* another gateway is at it, or the upstream failed: later */
    EXTEND_OVER,    /* the sandbox runs in another session by now, or in none */
};

struct extend {
    const char *name, *session_id; /* session_id NULL: whichever runs */
    int64_t until_ms;              /* wall clock; 0: only asked when it ends */
    int64_t near_ms;               /* nothing is done when it lasts for longer than this from now on anyhow */
    int64_t max_ms;                /* from its start on */
    int64_t claim_ms;              /* so long no other gateway tries */
    /* out */
    int64_t deadline_ms; /* 0: not known */
    bool moved;          /* it was extended here */
};
/* *s (vercel_sandbox_clear): its record, changed as the extension changed it; zeroed where there is none. */
enum extend_result extend_ahead(struct control *c, struct extend *x, struct vercel_sandbox *s);

#endif
