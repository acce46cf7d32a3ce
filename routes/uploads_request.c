/* What requests to …/files/uploads ask for: checked whole, then begun. */
#include "routes/uploads.h"

#include "base/crypto.h"
#include "routes/conditions.h"
#include "routes/digest.h"
#include "routes/handlers.h"

#include <string.h>
#include <strings.h>

static enum sg_code number_of(struct exchange *ex, const char *name, int64_t *out, struct sg_error *e)
{
    const char *header = ex_header(ex, name);
    *out = -1;
    if (!header || (!ex_header_line(ex, name, 1) && upload_number_parse(header, out)))
        return SG_OK;
    return sg_fail(e, SG_E_BAD_REQUEST, SG_NOT_SENT, "%s must be a number of bytes", name);
}

static enum sg_code fields_of(struct exchange *ex, struct upload_fields *f, struct sg_error *e)
{
    const char *complete = ex_header(ex, "Upload-Complete");
    f->has_complete = complete != NULL;
    f->complete = false;
    if (complete && (ex_header_line(ex, "Upload-Complete", 1) || !upload_flag_parse(complete, &f->complete)))
        return sg_fail(e, SG_E_BAD_REQUEST, SG_NOT_SENT, "Upload-Complete must be ?1 or ?0");
    enum sg_code rc = number_of(ex, "Upload-Offset", &f->offset, e);
    return rc ? rc : number_of(ex, "Upload-Length", &f->length, e);
}

static enum sg_code add_conditions(struct exchange *ex, struct fs_request *q, struct sg_error *e)
{
    struct conditions c;
    enum sg_code rc = conditions_of(ex, &c, e);
    return rc ? rc : files_conditions(&c, q, e);
}

static void about(struct exchange *ex, struct fs_request *q, const char *op, const char *id)
{
    fs_request_begin(q, op);
    fs_request_text(q, "--upload", id);
    files_confine(ex, q);
    q->again = true;
}

static void add_digest(struct fs_request *q, const struct digest *d)
{
    char option[DIGEST_OPTION];
    if (!d->given)
        return;
    digest_option(d, option);
    fs_request_text(q, "--digest", option);
}

static void about_finish(struct exchange *ex, struct resumable *r)
{
    about(ex, &r->finish, "upload-finish", r->id);
    r->finish.sudo = r->id[UPLOADS_SUDO_AT] == 's';
}

static enum sg_code unsupported(struct exchange *ex, const char *const headers[], struct sg_error *e)
{
    for (size_t i = 0; headers[i]; i++)
        if (ex_header(ex, headers[i]))
            return sg_fail(e, SG_E_UNSUPPORTED, SG_NOT_SENT, "this call does not take %s", headers[i]);
    return SG_OK;
}

/* ---- POST …/files/uploads ---- */

static const struct files_op open_op = {
    .op = "upload-open",
    .fields = {{"path", "--path", FILES_PATH, true, 0, 0, -1},
               {"mode", "--mode", FILES_MODE, false, 0, 0, -1},
               {"parents", "--parents", FILES_FLAG, false, 0, 0, -1}},
    .again = true, /* with the same id and options it is the same upload */
};

/* The digest of the whole: of the body, where that is the whole. */
static enum sg_code whole_digest(struct exchange *ex, const struct resumable *r, struct digest *d,
                                 struct sg_error *e)
{
    struct digest content;
    enum sg_code rc = digest_of(ex, "Repr-Digest", d, e);
    if (!rc)
        rc = digest_of(ex, "Content-Digest", &content, e);
    if (rc || !content.given)
        return rc;
    if (!r->fields.complete)
        return sg_fail(e, SG_E_UNSUPPORTED, SG_NOT_SENT,
                       "the digest of a part is not checked: name that of the whole as Repr-Digest");
    if (d->given && memcmp(d->sha256, content.sha256, DIGEST_BYTES) != 0)
        return sg_fail(e, SG_E_DIGEST_MISMATCH, SG_NOT_SENT, "Content-Digest and Repr-Digest differ");
    *d = content;
    return SG_OK;
}

static enum sg_code parse_create(struct exchange *ex, struct resumable *r, struct digest *d,
                                 struct sg_error *e)
{
    static const char *const no[] = {"Content-Range", "Content-Encoding", "Upload-Offset", NULL};
    bool resume;
    enum sg_code rc = files_parse(ex, &open_op, &r->open, &resume, e);
    if (!rc)
        rc = unsupported(ex, no, e);
    if (!rc)
        rc = fields_of(ex, &r->fields, e);
    if (!rc)
        rc = add_conditions(ex, &r->open, e);
    if (!rc)
        rc = whole_digest(ex, r, d, e);
    if (rc)
        return rc;
    r->length = r->fields.length;
    if (r->length < 0 && r->fields.complete)
        r->length = resumable_body(ex);
    return resumable_check_length(r, e);
}

