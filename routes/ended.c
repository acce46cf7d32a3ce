#include "routes/ended.h"

#include "base/clock.h"
#include "base/log.h"
#include "routes/process_json.h"
#include "store/processes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { READ_RECORD, READ_LIST, READ_OUTPUT, READ_EVENTS, REFUSE, REMOVE };

/* ---- asking the store ---- */

struct lookup {
    struct store_work work;
    struct act *a;
    struct sg_error e; /* what is answered when nothing was saved */
    void (*go)(struct act *a);
    char *upstream, *sandbox, *session_id, *process_id;
    unsigned bytes;
    bool list;
    struct stored_process p;
    bool found;
    struct stored_process *all;
    size_t n;
    int64_t removed;
};

static void lookup_free(struct lookup *l)
{
    if (l->found)
        stored_process_clear(&l->p);
    free(l->all);
    free(l->upstream);
    free(l->sandbox);
    free(l->session_id);
    free(l->process_id);
    free(l);
}

static enum sg_code get_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct lookup *l = arg;
    const struct store_which w = {l->upstream, l->sandbox, l->session_id, l->process_id};
    if (l->found)
        stored_process_clear(&l->p); /* of an earlier run */
    l->found = false;
    free(l->all);
    l->all = NULL;
    l->n = 0;
    if (l->list)
        return store_process_list(db, l->upstream, l->sandbox, l->session_id, &l->all, &l->n, e);
    enum sg_code rc = store_process_get(db, &w, l->bytes, &l->p, e);
    l->found = !rc;
    return rc;
}

static enum sg_code remove_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct lookup *l = arg;
    return store_process_forget(db, l->upstream, l->sandbox, l->process_id, &l->removed, e);
}

static bool copy(char **out, const char *s)
{
    *out = s ? strdup(s) : NULL;
    return !s || *out;
}

/* False: the store cannot be asked. */
static bool ask(struct act *a, struct lookup *l, enum store_kind kind, store_fn *fn,
                void (*done)(struct store_work *w))
{
    bool ok = copy(&l->upstream, tails_upstream(a->gw->tails)) && copy(&l->sandbox, a->sandbox) &&
              copy(&l->session_id, ex_query(a->ex, "session", NULL)) &&
              copy(&l->process_id, l->list ? NULL : a->ex->params[1]);
    l->a = a;
    l->work = (struct store_work){.kind = kind, .fn = fn, .arg = l, .done = done, .bytes = sizeof *l};
    act_watch(a); /* whoever leaves meanwhile is answered, and a stays until the store has answered */
    return ok && store_submit(a->gw->store, &l->work);
}

/* ---- answering ---- */

/* Answered; what the handler holds is freed by its own fail. */
static void close_act(struct act *a, const struct sg_error *e)
{
    a->ex = NULL;
    a->ended.fail(a, e);
}

json_t *ended_record(const struct stored_process *p)
{
    char text[SG_TIME_TEXT];
    json_t *o = process_json(&p->p, p->session_id);
    sg_time_format(p->expires_ms, text);
    int bad = json_object_set_new(o, "output_complete", json_boolean(p->complete));
    bad |= json_object_set_new(o, "expires_at", json_string(text));
    if (p->p.how == SG_HOW_NONE)
        bad |= json_object_set_new(o, "state", json_string("ended_by_session"));
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *records(const struct lookup *l)
{
    json_t *items = json_array();
    int bad = !items;
    for (size_t i = 0; i < l->n && !bad; i++)
        bad = json_array_append_new(items, ended_record(&l->all[i]));
    json_t *o = bad ? NULL : json_pack("{sOso}", "items", items, "next_cursor", json_null());
    json_decref(items);
    return o;
}

static void answer_json(struct lookup *l, json_t *json)
{
    struct sg_error e;
    struct act *a = l->a;
    if (!json) {
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
        a->ended.fail(a, &e);
        return;
    }
    (void)act_settled(a);
    ex_answer_json(a->ex, 200, json);
    close_act(a, &l->e);
}

static void set_offset(struct exchange *ex, const char *header, uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, value);
    ex_set_header(ex, header, text);
}

static void nothing(void *arg)
{
    (void)arg;
}

static void answer_output(struct lookup *l)
{
    struct act *a = l->a;
    struct exchange *ex = a->ex;
    const struct ended_wish *w = &a->ended;
    uint64_t oldest = l->p.p.oldest[w->stream], end = l->p.p.end[w->stream];
    struct sg_error e;
    set_offset(ex, "X-Offset-End", end);
    set_offset(ex, "X-Offset-Oldest", oldest);
    if (w->offset[0] < oldest) {
        (void)sg_fail(&e, SG_E_OUTPUT_EVICTED, SG_FINISHED,
                      "the output before offset %" PRIu64 " was not saved when its session ended", oldest);
        e.oldest = (int64_t)oldest;
        a->ended.fail(a, &e);
        return;
    }
    if (w->offset[0] > end) {
        (void)sg_fail(&e, SG_E_RANGE_NOT_SATISFIABLE, SG_FINISHED, "the stream ended at %" PRIu64, end);
        a->ended.fail(a, &e);
        return;
    }
    uint64_t n = end - w->offset[0];
    if (w->limit && n > w->limit)
        n = w->limit;
    (void)act_settled(a);
    set_offset(ex, "X-Offset-Next", w->offset[0] + n);
    ex_set_header(ex, "X-Session-Id", l->p.session_id);
    ex_set_header(ex, "Cache-Control", "no-store, no-transform");
    struct ex_stream *out =
        ex_stream_begin(ex, 200, "application/octet-stream", (int64_t)n, nothing, nothing, NULL);
    if (out && (!n || ex_stream_write(out, l->p.tail[w->stream].data + (w->offset[0] - oldest), (size_t)n)))
        ex_stream_end(out);
    else if (out)
        ex_stream_abort(out);
    close_act(a, &l->e);
}

