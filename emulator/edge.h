/* The emulator's edge: what stands in for the public addresses of sandboxes.  It listens (plain and TLS), finds
 * the sandbox and port by the host name of each request, and carries the bytes, unchanged in both directions,
 * to the process inside: HTTP/1.x and whatever a connection is upgraded to.
 *
 * One connection outside is one connection inside.  Every request head on it is read (edge_head.h), because a
 * later one may be for another host: then the connection inside is replaced, never reused.  After a 101 the
 * bytes have no meaning here any more.  One thread carries everything; a few helpers ask boxes for sockets.
 */
#ifndef SG_EMULATOR_EDGE_H
#define SG_EMULATOR_EDGE_H

#include "emulator/ca.h"
#include "emulator/emulator.h"

#include <sys/socket.h>

enum { EDGE_API_HOSTS_MAX = 16, EDGE_SUFFIX_MAX = 253 };

struct edge_config {
    int plain_fd, tls_fd; /* listening, non-blocking; -1: none.  Owned by the edge from edge_start on */
    const char *suffix;   /* "vercel.run" */
    const struct ca *ca;  /* with tls_fd */
    bool late_routes;     /* ports added to a running session are reachable at once */
    /* Hosts that lead to the emulator's own API, so that one TLS listener can stand in for everything. */
    const char *api_hosts[EDGE_API_HOSTS_MAX];
    size_t n_api_hosts;
    struct sockaddr_storage api;
    socklen_t api_len;
};

struct edge;
/* NULL when there is no memory or no thread (the sockets are closed then).  The strings must stay. */
struct edge *edge_start(struct emulator *emu, const struct edge_config *config);
/* The ports of some sandbox changed: connections whose route is gone are cut.  Any thread; NULL is fine. */
void edge_routes_changed(struct edge *edge);
/* Cuts everything; NULL is fine. */
void edge_stop(struct edge *edge);

#endif
