/* limit and cursor of a list, and the Link to its next page. */
#ifndef SG_ROUTES_PAGE_QUERY_H
#define SG_ROUTES_PAGE_QUERY_H

#include "routes/exchange.h"

enum { PAGE_DEFAULT = 20, PAGE_MAX = 100, PAGE_CURSOR_MAX = 1024 };

struct page_query {
    int64_t limit;
    const char *cursor; /* NULL: from the beginning */
};
/* The query may hold nothing else but what `allowed` lists (limit and cursor among it). */
SG_MUST_CHECK enum sg_code page_query(struct exchange *ex, const char *const allowed[], struct page_query *q,
                                      struct sg_error *e);
/* ---- pages of the upstream, which are smaller than ours; worker threads ---- */

enum { PAGE_UPSTREAM_MAX = 50 };
struct page_part {
    int limit;
    const char *cursor; /* NULL: from the beginning */
};
struct page_found {
    size_t n;   /* entries of the upstream, shown or not */
    char *next; /* to be freed; NULL: the last */
};
/* Appends the records of one page. */
typedef enum sg_code page_fn(void *arg, struct exchange *ex, const struct page_part *part, json_t *items,
                             struct page_found *found, struct sg_error *e);
SG_MUST_CHECK enum sg_code page_keep_next(const char *next, struct page_found *found, struct sg_error *e);
/* As many pages as it takes; *next is to be freed in any case. */
SG_MUST_CHECK enum sg_code page_collect(struct exchange *ex, const struct page_query *q, page_fn *fn,
                                        void *arg, json_t *items, char **next, struct sg_error *e);

/* Answers {items, next_cursor}, with a Link where there is a next page: `path` with the query `same` (what was asked besides,
 * encoded, with a '&' in front; "": nothing).  Takes items over; next NULL: the last page. */
void page_answer(struct exchange *ex, json_t *items, const char *next, const struct page_query *q,
                 const char *path, const char *same);

#endif
