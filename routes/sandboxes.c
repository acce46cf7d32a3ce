#include "routes/handlers.h"

#include "base/buf.h"
#include "base/json.h"
#include "routes/ended.h"
#include "routes/gateway.h"
#include "routes/spec.h"

#include <stdlib.h>
#include <string.h>

enum { LIST_DEFAULT = 20, LIST_MAX = 100, CURSOR_MAX = 1024, LOCATION_MAX = 512 };

static const char *const no_query[] = {NULL};

static void answer(struct exchange *ex, int status, json_t *json)
{
    if (json) {
        ex_answer_json(ex, status, json);
        return;
    }
    struct sg_error e;
    (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_FINISHED, "no memory for the answer");
    ex_fail(ex, &e);
}

static void set_location(struct exchange *ex, const char *name)
{
    struct sg_buf b;
    sg_buf_init(&b, LOCATION_MAX);
    (void)sg_buf_adds(&b, "/v1/sandboxes/");
    (void)sg_buf_add_urlenc(&b, name);
    if (!b.failed)
        ex_set_header(ex, "Location", b.data);
    sg_buf_free(&b);
}

void route_sandbox_create(struct exchange *ex)
{
    struct sg_error e;
    json_t *record = NULL;
    bool created = false;
    if (ex_query_only(ex, no_query, &e) || control_create(ex->gw->control, ex->body, &record, &created, &e)) {
        ex_fail(ex, &e);
        return;
    }
    const char *session = sg_jget_str(record, "session_id", NULL);
    /* a snapshot may bring the helper along, an image does not */
    if (created && session && !json_object_get(ex->body, "source"))
        guestlink_fresh(ex->gw->guestlink, session);
    set_location(ex, sg_jget_str(record, "name", ""));
    ex_answer_json(ex, created ? 201 : 200, record);
}

void route_sandbox_destroy(struct exchange *ex)
{
    struct sg_error e;
    char session_id[CONTROL_SESSION_TEXT];
    if (ex_query_only(ex, no_query, &e) || control_destroy(ex->gw->control, ex->params[0], session_id, &e)) {
        ex_fail(ex, &e);
        return;
    }
    ended_destroyed(ex->gw, ex->params[0], session_id);
    ex_answer_empty(ex, 204);
}

/* ---- list ---- */

/* A query value without NUL, at most `max` bytes. */
static enum sg_code query_text(struct exchange *ex, const char *key, const char *pointer, size_t max,
                               const char **out, struct sg_error *e)
{
    size_t len = 0;
    const char *v = ex_query(ex, key, &len);
    if (v && (len > max || memchr(v, '\0', len)))
        return sg_fail_field(e, SG_E_INVALID_FIELD, pointer, "at most %zu bytes and no NUL", max);
    *out = v;
    return SG_OK;
}

/* Link to the next page: what was asked, with the cursor that follows. */
static void set_next_link(struct exchange *ex, const struct control_list_query *q, const char *tag,
                          const char *next)
{
    struct sg_buf b;
    sg_buf_init(&b, 8192);
    (void)sg_buf_addf(&b, "</v1/sandboxes?limit=%lld&cursor=", (long long)q->limit);
    (void)sg_buf_add_urlenc(&b, next);
    if (q->name_prefix) {
        (void)sg_buf_adds(&b, "&name_prefix=");
        (void)sg_buf_add_urlenc(&b, q->name_prefix);
    }
    if (tag) {
        (void)sg_buf_adds(&b, "&tag=");
        (void)sg_buf_add_urlenc(&b, tag);
    }
    (void)sg_buf_adds(&b, ">; rel=\"next\"");
    if (!b.failed)
        ex_set_header(ex, "Link", b.data);
    sg_buf_free(&b);
}

static enum sg_code list(struct exchange *ex, json_t **page, struct sg_error *e)
{
    static const char *const allowed[] = {"limit", "cursor", "name_prefix", "tag", NULL};
    struct control_list_query q = {.limit = LIST_DEFAULT};
    const char *tag = NULL;
    enum sg_code rc = ex_query_only(ex, allowed, e);
    if (!rc)
        rc = ex_query_int(ex, "limit", 1, LIST_MAX, &q.limit, e);
    if (!rc)
        rc = query_text(ex, "cursor", "?cursor", CURSOR_MAX, &q.cursor, e);
    if (!rc)
        rc = query_text(ex, "name_prefix", "?name_prefix", 128, &q.name_prefix, e);
    if (!rc)
        rc = query_text(ex, "tag", "?tag", 1024, &tag, e);
    if (rc)
        return rc;
    char *key = NULL;
    if (tag) {
        const char *colon = strchr(tag, ':'); /* values may hold colons, keys may not */
        if (!colon || colon == tag)
            return sg_fail_field(e, SG_E_INVALID_FIELD, "?tag", "must be KEY:VALUE");
        key = strndup(tag, (size_t)(colon - tag));
        if (!key)
            return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request");
        q.tag_key = key;
        q.tag_value = colon + 1;
    }
    rc = control_list(ex->gw->control, &q, page, e);
    free(key);
    const char *next = rc ? NULL : sg_jget_str(*page, "next_cursor", NULL);
    if (next)
        set_next_link(ex, &q, tag, next);
    return rc;
}

