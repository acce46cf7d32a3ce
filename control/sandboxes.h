/* Decisions about sandboxes: validation before anything is sent, mapping to and from the upstream's records,
 * and the small cache that tells which session a name runs in.
 */
#ifndef SG_CONTROL_SANDBOXES_H
#define SG_CONTROL_SANDBOXES_H

#include "vercel/sandboxes.h"

#include "base/buf.h"

struct control;
struct store;
struct jobs;
struct control_config {
    struct sg_loop *loop;
    struct vercel_client *vercel; /* it and the store must outlive the control */
    struct store *store;
    const char *upstream; /* names team and project: everything that is stored is stored under it; copied */
};
/* NULL when out of memory. */
struct control *control_new(const struct control_config *config);
/* Loop thread, before the server goes: no recurring work begins any more, what runs is waited for. */
void control_stop_jobs(struct control *c);
/* Loop thread, while the askers still live: everything waiting is answered with DRAINING. */
void control_free(struct control *c);
struct jobs *control_jobs(struct control *c);

/* ^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$ and none of sessions, snapshots, drives: what may be created.  Pure. */
SG_MUST_CHECK enum sg_code control_name_for_create(const char *name, struct sg_error *e);
/* 1–128 of [A-Za-z0-9_-], none of the three words: what may be looked up.  Else SANDBOX_NOT_FOUND. */
SG_MUST_CHECK enum sg_code control_name_for_lookup(const char *name, struct sg_error *e);
/* An object of environment variables: names [A-Za-z_][A-Za-z0-9_]*, values strings without NUL.  Pure. */
SG_MUST_CHECK enum sg_code control_env_check(const json_t *env, const char *base, struct sg_error *e);

/* ---- worker thread, blocking ---- */

/* Success also when it does not exist.  session_id: its last session, "" where that is not known. */
enum { CONTROL_SESSION_TEXT = 128 };
SG_MUST_CHECK enum sg_code control_destroy(struct control *c, const char *name,
                                           char session_id[CONTROL_SESSION_TEXT], struct sg_error *e);
enum { CONTROL_LIST_TAGS = 5 };
enum control_sort { CONTROL_BY_CREATED, CONTROL_BY_NAME, CONTROL_BY_STATUS_CHANGED };
struct control_list_query { /* all borrowed */
    int64_t limit;
    const char *cursor, *name_prefix;
    struct {
        const char *key, *value;
    } tags[CONTROL_LIST_TAGS]; /* all of them */
    size_t ntags;
    bool by_status;
    enum vercel_status status;
    enum control_sort sort;
    bool ascending;
    bool (*given_up)(void *arg); /* asked between calls to the upstream; NULL: never */
    void *given_up_arg;
};
/* *page is {items, next_cursor}.  Where little of what is there is wanted a page may be short, or empty, and have a next
 * one nevertheless. */
SG_MUST_CHECK enum sg_code control_list(struct control *c, const struct control_list_query *q, json_t **page,
                                        struct sg_error *e);

/* ---- loop thread; a callback comes exactly once and may run before the function returns ---- */

/* record: the JSON text, which the callee may take out of the buffer; etag: its tag (control/record.h).  Both NULL when e is
 * set. */
typedef void control_record_fn(void *arg, struct sg_buf *record, const char *etag, const struct sg_error *e);
struct control_op;
/* NULL: done was called already. */
struct control_op *control_get(struct control *c, const char *name, control_record_fn *done, void *arg);
/* Answers when the sandbox is as wanted, at once where it cannot become so by itself (stopped, failed, aborted), and else when
 * wait_ms is over.  All who wait for one sandbox share the looks at it. */
struct control_wait {
    int64_t wait_ms;
    bool
        for_status; /* else for any change: from what has(arg, etag) knows, or without it from the first look */
    enum vercel_status status;
    bool (*has)(void *arg, const char *etag); /* the caller has this state already; NULL: none */
};
struct control_op *control_await(struct control *c, const char *name, const struct control_wait *w,
                                 control_record_fn *done, void *arg);
/* Nobody waits for the answer any more: done is not called, and the upstream is not asked on. */
void control_cancel(struct control_op *op);

/* pending: wait_ms was over first; the transition goes on by itself (ten minutes at most), and record is the
 * last one seen, or NULL. */
typedef void control_move_fn(void *arg, json_t *record, bool pending, const struct sg_error *e);
/* Whether the state of this tag is the one that the caller expects. */
typedef bool control_fits_fn(void *arg, const char *etag);
/* Worker threads, blocking: SANDBOX_NOT_FOUND, PRECONDITION_FAILED (outcome not_started). */
SG_MUST_CHECK enum sg_code control_expect(struct control *c, const char *name, control_fits_fn *fits,
                                          void *arg, struct sg_error *e);
struct control_move {
    int64_t wait_ms;
    control_fits_fn *
        fits; /* called with done's arg once, before anything is changed: PRECONDITION_FAILED; NULL: any is */
};
/* Until a session runs; waits out a session that is still stopping.  Never creates.  NOT_RESUMABLE; SNAPSHOT_GONE names
 * the snapshot.  Where the answer was lost a look tells what became of it.  `resumed` of the record: null where it is not
 * known whose session it is. */
void control_resume(struct control *c, const char *name, const struct control_move *how,
                    control_move_fn *done, void *arg);
/* Until no session runs; one that is stopped already is a success. */
void control_stop(struct control *c, const char *name, const struct control_move *how, control_move_fn *done,
                  void *arg);

/* What has to be done in a running session before it is told to stop: begin calls done(done_arg) once when that is
 * over, possibly before it returns NULL; else it returns a ticket that cancel takes back. */
struct control_session;
struct control_before_stop {
    void *(*begin)(void *arg, const char *name, const struct control_session *s, void (*done)(void *done_arg),
                   void *done_arg);
    void (*cancel)(void *ticket);
    void *arg;
};
void control_set_before_stop(struct control *c, const struct control_before_stop *b);

/* ---- which session does a name run in (loop thread) ---- */

struct control_session {
    const char *session_id, *cwd, *arch; /* borrowed during the callback; copy what you keep */
    int64_t deadline_ms;                 /* wall clock of its end, as far as is known; 0: not known */
    bool cached;                         /* from the cache: may be out of date */
};
/* Answers from the cache or asks upstream once (concurrent askers share the call).  SANDBOX_NOT_RUNNING when
 * it has no running session; never resumes.  The callback may run before this returns. */
typedef void control_session_fn(void *arg, const struct control_session *s, const struct sg_error *e);
void control_session(struct control *c, const char *name, control_session_fn *done, void *arg);
/* The cached session turned out to be over: the next control_session asks upstream.  Any thread. */
void control_session_forget(struct control *c, const char *name);

#endif
