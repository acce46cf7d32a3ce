/* The one table of routes.  Pure data; the server's router walks it. */
#ifndef SG_ROUTES_TABLE_H
#define SG_ROUTES_TABLE_H

#include "routes/exchange.h"

enum route_kind { ROUTE_WORKER, ROUTE_LOOP, ROUTE_UPLOAD, ROUTE_UPGRADE };
enum route_auth { AUTH_NONE, AUTH_TOKEN };
enum route_body { BODY_NONE, BODY_JSON, BODY_RAW };

struct route {
    const char *method;  /* "GET" */
    const char *pattern; /* "/v1/sandboxes/{name}/run"; a {…} segment captures */
    enum route_kind kind;
    enum route_auth auth;
    enum route_body body;
    void (*handler)(struct exchange *ex);
};

/* The table and its length. */
extern const struct route routes[];
extern const size_t routes_count;

#endif