void route_sandbox_list(struct exchange *ex)
{
    struct sg_error e;
    json_t *page = NULL;
    if (list(ex, &page, &e))
        ex_fail(ex, &e);
    else
        ex_answer_json(ex, 200, page);
}

/* ---- get, resume, stop: on the loop ---- */

/* A request that waits for control/.  A client that leaves is answered at once; what is under way goes on. */
struct waiting {
    struct exchange *ex; /* NULL once the client left */
};

static void on_gone(void *arg)
{
    struct waiting *w = arg;
    struct exchange *ex = w->ex;
    struct sg_error e;
    w->ex = NULL;
    (void)sg_fail(&e, SG_E_BAD_REQUEST, SG_OUTCOME_UNKNOWN, "the client left");
    ex_fail(ex, &e);
}

static struct waiting *wait_begin(struct exchange *ex)
{
    struct waiting *w = calloc(1, sizeof *w);
    if (!w) {
        answer(ex, 0, NULL);
        return NULL;
    }
    w->ex = ex;
    ex_on_gone(ex, on_gone, w);
    return w;
}

/* The exchange to answer, NULL when nobody is there any more. */
static struct exchange *wait_end(struct waiting *w)
{
    struct exchange *ex = w->ex;
    free(w);
    if (ex)
        ex_on_gone(ex, NULL, NULL);
    return ex;
}

static void on_record(void *arg, struct sg_buf *record, const struct sg_error *e)
{
    struct exchange *ex = wait_end(arg);
    if (!ex)
        return;
    if (e)
        ex_fail(ex, e);
    else
        ex_answer_json_text(ex, 200, record);
}

void route_sandbox_get(struct exchange *ex)
{
    struct sg_error e;
    if (ex_query_only(ex, no_query, &e)) {
        ex_fail(ex, &e);
        return;
    }
    struct waiting *w = wait_begin(ex);
    if (w)
        control_get(ex->gw->control, ex->params[0], on_record, w);
}

static void on_moved(void *arg, json_t *record, bool pending, const struct sg_error *e)
{
    struct exchange *ex = wait_end(arg);
    if (!ex) {
        json_decref(record);
    } else if (e) {
        ex_fail(ex, e);
    } else if (!pending) {
        answer(ex, 200, record);
    } else {
        set_location(ex, ex->params[0]);
        answer(ex, 202, record ? record : json_pack("{ss}", "name", ex->params[0]));
    }
}

/* The body of stop and resume: {wait_ms?}. */
static enum sg_code wait_of(struct exchange *ex, int64_t *wait_ms, struct sg_error *e)
{
    static const char *const fields[] = {"wait_ms", NULL};
    static const char *const query[] = {"wait_ms", NULL};
    *wait_ms = SPEC_WAIT_MAX_MS;
    enum sg_code rc = ex_query_only(ex, query, e);
    if (!rc)
        rc = ex_query_int(ex, "wait_ms", 0, SPEC_WAIT_MAX_MS, wait_ms, e);
    if (!rc)
        rc = sg_json_only(ex->body, "", fields, e);
    if (!rc)
        rc = sg_json_int(ex->body, "", "wait_ms", 0, SPEC_WAIT_MAX_MS, wait_ms, e);
    return rc;
}

typedef void move_fn(struct control *c, const char *name, int64_t wait_ms, control_move_fn *done, void *arg);

static void move(struct exchange *ex, move_fn *start)
{
    struct sg_error e;
    int64_t wait_ms;
    if (wait_of(ex, &wait_ms, &e)) {
        ex_fail(ex, &e);
        return;
    }
    struct waiting *w = wait_begin(ex);
    if (w)
        start(ex->gw->control, ex->params[0], wait_ms, on_moved, w);
}

void route_sandbox_resume(struct exchange *ex)
{
    move(ex, control_resume);
}

void route_sandbox_stop(struct exchange *ex)
{
    move(ex, control_stop);
}
