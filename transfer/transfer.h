/* File bodies between HTTP and the upstream.  Loop thread; memory is bounded by the transport's buffers. */
#ifndef SG_TRANSFER_H
#define SG_TRANSFER_H

#include "guestlink/guestlink.h"

struct upload_spec {
    const char *session_id, *arch, *cwd;
    const char *path; /* target, relative to cwd or absolute; any bytes but NUL */
    int mode;         /* -1: the old file's, else 0644 */
    bool parents;
    bool exclusive;       /* fail with FILE_EXISTS when it exists; atomic */
    uint64_t size;        /* exact */
    vercel_read_fn *read; /* the body; its arg is upload's arg */
};

/* Uploads beside the target's data and then replaces it in one step: an upload that fails at any point leaves
 * the old file as it was.  Two upstream calls. */
struct upload;
typedef void upload_done_fn(void *arg, bool created, const struct sg_error *e);
struct upload *upload_start(struct guestlink *g, const struct upload_spec *s, upload_done_fn *done, void *arg,
                            struct sg_error *e);
/* More body is there after read paused. */
void upload_resume(struct upload *u);
/* The client left: what was uploaded is removed, the old file stays. */
void upload_cancel(struct upload *u);

#endif
