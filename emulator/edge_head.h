/* What the edge must understand of HTTP/1.x to carry it byte for byte: whom a request is for, and where each
 * message ends.  Nothing is rewritten; the bytes travel as they came.
 *
 * Requests are read strictly (RFC 9112): what two readers could end at different places is refused, so that
 * no request hides inside another.  Responses are read as clients do: what is unclear lasts until the end of
 * the connection.  Pure, allocates nothing; any thread, one object on one thread at a time.
 */
#ifndef SG_EMULATOR_EDGE_HEAD_H
#define SG_EMULATOR_EDGE_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    EDGE_HEAD_MAX = 16 << 10,     /* bytes of a request head; more is 431 */
    EDGE_RESPONSE_MAX = 64 << 10, /* of a response head; a longer one is carried without being understood */
    EDGE_TRAILER_MAX = 16 << 10,  /* chunk lines and trailers at the end of one body */
    EDGE_LABEL_TEXT = 64,         /* one DNS label and its NUL */
    EDGE_HOST_TEXT = 256,
};

enum edge_body_kind {
    EDGE_BODY_NONE,
    EDGE_BODY_LENGTH,
    EDGE_BODY_CHUNKED,
    EDGE_BODY_REST, /* until the connection ends */
};

/* Follows one body through the bytes as they pass. */
struct edge_body {
    enum edge_body_kind kind;
    bool done; /* its last byte has passed */
    uint64_t left;
    int step;
    size_t line, overhead;
};

void edge_body_init(struct edge_body *b, enum edge_body_kind kind, uint64_t length);
/* How many of the n bytes belong to the body; fewer than n means that it is done.  -1: they are no such body
 * (then nothing more may be asked of b). */
ptrdiff_t edge_body_feed(struct edge_body *b, const char *p, size_t n);

struct edge_request {
    const char *method, *target; /* point into the head; not NUL-terminated */
    size_t method_len, target_len;
    bool head;                 /* the answer has no body */
    char host[EDGE_HOST_TEXT]; /* lower case, without port and trailing dot; "": none (HTTP/1.0) */
    enum edge_body_kind kind;
    uint64_t length;
};

/* > 0: the length of a complete head in p; 0: more is needed; < 0: minus the HTTP status that refuses it. */
ptrdiff_t edge_request_parse(const char *p, size_t n, struct edge_request *out);

struct edge_response {
    int status;
    enum edge_body_kind kind;
    uint64_t length;
};

/* > 0: the length of a complete head; 0: more is needed; -1: this is no HTTP response. */
ptrdiff_t edge_response_parse(const char *p, size_t n, bool to_head, struct edge_response *out);

/* The label of "<label>.<suffix>" or "<label>.localhost"; false when host is nothing of that kind. */
bool edge_host_label(const char *host, const char *suffix, char label[EDGE_LABEL_TEXT]);

#endif
