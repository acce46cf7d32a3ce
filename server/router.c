#include "server/router.h"

#include <string.h>

static bool capturable(const struct uri_part *s)
{
    return s->len > 0 && !memchr(s->at, '\0', s->len) && !memchr(s->at, '/', s->len);
}

static bool match_pattern(const char *pattern, const struct uri *u, struct route_match *out)
{
    out->nparams = 0;
    for (size_t i = 0; i < u->nsegments; i++) {
        if (*pattern != '/')
            return false;
        pattern++;
        size_t n = strcspn(pattern, "/");
        const struct uri_part *s = &u->segments[i];
        if (n > 0 && pattern[0] == '{') {
            if (!capturable(s) || out->nparams == EX_MAX_PARAMS)
                return false;
            out->params[out->nparams++] = *s;
        } else if (s->len != n || memcmp(s->at, pattern, n) != 0) {
            return false;
        }
        pattern += n;
    }
    return *pattern == '\0';
}

static bool has_method(const char *list, const char *method)
{
    size_t len = strlen(method);
    for (const char *p = list; (p = strstr(p, method)) != NULL; p += len)
        if ((p == list || p[-1] == ' ') && (p[len] == '\0' || p[len] == ','))
            return true;
    return false;
}

static void add_method(char allow[ROUTER_ALLOW_MAX], const char *method)
{
    size_t have = strlen(allow), len = strlen(method);
    if (has_method(allow, method) || have + len + 3 > ROUTER_ALLOW_MAX)
        return;
    if (have) {
        memcpy(allow + have, ", ", 3);
        have += 2;
    }
    memcpy(allow + have, method, len + 1);
}

static bool serves_head(const struct route *r)
{
    return r->kind != ROUTE_UPGRADE && strcmp(r->method, "GET") == 0;
}

enum sg_code router_find(const struct route *table, size_t count, const char *method, const struct uri *u,
                         struct route_match *out)
{
    bool head = strcmp(method, "HEAD") == 0;
    const struct route *by_get = NULL;
    out->route = NULL;
    out->allow[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        const struct route *r = &table[i];
        if (!match_pattern(r->pattern, u, out))
            continue;
        if (strcmp(r->method, method) == 0) {
            out->route = r;
            return SG_OK;
        }
        if (head && serves_head(r) && !by_get)
            by_get = r;
        add_method(out->allow, r->method);
        if (serves_head(r))
            add_method(out->allow, "HEAD");
    }
    if (by_get && match_pattern(by_get->pattern, u, out)) {
        out->route = by_get;
        return SG_OK;
    }
    return out->allow[0] ? SG_E_METHOD_NOT_ALLOWED : SG_E_ROUTE_NOT_FOUND;
}
