/* Bytes out of a session, of any length and at any pace of who takes them: a file (guest `fetch`) or an archive (`tar`).
 *
 * What is short comes with the guest's answer: one upstream call.  What is long comes in parts: the guest puts a part
 * aside in a file of its own, that is read through the upstream's file endpoint while the next part is put aside, and
 * then removed.  So no upstream request is longer than a part, a part that was cut is read again alone, and all parts
 * are of one state of the file (FILE_CHANGED otherwise).  A sandbox whose disk is full gives parts with its answers.
 * Memory is bounded by the transport's buffers.  Loop thread.
 */
#ifndef SG_TRANSFER_DOWNLOAD_H
#define SG_TRANSFER_DOWNLOAD_H

#include "transfer/fs_call.h"

enum {
    DOWNLOAD_INLINE = 128 * 1024, /* as much comes with the answer */
    DOWNLOAD_PART = 32 * 1024 * 1024,
    DOWNLOAD_TRIES = 5,        /* without one more byte */
    DOWNLOAD_FIRST_MS = 24000, /* without the first: UPSTREAM_TIMEOUT */
};

struct download_spec {
    struct fs_target target;
    const struct fs_request
        *request;        /* "fetch" or "tar"; stays until the end; what parts need is added here */
    uint64_t part_bytes; /* 0: DOWNLOAD_PART */
};

struct download_events {
    /* First, once, and not before the first byte is known good: the file as it was opened (of an archive: the
     * directory).  same: it has one of the tags of --unless, and no bytes follow. */
    void (*on_head)(void *arg, const struct sg_wire_file *file, bool same);
    /* In order, none twice.  False pauses: the same bytes come again after download_resume. */
    bool (*on_data)(void *arg, const char *data, size_t len);
    /* The end, once unless cancelled; e NULL: everything came.  Before on_head the usual errors of file operations. */
    void (*on_done)(void *arg, const struct sg_error *e);
    /* May be NULL.  Whenever the file was opened, before on_head: once, and again each time it is begun anew because it
     * was changed meanwhile. */
    void (*on_open)(void *arg, const struct sg_wire_file *file);
};

struct download;
/* No callback before it returns; NULL with *e when it could not begin.  on_open, on_head and on_data may cancel. */
struct download *download_start(struct guestlink *g, const struct download_spec *s,
                                const struct download_events *ev, void *arg, struct sg_error *e);
/* Not from inside its own callbacks. */
void download_resume(struct download *d);
/* What was put aside is removed in the sandbox. */
void download_cancel(struct download *d);

#endif
