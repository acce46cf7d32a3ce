/* Keeps the upstream's token fresh while the gateway runs: looks after its file or login, runs its command again, at most
 * one at a time, and hands what it finds to the client.  Streams that are under way are not touched.  Loop thread. */
#ifndef SG_SERVER_SERVE_CREDENTIALS_H
#define SG_SERVER_SERVE_CREDENTIALS_H

#include "base/loop.h"
#include "config/config.h"
#include "vercel/client.h"

/* Before the credentials are resolved: a stored login that has expired, or will soon, is renewed where it can be.  Blocking. */
void credentials_prepare(const struct config *c);

struct credentials;
/* c and the client must outlive it.  NULL when out of memory; *out NULL where the token is fixed, which is a success. */
bool credentials_new(struct sg_loop *loop, const struct config *c, struct vercel_client *client,
                     struct credentials **out);
/* Before the client.  Waits for a command that runs.  NULL is fine. */
void credentials_free(struct credentials *cr);

#endif
