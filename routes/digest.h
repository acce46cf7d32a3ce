/* Content-Digest and Repr-Digest (RFC 9530): what a body, or what it makes, must be.  sha-256 is checked; of other algorithms
 * beside it nothing is believed, and alone they are refused, for a digest that is not checked must not seem to be. */
#ifndef SG_ROUTES_DIGEST_H
#define SG_ROUTES_DIGEST_H

#include "base/error.h"

#include <stdbool.h>

enum { DIGEST_BYTES = 32, DIGEST_OPTION = sizeof "sha-256:" + 2 * DIGEST_BYTES };

struct digest {
    bool given;
    unsigned char sha256[DIGEST_BYTES];
};

enum digest_fit { DIGEST_FINE, DIGEST_MALFORMED, DIGEST_OTHER };
/* ---- digest.c: pure; any thread ---- */

/* One header line, e.g. "sha-256=:…:, sha-512=:…:". */
enum digest_fit digest_parse(const char *header, struct digest *d);
/* As the guest takes it: "sha-256:HEX". */
void digest_option(const struct digest *d, char out[DIGEST_OPTION]);

/* ---- digest_header.c: loop thread ---- */

struct exchange;
/* INVALID_FIELD or UNSUPPORTED; absent is fine. */
SG_MUST_CHECK enum sg_code digest_of(struct exchange *ex, const char *name, struct digest *d,
                                     struct sg_error *e);

#endif
