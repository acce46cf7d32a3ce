/* WebSocket connections to the upstream, by libwebsockets on the gateway's own loop.  Private to vercel/.  Loop
 * thread.
 *
 * What libwebsockets 4.1 would do of its own accord is kept from it here: it resolves names while everybody waits (so
 * it gets addresses), obeys proxy variables of the environment, follows redirects, and leaves the token in freed
 * memory.  Its context is made with the first connection, so a gateway without terminals pays nothing for it.
 */
#ifndef SG_VERCEL_WSOCK_H
#define SG_VERCEL_WSOCK_H

#include "base/loop.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    WSOCK_FRAME_MAX = 16 * 1024, /* payload of one frame sent */
    WSOCK_PATH_MAX = 1900,       /* path and query: the library cuts longer ones */
    WSOCK_MAX = 1024             /* connections at a time */
};

struct wsock_spec {
    const char *address; /* numeric; a name when a proxy connects */
    int port;
    const char *host; /* as the Host header says it; TLS checks the certificate against it, without a port */
    const char *path; /* with query */
    bool tls;
    const char *proxy; /* "user:password@address:port" or "address:port", numeric; NULL: none */
};

struct wsock_events {
    void (*on_open)(void *arg);
    /* A piece of a message. */
    void (*on_data)(void *arg, bool text, bool last, const void *data, size_t len);
    /* After wsock_want_write: one wsock_write, or wsock_close, may be made inside. */
    void (*on_writable)(void *arg);
    /* The end, once, unless dropped: it could not connect, or was closed. */
    void (*on_closed)(void *arg, const char *why);
};

struct wsock_pool;
struct wsock;

/* Copies the string; ca_bundle NULL: the system's.  NULL when out of memory. */
struct wsock_pool *wsock_pool_new(struct sg_loop *loop, const char *ca_bundle);
/* Every connection must have been dropped.  The memory goes when the loop has closed the library's handles. */
void wsock_pool_free(struct wsock_pool *p);

/* No callback before it returns; NULL when it could not begin. */
struct wsock *wsock_connect(struct wsock_pool *p, const struct wsock_spec *spec,
                            const struct wsock_events *ev, void *arg);
void wsock_want_write(struct wsock *s);
/* One frame of at most WSOCK_FRAME_MAX bytes; false: the connection is done for, on_closed will come. */
bool wsock_write(struct wsock *s, bool text, const void *data, size_t len);
/* Says goodbye after what was written; on_closed comes when the peer has answered, or soon. */
void wsock_close(struct wsock *s);
/* Stops and continues reading.  A little may still come after a stop. */
void wsock_pause(struct wsock *s, bool paused);
/* Ends it without a further callback, at once. */
void wsock_drop(struct wsock *s);

#endif
