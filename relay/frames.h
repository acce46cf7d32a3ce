/* The text frames of sandgate.v1 and the head of its binary ones.  Pure; JSON results are new references,
 * NULL when out of memory.
 */
#ifndef SG_RELAY_FRAMES_H
#define SG_RELAY_FRAMES_H

#include "base/error.h"
#include "base/core/wire.h"

#include <jansson.h>

enum { FRAME_HEAD = 9 }; /* channel, then the offset of the first payload byte, big-endian */
void frame_head(unsigned char out[FRAME_HEAD], int stream, uint64_t offset);

struct frame_hello {
    const char *sandbox, *session_id;
    const struct sg_wire_process *p;
    uint64_t next[2]; /* offsets this connection begins at */
};
json_t *frame_hello(const struct frame_hello *h);
json_t *frame_gap(int stream, uint64_t from, uint64_t to);
json_t *frame_exit(const struct sg_wire_process *p);
json_t *frame_error(const struct sg_error *e);
json_t *frame_keepalive(void);

/* What a client said in a text frame. */
enum frame_client {
    FRAME_DETACH,
    FRAME_ACK,
    FRAME_UNSUPPORTED, /* part of the protocol, not of what this process offers: *e says so */
    FRAME_UNKNOWN,     /* *e names the field */
    FRAME_BAD_JSON,
};
enum frame_client frame_parse(const char *text, size_t len, struct sg_error *e);

#endif
