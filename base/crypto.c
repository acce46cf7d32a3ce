#include "base/crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct sg_secret {
    size_t len;
    size_t mapped;
    char bytes[];
};

bool sg_random(void *out, size_t len)
{
    return len <= 0x7fffffff && RAND_bytes(out, (int)len) == 1;
}

/* Identifiers are made for every request; asking OpenSSL for a few bytes each time costs more than all the rest. */
static bool next_random(unsigned char *out)
{
    static _Thread_local struct {
        size_t left;
        unsigned char bytes[512];
    } pool;
    if (pool.left == 0) {
        if (!sg_random(pool.bytes, sizeof pool.bytes))
            return false;
        pool.left = sizeof pool.bytes;
    }
    *out = pool.bytes[--pool.left];
    pool.bytes[pool.left] = 0;
    return true;
}

bool sg_random_id(char *out, const char *prefix, size_t n)
{
    static const char alphabet[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    size_t k = strlen(prefix);
    memcpy(out, prefix, k);
    for (size_t i = 0; i < n;) {
        unsigned char b;
        if (!next_random(&b))
            return false;
        if (b < 252) /* 252 = 7 * 36: no modulo bias */
            out[k + i++] = alphabet[b % 36];
    }
    out[k + n] = '\0';
    return true;
}

void sg_sha256(const void *data, size_t len, unsigned char out[32])
{
    SHA256(data, len, out);
}

bool sg_hmac_sha256(const void *key, size_t key_len, const void *data, size_t len, unsigned char out[32])
{
    unsigned int n = 0;
    return key_len <= 0x7fffffff && HMAC(EVP_sha256(), key, (int)key_len, data, len, out, &n) && n == 32;
}

struct sg_hash {
    EVP_MD_CTX *ctx;
    const EVP_MD *md;
    bool failed;
};

struct sg_hash *sg_hash_new(enum sg_hash_kind kind)
{
    struct sg_hash *h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->md = kind == SG_SHA512 ? EVP_sha512() : EVP_sha256();
    h->ctx = EVP_MD_CTX_new();
    if (h->ctx && sg_hash_restart(h))
        return h;
    sg_hash_free(h);
    return NULL;
}

bool sg_hash_restart(struct sg_hash *h)
{
    h->failed = EVP_DigestInit_ex(h->ctx, h->md, NULL) != 1;
    return !h->failed;
}

void sg_hash_add(struct sg_hash *h, const void *data, size_t len)
{
    h->failed = h->failed || EVP_DigestUpdate(h->ctx, data, len) != 1;
}

size_t sg_hash_end(struct sg_hash *h, unsigned char out[SG_HASH_MAX])
{
    unsigned n = 0;
    if (h->failed || EVP_DigestFinal_ex(h->ctx, out, &n) != 1)
        return 0;
    h->failed = true;
    return n;
}

void sg_hash_free(struct sg_hash *h)
{
    if (!h)
        return;
    EVP_MD_CTX_free(h->ctx);
    free(h);
}

void sg_hex(char *out, const void *data, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *p = data;
    for (size_t i = 0; i < len; i++) {
        out[2 * i] = digits[p[i] >> 4];
        out[2 * i + 1] = digits[p[i] & 15];
    }
    out[2 * len] = '\0';
}

void sg_crypto_thread_end(void)
{
    OPENSSL_thread_stop();
}

bool sg_equal_ct(const void *a, const void *b, size_t len)
{
    return CRYPTO_memcmp(a, b, len) == 0;
}

struct sg_secret *sg_secret_new(const char *bytes, size_t len)
{
    /* A mapping of its own: locking and MADV_DONTDUMP work on whole pages. */
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t need = sizeof(struct sg_secret) + len + 1;
    size_t mapped = (need + page - 1) / page * page;
    struct sg_secret *s = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED)
        return NULL;
    (void)mlock(s, mapped); /* RLIMIT_MEMLOCK may forbid it; the dump mark below still holds */
    (void)madvise(s, mapped, MADV_DONTDUMP);
    s->len = len;
    s->mapped = mapped;
    memcpy(s->bytes, bytes, len);
    s->bytes[len] = '\0';
    return s;
}

const char *sg_secret_bytes(const struct sg_secret *s)
{
    return s->bytes;
}

size_t sg_secret_len(const struct sg_secret *s)
{
    return s->len;
}

void sg_secret_free(struct sg_secret *s)
{
    if (!s)
        return;
    size_t mapped = s->mapped;
    explicit_bzero(s, mapped);
    munmap(s, mapped);
}
