/* Templates by name, and what was prepared by the fingerprint of their inputs.  Functions for store_fn; times are the
 * database's.
 */
#ifndef SG_STORE_TEMPLATES_H
#define SG_STORE_TEMPLATES_H

#include "base/buf.h"
#include "store/store.h"

enum {
    TEMPLATE_NAME_TEXT = 64,
    TEMPLATE_PRINT_TEXT = 65, /* 64 hexadecimal digits */
    TEMPLATE_ATTEMPT_TEXT = 33,
    TEMPLATE_ID_TEXT = 129,               /* of a snapshot */
    TEMPLATE_SPEC_MAX = 17 * 1024 * 1024, /* no more than a request's body */
    TEMPLATE_LOG_MAX = 1024 * 1024,       /* kept of one preparation; the oldest goes first */
    TEMPLATE_LOG_PIECE = 64 * 1024,
};

/* ---- templates ---- */

struct store_template {
    char name[TEMPLATE_NAME_TEXT];
    char owner[64]; /* id of the principal that made it; "": nobody's */
    char fingerprint[TEMPLATE_PRINT_TEXT];
    int64_t made_at_ms, changed_at_ms;
    char *spec; /* JSON text, owned where it was read */
};
void store_template_clear(struct store_template *t);
/* *made: there was none of the name.  changed_at stays where the spec is the same. */
SG_MUST_CHECK enum sg_code store_template_put(struct store_db *db, const char *upstream,
                                              const struct store_template *t, bool *made, struct sg_error *e);
SG_MUST_CHECK enum sg_code store_template_get(struct store_db *db, const char *upstream, const char *name,
                                              struct store_template *out, bool *found, struct sg_error *e);
SG_MUST_CHECK enum sg_code store_template_drop(struct store_db *db, const char *upstream, const char *name,
                                               bool *found, struct sg_error *e);
/* Names after `after` (NULL: from the first), in byte order; without specs.  The array is freed by the caller. */
SG_MUST_CHECK enum sg_code store_template_list(struct store_db *db, const char *upstream, const char *after,
                                               int64_t limit, struct store_template **out, size_t *n,
                                               struct sg_error *e);

/* ---- what was prepared ---- */

enum store_prep_state { PREP_RUNNING = 1, PREP_READY = 2, PREP_FAILED = 3 };

struct store_prep {
    char fingerprint[TEMPLATE_PRINT_TEXT];
    enum store_prep_state state;
    char attempt[TEMPLATE_ATTEMPT_TEXT]; /* this preparation: only it may change the row while it holds it */
    int64_t held_until_ms;               /* RUNNING: before it, somebody works on it */
    char builder[64], alloc[65];         /* its sandbox; "": none */
    char snapshot_id[TEMPLATE_ID_TEXT];  /* READY: "": nothing had to be prepared.  RUNNING: the one before */
    char identity[TEMPLATE_PRINT_TEXT];  /* READY: of the fingerprint and what it was resolved to */
    char region[17], architecture[17], image[300];
    char error[64], detail[256]; /* FAILED: code and words */
    int64_t started_at_ms, ended_at_ms;
    int64_t log_end; /* bytes of log so far */
};
SG_MUST_CHECK enum sg_code store_prep_get(struct store_db *db, const char *upstream, const char *fingerprint,
                                          struct store_prep *out, bool *found, struct sg_error *e);

enum store_prep_verdict {
    PREP_YOURS, /* claimed: `was` tells what was left behind (builder, alloc, snapshot_id), if anything */
    PREP_BUSY,  /* another one works on it; `was` is it */
    PREP_USABLE /* `was` is ready */
};
/* Claims the preparation where there is none, it failed, nobody holds it any more, its snapshot is `gone`, or `anew`. */
struct store_prep_claim {
    const char *fingerprint, *attempt;
    int64_t hold_ms;
    const char *gone; /* NULL: none */
    bool anew;
    enum store_prep_verdict verdict; /* out */
    struct store_prep was;           /* out; zeroed where there was none */
};
SG_MUST_CHECK enum sg_code store_prep_claim(struct store_db *db, const char *upstream,
                                            struct store_prep_claim *c, struct sg_error *e);
/* The following are for its holder; *held false: it is not any more, and nothing was changed. */
SG_MUST_CHECK enum sg_code store_prep_hold(struct store_db *db, const char *upstream, const char *fingerprint,
                                           const char *attempt, int64_t hold_ms, bool *held,
                                           struct sg_error *e);
/* Before it is allocated.  DURABLE. */
SG_MUST_CHECK enum sg_code store_prep_builder(struct store_db *db, const char *upstream,
                                              const struct store_prep *p, bool *held, struct sg_error *e);
/* READY or FAILED, by p->state: with what it says. */
SG_MUST_CHECK enum sg_code store_prep_end(struct store_db *db, const char *upstream,
                                          const struct store_prep *p, bool *held, struct sg_error *e);
/* Given back: whoever wants it next begins at once. */
SG_MUST_CHECK enum sg_code store_prep_leave(struct store_db *db, const char *upstream,
                                            const char *fingerprint, const char *attempt, struct sg_error *e);

/* One that nobody holds any more though it runs. */
SG_MUST_CHECK enum sg_code store_prep_left(struct store_db *db, const char *upstream,
                                           char fingerprint[TEMPLATE_PRINT_TEXT], bool *found,
                                           struct sg_error *e);
/* Takes away one that no template has and nobody works on; *out is what it was. */
SG_MUST_CHECK enum sg_code store_prep_sweep(struct store_db *db, const char *upstream, struct store_prep *out,
                                            bool *found, struct sg_error *e);
/* ---- its log ---- */

/* Appends at *end, which moves on; drops the oldest above TEMPLATE_LOG_MAX.  len: TEMPLATE_LOG_PIECE at most. */
SG_MUST_CHECK enum sg_code store_prep_log(struct store_db *db, const char *upstream, const char *fingerprint,
                                          const char *attempt, int64_t *end, const void *data, size_t len,
                                          struct sg_error *e);
struct store_prep_read {
    const char *fingerprint;
    int64_t offset, limit;
    bool found;             /* out: there is a preparation */
    struct store_prep prep; /* out */
    int64_t from;           /* out: where the bytes begin: after offset, where older ones are gone */
    struct sg_buf *bytes;   /* out */
};
SG_MUST_CHECK enum sg_code store_prep_read(struct store_db *db, const char *upstream,
                                           struct store_prep_read *r, struct sg_error *e);

#endif
