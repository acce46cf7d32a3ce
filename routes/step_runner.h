/* Runs the gateway's own steps in a sandbox, for control/: a process as any other, followed by relay/ on the loop, while the
 * thread that wants it done waits.
 */
#ifndef SG_ROUTES_STEP_RUNNER_H
#define SG_ROUTES_STEP_RUNNER_H

#include "control/steps.h"
#include "routes/gateway.h"

/* gw must outlive all who run steps.  They are let go with DRAINING once the jobs of gw->control stop. */
struct step_runner step_runner_of(struct gateway *gw);

#endif
