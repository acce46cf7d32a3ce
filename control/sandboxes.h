/* Decisions about sandboxes: validation before anything is sent, mapping to and from the upstream's records,
 * and the small cache that tells which session a name runs in.
 */
#ifndef SG_CONTROL_SANDBOXES_H
#define SG_CONTROL_SANDBOXES_H

#include "vercel/sandboxes.h"

struct control;
struct control *control_new(struct sg_loop *loop, struct vercel_client *vercel);
void control_free(struct control *c);

/* ^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$ and none of sessions, snapshots, drives: what may be created.  Pure. */
SG_MUST_CHECK enum sg_code control_name_for_create(const char *name, struct sg_error *e);
/* 1–128 of [A-Za-z0-9_-], none of the three words: what may be looked up.  Else SANDBOX_NOT_FOUND. */
SG_MUST_CHECK enum sg_code control_name_for_lookup(const char *name, struct sg_error *e);

/* Worker thread, blocking.  *record is the gateway's JSON for the sandbox, a new reference. */
SG_MUST_CHECK enum sg_code control_create(struct control *c, const json_t *body, json_t **record,
                                          bool *created, struct sg_error *e);
SG_MUST_CHECK enum sg_code control_get(struct control *c, const char *name, json_t **record,
                                       struct sg_error *e);
SG_MUST_CHECK enum sg_code control_resume(struct control *c, const char *name, json_t **record,
                                          struct sg_error *e);
SG_MUST_CHECK enum sg_code control_stop(struct control *c, const char *name, json_t **record,
                                        struct sg_error *e);
/* Success also when it does not exist. */
SG_MUST_CHECK enum sg_code control_destroy(struct control *c, const char *name, struct sg_error *e);
struct control_list_query {
    int64_t limit;
    const char *cursor, *name_prefix, *tag_key, *tag_value;
};
/* *page is {items, next_cursor}. */
SG_MUST_CHECK enum sg_code control_list(struct control *c, const struct control_list_query *q, json_t **page,
                                        struct sg_error *e);

/* ---- which session does a name run in (loop thread) ---- */

struct control_session {
    const char *session_id, *cwd, *arch; /* borrowed during the callback; copy what you keep */
    bool cached;                         /* from the cache: may be out of date */
};
/* Answers from the cache or asks upstream once (concurrent askers share the call).  SANDBOX_NOT_RUNNING when
 * it has no running session; never resumes.  The callback may run before this returns. */
typedef void control_session_fn(void *arg, const struct control_session *s, const struct sg_error *e);
void control_session(struct control *c, const char *name, control_session_fn *done, void *arg);
/* The cached session turned out to be over: the next control_session asks upstream.  Any thread. */
void control_session_forget(struct control *c, const char *name);

#endif
