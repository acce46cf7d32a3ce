#include "vercel/snapshots.h"

#include "vercel/answer.h"
#include "vercel/impl.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE_MAX = 1000 /* twenty times what is asked for */ };

static const struct {
    const char *name;
    enum vercel_snapshot_status status;
} statuses[] = {
    {"created", VERCEL_SNAPSHOT_CREATED},
    {"deleted", VERCEL_SNAPSHOT_DELETED},
    {"failed", VERCEL_SNAPSHOT_FAILED},
};

const char *vercel_snapshot_status_name(enum vercel_snapshot_status s)
{
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].status == s)
            return statuses[i].name;
    return "unknown";
}

static enum vercel_snapshot_status status_of(const char *name)
{
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (!strcmp(statuses[i].name, name))
            return statuses[i].status;
    return VERCEL_SNAPSHOT_OTHER;
}

static enum sg_code bad(struct sg_error *e, const char *what)
{
    return vercel_bad_answer(200, NULL, what, e);
}

static enum sg_code no_memory_for_answer(struct sg_error *e)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_OUTCOME_UNKNOWN, "No memory for the upstream's answer.");
}

/* A number of milliseconds or bytes; what is none is as if it were absent. */
static int64_t number(const struct sg_jnode *obj, const char *key)
{
    int64_t v = sg_jn_int(obj, key, -1);
    return v >= 0 ? v : -1;
}

/* ---- snapshots ---- */

/* More than fit are left out: nothing is refused for want of a region that is not in the list. */
static void read_regions(const struct sg_jnode *sn, struct vercel_snapshot *s)
{
    const struct sg_jnode *list = sg_jn_get(sn, "regions");
    size_t n = 0;
    if (sg_jn_is(list, SG_JARRAY)) {
        const struct sg_jnode *r = list + 1;
        for (size_t i = 0; i < list->len && n < VERCEL_SNAPSHOT_REGIONS; i++, r += r->span)
            if (r->type == SG_JSTRING && r->len > 0)
                s->regions[n++] = r->u.text;
    }
    if (n == 0 && s->region)
        s->regions[n++] = s->region;
    s->regions[n] = NULL;
}

static enum sg_code read_snapshot(const struct sg_jnode *sn, struct vercel_snapshot *s, struct sg_error *e)
{
    if (!sg_jn_is(sn, SG_JOBJECT))
        return bad(e, "has something that is not a snapshot");
    const struct sg_jnode *status = sg_jn_get(sn, "status");
    s->id = sg_jn_str(sn, "id", NULL);
    if (!vercel_id_usable(s->id))
        return bad(e, "has a snapshot without a usable id");
    if (!sg_jn_is(status, SG_JSTRING))
        return bad(e, "has a snapshot without a status");
    s->status = status_of(status->u.text);
    s->created_at = number(sn, "createdAt");
    if (s->created_at < 0)
        return bad(e, "has a snapshot without its time of creation");
    s->source_session_id = sg_jn_str(sn, "sourceSessionId", NULL);
    s->region = sg_jn_str(sn, "region", NULL);
    s->parent_id = sg_jn_str(sn, "parentId", NULL);
    s->architecture = sg_jn_str(sn, "architecture", NULL);
    s->creation_method = sg_jn_str(sn, "creationMethod", NULL);
    s->size_bytes = number(sn, "sizeBytes");
    s->updated_at = number(sn, "updatedAt");
    s->last_used_at = number(sn, "lastUsedAt");
    s->expires_at = number(sn, "expiresAt");
    read_regions(sn, s);
    return SG_OK;
}

void vercel_snapshot_clear(struct vercel_snapshot *s)
{
    sg_jdoc_free(&s->doc);
    *s = (struct vercel_snapshot){0};
}

enum sg_code vercel_snapshot_parse(char *text, size_t len, struct vercel_snapshot *out, struct sg_error *e)
{
    *out = (struct vercel_snapshot){0};
    enum sg_code code = vercel_read_object(text, len, &out->doc, e);
    if (code == SG_OK)
        code = read_snapshot(sg_jn_get(sg_jdoc_root(&out->doc), "snapshot"), out, e);
    if (code != SG_OK)
        vercel_snapshot_clear(out);
    return code;
}

/* ---- pages ---- */

