/* The HTTP front: one thread per connection, so handlers are straight-line code that blocks.
 *
 * A handler gets a request with its body collected (or, for uploads, its bytes as they come) and fills a
 * reply: a finished body, a file, or a stream whose reader blocks until it has something.
 */
#ifndef SG_EMULATOR_HTTP_H
#define SG_EMULATOR_HTTP_H

#include "emulator/apierr.h"
#include "emulator/emulator.h"
#include "emulator/faults.h"

#include <jansson.h>
#include <microhttpd.h>
#include <stdint.h>
#include <sys/types.h>

enum { SEGMENTS_MAX = 12, BODY_MAX = 8 << 20, REPLY_MAX = 64 << 20 };

enum { STREAM_END = 0, STREAM_FAILED = -1, STREAM_AGAIN = -2 };

struct stream {
    /* Up to max bytes, or one of STREAM_*; AGAIN when the monotonic deadline passed with nothing to say. */
    ssize_t (*read)(void *arg, char *buf, size_t max, int64_t deadline_ms);
    void (*free)(void *arg);
    void *arg;
};

/* What takes the connection over after a 101. */
struct upgrade {
    /* The socket with n bytes read already; done(done_arg) closes it.  Behind TLS the socket leads to the library,
     * and `peer` (else -1; open until done) is the client's own, to notice its end.  Must not block. */
    void (*take)(void *arg, int fd, int peer, const void *early, size_t n, void (*done)(void *done_arg),
                 void *done_arg);
    void (*drop)(void *arg); /* it did not come to that */
    void *arg;               /* NULL: taken or dropped */
    char accept[32];         /* Sec-WebSocket-Accept */
};

struct reply {
    int status;
    const char *type; /* static */
    struct sg_buf body;
    struct stream stream; /* read != NULL: instead of the body */
    int file_fd;          /* >= 0: instead of the body; owned by the reply */
    uint64_t file_size;
};

struct request;

/* What takes an upload as it comes. */
struct upload_sink {
    int (*begin)(struct request *rq);                          /* -1: rq->err says why; bytes are dropped */
    void (*data)(struct request *rq, const char *p, size_t n); /* may block */
    void (*abandon)(struct request *rq);                       /* the client left before the end */
};

struct route_entry {
    const char *method;
    const char *pattern; /* "sandboxes/sessions/{}/cmd"; after the version */
    int (*handle)(struct request *rq, struct reply *rp);
    const struct upload_sink *sink; /* NULL: the body is JSON and collected */
    bool open;                      /* answered without a token */
};

struct request {
    struct emulator *emu;
    struct MHD_Connection *conn;
    const char *method;
    char *uri;  /* as sent, with the query */
    char *path; /* decoded, without /api; cut into segments */
    char *shown_path;
    char *segment[SEGMENTS_MAX];
    unsigned nsegments;
    const char *param[3];
    unsigned nparams;
    int version;
    const struct route_entry *route;
    struct sg_buf body;
    uint64_t body_bytes;
    json_t *json;
    struct api_error err;    /* status 0: none */
    char token_project[129]; /* the project that an OIDC token speaks for; "" otherwise */
    bool admin;
    bool begun;
    bool answered;
    void *sink_state;
    struct fault_action fault;
    int64_t fault_deadline; /* monotonic; 0: none */
    uint64_t journal_seq;
    void *digest;           /* EVP_MD_CTX of the body; only with a journal */
    struct upgrade upgrade; /* with a reply of status 101 */
};

/* "" when absent. */
const char *request_query(struct request *rq, const char *key);
/* The project that a request names, by either spelling, or that its token speaks for; "" when none. */
const char *request_project(struct request *rq);
/* The body as an object, {} when empty; NULL with the error set. */
const json_t *request_json(struct request *rq);
/* How the client reached us, for absolute links: "https://vercel.com", from its Host header; false (and
 * rq->err) when that is missing or no host. */
bool request_origin(struct request *rq, char out[320]);
bool request_is_tls(struct request *rq);
/* True when the client has closed its side. */
bool request_client_gone(struct request *rq);

struct http_server;
/* Serves on a listening socket (owned from here on). NULL when that is impossible. */
struct http_server *http_start(struct emulator *emu, int listen_fd);
/* Serves the same on a second socket with TLS; certificate and key as PEM text, not needed afterwards.  False
 * when they or the library do not do; the socket is the caller's then. */
bool http_start_tls(struct http_server *h, struct emulator *emu, int listen_fd, const char *cert,
                    const char *key);
void http_stop_accepting(struct http_server *h);
void http_stop(struct http_server *h);

/* router.c: every route; version 0: the pattern is the whole path. */
void router_print(void (*line)(void *arg, const char *method, int version, const char *pattern), void *arg);
/* router.c: finds the entry for a path; fills rq->version, params.  404 or 405 in rq->err. */
const struct route_entry *router_find(struct request *rq);

#endif
