/* One HTTP request and its answer, as a route handler sees it.  The HTTP server implements this; handlers and
 * everything they call stay free of its library.
 *
 * Kinds of handler (struct route, routes/table.h):
 *   ROUTE_WORKER   runs on a worker thread, may block, and must have answered when it returns.
 *   ROUTE_LOOP     runs on the loop thread, must not block, may answer later.
 *   ROUTE_UPLOAD   as LOOP, called when the head is in; takes the body with ex_receive.
 *   ROUTE_UPGRADE  as LOOP, for WebSocket handshakes (the gate has checked the headers); answers with an
 *                  error or with ex_upgrade.
 * JSON bodies of WORKER and LOOP routes were collected and parsed before the handler runs (ex->body).
 *
 * An exchange is owned by the server and valid until its answer is complete; a LOOP handler that answers
 * later must watch ex_on_gone.
 *
 * A request with an Idempotency-Key goes on when its client leaves, and so does one that was answered 202 because it
 * lasted: neither ex_on_gone nor ex_is_gone tell of the client then, only of the gateway's end.
 */
#ifndef SG_ROUTES_EXCHANGE_H
#define SG_ROUTES_EXCHANGE_H

#include "base/error.h"
#include "base/loop.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EX_MAX_PARAMS = 4 };

struct sg_buf;    /* base/buf.h */
struct gateway;   /* routes/gateway.h: what handlers work with */
struct principal; /* auth/tokens.h */

struct exchange {
    struct gateway *gw;
    const char *method;
    const char *params[EX_MAX_PARAMS]; /* decoded path captures, in order; never contain NUL or '/' */
    const struct principal *who;       /* NULL only on routes without auth */
    const char *request_id;
    json_t *body;           /* the parsed object; NULL on routes without a JSON body */
    int64_t content_length; /* of the request; -1: chunked or none */
    /* Of a request with an Idempotency-Key: 32 hexadecimal digits that are the same whenever it is run, by whichever
     * gateway; stored before the handler is called.  NULL: without a key.  What has to be found again is named by it. */
    const char *nonce;
    /* An earlier run of this nonce may have acted, and nobody knows how far it came.  A handler that finds out that none
     * did may clear it: when it then fails with nothing sent or started, the key is as new. */
    bool again;
    const char *note; /* with a nonce: what an earlier run, or this one, left by ex_note; "": nothing */
};

/* Decoded query value; NULL when absent.  len counts NULs, which a value may contain. */
const char *ex_query(struct exchange *ex, const char *key, size_t *len);
/* The i-th value of a key that may be given several times; NULL behind the last. */
const char *ex_query_nth(struct exchange *ex, const char *key, size_t i, size_t *len);
/* The i-th value whose key begins with prefix and goes on, as *rest tells; NULL behind the last. */
const char *ex_query_below(struct exchange *ex, const char *prefix, size_t i, const char **rest, size_t *len);
/* Refuses query keys that are not in `allowed` (NULL-terminated; "tag.*" allows all below "tag."): UNKNOWN_FIELD with "?key" as pointer; also keys
 * given twice, unless they are allowed with a '*' in front ("*include"), and values with NUL, except of "path", which has
 * a code of its own for that (spec_path). */
SG_MUST_CHECK enum sg_code ex_query_only(struct exchange *ex, const char *const allowed[],
                                         struct sg_error *e);
/* Integer query value in min..max; absent leaves *out. */
SG_MUST_CHECK enum sg_code ex_query_int(struct exchange *ex, const char *key, int64_t min, int64_t max,
                                        int64_t *out, struct sg_error *e);
const char *ex_header(struct exchange *ex, const char *name);
/* The i-th line of a header that may come in several; NULL behind the last. */
const char *ex_header_line(struct exchange *ex, const char *name, size_t i);

/* Response headers, before answering.  Values with CR, LF or NUL are dropped and logged.  Copied. */
void ex_set_header(struct exchange *ex, const char *name, const char *value);

/* Answers, exactly one per exchange.  json is taken over. */
void ex_answer_json(struct exchange *ex, int status, json_t *json);
/* The same with JSON that is text already, taken out of the buffer. */
void ex_answer_json_text(struct exchange *ex, int status, struct sg_buf *text);
void ex_answer_empty(struct exchange *ex, int status);
/* A problem document (RFC 9457) from e. */
void ex_fail(struct exchange *ex, const struct sg_error *e);

