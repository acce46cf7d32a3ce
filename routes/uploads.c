/* …/files/uploads: uploads that go on where they were cut, after draft-ietf-httpbis-resumable-upload.
 *
 * What an upload is for and what came of it lies in the sandbox; nothing is kept here, so any gateway goes on with it.
 * A request ends what an earlier one of the same upload still brings: those bytes are kept first, and then it is asked
 * how far the upload is.  A body that breaks off is kept as far as it came, also when nobody hears of it.  What is
 * finished is finished with the client gone, too; finishing again gives the same answer.
 *
 * An id says whether its upload is made as root ("rs…") or not ("ru…"): no other request can make it so.
 */
#include "routes/uploads.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/core/file_tag.h"
#include "base/log.h"
#include "routes/late.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SETTLE_MS = 10000 }; /* for the bytes that an earlier request brought */
#define LIMIT     "max-size=999999999999999"
#define LIMIT_NEW LIMIT ", max-age=86400" /* as long as the guest keeps what nothing comes to */

/* A request without Content-Length has a body only when that is chunked. */
int64_t resumable_body(struct exchange *ex)
{
    return ex->content_length < 0 && !ex_header(ex, "Transfer-Encoding") ? 0 : ex->content_length;
}

/* ---- its end ---- */

static void resumable_free(struct resumable *r)
{
    if (r->settles)
        upload_settle_off(r->act.gw->uploads, r);
    sg_timer_free(r->patience);
    if (r->call)
        fs_call_cancel(r->call);
    if (r->upload)
        upload_cancel(r->upload);
    fs_request_free(&r->open);
    fs_request_free(&r->state);
    fs_request_free(&r->finish);
    fs_request_free(&r->remove);
    free(r->in);
    act_free(&r->act);
}

static void set_number(struct exchange *ex, const char *name, uint64_t n)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, n);
    ex_set_header(ex, name, text);
}

static void set_place(struct resumable *r, uint64_t offset, bool complete)
{
    set_number(r->act.ex, "Upload-Offset", offset);
    ex_set_header(r->act.ex, "Upload-Complete", complete ? "?1" : "?0");
}

void resumable_fail(struct act *a, const struct sg_error *e)
{
    struct resumable *r = (struct resumable *)a;
    if (act_settled(a)) {
        if (e->code == SG_E_UPLOAD_OFFSET && e->accepted >= 0)
            set_number(a->ex, "Upload-Offset", (uint64_t)e->accepted);
        ex_fail(a->ex, e);
    }
    resumable_free(r);
}

static void fail_with(struct resumable *r, enum sg_code code, const char *why)
{
    struct sg_error e;
    (void)sg_fail(&e, code, SG_NOT_STARTED, "%s", why);
    resumable_fail(&r->act, &e);
}

static bool begin_call(struct resumable *r, const struct fs_request *request, fs_done_fn *done,
                       struct sg_error *e)
{
    const struct fs_target t = {.session_id = r->act.session_id, .arch = r->act.arch, .cwd = r->act.cwd};
    r->call = fs_call_start(r->act.gw->guestlink, &t, request, done, r, e);
    return r->call != NULL;
}

static void ask(struct resumable *r, const struct fs_request *request, fs_done_fn *done)
{
    struct sg_error e;
    if (!begin_call(r, request, done, &e))
        resumable_fail(&r->act, &e);
}

/* ---- the client left ---- */

static void on_forgotten(void *arg, const struct fs_answer *a, const struct sg_error *e)
{
    struct resumable *r = arg;
    r->call = NULL;
    if (!a)
        sg_log(SG_LOG_WARN, "upload_left_behind", "session", "s", r->act.session_id, "upload", "s", r->id,
               "error", "e", e, NULL);
    resumable_free(r);
}

/* Nobody hears how it went.  Of an upload whose id was never told nobody will ask either. */
static void end_unheard(struct resumable *r)
{
    struct sg_error e;
    if (r->verb != UPLOADS_CREATE || r->told || !begin_call(r, &r->remove, on_forgotten, &e))
        resumable_free(r);
}

