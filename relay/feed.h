/* Reading a process's output, shared: one follower per process and gateway feeds a ring, from which all its
 * readers are served.
 *
 * A reader has the contract of a follower (relay.h): contiguous bytes from its offsets, gaps, one end.  What is in
 * the ring is given from there; a reader that wants older bytes, or fell behind the ring, is served by a bounded
 * follower of its own until it has caught up with the ring, and joins it exactly.  The ring goes at the pace of its
 * fastest reader and is held by nobody else.  Memory: FEED_RING bytes a stream at most, all rings together below
 * relay_limits.ring_total; a feed without readers is kept for relay_limits.linger_ms, then dropped.  Processes that
 * have been quiet for a while give their own stream up and are watched together, one stream per session.
 * Loop thread.
 */
#ifndef SG_RELAY_FEED_H
#define SG_RELAY_FEED_H

#include "relay/relay.h"

enum { FEED_RING = 1024 * 1024 }; /* bytes of one stream that are kept at hand */

struct reader;
/* As follower_open; of bounded reads, only what the ring cannot answer costs an upstream call. */
struct reader *reader_open(struct relay *r, const struct follow_spec *s, const struct follower_events *ev,
                           void *arg, struct sg_error *e);
void reader_resume(struct reader *r);
/* As follower_close. */
void reader_close(struct reader *r);
/* The process is known, and what it said lately is at hand. */
bool feed_present(struct relay *r, const char *session_id, const char *id);
/* The process's record is gone: who comes now must not be served from memory. */
void feed_forget(struct relay *r, const char *session_id, const char *id);

#endif
