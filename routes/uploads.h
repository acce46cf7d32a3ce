/* Private to routes/uploads*.c: a request to an upload that goes on where it was cut.  Loop thread. */
#ifndef SG_ROUTES_UPLOADS_H
#define SG_ROUTES_UPLOADS_H

#include "routes/files.h"
#include "routes/intake.h"
#include "routes/upload_fields.h"
#include "transfer/upload.h"

enum {
    UPLOADS_SUDO_AT = 1, /* the letter of an id that says whether it is made as root */
};

enum uploads_verb { UPLOADS_CREATE, UPLOADS_TELL, UPLOADS_APPEND, UPLOADS_REMOVE };

struct resumable {
    struct act act;
    enum uploads_verb verb;
    char id[UPLOAD_ID_CHARS + 1];
    struct upload_fields fields;
    struct fs_request open, state, finish, remove; /* those that the verb needs */
    struct fs_call *call;
    struct upload *upload;
    struct intake *in;
    struct sg_timer *patience; /* runs while the client waits for us */
    uint64_t at;               /* so much of it is there */
    int64_t length;            /* of all of it; -1: not known */
    bool settles;              /* an earlier request is waited for */
    bool flows;                /* the body does */
    uint64_t taken;            /* of it */
    bool too_long;
    int64_t since_ms,
        waited_ms; /* monotonic: since when the client waits for us; and how long it did before */
    bool came;     /* all of the request */
    bool told;     /* of the id, although the client is not there any more */
};

/* ---- uploads.c ---- */

/* Answers by itself when memory is out (NULL then).  To be filled, and begun with act_begin. */
struct resumable *resumable_new(struct exchange *ex, enum uploads_verb verb);
/* act->fail: answers with e and frees it. */
void resumable_fail(struct act *a, const struct sg_error *e);
/* Of the request; -1: chunked. */
int64_t resumable_body(struct exchange *ex);
/* Upload-Length, Upload-Complete with Content-Length, and what was said before must agree. */
SG_MUST_CHECK enum sg_code resumable_check_length(const struct resumable *r, struct sg_error *e);

#endif
