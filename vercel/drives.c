#include "vercel/drives.h"

#include "vercel/answer.h"
#include "vercel/impl.h"

#include "base/buf.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

enum { PATH_MAX_BYTES = 1024, QUERY_MAX_BYTES = 4096, PAGE_MAX = 1000 };

/* ---- answers ---- */

static int64_t number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) && json_integer_value(v) >= 0 ? json_integer_value(v) : -1;
}

static enum sg_code read_drive(const json_t *o, struct vercel_drive *d, struct sg_error *e)
{
    *d = (struct vercel_drive){
        .id = sg_jget_str(o, "id", NULL),
        .name = sg_jget_str(o, "name", NULL),
        .region = sg_jget_str(o, "region", NULL),
        .session_id = sg_jget_str(o, "currentSessionId", NULL),
        .sandbox = sg_jget_str(o, "currentSandboxName", NULL),
        .parent_id = sg_jget_str(o, "parentDriveId", NULL),
        .max_size_bytes = number(o, "maxSizeBytes"),
        .created_at = number(o, "createdAt"),
        .updated_at = number(o, "updatedAt"),
    };
    return d->name && *d->name && d->created_at >= 0
               ? SG_OK
               : vercel_bad_answer(200, NULL, "has a drive without a name or its time of creation", e);
}

void vercel_drive_clear(struct vercel_drive *d)
{
    json_decref(d->doc);
    *d = (struct vercel_drive){0};
}

void vercel_drive_page_clear(struct vercel_drive_page *p)
{
    json_decref(p->doc);
    free(p->items);
    *p = (struct vercel_drive_page){0};
}

/* A call that answers {drive}. */
static enum sg_code one(struct vercel_client *c, const struct vercel_request *r, struct vercel_drive *out,
                        struct sg_error *e)
{
    json_t *doc = NULL;
    *out = (struct vercel_drive){0};
    enum sg_code code = vercel_wait_json(c, r, &doc, e);
    if (code == SG_OK)
        code = read_drive(json_object_get(doc, "drive"), out, e);
    if (code == SG_OK)
        out->doc = doc;
    else
        json_decref(doc);
    return code;
}

/* ---- calls ---- */

static bool drive_path(struct sg_buf *b, const char *name, const char *rest)
{
    sg_buf_init(b, PATH_MAX_BYTES);
    return sg_buf_adds(b, "/v2/sandboxes/drives/") && sg_buf_add_urlenc(b, name) && sg_buf_adds(b, rest);
}

/* A call about one drive; body may be NULL, and is taken over. */
static enum sg_code about(struct vercel_client *c, struct vercel_request *r, const char *name,
                          const char *rest, json_t *body, struct vercel_drive *out, struct sg_error *e)
{
    struct sg_buf path, query;
    *out = (struct vercel_drive){0};
    sg_buf_init(&query, QUERY_MAX_BYTES);
    bool ok = drive_path(&path, name, rest) && vercel_add_param(&query, "projectId", c->project_id);
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    ok = ok && (!body || text);
    json_decref(body);
    r->path = path.data;
    r->query = query.data;
    r->body = text;
    r->body_len = text ? strlen(text) : 0;
    enum sg_code code = ok ? one(c, r, out, e) : vercel_no_memory(e);
    sg_buf_free(&path);
    sg_buf_free(&query);
    free(text);
    return code;
}

enum sg_code vercel_drive_get(struct vercel_client *c, const char *name, struct vercel_drive *out,
                              struct sg_error *e)
{
    struct vercel_request r = {.method = "GET", .idempotent = true, .means.on_404 = SG_E_DRIVE_NOT_FOUND};
    return about(c, &r, name, "", NULL, out, e);
}

enum sg_code vercel_drive_put(struct vercel_client *c, const char *name, const char *region,
                              int64_t max_size_bytes, struct vercel_drive *out, struct sg_error *e)
{
    json_t *body = json_object();
    bool ok = body != NULL;
    if (c->project_id)
        ok = ok && !json_object_set_new(body, "projectId", json_string(c->project_id));
    if (region)
        ok = ok && !json_object_set_new(body, "region", json_string(region));
    if (max_size_bytes)
        ok = ok && !json_object_set_new(body, "maxSizeBytes", json_integer(max_size_bytes));
    if (!ok) {
        json_decref(body);
        return vercel_no_memory(e);
    }
    struct vercel_request r = {.method = "POST", .idempotent = true, .means.on_409 = SG_E_DRIVE_CONFLICT};
    return about(c, &r, name, "", body, out, e);
}

enum sg_code vercel_drive_fork(struct vercel_client *c, const char *source, const char *name,
                               struct vercel_drive *out, struct sg_error *e)
{
    json_t *body = json_pack("{ss}", "name", name);
    if (!body)
        return vercel_no_memory(e);
    struct vercel_request r = {.method = "POST",
                               .means = {.on_404 = SG_E_DRIVE_NOT_FOUND, .on_409 = SG_E_DRIVE_CONFLICT}};
    return about(c, &r, source, "/fork", body, out, e);
}

enum sg_code vercel_drive_delete(struct vercel_client *c, const char *name, struct sg_error *e)
{
    struct vercel_request r = {.method = "DELETE",
                               .idempotent = true,
                               .spends = QUOTA_DELETES,
                               .means = {.on_404 = SG_E_DRIVE_NOT_FOUND, .on_409 = SG_E_DRIVE_IN_USE}};
    struct vercel_drive d;
    enum sg_code code = about(c, &r, name, "", NULL, &d, e);
    vercel_drive_clear(&d);
    return code;
}

static enum sg_code read_page(json_t *doc, struct vercel_drive_page *out, struct sg_error *e)
{
    const json_t *list = json_object_get(doc, "drives");
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > PAGE_MAX)
        return vercel_bad_answer(200, NULL, "has no list of drives, or too long a one", e);
    out->doc = doc;
    out->next = sg_jget_str(json_object_get(doc, "pagination"), "next", NULL);
    out->items = calloc(n ? n : 1, sizeof *out->items);
    if (!out->items)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "No memory for the upstream's answer.");
    for (; out->n < n; out->n++) {
        enum sg_code code = read_drive(json_array_get(list, out->n), &out->items[out->n], e);
        if (code)
            return code;
    }
    return SG_OK;
}

enum sg_code vercel_drive_list(struct vercel_client *c, const char *prefix, int limit, const char *cursor,
                               struct vercel_drive_page *out, struct sg_error *e)
{
    struct sg_buf query;
    json_t *doc = NULL;
    *out = (struct vercel_drive_page){0};
    sg_buf_init(&query, QUERY_MAX_BYTES);
    bool ok = sg_buf_addf(&query, "limit=%d&sortBy=name&sortOrder=asc", limit) &&
              vercel_add_param(&query, "projectId", c->project_id) &&
              vercel_add_param(&query, "namePrefix", prefix) && vercel_add_param(&query, "cursor", cursor);
    const struct vercel_request r = {
        .method = "GET", .path = "/v2/sandboxes/drives", .query = query.data, .idempotent = true};
    enum sg_code code = ok ? vercel_wait_json(c, &r, &doc, e) : vercel_no_memory(e);
    sg_buf_free(&query);
    if (code)
        return code;
    code = read_page(doc, out, e);
    if (code) {
        out->doc = doc;
        vercel_drive_page_clear(out);
    }
    return code;
}
