#include "routes/digest.h"

#include "base/core/b64.h"
#include "base/crypto.h"

#include <string.h>

#define KEY_CHARS "abcdefghijklmnopqrstuvwxyz0123456789_-.*"
#define B64_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="

enum { B64_SHA256 = 44 };

static const char *skip(const char *s)
{
    return s + strspn(s, " \t");
}

/* A member of the dictionary: key=:BASE64:; NULL: it is none. */
static const char *member(const char *s, struct digest *d, bool *ours)
{
    size_t key = strspn(s, KEY_CHARS);
    const char *value = s + key;
    if (!key || strncmp(value, "=:", 2) != 0)
        return NULL;
    value += 2;
    size_t n = strspn(value, B64_CHARS);
    if (value[n] != ':')
        return NULL;
    if (key == strlen("sha-256") && strncmp(s, "sha-256", key) == 0) {
        unsigned char bytes[B64_SHA256];
        if (n != B64_SHA256 || sg_b64_decode(bytes, value, n) != DIGEST_BYTES)
            return NULL;
        memcpy(d->sha256, bytes, DIGEST_BYTES); /* the last of them counts */
        *ours = true;
    }
    return value + n + 1;
}

enum digest_fit digest_parse(const char *header, struct digest *d)
{
    bool ours = false;
    const char *s = skip(header);
    for (;;) {
        s = member(s, d, &ours);
        if (!s)
            return DIGEST_MALFORMED;
        s = skip(s);
        if (!*s)
            break;
        if (*s != ',')
            return DIGEST_MALFORMED;
        s = skip(s + 1);
    }
    d->given = ours;
    return ours ? DIGEST_FINE : DIGEST_OTHER;
}

void digest_option(const struct digest *d, char out[DIGEST_OPTION])
{
    memcpy(out, "sha-256:", sizeof "sha-256:");
    sg_hex(out + strlen("sha-256:"), d->sha256, DIGEST_BYTES);
}
