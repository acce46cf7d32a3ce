/* libcurl inside the loop: three multi handles, their sockets and timers, and a pool of easy handles.  Private
 * to vercel/.  Loop thread only.
 *
 * A job is one transfer.  libcurl forbids adding, removing or resuming transfers from inside its callbacks, so
 * what is asked for there is done right after libcurl returns; callers need not care where they are.
 */
#ifndef SG_VERCEL_TRANSPORT_H
#define SG_VERCEL_TRANSPORT_H

#include "base/loop.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <sys/queue.h>

enum vt_class { VT_CONTROL, VT_LOGS, VT_BULK, VT_CLASSES };

struct vt_config {
    const char *proxy;     /* NULL: none */
    const char *ca_bundle; /* NULL: the system's */
    long connect_timeout_ms;
};

struct vt_job {
    TAILQ_ENTRY(vt_job) link; /* in the list of things to do after libcurl returned */
    bool queued, add, remove, resume;
    enum vt_class class;
    CURL *easy; /* while it runs */
    /* The transfer ended; `easy` may be asked for information and goes back to the pool afterwards.  Never
     * called from inside libcurl, nor after vt_stop. */
    void (*done)(struct vt_job *job, CURL *easy, CURLcode result);
};

struct vt;
/* Copies the strings.  NULL when out of memory. */
struct vt *vt_new(struct sg_loop *loop, const struct vt_config *config);
/* No job may be running.  The memory goes when the loop has closed the handles. */
void vt_free(struct vt *t);

/* An easy handle with everything set that does not depend on the call; NULL when out of memory. */
CURL *vt_easy(struct vt *t, enum vt_class class);
/* Gives back one that was never started. */
void vt_easy_release(struct vt *t, enum vt_class class, CURL *easy);

/* Starts job->easy.  `done` is not called before this returns.  False when out of memory (the easy handle is
 * then still the caller's); inside a libcurl callback the failure comes through `done`. */
bool vt_start(struct vt *t, struct vt_job *job);
/* Ends the transfer without `done`.  The job's memory must stay until the end of the turn. */
void vt_stop(struct vt *t, struct vt_job *job);
/* Continues a paused transfer at the end of this turn. */
void vt_resume(struct vt *t, struct vt_job *job);

#endif
