#include "vercel/snapshots.h"

#include "vercel/answer.h"
#include "vercel/impl.h"

#include "base/buf.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

enum { PATH_MAX_BYTES = 2048, QUERY_MAX_BYTES = 4096 };

/* `base`, an id, and what follows it (may be ""). */
static bool id_path(struct sg_buf *b, const char *base, const char *id, const char *rest)
{
    sg_buf_init(b, PATH_MAX_BYTES);
    return sg_buf_adds(b, base) && sg_buf_add_urlenc(b, id) && sg_buf_adds(b, rest);
}

/* A call whose body is made of JSON: as text in *r, to be wiped and freed. */
static char *set_body(struct vercel_request *r, const json_t *body)
{
    char *text = json_dumps(body, JSON_COMPACT);
    r->body = text;
    r->body_len = text ? strlen(text) : 0;
    return text;
}

static void drop_body(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text)); /* it may hold the values of variables */
    free(text);
}

/* ---- snapshots ---- */

/* 410: there was one, and not even a tombstone is left. */
static bool is_gone(enum sg_code code)
{
    return code == SG_E_SNAPSHOT_GONE || code == SG_E_STALE_SESSION;
}

enum sg_code vercel_snapshot_get(struct vercel_client *c, const char *id, struct vercel_snapshot *out,
                                 struct sg_error *e)
{
    struct sg_error own;
    struct sg_buf path;
    if (!e)
        e = &own;
    char *answer = NULL;
    size_t len = 0;
    *out = (struct vercel_snapshot){0};
    bool ok = id_path(&path, "/v2/sandboxes/snapshots/", id, "");
    const struct vercel_request r = {
        .method = "GET",
        .path = path.data,
        .idempotent = true,
        .means.on_404 = SG_E_SNAPSHOT_NOT_FOUND,
    };
    enum sg_code code = ok ? vercel_wait_body(c, &r, &answer, &len, e) : vercel_no_memory(e);
    sg_buf_free(&path);
    if (is_gone(code))
        code = e->code = SG_E_SNAPSHOT_NOT_FOUND;
    return code == SG_OK ? vercel_snapshot_parse(answer, len, out, e) : code;
}

/* A list of what belongs to one sandbox, or to the project: newest first. */
static enum sg_code list_of(struct vercel_client *c, const char *path, const char *sandbox, int limit,
                            const char *cursor, char **answer, size_t *len, struct sg_error *e)
{
    struct sg_buf query;
    sg_buf_init(&query, QUERY_MAX_BYTES);
    bool ok = sg_buf_addf(&query, "limit=%d", limit) && vercel_add_param(&query, "project", c->project_id) &&
              vercel_add_param(&query, "name", sandbox) && vercel_add_param(&query, "cursor", cursor) &&
              vercel_add_param(&query, "sortOrder", "desc");
    const struct vercel_request r = {
        .method = "GET",
        .path = path,
        .query = query.data,
        .idempotent = true,
        .means.on_404 = sandbox ? SG_E_SANDBOX_NOT_FOUND : SG_OK,
    };
    enum sg_code code = ok ? vercel_wait_body(c, &r, answer, len, e) : vercel_no_memory(e);
    sg_buf_free(&query);
    return code;
}

enum sg_code vercel_snapshot_list(struct vercel_client *c, const char *sandbox, int limit, const char *cursor,
                                  struct vercel_snapshot_page *out, struct sg_error *e)
{
    char *answer = NULL;
    size_t len = 0;
    *out = (struct vercel_snapshot_page){0};
    enum sg_code code = list_of(c, "/v2/sandboxes/snapshots", sandbox, limit, cursor, &answer, &len, e);
    return code == SG_OK ? vercel_snapshot_page_parse(answer, len, out, e) : code;
}

enum sg_code vercel_session_list(struct vercel_client *c, const char *sandbox, int limit, const char *cursor,
                                 struct vercel_session_page *out, struct sg_error *e)
{
    char *answer = NULL;
    size_t len = 0;
    *out = (struct vercel_session_page){0};
    enum sg_code code = list_of(c, "/v2/sandboxes/sessions", sandbox, limit, cursor, &answer, &len, e);
    return code == SG_OK ? vercel_session_page_parse(answer, len, out, e) : code;
}

enum sg_code vercel_snapshot_delete(struct vercel_client *c, const char *id, struct sg_error *e)
{
    struct sg_error own;
    struct sg_buf path;
    if (!e)
        e = &own;
    bool ok = id_path(&path, "/v2/sandboxes/snapshots/", id, "");
    const struct vercel_request r = {
        .method = "DELETE",
        .path = path.data,
        .idempotent = true,
        .means.on_404 = SG_E_SNAPSHOT_NOT_FOUND,
    };
    enum sg_code code = ok ? vercel_wait_void(c, &r, e) : vercel_no_memory(e);
    sg_buf_free(&path);
    if (is_gone(code)) { /* deleted already, or expired: what was asked for */
        sg_error_clear(e);
        code = SG_OK;
    }
    return code;
}

