/* The text frames of sandgate.v1 and the head of its binary ones.  Pure; JSON results are new references,
 * NULL when out of memory.
 */
#ifndef SG_RELAY_FRAMES_H
#define SG_RELAY_FRAMES_H

#include "base/core/wire.h"
#include "base/error.h"

#include <jansson.h>

/* ---- from the gateway ---- */

enum { FRAME_HEAD = 9 }; /* channel, then the offset of the first payload byte, big-endian */
enum frame_stream { FRAME_STDOUT, FRAME_STDERR, FRAME_PTY, FRAME_STREAMS };
/* What the guest's stream is called: a terminal's first one is FRAME_PTY. */
enum frame_stream frame_stream(const struct sg_wire_process *p, int stream);
const char *frame_stream_name(enum frame_stream s);
void frame_head(unsigned char out[FRAME_HEAD], enum frame_stream s, uint64_t offset);

struct frame_hello {
    const char *sandbox, *session_id;
    const struct sg_wire_process *p;
    uint64_t next[2]; /* offsets this connection begins at */
    /* of an attachment that may write or watch; mode NULL: of one that only reads */
    const char *mode, *carrier; /* carrier NULL: none is open */
    uint64_t accepted;          /* input */
    bool certain;               /* nothing can have been accepted since */
    unsigned writers, watchers;
};
json_t *frame_hello(const struct frame_hello *h);
json_t *frame_gap(enum frame_stream s, uint64_t from, uint64_t to);
json_t *frame_stdin(uint64_t accepted, uint64_t room, bool closed, bool unwanted);
json_t *frame_presence(unsigned writers, unsigned watchers);
json_t *frame_exit(const struct sg_wire_process *p);
json_t *frame_error(const struct sg_error *e);
json_t *frame_keepalive(void);

/* ---- from the client ---- */

enum frame_client {
    FRAME_DETACH,
    FRAME_ACK,
    FRAME_STDIN,
    FRAME_STDIN_CLOSE,
    FRAME_RESIZE,
    FRAME_SIGNAL,
    FRAME_UNKNOWN,   /* *e names the field */
    FRAME_TOO_LARGE, /* input of more than the limit */
    FRAME_BAD_JSON,
    FRAME_NO_MEMORY,
};
/* The largest payload of one message of input. */
enum { FRAME_INPUT_MAX = 1024 * 1024 };

struct frame_in {
    enum frame_client kind;
    uint64_t offset; /* STDIN, STDIN_CLOSE; UINT64_MAX when it was not said */
    void *data;      /* STDIN, owned */
    size_t len;
    unsigned cols, rows;
    int signal;
    bool whole;
    bool acked[FRAME_STREAMS];
    uint64_t received[FRAME_STREAMS];
};
/* The result is freed by frame_clear.  `json`: input comes in text frames. */
void frame_parse(const char *text, size_t len, bool json, struct frame_in *out, struct sg_error *e);
void frame_clear(struct frame_in *in);
/* The head of a binary frame of input; false when it is none. */
bool frame_parse_head(const unsigned char *data, size_t len, uint64_t *offset);

#endif