static void on_client_gone(void *arg)
{
    struct resumable *r = arg;
    struct exchange *ex = r->act.ex;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_BAD_REQUEST, SG_OUTCOME_UNKNOWN, "the client left");
    r->act.ex = NULL;
    r->act.sandbox = NULL;
    ex_fail(ex, &e);
    if (r->flows && r->upload)
        intake_gone(r->in); /* what came goes on */
    else if (!r->call || r->verb == UPLOADS_TELL || r->upload)
        resumable_free(r);
}

/* ---- answers ---- */

static void set_location(struct resumable *r)
{
    struct sg_buf b;
    sg_buf_init(&b, 1024);
    (void)sg_buf_adds(&b, "/v1/sandboxes/");
    (void)sg_buf_add_urlenc(&b, r->act.sandbox);
    (void)sg_buf_adds(&b, "/files/uploads/");
    (void)sg_buf_adds(&b, r->id);
    if (!b.failed)
        ex_set_header(r->act.ex, "Location", b.data);
    sg_buf_free(&b);
}

/* More of it is to come. */
static void answer_open(struct resumable *r)
{
    if (!act_settled(&r->act)) {
        end_unheard(r);
        return;
    }
    if (r->verb == UPLOADS_CREATE)
        set_location(r);
    set_place(r, r->at, false);
    ex_set_header(r->act.ex, "Upload-Limit", LIMIT_NEW);
    ex_answer_empty(r->act.ex, r->verb == UPLOADS_CREATE ? 201 : 204);
    resumable_free(r);
}

static void answer_finished(struct resumable *r, const struct fs_answer *a)
{
    char tag[SG_FILE_TAG_LEN + 1], quoted[SG_FILE_TAG_LEN + 3];
    bool created = strcmp(a->word, "created") == 0;
    if (a->n != 1 || a->items[0].kind != SG_WIRE_FILE || (!created && strcmp(a->word, "replaced") != 0)) {
        struct sg_error e; /* but it said that it did it */
        (void)sg_fail(&e, SG_E_UPSTREAM_BAD_RESPONSE, SG_FINISHED,
                      "the helper in the sandbox answered something else than it was asked");
        resumable_fail(&r->act, &e);
        return;
    }
    if (act_settled(&r->act)) {
        sg_file_tag(&a->items[0].file, tag);
        (void)snprintf(quoted, sizeof quoted, "\"%s\"", tag);
        ex_set_header(r->act.ex, "ETag", quoted);
        if (r->verb == UPLOADS_CREATE)
            set_location(r);
        set_place(r, r->at, true);
        ex_answer_empty(r->act.ex, created ? 201 : 204);
    }
    resumable_free(r);
}

/* What is there may still be of use. */
static void answer_unfinished(struct resumable *r, const struct sg_error *e)
{
    if (r->verb == UPLOADS_CREATE && r->act.ex)
        set_location(r);
    resumable_fail(&r->act, e);
}

/* What is there is not what it was to be, and goes. */
static void answer_useless(struct resumable *r, const struct sg_error *e)
{
    struct sg_error ignored;
    if (act_settled(&r->act)) {
        ex_fail(r->act.ex, e);
        r->act.ex = NULL;
    }
    if (!begin_call(r, &r->remove, on_forgotten, &ignored))
        resumable_free(r);
}

/* ---- finishing ---- */

static void on_finished(void *arg, const struct fs_answer *a, const struct sg_error *e)
{
    struct resumable *r = arg;
    r->call = NULL;
    if (a) {
        answer_finished(r, a);
        return;
    }
    const struct sg_error_row *row = sg_error_row(e->code);
    if (r->act.ex && e->code != SG_E_UPLOAD_OFFSET) /* not for want of bytes: sending more would not help */
        set_place(r, r->at, row && !row->retryable && e->outcome == SG_NOT_STARTED);
    if (e->code == SG_E_DIGEST_MISMATCH)
        answer_useless(r, e);
    else
        answer_unfinished(r, e);
}

