#include "control/patch.h"

#include "control/control.h"
#include "control/record.h"
#include "vercel/snapshots.h"

#include "base/clock.h"

#include <string.h>

static enum sg_code look(struct control *c, struct control_extend *x, struct vercel_sandbox *s,
                         enum sg_outcome outcome, struct sg_error *e)
{
    enum sg_code rc = vercel_get(c->vercel, x->name, false, s, e);
    if (rc) {
        e->outcome = outcome;
        return rc;
    }
    control_observe(c, s);
    json_decref(x->record);
    x->record = control_record_now(c, s);
    return x->record ? SG_OK : sg_fail(e, SG_E_OUT_OF_MEMORY, outcome, "no memory for the answer");
}

static enum sg_code check(const struct control_extend *x, const struct vercel_sandbox *s, struct sg_error *e)
{
    char etag[CONTROL_ETAG_LEN + 1];
    if (x->fits && !(control_record_etag(x->record, etag) && x->fits(x->fits_arg, etag)))
        return sg_fail(e, SG_E_PRECONDITION_FAILED, SG_NOT_STARTED,
                       "the sandbox is in another state than If-Match says");
    enum vercel_status status = control_status(s);
    if (status == VERCEL_STOPPING || status == VERCEL_SNAPSHOTTING || status == VERCEL_PENDING)
        return sg_fail(e, SG_E_SANDBOX_TRANSITION, SG_NOT_STARTED, "the sandbox is %s",
                       vercel_status_name(status));
    if (status != VERCEL_RUNNING || !s->session_id)
        return sg_fail(e, SG_E_SANDBOX_NOT_RUNNING, SG_NOT_STARTED, "the sandbox is %s",
                       vercel_status_name(status));
    if (s->session_timeout_ms <= 0 || (!x->by_ms && !control_deadline(s)))
        return sg_fail(e, SG_E_UPSTREAM_BAD_RESPONSE, SG_NOT_STARTED,
                       "the upstream does not say when the session ends");
    return SG_OK;
}

/* The whole session's time that is wanted. */
static int64_t wanted_ms(const struct control_extend *x, const struct vercel_sandbox *s)
{
    if (x->by_ms)
        return s->session_timeout_ms + x->by_ms;
    return s->session_timeout_ms + (x->until_ms - control_deadline(s));
}

/* Somebody else may extend it at the same time: as long as is wanted is long enough, where a moment is wanted; else it must be
 * just as long. */
static bool is_done(const struct control_extend *x, const struct vercel_sandbox *before,
                    const struct vercel_sandbox *now, int64_t wanted)
{
    if (!now->session_id || strcmp(now->session_id, before->session_id) != 0)
        return false;
    return x->by_ms ? now->session_timeout_ms == wanted : now->session_timeout_ms >= wanted;
}

static enum sg_code add(struct control *c, struct control_extend *x, const struct vercel_sandbox *s,
                        int64_t wanted, struct sg_error *e)
{
    int64_t more = wanted - s->session_timeout_ms, got;
    if (more < CONTROL_EXTEND_MIN_MS)
        more = CONTROL_EXTEND_MIN_MS; /* the least that can be added */
    struct vercel_sandbox now = {0};
    struct sg_error own;
    enum sg_code rc = vercel_extend(c->vercel, s->session_id, more, &got, e);
    if (rc && e->outcome != SG_OUTCOME_UNKNOWN)
        return rc;
    enum sg_code seen = look(c, x, &now, SG_FINISHED, &own);
    if (!rc && seen) {
        *e = own; /* it is done; only how it is now cannot be told */
        rc = seen;
    } else if (rc && !seen && is_done(x, s, &now, s->session_timeout_ms + more)) {
        rc = SG_OK;
    } else if (rc && !seen && now.session_timeout_ms == s->session_timeout_ms) {
        e->outcome = SG_NOT_STARTED;
    }
    vercel_sandbox_clear(&now);
    return rc;
}

enum sg_code control_extend(struct control *c, struct control_extend *x, struct sg_error *e)
{
    struct vercel_sandbox s = {0};
    x->record = NULL;
    enum sg_code rc = control_name_for_lookup(x->name, e);
    if (!rc)
        rc = look(c, x, &s, SG_NOT_STARTED, e);
    if (!rc)
        rc = check(x, &s, e);
    if (!rc) {
        int64_t wanted = wanted_ms(x, &s);
        if (wanted > s.session_timeout_ms)
            rc = add(c, x, &s, wanted, e);
    }
    vercel_sandbox_clear(&s);
    if (rc) {
        json_decref(x->record);
        x->record = NULL;
    }
    return rc;
}
