/* Private to server/: the objects behind an exchange.
 *
 * A conn is one TCP connection while the HTTP library owns it; a request lives from its request line until its
 * answer is complete.  A request outlives its conn only when an upload's client left before the handler
 * answered; then `conn` is NULL and it dies when the handler answers.  All of it belongs to the loop thread,
 * except a request that was handed to a worker: until its `done` task runs, only the worker touches it, and
 * the connection stays suspended.
 */
#ifndef SG_SERVER_INTERNAL_H
#define SG_SERVER_INTERNAL_H

#include "base/buf.h"
#include "base/log.h"
#include "base/workers.h"
#include "server/gate.h"
#include "server/http.h"
#include "server/router.h"
#include "server/uri.h"
#include "server/ws.h"

#include <microhttpd.h>
#include <stdatomic.h>

enum {
    REQUEST_ID_MAX = 64,
    MAX_RESPONSE_HEADERS = 24,
    REQUEST_TOKEN_MAX = 512,       /* longest bearer token in a subprotocol */
    DISCARD_SMALL = 64 * 1024,     /* a refused body up to this is read, so that the connection lives on */
    DISCARD_MAX = 4 * 1024 * 1024, /* after an early answer, at most this much is read and thrown away … */
    LINGER_MS = 5000,              /* … for at most this long */
    JSON_DEPTH_MAX = 64,
    STREAM_QUEUE_MAX = 4 * 1024 * 1024,
    REQUEST_NONCE_MAX = 33,
    REQUEST_NOTE_MAX = 255,
    REQUEST_CREATED_MAX = 200,
    ASYNC_MS = 50, /* what is refused up front is refused, also to those who prefer not to wait */
};

struct conn {
    struct conn *next, **prev; /* srv->conns */
    struct http_server *srv;
    struct MHD_Connection *mhd;
    struct request *req; /* the one under way; NULL: idle */
    int fd;
    bool watched; /* registered with the peer-gone epoll */
    bool peer_gone;
    int64_t since_ms; /* accepted, or last answer complete */
    struct sg_grave grave;
};

struct response_header {
    char *name; /* one allocation, the value behind the name */
    const char *value;
};

enum answer_kind { ANSWER_NONE, ANSWER_BODY, ANSWER_STREAM, ANSWER_UPGRADE };

struct answer {
    enum answer_kind kind;
    int status;
    const char *content_type; /* static; NULL: no body */
    char *body;               /* owned */
    size_t len;
    enum sg_code code; /* of a problem document, for the log */
};

enum body_phase {
    PHASE_HEAD,  /* before the first handler call returned for good */
    PHASE_BODY,  /* the body is coming */
    PHASE_READY, /* all of the request is here */
};

struct chunk {
    struct chunk *next;
    size_t off, len, cap;
    char data[];
};

struct ex_stream {
    struct request *req;
    struct chunk *head, *tail;
    size_t queued;
    int64_t length; /* -1: chunked */
    bool ended, aborted, dead;
    bool drain_due;
    void (*on_drain)(void *arg);
    void (*on_gone)(void *arg);
    void (*on_shutdown)(void *arg); /* NULL: ends by itself */
    void *arg;
    char *content_type;
};

struct request {
    struct exchange ex;           /* first member: handlers hold a pointer to it */
    struct request *next, **prev; /* srv->requests */
    struct http_server *srv;
    struct conn *conn;
    const struct route *route;
    struct principal who;
    struct gate_verdict verdict;
    struct gate_header *headers; /* into the connection's memory */
    size_t nheaders;
    const char *raw_in_place; /* where the target stood; compared, never read */
    char *raw;                /* copy of the target */
    struct uri uri;
    char request_id[REQUEST_ID_MAX + 1];
    int64_t start_ns;

    enum body_phase phase;
    bool suspended;
    bool in_ready; /* in srv->ready, to be resumed */
    bool in_due;   /* in srv->due, with callbacks to run */
    struct request *ready_next, *due_next;
    bool on_worker;
    bool must_close;
    bool http10;
    bool head_read;      /* gate, router and authentication have spoken */
    bool handed_out;     /* a handler has seen it */
    int64_t deadline_ms; /* monotonic; 0: none.  For the rest of the request, or for lingering */
    bool early_sent;     /* the answer was written past the HTTP library; what comes is thrown away */
    uint64_t body_seen;
    struct sg_buf body;

    void (*gone_fn)(void *arg);
    void *gone_arg;
    atomic_bool gone; /* set by the loop, read by workers */

    /* keyed.c */
    struct key_run *key; /* NULL: none, or over */
    char nonce[REQUEST_NONCE_MAX], note[REQUEST_NOTE_MAX + 1];
    bool once; /* the answer is not to be kept, only … */
    char created[REQUEST_CREATED_MAX];
    bool has_key; /* it came with one */
    bool asking;  /* the store is asked whether it may run */
    bool storing; /* it was answered, which is not told before it is kept */
    bool answered_before;