void route_upload_create(struct exchange *ex)
{
    struct sg_error e;
    struct digest digest;
    struct resumable *r = resumable_new(ex, UPLOADS_CREATE);
    if (!r)
        return;
    if (parse_create(ex, r, &digest, &e)) {
        resumable_fail(&r->act, &e);
        return;
    }
    if (!sg_random_id(r->id, r->open.sudo ? "rs" : "ru", UPLOAD_ID_CHARS - 2)) {
        (void)sg_fail(&e, SG_E_INTERNAL, SG_NOT_SENT, "no random bytes for an id");
        resumable_fail(&r->act, &e);
        return;
    }
    fs_request_text(&r->open, "--upload", r->id);
    if (r->length >= 0)
        fs_request_number(&r->open, "--length", r->length);
    add_digest(&r->open, &digest);
    files_confine(ex, &r->open);
    about_finish(ex, r);
    about(ex, &r->remove, "upload-remove", r->id);
    act_begin(&r->act);
}

/* ---- …/files/uploads/{id} ---- */

static enum sg_code take_id(struct exchange *ex, struct resumable *r, struct sg_error *e)
{
    static const char *const allowed[] = {"session", NULL};
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    const char *id = ex->params[1];
    if (strlen(id) != UPLOAD_ID_CHARS || id[0] != 'r' || !strchr("su", id[UPLOADS_SUDO_AT]) ||
        strspn(id, letters) != UPLOAD_ID_CHARS)
        return sg_fail(e, SG_E_UPLOAD_NOT_FOUND, SG_NOT_SENT, "there is no such upload");
    memcpy(r->id, id, UPLOAD_ID_CHARS + 1);
    return ex_query_only(ex, allowed, e);
}

static void begin(struct resumable *r, enum sg_code rc, const struct sg_error *e)
{
    if (rc)
        resumable_fail(&r->act, e);
    else
        act_begin(&r->act);
}

void route_upload_tell(struct exchange *ex)
{
    struct sg_error e;
    struct resumable *r = resumable_new(ex, UPLOADS_TELL);
    if (!r)
        return;
    enum sg_code rc = take_id(ex, r, &e);
    about(ex, &r->state, "upload-state", r->id);
    r->state.reads = true;
    begin(r, rc, &e);
}

void route_upload_remove(struct exchange *ex)
{
    struct sg_error e;
    struct resumable *r = resumable_new(ex, UPLOADS_REMOVE);
    if (!r)
        return;
    enum sg_code rc = take_id(ex, r, &e);
    about(ex, &r->remove, "upload-remove", r->id);
    begin(r, rc, &e);
}

static bool is_part(const char *type)
{
    static const char *const types[] = {"application/partial-upload", "application/offset+octet-stream",
                                        "application/octet-stream"};
    size_t n = strcspn(type, "; \t");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i]) == n && strncasecmp(type, types[i], n) == 0)
            return true;
    return false;
}

static enum sg_code parse_append(struct exchange *ex, struct resumable *r, struct digest *d,
                                 struct sg_error *e)
{
    static const char *const no[] = {"Content-Range", "Content-Encoding", "Content-Digest",
                                     "If-Match",      "If-None-Match",    NULL};
    const char *type = ex_header(ex, "Content-Type");
    enum sg_code rc = take_id(ex, r, e);
    if (!rc && (type ? !is_part(type) : resumable_body(ex) != 0))
        rc = sg_fail(e, SG_E_UNSUPPORTED_MEDIA_TYPE, SG_NOT_SENT,
                     "this call takes application/partial-upload");
    if (!rc)
        rc = unsupported(ex, no, e);
    if (!rc)
        rc = fields_of(ex, &r->fields, e);
    if (!rc)
        rc = digest_of(ex, "Repr-Digest", d, e);
    if (!rc && r->fields.offset < 0)
        rc = sg_fail(e, SG_E_BAD_REQUEST, SG_NOT_SENT, "say with Upload-Offset where the body goes");
    return rc;
}

void route_upload_append(struct exchange *ex)
{
    struct sg_error e;
    struct digest digest;
    struct resumable *r = resumable_new(ex, UPLOADS_APPEND);
    if (!r)
        return;
    enum sg_code rc = parse_append(ex, r, &digest, &e);
    if (!rc) {
        about(ex, &r->state, "upload-state", r->id);
        r->state.reads = true;
        about_finish(ex, r);
        add_digest(&r->finish, &digest);
        about(ex, &r->remove, "upload-remove", r->id);
    }
    begin(r, rc, &e);
}
