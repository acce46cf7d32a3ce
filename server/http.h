/* The HTTP front: sockets, gate, router, authentication, bodies, answers, WebSocket handshakes.  Implements
 * routes/exchange.h.  Loop thread.
 */
#ifndef SG_SERVER_HTTP_H
#define SG_SERVER_HTTP_H

#include "auth/tokens.h"
#include "base/loop.h"
#include "routes/gateway.h"
#include "routes/table.h"

enum { HTTP_ERR = 256 };

/* Zero means the default given here. */
struct http_server_config {
    const char *listen;          /* "HOST:PORT", "[IPV6]:PORT"; port 0: any free one */
    unsigned max_connections;    /* 4096; HTTP, not counting WebSockets */
    unsigned max_websockets;     /* 2048 */
    size_t max_json_body;        /* 1 MiB */
    unsigned workers;            /* 512: most threads */
    unsigned worker_queue;       /* 1024: most requests that wait for one */
    uint64_t idle_timeout_ms;    /* 75000: a connection without bytes either way */
    uint64_t request_timeout_ms; /* 30000: head and JSON body must be there by then */
    uint64_t ws_ping_ms;         /* 20000 */
    const struct route *routes;  /* NULL: the table of routes/table.h must be given by main */
    size_t routes_count;
};

struct http_server;
/* Listens at once; NULL with a sentence in err.  Keeps gw and tokens, copies cfg. */
struct http_server *http_server_new(struct sg_loop *loop, const struct http_server_config *cfg,
                                    struct gateway *gw, struct token_table *tokens, char err[HTTP_ERR]);
int http_server_port(const struct http_server *s);
/* Stops accepting, sets gw->draining, closes idle connections, tells WebSockets to end; done(arg) once, on the
 * loop, when all are gone or after timeout_ms. */
void http_server_drain(struct http_server *s, uint64_t timeout_ms, void (*done)(void *arg), void *arg);
/* Cuts what is left.  The loop must not be running: it is run here until the workers have returned, so what
 * they wait for must still exist.  Handlers that hold an exchange are told by ex_on_gone, streams by on_gone;
 * an exchange still has to be answered once, now or later (that frees it).  Not from inside a callback. */
void http_server_free(struct http_server *s);

struct http_stats {
    size_t connections, websockets, requests, worker_load;
};
void http_server_stats(struct http_server *s, struct http_stats *out);

#endif
