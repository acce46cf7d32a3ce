/* Drives.  E9 */
#include "routes/handlers.h"

#include "base/json.h"
#include "control/fields.h"
#include "control/snapshot_record.h"
#include "routes/gateway.h"
#include "routes/page_query.h"
#include "vercel/drives.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE_UNIT = 4096 };
#define SIZE_MAX_BYTES (INT64_C(16) << 40)

static const char *const no_query[] = {NULL};

static enum sg_code no_memory(struct sg_error *e)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
}

static json_t *size_of(int64_t n)
{
    return n >= 0 ? json_integer(n) : json_null();
}

static json_t *record_of(const struct vercel_drive *d)
{
    return json_pack("{ss,ss?,ss?,so,ss?,ss?,ss?,so,so}", "name", d->name, "id", d->id, "region", d->region,
                     "max_size_bytes", size_of(d->max_size_bytes), "sandbox", d->sandbox, "session_id",
                     d->session_id, "parent_id", d->parent_id, "created_at", control_moment(d->created_at),
                     "updated_at", control_moment(d->updated_at));
}

static bool is_name(const char *s)
{
    return field_is_name(s, FIELD_DRIVE_NAME_MAX);
}

static enum sg_code check_name(const char *name, struct sg_error *e)
{
    return is_name(name) ? SG_OK
                         : sg_fail(e, SG_E_DRIVE_NOT_FOUND, SG_NOT_SENT, "no drive can have this name");
}

static void answer(struct exchange *ex, int status, struct vercel_drive *d)
{
    struct sg_error e;
    json_t *record = record_of(d);
    vercel_drive_clear(d);
    if (record) {
        ex_answer_json(ex, status, record);
        return;
    }
    (void)no_memory(&e);
    ex_fail(ex, &e);
}

/* ---- list ---- */

static enum sg_code one_page(void *arg, struct exchange *ex, const struct page_part *part, json_t *items,
                             struct page_found *found, struct sg_error *e)
{
    struct vercel_drive_page page;
    enum sg_code rc = vercel_drive_list(ex->gw->vercel, arg, part->limit, part->cursor, &page, e);
    if (rc)
        return rc;
    for (size_t i = 0; i < page.n && !rc; i++)
        if (json_array_append_new(items, record_of(&page.items[i])))
            rc = no_memory(e);
    found->n = page.n;
    if (!rc)
        rc = page_keep_next(page.next, found, e);
    vercel_drive_page_clear(&page);
    return rc;
}

void route_drive_list(struct exchange *ex)
{
    static const char *const allowed[] = {"limit", "cursor", "name_prefix", NULL};
    struct page_query q;
    struct sg_error e;
    char same[FIELD_DRIVE_NAME_MAX + 16] = "", *next = NULL;
    json_t *items = json_array();
    enum sg_code rc = items ? page_query(ex, allowed, &q, &e) : no_memory(&e);
    const char *prefix = ex_query(ex, "name_prefix", NULL);
    if (!rc && prefix && !is_name(prefix))
        rc = sg_fail_field(&e, SG_E_INVALID_FIELD, "?name_prefix", "1 to %d letters, digits, '_' or '-'",
                           FIELD_DRIVE_NAME_MAX);
    if (!rc)
        rc = page_collect(ex, &q, one_page, (void *)(uintptr_t)prefix, items, &next, &e);
    if (rc) {
        ex_fail(ex, &e);
    } else {
        if (prefix)
            (void)snprintf(same, sizeof same, "&name_prefix=%s", prefix);
        page_answer(ex, json_incref(items), next, &q, "/v1/drives", same);
    }
    json_decref(items);
    free(next);
}

/* ---- one ---- */

void route_drive_get(struct exchange *ex)
{
    struct vercel_drive d;
    struct sg_error e;
    const char *name = ex->params[0];
    if (ex_query_only(ex, no_query, &e) || check_name(name, &e) ||
        vercel_drive_get(ex->gw->vercel, name, &d, &e))
        ex_fail(ex, &e);
    else
        answer(ex, 200, &d);
}

static enum sg_code read_put(const json_t *body, const char **region, int64_t *size, struct sg_error *e)
{
    static const char *const fields[] = {"region", "max_size_bytes", NULL};
    json_t *checked = json_object();
    enum sg_code rc = checked ? sg_json_only(body, "", fields, e) : no_memory(e);
    if (!rc)
        rc = field_region(body, checked, e);
    json_decref(checked);
    if (!rc)
        rc = sg_json_str(body, "", "region", 16, region, e);
    if (!rc)
        rc = sg_json_int(body, "", "max_size_bytes", SIZE_UNIT, SIZE_MAX_BYTES, size, e);
    if (!rc && *size % SIZE_UNIT)
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, "/max_size_bytes", "must be a multiple of %d", SIZE_UNIT);
    return rc;
}

/* Get or create.  Which of both it was is told by a look before: the upstream's answer is the same. */
void route_drive_put(struct exchange *ex)
{
    struct vercel_drive d = {0};
    struct sg_error e;
    const char *name = ex->params[0], *region = NULL;
    int64_t size = 0;
    enum sg_code rc = ex_query_only(ex, no_query, &e);
    if (!rc && !is_name(name))
        rc = sg_fail(&e, SG_E_INVALID_FIELD, SG_NOT_SENT,
                     "a drive's name is 1 to %d letters, digits, '_' or '-'", FIELD_DRIVE_NAME_MAX);
    if (!rc)
        rc = read_put(ex->body, &region, &size, &e);
    if (!rc)
        rc = vercel_drive_get(ex->gw->vercel, name, &d, &e);
    bool there = rc == SG_OK;
    vercel_drive_clear(&d);
    if (there || rc == SG_E_DRIVE_NOT_FOUND)
        rc = vercel_drive_put(ex->gw->vercel, name, region, size, &d, &e);
    if (rc)
        ex_fail(ex, &e);
    else
        answer(ex, there ? 200 : 201, &d);
}

/* Success also when there is none. */
void route_drive_delete(struct exchange *ex)
{
    struct sg_error e;
    const char *name = ex->params[0];
    enum sg_code rc = ex_query_only(ex, no_query, &e);
    if (!rc && is_name(name))
        rc = vercel_drive_delete(ex->gw->vercel, name, &e);
    if (rc && rc != SG_E_DRIVE_NOT_FOUND)
        ex_fail(ex, &e);
    else
        ex_answer_empty(ex, 204);
}

void route_drive_fork(struct exchange *ex)
{
    static const char *const fields[] = {"name", NULL};
    struct vercel_drive d;
    struct sg_error e;
    const char *source = ex->params[0], *name = NULL;
    enum sg_code rc = ex_query_only(ex, no_query, &e);
    if (!rc)
        rc = check_name(source, &e);
    if (!rc)
        rc = sg_json_only(ex->body, "", fields, &e);
    if (!rc)
        rc = sg_json_str(ex->body, "", "name", FIELD_DRIVE_NAME_MAX, &name, &e);
    if (!rc && (!name || !is_name(name)))
        rc = sg_fail_field(&e, SG_E_INVALID_FIELD, "/name",
                           "a drive's name is 1 to %d letters, digits, '_' or '-'", FIELD_DRIVE_NAME_MAX);
    if (!rc)
        rc = vercel_drive_fork(ex->gw->vercel, source, name, &d, &e);
    if (rc)
        ex_fail(ex, &e);
    else
        answer(ex, 201, &d);
}
