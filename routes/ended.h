/* Requests about processes of sessions that are over: answered from what was saved of them (relay/tails.h).
 *
 * A handler calls one of these right after act_new.  When its request then fails because the sandbox does not run,
 * runs in another session, or has no such process, the saved ones are looked up before that error is answered.
 * Loop thread.
 */
#ifndef SG_ROUTES_ENDED_H
#define SG_ROUTES_ENDED_H

#include "relay/events.h"
#include "routes/act.h"

/* The process's record. */
void ended_get(struct act *a);
/* The records of a session (?session=; else the last one, where none runs). */
void ended_list(struct act *a);
/* Bytes of one stream; limit 0: all. */
void ended_output(struct act *a, int stream, uint64_t offset, uint64_t limit);
/* An act on a process: STALE_SESSION when it belongs to another session. */
void ended_refuse(struct act *a);
/* The same for an upload that failed with e, of which nothing more is wanted: instead of ex_fail.  session_id: where
 * it was tried, NULL: nowhere. */
void ended_refuse_upload(struct exchange *ex, const char *session_id, const struct sg_error *e);
/* Removing: what was saved goes, too. */
void ended_remove(struct act *a);

/* The events from these offsets on. */
void ended_events(struct act *a, enum events_format format, const uint64_t offset[2]);

/* Before a connection is upgraded: goes on with go(a), or fails with STALE_SESSION when the process belongs to
 * another session and this one has none of its id. */
void ended_check(struct act *a, void (*go)(struct act *a));

/* The whole stream of events about a saved process.  False: out of memory.  Pure. */
struct stored_process;
/* The record of a saved process; NULL: out of memory.  Pure. */
json_t *ended_record(const struct stored_process *p);
bool ended_events_write(struct sg_buf *out, const char *sandbox, const struct stored_process *p,
                        enum events_format format, const uint64_t offset[2]);
enum { ENDED_EVENTS_MAX = 4 * 1024 * 1024 };

/* On a worker: the sandbox was destroyed, nothing of it is told any more. */
void ended_destroyed(struct gateway *gw, const char *sandbox, const char *session_id);

#endif
