/* Pages of sandboxes.  The upstream filters by one tag, by a prefix only in the order of names, and by a status only in that of
 * creation; whatever else is asked for is filtered here, over a bounded number of its pages. */
#include "control/control.h"
#include "control/record.h"
#include "control/tags.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/core/num.h"

#include <stdlib.h>
#include <string.h>

enum {
    PAGE_MAX = 50,     /* the upstream's ceiling for one page */
    PAGES_MAX = 10,    /* looked through for one answer */
    CURSOR_MAX = 4096, /* what the upstream's may be long */
    TAG_MAX = 4096,
};

static enum sg_code no_memory(struct sg_error *e, enum sg_outcome outcome)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, outcome, "no memory for the answer");
}

/* ---- where a page begins: an upstream's page, and how many of its items were passed already ---- */

struct place {
    char *cursor; /* the upstream's; NULL: its first page */
    uint64_t skip;
};

/* "SKIP:CURSOR" */
static enum sg_code place_parse(const char *text, struct place *p, struct sg_error *e)
{
    *p = (struct place){0};
    if (!text)
        return SG_OK;
    const char *colon = strchr(text, ':');
    if (!colon || !sg_parse_u64(text, (size_t)(colon - text), PAGE_MAX, &p->skip))
        return sg_fail_field(e, SG_E_INVALID_FIELD, "?cursor", "not a cursor of this list");
    if (!colon[1])
        return SG_OK;
    p->cursor = strdup(colon + 1);
    return p->cursor ? SG_OK : no_memory(e, SG_NOT_SENT);
}

static json_t *place_text(const struct place *p)
{
    struct sg_buf b;
    sg_buf_init(&b, CURSOR_MAX + 32);
    (void)sg_buf_addf(&b, "%llu:", (unsigned long long)p->skip);
    (void)sg_buf_adds(&b, p->cursor ? p->cursor : "");
    json_t *text = b.failed ? NULL : json_string(b.data);
    sg_buf_free(&b);
    return text;
}

/* ---- what is left to filter here ---- */

struct plan {
    struct vercel_list_query query;
    char tag[TAG_MAX];
    bool all_upstream; /* nothing is */
};

static enum sg_code make_plan(const struct control_list_query *q, struct plan *p, struct sg_error *e)
{
    static const char *const sort[] = {[CONTROL_BY_CREATED] = "createdAt",
                                       [CONTROL_BY_NAME] = "name",
                                       [CONTROL_BY_STATUS_CHANGED] = "statusUpdatedAt"};
    *p = (struct plan){
        .query = {.limit = PAGE_MAX, .sort_by = sort[q->sort], .sort_order = q->ascending ? "asc" : "desc"},
        .all_upstream = q->ntags < 2};
    if (q->ntags) {
        struct sg_buf b;
        sg_buf_init(&b, sizeof p->tag - 1);
        if (!sg_buf_addf(&b, "%s:%s", q->tags[0].key, q->tags[0].value)) {
            sg_buf_free(&b);
            return sg_fail_field(e, SG_E_INVALID_FIELD, "?tag", "too long");
        }
        memcpy(p->tag, b.data, b.len + 1);
        sg_buf_free(&b);
        p->query.tag = p->tag;
    }
    if (q->name_prefix && q->sort == CONTROL_BY_NAME)
        p->query.name_prefix = q->name_prefix;
    else if (q->name_prefix)
        p->all_upstream = false;
    bool known = q->status == VERCEL_RUNNING || q->status == VERCEL_STOPPING || q->status == VERCEL_STOPPED;
    if (q->by_status && known && q->sort == CONTROL_BY_CREATED)
        p->query.status = vercel_status_name(q->status);
    else if (q->by_status)
        p->all_upstream = false;
    return SG_OK;
}

static bool wanted(const struct control_list_query *q, const struct vercel_sandbox *s)
{
    if (q->name_prefix && strncmp(s->name, q->name_prefix, strlen(q->name_prefix)) != 0)
        return false;
    if (q->by_status && control_status(s) != q->status)
        return false;
    for (size_t i = 0; i < q->ntags; i++) {
        const char *value = control_tag_of(s, q->tags[i].key);
        if (!value || strcmp(value, q->tags[i].value) != 0)
            return false;
    }
    return true;
}

/* ---- the page ---- */

static enum sg_code add_item(struct control *c, json_t *items, const struct vercel_sandbox *s,
                             struct sg_error *e)
{
    json_t *r = control_record_now(c, s);
    (void)json_object_del(r, "routes"); /* a list does not tell them: absent, not empty */
    return json_array_append_new(items, r) ? no_memory(e, SG_FINISHED) : SG_OK;
}

/* Takes from one of the upstream's pages; *at is where to go on afterwards. */
static enum sg_code take(struct control *c, const struct control_list_query *q,
                         const struct vercel_page *page, struct place *at, json_t *items, bool *last,
                         struct sg_error *e)
{
    size_t i = (size_t)at->skip;
    for (; i < page->n && json_array_size(items) < (size_t)q->limit; i++) {
        enum sg_code rc = wanted(q, &page->items[i]) ? add_item(c, items, &page->items[i], e) : SG_OK;
        if (rc)
            return rc;
    }
    if (i < page->n) {
        at->skip = i;
        return SG_OK;
    }
    char *next = page->next ? strdup(page->next) : NULL;
    if (page->next && !next)
        return no_memory(e, SG_FINISHED);
    *last = !next || page->n == 0;
    free(at->cursor);
    *at = (struct place){.cursor = next};
    return SG_OK;
}

static enum sg_code collect(struct control *c, const struct control_list_query *q, struct plan *p,
                            struct place *at, json_t *items, bool *last, struct sg_error *e)
{
    for (int pages = 0; pages < PAGES_MAX && !*last; pages++) {
        int64_t left = q->limit - (int64_t)json_array_size(items);
        if (left <= 0)
            return SG_OK;
        if (q->given_up && q->given_up(q->given_up_arg))
            return sg_fail(e, SG_E_BAD_REQUEST, SG_FINISHED, "the client left");
        /* where nothing is filtered here pages end where the upstream's do, and nothing is asked for twice */
        p->query.limit = p->all_upstream && !at->skip && left < PAGE_MAX ? (int)left : PAGE_MAX;
        p->query.cursor = at->cursor;
        struct vercel_page page;
        enum sg_code rc = vercel_list(c->vercel, &p->query, &page, e);
        if (rc)
            return rc;
        rc = take(c, q, &page, at, items, last, e);
        vercel_page_clear(&page);
        if (rc)
            return rc;
    }
    return SG_OK;
}

enum sg_code control_list(struct control *c, const struct control_list_query *q, json_t **page,
                          struct sg_error *e)
{
    struct place at;
    struct plan plan;
    bool last = false;
    json_t *items = NULL, *next = NULL;
    enum sg_code rc = place_parse(q->cursor, &at, e);
    if (!rc)
        rc = make_plan(q, &plan, e);
    if (!rc && !(items = json_array()))
        rc = no_memory(e, SG_NOT_SENT);
    if (!rc)
        rc = collect(c, q, &plan, &at, items, &last, e);
    if (!rc && !last && !(next = place_text(&at)))
        rc = no_memory(e, SG_FINISHED);
    if (!rc) {
        *page = json_pack("{sOsO?}", "items", items, "next_cursor", next);
        if (!*page)
            rc = no_memory(e, SG_FINISHED);
    }
    json_decref(next);
    json_decref(items);
    free(at.cursor);
    return rc;
}
