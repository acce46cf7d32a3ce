#include "vercel/ndjson.h"

#include <stdint.h>
#include <string.h>

void ndjson_init(struct ndjson *n)
{
    sg_buf_init(&n->line, NDJSON_LINE_MAX);
    n->returned = false;
}

void ndjson_free(struct ndjson *n)
{
    sg_buf_free(&n->line);
    n->returned = false;
}

/* Hands out the buffered line, without a CR at its end; false when nothing is left of it. */
static bool give(struct ndjson *n, char **line, size_t *line_len)
{
    struct sg_buf *b = &n->line;
    if (b->len && b->data[b->len - 1] == '\r')
        b->data[--b->len] = '\0';
    if (!b->len)
        return false;
    n->returned = true;
    *line = b->data;
    *line_len = b->len;
    return true;
}

enum ndjson_step ndjson_next(struct ndjson *n, const char **data, size_t *len, char **line, size_t *line_len)
{
    if (n->returned) {
        sg_buf_reset(&n->line);
        n->returned = false;
    }
    while (*len) {
        const char *lf = memchr(*data, '\n', *len);
        size_t take = lf ? (size_t)(lf - *data) : *len;
        if (!sg_buf_add(&n->line, *data, take))
            return NDJSON_TOO_LONG;
        take += lf ? 1 : 0;
        *data += take;
        *len -= take;
        if (lf && give(n, line, line_len))
            return NDJSON_LINE;
    }
    return NDJSON_MORE;
}

bool ndjson_rest(struct ndjson *n, char **line, size_t *line_len)
{
    if (n->returned) {
        sg_buf_reset(&n->line);
        n->returned = false;
    }
    return give(n, line, line_len);
}

/* ---- decoding by hand ---- */

static int hex4(const char *p)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d;
        if (c >= '0' && c <= '9')
            d = c - '0';
        else if (c >= 'a' && c <= 'f')
            d = c - 'a' + 10;
        else if (c >= 'A' && c <= 'F')
            d = c - 'A' + 10;
        else
            return -1;
        v = v * 16 + d;
    }
    return v;
}

static char *put_utf8(char *out, unsigned c)
{
    if (c < 0x80) {
        *out++ = (char)c;
    } else if (c < 0x800) {
        *out++ = (char)(0xc0 | c >> 6);
        *out++ = (char)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        *out++ = (char)(0xe0 | c >> 12);
        *out++ = (char)(0x80 | (c >> 6 & 0x3f));
        *out++ = (char)(0x80 | (c & 0x3f));
    } else {
        *out++ = (char)(0xf0 | c >> 18);
        *out++ = (char)(0x80 | (c >> 12 & 0x3f));
        *out++ = (char)(0x80 | (c >> 6 & 0x3f));
        *out++ = (char)(0x80 | (c & 0x3f));
    }
    return out;
}

/* One escape at p (behind the backslash).  Writes what it means (never more than was read) and returns what
 * follows; NULL when it is none. */
static const char *unescape(const char *p, const char *end, char **out)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    if (p >= end || !*p)
        return NULL;
    const char *known = strchr(from, *p);
    if (known) {
        *(*out)++ = to[known - from];
        return p + 1;
    }
    if (*p != 'u' || end - p < 5)
        return NULL;
    int c = hex4(p + 1);
    if (c < 0)
        return NULL;
    p += 5;
    unsigned u = (unsigned)c;
    if (u >= 0xd800 && u <= 0xdbff && end - p >= 6 && p[0] == '\\' && p[1] == 'u') {
        int low = hex4(p + 2);
        if (low >= 0xdc00 && low <= 0xdfff) {
            *out = put_utf8(*out, 0x10000 + ((u - 0xd800) << 10) + ((unsigned)low - 0xdc00));
            return p + 6;
        }
    }
    if (u >= 0xd800 && u <= 0xdfff)
        u = 0xfffd;
    *out = put_utf8(*out, u);
    return p;
}

