#include "server/problem.h"

#include <stdio.h>
#include <string.h>

static const struct sg_error_row *row_of(const struct sg_error *e)
{
    const struct sg_error_row *row = sg_error_row(e->code);
    return row ? row : sg_error_row(SG_E_INTERNAL);
}

/* Text that may quote foreign bytes: what is not UTF-8 becomes '?'. */
static json_t *lenient_string(const char *s)
{
    json_t *v = json_string(s);
    if (v)
        return v;
    char copy[512];
    size_t n = 0;
    for (; s[n] && n + 1 < sizeof copy; n++)
        copy[n] = (unsigned char)s[n] < 0x80 ? s[n] : '?';
    copy[n] = '\0';
    return json_string(copy);
}

static int add_text(json_t *doc, const char *key, const char *s)
{
    if (!s || !*s)
        return 0;
    return json_object_set_new(doc, key, lenient_string(s));
}

static int add_upstream(json_t *doc, const struct sg_error *e)
{
    if (!e->upstream_status && !e->upstream_code[0] && !e->upstream_request_id[0])
        return 0;
    json_t *up = json_object();
    if (!up)
        return -1;
    int bad = 0;
    if (e->upstream_status)
        bad |= json_object_set_new(up, "status", json_integer(e->upstream_status));
    bad |= add_text(up, "code", e->upstream_code);
    bad |= add_text(up, "request_id", e->upstream_request_id);
    bad |= json_object_set_new(doc, "upstream", up);
    return bad;
}

json_t *problem_json(const struct sg_error *e, const char *instance, const char *request_id)
{
    const struct sg_error_row *row = row_of(e);
    json_t *doc = json_object();
    if (!doc)
        return NULL;
    char type[96];
    snprintf(type, sizeof type, "/errors/%s", row->code);
    int bad = 0;
    bad |= add_text(doc, "type", type);
    bad |= add_text(doc, "title", row->title);
    bad |= json_object_set_new(doc, "status", json_integer(row->status));
    bad |= add_text(doc, "detail", e->detail);
    bad |= add_text(doc, "instance", instance);
    bad |= add_text(doc, "provider", "vercel");
    bad |= add_text(doc, "reason", row->reason);
    bad |= add_text(doc, "code", row->code);
    bad |= json_object_set_new(doc, "retryable", json_boolean(row->retryable));
    if (e->retry_after_ms >= 0)
        bad |= json_object_set_new(doc, "retry_after_ms", json_integer(e->retry_after_ms));
    bad |= add_text(doc, "outcome", sg_outcome_name(e->outcome));
    bad |= add_text(doc, "pointer", e->pointer);
    bad |= add_text(doc, "errno", e->errno_name);
    if (e->oldest >= 0)
        bad |= json_object_set_new(doc, "oldest", json_integer(e->oldest));
    if (e->accepted >= 0)
        bad |= json_object_set_new(doc, "accepted", json_integer(e->accepted));
    bad |= add_text(doc, "request_id", request_id);
    bad |= add_upstream(doc, e);
    if (bad) {
        json_decref(doc);
        return NULL;
    }
    return doc;
}

static int dump_piece(const char *data, size_t len, void *arg)
{
    return sg_buf_add(arg, data, len) ? 0 : -1;
}

bool problem_dump(const json_t *json, struct sg_buf *out)
{
    return json_dump_callback(json, dump_piece, out, JSON_COMPACT | JSON_ENCODE_ANY) == 0;
}

bool problem_write(const struct sg_error *e, const char *instance, const char *request_id, struct sg_buf *out)
{
    json_t *doc = problem_json(e, instance, request_id);
    bool ok = doc && problem_dump(doc, out);
    json_decref(doc);
    return ok;
}

int problem_status(const struct sg_error *e)
{
    return row_of(e)->status;
}

int64_t problem_retry_after(const struct sg_error *e)
{
    if (e->retry_after_ms < 0)
        return -1;
    return e->retry_after_ms / 1000 + (e->retry_after_ms % 1000 != 0);
}