static void finish(struct resumable *r)
{
    fs_request_number(&r->finish, "--size", (int64_t)r->at);
    ask(r, &r->finish, on_finished);
}

/* Where Upload-Complete does not say it, it is complete when it is as long as it was to be. */
static bool is_whole(const struct resumable *r)
{
    return r->fields.has_complete ? r->fields.complete : r->length >= 0 && r->at == (uint64_t)r->length;
}

static void on_all_there(struct resumable *r)
{
    if (is_whole(r))
        finish(r);
    else
        answer_open(r);
}

/* ---- the body ---- */

/* The client waits for us: for the first answer of the guest, and again once its whole body came; both together no
 * longer than it is told.  came: nothing more is to come. */
static void be_patient(struct resumable *r, bool came)
{
    int64_t most = lates_after_ms(r->act.gw->lates), left = most - r->waited_ms;
    r->came = came;
    r->since_ms = sg_mono_ms();
    sg_timer_start(r->patience, (uint64_t)(left > most / 8 ? left : most / 8));
}

static void all_came(struct resumable *r)
{
    be_patient(r, true);
}

/* The guest's first answer is here. */
static void has_answered(struct resumable *r)
{
    r->call = NULL;
    r->waited_ms += sg_mono_ms() - r->since_ms;
    sg_timer_stop(r->patience);
}

static size_t body_read(void *arg, char *buf, size_t cap)
{
    struct resumable *r = arg;
    uint64_t room = r->length < 0 ? UINT64_MAX : (uint64_t)r->length - r->at - r->taken;
    char more;
    if (!r->flows)
        return VERCEL_READ_PAUSE;
    if (room == 0) { /* it has to end here */
        size_t n = intake_read(r->in, &more, 1);
        if (n == 0)
            all_came(r);
        r->too_long = n == 1;
        return r->too_long ? VERCEL_READ_ABORT : n;
    }
    size_t n = intake_read(r->in, buf, cap < room ? cap : (size_t)room);
    if (n == 0)
        all_came(r);
    if (n != VERCEL_READ_PAUSE && n != VERCEL_READ_ABORT)
        r->taken += n;
    return n;
}

static void on_more(void *arg)
{
    struct resumable *r = arg;
    if (r->upload)
        upload_resume(r->upload);
}

static void on_uploaded(void *arg, const struct fs_answer *a, uint64_t offset, const struct sg_error *e)
{
    struct resumable *r = arg;
    (void)a;
    r->upload = NULL;
    /* who was ended by somebody who came later may have been through with it */
    if (!e || (e->code == SG_E_OVERLOADED && r->came && offset == r->at + r->taken)) {
        r->at = offset;
        on_all_there(r);
        return;
    }
    if (!r->act.ex) {
        end_unheard(r);
        return;
    }
    struct sg_error own = *e;
    if (r->too_long)
        (void)sg_fail(&own, SG_E_BODY_TOO_LARGE, SG_NOT_STARTED,
                      "the upload was to be %" PRId64 " bytes: nothing beyond them was kept", r->length);
    if (own.code != SG_E_UPLOAD_OFFSET)
        set_place(r, offset, false);
    answer_unfinished(r, &own);
}

/* The body begins to come.  Until then the upload, which was begun before the sandbox was asked about it, keeps others
 * from it: who comes later ends it. */
static void take_body(struct resumable *r)
{
    r->flows = true;
    intake_begin(r->in, r->act.ex);
    upload_resume(r->upload);
}

/* False: answered with an error, r is freed. */
static bool begin_upload(struct resumable *r)
{
    struct sg_error e;
    const struct upload_spec spec = {
        .target = {.session_id = r->act.session_id, .arch = r->act.arch, .cwd = r->act.cwd},
        .id = r->id,
        .at = r->at,
        .size = resumable_body(r->act.ex),
        .read = body_read,
    };
    if (!r->in)
        r->in = malloc(sizeof *r->in);
    if (!r->in) {
        fail_with(r, SG_E_OUT_OF_MEMORY, "no memory for the body");
        return false;
    }
    intake_init(r->in, r->act.ex, on_more, r);
    r->upload = upload_start(r->act.gw->uploads, &spec, on_uploaded, r, &e);
    if (!r->upload)
        resumable_fail(&r->act, &e);
    return r->upload != NULL;
}

