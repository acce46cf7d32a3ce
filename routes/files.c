#include "routes/files.h"

#include "auth/tokens.h"
#include "base/buf.h"
#include "routes/conditions.h"

#include <stdlib.h>
#include <string.h>

enum { ANSWER_MAX = 64 * 1024 * 1024 };

static void files_free(struct files_call *f)
{
    if (f->call)
        fs_call_cancel(f->call);
    fs_request_free(&f->request);
    act_free(&f->act);
}

static void files_fail(struct act *a, const struct sg_error *e)
{
    struct files_call *f = (struct files_call *)a;
    if (act_settled(a))
        ex_fail(a->ex, e);
    files_free(f);
}

static void answer(struct files_call *f, const struct fs_answer *a)
{
    struct sg_error e;
    struct sg_buf out;
    sg_buf_init(&out, ANSWER_MAX);
    int status = f->op->answer(f, a, &out, &e);
    if (status && out.failed) {
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
        status = 0;
    }
    if (!status) {
        files_fail(&f->act, &e);
    } else {
        if (act_settled(&f->act)) {
            if (out.len)
                ex_answer_json_text(f->act.ex, status, &out);
            else
                ex_answer_empty(f->act.ex, status);
        }
        files_free(f);
    }
    sg_buf_free(&out);
}

static bool launch(struct files_call *f);

static void on_done(void *arg, const struct fs_answer *a, const struct sg_error *e)
{
    struct files_call *f = arg;
    f->call = NULL;
    if (a && a->more && !f->op->reads) /* part of a tree is done */
        (void)launch(f);
    else if (a)
        answer(f, a);
    else if (!act_retry(&f->act, e))
        files_fail(&f->act, e);
}

/* A search may go on for long; what changes something goes on unheard. */
static void on_reader_gone(void *arg)
{
    struct files_call *f = arg;
    struct sg_error e;
    (void)sg_fail(&e, SG_E_BAD_REQUEST, SG_FINISHED, "the client left");
    files_fail(&f->act, &e);
}

/* False: it failed, and f is gone. */
static bool launch(struct files_call *f)
{
    const struct act *a = &f->act;
    struct sg_error e;
    const struct fs_target t = {.session_id = a->session_id, .arch = a->arch, .cwd = a->cwd};
    f->call = fs_call_start(a->gw->guestlink, &t, &f->request, on_done, f, &e);
    if (f->call)
        return true;
    files_fail(&f->act, &e);
    return false;
}

static void files_go(struct act *a)
{
    struct files_call *f = (struct files_call *)a;
    if (launch(f) && f->op->reads && a->ex)
        ex_on_gone(a->ex, on_reader_gone, f);
}

void files_confine(struct exchange *ex, struct fs_request *r)
{
    const char *root = ex->who ? ex->who->files_root : "";
    if (root[0])
        fs_request_bytes(r, "--root", root, strlen(root));
}

enum sg_code files_conditions(const struct conditions *c, struct fs_request *r, struct sg_error *e)
{
    const struct condition_tags *match = &c->match, *none = &c->none_match;
    if (c->has_unmodified_since && !match->given)
        return sg_fail(e, SG_E_UNSUPPORTED, SG_NOT_SENT,
                       "a change is not conditional on a date, which says too little: use If-Match");
    if (conditions_impossible(c) || (match->given && none->any))
        return sg_fail(e, SG_E_PRECONDITION_FAILED, SG_NOT_SENT, "no file can meet these conditions");
    if (match->given)
        fs_request_text(r, "--if-match", match->any ? "*" : match->list);
    if (none->any)
        fs_request_flag(r, "--exclusive");
    else if (none->list[0])
        fs_request_text(r, "--unless", none->list);
    return SG_OK;
}

void files_begin(struct exchange *ex, const struct files_op *op)
{
    struct fs_request r = {0};
    struct sg_error e;
    bool resume = false;
    if (files_parse(ex, op, &r, &resume, &e)) {
        fs_request_free(&r);
        ex_fail(ex, &e);
        return;
    }
    files_confine(ex, &r);
    struct files_call *f = act_new(ex, sizeof *f, files_go, files_fail);
    if (!f) {
        fs_request_free(&r);
        return;
    }
    f->op = op;
    f->request = r;
    f->act.resume = resume;
    act_begin(&f->act);
}
