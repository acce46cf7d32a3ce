#include "routes/handlers.h"

#include "routes/ended.h"
#include "routes/gateway.h"
#include "routes/state.h"

static const char *const no_query[] = {NULL};

static bool fits(void *arg, const char *etag)
{
    return state_fits(arg, etag);
}

/* The state that the caller expects; where there is no sandbox any more its wish is fulfilled. */
static enum sg_code expected(struct exchange *ex, struct sg_error *e)
{
    struct state_match match;
    enum sg_code rc = state_match_of(ex, &match, e);
    if (!rc && match.match.given)
        rc = control_expect(ex->gw->control, ex->params[0], fits, &match, e);
    return rc == SG_E_SANDBOX_NOT_FOUND ? SG_OK : rc;
}

void route_sandbox_destroy(struct exchange *ex)
{
    struct sg_error e;
    char session_id[CONTROL_SESSION_TEXT];
    if (ex_query_only(ex, no_query, &e) || expected(ex, &e) ||
        control_destroy(ex->gw->control, ex->params[0], session_id, &e)) {
        ex_fail(ex, &e);
        return;
    }
    ended_destroyed(ex->gw, ex->params[0], session_id);
    ex_answer_empty(ex, 204);
}
