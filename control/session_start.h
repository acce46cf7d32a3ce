/* What is run when a sandbox is made, and in each new session of it: its working directory, init, on_start.  Each is a
 * recorded process with an id of its own, so that it is run once however many gateways, requests and restarts ask for it.
 *
 * Worker threads and jobs, blocking, but for what says otherwise.
 */
#ifndef SG_CONTROL_SESSION_START_H
#define SG_CONTROL_SESSION_START_H

#include "control/control.h"
#include "store/sandboxes.h"

/* Makes the directory where it is missing, as root if need be, then for the sandbox's user. */
SG_MUST_CHECK enum sg_code session_directory(struct control *c, const struct step_session *s, const char *dir,
                                             struct sg_error *e);

/* Runs init of this allocation unless it came to its end before; one at a time among all gateways.  A failed one is counted
 * and begun anew by the next call; one whose gateway died is gone on with.  STEP_FAILED; SANDBOX_TRANSITION when somebody
 * else is at it for too long.  *ran: it came to its end now. */
SG_MUST_CHECK enum sg_code session_init(struct control *c, const struct step_session *s, const char *alloc,
                                        bool *ran, struct sg_error *e);

/* Runs on_start in this session unless that was done. */
SG_MUST_CHECK enum sg_code session_on_start(struct control *c, const struct step_session *s,
                                            const char *alloc, struct sg_error *e);

/* The same a little later on a job's thread, where the row says that there is something to be run.  How it ends is logged.
 * Any thread, does not block. */
void session_start_later(struct control *c, const struct store_sandbox *row, const char *session_id,
                         const char *cwd, const char *arch);
/* Likewise, when the row was not read yet: a session of this sandbox just began. */
void session_began(struct control *c, const struct vercel_sandbox *s);

#endif
