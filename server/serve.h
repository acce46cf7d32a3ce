/* A running gateway: everything between a configuration and a listening socket.  Main thread, which is the
 * loop's. */
#ifndef SG_SERVER_SERVE_H
#define SG_SERVER_SERVE_H

#include "auth/tokens.h"
#include "base/loop.h"
#include "config/config.h"
#include "vercel/client.h"

struct instance;

/* Fills *v from the configuration; the token is taken out of it. */
void instance_upstream(struct config *c, struct vercel_config *v);
/* Under which everything of this team and project is stored. */
enum { INSTANCE_UPSTREAM_TEXT = 260 };
void instance_upstream_key(const struct vercel_config *v, char out[INSTANCE_UPSTREAM_TEXT]);
/* Builds all rooms and listens.  v->token and tokens are taken over, also on failure; c must outlive it.
 * NULL: an error has been said, *exit_code tells which. */
struct instance *instance_new(struct sg_loop *loop, const struct config *c, const struct vercel_config *v,
                              struct token_table *tokens, int *exit_code);
int instance_port(const struct instance *in);
/* "http://127.0.0.1:8080": where a client on this machine finds it. */
void instance_url(const struct instance *in, char out[300]);
/* Ends politely: done(arg) once, on the loop. */
void instance_drain(struct instance *in, void (*done)(void *arg), void *arg);
/* The loop must not be running. */
void instance_free(struct instance *in);

#endif
