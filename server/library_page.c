/* What the HTTP library refuses by itself — heads that do not fit its memory, lines it cannot parse — it answers
 * with a page of HTML, before any callback of ours, and with no way to turn that off.  It does queue the page by
 * its own public function, though, and calls that through the dynamic linker; the one defined here stands in
 * front of it.  So the refusal becomes a problem document like every other.
 *
 * A library that was linked to bind its calls to itself never comes here, and its pages stay. */
#include "server/internal.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

typedef enum MHD_Result queue_fn(struct MHD_Connection *mhd, unsigned status, struct MHD_Response *response);

static queue_fn *library_queue(void)
{
    static _Atomic(queue_fn *) found;
    queue_fn *fn = found;
    if (!fn) {
        void *symbol = dlsym(RTLD_NEXT, "MHD_queue_response");
        memcpy(&fn, &symbol, sizeof fn); /* ISO C has no cast for this */
        found = fn;
    }
    return fn;
}

enum MHD_Result library_answer(struct MHD_Connection *mhd, unsigned status, struct MHD_Response *response)
{
    queue_fn *fn = library_queue();
    return fn ? fn(mhd, status, response) : MHD_NO;
}

static void refusal(unsigned status, struct sg_error *e)
{
    switch (status) {
    case 413:
        (void)sg_fail(e, SG_E_BODY_TOO_LARGE, SG_NOT_SENT,
                      "the announced body or a chunk of it is too large");
        break;
    case 414:
        (void)sg_fail(e, SG_E_URI_TOO_LONG, SG_NOT_SENT, "the request line does not fit");
        break;
    case 431:
        (void)sg_fail(e, SG_E_HEADERS_TOO_LARGE, SG_NOT_SENT,
                      "the header lines do not fit, or a cookie is malformed");
        break;
    case 505:
        (void)sg_fail(e, SG_E_BAD_REQUEST, SG_NOT_SENT,
                      "the protocol version is neither HTTP/1.1 nor HTTP/1.0");
        break;
    default:
        if (status >= 500)
            (void)sg_fail(e, SG_E_INTERNAL, SG_OUTCOME_UNKNOWN, "the request could not be served");
        else
            (void)sg_fail(e, SG_E_BAD_REQUEST, SG_NOT_SENT, "the request is not well-formed HTTP");
    }
}

/* Closing with unread bytes would reset the connection under the answer. */
static void swallow(int fd)
{
    char waste[4096];
    for (size_t n = 0; n < DISCARD_SMALL; n += sizeof waste)
        if (recv(fd, waste, sizeof waste, MSG_DONTWAIT) <= 0)
            return;
}

static void refuse(struct conn *c, unsigned status)
{
    struct request *r = c->req;
    if (!r) { /* not even a request line was understood */
        r = request_new(c->srv, "");
        if (!r)
            return;
        r->conn = c;
    }
    bool held = r->handed_out && r->answer.kind == ANSWER_NONE;
    if (r->answer.kind == ANSWER_NONE) {
        struct sg_error e;
        refusal(status, &e);
        answer_problem(r, &e);
    }
    if (!r->early_sent && r->answer.kind == ANSWER_BODY) {
        respond_early(r);
        swallow(c->fd);
    }
    if (held) { /* amid an upload: its handler has not answered, and hears that the client is gone */
        free(r->answer.body);
        r->answer.body = NULL;
        r->answer.kind = ANSWER_NONE;
    }
    if (r != c->req) {
        respond_log(r);
        request_free(r);
    }
}

/* Called by the library alone: we use library_answer.  MHD_NO makes it close the connection. */
__attribute__((visibility("default"))) enum MHD_Result
MHD_queue_response(struct MHD_Connection *mhd, unsigned status, struct MHD_Response *page)
{
    (void)page; /* the library keeps its reference and drops it */
    struct conn *c = conn_of(mhd);
    if (c)
        refuse(c, status);
    return MHD_NO;
}
