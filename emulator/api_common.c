#include "emulator/api.h"
#include "base/core/num.h"

#include <string.h>

struct session *api_session(struct request *rq)
{
    struct session *s = state_session(rq->emu->state, rq->param[0]);
    if (!s)
        api_fail(&rq->err, 404, "not_found", "Session not found");
    return s;
}

int api_page(struct request *rq, size_t n, const char *(*id_of)(void *item), void **items, struct page *out)
{
    const char *limit = request_query(rq, "limit"), *cursor = request_query(rq, "cursor");
    uint64_t max = 20;
    if (*limit && (!sg_parse_u64(limit, strlen(limit), 50, &max) || max == 0))
        return api_invalid(&rq->err, "`limit` should be >= 1 and <= 50.");
    out->from = 0;
    if (*cursor) {
        while (out->from < n && strcmp(id_of(items[out->from]), cursor) != 0)
            out->from++;
        if (out->from == n)
            return api_invalid(&rq->err, "`cursor` is not valid any more.");
        out->from++; /* the cursor is the last item that was seen */
    }
    out->to = n - out->from > max ? out->from + (size_t)max : n;
    out->more = out->to < n;
    return 0;
}

int api_order(struct request *rq)
{
    const char *o = request_query(rq, "sortOrder");
    if (!*o || !strcmp(o, "desc"))
        return -1;
    if (!strcmp(o, "asc"))
        return 1;
    api_invalid(&rq->err, "`sortOrder` should be equal to one of the allowed values \"asc, desc\".");
    return 0;
}
