#include "vercel/sandboxes.h"

#include "vercel/answer.h"
#include "vercel/impl.h"

#include "base/buf.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

enum { PATH_MAX_BYTES = 2048, QUERY_MAX_BYTES = 4096 };

enum sg_code vercel_no_memory(struct sg_error *e)
{
    return sg_fail(e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "No memory for the call to the upstream.");
}

static bool name_path(struct sg_buf *b, const char *name)
{
    sg_buf_init(b, PATH_MAX_BYTES);
    return sg_buf_adds(b, "/v2/sandboxes/") && sg_buf_add_urlenc(b, name);
}

bool vercel_add_param(struct sg_buf *q, const char *key, const char *value)
{
    if (!value)
        return true;
    return (!q->len || sg_buf_adds(q, "&")) && sg_buf_adds(q, key) && sg_buf_adds(q, "=") &&
           sg_buf_add_urlenc(q, value);
}

/* ---- create ---- */

static json_t *with_project(const struct vercel_client *c, json_t *body)
{
    json_t *all = json_copy(body); /* shallow: the caller's object stays as it is */
    if (all && c->project_id && json_object_set_new(all, "projectId", json_string(c->project_id))) {
        json_decref(all);
        return NULL;
    }
    return all;
}

int64_t vercel_vcpus(const json_t *body)
{
    const json_t *n = json_object_get(json_object_get(body, "resources"), "vcpus");
    return json_is_integer(n) ? json_integer_value(n) : VERCEL_VCPUS;
}

enum sg_code vercel_create(struct vercel_client *c, json_t *body, struct vercel_sandbox *out,
                           struct sg_error *e)
{
    *out = (struct vercel_sandbox){0};
    json_t *all = with_project(c, body);
    char *text = all ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    if (!text)
        return vercel_no_memory(e);
    const struct vercel_request r = {
        .method = "POST",
        .path = json_object_get(body, "runtime") ? "/v2/sandboxes" : "/v4/sandboxes",
        .body = text,
        .body_len = strlen(text),
        .timeout_ms = c->create_timeout_ms,
        .spends = QUOTA_VCPUS,
        .units = vercel_vcpus(body),
        .means.on_409 = SG_E_SANDBOX_EXISTS,
    };
    char *answer = NULL;
    size_t len = 0;
    enum sg_code code = vercel_wait_body(c, &r, &answer, &len, e);
    explicit_bzero(text, strlen(text));
    free(text);
    return code == SG_OK ? vercel_sandbox_parse(answer, len, out, e) : code;
}

/* ---- get ---- */

struct get_parts {
    struct sg_buf path, query;
    struct vercel_request request;
};

static bool get_request(const struct vercel_client *c, const char *name, bool resume, struct get_parts *p)
{
    sg_buf_init(&p->query, PATH_MAX_BYTES);
    bool ok = name_path(&p->path, name) && vercel_add_param(&p->query, "projectId", c->project_id) &&
              vercel_add_param(&p->query, "resume", resume ? "true" : NULL);
    p->request = (struct vercel_request){
        .method = "GET",
        .path = p->path.data,
        .query = p->query.data,
        .idempotent = true,
        .timeout_ms = resume ? VERCEL_LONG_WAIT_MS : 0,
        .means.on_404 = SG_E_SANDBOX_NOT_FOUND,
    };
    return ok;
}

static void get_parts_free(struct get_parts *p)
{
    sg_buf_free(&p->path);
    sg_buf_free(&p->query);
}

enum sg_code vercel_get(struct vercel_client *c, const char *name, bool resume, struct vercel_sandbox *out,
                        struct sg_error *e)
{
    *out = (struct vercel_sandbox){0};
    struct get_parts p;
    char *answer = NULL;
    size_t len = 0;
    enum sg_code code = get_request(c, name, resume, &p) ? vercel_wait_body(c, &p.request, &answer, &len, e)
                                                         : vercel_no_memory(e);
    get_parts_free(&p);
    return code == SG_OK ? vercel_sandbox_parse(answer, len, out, e) : code;
}

struct get_call {
    struct vercel_client *client;
    struct vercel_call *call;
    vercel_get_fn *done;
    void *arg;
};

static void on_get_body(void *arg, char **body, size_t len, const struct sg_error *e)
{
    struct get_call *g = arg;
    struct vercel_sandbox s = {0};
    struct sg_error own;
    if (!e) {
        char *text = *body;
        *body = NULL;
        if (vercel_sandbox_parse(text, len, &s, &own) != SG_OK)
            e = &own;
        s.asked_again = vercel_call_sent_again(g->call);
        if (e != &own && s.resumed) /* whether it would begin a session was not known before */
            quota_spend(&g->client->quota, QUOTA_VCPUS, s.vcpus > 0 ? s.vcpus : VERCEL_VCPUS, sg_mono_ms());
    }
    g->done(g->arg, e ? NULL : &s, e);
    vercel_sandbox_clear(&s);
}

