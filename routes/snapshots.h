/* What answers say of a capture.  Pure. */
#ifndef SG_ROUTES_SNAPSHOTS_H
#define SG_ROUTES_SNAPSHOTS_H

#include "control/capture.h"

/* Adds captured, resumed and, where a resume was wished and failed, resume_error; not 0: out of memory. */
int snapshots_add_capture(json_t *record, const struct control_capture *k);

#endif
