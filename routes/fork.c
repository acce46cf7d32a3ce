/* POST /v1/sandboxes/{name}/fork */
#include "routes/handlers.h"

#include "auth/tokens.h"
#include "control/fork.h"
#include "routes/gateway.h"
#include "routes/state.h"

void route_sandbox_fork(struct exchange *ex)
{
    static const char *const no_query[] = {NULL};
    struct sg_error e;
    struct control_fork k = {.source = ex->params[0],
                             .body = ex->body,
                             .owner = ex->who ? ex->who->id : NULL,
                             .nonce = ex->nonce,
                             .again = ex->again,
                             .gone = state_is_gone,
                             .gone_arg = ex};
    enum sg_code rc = ex_query_only(ex, no_query, &e);
    if (!rc)
        rc = control_fork(ex->gw->control, &k, &e);
    if (*k.name) /* also of the one that is in the way */
        state_set_location(ex, "/v1/sandboxes/", k.name);
    if (rc) {
        ex_fail(ex, &e);
        return;
    }
    state_set_etag_of(ex, k.record);
    ex_answer_json(ex, 201, k.record);
}