/* fn(arg) once, on the loop, if the client leaves before the answer is complete; the exchange still has to be
 * answered (the answer goes nowhere).  NULL unsets.  LOOP, UPLOAD, UPGRADE handlers only. */
void ex_on_gone(struct exchange *ex, void (*fn)(void *arg), void *arg);

/* The client has left, as far as is known.  Any thread, while the exchange is not answered. */
bool ex_is_gone(const struct exchange *ex);

/* With a nonce: later runs find this as ex->note (at most 255 bytes of text).  done on the loop, once: it is on the disk;
 * or e: somebody else runs it now, the store is away, or the exchange was answered meanwhile: then nothing may be done whose
 * place the note would tell.  LOOP handlers, one at a time. */
void ex_note(struct exchange *ex, const char *note, void (*done)(void *arg, const struct sg_error *e),
             void *arg);
/* Before the answer, any thread: it holds a credential.  It is given once and kept nowhere; with a key, whoever asks again
 * is told ALREADY_CREATED with `what` was (its kind and id). */
void ex_answer_once(struct exchange *ex, const char *what);
/* Prefer: respond-async. */
bool ex_prefers_async(struct exchange *ex);

/* ---- streamed answer (loop) ---- */

struct ex_stream;
/* Sends the head; length -1: unknown (chunked).  on_drain(arg): the queue fell below EX_STREAM_LOW.
 * on_gone(arg): the client left; the stream is dead and must not be touched again.  NULL when out of memory
 * (the exchange was answered with an error then). */
enum { EX_STREAM_HIGH = 256 * 1024, EX_STREAM_LOW = 64 * 1024 };
struct ex_stream *ex_stream_begin(struct exchange *ex, int status, const char *content_type, int64_t length,
                                  void (*on_drain)(void *arg), void (*on_gone)(void *arg), void *arg);
/* Copies into the queue; false when out of memory (abort then).  Stop writing above EX_STREAM_HIGH and wait
 * for on_drain. */
bool ex_stream_write(struct ex_stream *s, const void *data, size_t len);
size_t ex_stream_queued(const struct ex_stream *s);
/* fn(arg of the beginning) when the gateway drains: end soon. */
void ex_stream_on_shutdown(struct ex_stream *s, void (*fn)(void *arg));
/* The regular end.  The stream is gone after this. */
void ex_stream_end(struct ex_stream *s);
/* Cuts the connection so that the client sees an incomplete answer. */
void ex_stream_abort(struct ex_stream *s);

/* ---- request body (UPLOAD) ---- */

struct ex_sink {
    /* Bytes of the body; returns how many were taken.  Fewer than len pauses until ex_receive_resume. */
    size_t (*on_data)(void *arg, const char *data, size_t len);
    /* The body is complete. */
    void (*on_end)(void *arg);
};
/* Starts receiving.  A client that leaves is told by ex_on_gone. */
void ex_receive(struct exchange *ex, const struct ex_sink *sink, void *arg);
void ex_receive_resume(struct exchange *ex);

/* ---- WebSocket (UPGRADE) ---- */

struct ws;
struct ws_events {
    void (*on_open)(void *arg, struct ws *ws);
    void (*on_message)(void *arg, bool text, const void *data, size_t len);
    void (*on_drain)(void *arg);    /* the write queue fell below WS_QUEUE_LOW */
    void (*on_closed)(void *arg);   /* last callback */
    void (*on_shutdown)(void *arg); /* the gateway drains: end soon, with close code 1001 */
};
enum { WS_QUEUE_HIGH = 512 * 1024, WS_QUEUE_LOW = 128 * 1024 };
/* True when the client offered this subprotocol. */
bool ex_ws_offers(struct exchange *ex, const char *protocol);
/* Answers 101 with `protocol`; the exchange is over, the socket lives on as a struct ws. */
void ex_upgrade(struct exchange *ex, const char *protocol, const struct ws_events *ev, void *arg);
/* Queues one message made of two parts.  False: the socket is closing, or out of memory. */
bool ws_send(struct ws *ws, bool text, const void *head, size_t head_len, const void *body, size_t body_len);
size_t ws_queued(const struct ws *ws);
/* No further on_message until ws_resume; what the peer sends waits with it.  Its end is noticed, its control frames are
 * not.  False when out of memory: messages go on coming. */
bool ws_pause(struct ws *ws);
/* on_message goes on, not before this returns. */
void ws_resume(struct ws *ws);
/* Sends a close frame after what is queued; on_closed follows when the peer answered or five seconds later.
 */
void ws_close(struct ws *ws, int code, const char *reason);

#endif
