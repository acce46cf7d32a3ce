/* Snapshots, and what changes sandboxes and sessions beyond their life: PATCH, fork, extend, the list of sessions.
 * Blocking, for worker threads.  Source: Vercel's Sandbox REST API, generation v2 (create and fork without a runtime: v4
 * and v3).
 */
#ifndef SG_VERCEL_SNAPSHOTS_H
#define SG_VERCEL_SNAPSHOTS_H

#include "vercel/sandboxes.h"

enum vercel_snapshot_status {
    VERCEL_SNAPSHOT_CREATED,
    VERCEL_SNAPSHOT_DELETED, /* a tombstone: still told, no longer usable */
    VERCEL_SNAPSHOT_FAILED,
    VERCEL_SNAPSHOT_OTHER
};
const char *vercel_snapshot_status_name(enum vercel_snapshot_status s);

enum { VERCEL_SNAPSHOT_REGIONS = 31 };

/* Strings live as long as the struct (or the page that holds it); absent ones NULL, absent numbers -1. */
struct vercel_snapshot {
    struct sg_jdoc doc; /* owns the strings; empty in an entry of a page */
    const char *id, *source_session_id, *region, *parent_id, *architecture, *creation_method;
    const char *regions[VERCEL_SNAPSHOT_REGIONS + 1]; /* where it can be used; NULL-terminated */
    enum vercel_snapshot_status status;
    int64_t size_bytes, created_at, updated_at, last_used_at;
    int64_t expires_at; /* -1: never */
};
void vercel_snapshot_clear(struct vercel_snapshot *s);
struct vercel_snapshot_page {
    struct sg_jdoc doc;
    struct vercel_snapshot *items;
    size_t n;
    const char *next;
};
void vercel_snapshot_page_clear(struct vercel_snapshot_page *p);
/* Read {snapshot} and {snapshots, pagination}, as vercel_sandbox_parse does.  Pure. */
SG_MUST_CHECK enum sg_code vercel_snapshot_parse(char *text, size_t len, struct vercel_snapshot *out,
                                                 struct sg_error *e);
SG_MUST_CHECK enum sg_code vercel_snapshot_page_parse(char *text, size_t len,
                                                      struct vercel_snapshot_page *out, struct sg_error *e);

/* GET: a deleted one is a success with that status, or SNAPSHOT_NOT_FOUND where nothing is left of it. */
SG_MUST_CHECK enum sg_code vercel_snapshot_get(struct vercel_client *c, const char *id,
                                               struct vercel_snapshot *out, struct sg_error *e);
/* sandbox NULL: of the project.  limit 1..50; newest first. */
SG_MUST_CHECK enum sg_code vercel_snapshot_list(struct vercel_client *c, const char *sandbox, int limit,
                                                const char *cursor, struct vercel_snapshot_page *out,
                                                struct sg_error *e);
/* An absent one is SNAPSHOT_NOT_FOUND; one that is a tombstone already succeeds. */
SG_MUST_CHECK enum sg_code vercel_snapshot_delete(struct vercel_client *c, const char *id,
                                                  struct sg_error *e);
/* POST …/{session}/snapshot: stops the session (waits up to 10 minutes), never sent twice.  expire_ms 0: never.
 * What could not be captured is UPSTREAM_UNAVAILABLE.  STALE_SESSION, SANDBOX_TRANSITION, SANDBOX_NOT_FOUND. */
SG_MUST_CHECK enum sg_code vercel_snapshot_take(struct vercel_client *c, const char *session_id,
                                                int64_t expire_ms, struct vercel_snapshot *out,
                                                struct sg_error *e);

/* PATCH {name} with the members of body (borrowed).  Repeating it is the same, so it is sent again where that helps.
 * SANDBOX_NOT_FOUND. */
SG_MUST_CHECK enum sg_code vercel_update(struct vercel_client *c, const char *name, const json_t *body,
                                         struct vercel_sandbox *out, struct sg_error *e);
/* POST {source}/fork with the members of body (borrowed): never sent twice.  SANDBOX_EXISTS, SANDBOX_NOT_FOUND (the
 * source), SNAPSHOT_GONE. */
SG_MUST_CHECK enum sg_code vercel_fork(struct vercel_client *c, const char *source, const json_t *body,
                                       struct vercel_sandbox *out, struct sg_error *e);
/* POST …/{session}/extend-timeout: adds to it, so it is never sent twice.  *timeout_ms: the session's whole time
 * afterwards.  SESSION_LIMIT when the plan's ceiling is reached; STALE_SESSION. */
SG_MUST_CHECK enum sg_code vercel_extend(struct vercel_client *c, const char *session_id, int64_t add_ms,
                                         int64_t *timeout_ms, struct sg_error *e);

struct vercel_session {
    const char *id, *region, *source_snapshot_id;
    enum vercel_status status;
    int64_t created_at, started_at, stopped_at, timeout_ms, vcpus, memory_mb;
};
struct vercel_session_page {
    struct sg_jdoc doc;
    struct vercel_session *items;
    size_t n;
    const char *next;
};
void vercel_session_page_clear(struct vercel_session_page *p);
SG_MUST_CHECK enum sg_code vercel_session_page_parse(char *text, size_t len, struct vercel_session_page *out,
                                                     struct sg_error *e);
/* Newest first; limit 1..50. */
SG_MUST_CHECK enum sg_code vercel_session_list(struct vercel_client *c, const char *sandbox, int limit,
                                               const char *cursor, struct vercel_session_page *out,
                                               struct sg_error *e);
/* Whose session it is or was.  SANDBOX_NOT_FOUND: nobody's any more (its sandbox was deleted), or it is not told. */
enum { VERCEL_NAME_TEXT = 129 };
SG_MUST_CHECK enum sg_code vercel_session_owner(struct vercel_client *c, const char *session_id,
                                                char name[VERCEL_NAME_TEXT], struct sg_error *e);

#endif
