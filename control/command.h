/* One short command by the upstream itself, without the helper and its records: for what the helper cannot do to itself. */
#ifndef SG_CONTROL_COMMAND_H
#define SG_CONTROL_COMMAND_H

#include "control/sandboxes.h"

/* Waits for its end; what it prints is passed over.  *exit_code -1: not told.  Any thread but the loop's, blocking; sent once. */
SG_MUST_CHECK enum sg_code control_command(struct control *c, const char *session_id, const char *const *argv,
                                           bool sudo, int *exit_code, struct sg_error *e);

#endif
