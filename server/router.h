/* Finds the table entry of a request.  Pure; any thread. */
#ifndef SG_SERVER_ROUTER_H
#define SG_SERVER_ROUTER_H

#include "routes/table.h"
#include "server/uri.h"

enum { ROUTER_ALLOW_MAX = 64 };

struct route_match {
    const struct route *route;
    struct uri_part params[EX_MAX_PARAMS];
    size_t nparams;
    char allow[ROUTER_ALLOW_MAX]; /* METHOD_NOT_ALLOWED: the methods of this path, "GET, HEAD, POST" */
};

/* SG_OK, ROUTE_NOT_FOUND or METHOD_NOT_ALLOWED.  HEAD is answered by a GET route that is not an upgrade.  A
 * captured segment is never empty and never holds NUL or '/' (such a path matches nothing). */
enum sg_code router_find(const struct route *table, size_t count, const char *method, const struct uri *u,
                         struct route_match *out);

#endif
