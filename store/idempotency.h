/* Requests that carry an Idempotency-Key: which of them run, what they answered.  Functions for store_fn.
 *
 * One row per principal, method, path and key.  It is made before its request does anything, and its owner beats while the
 * request runs; a row whose owner has been silent for too long is taken over by whoever asks again.  Neither the key nor
 * the body is kept: the row knows both by hashes under a secret of the database.  Times are the database's.
 */
#ifndef SG_STORE_IDEMPOTENCY_H
#define SG_STORE_IDEMPOTENCY_H

#include "base/buf.h"
#include "store/locks.h"

enum {
    STORE_KEY_ID_TEXT = 65,
    STORE_KEY_NONCE_TEXT = 33,
    STORE_KEY_OPERATION_TEXT = 33,
    STORE_KEY_NOTE_MAX = 255,
    STORE_KEY_HEAD_MAX = 8 * 1024,   /* headers of an answer */
    STORE_KEY_BODY_MAX = 256 * 1024, /* body of an answer; larger ones are not kept */
};

struct store_key_limits {
    int64_t keep_ms;    /* a row is kept for so long after its last change */
    int64_t silence_ms; /* an owner that did not beat for so long is gone */
};

struct store_key_answer {
    int status;
    int type;           /* of its body; the meaning is the caller's */
    struct sg_buf head; /* "Name: value\n" for each header */
    struct sg_buf body;
};

/* ---- a request arrives ---- */

struct store_key_ask { /* all borrowed */
    const char *upstream, *principal;
    const unsigned char *scope;    /* 32 bytes: hash of method, path and key */
    const unsigned char *request;  /* 32 bytes: hash of what else makes the request what it is */
    const char *nonce, *operation; /* of a new row; random */
    const char *owner;             /* of this run alone; random */
    bool full;                     /* a new row is refused with OVERLOADED */
};

enum store_key_verdict {
    STORE_KEY_RUN,    /* it is the caller's to run */
    STORE_KEY_REPLAY, /* it was answered */
    STORE_KEY_OTHER,  /* another request has this key */
    STORE_KEY_BUSY,   /* it runs elsewhere */
};

struct store_key_found { /* cleared by store_key_found_clear */
    enum store_key_verdict verdict;
    char id[STORE_KEY_ID_TEXT];
    char nonce[STORE_KEY_NONCE_TEXT];
    char note[STORE_KEY_NOTE_MAX + 1];
    bool again;                     /* RUN: an earlier run may have acted */
    bool answered;                  /* RUN: an earlier run was answered, and that answer is not kept */
    struct store_key_answer answer; /* REPLAY */
};
void store_key_found_init(struct store_key_found *f);
void store_key_found_clear(struct store_key_found *f);

/* Needs STORE_DURABLE.  Asked again by the same owner, it says the same. */
SG_MUST_CHECK enum sg_code store_key_ask(struct store_db *db, const struct store_key_ask *a,
                                         const struct store_key_limits *l, struct store_key_found *out,
                                         struct sg_error *e);

/* ---- while it runs: *held false: it was taken over, or is gone ---- */

struct store_key {
    const char *upstream, *principal, *id, *owner;
};
SG_MUST_CHECK enum sg_code store_key_beat(struct store_db *db, const struct store_key *k, bool *held,
                                          struct sg_error *e);
/* What later runs are to know; needs STORE_DURABLE. */
SG_MUST_CHECK enum sg_code store_key_note(struct store_db *db, const struct store_key *k, const char *note,
                                          bool *held, struct sg_error *e);

/* ---- it ends ---- */

SG_MUST_CHECK enum sg_code store_key_done(struct store_db *db, const struct store_key *k,
                                          const struct store_key_limits *l, const struct store_key_answer *a,
                                          bool *held, struct sg_error *e);
/* Without an answer that is kept: who asks next runs it again.  answered: it had one. */
SG_MUST_CHECK enum sg_code store_key_open(struct store_db *db, const struct store_key *k,
                                          const struct store_key_limits *l, bool answered, bool *held,
                                          struct sg_error *e);
/* Nothing happened: the key is as new. */
SG_MUST_CHECK enum sg_code store_key_drop(struct store_db *db, const struct store_key *k, struct sg_error *e);

/* ---- others ---- */

enum store_key_state {
    STORE_KEY_NONE,
    STORE_KEY_RUNS,
    STORE_KEY_DONE,
    STORE_KEY_ENDED /* without an answer */
};
/* out: initialised by the caller; filled when it is DONE. */
SG_MUST_CHECK enum sg_code store_key_operation(struct store_db *db, const char *upstream,
                                               const char *principal, const char *operation,
                                               const struct store_key_limits *l, enum store_key_state *state,
                                               struct store_key_answer *out, struct sg_error *e);
/* Removes some of what has expired.  *more: call again. */
SG_MUST_CHECK enum sg_code store_key_prune(struct store_db *db, const struct store_key_limits *l, bool *more,
                                           struct sg_error *e);
/* What all rows together take, bytes (about). */
SG_MUST_CHECK enum sg_code store_key_usage(struct store_db *db, int64_t *bytes, struct sg_error *e);

#endif
