/* GET /v1/sandboxes */
#include "routes/handlers.h"

#include "base/buf.h"
#include "base/json.h"
#include "control/tags.h"
#include "routes/gateway.h"

#include <string.h>

enum { LIST_DEFAULT = 20, LIST_MAX = 100, CURSOR_MAX = 4096, PREFIX_MAX = 128, LINK_MAX = 16384 };

/* A query value of at most `max` bytes; NULL when absent. */
static enum sg_code query_text(struct exchange *ex, const char *key, const char *pointer, size_t max,
                               const char **out, struct sg_error *e)
{
    size_t len = 0;
    *out = ex_query(ex, key, &len);
    if (*out && len > max)
        return sg_fail_field(e, SG_E_INVALID_FIELD, pointer, "at most %zu bytes", max);
    return SG_OK;
}

static enum sg_code read_tags(struct exchange *ex, struct control_list_query *q, struct sg_error *e)
{
    const char *key, *value;
    size_t len;
    for (; (value = ex_query_below(ex, "tag.", q->ntags, &key, &len)); q->ntags++) {
        char pointer[64 + 8];
        (void)snprintf(pointer, sizeof pointer, "?tag.%.60s", key);
        if (q->ntags == CONTROL_LIST_TAGS)
            return sg_fail_field(e, SG_E_INVALID_FIELD, pointer, "at most %d tags", CONTROL_LIST_TAGS);
        if (strlen(key) > CONTROL_TAG_KEY_MAX || strchr(key, ':') || len > (size_t)4 * CONTROL_TAG_VALUE_MAX)
            return sg_fail_field(e, SG_E_INVALID_FIELD, pointer, "no tag can be this one");
        if (control_tag_reserved(key) && strcmp(key, CONTROL_TAG_OWNER) != 0)
            return sg_fail_field(e, SG_E_INVALID_FIELD, pointer,
                                 "tags beginning with \"%s\" are the gateway's", CONTROL_TAG_RESERVED);
        q->tags[q->ntags].key = key;
        q->tags[q->ntags].value = value;
    }
    return SG_OK;
}

static enum sg_code read_status(struct exchange *ex, struct control_list_query *q, struct sg_error *e)
{
    const char *status = ex_query(ex, "status", NULL);
    if (!status)
        return SG_OK;
    q->by_status = true;
    for (q->status = VERCEL_PENDING; q->status < VERCEL_STATUS_OTHER; q->status++)
        if (strcmp(status, vercel_status_name(q->status)) == 0)
            return SG_OK;
    return sg_fail_field(e, SG_E_INVALID_FIELD, "?status", "no such status");
}

/* A '-' in front: descending. */
static enum sg_code read_sort(struct exchange *ex, struct control_list_query *q, struct sg_error *e)
{
    static const char *const orders[] = {[CONTROL_BY_CREATED] = "created_at",
                                         [CONTROL_BY_NAME] = "name",
                                         [CONTROL_BY_STATUS_CHANGED] = "status_changed_at"};
    const char *sort = ex_query(ex, "sort", NULL);
    if (!sort) {
        q->sort = q->name_prefix ? CONTROL_BY_NAME : CONTROL_BY_CREATED;
        q->ascending = q->name_prefix != NULL;
        return SG_OK;
    }
    q->ascending = *sort != '-';
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        if (strcmp(sort + !q->ascending, orders[i]) == 0) {
            q->sort = (enum control_sort)i;
            return SG_OK;
        }
    return sg_fail_field(e, SG_E_INVALID_FIELD, "?sort",
                         "must be name, created_at or status_changed_at, with a '-' in front for descending");
}

static bool given_up(void *arg)
{
    return ex_is_gone(arg);
}

/* Link to the next page: what was asked, with the cursor that follows. */
static void set_next_link(struct exchange *ex, const struct control_list_query *q, const char *next)
{
    static const char *const same[] = {"name_prefix", "status", "sort", NULL};
    struct sg_buf b;
    sg_buf_init(&b, LINK_MAX);
    (void)sg_buf_addf(&b, "</v1/sandboxes?limit=%lld&cursor=", (long long)q->limit);
    (void)sg_buf_add_urlenc(&b, next);
    for (size_t i = 0; same[i]; i++) {
        const char *value = ex_query(ex, same[i], NULL);
        if (!value)
            continue;
        (void)sg_buf_addf(&b, "&%s=", same[i]);
        (void)sg_buf_add_urlenc(&b, value);
    }
    for (size_t i = 0; i < q->ntags; i++) {
        (void)sg_buf_adds(&b, "&tag.");
        (void)sg_buf_add_urlenc(&b, q->tags[i].key);
        (void)sg_buf_adds(&b, "=");
        (void)sg_buf_add_urlenc(&b, q->tags[i].value);
    }
    (void)sg_buf_adds(&b, ">; rel=\"next\"");
    if (!b.failed)
        ex_set_header(ex, "Link", b.data);
    sg_buf_free(&b);
}

static enum sg_code list(struct exchange *ex, json_t **page, struct sg_error *e)
{
    static const char *const allowed[] = {"limit", "cursor", "name_prefix", "tag.*", "status", "sort", NULL};
    struct control_list_query q = {.limit = LIST_DEFAULT, .given_up = given_up, .given_up_arg = ex};
    enum sg_code rc = ex_query_only(ex, allowed, e);
    if (!rc)
        rc = ex_query_int(ex, "limit", 1, LIST_MAX, &q.limit, e);
    if (!rc)
        rc = query_text(ex, "cursor", "?cursor", CURSOR_MAX, &q.cursor, e);
    if (!rc)
        rc = query_text(ex, "name_prefix", "?name_prefix", PREFIX_MAX, &q.name_prefix, e);
    if (!rc)
        rc = read_tags(ex, &q, e);
    if (!rc)
        rc = read_status(ex, &q, e);
    if (!rc)
        rc = read_sort(ex, &q, e);
    if (!rc)
        rc = control_list(ex->gw->control, &q, page, e);
    const char *next = rc ? NULL : sg_jget_str(*page, "next_cursor", NULL);
    if (next)
        set_next_link(ex, &q, next);
    return rc;
}

void route_sandbox_list(struct exchange *ex)
{
    struct sg_error e;
    json_t *page = NULL;
    if (list(ex, &page, &e))
        ex_fail(ex, &e);
    else
        ex_answer_json(ex, 200, page);
}
