/* The gateway's JSON for snapshots and sessions.  Pure; any thread.  NULL: out of memory. */
#ifndef SG_CONTROL_SNAPSHOT_RECORD_H
#define SG_CONTROL_SNAPSHOT_RECORD_H

#include "vercel/snapshots.h"

json_t *control_snapshot_record(const struct vercel_snapshot *s);
json_t *control_session_record(const struct vercel_session *s);
/* An RFC 3339 text, or null for a time that is not known (0 or less). */
json_t *control_moment(int64_t wall_ms);

#endif
