/* The one table of routes.  Pure data; the server's router walks it. */
#ifndef SG_ROUTES_TABLE_H
#define SG_ROUTES_TABLE_H

#include "routes/exchange.h"

enum route_kind { ROUTE_WORKER, ROUTE_LOOP, ROUTE_UPLOAD, ROUTE_UPGRADE };
enum route_auth { AUTH_NONE, AUTH_TOKEN };
enum route_body { BODY_NONE, BODY_JSON, BODY_RAW };

/* Of a POST with an Idempotency-Key: what it does when it is run again after nobody knows how far an earlier run came. */
enum route_again {
    AGAIN_LOST, /* that cannot be found out: OUTCOME_LOST, without a call of the handler.  What says nothing is this */
    AGAIN_SAFE,  /* it is done once more: twice is as good as once */
    AGAIN_NONCE, /* the handler finds out by ex->nonce */
    AGAIN_BUILD, /* likewise; and its answers are not kept, since running it again builds them */
};
/* May take longer than a client is kept waiting: the client is then answered 202 with the place of the answer, and the
 * handler goes on.  Every WORKER route may; LOOP routes that answer with JSON or nothing, and do not watch the time
 * themselves, say so. */
enum { ROUTE_LASTS = 1 };

struct route {
    const char *method;  /* "GET" */
    const char *pattern; /* "/v1/sandboxes/{name}/run"; a {…} segment captures */
    enum route_kind kind;
    enum route_auth auth;
    enum route_body body;
    void (*handler)(struct exchange *ex);
    enum route_again again;
    unsigned flags;
};

/* The table and its length. */
extern const struct route routes[];
extern const size_t routes_count;

#endif
