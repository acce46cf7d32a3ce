/* One operation on the files of a session: the guest's `fs`, one upstream call each.
 *
 * A request is built once and may be sent several times.  Paths are bytes; the guest takes them in base64, so any but
 * NUL go.  What was certainly not done is asked again, as is anything that may be done twice; at most FS_TRIES times.
 * Loop thread.
 */
#ifndef SG_TRANSFER_FS_CALL_H
#define SG_TRANSFER_FS_CALL_H

#include "guestlink/guestlink.h"

#include "base/buf.h"

enum {
    FS_TRIES = 3,
    FS_ARGS_MAX = 40,
    FS_ANSWER_MAX = 32 * 1024 * 1024, /* bytes of memory that one answer takes; more is OVERLOADED */
};

/* ---- fs_request.c: the request; any thread ---- */

struct fs_request {
    char *args[FS_ARGS_MAX + 1]; /* owned; NULL-terminated */
    size_t n;
    bool failed; /* out of memory, or too many; sticks until the call */
    bool reads;  /* changes nothing */
    bool again;  /* may be done twice */
    bool parts;  /* a failure may leave part of it done */
    bool sudo;
};

/* Zeroed before.  op: a word of the guest's, e.g. "lstat". */
void fs_request_begin(struct fs_request *r, const char *op);
void fs_request_flag(struct fs_request *r, const char *option);
void fs_request_text(struct fs_request *r, const char *option, const char *text);
void fs_request_bytes(struct fs_request *r, const char *option, const void *data, size_t len);
void fs_request_number(struct fs_request *r, const char *option, int64_t n);
void fs_request_octal(struct fs_request *r, const char *option, unsigned n);
void fs_request_free(struct fs_request *r);

/* ---- the answer ---- */

/* An S, N or R line; a text line that came in several is one.  Names and texts are places in the answer's bytes, where
 * a NUL follows each.  name_len 0: none; an R line without one has that of the line before. */
struct fs_item {
    enum sg_wire_kind kind;
    bool cut, context, goes_on; /* R */
    uint64_t line, offset;      /* R */
    size_t name, name_len;
    size_t data, data_len; /* S: the target of a link; R: the text */
    struct sg_wire_file file;
};

struct fs_answer {
    const struct fs_item *items;
    size_t n;
    const char *bytes;
    bool more; /* there is more behind the last item */
    const struct fs_item
        *at;          /* of a search whose time was over: it goes on after this line of this file; NULL: after
                                 the last item */
    const char *word; /* what the guest said at its end, "" for nothing */
};

struct fs_target {
    const char *session_id, *arch, *cwd; /* copied; arch and cwd may be NULL */
};

struct fs_call;
/* Exactly once unless cancelled; one of both is NULL, and neither outlives the call. */
typedef void fs_done_fn(void *arg, const struct fs_answer *a, const struct sg_error *e);
/* r must stay until done or cancel.  No callback before it returns; NULL with *e when it could not begin. */
struct fs_call *fs_call_start(struct guestlink *g, const struct fs_target *t, const struct fs_request *r,
                              fs_done_fn *done, void *arg, struct sg_error *e);
/* What reads is ended in the sandbox, too; what changes something is seen through there. */
void fs_call_cancel(struct fs_call *c);

#endif
