/* Requests with an Idempotency-Key, as the server runs them: asks the store who may run, beats while it runs, keeps the
 * answer.  What a crash leaves is a row that somebody else takes over (store/idempotency.h).  Loop thread.
 */
#ifndef SG_ROUTES_IDEMPOTENCY_H
#define SG_ROUTES_IDEMPOTENCY_H

#include "store/idempotency.h"

enum { KEY_CHARS_MAX = 255 };

struct keys;
struct keys_config {
    struct sg_loop *loop;
    struct store *store;
    const char *upstream; /* borrowed */
    int64_t keep_ms;      /* 0: 24 h */
    int64_t silence_ms;   /* 0: 60 s; a sixth of it lies between beats */
    int64_t max_bytes;    /* 0: 1 GiB; of all rows, looked at once a minute: above it, new keys are refused */
};
/* NULL: out of memory. */
struct keys *keys_new(const struct keys_config *c);
/* After the store, which tells of what was under way. */
void keys_free(struct keys *all);
int64_t keys_keep_ms(const struct keys *all);
/* On a thread, now and then: removes what has expired, and looks how much there is. */
void keys_sweep(void *all);

/* ---- one request ---- */

struct key_run;
struct key_request { /* copied */
    const char *principal;
    unsigned char scope[32], request[32]; /* of struct store_key_ask */
};
/* Once: found (borrowed; RUN or REPLAY) or e: IDEMPOTENCY_KEY_REUSED, REQUEST_IN_PROGRESS, STORE_UNAVAILABLE, OVERLOADED,
 * always NOT_SENT.  Only after RUN is the run still there. */
typedef void key_begun_fn(void *arg, const struct store_key_found *found, const struct sg_error *e);
/* NULL with *e: done is not called. */
struct key_run *key_begin(struct keys *all, const struct key_request *q, key_begun_fn *done, void *arg,
                          struct sg_error *e);

/* What later runs are to know, at most STORE_KEY_NOTE_MAX bytes; done when it is on the disk, or e: then nothing more
 * may be done, for somebody else may have taken over, or would not know of it. */
typedef void key_noted_fn(void *arg, const struct sg_error *e);
void key_note(struct key_run *k, const char *note, key_noted_fn *done, void *arg);

enum key_end {
    KEY_DONE,     /* with its answer */
    KEY_OPEN,     /* who asks next runs it again */
    KEY_ANSWERED, /* likewise, and it was answered */
    KEY_DROP,     /* nothing happened */
};
/* The run is over; it may not be touched any more, but by key_forget until ended was called.  a: of KEY_DONE, moved out of.
 * ended (may be NULL) comes once, possibly before this returns, also when nothing could be kept (logged): a later request
 * with this key then finds what a crash would have left. */
void key_end(struct key_run *k, enum key_end how, struct store_key_answer *a, void (*ended)(void *arg),
             void *arg);
/* Neither begun nor ended are called any more.  What has not begun gives its key back; what runs is left to key_end. */
void key_forget(struct key_run *k);

/* What became of a request that was answered 202, also by another gateway; done once, possibly before this returns. */
typedef void key_operation_fn(void *arg, enum store_key_state state, const struct store_key_answer *a,
                              const struct sg_error *e);
void key_operation(struct keys *all, const char *principal, const char *operation, key_operation_fn *done,
                   void *arg);
/* The name under which a run's operation is found: made of its nonce, which it does not tell. */
void key_operation_of(const char *nonce, char out[STORE_KEY_OPERATION_TEXT]);

/* The id of the process that a run starts; `turn` 0, and a further one each time the one before was given up. */
enum { KEY_PROCESS_TEXT = 27 };
void key_process_of(const char *nonce, unsigned turn, char out[KEY_PROCESS_TEXT]);

/* Type of a body: JSON, or a problem document. */
enum { KEY_JSON = 0, KEY_PROBLEM = 1 };
/* Answers with it: copies. */
struct exchange;
void key_answer(struct exchange *ex, const struct store_key_answer *a);

#endif
