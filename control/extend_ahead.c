#include "control/extend_ahead.h"

#include "base/clock.h"
#include "base/log.h"
#include "control/control.h"
#include "store/locks.h"
#include "vercel/snapshots.h"

#include <stdio.h>
#include <string.h>

enum { LEAST_MS = 1000 }; /* the upstream takes no less */

/* What plans allow a session in all: when an extension is too long for one of them, what is left may not be. */
static const int64_t ceilings[] = {INT64_C(45) * 60000, INT64_C(300) * 60000, INT64_C(1440) * 60000};

struct claim {
    char name[STORE_LOCK_NAME + 1], owner[STORE_OWNER_TEXT];
    int64_t ms;
    bool taken;
};

static enum sg_code claim_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct claim *k = arg;
    return store_lock_take(db, k->name, k->owner, k->ms, &k->taken, e);
}

/* A name of its own each time: the claim is over when its time is, not before.  Without a store everybody extends; who comes
 * later sees that it was done. */
static bool claim(struct control *c, const char *session_id, int64_t ms)
{
    struct sg_error e;
    struct claim k = {.ms = ms};
    if (!c->store || !store_owner(k.owner))
        return true;
    (void)snprintf(k.name, sizeof k.name, "keep-alive:%.200s", session_id);
    return store_call(c->store, STORE_WRITE, claim_fn, &k, &e) || k.taken;
}

static enum sg_code extend_once(struct control *c, struct vercel_sandbox *s, int64_t add_ms,
                                struct sg_error *e)
{
    int64_t timeout_ms = 0;
    enum sg_code rc = vercel_extend(c->vercel, s->session_id, add_ms, &timeout_ms, e);
    if (!rc)
        s->session_timeout_ms = timeout_ms;
    return rc;
}

/* What is left of the smallest plan that it is not beyond. */
static int64_t rest_of_plan(int64_t timeout_ms)
{
    for (size_t i = 0; i < sizeof ceilings / sizeof *ceilings; i++)
        if (timeout_ms < ceilings[i])
            return ceilings[i] - timeout_ms;
    return 0;
}

static enum extend_result extend(struct control *c, struct extend *x, struct vercel_sandbox *s,
                                 int64_t target)
{
    struct sg_error e;
    int64_t add = target - x->deadline_ms, before = s->session_timeout_ms;
    enum sg_code rc = extend_once(c, s, add, &e);
    bool limited = rc == SG_E_SESSION_LIMIT;
    if (limited) {
        int64_t rest = rest_of_plan(before);
        if (rest >= LEAST_MS && rest < add)
            rc = extend_once(c, s, rest, &e);
    }
    x->moved = !rc;
    if (!rc)
        x->deadline_ms = control_deadline(s);
    if (limited)
        return EXTEND_PLAN;
    if (rc == SG_E_STALE_SESSION || rc == SG_E_SANDBOX_NOT_RUNNING)
        return EXTEND_OVER;
    if (rc)
        sg_log(SG_LOG_WARN, "session not extended", "sandbox", "s", x->name, "error", "e", &e, NULL);
    return rc ? EXTEND_NOT_NOW : EXTEND_FINE;
}

enum extend_result extend_ahead(struct control *c, struct extend *x, struct vercel_sandbox *s)
{
    struct sg_error e;
    memset(s, 0, sizeof *s);
    x->deadline_ms = 0;
    x->moved = false;
    if (x->until_ms && x->session_id && !claim(c, x->session_id, x->claim_ms))
        return EXTEND_NOT_NOW;
    enum sg_code rc = vercel_get(c->vercel, x->name, false, s, &e);
    if (rc) {
        memset(s, 0, sizeof *s);
        return rc == SG_E_SANDBOX_NOT_FOUND ? EXTEND_OVER : EXTEND_NOT_NOW;
    }
    control_observe(c, s);
    if (s->session_status != VERCEL_RUNNING || !s->session_id ||
        (x->session_id && strcmp(s->session_id, x->session_id) != 0))
        return EXTEND_OVER;
    x->deadline_ms = control_deadline(s);
    if (!x->deadline_ms || !x->until_ms || x->deadline_ms - sg_wall_ms() > x->near_ms)
        return EXTEND_FINE;
    int64_t limit = s->session_started_at + x->max_ms;
    int64_t target = x->until_ms < limit ? x->until_ms : limit;
    if (target - x->deadline_ms < LEAST_MS)
        return x->until_ms > limit ? EXTEND_MAX : EXTEND_FINE;
    if (!x->session_id && !claim(c, s->session_id, x->claim_ms))
        return EXTEND_NOT_NOW;
    enum extend_result r = extend(c, x, s, target);
    if (x->moved)
        control_observe(c, s);
    return r == EXTEND_FINE && target == limit && target < x->until_ms ? EXTEND_MAX : r;
}
