/* Renews the login of Vercel's CLI, once for all gateways and for the CLI itself. */
#ifndef SG_SERVER_SERVE_LOGIN_H
#define SG_SERVER_SERVE_LOGIN_H

#include "config/config.h"

enum { LOGIN_AHEAD_MS = 120 * 1000 }; /* one that expires sooner is renewed */

/* Blocking; any thread but the loop's; c is not changed meanwhile.  Nothing is done where the login is good for longer, or where
 * it can be something else than `refused` (may be NULL) already.  UNAUTHENTICATED: it cannot be renewed, and the detail says
 * why. */
SG_MUST_CHECK enum sg_code login_keep(const struct config *c, const struct sg_secret *refused, int stop,
                                      struct sg_error *e);

#endif
