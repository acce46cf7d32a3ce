#include "vercel/sandboxes.h"

#include "vercel/answer.h"
#include "vercel/impl.h"

#include <stdlib.h>
#include <string.h>

enum { ID_MAX = 128, ROUTES_MAX = 64, PAGE_MAX = 1000 /* twenty times what is asked for */ };

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

enum vercel_status vercel_status_of(const struct sg_jnode *obj)
{
    const char *s = sg_jn_str(obj, "status", "");
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (!strcmp(statuses[i].name, s))
            return statuses[i].status;
    return VERCEL_STATUS_OTHER;
}

bool vercel_id_usable(const char *id)
{
    if (!id || !*id || strnlen(id, ID_MAX) >= ID_MAX)
        return false;
    for (const char *p = id; *p; p++)
        if (*p <= ' ' || *p > '~' || strchr("/?#", *p))
            return false;
    return true;
}

static enum sg_code bad(struct sg_error *e, const char *what)
{
    return vercel_bad_answer(200, NULL, what, e);
}

static enum sg_code read_sandbox(const struct sg_jnode *sb, struct vercel_sandbox *s, struct sg_error *e)
{
    s->name = sg_jn_str(sb, "name", NULL);
    if (!s->name || !*s->name)
        return bad(e, "has a sandbox without a name");
    if (!sg_jn_is(sg_jn_get(sb, "status"), SG_JSTRING))
        return bad(e, "has a sandbox without a status");
    const struct sg_jnode *created = sg_jn_get(sb, "createdAt");
    if (!sg_jn_is(created, SG_JINTEGER) && !sg_jn_is(created, SG_JREAL))
        return bad(e, "has a sandbox without its time of creation");
    s->persistent = sg_jn_bool(sb, "persistent", true);
    s->status = vercel_status_of(sb);
    s->region = sg_jn_str(sb, "region", NULL);
    s->image = sg_jn_str(sb, "image", NULL);
    s->runtime = sg_jn_str(sb, "runtime", NULL);
    s->cwd = sg_jn_str(sb, "cwd", NULL);
    s->architecture = sg_jn_str(sb, "architecture", NULL);
    s->current_snapshot_id = sg_jn_str(sb, "currentSnapshotId", NULL);
    s->network_id = sg_jn_str(sb, "networkId", NULL);
    s->session_id = sg_jn_str(sb, "currentSessionId", NULL);
    s->vcpus = sg_jn_int(sb, "vcpus", -1);
    s->memory_mb = sg_jn_int(sb, "memory", -1);
    s->timeout_ms = sg_jn_int(sb, "timeout", -1);
    s->created_at = sg_jn_int(sb, "createdAt", -1);
    s->updated_at = sg_jn_int(sb, "updatedAt", -1);
    s->expires_at = sg_jn_int(sb, "expiresAt", -1);
    s->status_updated_at = sg_jn_int(sb, "statusUpdatedAt", -1);
    s->snapshot_expiration_ms = sg_jn_int(sb, "snapshotExpiration", -1);
    const struct sg_jnode *keep = sg_jn_get(sb, "keepLastSnapshots");
    s->keep_count = sg_jn_int(keep, "count", -1);
    s->keep_expiration_ms = sg_jn_int(keep, "expiration", -1);
    s->keep_delete_evicted = sg_jn_is_bool(sg_jn_get(keep, "deleteEvicted"))
                                 ? (int64_t)sg_jn_bool(keep, "deleteEvicted", false)
                                 : -1;
    const struct sg_jnode *tags = sg_jn_get(sb, "tags");
    s->tags = sg_jn_is(tags, SG_JOBJECT) ? tags : NULL;
    if (s->tags && s->tags->len > VERCEL_TAGS_MAX)
        return bad(e, "has a sandbox with too many tags");
    const struct sg_jnode *failover = sg_jn_get(sb, "failoverRegions"), *mounts = sg_jn_get(sb, "mounts");
    s->failover_regions = sg_jn_is(failover, SG_JARRAY) ? failover : NULL;
    s->mounts = sg_jn_is(mounts, SG_JOBJECT) ? mounts : NULL;
    if ((s->failover_regions && s->failover_regions->len > VERCEL_REGIONS_MAX) ||
        (s->mounts && s->mounts->len > VERCEL_MOUNTS_MAX))
        return bad(e, "has a sandbox with too many regions or mounts");
    s->session_status = VERCEL_STATUS_OTHER;
    s->session_started_at = s->session_timeout_ms = -1;
    return SG_OK;
}

