/* Problem documents (RFC 9457): what a caller of the API is told about an error, over HTTP and in WebSocket
 * error frames alike.  Pure; any thread.
 */
#ifndef SG_BASE_PROBLEM_H
#define SG_BASE_PROBLEM_H

#include "base/error.h"

#include <jansson.h>

/* A new JSON object from *e; request_id and instance may be NULL (left out).  Text that is not UTF-8 is
 * made so.  A code outside the table is shown as `internal`.  NULL when out of memory. */
SG_MUST_CHECK json_t *sg_problem_json(const struct sg_error *e, const char *request_id, const char *instance);

#endif