static void answer_events(struct lookup *l)
{
    struct act *a = l->a;
    struct exchange *ex = a->ex;
    enum events_format format = (enum events_format)a->ended.format;
    struct sg_buf b;
    sg_buf_init(&b, ENDED_EVENTS_MAX);
    if (!ended_events_write(&b, a->sandbox, &l->p, format, a->ended.offset)) {
        struct sg_error e;
        sg_buf_free(&b);
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
        a->ended.fail(a, &e);
        return;
    }
    (void)act_settled(a);
    ex_set_header(ex, "X-Session-Id", l->p.session_id);
    ex_set_header(ex, "Cache-Control", "no-store, no-transform");
    ex_set_header(ex, "X-Accel-Buffering", "no");
    struct ex_stream *out = ex_stream_begin(ex, 200, events_type(format), -1, nothing, nothing, NULL);
    if (out && ex_stream_write(out, b.data, b.len))
        ex_stream_end(out);
    else if (out)
        ex_stream_abort(out);
    sg_buf_free(&b);
    close_act(a, &l->e);
}

/* Does it run where we looked, so that nothing of it may be told from elsewhere? */
static bool is_of_live_session(const struct lookup *l)
{
    return l->a->session_id && strcmp(l->a->session_id, l->p.session_id) == 0;
}

static void refuse_or_fail(struct lookup *l)
{
    struct sg_error e;
    struct act *a = l->a;
    if (l->found && !is_of_live_session(l)) {
        (void)sg_fail(&e, SG_E_STALE_SESSION, SG_NOT_STARTED,
                      "the process belongs to session %.100s, which is over", l->p.session_id);
        a->ended.fail(a, &e);
    } else {
        a->ended.fail(a, &l->e);
    }
}

static void on_found(struct store_work *w)
{
    struct lookup *l = w->arg;
    struct act *a = l->a;
    enum kind kind = (enum kind)a->ended.kind;
    /* An act must not be called possible because the store cannot be read. */
    bool broken = w->code && w->code != SG_E_PROCESS_NOT_FOUND && kind != REFUSE;
    /* It was started there and is not there any more: removed. */
    bool gone = l->found && is_of_live_session(l) && l->p.p.how == SG_HOW_NONE;
    bool nothing_saved = kind != REFUSE && (l->list ? !l->n : (!l->found || gone));
    if (!a->ex || (nothing_saved && !broken))
        a->ended.fail(a, &l->e);
    else if (broken)
        a->ended.fail(a, &w->error);
    else if (kind == REFUSE)
        refuse_or_fail(l);
    else if (kind == READ_LIST)
        answer_json(l, records(l));
    else if (kind == READ_RECORD)
        answer_json(l, ended_record(&l->p));
    else if (kind == READ_OUTPUT)
        answer_output(l);
    else
        answer_events(l);
    lookup_free(l);
}

static void on_removed(struct store_work *w)
{
    struct lookup *l = w->arg;
    struct act *a = l->a;
    if (w->code && a->ex) {
        a->ended.fail(a, &w->error);
    } else if (!l->removed || !a->ex) {
        a->ended.fail(a, &l->e);
    } else {
        (void)act_settled(a);
        ex_answer_empty(a->ex, 204);
        close_act(a, &l->e);
    }
    lookup_free(l);
}

/* ---- failing ---- */

static bool may_be_saved(const struct act *a, const struct sg_error *e)
{
    if (a->ended.kind == REFUSE)
        return e->code == SG_E_PROCESS_NOT_FOUND;
    return e->code == SG_E_SANDBOX_NOT_RUNNING || e->code == SG_E_SANDBOX_TRANSITION ||
           e->code == SG_E_STALE_SESSION || e->code == SG_E_PROCESS_NOT_FOUND;
}

static void ended_fail(struct act *a, const struct sg_error *e)
{
    struct sg_error own = *e;
    enum kind kind = (enum kind)a->ended.kind;
    a->fail = a->ended.fail; /* it is asked once */
    struct lookup *l = a->ex && may_be_saved(a, e) ? calloc(1, sizeof *l) : NULL;
    if (!l) {
        a->fail(a, &own);
        return;
    }
    l->e = own;
    l->list = kind == READ_LIST;
    if (kind == READ_OUTPUT)
        l->bytes = 1u << a->ended.stream;
    else if (kind == READ_EVENTS)
        l->bytes = 3;
    if (kind == REMOVE ? ask(a, l, STORE_DURABLE, remove_fn, on_removed)
                       : ask(a, l, STORE_READ, get_fn, on_found))
        return;
    lookup_free(l);
    if (kind != REFUSE)
        (void)sg_fail(&own, SG_E_STORE_UNAVAILABLE, SG_FINISHED, "too much waits for the state file");
    a->fail(a, &own);
}