/* The first quote, backslash or control character from p on, or a few bytes before it; eight at a time. */
static const char *skip_plain(const char *p, const char *end)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t w;
    for (; end - p >= (ptrdiff_t)sizeof w; p += sizeof w) {
        memcpy(&w, p, sizeof w);
        uint64_t quote = w ^ (ones * '"'), back = w ^ (ones * '\\');
        uint64_t found = ((quote - ones) & ~quote) | ((back - ones) & ~back) | ((w - 0x20 * ones) & ~w);
        if (found & high)
            break;
    }
    return p;
}

/* Checks a JSON string body up to its closing quote without changing it: NULL when it is not one. */
static const char *string_end(const char *p, const char *end, bool *plain)
{
    *plain = true;
    while (p < end) {
        p = skip_plain(p, end);
        const char *stop = end - p > 8 ? p + 8 : end; /* what stopped it is before that */
        while (p < stop && *p != '\\') {
            if (*p == '"')
                return p;
            if ((unsigned char)*p < 0x20)
                return NULL;
            p++;
        }
        if (p == stop)
            continue;
        char sink[8];
        char *out = sink;
        *plain = false;
        p = unescape(p + 1, end, &out);
        if (!p)
            return NULL;
    }
    return NULL;
}

static size_t unescape_all(char *s, const char *end)
{
    char *out = s;
    const char *p = s;
    while (p < end) {
        const char *back = memchr(p, '\\', (size_t)(end - p));
        size_t run = (size_t)((back ? back : end) - p);
        memmove(out, p, run);
        out += run;
        p += run;
        if (back)
            p = unescape(p + 1, end, &out); /* was checked: never NULL */
    }
    return (size_t)(out - s);
}

bool ndjson_decode_fast(char *line, size_t len, struct ndjson_value *out)
{
    static const char a[] = "{\"stream\":\"stdout\",\"data\":\"";
    static const char b[] = "{\"stream\":\"stderr\",\"data\":\"";
    const size_t n = sizeof a - 1;
    *out = (struct ndjson_value){.kind = NDJSON_BAD};
    if (len < n + 2)
        return false;
    enum ndjson_kind kind;
    if (!memcmp(line, a, n))
        kind = NDJSON_STDOUT;
    else if (!memcmp(line, b, n))
        kind = NDJSON_STDERR;
    else
        return false;
    bool plain;
    const char *end = line + len;
    const char *quote = string_end(line + n, end, &plain);
    if (!quote || end - quote != 2 || quote[1] != '}')
        return false;
    out->kind = kind;
    out->text = line + n;
    out->len = plain ? (size_t)(quote - out->text) : unescape_all(out->text, quote);
    return true;
}

/* ---- everything else ---- */

void ndjson_decode_slow(const char *line, size_t len, struct ndjson_value *out)
{
    *out = (struct ndjson_value){.kind = NDJSON_BAD};
    json_t *doc = json_loadb(line, len, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(doc)) {
        json_decref(doc);
        return;
    }
    out->doc = doc;
    json_t *command = json_object_get(doc, "command");
    if (command) {
        out->kind = json_is_object(command) ? NDJSON_COMMAND : NDJSON_BAD;
        return;
    }
    const char *stream = json_string_value(json_object_get(doc, "stream"));
    json_t *data = json_object_get(doc, "data");
    if (!stream)
        return;
    if (!strcmp(stream, "error")) {
        out->kind = NDJSON_ERROR;
    } else if (strcmp(stream, "stdout") != 0 && strcmp(stream, "stderr") != 0) {
        out->kind = NDJSON_OTHER;
    } else if (json_is_string(data)) {
        out->kind = stream[3] == 'o' ? NDJSON_STDOUT : NDJSON_STDERR;
        out->text = (char *)(uintptr_t)json_string_value(data);
        out->len = json_string_length(data);
    }
}

void ndjson_decode(char *line, size_t len, struct ndjson_value *out)
{
    if (!ndjson_decode_fast(line, len, out))
        ndjson_decode_slow(line, len, out);
}

void ndjson_value_clear(struct ndjson_value *v)
{
    json_decref(v->doc);
    *v = (struct ndjson_value){.kind = NDJSON_BAD};
}
