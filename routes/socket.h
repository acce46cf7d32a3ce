/* A WebSocket that is attached to a process: what attach and exec have in common, from the handshake's query to the
 * wire between the socket and relay/attach.  Loop thread.
 */
#ifndef SG_ROUTES_SOCKET_H
#define SG_ROUTES_SOCKET_H

#include "relay/attach.h"
#include "routes/act.h"

enum { SOCKET_PROTOCOL = 1002, SOCKET_FAILED = 1011, SOCKET_SESSION_OVER = 4010 };

/* What the handshake asks for. */
struct socket_ask {
    const char *protocol; /* static */
    enum attach_format format;
    int64_t offset[2];
    bool pty;
    enum attach_mode mode;
    bool takeover, keepalive_data, resume;
    unsigned cols, rows;
};
/* `resume`: of a handshake that may ask for it. */
SG_MUST_CHECK enum sg_code socket_ask_parse(struct exchange *ex, bool resume, struct socket_ask *out,
                                            struct sg_error *e);
struct socket {
    struct gateway *gw;
    struct ws *ws;         /* NULL before it opened */
    struct attach *attach; /* NULL before socket_attach */
    char *sandbox, *session_id, *cwd, *arch;
    struct socket_ask ask;
    bool gone; /* the connection is over */
    bool busy; /* a call is under way that will come back here: not to be freed yet */
    /* Before it is attached; NULL: attached when it opens, to `id`. */
    void (*opened)(struct socket *s);
    void (*message)(struct socket *s, bool text, const void *data, size_t len);
    void (*clear)(struct socket *s); /* frees what is around it; may be NULL */
    char *id;
};

/* `size` bytes beginning with a struct socket for the session of a; NULL when out of memory. */
void *socket_new(const struct act *a, size_t size, const struct socket_ask *ask);
/* Only before socket_upgrade. */
void socket_free(struct socket *s);
/* Answers the handshake and frees a; s lives as long as the connection, and while it is busy. */
void socket_upgrade(struct socket *s, struct act *a);
bool socket_set_session(struct socket *s, const struct control_session *c);
/* Attaches to process s->id. */
void socket_attach(struct socket *s, bool fresh, bool sudo);
/* Error frame, close. */
void socket_fail(struct socket *s, const struct sg_error *e);
/* The call came back.  True: the connection is over meanwhile, and s was freed. */
bool socket_back(struct socket *s);

#endif
