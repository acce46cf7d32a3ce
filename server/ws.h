/* WebSocket connections after the handshake: own sockets on the loop, off the HTTP library.  Loop thread.
 *
 * The functions that handlers call (ws_send, ws_close, …) are declared in routes/exchange.h.  A struct ws is
 * owned by its group; it dies on the grave list after on_closed.
 */
#ifndef SG_SERVER_WS_H
#define SG_SERVER_WS_H

#include "base/loop.h"
#include "routes/exchange.h"

enum {
    WS_MAX_MESSAGE = 1408 * 1024,   /* a frame with 1 MiB of payload, also as base64 in JSON */
    WS_QUEUE_MAX = 4 * 1024 * 1024, /* ws_send refuses beyond; callers stop at WS_QUEUE_HIGH */
    WS_CLOSE_MS = 5000,             /* for the peer's close frame */
};

struct ws_group {
    struct sg_loop *loop;
    struct ws *all;   /* every socket, open or about to be */
    struct ws *dirty; /* with something to write */
    size_t count;
    size_t max;
    uint64_t ping_ms;
    unsigned char *scratch; /* one read buffer for all */
};

bool ws_group_init(struct ws_group *g, struct sg_loop *loop, size_t max, uint64_t ping_ms);
/* Cuts all sockets (on_closed runs) and frees the buffer; sockets die on the grave list. */
void ws_group_end(struct ws_group *g);
/* Writes what was queued; part of the end of a turn.  True: there is more already. */
bool ws_group_flush(struct ws_group *g);
/* Tells every socket on_shutdown; those without that callback are closed with 1001. */
void ws_group_shutdown(struct ws_group *g);
void ws_group_close_all(struct ws_group *g, int code, const char *reason);

/* A place for a socket; NULL when out of memory.  Callers check count against max first. */
struct ws *ws_new(struct ws_group *g);
void ws_set_events(struct ws *ws, const struct ws_events *ev, void *arg);
/* The handshake failed or was refused: on_closed (if events were set), then the end. */
void ws_drop(struct ws *ws);
/* Takes the socket (owned from now on, also on failure) and the bytes that came with the handshake. */
void ws_start(struct ws *ws, int fd, const void *early, size_t early_len);

#endif
