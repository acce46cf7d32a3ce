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
/* Answers {items, next_cursor}, with a Link where there is a next page: `path` with the query `same` (what was asked besides,
 * encoded, with a '&' in front; "": nothing).  Takes items over; next NULL: the last page. */
void page_answer(struct exchange *ex, json_t *items, const char *next, const struct page_query *q,
                 const char *path, const char *same);

#endif
