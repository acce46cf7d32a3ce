/* Problem documents (RFC 9457) from errors.  Pure; any thread. */
#ifndef SG_SERVER_PROBLEM_H
#define SG_SERVER_PROBLEM_H

#include "base/buf.h"
#include "base/error.h"

#include <jansson.h>

#define PROBLEM_TYPE "application/problem+json"

/* The document of e; absent members are left out.  `instance` (the request's path) and `request_id` may be
 * NULL.  A code that is not in the table is told as `internal`.  NULL when out of memory. */
json_t *problem_json(const struct sg_error *e, const char *instance, const char *request_id);
/* The same as text, appended to out. */
SG_MUST_CHECK bool problem_write(const struct sg_error *e, const char *instance, const char *request_id,
                                 struct sg_buf *out);
/* The HTTP status of e. */
int problem_status(const struct sg_error *e);
/* Value of Retry-After in whole seconds, rounded up; -1 when not known. */
int64_t problem_retry_after(const struct sg_error *e);

/* Dumps json compactly at the end of out. */
SG_MUST_CHECK bool problem_dump(const json_t *json, struct sg_buf *out);

#endif
