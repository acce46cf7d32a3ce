/* Templates: names of declared inputs (control/template_spec.h), of which a snapshot is prepared once, for sandboxes to start
 * from (control_template_use, control/origins.h).
 *
 * What is prepared belongs to the inputs and not to the name: by a fingerprint of them, so that names with the same inputs
 * share a snapshot, and a template whose inputs changed is prepared anew.  One gateway works on it at a time; one that dies
 * meanwhile is noticed by its silence.  `identity` is a hash of the fingerprint and what it was resolved to: the image by its
 * digest, the region, the architecture.
 */
#ifndef SG_CONTROL_TEMPLATES_H
#define SG_CONTROL_TEMPLATES_H

#include "control/sandboxes.h"

/* ---- worker threads, blocking ---- */

/* Makes or changes it; prepares nothing.  *record: a new reference. */
SG_MUST_CHECK enum sg_code control_template_put(struct control *c, const char *name, json_t *body,
                                                const char *owner, json_t **record, bool *made,
                                                struct sg_error *e);
SG_MUST_CHECK enum sg_code control_template_get(struct control *c, const char *name, json_t **record,
                                                struct sg_error *e);
/* {items, next_cursor}, in the order of names; without what they declare. */
SG_MUST_CHECK enum sg_code control_template_list(struct control *c, const char *cursor, int64_t limit,
                                                 json_t **page, struct sg_error *e);
/* Success also where there is none.  Its snapshot goes when nobody else needs it. */
SG_MUST_CHECK enum sg_code control_template_delete(struct control *c, const char *name, struct sg_error *e);
/* Its files and steps once more, in the running session of a sandbox; nothing is captured.  resume: it is started where it does
 * not run.  nonce (NULL: none): with the same one nothing runs twice in a session.  *told: {sandbox, session_id, template,
 * fingerprint}. */
SG_MUST_CHECK enum sg_code control_template_apply(struct control *c, const char *sandbox, const char *name,
                                                  bool resume, const char *nonce, json_t **told,
                                                  struct sg_error *e);

/* ---- loop thread ---- */

struct template_wish;
/* record: owned by the callee; NULL when e is set. */
typedef void control_template_fn(void *arg, json_t *record, const struct sg_error *e);
/* Prepares it where its snapshot is not usable, or waits for whoever does.  refresh: its image is resolved anew, and it is
 * prepared again where that gives another one.  done once, later.  NULL: *e says why it cannot begin. */
struct template_wish *control_template_prepare(struct control *c, const char *name, bool refresh,
                                               control_template_fn *done, void *arg, struct sg_error *e);
/* Before done: it is not called any more; the preparation goes on. */
void control_template_unwish(struct template_wish *w);

/* ---- the whole ---- */

/* Loop thread; hold_ms: see prepare.h, 0: the default.  False: out of memory. */
bool templates_start(struct control *c, int64_t hold_ms);
/* After jobs_stop: lets those that wait go, and waits for them while the loop goes on. */
void templates_stop(struct control *c);
void templates_free(struct control *c);
/* What no template has any more goes.  Any thread but the loop's. */
void templates_sweep(struct control *c);

#endif
