/* Sandboxes and sessions: one blocking function per endpoint, for worker threads.
 * Source: Vercel's Sandbox REST API, generations v2 and v4.
 */
#ifndef SG_VERCEL_SANDBOXES_H
#define SG_VERCEL_SANDBOXES_H

#include "vercel/client.h"

#include "base/json_doc.h"

enum vercel_status {
    VERCEL_PENDING,
    VERCEL_RUNNING,
    VERCEL_STOPPING,
    VERCEL_STOPPED,
    VERCEL_FAILED,
    VERCEL_ABORTED,
    VERCEL_SNAPSHOTTING,
    VERCEL_STATUS_OTHER /* a value this client does not know */
};
const char *vercel_status_name(enum vercel_status s);

enum { VERCEL_TAGS_MAX = 64, VERCEL_REGIONS_MAX = 64, VERCEL_MOUNTS_MAX = 64 };

struct vercel_route {
    const char *url, *subdomain;
    int port;
};

/* A sandbox with its current session and routes, as one answer described it.  Strings live as long as the
 * struct; absent ones are NULL, absent numbers -1. */
struct vercel_sandbox {
    struct sg_jdoc doc; /* owns the strings below; empty in an entry of a page, which owns them there */
    const char *name, *region, *image, *runtime, *cwd, *architecture, *current_snapshot_id, *network_id;
    bool persistent, resumed;
    bool
        asked_again; /* of vercel_get_start: the question was sent more than once, so `resumed` may be false of a session
                         that it began */
    enum vercel_status status;
    int64_t vcpus, memory_mb, timeout_ms, created_at, updated_at, expires_at, status_updated_at;
    int64_t snapshot_expiration_ms, keep_count, keep_delete_evicted /* -1 absent, 0, 1 */;
    int64_t keep_expiration_ms;  /* of those that are kept; -1: snapshot_expiration_ms */
    const struct sg_jnode *tags; /* object or NULL, borrowed; at most VERCEL_TAGS_MAX members of any type */
    const struct sg_jnode *failover_regions; /* array or NULL, borrowed; of at most VERCEL_REGIONS_MAX */
    const struct sg_jnode *mounts;           /* object or NULL, borrowed; of at most VERCEL_MOUNTS_MAX */
    const char *session_id;
    enum vercel_status session_status;             /* VERCEL_STATUS_OTHER when the answer had no session */
    const char *session_cwd, *session_snapshot_id; /* which it began from */
    int64_t session_started_at, session_timeout_ms;
    struct vercel_route *routes;
    size_t nroutes;
};
void vercel_sandbox_clear(struct vercel_sandbox *s);
/* Reads {sandbox, session?, routes?, resumed?}; text[len] is a NUL.  UPSTREAM_BAD_RESPONSE when it is not JSON
 * or a required field is missing or has the wrong type.  Takes the text over, also when it fails.  Pure. */
SG_MUST_CHECK enum sg_code vercel_sandbox_parse(char *text, size_t len, struct vercel_sandbox *out,
                                                struct sg_error *e);

/* `body` is the request object without projectId (added here); borrowed.  POST /v2 when it has `runtime`,
 * else /v4, never sent twice.  SANDBOX_EXISTS for 409 and for 400 with a text that says the name is taken. */
SG_MUST_CHECK enum sg_code vercel_create(struct vercel_client *c, json_t *body, struct vercel_sandbox *out,
                                         struct sg_error *e);
/* GET {name}; resume asks for a running session (waits up to 10 minutes).  SANDBOX_NOT_FOUND, NOT_RESUMABLE,
 * SNAPSHOT_GONE, SANDBOX_TRANSITION … */
SG_MUST_CHECK enum sg_code vercel_get(struct vercel_client *c, const char *name, bool resume,
                                      struct vercel_sandbox *out, struct sg_error *e);
/* The same on the loop.  The answer lives during the callback, which may take it by zeroing *s. */
typedef void vercel_get_fn(void *arg, struct vercel_sandbox *s, const struct sg_error *e);
struct vercel_call *vercel_get_start(struct vercel_client *c, const char *name, bool resume,
                                     vercel_get_fn *done, void *arg, struct sg_error *e);
struct vercel_list_query {
    int limit; /* 1..50 */
    /* tag "key:value"; name_prefix only in the order of names, status only in that of creation; NULL: not sent */
    const char *cursor, *sort_by, *sort_order, *name_prefix, *tag, *status;
};
struct vercel_page {
    struct sg_jdoc doc;           /* owns all strings */
    struct vercel_sandbox *items; /* without session and routes */
    size_t n;
    const char *next; /* the cursor of the page after it; NULL: the last */
};
void vercel_page_clear(struct vercel_page *p);
/* Reads {sandboxes, pagination}, as vercel_sandbox_parse.  Pure. */
SG_MUST_CHECK enum sg_code vercel_page_parse(char *text, size_t len, struct vercel_page *out,
                                             struct sg_error *e);
SG_MUST_CHECK enum sg_code vercel_list(struct vercel_client *c, const struct vercel_list_query *q,
                                       struct vercel_page *out, struct sg_error *e);
/* DELETE {name}; an absent one is SANDBOX_NOT_FOUND (the caller decides). */
SG_MUST_CHECK enum sg_code vercel_delete(struct vercel_client *c, const char *name,
                                         bool delete_orphan_snapshots, struct sg_error *e);
/* The same, sent once: what a lost answer did has to be looked at, for the name may be another's by now. */
SG_MUST_CHECK enum sg_code vercel_delete_once(struct vercel_client *c, const char *name,
                                              bool delete_orphan_snapshots, struct sg_error *e);
/* POST …/{session}/stop, blocking until stopped (10 minutes); stopping a stopped one succeeds. */
SG_MUST_CHECK enum sg_code vercel_stop(struct vercel_client *c, const char *session_id, struct sg_error *e);

#endif
