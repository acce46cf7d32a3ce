#include "routes/digest.h"

#include "routes/exchange.h"

enum sg_code digest_of(struct exchange *ex, const char *name, struct digest *d, struct sg_error *e)
{
    const char *header = ex_header(ex, name);
    d->given = false;
    if (!header)
        return SG_OK;
    switch (ex_header_line(ex, name, 1) ? DIGEST_MALFORMED : digest_parse(header, d)) {
    case DIGEST_FINE:
        return SG_OK;
    case DIGEST_OTHER:
        return sg_fail(e, SG_E_UNSUPPORTED, SG_NOT_SENT, "of digests sha-256 is checked: %s names none",
                       name);
    case DIGEST_MALFORMED:
    default:
        return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT,
                       "%s must be one line such as sha-256=:BASE64:", name);
    }
}