static void wish(struct act *a, enum kind kind)
{
    a->ended.fail = a->fail;
    a->ended.kind = (int)kind;
    a->fail = ended_fail;
}

void ended_get(struct act *a)
{
    wish(a, READ_RECORD);
}

void ended_list(struct act *a)
{
    wish(a, READ_LIST);
}

void ended_output(struct act *a, int stream, uint64_t offset, uint64_t limit)
{
    wish(a, READ_OUTPUT);
    a->ended.stream = stream;
    a->ended.offset[0] = offset;
    a->ended.limit = limit;
}

void ended_events(struct act *a, enum events_format format, const uint64_t offset[2])
{
    wish(a, READ_EVENTS);
    a->ended.format = (int)format;
    a->ended.offset[0] = offset[0];
    a->ended.offset[1] = offset[1];
}

void ended_refuse(struct act *a)
{
    wish(a, REFUSE);
}

/* What is still coming goes nowhere. */
static size_t swallow(void *arg, const char *data, size_t len)
{
    (void)arg;
    (void)data;
    return len;
}

void ended_refuse_upload(struct exchange *ex, const char *session_id, const struct sg_error *e)
{
    static const struct ex_sink nowhere = {swallow, nothing};
    struct sg_error own = *e;
    struct act *a =
        session_id && e->code == SG_E_PROCESS_NOT_FOUND ? act_new(ex, sizeof *a, NULL, act_fail) : NULL;
    if (!a) {
        if (!session_id || e->code != SG_E_PROCESS_NOT_FOUND)
            ex_fail(ex, &own);
        return; /* act_new has answered where it failed */
    }
    a->session_id = strdup(session_id);
    if (a->session_id) {
        ex_receive(ex, &nowhere, NULL);
        ended_refuse(a);
    }
    a->fail(a, &own);
}

void ended_remove(struct act *a)
{
    wish(a, REMOVE);
}

/* ---- before an upgrade ---- */

static void go_on(struct lookup *l)
{
    struct act *a = l->a;
    void (*go)(struct act * a) = l->go;
    lookup_free(l);
    go(a);
}

static void on_status(void *arg, const struct sg_wire_process *list, size_t n, const struct sg_error *e)
{
    struct lookup *l = arg;
    struct act *a = l->a;
    struct sg_error own;
    (void)list;
    (void)n;
    if (!a->ex)
        (void)sg_fail(&own, SG_E_BAD_REQUEST, SG_NOT_SENT, "the client left");
    else if (e && e->code == SG_E_PROCESS_NOT_FOUND)
        (void)sg_fail(&own, SG_E_STALE_SESSION, SG_NOT_STARTED,
                      "the process belongs to session %.100s, which is over", l->p.session_id);
    else if (e)
        own = *e;
    if (a->ex && !e) {
        go_on(l);
        return;
    }
    lookup_free(l);
    if (!act_retry(a, &own))
        a->fail(a, &own);
}

static void on_checked(struct store_work *w)
{
    struct lookup *l = w->arg;
    struct act *a = l->a;
    struct sg_error e;
    if (!a->ex) {
        a->fail(a, &l->e);
        lookup_free(l);
        return;
    }
    struct relay_session session = act_session(a);
    if (!l->found || is_of_live_session(l)) {
        go_on(l);
    } else if (process_status(a->gw->relay, &session, l->process_id, 0, on_status, l, &e)) {
        a->fail(a, &e);
        lookup_free(l);
    }
}

void ended_check(struct act *a, void (*go)(struct act *a))
{
    struct lookup *l = calloc(1, sizeof *l);
    if (l) {
        (void)sg_fail(&l->e, SG_E_BAD_REQUEST, SG_NOT_SENT, "the client left");
        l->go = go;
    }
    if (l && ask(a, l, STORE_READ, get_fn, on_checked))
        return;
    if (l)
        lookup_free(l);
    go(a); /* the process itself will tell */
}

/* ---- a destroyed sandbox ---- */

struct destroyed {
    const char *upstream, *sandbox;
};

static enum sg_code destroyed_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    const struct destroyed *d = arg;
    int64_t n;
    return store_process_forget(db, d->upstream, d->sandbox, NULL, &n, e);
}

void ended_destroyed(struct gateway *gw, const char *sandbox, const char *session_id)
{
    struct sg_error e;
    if (*session_id)
        tails_gone(gw->tails, session_id, NULL);
    struct destroyed d = {tails_upstream(gw->tails), sandbox};
    if (store_call(gw->store, STORE_DURABLE, destroyed_fn, &d, &e))
        sg_log(SG_LOG_WARN, "saved output not removed", "sandbox", "s", sandbox, "error", "e", &e, NULL);
}
