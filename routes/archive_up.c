/* PUT …/files/archive: a tar, plain or gzip, extracted below a directory.  It is unpacked on its way up, lies in the
 * sandbox whole before any of it is extracted, and is refused whole. */
#include "routes/handlers.h"

#include "base/buf.h"
#include "base/core/num.h"
#include "routes/digest.h"
#include "routes/files.h"
#include "routes/intake.h"
#include "routes/late.h"
#include "transfer/unpack.h"
#include "transfer/upload.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LOOK_AGAIN_MS = 500 };

struct extract {
    struct act act;
    struct fs_request request;
    enum unpack_form form;
    struct unpack *unpack;
    struct upload *upload;
    struct sg_timer *lasts; /* since the whole body is here */
    struct late *late;      /* the client was told so */
    bool receiving;
    struct intake in;
};

static void extract_free(struct extract *x)
{
    if (x->upload)
        upload_cancel(x->upload);
    unpack_free(x->unpack);
    sg_timer_free(x->lasts);
    fs_request_free(&x->request);
    act_free(&x->act);
}

static void extract_fail(struct act *a, const struct sg_error *e)
{
    struct extract *x = (struct extract *)a;
    if (act_settled(a))
        ex_fail(a->ex, e);
    if (x->late)
        late_end(x->late, 0, NULL, e);
    extract_free(x);
}

static void on_client_gone(void *arg)
{
    struct extract *x = arg;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_BAD_REQUEST, SG_OUTCOME_UNKNOWN, "the client left");
    extract_fail(&x->act, &e);
}

/* ---- the body ---- */

static size_t body_read(void *arg, char *buf, size_t cap)
{
    struct extract *x = arg;
    size_t n = intake_read(&x->in, buf, cap);
    if (n == 0)
        sg_timer_start(x->lasts, (uint64_t)lates_after_ms(x->act.gw->lates));
    return n;
}

/* The rest of it is not on the client's account, and takes its time. */
static void on_lasts(void *arg)
{
    struct extract *x = arg;
    struct exchange *ex = x->act.ex;
    if (!x->upload) { /* the session is looked up again, for which the exchange is needed */
        sg_timer_start(x->lasts, LOOK_AGAIN_MS);
        return;
    }
    if (!act_settled(&x->act))
        return;
    x->late = late_begin(x->act.gw->lates, ex);
    if (x->late) {
        x->act.ex = NULL;
        x->act.sandbox = NULL;
    } else {
        ex_on_gone(ex, on_client_gone, x);
    }
}

static size_t archive_read(void *arg, char *buf, size_t cap)
{
    struct extract *x = arg;
    return unpack_read(x->unpack, buf, cap);
}

static void on_body(void *arg)
{
    struct extract *x = arg;
    unpack_more(x->unpack);
}

static void on_unpacked(void *arg)
{
    struct extract *x = arg;
    if (x->upload)
        upload_resume(x->upload);
}

/* ---- what came of it ---- */

static void answer(struct extract *x, const struct fs_answer *a)
{
    static const char word[] = "files:";
    struct sg_error e;
    uint64_t n;
    const char *number = a->word + strlen(word);
    if (strncmp(a->word, word, strlen(word)) != 0 || !sg_parse_u64(number, strlen(number), INT64_MAX, &n)) {
        (void)sg_fail(&e, SG_E_UPSTREAM_BAD_RESPONSE, SG_FINISHED,
                      "the helper in the sandbox answered something else than it was asked");
        extract_fail(&x->act, &e);
        return;
    }
    struct sg_buf out;
    sg_buf_init(&out, 64);
    (void)sg_buf_addf(&out, "{\"entries\":%" PRIu64 "}", n);
    if (x->late)
        late_end(x->late, 200, &out, NULL);
    if (act_settled(&x->act))
        ex_answer_json_text(x->act.ex, 200, &out);
    sg_buf_free(&out);
    extract_free(x);
}

static void on_uploaded(void *arg, const struct fs_answer *a, uint64_t offset, const struct sg_error *e)
{
    struct extract *x = arg;
    struct sg_error own;
    (void)offset;
    x->upload = NULL;
    if (a) {
        answer(x, a);
        return;
    }
    if (!unpack_error(x->unpack, &own))
        own = *e;
    if (!intake_rewind(&x->in) || !unpack_rewind(x->unpack))
        x->act.cached = false; /* the body is gone: no second attempt */
    if (!act_retry(&x->act, &own))
        extract_fail(&x->act, &own);
}