struct vercel_call *vercel_get_start(struct vercel_client *c, const char *name, bool resume,
                                     vercel_get_fn *done, void *arg, struct sg_error *e)
{
    struct get_parts p;
    struct vercel_call *call = NULL;
    struct get_call *g = malloc(sizeof *g);
    bool ok = get_request(c, name, resume, &p);
    if (!g || !ok) {
        (void)vercel_no_memory(e);
        goto out;
    }
    *g = (struct get_call){.client = c, .done = done, .arg = arg};
    call = vercel_collect_start(c, &p.request, on_get_body, g, e);
    if (call) {
        g->call = call;
        vercel_call_on_gone(call, free, g);
        g = NULL;
    }
out:
    free(g);
    get_parts_free(&p);
    return call;
}

/* ---- list, delete, stop ---- */

enum sg_code vercel_list(struct vercel_client *c, const struct vercel_list_query *q, struct vercel_page *out,
                         struct sg_error *e)
{
    struct sg_buf query;
    char *answer = NULL;
    size_t len = 0;
    *out = (struct vercel_page){0};
    sg_buf_init(&query, QUERY_MAX_BYTES);
    bool ok =
        sg_buf_addf(&query, "limit=%d", q->limit) && vercel_add_param(&query, "project", c->project_id) &&
        vercel_add_param(&query, "cursor", q->cursor) && vercel_add_param(&query, "sortBy", q->sort_by) &&
        vercel_add_param(&query, "sortOrder", q->sort_order) &&
        vercel_add_param(&query, "namePrefix", q->name_prefix) && vercel_add_param(&query, "tags", q->tag) &&
        vercel_add_param(&query, "status", q->status);
    const struct vercel_request r = {
        .method = "GET", .path = "/v2/sandboxes", .query = query.data, .idempotent = true};
    enum sg_code code = ok ? vercel_wait_body(c, &r, &answer, &len, e) : vercel_no_memory(e);
    sg_buf_free(&query);
    return code == SG_OK ? vercel_page_parse(answer, len, out, e) : code;
}

enum sg_code vercel_wait_void(struct vercel_client *c, const struct vercel_request *r, struct sg_error *e)
{
    char *body;
    size_t len = 0;
    enum sg_code code = vercel_wait_body(c, r, &body, &len, e);
    if (code == SG_OK && len) {
        struct sg_error own;
        json_t *doc = vercel_body_json(body, len, e ? e : &own);
        if (!doc)
            code = SG_E_UPSTREAM_BAD_RESPONSE;
        json_decref(doc);
    }
    free(body);
    return code;
}

static enum sg_code delete_it(struct vercel_client *c, const char *name, bool delete_orphan_snapshots,
                              bool again, struct sg_error *e)
{
    struct sg_buf path, query;
    sg_buf_init(&query, PATH_MAX_BYTES);
    bool ok = name_path(&path, name) && vercel_add_param(&query, "projectId", c->project_id) &&
              vercel_add_param(&query, "deleteOrphanSnapshots", delete_orphan_snapshots ? "true" : NULL);
    const struct vercel_request r = {
        .method = "DELETE",
        .path = path.data,
        .query = query.data,
        .idempotent = again,
        .timeout_ms = VERCEL_LONG_WAIT_MS,
        .spends = QUOTA_DELETES,
        .means.on_404 = SG_E_SANDBOX_NOT_FOUND,
    };
    enum sg_code code = ok ? vercel_wait_void(c, &r, e) : vercel_no_memory(e);
    sg_buf_free(&path);
    sg_buf_free(&query);
    return code;
}

enum sg_code vercel_delete(struct vercel_client *c, const char *name, bool delete_orphan_snapshots,
                           struct sg_error *e)
{
    return delete_it(c, name, delete_orphan_snapshots, true, e);
}

enum sg_code vercel_delete_once(struct vercel_client *c, const char *name, bool delete_orphan_snapshots,
                                struct sg_error *e)
{
    return delete_it(c, name, delete_orphan_snapshots, false, e);
}

enum sg_code vercel_stop(struct vercel_client *c, const char *session_id, struct sg_error *e)
{
    struct sg_error own;
    if (!e)
        e = &own;
    struct sg_buf path;
    sg_buf_init(&path, PATH_MAX_BYTES);
    bool ok = sg_buf_adds(&path, "/v2/sandboxes/sessions/") && sg_buf_add_urlenc(&path, session_id) &&
              sg_buf_adds(&path, "/stop");
    const struct vercel_request r = {
        .method = "POST",
        .path = path.data,
        .idempotent = true, /* a session stops once */
        .timeout_ms = VERCEL_LONG_WAIT_MS,
        .means.on_404 = SG_E_SANDBOX_NOT_FOUND,
    };
    enum sg_code code = ok ? vercel_wait_void(c, &r, e) : vercel_no_memory(e);
    sg_buf_free(&path);
    if (code == SG_E_STALE_SESSION) { /* it has stopped already: what was asked for */
        sg_error_clear(e);
        code = SG_OK;
    }
    return code;
}
