/* Which names this server answers to.  A web page can make its own name resolve to this machine (DNS rebinding) and
 * then talk to us as if to its own server; the Host header tells, so only names that cannot be such a page's are
 * taken.  Pure; any thread.
 */
#ifndef SG_EMULATOR_HOSTS_H
#define SG_EMULATOR_HOSTS_H

#include <stdbool.h>

enum { HOSTS_LISTEN = 4, HOSTS_LISTS = 2 };

struct host_names {
    const char *listen[HOSTS_LISTEN]; /* hosts of the listening addresses, without brackets; "": none */
    const char *lists[HOSTS_LISTS];   /* further names, "a,b", lower case; "" or NULL: none */
};

/* A Host header's value (NULL: it is missing), whatever its port: a loopback address, one of ours, any address where
 * we listen on all of them, localhost, the service's own names, or a listed one. */
bool hosts_accept(const struct host_names *h, const char *header);

#endif