/* Upload-Length, Upload-Complete with Content-Length, and what was said before must agree. */
enum sg_code resumable_check_length(const struct resumable *r, struct sg_error *e)
{
    int64_t body = resumable_body(r->act.ex), at = (int64_t)r->at;
    int64_t end = body < 0 ? -1 : body > INT64_MAX - at ? INT64_MAX : at + body;
    if (r->length >= 0 && r->fields.length >= 0 && r->fields.length != r->length)
        return sg_fail(e, SG_E_BAD_REQUEST, SG_NOT_STARTED, "Upload-Length was %" PRId64 " before",
                       r->length);
    if (r->length >= 0 && end > r->length)
        return sg_fail(e, SG_E_BODY_TOO_LARGE, SG_NOT_STARTED,
                       "the upload was to be %" PRId64 " bytes: the body goes on beyond them", r->length);
    if (r->length >= 0 && r->fields.complete && end >= 0 && end != r->length)
        return sg_fail(e, SG_E_BAD_REQUEST, SG_NOT_STARTED,
                       "the upload was to be %" PRId64 " bytes, and is complete with %" PRId64, r->length,
                       end);
    return SG_OK;
}

static void go_on(struct resumable *r)
{
    struct sg_error e;
    if (r->act.ex && resumable_check_length(r, &e)) {
        set_place(r, r->at, false);
        resumable_fail(&r->act, &e);
    } else if (!r->act.ex) {
        end_unheard(r);
    } else if (resumable_body(r->act.ex) == 0) {
        all_came(r);
        on_all_there(r);
    } else if (r->upload || begin_upload(r)) {
        take_body(r);
    }
}

/* ---- what the guest answers first ---- */

static void on_opened(void *arg, const struct fs_answer *a, const struct sg_error *e)
{
    struct resumable *r = arg;
    has_answered(r);
    if (a)
        go_on(r);
    else if (!act_retry(&r->act, e))
        resumable_fail(&r->act, e);
}

static void tell(struct resumable *r, const struct upload_state *s)
{
    struct exchange *ex = r->act.ex;
    set_place(r, s->offset, s->done);
    if (s->length >= 0 || s->done)
        set_number(ex, "Upload-Length", s->done ? s->offset : (uint64_t)s->length);
    ex_set_header(ex, "Upload-Limit", LIMIT);
    ex_set_header(ex, "Cache-Control", "no-store");
    act_settled(&r->act);
    ex_answer_empty(ex, 204);
    resumable_free(r);
}

static void append(struct resumable *r, const struct upload_state *s)
{
    struct sg_error e;
    r->at = s->offset;
    r->length = s->done ? (int64_t)s->offset : s->length >= 0 ? s->length : r->fields.length;
    if ((uint64_t)r->fields.offset != s->offset) {
        (void)sg_fail(&e, SG_E_UPLOAD_OFFSET, SG_NOT_STARTED, "the upload goes on at %" PRIu64, s->offset);
        e.accepted = (int64_t)s->offset;
        ex_set_header(r->act.ex, "Upload-Complete", s->done ? "?1" : "?0");
        resumable_fail(&r->act, &e);
    } else if (s->done && resumable_body(r->act.ex) == 0) {
        all_came(r);
        finish(r); /* the answer may have been lost */
    } else if (s->done) {
        set_place(r, s->offset, true);
        fail_with(r, SG_E_BAD_REQUEST, "the upload is complete: nothing can be added to it");
    } else {
        go_on(r);
    }
}