enum sg_code vercel_snapshot_take(struct vercel_client *c, const char *session_id, int64_t expire_ms,
                                  struct vercel_snapshot *out, struct sg_error *e)
{
    struct sg_buf path, body;
    char *answer = NULL;
    size_t len = 0;
    *out = (struct vercel_snapshot){0};
    sg_buf_init(&body, 64);
    bool ok = id_path(&path, "/v2/sandboxes/sessions/", session_id, "/snapshot") &&
              sg_buf_addf(&body, "{\"expiration\":%lld}", (long long)expire_ms);
    const struct vercel_request r = {
        .method = "POST",
        .path = path.data,
        .body = body.data,
        .body_len = body.len,
        .timeout_ms = VERCEL_LONG_WAIT_MS,
        .means.on_404 = SG_E_SANDBOX_NOT_FOUND,
    };
    enum sg_code code = ok ? vercel_wait_body(c, &r, &answer, &len, e) : vercel_no_memory(e);
    sg_buf_free(&path);
    sg_buf_free(&body);
    if (code == SG_OK)
        code = vercel_snapshot_parse(answer, len, out, e);
    if (code == SG_OK && out->status != VERCEL_SNAPSHOT_CREATED) {
        code = sg_fail(e, SG_E_UPSTREAM_UNAVAILABLE, SG_STARTED,
                       "The upstream stopped the session and could not take the snapshot (%s).",
                       vercel_snapshot_status_name(out->status));
        vercel_snapshot_clear(out);
    }
    return code;
}

/* ---- sandboxes and sessions ---- */

/* A call with a body about one sandbox, answered with it. */
static enum sg_code change(struct vercel_client *c, struct vercel_request *r, const char *base,
                           const char *name, const char *rest, const json_t *body, struct vercel_sandbox *out,
                           struct sg_error *e)
{
    struct sg_buf path, query;
    char *answer = NULL, *text = set_body(r, body);
    size_t len = 0;
    *out = (struct vercel_sandbox){0};
    sg_buf_init(&query, QUERY_MAX_BYTES);
    bool ok = id_path(&path, base, name, rest) && vercel_add_param(&query, "projectId", c->project_id);
    r->path = path.data;
    r->query = query.data;
    enum sg_code code = ok && text ? vercel_wait_body(c, r, &answer, &len, e) : vercel_no_memory(e);
    drop_body(text);
    sg_buf_free(&path);
    sg_buf_free(&query);
    return code == SG_OK ? vercel_sandbox_parse(answer, len, out, e) : code;
}

enum sg_code vercel_update(struct vercel_client *c, const char *name, const json_t *body,
                           struct vercel_sandbox *out, struct sg_error *e)
{
    struct vercel_request r = {
        .method = "PATCH",
        .idempotent = true,
        .means.on_404 = SG_E_SANDBOX_NOT_FOUND,
    };
    return change(c, &r, "/v2/sandboxes/", name, "", body, out, e);
}

enum sg_code vercel_fork(struct vercel_client *c, const char *source, const json_t *body,
                         struct vercel_sandbox *out, struct sg_error *e)
{
    struct sg_error own;
    if (!e)
        e = &own;
    struct vercel_request r = {
        .method = "POST",
        .timeout_ms = VERCEL_LONG_WAIT_MS,
        .spends = QUOTA_VCPUS,
        .units = vercel_vcpus(body),
        .means = {.on_404 = SG_E_SANDBOX_NOT_FOUND, .on_409 = SG_E_SANDBOX_EXISTS},
    };
    enum sg_code code = change(c, &r, "/v3/sandboxes/", source, "/fork", body, out, e);
    if (code == SG_E_STALE_SESSION) /* 410, and there is no session in this call */
        code = e->code = SG_E_SNAPSHOT_GONE;
    return code;
}

enum sg_code vercel_extend(struct vercel_client *c, const char *session_id, int64_t add_ms,
                           int64_t *timeout_ms, struct sg_error *e)
{
    struct sg_error own;
    struct sg_buf path, body;
    json_t *doc = NULL;
    if (!e)
        e = &own;
    *timeout_ms = -1;
    sg_buf_init(&body, 64);
    bool ok = id_path(&path, "/v2/sandboxes/sessions/", session_id, "/extend-timeout") &&
              sg_buf_addf(&body, "{\"duration\":%lld}", (long long)add_ms);
    const struct vercel_request r = {
        .method = "POST",
        .path = path.data,
        .body = body.data,
        .body_len = body.len,
        .means.on_404 = SG_E_STALE_SESSION,
    };
    enum sg_code code = ok ? vercel_wait_json(c, &r, &doc, e) : vercel_no_memory(e);
    sg_buf_free(&path);
    sg_buf_free(&body);
    if (code == SG_E_UPSTREAM_REJECTED && !strcmp(e->upstream_code, "sandbox_timeout_invalid"))
        code = e->code = SG_E_SESSION_LIMIT;
    if (code == SG_OK) {
        *timeout_ms = sg_jget_int(json_object_get(doc, "session"), "timeout", -1);
        if (*timeout_ms < 0)
            code = vercel_bad_answer(200, NULL, "has a session without its time", e);
    }
    json_decref(doc);
    return code;
}

enum sg_code vercel_session_owner(struct vercel_client *c, const char *session_id,
                                  char name[VERCEL_NAME_TEXT], struct sg_error *e)
{
    struct sg_error own;
    struct sg_buf path;
    json_t *doc = NULL;
    if (!e)
        e = &own;
    name[0] = '\0';
    bool ok = id_path(&path, "/v2/sandboxes/sessions/", session_id, "");
    const struct vercel_request r = {
        .method = "GET",
        .path = path.data,
        .idempotent = true,
        .means.on_404 = SG_E_SANDBOX_NOT_FOUND,
    };
    enum sg_code code = ok ? vercel_wait_json(c, &r, &doc, e) : vercel_no_memory(e);
    sg_buf_free(&path);
    if (code == SG_E_STALE_SESSION)
        code = e->code = SG_E_SANDBOX_NOT_FOUND;
    if (code == SG_OK) {
        const char *told = sg_jget_str(json_object_get(doc, "session"), "sourceSandboxName", "");
        if (*told && strlen(told) < VERCEL_NAME_TEXT)
            memcpy(name, told, strlen(told) + 1);
        else
            code = sg_fail(e, SG_E_SANDBOX_NOT_FOUND, SG_FINISHED, "the session's sandbox is not told");
    }
    json_decref(doc);
    return code;
}
