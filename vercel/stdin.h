/* The input of a command that was started with attach_stdin.  Loop thread.
 * Source: Vercel's Sandbox REST API v2, …/sessions/{id}/cmd/{id}/stdin.
 *
 * The sandbox counts the bytes it has taken since the command began.  Each write says where its bytes belong: what
 * lies below the count is passed over, so a write may be made again as long as the sandbox is known to count.  Older
 * sandboxes do not count, ignore the offset and append: there nothing may be sent twice.
 */
#ifndef SG_VERCEL_STDIN_H
#define SG_VERCEL_STDIN_H

#include "vercel/client.h"

/* Bytes of one write: half a mebibyte and the heads of the frames in it; as base64 well below the upstream's 1 MB. */
enum { VERCEL_STDIN_MAX = 516 * 1024 };

struct vercel_stdin {
    const char *session_id, *command_id;
    int64_t offset;   /* where data belongs (or close: after how many bytes); -1: append */
    const void *data; /* must stay until `done`, or until the call was cancelled; NULL: none */
    size_t len;
    bool close;  /* end of input after data */
    bool counts; /* this sandbox has said its count before: the call may be made again by itself */
};

enum vercel_stdin_result {
    VERCEL_STDIN_TAKEN,  /* all of it, or it had been before */
    VERCEL_STDIN_SLOW,   /* the command did not read for 30 s: part of it may be in, `taken` says how much */
    VERCEL_STDIN_GAP,    /* the offset lies beyond the count; nothing was taken */
    VERCEL_STDIN_CLOSED, /* the command takes no input any more */
    VERCEL_STDIN_GONE,   /* the command is unknown, or has ended */
    VERCEL_STDIN_FAILED, /* e says why, and its outcome whether some of it may be in */
};

/* taken: the sandbox's count now; -1: it was not said.  e: set for all but TAKEN. */
typedef void vercel_stdin_fn(void *arg, enum vercel_stdin_result result, int64_t taken,
                             const struct sg_error *e);

/* One call, which `done` ends unless it was cancelled.  With neither data nor close it only asks for the count.  NULL
 * with *e when it could not begin. */
struct vercel_call *vercel_stdin_write(struct vercel_client *c, const struct vercel_stdin *w,
                                       vercel_stdin_fn *done, void *arg, struct sg_error *e);

#endif
