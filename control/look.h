/* One look at a sandbox: the upstream's record, and with it what only the gateway knows (store/sandboxes.h), which is left out
 * where the store cannot be used, or not soon. */
#ifndef SG_CONTROL_LOOK_H
#define SG_CONTROL_LOOK_H

#include "control/sandboxes.h"
#include "store/sandboxes.h"

enum { LOOK_STORE_MS = 1000 /* how long the store is waited for */ };

struct look;
/* known may be NULL.  Both are valid during the call; s may be taken by zeroing it.  e: the look failed. */
typedef void look_fn(void *arg, struct vercel_sandbox *s, const struct store_sandbox *known,
                     const struct sg_error *e);
/* Loop thread.  resume: as vercel_get_start.  NULL with *e filled when it could not begin; done never runs before this
 * returns. */
struct look *look_start(struct control *c, const char *name, bool resume, look_fn *done, void *arg,
                        struct sg_error *e);
/* done is not called. */
void look_cancel(struct look *l);

/* Blocking, any thread but the loop's.  True: *row is to be cleared.  False: nothing is known. */
bool control_known(struct control *c, const struct vercel_sandbox *s, struct store_sandbox *row);

#endif
