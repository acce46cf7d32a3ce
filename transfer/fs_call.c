#include "transfer/fs_call.h"

#include <stdlib.h>
#include <string.h>

enum trouble { FINE, NO_MEMORY, TOO_MUCH };

struct fs_call {
    struct guestlink *guestlink;
    char *session_id, *arch, *cwd;
    const struct fs_request *request;
    fs_done_fn *done;
    void *arg;
    struct guest_call *call;
    int tries;
    bool lost; /* the answer to an earlier try was: it may have been done */
    struct fs_item *items;
    size_t n, cap;
    struct sg_buf bytes;
    enum trouble trouble;
};

static void call_free(struct fs_call *c)
{
    free(c->session_id);
    free(c->arch);
    free(c->cwd);
    free(c->items);
    sg_buf_free(&c->bytes);
    free(c);
}

static void finish(struct fs_call *c, const struct fs_answer *a, const struct sg_error *e)
{
    c->done(c->arg, a, e);
    call_free(c);
}

/* What was asked before may have been done all the same. */
static void finish_failed(struct fs_call *c, const struct sg_error *e)
{
    struct sg_error own = *e;
    if (c->lost && !c->request->reads)
        own.outcome = SG_OUTCOME_UNKNOWN;
    finish(c, NULL, &own);
}

/* ---- what the guest says ---- */

static bool have_room(struct fs_call *c)
{
    if (c->n == c->cap) {
        size_t cap = c->cap ? c->cap * 2 : 16;
        struct fs_item *grown = reallocarray(c->items, cap, sizeof *grown);
        if (!grown) {
            c->trouble = NO_MEMORY;
            return false;
        }
        c->items = grown;
        c->cap = cap;
    }
    return true;
}

static size_t add_bytes(struct fs_call *c, const void *data, size_t len)
{
    size_t at = c->bytes.len;
    if ((len && !sg_buf_add(&c->bytes, data, len)) || !sg_buf_add(&c->bytes, "", 1))
        c->trouble = NO_MEMORY;
    return at;
}

/* The next part of the text that came last. */
static bool append(struct fs_call *c, const struct sg_wire_line *line)
{
    struct fs_item *last = c->n ? &c->items[c->n - 1] : NULL;
    if (!last || line->kind != SG_WIRE_TEXT || !last->goes_on || last->line != line->line || line->name_len)
        return false;
    c->bytes.len--;
    (void)add_bytes(c, line->data, line->len);
    last->data_len += line->len;
    last->cut = line->cut;
    last->goes_on = line->goes_on;
    return true;
}

static void take(struct fs_call *c, const struct sg_wire_line *line)
{
    size_t more = line->name_len + line->len + 2;
    if ((c->n + 1) * sizeof *c->items + c->bytes.len + more > FS_ANSWER_MAX) {
        c->trouble = TOO_MUCH;
        return;
    }
    if (append(c, line) || !have_room(c))
        return;
    const struct fs_item *before = c->n && line->kind == SG_WIRE_TEXT ? &c->items[c->n - 1] : NULL;
    struct fs_item *item = &c->items[c->n];
    *item = (struct fs_item){.kind = line->kind,
                             .cut = line->cut,
                             .context = line->context,
                             .goes_on = line->goes_on,
                             .line = line->line,
                             .offset = line->offset,
                             .file = line->file,
                             .name_len = line->name_len,
                             .data_len = line->len};
    if (before && before->kind == SG_WIRE_TEXT && !line->name_len) {
        item->name = before->name;
        item->name_len = before->name_len;
    } else {
        item->name = add_bytes(c, line->name, line->name_len);
    }
    item->data = add_bytes(c, line->data, line->len);
    c->n++;
}

static bool on_line(void *arg, const struct sg_wire_line *line)
{
    struct fs_call *c = arg;
    bool wanted = line->kind == SG_WIRE_FILE || line->kind == SG_WIRE_NAME || line->kind == SG_WIRE_TEXT;
    if (wanted && c->trouble == FINE)
        take(c, line);
    return true;
}

/* ---- its end ---- */

static bool launch(struct fs_call *c, struct sg_error *e);

