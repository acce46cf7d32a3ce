#include "emulator/edge_head.h"
#include "base/core/num.h"

#include <string.h>
#include <strings.h>

/* ---- characters ---- */

static bool is_token(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

struct text {
    const char *p;
    size_t n;
};

static struct text trimmed(const char *p, size_t n)
{
    while (n && is_blank(*p)) {
        p++;
        n--;
    }
    while (n && is_blank(p[n - 1]))
        n--;
    return (struct text){p, n};
}

static bool same(struct text t, const char *word)
{
    return t.n == strlen(word) && !strncasecmp(t.p, word, t.n);
}

/* ---- bodies ---- */

enum { CHUNK_SIZE, CHUNK_EXT, CHUNK_SIZE_LF, CHUNK_DATA, CHUNK_CR, CHUNK_LF, TRAILER, TRAILER_LF };

void edge_body_init(struct edge_body *b, enum edge_body_kind kind, uint64_t length)
{
    *b = (struct edge_body){.kind = kind, .left = kind == EDGE_BODY_LENGTH ? length : 0};
    b->done = kind == EDGE_BODY_NONE || (kind == EDGE_BODY_LENGTH && !length);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One byte of a chunk's size line, of the line end after its data, or of the trailers. */
static bool chunk_byte(struct edge_body *b, char c)
{
    int digit;
    switch (b->step) {
    case CHUNK_SIZE:
        digit = hex_digit(c);
        if (digit >= 0) {
            b->left = b->left << 4 | (unsigned)digit;
            return ++b->line <= 15;
        }
        b->step = c == '\r' ? CHUNK_SIZE_LF : CHUNK_EXT;
        return b->line && (c == '\r' || c == ';' || is_blank(c));
    case CHUNK_EXT:
        if (c == '\r')
            b->step = CHUNK_SIZE_LF;
        return c != '\n' && c;
    case CHUNK_SIZE_LF:
        b->line = 0;
        b->step = b->left ? CHUNK_DATA : TRAILER;
        return c == '\n';
    case CHUNK_CR:
        b->step = CHUNK_LF;
        return c == '\r';
    case CHUNK_LF:
        b->step = CHUNK_SIZE;
        b->overhead = 0; /* the limit is per chunk, and for all trailers together */
        return c == '\n';
    case TRAILER:
        if (c == '\r')
            b->step = TRAILER_LF;
        else
            b->line++;
        return c != '\n' && c;
    default: /* TRAILER_LF */
        b->done = !b->line;
        b->line = 0;
        b->step = TRAILER;
        return c == '\n';
    }
}

static ptrdiff_t feed_chunked(struct edge_body *b, const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && !b->done) {
        if (b->step == CHUNK_DATA) {
            size_t k = b->left < n - i ? (size_t)b->left : n - i;
            b->left -= k;
            i += k;
            if (!b->left)
                b->step = CHUNK_CR;
        } else if (!chunk_byte(b, p[i++]) || ++b->overhead > EDGE_TRAILER_MAX) {
            return -1;
        }
    }
    return (ptrdiff_t)i;
}

ptrdiff_t edge_body_feed(struct edge_body *b, const char *p, size_t n)
{
    if (b->done)
        return 0;
    if (b->kind == EDGE_BODY_CHUNKED)
        return feed_chunked(b, p, n);
    if (b->kind == EDGE_BODY_LENGTH) {
        if (n > b->left)
            n = (size_t)b->left;
        b->left -= n;
        b->done = !b->left;
    }
    return (ptrdiff_t)n;
}

/* ---- names ---- */

/* "name[:port]" in lower case; false when it is no host name or address. */
static bool take_host(struct text t, char out[EDGE_HOST_TEXT])
{
    const char *end = t.p + t.n, *colon = NULL;
    bool v6 = t.n && t.p[0] == '[';
    for (const char *c = t.p; c < end; c++)
        if (*c == ':' && (!v6 || c[-1] == ']')) {
            colon = c;
            break;
        }
    size_t n = colon ? (size_t)(colon - t.p) : t.n;
    for (const char *c = colon ? colon + 1 : end; c < end; c++)
        if (*c < '0' || *c > '9')
            return false;
    if (n && t.p[n - 1] == '.')
        n--;
    if (!n || n >= EDGE_HOST_TEXT)
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = lower(t.p[i]);
        bool ok = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' ||
                  (v6 && (c == ':' || c == '[' || c == ']'));
        if (!ok)
            return false;
        out[i] = c;
    }
    out[n] = '\0';
    return true;
}

