#include "vercel/sandboxes.h"

#include "vercel/answer.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

enum { ROUTES_MAX = 64 };

static const struct {
    const char *name;
    enum vercel_status status;
} statuses[] = {
    {"pending", VERCEL_PENDING},           {"running", VERCEL_RUNNING}, {"stopping", VERCEL_STOPPING},
    {"stopped", VERCEL_STOPPED},           {"failed", VERCEL_FAILED},   {"aborted", VERCEL_ABORTED},
    {"snapshotting", VERCEL_SNAPSHOTTING},
};

const char *vercel_status_name(enum vercel_status s)
{
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].status == s)
            return statuses[i].name;
    return "unknown";
}

static enum vercel_status status_of(const json_t *obj)
{
    const char *s = sg_jget_str(obj, "status", "");
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (!strcmp(statuses[i].name, s))
            return statuses[i].status;
    return VERCEL_STATUS_OTHER;
}

static enum sg_code bad(struct sg_error *e, const char *what)
{
    return vercel_bad_answer(200, NULL, what, e);
}

static enum sg_code read_sandbox(json_t *sb, struct vercel_sandbox *s, struct sg_error *e)
{
    s->name = sg_jget_str(sb, "name", NULL);
    if (!s->name || !*s->name)
        return bad(e, "has a sandbox without a name");
    if (!json_is_string(json_object_get(sb, "status")))
        return bad(e, "has a sandbox without a status");
    if (!json_is_number(json_object_get(sb, "createdAt")))
        return bad(e, "has a sandbox without its time of creation");
    s->persistent = sg_jget_bool(sb, "persistent", true);
    s->status = status_of(sb);
    s->region = sg_jget_str(sb, "region", NULL);
    s->image = sg_jget_str(sb, "image", NULL);
    s->runtime = sg_jget_str(sb, "runtime", NULL);
    s->cwd = sg_jget_str(sb, "cwd", NULL);
    s->architecture = sg_jget_str(sb, "architecture", NULL);
    s->current_snapshot_id = sg_jget_str(sb, "currentSnapshotId", NULL);
    s->session_id = sg_jget_str(sb, "currentSessionId", NULL);
    s->vcpus = sg_jget_int(sb, "vcpus", -1);
    s->memory_mb = sg_jget_int(sb, "memory", -1);
    s->timeout_ms = sg_jget_int(sb, "timeout", -1);
    s->created_at = sg_jget_int(sb, "createdAt", -1);
    s->updated_at = sg_jget_int(sb, "updatedAt", -1);
    s->expires_at = sg_jget_int(sb, "expiresAt", -1);
    s->status_updated_at = sg_jget_int(sb, "statusUpdatedAt", -1);
    s->snapshot_expiration_ms = sg_jget_int(sb, "snapshotExpiration", -1);
    const json_t *keep = json_object_get(sb, "keepLastSnapshots");
    s->keep_count = sg_jget_int(keep, "count", -1);
    s->keep_delete_evicted = json_is_boolean(json_object_get(keep, "deleteEvicted"))
                                 ? (int64_t)sg_jget_bool(keep, "deleteEvicted", false)
                                 : -1;
    json_t *tags = json_object_get(sb, "tags");
    s->tags = json_is_object(tags) ? tags : NULL;
    s->session_status = VERCEL_STATUS_OTHER;
    s->session_started_at = s->session_timeout_ms = -1;
    return SG_OK;
}

static enum sg_code read_session(const json_t *session, struct vercel_sandbox *s, struct sg_error *e)
{
    if (!session)
        return SG_OK;
    const char *id = sg_jget_str(session, "id", NULL);
    if (!id || !*id || strchr(id, '/') || strchr(id, '?') || strchr(id, '#'))
        return bad(e, "has a session without a usable id");
    s->session_id = id;
    s->session_status = status_of(session);
    s->session_cwd = sg_jget_str(session, "cwd", NULL);
    s->session_started_at = sg_jget_int(session, "startedAt", -1);
    s->session_timeout_ms = sg_jget_int(session, "timeout", -1);
    if (!s->architecture)
        s->architecture = sg_jget_str(session, "architecture", NULL);
    return SG_OK;
}

static enum sg_code read_routes(const json_t *routes, struct vercel_sandbox *s, struct sg_error *e)
{
    if (!routes)
        return SG_OK;
    size_t n = json_array_size(routes);
    if (!json_is_array(routes) || n > ROUTES_MAX)
        return bad(e, "has unusable routes");
    if (n == 0)
        return SG_OK;
    s->routes = calloc(n, sizeof *s->routes);
    if (!s->routes)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_OUTCOME_UNKNOWN, "No memory for the upstream's answer.");
    for (size_t i = 0; i < n; i++) {
        const json_t *r = json_array_get(routes, i);
        int64_t port = sg_jget_int(r, "port", 0);
        if (port < 1 || port > 65535)
            return bad(e, "has a route without a port");
        s->routes[i] =
            (struct vercel_route){sg_jget_str(r, "url", NULL), sg_jget_str(r, "subdomain", NULL), (int)port};
        s->nroutes = i + 1;
    }
    return SG_OK;
}

void vercel_sandbox_clear(struct vercel_sandbox *s)
{
    free(s->routes);
    json_decref(s->doc);
    *s = (struct vercel_sandbox){0};
}

static enum sg_code keep(enum sg_code code, json_t *doc, struct vercel_sandbox *s)
{
    if (code == SG_OK)
        s->doc = json_incref(doc);
    else
        vercel_sandbox_clear(s);
    return code;
}

enum sg_code vercel_sandbox_parse(json_t *answer, struct vercel_sandbox *out, struct sg_error *e)
{
    *out = (struct vercel_sandbox){0};
    json_t *sb = json_object_get(answer, "sandbox");
    if (!json_is_object(sb))
        return bad(e, "has no sandbox");
    enum sg_code code = read_sandbox(sb, out, e);
    if (code == SG_OK)
        code = read_session(json_object_get(answer, "session"), out, e);
    if (code == SG_OK)
        code = read_routes(json_object_get(answer, "routes"), out, e);
    out->resumed = sg_jget_bool(answer, "resumed", false);
    return keep(code, answer, out);
}

enum sg_code vercel_sandbox_parse_entry(json_t *entry, struct vercel_sandbox *out, struct sg_error *e)
{
    *out = (struct vercel_sandbox){0};
    if (!json_is_object(entry))
        return bad(e, "lists something that is not a sandbox");
    return keep(read_sandbox(entry, out, e), entry, out);
}
