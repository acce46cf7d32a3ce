#include "routes/page_query.h"

#include "base/buf.h"

#include <stdlib.h>
#include <string.h>

enum { LINK_MAX = 8192 };

enum sg_code page_query(struct exchange *ex, const char *const allowed[], struct page_query *q,
                        struct sg_error *e)
{
    size_t len = 0;
    *q = (struct page_query){.limit = PAGE_DEFAULT};
    enum sg_code rc = ex_query_only(ex, allowed, e);
    if (!rc)
        rc = ex_query_int(ex, "limit", 1, PAGE_MAX, &q->limit, e);
    if (!rc)
        q->cursor = ex_query(ex, "cursor", &len);
    if (!rc && q->cursor && (len == 0 || len > PAGE_CURSOR_MAX))
        rc = sg_fail_field(e, SG_E_INVALID_FIELD, "?cursor", "must be the next_cursor of a page");
    return rc;
}

void page_answer(struct exchange *ex, json_t *items, const char *next, const struct page_query *q,
                 const char *path, const char *same)
{
    struct sg_buf b;
    json_t *page = json_pack("{soss?}", "items", items, "next_cursor", next);
    if (!page) {
        struct sg_error e;
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
        ex_fail(ex, &e);
        return;
    }
    if (next) {
        sg_buf_init(&b, LINK_MAX);
        (void)sg_buf_addf(&b, "<%s?limit=%lld%s&cursor=", path, (long long)q->limit, same);
        (void)sg_buf_add_urlenc(&b, next);
        (void)sg_buf_adds(&b, ">; rel=\"next\"");
        if (!b.failed)
            ex_set_header(ex, "Link", b.data);
        sg_buf_free(&b);
    }
    ex_answer_json(ex, 200, page);
}

static enum sg_code no_memory(struct sg_error *e)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
}

enum sg_code page_keep_next(const char *next, struct page_found *found, struct sg_error *e)
{
    found->next = next ? strdup(next) : NULL;
    return next && !found->next ? no_memory(e) : SG_OK;
}

enum sg_code page_collect(struct exchange *ex, const struct page_query *q, page_fn *fn, void *arg,
                          json_t *items, char **next, struct sg_error *e)
{
    *next = q->cursor ? strdup(q->cursor) : NULL;
    if (q->cursor && !*next)
        return no_memory(e);
    for (int64_t left = q->limit; left > 0 && !ex_is_gone(ex);) {
        const struct page_part part = {(int)(left < PAGE_UPSTREAM_MAX ? left : PAGE_UPSTREAM_MAX), *next};
        struct page_found found = {0};
        enum sg_code rc = fn(arg, ex, &part, items, &found, e);
        free(*next);
        *next = found.next;
        if (rc)
            return rc;
        left -= (int64_t)found.n;
        if (!*next || found.n == 0)
            break;
    }
    return SG_OK;
}