static enum sg_code read_session(const struct sg_jnode *session, struct vercel_sandbox *s, struct sg_error *e)
{
    if (!session)
        return SG_OK;
    const char *id = sg_jn_str(session, "id", NULL);
    if (!vercel_id_usable(id))
        return bad(e, "has a session without a usable id");
    s->session_id = id;
    s->session_status = vercel_status_of(session);
    s->session_cwd = sg_jn_str(session, "cwd", NULL);
    s->session_snapshot_id = sg_jn_str(session, "sourceSnapshotId", NULL);
    s->session_started_at = sg_jn_int(session, "startedAt", -1);
    s->session_timeout_ms = sg_jn_int(session, "timeout", -1);
    if (!s->architecture)
        s->architecture = sg_jn_str(session, "architecture", NULL);
    return SG_OK;
}

static enum sg_code read_routes(const struct sg_jnode *routes, struct vercel_sandbox *s, struct sg_error *e)
{
    if (!routes)
        return SG_OK;
    size_t n = routes->len;
    if (!sg_jn_is(routes, SG_JARRAY) || n > ROUTES_MAX)
        return bad(e, "has unusable routes");
    if (n == 0)
        return SG_OK;
    s->routes = calloc(n, sizeof *s->routes);
    if (!s->routes)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_OUTCOME_UNKNOWN, "No memory for the upstream's answer.");
    const struct sg_jnode *r = routes + 1;
    for (size_t i = 0; i < n; i++, r += r->span) {
        int64_t port = sg_jn_int(r, "port", 0);
        if (port < 1 || port > 65535)
            return bad(e, "has a route without a port");
        s->routes[i] =
            (struct vercel_route){sg_jn_str(r, "url", NULL), sg_jn_str(r, "subdomain", NULL), (int)port};
        s->nroutes = i + 1;
    }
    return SG_OK;
}

void vercel_sandbox_clear(struct vercel_sandbox *s)
{
    free(s->routes);
    sg_jdoc_free(&s->doc);
    *s = (struct vercel_sandbox){0};
}

enum sg_code vercel_read_object(char *text, size_t len, struct sg_jdoc *doc, struct sg_error *e)
{
    if (!sg_jdoc_parse(text, len, doc))
        free(text);
    else if (sg_jn_is(sg_jdoc_root(doc), SG_JOBJECT))
        return SG_OK;
    return bad(e, "is not a JSON object");
}

enum sg_code vercel_sandbox_parse(char *text, size_t len, struct vercel_sandbox *out, struct sg_error *e)
{
    *out = (struct vercel_sandbox){0};
    enum sg_code code = vercel_read_object(text, len, &out->doc, e);
    if (code == SG_OK) {
        const struct sg_jnode *answer = sg_jdoc_root(&out->doc);
        const struct sg_jnode *sb = sg_jn_get(answer, "sandbox");
        code = sg_jn_is(sb, SG_JOBJECT) ? read_sandbox(sb, out, e) : bad(e, "has no sandbox");
        if (code == SG_OK)
            code = read_session(sg_jn_get(answer, "session"), out, e);
        if (code == SG_OK)
            code = read_routes(sg_jn_get(answer, "routes"), out, e);
        out->resumed = sg_jn_bool(answer, "resumed", false);
    }
    if (code != SG_OK)
        vercel_sandbox_clear(out);
    return code;
}

/* ---- pages ---- */

void vercel_page_clear(struct vercel_page *p)
{
    free(p->items);
    sg_jdoc_free(&p->doc);
    *p = (struct vercel_page){0};
}

static enum sg_code read_entries(const struct sg_jnode *list, struct vercel_page *p, struct sg_error *e)
{
    if (list->len == 0)
        return SG_OK;
    p->items = calloc(list->len, sizeof *p->items);
    if (!p->items)
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_OUTCOME_UNKNOWN, "No memory for the upstream's answer.");
    const struct sg_jnode *entry = list + 1;
    for (; p->n < list->len; p->n++, entry += entry->span) {
        enum sg_code code = sg_jn_is(entry, SG_JOBJECT) ? read_sandbox(entry, &p->items[p->n], e)
                                                        : bad(e, "lists something that is not a sandbox");
        if (code != SG_OK)
            return code;
    }
    return SG_OK;
}

enum sg_code vercel_page_parse(char *text, size_t len, struct vercel_page *out, struct sg_error *e)
{
    *out = (struct vercel_page){0};
    enum sg_code code = vercel_read_object(text, len, &out->doc, e);
    if (code == SG_OK) {
        const struct sg_jnode *list = sg_jn_get(sg_jdoc_root(&out->doc), "sandboxes");
        const struct sg_jnode *pagination = sg_jn_get(sg_jdoc_root(&out->doc), "pagination");
        if (sg_jn_is(list, SG_JARRAY) && list->len <= PAGE_MAX && sg_jn_is(pagination, SG_JOBJECT))
            code = read_entries(list, out, e);
        else
            code = bad(e, "is not a page of sandboxes");
        out->next = sg_jn_str(pagination, "next", NULL);
    }
    if (code != SG_OK)
        vercel_page_clear(out);
    return code;
}
