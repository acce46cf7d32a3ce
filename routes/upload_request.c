#include "routes/conditions.h"
#include "routes/exchange.h"
#include "routes/upload_fields.h"
#include "transfer/fs_call.h"

static enum sg_code number_of(struct exchange *ex, const char *name, int64_t *out, struct sg_error *e)
{
    const char *header = ex_header(ex, name);
    *out = -1;
    if (!header || (!ex_header_line(ex, name, 1) && upload_number_parse(header, out)))
        return SG_OK;
    return sg_fail(e, SG_E_BAD_REQUEST, SG_NOT_SENT, "%s must be a number of bytes", name);
}

enum sg_code upload_fields_of(struct exchange *ex, struct upload_fields *f, struct sg_error *e)
{
    const char *complete = ex_header(ex, "Upload-Complete");
    f->has_complete = complete != NULL;
    f->complete = false;
    if (complete && (ex_header_line(ex, "Upload-Complete", 1) || !upload_flag_parse(complete, &f->complete)))
        return sg_fail(e, SG_E_BAD_REQUEST, SG_NOT_SENT, "Upload-Complete must be ?1 or ?0");
    enum sg_code rc = number_of(ex, "Upload-Offset", &f->offset, e);
    return rc ? rc : number_of(ex, "Upload-Length", &f->length, e);
}

enum sg_code upload_conditions(struct exchange *ex, struct fs_request *r, struct sg_error *e)
{
    struct conditions c;
    enum sg_code rc = conditions_of(ex, &c, e);
    if (rc)
        return rc;
    if (c.has_unmodified_since)
        return sg_fail(e, SG_E_UNSUPPORTED, SG_NOT_SENT,
                       "a date is too coarse to write by: name the file's state with If-Match");
    if (conditions_impossible(&c))
        return sg_fail(e, SG_E_PRECONDITION_FAILED, SG_NOT_SENT, "If-Match names no state of a file here");
    if (c.match.given)
        fs_request_text(r, "--if-match", c.match.any ? "*" : c.match.list);
    if (c.none_match.given && c.none_match.any)
        fs_request_flag(r, "--exclusive");
    else if (c.none_match.given && c.none_match.list[0])
        fs_request_text(r, "--unless", c.none_match.list);
    return SG_OK;
}
