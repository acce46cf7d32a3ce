/* Turns an upstream's unsuccessful answer into the error a caller should see.  Pure; any thread. */
#ifndef SG_VERCEL_ANSWER_H
#define SG_VERCEL_ANSWER_H

#include "vercel/client.h"

struct vercel_answer {
    int status;
    const char *content_type; /* NULL: none */
    const char *body;         /* first bytes; may be NULL when len is 0 */
    size_t len;
    bool complete;          /* body is all there was */
    int64_t retry_after_ms; /* -1: not said */
    const char *request_id; /* upstream's; NULL: none */
    struct vercel_meaning means;
};

/* For any status outside 200..299.  Fills *e and returns its code.  The answer's text is only used when it is
 * the upstream's own JSON error. */
enum sg_code vercel_answer_error(const struct vercel_answer *a, struct sg_error *e);
/* An error line inside a stream that had begun: {"code","message"}; the outcome is `started`. */
enum sg_code vercel_stream_error(json_t *data, struct sg_error *e);
/* A 2xx that is not what its endpoint promises. */
enum sg_code vercel_bad_answer(int status, const char *request_id, const char *what, struct sg_error *e);

/* Keeps a request id when it is short and printable; out is 64 bytes. */
void vercel_keep_request_id(char out[64], const char *value, size_t len);

#endif
