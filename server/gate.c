#include "server/gate.h"

#include "base/core/num.h"

#include <string.h>
#include <strings.h>

#define REFUSE(...) sg_fail(e, SG_E_BAD_REQUEST, SG_NOT_SENT, __VA_ARGS__)

/* RFC 9110 section 5.6.2. */
static bool is_token(const char *s, size_t len)
{
    static const char extra[] = "!#$%&'*+-.^_`|~";
    if (len == 0)
        return false;
    for (size_t i = 0; i < len; i++) {
        char c = s[i];
        bool alnum = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (!alnum && (c == '\0' || !strchr(extra, c)))
            return false;
    }
    return true;
}

/* No control characters but a tab. */
static bool value_is_clean(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

static bool named(const struct gate_header *h, const char *name)
{
    return h->name_len == strlen(name) && strncasecmp(h->name, name, h->name_len) == 0;
}

static bool value_is(const struct gate_header *h, const char *value)
{
    return h->value_len == strlen(value) && strncasecmp(h->value, value, h->value_len) == 0;
}

static enum sg_code take_length(const struct gate_header *h, struct gate_verdict *out, struct sg_error *e)
{
    uint64_t n;
    if (!sg_parse_u64(h->value, h->value_len, INT64_MAX, &n))
        return REFUSE("Content-Length is not a number");
    if (out->content_length >= 0 && (uint64_t)out->content_length != n)
        return REFUSE("two Content-Length headers that differ");
    out->content_length = (int64_t)n;
    return SG_OK;
}

static enum sg_code take_header(const struct gate_header *h, struct gate_verdict *out, unsigned *hosts,
                                struct sg_error *e)
{
    if (!is_token(h->name, h->name_len))
        return REFUSE("a header name is not a token");
    if (!value_is_clean(h->value, h->value_len))
        return REFUSE("a header value holds a control character");
    if (named(h, "Content-Length"))
        return take_length(h, out, e);
    if (named(h, "Transfer-Encoding")) {
        if (out->chunked)
            return REFUSE("two Transfer-Encoding headers");
        if (!value_is(h, "chunked"))
            return REFUSE("no transfer coding but chunked is known here");
        out->chunked = true;
    } else if (named(h, "Host")) {
        if (++*hosts > 1)
            return REFUSE("two Host headers");
    } else if (named(h, "Expect")) {
        if (!value_is(h, "100-continue"))
            return REFUSE("the only expectation known here is 100-continue");
        out->expect_continue = true;
    }
    return SG_OK;
}

enum sg_code gate_check(const struct gate_head *head, struct gate_verdict *out, struct sg_error *e)
{
    out->content_length = -1;
    out->chunked = false;
    out->expect_continue = false;
    bool v11 = strcmp(head->version, "HTTP/1.1") == 0;
    if (!v11 && strcmp(head->version, "HTTP/1.0") != 0)
        return REFUSE("the protocol version is neither HTTP/1.1 nor HTTP/1.0");
    unsigned hosts = 0;
    for (size_t i = 0; i < head->count; i++) {
        enum sg_code rc = take_header(&head->headers[i], out, &hosts, e);
        if (rc)
            return rc;
    }
    if (out->chunked && out->content_length >= 0)
        return REFUSE("Content-Length and Transfer-Encoding together");
    if (out->chunked && !v11)
        return REFUSE("chunked needs HTTP/1.1");
    if (v11 && hosts == 0)
        return REFUSE("HTTP/1.1 needs a Host header");
    return SG_OK;
}

/* Exactly CR LF stood there (the parser wrote NULs over both). */
static bool line_end(const char *at, const char *next)
{
    return next - at == 2 && at[0] == '\0' && at[1] == '\0';
}

static bool inside(const struct gate_layout *l, const char *at, size_t len)
{
    return at >= l->start && at <= l->start + l->len && len <= (size_t)(l->start + l->len - at);
}

enum sg_code gate_check_layout(const struct gate_layout *l, const struct gate_head *head, struct sg_error *e)
{
    size_t version_len = strlen(l->version), uri_len = strlen(l->target);
    if (!inside(l, l->uri, uri_len))
        return REFUSE("the request line is malformed");
    const char *method_end = memchr(l->start, '\0', l->len);
    for (const char *p = l->target; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 0x7f)
            return REFUSE("the request target holds a space or a control character");
    if (!method_end || l->uri != method_end + 1 || !inside(l, l->version, version_len) ||
        l->version != l->uri + uri_len + 1)
        return REFUSE("the request line is malformed");
    const char *end = l->version + version_len; /* of the line before */
    for (size_t i = 0; i < head->count; i++) {
        const struct gate_header *h = &head->headers[i];
        if (!inside(l, h->name, h->name_len) || !line_end(end, h->name))
            return REFUSE("header lines must end in CR LF, hold no NUL and not be folded");
        const char *v = h->name + h->name_len + 1;
        if (!inside(l, h->value, h->value_len) || h->value < v)
            return REFUSE("header lines must not be folded");
        for (; v < h->value; v++)
            if (*v != ' ' && *v != '\t')
                return REFUSE("a header name holds a NUL");
        end = h->value + h->value_len;
    }
    const char *last = l->start + l->len; /* behind the empty line */
    if (last - end != 4 || !line_end(end, end + 2) || !line_end(end + 2, last))
        return REFUSE("the head must end in CR LF CR LF");
    return SG_OK;
}
