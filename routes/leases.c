/* …/sandboxes/{name}/lease: who does not renew it in time loses the sandbox. */
#include "routes/handlers.h"

#include "base/clock.h"
#include "control/leases.h"
#include "routes/gateway.h"

static const char *const no_query[] = {NULL};

/* Within the words of the gateway: what is not known here is not asked upstream for. */
static void answer(struct exchange *ex, const struct lease_state *s)
{
    char when[SG_TIME_TEXT];
    sg_time_format(sg_wall_ms() + s->left_ms, when);
    json_t *json = json_pack("{sssIsIss}", "sandbox", ex->params[0], "ttl_ms", (json_int_t)s->ttl_ms,
                             "left_ms", (json_int_t)s->left_ms, "expires_at", when);
    struct sg_error e;
    if (json) {
        ex_answer_json(ex, 200, json);
        return;
    }
    (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
    ex_fail(ex, &e);
}

void route_lease_put(struct exchange *ex)
{
    struct sg_error e;
    struct lease_state s;
    int64_t ttl_ms;
    if (ex_query_only(ex, no_query, &e) || lease_check(ex->body, "", &ttl_ms, &e) ||
        lease_renew(ex->gw->control, ex->params[0], ttl_ms, &s, &e))
        ex_fail(ex, &e);
    else
        answer(ex, &s);
}

void route_lease_get(struct exchange *ex)
{
    struct sg_error e;
    struct lease_state s;
    if (ex_query_only(ex, no_query, &e) || lease_get(ex->gw->control, ex->params[0], &s, &e))
        ex_fail(ex, &e);
    else
        answer(ex, &s);
}

void route_lease_release(struct exchange *ex)
{
    struct sg_error e;
    bool gone = false;
    if (ex_query_only(ex, no_query, &e) || lease_release(ex->gw->control, ex->params[0], &gone, &e)) {
        ex_fail(ex, &e);
        return;
    }
    if (gone) {
        ex_answer_empty(ex, 204);
        return;
    }
    json_t *json = json_pack("{sssb}", "sandbox", ex->params[0], "destroyed", 0);
    if (json)
        ex_answer_json(ex, 202, json);
    else
        ex_answer_empty(ex, 202);
}