/* Whether the same may be asked once more after this failure, of which no answer told. */
static bool may_try_again(const struct fs_call *c, const struct sg_error *e)
{
    const struct sg_error_row *row = sg_error_row(e->code);
    bool undone = e->outcome == SG_NOT_SENT || e->outcome == SG_NOT_STARTED;
    bool passing = row && (row->retryable || e->code == SG_E_UPSTREAM_BAD_RESPONSE);
    if (e->code == SG_E_DRAINING || e->code == SG_E_UPSTREAM_RATE_LIMITED || e->code == SG_E_OVERLOADED ||
        e->code == SG_E_SANDBOX_TRANSITION)
        return false; /* what needs time is the caller's to try again */
    return passing && c->tries < FS_TRIES && (undone || c->request->again);
}

static void on_cut(struct fs_call *c, const struct sg_error *e)
{
    struct sg_error own = *e;
    if (own.outcome != SG_NOT_SENT && own.outcome != SG_NOT_STARTED)
        c->lost = true;
    if (may_try_again(c, &own) && launch(c, &own))
        return;
    finish_failed(c, &own);
}

static void refused(struct fs_call *c, const struct sg_wire_line *line)
{
    struct sg_error e;
    (void)guest_error(line, &e);
    if (c->request->parts && e.outcome == SG_NOT_STARTED && e.code != SG_E_ARCHIVE_REFUSED)
        e.outcome = SG_OUTCOME_UNKNOWN;
    finish_failed(c, &e);
}

static void on_end(void *arg, const struct sg_wire_line *line, bool hello, const struct sg_error *e)
{
    struct fs_call *c = arg;
    struct sg_error own;
    (void)hello;
    c->call = NULL;
    if (!line) {
        on_cut(c, e);
        return;
    }
    if (line->kind == SG_WIRE_ERROR) {
        refused(c, line);
        return;
    }
    if (line->kind != SG_WIRE_OK && line->kind != SG_WIRE_MORE) {
        (void)sg_fail(&own, SG_E_UPSTREAM_BAD_RESPONSE, SG_OUTCOME_UNKNOWN,
                      "the helper in the sandbox answered something else than it was asked");
        finish_failed(c, &own);
        return;
    }
    if (c->trouble) {
        (void)sg_fail(&own, c->trouble == TOO_MUCH ? SG_E_OVERLOADED : SG_E_OUT_OF_MEMORY, SG_FINISHED,
                      c->trouble == TOO_MUCH ? "the answer is too long: ask for less at a time"
                                             : "no memory for the answer");
        finish(c, NULL, &own);
        return;
    }
    struct fs_answer a = {.items = c->items,
                          .n = c->n,
                          .bytes = c->bytes.data ? c->bytes.data : "",
                          .more = line->kind == SG_WIRE_MORE,
                          .word = line->text};
    const struct fs_item *last = a.more && a.n ? &c->items[a.n - 1] : NULL;
    if (last && last->kind == SG_WIRE_TEXT && last->goes_on) {
        a.at = last;
        a.n--;
    }
    finish(c, &a, NULL);
}

static bool launch(struct fs_call *c, struct sg_error *e)
{
    static const struct guest_events ev = {.on_line = on_line, .on_end = on_end};
    struct guest_args g = {.session_id = c->session_id,
                           .arch = c->arch,
                           .args = (const char *const *)c->request->args,
                           .cwd = c->cwd,
                           .sudo = c->request->sudo};
    c->tries++;
    c->n = 0;
    c->trouble = FINE;
    sg_buf_reset(&c->bytes);
    c->call = guest_call_start(c->guestlink, &g, &ev, c, e);
    return c->call != NULL;
}

static bool copy(struct fs_call *c, const struct fs_target *t)
{
    c->session_id = strdup(t->session_id);
    c->arch = t->arch ? strdup(t->arch) : NULL;
    c->cwd = t->cwd ? strdup(t->cwd) : NULL;
    return c->session_id && (c->arch || !t->arch) && (c->cwd || !t->cwd);
}

struct fs_call *fs_call_start(struct guestlink *g, const struct fs_target *t, const struct fs_request *r,
                              fs_done_fn *done, void *arg, struct sg_error *e)
{
    struct fs_call *c = r->failed ? NULL : calloc(1, sizeof *c);
    if (!c || !copy(c, t)) {
        (void)sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the call");
        goto fail;
    }
    c->guestlink = g;
    c->request = r;
    c->done = done;
    c->arg = arg;
    sg_buf_init(&c->bytes, FS_ANSWER_MAX);
    if (launch(c, e))
        return c;

fail:
    if (c)
        call_free(c);
    return NULL;
}

void fs_call_cancel(struct fs_call *c)
{
    if (c->call && c->request->reads)
        guest_abandon(c->call);
    else if (c->call)
        guest_cancel(c->call);
    call_free(c);
}
