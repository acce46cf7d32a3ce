#include "routes/upload_fields.h"

#include "base/core/num.h"

#include <string.h>

/* The bare item without what stands around it; its length. */
static const char *item(const char *header, size_t *len)
{
    header += strspn(header, " ");
    *len = strcspn(header, "; ");
    const char *rest = header + *len;
    if (*rest == ' ')
        rest += strspn(rest, " ");
    return *rest && *rest != ';' ? NULL : header;
}

bool upload_flag_parse(const char *header, bool *out)
{
    size_t len;
    const char *s = item(header, &len);
    if (!s || len != 2 || s[0] != '?' || (s[1] != '0' && s[1] != '1'))
        return false;
    *out = s[1] == '1';
    return true;
}

bool upload_number_parse(const char *header, int64_t *out)
{
    size_t len;
    uint64_t n;
    const char *s = item(header, &len);
    if (!s || len > 15 || !sg_parse_u64(s, len, UPLOAD_NUMBER_MAX, &n))
        return false;
    *out = (int64_t)n;
    return true;
}

bool upload_state_parse(const char *word, struct upload_state *s)
{
    uint64_t length;
    const char *colon = strchr(word, ':'), *last = colon ? strchr(colon + 1, ':') : NULL;
    if (!last || !sg_parse_u64(word, (size_t)(colon - word), INT64_MAX, &s->offset))
        return false;
    bool known = strncmp(colon, ":-:", 3) != 0;
    if (known && !sg_parse_u64(colon + 1, (size_t)(last - colon - 1), INT64_MAX, &length))
        return false;
    s->length = known ? (int64_t)length : -1;
    s->done = strcmp(last, ":done") == 0;
    return s->done || strcmp(last, ":open") == 0;
}
