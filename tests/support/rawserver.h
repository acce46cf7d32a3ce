/* A TCP server for tests that plays exact bytes.  Each connection runs the script, a plain function, on its own
 * thread with blocking calls; whatever it sends or leaves out is what the client sees.
 */
#ifndef SG_TEST_RAWSERVER_H
#define SG_TEST_RAWSERVER_H

#include <stdbool.h>
#include <stddef.h>

struct raw_server;
struct raw_conn;

struct raw_request {
    char method[16];
    char target[2048];
    char *head; /* whole head, NUL-terminated */
    char *body; /* NUL-terminated; chunks joined */
    size_t body_len;
};

/* The script of a connection; n counts connections from 1.  The connection closes when it returns. */
typedef void raw_script(struct raw_conn *c, int n, void *arg);

/* On 127.0.0.1, a port of its own. */
struct raw_server *raw_start(raw_script *script, void *arg);
/* Cuts what is open, waits for every script. */
void raw_stop(struct raw_server *s);
const char *raw_url(const struct raw_server *s); /* http://127.0.0.1:PORT */
int raw_connections(struct raw_server *s);
/* Requests read to their end so far. */
int raw_requests(struct raw_server *s);
/* Waits until there are at least n; false after 10 s. */
bool raw_wait_requests(struct raw_server *s, int n);
/* A gate that scripts wait at until the test opens it (one for each time it is opened). */
void raw_open_gate(struct raw_server *s);
bool raw_at_gate(struct raw_conn *c); /* false: the server is stopping */

/* False when the peer is gone. The request's memory lasts until the next call on this connection. */
bool raw_read(struct raw_conn *c, struct raw_request *out);
/* Bytes that are no request, what was read beyond the last one first; 0 when the peer is gone. */
size_t raw_receive(struct raw_conn *c, void *buf, size_t cap);
bool raw_send(struct raw_conn *c, const void *data, size_t len);
bool raw_sends(struct raw_conn *c, const char *text);
/* One byte at a time, each in a packet of its own. */
bool raw_drip(struct raw_conn *c, const char *text);
/* Status line, Content-Type, Content-Length, further header lines (may be ""), body. */
bool raw_answer(struct raw_conn *c, int status, const char *type, const char *headers, const char *body);
/* Ends the connection with a reset instead of a FIN. */
void raw_reset(struct raw_conn *c);
/* True once the peer has closed its side (waits up to 10 s). */
bool raw_peer_closed(struct raw_conn *c);

#endif
