/* The WebSocket protocol sandgate.v1 over any message transport: hello, output frames at offsets, gap, exit, input,
 * presence, error.  Knows nothing of sockets.  Loop thread.
 */
#ifndef SG_RELAY_ATTACH_H
#define SG_RELAY_ATTACH_H

#include "relay/relay.h"

/* The memory of one attached client is bounded by these and by the transport's own queue; its writer holds as much
 * again as ATTACH_WINDOW. */
enum {
    ATTACH_FRAME_MAX = 64 * 1024,   /* payload of one frame */
    ATTACH_QUEUE_HIGH = 256 * 1024, /* queued bytes above which the process's stream is paused */
    ATTACH_QUEUE_MAX = 512 * 1024,  /* above which a client that talks without reading is closed as slow */
    ATTACH_WINDOW = 1024 * 1024,    /* input beyond what was accepted, above which the client is not read */
};

struct attach_io {
    /* Queues one message (text or binary), head and body together.  False: the peer is gone. */
    bool (*send)(void *io, bool text, const void *head, size_t head_len, const void *body, size_t body_len);
    /* Bytes queued and not yet written. */
    size_t (*queued)(void *io);
    /* Sends a close frame after what is queued; attach is told by attach_gone later. */
    void (*close)(void *io, int code, const char *reason);
    /* Takes no more messages from the peer, or takes them again.  NULL: it cannot. */
    void (*hold)(void *io, bool on);
};

enum attach_format { ATTACH_BINARY, ATTACH_JSON }; /* sandgate.v1, sandgate.v1.json */

enum attach_mode {
    ATTACH_AUTO,  /* writes when the process has a use for a writer and this gateway has none */
    ATTACH_WRITE, /* or is refused */
    ATTACH_WATCH,
};

struct attach_spec {
    struct relay_session session;
    const char *sandbox;
    const char *id;
    uint64_t offset[2]; /* a terminal's is the first */
    bool pty;           /* a terminal is expected */
    enum attach_format format;
    enum attach_mode mode;
    bool takeover;       /* the writer that is there ends */
    unsigned cols, rows; /* of the client's terminal; 0: not said */
    bool sudo;           /* the process is root's, as far as is known */
    bool fresh;          /* the process was started just now: there is nothing to paint again */
    bool keepalive_data; /* send keepalive records, for balancers that do not count pings as activity */
};

struct attach;
/* Begins at once (the socket is open).  NULL when out of memory; the caller closes with 1011. */
struct attach *attach_start(struct relay *r, const struct attach_spec *s, const struct attach_io *io,
                            void *io_arg);
/* A whole message from the client. */
void attach_message(struct attach *a, bool text, const void *data, size_t len);
/* The transport's queue fell below half of its limit. */
void attach_drained(struct attach *a);
/* The socket is closed, by either side; a is freed. */
void attach_gone(struct attach *a);
/* The gateway drains: close 1001. */
void attach_drain(struct attach *a);

#endif
