/* Everything that is decided from the head alone: gate, router, authentication, handshake, body limits. */
#include "server/internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct collect {
    struct gate_header headers[GATE_MAX_HEADERS];
    size_t count;
    bool overflow;
};

static enum MHD_Result collect_one(void *cls, enum MHD_ValueKind kind, const char *name, size_t name_len,
                                   const char *value, size_t value_len)
{
    (void)kind;
    struct collect *c = cls;
    if (c->count == GATE_MAX_HEADERS) {
        c->overflow = true;
        return MHD_NO;
    }
    c->headers[c->count++] = (struct gate_header){name, name_len, value ? value : "", value_len};
    return MHD_YES;
}

/* Methods of routes and logs: the library's own string dies with the connection. */
static const char *static_method(const char *method)
{
    static const char *const names[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(method, names[i]) == 0)
            return names[i];
    return "other";
}

static bool id_valid(const char *s)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t len = strlen(s);
    return len > 0 && len <= REQUEST_ID_MAX && strspn(s, allowed) == len;
}

static void take_request_id(struct request *r)
{
    const char *given = ex_header(&r->ex, "X-Request-Id");
    if (given && id_valid(given))
        memcpy(r->request_id, given, strlen(given) + 1);
}

static enum sg_code run_gate(struct request *r, const struct collect *c, const char *method,
                             const char *version, struct sg_error *e)
{
    struct gate_head head = {version, c->headers, c->count};
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(r->conn->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (!info)
        return sg_fail(e, SG_E_INTERNAL, SG_NOT_SENT, "the size of the request head is not known");
    struct gate_layout layout = {method, info->header_size, r->raw_in_place, r->raw, version};
    enum sg_code rc = gate_check(&head, &r->verdict, e);
    return rc ? rc : gate_check_layout(&layout, &head, e);
}

static enum sg_code run_router(struct request *r, const char *method, struct sg_error *e)
{
    char *space = r->raw + strlen(r->raw) + 1;
    enum uri_result parsed = uri_parse(r->raw, space, &r->uri);
    if (parsed == URI_MALFORMED)
        return sg_fail(e, SG_E_BAD_REQUEST, SG_NOT_SENT, "the request target is malformed");
    for (size_t i = 0; i < r->uri.nquery; i++)
        if (uri_key_is_credential(&r->uri.query[i].key))
            return sg_fail(e, SG_E_CREDENTIAL_IN_URL, SG_NOT_SENT,
                           "send the token in the Authorization header or as a WebSocket subprotocol");
    struct route_match m;
    enum sg_code rc = parsed == URI_TOO_DEEP
                          ? SG_E_ROUTE_NOT_FOUND
                          : router_find(r->srv->cfg.routes, r->srv->cfg.routes_count, method, &r->uri, &m);
    if (rc == SG_E_METHOD_NOT_ALLOWED) {
        (void)response_header_set(r, "Allow", m.allow);
        return sg_fail(e, rc, SG_NOT_SENT, "this path takes %s", m.allow);
    }
    if (rc)
        return sg_fail(e, rc, SG_NOT_SENT, "no route matches this path");
    r->route = m.route;
    for (size_t i = 0; i < m.nparams; i++)
        r->ex.params[i] = m.params[i].at;
    return SG_OK;
}

static enum sg_code run_auth(struct request *r, struct sg_error *e)
{
    if (r->route->auth == AUTH_NONE)
        return SG_OK;
    const char *header = ex_header(&r->ex, "Authorization");
    enum sg_code rc;
    char token[REQUEST_TOKEN_MAX];
    if (!header && r->route->kind == ROUTE_UPGRADE && upgrade_bearer(r, token, sizeof token)) {
        rc = token_check(r->srv->tokens, token, &r->who, e);
        explicit_bzero(token, sizeof token);
    } else if (header) {
        rc = token_check_header(r->srv->tokens, header, &r->who, e);
    } else {
        rc = sg_fail(e, SG_E_UNAUTHENTICATED, SG_NOT_SENT, "send Authorization: Bearer <token>");
    }
    if (rc == SG_OK)
        r->ex.who = &r->who;
    return rc;
}

/* application/json, any parameters but a charset other than UTF-8. */
static bool is_json_type(const char *type)
{
    if (!type)
        return false;
    size_t n = strcspn(type, "; \t");
    if (n != strlen("application/json") || strncasecmp(type, "application/json", n) != 0)
        return false;
    const char *charset = strcasestr(type + n, "charset=");
    if (!charset)
        return true;
    charset += strlen("charset=");
    if (*charset == '"')
        charset++;
    return strncasecmp(charset, "utf-8", 5) == 0;
}

static bool has_body(const struct request *r)
{
    return r->verdict.chunked || r->verdict.content_length > 0;
}

static enum sg_code check_body(struct request *r, struct sg_error *e)
{
    if (r->route->body == BODY_RAW || !has_body(r))
        return SG_OK;
    size_t max = r->srv->cfg.max_json_body;
    if (r->verdict.content_length > 0 && (uint64_t)r->verdict.content_length > max)
        return sg_fail(e, SG_E_BODY_TOO_LARGE, SG_NOT_SENT, "bodies of this call are at most %zu bytes", max);
    if (r->route->body == BODY_JSON && !is_json_type(ex_header(&r->ex, "Content-Type")))
        return sg_fail(e, SG_E_UNSUPPORTED_MEDIA_TYPE, SG_NOT_SENT, "this call takes application/json");
    return SG_OK;
}

static enum sg_code decide(struct request *r, const char *method, struct sg_error *e)
{
    enum sg_code rc = run_router(r, method, e);
    if (!rc)
        rc = run_auth(r, e);
    if (!rc)
        rc = check_body(r, e);
    if (!rc)
        rc = keyed_check(r, e);
    return rc;
}

void head_process(struct request *r, const char *method, const char *version)
{
    struct collect c;
    c.count = 0;
    c.overflow = false;
    MHD_get_connection_values_n(r->conn->mhd, MHD_HEADER_KIND, collect_one, &c);
    r->ex.method = static_method(method);
    r->http10 = strcmp(version, "HTTP/1.0") == 0;
    struct sg_error e;
    enum sg_code rc = SG_OK;
    if (c.overflow)
        rc = sg_fail(&e, SG_E_HEADERS_TOO_LARGE, SG_NOT_SENT, "more than %d header lines", GATE_MAX_HEADERS);
    r->headers = malloc((c.count ? c.count : 1) * sizeof *r->headers);
    if (r->headers) {
        memcpy(r->headers, c.headers, c.count * sizeof *r->headers);
        r->nheaders = c.count;
    } else {
        rc = sg_fail(&e, SG_E_OUT_OF_MEMORY, SG_NOT_SENT, "no memory for the request head");
    }
    take_request_id(r);
    if (!rc)
        rc = run_gate(r, &c, method, version, &e);
    if (rc) {
        r->must_close = true; /* where the next request begins is not certain */
        ex_fail(&r->ex, &e);
        return;
    }
    r->ex.content_length = r->verdict.content_length;
    if (decide(r, method, &e))
        ex_fail(&r->ex, &e);
    else if (r->route->kind == ROUTE_UPGRADE)
        upgrade_check(r);
}