bool edge_host_label(const char *host, const char *suffix, char label[EDGE_LABEL_TEXT])
{
    size_t n = strcspn(host, ".");
    if (!n || n >= EDGE_LABEL_TEXT || host[n] != '.' ||
        (strcmp(host + n + 1, suffix) != 0 && strcmp(host + n + 1, "localhost") != 0))
        return false;
    memcpy(label, host, n);
    label[n] = '\0';
    return true;
}

/* ---- requests ---- */

/* The end of the line that starts at p, on its CR; NULL with *bad when a control character stands in it, NULL
 * alone when it is not complete. */
static const char *strict_line_end(const char *p, const char *end, bool *bad)
{
    *bad = false;
    for (; p < end; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '\r') {
            if (p + 1 == end)
                return NULL;
            *bad = p[1] != '\n';
            return *bad ? NULL : p;
        }
        if ((c < ' ' && c != '\t') || c == 0x7f) {
            *bad = true;
            return NULL;
        }
    }
    return NULL;
}

struct request_scan {
    bool http10, has_host, has_length, chunked;
    char absolute[EDGE_HOST_TEXT]; /* host of an absolute target; "": none */
};

/* "http://host/path": then that host counts, and Host has to say the same. */
static int absolute_target(const struct edge_request *r, struct request_scan *s)
{
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t k = strlen(schemes[i]);
        if (r->target_len <= k || strncasecmp(r->target, schemes[i], k) != 0)
            continue;
        size_t n = 0;
        while (k + n < r->target_len && !strchr("/?#", r->target[k + n]))
            n++;
        return take_host((struct text){r->target + k, n}, s->absolute) ? 0 : -400;
    }
    return -400;
}

static int request_line(const char *p, const char *end, struct edge_request *r, struct request_scan *s)
{
    const char *m = p;
    while (m < end && is_token((unsigned char)*m))
        m++;
    r->method = p;
    r->method_len = (size_t)(m - p);
    if (m == p || m == end || *m != ' ')
        return -400;
    const char *t = ++m;
    while (t < end && (unsigned char)*t > ' ')
        t++;
    r->target = m;
    r->target_len = (size_t)(t - m);
    if (t == m || end - t != 9 || memcmp(t, " HTTP/", 6) != 0)
        return -400;
    if (memcmp(t + 6, "1.", 2) != 0 || (t[8] != '0' && t[8] != '1'))
        return -505;
    s->http10 = t[8] == '0';
    struct text method = {r->method, r->method_len};
    r->head = method.n == 4 && !memcmp(method.p, "HEAD", 4);
    if (method.n == 7 && !memcmp(method.p, "CONNECT", 7))
        return -405;
    if (*r->target == '/' || (r->target_len == 1 && *r->target == '*'))
        return 0;
    return absolute_target(r, s);
}

static int request_field(const char *p, const char *end, struct edge_request *r, struct request_scan *s)
{
    const char *c = p;
    while (c < end && is_token((unsigned char)*c))
        c++;
    if (c == p || c == end || *c != ':') /* also a folded line: it starts with a blank */
        return -400;
    struct text name = {p, (size_t)(c - p)}, value = trimmed(c + 1, (size_t)(end - c - 1));
    if (same(name, "host")) {
        if (s->has_host || !take_host(value, r->host))
            return -400;
        s->has_host = true;
    } else if (same(name, "content-length")) {
        if (s->has_length || !sg_parse_u64(value.p, value.n, INT64_MAX, &r->length))
            return -400;
        s->has_length = true;
    } else if (same(name, "transfer-encoding")) {
        if (s->chunked || s->http10)
            return -400;
        if (!same(value, "chunked"))
            return -501;
        s->chunked = true;
    }
    return 0;
}

