/* SHA-256 (FIPS 180-4).  Pure, libc only, no allocation; any thread. */
#ifndef SG_CORE_SHA256_H
#define SG_CORE_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct sg_sha256 {
    uint32_t h[8];
    uint64_t total; /* bytes so far */
    unsigned char block[64];
};

void sg_sha256_init(struct sg_sha256 *s);
void sg_sha256_update(struct sg_sha256 *s, const void *data, size_t len);
/* Ends the computation; s must be initialised again before further use. */
void sg_sha256_final(struct sg_sha256 *s, unsigned char out[32]);

#endif
