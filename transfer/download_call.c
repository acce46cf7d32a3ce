#include "transfer/download_impl.h"

#include "base/core/b64.h"
#include "base/core/file_tag.h"
#include "base/core/num.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DROP_TRIES = 3, ARGS_MAX = FS_ARGS_MAX + 12, NUMBER_TEXT = 24 };

void download_call_abandon(struct download *d)
{
    guest_abandon(d->call.call);
    free(d->call.cursor);
    d->call = (struct download_call){.call = NULL};
}

/* ---- what it says ---- */

/* false: nobody listens any more, or it is not the file that it was. */
static void take_file(struct download *d, const struct sg_wire_line *line)
{
    char was[SG_FILE_TAG_LEN + 1], is[SG_FILE_TAG_LEN + 1];
    bool first = !d->cursor && !d->call.opened;
    d->call.opened = true;
    if (!first)
        return;
    if (!d->told) {
        d->file = line->file;
        if (d->ev.on_open)
            d->ev.on_open(d->arg, &d->file);
        return;
    }
    sg_file_tag(&d->file, was);
    sg_file_tag(&line->file, is);
    d->call.changed = strcmp(was, is) != 0;
}

static bool take_bytes(struct download *d, const struct sg_wire_line *line)
{
    struct download_call *c = &d->call;
    if (c->staged || (!c->opened && !d->cursor) || (c->at && line->offset != c->offset)) {
        c->bad = true;
        return true;
    }
    c->data = true;
    if (d->part.n || d->next.n || !download_deliver(d, d->from + c->at, line->data, line->len)) {
        d->call.waits = !d->gone;
        return false;
    }
    c->at += line->len;
    c->offset = line->offset + line->len;
    return true;
}

static bool take_count(struct download *d, const char *text, size_t len)
{
    struct download_call *c = &d->call;
    if (c->staged || c->data || !sg_parse_u64(text, len, d->part_bytes, &c->bytes))
        return false;
    c->staged = true;
    return true;
}