static int request_sense(struct edge_request *r, const struct request_scan *s)
{
    if ((s->chunked && s->has_length) || (!s->has_host && !s->http10))
        return -400;
    if (*s->absolute) {
        if (s->has_host && strcmp(s->absolute, r->host) != 0)
            return -400;
        memcpy(r->host, s->absolute, sizeof r->host);
    }
    r->kind = s->chunked ? EDGE_BODY_CHUNKED : r->length ? EDGE_BODY_LENGTH : EDGE_BODY_NONE;
    return 0;
}

ptrdiff_t edge_request_parse(const char *p, size_t n, struct edge_request *out)
{
    struct request_scan s = {0};
    const char *at = p, *end = p + n;
    memset(out, 0, sizeof *out);
    if (!n)
        return 0;
    while (end - at >= 2 && at[0] == '\r' && at[1] == '\n') /* empty lines before a request are allowed */
        at += 2;
    for (bool first = true;; first = false) {
        bool bad;
        const char *eol = strict_line_end(at, end, &bad);
        if (bad)
            return -400;
        if (!eol || eol + 2 - p > EDGE_HEAD_MAX)
            return n >= EDGE_HEAD_MAX ? -431 : 0;
        if (eol == at)
            break;
        int rc = first ? request_line(at, eol, out, &s) : request_field(at, eol, out, &s);
        if (rc)
            return rc;
        at = eol + 2;
    }
    int rc = request_sense(out, &s);
    return rc ? rc : at + 2 - p;
}

/* ---- responses ---- */

struct response_scan {
    bool coded, chunked, unclear, has_length;
};

static void response_field(const char *p, size_t n, struct edge_response *r, struct response_scan *s)
{
    const char *colon = memchr(p, ':', n);
    if (!colon) {
        s->unclear = true;
        return;
    }
    struct text name = trimmed(p, (size_t)(colon - p));
    struct text value = trimmed(colon + 1, n - (size_t)(colon + 1 - p));
    if (same(name, "content-length")) {
        uint64_t length = 0;
        if (!sg_parse_u64(value.p, value.n, INT64_MAX, &length) || (s->has_length && length != r->length))
            s->unclear = true;
        r->length = length;
        s->has_length = true;
    } else if (same(name, "transfer-encoding")) {
        s->chunked = !s->coded && same(value, "chunked");
        s->coded = true;
    }
}

static void response_sense(struct edge_response *r, const struct response_scan *s, bool to_head)
{
    bool upgraded = r->status == 101;
    bool none = to_head || r->status < 200 || r->status == 204 || r->status == 304;
    bool unclear = s->unclear || (s->coded ? !s->chunked || s->has_length : !s->has_length);
    if (none && !upgraded)
        r->kind = EDGE_BODY_NONE;
    else if (unclear || upgraded)
        r->kind = EDGE_BODY_REST;
    else
        r->kind = s->coded ? EDGE_BODY_CHUNKED : EDGE_BODY_LENGTH;
}

ptrdiff_t edge_response_parse(const char *p, size_t n, bool to_head, struct edge_response *out)
{
    static const char start[] = "HTTP/1.";
    struct response_scan s = {0};
    uint64_t status;
    memset(out, 0, sizeof *out);
    if (!n)
        return 0;
    if (memcmp(p, start, n < sizeof start - 1 ? n : sizeof start - 1) != 0)
        return -1;
    const char *at = p, *end = p + n;
    for (bool first = true;; first = false) {
        const char *lf = memchr(at, '\n', (size_t)(end - at));
        if (!lf)
            return n >= EDGE_RESPONSE_MAX ? -1 : 0;
        size_t len = (size_t)(lf - at);
        if (len && at[len - 1] == '\r')
            len--;
        if (first) {
            if (len < 12 || at[8] != ' ' || !sg_parse_u64(at + 9, 3, 999, &status) || status < 100 ||
                (len > 12 && at[12] != ' '))
                return -1;
            out->status = (int)status;
        } else if (len) {
            response_field(at, len, out, &s);
        } else {
            response_sense(out, &s, to_head);
            return lf + 1 - p;
        }
        at = lf + 1;
    }
}
