/* Checkpoints: named captures of sandboxes. */
#include "routes/handlers.h"

#include "auth/tokens.h"
#include "base/json.h"
#include "control/checkpoints.h"
#include "routes/gateway.h"
#include "routes/state.h"
#include "routes/page_query.h"
#include "routes/snapshots.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 256 };

static const char *const no_query[] = {NULL};

static enum sg_code no_memory(struct sg_error *e)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
}

static enum sg_code read_make(struct exchange *ex, struct control_checkpoint *k, struct sg_error *e)
{
    static const char *const fields[] = {"name", "sandbox", "resume", "default", "replace", NULL};
    enum sg_code rc = ex_query_only(ex, no_query, e);
    if (!rc)
        rc = sg_json_only(ex->body, "", fields, e);
    if (!rc)
        rc = sg_json_str(ex->body, "", "name", TEXT_MAX, &k->name, e);
    if (!rc)
        rc = checkpoint_name(k->name, "/name", e);
    if (!rc)
        rc = sg_json_str(ex->body, "", "sandbox", TEXT_MAX, &k->capture.sandbox, e);
    if (!rc && !k->capture.sandbox)
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, "/sandbox", "required");
    if (!rc)
        rc = sg_json_bool(ex->body, "", "resume", &k->capture.resume, e);
    if (!rc)
        rc = sg_json_bool(ex->body, "", "default", &k->make_default, e);
    if (!rc)
        rc = sg_json_bool(ex->body, "", "replace", &k->replace, e);
    return rc;
}

void route_checkpoint_make(struct exchange *ex)
{
    struct control_checkpoint k = {.owner = ex->who ? ex->who->id : NULL};
    struct sg_error e;
    enum sg_code rc = read_make(ex, &k, &e);
    if (!rc)
        rc = checkpoint_make(ex->gw->control, &k, &e);
    json_t *record = rc ? NULL : checkpoint_record(&k.row);
    if (!rc && (!record || snapshots_add_capture(record, &k.capture))) {
        json_decref(record);
        rc = no_memory(&e);
    }
    if (rc) {
        ex_fail(ex, &e);
    } else {
        state_set_location(ex, "/v1/checkpoints/", k.name);
        ex_answer_json(ex, 201, record);
    }
    control_capture_clear(&k.capture);
}

static void answer(struct exchange *ex, enum sg_code rc, const struct store_checkpoint *row,
                   struct sg_error *e)
{
    json_t *record = rc ? NULL : checkpoint_record(row);
    if (!rc && !record)
        rc = no_memory(e);
    if (rc)
        ex_fail(ex, e);
    else
        ex_answer_json(ex, 200, record);
}

void route_checkpoint_get(struct exchange *ex)
{
    struct store_checkpoint row;
    struct sg_error e;
    const char *name = strcmp(ex->params[0], "default") != 0 ? ex->params[0] : NULL;
    enum sg_code rc = ex_query_only(ex, no_query, &e);
    if (!rc)
        rc = checkpoint_get(ex->gw->control, name, &row, &e);
    answer(ex, rc, &row, &e);
}

void route_checkpoint_delete(struct exchange *ex)
{
    struct sg_error e;
    if (ex_query_only(ex, no_query, &e) || checkpoint_delete(ex->gw->control, ex->params[0], &e))
        ex_fail(ex, &e);
    else
        ex_answer_empty(ex, 204);
}

/* {"name": …}, or {"name": null}: none. */
void route_checkpoint_default(struct exchange *ex)
{
    static const char *const fields[] = {"name", NULL};
    struct store_checkpoint row;
    struct sg_error e;
    const char *name = NULL;
    const json_t *value = json_object_get(ex->body, "name");
    enum sg_code rc = ex_query_only(ex, no_query, &e);
    if (!rc)
        rc = sg_json_only(ex->body, "", fields, &e);
    if (!rc && !value)
        rc = sg_fail_field(&e, SG_E_INVALID_FIELD, "/name", "required; null: no default");
    if (!rc && !json_is_null(value))
        rc = sg_json_str(ex->body, "", "name", TEXT_MAX, &name, &e);
    if (!rc && name)
        rc = checkpoint_name(name, "/name", &e);
    if (!rc)
        rc = checkpoint_default(ex->gw->control, name, &e);
    if (!rc && !name) {
        ex_answer_empty(ex, 204);
        return;
    }
    if (!rc)
        rc = checkpoint_get(ex->gw->control, name, &row, &e);
    answer(ex, rc, &row, &e);
}

/* ---- list ---- */

struct listing {
    json_t *items;
    int64_t left;
    bool more, failed;
    char last[CHECKPOINT_NAME_TEXT];
};

static void on_row(void *arg, const struct store_checkpoint *row)
{
    struct listing *l = arg;
    if (l->left-- <= 0) {
        l->more = true;
        return;
    }
    l->failed = json_array_append_new(l->items, checkpoint_record(row)) || l->failed;
    memcpy(l->last, row->name, sizeof l->last);
}

void route_checkpoint_list(struct exchange *ex)
{
    static const char *const allowed[] = {"limit", "cursor", NULL};
    struct listing l = {.items = json_array()};
    struct page_query q;
    struct sg_error e;
    enum sg_code rc = page_query(ex, allowed, &q, &e);
    if (!rc) {
        l.left = q.limit;
        rc = l.items ? checkpoint_list(ex->gw->control, q.cursor ? q.cursor : "", q.limit + 1, on_row, &l, &e)
                     : no_memory(&e);
    }
    if (!rc && l.failed)
        rc = no_memory(&e);
    if (rc)
        ex_fail(ex, &e);
    else
        page_answer(ex, json_incref(l.items), l.more ? l.last : NULL, &q, "/v1/checkpoints", "");
    json_decref(l.items);
}
