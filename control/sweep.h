/* The job that deletes the snapshots nobody needs any more: superseded ones of sandboxes that the upstream was told not to evict
 * from, what destroyed sandboxes left, what checkpoints and templates released.  One gateway of a store at a time.
 */
#ifndef SG_CONTROL_SWEEP_H
#define SG_CONTROL_SWEEP_H

#include "control/sandboxes.h"

/* Loop thread; every_ms 0: two minutes.  False when out of memory.  Ends with control_stop_jobs, freed with the control. */
bool control_sweep_start(struct control *c, int64_t every_ms);
/* Soon.  Any thread until control_stop_jobs returned. */
void control_sweep_kick(struct control *c);

#endif
