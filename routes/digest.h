/* Content-Digest and Repr-Digest (RFC 9530): what a body, or what it makes, must be.  sha-256 and sha-512 are known; of
 * other algorithms nothing is believed. */
#ifndef SG_ROUTES_DIGEST_H
#define SG_ROUTES_DIGEST_H

#include "base/error.h"

#include <stdbool.h>

enum { DIGEST_BYTES = 32, DIGEST_BYTES_512 = 64, DIGEST_OPTION = sizeof "sha-256:" + 2UL * DIGEST_BYTES };

struct digest {
    bool given;
    unsigned char sha256[DIGEST_BYTES];
    bool given_512;
    unsigned char sha512[DIGEST_BYTES_512];
};

/* OTHER: neither of both is there. */
enum digest_fit { DIGEST_FINE, DIGEST_MALFORMED, DIGEST_OTHER };
/* ---- digest.c: pure; any thread ---- */

/* One header line, e.g. "sha-256=:…:, sha-512=:…:". */
enum digest_fit digest_parse(const char *header, struct digest *d);
/* As the guest takes it: "sha-256:HEX". */
void digest_option(const struct digest *d, char out[DIGEST_OPTION]);

/* ---- digest_header.c: loop thread ---- */

struct exchange;
/* For who checks sha-256 alone: others beside it are passed over, and alone are refused, for a digest that is not checked
 * must not seem to be.  INVALID_FIELD or UNSUPPORTED; absent is fine. */
SG_MUST_CHECK enum sg_code digest_of(struct exchange *ex, const char *name, struct digest *d,
                                     struct sg_error *e);
/* For who checks both: where neither is given, nothing is to be checked.  INVALID_FIELD. */
SG_MUST_CHECK enum sg_code digests_of(struct exchange *ex, const char *name, struct digest *d,
                                      struct sg_error *e);

#endif
