#include "base/problem.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Length of the well-formed UTF-8 sequence at s (NUL-terminated), 0 when there is none. */
static size_t utf8_len(const unsigned char *s)
{
    unsigned char c = s[0];
    if (c < 0x80)
        return 1;
    size_t n = c >= 0xc2 && c <= 0xdf ? 2 : c >= 0xe0 && c <= 0xef ? 3 : c >= 0xf0 && c <= 0xf4 ? 4 : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (c == 0xe0 && s[1] < 0xa0) || (c == 0xf0 && s[1] < 0x90);
    bool surrogate = c == 0xed && s[1] > 0x9f;
    bool too_high = c == 0xf4 && s[1] > 0x8f;
    return overlong || surrogate || too_high ? 0 : n;
}

/* A JSON string of foreign text; bytes that are not UTF-8 become '?'. */
static json_t *text(const char *s)
{
    char clean[512];
    size_t n = 0;
    while (*s && n + 4 < sizeof clean) {
        size_t k = utf8_len((const unsigned char *)s);
        if (k == 0) {
            clean[n++] = '?';
            s++;
            continue;
        }
        memcpy(clean + n, s, k);
        n += k;
        s += k;
    }
    return json_stringn(clean, n);
}

/* Takes v over; false when it or the member could not be made. */
static bool put(json_t *o, const char *key, json_t *v)
{
    return json_object_set_new(o, key, v) == 0;
}

static bool put_text(json_t *o, const char *key, const char *s)
{
    return !s || !s[0] || put(o, key, text(s));
}

static bool put_upstream(json_t *o, const struct sg_error *e)
{
    if (!e->upstream_status && !e->upstream_code[0] && !e->upstream_request_id[0])
        return true;
    json_t *u = json_object();
    bool ok = u && put(u, "status", e->upstream_status ? json_integer(e->upstream_status) : json_null()) &&
              put_text(u, "code", e->upstream_code) && put_text(u, "request_id", e->upstream_request_id);
    if (!ok) {
        json_decref(u);
        return false;
    }
    return put(o, "upstream", u);
}

json_t *sg_problem_json(const struct sg_error *e, const char *request_id, const char *instance)
{
    const struct sg_error_row *row = sg_error_row(e->code);
    if (!row)
        row = sg_error_row(SG_E_INTERNAL);
    char type[96];
    (void)snprintf(type, sizeof type, "/errors/%s", row->code);
    json_t *o = json_object();
    bool ok = o && put(o, "type", json_string(type)) && put(o, "title", json_string(row->title)) &&
              put(o, "status", json_integer(row->status)) && put_text(o, "detail", e->detail) &&
              put_text(o, "instance", instance) && put(o, "provider", json_string("vercel")) &&
              put(o, "code", json_string(row->code)) && put(o, "reason", json_string(row->reason)) &&
              put(o, "retryable", json_boolean(row->retryable)) &&
              put(o, "outcome", json_string(sg_outcome_name(e->outcome))) &&
              put_text(o, "errno", e->errno_name) && put_text(o, "pointer", e->pointer) &&
              put_text(o, "request_id", request_id) && put_upstream(o, e);
    if (ok && e->retry_after_ms >= 0)
        ok = put(o, "retry_after_ms", json_integer(e->retry_after_ms));
    if (ok && e->oldest >= 0)
        ok = put(o, "oldest", json_integer(e->oldest));
    if (ok && e->accepted >= 0)
        ok = put(o, "accepted", json_integer(e->accepted));
    if (!ok) {
        json_decref(o);
        return NULL;
    }
    return o;
}
