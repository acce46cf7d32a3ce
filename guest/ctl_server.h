/* The monitor's side of the socket `ctl` (see ctl.h): connections and lines, no meaning.  What the lines ask for is
 * done by struct ctl_ops.  Nothing here waits: a connection whose peer does not read for CTL_ANSWER_MS, or says
 * nothing for so long when it has to, is closed. */
#ifndef SG_GUEST_CTL_SERVER_H
#define SG_GUEST_CTL_SERVER_H

#include "base/core/carrier.h"
#include "guest/ctl.h"
#include "guest/record.h"

#include <poll.h>

enum {
    CTL_POLLS = 1 + CTL_CONNECTIONS,
    CTL_WATCHERS = CTL_CONNECTIONS - 8, /* the rest stays for acts */
    CTL_BELLS = CTL_WATCHERS - 8,       /* connections that only listen: others can look for themselves */
};

struct ctl_ops {
    /* One act, a line without its LF that may be written to; fills the answer. */
    void (*act)(void *arg, char *line, size_t len, struct sg_wire_line *answer);
    /* Whether there is something for a carrier to do; false with an E line. */
    bool (*carry)(void *arg, struct sg_wire_line *answer);
    /* One frame and its payload; false with an E line that ends the carrier. */
    bool (*frame)(void *arg, const struct sg_carrier_frame *f, const unsigned char *data,
                  struct sg_wire_line *answer);
    /* accepted, room, closed and unwanted as they are now. */
    void (*input)(void *arg, struct sg_wire_line *l);
};

/* Where a connection stands with its carrier: the last thing that it was told. */
struct ctl_told {
    uint64_t accepted, room;
    bool closed, unwanted;
};

struct ctl_conn {
    int fd;    /* -1: free */
    char what; /* 0: not said yet */
    bool carrier, eof,
        leave;         /* the current carrier; its peer's side has ended; closed when all was written */
    uint64_t since_ms; /* of the wait that CTL_ANSWER_MS bounds; 0: none */
    unsigned char *in; /* allocated when it has something to say */
    size_t in_cap, in_len;
    struct ctl_told told;
    size_t out_at, out_len;
    char out[1024];
};

struct ctl_server {
    const struct ctl_ops *ops;
    void *arg;
    int fd; /* listens; -1: there is no socket */
    uint64_t epoch;
    struct ctl_conn conn[CTL_CONNECTIONS];
};

void ctl_init(struct ctl_server *c, const struct ctl_ops *ops, void *arg);
/* Makes the socket in the record's directory; false with errno. */
bool ctl_listen(struct ctl_server *c, int dir, const struct guest_root *root);
/* What to wait for; fills p[CTL_POLLS]. */
void ctl_polls(const struct ctl_server *c, struct pollfd *p);
/* Reads what came and does it. */
void ctl_turn(struct ctl_server *c, const struct pollfd *p, uint64_t now);
/* Tells the carrier what changed, writes what can be written, closes what is done.  At the end of every turn. */
void ctl_flush(struct ctl_server *c, uint64_t now);
/* Ends the carrier, if there is one, with the E line. */
void ctl_end_carrier(struct ctl_server *c, enum sg_wire_fail why, const char *text);
unsigned ctl_watchers(const struct ctl_server *c);
/* Rings the bells. */
void ctl_ring(struct ctl_server *c, char what);
/* When some connection's patience ends; UINT64_MAX: none waits. */
uint64_t ctl_next(const struct ctl_server *c);
/* Closes everything.  The socket stays in the record, where it refuses. */
void ctl_close(struct ctl_server *c);

#endif