static bool take_cursor(struct download *d, const char *text, size_t len)
{
    struct download_call *c = &d->call;
    for (size_t i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    if (c->cursor || !len)
        return false;
    c->cursor = malloc(SG_B64_LEN(len) + 1);
    if (c->cursor)
        c->cursor[sg_b64_encode(c->cursor, text, len)] = '\0';
    return c->cursor != NULL;
}

static void take_word(struct download *d, const struct sg_wire_line *line)
{
    const char *text = (const char *)line->name;
    bool ok = line->name_len > 0;
    if (ok && text[0] == 's')
        ok = take_count(d, text + 1, line->name_len - 1);
    else if (ok && text[0] == 'c')
        ok = take_cursor(d, text + 1, line->name_len - 1);
    d->call.bad = d->call.bad || !ok;
}

/* It gives bytes with its answer, and nobody wants them: so it has put nothing aside. */
static void unwanted(struct download *d)
{
    download_call_abandon(d);
    if (d->gone) {
        download_clear(d);
        return;
    }
    download_rewind(d);
    download_step(d);
}

static bool on_line(void *arg, const struct sg_wire_line *line)
{
    struct download *d = arg;
    if (line->kind == SG_WIRE_NAME) {
        take_word(d, line);
    } else if (d->gone || d->rewind) {
        if (line->kind == SG_WIRE_DATA && !d->call.staged)
            unwanted(d);
    } else if (d->call.bad || d->call.changed) {
        return true;
    } else if (line->kind == SG_WIRE_FILE) {
        take_file(d, line);
    } else if (line->kind == SG_WIRE_DATA) {
        return take_bytes(d, line);
    }
    return true;
}

/* ---- its end ---- */

static void fail(struct download *d, enum sg_code code, const char *why)
{
    struct sg_error e;
    (void)sg_fail(&e, code, SG_FINISHED, "%s", why);
    download_end(d, &e);
}

static void fail_malformed(struct download *d)
{
    fail(d, SG_E_UPSTREAM_BAD_RESPONSE,
         "the helper in the sandbox answered something else than it was asked");
}

/* Of a call that began at d->from. */
void download_call_failed(struct download *d, const struct sg_error *e)
{
    int most = d->told ? DOWNLOAD_TRIES : FS_TRIES;
    if (!download_repeats(d, d->from) || !download_later(d, e, &d->call_tries, most, &d->call_later))
        download_end(d, e);
    else
        download_step(d);
}

static void refused(struct download *d, const struct sg_wire_line *line)
{
    struct sg_error e;
    (void)guest_error(line, &e);
    if (e.code == SG_E_FILE_CHANGED && !d->told && d->changes < DOWNLOAD_CHANGES) {
        d->changes++;
        download_begin_anew(d);
        download_step(d);
        return;
    }
    download_end(d, &e);
}

/* What the call that has just ended gave. */
static void answered(struct download *d, struct download_call *c, bool more)
{
    uint64_t gave = c->staged ? c->bytes : c->at;
    d->idle = gave ? 0 : d->idle + 1;
    if (c->staged) {
        d->next = (struct download_part){.n = c->n, .from = d->from, .bytes = c->bytes, .cursor = d->cursor};
        d->cursor = NULL;
    }
    free(d->cursor);
    d->cursor = c->cursor;
    c->cursor = NULL;
    d->from += gave;
    d->ended = !more;
    d->call_tries = 0;
    if (more && d->idle >= DOWNLOAD_IDLE)
        fail_malformed(d);
    else
        download_step(d);
}

static bool is_same(const struct download *d, const struct download_call *c, const struct sg_wire_line *line)
{
    return line->kind == SG_WIRE_OK && strcmp(line->text, "same") == 0 && !d->told && !d->cursor &&
           !c->staged;
}

static void said(struct download *d, struct download_call *c, const struct sg_wire_line *line)
{
    bool more = line->kind == SG_WIRE_MORE, ends = more || line->kind == SG_WIRE_OK;
    if (line->kind == SG_WIRE_ERROR) {
        refused(d, line);
        return;
    }
    bool bad = c->bad || !ends || more != (c->cursor != NULL) || (!c->opened && !d->cursor);
    if (bad || (c->staged && c->changed))
        download_leave(d, c->n, false);
    if (bad) {
        fail_malformed(d);
    } else if (c->changed) {
        fail(d, SG_E_FILE_CHANGED, "the file was changed while it was read");
    } else if (is_same(d, c, line)) {
        if (download_tell(d, true))
            download_end(d, NULL);
    } else {
        answered(d, c, more);
    }
}

static void on_end(void *arg, const struct sg_wire_line *line, bool hello, const struct sg_error *e)
{
    struct download *d = arg;
    struct download_call c = d->call;
    (void)hello;
    d->call = (struct download_call){.call = NULL};
    if (line && line->kind != SG_WIRE_ERROR && c.drops && (c.staged || d->cursor))
        download_dropped(d, c.drops); /* else it may have answered without that */
    if (!line && !c.data && e->outcome != SG_NOT_SENT && e->outcome != SG_NOT_STARTED)
        download_leave(d, c.n, true);
    if (d->gone || d->rewind) {
        if (line && c.staged)
            download_leave(d, c.n, false);
        if (d->gone) {
            download_clear(d);
        } else {
            download_rewind(d);
            download_step(d);
        }
    } else if (line) {
        said(d, &c, line);
    } else {
        download_call_failed(d, e);
    }
    free(c.cursor);
}

/* ---- what it is asked ---- */

/* Options of the first call, each with a value: the cursor says all of it. */
static bool only_at_first(const char *arg)
{
    static const char *const names[] = {"--offset", "--limit", "--tail", "--unless"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(arg, names[i]) == 0)
            return true;
    return false;
}

static size_t put_request(const struct download *d, const char *args[])
{
    size_t n = 0;
    for (size_t i = 0; i < d->request->n; i++) {
        if (d->cursor && only_at_first(d->request->args[i]))
            i++;
        else
            args[n++] = d->request->args[i];
    }
    return n;
}

static struct guest_call *call_guest(struct download *d, const char *const *args, bool sudo,
                                     const struct guest_events *ev, struct sg_error *e)
{
    const struct guest_args g = {
        .session_id = d->session_id, .arch = d->arch, .args = args, .cwd = d->cwd, .sudo = sudo};
    return guest_call_start(d->guestlink, &g, ev, d, e);
}

enum sg_code download_call_start(struct download *d, struct sg_error *e)
{
    static const struct guest_events ev = {.on_line = on_line, .on_end = on_end};
    const char *args[ARGS_MAX + 1];
    char stage[DOWNLOAD_NAME], drop[DOWNLOAD_NAME], part[NUMBER_TEXT], few[NUMBER_TEXT];
    size_t n = put_request(d, args);
    d->call = (struct download_call){.n = ++d->names, .drops = d->nleft ? d->left[0].n : 0};
    download_name(d, d->call.n, stage);
    (void)snprintf(part, sizeof part, "%" PRIu64, d->part_bytes);
    (void)snprintf(few, sizeof few, "%d", DOWNLOAD_INLINE);
    const char *const own[] = {"--inline", few, "--stage", stage, "--part", part};
    memcpy(args + n, own, sizeof own);
    n += sizeof own / sizeof *own;
    if (d->call.drops) {
        download_name(d, d->call.drops, drop);
        args[n++] = "--drop";
        args[n++] = drop;
    }
    if (d->cursor) {
        args[n++] = "--cursor";
        args[n++] = d->cursor;
    }
    args[n] = NULL;
    d->call.call = call_guest(d, args, d->request->sudo, &ev, e);
    return d->call.call ? SG_OK : e->code;
}

/* ---- clearing up ---- */

static bool ignore_line(void *arg, const struct sg_wire_line *line)
{
    (void)arg;
    (void)line;
    return true;
}

static void on_drop_end(void *arg, const struct sg_wire_line *line, bool hello, const struct sg_error *e)
{
    struct download *d = arg;
    (void)hello;
    d->call.call = NULL;
    if (line) {
        d->nleft -= d->call.drops ? 2 : 1;
        memmove(d->left, d->left + (d->call.drops ? 2 : 1), d->nleft * sizeof d->left[0]);
        d->drop_tries = 0;
    } else if (!sg_error_row(e->code)->retryable || e->code == SG_E_DRAINING ||
               ++d->drop_tries == DROP_TRIES) {
        sg_log(SG_LOG_DEBUG, "download_left_behind", "session", "s", d->session_id, "error", "e", e, NULL);
        d->nleft = 0;
    }
    download_clear(d);
}

enum sg_code download_drop_start(struct download *d, struct sg_error *e)
{
    static const struct guest_events ev = {.on_line = ignore_line, .on_end = on_drop_end};
    char first[DOWNLOAD_NAME], second[DOWNLOAD_NAME];
    const char *args[] = {"fs", "--op", "drop", "--stage", first, NULL, NULL, NULL};
    d->dropping = true;
    download_name(d, d->left[0].n, first);
    d->call = (struct download_call){.n = d->left[0].n, .drops = d->nleft > 1 ? d->left[1].n : 0};
    if (d->call.drops) {
        download_name(d, d->call.drops, second);
        args[5] = "--drop";
        args[6] = second;
    }
    d->call.call = call_guest(d, args, false, &ev, e);
    return d->call.call ? SG_OK : e->code;
}
