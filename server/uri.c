#include "server/uri.h"

#include <string.h>
#include <strings.h>

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Decodes n characters to *out, which moves behind the terminating NUL.  In a query '+' is a space. */
static bool decode(const char *in, size_t n, bool query, char **out, struct uri_part *part)
{
    char *to = *out;
    part->at = to;
    for (size_t i = 0; i < n; i++) {
        char c = in[i];
        if (c == '%') {
            if (n - i < 3)
                return false;
            int hi = hex_value(in[i + 1]), lo = hex_value(in[i + 2]);
            if (hi < 0 || lo < 0)
                return false;
            c = (char)(hi * 16 + lo);
            i += 2;
        } else if (c == '+' && query) {
            c = ' ';
        }
        *to++ = c;
    }
    part->len = (size_t)(to - part->at);
    *to++ = '\0';
    *out = to;
    return true;
}

bool uri_path(const char *raw, struct uri_part *path)
{
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t n = strlen(schemes[i]);
        if (strncasecmp(raw, schemes[i], n) == 0) {
            raw += n;
            raw += strcspn(raw, "/?#");
            break;
        }
    }
    if (*raw != '/')
        return false;
    path->at = raw;
    path->len = strcspn(raw, "?#");
    return true;
}

static enum uri_result parse_path(const struct uri_part *path, char **space, struct uri *out)
{
    const char *p = path->at + 1, *end = path->at + path->len;
    bool too_deep = false;
    for (;;) {
        const char *slash = memchr(p, '/', (size_t)(end - p));
        size_t n = (size_t)((slash ? slash : end) - p);
        struct uri_part part;
        if (!decode(p, n, false, space, &part))
            return URI_MALFORMED;
        if (out->nsegments < URI_MAX_SEGMENTS)
            out->segments[out->nsegments++] = part;
        else
            too_deep = true; /* keep going: a bad escape further on is still malformed */
        if (!slash)
            return too_deep ? URI_TOO_DEEP : URI_OK;
        p = slash + 1;
    }
}

static enum uri_result parse_query(const char *q, size_t len, char **space, struct uri *out)
{
    const char *end = q + len;
    while (q < end) {
        const char *amp = memchr(q, '&', (size_t)(end - q));
        const char *stop = amp ? amp : end;
        const char *eq = memchr(q, '=', (size_t)(stop - q));
        const char *key_end = eq ? eq : stop;
        if (stop > q) {
            if (out->nquery == URI_MAX_QUERY)
                return URI_MALFORMED;
            struct uri_pair *pair = &out->query[out->nquery++];
            const char *value = eq ? eq + 1 : stop;
            if (!decode(q, (size_t)(key_end - q), true, space, &pair->key) ||
                !decode(value, (size_t)(stop - value), true, space, &pair->value))
                return URI_MALFORMED;
        }
        q = amp ? amp + 1 : end;
    }
    return URI_OK;
}

enum uri_result uri_parse(const char *raw, char *space, struct uri *out)
{
    out->nsegments = 0;
    out->nquery = 0;
    struct uri_part path;
    if (!uri_path(raw, &path))
        return URI_MALFORMED;
    enum uri_result r = parse_path(&path, &space, out);
    if (r == URI_MALFORMED)
        return r;
    const char *q = path.at + path.len;
    if (*q == '?' && parse_query(q + 1, strcspn(q + 1, "#"), &space, out) == URI_MALFORMED)
        return URI_MALFORMED;
    return r;
}

const struct uri_pair *uri_query(const struct uri *u, const char *key)
{
    size_t len = strlen(key);
    for (size_t i = 0; i < u->nquery; i++)
        if (u->query[i].key.len == len && memcmp(u->query[i].key.at, key, len) == 0)
            return &u->query[i];
    return NULL;
}

bool uri_key_is_credential(const struct uri_part *key)
{
    static const char *const names[] = {"token", "access_token", "authorization", "bearer", "api_key"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (key->len == strlen(names[i]) && strncasecmp(key->at, names[i], key->len) == 0)
            return true;
    return false;
}
