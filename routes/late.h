/* Answers that are not there in time: no call is silent for longer than 25 s, so an act that lasts is answered 202 with
 * the place where its answer will be, and goes on.
 *
 * In memory, at most LATES_MAX of them: what has ended is forgotten after LATE_KEEP_MS, or when room is needed, the
 * oldest first.  When all are still under way, further acts keep their clients waiting.  What was answered so is seen
 * through when the gateway drains, as long as that may take.  Loop thread.
 */
#ifndef SG_ROUTES_LATE_H
#define SG_ROUTES_LATE_H

#include "base/buf.h"
#include "routes/exchange.h"

enum { LATES_MAX = 256, LATE_KEEP_MS = 10 * 60 * 1000, LATE_ID_CHARS = 24, LATE_BODY_MAX = 64 * 1024 };

struct lates;
/* after_ms: how long clients wait before they are told so.  NULL: out of memory. */
struct lates *lates_new(struct sg_loop *loop, int64_t after_ms);
/* After everything that may call late_end, and after the server. */
void lates_free(struct lates *all);
int64_t lates_after_ms(const struct lates *all);

struct late;
/* Answers 202; the client's watch (ex_on_gone) is the caller's to end before.  NULL: no room, nothing was answered. */
struct late *late_begin(struct lates *all, struct exchange *ex);
/* Before late_end: its answer, which has no body, tells this (quoted) as its ETag. */
void late_etag(struct late *l, const char *etag);
/* Once: what the act answers; body (JSON; may be NULL) is copied.  e: it failed. */
void late_end(struct late *l, int status, const struct sg_buf *body, const struct sg_error *e);

#endif
