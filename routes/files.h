/* Operations on the files of a sandbox: what a request may hold is a table of fields, read from the query or the JSON
 * body, checked whole, and handed to the guest's `fs` as its options.  Loop thread.
 *
 * Paths are bytes: percent-decoded in queries; in bodies and answers a string, or NAME_b64 for what is not UTF-8.
 */
#ifndef SG_ROUTES_FILES_H
#define SG_ROUTES_FILES_H

#include "routes/act.h"
#include "transfer/fs_call.h"

enum { FILES_FIELDS = 11, FILES_CURSOR_MAX = 8192, FILES_LIST_MAX = 4096 /* bytes of a list */ };

enum files_kind {
    FILES_PATH,    /* 1..4096 bytes without NUL; may be given as NAME_b64 */
    FILES_PATTERN, /* likewise, 1..1024 bytes */
    FILES_PREFIX,  /* likewise, 1..128 bytes without '/' */
    FILES_LIST, /* patterns, of the query only, one with each time it is given; handed on with NUL between them */
    FILES_FLAG,   /* true adds the option */
    FILES_UNLESS, /* false adds the option */
    FILES_CHOICE, /* a flag that chose this operation */
    FILES_WORD,   /* of the query only; the handler reads it, and nothing is handed on */
    FILES_NUMBER, /* min..max */
    FILES_MODE,   /* "644" */
    FILES_ACCESS, /* of r, w and x, each once */
    FILES_TIME,   /* RFC 3339 UTC, up to nanoseconds */
};

struct files_field {
    const char *name;   /* of the request; NULL ends the list */
    const char *option; /* of the guest */
    enum files_kind kind;
    bool needed;
    int64_t min, max, otherwise; /* of NUMBER; otherwise: sent when it is absent, -1: nothing is */
};

struct files_call;
struct files_op {
    const char *op; /* the guest's */
    struct files_field fields[FILES_FIELDS + 1];
    bool reads, again, parts; /* of struct fs_request */
    bool pages;               /* takes `cursor`: cursor_options adds what it says */
    /* What does not show in a single field; NULL: nothing.  Sees the whole request. */
    enum sg_code (*check)(struct exchange *ex, struct sg_error *e);
    /* What the headers add to the request; NULL: nothing. */
    enum sg_code (*headers)(struct exchange *ex, struct fs_request *r, struct sg_error *e);
    enum sg_code (*cursor)(struct fs_request *r, const char *data, size_t len, struct sg_error *e);
    /* Answers; the body is written with base/json_write.h into out, whose failure is noticed afterwards.  Returns the
     * status, or 0 with *e. */
    int (*answer)(struct files_call *f, const struct fs_answer *a, struct sg_buf *out, struct sg_error *e);
};

struct files_call {
    struct act act;
    const struct files_op *op;
    struct fs_request request;
    struct fs_call *call;
};

/* Keeps what the guest does below the root of the caller's token, if that has one: for every request to it that names a
 * path or an upload. */
void files_confine(struct exchange *ex, struct fs_request *r);
/* Conditions on a file that is changed, as the guest takes them, which compares while it holds the file.
 * PRECONDITION_FAILED where they cannot hold whatever is there, UNSUPPORTED for dates. */
struct conditions;
SG_MUST_CHECK enum sg_code files_conditions(const struct conditions *c, struct fs_request *r,
                                            struct sg_error *e);
/* Checks the request and makes the call; answers. */
void files_begin(struct exchange *ex, const struct files_op *op);

/* ---- files_parse.c ---- */

/* Fills *r, which is the caller's to free, also after a failure. */
SG_MUST_CHECK enum sg_code files_parse(struct exchange *ex, const struct files_op *op, struct fs_request *r,
                                       bool *resume, struct sg_error *e);
/* "2026-11-30T12:00:00.5Z" → nanoseconds since the epoch. */
bool files_time_parse(const char *text, size_t len, int64_t *ns);
/* Whether a flag of the query or body is true; for `check`, after the fields were checked. */
bool files_is_set(struct exchange *ex, const char *name);

/* ---- files_json.c ---- */

enum { FILES_TIME_TEXT = 96 }; /* as much as six integers could take */
void files_time_format(int64_t ns, char out[FILES_TIME_TEXT]);
/* "key":"…" when it is UTF-8 without NUL, else "key_b64":"…"; data[len] must be NUL. */
void files_put_bytes(struct sg_buf *out, const char *key, const char *data, size_t len);
/* The members of a file, braces included; its name as "name". */
void files_put_file(struct sg_buf *out, const struct fs_answer *a, const struct fs_item *item);
/* "next_cursor":… and the Link header, which repeats the request with it; len 0 and data NULL: null. */
void files_put_cursor(struct files_call *f, struct sg_buf *out, const char *data, size_t len);
/* The bytes of a cursor; false when it is none of ours.  out holds FILES_CURSOR_MAX. */
bool files_cursor_parse(const char *text, size_t n, char *out, size_t *len);

#endif
