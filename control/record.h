/* The gateway's JSON for a sandbox.  Pure; any thread. */
#ifndef SG_CONTROL_RECORD_H
#define SG_CONTROL_RECORD_H

#include "vercel/sandboxes.h"

/* A new object, NULL when out of memory.  `observed_ms`: wall time of the answer it describes. */
json_t *control_record(const struct vercel_sandbox *s, int64_t observed_ms);

#endif
