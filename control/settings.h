/* What the store knows of a sandbox, for those who act in it: where its programs begin, and what is run in each new session.
 *
 * The directory is kept in memory for a minute by allocation, so that another gateway's change is seen by then.
 */
#ifndef SG_CONTROL_SETTINGS_H
#define SG_CONTROL_SETTINGS_H

#include "control/control.h"
#include "store/sandboxes.h"

enum { SETTINGS_KNOWN_MS = 60 * 1000 };

/* ---- worker threads, blocking ---- */

/* The row of an allocation; *found false: none.  *out: store_sandbox_clear. */
SG_MUST_CHECK enum sg_code settings_read(struct control *c, const char *alloc, struct store_sandbox *out,
                                         bool *found, struct sg_error *e);
/* Before it is allocated. */
SG_MUST_CHECK enum sg_code settings_put(struct control *c, const struct store_sandbox *row,
                                        struct sg_error *e);
/* It is there: what is kept of others of the name goes. */
void settings_made(struct control *c, const char *name, const char *alloc);
/* Forgets the row and what is in memory; what cannot be forgotten in the store is logged. */
void settings_forget(struct control *c, const char *alloc);
/* What PATCH changes, in the store and here. */
SG_MUST_CHECK enum sg_code settings_change(struct control *c, const struct vercel_sandbox *s,
                                           const struct store_sandbox_change *change, struct sg_error *e);

/* ---- any thread, never block ---- */

/* Where its programs begin, if it was asked within the last minute: *dir (free) NULL: where the upstream says.  False: not
 * known. */
bool settings_dir(struct control *c, const struct vercel_sandbox *s, char **dir);
void settings_learn(struct control *c, const char *alloc, const char *dir);

/* ---- loop thread ---- */

/* Asks the store.  known false: it is away.  What is to be run in this session and was not is begun.  NULL: it cannot be
 * asked, done is not called. */
struct settings_ask;
typedef void settings_fn(void *arg, bool known, const char *dir);
struct settings_ask *settings_ask(struct control *c, const struct vercel_sandbox *s, settings_fn *done,
                                  void *arg);
/* done is not called. */
void settings_ask_cancel(struct settings_ask *a);

#endif
