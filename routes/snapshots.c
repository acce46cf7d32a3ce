/* Snapshots and sessions of sandboxes. */
#include "routes/handlers.h"

#include "base/buf.h"
#include "base/json.h"
#include "control/capture.h"
#include "control/snapshot_record.h"
#include "routes/gateway.h"
#include "routes/page_query.h"
#include "routes/snapshots.h"

#include <stdlib.h>
#include <string.h>

enum { PATH_MAX_BYTES = 512, SNAPSHOT_ID_MAX = 128 };
#define EXPIRE_MIN_MS INT64_C(86400000)
#define EXPIRE_MAX_MS INT64_C(315360000000)

static const char *const no_query[] = {NULL};

static enum sg_code no_memory(struct sg_error *e, enum sg_outcome outcome)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, outcome, "no memory for the answer");
}

static char *path_of(const char *before, const char *name, const char *after)
{
    struct sg_buf b;
    sg_buf_init(&b, PATH_MAX_BYTES);
    (void)sg_buf_adds(&b, before);
    (void)sg_buf_add_urlenc(&b, name);
    (void)sg_buf_adds(&b, after);
    if (!b.failed)
        return sg_buf_take(&b, NULL);
    sg_buf_free(&b);
    return NULL;
}

/* ---- lists ---- */

struct listing {
    struct exchange *ex;
    const char *sandbox; /* NULL: of all */
    bool deleted;        /* with tombstones */
    json_t *items;
    char *next;
};

static enum sg_code snapshot_page(void *arg, struct exchange *ex, const struct page_part *part, json_t *items,
                                  struct page_found *found, struct sg_error *e)
{
    const struct listing *l = arg;
    struct vercel_snapshot_page page;
    enum sg_code rc = vercel_snapshot_list(ex->gw->vercel, l->sandbox, part->limit, part->cursor, &page, e);
    if (rc)
        return rc;
    for (size_t i = 0; i < page.n && !rc; i++) {
        if (page.items[i].status == VERCEL_SNAPSHOT_DELETED && !l->deleted)
            continue;
        if (json_array_append_new(items, control_snapshot_record(&page.items[i])))
            rc = no_memory(e, SG_FINISHED);
    }
    found->n = page.n;
    if (!rc)
        rc = page_keep_next(page.next, found, e);
    vercel_snapshot_page_clear(&page);
    return rc;
}

static enum sg_code session_page(void *arg, struct exchange *ex, const struct page_part *part, json_t *items,
                                 struct page_found *found, struct sg_error *e)
{
    const struct listing *l = arg;
    struct vercel_session_page page;
    enum sg_code rc = vercel_session_list(ex->gw->vercel, l->sandbox, part->limit, part->cursor, &page, e);
    if (rc)
        return rc;
    for (size_t i = 0; i < page.n && !rc; i++)
        if (json_array_append_new(items, control_session_record(&page.items[i])))
            rc = no_memory(e, SG_FINISHED);
    found->n = page.n;
    if (!rc)
        rc = page_keep_next(page.next, found, e);
    vercel_session_page_clear(&page);
    return rc;
}

static enum sg_code collect(struct listing *l, const struct page_query *q, page_fn *fn, struct sg_error *e)
{
    l->items = json_array();
    return l->items ? page_collect(l->ex, q, fn, l, l->items, &l->next, e) : no_memory(e, SG_NOT_SENT);
}

/* Whether there is such a sandbox: the upstream's lists do not say. */
static enum sg_code check_sandbox(struct listing *l, struct sg_error *e)
{
    struct vercel_sandbox s;
    if (!l->sandbox || json_array_size(l->items))
        return SG_OK;
    enum sg_code rc = vercel_get(l->ex->gw->vercel, l->sandbox, false, &s, e);
    if (!rc)
        vercel_sandbox_clear(&s);
    return rc;
}

static void answer_list(struct listing *l, const struct page_query *q, page_fn *fn, const char *path)
{
    struct sg_error e;
    enum sg_code rc = path ? SG_OK : no_memory(&e, SG_NOT_SENT);
    if (!rc && l->sandbox)
        rc = control_name_for_lookup(l->sandbox, &e);
    if (!rc)
        rc = collect(l, q, fn, &e);
    if (!rc && !q->cursor)
        rc = check_sandbox(l, &e);
    if (rc)
        ex_fail(l->ex, &e);
    else
        page_answer(l->ex, json_incref(l->items), l->next, q, path, l->deleted ? "&include=deleted" : "");
    json_decref(l->items);
    free(l->next);
}

static enum sg_code read_include(struct exchange *ex, bool *deleted, struct sg_error *e)
{
    const char *include = ex_query(ex, "include", NULL);
    *deleted = include && !strcmp(include, "deleted");
    return include && !*deleted ? sg_fail_field(e, SG_E_INVALID_FIELD, "?include", "must be \"deleted\"")
                                : SG_OK;
}

static void list_snapshots(struct exchange *ex, const char *sandbox, const char *path)
{
    static const char *const allowed[] = {"limit", "cursor", "include", NULL};
    struct listing l = {.ex = ex, .sandbox = sandbox};
    struct page_query q;
    struct sg_error e;
    if (page_query(ex, allowed, &q, &e) || read_include(ex, &l.deleted, &e))
        ex_fail(ex, &e);
    else
        answer_list(&l, &q, snapshot_page, path);
}

