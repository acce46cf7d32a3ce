#include "routes/conditions.h"

#include "base/clock.h"
#include "routes/exchange.h"

#include <string.h>

/* A list may come in several lines. */
static enum sg_code tags_of(struct exchange *ex, const char *name, bool weak, struct condition_tags *t,
                            struct sg_error *e)
{
    const char *line;
    for (size_t i = 0; (line = ex_header_line(ex, name, i)); i++) {
        switch (condition_tags_add(t, line, weak)) {
        case CONDITION_FINE:
            break;
        case CONDITION_TOO_MANY:
            return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT, "%s takes at most %d entity tags", name,
                           SG_FILE_TAGS_MAX);
        case CONDITION_MALFORMED:
        default:
            return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT,
                           "%s takes entity tags in double quotes, or one *", name);
        }
    }
    return SG_OK;
}

static bool date_of(struct exchange *ex, const char *name, int64_t *s)
{
    const char *text = ex_header(ex, name);
    return text && condition_date_parse(text, sg_wall_ms() / 1000, s);
}

enum sg_code conditions_of(struct exchange *ex, struct conditions *c, struct sg_error *e)
{
    bool reads = strcmp(ex->method, "GET") == 0 || strcmp(ex->method, "HEAD") == 0;
    *c = (struct conditions){.has_unmodified_since = false};
    enum sg_code rc = tags_of(ex, "If-Match", false, &c->match, e);
    if (!rc)
        rc = tags_of(ex, "If-None-Match", true, &c->none_match, e);
    c->has_unmodified_since = date_of(ex, "If-Unmodified-Since", &c->unmodified_since);
    c->has_modified_since = reads && date_of(ex, "If-Modified-Since", &c->modified_since);
    return rc;
}
