#include "routes/run_recall.h"

#include "routes/process_json.h"

#include <stdlib.h>
#include <string.h>

struct recall {
    struct store_work work;
    char *upstream, *sandbox, *session_id, *process_id;
    struct stored_process p;
    bool found;
    run_recalled_fn *done;
    void *arg;
};

static void recall_free(struct recall *r)
{
    if (r->found)
        stored_process_clear(&r->p);
    free(r->upstream);
    free(r->sandbox);
    free(r->session_id);
    free(r->process_id);
    free(r);
}

static enum sg_code get_fn(struct store_db *db, void *arg, struct sg_error *e)
{
    struct recall *r = arg;
    const struct store_which w = {r->upstream, r->sandbox, r->session_id, r->process_id};
    if (r->found)
        stored_process_clear(&r->p);
    enum sg_code rc = store_process_get(db, &w, 3, &r->p, e);
    r->found = !rc;
    return rc;
}

static void on_got(struct store_work *w)
{
    struct recall *r = w->arg;
    r->done(r->arg, w->code ? NULL : &r->p, w->code ? &w->error : NULL);
    recall_free(r);
}

void run_recall(struct gateway *gw, const char *sandbox, const char *session_id, const char *process_id,
                run_recalled_fn *done, void *arg)
{
    struct sg_error e;
    struct recall *r = calloc(1, sizeof *r);
    if (r) {
        r->upstream = strdup(gw->upstream);
        r->sandbox = strdup(sandbox);
        r->session_id = strdup(session_id);
        r->process_id = strdup(process_id);
        r->done = done;
        r->arg = arg;
        r->work = (struct store_work){.kind = STORE_READ,
                                      .fn = get_fn,
                                      .arg = r,
                                      .done = on_got,
                                      .bytes = sizeof *r + 2 * (size_t)STORE_TAIL_MAX};
        if (r->upstream && r->sandbox && r->session_id && r->process_id && store_submit(gw->store, &r->work))
            return;
        recall_free(r);
    }
    (void)sg_fail(&e, SG_E_STORE_UNAVAILABLE, SG_OUTCOME_UNKNOWN,
                  "what was saved of the process cannot be asked for now");
    done(arg, NULL, &e);
}

json_t *run_recalled_json(const struct stored_process *p, size_t max_output)
{
    struct run_result res = {.p = p->p, .out = {"", ""}, .output_complete = p->complete};
    for (int i = 0; i < 2; i++) {
        const struct sg_buf *tail = &p->tail[i];
        if (!p->p.oldest[i] && tail->len) { /* else its beginning was not kept */
            res.out[i] = tail->data;
            res.len[i] = tail->len < max_output ? tail->len : max_output;
        }
        if (p->seen[i] > res.len[i])
            res.truncated = true;
        if (p->p.oldest[i])
            res.output_complete = false;
    }
    json_t *o = run_json(&res, p->session_id);
    if (o && p->p.how == SG_HOW_NONE && json_object_set_new(o, "state", json_string("ended_by_session"))) {
        json_decref(o);
        return NULL;
    }
    return o;
}