void route_snapshot_list(struct exchange *ex)
{
    list_snapshots(ex, NULL, "/v1/snapshots");
}

void route_sandbox_snapshots(struct exchange *ex)
{
    char *path = path_of("/v1/sandboxes/", ex->params[0], "/snapshots");
    list_snapshots(ex, ex->params[0], path);
    free(path);
}

void route_sandbox_sessions(struct exchange *ex)
{
    static const char *const allowed[] = {"limit", "cursor", NULL};
    struct listing l = {.ex = ex, .sandbox = ex->params[0]};
    struct page_query q;
    struct sg_error e;
    char *path = path_of("/v1/sandboxes/", ex->params[0], "/sessions");
    if (page_query(ex, allowed, &q, &e))
        ex_fail(ex, &e);
    else
        answer_list(&l, &q, session_page, path);
    free(path);
}

/* ---- one ---- */

/* What no snapshot can be called is not found, whatever the upstream would make of it. */
static enum sg_code check_id(const char *id, struct sg_error *e)
{
    size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
    if (n == 0 || n > SNAPSHOT_ID_MAX || id[n] || !strcmp(id, "tree"))
        return sg_fail(e, SG_E_SNAPSHOT_NOT_FOUND, SG_NOT_SENT, "no snapshot can have this id");
    return SG_OK;
}

void route_snapshot_get(struct exchange *ex)
{
    static const char *const allowed[] = {"include", NULL};
    struct vercel_snapshot s = {0};
    struct sg_error e;
    bool deleted = false;
    const char *id = ex->params[0];
    enum sg_code rc = ex_query_only(ex, allowed, &e);
    if (!rc)
        rc = read_include(ex, &deleted, &e);
    if (!rc)
        rc = check_id(id, &e);
    if (!rc)
        rc = vercel_snapshot_get(ex->gw->vercel, id, &s, &e);
    if (!rc && s.status == VERCEL_SNAPSHOT_DELETED && !deleted)
        rc = sg_fail(&e, SG_E_SNAPSHOT_NOT_FOUND, SG_FINISHED, "the snapshot was deleted");
    json_t *record = rc ? NULL : control_snapshot_record(&s);
    if (!rc && !record)
        rc = no_memory(&e, SG_FINISHED);
    vercel_snapshot_clear(&s);
    if (rc)
        ex_fail(ex, &e);
    else
        ex_answer_json(ex, 200, record);
}

void route_snapshot_delete(struct exchange *ex)
{
    struct sg_error e;
    const char *id = ex->params[0];
    if (ex_query_only(ex, no_query, &e)) {
        ex_fail(ex, &e);
        return;
    }
    if (!check_id(id, NULL) && control_snapshot_delete(ex->gw->control, id, &e))
        ex_fail(ex, &e);
    else
        ex_answer_empty(ex, 204);
}

/* ---- a capture ---- */

static enum sg_code read_capture(struct exchange *ex, struct control_capture *k, struct sg_error *e)
{
    static const char *const fields[] = {"expire_ms", "resume", NULL};
    *k = (struct control_capture){.sandbox = ex->params[0]};
    enum sg_code rc = ex_query_only(ex, no_query, e);
    if (!rc)
        rc = sg_json_only(ex->body, "", fields, e);
    if (!rc)
        rc = sg_json_int(ex->body, "", "expire_ms", 0, EXPIRE_MAX_MS, &k->expire_ms, e);
    if (!rc && k->expire_ms && k->expire_ms < EXPIRE_MIN_MS)
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, "/expire_ms", "must be 0 (never) or at least a day");
    if (!rc)
        rc = sg_json_bool(ex->body, "", "resume", &k->resume, e);
    return rc;
}

static json_t *resume_error(const struct sg_error *e)
{
    const struct sg_error_row *row = sg_error_row(e->code);
    return json_pack("{ss?,ss}", "code", row ? row->code : NULL, "detail", e->detail);
}

int snapshots_add_capture(json_t *record, const struct control_capture *k)
{
    int bad = json_object_set_new(record, "captured", json_boolean(k->made));
    bad |= json_object_set_new(record, "resumed", json_boolean(k->resumed));
    if (k->resume && *k->session_id && !k->resumed)
        bad |= json_object_set_new(record, "resume_error", resume_error(&k->resume_error));
    return bad;
}

void route_sandbox_capture(struct exchange *ex)
{
    struct control_capture k;
    struct vercel_snapshot s = {0};
    struct sg_error e;
    json_t *record = NULL;
    enum sg_code rc = read_capture(ex, &k, &e);
    if (!rc)
        rc = control_capture(ex->gw->control, &k, &s, &e);
    if (!rc && !k.made) /* whoever is given its id may start from it: it is swept no more */
        rc = control_snapshot_give(ex->gw->control, s.id, &e);
    if (!rc) {
        record = control_snapshot_record(&s);
        if (!record || snapshots_add_capture(record, &k)) {
            json_decref(record);
            rc = no_memory(&e, SG_FINISHED);
        }
    }
    char *path = rc ? NULL : path_of("/v1/snapshots/", s.id, "");
    if (path)
        ex_set_header(ex, "Location", path);
    free(path);
    if (rc)
        ex_fail(ex, &e);
    else
        ex_answer_json(ex, k.made ? 201 : 200, record);
    vercel_snapshot_clear(&s);
    control_capture_clear(&k);
}
