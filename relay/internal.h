/* What the parts of relay/ share: the list of everything in flight, copied sessions and arguments, and one
 * question to the guest with retries.  Loop thread.
 */
#ifndef SG_RELAY_INTERNAL_H
#define SG_RELAY_INTERNAL_H

#include "base/buf.h"
#include "relay/relay.h"

enum {
    RELAY_STUCK_MAX = 5,        /* answers that contradict themselves, in a row */
    RELAY_RUN_GRACE_MS = 10000, /* a run whose start is not yet known is waited for so much longer */
    RELAY_ANSWER_MS = 24500,    /* but no answer is silent for longer than this */
    RELAY_LIST_MAX = 16384,     /* processes of one list */
    RELAY_SESSION_TEXT = 128,   /* longest session id that is remembered, and a NUL */
};

/* ---- everything in flight: on the relay's list from its making to obj_bury ---- */

struct relay_obj {
    struct relay_obj *prev, *next;
    struct relay *relay;
    struct sg_grave grave;
    void (*abandon)(struct relay_obj *o, const struct sg_error *e); /* ends it: tells its owner, buries */
    void (*destroy)(struct relay_obj *o);                           /* frees the memory, nothing else */
};

void obj_init(struct relay_obj *o, struct relay *r,
              void (*abandon)(struct relay_obj *o, const struct sg_error *e),
              void (*destroy)(struct relay_obj *o));
/* Off the list; destroyed at the end of this turn. */
void obj_bury(struct relay_obj *o);

struct sg_loop *relay_loop(struct relay *r);
struct guestlink *relay_guestlink(struct relay *r);

/* What belongs to a process and is found by it (relay/named.h). */
struct named_table;
enum relay_named { RELAY_INPUTS, RELAY_CROWDS, RELAY_FEEDS, RELAY_QUIET, RELAY_AUDIENCES, RELAY_NAMED_KINDS };
struct named_table *relay_named(struct relay *r, enum relay_named kind);

/* All that read from feeds (relay/feed_impl.h). */
struct feeds;
struct feeds *feeds_new(struct relay *r);
void feeds_free(struct feeds *all); /* every feed has gone */
struct feeds *relay_feeds(struct relay *r);

/* Could there be such a process, and such offsets? */
SG_MUST_CHECK enum sg_code follow_spec_check(const struct follow_spec *s, struct sg_error *e);

/* ---- who keeps what processes said last (relay/tails.h) ---- */

struct ring;
struct relay_last {             /* what is at hand of a process that ended; none of it need be there */
    const struct ring *ring[2]; /* of each stream */
    const char *head[2];        /* or its first bytes, */
    size_t len[2];              /* so many */
};
struct relay_keeper {
    void (*begins)(void *arg, const char *session_id); /* something is about to be started there */
    void (*seen)(void *arg, const char *session_id, const struct sg_wire_process *p); /* it is known so far */
    void (*ended)(void *arg, const char *session_id, const struct sg_wire_process *p,
                  const struct relay_last *last);
    void *arg;
};
/* NULL: nobody. */
void relay_set_keeper(struct relay *r, const struct relay_keeper *k);
void relay_tell_begins(struct relay *r, const char *session_id);
void relay_tell_seen(struct relay *r, const char *session_id, const struct sg_wire_process *p);
/* Its end was read (p->how says which). */
void relay_tell_ended(struct relay *r, const char *session_id, const struct sg_wire_process *p,
                      const struct relay_last *last);

/* ---- copies ---- */

struct session_copy {
    char *session_id, *arch, *cwd;
};
bool session_copy(struct session_copy *c, const struct relay_session *s);
void session_free(struct session_copy *c);

/* Arguments of a guest call; a failed allocation sticks. */
struct relay_args {
    char **v; /* NULL-terminated once something was added */
    size_t n, cap;
    bool failed;
};
void args_add(struct relay_args *a, const char *s);
void args_addu(struct relay_args *a, uint64_t n);
/* verb --session S [--id ID] */
void args_begin(struct relay_args *a, const char *verb, const char *session_id, const char *id);
void args_free(struct relay_args *a);

/* ---- retrying ---- */

/* May the same question be asked again after this failure? */
bool relay_may_retry(const struct sg_error *e);
/* The next wait: jittered; doubles *backoff (0 at first) up to the limit; not below the error's
 * retry_after_ms. */
uint64_t relay_backoff(const struct relay *r, int64_t *backoff_ms, const struct sg_error *e);

/* What an X line tells, into what is known of the process. */
void relay_take_exit(struct sg_wire_process *p, const struct sg_wire_process *x);

/* ---- one question to the guest ---- */

struct ask_answer {
    const struct sg_wire_line *line;    /* K (or M, X, E) that ended it; NULL: e says why there is none */
    bool hello;                         /* an H line was seen */
    struct sg_wire_process h;           /* it */
    const struct sg_wire_process *list; /* the P lines */
    size_t n;
    bool has_input; /* an A line was seen */
    struct process_input input;
    const struct sg_error *e; /* line NULL or E */
    bool retried;             /* an earlier attempt may have taken effect */
};
typedef void ask_done_fn(void *arg, const struct ask_answer *a);

struct ask_spec {
    const struct relay_session *session;
    struct relay_args *args; /* taken over, also on failure */
    json_t *env;             /* borrowed */
    bool sudo;
    int64_t wait_ms;  /* >= 0: --wait-ms is added, less on every retry */
    int64_t retry_ms; /* 0: asked once */
    bool retry_all;   /* also after an E line and after failures that look final */
    bool unsent_only; /* only while it is known that nothing has begun */
};

/* done is called once, later; NULL with *e when it cannot begin. */
struct ask *ask_start(struct relay *r, const struct ask_spec *s, ask_done_fn *done, void *arg,
                      struct sg_error *e);
void ask_cancel(struct ask *a);

/* ---- starting ---- */

/* Checks what the guest could not be told (NUL, ids, names) and builds `verb` with all its arguments.
 * max_output -1: none.  input_file: the name under which the input is uploaded, NULL: it travels along. */
SG_MUST_CHECK enum sg_code start_args(const struct process_spec *s, const char *verb, int64_t max_output,
                                      const char *input_file, struct relay_args *out, struct sg_error *e);

/* Input too long for an argument: uploaded before the start, which takes the file away. */
enum { STAGE_NAME = 32 };
bool stage_needed(const struct process_spec *s);
/* A name for it; false without randomness. */
bool stage_name(char name[STAGE_NAME]);
struct stage;
typedef void stage_done_fn(void *arg, const struct sg_error *e);
/* Copies the input; done once, later.  The outcome of a failure is not_started at most: no program was asked for
 * yet.  NULL with *e when it cannot begin. */
struct stage *stage_start(struct relay *r, const struct process_spec *s, const char *name,
                          stage_done_fn *done, void *arg, struct sg_error *e);
void stage_cancel(struct stage *st);

/* Asks until it is known whether `id` runs.  done: p when it does; else e, made from `why`: not_started, or
 * unknown when nobody could be asked. */
struct ask *settle_start(struct relay *r, const struct relay_session *s, const char *id, ask_done_fn *done,
                         void *arg, struct sg_error *e);
/* The guest's refusal to start, as the caller should see it. */
void start_refused(const struct sg_wire_line *line, struct sg_error *e);
/* The verdict of a settle answer.  True: it exists, *p.  False: *e from `why`. */
bool settle_verdict(const struct ask_answer *a, const char *id, const struct sg_error *why,
                    struct sg_wire_process *p, struct sg_error *e);

#endif
