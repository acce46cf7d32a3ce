/* The server's side of a WebSocket on a raw server's connection, for tests: the handshake, frames out, events in. */
#ifndef SG_TEST_RAWWS_H
#define SG_TEST_RAWWS_H

#include "base/ws_codec.h"
#include "tests/support/rawserver.h"

/* Answers the handshake of this request head; false when it is none. */
bool rawws_accept(struct raw_conn *c, const char *head);
bool rawws_send(struct raw_conn *c, enum ws_opcode op, const void *data, size_t len);
bool rawws_text(struct raw_conn *c, enum ws_opcode op, const char *text);

/* What the client sends. */
struct rawws {
    struct ws_codec codec;
    unsigned char buf[65536];
    size_t from, len;
};
void rawws_init(struct rawws *w);
/* Waits for the next event; false when the client is gone. */
bool rawws_next(struct raw_conn *c, struct rawws *w, struct ws_event *ev);

#endif
