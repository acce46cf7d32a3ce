/* /v1/templates: what sandboxes can start from, and …/apply-template, which does the same to one that is there. */
#include "routes/handlers.h"

#include "base/buf.h"
#include "base/json.h"
#include "auth/tokens.h"
#include "control/templates.h"
#include "routes/gateway.h"
#include "routes/state.h"

#include <stdlib.h>
#include <string.h>

enum { LIST_DEFAULT = 20, LIST_MAX = 100, CURSOR_MAX = 63, LOCATION_MAX = 512 };

static const char *const no_query[] = {NULL};

void route_template_put(struct exchange *ex)
{
    struct sg_error e;
    json_t *record = NULL;
    bool made = false;
    if (ex_query_only(ex, no_query, &e) ||
        control_template_put(ex->gw->control, ex->params[0], ex->body, ex->who ? ex->who->id : NULL, &record,
                             &made, &e)) {
        ex_fail(ex, &e);
        return;
    }
    if (made)
        state_set_location(ex, "/v1/templates/", ex->params[0]);
    ex_answer_json(ex, made ? 201 : 200, record);
}

void route_template_get(struct exchange *ex)
{
    struct sg_error e;
    json_t *record = NULL;
    if (ex_query_only(ex, no_query, &e) || control_template_get(ex->gw->control, ex->params[0], &record, &e))
        ex_fail(ex, &e);
    else
        ex_answer_json(ex, 200, record);
}

void route_template_delete(struct exchange *ex)
{
    struct sg_error e;
    if (ex_query_only(ex, no_query, &e) || control_template_delete(ex->gw->control, ex->params[0], &e))
        ex_fail(ex, &e);
    else
        ex_answer_empty(ex, 204);
}

/* ---- list ---- */

static void set_next_link(struct exchange *ex, int64_t limit, const char *next)
{
    struct sg_buf b;
    sg_buf_init(&b, LOCATION_MAX);
    (void)sg_buf_addf(&b, "</v1/templates?limit=%lld&cursor=", (long long)limit);
    (void)sg_buf_add_urlenc(&b, next);
    (void)sg_buf_adds(&b, ">; rel=\"next\"");
    if (!b.failed)
        ex_set_header(ex, "Link", b.data);
    sg_buf_free(&b);
}

void route_template_list(struct exchange *ex)
{
    static const char *const allowed[] = {"limit", "cursor", NULL};
    struct sg_error e;
    int64_t limit = LIST_DEFAULT;
    json_t *page = NULL;
    size_t len = 0;
    const char *cursor = NULL;
    enum sg_code rc = ex_query_only(ex, allowed, &e);
    if (!rc)
        rc = ex_query_int(ex, "limit", 1, LIST_MAX, &limit, &e);
    if (!rc) {
        cursor = ex_query(ex, "cursor", &len);
        if (cursor && (len > CURSOR_MAX || memchr(cursor, '\0', len)))
            rc = sg_fail_field(&e, SG_E_INVALID_FIELD, "?cursor", "at most %d bytes", CURSOR_MAX);
    }
    if (!rc)
        rc = control_template_list(ex->gw->control, cursor, limit, &page, &e);
    if (rc) {
        ex_fail(ex, &e);
        return;
    }
    const char *next = sg_jget_str(page, "next_cursor", NULL);
    if (next)
        set_next_link(ex, limit, next);
    ex_answer_json(ex, 200, page);
}

/* ---- prepare: on the loop; whoever is not patient is answered 202 by the server (ROUTE_LASTS) ---- */

struct prepare {
    struct exchange *ex;
    struct template_wish *wish;
};

static void on_prepared(void *arg, json_t *record, const struct sg_error *e)
{
    struct prepare *p = arg;
    struct exchange *ex = p->ex;
    ex_on_gone(ex, NULL, NULL);
    free(p);
    if (e)
        ex_fail(ex, e);
    else
        ex_answer_json(ex, 200, record);
}

/* The preparation goes on: others may want it. */
static void on_gone(void *arg)
{
    struct prepare *p = arg;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_BAD_REQUEST, SG_STARTED, "the client left");
    control_template_unwish(p->wish);
    ex_fail(p->ex, &e);
    free(p);
}

void route_template_prepare(struct exchange *ex)
{
    static const char *const fields[] = {"refresh", NULL};
    struct sg_error e;
    bool refresh = false;
    enum sg_code rc = ex_query_only(ex, no_query, &e);
    if (!rc)
        rc = sg_json_only(ex->body, "", fields, &e);
    if (!rc)
        rc = sg_json_bool(ex->body, "", "refresh", &refresh, &e);
    struct prepare *p = rc ? NULL : calloc(1, sizeof *p);
    if (!p) {
        if (!rc)
            (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
        ex_fail(ex, &e);
        return;
    }
    p->ex = ex;
    p->wish = control_template_prepare(ex->gw->control, ex->params[0], refresh, on_prepared, p, &e);
    if (p->wish) {
        ex_on_gone(ex, on_gone, p);
        return;
    }
    free(p);
    ex_fail(ex, &e);
}

/* ---- apply ---- */

void route_template_apply(struct exchange *ex)
{
    static const char *const fields[] = {"template", "resume", NULL};
    struct sg_error e;
    const char *name = NULL;
    bool resume = false;
    json_t *told = NULL;
    enum sg_code rc = ex_query_only(ex, no_query, &e);
    if (!rc)
        rc = sg_json_only(ex->body, "", fields, &e);
    if (!rc)
        rc = sg_json_str(ex->body, "", "template", CURSOR_MAX, &name, &e);
    if (!rc && !name)
        rc = sg_fail_field(&e, SG_E_INVALID_FIELD, "/template", "required");
    if (!rc)
        rc = sg_json_bool(ex->body, "", "resume", &resume, &e);
    if (!rc)
        rc = control_template_apply(ex->gw->control, ex->params[0], name, resume, ex->nonce, &told, &e);
    if (rc)
        ex_fail(ex, &e);
    else
        ex_answer_json(ex, 200, told);
}
