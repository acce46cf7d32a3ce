/* Renewing the login of Vercel's CLI: OAuth 2.0, grant type refresh_token, at the token endpoint that the issuer's discovery
 * document names.  Source: RFC 6749 section 6, OpenID Connect Discovery 1.0.
 */
#ifndef SG_VERCEL_LOGIN_H
#define SG_VERCEL_LOGIN_H

#include "base/crypto.h"
#include "base/error.h"

#include <stdint.h>

enum { VERCEL_LOGIN_MS = 15000 };

struct vercel_login {
    const char *
        issuer; /* "https://vercel.com"; its scheme and host are those that the endpoint must have, or https */
    const char *client_id;                 /* of the CLI */
    const char *proxy, *ca_bundle;         /* NULL: none, the system's */
    const struct sg_secret *refresh_token; /* borrowed */
};
struct vercel_tokens {
    struct sg_secret *access, *refresh; /* the caller's; refresh NULL: the old one stays good */
    int64_t expires_ms;                 /* wall clock; 0: not said */
};
/* Blocking, VERCEL_LOGIN_MS at most; any thread but the loop's.  The answer makes the old refresh token worthless, so it is asked
 * once.  UNAUTHENTICATED: the issuer refused (log in again); UPSTREAM_UNREACHABLE, UPSTREAM_TIMEOUT, UPSTREAM_BAD_RESPONSE. */
SG_MUST_CHECK enum sg_code vercel_login_renew(const struct vercel_login *l, struct vercel_tokens *out,
                                              struct sg_error *e);

#endif
