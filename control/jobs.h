/* Work that comes again and again, on threads of its own: expiring leases, clean-ups, retention, keep-alive.
 *
 * A job never runs twice at the same time in one gateway.  Several gateways may share the store: what a job does must be
 * claimed there first.
 */
#ifndef SG_CONTROL_JOBS_H
#define SG_CONTROL_JOBS_H

#include "base/loop.h"

#include <stdbool.h>
#include <stdint.h>

enum { JOBS_THREADS = 8, JOBS_STACK = 512 * 1024 };

struct jobs;
struct job;

/* NULL when out of memory.  Loop thread, like all functions here that do not say otherwise. */
struct jobs *jobs_new(struct sg_loop *loop);
/* No job begins any more; those that run are waited for while the loop goes on, so that their calls end. */
void jobs_stop(struct jobs *j);
/* The same; hurry(arg) once when they are not over after patience_ms: it makes what they wait for fail. */
void jobs_stop_within(struct jobs *j, int64_t patience_ms, void (*hurry)(void *arg), void *arg);
/* After jobs_stop. NULL is fine. */
void jobs_free(struct jobs *j);
/* True once jobs_stop was called: whoever works for long looks now and then.  Any thread. */
bool jobs_stopping(const struct jobs *j);

/* fn(arg) on a thread, may block: first soon after this, then every_ms (and up to a tenth more, so that gateways that were
 * started together part) after its last run ended.  NULL when out of memory.  Freed with the whole. */
struct job *job_add(struct jobs *j, const char *name, int64_t every_ms, void (*fn)(void *arg), void *arg);
/* It runs as soon as it can; once more, when it runs already.  Any thread, until jobs_stop returned. */
void job_kick(struct job *job);

/* fn(arg) once on a thread; false when the gateway stops or no memory or thread is left, then it will not run.  Any
 * thread. */
bool jobs_once(struct jobs *j, void (*fn)(void *arg), void *arg);

#endif
