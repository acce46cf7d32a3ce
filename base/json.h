/* Helpers over jansson: strict parsing with a position, and typed field access that produces the error a
 * caller of the API should see (422 with a JSON pointer).  Pure; any thread, one object on one thread at a
 * time.
 */
#ifndef SG_BASE_JSON_H
#define SG_BASE_JSON_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>

/* Parses one JSON object of a request body: duplicate keys, NUL and invalid UTF-8 refused, nesting limited by
 * jansson.  Empty input is {}.  INVALID_JSON with line and column otherwise.  *out is a new reference. */
SG_MUST_CHECK enum sg_code sg_json_parse_object(const char *data, size_t len, json_t **out,
                                                struct sg_error *e);

/* Every member of obj must be one of `allowed` (NULL-terminated); else UNKNOWN_FIELD naming the first
 * stranger. `base` is the pointer of obj itself ("" for the body). */
SG_MUST_CHECK enum sg_code sg_json_only(const json_t *obj, const char *base, const char *const allowed[],
                                        struct sg_error *e);

/* Typed access.  An absent member leaves *out as it is and succeeds; a null or a wrong type is INVALID_FIELD.
 */
SG_MUST_CHECK enum sg_code sg_json_str(const json_t *obj, const char *base, const char *key, size_t max_len,
                                       const char **out, struct sg_error *e);
SG_MUST_CHECK enum sg_code sg_json_int(const json_t *obj, const char *base, const char *key, int64_t min,
                                       int64_t max, int64_t *out, struct sg_error *e);
SG_MUST_CHECK enum sg_code sg_json_bool(const json_t *obj, const char *base, const char *key, bool *out,
                                        struct sg_error *e);
/* A member that must be an object or array; *out borrowed. */
SG_MUST_CHECK enum sg_code sg_json_object(const json_t *obj, const char *base, const char *key, json_t **out,
                                          struct sg_error *e);
SG_MUST_CHECK enum sg_code sg_json_array(const json_t *obj, const char *base, const char *key, json_t **out,
                                         struct sg_error *e);

/* Writes `base` + "/" + key with RFC 6901 escapes into out (cut if too long). */
void sg_json_pointer(char *out, size_t cap, const char *base, const char *key);

/* Foreign JSON (an upstream's answer): the value or the given default, never a failure. */
const char *sg_jget_str(const json_t *obj, const char *key, const char *dflt);
int64_t sg_jget_int(const json_t *obj, const char *key, int64_t dflt);
bool sg_jget_bool(const json_t *obj, const char *key, bool dflt);

#endif
