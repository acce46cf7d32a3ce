/* PATCH of a sandbox, and making its session last longer: on a worker. */
#include "routes/handlers.h"

#include "base/json.h"
#include "control/patch.h"
#include "routes/files.h"
#include "routes/gateway.h"
#include "routes/state.h"

#include <string.h>

enum { TIME_TEXT_MAX = 40, NS_PER_MS = 1000000 };

static const char *const no_query[] = {NULL};

static bool fits(void *arg, const char *etag)
{
    return state_fits(arg, etag);
}

static void answer(struct exchange *ex, json_t *record)
{
    state_set_etag_of(ex, record);
    ex_answer_json(ex, 200, record);
}

void route_sandbox_patch(struct exchange *ex)
{
    struct sg_error e;
    struct state_match match;
    struct control_patch p = {.name = ex->params[0], .body = ex->body, .fits_arg = &match};
    enum sg_code rc = ex_query_only(ex, no_query, &e);
    if (!rc)
        rc = state_match_of(ex, &match, &e);
    if (!rc && match.match.given)
        p.fits = fits;
    if (!rc)
        rc = control_patch(ex->gw->control, &p, &e);
    if (rc)
        ex_fail(ex, &e);
    else
        answer(ex, p.record);
}

/* {by_ms} or {until} */
static enum sg_code read_extend(const json_t *body, struct control_extend *x, struct sg_error *e)
{
    static const char *const fields[] = {"by_ms", "until", NULL};
    const char *until = NULL;
    int64_t ns = 0;
    enum sg_code rc = sg_json_only(body, "", fields, e);
    if (!rc)
        rc = sg_json_int(body, "", "by_ms", CONTROL_EXTEND_MIN_MS, CONTROL_EXTEND_MAX_MS, &x->by_ms, e);
    if (!rc)
        rc = sg_json_str(body, "", "until", TIME_TEXT_MAX, &until, e);
    if (rc)
        return rc;
    if ((x->by_ms != 0) == (until != NULL))
        return sg_fail_field(e, SG_E_INVALID_FIELD, until ? "/until" : "/by_ms",
                             "exactly one of by_ms and until");
    if (until && !files_time_parse(until, strlen(until), &ns))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "/until", "must be a time as 2026-11-30T12:00:00Z");
    x->until_ms = ns / NS_PER_MS + (ns % NS_PER_MS > 0);
    return SG_OK;
}

void route_sandbox_extend(struct exchange *ex)
{
    struct sg_error e;
    struct state_match match;
    struct control_extend x = {.name = ex->params[0], .fits_arg = &match};
    enum sg_code rc = ex_query_only(ex, no_query, &e);
    if (!rc)
        rc = state_match_of(ex, &match, &e);
    if (!rc && match.match.given)
        x.fits = fits;
    if (!rc)
        rc = read_extend(ex->body, &x, &e);
    if (!rc)
        rc = control_extend(ex->gw->control, &x, &e);
    if (rc)
        ex_fail(ex, &e);
    else
        answer(ex, x.record);
}
