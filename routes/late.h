/* Answers that are not there in time: no call is silent for longer than 25 s, so an act that lasts is answered 202 with
 * the place where its answer will be, and goes on.
 *
 * In memory, at most LATES_MAX of them: what has ended is forgotten after LATE_KEEP_MS, or when room is needed, the
 * oldest first.  When all are still under way, further acts keep their clients waiting.  What was answered so is seen
 * through when the gateway drains, as long as that may take.  What had an Idempotency-Key is found through the store as
 * well, by whichever gateway is asked.  Loop thread.
 */
#ifndef SG_ROUTES_LATE_H
#define SG_ROUTES_LATE_H

#include "base/buf.h"
#include "routes/exchange.h"

enum {
    LATES_MAX = 256,
    LATE_KEEP_MS = 10 * 60 * 1000,
    LATE_ID_CHARS = 32,
    LATE_BODY_MAX = 256 * 1024,
    LATE_HEAD_MAX = 8 * 1024
};

struct lates;
/* after_ms: how long clients wait before they are told so.  NULL: out of memory. */
struct lates *lates_new(struct sg_loop *loop, int64_t after_ms);
/* After everything that may call late_end, and after the server. */
void lates_free(struct lates *all);
int64_t lates_after_ms(const struct lates *all);

struct late;
/* ---- by a handler that watches the time itself ---- */

/* Answers 202; the client's watch (ex_on_gone) is the caller's to end before.  NULL: no room, nothing was answered. */
struct late *late_begin(struct lates *all, struct exchange *ex);
/* Before late_end: its answer, which has no body, tells this (quoted) as its ETag. */
void late_etag(struct late *l, const char *etag);
/* Once: what the act answers; body (JSON; may be NULL) is copied.  e: it failed. */
void late_end(struct late *l, int status, const struct sg_buf *body, const struct sg_error *e);

/* ---- by the server, for handlers that know nothing of it ---- */

/* id: its name, NULL: a new one.  files: its place is with the files of its sandbox (params[0]).  Nothing is answered.
 * NULL: no room. */
struct late *late_open(struct lates *all, const struct exchange *ex, bool files, const char *id);
/* As if it had not been opened: before anybody was told. */
void late_drop(struct late *l);
/* 202 with the place. */
void late_tell(const struct late *l, struct exchange *ex);
/* A header of the answer, before late_end. */
void late_header(struct late *l, const char *name, const char *value);

#endif
