#include "routes/handlers.h"

#include "base/buf.h"
#include "base/json.h"
#include "routes/ended.h"
#include "routes/gateway.h"
#include "routes/state.h"

enum { LOCATION_MAX = 512 };

static const char *const no_query[] = {NULL};

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

void route_sandbox_create(struct exchange *ex)
{
    struct sg_error e;
    json_t *record = NULL;
    bool created = false;
    if (ex_query_only(ex, no_query, &e) || control_create(ex->gw->control, ex->body, &record, &created, &e)) {
        ex_fail(ex, &e);
        return;
    }
    const char *session = sg_jget_str(record, "session_id", NULL);
    /* a snapshot may bring the helper along, an image does not */
    if (created && session && !json_object_get(ex->body, "source"))
        guestlink_fresh(ex->gw->guestlink, session);
    set_location(ex, sg_jget_str(record, "name", ""));
    state_set_etag_of(ex, record);
    ex_answer_json(ex, created ? 201 : 200, record);
}

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