static void on_state(void *arg, const struct fs_answer *a, const struct sg_error *e)
{
    struct resumable *r = arg;
    struct upload_state s;
    has_answered(r);
    if (!a) {
        if (r->upload)
            upload_cancel(r->upload);
        r->upload = NULL;
        if (!act_retry(&r->act, e))
            resumable_fail(&r->act, e);
    } else if (!r->act.ex) {
        resumable_free(r);
    } else if (!upload_state_parse(a->word, &s)) {
        fail_with(r, SG_E_UPSTREAM_BAD_RESPONSE,
                  "the helper in the sandbox answered something else than it was asked");
    } else if (r->verb == UPLOADS_TELL) {
        tell(r, &s);
    } else {
        append(r, &s);
    }
}

static void on_removed(void *arg, const struct fs_answer *a, const struct sg_error *e)
{
    struct resumable *r = arg;
    has_answered(r);
    if (!a) {
        if (!act_retry(&r->act, e))
            resumable_fail(&r->act, e);
        return;
    }
    if (act_settled(&r->act))
        ex_answer_empty(r->act.ex, 204);
    resumable_free(r);
}

/* ---- who comes later waits for who came before ---- */

static void on_quiet(void *arg)
{
    struct resumable *r = arg;
    r->waited_ms = r->settles ? sg_mono_ms() - r->since_ms : 0;
    r->settles = false;
    be_patient(r, false);
    r->at = r->verb == UPLOADS_APPEND ? (uint64_t)r->fields.offset : 0;
    if (r->act.gw->draining)
        fail_with(r, SG_E_DRAINING, "the gateway is shutting down");
    else if (r->verb == UPLOADS_REMOVE)
        ask(r, &r->remove, on_removed);
    else if (r->verb == UPLOADS_TELL || resumable_body(r->act.ex) == 0 || begin_upload(r))
        ask(r, &r->state, on_state);
}

/* It goes on, and whoever asks for the upload's state then is told. */
static void lasts(struct resumable *r)
{
    struct sg_error e;
    if (!act_settled(&r->act))
        return;
    (void)sg_fail(&e, SG_E_UPSTREAM_TIMEOUT, SG_STARTED,
                  "all of it came, and is still on its way: ask with HEAD");
    if (r->verb == UPLOADS_CREATE)
        set_location(r);
    ex_fail(r->act.ex, &e);
    r->act.ex = NULL;
    r->act.sandbox = NULL;
    r->told = true;
}

static void on_no_patience(void *arg)
{
    struct resumable *r = arg;
    struct sg_error e;
    if (r->came) {
        lasts(r);
        return;
    }
    if (!r->act.ex)
        return; /* nobody waits; the call's end goes on */
    if (r->settles) {
        (void)sg_fail(&e, SG_E_OVERLOADED, SG_NOT_STARTED, "bytes of the upload are still on their way");
        e.retry_after_ms = 1000;
    } else {
        bool reads = r->verb == UPLOADS_TELL || r->verb == UPLOADS_APPEND;
        (void)sg_fail(&e, SG_E_UPSTREAM_TIMEOUT, reads ? SG_NOT_STARTED : SG_OUTCOME_UNKNOWN,
                      "the sandbox does not answer in time");
    }
    resumable_fail(&r->act, &e);
}

static void resumable_go(struct act *a)
{
    struct resumable *r = (struct resumable *)a;
    ex_on_gone(a->ex, on_client_gone, r);
    if (r->verb == UPLOADS_CREATE) {
        be_patient(r, false);
        ask(r, &r->open, on_opened);
    } else if (!(r->settles = upload_settle(a->gw->uploads, a->session_id, r->id, on_quiet, r))) {
        on_quiet(r);
    } else {
        r->since_ms = sg_mono_ms();
        sg_timer_start(r->patience, SETTLE_MS);
    }
}

struct resumable *resumable_new(struct exchange *ex, enum uploads_verb verb)
{
    struct sg_error e;
    struct resumable *r = act_new(ex, sizeof *r, resumable_go, resumable_fail);
    if (!r)
        return NULL;
    r->verb = verb;
    r->length = r->fields.offset = r->fields.length = -1;
    r->patience = sg_timer_new(r->act.gw->loop, on_no_patience, r);
    if (r->patience)
        return r;
    (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
    act_fail(&r->act, &e);
    return NULL;
}
