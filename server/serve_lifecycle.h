/* What happens by itself in an instance: clean-ups, leases that run out, sessions that are kept from ending.  Ties control/
 * to the rooms that it does not know. */
#ifndef SG_SERVER_SERVE_LIFECYCLE_H
#define SG_SERVER_SERVE_LIFECYCLE_H

#include "config/config.h"
#include "routes/gateway.h"

/* All rooms are built.  Loop thread; false when out of memory. */
bool lifecycle_start(struct gateway *gw, const struct config *c);
/* Nothing begins by itself any more; what runs is let go and waited for, while the loop goes on. */
void lifecycle_stop(struct gateway *gw);
/* After lifecycle_stop and the server; also when it was not started. */
void lifecycle_free(struct gateway *gw);

#endif
