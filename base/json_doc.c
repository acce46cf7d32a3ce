#include "base/json_doc.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    char *p;         /* the next byte; *end is a NUL, which no value takes */
    const char *end; /* the document's */
    struct sg_jdoc *doc;
};

static struct sg_jnode *node_new(struct sg_jdoc *d, enum sg_jtype type)
{
    if (d->count == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 128;
        struct sg_jnode *p = cap <= SG_JDOC_NODES_MAX ? realloc(d->nodes, cap * sizeof *p) : NULL;
        if (!p)
            return NULL;
        d->nodes = p;
        d->cap = cap;
    }
    struct sg_jnode *n = &d->nodes[d->count++];
    *n = (struct sg_jnode){.type = type, .span = 1};
    return n;
}

static void skip_space(struct reader *r)
{
    while (*r->p == ' ' || *r->p == '\n' || *r->p == '\r' || *r->p == '\t')
        r->p++;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* ---- strings ---- */

static bool plain(unsigned char c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

/* Length of the UTF-8 character at p that is not ASCII; 0: none.  A NUL ends the text, so no byte beyond it is
 * looked at. */
static size_t wide(const unsigned char *p)
{
    unsigned char lo = 0x80, hi = 0xbf;
    size_t n;
    if (p[0] >= 0xc2 && p[0] <= 0xdf) {
        n = 2;
    } else if (p[0] >= 0xe0 && p[0] <= 0xef) {
        n = 3;
        lo = p[0] == 0xe0 ? 0xa0 : lo; /* overlong */
        hi = p[0] == 0xed ? 0x9f : hi; /* surrogates */
    } else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
        n = 4;
        lo = p[0] == 0xf0 ? 0x90 : lo;
        hi = p[0] == 0xf4 ? 0x8f : hi; /* beyond U+10FFFF */
    } else {
        return 0;
    }
    if (p[1] < lo || p[1] > hi)
        return 0;
    for (size_t i = 2; i < n; i++)
        if (p[i] < 0x80 || p[i] > 0xbf)
            return 0;
    return n;
}

/* Four hex digits; -1: not. */
static int32_t hex4(const char *p)
{
    int32_t v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int digit = is_digit(c)            ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1; /* also at the NUL: no byte beyond it is looked at */
        v = v << 4 | digit;
    }
    return v;
}

static char *put_utf8(char *o, int32_t c)
{
    if (c < 0x80) {
        *o++ = (char)c;
    } else if (c < 0x800) {
        *o++ = (char)(0xc0 | c >> 6);
        *o++ = (char)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        *o++ = (char)(0xe0 | c >> 12);
        *o++ = (char)(0x80 | (c >> 6 & 0x3f));
        *o++ = (char)(0x80 | (c & 0x3f));
    } else {
        *o++ = (char)(0xf0 | c >> 18);
        *o++ = (char)(0x80 | (c >> 12 & 0x3f));
        *o++ = (char)(0x80 | (c >> 6 & 0x3f));
        *o++ = (char)(0x80 | (c & 0x3f));
    }
    return o;
}

/* The escape at r->p, behind its backslash; never longer as text than it was escaped.  NULL: not one. */
static char *unescape(struct reader *r, char *o)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = *r->p++;
    if (c == 'u') {
        int32_t v = hex4(r->p);
        if (v <= 0 || (v >= 0xdc00 && v <= 0xdfff))
            return NULL; /* no NUL, no half of a pair */
        r->p += 4;
        if (v >= 0xd800 && v <= 0xdbff) {
            int32_t low = r->p[0] == '\\' && r->p[1] == 'u' ? hex4(r->p + 2) : -1;
            if (low < 0xdc00 || low > 0xdfff)
                return NULL;
            r->p += 6;
            v = 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00);
        }
        return put_utf8(o, v);
    }
    const char *at = c ? strchr(from, c) : NULL;
    if (!at)
        return NULL;
    *o++ = to[at - from];
    return o;
}

/* At the opening quote. */
static bool read_string(struct reader *r)
{
    char *start = ++r->p, *o = start;
    for (;;) {
        char *run = r->p;
        while (plain((unsigned char)*r->p))
            r->p++;
        size_t n = (size_t)(r->p - run);
        if (o != run)
            memmove(o, run, n);
        o += n;
        if (*r->p == '"')
            break;
        if (*r->p == '\\') {
            r->p++;
            o = unescape(r, o);
            if (!o)
                return false;
            continue;
        }
        n = wide((const unsigned char *)r->p);
        if (!n)
            return false; /* a control character, the end of the text, or no UTF-8 */
        memmove(o, r->p, n);
        o += n;
        r->p += n;
    }
    r->p++;
    *o = '\0';
    struct sg_jnode *v = node_new(r->doc, SG_JSTRING);
    if (!v || (size_t)(o - start) > UINT32_MAX)
        return false;
    v->u.text = start;
    v->len = (uint32_t)(o - start);
    return true;
}

/* ---- numbers ---- */

static void skip_digits(struct reader *r)
{
    while (is_digit(*r->p))
        r->p++;
}

/* What follows the integer part; false: malformed. */
static bool skip_fraction(struct reader *r, bool *real)
{
    if (*r->p == '.') {
        *real = true;
        if (!is_digit(*++r->p))
            return false;
        skip_digits(r);
    }
    if (*r->p == 'e' || *r->p == 'E') {
        *real = true;
        r->p++;
        if (*r->p == '+' || *r->p == '-')
            r->p++;
        if (!is_digit(*r->p))
            return false;
        skip_digits(r);
    }
    return true;
}

