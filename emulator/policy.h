/* Network policies: the request forms of the API to its response form.  Pure; any thread. */
#ifndef SG_EMULATOR_POLICY_H
#define SG_EMULATOR_POLICY_H

#include "emulator/apierr.h"

#include <jansson.h>
#include <stdbool.h>

/* Nothing is enforced yet, so anything but allow-all is refused unless `record_only`.  *text: the response
 * form as JSON text, malloc'd.  `policy` NULL means allow-all. */
int policy_response(const json_t *policy, bool record_only, char **text, struct api_error *e);

#endif
