/* PUT …/files/content and POST …/files/append: a body on its way into a file, through transfer/upload.h.
 *
 * Everything that the head says is checked, and the session is found, before the first byte of the body is asked for.  What
 * the digests announce is compared when all of it is here and the file has not been touched yet.
 */
#include "routes/handlers.h"

#include "base/core/file_tag.h"
#include "base/crypto.h"
#include "base/json_write.h"
#include "routes/conditions.h"
#include "routes/digest.h"
#include "routes/files.h"
#include "routes/intake.h"
#include "routes/late.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GUEST_HASHES_MAX = 64 * 1024 * 1024, /* the guest has no fast hash */
    LOOK_AGAIN_MS = 500,
};

struct file_write {
    struct act act;
    struct upload *upload;
    struct fs_request finish;
    bool appends, receiving;
    struct digest digest;
    struct sg_hash *sha256, *sha512; /* where they are to be checked */
    bool differs;                    /* the body has another digest */
    bool told_guest;                 /* finish names the digest */
    uint64_t seen;                   /* bytes of the body */
    struct sg_timer *timer;          /* runs from its end on */
    struct late *late;               /* the client was told where the answer will be */
    struct intake in;
};

static void write_free(struct file_write *w)
{
    if (w->upload)
        upload_cancel(w->upload);
    fs_request_free(&w->finish);
    sg_hash_free(w->sha256);
    sg_hash_free(w->sha512);
    sg_timer_free(w->timer);
    act_free(&w->act);
}

static void write_fail(struct act *a, const struct sg_error *e)
{
    struct file_write *w = (struct file_write *)a;
    if (act_settled(a))
        ex_fail(a->ex, e);
    if (w->late)
        late_end(w->late, 0, NULL, e);
    write_free(w);
}

static void on_client_gone(void *arg)
{
    struct file_write *w = arg;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_BAD_REQUEST, SG_NOT_STARTED, "the client left");
    write_fail(&w->act, &e);
}

/* The body is here, and the answer takes its time: no call is silent for longer than 25 s. */
static void on_lasts(void *arg)
{
    struct file_write *w = arg;
    struct exchange *ex = w->act.ex;
    if (!w->upload) { /* the session is looked up again, for which the exchange is needed */
        sg_timer_start(w->timer, LOOK_AGAIN_MS);
        return;
    }
    if (!act_settled(&w->act))
        return;
    w->late = late_begin(w->act.gw->lates, ex);
    if (!w->late) {
        ex_on_gone(ex, on_client_gone, w);
        return;
    }
    w->act.ex = NULL;
    w->act.sandbox = NULL;
}

/* ---- the body ---- */

static void on_more(void *arg)
{
    struct file_write *w = arg;
    if (w->upload)
        upload_resume(w->upload);
}

static bool is_as_announced(struct sg_hash *h, const unsigned char *want, size_t n)
{
    unsigned char sum[SG_HASH_MAX];
    return !h || (sg_hash_end(h, sum) == n && memcmp(sum, want, n) == 0);
}

/* All of it is here. */
static size_t body_ends(struct file_write *w)
{
    char option[DIGEST_OPTION];
    w->differs = !is_as_announced(w->sha256, w->digest.sha256, DIGEST_BYTES) ||
                 !is_as_announced(w->sha512, w->digest.sha512, DIGEST_BYTES_512);
    if (w->differs)
        return VERCEL_READ_ABORT;
    if (!w->timer && (w->timer = sg_timer_new(w->act.gw->loop, on_lasts, w)))
        sg_timer_start(w->timer, (uint64_t)lates_after_ms(w->act.gw->lates));
    if (w->digest.given && !w->appends && w->seen <= GUEST_HASHES_MAX && !w->told_guest) {
        w->told_guest = true;
        digest_option(&w->digest, option);
        fs_request_text(&w->finish, "--digest", option);
    }
    return 0;
}

