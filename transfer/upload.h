/* Bytes into a session, of known or unknown length, and then one act with them there.
 *
 * The body is cut into parts.  Each is kept in memory until the upstream has it, so one that was cut is sent again alone,
 * and no request is longer than a part; a part of a known length is on its way while it comes in.  The guest joins the
 * parts in a file of its own, beside the next part's way.  Then `finish` is asked with that file: it puts it in its
 * place, appends it, or extracts it.  Until then nothing that has a name was touched.
 * Two upstream calls for what fits one part.  Memory is taken from one pool for all uploads (transfer/blocks.h): when it
 * is used up, parts are shorter, and who has nothing waits for its turn.
 * Loop thread.
 */
#ifndef SG_TRANSFER_UPLOAD_H
#define SG_TRANSFER_UPLOAD_H

#include "transfer/fs_call.h"

enum {
    UPLOAD_PART = 16 * 1024 * 1024,
    UPLOAD_AHEAD = 8 * 1024 * 1024, /* of the next part, while one is on its way */
    UPLOAD_TRIES = 5,               /* of one part, those of the transport not counted */
    UPLOAD_ID_CHARS = 24,           /* [A-Za-z0-9] */
};

struct uploads; /* all of one gateway */
struct upload_limits {
    uint64_t part_bytes; /* 0: UPLOAD_PART */
    uint64_t pool_bytes; /* 0: 256 MiB */
};
/* NULL: out of memory. */
struct uploads *uploads_new(struct sg_loop *loop, struct guestlink *g, const struct upload_limits *l);
/* Before the guestlink goes.  What is still there ends, and is told DRAINING where somebody hears it; who waits for
 * quiet has it, and must begin nothing more.  NULL is fine. */
void uploads_free(struct uploads *all);

struct upload_spec {
    struct fs_target target;
    /* A resumable one, which `upload-open` made; its bytes go on at `at` (UPLOAD_OFFSET with e->accepted when they do
     * not).  NULL: one of our own, which is removed when it fails. */
    const char *id;
    uint64_t at;
    int64_t size;         /* of this body; -1: until read says 0 */
    vercel_read_fn *read; /* the body; 0 ends it, VERCEL_READ_ABORT: it is cut */
    /* Asked at the end, with --from NAME --size N added; of a resumable one "upload-finish", with --upload ID.  Read until
     * the first of both: the end, or upload_cancel; read may add to it until it says 0.  An answer that goes on (M behind an
     * N line "c<cursor>") is followed.  NULL: the bytes are only kept. */
    const struct fs_request *finish;
};

/* Exactly once unless cancelled.  offset: as many bytes are safely there (of a resumable one, also after an error that
 * came before it was finished).  a: the answer of finish.  e->outcome is of the act that finish is: SG_NOT_STARTED when
 * it was not asked. */
typedef void upload_done_fn(void *arg, const struct fs_answer *a, uint64_t offset, const struct sg_error *e);

struct upload;
/* No callback before it returns; NULL with *e when it could not begin. */
struct upload *upload_start(struct uploads *all, const struct upload_spec *s, upload_done_fn *done, void *arg,
                            struct sg_error *e);
/* More body is there after read paused. */
void upload_resume(struct upload *u);
/* The client left.  One of our own is removed, unless finish was asked: that is seen through, unheard.  Of a resumable one
 * what came is kept: it is sent and joined, unheard. */
void upload_cancel(struct upload *u);

/* Whether bytes of a resumable one are still on their way; then fn(arg) once when none are any more.  If its client is still
 * there, it is told OVERLOADED and its bytes are kept first: the one who asks later wins.  `off` forgets it. */
typedef void upload_quiet_fn(void *arg);
bool upload_settle(struct uploads *all, const char *session_id, const char *id, upload_quiet_fn *fn,
                   void *arg);
void upload_settle_off(struct uploads *all, void *arg);

#endif
