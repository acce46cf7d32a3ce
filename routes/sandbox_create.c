#include "routes/handlers.h"

#include "auth/tokens.h"
#include "base/json.h"
#include "control/create.h"
#include "routes/gateway.h"
#include "routes/state.h"

void route_sandbox_create(struct exchange *ex)
{
    static const char *const no_query[] = {NULL};
    struct sg_error e;
    struct control_create k = {.body = ex->body,
                               .owner = ex->who ? ex->who->id : NULL,
                               .nonce = ex->nonce,
                               .again = ex->again,
                               .gone = state_is_gone,
                               .gone_arg = ex};
    enum sg_code rc = ex_query_only(ex, no_query, &e);
    if (!rc)
        rc = control_create(ex->gw->control, &k, &e);
    if (*k.name) /* also of the one that is in the way, and of the one whose init failed */
        state_set_location(ex, "/v1/sandboxes/", k.name);
    if (rc) {
        ex_fail(ex, &e);
        return;
    }
    const char *session = sg_jget_str(k.record, "session_id", NULL);
    if (k.created && k.blank && session) /* a snapshot may bring the helper along, an image does not */
        guestlink_fresh(ex->gw->guestlink, session);
    state_set_etag_of(ex, k.record);
    ex_answer_json(ex, k.created ? 201 : 200, k.record);
}
