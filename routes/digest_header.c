#include "routes/digest.h"

#include "routes/exchange.h"

enum sg_code digests_of(struct exchange *ex, const char *name, struct digest *d, struct sg_error *e)
{
    const char *header = ex_header(ex, name);
    d->given = d->given_512 = false;
    if (!header || (!ex_header_line(ex, name, 1) && digest_parse(header, d) != DIGEST_MALFORMED))
        return SG_OK;
    return sg_fail(e, SG_E_INVALID_FIELD, SG_NOT_SENT, "%s must be one line such as sha-256=:BASE64:", name);
}

enum sg_code digest_of(struct exchange *ex, const char *name, struct digest *d, struct sg_error *e)
{
    enum sg_code rc = digests_of(ex, name, d, e);
    if (!rc && !d->given && ex_header(ex, name))
        return sg_fail(e, SG_E_UNSUPPORTED, SG_NOT_SENT, "of digests sha-256 is checked: %s names none",
                       name);
    return rc;
}
