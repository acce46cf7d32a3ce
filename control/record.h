/* The gateway's JSON for a sandbox.  Pure; any thread. */
#ifndef SG_CONTROL_RECORD_H
#define SG_CONTROL_RECORD_H

#include "vercel/sandboxes.h"

#include "base/buf.h"

enum { CONTROL_RECORD_MAX = 64 * 1024 * 1024 /* of the text: whatever an upstream's answer may hold */ };

/* Appends the text to out, whose `failed` tells whether it is whole.  `observed_ms`: wall time of the answer
 * it describes. */
void control_record_write(const struct vercel_sandbox *s, int64_t observed_ms, struct sg_buf *out);
/* The same as a new object, NULL when out of memory. */
json_t *control_record(const struct vercel_sandbox *s, int64_t observed_ms);

#endif
