/* The gateway's JSON for a sandbox.  Pure; any thread. */
#ifndef SG_CONTROL_RECORD_H
#define SG_CONTROL_RECORD_H

#include "store/sandboxes.h"
#include "vercel/sandboxes.h"

#include "base/buf.h"

enum { CONTROL_RECORD_MAX = 64 * 1024 * 1024 /* of the text: whatever an upstream's answer may hold */ };

enum { CONTROL_ETAG_LEN = 22 };

/* Appends the text to out, whose `failed` tells whether it is whole.  `observed_ms`: wall time of the answer
 * it describes.  known: what only the gateway knows of it; NULL: nothing.  etag NULL: not wanted. */
void control_record_write(const struct vercel_sandbox *s, const struct store_sandbox *known,
                          int64_t observed_ms, struct sg_buf *out, char etag[CONTROL_ETAG_LEN + 1]);
/* The same as a new object, NULL when out of memory. */
json_t *control_record(const struct vercel_sandbox *s, const struct store_sandbox *known,
                       int64_t observed_ms);
/* The same with what the store knows of it, and as of now.  Blocking; any thread but the loop's. */
struct control;
json_t *control_record_now(struct control *c, const struct vercel_sandbox *s);
/* The entity tag (without its quotes, [A-Za-z0-9_-]) of a record as written here: of all that it says of the sandbox, not of
 * when it was looked at, nor of what only the answer to one call tells (created, ignored, resumed, next_session).  False:
 * out of memory. */
bool control_record_etag(const json_t *record, char etag[CONTROL_ETAG_LEN + 1]);

/* The live status: the session's own, for the sandbox's may lag behind it. */
enum vercel_status control_status(const struct vercel_sandbox *s);

#endif
