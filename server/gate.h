/* The gate: refuses request heads that two HTTP parsers could understand differently.  The HTTP library is
 * lenient (it joins folded lines, cuts values at NUL, takes the first of two lengths); behind a proxy that
 * pools connections each of those is a way to smuggle a request.  Pure, no allocation; any thread.
 */
#ifndef SG_SERVER_GATE_H
#define SG_SERVER_GATE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GATE_MAX_HEADERS = 96 };

struct gate_header {
    const char *name;
    size_t name_len;
    const char *value;
    size_t value_len;
};

struct gate_head {
    const char *version; /* "HTTP/1.1" */
    const struct gate_header *headers;
    size_t count;
};

struct gate_verdict {
    int64_t content_length; /* -1: no Content-Length */
    bool chunked;
    bool expect_continue;
};

/* BAD_REQUEST with the reason, or SG_OK. */
SG_MUST_CHECK enum sg_code gate_check(const struct gate_head *head, struct gate_verdict *out,
                                      struct sg_error *e);

/* Where the library's parser left the head: it works in place, so bytes it skipped (folds, what follows a NUL,
 * bare LF) show as gaps between the pieces. */
struct gate_layout {
    const char *start;
    size_t len;         /* request line to the empty line, both included */
    const char *uri;    /* where the target stood; its bytes have been cut up since */
    const char *target; /* a copy from before */
    const char *version;
};
SG_MUST_CHECK enum sg_code gate_check_layout(const struct gate_layout *l, const struct gate_head *head,
                                             struct sg_error *e);

#endif