static bool read_number(struct reader *r)
{
    char *start = r->p;
    bool negative = *r->p == '-', real = false;
    r->p += negative;
    if (!is_digit(*r->p))
        return false;
    if (*r->p == '0')
        r->p++; /* no digit may follow */
    else
        skip_digits(r);
    const char *end = r->p;
    if (is_digit(*end) || !skip_fraction(r, &real))
        return false;
    struct sg_jnode *v = node_new(r->doc, real ? SG_JREAL : SG_JINTEGER);
    if (!v)
        return false;
    if (real) {
        errno = 0;
        v->u.real = strtod(start, NULL); /* what follows the number is no part of one */
        return !(errno == ERANGE && fabs(v->u.real) == HUGE_VAL);
    }
    int64_t n = 0;
    for (const char *p = start + negative; p < end; p++)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_sub_overflow(n, *p - '0', &n))
            return false;
    /* n is the negative of the digits, since one more negative number exists */
    if (!negative && n == INT64_MIN)
        return false;
    v->u.integer = negative ? n : -n;
    return true;
}

/* ---- values ---- */

static bool read_word(struct reader *r, const char *word, enum sg_jtype type)
{
    size_t n = strlen(word);
    if (strncmp(r->p, word, n) != 0)
        return false;
    r->p += n;
    return node_new(r->doc, type) != NULL;
}

static bool read_value(struct reader *r, unsigned depth);

static bool read_member(struct reader *r, unsigned depth)
{
    if (*r->p != '"' || !read_string(r))
        return false;
    skip_space(r);
    if (*r->p++ != ':')
        return false;
    skip_space(r);
    return read_value(r, depth);
}

/* At the opening bracket.  At most SG_JDOC_DEPTH_MAX deep. */
static bool read_list(struct reader *r, unsigned depth)
{
    bool object = *r->p == '{';
    char close = object ? '}' : ']';
    size_t at = r->doc->count; /* an index: the nodes move as they grow */
    if (depth == SG_JDOC_DEPTH_MAX || !node_new(r->doc, object ? SG_JOBJECT : SG_JARRAY))
        return false;
    r->p++;
    skip_space(r);
    uint32_t n = 0;
    while (n || *r->p != close) {
        if (object ? !read_member(r, depth + 1) : !read_value(r, depth + 1))
            return false;
        n++;
        skip_space(r);
        if (*r->p != ',')
            break;
        r->p++;
        skip_space(r);
    }
    if (*r->p != close)
        return false;
    r->p++;
    r->doc->nodes[at].len = n;
    r->doc->nodes[at].span = (uint32_t)(r->doc->count - at);
    return true;
}

static bool read_value(struct reader *r, unsigned depth)
{
    switch (*r->p) {
    case '{':
    case '[':
        return read_list(r, depth);
    case '"':
        return read_string(r);
    case 't':
        return read_word(r, "true", SG_JTRUE);
    case 'f':
        return read_word(r, "false", SG_JFALSE);
    case 'n':
        return read_word(r, "null", SG_JNULL);
    default:
        return read_number(r);
    }
}

bool sg_jdoc_parse(char *text, size_t len, struct sg_jdoc *out)
{
    *out = (struct sg_jdoc){0};
    struct reader r = {text, text + len, out};
    skip_space(&r);
    bool ok = (*r.p == '{' || *r.p == '[') && read_list(&r, 0);
    if (ok) {
        skip_space(&r);
        ok = r.p == r.end;
    }
    if (ok)
        out->text = text;
    else
        sg_jdoc_free(out);
    return ok;
}

void sg_jdoc_free(struct sg_jdoc *d)
{
    free(d->text);
    free(d->nodes);
    *d = (struct sg_jdoc){0};
}

/* ---- access ---- */

const struct sg_jnode *sg_jn_get(const struct sg_jnode *obj, const char *key)
{
    if (!sg_jn_is(obj, SG_JOBJECT))
        return NULL;
    size_t len = strlen(key);
    const struct sg_jnode *found = NULL, *end = obj + obj->span;
    for (const struct sg_jnode *k = obj + 1; k < end; k += 1 + k[1].span)
        if (k->len == len && memcmp(k->u.text, key, len) == 0)
            found = k + 1;
    return found;
}

const char *sg_jn_str(const struct sg_jnode *obj, const char *key, const char *dflt)
{
    const struct sg_jnode *v = sg_jn_get(obj, key);
    return sg_jn_is(v, SG_JSTRING) ? v->u.text : dflt;
}

int64_t sg_jn_int(const struct sg_jnode *obj, const char *key, int64_t dflt)
{
    const struct sg_jnode *v = sg_jn_get(obj, key);
    if (sg_jn_is(v, SG_JINTEGER))
        return v->u.integer;
    if (sg_jn_is(v, SG_JREAL) && v->u.real > -9e15 && v->u.real < 9e15)
        return (int64_t)v->u.real;
    return dflt;
}

bool sg_jn_bool(const struct sg_jnode *obj, const char *key, bool dflt)
{
    const struct sg_jnode *v = sg_jn_get(obj, key);
    return sg_jn_is_bool(v) ? v->type == SG_JTRUE : dflt;
}
