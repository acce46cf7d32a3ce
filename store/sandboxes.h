/* What of a sandbox only the gateway knows, by its allocation tag: a row for each that was created through a gateway.  Its
 * name may be used again by another one, which has another tag.  Functions for store_fn; any thread.
 */
#ifndef SG_STORE_SANDBOXES_H
#define SG_STORE_SANDBOXES_H

#include "store/store.h"

enum {
    STORE_SANDBOX_TEXT = 129, /* a name, and NUL */
    STORE_ALLOC_TEXT = 65,
};

struct store_sandbox { /* texts that are NULL: none */
    char name[STORE_SANDBOX_TEXT], alloc[STORE_ALLOC_TEXT];
    char *working_directory;
    char *init, *on_start; /* arrays of steps as JSON; what they hold is kept as it is */
    char *template_name, *checkpoint;
    char *started;      /* the last session in which on_start was run to its end */
    int64_t web_port;   /* 0: none */
    int64_t init_fails; /* how often init failed */
    bool init_done;
    int64_t keep_alive, keep_alive_max_ms; /* enum keepalive_mode and its ceiling (control/keepalive.h) */
    int64_t made_at_ms;
};
void store_sandbox_clear(struct store_sandbox *s);

/* Makes the row, before it is known whether there will be such a sandbox; there already: it stays as it is. */
SG_MUST_CHECK enum sg_code store_sandbox_put(struct store_db *db, const char *upstream,
                                             const struct store_sandbox *s, struct sg_error *e);
/* It is there: forgets others of the name. */
SG_MUST_CHECK enum sg_code store_sandbox_made(struct store_db *db, const char *upstream, const char *name,
                                              const char *alloc, struct sg_error *e);
/* *out: to be cleared when *found. */
SG_MUST_CHECK enum sg_code store_sandbox_get(struct store_db *db, const char *upstream, const char *alloc,
                                             struct store_sandbox *out, bool *found, struct sg_error *e);
/* The one that was made last under the name. */
SG_MUST_CHECK enum sg_code store_sandbox_named(struct store_db *db, const char *upstream, const char *name,
                                               struct store_sandbox *out, bool *found, struct sg_error *e);
/* Init came to its end, or failed once more. */
SG_MUST_CHECK enum sg_code store_sandbox_init(struct store_db *db, const char *upstream, const char *alloc,
                                              bool done, struct sg_error *e);
/* on_start came to its end in this session. */
SG_MUST_CHECK enum sg_code store_sandbox_started(struct store_db *db, const char *upstream, const char *alloc,
                                                 const char *session_id, struct sg_error *e);
/* What PATCH changes; makes the row where there is none.  NULL: stays. */
struct store_sandbox_change {
    const char *working_directory; /* "": the upstream's own again */
    const int64_t *keep_alive, *keep_alive_max_ms;
    const int64_t *web_port;
};
SG_MUST_CHECK enum sg_code store_sandbox_change(struct store_db *db, const char *upstream, const char *name,
                                                const char *alloc, const struct store_sandbox_change *change,
                                                struct sg_error *e);
SG_MUST_CHECK enum sg_code store_sandbox_forget(struct store_db *db, const char *upstream, const char *alloc,
                                                struct sg_error *e);
SG_MUST_CHECK enum sg_code store_sandbox_has(struct store_db *db, const char *upstream, const char *alloc,
                                             bool *has, struct sg_error *e);
/* In the order of their tags after `after` ("": all), at most `limit`, without what is text but name and tag; each is valid during
 * the call. */
typedef void store_sandbox_fn(void *arg, const struct store_sandbox *s);
SG_MUST_CHECK enum sg_code store_sandbox_list(struct store_db *db, const char *upstream, const char *after,
                                              int64_t limit, store_sandbox_fn *fn, void *arg,
                                              struct sg_error *e);

#endif