/* The list of that name in a page, and the cursor of the page after it. */
static enum sg_code read_page(char *text, size_t len, const char *member, struct sg_jdoc *doc,
                              const struct sg_jnode **list, const char **next, struct sg_error *e)
{
    enum sg_code code = vercel_read_object(text, len, doc, e);
    if (code != SG_OK)
        return code;
    const struct sg_jnode *pagination = sg_jn_get(sg_jdoc_root(doc), "pagination");
    *list = sg_jn_get(sg_jdoc_root(doc), member);
    *next = sg_jn_str(pagination, "next", NULL);
    if (!sg_jn_is(*list, SG_JARRAY) || (*list)->len > PAGE_MAX || !sg_jn_is(pagination, SG_JOBJECT))
        return bad(e, "is not a page of a list");
    return SG_OK;
}

void vercel_snapshot_page_clear(struct vercel_snapshot_page *p)
{
    free(p->items);
    sg_jdoc_free(&p->doc);
    *p = (struct vercel_snapshot_page){0};
}

static enum sg_code read_snapshots(const struct sg_jnode *list, struct vercel_snapshot_page *p,
                                   struct sg_error *e)
{
    if (list->len == 0)
        return SG_OK;
    p->items = calloc(list->len, sizeof *p->items);
    if (!p->items)
        return no_memory_for_answer(e);
    const struct sg_jnode *entry = list + 1;
    for (; p->n < list->len; p->n++, entry += entry->span) {
        enum sg_code code = read_snapshot(entry, &p->items[p->n], e);
        if (code != SG_OK)
            return code;
    }
    return SG_OK;
}

enum sg_code vercel_snapshot_page_parse(char *text, size_t len, struct vercel_snapshot_page *out,
                                        struct sg_error *e)
{
    const struct sg_jnode *list = NULL;
    *out = (struct vercel_snapshot_page){0};
    enum sg_code code = read_page(text, len, "snapshots", &out->doc, &list, &out->next, e);
    if (code == SG_OK)
        code = read_snapshots(list, out, e);
    if (code != SG_OK)
        vercel_snapshot_page_clear(out);
    return code;
}

/* ---- sessions ---- */

void vercel_session_page_clear(struct vercel_session_page *p)
{
    free(p->items);
    sg_jdoc_free(&p->doc);
    *p = (struct vercel_session_page){0};
}

static enum sg_code read_session(const struct sg_jnode *se, struct vercel_session *s, struct sg_error *e)
{
    if (!sg_jn_is(se, SG_JOBJECT))
        return bad(e, "lists something that is not a session");
    s->id = sg_jn_str(se, "id", NULL);
    if (!vercel_id_usable(s->id))
        return bad(e, "has a session without a usable id");
    s->created_at = number(se, "createdAt");
    if (s->created_at < 0)
        return bad(e, "has a session without its time of creation");
    s->status = vercel_status_of(se);
    s->region = sg_jn_str(se, "region", NULL);
    s->source_snapshot_id = sg_jn_str(se, "sourceSnapshotId", NULL);
    s->started_at = number(se, "startedAt");
    s->stopped_at = number(se, "stoppedAt");
    s->timeout_ms = number(se, "timeout");
    s->vcpus = number(se, "vcpus");
    s->memory_mb = number(se, "memory");
    return SG_OK;
}

static enum sg_code read_sessions(const struct sg_jnode *list, struct vercel_session_page *p,
                                  struct sg_error *e)
{
    if (list->len == 0)
        return SG_OK;
    p->items = calloc(list->len, sizeof *p->items);
    if (!p->items)
        return no_memory_for_answer(e);
    const struct sg_jnode *entry = list + 1;
    for (; p->n < list->len; p->n++, entry += entry->span) {
        enum sg_code code = read_session(entry, &p->items[p->n], e);
        if (code != SG_OK)
            return code;
    }
    return SG_OK;
}

enum sg_code vercel_session_page_parse(char *text, size_t len, struct vercel_session_page *out,
                                       struct sg_error *e)
{
    const struct sg_jnode *list = NULL;
    *out = (struct vercel_session_page){0};
    enum sg_code code = read_page(text, len, "sessions", &out->doc, &list, &out->next, e);
    if (code == SG_OK)
        code = read_sessions(list, out, e);
    if (code != SG_OK)
        vercel_session_page_clear(out);
    return code;
}
