/* Private to vercel/: what its files share. */
#ifndef SG_VERCEL_IMPL_H
#define SG_VERCEL_IMPL_H

#include "vercel/breaker.h"
#include "vercel/quota.h"
#include "vercel/sandboxes.h"
#include "vercel/transport.h"

#include "base/buf.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

enum {
    VERCEL_JSON_MAX = 8 * 1024 * 1024,
    VERCEL_ERROR_BODY_MAX = 64 * 1024,
    VERCEL_URL_MAX = 16 * 1024,
    VERCEL_VCPUS = 2,                    /* of a sandbox, where nothing is said */
    VERCEL_LONG_WAIT_MS = 10 * 60 * 1000 /* stop, resume, create: a boot or a snapshot happens meanwhile */
};

TAILQ_HEAD(vercel_call_list, vercel_call);
TAILQ_HEAD(vercel_wait_list, vercel_wait);
TAILQ_HEAD(vercel_terminal_list, vercel_interactive);

struct vercel_client {
    struct sg_loop *loop;
    struct vt *transport;
    char *base_url;   /* without trailing slash */
    char *team_query; /* "teamId=…", encoded; NULL: none */
    char *project_id;
    char *proxy, *ca_bundle; /* NULL: none, the system's */
    int64_t timeout_ms, create_timeout_ms, retry_budget_ms;
    int retries;
    struct vercel_auth *auth;              /* the token in force */
    struct vercel_call_list calls;         /* not yet ended */
    struct vercel_auth_source auth_source; /* wanted NULL: none */
    bool auth_wanted;                      /* it was asked */
    struct vercel_call_list parked;        /* calls that wait for another token */
    struct breaker breaker;
    struct quota quota;
    struct vercel_call_list lines[QUOTA_KINDS]; /* calls that wait for their turn */
    int64_t line_units[QUOTA_KINDS];
    struct sg_timer *line_timer;
    int64_t line_due_ms;
    int64_t retry_tokens, retry_seen_ms; /* thousandths */
    struct vercel_terminal_list terminals;
    struct wsock_pool *wsocks; /* made with the first terminal */
    bool closing;
    _Atomic uint64_t attempts;
    pthread_mutex_t lock; /* guards waits */
    struct vercel_wait_list waits;
};

/* A call whose whole 2xx body is collected (at most VERCEL_JSON_MAX) before `done`, so it can be made again
 * also after a cut in the middle of the answer.  `body` may be taken with free() duty by setting *body NULL. */
typedef void vercel_collect_fn(void *arg, char **body, size_t len, const struct sg_error *e);
struct vercel_call *vercel_collect_start(struct vercel_client *c, const struct vercel_request *r,
                                         vercel_collect_fn *done, void *arg, struct sg_error *e);
/* The text becomes the document's, or goes.  UPSTREAM_BAD_RESPONSE when it is not a JSON object. */
SG_MUST_CHECK enum sg_code vercel_read_object(char *text, size_t len, struct sg_jdoc *doc,
                                              struct sg_error *e);
/* The member "status" of an object; VERCEL_STATUS_OTHER when it is none that is known. */
enum vercel_status vercel_status_of(const struct sg_jnode *obj);
/* Whether an id can be put into a path and kept where the gateway keeps ids (less than 128 bytes). */
bool vercel_id_usable(const char *id);
/* &key=value, encoded; nothing for a NULL value. */
bool vercel_add_param(struct sg_buf *query, const char *key, const char *value);
enum sg_code vercel_no_memory(struct sg_error *e);
/* A call whose answer says nothing that matters: an object, or empty. */
SG_MUST_CHECK enum sg_code vercel_wait_void(struct vercel_client *c, const struct vercel_request *r,
                                            struct sg_error *e);
/* A collected body as a JSON object: new reference, or NULL with *e. */
json_t *vercel_body_json(const char *body, size_t len, struct sg_error *e);

/* The same for a waiting thread; *body is the caller's to free. */
SG_MUST_CHECK enum sg_code vercel_wait_body(struct vercel_client *c, const struct vercel_request *r,
                                            char **body, size_t *len, struct sg_error *e);
/* The client goes: what threads have posted and is not begun will not begin. */
void vercel_waits_end(struct vercel_client *c);

/* For calls that own something: called at the end of the turn in which the call ended, whichever way (done,
 * cancelled, client freed). */
void vercel_call_on_gone(struct vercel_call *call, void (*gone)(void *arg), void *arg);
/* …/sessions/{id}/cmd/{id}, and what follows.  *path is to be freed in any case. */
bool vercel_command_path(struct sg_buf *path, const char *session_id, const char *command_id,
                         const char *rest);
/* How many virtual CPUs a body of create or fork asks for. */
int64_t vercel_vcpus(const json_t *body);
void vercel_call_end_all(struct vercel_client *c);
void vercel_terminals_end(struct vercel_client *c);
struct vercel_client *vercel_call_client(struct vercel_call *call);
/* It was sent more than once: what an answer says of an act may be said of an earlier try. */
bool vercel_call_sent_again(const struct vercel_call *call);
/* Upstream's request id of the answer being received; "" when none. */
const char *vercel_call_request_id(const struct vercel_call *call);

#endif