static size_t body_read(void *arg, char *out, size_t cap)
{
    struct file_write *w = arg;
    size_t n = intake_read(&w->in, out, cap);
    if (n == 0)
        return body_ends(w);
    if (n == VERCEL_READ_PAUSE || n == VERCEL_READ_ABORT)
        return n;
    w->seen += n;
    if (w->sha256)
        sg_hash_add(w->sha256, out, n);
    if (w->sha512)
        sg_hash_add(w->sha512, out, n);
    return n;
}

/* What was read is read again, if it is still there. */
static bool rewind_body(struct file_write *w)
{
    w->seen = 0;
    return intake_rewind(&w->in) && (!w->sha256 || sg_hash_restart(w->sha256)) &&
           (!w->sha512 || sg_hash_restart(w->sha512));
}

/* ---- the answer ---- */

static const struct sg_wire_file *facts(const struct fs_answer *a)
{
    return a->n && a->items[0].kind == SG_WIRE_FILE ? &a->items[0].file : NULL;
}

/* "\"TAG\"" */
enum { QUOTED = SG_FILE_TAG_LEN + 3 };
static void entity_tag(const struct sg_wire_file *file, char out[QUOTED])
{
    char tag[SG_FILE_TAG_LEN + 1];
    sg_file_tag(file, tag);
    (void)snprintf(out, QUOTED, "\"%s\"", tag);
}

static void answer_put(struct file_write *w, const struct fs_answer *a)
{
    char tag[QUOTED];
    int status = strcmp(a->word, "created") == 0 ? 201 : 204;
    const struct sg_wire_file *file = facts(a);
    if (file)
        entity_tag(file, tag);
    if (act_settled(&w->act)) {
        if (file)
            ex_set_header(w->act.ex, "ETag", tag);
        ex_answer_empty(w->act.ex, status);
    }
    if (w->late) {
        if (file)
            late_etag(w->late, tag);
        late_end(w->late, status, NULL, NULL);
    }
    write_free(w);
}

static void answer_append(struct file_write *w, const struct fs_answer *a)
{
    char tag[QUOTED];
    struct sg_error e;
    struct sg_buf out;
    const struct sg_wire_file *file = facts(a);
    if (!file) {
        (void)sg_fail(&e, SG_E_UPSTREAM_BAD_RESPONSE, SG_FINISHED, "the answer does not tell of the file");
        write_fail(&w->act, &e);
        return;
    }
    entity_tag(file, tag);
    sg_buf_init(&out, 256);
    (void)sg_buf_addf(&out, "{\"size\":%" PRIu64 ",\"etag\":\"\\\"%.*s\\\"\"}", file->size, SG_FILE_TAG_LEN,
                      tag + 1);
    if (out.failed) {
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
        write_fail(&w->act, &e);
    } else {
        if (w->late)
            late_end(w->late, 200, &out, NULL);
        if (act_settled(&w->act))
            ex_answer_json_text(w->act.ex, 200, &out);
        write_free(w);
    }
    sg_buf_free(&out);
}

/* As the caller should see it. */
static struct sg_error explain(const struct file_write *w, const struct sg_error *e)
{
    struct sg_error own = *e;
    if (w->differs)
        (void)sg_fail(&own, SG_E_DIGEST_MISMATCH, SG_NOT_STARTED,
                      "the body is not what Content-Digest announced");
    else if (w->appends && (e->code == SG_E_PRECONDITION_FAILED || !strcmp(e->errno_name, "ESTALE")))
        (void)sg_fail(&own, SG_E_FILE_OFFSET, e->outcome, "%s", e->detail);
    return own;
}

static void on_uploaded(void *arg, const struct fs_answer *a, uint64_t offset, const struct sg_error *e)
{
    struct file_write *w = arg;
    (void)offset;
    w->upload = NULL;
    if (e) {
        struct sg_error own = explain(w, e);
        if (w->differs || !rewind_body(w))
            w->act.cached = false; /* the body is gone: no second attempt */
        if (!act_retry(&w->act, &own))
            write_fail(&w->act, &own);
        return;
    }
    if (w->appends)
        answer_append(w, a);
    else
        answer_put(w, a);
}

