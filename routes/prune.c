/* POST /v1/prune: what the upstream and the store do not both know. */
#include "routes/handlers.h"

#include "base/json.h"
#include "control/prune.h"
#include "routes/gateway.h"

static enum sg_code parse(struct exchange *ex, struct prune_ask *ask, struct sg_error *e)
{
    static const char *const no_query[] = {NULL};
    static const char *const fields[] = {"dry_run", "older_than_ms", NULL};
    bool dry_run = true;
    *ask = (struct prune_ask){.older_than_ms = PRUNE_AGE_MS};
    enum sg_code rc = ex_query_only(ex, no_query, e);
    if (!rc)
        rc = sg_json_only(ex->body, "", fields, e);
    if (!rc)
        rc = sg_json_bool(ex->body, "", "dry_run", &dry_run, e);
    if (!rc)
        rc = sg_json_int(ex->body, "", "older_than_ms", 0, INT64_C(31536000000), &ask->older_than_ms, e);
    ask->apply = !dry_run;
    return rc;
}

void route_prune(struct exchange *ex)
{
    struct sg_error e;
    struct prune_ask ask;
    json_t *report;
    if (parse(ex, &ask, &e) || control_prune(ex->gw->control, &ask, &report, &e))
        ex_fail(ex, &e);
    else
        ex_answer_json(ex, 200, report);
}
