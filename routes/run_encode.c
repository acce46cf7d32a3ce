#include "routes/run_encode.h"

#include "base/core/b64.h"

static char short_escape(unsigned char c)
{
    switch (c) {
    case '"':
    case '\\':
        return (char)c;
    case '\b':
        return 'b';
    case '\f':
        return 'f';
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    default:
        return 0;
    }
}

uint64_t run_text_length(const char *s, size_t len)
{
    uint64_t n = len;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c < 0x20)
            n += short_escape(c) ? 1 : 5;
        else
            n += c == '"' || c == '\\';
    }
    return n;
}

static size_t encode_text(const char *s, size_t len, char *out)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        char e = short_escape(c);
        if (!e && c >= 0x20) {
            out[n++] = (char)c;
            continue;
        }
        out[n++] = '\\';
        if (e) {
            out[n++] = e;
            continue;
        }
        out[n] = 'u';
        out[n + 1] = out[n + 2] = '0';
        out[n + 3] = hex[c >> 4];
        out[n + 4] = hex[c & 15];
        n += 5;
    }
    return n;
}

size_t run_encode(bool base64, const char *s, size_t len, char out[RUN_PIECE_MAX], size_t *used)
{
    *used = len < RUN_PIECE ? len : RUN_PIECE;
    return base64 ? sg_b64_encode(out, s, *used) : encode_text(s, *used, out);
}
