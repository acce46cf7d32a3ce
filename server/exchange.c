/* routes/exchange.h: queries, headers and plain answers. */
#include "server/internal.h"

#include "base/core/num.h"
#include "server/problem.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The largest answer of all: two streams of a run, each 64 MiB, in base64. */
enum { JSON_ANSWER_MAX = 192 * 1024 * 1024 };

static struct request *request_of(struct exchange *ex)
{
    return (struct request *)ex;
}

const char *ex_query(struct exchange *ex, const char *key, size_t *len)
{
    const struct uri_pair *p = uri_query(&request_of(ex)->uri, key);
    if (!p)
        return NULL;
    if (len)
        *len = p->value.len;
    return p->value.at;
}

const char *ex_query_nth(struct exchange *ex, const char *key, size_t i, size_t *len)
{
    const struct uri *u = &request_of(ex)->uri;
    size_t n = strlen(key);
    for (size_t k = 0; k < u->nquery; k++) {
        const struct uri_pair *p = &u->query[k];
        if (p->key.len != n || memcmp(p->key.at, key, n) != 0 || i-- > 0)
            continue;
        *len = p->value.len;
        return p->value.at;
    }
    return NULL;
}

/* "tag.k" is below "tag." */
static bool is_below(const char *prefix, size_t n, const struct uri_part *key)
{
    return key->len > n && memcmp(key->at, prefix, n) == 0 && !memchr(key->at, '\0', key->len);
}

const char *ex_query_below(struct exchange *ex, const char *prefix, size_t i, const char **rest, size_t *len)
{
    const struct uri *u = &request_of(ex)->uri;
    size_t n = strlen(prefix);
    for (size_t k = 0; k < u->nquery; k++) {
        const struct uri_pair *p = &u->query[k];
        if (!is_below(prefix, n, &p->key) || i-- > 0)
            continue;
        *rest = p->key.at + n;
        *len = p->value.len;
        return p->value.at;
    }
    return NULL;
}

static enum sg_code fail_query(const char *key, enum sg_code code, const char *detail, struct sg_error *e)
{
    char pointer[sizeof e->pointer];
    pointer[0] = '?';
    size_t n = strlen(key);
    if (n > sizeof pointer - 2)
        n = sizeof pointer - 2;
    memcpy(pointer + 1, key, n);
    pointer[n + 1] = '\0';
    return sg_fail_field(e, code, pointer, "%s", detail);
}

/* "*name" as "name", "name.*" as all below it */
static bool is_key(const char *allowed, const struct uri_part *key)
{
    allowed += *allowed == '*';
    size_t n = strlen(allowed);
    if (n > 1 && strcmp(allowed + n - 2, ".*") == 0)
        return is_below(allowed, n - 1, key);
    return n == key->len && memcmp(allowed, key->at, key->len) == 0;
}

enum sg_code ex_query_only(struct exchange *ex, const char *const allowed[], struct sg_error *e)
{
    const struct uri *u = &request_of(ex)->uri;
    for (size_t i = 0; i < u->nquery; i++) {
        const struct uri_part *key = &u->query[i].key;
        size_t k = 0;
        while (allowed[k] && !is_key(allowed[k], key))
            k++;
        if (!allowed[k])
            return fail_query(key->at, SG_E_UNKNOWN_FIELD, "unknown query parameter", e);
        if (*allowed[k] != '*' && uri_query(u, key->at) != &u->query[i])
            return fail_query(key->at, SG_E_INVALID_FIELD, "given twice", e);
        if (strcmp(allowed[k], "path") != 0 && memchr(u->query[i].value.at, '\0', u->query[i].value.len))
            return fail_query(key->at, SG_E_INVALID_FIELD, "must not hold NUL", e);
    }
    return SG_OK;
}

enum sg_code ex_query_int(struct exchange *ex, const char *key, int64_t min, int64_t max, int64_t *out,
                          struct sg_error *e)
{
    const struct uri_pair *p = uri_query(&request_of(ex)->uri, key);
    if (!p)
        return SG_OK;
    const char *s = p->value.at;
    size_t len = p->value.len;
    bool negative = len > 0 && s[0] == '-';
    uint64_t n;
    if (!sg_parse_u64(s + negative, len - negative, INT64_MAX, &n))
        return fail_query(key, SG_E_INVALID_FIELD, "must be an integer", e);
    int64_t v = negative ? -(int64_t)n : (int64_t)n;
    if (v < min || v > max) {
        enum sg_code rc = fail_query(key, SG_E_INVALID_FIELD, "", e);
        if (e)
            snprintf(e->detail, sizeof e->detail, "must be from %lld to %lld", (long long)min,
                     (long long)max);
        return rc;
    }
    *out = v;
    return SG_OK;
}

