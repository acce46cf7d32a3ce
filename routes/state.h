/* Conditions on the state of a resource that a record describes: If-Match and If-None-Match against its entity tag, which has
 * the form of those of files (routes/conditions.h).  Loop or worker thread, as the exchange. */
#ifndef SG_ROUTES_STATE_H
#define SG_ROUTES_STATE_H

#include "routes/conditions.h"

#include <jansson.h>

struct exchange;
struct state_match {
    struct condition_tags match, none_match;
};
/* Of If-Match, and for GET and HEAD of If-None-Match.  INVALID_FIELD for lists of tags that are none or too long. */
SG_MUST_CHECK enum sg_code state_match_of(struct exchange *ex, struct state_match *m, struct sg_error *e);
/* If-Match is not given, or names this state.  For control_fits_fn. */
bool state_fits(const struct state_match *m, const char *etag);
/* If-None-Match names it: the caller has it. */
bool state_had(const struct state_match *m, const char *etag);

/* Sets the ETag header: of a record, or of a tag without quotes. */
void state_set_etag(struct exchange *ex, const char *etag);
void state_set_etag_of(struct exchange *ex, const json_t *record);
/* Sets the Location header: `base` ("/v1/sandboxes/") and the name. */
void state_set_location(struct exchange *ex, const char *base, const char *name);
/* ex_is_gone, for whoever takes it as void *. */
bool state_is_gone(void *ex);

#endif