static void write_go(struct act *a)
{
    struct file_write *w = (struct file_write *)a;
    struct sg_error e;
    const struct upload_spec spec = {
        .target = {.session_id = a->session_id, .arch = a->arch, .cwd = a->cwd},
        .size = a->ex->content_length,
        .read = body_read,
        .finish = &w->finish,
    };
    w->upload = upload_start(a->gw->uploads, &spec, on_uploaded, w, &e);
    if (!w->upload) {
        write_fail(a, &e);
        return;
    }
    ex_on_gone(a->ex, on_client_gone, w);
    if (!w->receiving) {
        w->receiving = true;
        intake_begin(&w->in, a->ex);
    }
}

/* ---- the request ---- */

static enum sg_code put_headers(struct exchange *ex, struct fs_request *r, struct sg_error *e)
{
    struct conditions c;
    enum sg_code rc = conditions_of(ex, &c, e);
    return rc ? rc : files_conditions(&c, r, e);
}

static enum sg_code append_headers(struct exchange *ex, struct fs_request *r, struct sg_error *e)
{
    (void)r;
    if (ex_header(ex, "If-Match") || ex_header(ex, "If-None-Match") || ex_header(ex, "If-Unmodified-Since"))
        return sg_fail(e, SG_E_UNSUPPORTED, SG_NOT_SENT,
                       "the condition that appending takes is the query's offset");
    return SG_OK;
}

#define PATH                                                                                                 \
    {                                                                                                        \
        "path", "--path", FILES_PATH, true, 0, 0, -1                                                         \
    }
#define MODE                                                                                                 \
    {                                                                                                        \
        "mode", "--mode", FILES_MODE, false, 0, 0, -1                                                        \
    }
#define PARENTS                                                                                              \
    {                                                                                                        \
        "parents", "--parents", FILES_FLAG, false, 0, 0, -1                                                  \
    }

static const struct files_op put_op = {.op = "put", .fields = {PATH, MODE, PARENTS}, .headers = put_headers};
static const struct files_op append_op = {
    .op = "append",
    .fields = {PATH, MODE, PARENTS, {"offset", "--offset", FILES_NUMBER, false, 0, INT64_MAX / 4, -1}},
    .headers = append_headers,
};

static enum sg_code check_head(struct exchange *ex, struct sg_error *e)
{
    const char *coding;
    if (ex_header(ex, "Content-Range"))
        return sg_fail(e, SG_E_UNSUPPORTED, SG_NOT_SENT,
                       "a file is written whole; Content-Range is not supported");
    for (size_t i = 0; (coding = ex_header_line(ex, "Content-Encoding", i)); i++)
        if (strcasecmp(coding, "identity") != 0)
            return sg_fail(e, SG_E_UNSUPPORTED_MEDIA_TYPE, SG_NOT_SENT,
                           "the body is written as it comes; no Content-Encoding is undone");
    return SG_OK;
}

static enum sg_code hash_what_is_announced(struct file_write *w, struct sg_error *e)
{
    w->sha256 = w->digest.given ? sg_hash_new(SG_SHA256) : NULL;
    w->sha512 = w->digest.given_512 ? sg_hash_new(SG_SHA512) : NULL;
    if ((w->digest.given && !w->sha256) || (w->digest.given_512 && !w->sha512))
        return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the digest");
    return SG_OK;
}

static void begin(struct exchange *ex, const struct files_op *op)
{
    struct sg_error e;
    bool resume = false;
    struct file_write *w = act_new(ex, sizeof *w, write_go, write_fail);
    if (!w)
        return;
    w->appends = op == &append_op;
    intake_init(&w->in, ex, on_more, w);
    if (check_head(ex, &e) || digests_of(ex, "Content-Digest", &w->digest, &e) ||
        files_parse(ex, op, &w->finish, &resume, &e) || hash_what_is_announced(w, &e)) {
        write_fail(&w->act, &e);
        return;
    }
    files_confine(ex, &w->finish);
    act_begin(&w->act);
}

void route_file_write(struct exchange *ex)
{
    begin(ex, &put_op);
}

void route_file_append(struct exchange *ex)
{
    begin(ex, &append_op);
}
