#include "routes/range.h"

#include <string.h>
#include <strings.h>

/* Digits at *p, which moves behind them.  False: there are none. */
static bool number(const char **p, uint64_t *out)
{
    const char *start = *p;
    uint64_t n = 0;
    for (; **p >= '0' && **p <= '9'; (*p)++) {
        uint64_t digit = (uint64_t)(**p - '0');
        n = n > (UINT64_MAX - digit) / 10 ? UINT64_MAX : n * 10 + digit;
    }
    *out = n;
    return *p > start;
}

/* Of digits of any number. */
static bool is_less(const char *a, const char *b)
{
    a += strspn(a, "0");
    b += strspn(b, "0");
    size_t n = strspn(a, "0123456789"), m = strspn(b, "0123456789");
    return n != m ? n < m : memcmp(a, b, n) < 0;
}

bool range_parse(const char *header, struct byte_range *out)
{
    if (!header || strncasecmp(header, "bytes=", 6) != 0)
        return false;
    const char *p = header + 6;
    p += strspn(p, " \t");
    *out = (struct byte_range){.last = UINT64_MAX};
    if (*p == '-') {
        p++;
        out->suffix = true;
        if (!number(&p, &out->first))
            return false;
    } else {
        const char *first = p;
        if (!number(&p, &out->first) || *p++ != '-')
            return false;
        const char *last = p;
        if (!number(&p, &out->last))
            out->last = UINT64_MAX; /* to the end */
        else if (is_less(last, first))
            return false;
    }
    return p[strspn(p, " \t")] == '\0';
}

enum range_fit range_resolve(const struct byte_range *r, uint64_t size, uint64_t *from, uint64_t *len)
{
    if (r->suffix) {
        if (r->first == 0)
            return RANGE_OUTSIDE;
        if (size == 0)
            return RANGE_WHOLE;
        *len = r->first < size ? r->first : size;
        *from = size - *len;
        return RANGE_PART;
    }
    if (r->first >= size)
        return RANGE_OUTSIDE;
    *from = r->first;
    *len = (r->last < size ? r->last + 1 : size) - r->first;
    return RANGE_PART;
}
