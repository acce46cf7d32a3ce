/* POST /v1/sandboxes/{name}/fork */
#include "routes/handlers.h"

#include "auth/tokens.h"
#include "base/buf.h"
#include "control/fork.h"
#include "routes/gateway.h"
#include "routes/state.h"

enum { LOCATION_MAX = 512 };

static void set_location(struct exchange *ex, const char *name)
{
    struct sg_buf b;
    sg_buf_init(&b, LOCATION_MAX);
    (void)sg_buf_adds(&b, "/v1/sandboxes/");
    (void)sg_buf_add_urlenc(&b, name);
    if (!b.failed)
        ex_set_header(ex, "Location", b.data);
    sg_buf_free(&b);
}

static bool is_gone(void *arg)
{
    return ex_is_gone(arg);
}

void route_sandbox_fork(struct exchange *ex)
{
    static const char *const no_query[] = {NULL};
    struct sg_error e;
    struct control_fork k = {.source = ex->params[0],
                             .body = ex->body,
                             .owner = ex->who ? ex->who->id : NULL,
                             .nonce = ex->nonce,
                             .again = ex->again,
                             .gone = is_gone,
                             .gone_arg = ex};
    enum sg_code rc = ex_query_only(ex, no_query, &e);
    if (!rc)
        rc = control_fork(ex->gw->control, &k, &e);
    if (*k.name) /* also of the one that is in the way */
        set_location(ex, k.name);
    if (rc) {
        ex_fail(ex, &e);
        return;
    }
    state_set_etag_of(ex, k.record);
    ex_answer_json(ex, 201, k.record);
}