const char *ex_header_line(struct exchange *ex, const char *name, size_t i)
{
    const struct request *r = request_of(ex);
    for (size_t k = 0; k < r->nheaders; k++)
        if (strcasecmp(r->headers[k].name, name) == 0 && i-- == 0)
            return r->headers[k].value;
    return NULL;
}

const char *ex_header(struct exchange *ex, const char *name)
{
    return ex_header_line(ex, name, 0);
}

bool response_header_set(struct request *r, const char *name, const char *value)
{
    size_t nlen = strlen(name) + 1, vlen = strlen(value) + 1;
    char *copy = r->nextra < MAX_RESPONSE_HEADERS ? malloc(nlen + vlen) : NULL;
    if (!copy)
        return false;
    memcpy(copy, name, nlen);
    memcpy(copy + nlen, value, vlen);
    r->extra[r->nextra++] = (struct response_header){copy, copy + nlen};
    return true;
}

void ex_set_header(struct exchange *ex, const char *name, const char *value)
{
    struct request *r = request_of(ex);
    if (!value || strpbrk(value, "\r\n") || strpbrk(name, "\r\n: ")) {
        sg_log(SG_LOG_WARN, "response_header_dropped", "request_id", "s", r->request_id, "name", "s", name,
               NULL);
        return;
    }
    if (!response_header_set(r, name, value))
        sg_log(SG_LOG_WARN, "response_header_dropped", "request_id", "s", r->request_id, "name", "s", name,
               "reason", "s", "no room", NULL);
}

/* True when the exchange has its answer already: a fault in the handler, told once and ignored. */
static bool answered_twice(const struct request *r)
{
    if (r->answer.kind == ANSWER_NONE)
        return false;
    sg_log(SG_LOG_ERROR, "answered_twice", "request_id", "s", r->request_id, "pattern", "s",
           r->route ? r->route->pattern : NULL, NULL);
    return true;
}

void ex_answer_json_text(struct exchange *ex, int status, struct sg_buf *text)
{
    struct request *r = request_of(ex);
    if (answered_twice(r))
        return;
    size_t len = 0;
    char *body = text->failed ? NULL : sg_buf_take(text, &len);
    if (!body) {
        struct sg_error e;
        (void)sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_OUTCOME_UNKNOWN, "no memory for the answer");
        ex_fail(ex, &e);
        return;
    }
    r->answer = (struct answer){ANSWER_BODY, status, "application/json", body, len, SG_OK};
    request_answered(r);
}

void ex_answer_json(struct exchange *ex, int status, json_t *json)
{
    struct sg_buf b;
    sg_buf_init(&b, JSON_ANSWER_MAX);
    if (!json || !problem_dump(json, &b))
        b.failed = true;
    json_decref(json);
    ex_answer_json_text(ex, status, &b);
    sg_buf_free(&b);
}

void ex_answer_empty(struct exchange *ex, int status)
{
    struct request *r = request_of(ex);
    if (answered_twice(r))
        return;
    r->answer = (struct answer){ANSWER_BODY, status, NULL, NULL, 0, SG_OK};
    request_answered(r);
}

void ex_fail(struct exchange *ex, const struct sg_error *e)
{
    struct request *r = request_of(ex);
    if (answered_twice(r))
        return;
    answer_problem(r, e);
    request_answered(r);
}

bool ex_is_gone(const struct exchange *ex)
{
    return atomic_load(&((const struct request *)ex)->gone);
}

void ex_on_gone(struct exchange *ex, void (*fn)(void *arg), void *arg)
{
    struct request *r = request_of(ex);
    r->gone_fn = fn;
    r->gone_arg = arg;
    if (!fn || request_goes_on(r))
        return;
    if (!r->conn || r->conn->peer_gone) {
        r->gone = true;
        request_due(r); /* not from inside this call */
        return;
    }
    conn_watch(r->conn);
}

bool ex_prefers_async(struct exchange *ex)
{
    static const char async[] = "respond-async";
    const char *line;
    for (size_t i = 0; (line = ex_header_line(ex, "Prefer", i)); i++)
        for (const char *at = line; *at;) {
            at += strspn(at, ", \t");
            size_t n = strcspn(at, ",; \t=");
            if (n == sizeof async - 1 && strncasecmp(at, async, n) == 0)
                return true;
            at += strcspn(at, ",");
        }
    return false;
}

void ex_receive(struct exchange *ex, const struct ex_sink *sink, void *arg)
{
    struct request *r = request_of(ex);
    r->sink = sink;
    r->sink_arg = arg;
    request_wake(r);
}

void ex_receive_resume(struct exchange *ex)
{
    request_of(ex)->resume_asked = true;
    request_wake(request_of(ex));
}
