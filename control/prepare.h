/* One preparation of a template: a builder is allocated, its files and steps put in, the result captured, the builder deleted.
 * Whatever happens meanwhile, also to the gateway, in the end nothing of it is left but the snapshot.
 */
#ifndef SG_CONTROL_PREPARE_H
#define SG_CONTROL_PREPARE_H

#include "control/sandboxes.h"
#include "control/steps.h"
#include "control/template_spec.h"
#include "store/templates.h"

enum { PREPARE_HOLD_MS = 20 * 1000 }; /* who was silent for so long does not work on it any more */

/* Those that run in this gateway: so that they are held in the store while they last. */
struct prepares;
/* NULL: no memory.  hold_ms 0: PREPARE_HOLD_MS. */
struct prepares *prepares_new(struct control *c, int64_t hold_ms);
void prepares_free(struct prepares *all);
int64_t prepares_hold_ms(const struct prepares *all);
/* Says of each in the store that somebody works on it.  A job's thread, every third of hold_ms. */
void prepares_hold(struct prepares *all);

struct prepare_order {
    const struct template_spec *spec;
    const char *owner;            /* id of the principal whose template it is; may be "" */
    const char *attempt;          /* as it was claimed, */
    const struct store_prep *was; /* and what was there before: what a dead gateway left is taken away */
    bool refresh;                 /* where all is as it was (and usable), the old snapshot stays */
};
/* Until its end is in the store.  *out: READY.  Blocking; may last as long as the template says. */
SG_MUST_CHECK enum sg_code prepare_run(struct prepares *all, const struct prepare_order *o,
                                       struct store_prep *out, struct sg_error *e);

/* Only takes away what was left behind, and notes that it was interrupted, as this. */
#define PREPARE_ABANDONED SG_E_OUTCOME_LOST
void prepare_abandon(struct prepares *all, const char *attempt, const struct store_prep *was);

/* Whether the upstream still has it.  SNAPSHOT_GONE where it has not. */
SG_MUST_CHECK enum sg_code prepare_usable(struct control *c, const char *snapshot_id, struct sg_error *e);

/* For store_fn: the preparation stands on this snapshot no more; it goes when nobody needs it. */
SG_MUST_CHECK enum sg_code prepare_release(struct store_db *db, const char *upstream, const char *snapshot_id,
                                           const char *fingerprint, struct sg_error *e);

/* Files first, then steps, in any session; ids as steps_run.  say (may be NULL) is told what begins, as output. */
SG_MUST_CHECK enum sg_code prepare_inside(struct control *c, const struct template_spec *spec,
                                          const struct step_session *s, const char *id_base,
                                          step_output_fn *output, void *output_arg, struct sg_error *e);

#endif
