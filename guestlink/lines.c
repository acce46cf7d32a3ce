#include "guestlink/lines.h"

#include <string.h>

enum lines_step lines_next(struct lines *l, const char **data, size_t *len, const char **line, size_t *n)
{
    if (l->whole) { /* l->len stays its length until it is taken */
        l->whole = false;
        *line = l->buf;
        *n = l->len;
        l->len = 0;
        return LINES_LINE;
    }
    const char *lf = *len ? memchr(*data, '\n', *len) : NULL;
    size_t take = lf ? (size_t)(lf - *data) : *len;
    if (take > sizeof l->buf - l->len)
        return LINES_TOO_LONG;
    if (lf && l->len == 0) { /* the common case: a whole line in one piece */
        *line = *data;
        *n = take;
    } else {
        if (take)
            memcpy(l->buf + l->len, *data, take);
        l->len += take;
    }
    *data += take + (lf ? 1 : 0);
    *len -= take + (lf ? 1 : 0);
    if (!lf)
        return LINES_MORE;
    if (l->len) {
        *line = l->buf;
        *n = l->len;
        l->len = 0;
    }
    return LINES_LINE;
}

void lines_give_back(struct lines *l, const char *line, size_t n)
{
    if (line != l->buf)
        memcpy(l->buf, line, n);
    l->len = n;
    l->whole = true;
}
