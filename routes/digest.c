#include "routes/digest.h"

#include "base/core/b64.h"
#include "base/crypto.h"

#include <string.h>

#define KEY_CHARS "abcdefghijklmnopqrstuvwxyz0123456789_-.*"
#define B64_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="

enum { B64_SHA256 = 44, B64_SHA512 = 88 };

struct known {
    const char *key;
    size_t b64, bytes;
    bool *given;
    unsigned char *at;
};

static const char *skip(const char *s)
{
    return s + strspn(s, " \t");
}

static bool take(const struct known *k, const char *value, size_t n)
{
    unsigned char bytes[B64_SHA512];
    if (n != k->b64 || sg_b64_decode(bytes, value, n) != (ssize_t)k->bytes)
        return false;
    memcpy(k->at, bytes, k->bytes); /* the last of them counts */
    *k->given = true;
    return true;
}

/* A member of the dictionary: key=:BASE64:; NULL: it is none. */
static const char *member(const char *s, struct digest *d)
{
    const struct known known[] = {
        {"sha-256", B64_SHA256, DIGEST_BYTES, &d->given, d->sha256},
        {"sha-512", B64_SHA512, DIGEST_BYTES_512, &d->given_512, d->sha512},
    };
    size_t key = strspn(s, KEY_CHARS);
    const char *value = s + key;
    if (!key || strncmp(value, "=:", 2) != 0)
        return NULL;
    value += 2;
    size_t n = strspn(value, B64_CHARS);
    if (value[n] != ':')
        return NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (key == strlen(known[i].key) && strncmp(s, known[i].key, key) == 0 && !take(&known[i], value, n))
            return NULL;
    return value + n + 1;
}

enum digest_fit digest_parse(const char *header, struct digest *d)
{
    const char *s = skip(header);
    d->given = d->given_512 = false;
    for (;;) {
        s = member(s, d);
        if (!s)
            return DIGEST_MALFORMED;
        s = skip(s);
        if (!*s)
            break;
        if (*s != ',')
            return DIGEST_MALFORMED;
        s = skip(s + 1);
    }
    return d->given || d->given_512 ? DIGEST_FINE : DIGEST_OTHER;
}

void digest_option(const struct digest *d, char out[DIGEST_OPTION])
{
    memcpy(out, "sha-256:", sizeof "sha-256:");
    sg_hex(out + strlen("sha-256:"), d->sha256, DIGEST_BYTES);
}
