/* Thin wrappers over OpenSSL, and secrets.  Any thread. */
#ifndef SG_BASE_CRYPTO_H
#define SG_BASE_CRYPTO_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* Fills out with random bytes; false when the system has none to give. */
SG_MUST_CHECK bool sg_random(void *out, size_t len);
/* A random identifier: prefix + n characters of [0-9a-z]; out must hold strlen(prefix) + n + 1. */
SG_MUST_CHECK bool sg_random_id(char *out, const char *prefix, size_t n);
void sg_sha256(const void *data, size_t len, unsigned char out[32]);
SG_MUST_CHECK bool sg_hmac_sha256(const void *key, size_t key_len, const void *data, size_t len,
                                  unsigned char out[32]);

/* The hash of bytes that come piece by piece; one thread at a time. */
enum sg_hash_kind { SG_SHA256, SG_SHA512 };
enum { SG_HASH_MAX = 64 };
struct sg_hash;
struct sg_hash *sg_hash_new(enum sg_hash_kind kind); /* NULL: out of memory */
/* From the beginning; false: the library fails, and so will the end. */
bool sg_hash_restart(struct sg_hash *h);
void sg_hash_add(struct sg_hash *h, const void *data, size_t len);
/* Its length, 32 or 64; 0: the library failed.  Ends it: sg_hash_restart may follow. */
size_t sg_hash_end(struct sg_hash *h, unsigned char out[SG_HASH_MAX]);
void sg_hash_free(struct sg_hash *h); /* NULL is fine */

void sg_hex(char *out, const void *data, size_t len); /* 2*len + 1 characters */
/* Gives back what the crypto library keeps for this thread.  A detached thread calls it before it says that it has
 * ended: afterwards the process may exit at any moment, and the library's own end would race with the thread's. */
void sg_crypto_thread_end(void);
/* Constant time over `len` bytes. */
bool sg_equal_ct(const void *a, const void *b, size_t len);

/* A secret string: locked into memory where the limit allows, left out of core dumps, wiped when freed.  It
 * has no printing function; its bytes are asked for where they are sent and nowhere else. */
struct sg_secret;
/* Copies; NULL when out of memory. */
struct sg_secret *sg_secret_new(const char *bytes, size_t len);
const char *sg_secret_bytes(const struct sg_secret *s); /* NUL-terminated */
size_t sg_secret_len(const struct sg_secret *s);
void sg_secret_free(struct sg_secret *s); /* NULL is fine */

#endif
