#include "routes/handlers.h"

#include "routes/ended.h"
#include "routes/gateway.h"

static const char *const no_query[] = {NULL};

void route_sandbox_destroy(struct exchange *ex)
{
    struct sg_error e;
    char session_id[CONTROL_SESSION_TEXT];
    if (ex_query_only(ex, no_query, &e) || control_destroy(ex->gw->control, ex->params[0], session_id, &e)) {
        ex_fail(ex, &e);
        return;
    }
    ended_destroyed(ex->gw, ex->params[0], session_id);
    ex_answer_empty(ex, 204);
}