static void extract_go(struct act *a)
{
    struct extract *x = (struct extract *)a;
    struct sg_error e;
    const struct upload_spec spec = {
        .target = {.session_id = a->session_id, .arch = a->arch, .cwd = a->cwd},
        .size = x->form == UNPACK_NOT ? a->ex->content_length : -1,
        .read = archive_read,
        .finish = &x->request,
    };
    x->upload = upload_start(a->gw->uploads, &spec, on_uploaded, x, &e);
    if (!x->upload) {
        extract_fail(a, &e);
        return;
    }
    ex_on_gone(a->ex, on_client_gone, x);
    if (!x->receiving) {
        x->receiving = true;
        intake_begin(&x->in, a->ex);
    }
}

/* ---- the request ---- */

static bool is_type(const char *type, const char *name)
{
    return strlen(name) == strcspn(type, "; \t") && strncasecmp(type, name, strlen(name)) == 0;
}

/* What is called bytes may be either. */
static enum sg_code form_of(struct exchange *ex, enum unpack_form *form, struct sg_error *e)
{
    const char *type = ex_header(ex, "Content-Type");
    if (!type || is_type(type, "application/octet-stream"))
        *form = UNPACK_LOOK;
    else if (is_type(type, "application/x-tar") || is_type(type, "application/tar"))
        *form = UNPACK_NOT;
    else if (is_type(type, "application/gzip") || is_type(type, "application/x-gzip"))
        *form = UNPACK_GZIP;
    else
        return sg_fail(e, SG_E_UNSUPPORTED_MEDIA_TYPE, SG_NOT_SENT,
                       "this call takes application/x-tar or application/gzip");
    return SG_OK;
}

static enum sg_code unsupported(struct exchange *ex, struct sg_error *e)
{
    static const char *const headers[] = {"Content-Encoding", "Content-Range", "If-Match", "If-None-Match",
                                          "If-Unmodified-Since"};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        if (ex_header(ex, headers[i]))
            return sg_fail(e, SG_E_UNSUPPORTED, SG_NOT_SENT, "this call does not take %s", headers[i]);
    return SG_OK;
}

static const struct files_op untar_op = {
    .op = "untar",
    .fields = {{"path", "--path", FILES_PATH, true, 0, 0, -1},
               {"parents", "--parents", FILES_FLAG, false, 0, 0, -1},
               {"any_links", "--any-links", FILES_FLAG, false, 0, 0, -1}},
    .parts = true,
};

static enum sg_code parse(struct exchange *ex, struct extract *x, struct digest *d, struct sg_error *e)
{
    bool resume;
    enum sg_code rc = files_parse(ex, &untar_op, &x->request, &resume, e);
    if (!rc)
        rc = unsupported(ex, e);
    if (!rc)
        rc = form_of(ex, &x->form, e);
    return rc ? rc : digest_of(ex, "Content-Digest", d, e);
}

void route_archive_write(struct exchange *ex)
{
    struct sg_error e;
    struct digest digest;
    struct extract *x = act_new(ex, sizeof *x, extract_go, extract_fail);
    if (!x)
        return;
    if (parse(ex, x, &digest, &e)) {
        extract_fail(&x->act, &e);
        return;
    }
    files_confine(ex, &x->request);
    intake_init(&x->in, ex, on_body, x);
    const struct unpack_spec spec = {.loop = x->act.gw->loop,
                                     .form = x->form,
                                     .free_bytes = (uint64_t)x->act.gw->unpack_free_bytes,
                                     .sha256 = digest.given ? digest.sha256 : NULL,
                                     .read = body_read,
                                     .more = on_unpacked,
                                     .arg = x};
    x->unpack = unpack_new(&spec);
    x->lasts = sg_timer_new(x->act.gw->loop, on_lasts, x);
    if (x->unpack && x->lasts) {
        act_begin(&x->act);
        return;
    }
    (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory to unpack the archive");
    extract_fail(&x->act, &e);
}