    /* lasting.c */
    struct sg_timer *patience; /* of a route that may last; NULL: none */
    struct late *late;         /* its client was answered 202 */
    bool part_due;
    bool keep_error;        /* set before it is handed out */
    struct sg_error *error; /* what it failed with */
    char *header_text;      /* copies of the headers, which otherwise die with the connection's request */

    const struct ex_sink *sink;
    void *sink_arg;
    bool resume_asked;

    struct answer answer;
    uint64_t bytes_sent;
    struct response_header extra[MAX_RESPONSE_HEADERS];
    size_t nextra;
    struct ex_stream *stream;
    struct ws *ws; /* of an upgrade route, until it is started or dropped */

    struct work work;
    struct sg_task done;
    struct sg_grave grave;
};

struct http_server {
    struct sg_loop *loop;
    struct http_server_config cfg;
    struct gateway *gw;
    struct token_table *tokens;
    struct MHD_Daemon *mhd;
    int listen_fd; /* -1 once closed */
    int port;
    uv_poll_t mhd_poll, gone_poll;
    int polls; /* initialised: 0, 1 or 2 */
    int gone_ep;
    bool run_mhd;
    struct sg_timer *mhd_timer, *sweep_timer;
    struct workers *workers;
    struct conn *conns;
    size_t nconns;
    struct request *requests;
    size_t nrequests;
    struct request *ready, *due;
    struct ws_group ws;
    bool draining, stopping;
    int64_t drain_until_ms; /* monotonic */
    int64_t drain_close_ms; /* WebSockets still open then are closed by us */
    void (*drain_done)(void *arg);
    void *drain_arg;
};

/* ---- request.c: life of a request ---- */
struct request *request_new(struct http_server *srv, const char *raw);
/* Now, not at the end of the turn: only from the HTTP library's completion call or the grave. */
void request_free(struct request *r);
/* The server forgets it; whoever answers it then frees it with that. */
void request_unlink(struct request *r);
/* Puts it where the next turn resumes it.  Only for suspended ones; idempotent. */
void request_wake(struct request *r);
/* Its callbacks (drain, gone) are run at the end of this turn. */
void request_due(struct request *r);
/* Tells the handler that the client left, once. */
void request_gone(struct request *r);
/* It goes on when its client leaves. */
bool request_goes_on(const struct request *r);
/* Called by whatever filled r->answer. */
void request_answered(struct request *r);

/* ---- keyed.c: requests with an Idempotency-Key ---- */
struct key_run;
/* From the head: whether the header is right and the route takes it. */
enum sg_code keyed_check(struct request *r, struct sg_error *e);
/* The whole request is here: asks for it, and runs it (dispatch_run) or answers. */
void keyed_start(struct request *r);
/* It was answered.  True: it will be (request_answered), once the answer is kept. */
bool keyed_hold(struct request *r);
/* The server stops: nothing is waited for any more. */
void keyed_stop(struct request *r);
void keyed_free(struct request *r);

/* ---- lasting.c: no client is kept waiting ---- */
struct late;
bool lasting_begin(struct request *r); /* before it is handed out; false: no memory, answered */
/* Its time is over: parts it from its connection, which is answered 202.  *req: what the library knows. */
enum MHD_Result lasting_part(struct request *r, void **req);
/* It was answered, in time or after that. */
void lasting_end(struct request *r);
void lasting_free(struct request *r);

/* ---- dispatch.c: what the HTTP library calls ---- */
enum MHD_Result dispatch_access(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                                const char *version, const char *data, size_t *data_len, void **req);
/* Calls the handler. */
void dispatch_run(struct request *r);

/* ---- head.c: everything that is decided before the body ---- */
void head_process(struct request *r, const char *method, const char *version);

/* ---- respond.c ---- */
void answer_problem(struct request *r, const struct sg_error *e);
bool response_header_set(struct request *r, const char *name, const char *value);
/* Queues the answer with the HTTP library. */
enum MHD_Result respond_queue(struct request *r);
/* Writes the answer straight to the socket while the body is still coming. */
void respond_early(struct request *r);
void respond_log(const struct request *r);

/* ---- stream.c ---- */
ssize_t stream_read(void *cls, uint64_t pos, char *buf, size_t max);
void stream_gone(struct ex_stream *s);
void stream_drained(struct ex_stream *s);
void stream_shutdown(struct ex_stream *s);
void stream_free(struct ex_stream *s);

/* ---- upgrade.c ---- */
/* The handshake's headers; false: answered. */
bool upgrade_check(struct request *r);
struct MHD_Response *upgrade_response(struct request *r);
/* The bearer token in the offered subprotocols, into out; false when there is none. */
bool upgrade_bearer(struct request *r, char *out, size_t cap);

/* ---- library_page.c ---- */
/* The library's MHD_queue_response, for our own answers. */
enum MHD_Result library_answer(struct MHD_Connection *mhd, unsigned status, struct MHD_Response *response);

/* ---- http.c ---- */
/* NULL when its opening failed. */
struct conn *conn_of(struct MHD_Connection *mhd);
/* From now on the peer's leaving is noticed, also while suspended. */
void conn_watch(struct conn *c);

#endif
